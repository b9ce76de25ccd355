//! How written commits become durable: the one seam between the writer's duty cycle and what suits a disk.

use std::fmt;

use ticktape_core::Nanos;

/// How written commits become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Plain writes, and at most one `fdatasync` under way that covers the writes completed before it.
    #[default]
    Group,
    /// Plain writes, then one `fdatasync` for all of them, and nothing else is written meanwhile: for disks whose flush takes
    /// the longer, the more is written beside it.
    Flush,
    /// Each write is durable when it completes. Shortest where the disk's interrupts find an idle core; milliseconds where
    /// that core is busy-polling.
    Dsync,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Strategy; 3] = [Strategy::Group, Strategy::Flush, Strategy::Dsync];

    /// Whether a write completes only when it is durable.
    #[inline]
    pub(crate) fn writes_durably(self) -> bool {
        self == Strategy::Dsync
    }

    /// Whether a commit may be submitted while a sync is, or is not, under way.
    #[inline]
    pub(crate) fn may_write(self, syncing: bool) -> bool {
        self != Strategy::Flush || !syncing
    }

    /// Whether a sync may begin while so many writes are under way.
    #[inline]
    pub(crate) fn may_sync(self, in_flight: usize) -> bool {
        self != Strategy::Flush || in_flight == 0
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Strategy::Group => "group",
            Strategy::Flush => "flush",
            Strategy::Dsync => "dsync",
        })
    }
}

impl std::str::FromStr for Strategy {
    type Err = String;

    fn from_str(name: &str) -> Result<Strategy, String> {
        let found = Strategy::ALL.into_iter().find(|strategy| strategy.to_string() == name);
        found.ok_or_else(|| format!("strategy \"{name}\" is unknown: one of group, flush, dsync"))
    }
}

/// What an operator asks for: a strategy, or the one that suits the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrategyChoice {
    /// What a calibration at start-up finds; group where there was none.
    Auto,
    /// This one.
    Fixed(Strategy),
}

impl StrategyChoice {
    /// The strategy as long as nothing has been measured.
    pub fn unmeasured(self) -> Strategy {
        match self {
            StrategyChoice::Auto => Strategy::default(),
            StrategyChoice::Fixed(strategy) => strategy,
        }
    }
}

/// A process that lives for moments has no time to measure.
impl Default for StrategyChoice {
    fn default() -> Self {
        StrategyChoice::Fixed(Strategy::default())
    }
}

impl From<Strategy> for StrategyChoice {
    fn from(strategy: Strategy) -> Self {
        StrategyChoice::Fixed(strategy)
    }
}

impl fmt::Display for StrategyChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StrategyChoice::Auto => f.write_str("auto"),
            StrategyChoice::Fixed(strategy) => strategy.fmt(f),
        }
    }
}

impl std::str::FromStr for StrategyChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<StrategyChoice, String> {
        if name == "auto" {
            return Ok(StrategyChoice::Auto);
        }
        let found: Option<Strategy> = name.parse().ok();
        found
            .map(StrategyChoice::Fixed)
            .ok_or_else(|| format!("strategy \"{name}\" is unknown: one of auto, group, flush, dsync"))
    }
}

/// Durable writes looked at together. Fewer, and two unlucky ones decide; more, and a bad disk is believed in for longer.
const WINDOW: u32 = 64;

/// How many of them may be slow: with one more, the 95th percentile is.
const SLOW_MAX: u32 = 3;

/// What is slow where nothing was measured. Half of the 4 ms tick that a busy interrupt core costs, and longer than a
/// flush takes on any disk that is worth a journal.
const SLOW_NS: Nanos = 2_000_000;

/// Watches durable writes, and tells when they have become so slow that writing and syncing apart is better.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    slow_ns: Nanos,
    seen: u32,
    slow: u32,
}

impl Default for Watch {
    fn default() -> Self {
        Watch::slower_than(SLOW_NS)
    }
}

impl Watch {
    /// Counts writes that take longer than this.
    pub(crate) fn slower_than(slow_ns: Nanos) -> Watch {
        Watch { slow_ns, seen: 0, slow: 0 }
    }

    /// Takes note of a durable write; true when too many of the last ones were slow.
    pub(crate) fn note(&mut self, took_ns: Nanos) -> bool {
        self.seen += 1;
        self.slow += u32::from(took_ns > self.slow_ns);
        if self.slow > SLOW_MAX {
            return true;
        }
        if self.seen == WINDOW {
            (self.seen, self.slow) = (0, 0);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for strategy in Strategy::ALL {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
        assert!("hope".parse::<Strategy>().unwrap_err().contains("group, flush, dsync"));
    }

    #[test]
    fn choices_read_back_and_without_a_measurement_group_is_taken() {
        for choice in Strategy::ALL.map(StrategyChoice::Fixed).into_iter().chain([StrategyChoice::Auto]) {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        assert!("hope".parse::<StrategyChoice>().unwrap_err().contains("auto, group, flush, dsync"));
        assert_eq!(StrategyChoice::Auto.unmeasured(), Strategy::Group);
        assert_eq!(StrategyChoice::from(Strategy::Dsync).unmeasured(), Strategy::Dsync);
        assert_eq!(StrategyChoice::default(), StrategyChoice::Fixed(Strategy::Group));
    }

    #[test]
    fn a_few_slow_writes_are_nothing_and_many_are_too_many() {
        let mut watch = Watch::slower_than(1000);
        for round in 0..10 * WINDOW {
            assert!(!watch.note(if round % WINDOW < SLOW_MAX { 1001 } else { 1000 }), "round {round}");
        }
        let noticed = (1..=WINDOW).find(|_| watch.note(5000));
        assert_eq!(noticed, Some(SLOW_MAX + 1));
    }
}
