//! The system calls: `recvmmsg` and `sendmmsg` over arrays that are laid out once, and the one socket option that no safe
//! wrapper offers. All `unsafe` of this backend is here.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use libc::{c_int, iovec, mmsghdr, sockaddr_in};

/// Room for the three control messages that are asked for: 32 bytes each with header and padding, and one to spare.
const CONTROL_WORDS: usize = 16;
const CACHE_LINE_BYTES: usize = 64;

/// A heap array behind a plain pointer, so that the kernel's structures may point into it while it moves with its owner.
struct Array<T> {
    at: NonNull<T>,
    len: usize,
}

// SAFETY: an `Array` owns its elements as a `Box<[T]>` does.
unsafe impl<T: Send> Send for Array<T> {}

impl<T> Array<T> {
    fn new(elements: Vec<T>) -> Array<T> {
        let len = elements.len();
        let at = Box::into_raw(elements.into_boxed_slice()).cast::<T>();
        Array { at: NonNull::new(at).expect("a box is never null"), len }
    }

    fn at(&self, i: usize) -> *mut T {
        assert!(i < self.len);
        // SAFETY: `i` lies within the allocation, just checked.
        unsafe { self.at.as_ptr().add(i) }
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        let elements = std::ptr::slice_from_raw_parts_mut(self.at.as_ptr(), self.len);
        // SAFETY: this is the box that `new` took apart, and it is put together only here.
        drop(unsafe { Box::from_raw(elements) });
    }
}

/// The headers of a batch and what they point to. One payload and one address a slot; slots do not share a cache line.
struct Slots {
    headers: Array<mmsghdr>,
    // Reached by the kernel only, through the headers.
    iovecs: Array<iovec>,
    addresses: Array<sockaddr_in>,
    payloads: Array<u8>,
    stride: usize,
    datagram_bytes_max: usize,
}

// SAFETY: every pointer in the headers and vectors leads into arrays of the same `Slots`, which move with it.
unsafe impl Send for Slots {}

impl Slots {
    fn new(count: usize, datagram_bytes_max: usize) -> Slots {
        let stride = datagram_bytes_max.next_multiple_of(CACHE_LINE_BYTES);
        // Not zeros: those would come as untouched pages, to be faulted in on the first burst.
        let payloads = Array::new(vec![0xA5u8; count * stride]);
        let no_address = sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: 0 },
            sin_zero: [0; 8],
        };
        let addresses = Array::new(vec![no_address; count]);
        let iovecs = Array::new(
            (0..count)
                .map(|i| iovec { iov_base: payloads.at(i * stride).cast(), iov_len: datagram_bytes_max })
                .collect(),
        );
        // SAFETY: the header is plain data: zero lengths and null pointers mean "nothing there".
        let empty: mmsghdr = unsafe { std::mem::zeroed() };
        let headers = Array::new(vec![empty; count]);
        let slots = Slots { headers, iovecs, addresses, payloads, stride, datagram_bytes_max };
        for i in 0..count {
            // SAFETY: nothing else refers to the headers yet.
            let header = unsafe { &mut (*slots.headers.at(i)).msg_hdr };
            header.msg_name = slots.addresses.at(i).cast();
            header.msg_namelen = size_of::<sockaddr_in>() as u32;
            header.msg_iov = slots.iovecs.at(i);
            header.msg_iovlen = 1;
        }
        slots
    }

    fn count(&self) -> usize {
        self.headers.len
    }

    fn header(&self, i: usize) -> &mmsghdr {
        // SAFETY: `at` checks the bound. The kernel writes headers only during a system call, made through `&mut self`.
        unsafe { &*self.headers.at(i) }
    }

    fn header_mut(&mut self, i: usize) -> &mut mmsghdr {
        // SAFETY: as in `header`; `&mut self` makes it the only reference.
        unsafe { &mut *self.headers.at(i) }
    }

    fn payload(&self, i: usize, len: usize) -> &[u8] {
        assert!(len <= self.datagram_bytes_max);
        // SAFETY: the slot's `stride` bytes, of which `len` is a part, lie in the array and are initialised; the kernel
        // writes them only during a system call, made through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.payloads.at(i * self.stride), len) }
    }

    fn payload_mut(&mut self, i: usize) -> &mut [u8] {
        // SAFETY: as in `payload`; `&mut self` makes it the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.payloads.at(i * self.stride), self.datagram_bytes_max) }
    }
}

