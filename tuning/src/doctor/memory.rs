//! Pages, and what moves or takes them.

use super::{Check, Cost, Finding, Group, Plan, bad, known, not_applicable, ok, size, warn};
use crate::facts::memory::SHARED;
use crate::facts::{Facts, Known};

const HUGE_PAGE_BYTES: u64 = 2 << 20;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "memory-swap",
        group: Group::Memory,
        wants: "no swap, or none for the appliance's cgroup",
        why: "a page that was written out comes back from a disk, in the middle of whatever needs it",
        cost: Cost::Milliseconds,
        source: "kernel documentation, admin-guide/mm/concepts (reclaim)",
        judge: swap,
    },
    Check {
        id: "memory-locked",
        group: Group::Memory,
        wants: "as much memory may be locked as rings, umem and the disk's buffers take; all of it where [runtime] locks it",
        why: "AF_XDP and io_uring lock what the card and the disk read and write; they refuse beyond the limit",
        cost: Cost::Failure,
        source: "getrlimit(2), RLIMIT_MEMLOCK; io_uring_register(2)",
        judge: locked,
    },
    Check {
        id: "memory-huge-pages",
        group: Group::Memory,
        wants: "free huge pages for the umem",
        why: "with small pages the umem takes hundreds of entries of the TLB, which has room for some dozens to thousands",
        cost: Cost::Nanoseconds,
        source: "kernel documentation, admin-guide/mm/hugetlbpage",
        judge: huge_pages,
    },
    Check {
        id: "memory-ring-pages",
        group: Group::Memory,
        wants: "the log ring may have huge pages: transparent ones where it is in the process's own memory, /dev/shm mounted with huge=within_size where it is a file",
        why: "the log ring is asked for with them; from small pages readers meet TLB misses at every 4 KiB",
        cost: Cost::Nanoseconds,
        source: "kernel documentation, admin-guide/mm/transhuge (huge pages in tmpfs/shmem) and filesystems/tmpfs (huge=)",
        judge: ring_pages,
    },
    Check {
        id: "memory-thp",
        group: Group::Memory,
        wants: "transparent huge pages only where asked for: madvise, or never",
        why: "with always, khugepaged and faults gather and move pages of programs that did not ask, under locks that these wait for",
        cost: Cost::TensOfMicroseconds,
        source: "kernel documentation, admin-guide/mm/transhuge",
        judge: thp,
    },
    Check {
        id: "memory-thp-defrag",
        group: Group::Memory,
        wants: "a fault does not stop to make room for a huge page: defrag is defer, defer+madvise, madvise or never",
        why: "with always, any fault may move pages until there is a free huge one",
        cost: Cost::Milliseconds,
        source: "kernel documentation, admin-guide/mm/transhuge (defrag); kernel commits facdaa917c4d and 67914ac08604 measure what compaction on demand takes",
        judge: thp_defrag,
    },
    Check {
        id: "memory-numa-balancing",
        group: Group::Memory,
        wants: "NUMA balancing is off",
        why: "it takes pages away for a moment to see who uses them, so pinned threads fault on their own memory",
        cost: Cost::TensOfMicroseconds,
        source: "kernel documentation, sysctl/kernel (numa_balancing)",
        judge: numa_balancing,
    },
    Check {
        id: "memory-ksm",
        group: Group::Memory,
        wants: "equal pages are not merged",
        why: "who writes to a merged page waits for a copy of it, and ksmd reads all the memory meanwhile",
        cost: Cost::Microseconds,
        source: "kernel documentation, admin-guide/mm/ksm",
        judge: ksm,
    },
    Check {
        id: "memory-zone-reclaim",
        group: Group::Memory,
        wants: "a full node takes memory of another: zone_reclaim_mode 0",
        why: "else whoever asks for a page writes out others first",
        cost: Cost::Milliseconds,
        source: "kernel documentation, sysctl/vm (zone_reclaim_mode)",
        judge: zone_reclaim,
    },
    Check {
        id: "memory-compaction",
        group: Group::Memory,
        wants: "no pages are moved ahead of need: compaction_proactiveness 0",
        why: "a page that is moved is away from all who use it, for that long",
        cost: Cost::Microseconds,
        source: "kernel documentation, sysctl/vm (compaction_proactiveness); kernel commit facdaa917c4d",
        judge: compaction,
    },
    Check {
        id: "memory-statistics",
        group: Group::Memory,
        wants: "each core's memory statistics are gathered rarely: vm.stat_interval 10 or more",
        why: "a worker of the kernel does it on the core itself, once in so many seconds",
        cost: Cost::Microseconds,
        source: "kernel documentation, kernel-per-CPU-kthreads (vmstat)",
        judge: statistics,
    },
    Check {
        id: "memory-nic-node",
        group: Group::Memory,
        wants: "the interface hangs on the node of the stages",
        why: "what the card writes lands in the other node's cache or memory, and is read over the link",
        cost: Cost::Nanoseconds,
        source: "kernel documentation, ABI (numa_node)",
        judge: nic_node,
    },
    Check {
        id: "memory-disk-node",
        group: Group::Memory,
        wants: "the disk hangs on the node of the stages",
        why: "doorbells, completions and data cross the link between the sockets",
        cost: Cost::Nanoseconds,
        source: "kernel documentation, ABI (numa_node)",
        judge: disk_node,
    },
];

