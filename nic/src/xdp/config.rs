//! What to open.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use super::abi;
use super::bpf::{AttachPreference, RULES_MAX, Rule};
use super::error::XdpError;
use super::limits::{FRAMES_MAX, QUEUES_MAX, REBIND_PATIENCE};
use crate::error::NicError;
use crate::limits::DATAGRAM_BYTES_MAX;
use crate::packet::{HEADERS_BYTES_MAX, IPV4_BYTES, MacAddr, UDP_BYTES};

/// Whether the card may read and write the umem itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ZeroCopy {
    /// Where the driver can; otherwise the kernel copies.
    #[default]
    Auto,
    /// Or an error.
    Require,
    /// The kernel copies.
    Never,
}

/// Has receive polls run the driver on the polling core, instead of interrupts elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BusyPoll {
    /// How long one system call may poll the device, in microseconds.
    pub us: u32,
    /// Packets that one of them handles at most.
    pub budget: u32,
    /// Keep the device's interrupts off meanwhile. Takes effect with the interface's `napi_defer_hard_irqs` and
    /// `gro_flush_timeout` set.
    pub prefer: bool,
}

impl Default for BusyPoll {
    fn default() -> Self {
        BusyPoll { us: 20, budget: 64, prefer: true }
    }
}

/// Where unicast frames go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NextHops {
    /// Where the kernel's routes and neighbours lead. Until a neighbour is known, datagrams take the way through the kernel.
    #[default]
    Kernel,
    /// All to this address: a router, or a link's only other end.
    Fixed(MacAddr),
}

/// What to open. The fields that [`XdpConfig::new`] does not ask for have values that suit most.
#[derive(Clone, Debug)]
pub struct XdpConfig {
    /// The interface.
    pub interface: String,
    /// Its receive queues to serve. Sends go through the first.
    pub queues: Vec<u32>,
    /// The address to receive on and send from. 0.0.0.0 receives whatever the address, and sends from the interface's first;
    /// port 0 lets the kernel choose.
    pub address: SocketAddrV4,
    /// Further destinations to receive.
    pub rules: Vec<Rule>,
    /// Multicast groups to receive on the same port.
    pub join: Vec<Ipv4Addr>,
    /// How many hops multicast may take; 1 stays on the link.
    pub multicast_ttl: u8,
    /// The VLAN (1 to 4094) that sent frames are tagged with, and received ones may be; the address is then that of the VLAN's
    /// interface.
    pub vlan: Option<u16>,
    /// Bytes of a frame: 2048 or 4096. A received packet may have 256 less.
    pub frame_bytes: u32,
    /// Frames for receiving, for each queue, and entries of its rings: a power of two. So many packets may wait.
    pub rx_frames: u32,
    /// Frames for sending, and entries of its rings: a power of two. So many datagrams may be queued or on their way.
    pub tx_frames: u32,
    /// Zero-copy or not.
    pub zero_copy: ZeroCopy,
    /// How the program is attached.
    pub attach: AttachPreference,
    /// Busy polling by the kernel; polls of a virtual interface have no use for it.
    pub busy_poll: Option<BusyPoll>,
    /// Frames that one system call may send in copy mode; `None` leaves the kernel's own 32. More than the kernel knows of or
    /// allows is no error: [`crate::Nic::describe`] tells.
    pub tx_budget: Option<u32>,
    /// Where unicast frames go.
    pub next_hops: NextHops,
    /// How long to wait for a queue or a port that is still busy with a socket just closed.
    pub rebind_patience: Duration,
}

impl XdpConfig {
    /// Queue 0 of `interface`, for `address`.
    pub fn new(interface: impl Into<String>, address: SocketAddrV4) -> XdpConfig {
        XdpConfig {
            interface: interface.into(),
            queues: vec![0],
            address,
            rules: Vec::new(),
            join: Vec::new(),
            multicast_ttl: 1,
            vlan: None,
            frame_bytes: 2_048,
            rx_frames: 2_048,
            tx_frames: 512,
            zero_copy: ZeroCopy::Auto,
            attach: AttachPreference::NativeElseGeneric,
            busy_poll: None,
            tx_budget: Some(256),
            next_hops: NextHops::Kernel,
            rebind_patience: REBIND_PATIENCE,
        }
    }

