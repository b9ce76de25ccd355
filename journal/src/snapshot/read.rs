//! Reading snapshots: from its name on, nothing of one is believed before it was checked.

use std::path::{Path, PathBuf};

use ticktape_core::Seq;

use super::check::Check;
use super::error::{at, damaged};
use super::{CHUNK_BYTES, Snapshot, SnapshotError, SnapshotHeader, SnapshotMeta};
use crate::disk::{BufferId, Disk, FileDisk, FileId, Op, OpenMode, Outcome};
use crate::error::JournalError;
use crate::names;
use crate::recover::run as run_on_journal;

/// The newest sound snapshot of a directory.
#[derive(Debug, Default)]
pub struct Newest {
    /// It, if there is one.
    pub snapshot: Option<Snapshot>,
    /// Newer ones that were passed over, newest first, and why.
    pub rejected: Vec<(PathBuf, SnapshotError)>,
    /// Which log the directory's segments are of; `None` where none says, and so no snapshot is of another.
    pub log_id: Option<u64>,
}

/// The snapshots in a directory by their names, oldest first. Other files are none of its business.
///
/// # Errors
/// [`JournalError::Disk`], where the directory can't be read, or is missing.
pub fn list(dir: &Path) -> Result<Vec<(Seq, PathBuf)>, JournalError> {
    list_on(&mut FileDisk::new(), dir)
}

/// As [`list`], on a disk.
///
/// # Errors
/// As [`list`].
pub fn list_on<D: Disk>(disk: &mut D, dir: &Path) -> Result<Vec<(Seq, PathBuf)>, JournalError> {
    let Outcome::Names(names) = run_on_journal(disk, dir, Op::List { path: dir })? else { unreachable!("list lists") };
    let mut all: Vec<_> =
        names.iter().filter_map(|name| Some((names::snapshot_seq(name)?, names::within(dir, name)))).collect();
    all.sort();
    Ok(all)
}

/// Reads one snapshot into memory, and checks it on the way. Memory is taken only for sections that the file is as long as.
///
/// # Errors
/// [`SnapshotError`].
pub fn read(path: &Path) -> Result<Snapshot, SnapshotError> {
    read_on(&mut FileDisk::new(), path)
}

/// As [`read`], on a disk.
///
/// # Errors
/// As [`read`].
pub fn read_on<D: Disk>(disk: &mut D, path: &Path) -> Result<Snapshot, SnapshotError> {
    let mut body = Vec::new();
    // Past the page cache, where a snapshot rarely is: large reads of the device itself are twice as fast as its readahead.
    let header = pass(disk, path, OpenMode::ReadDirect, &mut |header, bytes| {
        let capacity = header.body_bytes();
        let reserved = usize::try_from(capacity).ok().and_then(|bytes| body.try_reserve_exact(bytes - body.len()).ok());
        reserved.ok_or_else(|| SnapshotError::NoMemory { path: path.to_owned(), bytes: capacity })?;
        body.extend_from_slice(bytes);
        Ok(())
    })?;
    Ok(Snapshot::new(header.meta, body, header.sections))
}

/// Reads one snapshot's header, and checks that alone.
///
/// # Errors
/// [`SnapshotError`].
pub fn read_header(path: &Path) -> Result<SnapshotHeader, SnapshotError> {
    read_header_on(&mut FileDisk::new(), path)
}

/// As [`read_header`], on a disk.
///
/// # Errors
/// As [`read_header`].
pub fn read_header_on<D: Disk>(disk: &mut D, path: &Path) -> Result<SnapshotHeader, SnapshotError> {
    with_open(disk, path, OpenMode::Read, |disk, file, buffer| {
        let mut check = begin(disk, path, file)?;
        step(disk, path, file, buffer, &mut check)?;
        Ok(check.header().expect("its block was taken").clone())
    })
}

/// Checks all of one snapshot in bounded memory, past the page cache where the file system can.
///
/// # Errors
/// [`SnapshotError`].
pub fn verify(path: &Path) -> Result<SnapshotHeader, SnapshotError> {
    verify_on(&mut FileDisk::new(), path)
}

/// As [`verify`], on a disk.
///
/// # Errors
/// As [`verify`].
pub fn verify_on<D: Disk>(disk: &mut D, path: &Path) -> Result<SnapshotHeader, SnapshotError> {
    pass(disk, path, OpenMode::ReadDirect, &mut |_, _| Ok(()))
}

/// The newest sound snapshot at or below `at_most`. Newer ones that are not sound, of another log than the segments there, or
/// can't be read, are passed over and named.
///
/// # Errors
/// [`JournalError::Disk`], where the directory or a segment of it can't be read, or is missing.
pub fn newest(dir: &Path, at_most: Seq) -> Result<Newest, JournalError> {
    newest_on(&mut FileDisk::new(), dir, at_most)
}

/// As [`newest`], on a disk.
///
/// # Errors
/// As [`newest`].
pub fn newest_on<D: Disk>(disk: &mut D, dir: &Path, at_most: Seq) -> Result<Newest, JournalError> {
    let candidates = list_on(disk, dir)?;
    let mut newest = Newest { log_id: crate::recover::log_id(disk, dir)?, ..Newest::default() };
    for (_, path) in candidates.into_iter().rev().filter(|&(seq, _)| seq <= at_most) {
        let read = read_on(disk, &path)
            .and_then(|snapshot| check_log(&path, snapshot.meta(), newest.log_id).map(|()| snapshot));
        match read {
            Ok(snapshot) => {
                newest.snapshot = Some(snapshot);
                break;
            }
            // A live writer beside this reader has just retired it.
            Err(SnapshotError::Disk { error, .. }) if error.is_missing() => {}
            Err(error) => newest.rejected.push((path, error)),
        }
    }
    Ok(newest)
}

