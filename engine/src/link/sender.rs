//! The sending end of a stream: serialized copies in a byte ring until they are acknowledged.
//!
//! ```text
//!      acked_next        received_next       sent_next           end_next
//!  ────────┼───────────────────┼─────────────────┼───────────────────┼────────►
//!  released│ kept, for a peer  │ in flight       │ waiting for the   │ the next
//!          │ that restarts     │                 │ window            │ push
//! ```
//!
//! Messages stand in the ring as they stand on the wire, and none straddles its end: a packet, sent or resent, is one
//! slice of the ring.

use ticktape_core::Nanos;

use super::data::{DATA_OVERHEAD_BYTES, write_data};
use super::layout::data;
use super::packet::{Ack, DATAGRAM_BYTES_LIMIT, Identity, SEQ_LIMIT};
use super::serial::{extend, truncate};

/// Acknowledgements in a row without news that betray a loss. One may be a copy that the network made; more would only wait.
pub const REPEATS_BEFORE_RESEND: u32 = 2;

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

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    start: u64,
    end: u64,
}

/// The sending end of one stream. See the module's picture.
#[derive(Debug)]
pub struct Sender {
    identity: Identity,
    ring: Box<[u8]>,
    slots: Box<[Slot]>,
    /// Positions in the ring, never reduced modulo its size: where the oldest kept message starts, and the end of the newest.
    tail: u64,
    head: u64,
    acked_next: u64,
    received_next: u64,
    sent_next: u64,
    sent_max: u64,
    end_next: u64,
    window: u32,
    in_flight_messages_max: u32,
    datagram_bytes_max: usize,
    packed_bytes_max: usize,
    timeout_ns: u64,
    timeout_min_ns: u64,
    timeout_max_ns: u64,
    deadline: Option<Nanos>,
    /// Acknowledgements in a row that say nothing new while messages are under way.
    repeats: u32,
    /// Where sending stood when it last went back: until the peer is past it, repeats are echoes of the same loss …
    recover_next: u64,
    /// … or until then, in case what was sent again was lost as well.
    recover_at: Nanos,
    resent_messages: u64,
    timeouts: u64,
    fast_resends: u64,
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
        Sender {
            identity,
            ring: vec![0; ring_bytes].into_boxed_slice(),
            slots: vec![Slot::default(); config.messages_max.next_power_of_two()].into_boxed_slice(),
            tail: 0,
            head: 0,
            acked_next: first_seq,
            received_next: first_seq,
            sent_next: first_seq,
            sent_max: first_seq,
            end_next: first_seq,
            window: 1,
            in_flight_messages_max: config.in_flight_messages_max,
            datagram_bytes_max: config.datagram_bytes_max,
            packed_bytes_max: config.datagram_bytes_max,
            timeout_ns: config.resend_timeout_ns,
            timeout_min_ns: config.resend_timeout_ns,
            timeout_max_ns: config.resend_timeout_max_ns.max(config.resend_timeout_ns),
            deadline: None,
            repeats: 0,
            recover_next: first_seq,
            recover_at: 0,
            resent_messages: 0,
            timeouts: 0,
            fast_resends: 0,
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
        self.sent_max
    }

    /// How many messages were sent more than once, counting each time.
    pub const fn resent_messages(&self) -> u64 {
        self.resent_messages
    }

    /// How often the wait for word of a message ran out.
    pub const fn timeouts(&self) -> u64 {
        self.timeouts
    }

    /// How often repeated acknowledgements betrayed a loss before the wait ran out.
    pub const fn fast_resends(&self) -> u64 {
        self.fast_resends
    }

    /// Whether the peer has acknowledged everything.
    pub const fn is_drained(&self) -> bool {
        self.acked_next == self.end_next
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
        if self.end_next - self.acked_next == self.slots.len() as u64 {
            return Err(SendError::Full);
        }
        if self.acked_next == self.end_next {
            (self.tail, self.head) = (0, 0);
        }
        let (ring_bytes, needed) = (self.ring.len() as u64, (data::LEN_BYTES + message_bytes) as u64);
        let left = ring_bytes - (self.head & (ring_bytes - 1));
        let start = if needed <= left { self.head } else { self.head + left };
        if start + needed - self.tail > ring_bytes {
            return Err(SendError::Full);
        }
        let at = (start & (ring_bytes - 1)) as usize;
        let out = &mut self.ring[at..at + needed as usize];
        let (len, out) = out.split_at_mut(data::LEN_BYTES);
        len.copy_from_slice(&(message_bytes as u16).to_le_bytes());
        let (out_front, out_back) = out.split_at_mut(front.len());
        out_front.copy_from_slice(front);
        out_back.copy_from_slice(back);
        let seq = self.end_next;
        *self.slot_mut(seq) = Slot { start, end: start + needed };
        self.head = start + needed;
        self.end_next += 1;
        Ok(seq)
    }

    /// The peer's word on how far the stream has come.
    pub fn on_ack(&mut self, now: Nanos, ack: &Ack) -> AckOutcome {
        let acked_next = extend(ack.acked_next, self.acked_next);
        let received_next = extend(ack.received_next, self.received_next);
        if acked_next > received_next || received_next > self.sent_max {
            return AckOutcome::Bad;
        }
        if acked_next < self.acked_next || received_next < self.received_next {
            return AckOutcome::NotNew;
        }
        let advanced = acked_next > self.acked_next || received_next > self.received_next;
        let is_repeat = !advanced && ack.window == self.window;
        self.window = ack.window;
        self.release(acked_next);
        if received_next > self.received_next {
            self.received_next = received_next;
            self.sent_next = self.sent_next.max(received_next);
            self.timeout_ns = self.timeout_min_ns;
            self.deadline = (self.sent_next > received_next).then_some(now + self.timeout_ns);
            self.repeats = 0;
        }
        if is_repeat {
            self.on_repeat(now);
        }
        if advanced { AckOutcome::Advanced } else { AckOutcome::NotNew }
    }

