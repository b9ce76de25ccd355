//! The core plan: which stages share a thread, and which core it is pinned to.
//!
//! Written `sequencer,egress|journaler|executor,publisher`; a core may be named per thread, as in `sequencer,egress@2|...`, and how it
//! waits, as in `sequencer,egress@2:spin|...`.

use std::fmt;
use std::str::FromStr;

use super::idle::IdleStrategy;
use super::replica_plan::ReplicaPlan;

/// The stages of an appliance, in the order in which a message passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StageName {
    /// Receives, numbers, stamps.
    Sequencer,
    /// Ring to disk.
    Journaler,
    /// Ring to service.
    Executor,
    /// Ring to multicast.
    Publisher,
    /// Committed outputs to clients.
    Egress,
    /// The replica that takes snapshots. In no plan: its thread keeps off the stages' cores where there are others.
    Shadow,
    /// Repairs and catch-up for replicas. In no plan, either.
    FeedServer,
    /// A replica's: feed, repairs and catch-up to its ring.
    Intake,
    /// A replica's: the state, up to commit.
    Replica,
}

impl StageName {
    /// Every stage of a plan.
    pub const ALL: [StageName; 5] =
        [StageName::Sequencer, StageName::Journaler, StageName::Executor, StageName::Publisher, StageName::Egress];

    /// As written in a plan.
    pub const fn as_str(self) -> &'static str {
        match self {
            StageName::Sequencer => "sequencer",
            StageName::Journaler => "journaler",
            StageName::Executor => "executor",
            StageName::Publisher => "publisher",
            StageName::Egress => "egress",
            StageName::Shadow => "shadow",
            StageName::FeedServer => "feed-server",
            StageName::Intake => "intake",
            StageName::Replica => "replica",
        }
    }
}

impl FromStr for StageName {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        StageName::ALL
            .into_iter()
            .find(|stage| stage.as_str() == text)
            .ok_or_else(|| PlanError::UnknownStage(text.to_string()))
    }
}

/// One thread of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreSlot {
    /// Its stages, in polling order.
    pub stages: Vec<StageName>,
    /// The core it is pinned to; `None` lets the appliance choose.
    pub core: Option<usize>,
    /// How it waits; `None` leaves it to the appliance's own setting.
    pub idle: Option<IdleStrategy>,
}

/// Every stage exactly once, over one or more threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorePlan {
    slots: Vec<CoreSlot>,
}

/// Why a plan can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// No such stage.
    UnknownStage(String),
    /// A stage that stands twice.
    Twice(StageName),
    /// A stage that is missing.
    Missing(StageName),
    /// A thread without a stage.
    EmptySlot,
    /// Not a core number.
    BadCore(String),
    /// Not a way to wait.
    BadIdle(String),
    /// Not a thread of a replica.
    NoThreadOfReplica(String),
    /// A thread of a replica whose way to wait is its own.
    WaitsAsItDoes(StageName),
    /// A core that this process may not use.
    UnusableCore {
        /// The core asked for.
        core: usize,
        /// Those there are.
        usable: Vec<usize>,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("core plan: ")?;
        match self {
            PlanError::UnknownStage(name) => {
                write!(f, "stage {name:?} is unknown: one of ")?;
                StageName::ALL
                    .iter()
                    .enumerate()
                    .try_for_each(|(i, stage)| write!(f, "{}{}", if i == 0 { "" } else { ", " }, stage.as_str()))
            }
            PlanError::Twice(stage) => write!(f, "stage {} stands twice: once is right", stage.as_str()),
            PlanError::Missing(stage) => write!(f, "stage {} is missing: every stage needs a thread", stage.as_str()),
            PlanError::EmptySlot => write!(f, "a thread has no stage: write stages between every two bars"),
            PlanError::BadCore(text) => write!(f, "{text:?} is no core number: write it as @2"),
            PlanError::BadIdle(why) => f.write_str(why),
            PlanError::NoThreadOfReplica(name) => {
                let threads = ReplicaPlan::THREADS.map(StageName::as_str).join(", ");
                write!(f, "{name:?} is no thread of a replica: one of {threads}")
            }
            PlanError::WaitsAsItDoes(thread) => {
                write!(f, "{} rests between two looks: leave out how it waits", thread.as_str())
            }
            PlanError::UnusableCore { core, usable } => {
                write!(f, "core {core} can't be used by this process: usable are {usable:?}")
            }
        }
    }
}

impl std::error::Error for PlanError {}

impl CorePlan {
    /// Checks that every stage stands exactly once.
    ///
    /// # Errors
    /// [`PlanError`], naming the stage.
    pub fn new(slots: Vec<CoreSlot>) -> Result<Self, PlanError> {
        if slots.iter().any(|slot| slot.stages.is_empty()) {
            return Err(PlanError::EmptySlot);
        }
        for stage in StageName::ALL {
            match slots.iter().flat_map(|slot| &slot.stages).filter(|&&name| name == stage).count() {
                0 => return Err(PlanError::Missing(stage)),
                1 => {}
                _ => return Err(PlanError::Twice(stage)),
            }
        }
        Ok(CorePlan { slots })
    }

