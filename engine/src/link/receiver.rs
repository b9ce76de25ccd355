//! The receiving end of a stream: in order, each message once; what has arrived and what is committed are two cursors.
//!
//! ```text
//!      committed_next    received_next                             highest known to be sent
//!  ────────┼──────────────────┼───────────────────────────────────────────┼──────►
//!  acked   │ handed on        │ missing │ held │ missing │ held           │
//!                             └── within the slots: asked for, and kept ──┘
//! ```
//!
//! A message whose turn it is goes straight from its packet to the owner: one compare a packet. Only after a loss are slots
//! used, and gaps asked for.

use ticktape_core::Nanos;

use super::data::Data;
use super::error::DropReason;
use super::loss::{LossDetector, Pace};
use super::packet::{Ack, SEQ_LIMIT};
use super::ranges::Range;
use super::reorder::{Held, Reorder};
use super::serial::{extend, truncate};

/// How a [`Receiver`] acknowledges, what it keeps, and when it asks.
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
    /// Messages kept while those before them are missing; rounded up to a power of two, at least 64. Worth what the peer sends in
    /// a round trip and the delay below; more is asked for again once the gap is closed.
    pub reorder_messages: usize,
    /// Their bytes in all, in blocks of 64. A single message of more than a quarter of it is not kept. A receiver takes this,
    /// about a third more, and 7 bytes a message; the memory is not touched before something is lost.
    pub reorder_bytes: usize,
    /// How long what is missing may merely have been overtaken. Lower asks for what comes anyway; higher makes a loss cost more.
    pub reorder_delay_ns: u64,
    /// How long to wait for what was asked for before asking again; must exceed a round trip. Doubles …
    pub nack_repeat_ns: u64,
    /// … up to this.
    pub nack_repeat_max_ns: u64,
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        ReceiverConfig {
            window: 8192,
            ack_every_messages: 64,
            ack_delay_ns: 10_000_000,
            ack_on_commit: true,
            reorder_messages: 1024,
            reorder_bytes: 256 << 10,
            reorder_delay_ns: 200_000,
            nack_repeat_ns: 4_000_000,
            nack_repeat_max_ns: 128_000_000,
        }
    }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Messages were handed on, in order.
    Deliver {
        /// How many, those that had waited for their turn included.
        delivered: u32,
        /// How many of this packet the owner had no room for. They are kept, and offered again, or else sent again.
        refused: u32,
    },
    /// All of it had arrived before.
    Duplicate,
    /// It belongs to an epoch that is over.
    Stale,
    /// Messages before it are missing.
    Gap {
        /// The first that is missing.
        from: u64,
        /// How many are, up to the packet.
        count: u64,
        /// How many of the packet are kept until their turn comes.
        kept: u32,
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
            Outcome::Gap { kept: 0, .. } => Some(DropReason::Gap),
            Outcome::Gap { .. } => None,
            Outcome::Resync(ResyncCause::UnknownEpoch) => Some(DropReason::UnknownEpoch),
            Outcome::Resync(ResyncCause::BeyondWindow) => Some(DropReason::BeyondWindow),
        }
    }
}

/// The receiving end of one stream.
///
/// Invariant: `committed_next <= received_next`, and no acknowledgement goes beyond either.
/// Invariant: everything held lies within the slots from `received_next` on.
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
    /// Something is held or missing: the way through the slots has to be taken.
    is_disturbed: bool,
    deadline: Option<Nanos>,
    reorder: Reorder,
    loss: LossDetector,
    gaps: u64,
    nacks: u64,
}

