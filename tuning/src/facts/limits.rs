//! What this process may do and take.

use super::{Known, number, one_of, up_to, value};
use crate::root::{Root, Unread};

/// Capabilities by their bits, as in `CapEff` of `/proc/self/status`.
pub const CAPABILITIES: [(&str, u32); 7] = [
    ("CAP_NET_ADMIN", 12),
    ("CAP_NET_RAW", 13),
    ("CAP_IPC_LOCK", 14),
    ("CAP_SYS_ADMIN", 21),
    ("CAP_SYS_NICE", 23),
    ("CAP_PERFMON", 38),
    ("CAP_BPF", 39),
];

/// What of `/proc/self/status` is kept.
const STATUS: [&str; 3] = ["Cpus_allowed_list", "CapEff", "Seccomp"];

/// All of it.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Its effective capabilities, as bits.
    pub capabilities: Known<u64>,
    /// How its system calls are filtered: 0 not, 2 by a program.
    pub seccomp: Known<u64>,
    /// Bytes that it may lock; `None` where there is no limit.
    pub locked_bytes_max: Known<Option<u64>>,
    /// Files that it may open.
    pub files_max: Known<Option<u64>>,
    /// The highest real-time priority that it may take.
    pub real_time_max: Known<Option<u64>>,
    /// Whether io_uring may be used: 0 is yes, 1 with a right, 2 never. Missing before Linux 6.6, where nothing forbids it.
    pub io_uring_disabled: Known<u64>,
    /// Bytes that its cgroup may take; `None` where there is no limit.
    pub cgroup_bytes_max: Known<Option<u64>>,
    /// Whether the appliance's cgroup may have no page in swap: this process's, or that of its unit, where it runs.
    pub is_kept_from_swap: Known<bool>,
    /// Whether it may say how fast cores are to wake up: write to `/dev/cpu_dma_latency`.
    pub may_hold_awake: Known<bool>,
}

impl Limits {
    /// Reads them.
    pub fn read(root: &Root) -> Limits {
        let status = status(root);
        let path = "proc/self/status";
        let field = |key: &str, base: u32| {
            let text = status.as_ref().map_err(Unread::clone)?;
            let number = value(text, key).and_then(|value| u64::from_str_radix(value, base).ok());
            number.ok_or_else(|| Unread::malformed(path, format!("no {key}")))
        };
        let limits = root.text("proc/self/limits");
        let limit = |name: &str| {
            let text = limits.as_ref().map_err(Unread::clone)?;
            let word = text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
            match word {
                Some("unlimited") => Ok(None),
                Some(word) => super::parsed("proc/self/limits", word).map(Some),
                None => Err(Unread::malformed("proc/self/limits", format!("no {name}"))),
            }
        };
        Limits {
            capabilities: field("CapEff", 16),
            seccomp: field("Seccomp", 10).and_then(|mode| match mode {
                0..=2 => Ok(mode),
                _ => Err(Unread::malformed(path, format!("Seccomp: {mode} is no mode"))),
            }),
            locked_bytes_max: limit("Max locked memory"),
            files_max: limit("Max open files"),
            real_time_max: limit("Max realtime priority"),
            io_uring_disabled: up_to(root, "proc/sys/kernel/io_uring_disabled", 2),
            cgroup_bytes_max: cgroup_bytes_max(root),
            is_kept_from_swap: is_kept_from_swap(root),
            may_hold_awake: root.may_hold_awake().and_then(|word| {
                one_of("ticktape/cpu-dma-latency-write.txt", word, &["yes", "no"]).map(|word| word == "yes")
            }),
        }
    }

    /// Whether it has the capability of that name.
    pub fn has(&self, name: &str) -> Known<bool> {
        let bits = *self.capabilities.as_ref().map_err(Unread::clone)?;
        Ok(CAPABILITIES.iter().any(|(known, bit)| *known == name && bits >> bit & 1 == 1))
    }
}

pub(super) fn status(root: &Root) -> Known<String> {
    root.kept("proc/self/status", |line| {
        let key = line.split(':').next().unwrap_or_default();
        STATUS.contains(&key).then(|| line.to_owned())
    })
}

