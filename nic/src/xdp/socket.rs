//! One XDP socket a queue that receives, and one that sends, all on one umem: made, bound and mapped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use super::abi::{self, Descriptor};
use super::config::{XdpConfig, ZeroCopy};
use super::error::XdpError;
use super::ring::{Consumer, Producer};
use super::sys;
use super::umem::Umem;

/// How long to sleep between two attempts at a queue that is busy. A closed socket lets its queue go after an RCU grace period,
/// some ms.
pub(super) const REBIND_PAUSE: Duration = Duration::from_millis(2);

/// A queue that only receives has a completion ring all the same: the kernel insists. This is the smallest that it takes.
const COMPLETIONS_UNUSED: u32 = 2;

/// A bound socket.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) fd: OwnedFd,
    pub(super) queue: u32,
}

/// The receive rings of a queue.
#[derive(Debug)]
pub(super) struct RxRings {
    pub(super) rx: Consumer<Descriptor>,
    pub(super) fill: Producer<u64>,
}

/// The transmit rings of the first queue.
#[derive(Debug)]
pub(super) struct TxRings {
    pub(super) tx: Producer<Descriptor>,
    pub(super) completion: Consumer<u64>,
}

/// What the driver gave.
#[derive(Debug)]
pub(super) enum Copying {
    /// The card reads and writes the umem.
    Zero,
    /// The kernel copies; why, where zero-copy was tried.
    Copy(Option<io::Error>),
}

/// Everything that opening the sockets gave.
#[derive(Debug)]
pub(super) struct Bound {
    /// One a queue, which receives.
    pub(super) sockets: Vec<Socket>,
    /// Sends, on the first queue. Another socket than the one that receives there: what the kernel writes to a socket as it delivers, on the
    /// sender's core, would be fetched over by each send, and back.
    pub(super) sender: OwnedFd,
    pub(super) rx: Vec<RxRings>,
    pub(super) tx: TxRings,
    pub(super) copying: Copying,
}

/// Opens a socket for each of the config's queues, in their order, and one that sends, and binds them to the interface of that index.
pub(super) fn open(config: &XdpConfig, ifindex: u32, umem: &Umem) -> Result<Bound, XdpError> {
    let mut sockets: Vec<Socket> = Vec::with_capacity(config.queues.len());
    let mut rx = Vec::with_capacity(config.queues.len());
    let mut first = None;
    for &queue in &config.queues {
        let socket = Socket { fd: sys::socket().map_err(socket_error)?, queue };
        let fd = socket.fd.as_fd();
        let is_first = first.is_none();
        if is_first {
            sys::register_umem(fd, umem.start(), umem.len(), config.frame_bytes)
                .map_err(|error| XdpError::Umem { bytes: umem.len(), error })?;
        }
        let completions = if is_first { config.tx_frames } else { COMPLETIONS_UNUSED };
        set_ring(fd, "fill", abi::XDP_UMEM_FILL_RING, config.rx_frames)?;
        set_ring(fd, "completion", abi::XDP_UMEM_COMPLETION_RING, completions)?;
        set_ring(fd, "receive", abi::XDP_RX_RING, config.rx_frames)?;
        rx.push(map_rx(fd, config)?);
        let binder = Binder { config, ifindex, queue };
        match sockets.first() {
            // A queue's rings of frames are those of the socket that was bound to it first, whoever sends.
            None => first = Some((map_completion(fd, config)?, binder.bind_first(fd)?)),
            Some(owner) => binder.bind_beside(fd, owner)?,
        }
        sockets.push(socket);
    }
    let (completion, copying) = first.expect("one queue at least, which is checked");
    let sender = sys::socket().map_err(socket_error)?;
    set_ring(sender.as_fd(), "transmit", abi::XDP_TX_RING, config.tx_frames)?;
    let tx = TxRings { tx: map_tx(sender.as_fd(), config)?, completion };
    Binder { config, ifindex, queue: sockets[0].queue }.bind_beside(sender.as_fd(), &sockets[0])?;
    Ok(Bound { sockets, sender, rx, tx, copying })
}

fn socket_error(error: io::Error) -> XdpError {
    match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT | libc::ESOCKTNOSUPPORT) => XdpError::Unsupported(error),
        Some(libc::EPERM | libc::EACCES) => XdpError::Permission { action: "open an XDP socket", error },
        _ => XdpError::Socket(error),
    }
}

