//! The sending end of a stream: serialized copies in a byte ring until they are acknowledged.
//!
//! ```text
//!      acked_next        received_next       sent_next           end_next
//!  ────────┼───────────────────┼─────────────────┼───────────────────┼────────►
//!  released│ kept, for a peer  │ in flight: some │ waiting for the   │ the next
//!          │ that restarts     │ have arrived    │ window            │ push
//! ```
//!
//! A packet, sent or resent, is one slice of the ring. What is sent again is exactly what the peer asks for; where it says nothing
//! at all, the first messages and the last, so that it has reason to ask.

use ticktape_core::Nanos;

use super::bits::SeqSet;
use super::data::{DATA_OVERHEAD_BYTES, write_data};
use super::layout::data;
use super::packet::{Ack, DATAGRAM_BYTES_LIMIT, Identity, Packet, SEQ_LIMIT};
use super::ranges::Range;
use super::sent_ring::SentRing;
use super::serial::{extend, truncate};

/// Messages that one Nack can have sent again: what the largest receiver keeps. It asks for more once it has those.
pub const RESEND_PER_NACK_MAX: u64 = 1024;

/// Messages sent again when a wait runs out, beside the last one: a few datagrams. The peer asks for the rest.
pub const RESEND_PER_TIMEOUT_MAX: u64 = 64;

/// What was sent again is not sent once more within so many of these, however often it is asked for: about 2 ms, half of what a
/// receiver waits before it asks again.
const RESEND_QUIET_TICKS: u16 = 8;
const TICK_SHIFT: u32 = 18;

/// How a [`Sender`] is laid out. All of it is allocated at construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderConfig {
    /// Bytes kept until acknowledged; rounded up to a power of two, and to at least two of the largest messages.
    pub ring_bytes: usize,
    /// Messages kept until acknowledged; rounded up to a power of two.
    pub messages_max: usize,
    /// Messages sent beyond the acknowledged ones, whatever the peer would take.
    pub in_flight_messages_max: u32,
    /// The largest datagram to build.
    pub datagram_bytes_max: usize,
    /// How long to wait for word of a message before sending it again. Must exceed the peer's acknowledgement delay (10 ms)
    /// plus a round trip, or messages are sent twice for nothing; higher makes a loss cost more.
    pub resend_timeout_ns: u64,
    /// Where doubling that wait ends.
    pub resend_timeout_max_ns: u64,
}

impl Default for SenderConfig {
    fn default() -> Self {
        SenderConfig {
            ring_bytes: 1 << 20,
            messages_max: 8192,
            in_flight_messages_max: 8192,
            datagram_bytes_max: 1472,
            resend_timeout_ns: 20_000_000,
            resend_timeout_max_ns: 640_000_000,
        }
    }
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The buffer is full until the peer acknowledges more: try again later.
    Full,
    /// It will never fit a datagram.
    TooLong {
        /// Its size in bytes.
        bytes: usize,
        /// The most that fits.
        bytes_max: usize,
    },
    /// The link is closed.
    Closed,
}

impl std::fmt::Display for SendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SendError::Full => f.write_str("send buffer is full until the peer acknowledges more"),
            SendError::TooLong { bytes, bytes_max } => {
                write!(f, "message of {bytes} bytes does not fit a datagram: at most {bytes_max}")
            }
            SendError::Closed => f.write_str("link is closed"),
        }
    }
}

impl std::error::Error for SendError {}

/// What an acknowledgement did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckOutcome {
    /// It moved a cursor.
    Advanced,
    /// It said nothing new; perhaps it was overtaken.
    NotNew,
    /// It covers what was never sent, or contradicts itself.
    Bad,
}

/// Why a stream can't go on from where the peer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeError {
    /// The peer needs `wanted`, but the messages before `first` are no longer kept.
    Trimmed {
        /// What the peer needs next.
        wanted: u64,
        /// The oldest that is kept.
        first: u64,
    },
    /// The peer has messages that were never pushed here.
    Beyond {
        /// What the peer needs next.
        wanted: u64,
        /// What will be pushed next.
        end: u64,
    },
}

