//! The door of a replica's log: what comes in, by feed, repair or catch-up, is checked here and written to the ring as it came.
//!
//! Invariant: the ring gets consecutive frames whose checksums fit, and nothing that could not stand in the leader's log.
//! Invariant: an epoch begins with its own `EpochChange`, of this service and schema, and after no other reign than the log is in, whichever way
//! its frames come.

use std::fmt;

use ticktape_core::frame::padded;
use ticktape_core::{Frame, FrameError, Kind, Seq};
use ticktape_shm::Producer;

use crate::catchup::EpochTable;
use crate::machine::StepError;
use crate::payload::{EpochChange, Reign, are_of_other_reigns};

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is in the ring, to be published.
    Taken,
    /// It has been there before.
    Known,
    /// The ring has no room: the same frame is to come again.
    Full,
    /// It is not the next one.
    Early,
    /// It is none that could be next.
    Refused(Refusal),
}

/// Why a frame is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is no frame, or its checksums do not fit.
    Frame(FrameError),
    /// It carries another number than the message that it came in.
    OtherSeq,
    /// Bytes follow it.
    Trailing,
    /// It is larger than the ring takes.
    TooLarge,
    /// It is of a kind that stands in no log.
    Kind(Kind),
    /// It is of another epoch than the log is in, and does not begin it.
    Epoch,
    /// It begins an epoch after another reign than the log is in, or is the beginning of another reign than an epoch here: another
    /// history of this log, which an older copy of it went on with.
    OtherHistory,
}

impl Refusal {
    /// How many reasons are told apart.
    pub const COUNT: usize = 7;

    /// Its place among the counters.
    pub const fn index(self) -> usize {
        match self {
            Refusal::Frame(_) => 0,
            Refusal::OtherSeq => 1,
            Refusal::Trailing => 2,
            Refusal::TooLarge => 3,
            Refusal::Kind(_) => 4,
            Refusal::Epoch => 5,
            Refusal::OtherHistory => 6,
        }
    }

    /// Names for metrics, by index.
    pub const NAMES: [&'static str; Refusal::COUNT] = [
        "frames_damaged",
        "frames_of_another_seq",
        "frames_with_trailing_bytes",
        "frames_too_large",
        "frames_of_a_wrong_kind",
        "frames_of_a_wrong_epoch",
        "frames_of_another_history",
    ];
}

/// How a frame came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// In a session of the feed, which is of one epoch.
    Feed {
        /// The session's.
        epoch: u64,
    },
    /// In bulk: history, over any number of epochs, from [where it began](Door::begin_bulk) on.
    Bulk,
}

/// The log is not for this service: nothing more can be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit(pub StepError);

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which service's log is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name; empty where it has none.
    pub name: &'static str,
    /// Its schema version.
    pub schema_version: u32,
}

/// The one writer of a replica's ring.
pub struct Door {
    producer: Producer,
    frame_bytes_max: usize,
    service: Identity,
    reign: Reign,
    epoch_began_at: Seq,
    /// The epoch that a transfer has come to: the feed may have gone on meanwhile.
    bulk_epoch: u64,
    epochs: EpochTable,
    misfit: Option<Misfit>,
    refusals: [u64; Refusal::COUNT],
    last_refusal: Option<(Seq, Refusal)>,
}

impl Door {
    /// Writes to `producer`, which goes on after a log that is in `reign`; of epoch 0 where there is none yet.
    pub fn new(producer: Producer, frame_bytes_max: usize, service: Identity, reign: Reign) -> Self {
        Door {
            producer,
            frame_bytes_max,
            service,
            reign,
            epoch_began_at: Seq::ZERO,
            bulk_epoch: reign.epoch,
            epochs: EpochTable::default(),
            misfit: None,
            refusals: [0; Refusal::COUNT],
            last_refusal: None,
        }
    }

    /// Each epoch that begins is entered there, however many do in one poll.
    #[must_use]
    pub fn record_epochs(self, epochs: EpochTable) -> Self {
        Door { epochs, ..self }
    }

    /// A transfer begins here: what it brings goes on after the log as it is now.
    pub fn begin_bulk(&mut self) {
        self.bulk_epoch = self.reign.epoch;
    }

    /// The frame that comes next.
    #[inline]
    pub fn next_seq(&self) -> Seq {
        self.producer.next_seq()
    }

