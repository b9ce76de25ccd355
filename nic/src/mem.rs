//! An in-process link for tests and embedded wiring: two [`Nic`]s, each the other's whole network.
//!
//! Deterministic: datagrams arrive in the order they were flushed, at the poll's own time, and none is lost. A full inbox
//! leaves what was committed in the sender's queue, as a full socket would.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ticktape_core::Nanos;

use crate::limits::{BURST_DEFAULT, DATAGRAM_BYTES_DEFAULT};
use crate::port::{Datagram, Nic, Rx, RxCounters, TimeOrigin, Tx, TxCounters};

/// The shape of a link.
#[derive(Clone, Copy, Debug)]
pub struct MemConfig {
    /// The two ends' addresses.
    pub addresses: [SocketAddrV4; 2],
    /// Datagrams that wait at each receiver, at least 1.
    pub inbox: usize,
    /// Slots in each transmit queue, at least 1.
    pub burst: usize,
    /// The largest payload, in bytes.
    pub datagram_bytes_max: usize,
}

impl Default for MemConfig {
    fn default() -> Self {
        MemConfig {
            addresses: [
                SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 1),
                SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 2),
            ],
            inbox: 4 * BURST_DEFAULT,
            burst: BURST_DEFAULT,
            datagram_bytes_max: DATAGRAM_BYTES_DEFAULT,
        }
    }
}

/// A link of the default shape, its ends 10.0.0.1:1 and 10.0.0.2:2.
pub fn pair() -> (MemNic, MemNic) {
    pair_with(MemConfig::default())
}

/// A link of a given shape.
///
/// # Panics
/// When the inbox or the burst is 0.
pub fn pair_with(config: MemConfig) -> (MemNic, MemNic) {
    assert!(config.inbox > 0 && config.burst > 0);
    let [a, b] = config.addresses;
    let (to_a, to_b) = (Arc::new(Inbox::new(&config)), Arc::new(Inbox::new(&config)));
    (
        MemNic { local: a, peer: b, config, inbox: to_a.clone(), outbox: to_b.clone() },
        MemNic { local: b, peer: a, config, inbox: to_b, outbox: to_a },
    )
}

/// One end of the link.
#[derive(Debug)]
pub struct MemNic {
    local: SocketAddrV4,
    peer: SocketAddrV4,
    config: MemConfig,
    inbox: Arc<Inbox>,
    outbox: Arc<Inbox>,
}

impl Nic for MemNic {
    type Rx = MemRx;
    type Tx = MemTx;

    fn split(self) -> (MemRx, MemTx) {
        let slot = || Slot::new(self.config.datagram_bytes_max);
        let rx = MemRx { inbox: self.inbox, spare: slot(), counters: RxCounters::default() };
        let tx = MemTx {
            local: self.local,
            peer: self.peer,
            outbox: self.outbox,
            queue: Ring::new(self.config.burst, slot),
            counters: TxCounters::default(),
        };
        (rx, tx)
    }

    fn describe(&self) -> String {
        format!("in-process link {} to {}, inboxes of {}", self.local, self.peer, self.config.inbox)
    }

    fn local_addr(&self) -> SocketAddrV4 {
        self.local
    }
}

/// A datagram's room. Slots are swapped between the queues, never copied or allocated.
#[derive(Debug)]
struct Slot {
    bytes: Box<[u8]>,
    len: usize,
    source: SocketAddrV4,
    destination: SocketAddrV4,
}

impl Slot {
    fn new(bytes_max: usize) -> Slot {
        let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        Slot { bytes: vec![0; bytes_max].into(), len: 0, source: nowhere, destination: nowhere }
    }
}

/// A bounded queue of slots.
#[derive(Debug)]
struct Ring {
    slots: Box<[Slot]>,
    head: usize,
    len: usize,
}

impl Ring {
    fn new(count: usize, slot: impl Fn() -> Slot) -> Ring {
        Ring { slots: (0..count).map(|_| slot()).collect(), head: 0, len: 0 }
    }

    fn first(&mut self) -> Option<&mut Slot> {
        if self.len == 0 { None } else { self.slots.get_mut(self.head) }
    }

    /// The slot after the last, where there is one.
    fn vacant(&mut self) -> Option<&mut Slot> {
        if self.len == self.slots.len() {
            return None;
        }
        let tail = (self.head + self.len) % self.slots.len();
        self.slots.get_mut(tail)
    }

    fn drop_first(&mut self) {
        self.head = (self.head + 1) % self.slots.len();
        self.len -= 1;
    }
}

#[derive(Debug)]
struct Inbox(Mutex<Ring>);

impl Inbox {
    fn new(config: &MemConfig) -> Inbox {
        Inbox(Mutex::new(Ring::new(config.inbox, || Slot::new(config.datagram_bytes_max))))
    }

