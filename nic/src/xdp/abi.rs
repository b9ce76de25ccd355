//! The kernel's interface to XDP sockets (linux/if_xdp.h, asm-generic/socket.h): what `libc` has, and what it lacks.

use std::ffi::c_int;

pub(super) use libc::{
    AF_XDP, SOL_XDP, XDP_COPY, XDP_MMAP_OFFSETS, XDP_OPTIONS, XDP_OPTIONS_ZEROCOPY, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_PKT_CONTD, XDP_RING_NEED_WAKEUP, XDP_RX_RING, XDP_SHARED_UMEM, XDP_STATISTICS, XDP_TX_RING,
    XDP_UMEM_COMPLETION_RING, XDP_UMEM_FILL_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING,
    XDP_UMEM_REG, XDP_USE_NEED_WAKEUP, XDP_ZEROCOPY, sockaddr_xdp, xdp_mmap_offsets, xdp_options, xdp_ring_offset,
    xdp_statistics, xdp_umem_reg,
};

/// How many frames one `sendto` takes in copy mode (since Linux 6.17; 32 before, and by default).
pub(super) const XDP_MAX_TX_SKB_BUDGET: c_int = 9;

/// What the kernel itself takes for [`XDP_MAX_TX_SKB_BUDGET`] where nothing else is set.
pub(super) const TX_BUDGET_DEFAULT: u32 = 32;

/// Polls the device within system calls for up to this many microseconds.
pub(super) const SO_BUSY_POLL: c_int = 46;
/// Keeps the device's interrupts off while the socket is being polled.
pub(super) const SO_PREFER_BUSY_POLL: c_int = 69;
/// Packets that one such poll handles at most.
pub(super) const SO_BUSY_POLL_BUDGET: c_int = 70;

/// What the kernel keeps free before each received packet (XDP_PACKET_HEADROOM).
pub(super) const PACKET_HEADROOM_BYTES: u32 = 256;

/// A transmit or receive descriptor: where in the umem, how long, and whether the packet goes on in the next one.
pub(super) type Descriptor = libc::xdp_desc;

/// Whether a descriptor's packet goes on in the next descriptor.
pub(super) fn is_continued(descriptor: &Descriptor) -> bool {
    descriptor.options & XDP_PKT_CONTD != 0
}

const _: () = assert!(size_of::<Descriptor>() == 16 && align_of::<Descriptor>() == 8);
const _: () = assert!(size_of::<sockaddr_xdp>() == 16);
const _: () = assert!(size_of::<xdp_mmap_offsets>() == 128);
const _: () = assert!(size_of::<xdp_statistics>() == 48);
const _: () = assert!(size_of::<xdp_umem_reg>() == 32);