/// A received message, as the kernel left it.
pub(super) struct Received<'a> {
    pub(super) payload: &'a [u8],
    /// `None` where the kernel gave no IPv4 address.
    pub(super) source: Option<SocketAddrV4>,
    /// The control messages' bytes.
    pub(super) control: &'a [u8],
    /// More came than the slot holds.
    pub(super) truncated: bool,
}

/// The receive side's slots.
pub(super) struct RecvBatch {
    slots: Slots,
    controls: Array<[u64; CONTROL_WORDS]>,
    /// Headers whose lengths the last call has changed.
    used: usize,
}

impl RecvBatch {
    pub(super) fn new(count: usize, datagram_bytes_max: usize) -> RecvBatch {
        let mut slots = Slots::new(count, datagram_bytes_max);
        let controls = Array::new(vec![[0; CONTROL_WORDS]; count]);
        for i in 0..count {
            slots.header_mut(i).msg_hdr.msg_control = controls.at(i).cast();
        }
        RecvBatch { slots, controls, used: count }
    }

    pub(super) fn count(&self) -> usize {
        self.slots.count()
    }

    /// Takes up to `max` datagrams without waiting.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>, max: usize) -> io::Result<usize> {
        for i in 0..self.used {
            let header = &mut self.slots.header_mut(i).msg_hdr;
            header.msg_namelen = size_of::<sockaddr_in>() as u32;
            header.msg_controllen = CONTROL_WORDS * size_of::<u64>();
        }
        self.used = 0;
        let max = max.min(self.count());
        self.used = match max {
            0 => 0,
            1 => self.receive_one(socket)?,
            _ => self.receive_many(socket, max)?,
        };
        Ok(self.used)
    }

    /// The plain call: cheaper than a batch of one, whether something is there or not.
    fn receive_one(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let header = self.slots.header_mut(0);
        // SAFETY: the header is initialised and points to arrays that live as long as `self`, with the lengths just set;
        // nobody else refers to them during the call.
        let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header.msg_hdr, libc::MSG_DONTWAIT) };
        if len < 0 {
            return Err(io::Error::last_os_error());
        }
        header.msg_len = u32::try_from(len).expect("a datagram's length");
        Ok(1)
    }

    fn receive_many(&mut self, socket: BorrowedFd<'_>, max: usize) -> io::Result<usize> {
        // SAFETY: the first `max` headers are initialised and point to arrays that live as long as `self`, with the lengths
        // just set; nobody else refers to them during the call.
        let got = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.slots.headers.at.as_ptr(),
                max as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        checked(got, max)
    }

    /// Message `i` of the last receive.
    pub(super) fn message(&self, i: usize) -> Received<'_> {
        assert!(i < self.used);
        let header = self.slots.header(i);
        let len = (header.msg_len as usize).min(self.slots.datagram_bytes_max);
        let control_bytes = header.msg_hdr.msg_controllen.min(CONTROL_WORDS * size_of::<u64>());
        // SAFETY: `control_bytes` is within the array's element, which is initialised.
        let control = unsafe { std::slice::from_raw_parts(self.controls.at(i).cast::<u8>(), control_bytes) };
        Received {
            payload: self.slots.payload(i, len),
            source: self.source(i, header.msg_hdr.msg_namelen),
            control,
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        }
    }

    fn source(&self, i: usize, name_bytes: u32) -> Option<SocketAddrV4> {
        // SAFETY: `at` checks the bound; the address is plain data that only a system call through `&mut self` changes.
        let address = unsafe { &*self.slots.addresses.at(i) };
        let is_ipv4 =
            name_bytes as usize == size_of::<sockaddr_in>() && c_int::from(address.sin_family) == libc::AF_INET;
        is_ipv4.then(|| {
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            SocketAddrV4::new(ip, u16::from_be(address.sin_port))
        })
    }
}