    /// A panic under the lock is no reason to lose the other end: swaps leave the ring whole.
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receive half of a [`MemNic`].
#[derive(Debug)]
pub struct MemRx {
    inbox: Arc<Inbox>,
    spare: Slot,
    counters: RxCounters,
}

impl Rx for MemRx {
    fn poll(&mut self, now: Nanos, burst_max: usize, mut deliver: impl FnMut(Datagram<'_>)) -> usize {
        let waiting = self.inbox.lock().len.min(burst_max);
        for _ in 0..waiting {
            // Out of the inbox before the delivery: it may send, and must not do so under this lock.
            let mut inbox = self.inbox.lock();
            let first = inbox.first().expect("only this half takes datagrams out");
            std::mem::swap(first, &mut self.spare);
            inbox.drop_first();
            drop(inbox);
            self.counters.datagrams += 1;
            self.counters.bytes += self.spare.len as u64;
            deliver(Datagram {
                source: self.spare.source,
                destination: self.spare.destination,
                payload: &self.spare.bytes[..self.spare.len],
                received: now,
                origin: TimeOrigin::Poll,
            });
        }
        waiting
    }

    fn counters(&self) -> RxCounters {
        self.counters
    }
}

/// The transmit half of a [`MemNic`]. Reaches the peer's address and every multicast group; all else is unreachable.
#[derive(Debug)]
pub struct MemTx {
    local: SocketAddrV4,
    peer: SocketAddrV4,
    outbox: Arc<Inbox>,
    queue: Ring,
    counters: TxCounters,
}

impl Tx for MemTx {
    fn datagram_bytes_max(&self) -> usize {
        self.queue.slots[0].bytes.len()
    }

    fn reserve(&mut self) -> Option<&mut [u8]> {
        let slot = self.queue.vacant();
        self.counters.queue_full += u64::from(slot.is_none());
        slot.map(|slot| &mut slot.bytes[..])
    }

    fn commit(&mut self, len: usize, to: SocketAddrV4) {
        let slot = self.queue.vacant().expect("a commit without a reserved slot");
        assert!(len <= slot.bytes.len(), "{len} bytes in a slot of {}", slot.bytes.len());
        (slot.len, slot.source, slot.destination) = (len, self.local, to);
        self.queue.len += 1;
    }

    fn flush(&mut self) -> usize {
        if self.queue.len == 0 {
            return 0;
        }
        self.counters.flushes += 1;
        let mut total = 0;
        let mut outbox = self.outbox.lock();
        while let Some(first) = self.queue.first() {
            if first.destination != self.peer && !first.destination.ip().is_multicast() {
                self.counters.dropped_unreachable += 1;
            } else {
                let Some(vacant) = outbox.vacant() else { break };
                self.counters.datagrams += 1;
                self.counters.bytes += first.len as u64;
                std::mem::swap(vacant, first);
                outbox.len += 1;
                total += 1;
            }
            self.queue.drop_first();
        }
        self.counters.blocked += u64::from(self.queue.len > 0);
        total
    }

    fn queued(&self) -> usize {
        self.queue.len
    }

    fn counters(&self) -> TxCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(tx: &mut MemTx, byte: u8, to: SocketAddrV4) -> bool {
        let Some(slot) = tx.reserve() else { return false };
        slot[0] = byte;
        tx.commit(1, to);
        true
    }

    #[test]
    fn a_full_inbox_keeps_the_rest_queued_and_loses_nothing() {
        let (a, b) = pair_with(MemConfig { inbox: 3, burst: 2, ..MemConfig::default() });
        let to = b.local_addr();
        let ((_, mut tx), (mut rx, _)) = (a.split(), b.split());
        let mut next = 0;
        while send(&mut tx, next, to) || tx.flush() > 0 {
            next += u8::from(tx.queued() > 0);
        }
        assert_eq!(tx.queued(), 2);
        let mut got = Vec::new();
        while rx.poll(7, 1, |datagram| got.push(datagram.payload[0])) + tx.flush() > 0 {}
        assert_eq!(got.len(), 5);
        assert!(got.is_sorted());
    }

    #[test]
    fn groups_reach_the_peer_and_strangers_are_unreachable() {
        let (a, b) = pair();
        let ((_, mut tx), (mut rx, _)) = (a.split(), b.split());
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 0, 0, 1), 7);
        assert!(send(&mut tx, 1, SocketAddrV4::new(Ipv4Addr::new(10, 9, 9, 9), 2)));
        assert!(send(&mut tx, 2, group));
        assert_eq!(tx.flush(), 1);
        assert_eq!(tx.counters().dropped_unreachable, 1);
        assert_eq!(rx.poll(0, 8, |datagram| assert_eq!((datagram.payload[0], datagram.destination), (2, group))), 1);
    }

    #[test]
    fn a_delivery_may_answer_at_once() {
        let (a, b) = pair();
        let (to_a, to_b) = (a.local_addr(), b.local_addr());
        let ((mut a_rx, mut a_tx), (mut b_rx, mut b_tx)) = (a.split(), b.split());
        assert!(send(&mut a_tx, 1, to_b));
        a_tx.flush();
        b_rx.poll(0, 8, |datagram| {
            assert!(send(&mut b_tx, datagram.payload[0] + 1, to_a));
            b_tx.flush();
        });
        assert_eq!(a_rx.poll(0, 8, |datagram| assert_eq!(datagram.payload, [2])), 1);
    }
}
