//! What the snapshot writer is at, and in which order it goes on.

use std::ops::Range;
use std::path::{Path, PathBuf};

use ticktape_core::{Seq, crc32c_append};

use super::check::Check;
use super::read::{check_log, check_name};
use super::{CHUNK_BYTES, SYNC_SLICE_BYTES, Snapshot, SnapshotError, SnapshotHeader};
use crate::disk::{DiskError, FileId, Outcome};
use crate::format::snapshot::BLOCK_BYTES;
use crate::names;

/// The step that is next, or under way. One that is written goes from `Discard` to `SyncDir`, without `SyncFound`; one that was
/// found at the start from `OpenBack` to `SyncDir`, without `Rename`; one that goes from `Retire` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Delete what an earlier try may have left aside.
    Discard,
    /// Create the aside file.
    Create,
    /// Reserve its space, and give it its size.
    Reserve,
    /// Write a chunk of the body.
    Body,
    /// Make the last few of them durable.
    SyncBody,
    /// Write the header, now that the body's checksum is known.
    Header,
    /// Make all of the file durable.
    SyncHeader,
    /// Close it.
    CloseWritten,
    /// Open it again, past the page cache.
    OpenBack,
    /// Make sure of one that another process wrote.
    SyncFound,
    /// Ask for its size.
    StatBack,
    /// Read a chunk.
    ReadBack,
    /// Close it again.
    CloseBack,
    /// Give it its final name.
    Rename,
    /// Make the name durable.
    SyncDir,
    /// After an error: close the file.
    CloseFailed,
    /// After an error: delete the aside file.
    DeleteFailed,
    /// After a lack of space: see how much there is.
    FreeSpace,
    /// Take its name away from one that is no longer retained: it is an aside file again.
    Retire,
    /// Make that durable, so that none is ever found cut under its final name.
    SyncRetired,
    /// Open it.
    OpenRetired,
    /// Ask for its size.
    StatRetired,
    /// Cut a slice off it: deleting a gigabyte at once takes a few hundred milliseconds.
    Shrink,
    /// Close it.
    CloseRetired,
    /// Delete what is left.
    DeleteRetired,
}

/// What follows a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another one.
    Go(Stage),
    /// The snapshot is sound and durable.
    Verified,
    /// It came to nothing, and is cleaned up; the work has the error.
    GivenUp,
    /// It is deleted.
    Retired,
}

/// What is done with a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A new one is written.
    Write,
    /// One that was there at the start is looked at.
    Adopt,
    /// One that is no longer retained is deleted, or what is left of it.
    Retire,
}

/// What is done with which snapshot.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) purpose: Purpose,
    pub(super) seq: Seq,
    pub(super) stage: Stage,
    /// The file, under the name that it has at this stage.
    pub(super) path: PathBuf,
    pub(super) check: Option<Check>,
    /// The snapshot, if it is one that is being written.
    pub(super) writing: Option<Writing>,
    /// What has gone wrong, while it is being cleaned up and after.
    pub(super) error: Option<SnapshotError>,
    /// Whether its aside file may still be there when the work is over.
    pub(super) leaves_aside: bool,
    /// The log that one which is looked at has to be of.
    log_id: Option<u64>,
    file: Option<FileId>,
    /// Of one that shrinks: its size in bytes, and what it is cut to next.
    shrinks: (u64, u64),
}

impl Work {
    /// Writing a new one in this directory.
    pub(super) fn write(dir: &Path, snapshot: Snapshot) -> Work {
        let seq = snapshot.meta().seq;
        let work = Work::new(Purpose::Write, seq, Stage::Discard, names::snapshot_aside(dir, seq));
        Work { writing: Some(Writing::new(snapshot)), ..work }
    }

    /// Looking at one that was found there, beside the log of this identity.
    pub(super) fn adopt(dir: &Path, seq: Seq, log_id: Option<u64>) -> Work {
        Work { log_id, ..Work::new(Purpose::Adopt, seq, Stage::OpenBack, names::snapshot(dir, seq)) }
    }

    /// Deleting what is left aside of one there.
    pub(super) fn sweep(dir: &Path, seq: Seq) -> Work {
        Work::new(Purpose::Retire, seq, Stage::OpenRetired, names::snapshot_aside(dir, seq))
    }

    /// Deleting one there.
    pub(super) fn retire(dir: &Path, seq: Seq) -> Work {
        Work::new(Purpose::Retire, seq, Stage::Retire, names::snapshot(dir, seq))
    }

    fn new(purpose: Purpose, seq: Seq, stage: Stage, path: PathBuf) -> Work {
        Work {
            purpose,
            seq,
            stage,
            path,
            check: None,
            writing: None,
            error: None,
            leaves_aside: false,
            log_id: None,
            file: None,
            shrinks: (0, 0),
        }
    }

