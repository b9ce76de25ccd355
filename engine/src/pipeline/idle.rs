//! What a core does when a whole round of polls found no work.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Rounds spent spinning before a backoff yields: about 10 µs, longer than the gaps within a burst.
const SPINS_BEFORE_YIELD: u32 = 200;
/// Rounds spent yielding before a backoff sleeps. With a core to itself a yield returns at once, so this bounds the time
/// a lone appliance burns after traffic stops to tens of microseconds.
const YIELDS_BEFORE_SLEEP: u32 = 100;
/// The sleep: the kernel adds its timer slack of about 50 µs. Longer hurts the first message after a lull, shorter burns a core.
const SLEEP: Duration = Duration::from_micros(20);

/// How a core waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleStrategy {
    /// Never gives the core away. For isolated cores.
    Spin,
    /// Spins, then yields, then sleeps briefly.
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
            _ => Err(format!("idle strategy \"{text}\" is unknown: one of spin, backoff, auto")),
        }
    }
}

/// Carries out a strategy over successive rounds.
#[derive(Debug)]
pub struct Idler {
    strategy: IdleStrategy,
    rounds: u32,
}

impl Idler {
    /// An idler for one core. `Auto` waits as backoff does.
    pub fn new(strategy: IdleStrategy) -> Self {
        Idler { strategy, rounds: 0 }
    }

    /// Call it after every round with the work that was done.
    #[inline]
    pub fn after_round(&mut self, work: usize) {
        if work > 0 {
            self.rounds = 0;
        } else if self.strategy == IdleStrategy::Spin {
            std::hint::spin_loop();
        } else {
            self.back_off();
        }
    }

    fn back_off(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds <= SPINS_BEFORE_YIELD {
            std::hint::spin_loop();
        } else if self.rounds <= SPINS_BEFORE_YIELD + YIELDS_BEFORE_SLEEP {
            std::thread::yield_now();
        } else {
            std::thread::sleep(SLEEP);
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
