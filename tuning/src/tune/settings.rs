//! What can change while the box runs: each setting, the check that asks for it, and why.
//!
//! The order is that in which they are written; given back they are in reverse. A setting that another one moves stands before it.

use super::{Form, mask};
use crate::doctor::Plan;
use crate::doctor::interrupts::struck;
use crate::doctor::network::feeds;
use crate::facts::cpu_list::{common, list, without};
use crate::facts::interrupts::Interrupt;
use crate::facts::power::{CorePower, IdleState};
use crate::facts::{Facts, Known};
use crate::pin;
use crate::root::Root;

/// Sleep states from here on are deep, as the check has it.
const DEEP_US: u64 = 10;

/// What a setting is worked out from.
pub(super) struct Situation<'a> {
    pub facts: &'a Facts,
    pub plan: &'a Plan,
    pub root: &'a Root,
    /// Cores for everything that is not a stage; empty where none are left.
    pub others: &'a [usize],
}

/// A path, and the value that it is to have.
pub(super) type Wanted = (String, String);

/// A row of the table.
pub(super) struct Setting {
    /// The check that asks for it.
    pub check: &'static str,
    pub form: Form,
    pub why: &'static str,
    pub wanted: fn(&Situation<'_>) -> Vec<Wanted>,
}

/// All of them.
pub(super) const SETTINGS: &[Setting] = &[
    // With the governor performance, drivers refuse to be told a preference: so that comes first, and goes back last.
    Setting {
        check: "power-bias",
        form: Form::Word,
        why: "where the hardware picks frequencies, speed goes before thrift",
        wanted: bias,
    },
    Setting {
        check: "power-governor",
        form: Form::Word,
        why: "a stage's core keeps its frequency while it waits",
        wanted: governor,
    },
    Setting {
        check: "power-turbo",
        form: Form::Word,
        why: "few busy cores may run faster than all could",
        wanted: turbo,
    },
    Setting { check: "power-cap", form: Form::Word, why: "a stage's core may run as fast as it can", wanted: cap },
    Setting {
        check: "power-sleep",
        form: Form::Word,
        why: "a stage's core that waits wakes up within 10 µs",
        wanted: sleep,
    },
    Setting {
        check: "interrupts-default",
        form: Form::Mask,
        why: "interrupts of devices that come stay off stages' cores",
        wanted: default_interrupts,
    },
    Setting {
        check: "interrupts-disk",
        form: Form::List,
        why: "the disk's completions don't wait for a spinning stage",
        wanted: disk_interrupts,
    },
    Setting {
        check: "interrupts-nic",
        form: Form::List,
        why: "the card's interrupts don't take a spinning stage's core",
        wanted: nic_interrupts,
    },
    Setting {
        check: "interrupts-other",
        form: Form::List,
        why: "other devices' interrupts don't take a spinning stage's core",
        wanted: other_interrupts,
    },
    Setting {
        check: "interrupts-steering",
        form: Form::Mask,
        why: "the kernel passes no packets on to a stage's core",
        wanted: steering,
    },
    Setting {
        check: "interrupts-workqueues",
        form: Form::Mask,
        why: "unbound work of the kernel stays off stages' cores",
        wanted: workqueues,
    },
    Setting {
        check: "memory-thp",
        form: Form::Choice,
        why: "huge pages are made only where a program asks",
        wanted: |_| vec![thp("enabled", "madvise")],
    },
    Setting {
        check: "memory-thp-defrag",
        form: Form::Choice,
        why: "no fault stops to make room for a huge page that nobody asked for",
        wanted: |_| vec![thp("defrag", "defer+madvise")],
    },
    Setting {
        check: "memory-ring-pages",
        form: Form::Choice,
        why: "the log ring may have the huge pages that it asks for",
        // How a file system is mounted stands in no file that could be written.
        wanted: |of| if of.plan.ring_dir.is_none() { vec![thp("enabled", "madvise")] } else { Vec::new() },
    },
    Setting { check: "memory-huge-pages", form: Form::Count, why: "the umem lies in huge pages", wanted: huge_pages },
    Setting {
        check: "memory-ksm",
        form: Form::Word,
        why: "no page is merged that a stage would wait to have back",
        wanted: |_| vec![("sys/kernel/mm/ksm/run".into(), "0".into())],
    },
    Setting {
        check: "memory-numa-balancing",
        form: Form::Word,
        why: "no page is taken away to see who uses it",
        wanted: |_| vec![sysctl("kernel/numa_balancing", "0")],
    },
    Setting {
        check: "memory-zone-reclaim",
        form: Form::Word,
        why: "a full node takes memory of another before it writes pages out",
        wanted: |_| vec![sysctl("vm/zone_reclaim_mode", "0")],
    },
    Setting {
        check: "memory-compaction",
        form: Form::Word,
        why: "no page is moved ahead of need",
        wanted: |_| vec![sysctl("vm/compaction_proactiveness", "0")],
    },
    Setting {
        check: "memory-statistics",
        form: Form::Word,
        why: "a stage's core gathers its memory statistics each two minutes",
        wanted: |_| vec![sysctl("vm/stat_interval", "120")],
    },
    Setting {
        check: "kernel-nmi-watchdog",
        form: Form::List,
        why: "lockups are looked for on the other cores alone",
        wanted: watchdogs,
    },
    Setting {
        check: "kernel-soft-watchdog",
        form: Form::List,
        why: "lockups are looked for on the other cores alone",
        wanted: watchdogs,
    },
    Setting {
        check: "kernel-timer-migration",
        form: Form::Word,
        why: "timers leave the core that armed them",
        wanted: |_| vec![sysctl("kernel/timer_migration", "1")],
    },
    Setting {
        check: "kernel-autogroup",
        form: Form::Word,
        why: "the disk's workers don't wait for a session's whole share",
        wanted: |_| vec![sysctl("kernel/sched_autogroup_enabled", "0")],
    },
    Setting {
        check: "kernel-rt-throttling",
        form: Form::Word,
        why: "a runaway real-time thread leaves the core to others now and then",
        wanted: |_| vec![sysctl("kernel/sched_rt_runtime_us", "950000")],
    },
    Setting {
        check: "network-buffers",
        form: Form::Word,
        why: "sockets get the buffers that they ask for",
        wanted: buffers,
    },
    Setting { check: "network-backlog", form: Form::Word, why: "a burst finds room behind the card", wanted: backlog },
    Setting {
        check: "network-busy-polling",
        form: Form::Word,
        why: "interrupts stay off while the kernel polls",
        wanted: busy_polling,
    },
    Setting {
        check: "network-bpf-jit",
        form: Form::Word,
        why: "the XDP program is compiled",
        wanted: |_| vec![sysctl("net/core/bpf_jit_enable", "1")],
    },
    Setting {
        check: "network-reverse-path",
        form: Form::Word,
        why: "a group's sender need not be reachable by this interface",
        wanted: reverse_path,
    },
    Setting {
        check: "network-memberships",
        form: Form::Word,
        why: "a socket may join all groups of the plan",
        wanted: |_| vec![sysctl("net/ipv4/igmp_max_memberships", "20")],
    },
    Setting {
        check: "disk-scheduler",
        form: Form::Choice,
        why: "no write waits in a queue that is made for disks with heads",
        wanted: scheduler,
    },
];

/// What the kernel moves by itself when the setting at `path` is written.
pub(super) fn moved_by(root: &Root, path: &str) -> Vec<String> {
    // A scheduler brings a depth of its own, and its settings leave with it.
    if let Some(queue) = path.strip_suffix("/scheduler").filter(|queue| queue.starts_with("sys/block/")) {
        let names = root.names(&format!("{queue}/iosched")).unwrap_or_default();
        let own = names.iter().map(|name| format!("{queue}/iosched/{name}"));
        return own.chain([format!("{queue}/nr_requests")]).collect();
    }
    // Starting khugepaged anew may raise the memory that is kept free.
    if path.starts_with("sys/kernel/mm/transparent_hugepage/") {
        return vec!["proc/sys/vm/min_free_kbytes".to_owned()];
    }
    Vec::new()
}

fn sysctl(name: &str, value: &str) -> Wanted {
    (format!("proc/sys/{name}"), value.to_owned())
}

fn thp(file: &str, word: &str) -> Wanted {
    (format!("sys/kernel/mm/transparent_hugepage/{file}"), word.to_owned())
}

fn cpu(core: usize, file: &str) -> String {
    format!("sys/devices/system/cpu/cpu{core}/{file}")
}

/// For each core of the plan what `wanted` makes of its settings.
fn each_core(of: &Situation<'_>, wanted: impl Fn(usize, &CorePower) -> Option<Wanted>) -> Vec<Wanted> {
    of.plan.critical.iter().filter_map(|&core| wanted(core, of.facts.power.cores.get(&core)?)).collect()
}

fn governor(of: &Situation<'_>) -> Vec<Wanted> {
    each_core(of, |core, _| Some((cpu(core, "cpufreq/scaling_governor"), "performance".into())))
}

fn cap(of: &Situation<'_>) -> Vec<Wanted> {
    let max = |power: &CorePower| power.hardware_max_khz.as_ref().ok().copied();
    each_core(of, |core, power| Some((cpu(core, "cpufreq/scaling_max_freq"), max(power)?.to_string())))
}

fn turbo(of: &Situation<'_>) -> Vec<Wanted> {
    let (pstate, boost) = ("sys/devices/system/cpu/intel_pstate/no_turbo", "sys/devices/system/cpu/cpufreq/boost");
    let has_pstate = of.root.bytes(pstate).is_ok();
    vec![if has_pstate { (pstate.into(), "0".into()) } else { (boost.into(), "1".into()) }]
}

fn bias(of: &Situation<'_>) -> Vec<Wanted> {
    each_core(of, |core, power| match (&power.energy_preference, &power.energy_bias) {
        (Ok(word), _) if word == "0" => None,
        (Ok(_), _) => Some((cpu(core, "cpufreq/energy_performance_preference"), "performance".into())),
        (_, Ok(_)) => Some((cpu(core, "power/energy_perf_bias"), "0".into())),
        _ => None,
    })
}

fn sleep(of: &Situation<'_>) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for core in without(&of.plan.critical, &of.plan.spinning) {
        let at = cpu(core, "cpuidle");
        let names = of.root.names(&at).unwrap_or_default();
        let states = names.iter().filter(|name| name.starts_with("state"));
        let known = of.facts.power.cores.get(&core).and_then(|power| power.idle_states.as_ref().ok());
        // Facts have them in the order of their names.
        for (state, IdleState { latency_us, .. }) in states.zip(known.into_iter().flatten()) {
            if *latency_us > DEEP_US {
                wanted.push((format!("{at}/{state}/disable"), "1".to_owned()));
            }
        }
    }
    wanted
}

