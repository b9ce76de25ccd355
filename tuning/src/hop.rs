//! What a cache line costs between two cores: the floor under every handover from stage to stage.
//!
//! The cost depends on which cores, and on a shared host's mood; measure it beside whatever is compared with it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;

use crate::clock::monotonic_ns;
use crate::pin::{PinError, pin_current_thread};

/// Round trips timed together: enough that reading the clock does not show.
const BLOCK: u64 = 64;
/// Blocks between two cores, after as many tenths of it for warming up: some 20 ms.
const BLOCKS: u64 = 2_000;
/// Blocks where both sides share a core, and each trip costs two switches of threads.
const BLOCKS_SHARED: u64 = 20;
/// Spins before a waiting side lets others run. Never reached between two cores that are free; where the other side has been
/// preempted, it saves what is left of the time slice.
const SPINS: u32 = 10_000;

/// A measured hop.
#[derive(Clone, Debug, PartialEq)]
pub struct Hop {
    /// The two cores.
    pub cores: [usize; 2],
    /// Round trips per block timed: each sample is a block's mean.
    pub block: u64,
    /// Blocks timed.
    pub blocks: u64,
    /// The fastest block's round trip, in nanoseconds.
    pub round_trip_min_ns: u64,
    /// The median block's.
    pub round_trip_p50_ns: u64,
    /// The 99th percentile of the blocks.
    pub round_trip_p99_ns: u64,
}

impl Hop {
    /// Both sides ran on one core: these are switches between threads, not hops of a cache line.
    pub fn is_shared_core(&self) -> bool {
        self.cores[0] == self.cores[1]
    }

    /// One way, in nanoseconds: half of the median round trip.
    pub fn one_way_p50_ns(&self) -> u64 {
        self.round_trip_p50_ns / 2
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = self.cores;
        let what = if self.is_shared_core() { "thread switch" } else { "cache line" };
        let (min, p50, p99) = (self.round_trip_min_ns, self.round_trip_p50_ns, self.round_trip_p99_ns);
        write!(f, "{what} round trip, cores {a} and {b}: min {min} ns, p50 {p50} ns, p99 {p99} ns")
    }
}

/// The two words, one written by each side.
#[derive(Default)]
struct Court {
    ping: CachePadded<AtomicU64>,
    pong: CachePadded<AtomicU64>,
}

/// Measures the round trip of a cache line between two cores, with two threads of its own. With the same core twice it
/// measures the switch between two threads instead, in fewer rounds.
///
/// # Errors
/// [`PinError`] when a core can't be used; nothing is measured then.
pub fn probe(core_a: usize, core_b: usize) -> Result<Hop, PinError> {
    let shared = core_a == core_b;
    let blocks = if shared { BLOCKS_SHARED } else { BLOCKS };
    let spins = if shared { 0 } else { SPINS };
    let warm_up = blocks / 10;
    let rounds = (warm_up + blocks) * BLOCK;
    let court = Court::default();
    let samples = thread::scope(|scope| {
        let (ready_tx, ready_rx) = std::sync::mpsc::channel();
        let court = &court;
        let echo = scope.spawn(move || {
            let pinned = pin_current_thread(core_b);
            // The other side starts only once it is known that somebody answers.
            let _ = ready_tx.send(pinned.is_ok());
            pinned.map(|()| answer(court, rounds, spins))
        });
        let caller = scope.spawn(move || {
            // Hears of the other side first, and must not leave it waiting for a ball that never comes.
            let answered = ready_rx.recv().unwrap_or(false);
            let pinned = pin_current_thread(core_a);
            if !answered {
                return pinned.map(|()| None);
            }
            if let Err(error) = pinned {
                court.ping.store(GIVEN_UP, Ordering::Release); // pairs with the Acquire load in `wait`
                return Err(error);
            }
            Ok(Some(call(court, warm_up, blocks, spins)))
        });
        let samples = caller.join().expect("the caller does not panic")?;
        echo.join().expect("the echo does not panic")?;
        Ok(samples)
    })?;
    let samples = samples.expect("both sides were pinned");
    Ok(Hop {
        cores: [core_a, core_b],
        block: BLOCK,
        blocks,
        round_trip_min_ns: samples.min(),
        round_trip_p50_ns: samples.value_at_quantile(0.5),
        round_trip_p99_ns: samples.value_at_quantile(0.99),
    })
}

/// Ends the game before the last round.
const GIVEN_UP: u64 = u64::MAX;

/// Waits until `word` reaches `round`.
fn wait(word: &AtomicU64, round: u64, spins: u32) -> u64 {
    let mut spun = 0;
    loop {
        // pairs with the Release stores of the other side
        let seen = word.load(Ordering::Acquire);
        if seen >= round {
            return seen;
        }
        if spun < spins {
            spun += 1;
            std::hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}

fn answer(court: &Court, rounds: u64, spins: u32) {
    for round in 1..=rounds {
        if wait(&court.ping, round, spins) == GIVEN_UP {
            return;
        }
        court.pong.store(round, Ordering::Release); // pairs with the Acquire load in `wait`
    }
}

fn call(court: &Court, warm_up: u64, blocks: u64, spins: u32) -> Histogram<u64> {
    let mut samples = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("constant bounds are in order");
    let mut round = 0;
    for block in 0..warm_up + blocks {
        let start = monotonic_ns();
        for _ in 0..BLOCK {
            round += 1;
            court.ping.store(round, Ordering::Release); // pairs with the Acquire load in `wait`
            wait(&court.pong, round, spins);
        }
        if block >= warm_up {
            samples.saturating_record(((monotonic_ns() - start) / BLOCK).max(1));
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::pin::usable_cores;

    fn assert_plausible(hop: &Hop) {
        assert!(hop.round_trip_min_ns > 0, "{hop:?}");
        assert!(hop.round_trip_min_ns <= hop.round_trip_p50_ns && hop.round_trip_p50_ns <= hop.round_trip_p99_ns);
        assert_eq!(hop.one_way_p50_ns(), hop.round_trip_p50_ns / 2);
    }

    #[test]
    fn every_round_between_two_cores_is_answered() {
        let cores = usable_cores();
        let [a, b, ..] = cores[..] else {
            let _ = writeln!(std::io::stderr(), "skipped: one usable core");
            return;
        };
        let hop = probe(a, b).unwrap();
        assert!(!hop.is_shared_core());
        assert_plausible(&hop);
        assert!(hop.to_string().starts_with("cache line"), "{hop}");
    }

    #[test]
    fn one_core_is_enough_and_says_so() {
        let core = usable_cores()[0];
        let hop = probe(core, core).unwrap();
        assert!(hop.is_shared_core());
        assert_plausible(&hop);
        assert!(hop.to_string().starts_with("thread switch"), "{hop}");
    }

    #[test]
    fn a_core_that_is_not_there_ends_the_probe_on_either_side() {
        let (here, gone) = (usable_cores()[0], 1_000_000);
        for (a, b) in [(here, gone), (gone, here), (gone, gone)] {
            assert_eq!(probe(a, b).unwrap_err(), PinError::NotUsable { core: gone, usable: usable_cores() });
        }
    }
}
