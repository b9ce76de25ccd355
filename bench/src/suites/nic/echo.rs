//! There and back: one datagram at a time between two threads, each on its own core.

use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crossbeam_utils::CachePadded;
use ticktape_nic::{Nic, Rx, Tx};
use ticktape_tuning::clock::SpinClock;
use ticktape_tuning::pin::pin_current_thread;

use super::{BURST, Measured, PAYLOAD_BYTES, Pair};
use crate::hop::Cores;
use crate::latency::{Latency, Stopwatch};

/// Round trips of a round. The first tenth is not counted: neighbours are looked up meanwhile.
const ROUND_TRIPS: usize = 20_000;
/// How long one datagram may take, in ns, before it counts as lost.
const PATIENCE_NS: u64 = 2_000_000_000;

struct End<N: Nic> {
    rx: N::Rx,
    tx: N::Tx,
    peer: SocketAddrV4,
    /// As a stage that spins has one: the kernel's clock costs what many an empty poll does.
    clock: SpinClock,
    now: u64,
}

impl<N: Nic> End<N> {
    fn new(nic: N, peer: SocketAddrV4) -> Self {
        let (rx, tx) = nic.split();
        End { rx, tx, peer, clock: SpinClock::new(), now: 0 }
    }

    #[inline]
    fn send(&mut self) {
        self.tx.reserve().expect("one datagram at a time")[..PAYLOAD_BYTES].fill(0x5a);
        self.tx.commit(PAYLOAD_BYTES, self.peer);
        while self.tx.queued() > 0 {
            self.tx.flush();
        }
    }

    #[inline]
    fn receive(&mut self) -> bool {
        self.now = self.clock.now_ns();
        self.rx.poll(self.now, BURST, |datagram| {
            std::hint::black_box(datagram.payload);
        }) > 0
    }
}

pub(super) fn round_trips<N: Nic>(cores: Cores, (near, far): Pair<N>) -> Measured<Latency> {
    let (near_address, far_address) = (near.local_addr(), far.local_addr());
    let (mut near, mut far) = (End::new(near, far_address), End::new(far, near_address));
    // The far side looks at `done` with each poll: in a line of its own, which the near side does not write.
    let (ready, done) = (AtomicBool::new(false), CachePadded::new(AtomicBool::new(false)));
    let mut watch = Stopwatch::new(ROUND_TRIPS);
    let mut lost = false;
    thread::scope(|scope| {
        let (ready, done) = (&ready, &done);
        scope.spawn(move || {
            let _ = pin_current_thread(cores.there);
            ready.store(true, Ordering::Release); // pairs with the Acquire load of the near side
            while !done.load(Ordering::Acquire) {
                if far.receive() {
                    far.send();
                }
            }
        });
        let _ = pin_current_thread(cores.here);
        near.now = near.clock.now_ns();
        while !ready.load(Ordering::Acquire) {
            thread::yield_now();
        }
        for _ in 0..ROUND_TRIPS {
            let deadline = near.now + PATIENCE_NS;
            watch.time(|| {
                near.send();
                while !near.receive() && !lost {
                    lost = near.now > deadline;
                }
            });
            if lost {
                break;
            }
        }
        done.store(true, Ordering::Release); // pairs with the Acquire load of the far side
    });
    if lost { Err("an echo is lost".to_owned()) } else { Ok(watch.finish(1.0)) }
}
