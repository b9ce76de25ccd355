//! What machine this is, for the head of every table of numbers.

use std::fmt;
use std::fs;

use crate::pin;

/// A machine, as far as numbers depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub hostname: String,
    /// The kernel's name and release.
    pub kernel: String,
    /// The processor's model, as it calls itself.
    pub cpu_model: String,
    /// The cores this process may run on.
    pub usable_cores: Vec<usize>,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Host { hostname, kernel, cpu_model, usable_cores } = self;
        write!(f, "{hostname}: {cpu_model}, cores {}, {kernel}", pin::list(usable_cores))
    }
}

/// Reads what the kernel tells about the machine. What it does not tell is "unknown".
pub fn describe() -> Host {
    let line = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let kernel = format!("{} {}", line("/proc/sys/kernel/ostype"), line("/proc/sys/kernel/osrelease"));
    Host {
        hostname: known(&line("/proc/sys/kernel/hostname")),
        kernel: known(kernel.trim()),
        cpu_model: known(cpu_model(&cpuinfo)),
        usable_cores: pin::usable_cores(),
    }
}

fn known(text: &str) -> String {
    if text.is_empty() { "unknown".to_owned() } else { text.to_owned() }
}

/// The model of the first processor listed. Some virtual machines give a number only, some nothing.
fn cpu_model(cpuinfo: &str) -> &str {
    let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    fields
        .map(|(name, value)| (name.trim(), value.trim()))
        .find(|(name, _)| *name == "model name")
        .map_or("", |(_, v)| v)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_processors_model_is_read() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Some CPU @ 2.90GHz: fast\n\nprocessor\t: 1\nmodel name\t: Other\n";
        assert_eq!(cpu_model(cpuinfo), "Some CPU @ 2.90GHz: fast");
        assert_eq!(cpu_model(""), "");
        assert_eq!(cpu_model("model name"), "");
    }

    #[test]
    fn this_machine_is_described_in_one_line() {
        let host = describe();
        assert!(host.kernel.starts_with("Linux "), "{host:?}");
        assert_eq!(host.usable_cores, pin::usable_cores());
        let line = host.to_string();
        assert!(line.contains(&host.hostname) && line.contains(&host.cpu_model), "{line}");
        assert!(!line.contains('\n'));
    }
}
