//! Ends of a lab's link, and what tests do with them.

#![allow(dead_code, reason = "each test program uses its share")]

use std::io::Write as _;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use ticktape_nic::lab::{self, End, Lab};
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::xdp::{XdpConfig, XdpNic, XdpRx, XdpTx};
use ticktape_nic::{Datagram, Nic, Rx, RxCounters, Tx, TxCounters, UdpNic};

/// Where both ends listen.
pub const PORT: u16 = 4_000;

/// Reached only by a failing test.
const PATIENCE: Duration = Duration::from_secs(30);

/// Fruitless polls after which something that is due counts as lost.
const POLLS_MAX: u64 = 20_000_000;

pub fn can_run() -> bool {
    match lab::available() {
        Ok(()) => true,
        Err(why) => {
            writeln!(std::io::stderr(), "skipped: {why}").expect("stderr");
            false
        }
    }
}

pub fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

pub fn address(lab: &Lab, end: End) -> SocketAddrV4 {
    SocketAddrV4::new(lab.side(end).ip, PORT)
}

pub fn config(lab: &Lab, end: End) -> XdpConfig {
    // On a box with far more to do than cores, a queue just left stays busy for longer than anybody should wait by default.
    XdpConfig { rebind_patience: PATIENCE, ..XdpConfig::new(lab.side(end).interface.clone(), address(lab, end)) }
}

pub fn open_in(lab: &Lab, end: End, config: &XdpConfig) -> XdpNic {
    lab.run(end, || XdpNic::open(config)).unwrap_or_else(|error| panic!("{error}"))
}

pub fn open(lab: &Lab, end: End) -> XdpNic {
    open_in(lab, end, &config(lab, end))
}

pub fn send(tx: &mut impl Tx, payload: &[u8], to: SocketAddrV4) {
    tx.reserve().expect("room for a datagram")[..payload.len()].copy_from_slice(payload);
    tx.commit(payload.len(), to);
}

pub fn flush_all(tx: &mut impl Tx) {
    for _ in 0..POLLS_MAX {
        tx.flush();
        if tx.queued() == 0 {
            return;
        }
        std::thread::yield_now();
    }
    panic!("{} datagrams stay queued: {:?}", tx.queued(), tx.counters());
}

/// Polls until `count` datagrams have come.
pub fn receive(rx: &mut impl Rx, count: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    for _ in 0..POLLS_MAX {
        if rx.poll(now(), count - got.len(), |datagram| got.push(datagram.payload.to_vec())) == 0 {
            std::thread::yield_now();
        }
        if got.len() == count {
            return got;
        }
    }
    panic!("{} of {count} datagrams came: {:?}", got.len(), rx.counters());
}

/// Looks until it is so.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::yield_now();
    }
}

/// One or the other backend.
#[derive(Debug)]
pub enum Either<X, U> {
    Xdp(X),
    Udp(U),
}

impl Nic for Either<XdpNic, UdpNic> {
    type Rx = Either<XdpRx, UdpRx>;
    type Tx = Either<XdpTx, UdpTx>;

    fn split(self) -> (Self::Rx, Self::Tx) {
        match self {
            Either::Xdp(nic) => {
                let (rx, tx) = nic.split();
                (Either::Xdp(rx), Either::Xdp(tx))
            }
            Either::Udp(nic) => {
                let (rx, tx) = nic.split();
                (Either::Udp(rx), Either::Udp(tx))
            }
        }
    }

    fn describe(&self) -> String {
        match self {
            Either::Xdp(nic) => nic.describe(),
            Either::Udp(nic) => nic.describe(),
        }
    }

    fn local_addr(&self) -> SocketAddrV4 {
        match self {
            Either::Xdp(nic) => nic.local_addr(),
            Either::Udp(nic) => nic.local_addr(),
        }
    }
}

impl Rx for Either<XdpRx, UdpRx> {
    fn poll(&mut self, now: u64, burst_max: usize, deliver: impl FnMut(Datagram<'_>)) -> usize {
        match self {
            Either::Xdp(rx) => rx.poll(now, burst_max, deliver),
            Either::Udp(rx) => rx.poll(now, burst_max, deliver),
        }
    }

    fn counters(&self) -> RxCounters {
        match self {
            Either::Xdp(rx) => rx.counters(),
            Either::Udp(rx) => rx.counters(),
        }
    }
}

impl Tx for Either<XdpTx, UdpTx> {
    fn datagram_bytes_max(&self) -> usize {
        match self {
            Either::Xdp(tx) => tx.datagram_bytes_max(),
            Either::Udp(tx) => tx.datagram_bytes_max(),
        }
    }

    fn reserve(&mut self) -> Option<&mut [u8]> {
        match self {
            Either::Xdp(tx) => tx.reserve(),
            Either::Udp(tx) => tx.reserve(),
        }
    }

    fn commit(&mut self, len: usize, to: SocketAddrV4) {
        match self {
            Either::Xdp(tx) => tx.commit(len, to),
            Either::Udp(tx) => tx.commit(len, to),
        }
    }

    fn flush(&mut self) -> usize {
        match self {
            Either::Xdp(tx) => tx.flush(),
            Either::Udp(tx) => tx.flush(),
        }
    }

    fn queued(&self) -> usize {
        match self {
            Either::Xdp(tx) => tx.queued(),
            Either::Udp(tx) => tx.queued(),
        }
    }

    fn counters(&self) -> TxCounters {
        match self {
            Either::Xdp(tx) => tx.counters(),
            Either::Udp(tx) => tx.counters(),
        }
    }
}
