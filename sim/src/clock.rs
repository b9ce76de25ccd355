//! Time: one virtual time for the world, and for each host clocks that disagree with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ticktape_core::{Nanos, Timestamp};

/// The world's own time, which no host knows. Shared by everything that happens in it; only grows.
#[derive(Clone, Debug, Default)]
pub struct WorldTime(Arc<AtomicU64>);

impl WorldTime {
    /// The beginning.
    pub fn new() -> Self {
        WorldTime::default()
    }

    /// Nanoseconds since the beginning.
    pub fn now(&self) -> Nanos {
        // Relaxed, as is the store: the world has one thread.
        self.0.load(Ordering::Relaxed)
    }

    /// Lets time pass.
    pub fn advance(&self, ns: u64) {
        self.0.store(self.now().saturating_add(ns), Ordering::Relaxed);
    }

    /// Lets time pass until `at`, unless that is past.
    pub fn advance_to(&self, at: Nanos) {
        self.0.store(self.now().max(at), Ordering::Relaxed);
    }
}

/// A host's clocks: a monotonic one that runs too fast or too slow and may jump ahead, and a realtime one that may jump anywhere.
///
/// Invariant: the monotonic clock does not go back, short of a reboot.
#[derive(Clone, Debug)]
pub struct SimClock {
    world: WorldTime,
    /// Where the monotonic clock stood when the world's stood at `since`.
    base: Nanos,
    since: Nanos,
    /// How much too fast it runs, in millionths.
    skew_ppm: i32,
    /// Realtime less monotonic time, in nanoseconds.
    realtime_ahead_ns: i128,
}

/// The date at which the world begins: late in 2023, so that stamps look like stamps.
pub const REALTIME_AT_START: Timestamp = Timestamp(1_700_000_000_000_000_000);

/// A monotonic clock that was started with the machine does not read 0 when the first process looks.
const MONOTONIC_AT_BOOT: Nanos = 1_000_000_000;

impl SimClock {
    /// Clocks that are right, of a machine that was just switched on.
    pub fn new(world: &WorldTime) -> Self {
        SimClock {
            world: world.clone(),
            base: MONOTONIC_AT_BOOT,
            since: world.now(),
            skew_ppm: 0,
            realtime_ahead_ns: i128::from(REALTIME_AT_START.0) + i128::from(world.now())
                - i128::from(MONOTONIC_AT_BOOT),
        }
    }

    /// The monotonic clock.
    pub fn monotonic(&self) -> Nanos {
        let elapsed = self.world.now() - self.since;
        if self.skew_ppm == 0 {
            return self.base + elapsed;
        }
        let millionths = u64::try_from(1_000_000 + self.skew_ppm).expect("a skew leaves time its direction");
        // It is asked at every poll, and a division of 128 bits costs as much as an idle one.
        let skewed = match elapsed.checked_mul(millionths) {
            Some(product) => product / 1_000_000,
            None => u64::try_from(u128::from(elapsed) * u128::from(millionths) / 1_000_000).expect("ages fit 64 bits"),
        };
        self.base + skewed
    }

    /// The realtime clock.
    pub fn realtime(&self) -> Timestamp {
        let ns = i128::from(self.monotonic()) + self.realtime_ahead_ns;
        Timestamp(u64::try_from(ns.max(0)).unwrap_or(u64::MAX))
    }

    /// From now on both clocks run so many millionths too fast.
    ///
    /// # Panics
    /// When time would stand still or run back.
    pub fn skew(&mut self, ppm: i32) {
        assert!(ppm > -1_000_000, "a clock that stands still is none");
        self.settle();
        self.skew_ppm = ppm;
    }

    /// The monotonic clock jumps ahead, and realtime with it: as after a suspension.
    pub fn jump_ahead(&mut self, ns: u64) {
        self.settle();
        self.base += ns;
    }

    /// Somebody sets the realtime clock.
    pub fn jump_realtime(&mut self, ns: i64) {
        self.realtime_ahead_ns += i128::from(ns);
    }

    /// The machine starts anew: the monotonic clock from the beginning, realtime goes on.
    pub fn reboot(&mut self) {
        let before = self.monotonic();
        self.realtime_ahead_ns += i128::from(before) - i128::from(MONOTONIC_AT_BOOT);
        self.base = MONOTONIC_AT_BOOT;
        self.since = self.world.now();
    }

    fn settle(&mut self) {
        self.base = self.monotonic();
        self.since = self.world.now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_clock_follows_the_world() {
        let world = WorldTime::new();
        let clock = SimClock::new(&world);
        let (monotonic, realtime) = (clock.monotonic(), clock.realtime());
        assert_eq!(realtime, REALTIME_AT_START);
        world.advance(5_000);
        assert_eq!((clock.monotonic(), clock.realtime()), (monotonic + 5_000, Timestamp(realtime.0 + 5_000)));
        world.advance_to(1_000);
        assert_eq!(world.now(), 5_000, "the past is past");
    }

    #[test]
    fn a_skewed_clock_gains_and_loses_without_a_step() {
        let world = WorldTime::new();
        let mut clock = SimClock::new(&world);
        let start = clock.monotonic();
        clock.skew(100);
        world.advance(1_000_000_000);
        assert_eq!(clock.monotonic() - start, 1_000_100_000);
        clock.skew(-100);
        assert_eq!(clock.monotonic() - start, 1_000_100_000);
        world.advance(1_000_000_000);
        assert_eq!(clock.monotonic() - start, 2_000_000_000);
    }

    #[test]
    fn jumps_move_what_they_should_and_nothing_else() {
        let world = WorldTime::new();
        let mut clock = SimClock::new(&world);
        let monotonic = clock.monotonic();
        let day_ns = 86_400 * 1_000_000_000;
        clock.jump_realtime(-day_ns);
        assert_eq!(clock.monotonic(), monotonic);
        assert_eq!(clock.realtime().0, REALTIME_AT_START.0 - day_ns as u64);
        clock.jump_ahead(7);
        assert_eq!(clock.monotonic(), monotonic + 7);
        assert_eq!(clock.realtime().0, REALTIME_AT_START.0 - day_ns as u64 + 7);
        clock.jump_realtime(i64::MIN);
        assert_eq!(clock.realtime(), Timestamp(0), "there is nothing before 1970");
    }

    #[test]
    fn a_reboot_begins_monotonic_time_anew_and_realtime_goes_on() {
        let world = WorldTime::new();
        let mut clock = SimClock::new(&world);
        let booted = clock.monotonic();
        world.advance(9_000);
        let realtime = clock.realtime();
        clock.reboot();
        assert_eq!((clock.monotonic(), clock.realtime()), (booted, realtime));
    }
}
