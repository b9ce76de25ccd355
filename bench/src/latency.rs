//! Latencies: timing single operations, and what is said of many.

use hdrhistogram::Histogram;
use quanta::Clock;

/// Percentiles shown, as fractions, with their names.
pub const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("p99.999", 0.99999)];

/// Samples dropped at the start, as a share: caches, branch predictors and the clock of the core warm up.
const WARM_UP_SHARE: usize = 10;

/// Times one operation after another by the time-stamp counter.
pub struct Stopwatch {
    clock: Clock,
    samples: Vec<u64>,
}

impl Stopwatch {
    /// With room for `samples`, touched now.
    pub fn new(samples: usize) -> Self {
        let mut room = vec![1; samples];
        room.clear();
        Stopwatch { clock: Clock::new(), samples: room }
    }

    /// Times one operation.
    #[inline(always)]
    pub fn time<R>(&mut self, operation: impl FnOnce() -> R) -> R {
        let start = self.clock.raw();
        let result = operation();
        let end = self.clock.raw();
        self.samples.push(end.saturating_sub(start));
        result
    }

    /// What was measured, the warm-up cut off, each sample divided by `divisor` (2 for half a round trip).
    pub fn finish(self, divisor: f64) -> Latency {
        let kept = &self.samples[self.samples.len() / WARM_UP_SHARE..];
        let ns_per_tick = self.clock.delta_as_nanos(0, 1 << 30) as f64 / (1_u64 << 30) as f64;
        Latency::new(kept.iter().map(|&ticks| ticks as f64 * ns_per_tick / divisor))
    }
}

/// What is known of a round's latencies, in ns.
#[derive(Clone, Debug)]
pub struct Latency {
    /// All samples, in picoseconds: a hop of tens of ns needs the digits.
    histogram: Histogram<u64>,
    /// The mean of what lies below p99.99: beyond it is the machine's noise, which a mean can't bear.
    pub mean: f64,
}

impl Latency {
    fn new(samples_ns: impl Iterator<Item = f64>) -> Self {
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000_000, 3).expect("constant bounds");
        let mut samples: Vec<f64> = samples_ns.collect();
        samples.sort_by(f64::total_cmp);
        samples.iter().for_each(|ns| histogram.saturating_record(((ns * 1e3) as u64).max(1)));
        let kept = &samples[..(samples.len() - samples.len() / 10_000).max(1)];
        let mean = kept.iter().sum::<f64>() / kept.len() as f64;
        Latency { histogram, mean }
    }

    /// A quantile, in ns.
    pub fn quantile(&self, fraction: f64) -> f64 {
        self.histogram.value_at_quantile(fraction) as f64 / 1e3
    }

    /// A quantile, in ns, as if the samples of one step of the counter were spread evenly over it: beside what takes few steps, the bare
    /// quantile jumps by whole ones.
    pub fn quantile_within_step(&self, fraction: f64) -> f64 {
        let value = self.histogram.value_at_quantile(fraction);
        let at = self.histogram.count_at(value);
        let below = self.histogram.count_between(0, value) - at;
        let total = self.histogram.len() as f64;
        let before = if below == 0 { 0 } else { self.histogram.value_at_quantile(below as f64 / total) };
        let share = (fraction * total - below as f64) / at as f64;
        (before as f64 + (value - before) as f64 * share.clamp(0.0, 1.0)) / 1e3
    }

    /// The median, in ns.
    pub fn p50(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The longest, in ns.
    pub fn max(&self) -> f64 {
        self.histogram.max() as f64 / 1e3
    }
}

/// All rounds of one contestant together, for the table of percentiles.
#[derive(Clone, Debug)]
pub struct Percentiles {
    /// What was measured.
    pub row: String,
    /// Whose it is: ours, the floor's, a peer's.
    pub whose: String,
    /// The mean over the rounds' means, in ns.
    pub mean: f64,
    /// The named quantiles, in ns.
    pub quantiles: [f64; QUANTILES.len()],
    /// The longest, in ns.
    pub max: f64,
}

impl Percentiles {
    /// Of these rounds together.
    pub fn of(row: impl Into<String>, whose: impl Into<String>, rounds: &[Latency]) -> Self {
        let mut all = rounds[0].clone();
        rounds[1..].iter().for_each(|round| all.histogram.add(&round.histogram).expect("the same bounds"));
        let mean = rounds.iter().map(|round| round.mean).sum::<f64>() / rounds.len() as f64;
        let quantiles = QUANTILES.map(|(_, fraction)| all.quantile(fraction));
        Percentiles { row: row.into(), whose: whose.into(), mean, quantiles, max: all.max() }
    }
}

impl Percentiles {
    /// Of these histograms of nanoseconds together.
    pub fn of_ns(row: impl Into<String>, whose: impl Into<String>, rounds: &[&Histogram<u64>]) -> Self {
        let mut all = rounds[0].clone();
        rounds[1..].iter().for_each(|round| all.add(*round).expect("the same bounds"));
        let quantiles = QUANTILES.map(|(_, fraction)| all.value_at_quantile(fraction) as f64);
        let (row, whose) = (row.into(), whose.into());
        Percentiles { row, whose, mean: all.mean(), quantiles, max: all.max() as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_reach_the_maximum_of_all_rounds() {
        let round = |top: f64| Latency::new((1..=1000).map(f64::from).chain([top]));
        let all = Percentiles::of("hop", "ours", &[round(5_000.0), round(90_000.0)]);
        assert!((all.max - 90_000.0).abs() < 90.0, "{all:?}");
        assert!((all.quantiles[0] - 500.0).abs() < 2.0, "{all:?}");
        assert!((all.quantiles[2] - 990.0).abs() < 2.0, "{all:?}");
    }

    #[test]
    fn a_quantile_moves_on_within_a_step_of_the_counter() {
        let steps = |slow: usize| {
            let latency = Latency::new([70.0, 80.0].into_iter().cycle().take(1000 - slow).chain(vec![90.0; slow]));
            (latency.quantile(0.99), latency.quantile_within_step(0.99))
        };
        let near = |(bare, within): (f64, f64), expected: (f64, f64)| {
            assert!(
                (bare - expected.0).abs() < 0.2 && (within - expected.1).abs() < 0.2,
                "{bare} {within} {expected:?}"
            );
        };
        near(steps(20), (90.0, 85.0));
        near(steps(40), (90.0, 87.5));
        near(steps(0), (80.0, 79.8));
    }

    #[test]
    fn a_stopwatch_counts_each_operation_once_and_drops_the_warm_up() {
        let mut watch = Stopwatch::new(100);
        let sum: u64 = (0..100).map(|n| watch.time(|| n)).sum();
        assert_eq!(sum, 4_950);
        assert_eq!(watch.finish(1.0).histogram.len(), 90);
    }
}