    /// The file that is open at this stage.
    pub(super) fn file(&self) -> FileId {
        self.file.expect("it is open at this stage")
    }

    /// The snapshot that is written at this stage.
    pub(super) fn writing(&mut self) -> &mut Writing {
        self.writing.as_mut().expect("it is written at this stage")
    }

    /// Whether the file has its final name.
    pub(super) fn is_named(&self) -> bool {
        names::snapshot_seq(&self.path).is_some()
    }

    /// What one that shrinks is cut to, in bytes, and how many those cut off are.
    pub(super) fn cut(&self) -> (u64, usize) {
        let (bytes, to) = self.shrinks;
        (to, (bytes - to) as usize)
    }

    fn shrink(&mut self, bytes: u64) -> Stage {
        self.shrinks = (bytes, bytes.saturating_sub(SYNC_SLICE_BYTES));
        if bytes > SYNC_SLICE_BYTES { Stage::Shrink } else { Stage::CloseRetired }
    }

    fn dir(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// What follows the stage, whose operation was done. `buffer` is what a read has filled.
    pub(super) fn completed(&mut self, outcome: &Outcome, buffer: &[u8]) -> Next {
        let next = match self.stage {
            Stage::Discard => Stage::Create,
            Stage::Create => {
                self.file = Some(opened(outcome));
                Stage::Reserve
            }
            Stage::Reserve | Stage::SyncBody => self.writing().after_chunk(),
            Stage::Body | Stage::Header => return self.wrote(transferred(outcome)),
            Stage::SyncHeader => Stage::CloseWritten,
            Stage::CloseWritten => {
                self.file = None;
                Stage::OpenBack
            }
            Stage::OpenBack => {
                self.file = Some(opened(outcome));
                if self.writing.is_some() { Stage::StatBack } else { Stage::SyncFound }
            }
            Stage::SyncFound => Stage::StatBack,
            Stage::StatBack => {
                self.check = Some(Check::new(size(outcome)));
                Stage::ReadBack
            }
            Stage::ReadBack => match self.read(&buffer[..transferred(outcome)]) {
                Ok(stage) => stage,
                Err(error) => return self.fail(error),
            },
            Stage::CloseBack => {
                self.file = None;
                if self.writing.is_some() { Stage::Rename } else { Stage::SyncDir }
            }
            Stage::Rename => {
                self.path = names::snapshot(self.dir(), self.seq);
                Stage::SyncDir
            }
            Stage::SyncDir => return Next::Verified,
            Stage::CloseFailed => return self.clean_up_closed(),
            Stage::DeleteFailed => return self.clean_up_deleted(),
            Stage::FreeSpace => {
                if let (Some(SnapshotError::NoSpace { free, .. }), Outcome::Free(bytes)) = (&mut self.error, outcome) {
                    *free = *bytes;
                }
                return Next::GivenUp;
            }
            Stage::Retire => {
                self.path = names::snapshot_aside(self.dir(), self.seq);
                Stage::SyncRetired
            }
            Stage::SyncRetired => Stage::OpenRetired,
            Stage::OpenRetired => {
                self.file = Some(opened(outcome));
                Stage::StatRetired
            }
            Stage::StatRetired => self.shrink(size(outcome)),
            Stage::Shrink => self.shrink(self.shrinks.1),
            Stage::CloseRetired => {
                self.file = None;
                Stage::DeleteRetired
            }
            Stage::DeleteRetired => return Next::Retired,
        };
        Next::Go(next)
    }

    /// What follows the stage, whose operation failed.
    pub(super) fn failed(&mut self, error: DiskError) -> Next {
        match self.stage {
            Stage::Discard if error.is_missing() => Next::Go(Stage::Create),
            Stage::Retire if error.is_missing() => Next::Go(Stage::SyncRetired),
            Stage::OpenRetired | Stage::DeleteRetired if error.is_missing() => Next::Retired,
            Stage::CloseFailed => self.clean_up_closed(),
            Stage::DeleteFailed => {
                self.leaves_aside = !error.is_missing();
                self.clean_up_deleted()
            }
            Stage::FreeSpace => Next::GivenUp,
            _ => {
                let path = self.path.clone();
                let error = match &self.writing {
                    Some(writing) if error.is_full() => {
                        SnapshotError::NoSpace { path, needed: writing.file_bytes(), free: 0 }
                    }
                    _ => SnapshotError::Disk { path, error },
                };
                self.fail(error)
            }
        }
    }

    fn wrote(&mut self, bytes: usize) -> Next {
        let is_header = self.stage == Stage::Header;
        let writing = self.writing();
        if !writing.wrote(bytes) {
            let offset = if is_header { 0 } else { writing.at };
            let path = self.path.clone();
            return self.fail(SnapshotError::WriteZero { path, offset });
        }
        Next::Go(if is_header { Stage::SyncHeader } else { writing.after_chunk() })
    }

    fn read(&mut self, bytes: &[u8]) -> Result<Stage, SnapshotError> {
        let damaged = |damage| SnapshotError::Damaged { path: self.path.clone(), damage };
        let mut check = self.check.take().expect("it was begun with the file's size");
        check.take(bytes).map_err(damaged)?;
        if check.wanted() > 0 {
            self.check = Some(check);
            return Ok(Stage::ReadBack);
        }
        let header = check.finish().map_err(damaged)?;
        match &self.writing {
            Some(writing) if writing.header() != header => {
                Err(SnapshotError::ReadBackDiffers { path: self.path.clone() })
            }
            Some(_) => Ok(Stage::CloseBack),
            None => check_name(&self.path, &header)
                .and_then(|()| check_log(&self.path, &header.meta, self.log_id))
                .map(|()| Stage::CloseBack),
        }
    }

    /// Begins to clean up after an error.
    fn fail(&mut self, error: SnapshotError) -> Next {
        self.error = Some(error);
        self.leaves_aside = self.purpose == Purpose::Retire && !self.is_named();
        if self.file.is_some() { Next::Go(Stage::CloseFailed) } else { self.clean_up_closed() }
    }

    fn clean_up_closed(&mut self) -> Next {
        self.file = None;
        let is_aside = self.writing.is_some() && !self.is_named();
        if is_aside { Next::Go(Stage::DeleteFailed) } else { self.clean_up_deleted() }
    }

    fn clean_up_deleted(&mut self) -> Next {
        let is_space = matches!(self.error, Some(SnapshotError::NoSpace { .. }));
        if is_space { Next::Go(Stage::FreeSpace) } else { Next::GivenUp }
    }
}

fn opened(outcome: &Outcome) -> FileId {
    match outcome {
        Outcome::Opened(file) => *file,
        _ => unreachable!("open opens"),
    }
}

fn size(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Stat(stat) => stat.bytes,
        _ => unreachable!("stat states"),
    }
}

