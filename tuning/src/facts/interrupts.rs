//! Interrupts: `/proc/interrupts` and `/proc/irq`.

use std::collections::BTreeMap;

use super::Known;
use super::cpu_list::{self, CoreSet};
use crate::root::{Root, Unread};

/// One interrupt line of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// Its chip, kind and devices, as the kernel names them.
    pub name: String,
    /// How often each core took it since the start.
    pub counts: BTreeMap<usize, u64>,
    /// The cores that it goes to now.
    pub goes_to: Known<CoreSet>,
    /// The cores that it may go to; of a queue that the kernel gave to some cores, these.
    pub may_go_to: Known<CoreSet>,
}

impl Interrupt {
    /// Those of `cores` to which it ever came and still goes. The interrupt of a disk's queue comes of what the queue's cores submit: so where
    /// all of these are `quiet` and submit nothing, it came of the past alone.
    pub fn strikes(&self, cores: &[usize], quiet: &[usize]) -> CoreSet {
        if self.queue_cores().is_some_and(|own| !own.is_empty() && cpu_list::without(&own, quiet).is_empty()) {
            return Vec::new();
        }
        let here = self.goes_to.as_ref().map(|to| cpu_list::common(to, cores)).unwrap_or_default();
        here.into_iter().filter(|core| self.counts.get(core).is_some_and(|count| *count > 0)).collect()
    }

    /// The cores that share the queue of a disk that this is the interrupt of, as far as they run; `None` where it is of something else.
    ///
    /// The kernel shares out the cores among the queues of NVMe and of virtio's disks, and gives each queue's interrupt to its cores for
    /// good. NVMe's queue 0 has commands of the driver alone, and goes anywhere; so do a card's, whose hash sends to any queue, and those
    /// that several queues share.
    pub fn queue_cores(&self) -> Option<CoreSet> {
        let name = self.name.split_whitespace().last()?;
        let numbered = |text: &str| text.parse::<u32>().ok();
        let of_nvme = || {
            let (disk, queue) = name.strip_prefix("nvme")?.split_once('q')?;
            numbered(disk).and(numbered(queue)).filter(|queue| *queue > 0)
        };
        let of_virtio = || {
            let (disk, queue) = name.strip_prefix("virtio")?.split_once("-req.")?;
            numbered(disk).and(numbered(queue))
        };
        of_nvme().or_else(of_virtio)?;
        let online: CoreSet = self.counts.keys().copied().collect();
        Some(cpu_list::common(self.may_go_to.as_ref().ok()?, &online))
    }

    /// How often it came to `cores`.
    pub fn count(&self, cores: &[usize]) -> u64 {
        cores.iter().filter_map(|core| self.counts.get(core)).fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Whether it is `device`'s, as in `eth0-TxRx-3`, `virtio2-input.0`, `nvme0q1` or `mlx5_comp0@pci:0000:3b:00.0`.
    pub fn is_of(&self, device: &Device) -> bool {
        device.numbers.contains(&self.number)
            || self.name.split_whitespace().flat_map(|word| word.split(',')).any(|word| {
                device.names.iter().any(|name| {
                    let after = word
                        .strip_prefix(name.as_str())
                        .or_else(|| word.split_once('@')?.1.strip_prefix(name.as_str()));
                    after.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
                })
            })
    }
}

/// How a device's interrupts are told from others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Names that their names begin with.
    pub names: Vec<String>,
    /// Their numbers, where the bus tells.
    pub numbers: Vec<u32>,
}

impl Device {
    /// What sysfs tells of the device at `path`: its name there, and its message-signalled interrupts.
    pub(super) fn read(root: &Root, path: &str, name: &str) -> Device {
        let mut names = vec![name.to_owned()];
        let bus = root.link(path).ok().and_then(|target| target.rsplit('/').next().map(str::to_owned));
        // A PCI address is in the names of some drivers' interrupts, as `pci:0000:3b:00.0`.
        names.extend(bus.map(|bus| if bus.contains(':') { format!("pci:{bus}") } else { bus }));
        let numbers = root.names(&format!("{path}/msi_irqs")).unwrap_or_default();
        Device { names, numbers: numbers.iter().filter_map(|number| number.parse().ok()).collect() }
    }
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Interrupts {
    /// Those of devices.
    pub devices: Known<Vec<Interrupt>>,
    /// Where new ones go.
    pub default: Known<CoreSet>,
    /// Where unbound work of the kernel may run.
    pub workqueues: Known<CoreSet>,
    /// What irqbalance was told to keep off: `IRQBALANCE_BANNED_CPULIST`, or the same as a mask.
    pub banned: Known<CoreSet>,
}

impl Interrupts {
    /// Reads them.
    pub fn read(root: &Root) -> Interrupts {
        let devices = root.kept("proc/interrupts", |line| is_wanted(line).then(|| line.to_owned()));
        let devices = devices.and_then(|text| parse(&text)).map(|mut found| {
            for interrupt in &mut found {
                interrupt.may_go_to = affinity(root, interrupt.number, "smp_affinity_list");
                interrupt.goes_to = match affinity(root, interrupt.number, "effective_affinity_list") {
                    // The cores that the kernel picked, or those that it may pick from where it does not say.
                    Ok(cores) if !cores.is_empty() => Ok(cores),
                    Err(unread) if !unread.is_missing() => Err(unread),
                    _ => interrupt.may_go_to.clone(),
                };
            }
            found
        });
        Interrupts {
            devices,
            default: cpu_list::read_mask(root, "proc/irq/default_smp_affinity"),
            workqueues: cpu_list::read_mask(root, "sys/devices/virtual/workqueue/cpumask"),
            banned: banned(root),
        }
    }
}

/// The head and the lines of devices.
fn is_wanted(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    first.starts_with("CPU") || first.trim_end_matches(':').parse::<u32>().is_ok()
}

/// Reads `/proc/interrupts`; where they go is asked elsewhere.
fn parse(text: &str) -> Known<Vec<Interrupt>> {
    let malformed = |what: &str| Unread::malformed("proc/interrupts", what);
    let mut lines = text.lines();
    let head = lines.next().ok_or_else(|| malformed("empty"))?;
    let cores: Vec<usize> = head
        .split_whitespace()
        .map(|word| word.strip_prefix("CPU")?.parse().ok())
        .collect::<Option<_>>()
        .ok_or_else(|| malformed("its first line does not name cores"))?;
    let interrupt = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let mut words = rest.split_whitespace();
        let counts = cores.iter().map(|&core| Some((core, words.next()?.parse().ok()?))).collect::<Option<_>>()?;
        let name = words.collect::<Vec<_>>().join(" ");
        let goes_to = Err(Unread::malformed("proc/irq", "not asked"));
        Some(Interrupt { number: number.trim().parse().ok()?, name, counts, may_go_to: goes_to.clone(), goes_to })
    };
    Ok(lines.filter_map(interrupt).collect())
}

