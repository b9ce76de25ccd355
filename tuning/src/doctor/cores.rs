//! The plan's cores, and who else is there.

use super::{Check, Cost, Finding, Group, Plan, bad, known, named, not_applicable, ok, warn};
use crate::facts::cores::Place;
use crate::facts::cpu_list::{common, sorted, union, without};
use crate::facts::{Facts, Known};
use crate::pin;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "cores-allowed",
        group: Group::Cores,
        wants: "this process may use each core of the plan",
        why: "a thread can't be pinned outside of its affinity mask and its cgroup's cpuset: the appliance does not start",
        cost: Cost::Failure,
        source: "sched_setaffinity(2)",
        judge: allowed,
    },
    Check {
        id: "cores-isolated",
        group: Group::Cores,
        wants: "spinning cores are isolated: isolcpus=, or a cpuset partition",
        why: "the scheduler puts any thread on a core that is not, and a stage waits for the end of its turn",
        cost: Cost::Milliseconds,
        source: "kernel documentation, kernel-parameters (isolcpus) and cgroup-v2 (cpuset.cpus.partition); a turn is 1 to 4 ms",
        judge: isolated,
    },
    Check {
        id: "cores-left",
        group: Group::Cores,
        wants: "a core for everything else: no stage spins on it",
        why: "interrupts, the kernel's threads and the shadow that takes snapshots have to run somewhere",
        cost: Cost::Milliseconds,
        source: "README, \"Measured\": stages and shadow on one core",
        judge: left,
    },
    Check {
        id: "cores-smt",
        group: Group::Cores,
        wants: "the hardware thread beside a spinning core is off, or idle: isolated and without a stage",
        why: "two threads of one physical core share its units and caches: each is slower, when the other is busy",
        cost: Cost::Microseconds,
        source: "Intel optimization manual, \"Hyper-Threading\": shared execution resources; up to half the speed",
        judge: siblings,
    },
    Check {
        id: "cores-quota",
        group: Group::Cores,
        wants: "no limit on the cgroup's time",
        why: "a spinning thread uses it up, and all of the appliance stands still until the next period",
        cost: Cost::Milliseconds,
        source: "kernel documentation, sched-bwc: periods of 100 ms",
        judge: quota,
    },
    Check {
        id: "cores-others",
        group: Group::Cores,
        wants: "no other program is pinned to the plan's cores",
        why: "isolation keeps the scheduler away, not who asks for the core by its number",
        cost: Cost::Milliseconds,
        source: "kernel documentation, kernel-parameters (isolcpus)",
        judge: others,
    },
    Check {
        id: "cores-kthreads",
        group: Group::Cores,
        wants: "kernel threads that may move stay off spinning cores",
        why: "one that is woken there takes its turn, whatever is spinning",
        cost: Cost::TensOfMicroseconds,
        source: "kernel documentation, kernel-per-CPU-kthreads",
        judge: kernel_threads,
    },
    Check {
        id: "cores-nohz-full",
        group: Group::Cores,
        wants: "no periodic tick on spinning cores: nohz_full=",
        why: "the tick comes 100 to 1000 times a second, and brings timers and accounting with it",
        cost: Cost::Microseconds,
        source: "kernel documentation, timers/no_hz; ticktape-bench jitter shows them",
        judge: nohz_full,
    },
    Check {
        id: "cores-rcu",
        group: Group::Cores,
        wants: "others run the RCU callbacks of spinning cores: rcu_nocbs=, implied by nohz_full=",
        why: "what the kernel frees is freed in batches, in a softirq on the core itself",
        cost: Cost::TensOfMicroseconds,
        source: "kernel documentation, kernel-per-CPU-kthreads (rcuc, rcuo)",
        judge: rcu,
    },
    Check {
        id: "cores-real-time",
        group: Group::Cores,
        wants: "no other program's real-time threads may run on the plan's cores",
        why: "they go before every ordinary thread, for as long as they like",
        cost: Cost::Milliseconds,
        source: "sched(7)",
        judge: real_time,
    },
    Check {
        id: "cores-one-l3",
        group: Group::Cores,
        wants: "all stages within one last-level cache",
        why: "each message crosses from core to core several times, and a line from another cache takes two to five times as long",
        cost: Cost::Nanoseconds,
        source: "ticktape-bench ring: 30 to 200 ns a hop, by how far the cores are apart",
        judge: one_l3,
    },
    Check {
        id: "cores-one-node",
        group: Group::Cores,
        wants: "all stages on one NUMA node",
        why: "the rings lie on one node; the other's cores reach them over the link between the sockets",
        cost: Cost::Nanoseconds,
        source: "kernel documentation, mm/numa; numactl --hardware shows distances",
        judge: one_node,
    },
    Check {
        id: "cores-first",
        group: Group::Cores,
        wants: "no stage spins on core 0",
        why: "the kernel does its own work there by default: timekeeping, interrupts that nobody placed, work of its start",
        cost: Cost::TensOfMicroseconds,
        source: "kernel documentation, timers/no_hz: the boot core can't be nohz_full by default",
        judge: first,
    },
    Check {
        id: "cores-steal",
        group: Group::Cores,
        wants: "the host takes no time from the plan's cores: less than one part in 10 000",
        why: "a guest's core that the host takes away stands still, and nothing within the guest can help",
        cost: Cost::Milliseconds,
        source: "proc_stat(5); ticktape-bench jitter shows the gaps",
        judge: steal,
    },
];

