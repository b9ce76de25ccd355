//! What an appliance asks the kernel for while it runs.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use super::ConfigError;

/// Priorities of `SCHED_FIFO`.
const FIFO: std::ops::RangeInclusive<u8> = 1..=99;

/// The longest wish for a core's wakeup, in microseconds: no idle state takes longer.
const LATENCY_US_MAX: u32 = 1_000_000;

/// How the kernel shares out the cores of the stages' threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Scheduler {
    /// As everybody's.
    #[default]
    Other,
    /// Before everybody of ordinary standing, and of a lower priority.
    Fifo(u8),
}

impl FromStr for Scheduler {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let priority = text.strip_prefix("fifo:").and_then(|priority| priority.parse().ok());
        match (text, priority) {
            ("other", _) => Ok(Scheduler::Other),
            (_, Some(priority)) if FIFO.contains(&priority) => Ok(Scheduler::Fifo(priority)),
            _ => Err(format!("{text:?} is no scheduler: other, or fifo:PRIORITY from 1 to 99, as fifo:50")),
        }
    }
}

impl TryFrom<String> for Scheduler {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheduler::Other => f.write_str("other"),
            Scheduler::Fifo(priority) => write!(f, "fifo:{priority}"),
        }
    }
}

/// Each is asked for alone; what is not to be had is said at the start, with what would help, and is done without.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table, as [runtime] with lock_memory = true")]
pub struct RuntimeConfig {
    /// How the stages' threads get their cores.
    pub scheduler: Scheduler,
    /// Keeps all memory in place, from the first moment.
    pub lock_memory: bool,
    /// Keeps cores from sleep that takes longer than so many microseconds to end, as long as the appliance runs.
    pub hold_cpu_latency_us: Option<u32>,
}

impl RuntimeConfig {
    /// Checks what can be checked without touching anything.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        match self.hold_cpu_latency_us {
            Some(us) if us > LATENCY_US_MAX => {
                let message = format!("{us} is outside 0..={LATENCY_US_MAX}");
                Err(ConfigError { place: "runtime.hold_cpu_latency_us".to_string(), message })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ApplianceConfig;

    fn parse(text: &str) -> Result<RuntimeConfig, String> {
        let text = format!("dir = \"d\"\nlisten = \"127.0.0.1:7001\"\n[runtime]\n{text}");
        let config = ApplianceConfig::parse(&text)?;
        config.validate().map_err(|error| error.to_string())?;
        Ok(config.runtime)
    }

    #[test]
    fn each_is_asked_for_alone_and_nothing_by_default() {
        assert_eq!(parse(""), Ok(RuntimeConfig::default()));
        let all = parse("scheduler = \"fifo:50\"\nlock_memory = true\nhold_cpu_latency_us = 0").unwrap();
        assert_eq!((all.scheduler, all.lock_memory, all.hold_cpu_latency_us), (Scheduler::Fifo(50), true, Some(0)));
        assert_eq!(parse("scheduler = \"other\"").unwrap().scheduler.to_string(), "other");
    }

    #[test]
    fn what_is_none_is_named() {
        for text in ["fifo:0", "fifo:100", "fifo", "fifo:", "rr:5", "fifo:5 "] {
            let error = parse(&format!("scheduler = {text:?}")).unwrap_err();
            assert!(error.contains("from 1 to 99") && error.contains("line 4"), "{error}");
        }
        assert!(parse("hold_cpu_latency_us = 1000001").unwrap_err().contains("runtime.hold_cpu_latency_us"));
        assert!(parse("lock = true").unwrap_err().contains("line 4"));
    }
}
