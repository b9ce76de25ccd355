mod rubbish;

use std::path::{Path, PathBuf};

use super::*;
use crate::root::{Recording, Root};
use proptest::prelude::*;

/// A box of `tuning/fixtures`.
pub(crate) fn fixture(name: &str) -> Recording {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/{name}.txt"));
    std::fs::read_to_string(path).unwrap().parse().unwrap()
}

/// The plan that most of them are looked at with.
pub(crate) fn plan() -> Plan {
    Plan {
        critical: vec![4, 5, 6],
        spinning: vec![4, 5, 6],
        writing: vec![5],
        interface: Some("eth1".to_owned()),
        port: 7_001,
        bypass_queue: Some(0),
        bypass_lacking: None,
        is_busy_polling: true,
        is_multicast: true,
        datagram_bytes_max: 1_472,
        socket_buffer_bytes: 4 << 20,
        directory: PathBuf::from("/data/journal"),
        disk_bytes_min: 256 << 20,
        ring_bytes: 4 << 20,
        ring_dir: Some(PathBuf::from("/dev/shm")),
        capture_dir: None,
        umem_bytes: 16 << 20,
        runtime: Wishes::default(),
        feed_interfaces: None,
    }
}

fn report(recording: &Recording, plan: &Plan) -> Report {
    let root = Root::recorded(recording.clone());
    let facts = plan.look(&root);
    assert_eq!(plan.check(&facts), Ok(()));
    examine(&facts, plan)
}

/// All that was found, to be compared with what is kept beside the box.
fn table(report: &Report) -> String {
    let line = |outcome: &Outcome| {
        let Finding { verdict, read, fix } = &outcome.finding;
        let arrow = if fix.is_empty() { String::new() } else { format!(" => {fix}") };
        format!("{verdict:14} {:24} {read}{arrow}\n", outcome.check.id)
    };
    report.outcomes().iter().map(line).collect()
}

