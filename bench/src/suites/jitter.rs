//! What each usable core loses to the system while it does nothing but look at the clock: all of them at once, since an appliance
//! spins on several.

mod cyclictest;

use std::thread;

use hdrhistogram::Histogram;
use ticktape_tuning::jitter::{LONGER_THAN_NS, baseline, counts_longer, lost_ns, stolen_ms};
use ticktape_tuning::pin::{pin_current_thread, usable_cores};

use super::Outcome;
use crate::args::Options;
use crate::latency::Percentiles;
use crate::row::Row;

const SUITE: &str = "jitter";
/// Spinning beside each suite that has latencies, on its measuring core, in milliseconds: half of it before, half after.
const BESIDE_MS: u64 = 300;

/// What one core lost.
struct Core {
    number: usize,
    gaps: Histogram<u64>,
    stolen_ms: Option<u64>,
    is_pinned: bool,
}

impl Core {
    fn watch(number: usize, seconds: u64) -> Self {
        let is_pinned = pin_current_thread(number).is_ok();
        let before = stolen_ms(Some(number));
        let gaps = baseline(seconds * 1000);
        let stolen_ms = before.zip(stolen_ms(Some(number))).map(|(before, after)| after.saturating_sub(before));
        Core { number, gaps, stolen_ms, is_pinned }
    }

    fn rows(&self, seconds: u64) -> Vec<Row> {
        let row = |what: &str, unit, value: f64| {
            Row::lower(SUITE, format!("core {}: {what}", self.number), unit, [value].into_iter().collect())
        };
        let a_second = |count: u64| count as f64 / seconds as f64;
        let mut rows = vec![row("lost in gaps over 1 us, a second", "us", a_second(lost_ns(&self.gaps)) / 1e3)];
        for (bound, count) in LONGER_THAN_NS.into_iter().zip(counts_longer(&self.gaps)) {
            rows.push(row(&format!("gaps over {} us, a second", bound / 1_000), "", a_second(count)));
        }
        rows.push(row("longest gap", "us", self.gaps.max() as f64 / 1e3));
        rows.extend(self.stolen_ms.map(|stolen| row("taken by the host, a second", "ms", a_second(stolen))));
        rows
    }
}

/// Runs the suite.
pub fn run(options: &Options) -> Outcome {
    let seconds = options.seconds;
    let cores: Vec<Core> = thread::scope(|scope| {
        let watch = |core| scope.spawn(move || Core::watch(core, seconds));
        let watches: Vec<_> = usable_cores().into_iter().map(watch).collect();
        watches.into_iter().map(|watch| watch.join().expect("a clock can be read")).collect()
    });
    let mut outcome = Outcome::default();
    for core in &cores {
        outcome.rows.extend(core.rows(seconds));
        let whose = format!("core {}", core.number);
        outcome.percentiles.push(Percentiles::of_ns("gaps of a spinning core", whose, &[&core.gaps]));
        if !core.is_pinned {
            outcome.notes.push(format!("core {}: its thread could not be pinned, and may have moved", core.number));
        }
    }
    outcome.notes.push(format!(
        "every usable core at once, {seconds} s; a gap is the time between two readings of the clock, percentiles are of readings; \
         what the host took is from /proc/stat, in steps of 10 ms"
    ));
    outcome.append(cyclictest::run(options));
    outcome
}

/// The calling thread's core beside a suite's latencies: what it lost in [`BESIDE_MS`].
pub struct Beside(Histogram<u64>);

impl Beside {
    /// The first half, before the suite.
    pub fn begin() -> Self {
        Beside(baseline(BESIDE_MS / 2))
    }

    /// The second half, after it; as a row for the suite's table of percentiles.
    pub fn end(mut self) -> Percentiles {
        self.0.add(baseline(BESIDE_MS / 2)).expect("the same bounds");
        Percentiles::of_ns("gaps of a spinning core", "jitter", &[&self.0])
    }
}
