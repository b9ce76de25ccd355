//! What stands between a box and an even latency: each check says what it read, what it wants and why, what to do, and what it tends to cost.
//!
//! ```text
//!   Root ─► Facts ─┐
//!                  ├─► check, check, … ─► Report: by group; and what is wrong, the costliest first
//!           Plan ──┘
//! ```
//!
//! A check judges the plan that it is given: a setting of a core that no stage is on is nobody's fault. What can't be read is said to be so,
//! never guessed. One file a group; [`checks`] has them all.
//!
//! Invariant: a verdict follows from the facts and the plan alone.

mod cores;
mod disk;
pub(crate) mod interrupts;
mod kernel;
mod limits;
mod memory;
pub(crate) mod network;
mod plan;
mod power;
mod report;

use std::fmt;

pub use plan::{Plan, PlanFlaw, Wishes};
pub use report::{Outcome, Report};

use crate::facts::{Facts, Known};
use crate::pin;
use crate::root::Unread;

/// What came of a check, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It says nothing about this box or this plan.
    NotApplicable,
    /// As wanted.
    Ok,
    /// Something that is needed for it can't be read here.
    CantTell,
    /// It costs something now and then, or might.
    Warn,
    /// It costs what this plan is for, or the appliance won't work.
    Bad,
}

impl Verdict {
    /// In a word or two, as tables and JSON have it.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::NotApplicable => "not applicable",
            Verdict::Ok => "ok",
            Verdict::CantTell => "can't tell",
            Verdict::Warn => "warn",
            Verdict::Bad => "bad",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The plan's cores, and who else is there.
    Cores,
    /// Frequencies and sleep.
    Power,
    /// Who interrupts them.
    Interrupts,
    /// Pages.
    Memory,
    /// The kernel's own doings.
    Kernel,
    /// The interface and the stack.
    Network,
    /// What the journal lies on.
    Disk,
    /// What this process may do.
    Limits,
    /// The clock.
    Time,
}

impl Group {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Group::Cores => "cores",
            Group::Power => "power",
            Group::Interrupts => "interrupts",
            Group::Memory => "memory",
            Group::Kernel => "kernel",
            Group::Network => "network",
            Group::Disk => "disk",
            Group::Limits => "limits",
            Group::Time => "time",
        }
    }
}

/// How much it tends to cost: an order of magnitude, of a single message that is struck. The costliest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// Tens to hundreds of nanoseconds, on each message.
    Nanoseconds,
    /// 1 to 10 µs.
    Microseconds,
    /// 10 µs to some hundred.
    TensOfMicroseconds,
    /// A millisecond and more.
    Milliseconds,
    /// Messages are lost, and have to come again.
    Losses,
    /// The appliance doesn't start, falls back to something slower, or promises what the box does not keep.
    Failure,
}

impl Cost {
    /// In a few words.
    pub fn name(self) -> &'static str {
        match self {
            Cost::Nanoseconds => "tens to hundreds of ns, on each message",
            Cost::Microseconds => "1 to 10 µs at a time",
            Cost::TensOfMicroseconds => "10 to some hundred µs at a time",
            Cost::Milliseconds => "milliseconds at a time",
            Cost::Losses => "lost messages, which have to come again",
            Cost::Failure => "no start, a slower way, or a promise that the box does not keep",
        }
    }
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The verdict.
    pub verdict: Verdict,
    /// What it read, in short.
    pub read: String,
    /// What to do; empty where nothing is to be done.
    pub fix: String,
}

/// One thing that is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// A name that doesn't change.
    pub id: &'static str,
    /// What it is about.
    pub group: Group,
    /// What it wants.
    pub wants: &'static str,
    /// Why.
    pub why: &'static str,
    /// What it tends to cost.
    pub cost: Cost,
    /// Who says so.
    pub source: &'static str,
    /// The judgement.
    judge: fn(&Facts, &Plan) -> Known<Finding>,
}

impl Check {
    fn run(&self, facts: &Facts, plan: &Plan) -> Finding {
        (self.judge)(facts, plan).unwrap_or_else(|unread| Finding {
            verdict: Verdict::CantTell,
            read: unread.to_string(),
            fix: String::new(),
        })
    }
}

/// All checks, by group.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    let groups: [&'static [Check]; 8] = [
        cores::CHECKS,
        power::CHECKS,
        interrupts::CHECKS,
        memory::CHECKS,
        kernel::CHECKS,
        network::CHECKS,
        disk::CHECKS,
        limits::CHECKS,
    ];
    groups.into_iter().flatten()
}

/// Looks at everything.
pub fn examine(facts: &Facts, plan: &Plan) -> Report {
    Report::new(checks().map(|check| Outcome { check, finding: check.run(facts, plan) }).collect())
}

fn ok(read: impl Into<String>) -> Known<Finding> {
    Ok(Finding { verdict: Verdict::Ok, read: read.into(), fix: String::new() })
}

fn not_applicable(why: impl Into<String>) -> Known<Finding> {
    Ok(Finding { verdict: Verdict::NotApplicable, read: why.into(), fix: String::new() })
}

fn warn(read: impl Into<String>, fix: impl Into<String>) -> Known<Finding> {
    Ok(Finding { verdict: Verdict::Warn, read: read.into(), fix: fix.into() })
}

fn bad(read: impl Into<String>, fix: impl Into<String>) -> Known<Finding> {
    Ok(Finding { verdict: Verdict::Bad, read: read.into(), fix: fix.into() })
}

/// The fact, or why it isn't known.
fn known<T>(fact: &Known<T>) -> Result<&T, Unread> {
    fact.as_ref().map_err(Unread::clone)
}

/// `core 3`, `cores 2-5`.
fn named(cores: &[usize]) -> String {
    format!("core{} {}", if cores.len() == 1 { "" } else { "s" }, pin::list(cores))
}

/// Bytes as people write them.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
pub(crate) mod tests;
