//! One way: bursts as fast as they go, counted where they arrive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use ticktape_nic::{Nic, Rx, Tx};
use ticktape_tuning::clock::monotonic_ns;
use ticktape_tuning::pin::pin_current_thread;

use super::{BURST, Measured, PAYLOAD_BYTES, Pair};
use crate::hop::Cores;

/// Datagrams of a round.
const DATAGRAMS: u64 = 300_000;
/// Sent before the clock starts, one at a time: neighbours are looked up meanwhile.
const WARM_UP: u64 = 2_000;
/// Fruitless polls after the last send, until what has not come counts as lost.
const IDLE_POLLS: u32 = 10_000;

/// What a round came to.
pub(super) struct Rate {
    pub(super) received_per_s: f64,
    /// Of all that was sent.
    pub(super) lost_share: f64,
}

pub(super) fn one_way<N: Nic>(cores: Cores, (near, far): Pair<N>) -> Measured<Rate> {
    let to = far.local_addr();
    let ((_near_rx, mut tx), (mut rx, _far_tx)) = (near.split(), far.split());
    let (ready, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut burst = |count: u64| {
        for _ in 0..count {
            while tx.reserve().is_none() {
                tx.flush();
            }
            tx.commit(PAYLOAD_BYTES, to);
        }
        tx.flush();
        while tx.queued() > 0 {
            tx.flush();
        }
    };
    let (received, elapsed) = thread::scope(|scope| {
        let (ready, done) = (&ready, &done);
        let receiver = scope.spawn(move || {
            let _ = pin_current_thread(cores.there);
            ready.store(true, Ordering::Release); // pairs with the Acquire load of the sender
            let (mut received, mut idle) = (0u64, 0);
            while idle < IDLE_POLLS {
                let mut now = 0;
                rx.poll(monotonic_ns(), BURST, |datagram| {
                    std::hint::black_box(datagram.payload);
                    now += 1;
                });
                received += now;
                let over = now == 0 && done.load(Ordering::Acquire);
                idle = if over { idle + 1 } else { 0 };
            }
            received
        });
        let _ = pin_current_thread(cores.here);
        while !ready.load(Ordering::Acquire) {
            thread::yield_now();
        }
        (0..WARM_UP).for_each(|_| burst(1));
        let begin = Instant::now();
        (0..DATAGRAMS / BURST as u64).for_each(|_| burst(BURST as u64));
        let elapsed = begin.elapsed();
        done.store(true, Ordering::Release); // pairs with the Acquire load of the receiver
        (receiver.join().expect("it does not panic"), elapsed)
    });
    let sent = WARM_UP + DATAGRAMS / BURST as u64 * BURST as u64;
    let lost = sent.saturating_sub(received);
    let timed = (sent - WARM_UP).saturating_sub(lost);
    Ok(Rate { received_per_s: timed as f64 / elapsed.as_secs_f64(), lost_share: lost as f64 / sent as f64 })
}
