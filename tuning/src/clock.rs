//! The clocks: one to measure with, one to tell the date, and one that goes only while a thread runs.

use nix::time::{ClockId, clock_gettime};

pub use crate::spin_clock::SpinClock;

/// Nanoseconds of CLOCK_MONOTONIC: since boot, never backwards, the same in every process of this box.
#[inline]
pub fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// Nanoseconds of CLOCK_REALTIME: since the Unix epoch, and moved by whoever sets the time. 0 before 1970.
#[inline]
pub fn realtime_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

/// Nanoseconds that the calling thread has run for: neither while others ran on its core, nor, where the guest's kernel is told, while the
/// host had it. A system call of some hundreds of ns.
#[inline]
pub fn thread_ns() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

#[inline]
fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("these clocks exist on every Linux");
    u64::try_from(time.tv_sec()).map_or(0, |seconds| seconds * 1_000_000_000 + time.tv_nsec() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn monotonic_time_never_runs_backwards() {
        let mut last = monotonic_ns();
        assert_ne!(last, 0);
        for _ in 0..100_000 {
            let now = monotonic_ns();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn realtime_is_the_systems() {
        let epoch = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let before = epoch(SystemTime::now());
        let now = Duration::from_nanos(realtime_ns());
        assert!(before <= now && now <= epoch(SystemTime::now()));
    }
}
