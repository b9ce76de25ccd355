//! What holds a directory: the file system, its device, and the device's queue.

use std::path::Path;

use super::interrupts::Device;
use super::{Known, chosen, number};
use crate::root::{Root, Unread};

/// Where a file system is mounted, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its device's numbers, as `259:2`.
    pub number: String,
    /// Where.
    pub at: String,
    /// Which file system, as `xfs`.
    pub kind: String,
    /// The mount's options and the file system's own.
    pub options: Vec<String>,
}

/// A directory's disk.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The mount that holds it.
    pub mount: Known<Mount>,
    /// The whole device's name, as `nvme0n1`.
    pub name: Known<String>,
    /// How its interrupts are told.
    pub device: Device,
    /// The node it hangs on; -1 where the box has none.
    pub node: Known<i64>,
    /// Who orders its requests; `none` is nobody.
    pub scheduler: Known<String>,
    /// `write back` or `write through`.
    pub write_cache: Known<String>,
    /// Whether a single write can be told to pass the cache.
    pub has_fua: Known<bool>,
    /// The block that direct writes are multiples of.
    pub logical_block_bytes: Known<u64>,
    /// The block that it writes inside.
    pub physical_block_bytes: Known<u64>,
    /// The largest write that is whole or not at all; 0 where it promises none.
    pub atomic_write_bytes: Known<u64>,
    /// Its hardware queues.
    pub queues: Known<usize>,
    /// The wakeup latency that an NVMe disk may take to save power, in µs, where the driver is loaded.
    pub power_saving_us: Known<u64>,
    /// Bytes free, and in all.
    pub space: Known<(u64, u64)>,
}

impl Disk {
    /// Reads what holds `directory`, an absolute path.
    pub fn read(root: &Root, directory: &Path) -> Disk {
        let mount = mount(root, directory);
        let name = mount.clone().and_then(|mount| name(root, &mount));
        let below = |file: &str| name.clone().map(|name| format!("sys/block/{name}/{file}"));
        let text = |file: &str| below(file).and_then(|path| root.text(&path));
        let bytes = |file: &str| below(file).and_then(|path| number(root, &path));
        let device = name.as_ref().map(|name| device(root, name)).unwrap_or_default();
        Disk {
            device,
            node: below("device/numa_node").and_then(|path| match number(root, &path) {
                // An NVMe namespace hangs below its controller.
                Err(unread) if unread.is_missing() => number(root, &path.replace("numa_node", "device/numa_node")),
                found => found,
            }),
            scheduler: text("queue/scheduler").map(|text| chosen(&text)),
            write_cache: text("queue/write_cache"),
            has_fua: bytes("queue/fua").map(|fua: u64| fua != 0),
            logical_block_bytes: bytes("queue/logical_block_size"),
            physical_block_bytes: bytes("queue/physical_block_size"),
            atomic_write_bytes: bytes("queue/atomic_write_unit_max_bytes"),
            queues: below("mq").and_then(|path| root.names(&path)).map(|names| names.len()),
            power_saving_us: number(root, "sys/module/nvme_core/parameters/default_ps_max_latency_us"),
            space: root.space(directory).and_then(|text| space(&text)),
            mount,
            name,
        }
    }
}

/// The last of the longest mount points above `directory` covers the others.
fn mount(root: &Root, directory: &Path) -> Known<Mount> {
    let path = "proc/self/mountinfo";
    let text = root.kept(path, |line| {
        let mount = parse(line)?;
        // The source names disks and hosts: it is not kept.
        let Mount { number, at, kind, options } = mount;
        let at_written = at.replace('\\', "\\134").replace(' ', "\\040");
        let options = if options.is_empty() { "-".to_owned() } else { options.join(",") };
        directory.starts_with(&at).then(|| format!("0 0 {number} / {at_written} {options} - {kind} - -"))
    })?;
    let above = text.lines().filter_map(parse).filter(|mount| directory.starts_with(&mount.at));
    let longest = above.max_by_key(|mount| mount.at.len());
    longest.ok_or_else(|| Unread::malformed(path, format!("no mount above {}", directory.display())))
}

