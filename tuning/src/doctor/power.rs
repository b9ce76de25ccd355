//! Frequencies and sleep.

use super::{Check, Cost, Finding, Group, Plan, bad, named, not_applicable, ok, warn};
use crate::facts::cpu_list::sorted;
use crate::facts::power::CorePower;
use crate::facts::{Facts, Known};
use crate::root::{Unread, Why};

/// From here on a sleep state is deep. Shallower ones cost less than the wakeup of a thread.
const DEEP_US: u64 = 10;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "power-governor",
        group: Group::Power,
        wants: "the governor of the plan's cores is performance",
        why: "others lower the frequency of a core that waits, and raise it only after the work has come",
        cost: Cost::TensOfMicroseconds,
        source: "kernel documentation, pm/cpufreq: governors sample, and a change takes 10 µs and more",
        judge: governor,
    },
    Check {
        id: "power-cap",
        group: Group::Power,
        wants: "the plan's cores may run as fast as the hardware can",
        why: "somebody set a limit: each instruction takes longer by as much",
        cost: Cost::Nanoseconds,
        source: "kernel documentation, pm/cpufreq (scaling_max_freq)",
        judge: cap,
    },
    Check {
        id: "power-turbo",
        group: Group::Power,
        wants: "turbo is on",
        why: "few busy cores run a quarter to a half faster with it; off is right only where even speed counts for more than speed",
        cost: Cost::Nanoseconds,
        source: "kernel documentation, pm/intel_pstate (no_turbo) and pm/cpufreq (boost)",
        judge: turbo,
    },
    Check {
        id: "power-sleep",
        group: Group::Power,
        wants: "no sleep state that takes more than 10 µs to wake from, on cores whose thread waits",
        why: "a thread that sleeps until a packet comes pays for the wakeup of its core first; those that spin never sleep",
        cost: Cost::TensOfMicroseconds,
        source: "kernel documentation, pm/cpuidle; drivers/idle/intel_idle.c: 92 to 170 µs for C6 of Xeons from Skylake to Ice Lake",
        judge: sleep,
    },
    Check {
        id: "power-bias",
        group: Group::Power,
        wants: "the hardware is told to prefer speed: energy bias 0, or preference performance",
        why: "where the hardware picks frequencies by itself, this is all that it goes by",
        cost: Cost::TensOfMicroseconds,
        source: "kernel documentation, pm/intel_epb and pm/intel_pstate (energy_performance_preference)",
        judge: bias,
    },
    Check {
        id: "power-heat",
        group: Group::Power,
        wants: "no core of the plan was slowed down for its heat",
        why: "the frequency drops to a fraction until it is cooler",
        cost: Cost::Milliseconds,
        source: "kernel documentation, ABI (thermal_throttle/core_throttle_count)",
        judge: heat,
    },
];

/// Of each core of the plan.
fn of<'a>(facts: &'a Facts, cores: &'a [usize]) -> impl Iterator<Item = (usize, &'a CorePower)> {
    cores.iter().filter_map(|&core| Some((core, facts.power.cores.get(&core)?)))
}

/// What `asked` says of each core; nothing where the first has none, as the host or the firmware decides then.
fn each<T: Clone>(
    facts: &Facts,
    cores: &[usize],
    asked: impl Fn(&CorePower) -> &Known<T>,
) -> Known<Option<Vec<(usize, T)>>> {
    let mut found = Vec::new();
    for (core, power) in of(facts, cores) {
        match asked(power) {
            Ok(value) => found.push((core, value.clone())),
            Err(unread) if unread.is_missing() && found.is_empty() => return Ok(None),
            Err(unread) => return Err(unread.clone()),
        }
    }
    if found.is_empty() {
        Err(Unread::malformed("sys/devices/system/cpu", "no core of the plan is online"))
    } else {
        Ok(Some(found))
    }
}

fn governor(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let Some(found) = each(facts, &plan.critical, |power| &power.governor)? else {
        return not_applicable("frequencies are not this kernel's to set");
    };
    let wrong: Vec<_> = found.iter().filter(|(_, governor)| governor != "performance").collect();
    let Some((_, governor)) = wrong.first() else { return ok("performance") };
    let cores = sorted(wrong.iter().map(|(core, _)| *core).collect());
    bad(
        format!("{governor} on {}", named(&cores)),
        format!("cpupower -c {} frequency-set -g performance", crate::pin::list(&cores)),
    )
}