    /// A peer that meets a gap, or a message it knows, says at once where it stands. Twice the same says that what comes next
    /// was lost: everything from there on is sent again, once, without waiting.
    fn on_repeat(&mut self, now: Nanos) {
        if self.sent_next == self.received_next {
            return;
        }
        self.repeats += 1;
        let is_echo = self.received_next < self.recover_next && now < self.recover_at;
        if self.repeats >= REPEATS_BEFORE_RESEND && !is_echo {
            self.fast_resends += 1;
            self.go_back(now);
        }
    }

    /// A handshake tells where the peer stands: goes on from there. What it has not received is sent again at once.
    ///
    /// # Errors
    /// [`ResumeError`] where that is impossible; nothing has changed then.
    pub fn resume(&mut self, acked_next: u64, received_next: u64) -> Result<(), ResumeError> {
        if acked_next < self.acked_next {
            return Err(ResumeError::Trimmed { wanted: acked_next, first: self.acked_next });
        }
        if received_next.max(acked_next) > self.end_next {
            return Err(ResumeError::Beyond { wanted: received_next.max(acked_next), end: self.end_next });
        }
        self.release(acked_next);
        self.received_next = received_next.max(acked_next);
        self.sent_next = self.received_next;
        self.sent_max = self.sent_max.max(self.sent_next);
        self.timeout_ns = self.timeout_min_ns;
        self.deadline = None;
        self.repeats = 0;
        self.recover_next = self.received_next;
        Ok(())
    }

    /// Builds the next Data packet in `out` and returns its size: what was never sent, or, once the wait for word of a message
    /// ran out, everything from that message on. `None` where nothing may be sent, or `out` is too short for the next message.
    #[inline]
    pub fn poll_transmit(&mut self, now: Nanos, out: &mut [u8]) -> Option<usize> {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.on_timeout(now);
        }
        // A closed window still lets one message through: the answer to it tells when the window opened again.
        let window = self.window.min(self.in_flight_messages_max).max(1);
        let limit = self.end_next.min(self.acked_next + u64::from(window)).min(self.sent_next + u64::from(u16::MAX));
        let room = out.len().checked_sub(data::MESSAGES)? as u64;
        let base_seq = self.sent_next;
        let packed = room.min((self.packed_bytes_max - data::MESSAGES) as u64);
        let (start, mut count) = self.contiguous(base_seq, limit, packed);
        if count == 0 {
            // Nothing to send, or a message that does not fit the limit.
            count = self.contiguous(base_seq, limit.min(base_seq + 1), room).1;
            if count == 0 {
                return None;
            }
        }
        let end = self.slot(base_seq + count - 1).end;
        let at = (start & (self.ring.len() as u64 - 1)) as usize;
        let messages = &self.ring[at..at + (end - start) as usize];
        let bytes = write_data(&self.identity, truncate(base_seq), count as u16, messages, out);
        self.sent_next += count;
        self.resent_messages += self.sent_max.min(self.sent_next).saturating_sub(base_seq);
        self.sent_max = self.sent_max.max(self.sent_next);
        if self.deadline.is_none() {
            self.deadline = Some(now + self.timeout_ns);
        }
        Some(bytes)
    }

    /// When to poll again, whatever else happens.
    pub const fn poll_timeout(&self) -> Option<Nanos> {
        self.deadline
    }

    /// Where the run of messages from `base_seq` starts in the ring, and how many of it are adjacent, below `limit` and within
    /// `room` bytes.
    #[inline]
    fn contiguous(&self, base_seq: u64, limit: u64, room: u64) -> (u64, u64) {
        let start = self.slot(base_seq).start;
        // A message may end just where the ring does: the next is not adjacent to it.
        let ring_bytes = self.ring.len() as u64;
        let room = room.min(ring_bytes - (start & (ring_bytes - 1)));
        let (mut end, mut seq) = (start, base_seq);
        while seq < limit {
            let slot = self.slot(seq);
            if slot.start != end || slot.end - start > room {
                break;
            }
            end = slot.end;
            seq += 1;
        }
        (start, seq - base_seq)
    }

    #[cold]
    fn on_timeout(&mut self, now: Nanos) {
        self.timeouts += 1;
        self.timeout_ns = self.timeout_ns.saturating_mul(2).min(self.timeout_max_ns);
        self.go_back(now);
    }

    /// Sends again from the first message that has not arrived.
    fn go_back(&mut self, now: Nanos) {
        self.repeats = 0;
        self.recover_next = self.sent_max;
        self.recover_at = now + self.timeout_ns / 2;
        self.sent_next = self.received_next;
        self.deadline = Some(now + self.timeout_ns);
    }

    /// Forgets what lies before `acked_next`, which is not beyond `end_next`.
    #[inline]
    fn release(&mut self, acked_next: u64) {
        debug_assert!(acked_next >= self.acked_next && acked_next <= self.end_next);
        self.acked_next = acked_next;
        self.tail = if acked_next == self.end_next { self.head } else { self.slot(acked_next).start };
    }

    #[inline]
    fn slot(&self, seq: u64) -> Slot {
        self.slots[(seq & (self.slots.len() as u64 - 1)) as usize]
    }

    #[inline]
    fn slot_mut(&mut self, seq: u64) -> &mut Slot {
        &mut self.slots[(seq & (self.slots.len() as u64 - 1)) as usize]
    }
}