/// The sending end of one stream. See the module's picture.
///
/// Invariant: what is marked as arrived, or to be sent again, lies within `received_next .. sent_next`.
#[derive(Debug)]
pub struct Sender {
    identity: Identity,
    ring: SentRing,
    acked_next: u64,
    received_next: u64,
    sent_next: u64,
    end_next: u64,
    /// What the peer has of what is in flight.
    arrived: SeqSet,
    /// What is to be sent again, none of it before `resend_from`.
    resend: SeqSet,
    resend_from: u64,
    /// Numbers that were given up: the peer is told so instead.
    voids: SeqSet,
    /// When each was last sent again, in ticks; 0 for never.
    resent_at: Box<[u16]>,
    window: u32,
    in_flight_messages_max: u32,
    datagram_bytes_max: usize,
    packed_bytes_max: usize,
    timeout_ns: u64,
    timeout_min_ns: u64,
    timeout_max_ns: u64,
    deadline: Option<Nanos>,
    resent_messages: u64,
    timeouts: u64,
    nacks: u64,
}

impl Sender {
    /// A stream whose first message will be `first_seq`. Allocates all it will ever use.
    ///
    /// # Panics
    /// Where the config can't work: a datagram that holds no message or that UDP can't carry, a limit of zero.
    pub fn new(identity: Identity, first_seq: u64, config: &SenderConfig) -> Self {
        assert!(first_seq < SEQ_LIMIT);
        assert!(config.datagram_bytes_max > DATA_OVERHEAD_BYTES && config.datagram_bytes_max <= DATAGRAM_BYTES_LIMIT);
        assert!(config.messages_max > 0 && config.in_flight_messages_max > 0 && config.resend_timeout_ns > 0);
        // Cursors travel as 32 bits and are told apart within half of that space.
        assert!(config.messages_max <= 1 << 30);
        let ring_bytes = config.ring_bytes.max(2 * config.datagram_bytes_max).next_power_of_two();
        let messages = config.messages_max.next_power_of_two();
        let set = || SeqSet::new(messages.max(64));
        Sender {
            identity,
            ring: SentRing::new(ring_bytes, messages),
            acked_next: first_seq,
            received_next: first_seq,
            sent_next: first_seq,
            end_next: first_seq,
            arrived: set(),
            resend: set(),
            resend_from: first_seq,
            voids: set(),
            resent_at: vec![0; messages].into_boxed_slice(),
            window: 1,
            in_flight_messages_max: config.in_flight_messages_max,
            datagram_bytes_max: config.datagram_bytes_max,
            packed_bytes_max: config.datagram_bytes_max,
            timeout_ns: config.resend_timeout_ns,
            timeout_min_ns: config.resend_timeout_ns,
            timeout_max_ns: config.resend_timeout_max_ns.max(config.resend_timeout_ns),
            deadline: None,
            resent_messages: 0,
            timeouts: 0,
            nacks: 0,
        }
    }

    /// The largest message that fits a datagram.
    pub const fn message_bytes_max(&self) -> usize {
        self.datagram_bytes_max - DATA_OVERHEAD_BYTES
    }

    /// Messages before it are acknowledged, and forgotten here.
    pub const fn acked_next(&self) -> u64 {
        self.acked_next
    }

    /// Messages before it have arrived at the peer.
    pub const fn received_next(&self) -> u64 {
        self.received_next
    }

    /// The number of the next message to be pushed.
    pub const fn end_next(&self) -> u64 {
        self.end_next
    }

    /// One beyond the last message that was ever sent.
    pub const fn sent_end(&self) -> u64 {
        self.sent_next
    }

    /// How many messages were sent more than once, counting each time.
    pub const fn resent_messages(&self) -> u64 {
        self.resent_messages
    }

    /// How often the wait for word of a message ran out.
    pub const fn timeouts(&self) -> u64 {
        self.timeouts
    }

    /// How often the peer asked for what it lacked.
    pub const fn nacks(&self) -> u64 {
        self.nacks
    }

    /// A message that is kept.
    pub fn kept(&self, seq: u64) -> Option<&[u8]> {
        let is_kept = (self.acked_next..self.end_next).contains(&seq);
        is_kept.then(|| &self.ring.run(seq, seq + 1, usize::MAX).0[data::LEN_BYTES..])
    }

