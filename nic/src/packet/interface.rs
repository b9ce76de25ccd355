//! What there is to know about a network interface before anything is opened on it.

use std::net::Ipv4Addr;
use std::path::Path;
use std::{fmt, fs, io};

use super::mac::MacAddr;
use super::netlink::{Kind, Netlink, Request, attributes, number, text};

/// IFNAMSIZ, less the terminating zero.
const NAME_BYTES_MAX: usize = 15;
/// ifinfomsg: family, pad, type u16, index i32, flags u32, change u32.
const LINK_FIXED_BYTES: usize = 16;
/// ifaddrmsg: family, prefix length, flags, scope, index u32.
const ADDRESS_FIXED_BYTES: usize = 8;
/// Nested within IFLA_XDP (linux/if_link.h): how a program is attached, and its id.
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
/// Nested within IFLA_LINKINFO: the kind of a virtual interface.
const IFLA_INFO_KIND: u16 = 1;

/// How an XDP program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XdpMode {
    /// By the driver, before a packet costs any memory.
    Native,
    /// By the network stack, whatever the driver.
    Generic,
    /// On the card.
    Offload,
    /// In several of these at once.
    Several,
}

/// A program on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct XdpAttached {
    /// How it is attached.
    pub mode: XdpMode,
    /// Its id, as bpftool shows it; `None` where several are attached.
    pub program: Option<u32>,
}

/// An IPv4 address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceAddr {
    /// The address.
    pub ip: Ipv4Addr,
    /// The bits that its network has in common.
    pub prefix: u8,
}

impl InterfaceAddr {
    /// Whether an address is of the same network, and so reached without a gateway.
    pub fn covers(&self, other: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or(0);
        (u32::from(self.ip) ^ u32::from(other)) & mask == 0
    }
}

/// An interface as the kernel describes it, in the calling thread's network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceInfo {
    /// Its name.
    pub name: String,
    /// Its index in its namespace.
    pub index: u32,
    /// Its Ethernet address; [`MacAddr::ZERO`] where it has none.
    pub mac: MacAddr,
    /// Whether it is Ethernet, or the loopback interface, which looks like it.
    pub is_ethernet: bool,
    /// Whether it is the loopback interface.
    pub is_loopback: bool,
    /// The largest IP datagram, in bytes.
    pub mtu: u32,
    /// Whether it is set up.
    pub up: bool,
    /// Whether it has a carrier: a cable, or a peer.
    pub carrier: bool,
    /// The driver's name, or the kind of a virtual interface; `None` where neither can be seen from this namespace.
    pub driver: Option<String>,
    /// Receive queues in use, as far as that can be seen from this namespace; otherwise those it has at most.
    pub rx_queues: u32,
    /// Transmit queues, in the same way.
    pub tx_queues: u32,
    /// Its IPv4 addresses, the primary one first.
    pub addresses: Vec<InterfaceAddr>,
    /// The XDP program that is attached to it.
    pub xdp: Option<XdpAttached>,
}

/// Why nothing can be said about an interface.
#[derive(Debug)]
#[non_exhaustive]
pub enum InterfaceError {
    /// No name that an interface can have.
    Name(String),
    /// There is none of that name.
    Missing {
        /// The name.
        name: String,
        /// Those that there are.
        present: Vec<String>,
    },
    /// The kernel does not answer.
    Netlink(io::Error),
}

impl fmt::Display for InterfaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceError::Name(name) => write!(f, "{name:?} is no name of an interface: 1 to {NAME_BYTES_MAX} bytes"),
            InterfaceError::Missing { name, present } => {
                write!(f, "there is no interface {name} here: use one of {}", present.join(", "))
            }
            InterfaceError::Netlink(error) => write!(f, "cannot ask the kernel about its interfaces: {error}"),
        }
    }
}

impl std::error::Error for InterfaceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            InterfaceError::Netlink(error) => Some(error),
            InterfaceError::Name(_) | InterfaceError::Missing { .. } => None,
        }
    }
}

