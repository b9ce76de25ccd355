//! Watching one core for a while: by spinning, or by waking up again and again.
//!
//! ```text
//!   spinning  ─r─r─r────────gap────────r─r─r─      r: a reading of the clock; gaps above a threshold are kept
//!   waking    ──────┊···late···r sleeps ─────┊·r   ┊: when it was to wake up; how late it did is kept, each time
//! ```
//!
//! Pure: clock, sleep and counters are handed in. Counters are read at the beginning, at the end, and after one of the longest
//! interruptions so far; the time that takes is no interruption, and is told by itself.

use hdrhistogram::Histogram;

use super::GAP_NS_MAX;
use super::counts::{Cause, Counts};
use crate::root::Unread;

/// The longest interruptions that are told one by one.
pub const WORST_MAX: usize = 20;

/// Something asks for the core so often, where it is reckoned how long that would wait: as often as a busy appliance gets a message.
const ASKED_EVERY_NS: u64 = 1_000;

/// Different waits that are reckoned of one length of gaps: a thousandth of it is what a histogram of three digits tells apart.
const WAITS_A_GAP_MAX: u64 = 1_000;

/// What is asked of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// How long.
    pub duration_ns: u64,
    /// The time between two readings is an interruption if it is longer.
    pub threshold_ns: u64,
    /// Counters are read after one that is longer than this, and among the [`WORST_MAX`] longest so far.
    pub causes_above_ns: u64,
}

/// One interruption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interruption {
    /// When it began, since the watch did.
    pub at_ns: u64,
    /// How long it took.
    pub length_ns: u64,
    /// What the counters say, where they were read.
    pub seen: Option<Seen>,
}

/// What counters say after an interruption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What came since they had been read before …
    pub causes: Vec<Cause>,
    /// … which is so long ago: all that came in this time is in it.
    pub over_ns: u64,
}

/// What a watch found.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Spinning: how long something that comes at any instant waits until the core looks, asked of each microsecond. Waking: how late
    /// each wake-up was.
    pub waits: Histogram<u64>,
    /// Spinning: the gaps above the threshold.
    pub gaps: Option<Histogram<u64>>,
    /// Readings of the clock, or wake-ups.
    pub readings: u64,
    /// Waking: times at which it was to wake up, and was still late for another.
    pub missed: u64,
    /// Spinning: what a round of the loop takes, on average.
    pub step_ns: u64,
    /// Spinning: all gaps above the threshold together.
    pub lost_ns: u64,
    /// The time that was watched, without …
    pub watched_ns: u64,
    /// … the time that it took to read counters on the way.
    pub looking_ns: u64,
    /// The longest interruptions, the longest first.
    pub worst: Vec<Interruption>,
    /// What came all in all.
    pub totals: Vec<Cause>,
    /// Counters that could not be read.
    pub unread: Vec<Unread>,
}

impl Watched {
    /// The share of the time that was lost, in millionths.
    pub fn lost_ppm(&self) -> f64 {
        if self.watched_ns == 0 { 0.0 } else { self.lost_ns as f64 * 1e6 / self.watched_ns as f64 }
    }
}

/// The longest interruptions so far, and what counters said of them.
struct Worst<L> {
    look: L,
    first: Counts,
    last: Counts,
    last_ns: u64,
    start_ns: u64,
    causes_above_ns: u64,
    looking_ns: u64,
    found: Vec<Interruption>,
}

impl<L: FnMut() -> Counts> Worst<L> {
    fn new(mut look: L, clock: &mut impl FnMut() -> u64, causes_above_ns: u64) -> Self {
        let first = look();
        let start_ns = clock();
        let found = Vec::with_capacity(WORST_MAX + 1);
        let last = first.clone();
        Worst { look, first, last, last_ns: start_ns, start_ns, causes_above_ns, looking_ns: 0, found }
    }

    /// Takes an interruption that ended at `now`, and returns the time from when on to watch again.
    fn on_interruption(&mut self, length_ns: u64, now: u64, clock: &mut impl FnMut() -> u64) -> u64 {
        let at = self.found.partition_point(|known| known.length_ns >= length_ns);
        if at >= WORST_MAX {
            return now;
        }
        let (seen, again) = if length_ns > self.causes_above_ns { self.see(now, clock) } else { (None, now) };
        let at_ns = now.saturating_sub(length_ns).saturating_sub(self.start_ns);
        self.found.insert(at, Interruption { at_ns, length_ns, seen });
        self.found.truncate(WORST_MAX);
        again
    }

