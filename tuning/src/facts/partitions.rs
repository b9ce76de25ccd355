//! Cores that cpusets keep for themselves, without the command line: partitions of version 2, and of version 1 exclusive cpusets that nobody
//! balances over.

use super::cpu_list::{self, CoreSet, sorted, union, without};
use super::limits::{above, cgroups};
use super::{Known, switch};
use crate::root::{Root, Unread};

/// No more cgroups than that are looked at: of version 2 it takes a tree of partitions, of version 1 a box that balances nothing.
const CGROUPS_MAX: usize = 1_024;

/// What names of a cgroup's own files begin with; all others are those of cgroups below it.
const FILES: [&str; 13] = [
    "cgroup.", "cpu.", "cpuacct.", "cpuset.", "devices.", "freezer.", "hugetlb.", "io.", "irq.", "memory.", "misc.",
    "pids.", "rdma.",
];

/// Cores of partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partitions {
    /// Those over which nothing is balanced.
    pub isolated: CoreSet,
    /// Those of partitions whose threads are balanced over the partition's own cores; all others are kept off.
    pub balanced: CoreSet,
}

impl Partitions {
    /// Reads those of both versions.
    ///
    /// # Errors
    /// [`Unread`] where a box has some and does not tell which cores they have.
    pub fn read(root: &Root) -> Known<Partitions> {
        let mut found = second(root)?;
        // From Linux 6.7 on the first of all tells of all that are isolated, also of partitions below what is none.
        match cpu_list::read_list(root, "sys/fs/cgroup/cpuset.cpus.isolated") {
            Err(unread) if unread.is_missing() => {}
            told => found.isolated = union(&found.isolated, &told?),
        }
        found.isolated = union(&found.isolated, &first(root)?);
        found.balanced = without(&found.balanced, &found.isolated);
        Ok(found)
    }
}

/// The cgroups right below `at`.
fn below(root: &Root, at: &str) -> Vec<String> {
    let names = root.names(at).unwrap_or_default();
    let is_cgroup = |name: &&String| {
        !FILES.iter().any(|file| name.starts_with(file))
            && !matches!(name.as_str(), "tasks" | "notify_on_release" | "release_agent")
    };
    names.iter().filter(is_cgroup).map(|name| format!("{at}/{name}")).collect()
}

/// A partition is one only below others, up to the first cgroup of all.
fn second(root: &Root) -> Known<Partitions> {
    let mut found = Partitions::default();
    let mut left = vec!["sys/fs/cgroup".to_owned()];
    let mut seen = 0;
    while let Some(at) = left.pop().filter(|_| seen < CGROUPS_MAX) {
        seen += 1;
        let is_isolated = match root.text(&format!("{at}/cpuset.cpus.partition")).as_deref() {
            Ok("isolated") => Some(true),
            Ok("root") => Some(false),
            // The first of all is a partition, and has no such file.
            Err(unread) if unread.is_missing() && seen == 1 => None,
            // `member`, or `root invalid (…)`, which the kernel makes of one that can't be.
            _ => continue,
        };
        if let Some(is_isolated) = is_isolated {
            // What it gave to partitions below it is not among these.
            let cores = cpu_list::read_list(root, &format!("{at}/cpuset.cpus.effective"))?;
            let of_kind = if is_isolated { &mut found.isolated } else { &mut found.balanced };
            *of_kind = union(of_kind, &cores);
        }
        left.extend(below(root, &at));
    }
    Ok(found)
}

