//! Kernel receive times, moved from the realtime clock onto the monotonic timeline of `now`.

use nix::time::{ClockId, clock_gettime};
use ticktape_core::Nanos;

use crate::limits::{CLOCK_OFFSET_AGE_NS_MAX, STAMP_AHEAD_NS_MAX, STAMP_BEHIND_NS_MAX};

/// One look at both clocks: realtime, bracketed by monotonic.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockPair {
    before: Nanos,
    realtime_ns: u64,
    after: Nanos,
}

impl ClockPair {
    /// Reads both clocks.
    pub(super) fn read() -> ClockPair {
        let before = clock_ns(ClockId::CLOCK_MONOTONIC);
        let realtime_ns = clock_ns(ClockId::CLOCK_REALTIME);
        ClockPair { before, realtime_ns, after: clock_ns(ClockId::CLOCK_MONOTONIC) }
    }

    fn width(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }

    /// Realtime minus monotonic, modulo 2^64.
    fn offset(&self) -> u64 {
        self.realtime_ns.wrapping_sub(self.before + self.width() / 2)
    }
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("both clocks exist on every Linux");
    (time.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec() as u64)
}

/// The offset between the clocks, kept fresh.
#[derive(Debug)]
pub(super) struct StampClock {
    offset: u64,
    measured: Nanos,
    read: fn() -> ClockPair,
}

impl StampClock {
    /// Measures for the first time.
    pub(super) fn new(read: fn() -> ClockPair) -> StampClock {
        let mut clock = StampClock { offset: 0, measured: 0, read };
        clock.measure(0);
        clock
    }

    /// Measures again where the last one has grown old.
    #[inline]
    pub(super) fn refresh(&mut self, now: Nanos) {
        if now.wrapping_sub(self.measured) > CLOCK_OFFSET_AGE_NS_MAX {
            self.measure(now);
        }
    }

    /// The tightest of three looks: a preemption in the midst of one shifts it, hardly all of them.
    #[cold]
    fn measure(&mut self, now: Nanos) {
        let looks = [(self.read)(), (self.read)(), (self.read)()];
        self.offset = looks.iter().min_by_key(|look| look.width()).expect("three looks").offset();
        self.measured = now;
    }

    /// The stamp on the timeline of `now`, and not after it. `None` where it is too far off to be believed.
    #[inline]
    pub(super) fn received(&self, stamp_realtime_ns: u64, now: Nanos) -> Option<Nanos> {
        let stamp = stamp_realtime_ns.wrapping_sub(self.offset);
        // Wrapping: what lies ahead of `now` comes out as an enormous age.
        let age = now.wrapping_sub(stamp);
        if age <= STAMP_BEHIND_NS_MAX {
            Some(stamp)
        } else if age.wrapping_neg() <= STAMP_AHEAD_NS_MAX {
            Some(now)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = 500_000_000_000;
    const OFFSET: u64 = 1_700_000_000_000_000_000;

    fn steady() -> ClockPair {
        ClockPair { before: 1_000, realtime_ns: OFFSET + 1_010, after: 1_020 }
    }

    #[test]
    fn a_stamp_moves_by_the_offset() {
        let clock = StampClock::new(steady);
        assert_eq!(clock.received(OFFSET + NOW - 7, NOW), Some(NOW - 7));
    }

    #[test]
    fn an_arrival_in_the_midst_of_the_poll_is_not_in_the_future() {
        let clock = StampClock::new(steady);
        assert_eq!(clock.received(OFFSET + NOW, NOW), Some(NOW));
        assert_eq!(clock.received(OFFSET + NOW + 1, NOW), Some(NOW));
        assert_eq!(clock.received(OFFSET + NOW + STAMP_AHEAD_NS_MAX, NOW), Some(NOW));
    }

    #[test]
    fn nonsense_is_not_believed() {
        let clock = StampClock::new(steady);
        assert_eq!(clock.received(OFFSET + NOW + STAMP_AHEAD_NS_MAX + 1, NOW), None);
        assert_eq!(clock.received(OFFSET + NOW - STAMP_BEHIND_NS_MAX - 1, NOW), None);
        assert_eq!(clock.received(0, NOW), None);
        assert_eq!(clock.received(u64::MAX, NOW), None);
    }

    #[test]
    fn the_offset_is_measured_again_when_it_is_old() {
        let mut clock = StampClock::new(steady);
        clock.read = || ClockPair { before: 0, realtime_ns: OFFSET + 5_000_000_000, after: 0 };
        clock.refresh(CLOCK_OFFSET_AGE_NS_MAX);
        assert_eq!(clock.offset, OFFSET);
        clock.refresh(CLOCK_OFFSET_AGE_NS_MAX + 1);
        assert_eq!(clock.offset, OFFSET + 5_000_000_000);
    }

    #[test]
    fn real_clocks_agree_with_themselves() {
        let clock = StampClock::new(ClockPair::read);
        let look = ClockPair::read();
        assert!(clock.received(look.realtime_ns, look.after).is_some());
    }
}
