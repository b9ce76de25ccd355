//! What an appliance tells of itself: what was chosen at the start, and what came of it at the end.

use ticktape_nic::capture::Summary;

use super::plan::StageName;
use super::stage::StageReport;

/// What was chosen at the start, and why: lines for people.
#[derive(Clone, Debug)]
pub struct Choices {
    /// The network backend.
    pub nic: String,
    /// The disk backend and strategy.
    pub journal: String,
    /// The name of the strategy alone.
    pub journal_strategy: String,
    /// The log ring's memory.
    pub ring: String,
    /// The core plan with its cores.
    pub cores: String,
    /// How idle threads wait.
    pub idle: String,
    /// What the kernel was asked for, and gave, where anything was.
    pub runtime: Option<String>,
    /// Where memory and threads are, on a box of several NUMA nodes.
    pub nodes: Option<String>,
    /// The feed, if there is one.
    pub feed: Option<String>,
    /// Where replicas get what they missed, if anywhere.
    pub repair: Option<String>,
    /// The feed of public events, if there is one.
    pub events: Option<String>,
    /// Where what it measures can be read.
    pub metrics: String,
    /// What the state was rebuilt from.
    pub recovery: String,
    /// How snapshots are taken, if they are.
    pub snapshots: Option<String>,
    /// What is captured, and where to, if anything is.
    pub capture: Option<String>,
}

/// What an appliance did, once it has stopped.
#[derive(Debug)]
pub struct Report {
    /// Each stage's own report, in plan order.
    pub stages: Vec<(StageName, StageReport)>,
    /// Why it stopped, where it was not asked to.
    pub fault: Option<String>,
    /// What could not be completed on the way out.
    pub errors: Vec<String>,
    /// What became of the capture, where there was one: an error that ended it early is in here, not in `errors`.
    pub capture: Option<Summary>,
    /// What was met on the way and did not stop it, each in a line.
    pub warnings: Vec<String>,
}

impl Report {
    /// A counter of some stage, 0 where it was not met.
    pub fn counter(&self, stage: StageName, name: &str) -> u64 {
        self.of(stage).and_then(|report| report.counters.iter().find(|(key, _)| *key == name)).map_or(0, |&(_, n)| n)
    }

    /// A fact of some stage.
    pub fn fact(&self, stage: StageName, name: &str) -> Option<&str> {
        let facts = &self.of(stage)?.facts;
        facts.iter().find(|(key, _)| *key == name).map(|(_, fact)| fact.as_str())
    }

    fn of(&self, stage: StageName) -> Option<&StageReport> {
        self.stages.iter().find(|(name, _)| *name == stage).map(|(_, report)| report)
    }
}
