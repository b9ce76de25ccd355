//! Why a snapshot is not written or not read, one variant a reason.

use std::fmt;
use std::path::{Path, PathBuf};

use ticktape_core::Seq;

use crate::disk::DiskError;
use crate::format::snapshot::{LOG_ID, SEQ, SnapshotDamage};

/// What is wrong with a snapshot, or with writing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// The pace asks for what cannot be.
    Pace(String),
    /// The disk failed.
    Disk {
        /// The file or directory.
        path: PathBuf,
        /// The operation and what the system said.
        error: DiskError,
    },
    /// There is no space for it.
    NoSpace {
        /// The file that was being written.
        path: PathBuf,
        /// What it takes, in bytes.
        needed: u64,
        /// What is free to unprivileged processes, in bytes, after what was written of it is gone again.
        free: u64,
    },
    /// The disk accepted none of a write's bytes.
    WriteZero {
        /// The file that was being written.
        path: PathBuf,
        /// Where, in bytes.
        offset: u64,
    },
    /// The file is no sound snapshot.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong there.
        damage: SnapshotDamage,
    },
    /// The file is a snapshot, though not the one that its name says.
    Misnamed {
        /// The file.
        path: PathBuf,
        /// What it is a snapshot of.
        seq: Seq,
    },
    /// The file is a snapshot of another log.
    OtherLog {
        /// The file.
        path: PathBuf,
        /// The log that it is of.
        snapshot: u64,
        /// The log that it lies beside.
        log: u64,
    },
    /// What was read back is a sound snapshot, though not the one that was written.
    ReadBackDiffers {
        /// The file.
        path: PathBuf,
    },
    /// There is no memory to read it into.
    NoMemory {
        /// The file.
        path: PathBuf,
        /// What its sections take, in bytes.
        bytes: u64,
    },
}

impl SnapshotError {
    /// The file or directory that it is about.
    pub fn path(&self) -> Option<&Path> {
        match self {
            SnapshotError::Pace(_) => None,
            SnapshotError::Disk { path, .. }
            | SnapshotError::NoSpace { path, .. }
            | SnapshotError::WriteZero { path, .. }
            | SnapshotError::Damaged { path, .. }
            | SnapshotError::Misnamed { path, .. }
            | SnapshotError::OtherLog { path, .. }
            | SnapshotError::ReadBackDiffers { path }
            | SnapshotError::NoMemory { path, .. } => Some(path),
        }
    }

    /// Where in the file, in bytes, if that is known.
    pub fn offset(&self) -> Option<u64> {
        match self {
            SnapshotError::WriteZero { offset, .. } => Some(*offset),
            SnapshotError::Damaged { damage, .. } => Some(damage.offset()),
            SnapshotError::Misnamed { .. } => Some(SEQ as u64),
            SnapshotError::OtherLog { .. } => Some(LOG_ID as u64),
            _ => None,
        }
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::Pace(what) => write!(f, "snapshot configuration: {what}"),
            SnapshotError::Disk { path, error } => write!(f, "snapshot {}: {error}", path.display()),
            SnapshotError::NoSpace { path, needed, free } if free >= needed => write!(
                f,
                "snapshot {}: {free} bytes free, but the {needed} it takes were refused; look at quotas, the largest file \
                 size and what the file system keeps for itself",
                path.display()
            ),
            SnapshotError::NoSpace { path, needed, free } => write!(
                f,
                "snapshot {}: {free} bytes free, it takes {needed}; free space or retain fewer snapshots",
                path.display()
            ),
            SnapshotError::WriteZero { path, offset } => {
                write!(f, "snapshot {}: the disk took none of a write at offset {offset}", path.display())
            }
            SnapshotError::Damaged { path, damage } => write!(
                f,
                "snapshot {}: offset {}: {damage}; delete this file if an older snapshot or the whole log is there",
                path.display(),
                damage.offset()
            ),
            SnapshotError::Misnamed { path, seq } => write!(
                f,
                "snapshot {}: offset 8: it is of seq {seq}, not what its name says; delete this file if an older snapshot or \
                 the whole log is there",
                path.display()
            ),
            SnapshotError::OtherLog { path, snapshot, log } => write!(
                f,
                "snapshot {}: offset {LOG_ID}: it is a snapshot of another log ({snapshot:016x}; this log is {log:016x}); move \
                 this file away, and put this log's own back if there is one",
                path.display()
            ),
            SnapshotError::ReadBackDiffers { path } => write!(
                f,
                "snapshot {}: what was read back is not what was written; the disk misplaces writes, replace it",
                path.display()
            ),
            SnapshotError::NoMemory { path, bytes } => {
                write!(f, "snapshot {}: no memory for its {bytes} bytes", path.display())
            }
        }
    }
}

impl std::error::Error for SnapshotError {}

pub(super) fn at(path: &Path, error: DiskError) -> SnapshotError {
    SnapshotError::Disk { path: path.to_owned(), error }
}

pub(super) fn damaged(path: &Path, damage: SnapshotDamage) -> SnapshotError {
    SnapshotError::Damaged { path: path.to_owned(), damage }
}
