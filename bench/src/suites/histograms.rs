//! The always-on stage histograms alone: what the stages of an appliance do for them, message by message, in one thread.

use std::hint::black_box;

use ticktape::metrics::{Arrivals, Part, Recorders, StageLatency};
use ticktape::{Nanos, Seq};
use ticktape_shm::metrics::LatencyRecorder;

/// Messages in flight that an appliance with its default ring remembers the arrival of.
const IN_FLIGHT: usize = (4 << 20) / 32;
/// From a message's arrival until each stage's next poll, in nanoseconds: taken in, applied, released, durable. What varies about them
/// spreads the counts over as many buckets as a busy appliance's.
const TAKEN_NS: Nanos = 300;
const APPLIED_NS: Nanos = 900;
const RELEASED_NS: Nanos = 2_000;
const DURABLE_NS: Nanos = 90_000;
const SPREAD: [Nanos; 4] = [0x7f, 0x1ff, 0x3ff, 0x7fff];

/// All six points that a message is counted at, where it stands at each stage.
struct Stages {
    arrivals: Arrivals,
    /// Wire in, and sequenced.
    sequencer: StageLatency,
    /// Durable.
    journaler: StageLatency,
    /// Applied.
    executor: StageLatency,
    /// Released, and wire out.
    egress: StageLatency,
    seq: Seq,
    now: Nanos,
}

impl Stages {
    fn new() -> Self {
        let arrivals = Arrivals::new(IN_FLIGHT, Part::default());
        let stage = || StageLatency::private(arrivals.clone(), Seq::ZERO);
        let edge = || -> Recorders { std::array::from_fn(|_| LatencyRecorder::private()) };
        let (sequencer, egress) = (stage().at_the_wire(edge()), stage().at_the_wire(edge()));
        let (journaler, executor) = (stage(), stage());
        Stages { arrivals, sequencer, journaler, executor, egress, seq: Seq::ZERO, now: 1 }
    }

    /// A datagram of `messages` goes through all stages, as each of them tells it: the sequencer by batch, the journaler by write,
    /// executor and egress by message.
    #[inline]
    fn datagram(&mut self, messages: u64) {
        self.now += 4_000;
        let (now, first) = (self.now, self.seq.0 + 1);
        self.seq = Seq(self.seq.0 + messages);
        let vary = |at: usize| self.seq.0.wrapping_mul(0x9e37_79b9) & SPREAD[at];
        self.sequencer.settle(now + TAKEN_NS);
        for seq in first..=self.seq.0 {
            self.arrivals.set(Seq(seq), now);
        }
        self.sequencer.enter(now + TAKEN_NS + vary(0), self.seq);
        self.executor.settle(now + APPLIED_NS + vary(1));
        for seq in first..=self.seq.0 {
            self.executor.pass(black_box(Seq(seq)));
        }
        self.egress.settle(now + RELEASED_NS + vary(2));
        for seq in first..=self.seq.0 {
            self.egress.pass(black_box(Seq(seq)));
        }
        self.egress.leave();
        self.journaler.settle(now + DURABLE_NS + vary(3));
        self.journaler.pass(black_box(self.seq));
    }

    /// Counts recorded at each of the six points.
    #[cfg(test)]
    fn counted(self) -> [u64; 6] {
        let of = |stage: &StageLatency| {
            let ([first, _], edge) = stage.histograms();
            (first.len(), edge.map_or(0, |[first, _]| first.len()))
        };
        let ((sequenced, wire_in), (released, wire_out)) = (of(&self.sequencer), of(&self.egress));
        [wire_in, sequenced, of(&self.journaler).0, of(&self.executor).0, released, wire_out]
    }
}

/// What takes `messages` through all stages, in datagrams of `batch`.
pub(super) fn run(messages: u64, batch: u64) -> impl FnMut() {
    assert!(messages.is_multiple_of(batch), "{messages} messages in batches of {batch}");
    let mut stages = Stages::new();
    move || (0..messages / batch).for_each(|_| black_box(&mut stages).datagram(batch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_counted_at_each_point() {
        for batch in [1, 16] {
            let mut stages = Stages::new();
            (0..100).for_each(|_| stages.datagram(batch));
            // The last datagram is counted by each stage's next poll, but where it came in.
            stages.datagram(0);
            assert_eq!(stages.counted(), [100 * batch; 6]);
        }
    }
}
