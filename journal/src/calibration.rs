//! What was measured of a disk, and what follows from it.

use std::fmt;

use ticktape_core::Nanos;

use crate::strategy::Strategy;

/// A strategy is left for a riskier one only for a gain of at least this many per cent: less is noise, in some hundred appends.
const GAIN_PERCENT_MIN: u64 = 5;

/// However fast it mostly is, one whose 99th percentile is so many times as long is no gain: who waits behind such an append waits
/// for all of them.
const TAIL_FACTOR_MAX: Nanos = 2;

/// With fewer appends than this in the time there was, nothing was learned.
const SAMPLES_MIN: u32 = 10;

/// A durable write counts as slow from so many times on what the next best strategy takes.
const SLOW_FACTOR: Nanos = 2;

/// Durable appends, one at a time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Appends measured.
    pub count: u32,
    /// Half of them took at most this.
    pub p50_ns: Nanos,
    /// Nine in ten of them took at most this.
    pub p90_ns: Nanos,
    /// Ninety-nine in a hundred took at most this.
    pub p99_ns: Nanos,
    /// The slowest.
    pub max_ns: Nanos,
}

impl Latency {
    /// Of these samples, which are sorted in passing.
    pub(crate) fn of(samples: &mut [Nanos]) -> Latency {
        samples.sort_unstable();
        let at = |percent: usize| samples.get(samples.len() * percent / 100).copied().unwrap_or_default();
        let max_ns = samples.last().copied().unwrap_or_default();
        Latency { count: samples.len() as u32, p50_ns: at(50), p90_ns: at(90), p99_ns: at(99), max_ns }
    }
}

/// What one strategy came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The strategy.
    pub strategy: Strategy,
    /// With the other cores idle.
    pub quiet: Latency,
    /// With other cores spinning; `None` where there is none to spin on, or none will.
    pub busy: Option<Latency>,
    /// Many commits at once, in bytes a second.
    pub bytes_per_s: u64,
}

impl Measured {
    /// There was no time.
    pub(crate) fn nothing(strategy: Strategy) -> Measured {
        Measured { strategy, quiet: Latency::default(), busy: None, bytes_per_s: 0 }
    }

    /// What it has to be judged by: the state that the box will be in.
    fn relevant(&self) -> Latency {
        self.busy.unwrap_or(self.quiet)
    }
}

/// What was measured of a disk at start-up, and what was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// The strategy to use.
    pub choice: Strategy,
    /// Every strategy's figures, in the order of [`Strategy::ALL`].
    pub measured: [Measured; 3],
    /// How long it took, in nanoseconds.
    pub took_ns: Nanos,
}

impl Calibration {
    /// Decides over what was measured: group, unless another one is faster for one append at a time half of the time, no slower nine
    /// times in ten, and not much slower in the hundredth.
    pub fn decide(measured: [Measured; 3], took_ns: Nanos) -> Calibration {
        let mut choice = &measured[0];
        for other in &measured[1..] {
            let (now, then) = (choice.relevant(), other.relevant());
            let gains = then.p50_ns * 100 <= now.p50_ns * (100 - GAIN_PERCENT_MIN);
            let is_faster = gains && then.p90_ns <= now.p90_ns;
            if then.count >= SAMPLES_MIN && is_faster && then.p99_ns <= now.p99_ns * TAIL_FACTOR_MAX {
                choice = other;
            }
        }
        Calibration { choice: choice.strategy, measured, took_ns }
    }