impl InterfaceInfo {
    /// Looks one up by its name. Needs no privileges.
    ///
    /// # Errors
    /// [`InterfaceError`].
    pub fn read(name: &str) -> Result<InterfaceInfo, InterfaceError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(['/', '\0']) {
            return Err(InterfaceError::Name(name.to_owned()));
        }
        let all = InterfaceInfo::all()?;
        let present = all.iter().map(|info| info.name.clone()).collect();
        all.into_iter()
            .find(|info| info.name == name)
            .ok_or_else(|| InterfaceError::Missing { name: name.to_owned(), present })
    }

    /// All of this namespace, in the order of their indices.
    ///
    /// # Errors
    /// [`InterfaceError::Netlink`].
    pub fn all() -> Result<Vec<InterfaceInfo>, InterfaceError> {
        let mut netlink = Netlink::open().map_err(InterfaceError::Netlink)?;
        let mut found = Vec::new();
        let links = Request::new(libc::RTM_GETLINK, Kind::Dump, &[0; LINK_FIXED_BYTES]);
        netlink.ask(links, |_, body| found.extend(link(body))).map_err(InterfaceError::Netlink)?;
        let mut fixed = [0; ADDRESS_FIXED_BYTES];
        fixed[0] = libc::AF_INET as u8;
        let addresses = Request::new(libc::RTM_GETADDR, Kind::Dump, &fixed);
        netlink
            .ask(addresses, |_, body| {
                let Some((index, address)) = address(body) else { return };
                found.iter_mut().filter(|info| info.index == index).for_each(|info| info.addresses.push(address));
            })
            .map_err(InterfaceError::Netlink)?;
        found.iter_mut().for_each(|info| info.add_sysfs(Path::new("/sys/class/net")));
        found.sort_by_key(|info| info.index);
        Ok(found)
    }

    /// The address that it sends from by default.
    pub fn ip(&self) -> Option<Ipv4Addr> {
        self.addresses.first().map(|address| address.ip)
    }

    /// Adds what only `/sys` knows: it shows the namespace that it was mounted in, which need not be this one, so that the
    /// folder counts only where index and address agree.
    fn add_sysfs(&mut self, root: &Path) {
        let folder = root.join(&self.name);
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let is_this = read("ifindex").trim() == self.index.to_string()
            && (self.mac.is_zero() || read("address").trim() == self.mac.to_string());
        if !is_this {
            return;
        }
        if let Ok(driver) = fs::read_link(folder.join("device/driver")) {
            self.driver = driver.file_name().map(|name| name.to_string_lossy().into_owned());
        }
        let (mut rx, mut tx) = (0, 0);
        for entry in fs::read_dir(folder.join("queues")).into_iter().flatten().flatten() {
            let name = entry.file_name();
            rx += u32::from(name.to_string_lossy().starts_with("rx-"));
            tx += u32::from(name.to_string_lossy().starts_with("tx-"));
        }
        (self.rx_queues, self.tx_queues) =
            (if rx > 0 { rx } else { self.rx_queues }, if tx > 0 { tx } else { self.tx_queues });
    }
}