fn allowed(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let allowed = known(&facts.cores.allowed)?;
    let read = format!("this process may run on {}", named(allowed));
    if let Some(cpuset) = known(&facts.cores.cpuset)? {
        let outside = sorted(without(&plan.critical, cpuset));
        if !outside.is_empty() {
            let cores = pin::list(&outside);
            return bad(
                format!("{read}; its cpuset has {}", named(cpuset)),
                format!("give its cgroup {cores} (AllowedCPUs=, --cpuset-cpus), or plan other cores"),
            );
        }
    }
    let lacking = sorted(without(&plan.critical, allowed));
    if lacking.is_empty() {
        return ok(read);
    }
    let fix = format!("start the appliance with CPUAffinity= or taskset -c, including {}", pin::list(&lacking));
    // Whom nobody started there is kept off isolated cores: so this may be doctor's own trouble alone.
    let are_isolated = facts.cores.isolated.as_ref().is_ok_and(|isolated| without(&lacking, isolated).is_empty());
    if are_isolated { warn(read, fix) } else { bad(read, fix) }
}

fn isolated(facts: &Facts, plan: &Plan) -> Known<Finding> {
    if plan.spinning.is_empty() {
        return not_applicable("no stage spins");
    }
    let isolated = known(&facts.cores.isolated)?;
    let lacking = sorted(without(&plan.spinning, isolated));
    let read =
        if isolated.is_empty() { "none is isolated".to_owned() } else { format!("isolated: {}", named(isolated)) };
    if lacking.is_empty() {
        return ok(read);
    }
    let read = format!("{read}; stages spin on {}", pin::list(&lacking));
    if without(&lacking, &facts.cores.partitioned).is_empty() {
        return warn(
            format!(
                "{read}, whose cpuset partition is balanced: others are kept off, threads in it may be moved there"
            ),
            "echo isolated > /sys/fs/cgroup/…/cpuset.cpus.partition, of the appliance's cgroup",
        );
    }
    let rest = without(facts.cores.online.as_deref().unwrap_or_default(), &plan.spinning);
    if rest.is_empty() {
        return bad(read, "let fewer threads spin: with all cores isolated, nothing would be left for everybody else");
    }
    // Those that are isolated already stay so.
    let cores = pin::list(&union(&plan.spinning, isolated));
    let first = if lacking.contains(&0) { "; core 0 is the kernel's: plan another in its place" } else { "" };
    bad(read, format!("kernel command line: isolcpus=managed_irq,domain,{cores}{first}"))
}

