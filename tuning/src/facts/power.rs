//! Frequencies and sleep states, of each core.

use std::collections::BTreeMap;

use super::{Known, number};
use crate::root::Root;

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
        let turbo = match number::<u8>(root, &format!("{cpu}/intel_pstate/no_turbo")) {
            Ok(off) => Ok(off == 0),
            Err(_) => number::<u8>(root, &format!("{cpu}/cpufreq/boost")).map(|on| on != 0),
        };
        let dma = root.dma_latency().and_then(|text| super::parsed("dev/cpu_dma_latency", &text));
        let cores = online.into_iter().map(|core| (core, CorePower::read(root, core))).collect();
        Power { cores, turbo, dma_latency_us: dma }
    }
}

impl CorePower {
    fn read(root: &Root, core: usize) -> CorePower {
        let at = format!("sys/devices/system/cpu/cpu{core}");
        CorePower {
            governor: root.text(&format!("{at}/cpufreq/scaling_governor")),
            max_khz: number(root, &format!("{at}/cpufreq/scaling_max_freq")),
            hardware_max_khz: number(root, &format!("{at}/cpufreq/cpuinfo_max_freq")),
            energy_bias: number(root, &format!("{at}/power/energy_perf_bias")),
            energy_preference: root.text(&format!("{at}/cpufreq/energy_performance_preference")),
            idle_states: idle_states(root, &format!("{at}/cpuidle")),
            throttled: number(root, &format!("{at}/thermal_throttle/core_throttle_count")),
        }
    }
}

fn idle_states(root: &Root, at: &str) -> Known<Vec<IdleState>> {
    let names = root.names(at)?;
    let states = names.iter().filter(|name| name.starts_with("state"));
    states
        .map(|state| {
            Ok(IdleState {
                name: root.text(&format!("{at}/{state}/name"))?,
                latency_us: number(root, &format!("{at}/{state}/latency"))?,
                is_disabled: number::<u8>(root, &format!("{at}/{state}/disable"))? != 0,
            })
        })
        .collect()
}