    pub(super) fn validate(&self) -> Result<(), NicError> {
        let setting = |name, value, wanted| Err(NicError::Xdp(XdpError::Setting { name, value, wanted }));
        if ![2_048, 4_096].contains(&self.frame_bytes) {
            return setting("frame_bytes", self.frame_bytes, "2048 or 4096");
        }
        for (name, value) in [("rx_frames", self.rx_frames), ("tx_frames", self.tx_frames)] {
            if !value.is_power_of_two() || value > FRAMES_MAX {
                return setting(name, value, "a power of two up to 65536");
            }
        }
        if let Some(vlan) = self.vlan.filter(|vlan| !(1..=4_094).contains(vlan)) {
            return setting("vlan", vlan.into(), "1 to 4094");
        }
        if self.multicast_ttl == 0 {
            return setting("multicast_ttl", 0, "1 to 255");
        }
        if self.queues.is_empty() || self.queues.len() > QUEUES_MAX {
            return setting("queues", self.queues.len() as u32, "1 to 64 of them");
        }
        if self.queues.iter().collect::<BTreeSet<_>>().len() < self.queues.len() {
            return setting("queues", self.queues.len() as u32, "each once");
        }
        if self.all_rules(1).len() > RULES_MAX {
            return setting("rules", self.all_rules(1).len() as u32, "at most 16, with the address and groups");
        }
        if let Some(&group) = self.join.iter().find(|group| !group.is_multicast()) {
            return Err(NicError::NotMulticast(group));
        }
        if self.address.ip().is_multicast() {
            return Err(NicError::InterfaceIsMulticast(*self.address.ip()));
        }
        match self.next_hops {
            NextHops::Fixed(mac) if mac.is_zero() || mac.is_multicast() => Err(NicError::Xdp(XdpError::NextHop(mac))),
            _ => Ok(()),
        }
    }

    /// What to receive, once the port is known.
    pub(super) fn all_rules(&self, port: u16) -> Vec<Rule> {
        let address = Some(*self.address.ip()).filter(|ip| !ip.is_unspecified());
        let groups = self.join.iter().map(|&group| Rule { address: Some(group), port });
        // Whatever the address: the groups are among them.
        let groups = groups.filter(|_| address.is_some());
        std::iter::once(Rule { address, port }).chain(groups).chain(self.rules.iter().copied()).collect()
    }

    /// The largest payload that an interface with this MTU and these frames carry.
    pub(super) fn datagram_bytes_max(&self, mtu: u32) -> usize {
        let by_mtu = (mtu as usize).saturating_sub(IPV4_BYTES + UDP_BYTES);
        let by_frame = (self.frame_bytes - abi::PACKET_HEADROOM_BYTES) as usize - HEADERS_BYTES_MAX;
        by_mtu.min(by_frame).min(DATAGRAM_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> XdpConfig {
        XdpConfig::new("veth0", SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7))
    }

    fn fixed(mac: [u8; 6]) -> NextHops {
        NextHops::Fixed(MacAddr(mac))
    }

    #[test]
    fn what_can_not_work_is_refused_by_name() {
        config().validate().expect("the defaults are fine");
        type Change = fn(&mut XdpConfig);
        let cases: [(Change, &str); 13] = [
            (|c| c.frame_bytes = 1_024, "frame_bytes = 1024: give 2048 or 4096"),
            (|c| c.rx_frames = 1_000, "rx_frames = 1000: give a power of two up to 65536"),
            (|c| c.tx_frames = 0, "tx_frames = 0: give a power of two up to 65536"),
            (|c| c.tx_frames = 131_072, "tx_frames = 131072: give a power of two up to 65536"),
            (|c| c.vlan = Some(4_095), "vlan = 4095: give 1 to 4094"),
            (|c| c.multicast_ttl = 0, "multicast_ttl = 0: give 1 to 255"),
            (|c| c.queues = vec![], "queues = 0: give 1 to 64 of them"),
            (|c| c.queues = vec![1, 0, 1], "queues = 3: give each once"),
            (|c| c.join = vec![Ipv4Addr::LOCALHOST], "127.0.0.1 is no multicast group"),
            (|c| c.address.set_ip(Ipv4Addr::new(224, 0, 0, 1)), "interface 224.0.0.1 is a multicast address"),
            (|c| c.next_hops = fixed([0; 6]), "next hop 00:00:00:00:00:00 is nobody's address: give "),
            (|c| c.next_hops = fixed([0xff; 6]), "next hop ff:ff:ff:ff:ff:ff is the broadcast address: give "),
            (|c| c.next_hops = fixed([1, 0, 0x5e, 1, 2, 3]), "next hop 01:00:5e:01:02:03 is a group's address: give "),
        ];
        for (change, text) in cases {
            let mut config = config();
            change(&mut config);
            let error = config.validate().expect_err(text).to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }

    #[test]
    fn groups_get_rules_unless_every_address_does() {
        let group = Ipv4Addr::new(239, 1, 1, 1);
        let mut config = XdpConfig { join: vec![group], ..config() };
        let rules = config.all_rules(7);
        assert_eq!(rules, [Some(*config.address.ip()), Some(group)].map(|address| Rule { address, port: 7 }));
        config.address.set_ip(Ipv4Addr::UNSPECIFIED);
        assert_eq!(config.all_rules(9), [Rule { address: None, port: 9 }]);
    }

    #[test]
    fn datagrams_fit_both_the_mtu_and_the_frame() {
        assert_eq!(config().datagram_bytes_max(1_500), 1_472);
        assert_eq!(config().datagram_bytes_max(9_000), 2_048 - 256 - 46);
        assert_eq!(config().datagram_bytes_max(20), 0);
    }
}
