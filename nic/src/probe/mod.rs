//! What an interface offers to an appliance that wants to bypass the kernel, and what stands in the way.
//!
//! ```text
//!   netlink (this namespace's) ─┐
//!   /sys, where it shows it    ─┼─► inspect ─► one Line a topic: an answer, or why there is none; and what to change
//!   /proc                      ─┤
//!   a trial, where asked for   ─┘
//! ```
//!
//! Nothing here changes anything, but for a [`Trial`]. No question needs privileges unless its line says so.

mod interrupts;
mod netlink;
mod sysfs;
mod trial;

use std::fs;

use crate::packet::{InterfaceInfo, XdpMode};
use crate::xdp::bpf;

use interrupts::Interrupt;
use netlink::Generic;
pub use netlink::{Channels, Napi, XdpFeatures};
use sysfs::Sysfs;
pub use trial::Trial;

/// The largest MTU at which these drivers run programs in native mode: a page of 4 KiB, less headroom and the kernel's own
/// bookkeeping.
const NATIVE_MTU_MAX: [(&str, u32); 2] = [("veth", 3_506), ("virtio_net", 3_506)];

/// The same of drivers that are not known here: none that takes frames of one page is below.
const NATIVE_MTU_SAFE: u32 = 3_000;

/// What is known about one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This.
    Known(String),
    /// Nothing; why.
    Unknown(String),
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it is about, in a word or two.
    pub topic: &'static str,
    /// What there is to tell.
    pub answer: Answer,
    /// What a pinned, low-latency appliance wants otherwise, with the command for it.
    pub advice: Option<String>,
}

impl Line {
    fn known(topic: &'static str, text: impl Into<String>) -> Line {
        Line { topic, answer: Answer::Known(text.into()), advice: None }
    }

    fn unknown(topic: &'static str, why: impl Into<String>) -> Line {
        Line { topic, answer: Answer::Unknown(why.into()), advice: None }
    }

    fn advise(mut self, advice: Option<String>) -> Line {
        self.advice = advice;
        self
    }
}

/// Everything about one interface.
#[derive(Clone, Debug)]
pub struct Probe {
    /// What the kernel says about it.
    pub info: InterfaceInfo,
    /// What its driver can do with XDP, where the kernel tells.
    pub features: Option<XdpFeatures>,
    /// Its channels, where its driver has any to set.
    pub channels: Option<Channels>,
    /// The largest MTU for native mode, where it is known of the driver.
    pub native_mtu_max: Option<u32>,
    /// What a trial showed, where one was asked for.
    pub trial: Option<Trial>,
    /// All of it in words.
    pub lines: Vec<Line>,
}

/// Inspects an interface of the calling thread's network namespace; `try_it` adds a [`Trial`].
pub fn inspect(info: InterfaceInfo, try_it: bool) -> Probe {
    // What can't be asked is not known, and its line says so.
    let (features, channels, napis) = match Generic::open() {
        Ok(mut generic) => (
            generic.xdp_features(info.index).ok(),
            generic.channels(info.index).ok(),
            generic.napis(info.index).unwrap_or_default(),
        ),
        Err(_) => (None, None, Vec::new()),
    };
    let driver = info.driver.as_deref().unwrap_or_default();
    let native_mtu_max = NATIVE_MTU_MAX.iter().find(|(name, _)| *name == driver).map(|&(_, mtu)| mtu);
    let trial = try_it.then(|| Trial::run(&info));
    let mut probe = Probe { features, channels, native_mtu_max, trial, info, lines: Vec::new() };
    let sysfs = Sysfs::of(&probe.info);
    let interrupts = interrupts::of(&probe.info, sysfs.as_ref(), &napis);
    let mut lines = vec![probe.link(), probe.addresses(), probe.driver(), probe.queues(), probe.steering()];
    lines.extend([probe.mtu(), probe.program(), rights(), probe.modes(), probe.zero_copy()]);
    if let Some(trial) = &probe.trial {
        lines.extend(trial.lines());
    }
    let has_interrupts = interrupts.as_ref().is_ok_and(|found| !found.is_empty());
    lines.push(probe.deferral(sysfs.as_ref(), &napis, has_interrupts));
    lines.push(busy_poll());
    lines.push(probe.interrupts(interrupts, sysfs.is_some()));
    probe.lines = lines;
    probe
}

impl Probe {
    fn link(&self) -> Line {
        let name = &self.info.name;
        let (text, advice) = match (self.info.up, self.info.carrier) {
            (true, true) => ("up, with a carrier", None),
            (true, false) => {
                ("up, without a carrier", Some(format!("connect {name}'s cable, and set its other end up")))
            }
            (false, _) => ("down", Some(format!("ip link set {name} up"))),
        };
        let kind = if self.info.is_ethernet { "" } else { "; no Ethernet, which XDP sockets need here" };
        Line::known("link", format!("{text}, {}{kind}", self.info.mac)).advise(advice)
    }

