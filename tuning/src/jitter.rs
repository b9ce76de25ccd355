//! What the machine takes away from a core that does nothing but look at the clock.
//!
//! The gaps between successive readings are the floor under every latency measured on that core: interrupts, the host's own
//! scheduler, other threads. A tail above them is the appliance's; a tail within them is the box's.
//!
//! [`baseline`] is a short look at the noise floor, to stand beside latencies. [`watch_core`] looks for longer, and tells the longest
//! interruptions one by one, with what the kernel counted meanwhile.

mod counts;
pub mod watch;

use std::sync::atomic::{AtomicBool, Ordering};

use hdrhistogram::Histogram;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};

pub use counts::{Cause, Counts};
use watch::{Asked, Watched};

use crate::clock::monotonic_ns;
use crate::root::Root;

/// The longest measurement, in milliseconds: a spinning core is not to be forgotten.
pub const DURATION_MS_MAX: u64 = 600_000;

/// Gaps above this are recorded as this.
pub const GAP_NS_MAX: u64 = 60_000_000_000;

/// Gaps longer than each of these are counted by themselves, in nanoseconds: about a cache miss or two, an interrupt, a turn of
/// another thread's, a turn of the host's.
pub const LONGER_THAN_NS: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// What the kernel counts processor time in, for programs, in milliseconds.
const TICK_MS: u64 = 10;

/// Where the host's share stands in a line of /proc/stat, after the name.
const STOLEN_FIELD: usize = 7;

/// How many gaps are longer than each of [`LONGER_THAN_NS`], to the histogram's three digits.
pub fn counts_longer(gaps: &Histogram<u64>) -> [u64; LONGER_THAN_NS.len()] {
    LONGER_THAN_NS.map(|bound| longer(gaps, bound).map(|(_, count)| count).sum())
}

/// What the gaps longer than the shortest of [`LONGER_THAN_NS`] come to together, in nanoseconds: the time in which the core did
/// something else.
pub fn lost_ns(gaps: &Histogram<u64>) -> u64 {
    longer(gaps, LONGER_THAN_NS[0]).map(|(gap, count)| gap.saturating_mul(count)).sum()
}

fn longer(gaps: &Histogram<u64>, bound: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    let recorded = gaps.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value()));
    recorded.filter(move |&(gap, _)| gap > bound)
}

/// Time in which the host ran something else than `core`, or than all cores together, since the machine was started, in
/// milliseconds. `None` where the kernel does not say.
pub fn stolen_ms(core: Option<usize>) -> Option<u64> {
    stolen(&std::fs::read_to_string("/proc/stat").ok()?, core)
}

fn stolen(stat: &str, core: Option<usize>) -> Option<u64> {
    let name = core.map_or_else(|| "cpu".to_owned(), |core| format!("cpu{core}"));
    let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
    let (_, figures) = lines.find(|(first, _)| *first == name)?;
    figures.split_whitespace().nth(STOLEN_FIELD)?.parse::<u64>().ok()?.checked_mul(TICK_MS)
}

/// Watches `core` from the calling thread, which is pinned there: spinning, or waking up each `wake_ns`. `is_over` ends it early.
pub fn watch_core(core: usize, asked: &Asked, wake_ns: Option<u64>, is_over: &AtomicBool) -> Watched {
    let look = || Counts::read(&Root::live(), core);
    let is_over = || is_over.load(Ordering::Relaxed);
    match wake_ns {
        Some(interval_ns) => watch::wake(asked, interval_ns, monotonic_ns, sleep_until, look, is_over),
        None => watch::spin(asked, monotonic_ns, look, is_over),
    }
}

/// Sleeps until a time of [`monotonic_ns`].
fn sleep_until(until_ns: u64) {
    let until = std::time::Duration::from_nanos(until_ns).into();
    // A signal ends the sleep early; its handler has run, and the rest is slept.
    while clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &until)
        == Err(nix::errno::Errno::EINTR)
    {}
}

