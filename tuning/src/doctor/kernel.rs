//! The kernel's own doings.

use super::{Check, Cost, Finding, Group, Plan, bad, known, named, not_applicable, ok, warn};
use crate::facts::cpu_list::common;
use crate::facts::{Facts, Known};
use crate::root::Unread;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "kernel-version",
        group: Group::Kernel,
        wants: "Linux 5.11 or later",
        why: "busy polling that keeps interrupts off came with it; 5.4 is the least for AF_XDP's need_wakeup",
        cost: Cost::Failure,
        source: "kernel documentation, networking/napi and networking/af_xdp",
        judge: version,
    },
    Check {
        id: "kernel-clocksource",
        group: Group::Kernel,
        wants: "clocks are read from the TSC",
        why: "other sources are read through a device, by a system call",
        cost: Cost::Microseconds,
        source: "Red Hat, Optimizing RHEL for Real Time, \"Comparing the cost of reading hardware clock sources\": 60 ns for TSC, 1 µs and more for HPET or ACPI PM",
        judge: clocksource,
    },
    Check {
        id: "kernel-tsc",
        group: Group::Kernel,
        wants: "the TSC counts evenly, also while cores sleep: constant_tsc and nonstop_tsc",
        why: "spinning threads read the counter itself in place of the clock",
        cost: Cost::Failure,
        source: "Intel SDM, volume 3, \"Invariant TSC\"",
        judge: tsc,
    },
    Check {
        id: "kernel-preemption",
        group: Group::Kernel,
        wants: "no PREEMPT_RT where stages spin",
        why: "it moves interrupts and softirqs into threads, which take longer, and wait for whoever spins; it is for threads that sleep",
        cost: Cost::Microseconds,
        source: "kernel documentation, core-api/real-time",
        judge: preemption,
    },
    Check {
        id: "kernel-mitigations",
        group: Group::Kernel,
        wants: "a decision about mitigations: mitigations=off where only trusted code runs on the box",
        why: "each entry into the kernel takes longer: a system call, an interrupt. What is given up is protection; the decision is yours",
        cost: Cost::Nanoseconds,
        source: "kernel documentation, hw-vuln and kernel-parameters (mitigations)",
        judge: mitigations,
    },
    Check {
        id: "kernel-audit",
        group: Group::Kernel,
        wants: "no auditd, or audit=0",
        why: "while rules are loaded each system call is looked at",
        cost: Cost::Nanoseconds,
        source: "auditctl(8)",
        judge: audit,
    },
    Check {
        id: "kernel-nmi-watchdog",
        group: Group::Kernel,
        wants: "the hard-lockup detector is off, or keeps off spinning cores",
        why: "its interrupt can't be held back, and takes a performance counter on each core",
        cost: Cost::Microseconds,
        source: "kernel documentation, admin-guide/lockup-watchdogs",
        judge: nmi_watchdog,
    },
    Check {
        id: "kernel-soft-watchdog",
        group: Group::Kernel,
        wants: "the soft-lockup detector is off, or keeps off spinning cores",
        why: "a timer on each core wakes a thread of the highest priority there, every few seconds",
        cost: Cost::Microseconds,
        source: "kernel documentation, admin-guide/lockup-watchdogs",
        judge: soft_watchdog,
    },
    Check {
        id: "kernel-timer-migration",
        group: Group::Kernel,
        wants: "timers may move to other cores: timer_migration 1",
        why: "else each stays on the core that armed it",
        cost: Cost::Microseconds,
        source: "kernel documentation, sysctl/kernel (timer_migration)",
        judge: timer_migration,
    },
    Check {
        id: "kernel-autogroup",
        group: Group::Kernel,
        wants: "cores that are shared are not shared out by sessions: sched_autogroup_enabled 0",
        why: "the kernel's workers, which complete what the disk did, wait for the session's whole share",
        cost: Cost::Milliseconds,
        source: "README, \"Measured\": waits of up to 78 ms for a completion; beside a journaler that spins it is the other way round",
        judge: autogroup,
    },
    Check {
        id: "kernel-rt-throttling",
        group: Group::Kernel,
        wants: "real-time threads leave something to others: sched_rt_runtime_us below the period",
        why: "no stage spins as a real-time thread, so the limit takes nothing from it; without it a runaway real-time thread stops a core for good",
        cost: Cost::Milliseconds,
        source: "sched(7)",
        judge: rt_throttling,
    },
];

fn version(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let read = known(&facts.kernel.release)?.clone();
    match facts.kernel.version()? {
        (5, 0..4) | (0..5, _) if plan.bypass_queue.is_some() => bad(read, "a later kernel: 5.11 or newer"),
        (5, 0..11) | (0..5, _) => warn(read, "a later kernel: 5.11 or newer"),
        _ => ok(read),
    }
}

fn clocksource(facts: &Facts, _: &Plan) -> Known<Finding> {
    let fix = "kernel command line: tsc=reliable, if the box's TSC is; dmesg says why it was given up";
    match known(&facts.kernel.clocksource)?.as_str() {
        "tsc" => ok("tsc"),
        // Guests read these without a system call, from a page of the host's.
        word @ ("kvm-clock" | "hyperv_clocksource_tsc_page") => {
            warn(word, "clocksource=tsc, where the host's TSC is stable")
        }
        word => bad(word, fix),
    }
}

