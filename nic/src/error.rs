//! Why a network can't be opened, in one line for its operator.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::{fmt, io};

use crate::xdp::XdpError;

/// Why a [`crate::Nic`] could not be opened. Its text names what was asked for and what would be right.
#[derive(Debug)]
#[non_exhaustive]
pub enum NicError {
    /// A size outside its bounds.
    Size {
        /// The setting.
        name: &'static str,
        /// What was asked for.
        value: usize,
        /// The least that is allowed.
        min: usize,
        /// The most that is allowed.
        max: usize,
    },
    /// An address to join that is no multicast group.
    NotMulticast(Ipv4Addr),
    /// A multicast address given as the interface's own.
    InterfaceIsMulticast(Ipv4Addr),
    /// No socket to be had.
    Socket(io::Error),
    /// The address can't be bound.
    Bind {
        /// The address.
        address: SocketAddrV4,
        /// What the kernel said.
        error: io::Error,
    },
    /// No interface of this host has the address given.
    Interface {
        /// The address.
        interface: Ipv4Addr,
        /// What the kernel said.
        error: io::Error,
    },
    /// A group can't be joined.
    Join {
        /// The group.
        group: Ipv4Addr,
        /// The interface it was to be joined on; `None` leaves the choice to the routing table.
        interface: Option<Ipv4Addr>,
        /// What the kernel said.
        error: io::Error,
    },
    /// A socket option that is not optional here.
    Option {
        /// The option's name in socket(7), ip(7).
        name: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// No XDP socket to be had.
    Xdp(XdpError),
}

impl fmt::Display for NicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NicError::Size { name, value, min, max } => write!(f, "{name} = {value} is outside {min} to {max}"),
            NicError::NotMulticast(group) => {
                write!(f, "{group} is no multicast group: groups lie in 224.0.0.0 to 239.255.255.255")
            }
            NicError::InterfaceIsMulticast(interface) => {
                write!(
                    f,
                    "interface {interface} is a multicast address: give the address that the interface itself has"
                )
            }
            NicError::Socket(error) => match error.raw_os_error() {
                Some(libc::EMFILE) => write!(f, "cannot open a UDP socket: {error}: raise the limit (ulimit -n)"),
                _ => write!(f, "cannot open a UDP socket: {error}"),
            },
            NicError::Bind { address, error } => {
                write!(f, "cannot bind UDP {address}: {error}")?;
                match error.raw_os_error() {
                    Some(libc::EADDRINUSE) => {
                        write!(f, ": stop its owner (ss -ulnp 'sport = {}'), or choose another port", address.port())
                    }
                    Some(libc::EADDRNOTAVAIL) => write!(f, ": use an address of this host (ip -4 addr), or 0.0.0.0"),
                    Some(libc::EACCES) => {
                        write!(f, ": use a port above 1023, or grant CAP_NET_BIND_SERVICE")
                    }
                    _ => Ok(()),
                }
            }
            NicError::Interface { interface, error } => write!(
                f,
                "cannot send multicast from interface {interface}: {error}: use an address of this host (ip -4 addr)"
            ),
            NicError::Join { group, interface: Some(interface), error } => {
                write!(f, "cannot join group {group} on interface {interface}: {error}")?;
                match error.raw_os_error() {
                    Some(libc::ENODEV | libc::EADDRNOTAVAIL) => {
                        write!(f, ": use the address of an interface of this host that is up (ip -4 addr)")
                    }
                    Some(libc::ENOBUFS) => write!(f, ": raise net.ipv4.igmp_max_memberships"),
                    Some(libc::EADDRINUSE) => write!(f, ": it is listed twice"),
                    _ => Ok(()),
                }
            }
            NicError::Join { group, interface: None, error } => {
                write!(f, "cannot join group {group}: {error}: name the interface to join on by its address")
            }
            NicError::Option { name, error } => write!(f, "cannot set {name} on a UDP socket: {error}"),
            NicError::Xdp(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for NicError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NicError::Socket(error)
            | NicError::Bind { error, .. }
            | NicError::Interface { error, .. }
            | NicError::Join { error, .. }
            | NicError::Option { error, .. } => Some(error),
            NicError::Xdp(error) => error.source(),
            NicError::Size { .. } | NicError::NotMulticast(_) | NicError::InterfaceIsMulticast(_) => None,
        }
    }
}
