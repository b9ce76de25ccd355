//! The clock of a thread that spins: CLOCK_MONOTONIC at the price of reading the processor's counter, a quarter of the call's.
//!
//! ```text
//!            │◄── at most REBASE_NS ──►│
//!   ─────────●─────────────────────────●──────► CLOCK_MONOTONIC, read at each ●
//!            └── counter × rate ───────┘        in between
//! ```
//!
//! The kernel's own clock is that counter, too, multiplied by a rate that it corrects by up to 500 ppm; but it reads the counter
//! with a fence. Here the rate is measured between two readings of both clocks, some tenths of a second apart.
//!
//! Invariant: it never runs backwards. Invariant: it is off by what the rate changes within a millisecond, at most half a
//! microsecond, and by what a reading of both clocks leaves open.

use quanta::Clock;

use crate::clock::monotonic_ns;

/// How long the counter is trusted. Longer, and a correction of the kernel's rate shows (500 ppm: 0.5 µs a millisecond).
const REBASE_NS: u64 = 1_000_000;

/// The rate is measured over so much at least: what a reading leaves open, some tens of ns, is below 1 ppm of it …
const RATE_SPAN_NS_MIN: u64 = 100_000_000;

/// … and over no more than so much, after which the rate may have been corrected.
const RATE_SPAN_NS_MAX: u64 = 10_000_000_000;

/// Both clocks are read together within so many ns, or once more: the thread may have lost its core in between …
const READING_NS_MAX: u64 = 1_000;

/// … but no more often than this.
const READINGS_MAX: u32 = 8;

const RATE_SHIFT: u32 = 32;

/// Where the kernel says which counter its clocks run on.
const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// A thread's clock. It costs a reading of both clocks each millisecond, so it is for those who ask much more often.
///
/// ```
/// let mut clock = ticktape_tuning::clock::SpinClock::new();
/// let (before, now) = (ticktape_tuning::clock::monotonic_ns(), clock.now_ns());
/// assert!(clock.now_ns() >= now && now >= before - 1_000_000);
/// ```
#[derive(Clone, Debug)]
pub struct SpinClock {
    /// `None` where the counter can't be used: then each reading is a system's.
    counter: Option<Clock>,
    scale: Scale,
}

impl SpinClock {
    /// A clock on the processor's counter, where the kernel's own runs on it; else the kernel's. The first one of a process measures
    /// the counter for up to 0.2 s.
    pub fn new() -> Self {
        let is_sound = std::fs::read_to_string(CLOCKSOURCE).is_ok_and(|name| name.trim() == "tsc");
        if !is_sound {
            return SpinClock::system();
        }
        let counter = Clock::new();
        let scale = Scale::new(&read_both(&counter), counter.delta_as_nanos(0, 1 << RATE_SHIFT));
        SpinClock { counter: Some(counter), scale }
    }

    /// The kernel's clock behind the same face: for threads that sleep.
    pub fn system() -> Self {
        SpinClock { counter: None, scale: Scale::new(&Reading::default(), 0) }
    }

    /// Whether it reads the counter.
    pub fn is_on_counter(&self) -> bool {
        self.counter.is_some()
    }

    /// Nanoseconds of CLOCK_MONOTONIC, as [`monotonic_ns`] tells them.
    #[inline]
    pub fn now_ns(&mut self) -> u64 {
        let Some(counter) = &self.counter else { return monotonic_ns() };
        if let Some(now) = self.scale.at(counter.raw()) {
            return now;
        }
        self.rebase()
    }

    #[cold]
    fn rebase(&mut self) -> u64 {
        let Some(counter) = &self.counter else { return monotonic_ns() };
        self.scale.rebase(&read_both(counter))
    }
}

impl Default for SpinClock {
    fn default() -> Self {
        SpinClock::new()
    }
}

/// The system's clock, and the counter just before and just after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    before: u64,
    ns: u64,
    after: u64,
}

impl Reading {
    fn width(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }

    fn middle(&self) -> u64 {
        self.before + self.width() / 2
    }
}

/// The closest of a few readings, the first where that is close enough.
fn read_both(counter: &Clock) -> Reading {
    let read = || {
        let before = counter.raw();
        let ns = monotonic_ns();
        Reading { before, ns, after: counter.raw() }
    };
    let mut best = read();
    for _ in 1..READINGS_MAX {
        if counter.delta_as_nanos(best.before, best.after) <= READING_NS_MAX {
            break;
        }
        best = Some(read()).filter(|next| next.width() < best.width()).unwrap_or(best);
    }
    best
}

/// What turns the counter into time. Pure.
#[derive(Clone, Debug)]
struct Scale {
    base_ticks: u64,
    base_ns: u64,
    /// Nanoseconds of 2^32 ticks.
    rate: u64,
    /// Ticks from the base on that are still trusted.
    trusted_ticks: u64,
    /// Where the measurement of the rate begins: ticks, and nanoseconds.
    rate_from: (u64, u64),
    last: u64,
}

impl Scale {
    fn new(reading: &Reading, rate: u64) -> Self {
        let (ticks, ns) = (reading.middle(), reading.ns);
        let mut scale =
            Scale { base_ticks: ticks, base_ns: ns, rate: 0, trusted_ticks: 0, rate_from: (ticks, ns), last: ns };
        scale.set_rate(rate);
        scale
    }

    fn set_rate(&mut self, rate: u64) {
        self.rate = rate;
        // A rate of nothing is trusted for nothing.
        self.trusted_ticks = (REBASE_NS << RATE_SHIFT).checked_div(rate).unwrap_or(0);
    }

