//! What can go wrong, one variant a reason, each a line that an operator can act on.

use std::fmt;
use std::path::{Path, PathBuf};

use ticktape_core::{FrameError, Kind, Seq};

use crate::disk::DiskError;
use crate::format::commit::CommitError;
use crate::format::segment::HeaderError;

/// Why a journal does not open, read or go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalError {
    /// The configuration asks for what cannot be.
    Config(String),
    /// Another process has the journal open.
    InUse {
        /// Its directory.
        dir: PathBuf,
    },
    /// The disk failed.
    Disk {
        /// The file or directory.
        path: PathBuf,
        /// The operation and what the system said.
        error: DiskError,
    },
    /// The disk accepted none of a write's bytes.
    WriteZero {
        /// The segment.
        segment: PathBuf,
        /// Where, in bytes.
        offset: u64,
    },
    /// There is no space to accept more.
    NoSpace {
        /// The journal's directory.
        dir: PathBuf,
        /// What the next segment needs, in bytes.
        needed: u64,
        /// What is free to unprivileged processes, in bytes, after what was begun of that segment is gone again.
        free: u64,
    },
    /// A frame that fits in no commit of this configuration.
    FrameTooLarge {
        /// Its padded size in bytes.
        bytes: usize,
        /// The largest that would fit.
        max: usize,
    },
    /// Acknowledged data is damaged.
    Corrupt {
        /// The segment.
        segment: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// The first seq that cannot be read.
        seq: Seq,
        /// Up to where the journal is known to have been durable.
        durable: Seq,
        /// What is wrong there.
        damage: Damage,
    },
    /// Acknowledged data is in no segment.
    MissingSegment {
        /// The journal's directory.
        dir: PathBuf,
        /// The first seq that is missing.
        seq: Seq,
        /// The last of them, as far as that is known.
        to: Seq,
        /// The files between which they are missing, where there are such.
        between: Option<(PathBuf, PathBuf)>,
        /// Up to where the journal is known to have been durable.
        durable: Seq,
    },
    /// Two segments are of different logs.
    OtherLog {
        /// One of them.
        segment: PathBuf,
        /// The other.
        other: PathBuf,
    },
    /// Two segments claim the same frames.
    Duplicate {
        /// One of them.
        segment: PathBuf,
        /// The other.
        other: PathBuf,
        /// The first seq of both.
        seq: Seq,
    },
    /// The log ends before what a snapshot covers.
    JournalBehindSnapshot {
        /// The journal's directory.
        dir: PathBuf,
        /// The last seq of the log.
        durable: Seq,
        /// The last seq that the snapshot covers.
        snapshot: Seq,
    },
    /// Seqs are neither covered by the snapshot nor in the journal, which begins after them.
    SnapshotGap {
        /// The journal's directory.
        dir: PathBuf,
        /// The last seq that the snapshot covers.
        snapshot: Seq,
        /// The first seq of the log.
        first: Seq,
    },
    /// The log's beginning was given up, and no sound snapshot has the state before what is left.
    NoBeginning {
        /// The journal's directory.
        dir: PathBuf,
        /// The first seq of the log.
        first: Seq,
        /// Snapshots that are not sound, each with the reason in a line.
        rejected: Vec<String>,
    },
    /// A segment of a version this program does not read.
    Version {
        /// The segment.
        segment: PathBuf,
        /// Its version.
        version: u32,
    },
    /// A reader wants frames that the journal no longer begins with.
    TooOld {
        /// The seq asked for.
        from: Seq,
        /// The first seq there is.
        first: Seq,
    },
    /// There is no journal in the directory.
    Empty {
        /// The directory.
        dir: PathBuf,
    },
}

