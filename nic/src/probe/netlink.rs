//! Questions to the kernel over generic netlink: what the families `netdev` and `ethtool` tell without privileges, about the
//! interfaces of the calling thread's network namespace.
//!
//! Numbers are those of linux/genetlink.h, linux/netdev.h and linux/ethtool_netlink.h. A kernel without a family, or without
//! one of its commands, is an error of that question alone.

use std::io::{self, Read as _};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

const NETLINK_GENERIC: i32 = 16;
/// The family that tells the others' numbers, and its one command that is needed.
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER_BYTES: usize = 16;
/// genlmsghdr: command, version, two bytes reserved.
const GENERIC_BYTES: usize = 4;
const ATTRIBUTE_BYTES: usize = 4;
const NESTED: u16 = 0x8000;
const TYPE_MASK: u16 = 0x3fff;

/// The kernel's own largest answer in one datagram is 32 KiB.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// The kernel answers within the call that asks. Only a bug makes this run out.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Datagrams of one answer.
const ANSWER_DATAGRAMS_MAX: usize = 1_024;

const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;

const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_ID: u16 = 2;
const NETDEV_A_NAPI_IRQ: u16 = 3;
const NETDEV_A_NAPI_DEFER_HARD_IRQS: u16 = 5;
const NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT: u16 = 6;

const ETHTOOL_MSG_CHANNELS_GET: u8 = 17;
const ETHTOOL_A_CHANNELS_HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_CHANNELS_RX_MAX: u16 = 2;
const ETHTOOL_A_CHANNELS_COMBINED_MAX: u16 = 5;
const ETHTOOL_A_CHANNELS_RX_COUNT: u16 = 6;
const ETHTOOL_A_CHANNELS_TX_COUNT: u16 = 7;
const ETHTOOL_A_CHANNELS_COMBINED_COUNT: u16 = 9;

/// What a driver can do with XDP (enum netdev_xdp_act).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures(pub u64);

impl XdpFeatures {
    const BASIC: u64 = 1;
    const REDIRECT: u64 = 2;
    const ZERO_COPY: u64 = 8;

    /// Runs programs in native mode.
    pub const fn is_native(self) -> bool {
        self.0 & Self::BASIC != 0
    }

    /// Takes redirects, which sockets need.
    pub const fn redirects(self) -> bool {
        self.0 & Self::REDIRECT != 0
    }

    /// Lets sockets do without copies.
    pub const fn is_zero_copy(self) -> bool {
        self.0 & Self::ZERO_COPY != 0
    }
}

/// How many channels an interface has, as `ethtool -l` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Receive channels.
    pub rx: u32,
    /// Transmit channels.
    pub tx: u32,
    /// Channels that do both.
    pub combined: u32,
    /// The most receiving channels that it can have, combined ones included.
    pub rx_max: u32,
}

/// One polling context of a driver, mostly one a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Napi {
    /// Its id, as SO_INCOMING_NAPI_ID shows it.
    pub id: u32,
    /// The interrupt that starts it.
    pub irq: Option<u32>,
    /// Interrupts that are put off while it is busy.
    pub defer_hard_irqs: Option<u32>,
    /// After how many nanoseconds it runs all the same.
    pub gro_flush_timeout_ns: Option<u64>,
}

/// A socket to ask with.
#[derive(Debug)]
pub struct Generic {
    socket: Socket,
    buffer: Box<[u8]>,
    seq: u32,
}

