//! The publisher: packs messages and sends each packet to both groups.

use std::net::SocketAddrV4;

use ticktape_core::Nanos;
use ticktape_nic::Tx;

use super::mold::Packer;
use super::session::FeedSession;

/// A silent feed says at least this often that it lives, as receivers of the protocol expect.
pub(crate) const HEARTBEAT_NS: u64 = 1_000_000_000;

/// How a [`Publisher`] is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedConfig {
    /// Which stream, in which reign.
    pub session: FeedSession,
    /// The number of the first message.
    pub first_seq: u64,
    /// Where every packet goes.
    pub a: SocketAddrV4,
    /// Where it goes as well.
    pub b: Option<SocketAddrV4>,
    /// The largest datagram to build; not above what the transmit queue takes.
    pub datagram_bytes_max: usize,
    /// An idle feed says so this often.
    pub heartbeat_interval_ns: u64,
}

/// What a publisher has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedCounters {
    /// Packets with messages, each counted once whatever the number of groups.
    pub packets: u64,
    /// Messages in them.
    pub messages: u64,
    /// Heartbeats, likewise.
    pub heartbeats: u64,
    /// How often the transmit queue had no room.
    pub blocked: u64,
}

/// Packs consecutive messages into datagrams, and queues each datagram for both groups.
///
/// The machine queues; whoever owns the transmit queue flushes it, once a burst.
#[derive(Debug)]
pub struct Publisher {
    packer: Packer,
    to: [Option<SocketAddrV4>; 2],
    /// Which groups have been given the packet at hand.
    given: [bool; 2],
    heartbeat_interval_ns: u64,
    sent_at: Nanos,
    counters: FeedCounters,
}

impl Publisher {
    /// A publisher with nothing to send. Allocates one datagram, and nothing later.
    ///
    /// # Panics
    /// Where no message would fit a datagram, the first number is zero, or the interval is.
    pub fn new(config: &FeedConfig) -> Self {
        assert!(config.heartbeat_interval_ns > 0);
        Publisher {
            packer: Packer::new(config.session.encode(), config.first_seq, config.datagram_bytes_max),
            to: [Some(config.a), config.b],
            given: [false; 2],
            heartbeat_interval_ns: config.heartbeat_interval_ns,
            sent_at: 0,
            counters: FeedCounters::default(),
        }
    }

    /// The largest message that fits a datagram: larger ones are to be refused before they are numbered.
    pub const fn message_bytes_max(&self) -> usize {
        self.packer.message_bytes_max()
    }

    /// The number of the message to push next.
    pub const fn next_seq(&self) -> u64 {
        self.packer.next_sequence()
    }

    /// What was sent.
    pub const fn counters(&self) -> FeedCounters {
        self.counters
    }

    /// Adds message `seq`. False where the transmit queue has no room for the packet before it: flush it, and push the same
    /// message again.
    ///
    /// # Panics
    /// Where `seq` is not the next number, or the message exceeds [`Publisher::message_bytes_max`].
    #[inline]
    pub fn push(&mut self, now: Nanos, seq: u64, message: &[u8], tx: &mut impl Tx) -> bool {
        assert!(seq == self.next_seq(), "message {seq} pushed, {} is next", self.next_seq());
        // A packet that one group has already been given is closed.
        let is_open = !self.given[0] && !self.given[1];
        if is_open && self.packer.push(message) {
            return true;
        }
        assert!(message.len() <= self.message_bytes_max(), "message {seq} of {} bytes can't be sent", message.len());
        self.flush(now, tx) && self.packer.push(message)
    }

    /// Queues the packet at hand, if it has messages. False where the transmit queue has no room for all of it.
    #[inline]
    pub fn flush(&mut self, now: Nanos, tx: &mut impl Tx) -> bool {
        if self.packer.is_empty() {
            return true;
        }
        if !give(self.packer.packet(), &self.to, &mut self.given, tx) {
            self.counters.blocked += 1;
            return false;
        }
        self.given = [false; 2];
        self.counters.packets += 1;
        self.counters.messages += u64::from(self.packer.count());
        self.packer.advance();
        self.sent_at = now;
        true
    }

    /// Queues a heartbeat where nothing was sent for an interval. Flush first; true if one was queued for each group. One
    /// that finds no room is not made up for: the queue that is full carries news.
    pub fn heartbeat(&mut self, now: Nanos, tx: &mut impl Tx) -> bool {
        if !self.packer.is_empty() || now.saturating_sub(self.sent_at) < self.heartbeat_interval_ns {
            return false;
        }
        self.sent_at = now;
        let is_given = give(self.packer.packet(), &self.to, &mut [false; 2], tx);
        self.counters.heartbeats += u64::from(is_given);
        self.counters.blocked += u64::from(!is_given);
        is_given
    }

    /// When the next heartbeat is due.
    pub const fn poll_timeout(&self) -> Nanos {
        self.sent_at + self.heartbeat_interval_ns
    }

    /// Queues what is left, and word that nothing follows, for each group. False where the transmit queue has no room: flush
    /// it and try again. Repeat it a few times on a lossy network; it may be said more than once.
    pub fn end_of_session(&mut self, now: Nanos, tx: &mut impl Tx) -> bool {
        if !self.flush(now, tx) {
            return false;
        }
        let is_given = give(&self.packer.end_of_session(), &self.to, &mut [false; 2], tx);
        self.counters.blocked += u64::from(!is_given);
        is_given
    }
}

/// Queues `packet` for each group not yet in `given`. True once all have it.
fn give(packet: &[u8], to: &[Option<SocketAddrV4>; 2], given: &mut [bool; 2], tx: &mut impl Tx) -> bool {
    for (to, given) in to.iter().zip(given) {
        let Some(to) = to.filter(|_| !*given) else { continue };
        let Some(slot) = tx.reserve() else { return false };
        slot[..packet.len()].copy_from_slice(packet);
        tx.commit(packet.len(), to);
        *given = true;
    }
    true
}

#[cfg(test)]
#[path = "publisher_tests.rs"]
mod tests;
