//! Stage latencies: who measures what, and where the time of arrival is kept meanwhile.
//!
//! Every stage is cumulative from `wire`: the kernel's receive timestamp where there is one, else the poll that took the burst.
//! Each stage is the one writer of its histogram, which others may look at; the arrival times are shared, one relaxed word a message, written
//! by the sequencer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hdrhistogram::Histogram;
use ticktape_core::{Nanos, Seq};
use ticktape_shm::metrics::{HistogramRead, LatencyRecorder};

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

    /// Which it is now.
    #[inline]
    pub(crate) fn get(&self) -> usize {
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

/// Where latencies are counted, by part.
pub type Recorders = [LatencyRecorder; PARTS_MAX];

/// One stage's latencies.
///
/// A stage reads no clock, so what it passes in one poll is counted with the time at which the next poll begins: a little
/// late, never too early.
#[derive(Debug)]
pub struct StageLatency {
    arrivals: Arrivals,
    recorders: Recorders,
    settled: Seq,
    passed: Seq,
    edge: Option<Edge>,
}

/// Where the stage meets the wire: what it took from there, or gave there, is counted beside.
#[derive(Debug)]
struct Edge {
    recorders: Recorders,
    settled: Seq,
    passed: Seq,
    /// When the poll began that took from the wire what is not settled. None: the poll that settles it began when it was given there.
    taken_at: Option<Nanos>,
}

impl StageLatency {
    /// Counts to `recorders` what comes after `passed`.
    pub fn new(arrivals: Arrivals, passed: Seq, recorders: Recorders) -> Self {
        StageLatency { arrivals, recorders, settled: passed, passed, edge: None }
    }

    /// Of a stage at the wire: [`StageLatency::enter`] or [`StageLatency::leave`] count to `recorders`, too.
    #[must_use]
    pub fn at_the_wire(mut self, recorders: Recorders) -> Self {
        self.edge = Some(Edge { recorders, settled: self.passed, passed: self.passed, taken_at: None });
        self
    }

    /// Histograms that nobody else looks at, all their memory in place.
    pub fn private(arrivals: Arrivals, passed: Seq) -> Self {
        Self::new(arrivals, passed, std::array::from_fn(|_| LatencyRecorder::private()))
    }

    /// As [`StageLatency::private`], with one significant digit, for which some KiB do: for whoever starts stages by the thousand, and looks
    /// at no percentile.
    pub fn coarse(arrivals: Arrivals, passed: Seq) -> Self {
        Self::new(arrivals, passed, std::array::from_fn(|_| LatencyRecorder::coarse()))
    }

    /// When what passes arrived.
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Up to where everything has passed.
    pub const fn passed(&self) -> Seq {
        self.passed
    }

    /// Everything up to `seq` has passed this stage in this poll.
    #[inline]
    pub fn pass(&mut self, seq: Seq) {
        debug_assert!(seq >= self.passed);
        self.passed = seq;
    }

    /// Everything up to `seq` was taken from the wire by a poll that began at `now`, and has passed this stage in it. It is counted by the next
    /// poll, which nobody waits for.
    #[inline]
    pub fn enter(&mut self, now: Nanos, seq: Seq) {
        self.pass(seq);
        if let Some(edge) = &mut self.edge {
            (edge.passed, edge.taken_at) = (seq, Some(now));
        }
    }

    /// Everything that has passed was given to the wire in this poll.
    #[inline]
    pub fn leave(&mut self) {
        if let Some(edge) = &mut self.edge {
            edge.passed = self.passed;
        }
    }

    /// A poll begins at `now`: counts what passed in the one before. Frames without an arrival (ticks, epochs) don't count.
    #[inline]
    pub fn settle(&mut self, now: Nanos) {
        let part = self.arrivals.part.get();
        if self.settled != self.passed {
            count(&self.arrivals, &mut self.recorders[part], now, self.settled, self.passed);
            self.settled = self.passed;
        }
        if let Some(Edge { recorders, settled, passed, taken_at }) = &mut self.edge
            && settled != passed
        {
            count(&self.arrivals, &mut recorders[part], taken_at.take().unwrap_or(now), *settled, *passed);
            *settled = *passed;
        }
    }

    /// What was counted, by part, with what was counted at the wire, where this stage is there.
    pub fn histograms(&self) -> ([Histogram<u64>; PARTS_MAX], Option<[Histogram<u64>; PARTS_MAX]>) {
        let of = |recorders: &Recorders| std::array::from_fn(|part| histogram_of(&recorders[part].read()));
        (of(&self.recorders), self.edge.as_ref().map(|edge| of(&edge.recorders)))
    }
}

/// Counts the frames after `from`, up to `to`.
#[inline]
fn count(arrivals: &Arrivals, recorder: &mut LatencyRecorder, now: Nanos, from: Seq, to: Seq) {
    for seq in from.0 + 1..=to.0 {
        let wire = arrivals.get(Seq(seq));
        if wire != 0 {
            recorder.record(now.saturating_sub(wire).max(1));
        }
    }
}

/// The same counts for whoever asks for percentiles.
pub fn histogram_of(read: &HistogramRead) -> Histogram<u64> {
    let mut histogram = latency_histogram();
    read.counts().for_each(|(ns, count)| histogram.saturating_record_n(ns, count));
    histogram
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
        let mut latency = StageLatency::private(arrivals.clone(), Seq(10));
        arrivals.set(Seq(11), 1_000);
        arrivals.set(Seq(12), 0);
        arrivals.set(Seq(13), 1_500);
        latency.pass(Seq(13));
        latency.settle(2_000);
        latency.settle(9_000);
        let ([histogram, _], at_the_wire) = latency.histograms();
        assert!(at_the_wire.is_none());
        assert_eq!((histogram.len(), histogram.min(), histogram.max()), (2, 500, 1_000));
    }

    #[test]
    fn what_settles_after_a_cut_counts_to_the_next_part() {
        let part = Part::default();
        let arrivals = Arrivals::new(4, part.clone());
        let mut latency = StageLatency::private(arrivals.clone(), Seq(0));
        (1..4).for_each(|seq| arrivals.set(Seq(seq), 10));
        latency.pass(Seq(1));
        latency.settle(20);
        part.next();
        part.next();
        latency.pass(Seq(3));
        latency.settle(30);
        assert_eq!(latency.histograms().0.map(|histogram| histogram.len()), [1, 2]);
    }

    #[test]
    fn a_stall_longer_than_the_histogram_still_counts() {
        let arrivals = Arrivals::new(1, Part::default());
        let mut latency = StageLatency::private(arrivals.clone(), Seq(0));
        arrivals.set(Seq(1), 1);
        latency.pass(Seq(1));
        latency.settle(u64::MAX);
        assert_eq!(latency.histograms().0[0].len(), 1);
    }

    #[test]
    fn the_wire_is_met_before_the_stage_and_after_it() {
        let recorders = || std::array::from_fn(|_| LatencyRecorder::private());
        let (arrivals, counted) = (Arrivals::new(8, Part::default()), |latency: &StageLatency| {
            let (stage, edge) = latency.histograms();
            let all = |histogram: &Histogram<u64>| histogram.iter_recorded().map(|at| at.value_iterated_to()).collect();
            let both: [Vec<u64>; 2] = [all(&stage[0]), all(&edge.unwrap()[0])];
            both
        });
        let mut entry = StageLatency::private(arrivals.clone(), Seq(0)).at_the_wire(recorders());
        (1..3).for_each(|seq| arrivals.set(Seq(seq), 100 * seq));
        entry.enter(300, Seq(2));
        assert_eq!(counted(&entry), [vec![], vec![]], "the next poll counts");
        entry.settle(500);
        assert_eq!(counted(&entry), [vec![300, 400], vec![100, 200]]);
        // A tick passes without the wire.
        arrivals.set(Seq(3), 0);
        entry.pass(Seq(3));
        entry.settle(600);
        arrivals.set(Seq(4), 500);
        entry.enter(800, Seq(4));
        entry.settle(1_000);
        assert_eq!(counted(&entry), [vec![300, 400, 500], vec![100, 200, 300]]);

        let mut exit = StageLatency::private(arrivals.clone(), Seq(0)).at_the_wire(recorders());
        exit.pass(Seq(1));
        exit.settle(400);
        assert_eq!(counted(&exit), [vec![300], vec![]], "it was kept back");
        exit.pass(Seq(2));
        exit.leave();
        exit.settle(500);
        assert_eq!(counted(&exit), [vec![300], vec![300, 400]]);
    }

    #[test]
    fn what_is_counted_is_found_again_in_the_same_classes() {
        let (mut recorder, mut expected) = (LatencyRecorder::private(), latency_histogram());
        let mut ns = 1;
        while ns < LATENCY_NS_MAX {
            recorder.record(ns);
            expected.saturating_record(ns);
            ns += ns / 7 + 1;
        }
        assert_eq!(histogram_of(&recorder.read()), expected);
    }
}
