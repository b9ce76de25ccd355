//! What this process may do, and who keeps its clock.

use super::{Check, Cost, Finding, Group, Plan, bad, known, not_applicable, ok, size, warn};
use crate::facts::{Facts, Known};
use crate::root::Unread;

/// Files, sockets and rings of an appliance with its feeds, several times over.
const FILES_MIN: u64 = 1_024;

/// What an appliance takes beside its rings, its umem and its state.
const BASE_BYTES: u64 = 128 << 20;

/// From here on stamps of different boxes can't be compared.
const OFFSET_S_MAX: f64 = 0.001;

/// Steps that count: the time between the start and the first devices is in what is compared.
const STEPS_S_MAX: i64 = 5;

/// 2001: a clock that starts before that is none.
const CLOCK_S_MIN: i64 = 1_000_000_000;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "limits-capabilities",
        group: Group::Limits,
        wants: "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON, where AF_XDP is planned",
        why: "the XDP program, which adds a header's length to a packet's address, can't be loaded or attached, or the socket opened, without them",
        cost: Cost::Failure,
        source: "capabilities(7); kernel documentation, networking/af_xdp",
        judge: capabilities,
    },
    Check {
        id: "limits-io-uring",
        group: Group::Limits,
        wants: "io_uring is allowed",
        why: "else the journal writes with plain system calls, one at a time",
        cost: Cost::TensOfMicroseconds,
        source: "kernel documentation, sysctl/kernel (io_uring_disabled)",
        judge: io_uring,
    },
    Check {
        id: "limits-seccomp",
        group: Group::Limits,
        wants: "no filter of system calls, or one that lets io_uring and AF_XDP pass",
        why: "each call runs through the filter; the profiles of containers refuse io_uring",
        cost: Cost::TensOfMicroseconds,
        source: "seccomp(2); Docker's default profile",
        judge: seccomp,
    },
    Check {
        id: "limits-files",
        group: Group::Limits,
        wants: "1024 files may be open",
        why: "segments, sockets and rings are files",
        cost: Cost::Failure,
        source: "getrlimit(2), RLIMIT_NOFILE",
        judge: files,
    },
    Check {
        id: "limits-memory",
        group: Group::Limits,
        wants: "the cgroup has room for rings, umem and 128 MiB beside the state",
        why: "beyond it the kernel reclaims, and then kills",
        cost: Cost::Failure,
        source: "kernel documentation, cgroup-v2 (memory.max)",
        judge: memory,
    },
    Check {
        id: "limits-priority",
        group: Group::Limits,
        wants: "the real-time priority that [runtime] asks for, and 1 where threads wait; or CAP_SYS_NICE",
        why: "a thread that may go first gets its core as soon as there is work, not after somebody's turn",
        cost: Cost::Milliseconds,
        source: "sched(7), RLIMIT_RTPRIO",
        judge: priority,
    },
    Check {
        id: "limits-wakeup",
        group: Group::Limits,
        wants: "/dev/cpu_dma_latency may be written to, where [runtime] holds cores awake",
        why: "else they sleep as deeply as their idle states go, and wake up as late",
        cost: Cost::TensOfMicroseconds,
        source: "kernel documentation, power/pm_qos_interface",
        judge: wakeup,
    },
    Check {
        id: "time-kept",
        group: Group::Time,
        wants: "somebody keeps the clock: chrony, PTP",
        why: "stamps of the log slew towards it, and latencies between boxes are measured by it",
        cost: Cost::Milliseconds,
        source: "chronyd(8), ptp4l(8)",
        judge: kept,
    },
    Check {
        id: "time-offset",
        group: Group::Time,
        wants: "the clock is off by less than 1 ms, and synchronised",
        why: "a clock that is stepped makes the stamps of the log slew for as long",
        cost: Cost::Milliseconds,
        source: "chronyc(1), tracking; pmc(8), TIME_STATUS_NP",
        judge: offset,
    },
    Check {
        id: "time-steps",
        group: Group::Time,
        wants: "the clock was not stepped since the start of the box, by 5 s or more in all",
        why: "a clock that is stepped makes the stamps of the log slew for as long, and what others stamped meanwhile is off by that",
        cost: Cost::Milliseconds,
        source: "proc_stat(5), btime: the clock less the time that the box runs, which slewing leaves alone; when devtmpfs was made",
        judge: steps,
    },
];

fn capabilities(facts: &Facts, plan: &Plan) -> Known<Finding> {
    if plan.bypass_queue.is_none() {
        return not_applicable("no AF_XDP is planned");
    }
    // What CAP_BPF and CAP_PERFMON were split off from has them, too.
    let mut lacking = Vec::new();
    let root = Some("CAP_SYS_ADMIN");
    for (name, or) in [("CAP_NET_RAW", None), ("CAP_NET_ADMIN", None), ("CAP_BPF", root), ("CAP_PERFMON", root)] {
        let mut has = facts.limits.has(name)?;
        if let Some(or) = or {
            has |= facts.limits.has(or)?;
        }
        if !has {
            lacking.push(name);
        }
    }
    if lacking.is_empty() {
        return ok("all four");
    }
    let names = lacking.join(" ");
    bad(
        format!("lacks {names}"),
        format!("AmbientCapabilities={names} in its unit, or setcap; doctor says what it has itself"),
    )
}

fn io_uring(facts: &Facts, _: &Plan) -> Known<Finding> {
    match &facts.limits.io_uring_disabled {
        Ok(0) => ok("allowed"),
        Ok(1) if facts.limits.has("CAP_SYS_ADMIN")? => ok("with CAP_SYS_ADMIN, which this process has"),
        Ok(value) => warn(
            format!("io_uring_disabled is {value}"),
            "sysctl kernel.io_uring_disabled=0, or its group in kernel.io_uring_group",
        ),
        Err(unread) if unread.is_missing() => ok("the kernel does not forbid it"),
        Err(unread) => Err(unread.clone()),
    }
}

