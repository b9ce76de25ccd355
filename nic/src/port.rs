//! The ports: what every backend offers, and what every user of a network may rely on.

use std::net::SocketAddrV4;

use ticktape_core::Nanos;

use crate::counters::counters;

/// Who took a datagram's receive time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeOrigin {
    /// The network card.
    Hardware,
    /// The kernel, when the packet entered its network stack.
    Kernel,
    /// Nobody earlier than the poll that took the burst: it is that poll's `now`.
    Poll,
}

impl TimeOrigin {
    /// The origin's name in tables and logs.
    pub const fn name(self) -> &'static str {
        match self {
            TimeOrigin::Hardware => "hardware",
            TimeOrigin::Kernel => "kernel",
            TimeOrigin::Poll => "poll",
        }
    }
}

/// One received datagram, borrowed from the receive queue until the delivery returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Who sent it.
    pub source: SocketAddrV4,
    /// Whom it was sent to: this host's address, or a multicast group.
    pub destination: SocketAddrV4,
    /// Its content; may be empty.
    pub payload: &'a [u8],
    /// When it was received, on the timeline of the poll's `now` and never after it.
    pub received: Nanos,
    /// Who took that time.
    pub origin: TimeOrigin,
}

/// The receive half: a queue of datagrams that one core drains.
pub trait Rx {
    /// Takes at most `burst_max` datagrams off the queue and hands each to `deliver`, in order of arrival.
    ///
    /// Never blocks. Returns how many were taken, those included that were dropped and counted instead of delivered. May
    /// take fewer than are waiting; 0 means idle. `now` is on CLOCK_MONOTONIC where the backend is real.
    fn poll(&mut self, now: Nanos, burst_max: usize, deliver: impl FnMut(Datagram<'_>)) -> usize;

    /// What was received and dropped since the open.
    fn counters(&self) -> RxCounters;

    /// What this backend alone counts, by name. For reports: it may take system calls and memory.
    fn details(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// The transmit half: a queue of slots that one core fills, and flushes once a burst.
///
/// ```
/// # use ticktape_nic::{Nic, Tx, mem};
/// # let (nic, peer) = mem::pair();
/// # let to = peer.local_addr();
/// # let (_, mut tx) = nic.split();
/// if let Some(slot) = tx.reserve() {
///     slot[..5].copy_from_slice(b"hello");
///     tx.commit(5, to);
/// }
/// assert_eq!(tx.flush(), 1);
/// ```
pub trait Tx {
    /// The largest payload a slot takes, in bytes.
    fn datagram_bytes_max(&self) -> usize;

    /// The next free slot, [`Tx::datagram_bytes_max`] bytes long, with arbitrary content. `None` when the queue is full:
    /// flush, and if there is still none, come back in the next duty cycle. A slot that is not committed is simply
    /// reserved again.
    fn reserve(&mut self) -> Option<&mut [u8]>;

    /// Queues the first `len` bytes of the reserved slot for `to`.
    ///
    /// # Panics
    /// When `len` exceeds the slot, or no slot is free: nothing can have been reserved then.
    fn commit(&mut self, len: usize, to: SocketAddrV4);

    /// Hands the queued datagrams over, in order, and returns how many were taken. Never blocks: what finds no room stays
    /// queued; what can't be sent at all is dropped and counted.
    ///
    /// Call it once a burst, and once in every duty cycle while [`Tx::queued`] is not 0. With nothing to do it is cheap.
    fn flush(&mut self) -> usize;

    /// Datagrams that were committed and not yet handed over.
    fn queued(&self) -> usize;

    /// What was sent and dropped since the open.
    fn counters(&self) -> TxCounters;

    /// What this backend alone counts, by name. For reports: it may take system calls and memory.
    fn details(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// An open queue pair, before its halves go to their cores.
pub trait Nic {
    /// The receive half.
    type Rx: Rx + Send;
    /// The transmit half.
    type Tx: Tx + Send;

    /// Parts the halves. Each keeps the backend open for itself.
    fn split(self) -> (Self::Rx, Self::Tx);

    /// One line: which backend, what it got from the system, what was refused and why.
    fn describe(&self) -> String;

    /// The address that it receives on, and sends from. The IP is unspecified where it was bound to all of them.
    fn local_addr(&self) -> SocketAddrV4;
}

counters! {
    /// What a receive half did. All cumulative since the open.
    RxCounters {
        /// Datagrams delivered.
        datagrams,
        /// Payload bytes delivered.
        bytes,
        /// Lost before the poll could take them, mostly because the receive queue was full; as the kernel or card counts.
        /// It may say so only with a later datagram.
        dropped_before_poll,
        /// Dropped: larger than the receive buffer.
        dropped_truncated,
        /// Dropped: without a usable source or destination address.
        dropped_malformed,
        /// Delivered with the poll's time although an earlier one was asked for: absent, or too far off to be believed.
        stamps_unusable,
        /// ICMP errors about earlier sends that surfaced here; nothing was lost by it.
        errors_icmp,
        /// Other errors of the receive queue.
        errors_other,
    }
}

counters! {
    /// What a transmit half did. All cumulative since the open.
    TxCounters {
        /// Datagrams handed over.
        datagrams,
        /// Payload bytes handed over.
        bytes,
        /// Flushes that had something to send.
        flushes,
        /// Flushes that left something queued.
        blocked,
        /// Reservations refused because the queue was full.
        queue_full,
        /// Dropped: larger than the route or interface allows.
        dropped_oversized,
        /// Dropped: no route, host or network there.
        dropped_unreachable,
        /// Dropped: forbidden by the system's policy, such as a firewall, or a broadcast.
        dropped_forbidden,
        /// Dropped: any other reason that a retry would not change.
        dropped_other,
        /// ICMP errors about earlier sends that surfaced here; the datagram at hand was sent after all.
        errors_icmp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_list_each_counter_under_its_name() {
        let counters = RxCounters { datagrams: 3, errors_other: 5, ..RxCounters::default() };
        let rows: Vec<_> = counters.rows().collect();
        assert_eq!(rows.first(), Some(&("datagrams", 3)));
        assert_eq!(rows.last(), Some(&("errors_other", 5)));
        assert_eq!(rows.len(), size_of::<RxCounters>() / size_of::<u64>());
    }
}
