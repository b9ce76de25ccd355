//! Which cores are left for what is no stage.

use ticktape_tuning::pin;

use super::core_thread::Idle;
use super::idle::IdleStrategy;
use super::plan::{CorePlan, CoreSlot, StageName};

/// How each thread of the plan waits: its own way, or the appliance's.
pub(super) fn idles(plan: &CorePlan, all: IdleStrategy, usable: usize) -> Vec<Idle> {
    let threads = plan.slots().len();
    let idle = |slot: &CoreSlot| Idle {
        strategy: slot.idle.unwrap_or(all).resolve(threads, usable),
        has_spare_core: usable > threads,
    };
    plan.slots().iter().map(idle).collect()
}

/// The cores for work that nobody waits for: those that no stage is pinned to, if there are such.
pub(super) fn spare_cores(usable: &[usize], taken: &[usize]) -> Vec<usize> {
    first_of(usable, &[taken])
}

/// As [`spare_cores`]; where none is spare, the shadow stays off those where orders wait, if it can: a snapshot keeps a core busy
/// for seconds, and the kernel ends its turn there at a tick, some milliseconds late.
pub(super) fn shadow_cores(plan: &CorePlan, usable: &[usize], taken: &[usize]) -> Vec<usize> {
    first_of(usable, &[taken, &hot_cores(plan, taken)])
}

/// The cores of the stages that orders wait for.
fn hot_cores(plan: &CorePlan, taken: &[usize]) -> Vec<usize> {
    let in_path = |stage: &StageName| matches!(stage, StageName::Sequencer | StageName::Executor);
    let slots = plan.slots().iter().zip(taken);
    slots.filter(|(slot, _)| slot.stages.iter().any(in_path)).map(|(_, &core)| core).collect()
}

/// The cores that the disk's workers keep off: those that spin, as nobody else ever gets a turn there, and those where orders wait,
/// where a turn of theirs ends at a tick (measured: up to 4 ms). A journaler that shares the orders' core needs them near, though.
pub(super) fn no_workers_on(plan: &CorePlan, taken: &[usize], idles: &[Idle]) -> Vec<usize> {
    let spins = idles.iter().zip(taken).filter(|(idle, _)| idle.strategy == IdleStrategy::Spin);
    let mut cores: Vec<usize> = spins.map(|(_, &core)| core).collect();
    let hot = hot_cores(plan, taken);
    if !hot.contains(&taken[slot_of(plan, StageName::Journaler)]) {
        cores.extend(hot);
    }
    cores
}

/// Which thread of the plan a stage is on.
pub(super) fn slot_of(plan: &CorePlan, stage: StageName) -> usize {
    plan.slots().iter().position(|slot| slot.stages.contains(&stage)).expect("a plan holds every stage")
}

/// What is left of `usable` without the first of the sets that leave any; all of it where none does.
fn first_of(usable: &[usize], without: &[&[usize]]) -> Vec<usize> {
    let left = |taken: &&[usize]| usable.iter().copied().filter(|core| !taken.contains(core)).collect::<Vec<_>>();
    without.iter().map(left).find(|left| !left.is_empty()).unwrap_or_else(|| usable.to_vec())
}

/// Where cores are shared, the kernel's own workers compete with this process as a whole (measured: a completed write waited up
/// to 78 ms for the worker that says so). Not for a journaler that spins: beside that, a worker of ordinary standing waits for a tick
/// (measured: each polled sync took 4 ms, and 0.1 ms grouped).
fn autogroup_advice(journaler: &Idle) -> &'static str {
    if journaler.has_spare_core || journaler.strategy == IdleStrategy::Spin || !pin::groups_sessions() {
        return "";
    }
    "; cores are shared: kernel.sched_autogroup_enabled = 0 spares the disk's workers waits of many milliseconds"
}

/// How the threads wait, in a line.
pub(super) fn describe_idle(plan: &CorePlan, all: IdleStrategy, idles: &[Idle]) -> String {
    let same = idles.windows(2).all(|pair| pair[0].strategy == pair[1].strategy);
    let ways: Vec<String> = if same {
        vec![idles[0].strategy.to_string()]
    } else {
        let way = |(slot, idle): (&CoreSlot, &Idle)| format!("{} {}", slot.stages[0].as_str(), idle.strategy);
        plan.slots().iter().zip(idles).map(way).collect()
    };
    format!("{} (asked for {all}){}", ways.join(", "), autogroup_advice(&idles[slot_of(plan, StageName::Journaler)]))
}

/// Which stages run on which core, in a line.
pub(super) fn describe_cores(plan: &CorePlan, cores: &[usize], usable: usize) -> String {
    let list: Vec<String> = plan
        .slots()
        .iter()
        .zip(cores)
        .map(|(slot, core)| {
            let names: Vec<&str> = slot.stages.iter().map(|stage| stage.as_str()).collect();
            format!("core {core}: {}", names.join(" + "))
        })
        .collect();
    format!("{} ({usable} usable)", list.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> CorePlan {
        text.parse().expect("a plan in due form")
    }

    #[test]
    fn a_thread_waits_as_its_slot_says_and_else_as_all_do() {
        let plan = plan("sequencer,executor,egress@0:spin|journaler,publisher@1");
        let ways: Vec<_> = idles(&plan, IdleStrategy::Backoff, 2).iter().map(|idle| idle.strategy).collect();
        assert_eq!(ways, [IdleStrategy::Spin, IdleStrategy::Backoff]);
        let told = describe_idle(&plan, IdleStrategy::Auto, &idles(&plan, IdleStrategy::Auto, 8));
        assert!(told.starts_with("spin (asked for auto)"), "{told}");
    }

    #[test]
    fn the_disks_workers_keep_off_cores_that_spin_and_those_where_orders_wait() {
        let keep_off = |text: &str, all: IdleStrategy| {
            let plan = plan(text);
            let taken = plan.assign(&[0, 1]).expect("usable cores");
            no_workers_on(&plan, &taken, &idles(&plan, all, 2))
        };
        let apart = "sequencer,executor,egress@0|journaler,publisher@1";
        assert_eq!(keep_off(apart, IdleStrategy::Backoff), [0]);
        assert_eq!(keep_off(apart, IdleStrategy::Spin), [0, 1, 0]);
        assert!(keep_off("sequencer,executor,egress,journaler,publisher@1", IdleStrategy::Backoff).is_empty());
    }
}
