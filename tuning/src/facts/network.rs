//! One interface, and the settings of the stack above it.

use super::cpu_list::{self, CoreSet};
use super::interrupts::Device;
use super::{INT_MAX, Known, number, up_to, value};
use crate::root::{Root, Unread, Why};

/// How packets were lost since the interface came up.
const LOSSES: [&str; 4] = ["rx_dropped", "rx_missed_errors", "rx_fifo_errors", "rx_errors"];

/// An interface.
#[derive(Clone, Debug)]
pub struct Network {
    /// Its name.
    pub name: String,
    /// `up`, `down`, `unknown`; not there where there is no such interface.
    pub state: Known<String>,
    /// Its driver; missing where no device is behind it.
    pub driver: Known<String>,
    /// How its interrupts are told.
    pub device: Device,
    /// The node it hangs on; -1 where the box has none.
    pub node: Known<i64>,
    /// The largest IP datagram.
    pub mtu: Known<u64>,
    /// Its receive queues.
    pub rx_queues: Known<usize>,
    /// The cores that the kernel passes received packets to, by queue.
    pub steered_to: Known<Vec<(String, CoreSet)>>,
    /// How often its link went down.
    pub link_losses: Known<u64>,
    /// Packets lost, by reason.
    pub losses: Vec<(&'static str, Known<u64>)>,
    /// Polls without work before interrupts are on again.
    pub defer_hard_irqs: Known<u64>,
    /// How long packets wait for others to be merged with, in ns; with the above, how long interrupts stay off.
    pub flush_timeout_ns: Known<u64>,
    /// The longest that any of its NAPIs keeps interrupts off for one who polls by epoll, in ns; missing where the kernel has no such thing.
    pub suspend_timeout_ns: Known<u64>,
    /// What `ethtool` prints, by option.
    pub rings: Known<String>,
    /// Its interrupts' coalescing.
    pub coalescing: Known<String>,
    /// What it does by itself.
    pub features: Known<String>,
    /// Flow control.
    pub pause: Known<String>,
    /// Which queues its hash spreads packets over.
    pub spread: Known<String>,
    /// Its filters, which go before the hash.
    pub filters: Known<String>,
    /// Which version of IGMP it speaks, as `V3`: an old one where somebody on the network does, or it was told to.
    pub igmp: Known<String>,
    /// Filters: strict (1) drops what comes in where it would not go out.
    pub reverse_path: Known<u64>,
    /// Settings of the stack.
    pub stack: Stack,
}

/// Settings of the stack, for all interfaces.
#[derive(Clone, Debug)]
pub struct Stack {
    /// The largest receive buffer that a socket may ask for.
    pub rx_buffer_bytes_max: Known<u64>,
    /// The same for sending.
    pub tx_buffer_bytes_max: Known<u64>,
    /// Whether BPF programs are compiled.
    pub bpf_jit: Known<u64>,
    /// How many groups a socket may be in.
    pub memberships_max: Known<u64>,
    /// How many packets wait for a core at most.
    pub backlog_max: Known<u64>,
    /// Packets that a core had no room for, and turns that ended before all was done.
    pub backlog: Known<(u64, u64)>,
    /// Datagrams that a socket had no room for.
    pub socket_drops: Known<u64>,
}

impl Network {
    /// Reads it.
    pub fn read(root: &Root, name: &str) -> Network {
        let at = format!("sys/class/net/{name}");
        let device = format!("{at}/device");
        let driver = root.link(&format!("{device}/driver"));
        Network {
            state: root.text(&format!("{at}/operstate")),
            driver: driver.map(|target| target.rsplit('/').next().unwrap_or_default().to_owned()),
            device: Device::read(root, &device, name),
            node: number(root, &format!("{device}/numa_node")),
            mtu: up_to(root, &format!("{at}/mtu"), INT_MAX),
            rx_queues: queues(root, &at).map(|queues| queues.len()),
            steered_to: steered_to(root, &at),
            link_losses: number(root, &format!("{at}/carrier_down_count")),
            losses: LOSSES.map(|file| (file, number(root, &format!("{at}/statistics/{file}")))).to_vec(),
            defer_hard_irqs: up_to(root, &format!("{at}/napi_defer_hard_irqs"), INT_MAX),
            // From a second on nobody polls in time.
            flush_timeout_ns: up_to(root, &format!("{at}/gro_flush_timeout"), 1_000_000_000),
            suspend_timeout_ns: suspend_timeout_ns(root, name),
            rings: root.ethtool('g', name),
            coalescing: root.ethtool('c', name),
            features: root.ethtool('k', name),
            pause: root.ethtool('a', name),
            spread: root.ethtool('x', name),
            filters: root.ethtool_filters(name),
            igmp: igmp(root, name),
            reverse_path: reverse_path(root, name),
            stack: Stack::read(root),
            name: name.to_owned(),
        }
    }

