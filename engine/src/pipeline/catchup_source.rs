//! What a catch-up server reads from: a running log on this box, and the snapshots beside it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ticktape_core::{Frame, Seq};
use ticktape_journal::disk::{BufferId, DiskError, FileId, Op, OpenMode, Outcome};
use ticktape_journal::format::snapshot::{BLOCK_BYTES, HEADER_CRC};
use ticktape_journal::snapshot::CHUNK_BYTES;
use ticktape_journal::{Disk, FileDisk, JournalError, snapshot};
use ticktape_shm::{AttachError, Follower, Horizon, Tap};

use crate::catchup::{Part, SnapshotBegin, Source, SourceError, Standing};
use crate::tail::{OpenDisk, Tail, TailError};

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

    fn tail<D: Disk>(&self, journal_dir: &Path, open_disk: OpenDisk<D>, from: Seq) -> Result<Tail<D>, TailError> {
        // What is committed is the server's own to say: a replica's ring may not know.
        match self {
            ServedRing::Named { dir, name } => {
                Tail::open_on(journal_dir, open_disk, (dir, name), from, Horizon::Sequenced)
            }
            ServedRing::Here(_) => {
                let ring = self.follow().map_err(TailError::Attach)?;
                Tail::beside_on(journal_dir, open_disk, ring, from, Horizon::Sequenced)
            }
        }
    }
}

/// Reads one log for one client, from disks that it opens as it needs them.
pub struct LogSource<C, D: Disk = FileDisk> {
    dir: PathBuf,
    ring: ServedRing,
    log_id: u64,
    /// Up to where the log is committed; [`Seq::MAX`] where whatever is sequenced is.
    commit: C,
    open_disk: Arc<dyn Fn() -> D + Send + Sync>,
    /// Where the ring stands; it never reads.
    watch: Option<Follower>,
    tail: Option<Tail<D>>,
    next: Seq,
    tries: u32,
    open: Option<OpenSnapshot<D>>,
}

/// A snapshot that is being sent, and the disk that it is read from.
struct OpenSnapshot<D> {
    disk: D,
    file: FileId,
    buffer: BufferId,
}

impl<C: Fn() -> Seq> LogSource<C> {
    /// Nothing is opened before the client has asked.
    pub fn new(dir: &Path, ring: ServedRing, log_id: u64, commit: C) -> Self {
        LogSource::new_on(dir, ring, log_id, commit, FileDisk::new)
    }
}

impl<C: Fn() -> Seq, D: Disk> LogSource<C, D> {
    /// As [`LogSource::new`], on disks that `open_disk` opens.
    pub fn new_on(
        dir: &Path,
        ring: ServedRing,
        log_id: u64,
        commit: C,
        open_disk: impl Fn() -> D + Send + Sync + 'static,
    ) -> Self {
        LogSource {
            dir: dir.to_owned(),
            ring,
            log_id,
            commit,
            open_disk: Arc::new(open_disk),
            watch: None,
            tail: None,
            next: Seq::FIRST,
            tries: 0,
            open: None,
        }
    }

    fn open_tail(&mut self) -> Result<&mut Tail<D>, SourceError>
    where
        D: 'static,
    {
        if self.tail.is_none() {
            let open_disk = Arc::clone(&self.open_disk);
            let tail = self.ring.tail(&self.dir, Box::new(move || open_disk()), self.next);
            self.tail = Some(tail.map_err(source_error)?);
        }
        Ok(self.tail.as_mut().expect("it was opened"))
    }
}

impl<C: Fn() -> Seq, D: Disk + 'static> Source for LogSource<C, D> {
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
        self.open = None;
        let mut disk = (self.open_disk)();
        let mut candidates = snapshot::list_on(&mut disk, &self.dir).map_err(broken)?;
        candidates.retain(|&(seq, _)| seq <= at_most);
        // The one that the client has begun first of all, where it is still there; then the newest.
        candidates.sort_by_key(|&(seq, _)| (part.is_some_and(|part| part.seq == seq), seq));
        while let Some((seq, path)) = candidates.pop() {
            // One that is being taken away, or has rotted, is as good as none.
            let Ok(header) = snapshot::read_header_on(&mut disk, &path) else { continue };
            let is_ours = snapshot::check_log(&path, &header.meta, Some(self.log_id).filter(|&id| id != 0)).is_ok();
            if !is_ours || header.meta.seq != seq {
                continue;
            }
            let Ok((file, buffer, header_crc)) = open(&mut disk, &path) else { continue };
            self.open = Some(OpenSnapshot { disk, file, buffer });
            return Ok(Some(SnapshotBegin { seq, file_bytes: header.file_bytes(), offset: 0, header_crc }));
        }
        Ok(None)
    }

    fn read_snapshot(&mut self, offset: u64, out: &mut [u8]) -> Result<usize, SourceError> {
        let Some(OpenSnapshot { disk, file, buffer }) = &mut self.open else { return Err(SourceError::SnapshotGone) };
        let len = out.len().min(CHUNK_BYTES);
        match disk.run(Op::Read { file: *file, buffer: *buffer, start: 0, len, offset }) {
            // It was retired, and cut.
            Ok(Outcome::Transferred(0)) => Err(SourceError::SnapshotGone),
            Ok(Outcome::Transferred(bytes)) => {
                out[..bytes].copy_from_slice(&disk.bytes(*buffer)[..bytes]);
                Ok(bytes)
            }
            Ok(_) => unreachable!("reads transfer"),
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

/// The file, a buffer for it, and the checksum of its header.
fn open<D: Disk>(disk: &mut D, path: &Path) -> Result<(FileId, BufferId, u32), DiskError> {
    let Outcome::Opened(file) = disk.run(Op::Open { path, mode: OpenMode::Read })? else { unreachable!("open opens") };
    let buffer = disk.allocate(CHUNK_BYTES)?;
    // A file shorter than its header was told apart before.
    disk.run(Op::Read { file, buffer, start: 0, len: BLOCK_BYTES, offset: 0 })?;
    let crc = disk.bytes(buffer)[HEADER_CRC..HEADER_CRC + 4].try_into().expect("four bytes");
    Ok((file, buffer, u32::from_le_bytes(crc)))
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
