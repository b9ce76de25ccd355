//! The bounds of XDP sockets, each with its reason.

use std::time::Duration;

/// Frames of one pool, at most: 128 MiB of the smaller ones. More than that waiting is a receiver that has stopped.
pub const FRAMES_MAX: u32 = 65_536;

/// Queues of one NIC, at most: every poll looks at each of them.
pub const QUEUES_MAX: usize = 64;

/// How long a busy queue is waited for by default. One just closed mostly stays busy for up to 25 ms; on a box whose cores are
/// all taken, longer than 100 ms. More would only delay the news that somebody else has it.
pub const REBIND_PATIENCE: Duration = Duration::from_millis(1_000);

/// System calls of one flush, at most. The kernel's default of 32 frames a call moves the default queue of 512 in 16; without a
/// carrier each call drops one frame.
pub const KICKS_MAX: u32 = 64;

/// Destinations whose headers are kept ready. What comes beyond displaces others, at the price of a few datagrams through the
/// kernel whenever they are sent to again.
pub const DESTINATIONS_MAX: usize = 1_024;

/// Destinations that share a place in the table. One is too few: two clients that fell together would displace each other
/// for ever.
pub const DESTINATION_WAYS: usize = 4;

/// How often known next hops are looked up again: that long frames may go to where a neighbour was before it moved.
pub const NEXT_HOP_AGE_MAX: Duration = Duration::from_secs(1);

/// How soon a pending next hop is asked for again, at first: ARP on a link takes less.
pub const NEXT_HOP_RETRY_MIN: Duration = Duration::from_millis(1);

/// And at last: the kernel itself repeats its question each second.
pub const NEXT_HOP_RETRY_MAX: Duration = Duration::from_millis(128);

const _: () = assert!(FRAMES_MAX.is_power_of_two());
const _: () = assert!(DESTINATIONS_MAX.is_multiple_of(DESTINATION_WAYS));
const _: () = assert!((DESTINATIONS_MAX / DESTINATION_WAYS).is_power_of_two());
