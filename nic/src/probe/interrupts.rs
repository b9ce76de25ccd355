//! Which interrupts an interface has, where they went so far, and where they may go.

use std::collections::BTreeSet;
use std::{fmt, fs, io};

use super::netlink::Napi;
use super::sysfs::Sysfs;
use crate::packet::InterfaceInfo;

/// One of an interface's interrupts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// What the driver calls it.
    pub name: String,
    /// Cores that took it since the start of the system, with how often.
    pub taken: Vec<(usize, u64)>,
    /// The cores that may take it, as the kernel writes them; or why that can't be told.
    pub affinity: Result<String, String>,
}

impl Interrupt {
    /// Whether more than one core may take it.
    pub fn is_spread(&self) -> bool {
        self.affinity.as_ref().is_ok_and(|cores| cores.contains(['-', ',']))
    }
}

impl fmt::Display for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): ", self.number, self.name)?;
        let taken: Vec<String> = self.taken.iter().map(|(core, times)| format!("core {core} {times}")).collect();
        f.write_str(if taken.is_empty() { "never yet".to_owned() } else { taken.join(", ") }.as_str())?;
        match &self.affinity {
            Ok(cores) => write!(f, ", may go to {cores}"),
            Err(why) => write!(f, ", where it may go is not known: {why}"),
        }
    }
}

/// The interrupts of an interface: by its device, by its polling contexts, or by its name. Empty where it has none.
pub fn of(info: &InterfaceInfo, sysfs: Option<&Sysfs>, napis: &[Napi]) -> Result<Vec<Interrupt>, String> {
    let table = fs::read_to_string("/proc/interrupts").map_err(|error| format!("/proc/interrupts: {error}"))?;
    let mut numbers: BTreeSet<u32> = napis.iter().filter_map(|napi| napi.irq).collect();
    numbers.extend(sysfs.map(Sysfs::interrupts).unwrap_or_default());
    let mut found = parse(&table, |number, name| numbers.contains(&number) || belongs(name, &info.name));
    for interrupt in &mut found {
        interrupt.affinity = affinity(interrupt.number);
    }
    Ok(found)
}

/// Whether an interrupt is called after an interface, as in `eth1-TxRx-0`; that of `eth10` is not `eth1`'s.
fn belongs(name: &str, interface: &str) -> bool {
    name.split([',', ' ', '@']).any(|word| {
        let mut parts = word.match_indices(interface);
        parts.any(|(at, _)| {
            let is_edge = |next: Option<char>| next.is_none_or(|letter| !letter.is_alphanumeric());
            is_edge(word[..at].chars().next_back()) && is_edge(word[at + interface.len()..].chars().next())
        })
    })
}

fn affinity(number: u32) -> Result<String, String> {
    let path = format!("/proc/irq/{number}/smp_affinity_list");
    fs::read_to_string(&path).map(|text| text.trim().to_owned()).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => "needs root".to_owned(),
        _ => format!("{path}: {error}"),
    })
}

/// The numbered rows of /proc/interrupts (proc(5)) that are wanted by number and name.
fn parse(table: &str, wanted: impl Fn(u32, &str) -> bool) -> Vec<Interrupt> {
    let mut rows = table.lines();
    let cores: Vec<usize> = rows
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|head| head.strip_prefix("CPU")?.parse().ok())
        .collect();
    rows.filter_map(|row| {
        let (number, rest) = row.split_once(':')?;
        let number = number.trim().parse().ok()?;
        let mut fields = rest.split_whitespace();
        let counts: Vec<u64> = fields.by_ref().take(cores.len()).map_while(|count| count.parse().ok()).collect();
        // The chip, its own number and trigger; the driver's name for it comes last.
        let name = fields.collect::<Vec<_>>();
        let name = name.get(2..).unwrap_or_default().join(" ");
        let taken = cores.iter().copied().zip(counts).filter(|&(_, times)| times > 0).collect();
        wanted(number, &name).then(|| Interrupt { number, name, taken, affinity: Err("not asked".to_owned()) })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "           CPU0       CPU2       \n 24:          1          0  IO-APIC   5-edge      ACPI:Ged\n \
                         38:          0       6155 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\n \
                         39:          7          9 PCI-MSIX-0000:00:03.0   2-edge      eth1-TxRx-0\n \
                         40:          0          0 PCI-MSIX-0000:00:03.0   3-edge      eth10-TxRx-0\nNMI:  0  0  Non-maskable interrupts\n";

    #[test]
    fn rows_are_found_by_number_and_by_name() {
        let found = parse(TABLE, |number, name| number == 38 || belongs(name, "eth1"));
        let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["virtio2-input.0", "eth1-TxRx-0"]);
        assert_eq!((&found[0].taken, &found[1].taken), (&vec![(2, 6155)], &vec![(0, 7), (2, 9)]));
        assert!(parse("", |_, _| true).is_empty() && parse("garbage\n1:\n2: x", |_, _| true).len() == 2);
    }

    #[test]
    fn names_are_told_from_longer_ones() {
        for (name, is) in
            [("eth1-rx", true), ("mlx5_comp0@eth1", true), ("eth10", false), ("veth1", false), ("", false)]
        {
            assert_eq!(belongs(name, "eth1"), is, "{name}");
        }
    }

    #[test]
    fn several_cores_are_spread() {
        let with = |affinity: Result<&str, &str>| Interrupt {
            number: 1,
            name: "x".to_owned(),
            taken: Vec::new(),
            affinity: affinity.map(str::to_owned).map_err(str::to_owned),
        };
        assert!(with(Ok("0-3")).is_spread() && with(Ok("0,2")).is_spread());
        assert!(!with(Ok("3")).is_spread() && !with(Err("needs root")).is_spread());
        assert_eq!(with(Ok("3")).to_string(), "1 (x): never yet, may go to 3");
    }
}
