//! The core plan of a replica: which core each of its threads is pinned to, and how it waits.
//!
//! Written `intake@2:spin|journaler@3|executor@4|feed-server@5`, in any order. A thread that is left out, or names no core, goes where the
//! kernel puts it.

use std::fmt;
use std::str::FromStr;

use super::idle::IdleStrategy;
use super::plan::{PlanError, StageName, split_slot};

/// Where a thread runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadPlace {
    /// The core it is pinned to, if any.
    pub core: Option<usize>,
    /// How it waits; `None` leaves it to the replica's own setting.
    pub idle: Option<IdleStrategy>,
}

/// Where the threads of a replica run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaPlan {
    places: [ThreadPlace; ReplicaPlan::THREADS.len()],
}

impl ReplicaPlan {
    /// The threads there are.
    pub const THREADS: [StageName; 4] =
        [StageName::Intake, StageName::Journaler, StageName::Executor, StageName::FeedServer];

    /// Those that poll stages; the others rest between two looks, always.
    const POLLING: [StageName; 2] = [StageName::Intake, StageName::Journaler];

    /// Where `thread` runs; nowhere in particular where there is no such.
    pub fn place(&self, thread: StageName) -> ThreadPlace {
        Self::THREADS.iter().position(|&name| name == thread).map_or_else(ThreadPlace::default, |at| self.places[at])
    }

    /// How a thread that polls waits, where `all` is the replica's own setting: the journaler gives its core away unless it is told not to.
    pub(super) fn idle(&self, thread: StageName, all: IdleStrategy, usable_cores: usize) -> IdleStrategy {
        let own = if thread == StageName::Journaler { IdleStrategy::Backoff } else { all };
        self.place(thread).idle.unwrap_or(own).resolve(Self::THREADS.len(), usable_cores)
    }

    /// The cores that the disks' workers keep off, as an appliance's do: those that spin, and the one where the feed waits, unless the
    /// journaler shares it. A thread that names no core may be on any, and keeps nobody off.
    pub(super) fn no_workers_on(&self, all: IdleStrategy, usable_cores: usize) -> Vec<usize> {
        let spins = |&thread: &StageName| self.idle(thread, all, usable_cores) == IdleStrategy::Spin;
        let core = |thread| self.place(thread).core;
        let mut cores: Vec<usize> = Self::POLLING.into_iter().filter(spins).filter_map(core).collect();
        let (hot, journaler) = (core(StageName::Intake), core(StageName::Journaler));
        cores.extend(hot.filter(|_| hot != journaler));
        cores.sort_unstable();
        cores.dedup();
        cores
    }

    /// Checks that the cores are among `usable`.
    ///
    /// # Errors
    /// [`PlanError::UnusableCore`].
    pub fn check(&self, usable: &[usize]) -> Result<(), PlanError> {
        let missing = self.places.iter().filter_map(|place| place.core).find(|core| !usable.contains(core));
        missing.map_or(Ok(()), |core| Err(PlanError::UnusableCore { core, usable: usable.to_vec() }))
    }
}

impl FromStr for ReplicaPlan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let (mut plan, mut named) = (ReplicaPlan::default(), Vec::new());
        for part in text.split('|') {
            let (name, core, idle) = split_slot(part)?;
            let name = name.trim();
            let at = Self::THREADS.iter().position(|thread| thread.as_str() == name);
            let at = at.ok_or_else(|| PlanError::NoThreadOfReplica(name.to_string()))?;
            let thread = Self::THREADS[at];
            if named.contains(&thread) {
                return Err(PlanError::Twice(thread));
            }
            if idle.is_some() && !Self::POLLING.contains(&thread) {
                return Err(PlanError::WaitsAsItDoes(thread));
            }
            named.push(thread);
            plan.places[at] = ThreadPlace { core, idle };
        }
        Ok(plan)
    }
}

impl fmt::Display for ReplicaPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (thread, place)) in Self::THREADS.iter().zip(&self.places).enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { "|" }, thread.as_str())?;
            place.core.map_or(Ok(()), |core| write!(f, "@{core}"))?;
            place.idle.map_or(Ok(()), |idle| write!(f, ":{idle}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_names_what_it_wants_and_reads_back() {
        let plan: ReplicaPlan = "executor@1|intake@3:spin".parse().unwrap();
        assert_eq!(plan.place(StageName::Intake), ThreadPlace { core: Some(3), idle: Some(IdleStrategy::Spin) });
        assert_eq!(plan.place(StageName::Executor).core, Some(1));
        assert_eq!(plan.place(StageName::Journaler), ThreadPlace::default());
        assert_eq!(plan.place(StageName::Sequencer), ThreadPlace::default(), "not of a replica");
        assert_eq!(plan.to_string().parse(), Ok(plan.clone()));
        assert_eq!(plan.check(&[1, 3]), Ok(()));
        assert_eq!(plan.check(&[1]), Err(PlanError::UnusableCore { core: 3, usable: vec![1] }));
    }

    #[test]
    fn the_disks_workers_keep_off_an_intake_that_spins_and_off_the_feeds_core() {
        use IdleStrategy::{Auto, Backoff, Spin};
        let keep_off = |text: &str, all| text.parse::<ReplicaPlan>().unwrap().no_workers_on(all, 4);
        assert_eq!(keep_off("intake@2:spin|journaler@3|executor@1", Backoff), [2]);
        assert_eq!(keep_off("intake@2|journaler@3", Spin), [2], "the journaler rests unless it is told not to");
        assert_eq!(keep_off("intake@2|journaler@3:spin", Auto), [2, 3], "a turn there would end at a tick");
        assert_eq!(keep_off("intake@2|journaler@2", Backoff), [0usize; 0], "a journaler needs its workers near");
        assert_eq!(keep_off("intake@2:spin|journaler@2", Backoff), [2], "nobody gets a turn beside what spins");
        assert_eq!(keep_off("intake:spin|journaler@3", Spin), [0usize; 0], "it may be on any");
        assert_eq!(ReplicaPlan::default().no_workers_on(Spin, 8), [0usize; 0]);
        let auto: ReplicaPlan = "intake@2|journaler@2".parse().unwrap();
        assert_eq!(
            (auto.no_workers_on(Auto, 4), auto.no_workers_on(Auto, 5)),
            (vec![], vec![2]),
            "five cores are to spare"
        );
    }

    #[test]
    fn an_unusable_plan_is_refused_by_the_name_of_what_is_wrong() {
        let refused = |text: &str| text.parse::<ReplicaPlan>().unwrap_err().to_string();
        assert!(refused("sequencer@0").ends_with("one of intake, journaler, executor, feed-server"));
        assert!(refused("").contains("\"\" is no thread"));
        assert!(refused("intake|intake").contains("intake stands twice"));
        assert!(refused("intake@x").contains("no core number"));
        assert!(refused("intake:doze").contains("\"doze\" is unknown"));
        assert!(refused("executor@0:spin").contains("executor rests between two looks"));
    }
}
