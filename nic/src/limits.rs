//! Every bound of this crate, with its reason.

/// The largest UDP payload that IPv4 can carry: 65535 minus the IP and UDP headers.
pub const DATAGRAM_BYTES_MAX: usize = 65_535 - 20 - 8;

/// What fits an Ethernet frame of 1500 bytes unfragmented; the default where nothing else is asked for.
pub const DATAGRAM_BYTES_DEFAULT: usize = 1_500 - 20 - 8;

/// Datagrams per system call, at most: the kernel's own cap on one `sendmmsg` (UIO_MAXIOV).
pub const BURST_MAX: usize = 1_024;

/// Datagrams per system call, by default. Fewer pay the system call more often; more delay the first of a burst and leave
/// the first-level cache (64 × 1472 bytes just exceeds it).
pub const BURST_DEFAULT: usize = 64;

/// How often the offset between the realtime and the monotonic clock is measured again. The two run at the same rate and
/// part only when somebody sets the time, so this bounds how long stamps are off after that; a measurement costs some
/// 300 ns.
pub const CLOCK_OFFSET_AGE_NS_MAX: u64 = 10_000_000;

/// A kernel stamp this far after the poll's `now` is not believed. A datagram may well arrive between the reading of `now`
/// and the system call, and a preempted poll stretches that by scheduler ticks.
pub const STAMP_AHEAD_NS_MAX: u64 = 100_000_000;

/// A kernel stamp this far before the poll's `now` is not believed. Data waits in a socket as long as its owner is stopped,
/// but not for minutes.
pub const STAMP_BEHIND_NS_MAX: u64 = 60_000_000_000;

const _: () = assert!(DATAGRAM_BYTES_DEFAULT <= DATAGRAM_BYTES_MAX);
const _: () = assert!(BURST_DEFAULT <= BURST_MAX);
const _: () = assert!(CLOCK_OFFSET_AGE_NS_MAX < STAMP_AHEAD_NS_MAX);
