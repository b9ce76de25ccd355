//! Which cores a box's topology offers to stages.
//!
//! Threads that spin want cores of their own: one hardware thread of a physical core each, within one last-level cache, on the node of card and
//! disk, isolated where any are, never core 0, and never a core that the disk's interrupts come to of what others write. Everything else runs on the others: so where core 0 is
//! not usable, another one is left. A cgroup's share of time leaves nothing to spin with.

use std::collections::BTreeMap;

use crate::facts::cpu_list::{CoreSet, common, sorted, union, without};
use crate::facts::interrupts::Interrupt;
use crate::facts::{Facts, Known};
use crate::pin;
use crate::root::Unread;

/// An appliance has no more threads that are worth a core.
const STAGES_MAX: usize = 4;

/// What is proposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The stages' cores, one thread each. Empty where the box is too small to give any away: then the appliance's own plan is as good.
    pub stages: CoreSet,
    /// Whether these may spin.
    pub may_spin: bool,
    /// Those to which the disk's interrupts come of what they write themselves: who writes there does not spin.
    pub own_queue: CoreSet,
    /// Why these, a line each.
    pub why: Vec<String>,
}

/// Chooses cores for an appliance's stages.
///
/// # Errors
/// [`Unread`] where the topology can't be told.
pub fn choose(facts: &Facts) -> Known<Choice> {
    let usable = usable(facts)?;
    let physical = physical(facts, &usable);
    let mut why = Vec::new();
    if facts.cores.quota.as_ref().is_ok_and(Option::is_some) {
        why.push(
            "the cgroup has a share of time, which a spinning thread would use up: no core is given away".to_owned(),
        );
        return Ok(Choice { stages: Vec::new(), may_spin: false, own_queue: Vec::new(), why });
    }
    // Where core 0 is somebody else's, as in a container, another one is left for all that is no stage.
    let first = match physical.first() {
        Some(&first) if !usable.contains(&0) => {
            why.push(format!("core 0 is not usable here: core {first} is left for everything else"));
            siblings(facts, first)
        }
        _ => siblings(facts, 0),
    };
    let candidates = without(&physical, &first);
    if candidates.len() < 2 {
        why.push(format!(
            "{} usable beside core {}, which is for everything else: too few to give any away, so stages share what there is",
            count(candidates.len()),
            first.first().copied().unwrap_or(0)
        ));
        return Ok(Choice { stages: Vec::new(), may_spin: false, own_queue: Vec::new(), why });
    }
    let disk = disk_cores(facts);
    let quiet = without(&candidates, &disk);
    let struck = common(&candidates, &disk);
    if !struck.is_empty() {
        why.push(format!("the disk's interrupts come to {}: nothing spins there", pin::list(&struck)));
    }
    let isolated = common(&quiet, facts.cores.isolated.as_deref().unwrap_or_default());
    let may_spin = quiet.len() >= 2;
    let pool = match (isolated.len(), may_spin) {
        (2.., _) => {
            why.push(format!("isolated already: {}", pin::list(&isolated)));
            isolated
        }
        (_, true) => quiet,
        (_, false) => candidates,
    };
    let stages = best_group(facts, &pool, &mut why);
    let own_queue = common(&stages, &own_queues(facts));
    if may_spin && !own_queue.is_empty() {
        why.push(
            "the disk has a queue for each core, whose interrupts come to who writes: so the journaler does not spin"
                .to_owned(),
        );
    }
    why.push("one hardware thread of each physical core, and never core 0: that is the kernel's".to_owned());
    Ok(Choice { stages, may_spin, own_queue, why })
}

fn count(cores: usize) -> String {
    match cores {
        0 => "no core is".to_owned(),
        1 => "one core is".to_owned(),
        cores => format!("{cores} cores are"),
    }
}

/// Those that run and that a process may be put on. Isolated ones have to be asked for; so they are in nobody's mask.
fn usable(facts: &Facts) -> Known<CoreSet> {
    let online = facts.cores.online.as_ref().map_err(Unread::clone)?;
    let allowed = match facts.cores.cpuset.as_ref().map_err(Unread::clone)? {
        Some(cpuset) => cpuset.clone(),
        None => {
            let own = facts.cores.allowed.as_ref().map_err(Unread::clone)?;
            union(own, facts.cores.isolated.as_deref().unwrap_or_default())
        }
    };
    Ok(common(online, &allowed))
}