    /// Whether the peer has acknowledged everything that was not given up.
    pub const fn is_drained(&self) -> bool {
        self.end_next - self.acked_next == self.voids.len()
    }

    /// What the packets' headers say from now on.
    pub fn set_identity(&mut self, identity: Identity) {
        self.identity = identity;
    }

    /// How many messages beyond the acknowledged ones the peer takes. An acknowledgement carries it too.
    pub fn set_window(&mut self, window: u32) {
        self.window = window;
    }

    /// Packs no more than `bytes` into a datagram from now on, nor more than the config says. A single message that is larger
    /// still goes, alone: it is for the sender's owner not to push what the peer can't take.
    pub fn limit_datagram(&mut self, bytes: usize) {
        self.packed_bytes_max = self.datagram_bytes_max.min(bytes.max(data::MESSAGES));
    }

    /// Takes a copy of `message` and returns its seq.
    ///
    /// # Errors
    /// [`SendError::Full`] until more is acknowledged, [`SendError::TooLong`] for ever.
    #[inline]
    pub fn push(&mut self, message: &[u8]) -> Result<u64, SendError> {
        self.push_parts(&[], message)
    }

    /// As [`Sender::push`], for a message in two parts: spares its maker a copy.
    ///
    /// # Errors
    /// As [`Sender::push`].
    #[inline]
    pub fn push_parts(&mut self, front: &[u8], back: &[u8]) -> Result<u64, SendError> {
        let message_bytes = front.len() + back.len();
        if message_bytes > self.message_bytes_max() {
            return Err(SendError::TooLong { bytes: message_bytes, bytes_max: self.message_bytes_max() });
        }
        let (seq, kept) = (self.end_next, self.end_next - self.acked_next);
        if kept == self.ring.messages_max() || !self.ring.push(seq, front, back, kept == 0) {
            return Err(SendError::Full);
        }
        self.end_next += 1;
        Ok(seq)
    }

    /// Gives up message `seq`, if it was never sent; whether it was. Its number is used again where it was the last, otherwise the
    /// peer is told that it will never come. At most half of the messages kept can be such numbers.
    pub fn withdraw(&mut self, seq: u64) -> bool {
        if !(self.sent_next..self.end_next).contains(&seq) || self.voids.contains(seq) {
            return false;
        }
        if seq + 1 < self.end_next {
            return self.voids.len() * 2 < self.ring.messages_max() && self.voids.insert(seq);
        }
        self.end_next = seq;
        while self.end_next > self.sent_next && self.voids.remove(self.end_next - 1) {
            self.end_next -= 1;
        }
        self.ring.truncate(self.end_next);
        true
    }

    /// Gives up every message that was never sent, and returns how many that were. Their numbers are used again.
    pub fn withdraw_unsent(&mut self) -> u64 {
        let (from, end) = (self.sent_next, self.end_next);
        if from == end {
            return 0;
        }
        let voids = self.voids.remove_range(from, end);
        self.ring.truncate(from);
        self.end_next = from;
        end - from - voids
    }

    /// The peer's word on how far the stream has come.
    pub fn on_ack(&mut self, now: Nanos, ack: &Ack) -> AckOutcome {
        let acked_next = extend(ack.acked_next, self.acked_next);
        let received_next = extend(ack.received_next, self.received_next);
        if acked_next > received_next || received_next > self.sent_next {
            return AckOutcome::Bad;
        }
        if acked_next < self.acked_next || received_next < self.received_next {
            return AckOutcome::NotNew;
        }
        let advanced = acked_next > self.acked_next || received_next > self.received_next;
        self.window = ack.window;
        self.release(acked_next);
        if received_next > self.received_next {
            self.arrived.remove_range(self.received_next, received_next);
            self.resend.remove_range(self.received_next, received_next);
            self.received_next = received_next;
            self.begin_wait(now);
        }
        if advanced { AckOutcome::Advanced } else { AckOutcome::NotNew }
    }

