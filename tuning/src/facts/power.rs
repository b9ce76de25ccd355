//! Frequencies and sleep states, of each core.

use std::collections::BTreeMap;

use super::{INT_MAX, Known, number, one_of, switch, up_to};
use crate::root::{Root, Unread};

/// A state in which a core may sleep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleState {
    /// As the driver calls it.
    pub name: String,
    /// How long it takes to wake from it, in µs.
    pub latency_us: u64,
    /// Whether it may not be used.
    pub is_disabled: bool,
}

/// One core's settings.
#[derive(Clone, Debug)]
pub struct CorePower {
    /// Who picks its frequency.
    pub governor: Known<String>,
    /// The highest frequency that it may have, in kHz, and the highest that it could.
    pub max_khz: Known<u64>,
    /// The highest that the hardware offers.
    pub hardware_max_khz: Known<u64>,
    /// 0 for speed to 15 for thrift.
    pub energy_bias: Known<u64>,
    /// The same as a word, by drivers that leave the choice to the hardware.
    pub energy_preference: Known<String>,
    /// Its sleep states.
    pub idle_states: Known<Vec<IdleState>>,
    /// How often it was slowed down for its heat.
    pub throttled: Known<u64>,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Power {
    /// Each core's.
    pub cores: BTreeMap<usize, CorePower>,
    /// Whether cores may go above their base frequency.
    pub turbo: Known<bool>,
    /// The wakeup latency that somebody holds all cores at, in µs.
    pub dma_latency_us: Known<u64>,
}

impl Power {
    /// Reads them.
    pub fn read(root: &Root) -> Power {
        let online = super::cpu_list::read_list(root, "sys/devices/system/cpu/online").unwrap_or_default();
        let cpu = "sys/devices/system/cpu";
        let turbo = match switch(root, &format!("{cpu}/intel_pstate/no_turbo")) {
            Err(unread) if unread.is_missing() => switch(root, &format!("{cpu}/cpufreq/boost")),
            is_off => is_off.map(|is_off| !is_off),
        };
        let dma = root.dma_latency().and_then(|text| super::parsed::<u32>("dev/cpu_dma_latency", &text)).map(u64::from);
        let cores = online.into_iter().map(|core| (core, CorePower::read(root, core))).collect();
        Power { cores, turbo, dma_latency_us: dma }
    }
}

impl CorePower {
    fn read(root: &Root, core: usize) -> CorePower {
        let at = format!("sys/devices/system/cpu/cpu{core}");
        CorePower {
            governor: governor(root, &format!("{at}/cpufreq/scaling_governor")),
            max_khz: khz(root, &format!("{at}/cpufreq/scaling_max_freq")),
            hardware_max_khz: khz(root, &format!("{at}/cpufreq/cpuinfo_max_freq")),
            energy_bias: up_to(root, &format!("{at}/power/energy_perf_bias"), 15),
            energy_preference: preference(root, &format!("{at}/cpufreq/energy_performance_preference")),
            idle_states: idle_states(root, &format!("{at}/cpuidle")),
            throttled: number(root, &format!("{at}/thermal_throttle/core_throttle_count")),
        }
    }
}

fn governor(root: &Root, path: &str) -> Known<String> {
    let known = ["performance", "powersave", "ondemand", "conservative", "schedutil", "userspace"];
    root.text(path).and_then(|word| one_of(path, word, &known))
}

/// A word, or a number from 0 to 255 where the driver takes one.
fn preference(root: &Root, path: &str) -> Known<String> {
    let known = ["default", "performance", "balance_performance", "balance_power", "power"];
    let word = root.text(path)?;
    if word.parse::<u8>().is_ok() { Ok(word) } else { one_of(path, word, &known) }
}

/// A frequency.
fn khz(root: &Root, path: &str) -> Known<u64> {
    let khz = up_to(root, path, INT_MAX)?;
    if khz > 0 { Ok(khz) } else { Err(Unread::malformed(path, "0 is no frequency")) }
}

fn idle_states(root: &Root, at: &str) -> Known<Vec<IdleState>> {
    let names = root.names(at)?;
    let states = names.iter().filter(|name| name.starts_with("state"));
    states
        .map(|state| {
            Ok(IdleState {
                name: root.text(&format!("{at}/{state}/name"))?,
                latency_us: up_to(root, &format!("{at}/{state}/latency"), INT_MAX)?,
                // Bits by who disabled it.
                is_disabled: up_to(root, &format!("{at}/{state}/disable"), 3)? != 0,
            })
        })
        .collect()
}
