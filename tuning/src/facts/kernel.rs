//! The kernel: its version, how it was started, and its settings.

use super::{Known, number, one_of, up_to, value};
use crate::root::{Root, Unread};

/// What of the command line is kept. The rest may name disks and hosts.
const PARAMETERS: [&str; 24] = [
    "isolcpus",
    "nohz_full",
    "nohz",
    "rcu_nocbs",
    "rcu_nocb_poll",
    "irqaffinity",
    "kthread_cpus",
    "mitigations",
    "audit",
    "nosmt",
    "nowatchdog",
    "nmi_watchdog",
    "nosoftlockup",
    "tsc",
    "clocksource",
    "idle",
    "intel_idle.max_cstate",
    "processor.max_cstate",
    "intel_pstate",
    "amd_pstate",
    "transparent_hugepage",
    "hugepages",
    "skew_tick",
    "preempt",
];

/// How the kernel was started, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine(Vec<(String, Option<String>)>);

impl CommandLine {
    /// Reads the parameters before `--`, with the names that matter.
    pub fn parse(text: &str) -> CommandLine {
        let words = text.split_whitespace().take_while(|word| *word != "--");
        let parameters = words.map(|word| match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (word.to_owned(), None),
        });
        CommandLine(parameters.filter(|(name, _)| PARAMETERS.contains(&name.as_str())).collect())
    }

    /// Whether it is there, with a value or without.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// Its last value, as the kernel takes it.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(known, _)| known == name).and_then(|(_, value)| value.as_deref())
    }

    fn line(&self) -> String {
        let words = self.0.iter().map(|(name, value)| match value {
            Some(value) => format!("{name}={value}"),
            None => name.clone(),
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its release, as `6.12.3-1`.
    pub release: Known<String>,
    /// How it was built, as `#1 SMP PREEMPT_DYNAMIC`.
    pub build: Known<String>,
    /// How it was started.
    pub command_line: Known<CommandLine>,
    /// Flaws of the processor that the kernel works around, with how.
    pub mitigations: Known<Vec<(String, String)>>,
    /// Whether the hard-lockup detector is on.
    pub nmi_watchdog: Known<u64>,
    /// Whether the soft-lockup detector is on.
    pub soft_watchdog: Known<u64>,
    /// The cores that it watches.
    pub watchdog_cores: Known<Vec<usize>>,
    /// Whether idle cores' timers move to busy ones.
    pub timer_migration: Known<u64>,
    /// What the clock is read from.
    pub clocksource: Known<String>,
    /// What the processor says of itself.
    pub flags: Known<Vec<String>>,
    /// Whether sessions share cores as groups.
    pub autogroup: Known<u64>,
    /// µs of each second that threads of real-time policies may take; -1 is all.
    pub rt_runtime_us: Known<i64>,
}

impl Kernel {
    /// Reads it.
    pub fn read(root: &Root) -> Kernel {
        let switch = |file: &str| up_to(root, &format!("proc/sys/kernel/{file}"), 1);
        let line = root.kept("proc/cmdline", |line| Some(CommandLine::parse(line).line()));
        Kernel {
            release: root.text("proc/sys/kernel/osrelease"),
            build: root.text("proc/sys/kernel/version"),
            command_line: line.map(|text| CommandLine::parse(&text)),
            mitigations: mitigations(root),
            nmi_watchdog: switch("nmi_watchdog"),
            soft_watchdog: switch("soft_watchdog"),
            watchdog_cores: super::cpu_list::read_list(root, "proc/sys/kernel/watchdog_cpumask"),
            timer_migration: switch("timer_migration"),
            clocksource: root.text(CLOCKSOURCE).and_then(|word| one_of(CLOCKSOURCE, word, &CLOCKSOURCES)),
            flags: flags(root),
            autogroup: switch("sched_autogroup_enabled"),
            rt_runtime_us: number::<i32>(root, "proc/sys/kernel/sched_rt_runtime_us").and_then(|us| match us {
                -1.. => Ok(i64::from(us)),
                _ => Err(Unread::malformed("proc/sys/kernel/sched_rt_runtime_us", format!("{us} is no time"))),
            }),
        }
    }

    /// The release's first two numbers.
    pub fn version(&self) -> Known<(u32, u32)> {
        let release = self.release.as_ref().map_err(Unread::clone)?;
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
            _ => Err(Unread::malformed("proc/sys/kernel/osrelease", super::short(release))),
        }
    }

    /// Whether this is a guest.
    pub fn is_guest(&self) -> Known<bool> {
        self.flags.as_ref().map(|flags| flags.iter().any(|flag| flag == "hypervisor")).map_err(Unread::clone)
    }
}

const CLOCKSOURCE: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";

/// What the kernel can read the clock from, on any box that this runs on.
const CLOCKSOURCES: [&str; 13] = [
    "tsc",
    "tsc-early",
    "hpet",
    "acpi_pm",
    "pit",
    "jiffies",
    "refined-jiffies",
    "kvm-clock",
    "xen",
    "hyperv_clocksource_tsc_page",
    "hyperv_clocksource_msr",
    "arch_sys_counter",
    "riscv_clocksource",
];

/// How what the kernel says of a flaw begins.
const HOW: [&str; 7] =
    ["Not affected", "Vulnerable", "Mitigation", "Processor vulnerable", "Unknown", "KVM:", "System vulnerable"];

fn mitigations(root: &Root) -> Known<Vec<(String, String)>> {
    let at = "sys/devices/system/cpu/vulnerabilities";
    let how = |name: String| {
        let path = format!("{at}/{name}");
        let text = root.text(&path)?;
        // As the kernel says it; what is something else tells nothing.
        let is_known = HOW.iter().any(|word| text.starts_with(word));
        if is_known {
            Ok((name, text))
        } else {
            Err(Unread::malformed(&path, format!("{:?} is no state of a flaw", super::short(&text))))
        }
    };
    root.names(at)?.into_iter().map(how).collect()
}

/// Those of the first core that matter here.
fn flags(root: &Root) -> Known<Vec<String>> {
    const MATTER: [&str; 4] = ["constant_tsc", "nonstop_tsc", "hypervisor", "tsc_reliable"];
    let path = "proc/cpuinfo";
    let of = |line: &str| {
        let flags = line.strip_prefix("flags")?.split_once(':')?.1;
        let flags = flags.split_whitespace().filter(|flag| MATTER.contains(flag)).collect::<Vec<_>>();
        Some(format!("flags : {}", flags.join(" ")))
    };
    let text = root.reduced(path, |text| text.lines().find_map(of).unwrap_or_default())?;
    let first = value(&text, "flags").ok_or_else(|| Unread::malformed(path, "no flags of a processor"))?;
    Ok(first.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_command_line_only_what_matters_is_kept() {
        let line =
            CommandLine::parse("root=UUID=1 isolcpus=managed_irq,domain,2-5 nowatchdog isolcpus=3 -- audit=0 --secret");
        assert_eq!(line.value("isolcpus"), Some("3"));
        assert!(line.has("nowatchdog") && !line.has("audit") && !line.has("root"));
        assert_eq!(line.line(), "isolcpus=managed_irq,domain,2-5 nowatchdog isolcpus=3");
    }

    #[test]
    fn versions_are_read_from_releases_of_any_making() {
        let mut kernel = Kernel::read(&Root::recorded(Default::default()));
        assert!(kernel.version().is_err());
        for (release, version) in [("6.12.3-1-amd64", Some((6, 12))), ("5.4", Some((5, 4))), ("x", None), ("6", None)] {
            kernel.release = Ok(release.to_owned());
            assert_eq!(kernel.version().ok(), version, "{release}");
        }
    }
}