/// Of version 1: cores of exclusive cpusets over which neither these nor others balance.
fn first(root: &Root) -> Known<CoreSet> {
    let Some(top) = cgroups(root).ok().and_then(|groups| above(&groups, Some("cpuset")).pop()) else {
        return Ok(Vec::new());
    };
    let is_balanced = |at: &str| switch(root, &format!("{at}/cpuset.sched_load_balance"));
    match is_balanced(&top) {
        Err(unread) if unread.is_missing() => return Ok(Vec::new()),
        // While the first of all balances, it does so over all cores.
        Ok(true) => return Ok(Vec::new()),
        Ok(false) => {}
        Err(unread) => return Err(unread),
    }
    let (mut own, mut balanced) = (Vec::new(), Vec::new());
    let mut left = below(root, &top);
    let mut seen = 0;
    while let Some(at) = left.pop() {
        seen += 1;
        if seen > CGROUPS_MAX {
            return Err(Unread::malformed(&top, format!("more than {CGROUPS_MAX} cpusets")));
        }
        let cores = match cpu_list::read_list(root, &format!("{at}/cpuset.cpus")) {
            // A file that is none of the known ones.
            Err(unread) if unread.is_missing() => continue,
            told => told?,
        };
        if is_balanced(&at)? {
            balanced.extend(cores);
            continue;
        }
        if switch(root, &format!("{at}/cpuset.cpu_exclusive"))? {
            own.extend(cores);
        }
        left.extend(below(root, &at));
    }
    Ok(without(&sorted(own), &balanced))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Known<Partitions> {
        Partitions::read(&Root::recorded(text.parse().unwrap()))
    }

    fn isolated(text: &str) -> CoreSet {
        read(text).unwrap().isolated
    }

    #[test]
    fn partitions_are_found_below_partitions_alone() {
        let of = |at: &str, kind: &str, cores: &str| {
            format!(
                "== sys/fs/cgroup/{at}/cpuset.cpus.partition\n{kind}\n== sys/fs/cgroup/{at}/cpuset.cpus.effective\n{cores}\n"
            )
        };
        let root = "== sys/fs/cgroup/cpuset.cpus.effective\n0-1\n";
        let found = read(&[root, &of("a.slice", "root", "2-3"), &of("a.slice/b", "isolated", "4-5")].concat()).unwrap();
        assert_eq!(found, Partitions { isolated: vec![4, 5], balanced: vec![2, 3] });
        assert_eq!(isolated(&[of("a", "member", "0-7"), of("a/b", "isolated", "4-5")].concat()), []);
        assert_eq!(isolated(&of("a", "isolated invalid (Cpu list in cpuset.cpus not exclusive)", "4-5")), []);
        assert_eq!(isolated(&of("a", "isolated", "4-5")), [4, 5]);
        // A container that was given a partition sees it as the first of all.
        assert_eq!(isolated(&of("", "isolated", "4-5").replace("//", "/")), [4, 5]);
        assert!(read("== sys/fs/cgroup/a/cpuset.cpus.partition\nisolated\n").is_err(), "of which cores is not told");
        assert_eq!(isolated("== sys/fs/cgroup/cpuset.cpus.isolated\n6-7\n"), [6, 7]);
        assert!(read("== sys/fs/cgroup/cpuset.cpus.isolated\nsome\n").is_err());
    }

    #[test]
    fn of_version_1_cores_are_kept_where_nobody_balances() {
        let of = |at: &str, cores: &str, is_exclusive: u8, is_balanced: u8| {
            format!(
                "== sys/fs/cgroup/cpuset{at}/cpuset.cpus\n{cores}\n== sys/fs/cgroup/cpuset{at}/cpuset.cpu_exclusive\n{is_exclusive}\n\
                 == sys/fs/cgroup/cpuset{at}/cpuset.sched_load_balance\n{is_balanced}\n"
            )
        };
        let groups = "== proc/self/cgroup\n4:cpuset:/system\n";
        let parted = |top: u8, own: String| {
            isolated(&[groups, &of("", "0-7", 1, top), &of("/system", "0-3", 1, 1), &own].concat())
        };
        assert_eq!(parted(0, of("/ticktape", "4-7", 1, 0)), [4, 5, 6, 7]);
        assert_eq!(parted(1, of("/ticktape", "4-7", 1, 0)), [], "the first of all balances over all cores");
        assert_eq!(parted(0, of("/ticktape", "4-7", 1, 1)), []);
        assert_eq!(parted(0, of("/ticktape", "4-7", 0, 0)), [], "anybody may have them, too");
        assert_eq!(parted(0, of("/ticktape", "3-7", 1, 0)), [4, 5, 6, 7], "core 3 is balanced by another one");
        let inner = [of("/ticktape", "4-7", 1, 0), of("/ticktape/others", "4", 0, 1)].concat();
        assert_eq!(parted(0, inner), [5, 6, 7]);
        assert_eq!(isolated(&of("", "0-7", 1, 0)), [], "no cpuset of version 1 is mounted");
        let rubbish = [groups, "== sys/fs/cgroup/cpuset/cpuset.sched_load_balance\nmaybe\n"].concat();
        assert!(read(&rubbish).is_err());
    }
}
