//! Pages, and what moves or takes them.

use std::path::Path;

use super::disk::{self, Mount};
use super::{INT_MAX, Known, chosen, number, one_of, up_to, value};
use crate::root::{Root, Unread};

/// Where rings with a name are, unless told otherwise.
pub const SHARED: &str = "/dev/shm";

/// All of it.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Huge pages of 2 MiB: free, and in all.
    pub huge_pages: Known<(u64, u64)>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub thp: Known<String>,
    /// What a fault does to get one.
    pub thp_defrag: Known<String>,
    /// What overrides it for shared memory: `deny` and `force`; the others are of memory without a mount of its own.
    pub thp_shared: Known<String>,
    /// How `/dev/shm` is mounted.
    pub shared_mount: Known<Mount>,
    /// Whether the kernel moves pages towards their users.
    pub numa_balancing: Known<u64>,
    /// How many nodes there are.
    pub nodes: Known<usize>,
    /// Whether equal pages are merged: 1 is on.
    pub ksm: Known<u64>,
    /// Bytes of swap, and how many are in use.
    pub swap: Known<(u64, u64)>,
    /// Whether a node reclaims its own pages before it takes another's.
    pub zone_reclaim: Known<u64>,
    /// How eagerly the kernel moves pages to make large ones.
    pub compaction: Known<u64>,
    /// Seconds between two updates of each core's memory statistics.
    pub stat_interval_s: Known<u64>,
}

impl Memory {
    /// Reads it.
    pub fn read(root: &Root) -> Memory {
        let mm = "sys/kernel/mm";
        let huge = format!("{mm}/hugepages/hugepages-2048kB");
        let word = |file: &str, known: &[&str]| {
            let path = format!("{mm}/transparent_hugepage/{file}");
            one_of(&path, chosen(&root.text(&path)?), known)
        };
        let vm = |file: &str, max: u64| up_to(root, &format!("proc/sys/vm/{file}"), max);
        Memory {
            huge_pages: huge_pages(root, &huge),
            thp: word("enabled", &["always", "madvise", "never"]),
            thp_defrag: word("defrag", &["always", "defer", "defer+madvise", "madvise", "never"]),
            thp_shared: word("shmem_enabled", &["always", "within_size", "advise", "never", "deny", "force"]),
            shared_mount: disk::mount(root, Path::new(SHARED)),
            numa_balancing: up_to(root, "proc/sys/kernel/numa_balancing", 3),
            nodes: super::cpu_list::read_list(root, NODES).and_then(|nodes| match nodes.len() {
                0 => Err(Unread::malformed(NODES, "none")),
                count => Ok(count),
            }),
            ksm: up_to(root, &format!("{mm}/ksm/run"), 2),
            swap: swap(root),
            zone_reclaim: vm("zone_reclaim_mode", 7),
            compaction: vm("compaction_proactiveness", 100),
            stat_interval_s: vm("stat_interval", INT_MAX),
        }
    }
}

const NODES: &str = "sys/devices/system/node/online";

fn huge_pages(root: &Root, at: &str) -> Known<(u64, u64)> {
    let (free, all) = (number(root, &format!("{at}/free_hugepages"))?, number(root, &format!("{at}/nr_hugepages"))?);
    // More than any address reaches.
    const PAGES_MAX: u64 = 1 << 31;
    if free <= all && all <= PAGES_MAX {
        return Ok((free, all));
    }
    Err(Unread::malformed(at, format!("{free} free of {all}")))
}

fn swap(root: &Root) -> Known<(u64, u64)> {
    let path = "proc/meminfo";
    let text = root.kept(path, |line| line.starts_with("Swap").then(|| line.to_owned()))?;
    let bytes = |key: &str| {
        let kib = value(&text, key).and_then(|value| value.strip_suffix("kB")).and_then(|kib| kib.trim().parse().ok());
        kib.map(|kib: u64| kib.saturating_mul(1024)).ok_or_else(|| Unread::malformed(path, format!("no {key}")))
    };
    let (all, free) = (bytes("SwapTotal")?, bytes("SwapFree")?);
    Ok((all, all.saturating_sub(free)))
}
