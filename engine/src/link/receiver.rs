//! The receiving end of a stream: in order, each message once; what has arrived and what is committed are two cursors.

use ticktape_core::Nanos;

use super::data::Data;
use super::error::DropReason;
use super::packet::{Ack, SEQ_LIMIT};
use super::serial::{extend, truncate};

/// How a [`Receiver`] acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// Messages taken beyond the acknowledged ones: the sender is told, and whatever lies beyond is dropped unseen.
    pub window: u32,
    /// An acknowledgement is due after so many messages …
    pub ack_every_messages: u32,
    /// … or so long after the first that is not acknowledged.
    pub ack_delay_ns: u64,
    /// Whether one is also due whenever more is committed: sooner word for the peer, one more datagram a commit.
    pub ack_on_commit: bool,
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        ReceiverConfig { window: 8192, ack_every_messages: 64, ack_delay_ns: 10_000_000, ack_on_commit: true }
    }
}

/// What became of a Data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its new messages were handed on, in order.
    Deliver {
        /// How many.
        delivered: u32,
        /// How many there was no room for: the peer will send them again.
        refused: u32,
    },
    /// All of it had arrived before.
    Duplicate,
    /// It belongs to an epoch that is over.
    Stale,
    /// Messages before it are missing; nothing of it was taken.
    Gap {
        /// The first that is missing.
        from: u64,
        /// How many are.
        count: u64,
    },
    /// It can't be joined to what has arrived.
    Resync(ResyncCause),
}

/// Why a packet can't be joined to what has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResyncCause {
    /// It belongs to an epoch of which no handshake has told.
    UnknownEpoch,
    /// It lies beyond the window.
    BeyondWindow,
}

impl Outcome {
    /// What to count, where the packet or part of it had no effect.
    #[inline]
    pub const fn drop_reason(&self) -> Option<DropReason> {
        match self {
            Outcome::Deliver { refused: 0, .. } => None,
            Outcome::Deliver { .. } => Some(DropReason::NoRoom),
            Outcome::Duplicate => Some(DropReason::Duplicate),
            Outcome::Stale => Some(DropReason::StaleEpoch),
            Outcome::Gap { .. } => Some(DropReason::Gap),
            Outcome::Resync(ResyncCause::UnknownEpoch) => Some(DropReason::UnknownEpoch),
            Outcome::Resync(ResyncCause::BeyondWindow) => Some(DropReason::BeyondWindow),
        }
    }
}

/// The receiving end of one stream.
///
/// Invariant: `committed_next <= received_next`, and no acknowledgement goes beyond either.
#[derive(Debug)]
pub struct Receiver {
    epoch: u32,
    received_next: u64,
    committed_next: u64,
    /// The commit cursor of the last acknowledgement.
    told_next: u64,
    config: ReceiverConfig,
    window: u32,
    arrived_since_ack: u32,
    is_due: bool,
    deadline: Option<Nanos>,
}

impl Receiver {
    /// The stream `epoch`, of which everything before `next` is received and committed.
    ///
    /// # Panics
    /// Where `next` is out of range, or the window is zero or half the serial space.
    pub fn new(epoch: u32, next: u64, config: &ReceiverConfig) -> Self {
        assert!(next < SEQ_LIMIT && config.window > 0 && config.window < 1 << 30);
        Receiver {
            epoch,
            received_next: next,
            committed_next: next,
            told_next: next,
            config: *config,
            window: config.window,
            arrived_since_ack: 0,
            is_due: false,
            deadline: None,
        }
    }

    /// The stream's epoch.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Messages before it have arrived.
    #[inline]
    pub const fn received_next(&self) -> u64 {
        self.received_next
    }

    /// Messages before it are committed.
    #[inline]
    pub const fn committed_next(&self) -> u64 {
        self.committed_next
    }

    /// Messages taken beyond the acknowledged ones.
    pub const fn window(&self) -> u32 {
        self.window
    }

