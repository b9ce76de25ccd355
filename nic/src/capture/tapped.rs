//! Taps around any backend.

use std::net::{Ipv4Addr, SocketAddrV4};

use nix::time::ClockId;
use ticktape_core::Nanos;

use super::recorder;
use super::tap::{Direction, Tap};
use crate::port::{Datagram, Nic, Rx, RxCounters, Tx, TxCounters};

/// A [`Nic`] with a tap on each half.
#[derive(Debug)]
pub struct Tapped<N> {
    nic: N,
    rx: Tap,
    tx: Tap,
    source: SocketAddrV4,
    clock: fn() -> Nanos,
}

impl<N: Nic> Tapped<N> {
    /// Taps `nic`. What it sends is recorded as of its local address; where that is of all interfaces, as of `ip`. `clock`
    /// times what is sent, on the timeline of the polls' `now`: [`monotonic_now`] where the backend is real.
    pub fn new(nic: N, rx: Tap, tx: Tap, ip: Ipv4Addr, clock: fn() -> Nanos) -> Tapped<N> {
        let mut source = nic.local_addr();
        if source.ip().is_unspecified() || source.ip().is_multicast() {
            source.set_ip(ip);
        }
        Tapped { nic, rx, tx, source, clock }
    }
}

/// CLOCK_MONOTONIC, in nanoseconds.
pub fn monotonic_now() -> Nanos {
    recorder::read(ClockId::CLOCK_MONOTONIC)
}

impl<N: Nic> Nic for Tapped<N> {
    type Rx = TappedRx<N::Rx>;
    type Tx = TappedTx<N::Tx>;

    fn split(self) -> (Self::Rx, Self::Tx) {
        let (rx, tx) = self.nic.split();
        let staging = vec![0; tx.datagram_bytes_max()].into();
        (
            TappedRx { inner: rx, tap: self.rx },
            TappedTx { inner: tx, tap: self.tx, source: self.source, clock: self.clock, time: None, staging },
        )
    }

    fn describe(&self) -> String {
        format!("{}; captured", self.nic.describe())
    }

    fn local_addr(&self) -> SocketAddrV4 {
        self.nic.local_addr()
    }
}

/// A receive half whose datagrams are tapped as they are delivered, with the time they were received at.
#[derive(Debug)]
pub struct TappedRx<R> {
    inner: R,
    tap: Tap,
}

impl<R: Rx> Rx for TappedRx<R> {
    fn poll(&mut self, now: Nanos, burst_max: usize, mut deliver: impl FnMut(Datagram<'_>)) -> usize {
        let tap = &mut self.tap;
        self.inner.poll(now, burst_max, |datagram| {
            let Datagram { source, destination, payload, received, .. } = datagram;
            tap.datagram(received, Direction::Inbound, source, destination, payload);
            deliver(datagram);
        })
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        self.inner.details()
    }

    fn counters(&self) -> RxCounters {
        self.inner.counters()
    }
}

/// A transmit half whose datagrams are tapped as they are committed, with the time of the first since the last flush: one
/// reading of the clock a burst. What the backend then drops is in its counters, and in the capture all the same.
#[derive(Debug)]
pub struct TappedTx<T> {
    inner: T,
    tap: Tap,
    source: SocketAddrV4,
    clock: fn() -> Nanos,
    time: Option<Nanos>,
    /// What a caller fills: a port does not promise that a slot, once filled, can be read.
    staging: Box<[u8]>,
}

impl<T: Tx> Tx for TappedTx<T> {
    fn datagram_bytes_max(&self) -> usize {
        self.inner.datagram_bytes_max()
    }

    fn reserve(&mut self) -> Option<&mut [u8]> {
        self.inner.reserve()?;
        Some(&mut self.staging)
    }

    fn commit(&mut self, len: usize, to: SocketAddrV4) {
        let payload = &self.staging[..len];
        let slot = self.inner.reserve().expect("a commit without a reserved slot");
        slot[..len].copy_from_slice(payload);
        self.inner.commit(len, to);
        let time = *self.time.get_or_insert_with(self.clock);
        self.tap.datagram(time, Direction::Outbound, self.source, to, payload);
    }

    fn flush(&mut self) -> usize {
        self.time = None;
        self.inner.flush()
    }

    fn queued(&self) -> usize {
        self.inner.queued()
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        self.inner.details()
    }

    fn counters(&self) -> TxCounters {
        self.inner.counters()
    }
}