/// Cores of `now` but for the stages', or any other cores where none of them are left.
fn moved(of: &Situation<'_>, now: &[usize]) -> Option<Vec<usize>> {
    let kept = common(now, of.others);
    let cores = if kept.is_empty() { of.others.to_vec() } else { kept };
    (!cores.is_empty()).then_some(cores)
}

/// Those interrupts that `is_wanted` says and that strike spinning cores, with the others in place of these.
fn interrupts(of: &Situation<'_>, is_wanted: impl Fn(&Interrupt) -> bool) -> Vec<Wanted> {
    let all = of.facts.interrupts.devices.as_deref().unwrap_or_default();
    let striking =
        all.iter().filter(|interrupt| is_wanted(interrupt) && !struck(interrupt, of.facts, of.plan).is_empty());
    let wanted = striking.filter_map(|interrupt| {
        let path = format!("proc/irq/{}/smp_affinity_list", interrupt.number);
        let now = of.root.text(&path).ok().and_then(|text| list(&text).ok()).unwrap_or_default();
        Some((path, pin::list(&moved(of, &now)?)))
    });
    wanted.collect()
}

fn disk_interrupts(of: &Situation<'_>) -> Vec<Wanted> {
    interrupts(of, |interrupt| interrupt.is_of(&of.facts.disk.device))
}

