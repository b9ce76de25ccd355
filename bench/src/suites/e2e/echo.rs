//! The raw echo: a datagram there and back through the same ports, with nothing in between.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, Rx, Tx, UdpConfig, UdpNic};
use ticktape_tuning::clock::monotonic_ns;
use ticktape_tuning::pin::pin_current_thread;

use super::Measured;
use crate::hop::Cores;
use crate::latency::{Latency, Stopwatch};

/// Any port of the loopback interface.
pub(in crate::suites) const ANY_PORT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
/// Round trips of a round.
const ROUND_TRIPS: usize = 10_000;
/// About the size of an order's datagram.
pub(super) const PAYLOAD_BYTES: usize = 64;
const BURST: usize = 64;

/// A socket of ours and whom it talks to.
pub(super) struct End {
    rx: UdpRx,
    tx: UdpTx,
    peer: SocketAddrV4,
}

impl End {
    pub(super) fn new(nic: UdpNic, peer: SocketAddrV4) -> Self {
        let (rx, tx) = nic.split();
        End { rx, tx, peer }
    }

    pub(super) fn send(&mut self, payload: &[u8]) {
        self.tx.reserve().expect("one datagram at a time")[..payload.len()].copy_from_slice(payload);
        self.tx.commit(payload.len(), self.peer);
        while self.tx.queued() > 0 {
            self.tx.flush();
        }
    }

    pub(super) fn receive(&mut self) -> bool {
        self.rx.poll(monotonic_ns(), BURST, |datagram| {
            std::hint::black_box(datagram.payload);
        }) > 0
    }
}

pub(in crate::suites) fn open() -> Measured<UdpNic> {
    UdpNic::open(&UdpConfig::new(ANY_PORT)).map_err(|error| error.to_string())
}

pub(super) fn round_trips(cores: Cores) -> Measured<Latency> {
    let (near, far) = (open()?, open()?);
    let (near_address, far_address) = (near.local_addr(), far.local_addr());
    let (mut near, mut far) = (End::new(near, far_address), End::new(far, near_address));
    let (ready, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut watch = Stopwatch::new(ROUND_TRIPS);
    thread::scope(|scope| {
        let (ready, done) = (&ready, &done);
        scope.spawn(move || {
            let _ = pin_current_thread(cores.there);
            ready.store(true, Ordering::Release); // pairs with the Acquire load of the near side
            while !done.load(Ordering::Acquire) {
                if far.receive() {
                    far.send(&[0x5a; PAYLOAD_BYTES]);
                }
            }
        });
        let _ = pin_current_thread(cores.here);
        while !ready.load(Ordering::Acquire) {
            thread::yield_now();
        }
        for _ in 0..ROUND_TRIPS {
            watch.time(|| {
                near.send(&[0x5a; PAYLOAD_BYTES]);
                while !near.receive() {}
            });
        }
        done.store(true, Ordering::Release); // pairs with the Acquire load of the far side
    });
    Ok(watch.finish(1.0))
}
