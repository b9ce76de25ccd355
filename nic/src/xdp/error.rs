//! Why an XDP socket can't be had, in one line for its operator.

use std::net::Ipv4Addr;
use std::time::Duration;
use std::{fmt, io};

use super::bpf::{BpfError, Queues};
use crate::packet::neighbour::NeighbourError;
use crate::packet::{InterfaceError, MacAddr};

/// Why [`super::XdpNic::open`] failed. Its text names what was asked for and what would be right.
#[derive(Debug)]
#[non_exhaustive]
pub enum XdpError {
    /// A setting that can't work.
    Setting {
        /// Its name.
        name: &'static str,
        /// What was asked for.
        value: u32,
        /// What would be right.
        wanted: &'static str,
    },
    /// No such interface, or nothing known of it.
    Interface(InterfaceError),
    /// The interface is down.
    Down(String),
    /// The interface carries no Ethernet frames.
    NotEthernet(String),
    /// The interface is too narrow to carry a datagram.
    Mtu {
        /// The interface.
        interface: String,
        /// Its MTU, in bytes.
        mtu: u32,
    },
    /// The address is not the interface's.
    Address {
        /// The interface.
        interface: String,
        /// The address.
        address: Ipv4Addr,
        /// Those that it has.
        present: Vec<Ipv4Addr>,
    },
    /// The interface has no such queue.
    Queue {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// How many it has.
        queues: u32,
    },
    /// A fixed next hop that is no single station.
    NextHop(MacAddr),
    /// The XDP program can't be loaded or attached.
    Program(BpfError),
    /// The process may not do this.
    Permission {
        /// What it wanted.
        action: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// The kernel has no XDP sockets.
    Unsupported(io::Error),
    /// No socket to be had.
    Socket(io::Error),
    /// No memory for the frames, or it can't be locked.
    Umem {
        /// How much was asked for, in bytes.
        bytes: usize,
        /// What the kernel said.
        error: io::Error,
    },
    /// A ring can't be made or mapped.
    Ring {
        /// Which.
        ring: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// The queue is another socket's.
    Busy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Zero-copy was required, and the driver refuses.
    ZeroCopy {
        /// The interface.
        interface: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// The socket can't be bound to the queue.
    Bind {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// What the kernel said.
        error: io::Error,
    },
    /// Next hops can't be looked up.
    Neighbours(NeighbourError),
    /// The thread that looks them up can't be started.
    Thread(io::Error),
}

impl fmt::Display for XdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            XdpError::Setting { name, value, wanted } => write!(f, "{name} = {value}: give {wanted}"),
            XdpError::Interface(error) => write!(f, "{error}"),
            XdpError::Down(interface) => {
                write!(f, "interface {interface} is down: set it up (ip link set {interface} up)")
            }
            XdpError::NotEthernet(interface) => {
                write!(f, "interface {interface} is no Ethernet interface: use one, or kernel UDP")
            }
            XdpError::Mtu { interface, mtu } => {
                write!(
                    f,
                    "interface {interface} has an MTU of {mtu}: set 68 or more (ip link set {interface} mtu 1500)"
                )
            }
            XdpError::Address { interface, address, present } if present.is_empty() => {
                write!(
                    f,
                    "{address} is no address of {interface}, which has none: give it one (ip addr add ADDRESS/24 dev {interface})"
                )
            }
            XdpError::Address { interface, address, present } => {
                let present: Vec<String> = present.iter().map(Ipv4Addr::to_string).collect();
                write!(f, "{address} is no address of {interface}: use {}, or 0.0.0.0", present.join(" or "))
            }
            XdpError::Queue { interface, queue, queues } => {
                write!(f, "interface {interface} has no receive queue {queue}: it has {}", Queues(*queues))?;
                write!(f, " (ethtool -L {interface})")
            }
            XdpError::NextHop(mac) => write!(
                f,
                "next hop {mac} is {}: give the MAC address of a router, or of the link's other end",
                match *mac {
                    MacAddr::BROADCAST => "the broadcast address",
                    mac if mac.is_zero() => "nobody's address",
                    _ => "a group's address",
                }
            ),
            XdpError::Program(error) => write!(f, "{error}"),
            XdpError::Permission { action, error } => {
                write!(
                    f,
                    "cannot {action}: {error}: run as root, or grant CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON"
                )
            }
            XdpError::Unsupported(error) => {
                write!(f, "this kernel has no XDP sockets: {error}: use one with CONFIG_XDP_SOCKETS, or kernel UDP")
            }
            XdpError::Socket(error) => match error.raw_os_error() {
                Some(libc::EMFILE) => write!(f, "cannot open an XDP socket: {error}: raise the limit (ulimit -n)"),
                _ => write!(f, "cannot open an XDP socket: {error}"),
            },
            XdpError::Umem { bytes, error } => {
                write!(f, "cannot have {bytes} bytes for frames: {error}")?;
                match error.raw_os_error() {
                    Some(libc::ENOBUFS | libc::EPERM | libc::EAGAIN) => {
                        write!(f, ": raise RLIMIT_MEMLOCK (ulimit -l unlimited), or grant CAP_IPC_LOCK")
                    }
                    _ => write!(f, ": free memory, or ask for fewer frames"),
                }
            }
            XdpError::Ring { ring, error } => write!(f, "cannot have the {ring} ring: {error}"),
            XdpError::Busy { interface, queue, waited } => write!(
                f,
                "queue {queue} of {interface} has an XDP socket already (waited {} ms): stop its owner (ss --xdp -p), or use \
                 another queue",
                waited.as_millis()
            ),
            XdpError::ZeroCopy { interface, error } => write!(
                f,
                "the driver of {interface} does no zero-copy: {error}: allow copies, or use a driver that does (ethtool -i)"
            ),
            XdpError::Bind { interface, queue, error } => {
                write!(f, "cannot bind an XDP socket to queue {queue} of {interface}: {error}")
            }
            XdpError::Neighbours(error) => write!(f, "{error}"),
            XdpError::Thread(error) => write!(f, "cannot start the thread that looks up next hops: {error}"),
        }
    }
}

impl std::error::Error for XdpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            XdpError::Interface(error) => Some(error),
            XdpError::Program(error) => Some(error),
            XdpError::Neighbours(error) => Some(error),
            XdpError::Permission { error, .. }
            | XdpError::Unsupported(error)
            | XdpError::Socket(error)
            | XdpError::Umem { error, .. }
            | XdpError::Ring { error, .. }
            | XdpError::ZeroCopy { error, .. }
            | XdpError::Bind { error, .. }
            | XdpError::Thread(error) => Some(error),
            XdpError::Setting { .. }
            | XdpError::Down(_)
            | XdpError::NotEthernet(_)
            | XdpError::Mtu { .. }
            | XdpError::Address { .. }
            | XdpError::Queue { .. }
            | XdpError::NextHop(_)
            | XdpError::Busy { .. } => None,
        }
    }
}