fn transferred(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Transferred(bytes) => *bytes,
        _ => unreachable!("reads and writes transfer"),
    }
}

/// A snapshot on its way to the disk.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) snapshot: Snapshot,
    /// Where in the file the next bytes go.
    pub(super) at: u64,
    /// What of the buffer was loaded and is to be written.
    pub(super) loaded: Range<usize>,
    /// Of what was loaded so far.
    crc: u32,
    /// Bytes that were written since the last sync.
    unsynced: u64,
}

impl Writing {
    pub(super) fn new(snapshot: Snapshot) -> Writing {
        Writing { snapshot, at: BLOCK_BYTES as u64, loaded: 0..0, crc: 0, unsynced: 0 }
    }

    /// What the header says, once the whole body was loaded.
    pub(super) fn header(&self) -> SnapshotHeader {
        self.snapshot.header(self.crc)
    }

    /// The size of the file, in bytes.
    pub(super) fn file_bytes(&self) -> u64 {
        self.snapshot.header(0).file_bytes()
    }

    /// Copies the next chunk of the body, padded to whole blocks, into the buffer, unless some of the last is still there.
    /// Returns where in the file it goes.
    pub(super) fn load(&mut self, buffer: &mut [u8]) -> u64 {
        if !self.loaded.is_empty() {
            return self.at;
        }
        let from = (self.at - BLOCK_BYTES as u64) as usize;
        let rest = &self.snapshot.body()[from..];
        let bytes = rest.len().min(CHUNK_BYTES);
        let padded = bytes.next_multiple_of(BLOCK_BYTES);
        buffer[..bytes].copy_from_slice(&rest[..bytes]);
        buffer[bytes..padded].fill(0);
        self.crc = crc32c_append(self.crc, &buffer[..padded]);
        self.loaded = 0..padded;
        self.at
    }

    /// Loads the header instead. Returns where it goes.
    pub(super) fn load_header(&mut self, buffer: &mut [u8]) -> u64 {
        self.header().encode(&mut buffer[..BLOCK_BYTES]);
        self.loaded = 0..BLOCK_BYTES;
        0
    }

    /// So many bytes were written, of which whole blocks count; false if there is none.
    pub(super) fn wrote(&mut self, bytes: usize) -> bool {
        let whole = bytes.min(self.loaded.len()) / BLOCK_BYTES * BLOCK_BYTES;
        self.loaded.start += whole;
        self.at += whole as u64;
        self.unsynced += whole as u64;
        whole > 0
    }

    /// What follows a written chunk, or the beginning.
    pub(super) fn after_chunk(&mut self) -> Stage {
        let is_whole = self.at == self.file_bytes();
        if self.unsynced >= SYNC_SLICE_BYTES || is_whole && self.unsynced > 0 {
            self.unsynced = 0;
            Stage::SyncBody
        } else if is_whole {
            Stage::Header
        } else {
            Stage::Body
        }
    }
}
