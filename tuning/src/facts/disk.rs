//! What holds a directory: the file system, its device, and the device's queue.

use std::path::Path;

use super::interrupts::Device;
use super::memory::SHARED;
use super::{INT_MAX, Known, chosen, number, one_of, short, switch, up_to};
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

/// What a file system may lie on instead of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Its name, as `dm-0` or `md127`.
    pub name: String,
    /// What it does: the first word of its identity for the device mapper, as `LVM` or `CRYPT`; the level for RAID, as `raid5`.
    pub kind: Known<String>,
    /// What it lies on.
    pub below: Vec<String>,
}

/// Layers are followed this far down.
const LAYERS_MAX: usize = 8;

/// A directory's disk.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The mount that holds it.
    pub mount: Known<Mount>,
    /// What lies between the file system and the disk, from above.
    pub layers: Known<Vec<Layer>>,
    /// The whole device's name, as `nvme0n1`: the disk below all layers, or the lowest of them where it lies on several.
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
        let top = mount.clone().and_then(|mount| name(root, &mount));
        let layers = top.clone().map(|top| layers(root, &top));
        let name = top.and_then(|top| lowest(root, top, layers.as_deref().unwrap_or_default()));
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
            scheduler: text("queue/scheduler").and_then(|text| scheduler(&chosen(&text))),
            write_cache: text("queue/write_cache")
                .and_then(|word| one_of("queue/write_cache", word, &["write back", "write through"])),
            has_fua: below("queue/fua").and_then(|path| switch(root, &path)),
            logical_block_bytes: bytes("queue/logical_block_size").and_then(block),
            physical_block_bytes: bytes("queue/physical_block_size").and_then(block),
            atomic_write_bytes: below("queue/atomic_write_unit_max_bytes").and_then(|path| up_to(root, &path, INT_MAX)),
            queues: below("mq").and_then(|path| root.names(&path)).map(|names| names.len()),
            power_saving_us: number(root, "sys/module/nvme_core/parameters/default_ps_max_latency_us"),
            space: root.space(directory).and_then(|text| space(&text)),
            mount,
            layers,
            name,
        }
    }
}

