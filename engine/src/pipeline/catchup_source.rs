//! What a catch-up server reads from: a running log on this box, and the snapshots beside it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ticktape_core::{Frame, Seq};
use ticktape_journal::format::snapshot::{BLOCK_BYTES, HEADER_CRC};
use ticktape_journal::{JournalError, snapshot};
use ticktape_shm::{AttachError, Follower, Horizon, Tap};

use crate::catchup::{Part, SnapshotBegin, Source, SourceError, Standing};
use crate::tail::{Tail, TailError};

/// Damage in the ring's memory that is met so often without a frame in between is in the journal, too.
const TRIES_MAX: u32 = 3;

/// The ring of a log that is served.
#[derive(Clone)]
pub enum ServedRing {
    /// Of this process.
    Here(Tap),
    /// Of another one, by its directory and name.
    Named {
        /// The directory, usually `/dev/shm`.
        dir: PathBuf,
        /// The name.
        name: String,
    },
}

impl ServedRing {
    fn follow(&self) -> Result<Follower, AttachError> {
        match self {
            ServedRing::Named { dir, name } => Follower::attach_live(dir, name, Horizon::Sequenced),
            ServedRing::Here(tap) => match tap.follow(Seq::MAX, Horizon::Sequenced) {
                Err(AttachError::NotYet { next }) => tap.follow(next, Horizon::Sequenced),
                followed => followed,
            },
        }
    }

    fn tail(&self, journal_dir: &Path, from: Seq) -> Result<Tail, TailError> {
        // What is committed is the server's own to say: a replica's ring may not know.
        match self {
            ServedRing::Named { dir, name } => Tail::open(journal_dir, dir, name, from, Horizon::Sequenced),
            ServedRing::Here(_) => {
                let ring = self.follow().map_err(TailError::Attach)?;
                Tail::beside(journal_dir, ring, from, Horizon::Sequenced)
            }
        }
    }
}

/// Reads one log for one client.
pub(super) struct LogSource<C> {
    dir: PathBuf,
    ring: ServedRing,
    log_id: u64,
    /// Up to where the log is committed; [`Seq::MAX`] where whatever is sequenced is.
    commit: C,
    /// Where the ring stands; it never reads.
    watch: Option<Follower>,
    tail: Option<Tail>,
    next: Seq,
    tries: u32,
    open: Option<(File, u64)>,
}

impl<C: Fn() -> Seq> LogSource<C> {
    /// Nothing is opened before the client has asked.
    pub(super) fn new(dir: &Path, ring: ServedRing, log_id: u64, commit: C) -> Self {
        let dir = dir.to_owned();
        LogSource { dir, ring, log_id, commit, watch: None, tail: None, next: Seq::FIRST, tries: 0, open: None }
    }

    fn open_tail(&mut self) -> Result<&mut Tail, SourceError> {
        if self.tail.is_none() {
            self.tail = Some(self.ring.tail(&self.dir, self.next).map_err(source_error)?);
        }
        Ok(self.tail.as_mut().expect("it was opened"))
    }
}

impl<C: Fn() -> Seq> Source for LogSource<C> {
    fn standing(&mut self) -> Result<Standing, SourceError> {
        if self.watch.is_none() {
            self.watch = Some(self.ring.follow().map_err(broken)?);
        }
        // It goes where it is, and says where that is.
        let watch = self.watch.as_mut().expect("it was opened");
        let next = match watch.seek(Seq::MAX) {
            Err(AttachError::NotYet { next }) => next,
            Ok(()) => watch.next_seq(),
            Err(error) => return Err(broken(error)),
        };
        let sequenced = Seq(next.0 - 1);
        Ok(Standing { log_id: self.log_id, commit: (self.commit)().min(sequenced), next })
    }

    fn open_snapshot(&mut self, at_most: Seq, part: Option<Part>) -> Result<Option<SnapshotBegin>, SourceError> {
        let mut candidates = snapshot::list(&self.dir).map_err(broken)?;
        candidates.retain(|&(seq, _)| seq <= at_most);
        // The one that the client has begun first of all, where it is still there; then the newest.
        candidates.sort_by_key(|&(seq, _)| (part.is_some_and(|part| part.seq == seq), seq));
        while let Some((seq, path)) = candidates.pop() {
            // One that is being taken away, or has rotted, is as good as none.
            let Ok(header) = snapshot::read_header(&path) else { continue };
            let is_ours = snapshot::check_log(&path, &header.meta, Some(self.log_id).filter(|&id| id != 0)).is_ok();
            let Some((file, header_crc)) = open(&path).filter(|_| is_ours && header.meta.seq == seq) else { continue };
            let file_bytes = header.file_bytes();
            self.open = Some((file, file_bytes));
            return Ok(Some(SnapshotBegin { seq, file_bytes, offset: 0, header_crc }));
        }
        Ok(None)
    }

    fn read_snapshot(&mut self, offset: u64, out: &mut [u8]) -> Result<usize, SourceError> {
        let Some((file, _)) = &self.open else { return Err(SourceError::SnapshotGone) };
        match file.read_at(out, offset) {
            // It was retired, and cut.
            Ok(0) => Err(SourceError::SnapshotGone),
            Ok(bytes) => Ok(bytes),
            Err(error) => Err(broken(error)),
        }
    }

    fn seek(&mut self, from: Seq) -> Result<(), SourceError> {
        self.open = None;
        (self.tail, self.next, self.tries) = (None, from, 0);
        self.open_tail().map(|_| ())
    }

    fn next_frame(&mut self, f: &mut dyn FnMut(&Frame<'_>)) -> Result<bool, SourceError> {
        let drained = self.open_tail()?.drain(1, f);
        match drained {
            Ok(0) => Ok(false),
            Ok(_) => {
                self.next = self.next.next();
                self.tries = 0;
                Ok(true)
            }
            // What there was, there was.
            Err(TailError::Ended) => Ok(false),
            Err(error) => {
                // Opened anew it reads the journal's copy, or the ring that took the name.
                self.tail = None;
                self.tries += 1;
                let retry = matches!(error, TailError::Damaged { .. } | TailError::Ring(_) | TailError::Attach(_));
                if retry && self.tries < TRIES_MAX { Ok(false) } else { Err(source_error(error)) }
            }
        }
    }
}

/// The file, and the checksum of its header.
fn open(path: &Path) -> Option<(File, u32)> {
    let file = File::open(path).ok()?;
    let mut crc = [0; 4];
    file.read_exact_at(&mut crc, HEADER_CRC as u64).ok()?;
    const { assert!(HEADER_CRC + 4 <= BLOCK_BYTES) };
    Some((file, u32::from_le_bytes(crc)))
}

fn broken(error: impl std::fmt::Display) -> SourceError {
    SourceError::Broken(error.to_string())
}

fn source_error(error: TailError) -> SourceError {
    match error {
        TailError::Journal(JournalError::TooOld { .. }) => SourceError::TooOld,
        error => broken(error),
    }
}
