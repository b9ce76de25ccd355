//! The port: what a stage holds of the network.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ticktape_core::Nanos;
use ticktape_nic::{Datagram, Nic, Rx, RxCounters, TimeOrigin, Tx, TxCounters};

use super::network::Network;
use crate::rng::Ppm;

/// The shape of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Datagrams that wait for a poll; what arrives beyond is dropped.
    pub rx_slots: usize,
    /// Datagrams that wait for a flush.
    pub tx_slots: usize,
    /// The largest payload, in bytes.
    pub datagram_bytes_max: usize,
    /// A flush gets rid of a part only.
    pub block: Ppm,
}

impl Default for QueueConfig {
    fn default() -> Self {
        QueueConfig { rx_slots: 256, tx_slots: 64, datagram_bytes_max: 1472, block: Ppm::NEVER }
    }
}

/// A port of the simulated network.
#[derive(Debug)]
pub struct SimNic {
    network: Network,
    address: SocketAddrV4,
    opening: u64,
    waiting: Arc<AtomicUsize>,
    config: QueueConfig,
}

impl SimNic {
    pub(super) fn new(
        network: Network,
        address: SocketAddrV4,
        opening: u64,
        waiting: Arc<AtomicUsize>,
        config: QueueConfig,
    ) -> Self {
        assert!(config.rx_slots > 0 && config.tx_slots > 0, "a port has slots");
        SimNic { network, address, opening, waiting, config }
    }
}

impl SimNic {
    /// Tells whether there is anything to take.
    pub(crate) fn bell(&self) -> Bell {
        Bell { network: self.network.clone(), waiting: self.waiting.clone() }
    }
}

/// Tells whether a port has anything to take, for whoever decides if it is worth a poll.
#[derive(Debug)]
pub(crate) struct Bell {
    network: Network,
    waiting: Arc<AtomicUsize>,
}

impl Bell {
    /// Nothing waits at the port, and nothing has arrived at any that is yet to be put into its ring.
    pub(crate) fn is_silent(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0 && self.network.is_quiet()
    }
}

impl Nic for SimNic {
    type Rx = SimRx;
    type Tx = SimTx;

    fn split(self) -> (SimRx, SimTx) {
        let SimNic { network, address, opening, waiting, config } = self;
        let slot = || Slot { bytes: vec![0; config.datagram_bytes_max], len: 0, to: address };
        let tx = SimTx {
            network: network.clone(),
            address,
            opening,
            config,
            slots: (0..config.tx_slots).map(|_| slot()).collect(),
            first: 0,
            queued: 0,
            counters: TxCounters::default(),
        };
        (SimRx { network, address, opening, waiting, counters: RxCounters::default() }, tx)
    }

    fn describe(&self) -> String {
        format!("simulated, {} slots in and {} out", self.config.rx_slots, self.config.tx_slots)
    }

    fn local_addr(&self) -> SocketAddrV4 {
        self.address
    }
}

/// The receive half.
#[derive(Debug)]
pub struct SimRx {
    network: Network,
    address: SocketAddrV4,
    opening: u64,
    /// Datagrams in its ring.
    waiting: Arc<AtomicUsize>,
    counters: RxCounters,
}

impl Rx for SimRx {
    fn poll(&mut self, now: Nanos, burst_max: usize, mut deliver: impl FnMut(Datagram<'_>)) -> usize {
        if self.waiting.load(Ordering::Relaxed) == 0 && self.network.is_quiet() {
            return 0;
        }
        let mut taken = 0;
        while taken < burst_max {
            let mut state = self.network.lock();
            state.arrive();
            let mine = state.endpoints.get_mut(&self.address).filter(|endpoint| endpoint.opening == self.opening);
            let Some(endpoint) = mine else { break };
            self.counters.dropped_before_poll = endpoint.overflowed;
            let Some(packet) = endpoint.ring.pop_front() else { break };
            self.waiting.store(endpoint.ring.len(), Ordering::Relaxed);
            // The delivery may send, which takes this lock.
            drop(state);
            taken += 1;
            self.counters.datagrams += 1;
            self.counters.bytes += packet.bytes.len() as u64;
            deliver(Datagram {
                source: packet.source,
                destination: packet.destination,
                payload: &packet.bytes,
                received: now,
                origin: TimeOrigin::Poll,
            });
            self.network.lock().give_back(packet.bytes);
        }
        taken
    }

    fn counters(&self) -> RxCounters {
        self.counters
    }
}

#[derive(Debug)]
struct Slot {
    bytes: Vec<u8>,
    len: usize,
    to: SocketAddrV4,
}

/// The transmit half.
#[derive(Debug)]
pub struct SimTx {
    network: Network,
    address: SocketAddrV4,
    opening: u64,
    config: QueueConfig,
    slots: Box<[Slot]>,
    first: usize,
    queued: usize,
    counters: TxCounters,
}

impl SimTx {
    fn vacant(&self) -> Option<usize> {
        (self.queued < self.slots.len()).then(|| (self.first + self.queued) % self.slots.len())
    }
}

impl Tx for SimTx {
    fn datagram_bytes_max(&self) -> usize {
        self.config.datagram_bytes_max
    }

    fn reserve(&mut self) -> Option<&mut [u8]> {
        let slot = self.vacant();
        self.counters.queue_full += u64::from(slot.is_none());
        slot.map(|slot| &mut self.slots[slot].bytes[..])
    }

    fn commit(&mut self, len: usize, to: SocketAddrV4) {
        assert!(len <= self.config.datagram_bytes_max, "{len} bytes in a slot of {}", self.config.datagram_bytes_max);
        let slot = self.vacant().expect("a commit without a reserved slot");
        (self.slots[slot].len, self.slots[slot].to) = (len, to);
        self.queued += 1;
    }

    fn flush(&mut self) -> usize {
        if self.queued == 0 {
            return 0;
        }
        self.counters.flushes += 1;
        let mut state = self.network.lock();
        let is_mine = state.endpoints.get(&self.address).is_some_and(|endpoint| endpoint.opening == self.opening);
        let taken = if is_mine { state.take_of(self.queued, &self.config) } else { self.queued };
        for _ in 0..taken {
            let slot = &self.slots[self.first];
            if is_mine {
                state.send(self.address, slot.to, &slot.bytes[..slot.len]);
            }
            self.counters.datagrams += 1;
            self.counters.bytes += slot.len as u64;
            self.first = (self.first + 1) % self.slots.len();
        }
        self.queued -= taken;
        self.counters.blocked += u64::from(self.queued > 0);
        taken
    }

    fn queued(&self) -> usize {
        self.queued
    }

    fn counters(&self) -> TxCounters {
        self.counters
    }
}