fn left(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let online = known(&facts.cores.online)?;
    // What a cpuset forbids is left to others, not to this one.
    let usable = known(&facts.cores.cpuset)?.as_ref().map_or_else(|| online.clone(), |cpuset| common(online, cpuset));
    let rest = without(&usable, &plan.spinning);
    if rest.is_empty() {
        return bad(
            "a stage spins on each core",
            "let fewer threads spin: idle = \"backoff\", or more stages to a thread",
        );
    }
    ok(format!("{} left", named(&rest)))
}

fn place(facts: &Facts, core: usize) -> Known<&Place> {
    let missing = || crate::root::Unread::malformed("sys/devices/system/cpu", format!("core {core} is not online"));
    facts.cores.places.get(&core).ok_or_else(missing)
}

fn siblings(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let mut beside = Vec::new();
    for &core in &plan.spinning {
        beside.extend(without(known(&place(facts, core)?.siblings)?, &[core]));
    }
    let beside = sorted(beside);
    if plan.spinning.is_empty() {
        return not_applicable("no stage spins");
    }
    if beside.is_empty() {
        return ok("one hardware thread a core");
    }
    let cores = pin::list(&beside);
    let shared = common(&beside, &plan.critical);
    if !shared.is_empty() {
        return bad(
            format!("{} share a physical core with a spinning one", named(&shared)),
            "plan one stage thread a physical core",
        );
    }
    let open = without(&beside, known(&facts.cores.isolated)?);
    if !open.is_empty() {
        return bad(
            format!("beside spinning cores are {}, open to everybody", named(&open)),
            format!("for each of {cores}: echo 0 > /sys/devices/system/cpu/cpuN/online; or isolate them too"),
        );
    }
    ok(format!("beside are {cores}, isolated and without a stage"))
}

fn quota(facts: &Facts, _: &Plan) -> Known<Finding> {
    match known(&facts.cores.quota)? {
        None => ok("no limit"),
        Some((max, period)) => bad(
            format!("{max} µs of each {period} µs"),
            "remove CPUQuota= or --cpus; bound the cores by a cpuset instead",
        ),
    }
}

/// Whether a thread belongs to an appliance, which may well be running while the box is looked at.
fn is_own(thread: &crate::facts::cores::Thread) -> bool {
    thread.leader.starts_with("ticktape")
}

fn others(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let threads = known(&facts.cores.threads)?;
    let online = known(&facts.cores.online)?;
    let isolated = facts.cores.isolated.as_deref().unwrap_or_default();
    // Who may run anywhere in a large cpuset is not pinned; who may run on an isolated core was put there.
    let is_pinned = |cores: &[usize]| {
        let here = common(cores, &plan.critical);
        cores.len() < online.len()
            && !here.is_empty()
            && (here.len() == cores.len() || !common(&here, isolated).is_empty())
    };
    let pinned = threads.iter().filter(|thread| !thread.is_kernel && !is_own(thread) && is_pinned(&thread.cores));
    let mut names: Vec<String> = pinned
        .map(|thread| format!("{} ({}) on {}", thread.leader, thread.process, pin::list(&thread.cores)))
        .collect();
    names.dedup();
    if names.is_empty() {
        return ok("nobody else is pinned there");
    }
    let more = if names.len() > 4 { format!(" and {} more", names.len() - 4) } else { String::new() };
    names.truncate(4);
    warn(format!("pinned there: {}{more}", names.join(", ")), "taskset -cp other cores for them, if they are busy")
}

fn kernel_threads(facts: &Facts, plan: &Plan) -> Known<Finding> {
    if plan.spinning.is_empty() {
        return not_applicable("no stage spins");
    }
    let threads = known(&facts.cores.threads)?;
    let there = threads.iter().filter(|thread| thread.is_kernel && !common(&thread.cores, &plan.spinning).is_empty());
    let mut names: Vec<&str> = there.map(|thread| thread.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return ok("none may run there");
    }
    let (count, first) = (names.len(), names[..names.len().min(3)].join(", "));
    let (kinds, more) = (if count == 1 { "kind" } else { "kinds" }, if count > 3 { ", …" } else { "" });
    warn(
        format!("{count} {kinds} of kernel threads may run there: {first}{more}"),
        "isolcpus= keeps them away from the start; until then taskset -cp for each, or kthread_cpus= where the kernel has it",
    )
}

