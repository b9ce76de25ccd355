//! A simulated disk: [`SimDisk`] is the port, [`Medium`] what outlasts the process, and with luck the power.
//!
//! Faults. At power loss, for each sector of 512 bytes that was not synced: it is as before, as any of its later writes, or half of it is; the
//! file's length likewise; of names that were made, moved or taken away only those in a synced directory are sure. Of what
//! was under way, any part was done. Completions late and in any order; short writes; EIO of a write (any part of it done), a read, a sync (after
//! which, behind a page cache, the pages count as clean and no later sync writes them; past it, any of them may be gone); a full disk; and foul play that no software
//! can prevent: writes that are lost or go elsewhere although they were reported done, bits that rot.
//!
//! Enforced: the alignment of direct I/O, the depth, and that nobody uses a buffer that is lent or a file that is closed.
//!
//! Invariant: what was synced is read back, unless foul play was asked for.

mod dirty;
mod inode;
mod medium;
mod pool;
mod port;

use ticktape_core::Nanos;

use crate::rng::Ppm;

pub use medium::{Loss, Medium, MediumCounters};
pub use port::SimDisk;

/// The unit that is written as a whole or not, most of the time.
pub const SECTOR_BYTES: usize = 512;

/// The shape of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// What direct I/O asks for, in bytes.
    pub alignment: usize,
    /// Whether files are written past the page cache.
    pub direct: bool,
    /// Bytes that fit.
    pub capacity: u64,
}

impl Default for DiskConfig {
    fn default() -> Self {
        DiskConfig { alignment: SECTOR_BYTES, direct: true, capacity: 1 << 30 }
    }
}

/// What befalls operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFaults {
    /// An operation takes at least so long, in nanoseconds.
    pub latency_ns: Nanos,
    /// Up to so much more.
    pub jitter_ns: Nanos,
    /// An operation takes up to a thousand times as long.
    pub straggle: Ppm,
    /// A write is done in part and says so.
    pub short_write: Ppm,
    /// A write fails.
    pub write_error: Ppm,
    /// A read fails.
    pub read_error: Ppm,
    /// A sync fails, of a file or a directory.
    pub sync_error: Ppm,
    /// A write is reported done and was not.
    pub lost_write: Ppm,
    /// A write is reported done and went elsewhere.
    pub misdirected_write: Ppm,
}

impl DiskFaults {
    /// A good solid-state disk.
    pub const NONE: DiskFaults = DiskFaults {
        latency_ns: 15_000,
        jitter_ns: 5_000,
        straggle: Ppm::NEVER,
        short_write: Ppm::NEVER,
        write_error: Ppm::NEVER,
        read_error: Ppm::NEVER,
        sync_error: Ppm::NEVER,
        lost_write: Ppm::NEVER,
        misdirected_write: Ppm::NEVER,
    };
}

impl Default for DiskFaults {
    fn default() -> Self {
        DiskFaults::NONE
    }
}

#[cfg(test)]
mod tests;