/// The transmit side's slots.
pub(super) struct SendBatch {
    slots: Slots,
}

impl SendBatch {
    pub(super) fn new(count: usize, datagram_bytes_max: usize) -> SendBatch {
        SendBatch { slots: Slots::new(count, datagram_bytes_max) }
    }

    pub(super) fn count(&self) -> usize {
        self.slots.count()
    }

    pub(super) fn datagram_bytes_max(&self) -> usize {
        self.slots.datagram_bytes_max
    }

    /// The payload of slot `i`, all of it.
    pub(super) fn payload_mut(&mut self, i: usize) -> &mut [u8] {
        self.slots.payload_mut(i)
    }

    /// Addresses the first `len` bytes of slot `i`.
    pub(super) fn address(&mut self, i: usize, len: usize, to: SocketAddrV4) {
        assert!(len <= self.slots.datagram_bytes_max, "{len} bytes in a slot of {}", self.slots.datagram_bytes_max);
        // SAFETY: `at` checks the bound, `&mut self` makes it the only reference.
        let iovec = unsafe { &mut *self.slots.iovecs.at(i) };
        iovec.iov_len = len;
        // SAFETY: as above.
        let address = unsafe { &mut *self.slots.addresses.at(i) };
        address.sin_port = to.port().to_be();
        address.sin_addr.s_addr = u32::from(*to.ip()).to_be();
    }

    /// The bytes that slot `i` sends.
    pub(super) fn len(&self, i: usize) -> usize {
        // SAFETY: `at` checks the bound; vectors change only through `&mut self`.
        unsafe { (*self.slots.iovecs.at(i)).iov_len }
    }

    /// Sends `count` slots from `first` on, without waiting, and returns how many went.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, first: usize, count: usize) -> io::Result<usize> {
        assert!(count <= self.count() - first);
        if count == 1 { self.send_one(socket, first) } else { self.send_many(socket, first, count) }
    }

    /// The plain call: cheaper than a batch of one.
    fn send_one(&mut self, socket: BorrowedFd<'_>, slot: usize) -> io::Result<usize> {
        let payload = self.slots.payload(slot, self.len(slot));
        // SAFETY: payload and address are initialised and live as long as `self`; the kernel only reads them.
        let sent = unsafe {
            libc::sendto(
                socket.as_raw_fd(),
                payload.as_ptr().cast(),
                payload.len(),
                libc::MSG_DONTWAIT,
                self.slots.addresses.at(slot).cast(),
                size_of::<sockaddr_in>() as libc::socklen_t,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(1) }
    }

    fn send_many(&mut self, socket: BorrowedFd<'_>, first: usize, count: usize) -> io::Result<usize> {
        // SAFETY: these headers are initialised and point to arrays that live as long as `self`; nobody else refers to them
        // during the call.
        let sent = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), self.slots.headers.at(first), count as u32, libc::MSG_DONTWAIT)
        };
        checked(sent, count)
    }
}

/// A count that a system call returned, never above what was asked for.
fn checked(returned: c_int, max: usize) -> io::Result<usize> {
    if returned < 0 {
        return Err(io::Error::last_os_error());
    }
    let count = returned as usize;
    assert!(count <= max, "the kernel returned {count} messages of {max}");
    Ok(count)
}

/// Asks the kernel to poll the device's queue for up to `us` microseconds in each receive call.
pub(super) fn set_busy_poll_us(socket: BorrowedFd<'_>, us: u32) -> io::Result<()> {
    let value = c_int::try_from(us).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the option takes one int, and its size goes with it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BUSY_POLL,
            (&raw const value).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
