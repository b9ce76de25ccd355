//! Every bound of the journal, with its reason.

use ticktape_core::limits::PAYLOAD_BYTES_MAX;

/// The smallest block commits are aligned to, in bytes: no direct-I/O device asks for less than a sector.
pub const ALIGNMENT_BYTES_MIN: usize = 512;

/// The largest such block, in bytes. Devices that ask for more are written through the page cache instead.
pub const ALIGNMENT_BYTES_MAX: usize = 4096;

/// The largest commit, header and padding included. It must hold one frame of the largest size; a length above it is
/// damage, so a reader never trusts a rotten length with gigabytes.
pub const COMMIT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 2 * ALIGNMENT_BYTES_MAX;

/// Writes that may be under way at once. A disk's queue is not deeper in practice, and each costs a buffer.
pub const WRITES_IN_FLIGHT_MAX: usize = 64;

/// Commits that may be submitted and not yet durable. A sync may take a whole 4 ms tick where the disk's interrupts find their
/// core busy; the writes completed meanwhile must not run into this bound. Each costs under 100 bytes.
pub const UNSYNCED_COMMITS_MAX: usize = 4096;

/// Operations a [`Disk`](crate::disk::Disk) takes before it has to be polled: the writes, one sync, one fill, one chore,
/// and room to spare. A power of two, as io_uring wants it.
pub const DISK_DEPTH: usize = 128;

/// Buffers one disk hands out: each write's, as many again that gather, the filler's and the readers'.
pub const BUFFERS_MAX: usize = 4 * WRITES_IN_FLIGHT_MAX;

/// Files one ring knows by number. A journal has its current segment, a few spares and those it rolled away from open; what is
/// opened beyond costs a look-up an operation.
pub const FILES_REGISTERED_MAX: u32 = 64;

/// The kernel's workers for one ring: a sync, a fill's sync, a directory's, and writes that could not begin at once. Linux
/// would make up to four a core; more than this only compete with the stages.
pub const WORKERS_MAX: u32 = 8;

/// The smallest segment a configuration may ask for, in bytes.
pub const SEGMENT_BYTES_MIN: usize = 16 << 10;

/// Spares that wait, at most: the one that is rolled to next, and one more, so that a segment that is released right after a roll
/// is not deleted only to be made anew at the next. More would only hold disk space.
pub const SPARES_MAX: usize = 2;

/// Zeros written by one step of the filler, in bytes. Less would not keep ahead, at a step each millisecond.
pub const FILL_CHUNK_BYTES: usize = 256 << 10;

/// Zeros in one write of such a step: a commit that comes meanwhile waits for one write, not for all of them. Measured with 8 KiB commits:
/// 256 KiB at once doubled the p99.9 of a durable append.
pub const FILL_WRITE_BYTES: usize = 32 << 10;

/// Bytes that a reader fetches at once, at most. From 256 KiB on the page cache is no faster.
pub const READ_CHUNK_BYTES: usize = 1 << 20;

/// Bytes that a reader fetches first, doubling from there: most of a larger read at the end of a log would be zeros.
pub const READ_START_BYTES: usize = 16 << 10;

const _: () = assert!(DISK_DEPTH.is_power_of_two() && DISK_DEPTH >= WRITES_IN_FLIGHT_MAX + 8);
const _: () = assert!(FILL_CHUNK_BYTES.is_multiple_of(FILL_WRITE_BYTES));
const _: () = assert!(FILL_WRITE_BYTES.is_multiple_of(ALIGNMENT_BYTES_MAX));
const _: () = assert!(
    READ_CHUNK_BYTES.is_multiple_of(ALIGNMENT_BYTES_MAX) && READ_START_BYTES.is_multiple_of(ALIGNMENT_BYTES_MAX)
);
const _: () = assert!(SEGMENT_BYTES_MIN >= 4 * ALIGNMENT_BYTES_MAX);
const _: () = assert!(COMMIT_BYTES_MAX < u32::MAX as usize);