    /// The same, with what has arrived beyond: that is not sent again.
    pub fn on_selective_ack(&mut self, now: Nanos, ack: &Ack, held: impl Iterator<Item = Range>) -> AckOutcome {
        let mut outcome = self.on_ack(now, ack);
        if outcome == AckOutcome::Bad {
            return AckOutcome::Bad;
        }
        for range in held {
            for seq in self.in_flight(range) {
                if self.arrived.insert(seq) {
                    self.resend.remove(seq);
                    outcome = AckOutcome::Advanced;
                }
            }
        }
        if outcome == AckOutcome::Advanced {
            self.begin_wait(now);
        }
        outcome
    }

    /// The peer asks for what it lacks: that is sent again, and nothing else; but not what went out again just now.
    pub fn on_nack(&mut self, now: Nanos, missing: impl Iterator<Item = Range>) -> AckOutcome {
        let (tick, mut left) = (tick_of(now), RESEND_PER_NACK_MAX);
        for range in missing {
            for seq in self.in_flight(range) {
                if left == 0 {
                    break;
                }
                let resent_at = self.resent_at[self.slot(seq)];
                let is_quiet = resent_at != 0 && tick.wrapping_sub(resent_at) < RESEND_QUIET_TICKS;
                if !is_quiet && self.resend.insert(seq) {
                    self.arrived.remove(seq);
                    self.resend_from = self.resend_from.min(seq);
                    left -= 1;
                }
            }
        }
        if left == RESEND_PER_NACK_MAX {
            return AckOutcome::NotNew;
        }
        self.nacks += 1;
        self.deadline = Some(now + self.timeout_ns);
        AckOutcome::Advanced
    }

    /// The part of a range that is in flight. A peer may name more: a packet of before a reconnect.
    fn in_flight(&self, range: Range) -> std::ops::Range<u64> {
        let from = extend(range.from, self.received_next);
        let end = from.saturating_add(u64::from(range.count));
        from.max(self.received_next)..end.min(self.sent_next)
    }

    /// A handshake tells where the peer stands: goes on from there. What it has not received is sent again at once.
    ///
    /// # Errors
    /// [`ResumeError`] where that is impossible; nothing has changed then.
    pub fn resume(&mut self, acked_next: u64, received_next: u64) -> Result<(), ResumeError> {
        let received_next = received_next.max(acked_next);
        if acked_next < self.acked_next {
            return Err(ResumeError::Trimmed { wanted: acked_next, first: self.acked_next });
        }
        if received_next > self.end_next {
            return Err(ResumeError::Beyond { wanted: received_next, end: self.end_next });
        }
        self.release(acked_next);
        self.arrived.clear();
        self.resend.clear();
        self.received_next = received_next;
        self.sent_next = self.sent_next.max(received_next);
        self.resend_from = received_next;
        self.resend.insert_range(received_next, self.sent_next);
        self.timeout_ns = self.timeout_min_ns;
        self.deadline = None;
        Ok(())
    }