    /// Hands the new messages of `data` to `deliver`, in order, with their seqs. `deliver` returns false where it has no room:
    /// that message and those after it count as not received. `epoch` is the stream's, from the packet's header.
    #[inline]
    pub fn on_data(
        &mut self,
        now: Nanos,
        epoch: u32,
        data: &Data<'_>,
        mut deliver: impl FnMut(u64, &[u8]) -> bool,
    ) -> Outcome {
        if epoch != self.epoch {
            return if epoch < self.epoch { Outcome::Stale } else { Outcome::Resync(ResyncCause::UnknownEpoch) };
        }
        let count = u32::from(data.count());
        let mut known = 0;
        if data.base_seq() != truncate(self.received_next) {
            known = match self.place(data.base_seq(), count) {
                Ok(known) => known,
                Err(outcome) => return outcome,
            };
        }
        let mut delivered = 0;
        for message in data.messages().skip(known as usize) {
            if !deliver(self.received_next, message) {
                break;
            }
            self.received_next += 1;
            delivered += 1;
        }
        self.arrived_since_ack = self.arrived_since_ack.saturating_add(delivered);
        if self.arrived_since_ack >= self.config.ack_every_messages {
            self.is_due = true;
        } else if delivered > 0 && self.deadline.is_none() {
            self.deadline = Some(now + self.config.ack_delay_ns);
        }
        Outcome::Deliver { delivered, refused: count - known - delivered }
    }

    /// Where a packet that does not begin with the expected message stands: how many of its messages are known already.
    #[cold]
    fn place(&mut self, base_seq: u32, count: u32) -> Result<u32, Outcome> {
        let base = extend(base_seq, self.received_next);
        if base > self.received_next {
            let missing = base - self.received_next;
            // Repeated, it tells the sender of the loss.
            self.is_due = true;
            return Err(if missing < u64::from(self.config.window) {
                Outcome::Gap { from: self.received_next, count: missing }
            } else {
                Outcome::Resync(ResyncCause::BeyondWindow)
            });
        }
        let known = self.received_next - base;
        if known >= u64::from(count) {
            // The peer sends again what it could have known: tell it.
            self.is_due = true;
            return Err(Outcome::Duplicate);
        }
        Ok(known as u32)
    }

    /// Numbers `from .. from + count` will never come. Skips them where they are next; true if it did.
    pub fn on_gap_fill(&mut self, from: u32, count: u32) -> bool {
        let from = extend(from, self.received_next);
        let end = from.saturating_add(u64::from(count));
        let fits = from <= self.received_next && end > self.received_next && end < SEQ_LIMIT;
        if fits {
            self.received_next = end;
            self.is_due = true;
        }
        fits
    }

    /// Everything before `next` is committed. Going back, or beyond what has arrived, has no effect.
    #[inline]
    pub fn set_committed_next(&mut self, next: u64) {
        let next = next.min(self.received_next);
        if next > self.committed_next {
            self.committed_next = next;
            self.is_due |= self.config.ack_on_commit;
        }
    }

    /// Takes `window` messages beyond the acknowledged ones from now on; at most what the config said. The peer learns with
    /// the next acknowledgement, which is due at once if the window was closed.
    pub fn set_window(&mut self, window: u32) {
        self.is_due |= self.window == 0 && window > 0;
        self.window = window.min(self.config.window);
    }

    /// The stream goes on at `next` in `epoch`: everything before it counts as received and committed.
    pub fn restart(&mut self, epoch: u32, next: u64) {
        assert!(next < SEQ_LIMIT);
        self.epoch = epoch;
        self.received_next = next;
        self.committed_next = next;
        self.told_next = next;
        self.arrived_since_ack = 0;
        self.deadline = None;
        self.is_due = true;
    }

    /// Has the next [`Receiver::poll_ack`] answer, whatever has arrived.
    pub fn request_ack(&mut self) {
        self.is_due = true;
    }

    /// The acknowledgement that is due, if one is. Each is said once: where one is lost that only told of a commit, a sender
    /// whose window is full waits for the next. So an owner that commits later than it receives repeats it as its sign of
    /// life, through [`Receiver::request_ack`].
    #[inline]
    pub fn poll_ack(&mut self, now: Nanos) -> Option<Ack> {
        if !self.is_due && !self.is_due_by_commit(now) {
            return None;
        }
        self.is_due = false;
        self.deadline = None;
        self.arrived_since_ack = 0;
        self.told_next = self.committed_next;
        Some(self.ack())
    }

    /// What an acknowledgement says now.
    pub const fn ack(&self) -> Ack {
        Ack {
            acked_next: truncate(self.committed_next),
            received_next: truncate(self.received_next),
            window: self.window,
        }
    }

    fn is_due_by_commit(&mut self, now: Nanos) -> bool {
        let untold = self.committed_next - self.told_next;
        if untold > 0 && self.deadline.is_none() {
            self.deadline = Some(now + self.config.ack_delay_ns);
        }
        untold >= u64::from(self.config.ack_every_messages) || self.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// When to poll again, whatever else happens.
    pub const fn poll_timeout(&self) -> Option<Nanos> {
        self.deadline
    }
}
