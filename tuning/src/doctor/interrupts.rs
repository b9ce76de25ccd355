//! Who interrupts the plan's cores.

use super::{Check, Cost, Finding, Group, Plan, bad, known, named, not_applicable, ok, warn};
use crate::facts::cpu_list::{CoreSet, common, sorted, union, without};
use crate::facts::interrupts::{Device, Interrupt};
use crate::facts::{Facts, Known};
use crate::pin;
use crate::root::Unread;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "interrupts-disk",
        group: Group::Interrupts,
        wants: "the disk's interrupts go to cores on which nothing spins",
        why: "the completion of a write waits until the spinning thread's turn is over: each sync takes a tick longer",
        cost: Cost::Milliseconds,
        source: "measured with this journal: a sync takes 4 ms more where a thread spins on the disk's core",
        judge: disk,
    },
    Check {
        id: "interrupts-nic",
        group: Group::Interrupts,
        wants: "the interface's interrupts go to cores on which nothing spins",
        why: "each packet's interrupt and softirq take the core from the stage that is to read it",
        cost: Cost::TensOfMicroseconds,
        source: "kernel documentation, networking/scaling and networking/napi",
        judge: nic,
    },
    Check {
        id: "interrupts-other",
        group: Group::Interrupts,
        wants: "no other device's interrupts come to spinning cores",
        why: "each takes the core for as long as its handler likes",
        cost: Cost::Microseconds,
        source: "kernel documentation, core-api/irq/irq-affinity",
        judge: other,
    },
    Check {
        id: "interrupts-irqbalance",
        group: Group::Interrupts,
        wants: "irqbalance is off, or banned from the plan's cores",
        why: "it moves interrupts every 10 seconds, and undoes what was set by hand",
        cost: Cost::TensOfMicroseconds,
        source: "irqbalance(1): by itself it keeps off isolated and nohz_full cores only",
        judge: irqbalance,
    },
    Check {
        id: "interrupts-default",
        group: Group::Interrupts,
        wants: "new interrupts don't go to spinning cores: /proc/irq/default_smp_affinity",
        why: "a device that comes, or comes back, puts its own where this says",
        cost: Cost::Microseconds,
        source: "kernel documentation, core-api/irq/irq-affinity",
        judge: default,
    },
    Check {
        id: "interrupts-workqueues",
        group: Group::Interrupts,
        wants: "unbound work of the kernel stays off spinning cores",
        why: "writeback, drivers and file systems queue work that runs wherever this mask allows",
        cost: Cost::TensOfMicroseconds,
        source: "kernel documentation, core-api/workqueue (cpumask)",
        judge: workqueues,
    },
    Check {
        id: "interrupts-steering",
        group: Group::Interrupts,
        wants: "the kernel passes no received packets on to spinning cores (rps_cpus)",
        why: "their softirq runs there in place of the stage",
        cost: Cost::TensOfMicroseconds,
        source: "kernel documentation, networking/scaling (RPS)",
        judge: steering,
    },
];

/// The spinning cores that an interrupt strikes. What spins submits nothing to a disk but for the journaler to its own; nor does anybody
/// where the scheduler puts nobody.
pub(crate) fn struck(interrupt: &Interrupt, facts: &Facts, plan: &Plan) -> CoreSet {
    let quiet = union(&plan.spinning, facts.cores.isolated.as_deref().unwrap_or_default());
    let submits = if interrupt.is_of(&facts.disk.device) { plan.writing.as_slice() } else { &[] };
    interrupt.strikes(&plan.spinning, &without(&quiet, submits))
}

/// The cores that a device's interrupts came to and still go to, the count there, and the number of the busiest.
fn strikes<'a>(
    all: &'a [Interrupt],
    is_wanted: impl Fn(&Interrupt) -> bool,
    facts: &Facts,
    plan: &Plan,
) -> Option<(Vec<usize>, u64, &'a Interrupt)> {
    let wanted = all.iter().filter(|interrupt| is_wanted(interrupt));
    let struck: Vec<_> = wanted
        .map(|interrupt| (struck(interrupt, facts, plan), interrupt))
        .filter(|(cores, _)| !cores.is_empty())
        .collect();
    let count = struck.iter().fold(0_u64, |sum, (cores, interrupt)| sum.saturating_add(interrupt.count(cores)));
    let (_, busiest) = struck.iter().max_by_key(|(cores, interrupt)| interrupt.count(cores))?;
    Some((sorted(struck.iter().flat_map(|(cores, _)| cores.clone()).collect()), count, busiest))
}

const NO_CORE: &str = "let fewer threads spin: a core has to be left for interrupts";

/// Cores that interrupts may go to instead, as a list: without stages, or where nothing spins; `None` where there are none.
fn elsewhere(facts: &Facts, plan: &Plan) -> Option<String> {
    let online = facts.cores.online.as_deref().unwrap_or_default();
    let choices = [without(online, &plan.critical), without(online, &plan.spinning)];
    choices.iter().find(|cores| !cores.is_empty()).map(|cores| pin::list(cores))
}

