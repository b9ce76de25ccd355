//! Ethernet, IPv4 and UDP: headers built around a payload that stands at its place, and parsed in place.
//!
//! ```text
//!   destination source [8100 tag] 0800 │ IPv4, 20 bytes │ UDP, 8 bytes │ payload
//!   └ IEEE 802.3, 802.1Q ────────────┘   RFC 791          RFC 768
//! ```
//!
//! - [`Template`]: the headers of one sender and receiver, precomputed; a datagram then costs its payload's sum.
//! - [`parse`]: the datagram in a frame, or the one [`PacketError`] against it.
//! - [`checksum`]: the internet checksum (RFC 1071).
//! - [`InterfaceInfo`]: what the kernel says about an interface.
//! - [`neighbour`]: the Ethernet address that a destination's frames go to.
//!
//! What neither builds nor takes: IP options, fragments, stacked VLAN tags, IPv6.

pub mod checksum;
mod interface;
mod layout;
mod mac;
pub mod neighbour;
mod netlink;
mod parse;
mod template;
#[cfg(test)]
mod tests;

pub use interface::{InterfaceAddr, InterfaceError, InterfaceInfo, XdpAttached, XdpMode};
pub use layout::{ETHERNET_BYTES, HEADERS_BYTES, HEADERS_BYTES_MAX, IPV4_BYTES, UDP_BYTES, VLAN_BYTES};
pub use mac::{MacAddr, MacAddrError};
pub use parse::{Checksum, PacketCounters, PacketError, UdpPacket, Verify, parse};
pub use template::{Headers, Template, build};
