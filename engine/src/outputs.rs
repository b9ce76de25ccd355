//! The ring between the executor and the egress: outputs on their way out, held back until their input is committed.
//!
//! Records are frames of kind `Output`, numbered from 1 in each run. WIRE.md, "Output records".

use ticktape_core::frame::{PAYLOAD, frame_bytes, lay_out, padded};
use ticktape_core::{Frame, Kind, Seq, SessionId, Target, Timestamp};
use ticktape_shm::Producer;

use crate::link::layout::Field;
use crate::machine::Emitted;
use crate::payload::Origin;

const CAUSE_SEQ: usize = 0;
const SESSION: usize = 8;
const EVENT_SEQ: usize = 16;
const CLIENT_SEQ: usize = 24;
const CLIENT_EPOCH: usize = 32;
const WHAT: usize = 36;
const BYTES: usize = 40;

/// A record's fields, as WIRE.md has them.
pub(crate) const FIELDS: &[Field] = &[
    Field { offset: CAUSE_SEQ, bytes: SESSION - CAUSE_SEQ, name: "cause_seq" },
    Field { offset: SESSION, bytes: EVENT_SEQ - SESSION, name: "session" },
    Field { offset: EVENT_SEQ, bytes: CLIENT_SEQ - EVENT_SEQ, name: "event_seq" },
    Field { offset: CLIENT_SEQ, bytes: CLIENT_EPOCH - CLIENT_SEQ, name: "client_seq" },
    Field { offset: CLIENT_EPOCH, bytes: WHAT - CLIENT_EPOCH, name: "client_epoch" },
    Field { offset: WHAT, bytes: BYTES - WHAT, name: "what" },
    Field { offset: BYTES, bytes: 0, name: "output" },
];

/// What a record adds to an output, in ring bytes.
pub const RECORD_BYTES: usize = padded(frame_bytes(BYTES)) + 8;

/// The size of the record of an output of `output_bytes` bytes, as a frame.
pub const fn record_bytes(output_bytes: usize) -> usize {
    frame_bytes(BYTES + output_bytes)
}

const TO_FEED: u32 = 0;
const TO_SESSION: u32 = 1;
const TO_CALLER: u32 = 2;
const SESSION_PROGRESS: u32 = 3;

/// What `what` says, by number.
pub(crate) const WHATS: [(u32, &str); 4] =
    [(TO_FEED, "Feed"), (TO_SESSION, "Session"), (TO_CALLER, "Caller"), (SESSION_PROGRESS, "Progress")];

/// One entry of the output ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// An output of the service.
    Output(Emitted<'a>),
    /// Every command of this session up to `origin.client_seq` has been applied, with all its outputs before this record.
    Progress {
        /// The frame that brought it so far.
        seq: Seq,
        /// The session, its reign and its last command.
        origin: Origin,
    },
}

impl<'a> Record<'a> {
    /// The input that must be committed before this may leave.
    pub fn seq(&self) -> Seq {
        match self {
            Record::Output(emitted) => emitted.seq,
            Record::Progress { seq, .. } => *seq,
        }
    }

    /// Reads a record that this process wrote.
    ///
    /// # Panics
    /// When the frame is none: a bug of this process.
    #[inline]
    pub fn read(frame: &'a [u8]) -> Record<'a> {
        let payload = Frame::view(frame).expect("a frame of the output ring").payload;
        let u64_at = |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().expect("eight bytes"));
        let u32_at = |at: usize| u32::from_le_bytes(payload[at..at + 4].try_into().expect("four bytes"));
        let session = SessionId(u64_at(SESSION));
        let client_seq = u64_at(CLIENT_SEQ);
        let target = match u32_at(WHAT) {
            TO_FEED => Target::Feed,
            TO_SESSION => Target::Session(session),
            TO_CALLER => Target::Caller,
            _ => {
                let origin = Origin { session, client_epoch: u32_at(CLIENT_EPOCH), client_seq };
                return Record::Progress { seq: Seq(u64_at(CAUSE_SEQ)), origin };
            }
        };
        let (seq, event_seq) = (Seq(u64_at(CAUSE_SEQ)), u64_at(EVENT_SEQ));
        Record::Output(Emitted { seq, target, event_seq, client_seq, bytes: &payload[BYTES..] })
    }
}

/// The writer's side of the output ring.
pub struct OutputWriter {
    producer: Producer,
    scratch: Box<[u8]>,
}

impl OutputWriter {
    /// Writes to `producer`, with outputs of up to `output_bytes_max` bytes each.
    pub fn new(producer: Producer, output_bytes_max: usize) -> Self {
        OutputWriter { producer, scratch: vec![0; record_bytes(output_bytes_max)].into_boxed_slice() }
    }

    /// Whether `bytes` bytes of records can be written now.
    #[inline]
    pub fn room(&mut self, bytes: usize) -> bool {
        self.producer.room(bytes)
    }

    /// Writes one record; others see it after [`OutputWriter::publish`]. The caller has made sure of the room.
    #[inline]
    pub fn push(&mut self, record: &Record<'_>) {
        let (session, event_seq, origin_epoch, client_seq, what, bytes): (u64, u64, u32, u64, u32, &[u8]) = match record
        {
            Record::Output(Emitted { target, event_seq, client_seq, bytes, .. }) => match target {
                Target::Feed => (0, *event_seq, 0, *client_seq, TO_FEED, bytes),
                Target::Session(session) => (session.0, *event_seq, 0, *client_seq, TO_SESSION, bytes),
                Target::Caller => (0, *event_seq, 0, *client_seq, TO_CALLER, bytes),
            },
            Record::Progress { origin, .. } => {
                (origin.session.0, 0, origin.client_epoch, origin.client_seq, SESSION_PROGRESS, &[])
            }
        };
        let len = BYTES + bytes.len();
        let payload = &mut self.scratch[PAYLOAD..PAYLOAD + len];
        payload[CAUSE_SEQ..SESSION].copy_from_slice(&record.seq().0.to_le_bytes());
        payload[SESSION..EVENT_SEQ].copy_from_slice(&session.to_le_bytes());
        payload[EVENT_SEQ..CLIENT_SEQ].copy_from_slice(&event_seq.to_le_bytes());
        payload[CLIENT_SEQ..CLIENT_EPOCH].copy_from_slice(&client_seq.to_le_bytes());
        payload[CLIENT_EPOCH..WHAT].copy_from_slice(&origin_epoch.to_le_bytes());
        payload[WHAT..BYTES].copy_from_slice(&what.to_le_bytes());
        payload[BYTES..].copy_from_slice(bytes);
        let seq = self.producer.next_seq();
        let size = lay_out(&mut self.scratch, seq, Timestamp(0), 0, Kind::Output, len);
        self.producer.push(&self.scratch[..size]).expect("room was made sure of");
    }

    /// Makes what was written visible.
    #[inline]
    pub fn publish(&mut self) {
        self.producer.publish();
    }

    /// For polls that found nothing to do.
    #[inline]
    pub fn idle(&mut self) {
        self.producer.idle();
    }

    /// The number of the next record.
    pub fn next_seq(&self) -> Seq {
        self.producer.next_seq()
    }
}
