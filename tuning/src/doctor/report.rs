//! All outcomes, in order.

use std::cmp::Reverse;

use super::{Check, Finding, Verdict};

/// A check and what it found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The check.
    pub check: &'static Check,
    /// What it found.
    pub finding: Finding,
}

/// All of them, by group.
#[derive(Clone, Debug)]
pub struct Report {
    outcomes: Vec<Outcome>,
}

impl Report {
    pub(super) fn new(outcomes: Vec<Outcome>) -> Report {
        Report { outcomes }
    }

    /// All, by group.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// What is bad, then what is a warning; in each the costliest first, then in the groups' order.
    pub fn worst_first(&self) -> Vec<&Outcome> {
        let mut wrong: Vec<&Outcome> = self.outcomes.iter().filter(|o| o.finding.verdict >= Verdict::Warn).collect();
        wrong.sort_by_key(|outcome| Reverse((outcome.finding.verdict, outcome.check.cost)));
        wrong
    }

    /// The worst there is.
    pub fn worst(&self) -> Verdict {
        self.outcomes.iter().map(|outcome| outcome.finding.verdict).max().unwrap_or(Verdict::NotApplicable)
    }

    /// How many have that verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.finding.verdict == verdict).count()
    }
}