    fn addresses(&self) -> Line {
        let list: Vec<String> =
            self.info.addresses.iter().map(|address| format!("{}/{}", address.ip, address.prefix)).collect();
        let name = &self.info.name;
        let missing =
            list.is_empty().then(|| format!("ip addr add ADDRESS/24 dev {name}: an appliance sends from one"));
        let text = if list.is_empty() { "no IPv4 address".to_string() } else { list.join(", ") };
        Line::known("addresses", text).advise(missing)
    }

    fn driver(&self) -> Line {
        match &self.info.driver {
            Some(driver) => Line::known("driver", driver),
            None if self.info.is_loopback => Line::known("driver", "none: the loopback interface"),
            None => Line::unknown("driver", "neither the kernel nor this namespace's /sys tells"),
        }
    }

    fn queues(&self) -> Line {
        let Queues { rx, tx } = self.queue_counts();
        let mut text = format!("{rx} receive, {tx} transmit");
        match self.channels {
            Some(Channels { rx, tx, combined, rx_max }) => {
                text += &format!("; channels {combined} combined, {rx} receive, {tx} transmit, of {rx_max} at most");
            }
            None => text += "; the driver has no channels to set",
        }
        let one = self.channels.filter(|_| rx > 1).map(|channels| {
            let one = if channels.combined > 0 { "combined 1" } else { "rx 1" };
            format!("ethtool -L {} {one}: all traffic then lands on the queue that is polled", self.info.name)
        });
        Line::known("queues", text).advise(one)
    }

    fn queue_counts(&self) -> Queues {
        let from_channels = self.channels.filter(|channels| channels.rx + channels.combined > 0);
        match from_channels {
            Some(channels) => Queues { rx: channels.rx + channels.combined, tx: channels.tx + channels.combined },
            None => Queues { rx: self.info.rx_queues.max(1), tx: self.info.tx_queues.max(1) },
        }
    }

    fn steering(&self) -> Line {
        let name = &self.info.name;
        match self.queue_counts().rx {
            1 => Line::known("lands on", "queue 0, the only one"),
            rx if self.info.driver.as_deref() == Some("veth") => Line::known(
                "lands on",
                format!("any of queues 0 to {}: that of the sender's transmit queue, which is its core's", rx - 1),
            ),
            rx => Line::known("lands on", format!("any of queues 0 to {}, by a hash of addresses and ports", rx - 1))
                .advise(Some(format!(
                    "ethtool -N {name} flow-type udp4 dst-port PORT action 0, and queue = 0 for the appliance; where the \
                     driver has no such rules: ethtool -X {name} equal 1"
                ))),
        }
    }

    fn mtu(&self) -> Line {
        let InterfaceInfo { name, mtu, .. } = &self.info;
        let fix = |is_over: bool| is_over.then(|| format!("ip link set {name} mtu 1500, and the same at its peers"));
        match self.native_mtu_max {
            Some(max) => {
                // A veth hands on what its peer sends.
                let whose = if self.info.driver.as_deref() == Some("veth") { ", at the other end" } else { "" };
                Line::known("mtu", format!("{mtu}; native mode takes {max} at most{whose}")).advise(fix(*mtu > max))
            }
            None if self.info.is_loopback => Line::known("mtu", format!("{mtu}; there is no native mode")),
            None => Line::known("mtu", format!("{mtu}; native mode takes what fits a page, mostly some 3500"))
                .advise(fix(*mtu > NATIVE_MTU_SAFE)),
        }
    }

    fn program(&self) -> Line {
        let Some(attached) = self.info.xdp else { return Line::known("program", "none attached") };
        let mode = match attached.mode {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
            XdpMode::Offload => "offloaded",
            XdpMode::Several => "several modes",
        };
        let id = attached.program.map_or_else(String::new, |id| format!(" {id}"));
        let name = attached.program.map(bpf::program_by_id);
        let called = match name {
            Some(Ok(Some(info))) => format!(" ({})", info.name),
            Some(Err(_)) => " (its name needs root)".to_string(),
            _ => String::new(),
        };
        let remedy = format!("stop its owner, or ip link set {} xdp off: it is never replaced", self.info.name);
        Line::known("program", format!("program{id}{called} is attached, {mode}")).advise(Some(remedy))
    }

    /// Native mode makes a veth copy every packet once more than generic mode does (measured: its round trip took 1.1 to 1.3 times as long).
    fn veth_advice(&self) -> Option<String> {
        (self.info.driver.as_deref() == Some("veth")).then(|| "attach = \"generic\" spares a copy on a veth".into())
    }

