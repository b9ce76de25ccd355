//! An appliance's configuration as what the box is judged for.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};

use ticktape::config::{ApplianceConfig, NicChoice, Scheduler, XdpSettings};
use ticktape::pipeline::{CorePlan, IdleStrategy, StageName};
use ticktape_nic::packet::InterfaceInfo;
use ticktape_tuning::doctor::{Plan, Wishes};
use ticktape_tuning::facts::cpu_list;
use ticktape_tuning::root::Root;

use crate::Failure;
use crate::service::{AnyService, find};

/// Both rings of an XDP socket with a frame of 4 KiB for each of their slots, and as much again for the kernel's side of them.
const UMEM_BYTES: u64 = 2 * (2_048 + 512) * 4_096;

/// What kernel UDP asks for, for each direction.
const SOCKET_BUFFER_BYTES: u64 = 4 << 20;

/// Segments that a journal wants room for: one that is written, one prepared, and two that wait for a snapshot.
const SEGMENTS: u64 = 4;

/// The plan of `config`, or of what `run` does without one; `named` is the interface that was named beside it, as `run` takes it.
pub fn of(
    root: &Root,
    config: Option<&ApplianceConfig>,
    named: Option<&str>,
    services: &[Box<dyn AnyService>],
) -> Result<Plan, Failure> {
    let config = config.map(|config| as_run_takes_it(root, config, named, services)).transpose()?;
    let config = config.as_ref();
    let usable = usable(root)?;
    let cores = config.and_then(|config| config.cores.clone()).unwrap_or_else(|| CorePlan::for_cores(usable.len()));
    let idle = config.map_or(IdleStrategy::Auto, |config| config.idle);
    let (mut critical, mut spinning, mut writing) = (Vec::new(), Vec::new(), Vec::new());
    for (slot, core) in cores.slots().iter().zip(assigned(&cores, &usable)) {
        if slot.stages.contains(&StageName::Journaler) {
            writing.push(core);
        }
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
    // Where the file's interface is not there and kernel UDP may be taken instead, it is. One that was named is asked about.
    let may_lack = named.is_none() && config.is_some_and(|config| config.nic == NicChoice::Auto);
    let is_missing =
        |name: &str| root.text(&format!("sys/class/net/{name}/operstate")).is_err_and(|unread| unread.is_missing());
    let lacking = xdp.map(|xdp| xdp.interface.clone()).filter(|name| may_lack && is_missing(name));
    let xdp = xdp.filter(|_| lacking.is_none());
    let defaults = config
        .map_or_else(|| ApplianceConfig::new(".", std::net::SocketAddrV4::new([127, 0, 0, 1].into(), 0)), Clone::clone);
    let addresses = Addresses::of(root);
    let own = config.map(|config| addresses.owner(*config.listen.ip(), "listen")).transpose()?.flatten();
    let interface = match (xdp, config) {
        (Some(xdp), Some(config)) => {
            // Where it may take kernel UDP instead, it does.
            if let Some(own) = own.filter(|own| config.nic == NicChoice::Xdp && *own != xdp.interface) {
                let (ip, name) = (config.listen.ip(), &xdp.interface);
                return Err(Failure::usage(format!(
                    "listen {ip} is an address of {own}, not of {name}, which AF_XDP is for"
                )));
            }
            Some(xdp.interface.clone())
        }
        _ => match (named, own) {
            (Some(named), Some(own)) if named != own => {
                return Err(Failure::usage(format!("--interface {named}: it listens on an address of {own}")));
            }
            (named, own) => named.map(str::to_owned).or(own).or_else(|| card(root)),
        },
    };
    let feed_interfaces = config.map(|config| feed_interfaces(&addresses, config, &interface)).transpose()?.flatten();
    Ok(Plan {
        critical,
        spinning,
        writing,
        interface,
        port: defaults.listen.port(),
        bypass_queue: xdp.map(|xdp| xdp.queue),
        bypass_lacking: lacking,
        is_busy_polling: defaults.busy_poll_us.is_some_and(|us| us > 0),
        is_multicast: defaults.feed.is_some() || defaults.events.is_some(),
        datagram_bytes_max: defaults.datagram_bytes_max as u64,
        socket_buffer_bytes: SOCKET_BUFFER_BYTES,
        directory: absolute(&defaults.dir),
        disk_bytes_min: SEGMENTS * defaults.journal.segment_bytes as u64,
        ring_bytes: defaults.ring.bytes as u64,
        ring_dir: defaults.ring.name.as_ref().map(|_| absolute(&defaults.ring.dir)),
        capture_dir: defaults.capture.as_ref().map(|capture| parent(&absolute(&capture.file))),
        umem_bytes: if xdp.is_some() { UMEM_BYTES } else { 0 },
        runtime: Wishes {
            fifo: match defaults.runtime.scheduler {
                Scheduler::Other => None,
                Scheduler::Fifo(priority) => Some(priority),
            },
            locks_memory: defaults.runtime.lock_memory,
            hold_cpu_latency_us: defaults.runtime.hold_cpu_latency_us,
        },
        feed_interfaces,
    })
}

/// The directory that a file is in, or would be.
fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).to_owned()
}

