//! The system calls of XDP sockets, and the memory that is mapped for them.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use super::abi;

/// A new XDP socket, neither configured nor bound.
pub(super) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::socket(abi::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A type whose every bit pattern is a value, without padding: what socket options read and write.
///
/// # Safety
/// It must be just that.
unsafe trait Plain: Copy {}

// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers without gaps, as the sizes asserted beside their names say.
unsafe impl Plain for abi::xdp_mmap_offsets {}
// SAFETY: as above.
unsafe impl Plain for abi::xdp_statistics {}
// SAFETY: as above.
unsafe impl Plain for abi::xdp_umem_reg {}
// SAFETY: one integer.
unsafe impl Plain for abi::xdp_options {}

fn set<T: Plain>(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `bytes` bytes of `value`, which has as many.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, ptr::from_ref(value).cast(), bytes) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option. An older kernel that knows fewer fields is an error.
fn get<T: Plain>(fd: BorrowedFd<'_>, name: c_int) -> io::Result<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to `value`, which has room for as many.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), abi::SOL_XDP, name, value.as_mut_ptr().cast(), &raw mut bytes) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if bytes as usize != size_of::<T>() {
        return Err(io::Error::other(format!(
            "{bytes} bytes where {} were due: the kernel is too old",
            size_of::<T>()
        )));
    }
    // SAFETY: zeroed at first, so that every byte is initialised, and any bytes are a value of `Plain` types.
    Ok(unsafe { value.assume_init() })
}

/// Makes `len` bytes from `start` on the socket's umem, cut into frames of `frame_bytes`.
pub(super) fn register_umem(fd: BorrowedFd<'_>, start: NonNull<u8>, len: usize, frame_bytes: u32) -> io::Result<()> {
    let umem = abi::xdp_umem_reg {
        addr: start.as_ptr().expose_provenance() as u64,
        len: len as u64,
        chunk_size: frame_bytes,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(fd, abi::SOL_XDP, abi::XDP_UMEM_REG, &umem)
}

/// Makes one of the socket's rings.
pub(super) fn set_ring(fd: BorrowedFd<'_>, ring: c_int, entries: u32) -> io::Result<()> {
    set(fd, abi::SOL_XDP, ring, &entries)
}

/// How many frames one kick takes in copy mode.
pub(super) fn set_tx_budget(fd: BorrowedFd<'_>, frames: u32) -> io::Result<()> {
    set(fd, abi::SOL_XDP, abi::XDP_MAX_TX_SKB_BUDGET, &frames)
}

/// One of the `SO_…BUSY_POLL…` options.
pub(super) fn set_busy_poll(fd: BorrowedFd<'_>, option: c_int, value: u32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, option, &value)
}

/// Where in their mappings the rings' parts lie.
pub(super) fn offsets(fd: BorrowedFd<'_>) -> io::Result<abi::xdp_mmap_offsets> {
    get(fd, abi::XDP_MMAP_OFFSETS)
}

/// What the kernel counted on this socket.
pub(super) fn statistics(fd: BorrowedFd<'_>) -> io::Result<abi::xdp_statistics> {
    get(fd, abi::XDP_STATISTICS)
}

/// Whether a bound socket got zero-copy.
pub(super) fn is_zero_copy(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let options: abi::xdp_options = get(fd, abi::XDP_OPTIONS)?;
    Ok(options.flags & abi::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Binds to a queue of an interface. With `umem_of`, another socket's umem is used.
pub(super) fn bind(
    fd: BorrowedFd<'_>,
    interface: u32,
    queue: u32,
    flags: u16,
    umem_of: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let (shared, owner) = match umem_of {
        Some(owner) => (abi::XDP_SHARED_UMEM, owner.as_raw_fd() as u32),
        None => (0, 0),
    };
    let address = abi::sockaddr_xdp {
        sxdp_family: abi::AF_XDP as u16,
        sxdp_flags: flags | shared,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: owner,
    };
    let bytes = size_of::<abi::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the kernel reads `bytes` bytes of `address`, which has as many.
    let result = unsafe { libc::bind(fd.as_raw_fd(), ptr::from_ref(&address).cast(), bytes) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the kernel look at the transmit ring.
#[inline]
pub(super) fn kick_tx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no bytes and no address are passed.
    let result = unsafe { libc::sendto(fd.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has the kernel look at the fill ring, and poll the device where busy polling is on.
#[inline]
pub(super) fn kick_rx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no room for bytes or an address is passed.
    let result = unsafe {
        libc::recvfrom(fd.as_raw_fd(), ptr::null_mut(), 0, libc::MSG_DONTWAIT, ptr::null_mut(), ptr::null_mut())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Mapped memory, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared mapping gives away its place and size; whoever reads or writes there answers for that.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// One of a socket's rings: `len` bytes at `offset`, one of the `PGOFF` constants.
    pub(super) fn ring(fd: BorrowedFd<'_>, offset: libc::off_t, len: usize) -> io::Result<Mapping> {
        Mapping::new(len, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    /// Fresh memory, zeroed and all there, on pages of the common size.
    pub(super) fn memory(len: usize) -> io::Result<Mapping> {
        Mapping::new(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE, -1, 0)
    }

    /// The same on huge pages of 2 MiB: `len` is a multiple of that. Fails where there are too few.
    pub(super) fn huge_memory(len: usize) -> io::Result<Mapping> {
        let huge = libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
        Mapping::new(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE | huge, -1, 0)
    }

    fn new(len: usize, flags: c_int, fd: c_int, offset: libc::off_t) -> io::Result<Mapping> {
        // SAFETY: a new mapping, placed by the kernel, takes nothing from anybody.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at address 0 unasked");
        Ok(Mapping { start, len })
    }

    /// Its first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its size, in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: just what `new` mapped; whoever held a place in it borrowed the mapping, or owned it.
        unsafe { libc::munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
    }
}