fn affinity(root: &Root, number: u32, file: &str) -> Known<CoreSet> {
    cpu_list::read_list(root, &format!("proc/irq/{number}/{file}"))
}

fn banned(root: &Root) -> Known<CoreSet> {
    let path = ["etc/default/irqbalance", "etc/sysconfig/irqbalance"];
    let wanted = |line: &str| line.trim_start().starts_with("IRQBALANCE_BANNED_CPU").then(|| line.trim().to_owned());
    let (path, text) = match root.kept(path[0], wanted) {
        Ok(text) => (path[0], text),
        Err(_) => (path[1], root.kept(path[1], wanted)?),
    };
    let mut banned = Vec::new();
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        let value = value.trim_matches(['"', '\'', ' ']);
        let cores = if key.ends_with("CPULIST") { cpu_list::list(value) } else { cpu_list::mask(value) };
        banned.extend(cores.map_err(|what| Unread::malformed(path, what))?);
    }
    Ok(cpu_list::sorted(banned))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "           CPU0       CPU2\n 24:          1          7  IO-APIC   5-edge      virtio1-req.0\n 140:  0  9  IR-PCI-MSIX-0000:3b:00.0 1-edge mlx5_comp0@pci:0000:3b:00.0\n 7: 1\n";

    #[test]
    fn interrupts_are_read_with_the_cores_that_are_online() {
        let found = parse(TEXT).unwrap();
        assert_eq!(found.len(), 2, "the short line is left out");
        assert_eq!((found[0].number, found[0].counts[&2]), (24, 7));
        assert_eq!(found[1].count(&[0, 2]), 9);
        assert!(parse("").is_err() && parse("24: 1 2").is_err());
    }

    #[test]
    fn a_devices_interrupts_are_told_by_name_or_number() {
        let found = parse(TEXT).unwrap();
        let named = |name: &str| Device { names: vec![name.to_owned()], numbers: Vec::new() };
        assert!(
            found[0].is_of(&named("virtio1"))
                && !found[0].is_of(&named("virtio"))
                && !found[0].is_of(&named("virtio10"))
        );
        assert!(found[1].is_of(&named("pci:0000:3b:00.0")) && !found[1].is_of(&named("pci:0000:3b:00.1")));
        assert!(found[0].is_of(&Device { names: Vec::new(), numbers: vec![24] }));
    }

    #[test]
    fn only_those_that_came_and_still_go_there_strike() {
        let mut interrupt = parse(TEXT).unwrap().remove(0);
        interrupt.goes_to = Ok(vec![2, 3]);
        assert_eq!(interrupt.strikes(&[0, 2, 3], &[]), [2]);
        interrupt.goes_to = Ok(vec![0]);
        assert!(interrupt.strikes(&[2], &[]).is_empty());
    }

    #[test]
    fn a_disks_queue_does_not_strike_where_nobody_submits() {
        let of = |name: &str, may_go_to: &[usize]| Interrupt {
            name: format!("IR-PCI-MSIX-0000:65:00.0 1-edge {name}"),
            may_go_to: Ok(may_go_to.to_vec()),
            goes_to: Ok(vec![2]),
            ..parse(TEXT).unwrap().remove(0)
        };
        // Core 3 does not run: nothing is submitted there.
        for (name, may_go_to, quiet, strikes) in [
            ("nvme0q3", &[2][..], &[2][..], false),
            ("nvme0q3", &[2, 3], &[2], false),
            ("nvme0q3", &[0, 2], &[2], true),
            ("nvme0q3", &[0, 2], &[0, 2], false),
            ("nvme0q3", &[2], &[], true),
            ("virtio1-req.2", &[2], &[2], false),
            ("nvme0q0", &[2], &[2], true),
            ("nvme0q0, nvme0q1", &[0, 2], &[2], true),
            ("virtio1-virtqueues", &[2], &[2], true),
            ("ice-eth1-TxRx-2", &[2], &[2], true),
            ("virtio2-input.0", &[2], &[2], true),
            ("mpt3sas0-msix2", &[2], &[2], true),
        ] {
            let found = of(name, may_go_to).strikes(&[0, 2], quiet);
            assert_eq!(found, if strikes { vec![2] } else { Vec::new() }, "{name} {may_go_to:?} {quiet:?}");
        }
        let untold = Interrupt { may_go_to: Err(Unread::malformed("x", "y")), ..of("nvme0q3", &[]) };
        assert_eq!((untold.queue_cores(), untold.strikes(&[2], &[2])), (None, vec![2]));
    }
}