fn tsc(facts: &Facts, _: &Plan) -> Known<Finding> {
    let flags = known(&facts.kernel.flags)?;
    let lacking: Vec<&str> =
        ["constant_tsc", "nonstop_tsc"].into_iter().filter(|flag| !flags.iter().any(|f| f == flag)).collect();
    if lacking.is_empty() {
        return ok("constant_tsc, nonstop_tsc");
    }
    let fix = "in a guest: a processor model that passes them on; on metal: another processor, or idle = \"backoff\"";
    if facts.kernel.is_guest()? {
        warn(format!("lacks {}", lacking.join(", ")), fix)
    } else {
        bad(format!("lacks {}", lacking.join(", ")), fix)
    }
}

fn preemption(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let build = known(&facts.kernel.build)?;
    // As `#1 SMP PREEMPT_DYNAMIC Debian 6.1.90-1`.
    if !build.starts_with('#') {
        return Err(Unread::malformed("proc/sys/kernel/version", "no build of a kernel"));
    }
    let words: Vec<&str> = build.split_whitespace().filter(|word| word.starts_with("PREEMPT")).collect();
    let mut read = if words.is_empty() { "none, or voluntary".to_owned() } else { words.join(" ") };
    if words.contains(&"PREEMPT_DYNAMIC") {
        let line = known(&facts.kernel.command_line)?;
        read += &match line.value("preempt") {
            Some(mode) => format!(": preempt={mode} on the command line"),
            None => ", as the kernel is by default: dmesg has it as Dynamic Preempt".to_owned(),
        };
    }
    let is_real_time = words.iter().any(|word| *word == "PREEMPT_RT" || *word == "PREEMPT_RT_FULL");
    if is_real_time && !plan.spinning.is_empty() { warn(read, "the distribution's ordinary kernel") } else { ok(read) }
}

fn mitigations(facts: &Facts, _: &Plan) -> Known<Finding> {
    let all = known(&facts.kernel.mitigations)?;
    let costly: Vec<&str> =
        all.iter().filter(|(_, how)| how.starts_with("Mitigation")).map(|(name, _)| name.as_str()).collect();
    if costly.is_empty() {
        return ok("none is active");
    }
    // Where the operator said something other than the default, it is decided.
    let line = known(&facts.kernel.command_line)?;
    let read = format!("{} active: {}", costly.len(), costly.join(", "));
    if line.has("mitigations") {
        ok(format!("{read}; mitigations={} is chosen", line.value("mitigations").unwrap_or_default()))
    } else {
        warn(read, "kernel command line: mitigations=off, or mitigations=auto to say that they stay")
    }
}

fn audit(facts: &Facts, _: &Plan) -> Known<Finding> {
    let line = known(&facts.kernel.command_line)?;
    if matches!(line.value("audit"), Some("0" | "off")) {
        return ok("audit=0");
    }
    if facts.cores.daemons("auditd")?.is_empty() {
        return ok("auditd does not run");
    }
    warn(
        "auditd runs",
        "systemctl disable --now auditd, or no rules for system calls; audit=0 on the kernel command line",
    )
}

/// Whether a detector that is on looks at spinning cores.
fn watched(facts: &Facts, plan: &Plan, is_on: &Known<u64>, fix: &str) -> Known<Finding> {
    match is_on {
        Ok(0) => return ok("off"),
        Err(unread) if unread.is_missing() => return ok("the kernel has none"),
        Err(unread) => return Err(unread.clone()),
        Ok(_) if plan.spinning.is_empty() => return not_applicable("no stage spins"),
        Ok(_) => {}
    }
    let cores = known(&facts.kernel.watchdog_cores)?;
    let watched = common(cores, &plan.spinning);
    if watched.is_empty() {
        ok(format!("on, for {}", named(cores)))
    } else {
        warn(format!("on, for {}", named(cores)), fix)
    }
}

fn nmi_watchdog(facts: &Facts, plan: &Plan) -> Known<Finding> {
    watched(
        facts,
        plan,
        &facts.kernel.nmi_watchdog,
        "sysctl kernel.nmi_watchdog=0, or other cores in kernel.watchdog_cpumask",
    )
}

fn soft_watchdog(facts: &Facts, plan: &Plan) -> Known<Finding> {
    watched(
        facts,
        plan,
        &facts.kernel.soft_watchdog,
        "sysctl kernel.soft_watchdog=0, or other cores in kernel.watchdog_cpumask",
    )
}

fn timer_migration(facts: &Facts, _: &Plan) -> Known<Finding> {
    match &facts.kernel.timer_migration {
        Ok(1) => ok("1"),
        Ok(value) => warn(value.to_string(), "sysctl kernel.timer_migration=1"),
        Err(unread) if unread.is_missing() => not_applicable("the kernel does not ask"),
        Err(unread) => Err(unread.clone()),
    }
}

fn autogroup(facts: &Facts, plan: &Plan) -> Known<Finding> {
    match &facts.kernel.autogroup {
        Ok(0) => ok("off"),
        Ok(_) if plan.spinning.len() == plan.critical.len() => not_applicable("each stage's thread spins"),
        Ok(_) => warn("on", "sysctl kernel.sched_autogroup_enabled=0"),
        Err(unread) if unread.is_missing() => ok("the kernel has none"),
        Err(unread) => Err(unread.clone()),
    }
}

fn rt_throttling(facts: &Facts, _: &Plan) -> Known<Finding> {
    match *known(&facts.kernel.rt_runtime_us)? {
        -1 => warn("no limit", "sysctl kernel.sched_rt_runtime_us=950000, unless a program of the box needs it so"),
        us => ok(format!("{us} µs of each period")),
    }
}