    /// The time at `ticks`; `None` where both clocks have to be read again, also when the counter was set back.
    #[inline]
    fn at(&mut self, ticks: u64) -> Option<u64> {
        let elapsed = ticks.wrapping_sub(self.base_ticks);
        if elapsed > self.trusted_ticks {
            return None;
        }
        // Below 2^32 times a millisecond's ns: it fits.
        self.last = self.last.max(self.base_ns + ((elapsed * self.rate) >> RATE_SHIFT));
        Some(self.last)
    }

    fn rebase(&mut self, reading: &Reading) -> u64 {
        let (ticks, ns) = (reading.middle(), reading.ns);
        let (from_ticks, from_ns) = self.rate_from;
        let (span_ticks, span_ns) = (ticks.wrapping_sub(from_ticks), ns.saturating_sub(from_ns));
        if span_ns >= RATE_SPAN_NS_MIN {
            let rate = (u128::from(span_ns) << RATE_SHIFT).checked_div(u128::from(span_ticks)).unwrap_or(0);
            // A counter that was set, or stood still, tells nothing: not even half or double of what it did.
            let is_likely = (u128::from(self.rate / 2)..=u128::from(self.rate) * 2).contains(&rate);
            if is_likely && span_ns <= RATE_SPAN_NS_MAX {
                self.set_rate(rate as u64);
            }
            self.rate_from = (ticks, ns);
        }
        (self.base_ticks, self.base_ns) = (ticks, ns);
        self.last = self.last.max(ns);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A machine whose counter runs at `ghz`, and whose kernel corrects its clock by `ppm`.
    #[derive(Clone, Copy, Debug)]
    struct Machine {
        ghz: f64,
        ppm: f64,
        ticks: u64,
        ns: f64,
    }

    impl Machine {
        fn pass(&mut self, ns: u64) {
            self.ticks += (ns as f64 * self.ghz) as u64;
            self.ns += ns as f64 * (1.0 + self.ppm / 1e6);
        }

        /// What a reading takes; the system's clock is somewhere within.
        fn read(&mut self, before_ns: u64, after_ns: u64) -> Reading {
            let before = self.ticks;
            self.pass(before_ns);
            let ns = self.ns as u64;
            self.pass(after_ns);
            Reading { before, ns, after: self.ticks }
        }

        fn rate(&self) -> u64 {
            ((1_u64 << RATE_SHIFT) as f64 / self.ghz) as u64
        }
    }

    proptest! {
        #[test]
        fn it_stays_close_and_never_runs_backwards(
            ghz in 0.5_f64..5.0,
            steps in prop::collection::vec((1_u64..300_000, -500.0_f64..500.0, 0_u64..400, 0_u64..400), 1..2_000),
        ) {
            let mut machine = Machine { ghz, ppm: 0.0, ticks: 1 << 40, ns: 5e12 };
            let mut scale = Scale::new(&machine.read(20, 20), machine.rate());
            let mut last = 0;
            for (at, &(pass_ns, ppm, before_ns, after_ns)) in steps.iter().enumerate() {
                machine.pass(pass_ns);
                if at % 500 == 0 {
                    machine.ppm = ppm;
                }
                let now = scale.at(machine.ticks).unwrap_or_else(|| scale.rebase(&machine.read(before_ns, after_ns)));
                prop_assert!(now >= last, "{now} after {last}");
                last = now;
                // Half a reading, a millisecond of a rate that is off by twice the correction, what is rounded.
                prop_assert!((now as f64 - machine.ns).abs() <= 400.0 + 1_000.0 + 10.0, "{now}, and it is {}", machine.ns);
            }
        }
    }

    #[test]
    fn the_rate_is_measured_so_that_a_bad_first_one_does_not_last() {
        let mut machine = Machine { ghz: 2.6, ppm: 0.0, ticks: 7, ns: 1e9 };
        let mut scale = Scale::new(&machine.read(20, 20), machine.rate() / 100 * 101);
        for _ in 0..1_000 {
            machine.pass(REBASE_NS + 1);
            if scale.at(machine.ticks).is_none() {
                scale.rebase(&machine.read(20, 20));
            }
        }
        assert!(scale.rate.abs_diff(machine.rate()) * 1_000_000 <= machine.rate(), "within 1 ppm");
    }

    #[test]
    fn a_counter_that_was_set_back_or_ahead_costs_a_reading_and_no_time() {
        for jump in [0, 1 << 30, u64::MAX / 2] {
            let mut machine = Machine { ghz: 2.0, ppm: 0.0, ticks: 1 << 40, ns: 1e12 };
            let mut scale = Scale::new(&machine.read(20, 20), machine.rate());
            machine.pass(200_000_000);
            machine.ticks = jump;
            for _ in 0..5 {
                let now = scale.at(machine.ticks).unwrap_or_else(|| scale.rebase(&machine.read(20, 20)));
                assert!((now as f64 - machine.ns).abs() < 100.0, "{now}, and it is {}", machine.ns);
                machine.pass(200_000_000);
            }
            assert!(scale.rate.abs_diff(machine.rate()) <= 1 + machine.rate() / 1_000_000);
        }
    }

    #[test]
    fn what_is_read_lies_between_two_readings_of_the_systems_clock() {
        for mut clock in [SpinClock::new(), SpinClock::system()] {
            let mut last = 0;
            for _ in 0..200_000 {
                let before = monotonic_ns();
                let now = clock.now_ns();
                let after = monotonic_ns();
                assert!(now >= last);
                last = now;
                // A reading may have been torn apart by another thread each time: then it is off by half of what that took.
                let slack_ns = 2_000_000;
                assert!(before <= now + slack_ns && now <= after + slack_ns, "{before} {now} {after}");
            }
        }
    }

    #[test]
    fn the_kernels_clock_needs_no_counter() {
        assert!(!SpinClock::system().is_on_counter());
    }
}
