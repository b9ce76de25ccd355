//! The client's machine: says what it wants, checks what comes, and hands it on.
//!
//! It outlives its connections: after [`Fetch::reconnect`] it asks for what is still missing, within a snapshot, too.
//!
//! Invariant: a frame is handed on once, in order, after both its checksums fit; a snapshot's bytes once, from its beginning on.
//! Invariant: while it is the server's turn there is a deadline, and it moves only with a whole message.

use std::ops::Range;

use ticktape_core::{Frame, Kind, Nanos, Seq, frame};

use super::decoder::Decoder;
use super::error::{Fault, MessageError};
use super::message::{
    Hello, MESSAGE_BYTES_LIMIT, MESSAGE_BYTES_MIN, Message, Part, Refuse, RefuseReason, SnapshotBegin, Type, UpTo,
    Welcome,
};
use crate::payload::{EpochChange, Reign};

/// Snapshots that a server may begin in one catch-up: more than one only where they are retired while they are sent.
const SNAPSHOTS_MAX: u32 = 4;

/// What a client wants, and what it takes.
#[derive(Clone, Debug)]
pub struct FetchConfig {
    /// Which stream, as in the feed's session.
    pub stream: u32,
    /// The service's name; empty where it has none.
    pub service_name: String,
    /// The service's schema version.
    pub schema_version: u32,
    /// The identity of the client's log; 0 where it has none yet.
    pub log_id: u64,
    /// The first frame wanted.
    pub wanted: Seq,
    /// The reign of the frame before that; of epoch 0 where there is none, or nobody knows.
    pub reign: Reign,
    /// So many frames are replayed rather than a snapshot taken; `u64::MAX`: a snapshot only where there is no other way.
    pub replay_max: u64,
    /// Snapshots of later seqs are not wanted.
    pub snapshot_max: Seq,
    /// The largest message taken, in bytes: at least the largest frame and 32 bytes. Twice as much is allocated.
    pub message_bytes_max: usize,
    /// The largest snapshot file taken, in bytes.
    pub snapshot_bytes_max: u64,
    /// How long a server may take to say on a connection that it serves, or why not. It knows that without looking anything up, so that
    /// one which hangs is soon told from one that works.
    pub welcome_timeout_ns: u64,
    /// How long it may take for each whole message after that.
    pub answer_timeout_ns: u64,
}

impl FetchConfig {
    /// From `wanted` on, frames rather than snapshots, messages of 256 KiB, snapshots of up to 1 TiB, the first answer
    /// within 2 s, others within 10 s.
    pub fn new(stream: u32, service_name: &str, schema_version: u32, wanted: Seq) -> Self {
        FetchConfig {
            stream,
            service_name: service_name.to_owned(),
            schema_version,
            log_id: 0,
            wanted,
            reign: Reign::default(),
            replay_max: u64::MAX,
            snapshot_max: Seq::MAX,
            message_bytes_max: 256 << 10,
            snapshot_bytes_max: 1 << 40,
            welcome_timeout_ns: 2_000_000_000,
            answer_timeout_ns: 10_000_000_000,
        }
    }
}

/// What is handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched<'a> {
    /// A snapshot's bytes follow, from `offset` on: what is there before stays, what is there behind goes.
    SnapshotBegin(SnapshotBegin),
    /// The next bytes of the snapshot.
    SnapshotChunk {
        /// Where in the file.
        offset: u64,
        /// At least one byte.
        chunk: &'a [u8],
    },
    /// The next frame.
    Frame {
        /// It, checked.
        frame: Frame<'a>,
        /// Its bytes, as they stand in a log, without padding.
        bytes: &'a [u8],
    },
}

/// Where a fetch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More bytes are needed.
    NeedsBytes,
    /// What was handed on was not taken: there was no room.
    Full,
    /// The snapshot of this seq is there, all of it: check it, then say [`Fetch::accept_snapshot`] or
    /// [`Fetch::reject_snapshot`].
    SnapshotComplete(Seq),
    /// Everything that the server had is here. [`Fetch::ask_again`] goes on.
    UpTo(UpTo),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is the server's turn.
    Waiting,
    /// A snapshot is complete, and not yet accepted.
    Judging,
    /// The server has said that this is all.
    Done(UpTo),
}

/// Frames of a message that are not handed on yet.
#[derive(Clone, Debug)]
struct Batch {
    span: Range<usize>,
    count: u32,
}