fn cap(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let max = each(facts, &plan.critical, |power| &power.max_khz)?;
    let hardware = each(facts, &plan.critical, |power| &power.hardware_max_khz)?;
    let (Some(max), Some(hardware)) = (max, hardware) else {
        return not_applicable("frequencies are not this kernel's to set");
    };
    let capped = max.iter().zip(&hardware).find(|((_, max), (_, hardware))| max < hardware);
    match capped {
        None => ok(format!("up to {} MHz, as fast as they can", max[0].1 / 1_000)),
        Some(((core, max), (_, hardware))) => warn(
            format!("core {core}: at most {} of {} MHz", max / 1_000, hardware / 1_000),
            format!("cpupower frequency-set -u {hardware}"),
        ),
    }
}

fn turbo(facts: &Facts, _: &Plan) -> Known<Finding> {
    match &facts.power.turbo {
        Ok(true) => ok("on"),
        Ok(false) => warn("off", "echo 0 > /sys/devices/system/cpu/intel_pstate/no_turbo, or echo 1 > …/cpufreq/boost"),
        Err(unread) if unread.is_missing() => not_applicable("frequencies are not this kernel's to set"),
        Err(unread) => Err(unread.clone()),
    }
}

fn sleep(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let waiting = crate::facts::cpu_list::without(&plan.critical, &plan.spinning);
    if waiting.is_empty() {
        return not_applicable("each stage's thread spins");
    }
    match &facts.power.dma_latency_us {
        Ok(us) if *us <= DEEP_US => return ok(format!("/dev/cpu_dma_latency is held at {us} µs")),
        Err(Unread { why: Why::Malformed(_), .. }) => return Err(facts.power.dma_latency_us.clone().unwrap_err()),
        _ => {}
    }
    if let Some(us) = plan.runtime.hold_cpu_latency_us
        && u64::from(us) <= DEEP_US
        && facts.limits.may_hold_awake == Ok(true)
    {
        return ok(format!("[runtime] holds /dev/cpu_dma_latency at {us} µs"));
    }
    let Some(found) = each(facts, &waiting, |power| &power.idle_states)? else {
        return not_applicable("the kernel lets no core sleep");
    };
    let states = found.iter().flat_map(|(core, states)| states.iter().map(move |state| (core, state)));
    let deepest = states.filter(|(_, state)| !state.is_disabled).max_by_key(|(_, state)| state.latency_us);
    match deepest {
        Some((core, state)) if state.latency_us > DEEP_US => warn(
            format!("core {core} may sleep in {}, {} µs to wake from", state.name, state.latency_us),
            format!("cpupower idle-set -D {DEEP_US}, or hold /dev/cpu_dma_latency at {DEEP_US}"),
        ),
        Some((_, state)) => {
            // The driver knows nothing of it; beside cyclictest, which holds cores awake, it was 12 µs at the median.
            let host =
                if facts.kernel.is_guest() == Ok(true) { "; a guest that sleeps also waits for its host" } else { "" };
            ok(format!("the deepest is {}, {} µs to wake from{host}", state.name, state.latency_us))
        }
        None => ok("none may be used"),
    }
}

fn bias(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let fix = "cpupower set -b 0; echo performance > …/cpufreq/energy_performance_preference";
    if let Some(found) = each(facts, &plan.critical, |power| &power.energy_preference)? {
        // With the governor performance the driver says the same, or a number.
        return match found.iter().find(|(_, word)| !matches!(word.as_str(), "performance" | "0")) {
            None => ok("preference performance"),
            Some((core, word)) => warn(format!("core {core}: preference {word}"), fix),
        };
    }
    let Some(found) = each(facts, &plan.critical, |power| &power.energy_bias)? else {
        return not_applicable("the hardware is told nothing");
    };
    match found.iter().find(|(_, bias)| *bias > 0) {
        None => ok("bias 0"),
        Some((core, bias)) => warn(format!("core {core}: bias {bias} of 15"), fix),
    }
}

fn heat(facts: &Facts, plan: &Plan) -> Known<Finding> {
    let Some(found) = each(facts, &plan.critical, |power| &power.throttled)? else {
        return not_applicable("the processor counts no such thing");
    };
    match found.iter().filter(|(_, count)| *count > 0).max_by_key(|(_, count)| *count) {
        None => ok("never"),
        Some((core, count)) => warn(
            format!("core {core}: {count} times since the start"),
            "look after the cooling, or lower the highest frequency",
        ),
    }
}