fn link(body: &[u8]) -> Option<InterfaceInfo> {
    let (fixed, rest) = body.split_first_chunk::<LINK_FIXED_BYTES>()?;
    let hardware = u16::from_ne_bytes([fixed[2], fixed[3]]);
    let flags = number(&fixed[8..])?;
    let mut info = InterfaceInfo {
        name: String::new(),
        index: number(&fixed[4..])?,
        mac: MacAddr::ZERO,
        is_ethernet: [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&hardware),
        is_loopback: flags & libc::IFF_LOOPBACK as u32 != 0,
        mtu: 0,
        up: flags & libc::IFF_UP as u32 != 0,
        carrier: false,
        driver: None,
        rx_queues: 0,
        tx_queues: 0,
        addresses: Vec::new(),
        xdp: None,
    };
    for (kind, value) in attributes(rest) {
        match kind {
            libc::IFLA_IFNAME => info.name = text(value),
            libc::IFLA_ADDRESS => info.mac = MacAddr(value.try_into().unwrap_or_default()),
            libc::IFLA_MTU => info.mtu = number(value)?,
            libc::IFLA_CARRIER => info.carrier = value.first() == Some(&1),
            libc::IFLA_NUM_RX_QUEUES => info.rx_queues = number(value)?,
            libc::IFLA_NUM_TX_QUEUES => info.tx_queues = number(value)?,
            libc::IFLA_LINKINFO => {
                info.driver = attributes(value).find(|part| part.0 == IFLA_INFO_KIND).map(|part| text(part.1));
            }
            IFLA_XDP => info.xdp = xdp(value),
            _ => {}
        }
    }
    Some(info)
}

fn xdp(value: &[u8]) -> Option<XdpAttached> {
    let find = |wanted| attributes(value).find(|part| part.0 == wanted).map(|part| part.1);
    let mode = match find(IFLA_XDP_ATTACHED)?.first()? {
        1 => XdpMode::Native,
        2 => XdpMode::Generic,
        3 => XdpMode::Offload,
        4 => XdpMode::Several,
        _ => return None,
    };
    Some(XdpAttached { mode, program: find(IFLA_XDP_PROG_ID).and_then(number) })
}

fn address(body: &[u8]) -> Option<(u32, InterfaceAddr)> {
    let (fixed, rest) = body.split_first_chunk::<ADDRESS_FIXED_BYTES>()?;
    // On a point-to-point link IFA_ADDRESS is the other end's; IFA_LOCAL is always one's own.
    let ip = attributes(rest).find(|part| part.0 == libc::IFA_LOCAL)?.1.first_chunk::<4>()?;
    Some((number(&fixed[4..])?, InterfaceAddr { ip: (*ip).into(), prefix: fixed[1] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known_everywhere() {
        let lo = InterfaceInfo::read("lo").expect("every namespace has one");
        assert!(lo.is_loopback && lo.is_ethernet && lo.mac.is_zero() && lo.xdp.is_none());
        assert_eq!((lo.index, lo.rx_queues), (1, 1));
        if lo.up {
            assert_eq!(lo.ip(), Some(Ipv4Addr::LOCALHOST));
            assert!(lo.addresses[0].covers(Ipv4Addr::new(127, 9, 9, 9)));
        }
    }

    #[test]
    fn names_are_checked_and_the_present_ones_told() {
        for name in ["", "a-name-too-long-", "../lo", "l\0o"] {
            assert!(matches!(InterfaceInfo::read(name), Err(InterfaceError::Name(_))), "{name:?}");
        }
        let error = InterfaceInfo::read("no-such-one").expect_err("there is none").to_string();
        assert!(
            error.starts_with("there is no interface no-such-one here: use one of ") && error.contains("lo"),
            "{error}"
        );
    }

    #[test]
    fn networks_cover_their_prefix() {
        let covers = |prefix, other: [u8; 4]| InterfaceAddr { ip: [10, 1, 2, 3].into(), prefix }.covers(other.into());
        assert!(covers(24, [10, 1, 2, 255]) && !covers(24, [10, 1, 3, 3]));
        assert!(covers(32, [10, 1, 2, 3]) && !covers(32, [10, 1, 2, 2]));
        assert!(covers(0, [1, 1, 1, 1]) && covers(31, [10, 1, 2, 2]));
    }

    #[test]
    fn sysfs_of_another_interface_is_not_believed() {
        let mut lo = InterfaceInfo::read("lo").expect("every namespace has one");
        lo.index += 77;
        lo.rx_queues = 123;
        lo.add_sysfs(Path::new("/sys/class/net"));
        assert_eq!(lo.rx_queues, 123);
    }
}