    /// The queues that the hash spreads packets over, from what `ethtool -x` prints: lines of `  8:  0 1 2 3`.
    pub fn spread_over(&self) -> Known<Vec<usize>> {
        let text = self.spread.as_ref().map_err(Unread::clone)?;
        let table = text.lines().skip(1).take_while(|line| !line.contains("hash"));
        let rows = table.filter_map(|line| line.split_once(':')).filter(|(at, _)| at.trim().parse::<u32>().is_ok());
        let queues =
            rows.flat_map(|(_, row)| row.split_whitespace()).map(str::parse).collect::<Result<Vec<usize>, _>>();
        let malformed = || Unread::malformed(&format!("ethtool -x {}", self.name), "no table of queues");
        let queues = cpu_list::sorted(queues.map_err(|_| malformed())?);
        if queues.is_empty() { Err(malformed()) } else { Ok(queues) }
    }

    /// The queues that filters take UDP over IPv4 for `port` to, from what `ethtool -n` prints: a paragraph for each, with lines as
    /// `Dest port: 7001 mask: 0x0`, whose mask has the bits that don't matter, and `Action: Direct to queue 2`. A card that has no
    /// filters has none.
    pub fn filtered_to(&self, port: u16) -> Known<Vec<String>> {
        let text = match &self.filters {
            Err(Unread { why: Why::Failed(error), .. }) if error.ends_with("Operation not supported") => {
                return Ok(Vec::new());
            }
            filters => filters.as_ref().map_err(Unread::clone)?,
        };
        // As `Total 0 rules`: what has no such line is no answer.
        if !text.lines().any(|line| line.starts_with("Total ") && line.trim_end().ends_with("rules")) {
            return Err(Unread::malformed(&format!("ethtool -n {}", self.name), "no count of rules in it"));
        }
        let takes = |filter: &&str| {
            let is_udp = value(filter, "Rule Type").is_some_and(|kind| kind == "UDP over IPv4");
            let number = |word: &str| match word.strip_prefix("0x") {
                Some(hexadecimal) => u16::from_str_radix(hexadecimal, 16).ok(),
                None => word.parse::<u16>().ok(),
            };
            let of_port = value(filter, "Dest port").and_then(|line| {
                let (wanted, mask) = line.split_once(" mask: ")?;
                Some((number(wanted)?, number(mask)?))
            });
            is_udp && of_port.is_some_and(|(wanted, mask)| (wanted ^ port) & !mask == 0)
        };
        let action = |filter: &str| value(filter, "Action").unwrap_or("nowhere").to_owned();
        Ok(text.split("Filter:").skip(1).filter(takes).map(action).collect())
    }

    /// Its receive ring: the slots it could have, and has, from what `ethtool -g` prints: both under their headings.
    pub fn rx_ring(&self) -> Known<(u64, u64)> {
        let text = self.rings.as_ref().map_err(Unread::clone)?;
        let slots = |text: &str| value(text, "RX").and_then(|slots| slots.parse().ok());
        let found = text.split_once("Current hardware settings").map(|(max, now)| (slots(max), slots(now)));
        match found {
            Some((Some(max), Some(now))) => Ok((max, now)),
            _ => Err(Unread::malformed(&format!("ethtool -g {}", self.name), "no RX ring in it")),
        }
    }

    /// Whether a feature is on, from what `ethtool -k` prints; missing where it knows none of that name.
    pub fn feature(&self, feature: &str) -> Known<bool> {
        let text = self.features.as_ref().map_err(Unread::clone)?;
        let malformed = || Unread::malformed(&format!("ethtool -k {}", self.name), format!("no {feature} in it"));
        value(text, feature).and_then(is_on).ok_or_else(malformed)
    }
}

impl Network {
    /// Whether its pause frames are on, received and sent, from what `ethtool -a` prints.
    pub fn pauses(&self) -> Known<(bool, bool)> {
        let text = self.pause.as_ref().map_err(Unread::clone)?;
        let side = |name: &str| value(text, name).and_then(is_on);
        let malformed = || Unread::malformed(&format!("ethtool -a {}", self.name), "no RX and TX in it");
        side("RX").zip(side("TX")).ok_or_else(malformed)
    }

    /// How its receive interrupts wait for more to come, from what `ethtool -c` prints: lines as `Adaptive RX: on  TX: off` and `rx-usecs: 3`.
    pub fn coalesced(&self) -> Known<Coalesced> {
        let text = self.coalescing.as_ref().map_err(Unread::clone)?;
        let malformed = |key: &str| Unread::malformed(&format!("ethtool -c {}", self.name), format!("no {key} in it"));
        // A driver that has none of them says n/a.
        let number = |key: &str| match value(text, key) {
            Some("n/a") => Ok(None),
            Some(number) => number.parse::<u32>().map(|number| Some(u64::from(number))).map_err(|_| malformed(key)),
            None => Err(malformed(key)),
        };
        let adaptive = value(text, "Adaptive RX").ok_or_else(|| malformed("Adaptive RX"))?;
        let is_adaptive = match adaptive.split_whitespace().next() {
            Some("n/a") => false,
            _ => is_on(adaptive).ok_or_else(|| malformed("Adaptive RX"))?,
        };
        // Programs that are old print no frames.
        let frames = if value(text, "rx-frames").is_some() { number("rx-frames")? } else { None };
        Ok(Coalesced { is_adaptive, us: number("rx-usecs")?, frames })
    }
}

/// How a card waits for more before it interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalesced {
    /// Whether it picks the time by itself.
    pub is_adaptive: bool,
    /// How long it waits, in µs.
    pub us: Option<u64>,
    /// For how many packets.
    pub frames: Option<u64>,
}

