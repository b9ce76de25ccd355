//! An appliance's configuration as what the box is judged for.

use std::path::{Path, PathBuf};

use ticktape::config::{ApplianceConfig, NicChoice};
use ticktape::pipeline::{CorePlan, IdleStrategy};
use ticktape_nic::packet::InterfaceInfo;
use ticktape_tuning::doctor::Plan;
use ticktape_tuning::facts::cpu_list;
use ticktape_tuning::root::Root;

use crate::Failure;

/// Both rings of an XDP socket with a frame of 4 KiB for each of their slots, and as much again for the kernel's side of them.
const UMEM_BYTES: u64 = 2 * (2_048 + 512) * 4_096;

/// What kernel UDP asks for, for each direction.
const SOCKET_BUFFER_BYTES: u64 = 4 << 20;

/// Segments that a journal wants room for: one that is written, one prepared, and two that wait for a snapshot.
const SEGMENTS: u64 = 4;

/// The plan of `config`, or of what `run` does without one.
pub fn of(root: &Root, config: Option<&ApplianceConfig>) -> Result<Plan, Failure> {
    let usable = usable(root)?;
    let cores = config.and_then(|config| config.cores.clone()).unwrap_or_else(|| CorePlan::for_cores(usable.len()));
    let idle = config.map_or(IdleStrategy::Auto, |config| config.idle);
    let (mut critical, mut spinning) = (Vec::new(), Vec::new());
    for (slot, core) in cores.slots().iter().zip(assigned(&cores, &usable)) {
        // More threads than cores share them; a core that is named twice is a mistake, which the plan's own check tells.
        if slot.core.is_none() && critical.contains(&core) {
            continue;
        }
        critical.push(core);
        if slot.idle.unwrap_or(idle).resolve(cores.slots().len(), usable.len()) == IdleStrategy::Spin {
            spinning.push(core);
        }
    }
    let xdp = config.and_then(|config| config.xdp.as_ref().filter(|_| config.nic != NicChoice::Udp));
    let defaults = config
        .map_or_else(|| ApplianceConfig::new(".", std::net::SocketAddrV4::new([127, 0, 0, 1].into(), 0)), Clone::clone);
    let interface = match xdp {
        Some(xdp) => Some(xdp.interface.clone()),
        None => config.map_or_else(|| card(root), |config| interface_of(root, config)),
    };
    Ok(Plan {
        critical,
        spinning,
        interface,
        port: defaults.listen.port(),
        bypass_queue: xdp.map(|xdp| xdp.queue),
        is_busy_polling: defaults.busy_poll_us.is_some_and(|us| us > 0),
        is_multicast: defaults.feed.is_some() || defaults.events.is_some(),
        datagram_bytes_max: defaults.datagram_bytes_max as u64,
        socket_buffer_bytes: SOCKET_BUFFER_BYTES,
        directory: absolute(&defaults.dir),
        disk_bytes_min: SEGMENTS * defaults.journal.segment_bytes as u64,
        ring_bytes: defaults.ring.bytes as u64,
        ring_dir: defaults.ring.name.as_ref().map(|_| absolute(&defaults.ring.dir)),
        umem_bytes: if xdp.is_some() { UMEM_BYTES } else { 0 },
    })
}

/// The cores that an appliance would find there.
fn usable(root: &Root) -> Result<Vec<usize>, Failure> {
    let path = "proc/self/status";
    let text = root
        .kept(path, |line| line.starts_with("Cpus_allowed_list:").then(|| line.to_owned()))
        .map_err(Failure::usage)?;
    let list = text.strip_prefix("Cpus_allowed_list:").unwrap_or_default();
    let cores = cpu_list::list(list).map_err(|what| Failure::usage(format!("{path}: {what}")))?;
    if cores.is_empty() { Err(Failure::usage(format!("{path}: no core may be used"))) } else { Ok(cores) }
}

/// Each thread's core. What the plan names stands, also where this process may not use it: that is for the checks to say.
fn assigned(plan: &CorePlan, usable: &[usize]) -> Vec<usize> {
    if let Ok(cores) = plan.assign(usable) {
        return cores;
    }
    let named: Vec<usize> = plan.slots().iter().filter_map(|slot| slot.core).collect();
    let all = cpu_list::union(usable, &named);
    plan.assign(&all).unwrap_or(named)
}

/// The interface of the address where clients connect. Of another box nothing is known about addresses.
fn interface_of(root: &Root, config: &ApplianceConfig) -> Option<String> {
    if !root.is_live() || config.listen.ip().is_unspecified() {
        return card(root);
    }
    let all = InterfaceInfo::all().ok()?;
    let has = |info: &&InterfaceInfo| {
        info.addresses.iter().any(|address| address.ip == *config.listen.ip())
            || info.is_loopback && config.listen.ip().is_loopback()
    };
    all.iter().find(has).map(|info| info.name.clone())
}

/// The first interface with a card behind it that is up.
pub fn card(root: &Root) -> Option<String> {
    let names = root.names("sys/class/net").ok()?;
    let is_up = |name: &&String| {
        let at = format!("sys/class/net/{name}");
        root.link(&format!("{at}/device")).is_ok()
            && root.text(&format!("{at}/operstate")).is_ok_and(|state| state == "up")
    };
    names.iter().find(is_up).cloned()
}

/// As mounts are named.
fn absolute(dir: &Path) -> PathBuf {
    let full = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    // What does not exist yet lies where the nearest directory above it leads.
    for above in full.ancestors() {
        if let Ok(real) = above.canonicalize() {
            // Joined piece by piece, as joining nothing leaves a slash behind.
            return real.iter().chain(full.strip_prefix(above).unwrap_or(Path::new("")).iter()).collect();
        }
    }
    full
}