fn seccomp(facts: &Facts, _: &Plan) -> Known<Finding> {
    match *known(&facts.limits.seccomp)? {
        0 => ok("no filter"),
        mode => warn(
            format!("filtered, mode {mode}"),
            "a profile that lets io_uring_setup, io_uring_enter, io_uring_register and bpf pass; run says which journal it got",
        ),
    }
}

fn files(facts: &Facts, _: &Plan) -> Known<Finding> {
    match *known(&facts.limits.files_max)? {
        None => ok("no limit"),
        Some(files @ FILES_MIN..) => ok(files.to_string()),
        Some(files) => warn(files.to_string(), format!("LimitNOFILE={FILES_MIN} in its unit")),
    }
}

fn memory(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let wanted = plan.ring_bytes + plan.umem_bytes + BASE_BYTES;
    match *known(&facts.limits.cgroup_bytes_max)? {
        None => ok("no limit"),
        Some(bytes) if bytes >= wanted => ok(format!("{}, {} are wanted beside the state", size(bytes), size(wanted))),
        Some(bytes) => bad(
            format!("{}, {} are wanted beside the state", size(bytes), size(wanted)),
            format!("MemoryMax= of {} and the state's size", size(wanted)),
        ),
    }
}

fn priority(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let wanted = match plan.runtime.fifo {
        None if plan.spinning.len() == plan.critical.len() => return not_applicable("each stage's thread spins"),
        None => 1,
        Some(priority) => u64::from(priority),
    };
    if facts.limits.has("CAP_SYS_NICE")? {
        return ok("CAP_SYS_NICE");
    }
    match *known(&facts.limits.real_time_max)? {
        None => ok("no limit"),
        Some(priority) if priority < wanted => warn(
            format!("{priority}, {wanted} is wanted"),
            format!("LimitRTPRIO={wanted}, or AmbientCapabilities=CAP_SYS_NICE, in its unit"),
        ),
        Some(priority) => ok(priority.to_string()),
    }
}

fn wakeup(facts: &Facts, plan: &Plan) -> Known<Finding> {
    if plan.runtime.hold_cpu_latency_us.is_none() {
        return not_applicable("[runtime] holds no core awake");
    }
    if *known(&facts.limits.may_hold_awake)? {
        return ok("it may");
    }
    warn(
        "it may not",
        "a udev rule: KERNEL==\"cpu_dma_latency\", GROUP=\"ticktape\", MODE=\"0660\"; tune plan --out writes it",
    )
}

fn kept(facts: &Facts, _: &Plan) -> Known<Finding> {
    let mut found = Vec::new();
    for name in ["chronyd", "ntpd", "ptp4l", "phc2sys", "systemd-timesyn"] {
        if !facts.cores.daemons(name)?.is_empty() {
            found.push(name);
        }
    }
    if found.is_empty() {
        return warn("no daemon that is known here runs", "chrony, or ptp4l and phc2sys where the network has a clock");
    }
    ok(found.join(", "))
}

fn offset(facts: &Facts, _: &Plan) -> Known<Finding> {
    let runs = |name| facts.cores.daemons(name).map(|daemons| !daemons.is_empty());
    if runs("chronyd")? {
        let (seconds, is_synchronised) = facts.time.offset_s()?;
        return judge_offset(seconds, "", is_synchronised, "chronyc sources shows what it hears");
    }
    if runs("ptp4l")? {
        let (seconds, has_master) = facts.time.ptp_offset_s()?;
        let finding = judge_offset(seconds, " of the card's clock", has_master, "pmc -u -b 0 'GET PORT_DATA_SET'");
        // Nobody tells how far the system's clock is off the card's.
        return if runs("phc2sys")? {
            finding
        } else {
            warn("the card's clock is kept, the system's is not", "phc2sys -a -r")
        };
    }
    if runs("systemd-timesyn")? {
        if *known(&facts.time.timesyncd_has_time)? {
            let what = "it has heard the time, and does not tell without being asked how far off the clock is";
            return Err(Unread::malformed("systemd-timesyncd", what));
        }
        return warn("systemd-timesyncd has not heard the time yet", "timedatectl timesync-status; or chrony");
    }
    not_applicable("nobody that tells keeps it")
}

fn steps(facts: &Facts, _: &Plan) -> Known<Finding> {
    let (now, then) = (*known(&facts.time.started_s)?, *known(&facts.time.first_devices_s)?);
    if then < CLOCK_S_MIN {
        return not_applicable("the box had no clock at its start");
    }
    // The first devices come some seconds after the start at the latest.
    let stepped = now.saturating_sub(then);
    if stepped.saturating_abs() < STEPS_S_MAX {
        return ok(format!("by less than {STEPS_S_MAX} s in all"));
    }
    warn(
        format!("by about {stepped} s in all since the start"),
        "start the appliance once the clock is right: After=time-sync.target, chronyc waitsync; and steps only at the start: makestep 1 3",
    )
}

fn judge_offset(seconds: f64, of: &str, is_synchronised: bool, look: &str) -> Known<Finding> {
    let read = format!("{:.1} µs{of}", seconds * 1e6);
    if !is_synchronised {
        return warn(format!("{read}, not synchronised"), look);
    }
    if seconds.abs() > OFFSET_S_MAX { warn(read, "nearer sources, or PTP") } else { ok(read) }
}
