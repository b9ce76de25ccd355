//! Which cores are left for what is no stage.

use ticktape_tuning::pin;

use super::core_thread::Idle;
use super::plan::{CorePlan, StageName};

/// The cores for work that nobody waits for: those that no stage is pinned to, if there are such.
pub(super) fn spare_cores(usable: &[usize], taken: &[usize]) -> Vec<usize> {
    first_of(usable, &[taken])
}

/// As [`spare_cores`]; where none is spare, the shadow stays off those where orders wait, if it can: a snapshot keeps a core busy
/// for seconds, and the kernel ends its turn there at a tick, some milliseconds late.
pub(super) fn shadow_cores(plan: &CorePlan, usable: &[usize], taken: &[usize]) -> Vec<usize> {
    let in_path = |stage: &StageName| matches!(stage, StageName::Sequencer | StageName::Executor);
    let slots = plan.slots().iter().zip(taken);
    let hot: Vec<usize> = slots.filter(|(slot, _)| slot.stages.iter().any(in_path)).map(|(_, &core)| core).collect();
    first_of(usable, &[taken, &hot])
}

/// What is left of `usable` without the first of the sets that leave any; all of it where none does.
fn first_of(usable: &[usize], without: &[&[usize]]) -> Vec<usize> {
    let left = |taken: &&[usize]| usable.iter().copied().filter(|core| !taken.contains(core)).collect::<Vec<_>>();
    without.iter().map(left).find(|left| !left.is_empty()).unwrap_or_else(|| usable.to_vec())
}

/// Where cores are shared, the kernel's own workers compete with this process as a whole (measured: a completed write waited up
/// to 78 ms for the worker that says so).
pub(super) fn autogroup_advice(idle: Idle) -> &'static str {
    if idle.has_spare_core || !pin::groups_sessions() {
        return "";
    }
    "; cores are shared: kernel.sched_autogroup_enabled = 0 spares the disk's workers waits of many milliseconds"
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
