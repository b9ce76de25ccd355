//! The cores: how they hang together, who was kept off them, and who is there.

use std::collections::BTreeMap;

use super::cpu_list::{self, CoreSet};
use super::nodes::Nodes;
use super::partitions::Partitions;
use super::{Known, kernel::CommandLine, number};
use crate::root::{Root, Unread};

/// Daemons that the checks know by name.
const KNOWN: [&str; 9] =
    ["irqbalance", "tuned", "auditd", "chronyd", "ntpd", "ptp4l", "phc2sys", "systemd-timesyn", "ksmtuned"];

/// One core's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The socket it is in.
    pub package: Known<usize>,
    /// All hardware threads of its physical core, itself included.
    pub siblings: Known<CoreSet>,
    /// All that share its last-level cache.
    pub l3: Known<CoreSet>,
    /// Its NUMA node.
    pub node: Option<usize>,
}

/// A thread that matters to a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its process.
    pub process: u32,
    /// Whether it is the kernel's own.
    pub is_kernel: bool,
    /// Its scheduling policy, as `other` or `fifo`.
    pub policy: String,
    /// Where it may run.
    pub cores: CoreSet,
    /// The name of its process's first thread.
    pub leader: String,
    /// Its own name.
    pub name: String,
}

/// All cores.
#[derive(Clone, Debug)]
pub struct Cores {
    /// Those that run.
    pub online: Known<CoreSet>,
    /// Those there could be, running or not.
    pub present: Known<CoreSet>,
    /// Those kept free from the scheduler, by the command line or a cpuset partition.
    pub isolated: Known<CoreSet>,
    /// Those of cpuset partitions that others are kept off, but whose own threads the scheduler moves about there.
    pub partitioned: CoreSet,
    /// Those whose tick stops while one thread runs.
    pub nohz_full: Known<CoreSet>,
    /// Those whose RCU callbacks others run.
    pub rcu_nocbs: Known<CoreSet>,
    /// Those that this process may use: its affinity, within its cpuset.
    pub allowed: Known<CoreSet>,
    /// What its cpuset lets it use, where it is in one: its affinity may be widened up to that.
    pub cpuset: Known<Option<CoreSet>>,
    /// Each core's place.
    pub places: BTreeMap<usize, Place>,
    /// Whether SMT is on: `on`, `off`, `forceoff`, `notsupported`.
    pub smt: Known<String>,
    /// Threads that matter.
    pub threads: Known<Vec<Thread>>,
    /// Of each core its time in hundredths of a second: stolen by the host, and in all.
    pub steal: Known<BTreeMap<usize, (u64, u64)>>,
    /// The cgroup's share of time, as `MAX PERIOD` µs; `None` where there is no limit.
    pub quota: Known<Option<(u64, u64)>>,
}

impl Cores {
    /// Reads them.
    pub fn read(root: &Root, command_line: &Known<CommandLine>) -> Cores {
        let cpu = "sys/devices/system/cpu";
        let nohz_full = match cpu_list::read_list(root, &format!("{cpu}/nohz_full")) {
            // A kernel without the feature has no such file, and no such cores.
            Err(unread) if unread.is_missing() => Ok(Vec::new()),
            found => found,
        };
        let online = cpu_list::some(root, &format!("{cpu}/online"));
        let partitions = Partitions::read(root);
        let nodes = Nodes::read(root);
        let places = online.iter().flatten().map(|&core| (core, Place::read(root, core, &nodes))).collect();
        Cores {
            present: cpu_list::read_list(root, &format!("{cpu}/present")),
            partitioned: partitions.as_ref().map(|found| found.balanced.clone()).unwrap_or_default(),
            // What sysfs has is the command line's alone.
            isolated: cpu_list::read_list(root, &format!("{cpu}/isolated"))
                .and_then(|cores| Ok(cpu_list::union(&cores, &partitions?.isolated))),
            rcu_nocbs: rcu_nocbs(command_line, &nohz_full, &online),
            nohz_full,
            allowed: allowed(root),
            cpuset: cpuset(root),
            places,
            smt: root.text(&format!("{cpu}/smt/control")),
            threads: threads(root),
            steal: root
                .kept("proc/stat", |line| {
                    (line.starts_with("cpu") || line.starts_with("btime")).then(|| line.to_owned())
                })
                .map(|text| steal(&text)),
            quota: quota(root),
            online,
        }
    }

    /// The daemons of that name.
    pub fn daemons(&self, name: &str) -> Known<Vec<&Thread>> {
        let threads = self.threads.as_ref().map_err(Unread::clone)?;
        Ok(threads.iter().filter(|thread| !thread.is_kernel && thread.leader == name).collect())
    }
}

impl Place {
    fn read(root: &Root, core: usize, nodes: &Nodes) -> Place {
        let below = format!("sys/devices/system/cpu/cpu{core}");
        Place {
            package: number(root, &format!("{below}/topology/physical_package_id")),
            siblings: cpu_list::some(root, &format!("{below}/topology/thread_siblings_list")),
            l3: cpu_list::some(root, &format!("{below}/cache/index3/shared_cpu_list")),
            node: nodes.of(core),
        }
    }
}

