//! What the journal lies on.

use super::{Check, Cost, Finding, Group, Plan, bad, known, not_applicable, ok, size, warn};
use crate::facts::disk::{Layer, Mount};
use crate::facts::{Facts, Known};

/// Direct writes are made in multiples of this at most.
const BLOCK_BYTES_MAX: u64 = 4_096;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "disk-file-system",
        group: Group::Disk,
        wants: "the journal lies on xfs or ext4",
        why: "others are in memory, over a network, or copy what they write: they keep no promise, or keep it late",
        cost: Cost::Failure,
        source: "open(2), O_DIRECT; kernel documentation, filesystems",
        judge: file_system,
    },
    Check {
        id: "disk-layers",
        group: Group::Disk,
        wants: "nothing between the file system and the disk that encrypts or computes parity",
        why: "encryption hands each write to a worker of the kernel; parity reads what a small write leaves out of its stripe",
        cost: Cost::TensOfMicroseconds,
        source: "kernel documentation, device-mapper/dm-crypt (no_write_workqueue) and driver-api/md/raid5-cache",
        judge: layers,
    },
    Check {
        id: "disk-mount",
        group: Group::Disk,
        wants: "a mount that may be written to, with barriers",
        why: "without barriers a sync acknowledges what a power cut takes",
        cost: Cost::Failure,
        source: "kernel documentation, filesystems/ext4 (barrier)",
        judge: mount,
    },
    Check {
        id: "disk-writes",
        group: Group::Disk,
        wants: "data is written once, when asked, and trimmed in quiet hours: no data=journal, no sync, no discard",
        why: "data=journal writes all twice; discard trims each segment that is given up, beside the writes of the next",
        cost: Cost::Milliseconds,
        source: "kernel documentation, filesystems/ext4 (data, discard); fstrim(8)",
        judge: writes,
    },
    Check {
        id: "disk-space",
        group: Group::Disk,
        wants: "room for four segments at least, and a tenth of the file system free",
        why: "an appliance without room takes no more commands; a full file system looks longer for each extent",
        cost: Cost::Failure,
        source: "engine/GUIDE.md; kernel documentation, filesystems/ext4 (allocation)",
        judge: space,
    },
    Check {
        id: "disk-scheduler",
        group: Group::Disk,
        wants: "no scheduler: none",
        why: "each write passes a queue that orders and merges for disks with heads; on one that is slow by itself it may be right",
        cost: Cost::Microseconds,
        source: "kernel documentation, block/switching-sched",
        judge: scheduler,
    },
    Check {
        id: "disk-write-cache",
        group: Group::Disk,
        wants: "no volatile write cache, or one that a single write can pass (FUA)",
        why: "else each sync empties the whole cache; disks that outlive a power cut say write through",
        cost: Cost::Milliseconds,
        source: "kernel documentation, block/writeback_cache_control",
        judge: write_cache,
    },
    Check {
        id: "disk-block",
        group: Group::Disk,
        wants: "direct writes may be multiples of 4096 bytes, or less",
        why: "the journal's blocks are padded up to what the disk takes",
        cost: Cost::Microseconds,
        source: "open(2), O_DIRECT; kernel documentation, ABI (logical_block_size)",
        judge: block,
    },
    Check {
        id: "disk-queues",
        group: Group::Disk,
        wants: "an NVMe disk has a queue for each core",
        why: "cores that share one share its lock and its interrupt",
        cost: Cost::Microseconds,
        source: "kernel documentation, block/blk-mq",
        judge: queues,
    },
    Check {
        id: "disk-power-saving",
        group: Group::Disk,
        wants: "an NVMe disk does not sleep: nvme_core.default_ps_max_latency_us 0",
        why: "the next write waits until it is awake",
        cost: Cost::Milliseconds,
        source: "NVM Express, \"Autonomous Power State Transition\"; kernel commit 9947d6a09cd7: disks that take 10 to 100 ms to wake up",
        judge: power_saving,
    },
];

fn file_system(facts: &Facts, _: &Plan) -> Known<Finding> {
    let Mount { kind, at, .. } = known(&facts.disk.mount)?;
    let read = format!("{kind}, mounted at {at}");
    match kind.as_str() {
        "xfs" | "ext4" => ok(read),
        "tmpfs" | "ramfs" => bad(read, "a directory on a disk: nothing here outlives a power cut"),
        kind if kind.starts_with("nfs")
            || kind.starts_with("fuse")
            || matches!(kind, "cifs" | "9p" | "virtiofs" | "overlay") =>
        {
            bad(read, "a directory on a local disk; in a container, a volume")
        }
        _ => warn(read, "xfs or ext4, on which this journal is measured"),
    }
}