/// A client of a catch-up.
#[derive(Debug)]
pub struct Fetch {
    config: FetchConfig,
    decoder: Decoder,
    state: State,
    next: Seq,
    reign: Reign,
    welcome: Option<Welcome>,
    batch: Option<Batch>,
    /// The snapshot at hand, and how much of it was handed on.
    snapshot: Option<(SnapshotBegin, u64)>,
    snapshots: u32,
    snapshot_max: Seq,
    /// Until when a whole message has to be there.
    deadline: Option<Nanos>,
    frames: u64,
    bytes: u64,
}

impl Fetch {
    /// A fetch that has no connection yet: [`Fetch::reconnect`] begins.
    ///
    /// # Panics
    /// For a largest message outside [`MESSAGE_BYTES_MIN`] to [`MESSAGE_BYTES_LIMIT`].
    pub fn new(config: FetchConfig) -> Self {
        let fits = (MESSAGE_BYTES_MIN..=MESSAGE_BYTES_LIMIT).contains(&config.message_bytes_max);
        assert!(fits, "messages of {MESSAGE_BYTES_MIN} to {MESSAGE_BYTES_LIMIT} bytes");
        let decoder = Decoder::new(config.message_bytes_max);
        Fetch {
            decoder,
            state: State::Waiting,
            next: config.wanted.max(Seq::FIRST),
            reign: config.reign,
            welcome: None,
            batch: None,
            snapshot: None,
            snapshots: 0,
            snapshot_max: config.snapshot_max,
            deadline: None,
            frames: 0,
            bytes: 0,
            config,
        }
    }

    /// The part of a snapshot that is there from before. Only before the first connection.
    pub fn resume_snapshot(&mut self, part: Part, file_bytes: u64) {
        let begin = SnapshotBegin { seq: part.seq, file_bytes, offset: part.bytes, header_crc: part.header_crc };
        self.snapshot = Some((begin, part.bytes));
    }

    /// A connection begins. Appends what is to be sent first.
    pub fn reconnect(&mut self, now: Nanos, out: &mut Vec<u8>) {
        self.decoder.clear();
        (self.batch, self.welcome, self.snapshots) = (None, None, 0);
        self.hello(now, out);
    }

    /// Asks for what came after the end that the server named. Appends what is to be sent.
    ///
    /// # Panics
    /// While the server is still sending.
    pub fn ask_again(&mut self, now: Nanos, out: &mut Vec<u8>) {
        assert!(matches!(self.state, State::Done(_)), "the server has come to its end");
        self.snapshots = 0;
        self.hello(now, out);
    }

    fn hello(&mut self, now: Nanos, out: &mut Vec<u8>) {
        self.state = State::Waiting;
        let FetchConfig { welcome_timeout_ns, answer_timeout_ns, .. } = self.config;
        let timeout_ns = if self.welcome.is_none() { welcome_timeout_ns } else { answer_timeout_ns };
        self.deadline = Some(now.saturating_add(timeout_ns));
        let part = self.snapshot.map(|(begin, bytes)| Part { seq: begin.seq, header_crc: begin.header_crc, bytes });
        let FetchConfig { stream, schema_version, log_id, replay_max, message_bytes_max, .. } = self.config;
        let hello = Hello {
            stream,
            schema_version,
            log_id,
            wanted: self.next,
            reign: self.reign,
            replay_max,
            message_bytes_max: message_bytes_max as u32,
            part: part.filter(|part| part.bytes > 0 && part.seq >= self.next),
            snapshot_max: self.snapshot_max,
            service_name: &self.config.service_name,
        };
        Message::Hello(hello).append_to(out);
    }

    /// Where the connection's next bytes go. Not while frames wait to be handed on.
    pub fn space(&mut self) -> &mut [u8] {
        assert!(self.batch.is_none(), "frames stand in the buffer");
        self.decoder.space()
    }

    /// So many bytes were put there.
    pub fn filled(&mut self, bytes: usize) {
        self.decoder.filled(bytes);
        self.bytes += bytes as u64;
    }