/// What `rcu_nocbs=` says; `nohz_full` implies it.
fn rcu_nocbs(line: &Known<CommandLine>, nohz_full: &Known<CoreSet>, online: &Known<CoreSet>) -> Known<CoreSet> {
    let line = line.as_ref().map_err(Unread::clone)?;
    let named = match line.value("rcu_nocbs") {
        Some(text) => {
            let last = online.as_ref().map_err(Unread::clone)?.last().copied().unwrap_or(0);
            cpu_list::of_command_line(text, last)
                .map_err(|what| Unread::malformed("proc/cmdline", format!("rcu_nocbs: {what}")))?
        }
        None if line.has("rcu_nocbs") => online.clone()?,
        None => Vec::new(),
    };
    Ok(cpu_list::sorted([named, nohz_full.clone()?].concat()))
}

fn allowed(root: &Root) -> Known<CoreSet> {
    let path = "proc/self/status";
    let text = super::limits::status(root)?;
    let list =
        super::value(&text, "Cpus_allowed_list").ok_or_else(|| Unread::malformed(path, "no Cpus_allowed_list"))?;
    cpu_list::list(list).map_err(|what| Unread::malformed(path, what))
}

/// The innermost cgroup that says so, of either version.
fn cpuset(root: &Root) -> Known<Option<CoreSet>> {
    let groups = super::limits::cgroups(root)?;
    let second = super::limits::above(&groups, None).into_iter().map(|at| format!("{at}/cpuset.cpus.effective"));
    let first =
        super::limits::above(&groups, Some("cpuset")).into_iter().map(|at| format!("{at}/cpuset.effective_cpus"));
    for path in first.chain(second) {
        match cpu_list::read_list(root, &path) {
            Err(unread) if unread.is_missing() => {}
            Ok(cores) if cores.is_empty() => return Err(Unread::malformed(&path, "no core at all")),
            cores => return cores.map(Some),
        }
    }
    Ok(None)
}

fn threads(root: &Root) -> Known<Vec<Thread>> {
    let text = root.threads(&KNOWN)?;
    text.lines()
        .map(|line| thread(line).ok_or_else(|| Unread::malformed("ticktape/threads.txt", super::short(line))))
        .collect()
}

fn thread(line: &str) -> Option<Thread> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [process, kind, policy, cores, leader, name] = words[..] else { return None };
    let is_kernel = match kind {
        "kernel" => true,
        "user" => false,
        _ => return None,
    };
    let cores = cpu_list::list(cores).ok()?;
    let process = process.parse().ok()?;
    Some(Thread { process, is_kernel, policy: policy.into(), cores, leader: leader.into(), name: name.into() })
}

/// Of each core what `/proc/stat` says: user, nice, system, idle, iowait, irq, softirq, steal.
fn steal(text: &str) -> BTreeMap<usize, (u64, u64)> {
    let core = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        let core = words.next()?.parse().ok()?;
        let times: Vec<u64> = words.take(8).map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let all = times.iter().fold(0_u64, |sum, time| sum.saturating_add(*time));
        Some((core, (*times.get(7)?, all)))
    };
    // The first line is the sum of all, without a number.
    text.lines().filter(|line| !line.starts_with("cpu ")).filter_map(core).collect()
}

/// The limit of this process's cgroup, of either version.
fn quota(root: &Root) -> Known<Option<(u64, u64)>> {
    let groups = super::limits::cgroups(root)?;
    let path = |at: &str, file: &str| format!("{at}/{file}").replace("//", "/");
    let mut tightest: Option<(u64, u64)> = None;
    for at in super::limits::above(&groups, None) {
        if let Some((at, text)) = told(root, path(&at, "cpu.max"))? {
            let (max, period) = text.split_once(' ').ok_or_else(|| Unread::malformed(&at, super::short(&text)))?;
            tightest = tighter(tightest, limit(&at, max, period)?);
        }
    }
    for at in super::limits::above(&groups, Some("cpu")) {
        let max = told(root, path(&at, "cpu.cfs_quota_us"))?;
        if let Some(((_, max), (at, period))) = max.zip(told(root, path(&at, "cpu.cfs_period_us"))?) {
            tightest = tighter(tightest, limit(&at, &max, &period)?);
        }
    }
    Ok(tightest)
}

/// What a cgroup says, with where it says so; the first of all says nothing.
fn told(root: &Root, path: String) -> Known<Option<(String, String)>> {
    match root.text(&path) {
        Err(unread) if unread.is_missing() => Ok(None),
        text => Ok(Some((path, text?))),
    }
}

/// `max` and `-1` are none.
fn limit(path: &str, max: &str, period: &str) -> Known<Option<(u64, u64)>> {
    let period = super::parsed(path, period)?;
    match max.trim() {
        _ if !(1..=super::INT_MAX).contains(&period) => {
            Err(Unread::malformed(path, format!("a period of {period} µs")))
        }
        "max" | "-1" => Ok(None),
        max => Ok(Some((super::parsed(path, max)?, period))),
    }
}

fn tighter(a: Option<(u64, u64)>, b: Option<(u64, u64)>) -> Option<(u64, u64)> {
    let share = |(max, period): (u64, u64)| u128::from(max) * 1_000_000 / u128::from(period);
    [a, b].into_iter().flatten().min_by_key(|limit| share(*limit))
}