/// The last of the longest mount points above `directory` covers the others.
pub(super) fn mount(root: &Root, directory: &Path) -> Known<Mount> {
    let path = "proc/self/mountinfo";
    let text = root.kept(path, |line| {
        let mount = parse(line)?;
        // The source names disks and hosts: it is not kept.
        let Mount { number, at, kind, options } = mount;
        let at_written = at.replace('\\', "\\134").replace(' ', "\\040");
        let options = if options.is_empty() { "-".to_owned() } else { options.join(",") };
        let is_wanted = directory.starts_with(&at) || Path::new(SHARED).starts_with(&at);
        is_wanted.then(|| format!("0 0 {number} / {at_written} {options} - {kind} - -"))
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
    Ok(whole(&root.link(&path)?))
}

/// The whole device of what a link of `/sys` leads to.
fn whole(target: &str) -> String {
    let mut parts = target.rsplit('/');
    let last = parts.next().unwrap_or_default().to_owned();
    // A partition's directory is in its disk's, which is in `block` or, of NVMe, in its controller's.
    match parts.next() {
        Some(disk)
            if last.starts_with(disk)
                && disk.starts_with(|c: char| c.is_ascii_alphabetic())
                && !is_controller(disk) =>
        {
            disk.to_owned()
        }
        _ => last,
    }
}

fn layers(root: &Root, top: &str) -> Vec<Layer> {
    let (mut layers, mut name) = (Vec::new(), top.to_owned());
    while layers.len() < LAYERS_MAX {
        let at = format!("sys/block/{name}");
        let kind = match name.as_bytes() {
            // The rest of it names volumes.
            [b'd', b'm', b'-', ..] => root
                .reduced(&format!("{at}/dm/uuid"), |text| text.split('-').next().unwrap_or_default().trim().to_owned()),
            [b'm', b'd', ..] => root.text(&format!("{at}/md/level")),
            _ => break,
        };
        let below = root.names(&format!("{at}/slaves")).unwrap_or_default();
        let next = if let [one] = &below[..] { whole_of(root, one).ok() } else { None };
        layers.push(Layer { name, kind, below });
        match next {
            Some(next) => name = next,
            None => break,
        }
    }
    layers
}

/// The whole device of a partition or of itself, by its name.
fn whole_of(root: &Root, name: &str) -> Known<String> {
    root.link(&format!("sys/class/block/{name}")).map(|target| whole(&target))
}

/// The disk below `layers`, which begin with `top`.
fn lowest(root: &Root, top: String, layers: &[Layer]) -> Known<String> {
    match layers.last() {
        None => Ok(top),
        Some(Layer { below, .. }) if below.len() == 1 => whole_of(root, &below[0]),
        Some(layer) => Ok(layer.name.clone()),
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
    numbers
        .filter(|(free, all): &(u64, u64)| free <= all && *all > 0)
        .ok_or_else(|| Unread::malformed("ticktape/space.txt", super::short(text)))
}

/// The bytes of a block: half a KiB, or so many times two of it.
fn block(bytes: u64) -> Known<u64> {
    const MAX: u64 = 64 << 20;
    if bytes.is_power_of_two() && (512..=MAX).contains(&bytes) {
        return Ok(bytes);
    }
    Err(Unread::malformed("block size", format!("{bytes} bytes are none")))
}

/// A scheduler's name, as `mq-deadline`: what is something else tells nothing.
fn scheduler(word: &str) -> Known<String> {
    let is_name = word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'));
    if is_name {
        return Ok(word.to_owned());
    }
    Err(Unread::malformed("queue/scheduler", format!("{:?} is no scheduler's name", short(word))))
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

    #[test]
    fn below_layers_there_is_a_disk() {
        let text = "== proc/self/mountinfo\n40 22 253:1 / /data rw - xfs - rw\n\
            == sys/dev/block/253:1 -> ../../devices/virtual/block/dm-1\n\
            == sys/block/dm-1/dm/uuid\nLVM-BOOKvolume\n== sys/block/dm-1/slaves/dm-0/\n\
            == sys/class/block/dm-0 -> ../../devices/virtual/block/dm-0\n\
            == sys/block/dm-0/dm/uuid\nCRYPT-LUKS2-secret\n== sys/block/dm-0/slaves/nvme1n1p3/\n\
            == sys/class/block/nvme1n1p3 -> ../../devices/pci0000:00/nvme/nvme1/nvme1n1/nvme1n1p3\n\
            == sys/block/nvme1n1/queue/scheduler\n[none] mq-deadline\n";
        let root = Root::recorded(text.parse().unwrap());
        let disk = Disk::read(&root, Path::new("/data/journal"));
        let layer = |name: &str, kind: &str, below: &str| Layer {
            name: name.into(),
            kind: Ok(kind.into()),
            below: vec![below.into()],
        };
        assert_eq!(disk.layers, Ok(vec![layer("dm-1", "LVM", "dm-0"), layer("dm-0", "CRYPT", "nvme1n1p3")]));
        assert_eq!((disk.name.unwrap().as_str(), disk.scheduler.unwrap().as_str()), ("nvme1n1", "none"));
        assert!(!root.seen().to_string().contains("secret") && !root.seen().to_string().contains("BOOK"));
    }

    #[test]
    fn a_disk_of_several_is_the_lowest_layer_and_a_ring_of_layers_ends() {
        let raid = "== proc/self/mountinfo\n40 22 9:0 / /data rw - xfs - rw\n\
            == sys/dev/block/9:0 -> ../../devices/virtual/block/md0\n== sys/block/md0/md/level\nraid5\n\
            == sys/block/md0/slaves/sda1/\n== sys/block/md0/slaves/sdb1/\n";
        let disk = Disk::read(&Root::recorded(raid.parse().unwrap()), Path::new("/data"));
        assert_eq!(disk.name.unwrap(), "md0");
        let layers = disk.layers.unwrap();
        assert_eq!((layers[0].kind.as_deref(), layers[0].below.len()), (Ok("raid5"), 2));
        let ring = "== proc/self/mountinfo\n40 22 253:0 / /data rw - xfs - rw\n\
            == sys/dev/block/253:0 -> ../../devices/virtual/block/dm-0\n== sys/block/dm-0/slaves/dm-0/\n\
            == sys/class/block/dm-0 -> ../../devices/virtual/block/dm-0\n";
        let disk = Disk::read(&Root::recorded(ring.parse().unwrap()), Path::new("/data"));
        assert_eq!(disk.layers.unwrap().len(), LAYERS_MAX);
    }
}
