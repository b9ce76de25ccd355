//! The pace of a replay: each packet has a deadline on the clock, counted from the first, so that nothing adds up.

use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use ticktape::metrics::latency_histogram;
use ticktape_tuning::clock::monotonic_ns;
use ticktape_tuning::{jitter, pin};

use crate::Failure;
use crate::args::Speed;
use crate::demo::{COLUMNS, Latency, row};
use crate::out::say;

/// So long before a deadline the sleep ends, in nanoseconds: kernels wake later than asked, and what is left is spun. Longer takes more of
/// the core, shorter lets a late wake-up through.
const SPIN_NS: u64 = 300_000;

/// How long the noise of the box is looked at, before and after, in milliseconds.
const JITTER_MS: u64 = 300;

/// Parts of a replay, so that errors that grow are seen.
const PARTS: usize = 4;

/// Holds packets back until their time.
pub struct Pace {
    times: u32,
    /// The first packet's time, and when it was let through.
    begun: Option<(u64, u64)>,
    /// From the first packet to the last, in the capture.
    span_ns: u64,
    errors: [Histogram<u64>; PARTS],
    noise: Histogram<u64>,
}

/// How well it was kept.
#[derive(Debug, Serialize)]
pub struct Kept {
    speed: u32,
    /// How long after its deadline each packet was let through.
    deadline_error: Latency,
    /// The same, for each quarter of the time.
    deadline_error_quarters: [Latency; PARTS],
    /// Gaps between two looks at the clock, before and after.
    jitter: Latency,
}

impl Pace {
    /// None where nothing is to be waited for. The capture's last packet is at `last_ns`.
    pub fn new(speed: Speed, first_ns: u64, last_ns: u64) -> Option<Self> {
        let Speed::Times(times) = speed else { return None };
        // What is refused costs some precision, which the figures show.
        let _ = pin::sleep_precisely();
        let noise = jitter::baseline(JITTER_MS);
        let errors = std::array::from_fn(|_| latency_histogram());
        Some(Pace { times, begun: None, span_ns: last_ns.saturating_sub(first_ns), errors, noise })
    }

    /// Returns when the time of this packet has come.
    pub fn wait(&mut self, time_ns: u64) {
        let now = monotonic_ns();
        let Some((first_ns, begun_ns)) = self.begun else {
            self.span_ns = self.span_ns.max(1);
            self.begun = Some((time_ns, now));
            return;
        };
        let passed_ns = time_ns.saturating_sub(first_ns);
        let deadline = begun_ns + passed_ns / u64::from(self.times);
        let early_ns = deadline.saturating_sub(now);
        if early_ns > SPIN_NS {
            thread::sleep(Duration::from_nanos(early_ns - SPIN_NS));
        }
        let mut now = monotonic_ns();
        while now < deadline {
            std::hint::spin_loop();
            now = monotonic_ns();
        }
        let part = u128::from(passed_ns) * PARTS as u128 / u128::from(self.span_ns);
        self.errors[(part as usize).min(PARTS - 1)].saturating_record((now - deadline).max(1));
    }

    /// Looks at the box's noise once more, and tells how well it was kept.
    pub fn finish(mut self) -> Kept {
        self.noise.add(jitter::baseline(JITTER_MS)).expect("the same bounds");
        let mut all = latency_histogram();
        self.errors.iter().for_each(|part| all.add(part).expect("the same bounds"));
        Kept {
            speed: self.times,
            deadline_error: Latency::of(&all),
            deadline_error_quarters: self.errors.each_ref().map(Latency::of),
            jitter: Latency::of(&self.noise),
        }
    }
}

impl Kept {
    /// For people.
    pub fn print(&self) -> Result<(), Failure> {
        say!("µs late     {COLUMNS}")?;
        say!("{}", row(&format!("speed {}", self.speed), &self.deadline_error))?;
        for (number, part) in (1..).zip(&self.deadline_error_quarters) {
            say!("{}", row(&format!("quarter {number}"), part))?;
        }
        say!("{}", row("jitter", &self.jitter))
    }
}
