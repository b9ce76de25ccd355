//! Which network backend, and how it is set up.

use serde::Deserialize;
use ticktape_nic::packet::MacAddr;
use ticktape_nic::xdp::bpf::{AttachMode, AttachPreference};
use ticktape_nic::xdp::{NextHops, ZeroCopy};

/// Which network backend to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NicChoice {
    /// The fastest that works here, and why it was chosen.
    #[default]
    Auto,
    /// Kernel UDP.
    Udp,
    /// AF_XDP sockets on the interface of [`XdpSettings`].
    Xdp,
}

/// How an XDP program is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpAttach {
    /// By the driver where it can, else in front of the kernel's stack.
    #[default]
    Auto,
    /// By the driver, or not at all.
    Native,
    /// In front of the kernel's stack.
    Generic,
}

impl From<XdpAttach> for AttachPreference {
    fn from(attach: XdpAttach) -> Self {
        match attach {
            XdpAttach::Auto => AttachPreference::NativeElseGeneric,
            XdpAttach::Native => AttachPreference::Only(AttachMode::Native),
            XdpAttach::Generic => AttachPreference::Only(AttachMode::Generic),
        }
    }
}

/// Whether the card reads and writes packets in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpZeroCopy {
    /// Where the driver can.
    #[default]
    Auto,
    /// Or the start is refused.
    Require,
    /// The kernel copies.
    Never,
}

impl From<XdpZeroCopy> for ZeroCopy {
    fn from(zero_copy: XdpZeroCopy) -> Self {
        match zero_copy {
            XdpZeroCopy::Auto => ZeroCopy::Auto,
            XdpZeroCopy::Require => ZeroCopy::Require,
            XdpZeroCopy::Never => ZeroCopy::Never,
        }
    }
}

/// Where frames go: by the kernel's tables, or all to one MAC address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct NextHop(pub NextHops);

impl TryFrom<String> for NextHop {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mac: MacAddr =
            text.parse().map_err(|_| format!("next_hop = {text:?} is no MAC address, as 02:00:00:00:00:01"))?;
        if mac.is_zero() || mac.is_multicast() {
            let what = if mac.is_zero() { "nobody's" } else { "a group's" };
            return Err(format!(
                "next_hop = {text:?} is {what} address: give that of a router, or of the link's other end"
            ));
        }
        Ok(NextHop(NextHops::Fixed(mac)))
    }
}

/// The interface for XDP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, as [xdp] with interface = \"eth1\"")]
pub struct XdpSettings {
    /// Its name.
    pub interface: String,
    /// The receive queue that the clients' traffic lands on.
    #[serde(default)]
    pub queue: u32,
    /// How the program is attached.
    #[serde(default)]
    pub attach: XdpAttach,
    /// Whether the card reads and writes packets in place.
    #[serde(default)]
    pub zero_copy: XdpZeroCopy,
    /// Where frames go; by default where the kernel's routes and neighbours lead.
    #[serde(default)]
    pub next_hop: NextHop,
}