/// What `run` would start with, or its refusal.
fn as_run_takes_it(
    root: &Root,
    config: &ApplianceConfig,
    named: Option<&str>,
    services: &[Box<dyn AnyService>],
) -> Result<ApplianceConfig, Failure> {
    find(services, config.service.as_deref())?;
    let mut config = config.clone();
    if let Some(named) = named.filter(|_| config.nic != NicChoice::Udp) {
        let xdp =
            config.xdp.get_or_insert_with(|| XdpSettings { interface: named.to_owned(), ..XdpSettings::default() });
        if xdp.interface != named {
            return Err(Failure::usage(format!("--interface {named}: the file names {}", xdp.interface)));
        }
    }
    config.validate().map_err(Failure::usage)?;
    // Of another box it is not known what is where.
    if root.is_live() {
        config.check_places().map_err(Failure::usage)?;
    }
    Ok(config)
}

/// Which interface has which address. Of another box nothing is known about addresses.
struct Addresses(Option<Vec<InterfaceInfo>>);

impl Addresses {
    fn of(root: &Root) -> Addresses {
        Addresses(root.is_live().then(InterfaceInfo::all).and_then(Result::ok))
    }

    fn find(&self, ip: Ipv4Addr) -> Option<&InterfaceInfo> {
        let has = |info: &&InterfaceInfo| {
            info.addresses.iter().any(|address| address.ip == ip) || info.is_loopback && ip.is_loopback()
        };
        self.0.iter().flatten().find(has)
    }

    /// The name of the interface with the address that `key` of the file has, if that is one interface's.
    ///
    /// # Errors
    /// The box has no such address: `run` could not bind to it.
    fn owner(&self, ip: Ipv4Addr, key: &str) -> Result<Option<String>, Failure> {
        let found = self.find(ip).map(|info| info.name.clone());
        // A box may be told to take addresses that no interface has.
        if found.is_none() && self.0.is_some() && !ip.is_unspecified() && UdpSocket::bind((ip, 0)).is_err() {
            return Err(Failure::usage(format!(
                "{key} {ip} is no address of this box: ip -4 addr shows those that are"
            )));
        }
        Ok(found)
    }
}

/// The interfaces by which feeds and events leave, but for loopback.
fn feed_interfaces(
    addresses: &Addresses,
    config: &ApplianceConfig,
    clients: &Option<String>,
) -> Result<Option<Vec<String>>, Failure> {
    let (feed, events) = (config.feed.as_ref(), config.events.as_ref());
    let repairs = [
        ("[feed] repair", feed.and_then(|feed| feed.repair)),
        ("[events] repair", events.and_then(|events| events.repair)),
    ];
    for (key, at) in repairs {
        at.map(|at| addresses.owner(*at.ip(), key)).transpose()?;
    }
    let by = [
        ("[feed] interface", feed.map(|feed| feed.interface)),
        ("[events] interface", events.map(|events| events.interface)),
    ];
    let mut names = Vec::new();
    for (key, ip) in by.into_iter().filter_map(|(key, ip)| Some((key, ip?))) {
        // Where none is named the kernel takes the one of its routes: as a rule the clients', too.
        let name = if ip.is_unspecified() { clients.clone() } else { addresses.owner(ip, key)? };
        names.extend(name.filter(|name| !ip.is_loopback() && !names.contains(name)));
    }
    Ok(addresses.0.as_ref().map(|_| names))
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
pub fn absolute(dir: &Path) -> PathBuf {
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