fn nic_interrupts(of: &Situation<'_>) -> Vec<Wanted> {
    interrupts(of, |interrupt| of.facts.network.as_ref().is_some_and(|network| interrupt.is_of(&network.device)))
}

fn other_interrupts(of: &Situation<'_>) -> Vec<Wanted> {
    let nic = of.facts.network.as_ref().map(|network| &network.device);
    interrupts(of, |interrupt| {
        !interrupt.is_of(&of.facts.disk.device) && !nic.is_some_and(|device| interrupt.is_of(device))
    })
}

/// `path`, with the cores that it has now but for the stages'.
fn masked(of: &Situation<'_>, path: &str, now: &Known<Vec<usize>>) -> Vec<Wanted> {
    let cores = now.as_ref().ok().and_then(|now| moved(of, now));
    cores.map(|cores| (path.to_owned(), mask(&cores))).into_iter().collect()
}

fn default_interrupts(of: &Situation<'_>) -> Vec<Wanted> {
    masked(of, "proc/irq/default_smp_affinity", &of.facts.interrupts.default)
}

fn workqueues(of: &Situation<'_>) -> Vec<Wanted> {
    masked(of, "sys/devices/virtual/workqueue/cpumask", &of.facts.interrupts.workqueues)
}

fn steering(of: &Situation<'_>) -> Vec<Wanted> {
    let Some(network) = &of.facts.network else { return Vec::new() };
    let queues = network.steered_to.as_deref().unwrap_or_default();
    let struck = queues.iter().filter(|(_, cores)| !common(cores, &of.plan.spinning).is_empty());
    // No core at all is a value: the packets stay where the card's interrupt came.
    let path = |queue: &str| format!("sys/class/net/{}/queues/{queue}/rps_cpus", network.name);
    struck.map(|(queue, cores)| (path(queue), mask(&common(cores, of.others)))).collect()
}

