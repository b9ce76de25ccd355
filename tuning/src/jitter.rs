//! What the machine takes away from a core that does nothing but look at the clock.
//!
//! The gaps between successive readings are the floor under every latency measured on that core: interrupts, the host's own
//! scheduler, other threads. A tail above them is the appliance's; a tail within them is the box's.

use hdrhistogram::Histogram;

use crate::clock::monotonic_ns;

/// The longest measurement, in milliseconds: a spinning core is not to be forgotten.
pub const DURATION_MS_MAX: u64 = 600_000;

/// Gaps above this are recorded as this.
pub const GAP_NS_MAX: u64 = 60_000_000_000;

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