fn set_ring(fd: BorrowedFd<'_>, ring: &'static str, option: i32, entries: u32) -> Result<(), XdpError> {
    sys::set_ring(fd, option, entries).map_err(|error| XdpError::Ring { ring, error })
}

fn map_rx(fd: BorrowedFd<'_>, config: &XdpConfig) -> Result<RxRings, XdpError> {
    let offsets = offsets(fd)?;
    let fill_at = abi::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
    Ok(RxRings {
        rx: Consumer::map(fd, abi::XDP_PGOFF_RX_RING, &offsets.rx, config.rx_frames).map_err(unmapped("receive"))?,
        fill: Producer::map(fd, fill_at, &offsets.fr, config.rx_frames).map_err(unmapped("fill"))?,
    })
}

fn map_completion(fd: BorrowedFd<'_>, config: &XdpConfig) -> Result<Consumer<u64>, XdpError> {
    let at = abi::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
    Consumer::map(fd, at, &offsets(fd)?.cr, config.tx_frames).map_err(unmapped("completion"))
}

fn map_tx(fd: BorrowedFd<'_>, config: &XdpConfig) -> Result<Producer<Descriptor>, XdpError> {
    Producer::map(fd, abi::XDP_PGOFF_TX_RING, &offsets(fd)?.tx, config.tx_frames).map_err(unmapped("transmit"))
}

fn offsets(fd: BorrowedFd<'_>) -> Result<abi::xdp_mmap_offsets, XdpError> {
    sys::offsets(fd).map_err(unmapped("any"))
}

fn unmapped(ring: &'static str) -> impl Fn(io::Error) -> XdpError {
    move |error| XdpError::Ring { ring, error }
}

/// Binds one socket, with the patience that a queue just left by another wants.
struct Binder<'a> {
    config: &'a XdpConfig,
    ifindex: u32,
    queue: u32,
}

impl Binder<'_> {
    /// The first socket settles how all of them work.
    fn bind_first(&self, fd: BorrowedFd<'_>) -> Result<Copying, XdpError> {
        let mut refused = None;
        if self.config.zero_copy != ZeroCopy::Never {
            match self.bind(fd, abi::XDP_ZEROCOPY | abi::XDP_USE_NEED_WAKEUP, None) {
                Ok(()) => return self.verified(fd),
                Err(error) if is_final(&error) => return Err(self.error(error)),
                Err(error) if self.config.zero_copy == ZeroCopy::Require => {
                    return Err(XdpError::ZeroCopy { interface: self.config.interface.clone(), error });
                }
                Err(error) => refused = Some(error),
            }
        }
        self.bind(fd, abi::XDP_COPY | abi::XDP_USE_NEED_WAKEUP, None).map_err(|error| self.error(error))?;
        Ok(Copying::Copy(refused))
    }

    /// What the kernel says it does, whatever was asked for.
    fn verified(&self, fd: BorrowedFd<'_>) -> Result<Copying, XdpError> {
        match sys::is_zero_copy(fd) {
            Ok(true) => Ok(Copying::Zero),
            Ok(false) => Ok(Copying::Copy(Some(io::Error::other("granted, but not done")))),
            Err(error) => Err(XdpError::Socket(error)),
        }
    }

    /// A further socket, on the umem of the first.
    fn bind_beside(&self, fd: BorrowedFd<'_>, owner: &Socket) -> Result<(), XdpError> {
        self.bind(fd, 0, Some(owner.fd.as_fd())).map_err(|error| self.error(error))
    }

    fn bind(&self, fd: BorrowedFd<'_>, flags: u16, umem_of: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let begin = Instant::now();
        loop {
            match sys::bind(fd, self.ifindex, self.queue, flags, umem_of) {
                Err(error)
                    if error.raw_os_error() == Some(libc::EBUSY) && begin.elapsed() < self.config.rebind_patience =>
                {
                    thread::sleep(REBIND_PAUSE);
                }
                other => return other,
            }
        }
    }

    fn error(&self, error: io::Error) -> XdpError {
        let (interface, queue) = (self.config.interface.clone(), self.queue);
        match error.raw_os_error() {
            Some(libc::EBUSY) => XdpError::Busy { interface, queue, waited: self.config.rebind_patience },
            Some(libc::ENETDOWN) => XdpError::Down(interface),
            Some(libc::EPERM) => XdpError::Permission { action: "bind an XDP socket", error },
            _ => XdpError::Bind { interface, queue, error },
        }
    }
}

/// Whether a refusal has nothing to do with zero-copy.
fn is_final(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENETDOWN | libc::EPERM | libc::ENODEV))
}
