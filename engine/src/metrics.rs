//! Stage latencies: who measures what, and where the time of arrival is kept meanwhile.
//!
//! Every stage is cumulative from `wire`: the kernel's receive timestamp where there is one, else the poll that took the burst.
//! Each stage owns its histogram; only the arrival times are shared, one relaxed word a message, written by the sequencer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hdrhistogram::Histogram;
use ticktape_core::{Nanos, Seq};

/// The longest latency a stage histogram can hold, in nanoseconds; longer ones count as this. A minute of stall is a
/// failure, not a latency.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Parts into which a run's latencies can be cut.
pub const PARTS_MAX: usize = 2;

/// Which part of a run latencies are counted to: moved by whoever runs a measurement, read by every stage.
#[derive(Clone, Debug, Default)]
pub struct Part(Arc<AtomicUsize>);

impl Part {
    /// Counts to the next part from now on; messages in flight may fall on either side.
    pub fn next(&self) {
        // Relaxed, as is the load: a part begins about now, for each stage when it notices.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed).min(PARTS_MAX - 1)
    }
}

/// Where each message in flight arrived, by seq.
#[derive(Clone, Debug)]
pub struct Arrivals {
    wire_ns: Arc<[AtomicU64]>,
    part: Part,
}

impl Arrivals {
    /// Room for `messages` in flight, rounded up to a power of two.
    pub fn new(messages: usize, part: Part) -> Self {
        let slots = messages.next_power_of_two();
        Arrivals { wire_ns: (0..slots).map(|_| AtomicU64::new(0)).collect(), part }
    }

    /// Notes when `seq` arrived. Relaxed: the frame's own publication orders it before any reader's load.
    #[inline]
    pub fn set(&self, seq: Seq, wire: Nanos) {
        self.slot(seq).store(wire, Ordering::Relaxed);
    }

    /// When `seq` arrived. Meaningful while the message is in flight.
    #[inline]
    pub fn get(&self, seq: Seq) -> Nanos {
        self.slot(seq).load(Ordering::Relaxed)
    }

    #[inline]
    fn slot(&self, seq: Seq) -> &AtomicU64 {
        &self.wire_ns[seq.0 as usize & (self.wire_ns.len() - 1)]
    }
}

/// One stage's latencies.
///
/// A stage reads no clock, so what it passes in one poll is counted with the time at which the next poll begins: a little
/// late, never too early.
#[derive(Debug)]
pub struct StageLatency {
    arrivals: Arrivals,
    histograms: [Histogram<u64>; PARTS_MAX],
    settled: Seq,
    passed: Seq,
}

impl StageLatency {
    /// Empty histograms, all their memory in place, for what comes after `passed`.
    pub fn new(arrivals: Arrivals, passed: Seq) -> Self {
        StageLatency { arrivals, histograms: std::array::from_fn(|_| latency_histogram()), settled: passed, passed }
    }

    /// As [`StageLatency::new`], with one significant digit, for which some KiB do: for whoever starts stages by the thousand, and looks at no
    /// percentile.
    pub fn coarse(arrivals: Arrivals, passed: Seq) -> Self {
        let histogram = || Histogram::new_with_bounds(1, LATENCY_NS_MAX, 1).expect("constant bounds");
        StageLatency { arrivals, histograms: std::array::from_fn(|_| histogram()), settled: passed, passed }
    }

    /// When what passes arrived.
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Everything up to `seq` has passed this stage in this poll.
    #[inline]
    pub fn pass(&mut self, seq: Seq) {
        debug_assert!(seq >= self.passed);
        self.passed = seq;
    }

    /// A poll begins at `now`: counts what passed in the one before. Frames without an arrival (ticks, epochs) don't count.
    #[inline]
    pub fn settle(&mut self, now: Nanos) {
        if self.settled != self.passed {
            let histogram = &mut self.histograms[self.arrivals.part.get()];
            for seq in self.settled.0 + 1..=self.passed.0 {
                let wire = self.arrivals.get(Seq(seq));
                if wire != 0 {
                    histogram.saturating_record(now.saturating_sub(wire).max(1));
                }
            }
            self.settled = self.passed;
        }
    }

    /// What was counted, by part.
    pub fn into_histograms(self) -> [Histogram<u64>; PARTS_MAX] {
        self.histograms
    }
}

/// A histogram of nanoseconds with three significant digits, all its memory in place.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("constant bounds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_counted_from_arrival_to_the_poll_after() {
        let arrivals = Arrivals::new(4, Part::default());
        let mut latency = StageLatency::new(arrivals.clone(), Seq(10));
        arrivals.set(Seq(11), 1_000);
        arrivals.set(Seq(12), 0);
        arrivals.set(Seq(13), 1_500);
        latency.pass(Seq(13));
        latency.settle(2_000);
        latency.settle(9_000);
        let [histogram, _] = latency.into_histograms();
        assert_eq!((histogram.len(), histogram.min(), histogram.max()), (2, 500, 1_000));
    }

    #[test]
    fn what_settles_after_a_cut_counts_to_the_next_part() {
        let part = Part::default();
        let arrivals = Arrivals::new(4, part.clone());
        let mut latency = StageLatency::new(arrivals.clone(), Seq(0));
        (1..4).for_each(|seq| arrivals.set(Seq(seq), 10));
        latency.pass(Seq(1));
        latency.settle(20);
        part.next();
        part.next();
        latency.pass(Seq(3));
        latency.settle(30);
        assert_eq!(latency.into_histograms().map(|histogram| histogram.len()), [1, 2]);
    }

    #[test]
    fn a_stall_longer_than_the_histogram_still_counts() {
        let arrivals = Arrivals::new(1, Part::default());
        let mut latency = StageLatency::new(arrivals.clone(), Seq(0));
        arrivals.set(Seq(1), 1);
        latency.pass(Seq(1));
        latency.settle(u64::MAX);
        assert_eq!(latency.into_histograms()[0].len(), 1);
    }
}