    fn see(&mut self, now: u64, clock: &mut impl FnMut() -> u64) -> (Option<Seen>, u64) {
        let counts = (self.look)();
        let causes = counts.since(&self.last);
        let seen = Seen { causes, over_ns: now.saturating_sub(self.last_ns) };
        self.last = counts;
        let again = clock().max(now);
        self.last_ns = again;
        self.looking_ns += again - now;
        (Some(seen), again)
    }

    /// What was found by the time `end`, of which `waits` and the rest are still to come.
    fn into_watched(mut self, end: u64) -> Watched {
        let last = (self.look)();
        Watched {
            waits: empty(),
            gaps: None,
            readings: 0,
            missed: 0,
            step_ns: 0,
            lost_ns: 0,
            watched_ns: end.saturating_sub(self.start_ns).saturating_sub(self.looking_ns),
            looking_ns: self.looking_ns,
            worst: self.found,
            totals: last.since(&self.first),
            unread: last.unread().to_vec(),
        }
    }
}

/// Reads the clock back to back until the time is over, or `is_over` says so.
pub fn spin(
    asked: &Asked,
    mut clock: impl FnMut() -> u64,
    look: impl FnMut() -> Counts,
    mut is_over: impl FnMut() -> bool,
) -> Watched {
    let mut gaps = empty();
    let mut worst = Worst::new(look, &mut clock, asked.causes_above_ns);
    let end = worst.start_ns.saturating_add(asked.duration_ns);
    let (mut last, mut readings, mut lost_ns) = (worst.start_ns, 0_u64, 0_u64);
    loop {
        let now = clock();
        readings += 1;
        let gap = now.saturating_sub(last);
        last = now;
        if gap > asked.threshold_ns {
            gaps.saturating_record(gap);
            lost_ns += gap;
            last = worst.on_interruption(gap, now, &mut clock);
        }
        if last >= end || is_over() {
            break;
        }
    }
    let mut watched = worst.into_watched(last);
    let free_ns = watched.watched_ns.saturating_sub(lost_ns);
    watched.step_ns = free_ns / (readings - gaps.len()).max(1);
    watched.waits = waits(&gaps, free_ns, watched.step_ns);
    watched.gaps = Some(gaps);
    Watched { readings, lost_ns, ..watched }
}

/// Wakes up every `interval_ns` until the time is over, or `is_over` says so. As cyclictest does, it sleeps until a time that is fixed
/// before, and leaves out those that have passed when it wakes up: a long interruption is one sample.
pub fn wake(
    asked: &Asked,
    interval_ns: u64,
    mut clock: impl FnMut() -> u64,
    mut sleep_until: impl FnMut(u64),
    look: impl FnMut() -> Counts,
    mut is_over: impl FnMut() -> bool,
) -> Watched {
    let interval_ns = interval_ns.max(1);
    let mut waits = empty();
    let mut worst = Worst::new(look, &mut clock, asked.causes_above_ns);
    let end = worst.start_ns.saturating_add(asked.duration_ns);
    let (mut due, mut now, mut missed) = (worst.start_ns, worst.start_ns, 0);
    while due < end && !is_over() {
        due = due.saturating_add(interval_ns);
        sleep_until(due);
        now = clock();
        let late_ns = now.saturating_sub(due).max(1);
        waits.saturating_record(late_ns);
        let mut again = now;
        if late_ns > asked.threshold_ns {
            missed += late_ns / interval_ns;
            again = worst.on_interruption(late_ns, now, &mut clock);
        }
        // Also those that passed while counters were read, which are not missed.
        due += again.saturating_sub(due) / interval_ns * interval_ns;
    }
    let watched = worst.into_watched(now);
    Watched { readings: waits.len(), waits, missed, ..watched }
}

/// With all its memory in place: the first use of a page would be an interruption.
fn empty() -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, GAP_NS_MAX, 3).expect("constant bounds are in order");
    histogram.reset();
    histogram
}

/// How long something waits that comes at any instant: the rest of the gap that it comes in, or a step of the loop.
fn waits(gaps: &Histogram<u64>, free_ns: u64, step_ns: u64) -> Histogram<u64> {
    let mut waits = empty();
    for gap in gaps.iter_recorded() {
        let (length, count) = (gap.value_iterated_to(), gap.count_at_value());
        // Gaps too long to ask of each microsecond are asked less often, each time for several.
        let times = (length / WAITS_A_GAP_MAX / ASKED_EVERY_NS).max(1);
        let every = times * ASKED_EVERY_NS;
        for asked in 0..length / every {
            waits.saturating_record_n(length - asked * every, count.saturating_mul(times));
        }
    }
    waits.saturating_record_n(step_ns.max(1), (free_ns / ASKED_EVERY_NS).max(1));
    waits
}

#[cfg(test)]
mod tests;