    /// A plan for `cores` cores.
    pub fn for_cores(cores: usize) -> Self {
        let text = match cores {
            0 | 1 => "sequencer,executor,egress,journaler,publisher",
            2 => "sequencer,executor,egress|journaler,publisher",
            3 => "sequencer,egress|journaler,publisher|executor",
            _ => "sequencer|executor|journaler,publisher|egress",
        };
        text.parse().expect("a built-in plan")
    }

    /// The threads.
    pub fn slots(&self) -> &[CoreSlot] {
        &self.slots
    }

    /// Gives every thread without a core one of `usable`, in turn: first those that no thread asks for.
    ///
    /// # Errors
    /// [`PlanError::UnusableCore`] where the plan names a core that is not among them.
    pub fn assign(&self, usable: &[usize]) -> Result<Vec<usize>, PlanError> {
        let is_asked_for = |core: &&usize| self.slots.iter().any(|slot| slot.core == Some(**core));
        let (asked_for, others): (Vec<&usize>, Vec<&usize>) = usable.iter().partition(is_asked_for);
        let mut free = others.into_iter().chain(asked_for).copied().cycle();
        self.slots
            .iter()
            .map(|slot| match slot.core {
                Some(core) if !usable.contains(&core) => Err(PlanError::UnusableCore { core, usable: usable.to_vec() }),
                Some(core) => Ok(core),
                None => Ok(free.next().unwrap_or(0)),
            })
            .collect()
    }
}

/// What a thread does, its core and how it waits, as written.
pub(super) fn split_slot(text: &str) -> Result<(&str, Option<usize>, Option<IdleStrategy>), PlanError> {
    let (part, idle) = match text.split_once(':') {
        Some((part, idle)) => (part, Some(idle.trim().parse().map_err(PlanError::BadIdle)?)),
        None => (text, None),
    };
    match part.split_once('@') {
        Some((what, core)) => {
            let number = core.trim().parse().map_err(|_| PlanError::BadCore(core.to_string()))?;
            Ok((what, Some(number), idle))
        }
        None => Ok((part, None, idle)),
    }
}

impl FromStr for CorePlan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let slot = |part: &str| {
            let (stages, core, idle) = split_slot(part)?;
            let stages = stages.split(',').map(str::trim).filter(|name| !name.is_empty());
            Ok(CoreSlot { stages: stages.map(StageName::from_str).collect::<Result<_, _>>()?, core, idle })
        };
        CorePlan::new(text.split('|').map(slot).collect::<Result<_, PlanError>>()?)
    }
}

impl fmt::Display for CorePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, slot) in self.slots.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "|" })?;
            for (j, stage) in slot.stages.iter().enumerate() {
                write!(f, "{}{}", if j == 0 { "" } else { "," }, stage.as_str())?;
            }
            if let Some(core) = slot.core {
                write!(f, "@{core}")?;
            }
            if let Some(idle) = slot.idle {
                write!(f, ":{idle}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_plans_hold_every_stage_and_read_back() {
        for cores in 0..8 {
            let plan = CorePlan::for_cores(cores);
            assert!(plan.slots().len() <= cores.max(1));
            assert_eq!(plan.to_string().parse(), Ok(plan));
        }
    }

    #[test]
    fn a_plan_that_names_cores_keeps_them_and_fills_the_rest() {
        let plan: CorePlan = "sequencer,egress@3|journaler|executor,publisher".parse().unwrap();
        assert_eq!(plan.assign(&[1, 3]), Ok(vec![3, 1, 3]));
        assert_eq!(plan.assign(&[3, 4, 5]), Ok(vec![3, 4, 5]));
        assert_eq!(plan.assign(&[0, 1]), Err(PlanError::UnusableCore { core: 3, usable: vec![0, 1] }));
    }

    #[test]
    fn a_thread_may_wait_in_its_own_way() {
        let plan: CorePlan = "sequencer,executor,egress@0:spin|journaler,publisher:backoff".parse().unwrap();
        let idle: Vec<_> = plan.slots().iter().map(|slot| slot.idle).collect();
        assert_eq!(idle, [Some(IdleStrategy::Spin), Some(IdleStrategy::Backoff)]);
        assert_eq!(plan.to_string().parse(), Ok(plan));
    }

    #[test]
    fn an_unusable_plan_is_refused_by_the_name_of_what_is_wrong() {
        let refused = |text: &str| text.parse::<CorePlan>().unwrap_err().to_string();
        assert!(refused("sequencer,egress|journaler|executor").contains("publisher is missing"));
        assert!(refused("sequencer,egress,egress|journaler|executor,publisher").contains("egress stands twice"));
        assert!(refused("sequencer|filler").contains("\"filler\" is unknown"));
        assert!(refused("sequencer||journaler").contains("no stage"));
        assert!(refused("sequencer@x").contains("no core number"));
        assert!(refused("sequencer@0:doze").contains("\"doze\" is unknown"));
    }
}
