//! What a core does when a whole round of polls found no work.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Rounds spent spinning before a backoff sleeps: a few µs up to 10, by what a round costs.
///
/// Backoff is for cores that others need, and those others are the kernel's disk workers, too. Measured with the demo (three
/// processes on two cores, 20 000 orders a second): 100 rounds never sleep at that rate, and the p99 of a round trip was 5 ms, in every
/// third run half a second, because a sync waited for a processor; with 5 to 20 rounds it was 1 to 4 ms, p90 0.6 instead of 3 ms.
///
/// There is no yielding in between. Since Linux 6.18 a yield forfeits the thread's virtual runtime, so a few hundred of them with
/// nobody else to run put it a second behind the first competitor that comes (measured: 0.96 s runnable and not run).
const SPINS: u32 = 8;
/// The first sleep, doubled from then on …
const SLEEP_MIN: Duration = Duration::from_micros(4);
/// … up to this one: longer hurts the first message after a lull, shorter burns a core that others may need.
const SLEEP_MAX: Duration = Duration::from_micros(32);

/// The longest wait for what is under way in the kernel before the thread looks round again: other stages share it.
const WAIT_MAX: Duration = Duration::from_micros(50);

/// How a core waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleStrategy {
    /// Never gives the core away. For isolated cores.
    Spin,
    /// Spins, then sleeps briefly, longer each time.
    Backoff,
    /// Spin where there are more usable cores than spinning threads, else backoff.
    #[default]
    Auto,
}

impl IdleStrategy {
    /// Decides what `Auto` means for `threads` threads on `usable_cores` cores.
    #[must_use]
    pub fn resolve(self, threads: usize, usable_cores: usize) -> IdleStrategy {
        match self {
            IdleStrategy::Auto if usable_cores > threads => IdleStrategy::Spin,
            IdleStrategy::Auto => IdleStrategy::Backoff,
            chosen => chosen,
        }
    }
}

impl fmt::Display for IdleStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IdleStrategy::Spin => "spin",
            IdleStrategy::Backoff => "backoff",
            IdleStrategy::Auto => "auto",
        })
    }
}

impl FromStr for IdleStrategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "spin" => Ok(IdleStrategy::Spin),
            "backoff" => Ok(IdleStrategy::Backoff),
            "auto" => Ok(IdleStrategy::Auto),
            _ => Err(format!("idle strategy {text:?} is unknown: one of spin, backoff, auto")),
        }
    }
}

/// Carries out a strategy over successive rounds.
#[derive(Debug)]
pub struct Idler {
    strategy: IdleStrategy,
    has_spare_core: bool,
    rounds: u32,
}

impl Idler {
    /// An idler for one thread. `Auto` waits as backoff does.
    pub fn new(strategy: IdleStrategy) -> Self {
        Idler { strategy, has_spare_core: true, rounds: 0 }
    }

    /// Where there is no core to spare, even a spinning thread gives its own away while something of its is under way in the
    /// kernel, which would otherwise wait for the next tick to get a processor.
    #[must_use]
    pub fn with_spare_core(mut self, has_spare_core: bool) -> Self {
        self.has_spare_core = has_spare_core;
        self
    }

    /// Call it after every round with the work that was done.
    #[inline]
    pub fn after_round(&mut self, work: usize) {
        self.after_round_or(work, |_| false);
    }

    /// As [`Idler::after_round`]; `wait` waits in the kernel for what is under way there, for the time given at most, and
    /// returns false where nothing is.
    #[inline]
    pub fn after_round_or(&mut self, work: usize, wait: impl FnMut(Duration) -> bool) {
        if work > 0 {
            self.rounds = 0;
        } else {
            self.idle(wait);
        }
    }

    fn idle(&mut self, mut wait: impl FnMut(Duration) -> bool) {
        let spins = self.strategy == IdleStrategy::Spin;
        // At once, not after some spinning: the kernel's worker may need this very core to get done.
        if !(spins && self.has_spare_core) && wait(WAIT_MAX) {
            return;
        }
        self.rounds = self.rounds.saturating_add(1);
        match self.rounds.checked_sub(SPINS + 1).filter(|_| !spins) {
            None => std::hint::spin_loop(),
            Some(sleeps) => std::thread::sleep((SLEEP_MIN * (1 << sleeps.min(8))).min(SLEEP_MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_spins_only_with_a_core_to_spare() {
        assert_eq!(IdleStrategy::Auto.resolve(2, 2), IdleStrategy::Backoff);
        assert_eq!(IdleStrategy::Auto.resolve(2, 3), IdleStrategy::Spin);
        assert_eq!(IdleStrategy::Spin.resolve(8, 1), IdleStrategy::Spin);
    }

    #[test]
    fn names_read_back_and_others_are_refused_by_name() {
        for strategy in [IdleStrategy::Spin, IdleStrategy::Backoff, IdleStrategy::Auto] {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
        assert!("busy".parse::<IdleStrategy>().unwrap_err().contains("busy"));
    }
}