/// Spins on the calling thread's core for `duration_ms` (at most [`DURATION_MS_MAX`]) and returns the gaps, in nanoseconds,
/// between successive clock readings. Pin the thread first.
///
/// The smallest gaps are the cost of a reading and of recording it. At least one gap is recorded.
pub fn baseline(duration_ms: u64) -> Histogram<u64> {
    let mut gaps = Histogram::new_with_bounds(1, GAP_NS_MAX, 3).expect("constant bounds are in order");
    // Writes every count: page faults on the first use of one would look like the box's own gaps.
    gaps.reset();
    let start = monotonic_ns();
    let end = start.saturating_add(duration_ms.min(DURATION_MS_MAX).saturating_mul(1_000_000));
    record(&mut gaps, start, end, monotonic_ns);
    gaps
}

/// Records each gap on the way from `last` to `end`, the one that reaches it included. The gaps are without a break, so that
/// no interruption falls between two of them.
fn record(gaps: &mut Histogram<u64>, mut last: u64, end: u64, mut clock: impl FnMut() -> u64) {
    loop {
        let now = clock();
        gaps.saturating_record(now.saturating_sub(last).max(1));
        last = now;
        if last >= end {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gap_between_readings_is_recorded_up_to_the_end() {
        let mut gaps = Histogram::new_with_bounds(1, GAP_NS_MAX, 3).unwrap();
        let mut times = [30, 60, 1_060, 2_000].into_iter();
        record(&mut gaps, 0, 1_050, || times.next().unwrap());
        let mut found: Vec<_> = gaps.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect();
        found.sort_unstable();
        assert_eq!(found, [(30, 2), (1_000, 1)]);
    }

    #[test]
    fn long_gaps_are_counted_and_summed_by_themselves() {
        let mut gaps = Histogram::new_with_bounds(1, GAP_NS_MAX, 3).unwrap();
        for (gap, count) in [(25, 1_000_000), (1_000, 5), (1_500, 3), (50_000, 2), (4_000_000, 1)] {
            gaps.record_n(gap, count).unwrap();
        }
        assert_eq!(counts_longer(&gaps), [6, 3, 1, 1]);
        let (lost, expected) = (lost_ns(&gaps), 3 * 1_500 + 2 * 50_000 + 4_000_000);
        assert!(lost.abs_diff(expected) <= expected / 1_000, "{lost}");
    }

    #[test]
    fn the_hosts_share_is_read_by_core() {
        let stat =
            "cpu  10 0 20 3000 4 0 5 77 0 0\ncpu0 5 0 10 1500 2 0 3 70 0 0\ncpu1 5 0 10 1500 2 0 2 7 0 0\nintr 1 2\n";
        assert_eq!(stolen(stat, None), Some(770));
        assert_eq!((stolen(stat, Some(0)), stolen(stat, Some(1))), (Some(700), Some(70)));
        assert_eq!((stolen(stat, Some(2)), stolen("cpu 1 2", None), stolen("", None)), (None, None, None));
    }

    #[test]
    fn a_core_is_watched_either_way_for_as_long_as_asked() {
        let asked = Asked { duration_ns: 20_000_000, threshold_ns: 1_000, causes_above_ns: 50_000 };
        for wake_ns in [None, Some(1_000_000)] {
            let start = monotonic_ns();
            let found = watch_core(crate::pin::usable_cores()[0], &asked, wake_ns, &AtomicBool::new(false));
            let elapsed = monotonic_ns() - start;
            assert!(found.watched_ns + found.looking_ns >= asked.duration_ns && found.watched_ns <= elapsed);
            assert_eq!((found.gaps.is_some(), found.readings > 0), (wake_ns.is_none(), true));
            assert!(!found.waits.is_empty() && found.worst.len() <= watch::WORST_MAX);
        }
        let ended = watch_core(0, &Asked { duration_ns: u64::MAX, ..asked }, None, &AtomicBool::new(true));
        assert_eq!(ended.readings, 1);
    }

    #[test]
    fn a_measurement_lasts_as_long_as_asked() {
        for duration_ms in [0, 20] {
            let start = monotonic_ns();
            let gaps = baseline(duration_ms);
            let elapsed = monotonic_ns() - start;
            assert!(elapsed >= duration_ms * 1_000_000);
            assert!(!gaps.is_empty());
            // Buckets are wider than a nanosecond: three digits.
            assert!(gaps.max() <= elapsed + elapsed / 1_000 + 1);
        }
    }
}