/// Which cgroups this process is in: lines of `NUMBER:CONTROLLERS:PATH`, without controllers for version 2.
pub(super) fn cgroups(root: &Root) -> Known<String> {
    root.text("proc/self/cgroup")
}

/// The directories of a process's cgroup and of all above it, the innermost first. Without a controller: of version 2.
pub(super) fn above(groups: &str, controller: Option<&str>) -> Vec<String> {
    let mut places = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let base = match controller {
            None if controllers.is_empty() => "sys/fs/cgroup".to_owned(),
            Some(controller) if controllers.split(',').any(|known| known == controller) => {
                format!("sys/fs/cgroup/{controllers}")
            }
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        // In a namespace of its own a process may see its cgroup as the root, or outside of what it sees.
        while !path.is_empty() && !path.contains("..") && places.len() < 64 {
            places.push(format!("{base}{path}"));
            path = path.rsplit_once('/').map_or("", |(above, _)| above);
        }
        places.push(base);
    }
    places
}

fn cgroup_bytes_max(root: &Root) -> Known<Option<u64>> {
    // Version 1 says "no limit" as a number near 2^63.
    const NONE: u64 = 1 << 60;
    let groups = cgroups(root)?;
    let second = above(&groups, None).into_iter().map(|at| format!("{at}/memory.max"));
    let first = above(&groups, Some("memory")).into_iter().map(|at| format!("{at}/memory.limit_in_bytes"));
    let mut least: Option<u64> = None;
    for path in second.chain(first) {
        let bytes = match root.text(&path) {
            // The first cgroup of all has no limit, nor has one whose parent gives none away.
            Err(unread) if unread.is_missing() => continue,
            told => told?,
        };
        let bytes = if bytes == "max" { NONE } else { super::parsed(&path, &bytes)? };
        least = least.into_iter().chain((bytes < NONE).then_some(bytes)).min();
    }
    Ok(least)
}

/// Where systemd has the unit's cgroup.
const UNIT: &str = "sys/fs/cgroup/system.slice/ticktape.service";

fn is_kept_from_swap(root: &Root) -> Known<bool> {
    let own = above(&cgroups(root)?, None);
    for at in own.iter().map(String::as_str).chain([UNIT]) {
        match number::<u64>(root, &format!("{at}/memory.swap.max")) {
            // What was in swap before there was a limit stays there.
            Ok(0) if matches!(number::<u64>(root, &format!("{at}/memory.swap.current")), Ok(0)) => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_cgroup_are_the_tightest_on_its_way_up() {
        let text =
            "== proc/self/cgroup\n0::/a/b\n== sys/fs/cgroup/a/memory.max\n1000\n== sys/fs/cgroup/a/b/memory.max\nmax\n";
        let root = Root::recorded(text.parse().unwrap());
        assert_eq!(cgroup_bytes_max(&root), Ok(Some(1000)));
        assert_eq!(above("0::/../..\n", None), ["sys/fs/cgroup"]);
        assert_eq!(
            above("3:cpu,cpuacct:/x\n0::/\n", Some("cpu")),
            ["sys/fs/cgroup/cpu,cpuacct/x", "sys/fs/cgroup/cpu,cpuacct"]
        );
    }

    #[test]
    fn capabilities_and_limits_are_read() {
        let text = "== proc/self/status\nName:\tx\nCapEff:\t0000008000003000\nSeccomp:\t2\nSeccomp_filters:\t1\n\
            == proc/self/limits\nLimit  Soft Limit  Hard Limit  Units\nMax locked memory  65536  unlimited  bytes\nMax open files  unlimited unlimited files\n";
        let limits = Limits::read(&Root::recorded(text.parse().unwrap()));
        let has: Vec<&str> =
            CAPABILITIES.iter().map(|(name, _)| *name).filter(|name| limits.has(name).unwrap()).collect();
        assert_eq!(has, ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"]);
        assert_eq!((limits.seccomp, limits.locked_bytes_max, limits.files_max), (Ok(2), Ok(Some(65536)), Ok(None)));
        assert!(limits.real_time_max.is_err());
    }
}
