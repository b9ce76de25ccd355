//! `ticktape jitter`.

use std::path::PathBuf;

use clap::Args;
use ticktape_tuning::facts::cpu_list;

/// Seconds of a core, at most: a spinning core is not to be forgotten.
const SECONDS_MAX: u64 = 600;
/// The shortest and the longest time between two wake-ups, in microseconds.
const WAKE_US: std::ops::RangeInclusive<u64> = 10..=1_000_000;
/// The longest wish for a core's wakeup, in microseconds: no idle state takes longer.
const LATENCY_US_MAX: i64 = 1_000_000;
/// Priorities of `SCHED_FIFO`.
const FIFO: std::ops::RangeInclusive<i64> = 1..=99;

#[derive(Args)]
pub struct JitterArgs {
    /// The cores, as 2,4-6; all that this process may use where not given
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    pub cores: Option<Cores>,
    /// All cores at the same time, as an appliance spins on several. So it is by default where a usable core is left for everybody else
    #[arg(long, conflicts_with = "one_by_one")]
    pub together: bool,
    /// One core after the other. So it is by default where all usable cores are looked at, as everybody else has to go somewhere
    #[arg(long)]
    pub one_by_one: bool,
    /// How long, for each core, 1 to 600
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    pub seconds: u64,
    /// The time between two readings of the clock that counts as an interruption, in nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 1_000)]
    pub threshold: u64,
    /// After an interruption of more than so many nanoseconds, if it is among the longest so far, it is looked up what the kernel counted
    #[arg(long, value_name = "NS", default_value_t = 50_000)]
    pub causes_above: u64,
    /// Do not spin, but sleep, wake up each so many microseconds, and tell how late: what cyclictest measures
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(WAKE_US))]
    pub wake: Option<u64>,
    /// Keep cores meanwhile from sleep that takes longer than so many microseconds to end, as cyclictest does with 0; needs
    /// /dev/cpu_dma_latency, as a rule root, and --wake. An appliance does so with [runtime] hold_cpu_latency_us
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u32).range(0..=LATENCY_US_MAX), requires = "wake")]
    pub hold_cpu_latency_us: Option<u32>,
    /// Run with this priority under SCHED_FIFO, 1 to 99; needs CAP_SYS_NICE. Where nothing is isolated the kernel still takes the core
    /// back for 50 ms of a second, which then shows
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(FIFO))]
    pub fifo: Option<u8>,
    /// Write what was found to this file, for --compare
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write percentiles (.hgrm) and histogram logs (.hlog) of each core to this directory, new or empty
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Show beside it what an earlier run wrote with --json
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
}

/// Cores, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(pub Vec<usize>);

fn parse_cores(text: &str) -> Result<Cores, String> {
    match cpu_list::list(text) {
        Ok(cores) if !cores.is_empty() => Ok(Cores(cores)),
        _ => Err(format!("{text:?} is no list of cores, as 2,4-6")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_cores("6,2-3"), Ok(Cores(vec![2, 3, 6])));
        for text in ["", "x", "3-1", "1,,2"] {
            assert!(parse_cores(text).unwrap_err().contains("no list of cores"), "{text}");
        }
    }
}