/// `36 35 98:0 /root /mount options optional… - kind source options`.
fn parse(line: &str) -> Option<Mount> {
    let words: Vec<&str> = line.split(' ').collect();
    let [_, _, number, _, at, options, ..] = words[..] else { return None };
    let dash = words.iter().skip(6).position(|word| *word == "-").map_or(6, |at| at + 6);
    // The dash is the seventh word at least.
    let (kind, own) = (words.get(dash + 1)?, words.get(dash + 3).copied().unwrap_or_default());
    let options = options.split(',').chain(own.split(',')).filter(|option| !matches!(*option, "" | "-"));
    let mut known = std::collections::BTreeSet::new();
    let options = options.filter(|option| known.insert(*option));
    Some(Mount {
        number: (*number).to_owned(),
        at: at.replace("\\040", " ").replace("\\134", "\\"),
        kind: (*kind).to_owned(),
        options: options.map(str::to_owned).collect(),
    })
}

/// The whole device of a partition or of itself, by its numbers.
fn name(root: &Root, mount: &Mount) -> Known<String> {
    let path = format!("sys/dev/block/{}", mount.number);
    // The kernel gives such numbers to what has no device.
    if mount.number.starts_with("0:") {
        return Err(Unread::malformed(&path, format!("{} does not tell which disk it is on", mount.kind)));
    }
    let target = root.link(&path)?;
    let mut parts = target.rsplit('/');
    let last = parts.next().unwrap_or_default().to_owned();
    // A partition's directory is in its disk's, which is in `block` or, of NVMe, in its controller's.
    match parts.next() {
        Some(disk)
            if last.starts_with(disk)
                && disk.starts_with(|c: char| c.is_ascii_alphabetic())
                && !is_controller(disk) =>
        {
            Ok(disk.to_owned())
        }
        _ => Ok(last),
    }
}

/// `nvme0`, but not `nvme0n1`.
fn is_controller(name: &str) -> bool {
    name.strip_prefix("nvme").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn device(root: &Root, name: &str) -> Device {
    // NVMe names its interrupts after the controller: nvme0q1.
    let controller =
        name.strip_prefix("nvme").and_then(|rest| rest.split_once('n')).map(|(number, _)| format!("nvme{number}q"));
    let mut device = Device::read(root, &format!("sys/block/{name}/device"), name);
    if let Some(controller) = controller {
        let queues = (0..super::cpu_list::CORES_MAX.min(1_024)).map(|queue| format!("{controller}{queue}"));
        device.names.extend(queues);
    }
    device
}

fn space(text: &str) -> Known<(u64, u64)> {
    let numbers = text.split_once(' ').and_then(|(free, all)| Some((free.parse().ok()?, all.parse().ok()?)));
    numbers.ok_or_else(|| Unread::malformed("ticktape/space.txt", super::short(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_nearest_above_a_directory_holds_it() {
        let text = "== proc/self/mountinfo\n\
            22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro\n\
            40 22 259:3 / /data rw,noatime - xfs /dev/mapper/secret rw,logbufs=8\n\
            41 22 0:30 / /database rw - tmpfs tmpfs rw\n\
            == sys/dev/block/259:3 -> ../../devices/pci0000:00/0000:00:1d.0/nvme/nvme1/nvme1n1/nvme1n1p3\n\
            == sys/block/nvme1n1/queue/scheduler\n[none] mq-deadline\n";
        let root = Root::recorded(text.parse().unwrap());
        let disk = Disk::read(&root, Path::new("/data/journal"));
        let mount = disk.mount.unwrap();
        assert_eq!((mount.at.as_str(), mount.kind.as_str()), ("/data", "xfs"));
        assert_eq!(mount.options, ["rw", "noatime", "logbufs=8"]);
        assert_eq!((disk.name.unwrap().as_str(), disk.scheduler.unwrap().as_str()), ("nvme1n1", "none"));
        let again = Root::recorded(root.seen().to_string().parse().unwrap());
        assert!(!root.seen().to_string().contains("secret"));
        assert_eq!(Disk::read(&again, Path::new("/data/journal")).mount.unwrap().options, mount.options);
    }

    #[test]
    fn a_disk_is_named_by_its_whole_device() {
        for (target, name) in [
            ("../../devices/virtio1/block/vda", "vda"),
            ("../../devices/host0/block/sda/sda1", "sda"),
            ("../../devices/nvme/nvme0/nvme0n1", "nvme0n1"),
            ("../../devices/nvme/nvme0/nvme0n1/nvme0n1p1", "nvme0n1"),
            ("../../devices/virtual/block/dm-0", "dm-0"),
        ] {
            let root = Root::recorded(format!("== sys/dev/block/8:1 -> {target}\n").parse().unwrap());
            let mount = Mount { number: "8:1".into(), at: "/".into(), kind: "xfs".into(), options: Vec::new() };
            assert_eq!(super::name(&root, &mount).unwrap(), name, "{target}");
        }
    }
}