    /// The figures by name, in nanoseconds: what one append takes in the state of the box that the choice is for.
    pub fn figures(&self) -> [(&'static str, Nanos); 6] {
        let [group, flush, dsync] = self.measured.map(|measured| measured.relevant());
        [
            ("journal_group_p50_ns", group.p50_ns),
            ("journal_group_p90_ns", group.p90_ns),
            ("journal_flush_p50_ns", flush.p50_ns),
            ("journal_flush_p90_ns", flush.p90_ns),
            ("journal_dsync_p50_ns", dsync.p50_ns),
            ("journal_dsync_p90_ns", dsync.p90_ns),
        ]
    }

    /// From how long on a durable write is slow, in nanoseconds: where another strategy would do better.
    pub(crate) fn slow_ns(&self) -> Nanos {
        let others = self.measured.iter().filter(|measured| !measured.strategy.writes_durably());
        let best = others.map(|measured| measured.relevant().p90_ns).min().unwrap_or_default();
        SLOW_FACTOR * best
    }
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "calibrated in {} ms: one append p50/p90 µs", self.took_ns / 1_000_000)?;
        if self.measured.iter().all(|measured| measured.quiet.count == 0) {
            return f.write_str(" not measured, preparing took too long");
        }
        for (index, measured) in self.measured.iter().enumerate() {
            let us = |latency: Latency| format!("{}/{}", latency.p50_ns / 1000, latency.p90_ns / 1000);
            write!(f, "{} {} {}", if index > 0 { "," } else { "" }, measured.strategy, us(measured.quiet))?;
            if let Some(busy) = measured.busy {
                write!(f, " (cores busy {})", us(busy))?;
            }
            write!(f, " {} MB/s", measured.bytes_per_s / 1_000_000)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(figures: [(Nanos, Option<Nanos>); 3]) -> [Measured; 3] {
        let latency =
            |p90_ns| Latency { count: 50, p50_ns: p90_ns / 2, p90_ns, p99_ns: 2 * p90_ns, max_ns: 2 * p90_ns };
        std::array::from_fn(|index| Measured {
            strategy: Strategy::ALL[index],
            quiet: latency(figures[index].0),
            busy: figures[index].1.map(latency),
            bytes_per_s: 1 << 30,
        })
    }

    #[test]
    fn the_faster_one_is_chosen_where_it_will_run() {
        let choice = |figures| Calibration::decide(measured(figures), 0).choice;
        assert_eq!(choice([(200, None), (200, None), (60, None)]), Strategy::Dsync);
        assert_eq!(choice([(200, Some(200)), (200, Some(200)), (60, Some(4000))]), Strategy::Group);
        assert_eq!(choice([(200, Some(900)), (200, Some(300)), (60, Some(4000))]), Strategy::Flush);
        // Hardly faster is not faster.
        assert_eq!(choice([(200, None), (195, None), (192, None)]), Strategy::Group);
        // Nor what is slower one time in ten; but to be faster half of the time is enough.
        let tenth = |p90_ns| {
            let mut figures = measured([(200, None), (200, None), (60, None)]);
            figures[2].quiet.p90_ns = p90_ns;
            Calibration::decide(figures, 0).choice
        };
        assert_eq!((tenth(199), tenth(201)), (Strategy::Dsync, Strategy::Group));
        // A tail of ticks is no gain, however short the rest.
        let mut ticks = measured([(200, None), (200, None), (60, None)]);
        ticks[2].quiet.p99_ns = 4_000;
        assert_eq!(Calibration::decide(ticks, 0).choice, Strategy::Group);
        // What was not measured is not chosen.
        let mut none = measured([(200, None), (200, None), (0, None)]);
        none[2].quiet = Latency::default();
        assert_eq!(Calibration::decide(none, 0).choice, Strategy::Group);
        // Nor what was hardly measured.
        let mut few = measured([(200, None), (200, None), (60, None)]);
        few[2].quiet.count = SAMPLES_MIN - 1;
        assert_eq!(Calibration::decide(few, 0).choice, Strategy::Group);
    }

    #[test]
    fn slow_is_where_another_one_does_better() {
        let calibration = Calibration::decide(measured([(300, None), (200, None), (60, None)]), 7_000_000);
        assert_eq!(calibration.slow_ns(), 400);
        assert!(calibration.to_string().starts_with("calibrated in 7 ms"), "{calibration}");
        let figures = calibration.figures();
        assert!(figures.contains(&("journal_flush_p90_ns", 200)) && figures.contains(&("journal_dsync_p50_ns", 30)));
    }

    #[test]
    fn percentiles_of_few_and_of_none() {
        assert_eq!(Latency::of(&mut []), Latency::default());
        let expected = Latency { count: 4, p50_ns: 30, p90_ns: 40, p99_ns: 40, max_ns: 40 };
        assert_eq!(Latency::of(&mut [40, 10, 30, 20]), expected);
    }
}