fn swap(facts: &Facts, _: &Plan) -> Known<Finding> {
    let (all, used) = *known(&facts.memory.swap)?;
    let fix = "swapoff -a, and no swap in /etc/fstab; or MemorySwapMax=0 for the appliance's unit";
    match (all, used) {
        (0, _) => ok("none"),
        _ if facts.limits.is_kept_from_swap == Ok(true) => {
            ok(format!("{}, of which the appliance's cgroup may take none and has none", size(all)))
        }
        (_, 0) => warn(format!("{}, none of it used", size(all)), fix),
        _ => bad(format!("{} of {} used", size(used), size(all)), fix),
    }
}

/// What io_uring's registered buffers and rings take, at most.
const DISK_BUFFER_BYTES: u64 = 8 << 20;

fn locked(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let wanted = plan.umem_bytes + DISK_BUFFER_BYTES;
    if facts.limits.has("CAP_IPC_LOCK")? {
        return ok("CAP_IPC_LOCK: no limit");
    }
    let Some(limit) = *known(&facts.limits.locked_bytes_max)? else { return ok("no limit") };
    // Where all memory is to be locked, what comes later would be refused beyond a limit: so none is kept to.
    if plan.runtime.locks_memory {
        let read = format!("{} may be locked, and [runtime] wants all memory locked: it would not be", size(limit));
        let fix = "LimitMEMLOCK=infinity in its unit, or CAP_IPC_LOCK";
        return if limit < plan.umem_bytes { bad(read, fix) } else { warn(read, fix) };
    }
    let read = format!("{} may be locked, {} are wanted", size(limit), size(wanted));
    let fix = format!(
        "LimitMEMLOCK=infinity in its unit, or memlock in /etc/security/limits.d: at least {} KiB",
        wanted >> 10
    );
    match limit {
        _ if limit >= wanted => ok(read),
        _ if plan.umem_bytes > 0 => bad(read, fix),
        // The journal does without registered buffers then.
        _ => warn(read, fix),
    }
}

fn huge_pages(facts: &Facts, plan: &Plan) -> Known<Finding> {
    if plan.umem_bytes == 0 {
        return not_applicable("no umem: the plan has no AF_XDP");
    }
    let (free, all) = *known(&facts.memory.huge_pages)?;
    let wanted = plan.umem_bytes.div_ceil(HUGE_PAGE_BYTES);
    let read = format!("{free} of {all} huge pages are free, {wanted} are wanted");
    if free >= wanted {
        ok(read)
    } else {
        warn(read, format!("sysctl vm.nr_hugepages={}", all - free.min(all) + wanted))
    }
}

fn ring_pages(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let ring = size(plan.ring_bytes);
    if plan.ring_bytes < HUGE_PAGE_BYTES {
        return not_applicable(format!("the ring is {ring}: smaller than a huge page"));
    }
    match &plan.ring_dir {
        None => match known(&facts.memory.thp)?.as_str() {
            "never" => warn(
                format!("never, for a ring of {ring}"),
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
            ),
            word => ok(format!("{word}, for a ring of {ring}")),
        },
        Some(dir) if dir.starts_with(SHARED) => shared_ring_pages(facts, &ring),
        Some(dir) => not_applicable(format!("the ring is in {}", dir.display())),
    }
}

/// A mount has its own setting, which the one for all shared memory can only override.
fn shared_ring_pages(facts: &Facts, ring: &str) -> Known<Finding> {
    let mount = known(&facts.memory.shared_mount)?;
    let huge = mount.options.iter().find_map(|option| option.strip_prefix("huge=")).unwrap_or("never");
    let read = format!("huge={huge} at {}, for a ring of {ring}", mount.at);
    match (known(&facts.memory.thp_shared)?.as_str(), huge) {
        ("deny", _) => warn(
            format!("denied for all shared memory; {read}"),
            "echo never > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
        ),
        ("force", _) => ok(format!("forced for all shared memory; {read}")),
        (_, "within_size" | "always") => ok(read),
        // With huge=advise, too: a ring's file is given its space before it is mapped, so nobody has asked for large pages yet.
        _ => warn(read, format!("mount -o remount,huge=within_size {}, and in /etc/fstab", mount.at)),
    }
}