    /// Hands on what is there, as long as `take` says that it took it; what it did not take is offered again.
    ///
    /// # Errors
    /// [`Fault`]: hang up; then reconnect, here or elsewhere. What was handed on stands.
    pub fn poll(&mut self, now: Nanos, mut take: impl FnMut(Fetched<'_>) -> bool) -> Result<Step, Fault> {
        loop {
            if !self.hand_on(&mut take)? {
                // It is not the server that is waited for.
                self.deadline = None;
                return Ok(Step::Full);
            }
            match self.state {
                State::Judging => {
                    self.deadline = None;
                    return Ok(Step::SnapshotComplete(self.snapshot.expect("it is judged").0.seq));
                }
                State::Done(_) if self.decoder.has_part() => return Err(Fault::Unexpected),
                State::Done(up_to) => return Ok(Step::UpTo(up_to)),
                State::Waiting => {}
            }
            let Some((message_type, span)) = self.decoder.next_span().map_err(Fault::Malformed)? else {
                let timeout_ns = self.config.answer_timeout_ns;
                let deadline = *self.deadline.get_or_insert(now.saturating_add(timeout_ns));
                return if now >= deadline { Err(Fault::Silent) } else { Ok(Step::NeedsBytes) };
            };
            self.deadline = None;
            if !self.on_message(message_type, span, &mut take)? {
                return Ok(Step::Full);
            }
        }
    }

    /// When [`Fetch::poll`] gives a server up, if nothing comes before.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.deadline
    }

