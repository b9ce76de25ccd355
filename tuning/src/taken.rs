//! What the machine takes from a thread that never waits, while it works.
//!
//! A jitter baseline is another thread, at another time. This is the thread itself: the time that passed, less the time that it ran for. Looked
//! at about each millisecond, that costs less than a thousandth of the core: 0.86 µs a look on the machine of README's figures.
//!
//! Invariant: a look in whose time the thread waited of its own accord (for a lock, a page or a file) takes nothing: that is not the machine's.

use nix::sys::resource::{UsageWho, getrusage};

use crate::clock::{monotonic_ns, thread_ns};

/// What was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// In all, in ns.
    pub total_ns: u64,
    /// The most at once, between two looks, in ns.
    pub longest_ns: u64,
    /// How far a thread fell behind that needs half of its time for its work, in ns: what is taken twice in a row adds up, as there is only
    /// the other half to make up for it.
    pub behind_ns: u64,
}

/// Where a thread's clocks were when last looked at.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    now_ns: u64,
    ran_ns: u64,
    /// How often it waited of its own accord.
    waits: i64,
}

impl Clocks {
    fn read() -> Clocks {
        // A kernel that does not count waits leaves them to look like what was taken.
        let waits = getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.voluntary_context_switches());
        Clocks { now_ns: monotonic_ns(), ran_ns: thread_ns(), waits }
    }
}

/// Looks at the calling thread's clocks.
#[derive(Debug)]
pub struct Watch {
    last: Clocks,
    behind_ns: u64,
}

impl Watch {
    /// Of the calling thread, from now on.
    pub fn begin() -> Watch {
        Watch { last: Clocks::read(), behind_ns: 0 }
    }

    /// Adds what was taken since the last look to `taken`. About each millisecond, by the thread that began.
    pub fn look(&mut self, taken: &mut Taken) {
        self.step(Clocks::read(), taken);
    }

    fn step(&mut self, clocks: Clocks, taken: &mut Taken) {
        let passed = clocks.now_ns.saturating_sub(self.last.now_ns);
        let ran = clocks.ran_ns.saturating_sub(self.last.ran_ns).min(passed);
        let gone = if clocks.waits == self.last.waits { passed - ran } else { 0 };
        // Whoever gets its core back is soon here: it ran first, and then was away.
        self.behind_ns = self.behind_ns.saturating_sub(ran) + gone;
        taken.total_ns += gone;
        taken.longest_ns = taken.longest_ns.max(gone);
        taken.behind_ns = taken.behind_ns.max(self.behind_ns);
        self.last = clocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at a thread that ran and was away for so many ms, look by look; a wait of its own is `None`.
    fn after(looks: &[(u64, Option<u64>)]) -> Taken {
        let mut clocks = Clocks { now_ns: 0, ran_ns: 0, waits: 0 };
        let (mut watch, mut taken) = (Watch { last: clocks, behind_ns: 0 }, Taken::default());
        for &(ran, gone) in looks {
            clocks.ran_ns += ran * 1_000_000;
            clocks.now_ns += (ran + gone.unwrap_or(10)) * 1_000_000;
            clocks.waits += i64::from(gone.is_none());
            watch.step(clocks, &mut taken);
        }
        taken
    }

    fn ms(total: u64, longest: u64, behind: u64) -> Taken {
        let ns = |ms| ms * 1_000_000;
        Taken { total_ns: ns(total), longest_ns: ns(longest), behind_ns: ns(behind) }
    }

    #[test]
    fn what_a_thread_did_not_run_for_was_taken() {
        assert_eq!(after(&[(1, Some(0)), (1, Some(3)), (1, Some(0)), (1, Some(2))]), ms(5, 3, 3));
    }

    #[test]
    fn what_is_taken_before_the_last_was_made_up_for_adds_up() {
        assert_eq!(after(&[(1, Some(4)), (1, Some(0)), (1, Some(4))]), ms(8, 4, 6));
        assert_eq!(after(&[(1, Some(4)), (4, Some(4))]), ms(8, 4, 4));
    }

    #[test]
    fn who_waits_of_its_own_accord_was_robbed_of_nothing() {
        assert_eq!(after(&[(1, None), (1, Some(1)), (1, None)]), ms(1, 1, 1));
    }

    #[test]
    fn clocks_that_are_read_a_little_apart_take_nothing() {
        let mut watch = Watch { last: Clocks { now_ns: 1_000, ran_ns: 1_000, waits: 0 }, behind_ns: 0 };
        let mut taken = Taken::default();
        watch.step(Clocks { now_ns: 2_000, ran_ns: 2_100, waits: 0 }, &mut taken);
        assert_eq!(taken, Taken::default());
    }

    /// The real clocks: what is taken from a thread that shares its one core with another is about half, and what a sleeper misses is nothing.
    #[test]
    fn a_thread_that_shares_its_core_is_robbed_and_one_that_sleeps_is_not() {
        let Some(&core) = crate::pin::usable_cores().first() else { return };
        let spin = |ms: u64| {
            crate::pin::pin_current_thread(core).expect("a core of this process");
            let (mut watch, mut taken) = (Watch::begin(), Taken::default());
            let until = thread_ns() + ms * 1_000_000;
            while thread_ns() < until {
                watch.look(&mut taken);
            }
            taken
        };
        let both = std::thread::scope(|scope| {
            let other = scope.spawn(|| spin(100));
            [spin(100), other.join().expect("clocks can be read")]
        });
        assert!(both.iter().any(|taken| taken.total_ns > 10_000_000), "{both:?}");

        let (mut watch, mut taken) = (Watch::begin(), Taken::default());
        std::thread::sleep(std::time::Duration::from_millis(1));
        watch.look(&mut taken);
        assert_eq!(taken, Taken::default());
    }
}