impl Stack {
    fn read(root: &Root) -> Stack {
        let core = |file: &str, max: u64| up_to(root, &format!("proc/sys/net/core/{file}"), max);
        Stack {
            rx_buffer_bytes_max: core("rmem_max", INT_MAX),
            tx_buffer_bytes_max: core("wmem_max", INT_MAX),
            bpf_jit: core("bpf_jit_enable", 2),
            memberships_max: up_to(root, "proc/sys/net/ipv4/igmp_max_memberships", INT_MAX),
            backlog_max: core("netdev_max_backlog", INT_MAX),
            backlog: backlog(root),
            socket_drops: socket_drops(root),
        }
    }
}

/// `on` or `off`, with or without `[fixed]` behind it.
fn is_on(text: &str) -> Option<bool> {
    match text.split_whitespace().next()? {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

fn queues(root: &Root, at: &str) -> Known<Vec<String>> {
    let names = root.names(&format!("{at}/queues"))?;
    Ok(names.into_iter().filter(|name| name.starts_with("rx-")).collect())
}

fn steered_to(root: &Root, at: &str) -> Known<Vec<(String, CoreSet)>> {
    let queues = queues(root, at)?;
    queues
        .into_iter()
        .map(|queue| cpu_list::read_mask(root, &format!("{at}/queues/{queue}/rps_cpus")).map(|cores| (queue, cores)))
        .collect()
}

/// The stricter of the interface's and of all interfaces'.
fn reverse_path(root: &Root, name: &str) -> Known<u64> {
    // Dots in a name stand as slashes in the names of settings, but not in their paths.
    let of = |name: &str| up_to(root, &format!("proc/sys/net/ipv4/conf/{name}/rp_filter"), 2);
    Ok(of("all")?.max(of(name)?))
}

/// The last of each line's four words.
fn suspend_timeout_ns(root: &Root, name: &str) -> Known<u64> {
    let (path, text) = (format!("netdev napi-get {name}"), root.napis(name)?);
    if text.is_empty() {
        return Err(Unread::malformed(&path, "no NAPI"));
    }
    let mut longest = 0;
    for line in text.lines() {
        match line.split(' ').nth(3) {
            Some("-") => return Err(Unread { path, why: Why::Missing }),
            word => {
                let ns = word
                    .and_then(|word| word.parse().ok())
                    .ok_or_else(|| Unread::malformed(&path, super::short(line)))?;
                longest = longest.max(ns);
            }
        }
    }
    Ok(longest)
}

/// The line of the interface alone, as `4 eth1 : 2 V3`: those of its groups have their addresses.
fn igmp(root: &Root, name: &str) -> Known<String> {
    let path = "proc/net/igmp";
    let of_interface = |line: &str| {
        let (interface, rest) = line.split_once(':')?;
        (interface.split_whitespace().nth(1) == Some(name)).then(|| format!("0 {name}: {}", rest.trim()))
    };
    let text = root.kept(path, of_interface)?;
    let version = text.split_whitespace().last().filter(|version| version.starts_with('V'));
    version.map(str::to_owned).ok_or_else(|| Unread::malformed(path, format!("{name} is in no group")))
}

/// Of each core's line of hexadecimal words: the second counts packets dropped, the third turns cut short.
fn backlog(root: &Root) -> Known<(u64, u64)> {
    let path = "proc/net/softnet_stat";
    let reduced = |line: &str| Some(line.split_whitespace().take(3).collect::<Vec<_>>().join(" "));
    let text = root.kept(path, reduced)?;
    if text.is_empty() {
        return Err(Unread::malformed(path, "nothing of any core"));
    }
    let mut sum = (0_u64, 0_u64);
    for line in text.lines() {
        let words: Vec<u64> = line.split(' ').filter_map(|word| u64::from_str_radix(word, 16).ok()).collect();
        let [_, dropped, squeezed] = words[..] else { return Err(Unread::malformed(path, super::short(line))) };
        sum = (sum.0.saturating_add(dropped), sum.1.saturating_add(squeezed));
    }
    Ok(sum)
}

/// Of the two lines that begin with `Udp:`, names and values.
fn socket_drops(root: &Root) -> Known<u64> {
    let path = "proc/net/snmp";
    let text = root.kept(path, |line| line.starts_with("Udp:").then(|| line.to_owned()))?;
    let mut lines = text.lines().map(|line| line.split_whitespace());
    let found = lines.next().zip(lines.next()).and_then(|(names, values)| {
        names.zip(values).find(|(name, _)| *name == "RcvbufErrors").and_then(|(_, value)| value.parse().ok())
    });
    found.ok_or_else(|| Unread::malformed(path, "no RcvbufErrors of Udp"))
}