    fn on_message(
        &mut self,
        message_type: Type,
        span: Range<usize>,
        take: &mut impl FnMut(Fetched<'_>) -> bool,
    ) -> Result<bool, Fault> {
        let message = Message::parse(message_type, self.decoder.bytes(span.clone())).map_err(Fault::Malformed)?;
        let is_welcome = matches!(message, Message::Welcome(_) | Message::Refuse(_));
        if self.welcome.is_none() && !is_welcome {
            return Err(Fault::Unexpected);
        }
        match message {
            Message::Hello(_) => Err(Fault::Unexpected),
            Message::Refuse(refuse) => Err(self.on_refuse(refuse)),
            Message::Welcome(welcome) => self.on_welcome(welcome).map(|()| true),
            Message::SnapshotBegin(begin) => {
                self.on_snapshot(begin)?;
                // What takes it can't be out of room: it only begins.
                take(Fetched::SnapshotBegin(begin));
                self.judge_if_complete();
                Ok(true)
            }
            Message::SnapshotChunk { offset, chunk } => {
                let Some((begin, handed_on)) = &mut self.snapshot else { return Err(Fault::Unexpected) };
                let bad = Fault::BadSnapshot { seq: begin.seq };
                if offset != *handed_on || chunk.len() as u64 > begin.file_bytes - *handed_on {
                    return Err(bad);
                }
                take(Fetched::SnapshotChunk { offset, chunk });
                *handed_on += chunk.len() as u64;
                self.judge_if_complete();
                Ok(true)
            }
            Message::Frames { base, count, .. } => {
                if self.snapshots > 0 && self.snapshot.is_some() {
                    return Err(Fault::Unexpected);
                }
                if base != self.next {
                    return Err(Fault::OtherFrames { seq: base, next: self.next });
                }
                self.batch = Some(Batch { span: span.start + super::layout::frames::FRAMES..span.end, count });
                self.hand_on(take)
            }
            Message::UpTo(up_to) => {
                if up_to.next != self.next {
                    return Err(Fault::WrongEnd { server: up_to.next, next: self.next });
                }
                self.check_reign(up_to.reign)?;
                self.state = State::Done(up_to);
                Ok(true)
            }
        }
    }

    fn on_welcome(&mut self, welcome: Welcome) -> Result<(), Fault> {
        let (server, client) = (welcome.log_id, self.config.log_id);
        if server != 0 && client != 0 && server != client {
            return Err(Fault::OtherLog { server, client });
        }
        self.check_reign(welcome.reign)?;
        self.welcome = Some(welcome);
        Ok(())
    }

    fn on_refuse(&self, refuse: Refuse) -> Fault {
        let server = Reign { epoch: self.reign.epoch, id: refuse.detail };
        match refuse.reason {
            RefuseReason::OtherHistory if server.is_other(self.reign) => self.other_history(server),
            _ => Fault::Refused(refuse),
        }
    }

    /// The server's reign is that of the client's last frame, where both are of one epoch.
    fn check_reign(&self, server: Reign) -> Result<(), Fault> {
        if server.is_other(self.reign) { Err(self.other_history(server)) } else { Ok(()) }
    }

    fn other_history(&self, server: Reign) -> Fault {
        Fault::OtherHistory { log_id: self.log_id(), server, client: self.reign }
    }

    fn on_snapshot(&mut self, begin: SnapshotBegin) -> Result<(), Fault> {
        self.snapshots += 1;
        if self.snapshots > SNAPSHOTS_MAX {
            return Err(Fault::TooManySnapshots);
        }
        let there = self.snapshot.filter(|(known, _)| {
            (known.seq, known.header_crc, known.file_bytes) == (begin.seq, begin.header_crc, begin.file_bytes)
        });
        let there = there.map_or(0, |(_, bytes)| bytes);
        let leads_on = begin.seq >= self.next && begin.seq <= self.snapshot_max;
        if !leads_on || begin.offset > there || begin.file_bytes > self.config.snapshot_bytes_max {
            return Err(Fault::BadSnapshot { seq: begin.seq });
        }
        self.snapshot = Some((begin, begin.offset));
        Ok(())
    }

    fn judge_if_complete(&mut self) {
        if self.snapshot.is_some_and(|(begin, handed_on)| handed_on == begin.file_bytes) {
            self.state = State::Judging;
        }
    }

    /// The complete snapshot is sound, and of this reign: frames go on behind it.
    ///
    /// # Panics
    /// Where none is complete.
    pub fn accept_snapshot(&mut self, reign: Reign) {
        assert_eq!(self.state, State::Judging, "a snapshot is complete");
        let (begin, _) = self.snapshot.take().expect("it is judged");
        (self.next, self.reign, self.state) = (begin.seq.next(), reign, State::Waiting);
    }

    /// The complete snapshot is not sound: it is not wanted again, nor is a newer one. Hang up and reconnect.
    ///
    /// # Panics
    /// Where none is complete.
    pub fn reject_snapshot(&mut self) {
        assert_eq!(self.state, State::Judging, "a snapshot is complete");
        let (begin, _) = self.snapshot.take().expect("it is judged");
        (self.snapshot_max, self.state) = (Seq(begin.seq.0 - 1), State::Waiting);
    }

    /// Hands on the frames of the message at hand; false where one was not taken.
    fn hand_on(&mut self, take: &mut impl FnMut(Fetched<'_>) -> bool) -> Result<bool, Fault> {
        let Some(Batch { span, count }) = &mut self.batch else { return Ok(true) };
        while *count > 0 {
            let rest = self.decoder.bytes(span.clone());
            let found = Frame::decode(rest).map_err(|error| Fault::BadFrame { next: self.next, error })?;
            if found.seq != self.next {
                return Err(Fault::OtherFrames { seq: found.seq, next: self.next });
            }
            if matches!(found.kind, Kind::Output | Kind::Heartbeat) {
                return Err(Fault::NotOfALog { seq: found.seq });
            }
            let bytes = frame::frame_bytes(found.payload.len());
            if !take(Fetched::Frame { frame: found, bytes: &rest[..bytes] }) {
                return Ok(false);
            }
            if found.kind == Kind::EpochChange
                && let Some(change) = EpochChange::decode(found.payload)
            {
                self.reign = change.begins();
            }
            self.next = self.next.next();
            self.frames += 1;
            *count -= 1;
            span.start += bytes;
        }
        let left_over = span.start != span.end;
        self.batch = None;
        if left_over { Err(Fault::Malformed(MessageError::Length)) } else { Ok(true) }
    }

    /// The frame that comes next.
    pub fn next_seq(&self) -> Seq {
        self.next
    }

    /// The reign of the last frame, as far as it is known.
    pub fn reign(&self) -> Reign {
        self.reign
    }

    /// The log's identity: the client's own, or what the server said.
    pub fn log_id(&self) -> u64 {
        if self.config.log_id != 0 { self.config.log_id } else { self.welcome.map_or(0, |welcome| welcome.log_id) }
    }

    /// What the server said when it began.
    pub fn welcome(&self) -> Option<Welcome> {
        self.welcome
    }

    /// Whether frames wait to be handed on.
    pub fn has_frames(&self) -> bool {
        self.batch.is_some()
    }

    /// Frames handed on.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Bytes that came.
    pub fn bytes_received(&self) -> u64 {
        self.bytes
    }

    /// What it was asked for.
    pub fn config(&self) -> &FetchConfig {
        &self.config
    }

    /// Begins anew elsewhere in the log: after what was there before was given up.
    ///
    /// # Panics
    /// While a connection is at work: reconnect next.
    pub fn want(&mut self, wanted: Seq, reign: Reign) {
        (self.next, self.reign) = (wanted.max(Seq::FIRST), reign);
        (self.snapshot, self.batch) = (None, None);
        (self.snapshot_max, self.state) = (self.config.snapshot_max, State::Waiting);
    }
}

/// Refusals after which asking the same server again, in a while, may do.
pub fn is_passing(refuse: &Refuse) -> bool {
    matches!(
        refuse.reason,
        RefuseReason::BeyondTheLog
            | RefuseReason::ServerIsBehind
            | RefuseReason::TooManyClients
            | RefuseReason::TooManyOfAddress
            | RefuseReason::Stopping
    )
}