/// A core and all hardware threads of its physical one.
fn siblings(facts: &Facts, core: usize) -> CoreSet {
    let known = facts.cores.places.get(&core).and_then(|place| place.siblings.clone().ok());
    union(&known.unwrap_or_default(), &[core])
}

/// Of each physical core its first thread.
fn physical(facts: &Facts, usable: &[usize]) -> CoreSet {
    let is_first = |core: &&usize| siblings(facts, **core).iter().find(|other| usable.contains(other)) == Some(*core);
    usable.iter().filter(is_first).copied().collect()
}

fn disk_interrupts(facts: &Facts) -> impl Iterator<Item = &Interrupt> {
    let all = facts.interrupts.devices.as_deref().unwrap_or_default();
    all.iter().filter(|interrupt| interrupt.is_of(&facts.disk.device))
}

/// Where the disk's interrupts came and still go, but for those that come to a core of what it writes itself.
fn disk_cores(facts: &Facts) -> CoreSet {
    let online = facts.cores.online.as_deref().unwrap_or_default();
    let isolated = facts.cores.isolated.as_deref().unwrap_or_default();
    let is_struck = |core: &usize| {
        let quiet = union(isolated, &[*core]);
        disk_interrupts(facts).any(|interrupt| !interrupt.strikes(&[*core], &quiet).is_empty())
    };
    online.iter().copied().filter(is_struck).collect()
}

/// The cores to which the interrupt of the queue that they write to goes.
fn own_queues(facts: &Facts) -> CoreSet {
    let own = |interrupt: &Interrupt| Some(common(&interrupt.queue_cores()?, interrupt.goes_to.as_ref().ok()?));
    sorted(disk_interrupts(facts).filter_map(own).flatten().collect())
}

/// The nodes that card and disk hang on, where they tell.
fn near_nodes(facts: &Facts) -> Vec<(String, usize)> {
    let network = facts.network.as_ref().map(|network| (network.name.clone(), network.node.clone()));
    let disk = facts.disk.name.clone().ok().map(|name| (name, facts.disk.node.clone()));
    let node = |(name, node): (String, Known<i64>)| Some((name, usize::try_from(node.ok()?).ok()?));
    network.into_iter().chain(disk).filter_map(node).collect()
}

/// Cores of one cache: near card and disk first, then of the cache with more of them, then the lowest.
fn best_group(facts: &Facts, pool: &[usize], why: &mut Vec<String>) -> CoreSet {
    let mut groups: BTreeMap<CoreSet, CoreSet> = BTreeMap::new();
    for &core in pool {
        let cache = facts.cores.places.get(&core).and_then(|place| place.l3.clone().ok()).unwrap_or_default();
        groups.entry(cache).or_default().push(core);
    }
    let nodes = near_nodes(facts);
    let node = |cores: &CoreSet| facts.cores.places.get(&cores[0]).and_then(|place| place.node);
    let near = |cores: &CoreSet| nodes.iter().filter(|(_, near)| node(cores) == Some(*near)).count();
    let large: Vec<(&CoreSet, &CoreSet)> = groups.iter().filter(|(_, cores)| cores.len() >= 2).collect();
    let best = large.into_iter().min_by_key(|(_, cores)| {
        (std::cmp::Reverse(near(cores)), std::cmp::Reverse(cores.len().min(STAGES_MAX)), cores[0])
    });
    let Some((cache, cores)) = best else {
        why.push("no cache is shared by two of them".to_owned());
        return pool.iter().copied().take(STAGES_MAX).collect();
    };
    if !cache.is_empty() {
        why.push(format!("one last-level cache, that of cores {}", pin::list(cache)));
    }
    let devices: Vec<&str> =
        nodes.iter().filter(|(_, near)| node(cores) == Some(*near)).map(|(name, _)| name.as_str()).collect();
    if let (Some(node), false) = (node(cores), devices.is_empty()) {
        why.push(format!("on node {node}, as {}", devices.join(" and ")));
    }
    cores.iter().copied().take(STAGES_MAX).collect()
}