    fn modes(&self) -> Line {
        if !self.info.is_ethernet {
            return Line::known("modes", "none: no Ethernet").advise(Some("use kernel UDP".to_string()));
        }
        match self.features {
            None if self.info.is_loopback => Line::known("modes", "generic only: the loopback interface"),
            None => {
                Line::unknown("modes", "not tried, and the kernel does not tell (Linux 6.3 or later): --try finds out")
            }
            Some(features) if features.is_native() && features.redirects() => {
                Line::known("modes", "native, generic").advise(self.veth_advice())
            }
            Some(features) if features.is_native() => {
                Line::known("modes", "native without redirects, generic").advise(Some("attach = \"generic\"".into()))
            }
            // A veth says so while its peer does without GRO and programs.
            Some(_) if self.info.driver.as_deref() == Some("veth") => {
                Line::known("modes", "native, generic (a veth tells of native mode only while it is on)")
                    .advise(self.veth_advice())
            }
            Some(_) => Line::known("modes", "generic only: the driver has no native mode")
                .advise((!self.info.is_loopback).then(|| "a card whose driver runs XDP halves the cost".to_string())),
        }
    }

    fn zero_copy(&self) -> Line {
        match self.features {
            Some(features) if features.is_zero_copy() => Line::known("zero-copy", "yes, the driver says"),
            Some(_) => Line::known("zero-copy", "no, the driver says: the kernel copies each frame"),
            None => Line::unknown("zero-copy", "not tried, and the kernel does not tell: --try finds out"),
        }
    }

    /// Whether interrupts stay off while somebody polls.
    fn deferral(&self, sysfs: Option<&Sysfs>, napis: &[Napi], has_interrupts: bool) -> Line {
        let topic = "deferral";
        let of_device =
            sysfs.and_then(|sysfs| Some((sysfs.number("napi_defer_hard_irqs")?, sysfs.number("gro_flush_timeout")?)));
        let of_napi = || {
            let napi = napis.first()?;
            Some((u64::from(napi.defer_hard_irqs?), napi.gro_flush_timeout_ns?))
        };
        let Some((defer, timeout)) = of_device.or_else(of_napi) else {
            return Line::unknown(topic, "this namespace's /sys does not show the interface, and no queue tells");
        };
        let text = format!("napi_defer_hard_irqs {defer}, gro_flush_timeout {timeout} ns");
        let folder = format!("/sys/class/net/{}", self.info.name);
        Line::known(topic, text).advise((has_interrupts && (defer == 0 || timeout == 0)).then(|| {
            format!("echo 2 > {folder}/napi_defer_hard_irqs; echo 200000 > {folder}/gro_flush_timeout: a core that polls then keeps interrupts off")
        }))
    }

    fn interrupts(&self, found: Result<Vec<Interrupt>, String>, is_in_sysfs: bool) -> Line {
        let found = match found {
            Ok(found) => found,
            Err(why) => return Line::unknown("interrupts", why),
        };
        let is_virtual = self.info.is_loopback || self.info.driver.as_deref() == Some("veth");
        if found.is_empty() && !is_in_sysfs && !is_virtual {
            return Line::unknown(
                "interrupts",
                "this namespace's /sys does not show the interface, and none has its name",
            );
        }
        if found.is_empty() {
            return Line::known("interrupts", "none of its own: whoever sends does its work");
        }
        let spread: Vec<String> =
            found.iter().filter(|one| one.is_spread()).map(|one| one.number.to_string()).collect();
        let text: Vec<String> = found.iter().map(Interrupt::to_string).collect();
        Line::known("interrupts", text.join("; ")).advise((!spread.is_empty()).then(|| {
            format!(
                "echo CORE > /proc/irq/{}/smp_affinity_list, a core where no stage spins, and stop irqbalance",
                if spread.len() == 1 { spread[0].clone() } else { format!("{{{}}}", spread.join(",")) }
            )
        }))
    }
}

struct Queues {
    rx: u32,
    tx: u32,
}

/// Whether this process may do it, found out by loading a program that is attached to nothing.
fn rights() -> Line {
    match bpf::supported() {
        Ok(()) => Line::known("rights", "this process may load XDP programs"),
        Err(error) => {
            let text = error.to_string();
            Line::known("rights", text.lines().next().unwrap_or_default())
        }
    }
}

/// The system's defaults for sockets of the kernel; those of XDP ask for themselves.
fn busy_poll() -> Line {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok();
    match (read("busy_poll"), read("busy_read")) {
        (Some(poll), Some(read)) => Line::known(
            "busy poll",
            format!(
                "net.core.busy_poll {}, net.core.busy_read {} µs (defaults of kernel UDP sockets; XDP sockets ask for themselves)",
                poll.trim(),
                read.trim()
            ),
        ),
        _ => Line::unknown("busy poll", "net.core.busy_poll and busy_read are not shown in this namespace"),
    }
}