    /// Builds the next packet in `out` and returns its size: what is to be sent again, then what was never sent. `None` where
    /// nothing may be sent, or `out` is too short for the next message.
    #[inline]
    pub fn poll_transmit(&mut self, now: Nanos, out: &mut [u8]) -> Option<usize> {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.on_timeout(now);
        }
        if !self.resend.is_empty()
            && let Some(bytes) = self.poll_resend(now, out)
        {
            return Some(bytes);
        }
        // A closed window still lets one message through: the answer to it tells when the window opened again.
        let window = self.window.min(self.in_flight_messages_max).max(1);
        let base_seq = self.sent_next;
        let mut limit = self.end_next.min(self.window_from() + u64::from(window)).min(base_seq + u64::from(u16::MAX));
        if base_seq >= limit {
            return None;
        }
        let (bytes, count) = self.build(base_seq, &mut limit, out)?;
        self.sent_next += count;
        if self.deadline.is_none() {
            self.deadline = Some(now + self.timeout_ns);
        }
        Some(bytes)
    }

    /// The next packet of what is to be sent again.
    #[cold]
    fn poll_resend(&mut self, now: Nanos, out: &mut [u8]) -> Option<usize> {
        let base_seq = self.resend.next_in(self.resend_from.max(self.received_next), self.sent_next);
        if base_seq == self.sent_next {
            self.resend.clear();
            return None;
        }
        let limit = self.sent_next.min(base_seq + u64::from(u16::MAX));
        let mut limit = self.resend.next_out(base_seq, limit);
        let (bytes, count) = self.build(base_seq, &mut limit, out)?;
        let end = base_seq + count;
        for seq in base_seq..end {
            let slot = self.slot(seq);
            self.resent_at[slot] = tick_of(now);
        }
        self.resend.remove_range(base_seq, end);
        self.resend_from = end;
        self.resent_messages += count;
        if self.deadline.is_none() {
            self.deadline = Some(now + self.timeout_ns);
        }
        Some(bytes)
    }

    /// When to poll again, whatever else happens.
    pub const fn poll_timeout(&self) -> Option<Nanos> {
        self.deadline
    }

    /// Writes the packet that begins with `base_seq` and stays below `limit`: its size, and how many numbers it covers.
    #[inline]
    fn build(&self, base_seq: u64, limit: &mut u64, out: &mut [u8]) -> Option<(usize, u64)> {
        if !self.voids.is_empty() {
            if self.voids.contains(base_seq) {
                let count = self.voids.next_out(base_seq, *limit) - base_seq;
                let packet = Packet::GapFill { from: truncate(base_seq), count: count as u32 };
                return packet.encode(&self.identity, out).map(|bytes| (bytes, count));
            }
            *limit = self.voids.next_in(base_seq, *limit);
        }
        let room = out.len().checked_sub(data::MESSAGES)?;
        let packed = room.min(self.packed_bytes_max - data::MESSAGES);
        let (mut messages, mut count) = self.ring.run(base_seq, *limit, packed);
        if count == 0 {
            // A message that does not fit the peer's limit goes alone.
            (messages, count) = self.ring.run(base_seq, base_seq + 1, room);
            if count == 0 {
                return None;
            }
        }
        Some((write_data(&self.identity, truncate(base_seq), count as u16, messages, out), count))
    }

    /// Where the window begins: numbers given up are not acknowledged before a message after them is, and must not hold it up.
    #[inline]
    fn window_from(&self) -> u64 {
        if self.voids.is_empty() { self.acked_next } else { self.voids.next_out(self.acked_next, self.received_next) }
    }

    /// Nothing was heard for long: sends the first messages that are missing again, and the last one, which shows the peer what
    /// lies between. The very first goes whatever is known of it: the peer's word that it has arrived may be what was lost.
    #[cold]
    fn on_timeout(&mut self, now: Nanos) {
        self.timeouts += 1;
        if self.timeout_ns > self.timeout_min_ns {
            // No news since the last time: what the peer said may have been of before a reconnect.
            self.arrived.clear();
        }
        self.timeout_ns = self.timeout_ns.saturating_mul(2).min(self.timeout_max_ns);
        self.deadline = (self.sent_next > self.received_next).then(|| now + self.timeout_ns);
        let mut seq = self.received_next;
        for _ in 0..RESEND_PER_TIMEOUT_MAX {
            if seq >= self.sent_next {
                return;
            }
            self.resend.insert(seq);
            self.resend_from = self.resend_from.min(seq);
            seq = self.arrived.next_out(seq + 1, self.sent_next);
        }
        if !self.arrived.contains(self.sent_next - 1) {
            self.resend.insert(self.sent_next - 1);
        }
    }

    /// There is news: the wait for word of what is in flight begins anew.
    fn begin_wait(&mut self, now: Nanos) {
        self.timeout_ns = self.timeout_min_ns;
        self.deadline = (self.sent_next > self.received_next).then(|| now + self.timeout_ns);
    }

    /// Forgets what lies before `acked_next`, which is not beyond `end_next`.
    #[inline]
    fn release(&mut self, acked_next: u64) {
        debug_assert!(acked_next >= self.acked_next && acked_next <= self.end_next);
        self.voids.remove_range(self.acked_next, acked_next);
        self.acked_next = acked_next;
        self.ring.release(acked_next, acked_next == self.end_next);
    }

    #[inline]
    const fn slot(&self, seq: u64) -> usize {
        (seq & (self.resent_at.len() as u64 - 1)) as usize
    }
}

/// The time in ticks of about a quarter of a millisecond; never 0.
const fn tick_of(now: Nanos) -> u16 {
    let tick = (now >> TICK_SHIFT) as u16;
    if tick == 0 { 1 } else { tick }
}