fn tickless(facts: &Facts, plan: &Plan, found: &[usize], what: &str) -> Known<Finding> {
    if plan.spinning.is_empty() {
        return not_applicable("no stage spins");
    }
    let lacking = without(&plan.spinning, found);
    let read = if found.is_empty() { format!("{what}: none") } else { format!("{what}: {}", named(found)) };
    if lacking.is_empty() {
        return ok(read);
    }
    if without(facts.cores.online.as_deref().unwrap_or_default(), &plan.spinning).is_empty() {
        return warn(read, "let fewer threads spin: a core has to be left that does it for the others");
    }
    warn(read, format!("kernel command line: {what}={}", pin::list(&sorted(plan.spinning.clone()))))
}

fn nohz_full(facts: &Facts, plan: &Plan) -> Known<Finding> {
    tickless(facts, plan, known(&facts.cores.nohz_full)?, "nohz_full")
}

fn rcu(facts: &Facts, plan: &Plan) -> Known<Finding> {
    tickless(facts, plan, known(&facts.cores.rcu_nocbs)?, "rcu_nocbs")
}

fn real_time(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let threads = known(&facts.cores.threads)?;
    let there = threads.iter().filter(|thread| {
        !thread.is_kernel
            && !is_own(thread)
            && matches!(thread.policy.as_str(), "fifo" | "rr" | "deadline")
            && !common(&thread.cores, &plan.critical).is_empty()
    });
    let mut names: Vec<&str> = there.map(|thread| thread.leader.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return ok("no other program's real-time thread is pinned there");
    }
    warn(format!("real-time threads of {}", names.join(", ")), "taskset -cp other cores for them")
}

fn one_l3(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let Some(&core) = plan.critical.first() else { return not_applicable("no core in the plan") };
    let group = known(&place(facts, core)?.l3)?;
    let outside = sorted(without(&plan.critical, group));
    if outside.is_empty() {
        return ok(format!("all within the cache of {}", named(group)));
    }
    warn(
        format!("{} outside of the cache of {}", named(&outside), named(group)),
        "plan cores of one cache: lscpu -e shows them",
    )
}

fn one_node(facts: &Facts, plan: &Plan) -> Known<Finding> {
    if *known(&facts.memory.nodes)? < 2 {
        return not_applicable("one node");
    }
    let mut nodes = Vec::new();
    for &core in &plan.critical {
        nodes.extend(place(facts, core)?.node);
    }
    let nodes = sorted(nodes);
    match nodes[..] {
        [node] => ok(format!("all on node {node}")),
        [] => Err(crate::root::Unread::malformed("sys/devices/system/node", "the plan's cores are on none")),
        _ => bad(format!("on nodes {}", pin::list(&nodes)), "plan cores of one node: numactl --hardware shows them"),
    }
}

fn first(_: &Facts, plan: &Plan) -> Known<Finding> {
    if plan.spinning.is_empty() {
        return not_applicable("no stage spins");
    }
    if plan.spinning.contains(&0) {
        return warn("a stage spins on core 0", "plan another core, and leave core 0 to the kernel");
    }
    ok("core 0 is left to the kernel")
}

fn steal(facts: &Facts, plan: &Plan) -> Known<Finding> {
    if !facts.kernel.is_guest()? {
        return not_applicable("no guest");
    }
    let times = known(&facts.cores.steal)?;
    let worst = plan.critical.iter().filter_map(|core| {
        let (stolen, all) = times.get(core)?;
        Some((*stolen as f64 / (*all).max(1) as f64, *core))
    });
    if let Some(core) = plan.critical.iter().find(|core| !times.contains_key(core)) {
        return Err(crate::root::Unread::malformed("proc/stat", format!("nothing of core {core}")));
    }
    let Some((share, core)) = worst.max_by(|a, b| a.0.total_cmp(&b.0)) else {
        return not_applicable("no core in the plan");
    };
    let read = format!("core {core}: {:.4}% since the start", share * 100.0);
    if share < 0.000_1 {
        return ok(read);
    }
    warn(read, "ask for dedicated cores of the host, or use bare metal")
}
