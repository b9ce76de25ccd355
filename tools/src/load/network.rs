//! What clients send through.

use std::net::{Ipv4Addr, SocketAddrV4};

use ticktape_nic::packet::InterfaceInfo;
use ticktape_nic::{UdpConfig, UdpNic, XdpConfig, XdpNic};

use crate::Failure;

/// A kernel's socket for each client.
///
/// # Errors
/// Usage: the system's.
pub fn udp(to: SocketAddrV4, clients: usize) -> Result<Vec<UdpNic>, Failure> {
    let ip = if to.ip().is_loopback() { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
    let open = |_| UdpNic::open(&UdpConfig::new(SocketAddrV4::new(ip, 0))).map_err(Failure::usage);
    (0..clients).map(open).collect()
}

/// AF_XDP on an interface, from its first address.
///
/// # Errors
/// Usage: there is no such interface, it has no address, or the system's.
pub fn xdp(interface: &str) -> Result<XdpNic, Failure> {
    let refused = |error: &dyn std::fmt::Display| Failure::usage(format!("--interface {interface}: {error}"));
    let info = InterfaceInfo::read(interface).map_err(|error| refused(&error))?;
    let address = info.addresses.first().ok_or_else(|| refused(&"it has no IPv4 address to send from"))?;
    let config = XdpConfig::new(interface, SocketAddrV4::new(address.ip, 0));
    XdpNic::open(&config).map_err(|error| refused(&error))
}
