//! The NIC over XDP sockets: opened here, used through its two halves.

mod describe;
mod destinations;
mod hops;
mod rx;
mod tx;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Type};

use super::bpf::{BpfError, Filter, FilterCounters, UnservedQueue, XdpLink, XdpProgram};
use super::config::XdpConfig;
use super::error::XdpError;
use super::frames::Frames;
use super::socket::{self, Bound, Copying, REBIND_PAUSE, Socket};
use super::stats::SocketStatistics;
use super::sys;
use super::umem::{Area, Umem};
use crate::error::NicError;
use crate::packet::{InterfaceInfo, Verify};
use crate::port::{Nic, Tx};

use describe::Granted;
use destinations::{Destinations, Origin};
pub use rx::XdpRx;
pub use tx::XdpTx;

/// An open XDP NIC.
#[derive(Debug)]
pub struct XdpNic {
    rx: XdpRx,
    tx: XdpTx,
    local: SocketAddrV4,
    description: String,
    shared: Arc<Shared>,
}

/// What both halves keep open. Dropped with the last of them, in this order; the rings are unmapped by then.
#[derive(Debug)]
struct Shared {
    _link: XdpLink,
    program: XdpProgram,
    sockets: Vec<Socket>,
    sender: OwnedFd,
    /// Joined the groups, holds the port, and sends what has no next hop yet.
    companion: UdpSocket,
    _umem: Arc<Umem>,
}

impl Shared {
    fn statistics(&self) -> SocketStatistics {
        let mut sum = SocketStatistics::default();
        for fd in self.sockets.iter().map(|socket| &socket.fd).chain([&self.sender]) {
            // Asked for by its size, which the open has seen to be known; there is no other way to fail.
            if let Ok(statistics) = sys::statistics(fd.as_fd()) {
                sum.add(&statistics);
            }
        }
        sum
    }
}

/// Watches a NIC from anywhere while its halves are at work. Keeps the NIC open.
#[derive(Clone, Debug)]
pub struct XdpMonitor(Arc<Shared>);

impl XdpMonitor {
    /// What the kernel counted on the sockets.
    pub fn sockets(&self) -> SocketStatistics {
        self.0.statistics()
    }

    /// What became of the frames that the interface received.
    ///
    /// # Errors
    /// Should the kernel refuse.
    pub fn filter(&self) -> Result<FilterCounters, BpfError> {
        self.0.program.counters()
    }

    /// The queues on which datagrams for this NIC arrived although it does not serve them: they went to the kernel.
    ///
    /// # Errors
    /// Should the kernel refuse.
    pub fn unserved_queues(&self) -> Result<Vec<UnservedQueue>, BpfError> {
        self.0.program.unserved_queues()
    }
}

impl XdpNic {
    /// The largest payload that the interface and the frames carry, in bytes.
    pub fn datagram_bytes_max(&self) -> usize {
        self.tx.datagram_bytes_max()
    }

    /// Attaches the program, opens and binds the sockets, lays out all frames and fills the rings.
    ///
    /// # Errors
    /// [`NicError`], most of them [`NicError::Xdp`], one variant a reason. What the system merely grants less of (native mode,
    /// zero-copy, huge pages, busy polling, budgets) is no error unless it was required: [`Nic::describe`] tells.
    pub fn open(config: &XdpConfig) -> Result<XdpNic, NicError> {
        config.validate()?;
        let interface = inspect(config)?;
        let source = source_of(config, &interface)?;
        let companion = companion(config, &interface)?;
        let port = companion.local_addr().map_err(NicError::Socket)?.port();
        let local = SocketAddrV4::new(*config.address.ip(), port);

        let filter = Filter { rules: config.all_rules(port), allow_vlan: config.vlan.is_some() };
        let highest = config.queues.iter().max().map_or(0, |queue| queue + 1);
        let program = XdpProgram::load(&filter, interface.rx_queues.max(highest)).map_err(XdpError::Program)?;
        let link = program.attach(interface.index, config.attach).map_err(XdpError::Program)?;

        let rx_frames = config.rx_frames as usize * config.queues.len();
        let bytes = (rx_frames + config.tx_frames as usize) * config.frame_bytes as usize;
        let umem = Umem::map(bytes).map_err(|error| XdpError::Umem { bytes, error })?;
        let Bound { sockets, sender, rx, tx, copying } = socket::open(config, interface.index, &umem)?;
        let granted = Granted::ask(config, sender.as_fd(), &sockets);
        for socket in &sockets {
            program.set_socket(socket.queue, socket.fd.as_fd()).map_err(XdpError::Program)?;
        }
        let umem = Arc::new(umem);
        let description = granted.describe(config, &interface, local, &link, &program, &copying, umem.pages());
        let origin = Origin { mac: interface.mac, address: SocketAddrV4::new(source, port) };
        let destinations = Destinations::open(config, &address_interface(config, &interface)?, origin)?;
        let shared = Arc::new(Shared { _link: link, program, sockets, sender, companion, _umem: umem.clone() });
        let is_copy = matches!(copying, Copying::Copy(_));
        let pool = |at: usize, count| Frames::new(at as u64 * u64::from(config.frame_bytes), config.frame_bytes, count);
        let queues = rx
            .into_iter()
            .enumerate()
            .map(|(at, rings)| rx::Queue::new(rings, pool(at * config.rx_frames as usize, config.rx_frames)))
            .collect();
        let area = || Area::new(umem.clone(), config.frame_bytes as usize);
        // Only a virtual interface shows checksums that are not complete, and none of them does zero-copy.
        let verify = if is_copy { Verify::FullOrPartial } else { Verify::Full };
        Ok(XdpNic {
            rx: XdpRx::new(
                queues,
                area(),
                rx::Options { verify, vlan: config.vlan, busy: granted.busy_polls() },
                &shared,
            ),
            tx: XdpTx::new(
                tx,
                pool(rx_frames, config.tx_frames),
                area(),
                tx::Options { is_copy, datagram_bytes_max: config.datagram_bytes_max(interface.mtu) },
                destinations,
                &shared,
            ),
            local,
            description,
            shared,
        })
    }

