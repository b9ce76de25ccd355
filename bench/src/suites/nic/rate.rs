//! One way: bursts as fast as they go, counted where they arrive. The sender stays within a window of the receiver, so that a
//! receiver that loses its core for a moment costs time, not datagrams.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use ticktape_nic::{Nic, Rx, Tx};
use ticktape_tuning::clock::monotonic_ns;
use ticktape_tuning::pin::pin_current_thread;

use super::{BURST, Measured, PAYLOAD_BYTES, Pair};
use crate::hop::Cores;

/// Datagrams timed together, and how many such runs a round has. The median of them is not bent by a core that is taken away
/// for some ms, as a mean over the round would be.
const RUN: u64 = 2_048;
const RUNS: usize = 150;
/// Sent before the clock starts, one at a time: neighbours are looked up meanwhile.
const WARM_UP: u64 = 2_000;
const _: () = assert!(RUN.is_multiple_of(BURST as u64));
/// Datagrams on their way, at most: what every contestant's receive queue holds.
const WINDOW: u64 = 1_024;
/// How long the sender waits for the receiver, in ns, until it takes what is missing for lost.
const PATIENCE_NS: u64 = 20_000_000;
/// Fruitless polls after the last send, until what has not come counts as lost.
const IDLE_POLLS: u32 = 10_000;

/// What a round came to.
pub(super) struct Rate {
    /// Of the median run; what is lost shows beside it.
    pub(super) sent_per_s: f64,
    /// Of all that was sent.
    pub(super) lost_share: f64,
}

pub(super) fn one_way<N: Nic>(cores: Cores, (near, far): Pair<N>) -> Measured<Rate> {
    let to = far.local_addr();
    let ((_near_rx, mut tx), (mut rx, _far_tx)) = (near.split(), far.split());
    let (ready, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let arrived = CachePadded::new(AtomicU64::new(0));
    let (mut sent, mut lost) = (0u64, 0u64);
    let mut burst = |count: u64| {
        // Relaxed: a count, and nothing that it stands for is read.
        let behind = |lost: u64| sent + count - arrived.load(Ordering::Relaxed) - lost;
        if behind(lost) > WINDOW {
            let deadline = monotonic_ns() + PATIENCE_NS;
            while behind(lost) > WINDOW {
                if monotonic_ns() > deadline {
                    lost += behind(lost) - WINDOW;
                }
            }
        }
        sent += count;
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
    let (received, run) = thread::scope(|scope| {
        let (ready, done, arrived) = (&ready, &done, &arrived);
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
                if now > 0 {
                    received += now;
                    arrived.store(received, Ordering::Relaxed);
                }
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
        let mut times: Vec<Duration> = (0..RUNS)
            .map(|_| {
                let begin = Instant::now();
                (0..RUN / BURST as u64).for_each(|_| burst(BURST as u64));
                begin.elapsed()
            })
            .collect();
        times.sort_unstable();
        done.store(true, Ordering::Release); // pairs with the Acquire load of the receiver
        (receiver.join().expect("it does not panic"), times[RUNS / 2])
    });
    let lost_share = sent.saturating_sub(received) as f64 / sent as f64;
    Ok(Rate { sent_per_s: RUN as f64 / run.as_secs_f64(), lost_share })
}
