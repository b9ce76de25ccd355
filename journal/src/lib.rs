//! The journal: the durable form of the one order.
//!
//! ```text
//!  append ──► gather ──► ready ──► writes in flight ──► synced ──► durable
//!             (one commit in one aligned buffer)   Disk port: io_uring + O_DIRECT | plain files | simulated
//!
//!  00000000000000000001.seg   [header][commit][commit]…[seal]
//!  00000000000000041234.seg   [header][commit][commit]…            zeros, written ahead of time
//!  00000000000000000003.spare [recycle mark]                       stale commits of a segment that was released
//! ```
//!
//! A [`Journal`] has one owner and appends; a [`JournalReader`] streams, beside it or without it; [`inspect`] looks at what is
//! there, however damaged. Recovery is a table: [`recovery`].
//!
//! Invariants:
//! - Acknowledged bytes are never rewritten before a snapshot covers them and their segment was taken away.
//! - The durable watermark moves over a contiguous prefix only, and after the first error never again.
//! - Only commits with the segment's salt, a sound checksum and an unbroken chain are read; nothing that was acknowledged is
//!   cut silently.

mod announced;
mod calibrate;
mod calibration;
pub mod config;
pub mod disk;
mod error;
pub mod format;
mod gather;
mod give_up;
mod housekeeping;
pub mod inspect;
mod journal;
pub mod limits;
mod lock;
pub mod names;
mod pipeline;
mod reader;
mod recover;
pub mod recovery;
mod release;
mod salt;
mod scan;
mod sealed;
mod seek;
mod segments;
pub mod snapshot;
mod strategy;
mod window;

pub use calibrate::{CalibrationPlan, calibrate};
pub use calibration::{Calibration, Latency, Measured};
pub use config::JournalConfig;
pub use disk::{Binding, Disk, FileDisk, NativeDisk, UringDisk};
pub use error::{Damage, JournalError};
pub use give_up::{GivenUp, give_up};
pub use journal::{Journal, JournalStats};
pub use lock::{is_live, while_locked};
pub use reader::{FrameRun, JournalReader};
pub use recover::{Cut, Recovered};
pub use salt::Salts;
pub use snapshot::{Snapshot, SnapshotError, SnapshotMeta, SnapshotPace, SnapshotWriter};
pub use strategy::{Strategy, StrategyChoice};

/// Which log the segments in `dir` are of, at the cost of listing it and reading one header; `None` where none says. Locks nothing.
///
/// # Errors
/// [`JournalError::Disk`], where the directory or a segment can't be read, or it is missing.
pub fn log_id(dir: &std::path::Path) -> Result<Option<u64>, JournalError> {
    recover::log_id(&mut FileDisk::new(), dir)
}