impl Receiver {
    /// The stream `epoch`, of which everything before `next` is received and committed. Allocates all it will ever use.
    ///
    /// # Panics
    /// Where `next` is out of range, the window is zero or half the serial space, or a wait is zero.
    pub fn new(epoch: u32, next: u64, config: &ReceiverConfig) -> Self {
        assert!(next < SEQ_LIMIT && config.window > 0 && config.window < 1 << 30);
        assert!(config.nack_repeat_ns > 0 && config.reorder_messages <= 1 << 20);
        let pace = Pace {
            delay_ns: config.reorder_delay_ns,
            repeat_ns: config.nack_repeat_ns,
            repeat_max_ns: config.nack_repeat_max_ns.max(config.nack_repeat_ns),
        };
        Receiver {
            epoch,
            received_next: next,
            committed_next: next,
            told_next: next,
            config: *config,
            window: config.window,
            arrived_since_ack: 0,
            is_due: false,
            is_disturbed: false,
            deadline: None,
            reorder: Reorder::new(config.reorder_messages, config.reorder_bytes),
            loss: LossDetector::new(pace, next),
            gaps: 0,
            nacks: 0,
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

    /// How many messages wait for those before them.
    pub const fn held(&self) -> u64 {
        self.reorder.len()
    }

    /// How many packets came with messages before them missing.
    pub const fn gaps(&self) -> u64 {
        self.gaps
    }

    /// How many times something was asked for.
    pub const fn nacks(&self) -> u64 {
        self.nacks
    }

    /// Hands the new messages of `data` to `deliver`, in order, with their seqs, and those that had waited for them. `deliver`
    /// returns false where it has no room: it is offered that message again by the next call, or by
    /// [`Receiver::poll_deliver`]. `epoch` is the stream's, from the packet's header.
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
        if data.base_seq() != truncate(self.received_next) || self.is_disturbed {
            return self.place(now, data, deliver);
        }
        let (count, mut delivered) = (u32::from(data.count()), 0);
        for message in data.messages() {
            if !deliver(self.received_next, message) {
                break;
            }
            self.received_next += 1;
            delivered += 1;
        }
        if delivered < count {
            self.hold(now, data, self.received_next - u64::from(delivered));
        }
        self.arrived(now, delivered);
        Outcome::Deliver { delivered, refused: count - delivered }
    }

    /// A packet that does not begin with the expected message, or that comes while others wait.
    #[cold]
    fn place(&mut self, now: Nanos, data: &Data<'_>, mut deliver: impl FnMut(u64, &[u8]) -> bool) -> Outcome {
        let (base, count) = (extend(data.base_seq(), self.received_next), u32::from(data.count()));
        if base > self.received_next {
            return self.on_gap(now, data, base);
        }
        let known = self.received_next - base;
        if known >= u64::from(count) {
            // The peer sends again what it could have known: tell it.
            self.is_due = true;
            return Outcome::Duplicate;
        }
        let before = self.received_next;
        for message in data.messages().skip(known as usize) {
            if !deliver(self.received_next, message) {
                break;
            }
            self.reorder.remove(self.received_next);
            self.received_next += 1;
        }
        let taken = (self.received_next - base) as u32;
        if taken < count {
            self.hold(now, data, base);
        }
        let delivered = (self.received_next - before) as u32 + self.drain(&mut deliver);
        self.after_progress(now, before, delivered);
        Outcome::Deliver { delivered, refused: count - taken }
    }

    fn on_gap(&mut self, now: Nanos, data: &Data<'_>, base: u64) -> Outcome {
        let missing = base - self.received_next;
        if missing >= u64::from(self.config.window) {
            self.is_due = true;
            return Outcome::Resync(ResyncCause::BeyondWindow);
        }
        self.gaps += 1;
        let kept = self.hold(now, data, base);
        self.arrived(now, kept);
        Outcome::Gap { from: self.received_next, count: missing, kept }
    }

    /// Keeps what there is room for of a packet that begins at `base` and whose messages can't be handed on now.
    #[cold]
    fn hold(&mut self, now: Nanos, data: &Data<'_>, base: u64) -> u32 {
        let (limit, mut kept) = (self.slots_end(), 0);
        for (seq, message) in (base..limit).zip(data.messages()) {
            kept += u32::from(seq >= self.received_next && self.reorder.keep(seq, message));
        }
        let end = base + u64::from(data.count());
        let has_all = end <= limit && self.reorder.next_missing(base.max(self.received_next), end) == end;
        self.loss.saw(now, self.received_next, base, end, !has_all);
        self.is_disturbed = true;
        kept
    }

    /// Numbers `from .. from + count` will never come: skips them, and hands on what had waited for it.
    pub fn on_gap_fill(
        &mut self,
        now: Nanos,
        from: u32,
        count: u32,
        mut deliver: impl FnMut(u64, &[u8]) -> bool,
    ) -> Outcome {
        let from = extend(from, self.received_next);
        let end = from.saturating_add(u64::from(count)).min(SEQ_LIMIT - 1);
        let before = self.received_next;
        if end <= before {
            self.is_due = true;
            return Outcome::Duplicate;
        }
        // No honest peer has given up more than the window let it number.
        if end - before > u64::from(self.config.window) {
            return Outcome::Resync(ResyncCause::BeyondWindow);
        }
        if from > before {
            self.gaps += 1;
            let fits = from.min(self.slots_end())..end.min(self.slots_end());
            let kept = fits.filter(|&seq| self.reorder.keep_void(seq)).count() as u32;
            self.loss.saw(now, before, from, end, false);
            self.is_disturbed = true;
            return Outcome::Gap { from: before, count: from - before, kept };
        }
        for seq in before..end.min(self.slots_end()) {
            self.reorder.remove(seq);
        }
        self.received_next = end;
        let delivered = self.drain(&mut deliver);
        self.is_due = true;
        self.after_progress(now, before, delivered);
        Outcome::Deliver { delivered, refused: 0 }
    }

    /// The peer will use `next_seq` next: what lies before it was sent. Answers what is missing of it; true where anything is.
    pub fn on_heartbeat(&mut self, now: Nanos, next_seq: u32) -> bool {
        let next = extend(next_seq, self.received_next);
        if next <= self.received_next || next - self.received_next > u64::from(self.config.window) {
            return false;
        }
        self.loss.saw(now, self.received_next, next, next, true);
        self.is_disturbed = true;
        true
    }

    /// Offers what has waited for its turn, or for room, again. Returns how many were handed on.
    pub fn poll_deliver(&mut self, now: Nanos, mut deliver: impl FnMut(u64, &[u8]) -> bool) -> u32 {
        if !self.is_ready() {
            return 0;
        }
        let before = self.received_next;
        let delivered = self.drain(&mut deliver);
        self.after_progress(now, before, delivered);
        delivered
    }

    /// Whether a message waits whose turn has come: its owner had no room for it.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.is_disturbed && self.reorder.contains(self.received_next)
    }

