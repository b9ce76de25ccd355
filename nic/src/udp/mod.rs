//! Kernel UDP: the backend that works everywhere. Non-blocking, a burst a system call, with the kernel's receive times.

mod control;
mod rx;
mod stamp;
mod sys;
mod tx;

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use crate::error::NicError;
use crate::limits::{BURST_DEFAULT, BURST_MAX, DATAGRAM_BYTES_DEFAULT, DATAGRAM_BYTES_MAX};
use crate::port::Nic;

pub use rx::UdpRx;
pub use tx::UdpTx;

/// What to open.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// The address to receive on and send from. Port 0 lets the kernel choose. To receive a group's datagrams bind to
    /// 0.0.0.0 or to the group itself.
    pub bind: SocketAddrV4,
    /// The address of the interface that multicast is joined on and sent from; `None` leaves it to the routing table.
    pub interface: Option<Ipv4Addr>,
    /// Multicast groups to receive.
    pub join: Vec<Ipv4Addr>,
    /// How many hops multicast may take; 1 stays on the link.
    pub multicast_ttl: u32,
    /// Whether this host receives the multicast that it sends.
    pub multicast_loop: bool,
    /// Lets the kernel poll the card within each receive call, for up to this many microseconds.
    pub busy_poll_us: Option<u32>,
    /// Bytes that the kernel may hold for the receiver; 0 keeps the system's default.
    pub rx_buffer_bytes: usize,
    /// Bytes that the kernel may hold for the sender; 0 keeps the system's default.
    pub tx_buffer_bytes: usize,
    /// Datagrams per system call, and slots in the transmit queue.
    pub burst: usize,
    /// The largest datagram, in bytes of payload, to send and to receive.
    pub datagram_bytes_max: usize,
    /// Allows several sockets on one address and port, datagrams spread among them (SO_REUSEPORT).
    pub reuse_port: bool,
    /// Allows several sockets to receive the same group on one port (SO_REUSEADDR).
    pub reuse_address: bool,
}

impl UdpConfig {
    /// Unicast on `bind`, everything else by default.
    pub fn new(bind: SocketAddrV4) -> UdpConfig {
        UdpConfig {
            bind,
            interface: None,
            join: Vec::new(),
            multicast_ttl: 1,
            multicast_loop: true,
            busy_poll_us: None,
            rx_buffer_bytes: 4 << 20,
            tx_buffer_bytes: 4 << 20,
            burst: BURST_DEFAULT,
            datagram_bytes_max: DATAGRAM_BYTES_DEFAULT,
            reuse_port: false,
            reuse_address: false,
        }
    }

    fn validate(&self) -> Result<(), NicError> {
        let bounds = [
            ("burst", self.burst, 1, BURST_MAX),
            ("datagram_bytes_max", self.datagram_bytes_max, 1, DATAGRAM_BYTES_MAX),
            ("multicast_ttl", self.multicast_ttl as usize, 0, 255),
            ("rx_buffer_bytes", self.rx_buffer_bytes, 0, i32::MAX as usize),
            ("tx_buffer_bytes", self.tx_buffer_bytes, 0, i32::MAX as usize),
        ];
        for (name, value, min, max) in bounds {
            if !(min..=max).contains(&value) {
                return Err(NicError::Size { name, value, min, max });
            }
        }
        if let Some(&group) = self.join.iter().find(|group| !group.is_multicast()) {
            return Err(NicError::NotMulticast(group));
        }
        match self.interface {
            Some(interface) if interface.is_multicast() => Err(NicError::InterfaceIsMulticast(interface)),
            _ => Ok(()),
        }
    }
}

/// An open kernel UDP socket.
#[derive(Debug)]
pub struct UdpNic {
    rx: UdpRx,
    tx: UdpTx,
    local: SocketAddrV4,
    description: String,
}

impl UdpNic {
    /// Opens the socket, joins the groups and lays out all buffers.
    ///
    /// # Errors
    /// [`NicError`], one variant a reason. What the system merely grants less of (buffers, busy polling) is no error:
    /// [`Nic::describe`] tells.
    pub fn open(config: &UdpConfig) -> Result<UdpNic, NicError> {
        config.validate()?;
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).map_err(NicError::Socket)?;
        let mut notes = String::new();
        set_required(&socket, config)?;
        size_buffers(&socket, config, &mut notes);
        set_busy_poll(&socket, config, &mut notes);
        socket
            .bind(&SocketAddr::V4(config.bind).into())
            .map_err(|error| NicError::Bind { address: config.bind, error })?;
        set_multicast(&socket, config)?;
        let local = local_of(&socket).map_err(NicError::Socket)?;

        let mut description = format!(
            "kernel UDP on {local}: recvmmsg/sendmmsg, bursts of {}, kernel receive timestamps{notes}",
            config.burst
        );
        for group in &config.join {
            let _ = write!(description, ", joined {group}");
        }
        if let Some(interface) = config.interface {
            let _ = write!(description, ", multicast on {interface}");
        }
        let twin = socket.try_clone().map_err(NicError::Socket)?;
        Ok(UdpNic {
            rx: UdpRx::new(OwnedFd::from(socket), local, config.burst, config.datagram_bytes_max),
            tx: UdpTx::new(OwnedFd::from(twin), config.burst, config.datagram_bytes_max),
            local,
            description,
        })
    }
}