pub(crate) fn boxes() -> [(&'static str, Plan); 6] {
    let container = Plan {
        critical: vec![8, 9],
        spinning: Vec::new(),
        writing: Vec::new(),
        interface: Some("eth0".to_owned()),
        bypass_queue: None,
        is_busy_polling: false,
        umem_bytes: 0,
        ..plan()
    };
    let guest = Plan { critical: vec![0, 1], directory: PathBuf::from("/"), ring_dir: None, ..container.clone() };
    [
        ("intel-tuned", plan()),
        ("intel-untuned", plan()),
        ("amd-chiplets", Plan { critical: vec![6, 7, 8, 9], spinning: vec![6, 7, 8], ..plan() }),
        ("container", container),
        ("without-xdp", plan()),
        ("guest", guest),
    ]
}

#[test]
fn each_box_has_its_verdicts() {
    for (name, plan) in boxes() {
        let found = table(&report(&fixture(name), &plan));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/{name}.verdicts"));
        if std::env::var_os("TICKTAPE_WRITE_GOLDEN").is_some() {
            std::fs::write(&path, &found).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap();
        for (found, expected) in found.lines().zip(expected.lines()) {
            assert_eq!(found, expected, "{name}");
        }
        assert_eq!(found.lines().count(), expected.lines().count(), "{name}");
    }
}

#[test]
fn a_tuned_box_has_nothing_wrong() {
    let report = report(&fixture("intel-tuned"), &plan());
    let wrong: Vec<_> = report.worst_first().iter().map(|o| (o.check.id, &o.finding)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(report.count(Verdict::CantTell), 0, "{}", table(&report));
}

/// Ten mistakes, each alone in a box that is otherwise as it should be, and the check that has to find it.
pub(crate) const MISTAKES: [(&str, Verdict, &str); 10] = [
    ("cores-isolated", Verdict::Bad, "== sys/devices/system/cpu/isolated\n4,6-7\n"),
    (
        "interrupts-nic",
        Verdict::Bad,
        "== proc/interrupts\nCPU0 CPU4\n 60: 0 812231 IR-PCI-MSIX-0000:17:00.0 1-edge ice-eth1-TxRx-0\n== proc/irq/60/effective_affinity_list\n4\n",
    ),
    ("cores-smt", Verdict::Bad, "== sys/devices/system/cpu/cpu4/topology/thread_siblings_list\n4,8\n"),
    ("memory-thp", Verdict::Warn, "== sys/kernel/mm/transparent_hugepage/enabled\n[always] madvise never\n"),
    ("power-governor", Verdict::Bad, "== sys/devices/system/cpu/cpu5/cpufreq/scaling_governor\npowersave\n"),
    (
        "memory-locked",
        Verdict::Bad,
        "== proc/self/status\nCapEff:\t000000c000003000\nSeccomp:\t0\nCpus_allowed_list:\t0-31\n== proc/self/limits\nMax open files 65536 65536 files\nMax locked memory 8388608 8388608 bytes\nMax realtime priority 10 10\n",
    ),
    (
        "network-spread",
        Verdict::Bad,
        "== ticktape/ethtool-x-eth1.txt\nRX flow hash indirection table for eth1 with 2 RX ring(s):\n    0:      0     1     0     1\nRSS hash key:\n",
    ),
    (
        "interrupts-irqbalance",
        Verdict::Bad,
        "== ticktape/threads.txt\n900 user other 0-3,8-31 irqbalance irqbalance\n1200 user other 0-3,8-31 chronyd chronyd\n",
    ),
    ("memory-swap", Verdict::Warn, "== proc/meminfo\nSwapTotal: 8388604 kB\nSwapFree: 8388604 kB\n"),
    (
        "interrupts-disk",
        Verdict::Bad,
        "== proc/interrupts\nCPU0 CPU5\n 95: 0 71234 IR-PCI-MSIX-0000:65:00.0 5-edge nvme0q5\n== proc/irq/95/effective_affinity_list\n5\n",
    ),
];

#[test]
fn each_of_ten_mistakes_is_found_and_named_first() {
    for (id, verdict, change) in MISTAKES {
        let report = report(&fixture("intel-tuned").with(&change.parse().unwrap()), &plan());
        let first = report.worst_first().into_iter().next().unwrap_or_else(|| panic!("{id} is not found"));
        assert_eq!((first.check.id, first.finding.verdict), (id, verdict), "{}", table(&report));
        assert!(!first.finding.fix.is_empty(), "{id} has no remedy");
        assert_eq!(report.worst_first().len(), 1, "{id}: {}", table(&report));
    }
}

#[test]
fn what_is_costlier_is_named_before() {
    let all: Recording = MISTAKES
        .iter()
        .filter(|(id, ..)| !id.starts_with("interrupts-nic"))
        .map(|(.., change)| *change)
        .collect::<String>()
        .parse()
        .unwrap();
    let report = report(&fixture("intel-tuned").with(&all), &plan());
    let order: Vec<_> = report.worst_first().iter().map(|o| (o.finding.verdict, o.check.cost)).collect();
    assert!(order.len() >= 9 && order.is_sorted_by(|a, b| a >= b), "{order:?}");
    assert_eq!(report.worst_first()[0].check.id, "memory-locked", "an appliance that does not start");
    assert_eq!(report.worst(), Verdict::Bad);
}

#[test]
fn there_are_checks_of_every_group_with_names_of_their_own() {
    let ids: std::collections::BTreeSet<_> = checks().map(|check| check.id).collect();
    assert_eq!(ids.len(), checks().count());
    assert!(ids.len() >= 40, "{}", ids.len());
    let groups: Vec<_> = checks().map(|check| check.group).collect();
    assert!(groups.is_sorted(), "{groups:?}");
    for check in checks() {
        assert!(!check.wants.is_empty() && !check.why.is_empty() && !check.source.is_empty(), "{}", check.id);
        assert!(check.id.starts_with(check.group.name()), "{}", check.id);
    }
}

/// Every check can say no: over all boxes and mistakes, and these besides, each has warned once at least.
pub(crate) const OTHERS: &[&str] = &[
    "== ticktape/ethtool-n-eth1.txt\nTotal 1 rules\n\nFilter: 1\n\tRule Type: UDP over IPv4\n\tDest port: 7001 mask: 0x0\n\tAction: Direct to queue 1\n",
    "== proc/net/igmp\n4 eth1: 2 V1\n",
    "== ticktape/napi-eth1.txt\n513 2 200000 0\n514 2 200000 20000000\n",
    "== sys/dev/block/259:5 -> ../../devices/virtual/block/dm-0\n== sys/block/dm-0/dm/uuid\nCRYPT-LUKS2-x\n== sys/block/dm-0/slaves/nvme0n1p5/\n== sys/class/block/nvme0n1p5 -> ../../devices/nvme/nvme0/nvme0n1/nvme0n1p5\n",
    "== sys/devices/system/cpu/cpu4/cache/index3/shared_cpu_list\n4\n== sys/devices/system/node/node0/cpulist\n0-3,5-15\n== sys/devices/system/node/node1/cpulist\n4,16-31\n",
    "== sys/devices/system/node/node0/cpulist\n0-3\n== sys/devices/system/node/node1/cpulist\n4-31\n== sys/devices/system/cpu/intel_pstate/no_turbo\n1\n",
    "== sys/kernel/mm/transparent_hugepage/defrag\n[always] defer never\n== sys/kernel/mm/ksm/run\n1\n== proc/sys/vm/zone_reclaim_mode\n1\n",
    "== sys/devices/system/clocksource/clocksource0/current_clocksource\nhpet\n== proc/cpuinfo\nflags : constant_tsc\n== proc/sys/kernel/version\n#1 SMP PREEMPT_RT\n",
    "== proc/sys/kernel/timer_migration\n0\n== proc/sys/kernel/sched_rt_runtime_us\n-1\n== proc/sys/net/ipv4/igmp_max_memberships\n10\n",
    "== sys/class/net/eth1/operstate\ndown\n== sys/class/net/eth1/carrier_down_count\n90\n== sys/class/net/eth1/queues/rx-1/rps_cpus\n00000000,00000030\n",
    "== proc/net/softnet_stat\n00012000 00000011 00000003\n== proc/sys/net/core/netdev_max_backlog\n1000\n== ticktape/ethtool-k-eth1.txt\nlarge-receive-offload: on\n",
    "== sys/block/nvme0n1/queue/write_cache\nwrite back\n== sys/block/nvme0n1/queue/logical_block_size\n65536\n== sys/block/nvme0n1/queue/scheduler\nnone [mq-deadline]\n",
    "== sys/block/nvme0n1/mq/{4-31}/ !missing\n== ticktape/space.txt\n100 960000000000\n",
    "== proc/self/mountinfo\n0 0 259:5 / /data rw,nobarrier - xfs - -\n0 0 0:25 / /dev/shm rw - tmpfs - -\n",
    "== ticktape/threads.txt\n9 user fifo 4-5 feedhandler rx\n22 kernel other 0-31 kthreadd kthreadd\n",
    "== ticktape/chrony-tracking.txt\nSystem time : 0.5 seconds slow of NTP time\nLeap status : Not synchronised\n",
    "== proc/cpuinfo\nflags : constant_tsc nonstop_tsc hypervisor\n== proc/stat\ncpu4 800000 0 1000 100 0 0 0 9000 0 0\n",
    "== proc/stat\nbtime 1700000100\n== ticktape/first-devices.txt\n1700000001\n",
    "== proc/self/limits\nMax open files 64 64 files\nMax locked memory unlimited unlimited bytes\nMax realtime priority 10 10\n",
];

#[test]
fn every_check_can_say_no() {
    let mut warned = std::collections::BTreeSet::new();
    let mut note = |report: &Report| warned.extend(report.worst_first().iter().map(|o| o.check.id));
    for (name, plan) in boxes() {
        note(&report(&fixture(name), &plan));
    }
    let tuned = fixture("intel-tuned");
    for change in OTHERS.iter().copied().chain(MISTAKES.iter().map(|(.., change)| *change)) {
        note(&report(&tuned.clone().with(&change.parse().unwrap()), &plan()));
    }
    let everywhere = Plan { critical: (0..32).collect(), spinning: (0..32).collect(), ..plan() };
    note(&report(&tuned, &everywhere));
    let awake = Plan { runtime: Wishes { hold_cpu_latency_us: Some(0), ..Wishes::default() }, ..plan() };
    note(&report(&tuned.with(&"== ticktape/cpu-dma-latency-write.txt\nno\n".parse().unwrap()), &awake));
    let silent: Vec<_> = checks().map(|check| check.id).filter(|id| !warned.contains(id)).collect();
    assert!(silent.is_empty(), "{silent:?}");
}

/// What one check finds on a tuned box with a change.
fn found(id: &str, change: &str) -> Finding {
    found_for(&plan(), id, change)
}

fn found_for(plan: &Plan, id: &str, change: &str) -> Finding {
    let report = report(&fixture("intel-tuned").with(&change.parse().unwrap()), plan);
    report.outcomes().iter().find(|outcome| outcome.check.id == id).unwrap().finding.clone()
}

#[test]
fn a_clock_that_is_its_own_source_is_kept_by_nobody() {
    let tracking = |id: &str| {
        let text =
            format!("Reference ID : {id}\nSystem time : 0.000000000 seconds fast of NTP time\nLeap status : Normal\n");
        found("time-offset", &format!("== ticktape/chrony-tracking.txt\n{text}")).verdict
    };
    assert_eq!(tracking("A29FC87B (192.0.2.1)"), Verdict::Ok);
    assert_eq!(tracking("7F7F0101 ()"), Verdict::Warn);
}

#[test]
fn a_filter_of_the_port_goes_before_the_hash() {
    // Its hash spreads over both queues.
    let box_with = |port: &str, queue: u32, is_on: &str| {
        format!(
            "== sys/class/net/eth1/queues/rx-1/rps_cpus\n0\n== ticktape/ethtool-x-eth1.txt\nRX flow hash\n    0:      0     1\nRSS hash key:\n\
             == ticktape/ethtool-k-eth1.txt\nlarge-receive-offload: off\nntuple-filters: {is_on}\n\
             == ticktape/ethtool-n-eth1.txt\nTotal 2 rules\n\nFilter: 0\n\tRule Type: TCP over IPv4\n\tDest port: 7001 mask: 0x0\n\tAction: Drop\n\n\
             Filter: 9\n\tRule Type: UDP over IPv4\n\tSrc port: 0 mask: 0xffff\n\tDest port: {port}\n\tAction: Direct to queue {queue}\n"
        )
    };
    for (port, queue, is_on, verdict, spread) in [
        ("7001 mask: 0x0", 0, "on", Verdict::Ok, Verdict::NotApplicable),
        // All ports of which the upper twelve bits are the same.
        ("7008 mask: 0xf", 0, "on", Verdict::Ok, Verdict::Bad),
        ("7000 mask: 0xf", 0, "on", Verdict::Ok, Verdict::NotApplicable),
        ("7001 mask: 0x0", 0, "off", Verdict::Warn, Verdict::NotApplicable),
        ("7001 mask: 0x0", 1, "on", Verdict::Bad, Verdict::Bad),
        ("7002 mask: 0x0", 1, "on", Verdict::Ok, Verdict::Bad),
    ] {
        let change = box_with(port, queue, is_on);
        let both = ["network-filters", "network-spread"].map(|id| found(id, &change).verdict);
        assert_eq!(both, [verdict, spread], "{port} {queue} {is_on}");
    }
}

#[test]
fn each_keeper_of_the_clock_is_asked_in_its_own_way() {
    let kept_by = |daemon: &str, more: &str| {
        found("time-offset", &format!("== ticktape/threads.txt\n9 user other 0-3 {daemon} {daemon}\n{more}"))
    };
    let ptp = |ns: &str, has_master: bool| {
        let status = format!("== ticktape/ptp-status.txt\nmaster_offset {ns}\ngmPresent {has_master}\n");
        kept_by("ptp4l", &format!("8 user other 0-3 phc2sys phc2sys\n{status}"))
    };
    let near = ptp("-120", true);
    assert_eq!((near.verdict, near.read.as_str()), (Verdict::Ok, "-0.1 µs of the card's clock"));
    assert_eq!(ptp("-1200000", true).verdict, Verdict::Warn);
    assert_eq!(ptp("5", false).verdict, Verdict::Warn);
    assert_eq!(ptp("?", true).verdict, Verdict::CantTell);
    let alone = kept_by("ptp4l", "== ticktape/ptp-status.txt\nmaster_offset 5\ngmPresent true\n");
    assert_eq!((alone.verdict, alone.fix.as_str()), (Verdict::Warn, "phc2sys -a -r"));
    let timesyncd = |there: &str| kept_by("systemd-timesyn", there).verdict;
    assert_eq!(timesyncd("== run/systemd/timesync/lock/\n"), Verdict::Warn);
    assert_eq!(timesyncd("== run/systemd/timesync/synchronized/\n"), Verdict::CantTell);
    assert_eq!(timesyncd(""), Verdict::CantTell);
    assert_eq!(kept_by("ntpd", "").verdict, Verdict::NotApplicable);
}

#[test]
fn where_the_ring_is_decides_what_gives_it_huge_pages() {
    let verdict = |ring_dir: Option<&str>, enabled: &str, shared: &str, mount: &str| {
        let change = format!(
            "== sys/kernel/mm/transparent_hugepage/enabled\n{enabled}\n== sys/kernel/mm/transparent_hugepage/shmem_enabled\n{shared}\n\
             == proc/self/mountinfo\n0 0 259:5 / /data rw - xfs - -\n0 0 0:25 / /dev/shm rw,{mount} - tmpfs - -\n"
        );
        let plan = Plan { ring_dir: ring_dir.map(PathBuf::from), ..plan() };
        let report = report(&fixture("intel-tuned").with(&change.parse().unwrap()), &plan);
        report.outcomes().iter().find(|outcome| outcome.check.id == "memory-ring-pages").unwrap().finding.verdict
    };
    // In the process's own memory the setting for shared memory says nothing, and the other way round.
    assert_eq!(verdict(None, "[madvise]", "[never]", "x"), Verdict::Ok);
    assert_eq!(verdict(None, "[never]", "[always]", "huge=always"), Verdict::Warn);
    let file = Some("/dev/shm");
    assert_eq!(verdict(file, "[never]", "[never]", "huge=within_size"), Verdict::Ok);
    assert_eq!(verdict(file, "[never]", "[never]", "huge=always"), Verdict::Ok);
    assert_eq!(verdict(file, "[madvise]", "[advise]", "huge=advise"), Verdict::Warn);
    assert_eq!(verdict(file, "[madvise]", "[advise]", "nosuid"), Verdict::Warn);
    assert_eq!(verdict(file, "[madvise]", "[deny]", "huge=always"), Verdict::Warn);
    assert_eq!(verdict(file, "[madvise]", "[force]", "huge=never"), Verdict::Ok);
    assert_eq!(verdict(Some("/data/rings"), "[madvise]", "[never]", "x"), Verdict::NotApplicable);
}

#[test]
fn a_cgroup_that_is_kept_from_swap_has_no_harm_of_it() {
    let swap = "== proc/meminfo\nSwapTotal: 8388604 kB\nSwapFree: 8380412 kB\n";
    let with = |at: &str, max: &str, current: &str| {
        let cgroup = format!(
            "== sys/fs/cgroup{at}/memory.swap.max\n{max}\n== sys/fs/cgroup{at}/memory.swap.current\n{current}\n"
        );
        found("memory-swap", &format!("{swap}== proc/self/cgroup\n0::/a.slice/b.scope\n{cgroup}")).verdict
    };
    assert_eq!(with("/a.slice/b.scope", "0", "0"), Verdict::Ok);
    assert_eq!(with("/a.slice", "0", "0"), Verdict::Ok, "a limit holds for all below it");
    assert_eq!(with("/system.slice/ticktape.service", "0", "0"), Verdict::Ok);
    assert_eq!(with("/c.slice", "0", "0"), Verdict::Bad, "somebody else's");
    assert_eq!(with("/a.slice", "max", "0"), Verdict::Bad);
    assert_eq!(with("/a.slice", "4096", "0"), Verdict::Bad);
    assert_eq!(with("/a.slice", "0", "8192"), Verdict::Bad, "it is there already");
    assert_eq!(with("/a.slice", "?", "0"), Verdict::Bad);
}

#[test]
fn a_partition_isolates_as_the_command_line_does() {
    let with = |kind: &str, cores: &str| {
        let partition = format!(
            "== sys/fs/cgroup/rt.slice/cpuset.cpus.partition\n{kind}\n== sys/fs/cgroup/rt.slice/cpuset.cpus.effective\n{cores}\n"
        );
        found("cores-isolated", &format!("== sys/devices/system/cpu/isolated\n\n{partition}")).verdict
    };
    assert_eq!(with("isolated", "4-7"), Verdict::Ok);
    assert_eq!(with("root", "4-7"), Verdict::Warn);
    assert_eq!(with("isolated", "4-5"), Verdict::Bad);
    assert_eq!(with("member", "4-7"), Verdict::Bad);
}

#[test]
fn packets_dropped_before_there_was_room_are_history() {
    let backlog = |room: u64, dropped: u64| {
        let change = format!(
            "== proc/net/softnet_stat\n00012000 {dropped:08x} 00000003\n== proc/sys/net/core/netdev_max_backlog\n{room}\n"
        );
        let Finding { verdict, read, .. } = found("network-backlog", &change);
        (verdict, read)
    };
    assert_eq!(backlog(1_000, 17), (Verdict::Warn, "room for 1000; 17 dropped since the start".to_owned()));
    assert_eq!(backlog(4_096, 17), (Verdict::Ok, "room for 4096; 17 dropped since the start".to_owned()));
    assert_eq!(backlog(1_000, 0).0, Verdict::Ok);
}

#[test]
fn a_clock_that_was_stepped_is_told_where_the_box_tells() {
    let steps = |now: &str, then: &str| {
        let finding =
            found("time-steps", &format!("== proc/stat\nbtime {now}\n== ticktape/first-devices.txt\n{then}\n"));
        (finding.verdict, finding.read)
    };
    assert_eq!(steps("1700000000", "1700000002").0, Verdict::Ok);
    assert_eq!(steps("1700000000", "1699996400"), (Verdict::Warn, "by about 3600 s in all since the start".to_owned()));
    assert_eq!(steps("1699996400", "1700000000").0, Verdict::Warn);
    assert_eq!(steps("1700000000", "3").0, Verdict::NotApplicable);
    assert_eq!(steps("x", "1700000000").0, Verdict::CantTell);
    assert_eq!(
        found("time-steps", "== proc/stat\nbtime 1700000000\n== ticktape/first-devices.txt !missing\n").verdict,
        Verdict::CantTell
    );
}

#[test]
fn what_the_kernel_never_says_is_not_taken_for_an_answer() {
    for rubbish in ["", "-1", "\u{1}\u{2}x\u{7f}"] {
        for (id, path) in [
            ("memory-thp", "sys/kernel/mm/transparent_hugepage/enabled"),
            ("memory-thp-defrag", "sys/kernel/mm/transparent_hugepage/defrag"),
            ("memory-ring-pages", "sys/kernel/mm/transparent_hugepage/shmem_enabled"),
            ("kernel-preemption", "proc/sys/kernel/version"),
            ("kernel-mitigations", "sys/devices/system/cpu/vulnerabilities/meltdown"),
            ("disk-scheduler", "sys/block/nvme0n1/queue/scheduler"),
        ] {
            let finding = found(id, &format!("== {path}\n{rubbish}\n"));
            assert_eq!(finding.verdict, Verdict::CantTell, "{id} {rubbish:?}: {finding:?}");
        }
    }
}

/// A process with these rights and limits.
fn process(capabilities: u64, locked: &str, priority: u8) -> String {
    format!(
        "== proc/self/status\nCapEff:\t{capabilities:016x}\nSeccomp:\t0\nCpus_allowed_list:\t0-31\n== proc/self/limits\n\
         Max open files 65536 65536 files\nMax locked memory {locked} {locked} bytes\nMax realtime priority {priority} {priority}\n"
    )
}

#[test]
fn each_right_that_af_xdp_takes_is_asked_for() {
    let all: u64 = 1 << 12 | 1 << 13 | 1 << 38 | 1 << 39;
    assert_eq!(found("limits-capabilities", &process(all, "unlimited", 0)).verdict, Verdict::Ok);
    for (bit, name) in [(12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW"), (38, "CAP_PERFMON"), (39, "CAP_BPF")] {
        let finding = found("limits-capabilities", &process(all & !(1 << bit), "unlimited", 0));
        assert_eq!((finding.verdict, finding.read), (Verdict::Bad, format!("lacks {name}")));
    }
}

#[test]
fn what_the_runtime_wishes_for_is_judged_as_it_is_asked_for() {
    let wishing = |runtime: Wishes, id: &str, change: &str| {
        let Finding { verdict, read, fix } = found_for(&Plan { runtime, ..plan() }, id, change);
        assert!(verdict <= Verdict::Ok || !fix.is_empty(), "{id}: {read}");
        (verdict, fix)
    };
    let fifo = |priority| Wishes { fifo: Some(priority), ..Wishes::default() };
    let (verdict, fix) = wishing(fifo(50), "limits-priority", &process(0, "unlimited", 1));
    assert!(verdict == Verdict::Warn && fix.starts_with("LimitRTPRIO=50,"), "{fix}");
    assert_eq!(wishing(fifo(50), "limits-priority", &process(0, "unlimited", 50)).0, Verdict::Ok);
    assert_eq!(wishing(fifo(50), "limits-priority", &process(1 << 23, "unlimited", 0)).0, Verdict::Ok);
    assert_eq!(wishing(Wishes::default(), "limits-priority", &process(0, "unlimited", 0)).0, Verdict::NotApplicable);

    let locks = Wishes { locks_memory: true, ..Wishes::default() };
    // Any limit is one that memory would meet later.
    assert_eq!(wishing(locks, "memory-locked", &process(0, "8388608", 0)).0, Verdict::Bad);
    assert_eq!(wishing(locks, "memory-locked", &process(0, "68719476736", 0)).0, Verdict::Warn);
    assert_eq!(wishing(locks, "memory-locked", &process(0, "unlimited", 0)).0, Verdict::Ok);
    assert_eq!(wishing(locks, "memory-locked", &process(1 << 14, "8388608", 0)).0, Verdict::Ok);
    assert_eq!(wishing(Wishes::default(), "memory-locked", &process(0, "68719476736", 0)).0, Verdict::Ok);

    let holds = Wishes { hold_cpu_latency_us: Some(0), ..Wishes::default() };
    let may = |word: &str| format!("== ticktape/cpu-dma-latency-write.txt\n{word}\n");
    assert_eq!(wishing(holds, "limits-wakeup", &may("yes")).0, Verdict::Ok);
    assert!(wishing(holds, "limits-wakeup", &may("no")).1.contains("cpu_dma_latency"));
    assert_eq!(wishing(Wishes::default(), "limits-wakeup", &may("no")).0, Verdict::NotApplicable);
    let deep = "== sys/devices/system/cpu/cpu4/cpuidle/state0/name\nC6\n== sys/devices/system/cpu/cpu4/cpuidle/state0/latency\n133\n\
                == sys/devices/system/cpu/cpu4/cpuidle/state0/disable\n0\n";
    for (us, word, verdict) in [(0, "yes", Verdict::Ok), (0, "no", Verdict::Warn), (500, "yes", Verdict::Warn)] {
        let runtime = Wishes { hold_cpu_latency_us: Some(us), ..Wishes::default() };
        let waiting = Plan { critical: vec![4], spinning: Vec::new(), runtime, ..plan() };
        let change = format!("{deep}{}== ticktape/cpu-dma-latency.txt !missing\n", may(word));
        assert_eq!(found_for(&waiting, "power-sleep", &change).verdict, verdict, "{us} {word}");
    }
}

#[test]
fn feeds_are_judged_by_the_interfaces_that_they_leave_by() {
    let other = "== sys/class/net/eth2.5/operstate\nup\n== sys/class/net/eth2.5/mtu\n1000\n== proc/net/igmp\n4 eth2.5: 2 V1\n4 eth1: 2 V3\n\
         == proc/sys/net/ipv4/conf/all/rp_filter\n0\n== proc/sys/net/ipv4/conf/eth2.5/rp_filter\n1\n== proc/sys/net/ipv4/conf/eth1/rp_filter\n0\n";
    let by = |names: Option<&[&str]>| Plan {
        feed_interfaces: names.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
        ..plan()
    };
    for (names, expected) in [
        (None, [Verdict::Ok, Verdict::Ok, Verdict::NotApplicable]),
        (Some(&["eth1"][..]), [Verdict::Ok, Verdict::Ok, Verdict::NotApplicable]),
        (Some(&["eth2.5"]), [Verdict::Warn, Verdict::Warn, Verdict::Warn]),
        (Some(&["eth1", "eth2.5"]), [Verdict::Warn, Verdict::Warn, Verdict::Warn]),
        (Some(&[]), [Verdict::NotApplicable; 3]),
    ] {
        let found = ["network-reverse-path", "network-igmp", "network-fragments"]
            .map(|id| found_for(&by(names), id, other).verdict);
        assert_eq!(found, expected, "{names:?}");
    }
    // There are dots in a VLAN's name, so slashes are between.
    let fix = found_for(&by(Some(&["eth2.5"])), "network-reverse-path", other).fix;
    assert_eq!(fix, "sysctl net/ipv4/conf/eth2.5/rp_filter=2");
    let root = Root::recorded(fixture("intel-tuned"));
    let gone = by(Some(&["eth9"]));
    assert_eq!(gone.check(&gone.look(&root)), Err(PlanFlaw::NoSuchInterface("eth9".into())));
}

#[test]
fn where_no_core_is_left_no_command_is_made_of_none() {
    for (name, plan) in boxes() {
        let root = Root::recorded(fixture(name));
        let online = plan.look(&root).cores.online.unwrap();
        let plan = Plan { critical: online.clone(), spinning: online, ..plan };
        let report = examine(&plan.look(&root), &plan);
        for Outcome { check, finding } in report.outcomes() {
            assert!(!finding.fix.contains("  ") && !finding.fix.contains("echo >"), "{name} {}: {finding:?}", check.id);
            for impossible in ["isolcpus=managed_irq,domain", "nohz_full=", "rcu_nocbs=", "a mask without them"] {
                assert!(!finding.fix.contains(impossible), "{name} {}: {finding:?}", check.id);
            }
        }
    }
    let isolated = found("cores-isolated", "== sys/devices/system/cpu/isolated\n5-7\n");
    assert!(isolated.fix.ends_with("domain,4-7"), "what is isolated stays so: {isolated:?}");
}

#[test]
fn a_plan_that_the_box_can_not_have_is_refused_by_name() {
    let root = Root::recorded(fixture("intel-tuned"));
    let flaw = |plan: Plan| plan.check(&plan.look(&root)).unwrap_err();
    assert_eq!(flaw(Plan { critical: vec![4, 99], ..plan() }), PlanFlaw::NoSuchCore(99));
    assert_eq!(flaw(Plan { critical: vec![4, 40], ..plan() }), PlanFlaw::Offline(40));
    assert_eq!(flaw(Plan { critical: vec![4, 5, 4], ..plan() }), PlanFlaw::Twice(4));
    assert_eq!(flaw(Plan { interface: Some("eth9".into()), ..plan() }), PlanFlaw::NoSuchInterface("eth9".into()));
}

#[test]
fn of_a_box_that_tells_nothing_nothing_is_wrong() {
    let root = Root::recorded(Recording::default());
    let facts = Facts::read(&root, None, Path::new("/data"));
    let report = examine(&facts, &Plan { interface: None, ..plan() });
    let claimed: Vec<_> =
        report.outcomes().iter().filter(|o| o.finding.verdict == Verdict::Bad).map(|o| o.check.id).collect();
    assert!(claimed.is_empty(), "{claimed:?}");
    assert!(report.count(Verdict::CantTell) > 40, "{}", table(&report));
}

/// A box with some of its files full of garbage.
fn spoilt(name: &str, garbage: &[String]) -> Recording {
    let mut at = 0;
    let lines = fixture(name).to_string();
    let spoil = |entry: &str| {
        at += 1;
        match garbage.get(at % (garbage.len() * 2)) {
            Some(garbage) => format!("== {}\n{garbage}\n", entry.lines().next().unwrap()),
            None => format!("== {entry}"),
        }
    };
    let plain = |entry: &&str| {
        let head = entry.lines().next().unwrap_or_default();
        !head.ends_with('/') && !head.contains(" !") && !head.contains(" -> ")
    };
    let text: String = lines.split("== ").skip(1).filter(plain).map(spoil).collect();
    text.parse().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn garbage_in_any_file_is_no_panic(
        garbage in prop::collection::vec(
            "([0-9a-f,:x/ \n%é-]|cpu|CPU0|18446744073709551615|seconds|Udp:|RX|Current hardware settings|kB|::/){0,30}", 7)
    ) {
        for (name, plan) in boxes() {
            let root = Root::recorded(spoilt(name, &garbage));
            let facts = plan.look(&root);
            prop_assert_eq!(examine(&facts, &plan).outcomes().len(), checks().count());
        }
    }
}