    /// Hands on what is held, as far as it goes.
    fn drain(&mut self, deliver: &mut impl FnMut(u64, &[u8]) -> bool) -> u32 {
        let mut delivered = 0;
        if self.reorder.is_empty() {
            return 0;
        }
        while let Some(held) = self.reorder.get(self.received_next) {
            if let Held::Message(message) = held {
                if !deliver(self.received_next, message) {
                    break;
                }
                delivered += 1;
            }
            self.reorder.remove(self.received_next);
            self.received_next += 1;
        }
        delivered
    }

    fn after_progress(&mut self, now: Nanos, before: u64, delivered: u32) {
        if self.received_next > before {
            self.loss.advance(now, self.received_next, self.slots_end());
        }
        self.is_disturbed = !self.reorder.is_empty() || !self.loss.is_idle(self.received_next);
        self.arrived(now, delivered);
    }

    #[inline]
    fn arrived(&mut self, now: Nanos, messages: u32) {
        self.arrived_since_ack = self.arrived_since_ack.saturating_add(messages);
        if self.arrived_since_ack >= self.config.ack_every_messages {
            self.is_due = true;
        } else if messages > 0 && self.deadline.is_none() {
            self.deadline = Some(now + self.config.ack_delay_ns);
        }
    }

    /// One beyond the last that there is a slot for.
    fn slots_end(&self) -> u64 {
        self.received_next + self.reorder.slots()
    }

    /// Whether nothing is missing or held: then there is nothing to ask for.
    #[inline]
    pub const fn is_whole(&self) -> bool {
        !self.is_disturbed
    }

    /// Writes what is to be asked for now to `out`, ascending, and returns how much: 0 where nothing is due. Call it until then:
    /// each call goes on where the last one ended.
    pub fn poll_nack(&mut self, now: Nanos, out: &mut [Range]) -> usize {
        if !self.is_disturbed {
            return 0;
        }
        let Some((mut from, end)) = self.loss.poll(now, self.received_next, self.slots_end()) else { return 0 };
        let mut ranges = 0;
        while from < end && ranges < out.len() {
            from = self.reorder.next_missing(from, end);
            let until = self.reorder.next_held(from, end);
            if from < until {
                out[ranges] = Range { from: truncate(from), count: (until - from) as u32 };
                ranges += 1;
            }
            from = until;
        }
        self.loss.asked(from);
        self.nacks += u64::from(ranges > 0);
        ranges
    }

    /// Writes what is held beyond `received_next` to `out`, ascending, as much as fits, and returns how much that is.
    pub fn held_ranges(&self, out: &mut [Range]) -> usize {
        let (mut from, end, mut ranges) = (self.received_next, self.slots_end(), 0);
        while !self.reorder.is_empty() && from < end && ranges < out.len() {
            from = self.reorder.next_held(from, end);
            let until = self.reorder.next_missing(from, end);
            if from < until {
                out[ranges] = Range { from: truncate(from), count: (until - from) as u32 };
                ranges += 1;
            }
            from = until;
        }
        ranges
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
        self.is_disturbed = false;
        self.reorder.clear();
        self.loss.restart(next);
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

    /// When to poll for acknowledgements again, whatever else happens.
    pub const fn poll_timeout(&self) -> Option<Nanos> {
        self.deadline
    }

    /// When to poll for what is missing again.
    pub fn poll_nack_timeout(&self) -> Option<Nanos> {
        self.loss.poll_timeout().filter(|_| self.is_disturbed)
    }
}