impl Generic {
    /// Opens one in the calling thread's namespace.
    pub fn open() -> io::Result<Generic> {
        let protocol = Protocol::from(NETLINK_GENERIC);
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW.cloexec(), Some(protocol))?;
        socket.set_read_timeout(Some(ANSWER_WAIT))?;
        Ok(Generic { socket, buffer: vec![0; ANSWER_BYTES_MAX].into(), seq: 0 })
    }

    /// What the driver of an interface can do with XDP. Linux 6.3.
    pub fn xdp_features(&mut self, ifindex: u32) -> io::Result<XdpFeatures> {
        let family = self.family("netdev")?;
        let request = attribute(NETDEV_A_DEV_IFINDEX, &ifindex.to_ne_bytes());
        let mut found = None;
        self.ask(family, NETDEV_CMD_DEV_GET, 0, &request, |body| {
            found = find(body, NETDEV_A_DEV_XDP_FEATURES).and_then(wide).map(XdpFeatures);
        })?;
        found.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The polling contexts of an interface. Linux 6.8.
    pub fn napis(&mut self, ifindex: u32) -> io::Result<Vec<Napi>> {
        let family = self.family("netdev")?;
        let request = attribute(NETDEV_A_NAPI_IFINDEX, &ifindex.to_ne_bytes());
        let mut found = Vec::new();
        self.ask(family, NETDEV_CMD_NAPI_GET, NLM_F_DUMP, &request, |body| {
            let value = |kind| find(body, kind);
            found.push(Napi {
                id: value(NETDEV_A_NAPI_ID).and_then(word).unwrap_or(0),
                irq: value(NETDEV_A_NAPI_IRQ).and_then(word),
                defer_hard_irqs: value(NETDEV_A_NAPI_DEFER_HARD_IRQS).and_then(word),
                gro_flush_timeout_ns: value(NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT).and_then(wide),
            });
        })?;
        Ok(found)
    }

    /// The channels of an interface. Linux 5.7; a driver that has none to set says that it can't tell.
    pub fn channels(&mut self, ifindex: u32) -> io::Result<Channels> {
        let family = self.family("ethtool")?;
        let device = attribute(ETHTOOL_A_HEADER_DEV_INDEX, &ifindex.to_ne_bytes());
        let request = attribute(ETHTOOL_A_CHANNELS_HEADER | NESTED, &device);
        let mut found = None;
        self.ask(family, ETHTOOL_MSG_CHANNELS_GET, 0, &request, |body| {
            let value = |kind| find(body, kind).and_then(word).unwrap_or(0);
            found = Some(Channels {
                rx: value(ETHTOOL_A_CHANNELS_RX_COUNT),
                tx: value(ETHTOOL_A_CHANNELS_TX_COUNT),
                combined: value(ETHTOOL_A_CHANNELS_COMBINED_COUNT),
                rx_max: value(ETHTOOL_A_CHANNELS_RX_MAX).saturating_add(value(ETHTOOL_A_CHANNELS_COMBINED_MAX)),
            });
        })?;
        found.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn family(&mut self, name: &str) -> io::Result<u16> {
        let mut text = name.as_bytes().to_vec();
        text.push(0);
        let mut found = None;
        let request = attribute(CTRL_ATTR_FAMILY_NAME, &text);
        self.ask(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0, &request, |body| {
            found = find(body, CTRL_ATTR_FAMILY_ID).and_then(half);
        })?;
        found.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Asks, and hands the attributes of each message of the answer to `take`.
    fn ask(
        &mut self,
        family: u16,
        command: u8,
        flags: u16,
        attributes: &[u8],
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.seq = self.seq.wrapping_add(1);
        let len = HEADER_BYTES + GENERIC_BYTES + attributes.len();
        let mut request = (len as u32).to_ne_bytes().to_vec();
        request.extend_from_slice(&family.to_ne_bytes());
        request.extend_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
        request.extend_from_slice(&self.seq.to_ne_bytes());
        request.extend_from_slice(&[0; 4]);
        request.extend_from_slice(&[command, 1, 0, 0]);
        request.extend_from_slice(attributes);
        self.socket.send(&request)?;
        for _ in 0..ANSWER_DATAGRAMS_MAX {
            let len = self.socket.read(&mut self.buffer)?;
            if walk(&self.buffer[..len], self.seq, flags == 0, &mut take)? {
                return Ok(());
            }
        }
        Err(io::Error::other("an endless answer"))
    }
}

/// Goes through the messages of one datagram; whether the answer ends with it.
fn walk(mut rest: &[u8], seq: u32, is_single: bool, take: &mut impl FnMut(&[u8])) -> io::Result<bool> {
    while rest.len() >= HEADER_BYTES {
        let len = word(rest).unwrap_or(0) as usize;
        let body = rest.get(HEADER_BYTES..len).ok_or_else(|| io::Error::other("a cut answer"))?;
        let (kind, its_seq) = (half(&rest[4..]), word(&rest[8..]));
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        if its_seq != Some(seq) {
            continue;
        }
        match kind {
            Some(NLMSG_DONE) => return Ok(true),
            Some(NLMSG_ERROR) => {
                let number = body.first_chunk().map_or(-libc::EPROTO, |bytes| i32::from_ne_bytes(*bytes));
                return if number == 0 { Ok(true) } else { Err(io::Error::from_raw_os_error(number.saturating_neg())) };
            }
            _ => take(body.get(GENERIC_BYTES..).unwrap_or_default()),
        }
        if is_single {
            return Ok(true);
        }
    }
    Ok(false)
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((ATTRIBUTE_BYTES + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The value of the first attribute of a type.
fn find(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (len, kind) = (usize::from(half(rest)?), half(rest.get(2..)?)? & TYPE_MASK);
        let value = rest.get(ATTRIBUTE_BYTES..len)?;
        if kind == wanted {
            return Some(value);
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}

fn half(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// A number of 64 bits, which newer kernels may send as 32.
fn wide(bytes: &[u8]) -> Option<u64> {
    match bytes.first_chunk() {
        Some(bytes) => Some(u64::from_ne_bytes(*bytes)),
        None => word(bytes).map(u64::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_cut_ones_are_not() {
        let bytes = [attribute(1, b"odd"), attribute(2 | NESTED, &7u32.to_ne_bytes())].concat();
        assert_eq!(find(&bytes, 1), Some(&b"odd"[..]));
        assert_eq!(find(&bytes, 2).and_then(word), Some(7));
        assert_eq!(find(&bytes, 3), None);
        for cut in 0..bytes.len() {
            assert_eq!(find(&bytes[..cut], 2), None, "cut at {cut}");
        }
        assert_eq!(find(&[0; 8], 1), None, "a length of zero does not go round for ever");
    }

    #[test]
    fn an_interface_that_is_not_there_is_an_error_of_its_question() {
        let mut netlink = Generic::open().expect("every kernel has it");
        let error = netlink.xdp_features(u32::MAX / 2).expect_err("there is none");
        assert!(error.raw_os_error().is_some(), "{error}");
        assert!(netlink.family("no_such_family").is_err());
    }
}