/// Deletes the snapshots of states after `seq`, newest first, and makes that durable: for a journal that promised nothing beyond.
/// Returns their seqs. Not beside a live writer.
///
/// # Errors
/// [`JournalError::Disk`], the files named.
pub fn purge_beyond(dir: &Path, seq: Seq) -> Result<Vec<Seq>, JournalError> {
    purge_beyond_on(&mut FileDisk::new(), dir, seq)
}

/// As [`purge_beyond`], on a disk.
///
/// # Errors
/// As [`purge_beyond`].
pub fn purge_beyond_on<D: Disk>(disk: &mut D, dir: &Path, seq: Seq) -> Result<Vec<Seq>, JournalError> {
    let mut purged = Vec::new();
    for (of, path) in list_on(disk, dir)?.into_iter().rev().filter(|&(of, _)| of > seq) {
        run_on_journal(disk, &path, Op::Delete { path: &path })?;
        purged.push(of);
    }
    if !purged.is_empty() {
        run_on_journal(disk, dir, Op::SyncDir { path: dir })?;
    }
    Ok(purged)
}

/// What a snapshot's name says has to be what its header says. Files of other names, such as copies, may be of any seq.
pub(super) fn check_name(path: &Path, header: &SnapshotHeader) -> Result<(), SnapshotError> {
    let seq = header.meta.seq;
    match names::snapshot_seq(path) {
        Some(named) if named != seq => Err(SnapshotError::Misnamed { path: path.to_owned(), seq }),
        _ => Ok(()),
    }
}

/// Whether what `meta` is of is the log of this identity, or may be: one that does not say is taken for it.
///
/// # Errors
/// [`SnapshotError::OtherLog`], about the file at `path`.
pub fn check_log(path: &Path, meta: &SnapshotMeta, log_id: Option<u64>) -> Result<(), SnapshotError> {
    match log_id {
        Some(log) if ![0, log].contains(&meta.log_id) => {
            Err(SnapshotError::OtherLog { path: path.to_owned(), snapshot: meta.log_id, log })
        }
        _ => Ok(()),
    }
}

/// What is done with the bytes of the sections.
type Sink<'s> = &'s mut dyn FnMut(&SnapshotHeader, &[u8]) -> Result<(), SnapshotError>;

fn pass<D: Disk>(disk: &mut D, path: &Path, mode: OpenMode, sink: Sink<'_>) -> Result<SnapshotHeader, SnapshotError> {
    with_open(disk, path, mode, |disk, file, buffer| {
        let mut check = begin(disk, path, file)?;
        while check.wanted() > 0 {
            let of_sections = step(disk, path, file, buffer, &mut check)?;
            let header = check.header().expect("its block was taken");
            sink(header, &disk.bytes(buffer)[..of_sections])?;
        }
        check.finish().map_err(|damage| damaged(path, damage))
    })
}

fn with_open<D: Disk, T>(
    disk: &mut D,
    path: &Path,
    mode: OpenMode,
    work: impl FnOnce(&mut D, FileId, BufferId) -> Result<T, SnapshotError>,
) -> Result<T, SnapshotError> {
    let file = match run(disk, path, Op::Open { path, mode })? {
        Outcome::Opened(file) => file,
        _ => unreachable!("open opens"),
    };
    let done = disk.allocate(CHUNK_BYTES).map_err(|error| at(path, error)).and_then(|buffer| {
        let done = work(disk, file, buffer);
        disk.release(buffer);
        done
    });
    let closed = run(disk, path, Op::Close { file });
    let done = done?;
    closed.map(|_| done)
}

fn begin<D: Disk>(disk: &mut D, path: &Path, file: FileId) -> Result<Check, SnapshotError> {
    match run(disk, path, Op::Stat { file })? {
        Outcome::Stat(stat) => Ok(Check::new(stat.bytes)),
        _ => unreachable!("stat states"),
    }
}

/// Reads on; how many bytes of sections stand at the buffer's beginning then.
fn step<D: Disk>(
    disk: &mut D,
    path: &Path,
    file: FileId,
    buffer: BufferId,
    check: &mut Check,
) -> Result<usize, SnapshotError> {
    let (is_first, len, offset) = (check.header().is_none(), check.wanted(), check.at());
    let bytes = match run(disk, path, Op::Read { file, buffer, start: 0, len, offset })? {
        Outcome::Transferred(bytes) => bytes,
        _ => unreachable!("reads transfer"),
    };
    let of_sections = check.take(&disk.bytes(buffer)[..bytes]).map_err(|damage| damaged(path, damage))?;
    if is_first {
        check_name(path, check.header().expect("it was taken"))?;
    }
    Ok(of_sections)
}

fn run<D: Disk>(disk: &mut D, path: &Path, op: Op<'_>) -> Result<Outcome, SnapshotError> {
    disk.run(op).map_err(|error| at(path, error))
}
