//! What an appliance, or a replica, asks the kernel for while it runs.
//!
//! A table `[runtime]` in an appliance's file. As a flag it is written `scheduler=fifo:50,lock_memory,hold_cpu_latency_us=0`, in any order.

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
    /// Keeps cores from sleep that takes longer than so many microseconds to end, as long as it runs.
    pub hold_cpu_latency_us: Option<u32>,
}

impl FromStr for RuntimeConfig {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut runtime, mut named) = (RuntimeConfig::default(), Vec::new());
        for part in text.split(',').map(str::trim) {
            let (key, value) = part.split_once('=').map_or((part, None), |(key, value)| (key, Some(value)));
            if named.contains(&key) {
                return Err(format!("{key} stands in it twice"));
            }
            named.push(key);
            let number = || value.and_then(|value| value.parse().ok());
            match (key, value) {
                ("scheduler", Some(value)) => runtime.scheduler = value.parse()?,
                ("lock_memory", None | Some("true")) => runtime.lock_memory = true,
                ("lock_memory", Some("false")) => {}
                ("hold_cpu_latency_us", Some(_)) if number().is_some() => runtime.hold_cpu_latency_us = number(),
                _ => {
                    return Err(format!(
                        "{part:?} is none of scheduler=fifo:PRIORITY, lock_memory and hold_cpu_latency_us=N"
                    ));
                }
            }
        }
        runtime.validate().map(|()| runtime).map_err(|error| error.to_string())
    }
}

impl fmt::Display for RuntimeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scheduler={}", self.scheduler)?;
        f.write_str(if self.lock_memory { ",lock_memory" } else { "" })?;
        self.hold_cpu_latency_us.map_or(Ok(()), |us| write!(f, ",hold_cpu_latency_us={us}"))
    }
}

impl RuntimeConfig {
    /// Checks what can be checked without touching anything.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
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

    #[test]
    fn the_flag_says_what_the_table_does_and_is_read_as_it_is_written() {
        for text in ["scheduler=other", "scheduler=fifo:50,lock_memory", "scheduler=fifo:1,hold_cpu_latency_us=0"] {
            assert_eq!(text.parse::<RuntimeConfig>().unwrap().to_string(), text);
        }
        let flag = "hold_cpu_latency_us=0, lock_memory=true, scheduler=fifo:50".parse();
        assert_eq!(flag, parse("scheduler = \"fifo:50\"\nlock_memory = true\nhold_cpu_latency_us = 0"));
        assert_eq!("lock_memory=false".parse(), Ok(RuntimeConfig::default()));
        for (text, named) in [
            ("", "is none of"),
            ("lock", "\"lock\""),
            ("lock_memory=yes", "lock_memory=yes"),
            ("scheduler", "\"scheduler\""),
            ("scheduler=fifo:100", "from 1 to 99"),
            ("hold_cpu_latency_us", "hold_cpu_latency_us=N"),
            ("hold_cpu_latency_us=-1", "hold_cpu_latency_us=-1"),
            ("hold_cpu_latency_us=1000001", "0..=1000000"),
            ("lock_memory,lock_memory", "twice"),
        ] {
            let error = text.parse::<RuntimeConfig>().unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