fn thp(facts: &Facts, _: &Plan) -> Known<Finding> {
    match known(&facts.memory.thp)?.as_str() {
        "always" => warn("always", "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        word => ok(word),
    }
}

fn thp_defrag(facts: &Facts, _: &Plan) -> Known<Finding> {
    if known(&facts.memory.thp)? == "never" {
        return not_applicable("no transparent huge pages");
    }
    match known(&facts.memory.thp_defrag)?.as_str() {
        "always" => warn("always", "echo defer+madvise > /sys/kernel/mm/transparent_hugepage/defrag"),
        word => ok(word),
    }
}

fn numa_balancing(facts: &Facts, _: &Plan) -> Known<Finding> {
    if *known(&facts.memory.nodes)? < 2 {
        return not_applicable("one node");
    }
    match &facts.memory.numa_balancing {
        Ok(0) => ok("off"),
        Ok(_) => warn("on", "sysctl kernel.numa_balancing=0"),
        Err(unread) if unread.is_missing() => ok("the kernel has none"),
        Err(unread) => Err(unread.clone()),
    }
}

fn ksm(facts: &Facts, _: &Plan) -> Known<Finding> {
    match &facts.memory.ksm {
        Ok(1) => warn("on", "echo 0 > /sys/kernel/mm/ksm/run; disable ksmtuned"),
        Ok(_) => ok("off"),
        Err(unread) if unread.is_missing() => ok("the kernel has none"),
        Err(unread) => Err(unread.clone()),
    }
}

fn zone_reclaim(facts: &Facts, _: &Plan) -> Known<Finding> {
    match &facts.memory.zone_reclaim {
        Ok(0) => ok("0"),
        Ok(mode) => warn(mode.to_string(), "sysctl vm.zone_reclaim_mode=0"),
        Err(unread) if unread.is_missing() => not_applicable("the kernel knows one node only"),
        Err(unread) => Err(unread.clone()),
    }
}

fn compaction(facts: &Facts, _: &Plan) -> Known<Finding> {
    match &facts.memory.compaction {
        Ok(0) => ok("0"),
        Ok(value) => warn(value.to_string(), "sysctl vm.compaction_proactiveness=0"),
        Err(unread) if unread.is_missing() => ok("the kernel does not"),
        Err(unread) => Err(unread.clone()),
    }
}

fn statistics(facts: &Facts, plan: &Plan) -> Known<Finding> {
    if plan.spinning.is_empty() {
        return not_applicable("no stage spins");
    }
    match *known(&facts.memory.stat_interval_s)? {
        seconds @ 10.. => ok(format!("each {seconds} s")),
        seconds => warn(format!("each {seconds} s"), "sysctl vm.stat_interval=120"),
    }
}

/// Whether what hangs on `node` is near the plan's cores.
fn near(facts: &Facts, plan: &Plan, node: &Known<i64>, what: &str) -> Known<Finding> {
    if *known(&facts.memory.nodes)? < 2 {
        return not_applicable("one node");
    }
    let node = match node {
        Ok(node) => *node,
        Err(unread) if unread.is_missing() => return not_applicable(format!("{what} hangs on no bus")),
        Err(unread) => return Err(unread.clone()),
    };
    let Ok(node) = usize::try_from(node) else {
        return Err(crate::root::Unread::malformed("numa_node", format!("the firmware does not tell of {what}")));
    };
    let places = plan.critical.iter().filter_map(|core| facts.cores.places.get(core)?.node);
    if places.clone().all(|place| place == node) {
        return ok(format!("{what} is on node {node}, with the stages"));
    }
    let elsewhere = crate::pin::list(&crate::facts::cpu_list::sorted(places.collect()));
    warn(
        format!("{what} is on node {node}, stages are on {elsewhere}"),
        format!("plan cores of node {node}, or put the card into another slot"),
    )
}

fn nic_node(facts: &Facts, plan: &Plan) -> Known<Finding> {
    match &facts.network {
        None => not_applicable("the plan has no interface"),
        Some(network) => near(facts, plan, &network.node, &network.name),
    }
}

fn disk_node(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let name = known(&facts.disk.name)?;
    near(facts, plan, &facts.disk.node, name)
}