impl Nic for UdpNic {
    type Rx = UdpRx;
    type Tx = UdpTx;

    fn split(self) -> (UdpRx, UdpTx) {
        (self.rx, self.tx)
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn local_addr(&self) -> SocketAddrV4 {
        self.local
    }
}

/// What the backend can't do without. Set before the bind, so that no datagram arrives without its time and destination.
fn set_required(socket: &Socket, config: &UdpConfig) -> Result<(), NicError> {
    let name = |name| move |error: io::Error| NicError::Option { name, error };
    socket.set_nonblocking(true).map_err(name("O_NONBLOCK"))?;
    if config.reuse_address {
        socket.set_reuse_address(true).map_err(name("SO_REUSEADDR"))?;
    }
    if config.reuse_port {
        socket.set_reuse_port(true).map_err(name("SO_REUSEPORT"))?;
    }
    setsockopt(socket, sockopt::ReceiveTimestampns, &true).map_err(io::Error::from).map_err(name("SO_TIMESTAMPNS"))?;
    // A socket bound to one address receives for no other; the kernel need not tell.
    if config.bind.ip().is_unspecified() {
        setsockopt(socket, sockopt::Ipv4PacketInfo, &true).map_err(io::Error::from).map_err(name("IP_PKTINFO"))?;
    }
    setsockopt(socket, sockopt::RxqOvfl, &1).map_err(io::Error::from).map_err(name("SO_RXQ_OVFL"))?;
    // Only the groups joined here, not those that others on this host have joined.
    socket.set_multicast_all_v4(false).map_err(name("IP_MULTICAST_ALL"))?;
    socket.set_multicast_ttl_v4(config.multicast_ttl).map_err(name("IP_MULTICAST_TTL"))?;
    socket.set_multicast_loop_v4(config.multicast_loop).map_err(name("IP_MULTICAST_LOOP"))
}

fn set_multicast(socket: &Socket, config: &UdpConfig) -> Result<(), NicError> {
    if let Some(interface) = config.interface {
        socket.set_multicast_if_v4(&interface).map_err(|error| NicError::Interface { interface, error })?;
    }
    let on = InterfaceIndexOrAddress::Address(config.interface.unwrap_or(Ipv4Addr::UNSPECIFIED));
    for group in &config.join {
        socket.join_multicast_v4_n(group, &on).map_err(|error| NicError::Join {
            group: *group,
            interface: config.interface,
            error,
        })?;
    }
    Ok(())
}

/// Asks beyond the system's limit first, which takes CAP_NET_ADMIN, then within it. The kernel reports twice what it
/// grants: the other half is for its own bookkeeping.
fn size_buffers(socket: &Socket, config: &UdpConfig, notes: &mut String) {
    if config.rx_buffer_bytes > 0 {
        if setsockopt(socket, sockopt::RcvBufForce, &config.rx_buffer_bytes).is_err() {
            let _ = socket.set_recv_buffer_size(config.rx_buffer_bytes);
        }
        note_buffer(notes, "receive", config.rx_buffer_bytes, socket.recv_buffer_size(), "net.core.rmem_max");
    }
    if config.tx_buffer_bytes > 0 {
        if setsockopt(socket, sockopt::SndBufForce, &config.tx_buffer_bytes).is_err() {
            let _ = socket.set_send_buffer_size(config.tx_buffer_bytes);
        }
        note_buffer(notes, "transmit", config.tx_buffer_bytes, socket.send_buffer_size(), "net.core.wmem_max");
    }
}

fn note_buffer(notes: &mut String, which: &str, asked: usize, granted: io::Result<usize>, sysctl: &str) {
    let _ = match granted.map(|bytes| bytes / 2) {
        Ok(granted) if granted >= asked => write!(notes, ", {which} buffer {granted} bytes"),
        Ok(granted) => {
            write!(
                notes,
                ", {which} buffer {granted} bytes of {asked} asked for (raise {sysctl}, or grant CAP_NET_ADMIN)"
            )
        }
        Err(error) => write!(notes, ", {which} buffer of unknown size ({error})"),
    };
}

fn set_busy_poll(socket: &Socket, config: &UdpConfig, notes: &mut String) {
    let Some(us) = config.busy_poll_us else { return };
    let _ = match sys::set_busy_poll_us(socket.as_fd(), us) {
        Ok(()) => write!(notes, ", busy poll {us} µs"),
        Err(error) => write!(
            notes,
            ", busy poll {us} µs refused ({error}: grant CAP_NET_ADMIN, or set net.core.busy_read to at least {us})"
        ),
    };
}

fn local_of(socket: &Socket) -> io::Result<SocketAddrV4> {
    socket.local_addr()?.as_socket_ipv4().ok_or_else(|| io::Error::other("the kernel gave no IPv4 address"))
}