fn layers(facts: &Facts, _: &Plan) -> Known<Finding> {
    let layers = known(&facts.disk.layers)?;
    let mut read = Vec::new();
    for Layer { name, kind, below } in layers {
        read.push(format!("{name} ({}) on {}", known(kind)?, below.join(" and ")));
    }
    let has = |kinds: &[&str]| {
        layers.iter().any(|layer| layer.kind.as_ref().is_ok_and(|kind| kinds.contains(&kind.as_str())))
    };
    if has(&["CRYPT"]) {
        let fix =
            "cryptsetup refresh --perf-no_read_workqueue --perf-no_write_workqueue; or a disk that encrypts by itself";
        return warn(read.join(", "), fix);
    }
    if has(&["raid4", "raid5", "raid6"]) {
        return warn(read.join(", "), "RAID 1 or 10; or none, where replicas hold the log");
    }
    if read.is_empty() { ok("none") } else { ok(read.join(", ")) }
}

fn mount(facts: &Facts, _: &Plan) -> Known<Finding> {
    let Mount { options, at, .. } = known(&facts.disk.mount)?;
    let has = |option: &str| options.iter().any(|known| known == option);
    let read = options.join(",");
    if has("nobarrier") || has("barrier=0") {
        return bad(read, format!("mount -o remount,barrier {at}: without it a sync promises nothing"));
    }
    if has("ro") {
        return bad(read, format!("mount -o remount,rw {at}"));
    }
    ok(read)
}

fn writes(facts: &Facts, _: &Plan) -> Known<Finding> {
    let Mount { options, at, .. } = known(&facts.disk.mount)?;
    let has = |option: &str| options.iter().any(|known| known == option);
    let read = options.join(",");
    if has("data=journal") || has("sync") {
        return warn(read, "data=ordered, and no sync: in /etc/fstab");
    }
    if has("discard") {
        return warn(read, format!("mount -o remount,nodiscard {at}, and fstrim.timer in quiet hours"));
    }
    ok(read)
}

fn space(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let (free, all) = *known(&facts.disk.space)?;
    let read = format!("{} of {} free", size(free), size(all));
    if free < plan.disk_bytes_min {
        return bad(
            read,
            format!(
                "room for {} at least; ticktape compact gives up what a snapshot covers",
                size(plan.disk_bytes_min)
            ),
        );
    }
    if free < all / 10 { warn(read, "more room, or another file system") } else { ok(read) }
}

fn scheduler(facts: &Facts, _: &Plan) -> Known<Finding> {
    let name = known(&facts.disk.name)?;
    match &facts.disk.scheduler {
        Ok(word) if word == "none" => ok("none"),
        Ok(word) => warn(word.as_str(), format!("echo none > /sys/block/{name}/queue/scheduler")),
        Err(unread) if unread.is_missing() => not_applicable(format!("{name} has none")),
        Err(unread) => Err(unread.clone()),
    }
}

fn write_cache(facts: &Facts, _: &Plan) -> Known<Finding> {
    let word = known(&facts.disk.write_cache)?;
    let has_fua = *known(&facts.disk.has_fua)?;
    if word == "write through" {
        return ok("write through");
    }
    if has_fua {
        return ok(format!("{word}, with FUA"));
    }
    warn(format!("{word}, without FUA"), "a disk that outlives a power cut; tier memory where replicas hold the log")
}

fn block(facts: &Facts, _: &Plan) -> Known<Finding> {
    let logical = *known(&facts.disk.logical_block_bytes)?;
    let physical = *known(&facts.disk.physical_block_bytes)?;
    // Nothing here depends on atomic writes; that they are there is said for those who wonder.
    let atomic = match &facts.disk.atomic_write_bytes {
        Err(unread) if unread.is_missing() => 0,
        told => *known(told)?,
    };
    let read = format!(
        "{logical} bytes, {physical} inside; whole or not at all: {}",
        if atomic == 0 { "not promised".to_owned() } else { format!("up to {atomic} bytes") }
    );
    if logical <= BLOCK_BYTES_MAX { ok(read) } else { warn(read, "a disk with smaller blocks") }
}

fn is_nvme(facts: &Facts) -> Known<bool> {
    Ok(known(&facts.disk.name)?.starts_with("nvme"))
}

fn queues(facts: &Facts, _: &Plan) -> Known<Finding> {
    if !is_nvme(facts)? {
        return not_applicable("no NVMe disk");
    }
    let (queues, cores) = (*known(&facts.disk.queues)?, known(&facts.cores.online)?.len());
    let read = format!("{queues} queues, {cores} cores");
    if queues >= cores {
        ok(read)
    } else {
        warn(read, "a disk with more queues, or plan the journaler on a core with one of its own")
    }
}

fn power_saving(facts: &Facts, _: &Plan) -> Known<Finding> {
    if !is_nvme(facts)? {
        return not_applicable("no NVMe disk");
    }
    match *known(&facts.disk.power_saving_us)? {
        0 => ok("0"),
        us => warn(format!("up to {us} µs"), "kernel command line: nvme_core.default_ps_max_latency_us=0"),
    }
}