fn watchdogs(of: &Situation<'_>) -> Vec<Wanted> {
    let now = of.facts.kernel.watchdog_cores.as_deref().unwrap_or_default();
    moved(of, now).map(|cores| ("proc/sys/kernel/watchdog_cpumask".to_owned(), pin::list(&cores))).into_iter().collect()
}

fn huge_pages(of: &Situation<'_>) -> Vec<Wanted> {
    const HUGE_PAGE_BYTES: u64 = 2 << 20;
    let Ok((free, all)) = of.facts.memory.huge_pages else { return Vec::new() };
    let pages = all - free.min(all) + of.plan.umem_bytes.div_ceil(HUGE_PAGE_BYTES);
    vec![("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages".into(), pages.to_string())]
}

fn buffers(of: &Situation<'_>) -> Vec<Wanted> {
    let Some(network) = &of.facts.network else { return Vec::new() };
    let wanted = of.plan.socket_buffer_bytes;
    let limits = [("rmem_max", &network.stack.rx_buffer_bytes_max), ("wmem_max", &network.stack.tx_buffer_bytes_max)];
    let low = limits.into_iter().filter(|(_, now)| now.as_ref().is_ok_and(|now| *now < wanted));
    low.map(|(name, _)| sysctl(&format!("net/core/{name}"), &wanted.to_string())).collect()
}

/// The sysctl, unless it is as high already.
fn at_least(of: &Situation<'_>, path: &str, least: u64) -> Option<Wanted> {
    let now: u64 = of.root.text(path).ok()?.parse().ok()?;
    (now < least).then(|| (path.to_owned(), least.to_string()))
}

fn backlog(of: &Situation<'_>) -> Vec<Wanted> {
    at_least(of, "proc/sys/net/core/netdev_max_backlog", 4_096).into_iter().collect()
}

fn busy_polling(of: &Situation<'_>) -> Vec<Wanted> {
    let Some(network) = &of.facts.network else { return Vec::new() };
    let at = |file: &str| format!("sys/class/net/{}/{file}", network.name);
    let mut wanted = Vec::new();
    if network.defer_hard_irqs.as_ref().is_ok_and(|defer| *defer < 1) {
        wanted.push((at("napi_defer_hard_irqs"), "2".to_owned()));
    }
    if network.flush_timeout_ns.as_ref().is_ok_and(|timeout| *timeout < 20_000) {
        wanted.push((at("gro_flush_timeout"), "200000".to_owned()));
    }
    wanted
}

fn reverse_path(of: &Situation<'_>) -> Vec<Wanted> {
    // The larger of the interface's and of all interfaces' counts, and 2 is loose: so no other interface is touched.
    let strict = feeds(of.facts, of.plan).into_iter().filter(|network| network.reverse_path == Ok(1));
    strict.map(|network| sysctl(&format!("net/ipv4/conf/{}/rp_filter", network.name), "2")).collect()
}

fn scheduler(of: &Situation<'_>) -> Vec<Wanted> {
    let name = of.facts.disk.name.as_ref().ok();
    name.map(|name| (format!("sys/block/{name}/queue/scheduler"), "none".to_owned())).into_iter().collect()
}