/// What is wrong with some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Of a segment header.
    Header(HeaderError),
    /// Of a segment's first write, header and commit: it is not there, and what comes behind it is.
    Beginning {
        /// Where a sound commit of the segment stands, in bytes.
        commit_at: u64,
    },
    /// Of a commit.
    Commit(CommitError),
    /// Of a frame.
    Frame(FrameError),
    /// A frame or commit that is sound but not the one that belongs here; the seq it has.
    OutOfOrder(Seq),
    /// A commit whose frames do not fill it.
    Ragged,
    /// A frame of a kind that never stands in a journal.
    Kind(Kind),
    /// A commit or segment of an earlier epoch than what stands before it.
    EpochFell {
        /// The epoch it has.
        epoch: u64,
        /// The epoch before it.
        before: u64,
    },
    /// A segment that leaves no gap to the one before it, and does not go on from its last commit.
    Unlinked,
    /// A segment that begins where another one does.
    Twice,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Header(error) => error.fmt(f),
            Damage::Beginning { commit_at } => {
                write!(f, "the segment's beginning is not there, and its commit at offset {commit_at} is")
            }
            Damage::Commit(error) => error.fmt(f),
            Damage::Frame(error) => error.fmt(f),
            Damage::OutOfOrder(seq) => write!(f, "seq {seq} stands here instead"),
            Damage::Ragged => write!(f, "the commit's frames do not fill it"),
            Damage::Kind(kind) => write!(f, "a frame of kind {kind:?} never stands in a journal"),
            Damage::EpochFell { epoch, before } => write!(f, "epoch {epoch} stands after epoch {before}"),
            Damage::Twice => {
                write!(f, "another segment begins at the same seq: move the one that does not belong away")
            }
            Damage::Unlinked => write!(f, "it does not go on from the last commit of the segment before it"),
        }
    }
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::Config(what) => write!(f, "journal configuration: {what}"),
            JournalError::InUse { dir } => {
                write!(f, "journal {}: in use by another process; stop it, or use another directory", dir.display())
            }
            JournalError::Disk { path, error } => write!(f, "journal {}: {error}{}", path.display(), hint(error)),
            JournalError::WriteZero { segment, offset } => {
                write!(f, "journal {}: the disk took none of a write at offset {offset}", segment.display())
            }
            JournalError::NoSpace { dir, needed, free } if free >= needed => write!(
                f,
                "journal {}: {free} bytes free, but the next segment's {needed} were refused; look at quotas, the largest \
                 file size and what the file system keeps for itself",
                dir.display()
            ),
            JournalError::NoSpace { dir, needed, free } => write!(
                f,
                "journal {}: {free} bytes free, the next segment needs {needed}; free space or take smaller segments",
                dir.display()
            ),
            JournalError::FrameTooLarge { bytes, max } => {
                write!(f, "a frame of {bytes} bytes fits in no commit, at most {max}; raise commit_bytes_max")
            }
            JournalError::Corrupt { segment, offset, seq, durable, damage } => write!(
                f,
                "journal {}: offset {offset}: seq {seq} was acknowledged (durable up to {durable}) and is damaged: \
                 {damage}; restore this file from a replica or a backup, nothing was changed",
                segment.display()
            ),
            JournalError::MissingSegment { dir, seq, to, between, durable } => {
                write!(f, "journal {}: seq {seq} to {to} are in no segment", dir.display())?;
                if let Some((before, after)) = between {
                    write!(f, ", between {} and {}", name(before), name(after))?;
                }
                write!(
                    f,
                    ", though acknowledged (durable up to {durable}); put the missing segment back or restore from a \
                     replica, nothing was changed"
                )
            }
            JournalError::Duplicate { segment, other, seq } => write!(
                f,
                "journal {}: begins at seq {seq}, as {} does; move the one that does not belong away",
                segment.display(),
                other.display()
            ),
            JournalError::OtherLog { segment, other } => write!(
                f,
                "journal {}: of another log than {}; move the one that does not belong away, nothing was changed",
                segment.display(),
                name(other)
            ),
            JournalError::JournalBehindSnapshot { dir, durable, snapshot } => write!(
                f,
                "journal {}: ends at seq {durable}, before the snapshot of seq {snapshot}; restore the journal from a \
                 replica, or take the snapshot away if what it has beyond {durable} may be lost; nothing was changed",
                dir.display()
            ),
            JournalError::SnapshotGap { dir, snapshot, first } => write!(
                f,
                "journal {}: begins at seq {first}, but the snapshot covers only up to {snapshot}: seq {} to {} are in \
                 neither; put a later snapshot or the segments before {first} back, nothing was changed",
                dir.display(),
                snapshot.next(),
                first.0 - 1
            ),
            JournalError::NoBeginning { dir, first, rejected } => {
                write!(
                    f,
                    "journal {}: begins at seq {first}, and no sound snapshot has the state before it; put a snapshot from seq \
                     {} on, or the segments before seq {first}, back from a replica or a backup",
                    dir.display(),
                    first.0 - 1
                )?;
                rejected.iter().try_for_each(|reason| write!(f, "; not sound: {reason}"))
            }
            JournalError::Version { segment, version } => {
                write!(f, "journal {}: segment version {version}, this program reads 1 and 2", segment.display())
            }
            JournalError::TooOld { from, first } => {
                write!(
                    f,
                    "seq {from} is no longer in the journal, which begins at {first} now; go on from a snapshot at or after \
                     seq {}, or where there is none put the segments before {first} back from a replica or a backup",
                    first.0 - 1
                )
            }
            JournalError::Empty { dir } => {
                write!(f, "journal {}: no segment in it; is it the right path?", dir.display())
            }
        }
    }
}

impl std::error::Error for JournalError {}

/// A file's name without its directory, which the message names already.
fn name(path: &Path) -> std::path::Display<'_> {
    path.file_name().map_or(path, Path::new).display()
}

fn hint(error: &DiskError) -> &'static str {
    match error.errno {
        libc::EROFS => "; the journal needs a writable file system",
        libc::EACCES | libc::EPERM => "; the journal needs permission to read and write there",
        libc::ENOENT => "; is it the right path?",
        libc::ENOTDIR => "; a directory is needed",
        libc::EISDIR | libc::ENXIO => "; move it away, what has this name has to be a file",
        _ => "",
    }
}