fn of_device(facts: &Facts, plan: &Plan, device: &Device, what: &str) -> Known<Finding> {
    let all = known(&facts.interrupts.devices)?;
    let own: Vec<&Interrupt> = all.iter().filter(|interrupt| interrupt.is_of(device)).collect();
    if own.is_empty() {
        return not_applicable(format!("no interrupt is {what}'s by name"));
    }
    let mut goes_to = Vec::new();
    for interrupt in &own {
        let cores = known(&interrupt.goes_to)?;
        if cores.is_empty() {
            return Err(Unread::malformed(&format!("proc/irq/{}", interrupt.number), "it goes to no core"));
        }
        goes_to.extend(cores);
    }
    let goes_to = sorted(goes_to);
    match strikes(all, |interrupt| interrupt.is_of(device), facts, plan) {
        None => ok(format!("{} interrupts of {what}, to {}", own.len(), named(&goes_to))),
        Some((cores, count, busiest)) => {
            let (number, name) = (busiest.number, &busiest.name);
            let is_disk = *device == facts.disk.device;
            // The kernel itself places those of a disk's queues, and refuses to be told: of NVMe all, of others some.
            let managed =
                "kernel command line: isolcpus=managed_irq,…; or plan the journaler on a core where nothing spins";
            let fix = match elsewhere(facts, plan) {
                _ if what.starts_with("nvme") => managed.to_owned(),
                None if is_disk => "let fewer threads spin: a core has to be left for the disk's interrupts".to_owned(),
                None => NO_CORE.to_owned(),
                Some(rest) => {
                    let echo = format!("echo {rest} > /proc/irq/{number}/smp_affinity_list, and so for its others");
                    if is_disk { format!("{echo}; where the kernel refuses, {managed}") } else { echo }
                }
            };
            bad(format!("{count} of {what} came to {}, most as {number} ({name})", named(&cores)), fix)
        }
    }
}

fn disk(facts: &Facts, plan: &Plan) -> Known<Finding> {
    if plan.spinning.is_empty() {
        return not_applicable("no stage spins");
    }
    let name = known(&facts.disk.name)?;
    of_device(facts, plan, &facts.disk.device, name)
}

fn nic(facts: &Facts, plan: &Plan) -> Known<Finding> {
    match &facts.network {
        _ if plan.spinning.is_empty() => not_applicable("no stage spins"),
        None => not_applicable("the plan has no interface"),
        Some(network) => of_device(facts, plan, &network.device, &network.name),
    }
}

fn other(facts: &Facts, plan: &Plan) -> Known<Finding> {
    if plan.spinning.is_empty() {
        return not_applicable("no stage spins");
    }
    let nic = facts.network.as_ref().map(|network| &network.device);
    let is_other = |interrupt: &Interrupt| {
        !interrupt.is_of(&facts.disk.device) && !nic.is_some_and(|device| interrupt.is_of(device))
    };
    match strikes(known(&facts.interrupts.devices)?, is_other, facts, plan) {
        None => ok("none came to a spinning core to which it still goes"),
        Some((cores, count, busiest)) => warn(
            format!("{count} came to {}, most as {} ({})", named(&cores), busiest.number, busiest.name),
            match elsewhere(facts, plan) {
                None => NO_CORE.to_owned(),
                Some(rest) => {
                    format!("echo {rest} > /proc/irq/{}/smp_affinity_list, and so for the others", busiest.number)
                }
            },
        ),
    }
}

fn irqbalance(facts: &Facts, plan: &Plan) -> Known<Finding> {
    if facts.cores.daemons("irqbalance")?.is_empty() {
        return ok("it does not run");
    }
    let banned = facts.interrupts.banned.clone().unwrap_or_default();
    if !plan.critical.is_empty() && without(&plan.critical, &banned).is_empty() {
        return ok(format!("it runs, banned from {}", named(&banned)));
    }
    let cores = pin::list(&sorted(plan.critical.clone()));
    let fix =
        format!("systemctl disable --now irqbalance; or IRQBALANCE_BANNED_CPULIST={cores} in /etc/default/irqbalance");
    if plan.spinning.is_empty() {
        warn("it runs", fix)
    } else {
        bad("it runs, and is not banned from the plan's cores", fix)
    }
}

fn open_to(facts: &Facts, plan: &Plan, cores: &[usize], what: &str, fix: &str) -> Known<Finding> {
    if plan.spinning.is_empty() {
        return not_applicable("no stage spins");
    }
    let open = sorted(common(&plan.spinning, cores));
    if open.is_empty() {
        ok(format!("{what}: {}", named(cores)))
    } else {
        warn(format!("{what}: {}", named(cores)), if elsewhere(facts, plan).is_some() { fix } else { NO_CORE })
    }
}

fn default(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let fix = "write a mask without them to /proc/irq/default_smp_affinity; irqaffinity= does so from the start";
    open_to(facts, plan, known(&facts.interrupts.default)?, "new ones may go to", fix)
}

fn workqueues(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let fix = "write a mask without them to /sys/devices/virtual/workqueue/cpumask";
    open_to(facts, plan, known(&facts.interrupts.workqueues)?, "work may run on", fix)
}

fn steering(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let Some(network) = &facts.network else { return not_applicable("the plan has no interface") };
    if plan.spinning.is_empty() {
        return not_applicable("no stage spins");
    }
    let queues = known(&network.steered_to)?;
    match queues.iter().find(|(_, cores)| !common(cores, &plan.spinning).is_empty()) {
        None => ok(format!("none of {} queues", queues.len())),
        Some((queue, cores)) => warn(
            format!("{queue} passes packets on to {}", named(cores)),
            format!("echo 0 > /sys/class/net/{}/queues/{queue}/rps_cpus", network.name),
        ),
    }
}