    /// For watching it while its halves are at work.
    pub fn monitor(&self) -> XdpMonitor {
        XdpMonitor(self.shared.clone())
    }
}

impl Nic for XdpNic {
    type Rx = XdpRx;
    type Tx = XdpTx;

    fn split(self) -> (XdpRx, XdpTx) {
        (self.rx, self.tx)
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn local_addr(&self) -> SocketAddrV4 {
        self.local
    }
}

/// The interface, if it can serve.
fn inspect(config: &XdpConfig) -> Result<InterfaceInfo, XdpError> {
    let info = InterfaceInfo::read(&config.interface).map_err(XdpError::Interface)?;
    let interface = || info.name.clone();
    if !info.is_ethernet {
        return Err(XdpError::NotEthernet(interface()));
    }
    if !info.up {
        return Err(XdpError::Down(interface()));
    }
    if config.datagram_bytes_max(info.mtu) == 0 {
        return Err(XdpError::Mtu { interface: interface(), mtu: info.mtu });
    }
    match config.queues.iter().find(|&&queue| queue >= info.rx_queues.max(1)) {
        Some(&queue) => Err(XdpError::Queue { interface: interface(), queue, queues: info.rx_queues }),
        None => Ok(info),
    }
}

/// The interface that has the addresses: the VLAN's, where there is one.
fn address_interface(config: &XdpConfig, base: &InterfaceInfo) -> Result<InterfaceInfo, XdpError> {
    if config.vlan.is_none() || config.address.ip().is_unspecified() {
        return Ok(base.clone());
    }
    let all = InterfaceInfo::all().map_err(XdpError::Interface)?;
    let has = |info: &InterfaceInfo| info.addresses.iter().any(|address| address.ip == *config.address.ip());
    Ok(all.into_iter().find(has).unwrap_or_else(|| base.clone()))
}

/// The address to send from.
fn source_of(config: &XdpConfig, base: &InterfaceInfo) -> Result<Ipv4Addr, XdpError> {
    let interface = address_interface(config, base)?;
    let asked = *config.address.ip();
    let present = || interface.addresses.iter().map(|address| address.ip);
    let found = if asked.is_unspecified() { interface.ip() } else { present().find(|&ip| ip == asked) };
    found.ok_or_else(|| XdpError::Address {
        interface: interface.name.clone(),
        address: asked,
        present: present().collect(),
    })
}

/// The kernel's own socket on the address and port.
fn companion(config: &XdpConfig, interface: &InterfaceInfo) -> Result<UdpSocket, NicError> {
    let option = |name| move |error| NicError::Option { name, error };
    let socket =
        socket2::Socket::new(Domain::IPV4, Type::DGRAM.nonblocking(), Some(Protocol::UDP)).map_err(NicError::Socket)?;
    socket.set_multicast_all_v4(false).map_err(option("IP_MULTICAST_ALL"))?;
    // What arrives here was not meant to, and is never read.
    _ = socket.set_recv_buffer_size(0);
    bind_patiently(&socket, config).map_err(|error| NicError::Bind { address: config.address, error })?;
    for &group in &config.join {
        let on = InterfaceIndexOrAddress::Index(interface.index);
        socket.join_multicast_v4_n(&group, &on).map_err(|error| NicError::Join {
            group,
            interface: interface.ip(),
            error,
        })?;
    }
    Ok(socket.into())
}

/// A port just left stays taken for as long as a child that was forked meanwhile has not begun its own program.
fn bind_patiently(socket: &socket2::Socket, config: &XdpConfig) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        match socket.bind(&std::net::SocketAddr::V4(config.address).into()) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && begin.elapsed() < config.rebind_patience => {
                thread::sleep(REBIND_PAUSE);
            }
            other => return other,
        }
    }
}

impl From<XdpError> for NicError {
    fn from(error: XdpError) -> NicError {
        NicError::Xdp(error)
    }
}