    /// The epoch that the log is in.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.reign.epoch
    }

    /// The reign that the log is in.
    pub fn reign(&self) -> Reign {
        self.reign
    }

    /// The frame with which that epoch began; 0 where it did before this door.
    pub fn epoch_began_at(&self) -> Seq {
        self.epoch_began_at
    }

    /// Why nothing more is taken, if that is so.
    pub fn misfit(&self) -> Option<&Misfit> {
        self.misfit.as_ref()
    }

    /// Takes the frame `seq`, if it is the next one and fits.
    #[inline]
    pub fn admit(&mut self, seq: u64, bytes: &[u8], way: Way) -> Admission {
        let next = self.producer.next_seq().0;
        if seq > next {
            return Admission::Early;
        }
        if seq < next {
            return if way == Way::Bulk { self.pass_in_bulk(seq, bytes) } else { Admission::Known };
        }
        if self.misfit.is_some() {
            return Admission::Full;
        }
        match self.check(seq, bytes, way) {
            Ok(begins) => {
                if !self.producer.room(padded(bytes.len())) || self.producer.push(bytes).is_err() {
                    return Admission::Full;
                }
                if let Some(reign) = begins {
                    (self.reign, self.epoch_began_at) = (reign, Seq(seq));
                    if way == Way::Bulk {
                        self.bulk_epoch = reign.epoch;
                    }
                    self.epochs.begin(reign, Seq(seq));
                }
                Admission::Taken
            }
            Err(None) => Admission::Full,
            Err(Some(refusal)) => self.refuse(seq, refusal),
        }
    }

    fn refuse(&mut self, seq: u64, refusal: Refusal) -> Admission {
        self.refusals[refusal.index()] += 1;
        self.last_refusal = Some((Seq(seq), refusal));
        Admission::Refused(refusal)
    }

    /// A frame of a transfer where the feed was before it. One that begins an epoch later than the log's says that what the feed
    /// brought there was taken back.
    #[cold]
    fn pass_in_bulk(&mut self, seq: u64, bytes: &[u8]) -> Admission {
        if let Ok(frame) = Frame::decode(bytes)
            && frame.kind == Kind::EpochChange
            && let Some(change) = EpochChange::decode(frame.payload)
        {
            if change.epoch > self.reign.epoch {
                return self.refuse(seq, Refusal::Epoch);
            }
            if self.epochs.has_other(change.begins()) {
                return self.refuse(seq, Refusal::OtherHistory);
            }
            self.bulk_epoch = change.epoch;
        }
        Admission::Known
    }

    /// The reign that begins with the frame, if one does. `Err(None)` where the log turns out to be another service's.
    #[inline]
    fn check(&mut self, seq: u64, bytes: &[u8], way: Way) -> Result<Option<Reign>, Option<Refusal>> {
        let frame = Frame::decode(bytes).map_err(|error| Some(Refusal::Frame(error)))?;
        if frame.seq.0 != seq {
            return Err(Some(Refusal::OtherSeq));
        }
        if frame.bytes() != bytes.len() {
            return Err(Some(Refusal::Trailing));
        }
        if bytes.len() > self.frame_bytes_max {
            return Err(Some(Refusal::TooLarge));
        }
        match frame.kind {
            Kind::EpochChange => self.check_epoch_change(&frame, way).map(Some),
            Kind::Output | Kind::Heartbeat | Kind::TimerFired => Err(Some(Refusal::Kind(frame.kind))),
            _ if self.epoch_of(way) != self.reign.epoch => Err(Some(Refusal::Epoch)),
            _ if are_of_other_reigns(frame.stream_id, self.reign.stream_id()) => Err(Some(Refusal::OtherHistory)),
            _ => Ok(None),
        }
    }

    /// The epoch that a frame which begins none is of.
    #[inline]
    fn epoch_of(&self, way: Way) -> u64 {
        match way {
            Way::Feed { epoch } => epoch,
            Way::Bulk => self.bulk_epoch,
        }
    }

    #[cold]
    fn check_epoch_change(&mut self, frame: &Frame<'_>, way: Way) -> Result<Reign, Option<Refusal>> {
        let change = EpochChange::decode(frame.payload).ok_or(Some(Refusal::Kind(frame.kind)))?;
        let fits = match way {
            Way::Feed { epoch } => change.epoch == epoch,
            Way::Bulk => true,
        };
        if !fits || change.epoch <= self.reign.epoch {
            return Err(Some(Refusal::Epoch));
        }
        if change.is_after_another(self.reign) {
            return Err(Some(Refusal::OtherHistory));
        }
        let (seq, Identity { name, schema_version }) = (frame.seq, self.service);
        if !change.service_name.is_empty() && !name.is_empty() && change.service_name != name {
            let log = change.service_name.to_string();
            self.misfit = Some(Misfit(StepError::OtherService { seq, log, service: name }));
            return Err(None);
        }
        if change.schema_version != schema_version {
            let log = change.schema_version;
            self.misfit = Some(Misfit(StepError::SchemaMismatch { seq, log, service: schema_version }));
            return Err(None);
        }
        Ok(change.begins())
    }

    /// Makes visible what was taken.
    #[inline]
    pub fn publish(&mut self) {
        self.producer.publish();
    }

    /// For polls that found nothing to do.
    #[inline]
    pub fn idle(&mut self) {
        self.producer.idle();
    }

    /// Tells followers that the writer lives. `now_ns` is any clock that moves between calls.
    pub fn heartbeat(&mut self, now_ns: u64) {
        self.producer.heartbeat(now_ns);
    }

    /// How often frames were refused, by [`Refusal::index`].
    pub fn refusals(&self) -> &[u64; Refusal::COUNT] {
        &self.refusals
    }

    /// The last frame that was refused, and why.
    pub fn last_refusal(&self) -> Option<(Seq, Refusal)> {
        self.last_refusal
    }
}

#[cfg(test)]
#[path = "door_tests.rs"]
mod tests;
