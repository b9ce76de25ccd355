//! Writing snapshots: a duty cycle with one operation under way at a time, so that the journal finds the device free.

use std::path::{Path, PathBuf};

use ticktape_core::{Nanos, Seq};

use super::error::at;
use super::retained::{Retained, State};
use super::work::{Next, Purpose, Stage, Work};
use super::{CHUNK_BYTES, Snapshot, SnapshotError, SnapshotMeta};
use crate::disk::{BufferId, Disk, DiskError, Op, OpenMode, Outcome};
use crate::names;

/// How fast snapshots are written, and how many are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotPace {
    /// Bytes written, read back or deleted a millisecond, at most. Too many delay the journal's own flushes on the same device; with too
    /// few one snapshot is not done before the next is due. `usize::MAX` is as fast as the disk goes.
    pub bytes_per_ms: usize,
    /// Verified snapshots that are kept, at least 1. With 1, a newest one that rots leaves only a full replay.
    pub retain: usize,
}

impl Default for SnapshotPace {
    /// 100 MB/s, a fraction of what a disk does, and two kept, so that there is one to fall back to.
    fn default() -> SnapshotPace {
        SnapshotPace { bytes_per_ms: 100_000, retain: 2 }
    }
}

/// Writes one snapshot at a time, and looks after those that are there.
///
/// It belongs to the journal's owner, who holds the directory's lock, and has a disk of its own, beside the journal's.
#[derive(Debug)]
pub struct SnapshotWriter<D: Disk> {
    disk: D,
    dir: PathBuf,
    pace: SnapshotPace,
    buffer: BufferId,
    retained: Retained,
    /// Snapshots of another log don't count.
    log_id: Option<u64>,
    /// Begun, and waits for the work under way.
    queued: Option<Snapshot>,
    work: Option<Work>,
    /// Whether an operation is under way.
    is_waiting: bool,
    /// Whether there may be snapshots that are no longer retained.
    may_retire: bool,
    /// Aside files that could not be deleted; tried again after the next snapshot.
    leftovers: Vec<Seq>,
    /// When the next chunk may go.
    allowed_at: Nanos,
    written: Option<SnapshotMeta>,
    failed: Option<SnapshotError>,
    failures: u64,
    spent: Option<Vec<u8>>,
}

impl<D: Disk> SnapshotWriter<D> {
    /// A writer for the directory, which is created if it is missing. Removes what a crash left of unfinished snapshots.
    /// Runs to its end: for start-up.
    ///
    /// # Errors
    /// [`SnapshotError::Pace`] for a pace or a number of zero, [`SnapshotError::Disk`] otherwise.
    pub fn new(mut disk: D, dir: &Path, pace: SnapshotPace) -> Result<SnapshotWriter<D>, SnapshotError> {
        if pace.bytes_per_ms == 0 || pace.retain == 0 {
            return Err(SnapshotError::Pace(format!("{pace:?}: both have to be at least 1")));
        }
        let mut run = |path: &Path, op: Op<'_>| disk.run(op).map_err(|error| at(path, error));
        run(dir, Op::CreateDir { path: dir })?;
        let Outcome::Names(names) = run(dir, Op::List { path: dir })? else { unreachable!("list lists") };
        let leftovers: Vec<_> = names.iter().filter(|name| names::is_snapshot_aside(name)).collect();
        for name in &leftovers {
            let path = dir.join(name);
            run(&path, Op::Delete { path: &path })?;
        }
        if !leftovers.is_empty() {
            run(dir, Op::SyncDir { path: dir })?;
        }
        let buffer = disk.allocate(CHUNK_BYTES).map_err(|error| at(dir, error))?;
        let retained = Retained::found(names.iter().filter_map(|name| names::snapshot_seq(name)));
        Ok(SnapshotWriter {
            disk,
            dir: dir.to_owned(),
            pace,
            buffer,
            retained,
            log_id: None,
            queued: None,
            work: None,
            is_waiting: false,
            may_retire: false,
            leftovers: Vec::new(),
            allowed_at: 0,
            written: None,
            failed: None,
            failures: 0,
            spent: None,
        })
    }

    /// The same writer, for the log of this identity: snapshots of another one that are there are rejected, and relied on for nothing.
    pub fn for_log(self, log_id: u64) -> SnapshotWriter<D> {
        SnapshotWriter { log_id: Some(log_id).filter(|&log_id| log_id != 0), ..self }
    }

    /// Takes a snapshot to be written. One of a seq that is there replaces that, once it is verified.
    ///
    /// # Panics
    /// When one is being written: ask [`SnapshotWriter::is_busy`].
    pub fn begin(&mut self, snapshot: Snapshot) {
        assert!(!self.is_busy(), "one snapshot at a time");
        self.queued = Some(snapshot);
    }

    /// Whether a snapshot is being written, or what is left of a failed one is being cleaned up.
    pub fn is_busy(&self) -> bool {
        self.queued.is_some() || self.work.as_ref().is_some_and(|work| work.writing.is_some())
    }

    /// Whether nothing is under way and nothing is left to do: all that were found were looked at, all that go are gone.
    pub fn is_idle(&self) -> bool {
        self.queued.is_none() && self.work.is_none() && !self.may_retire && self.retained.next_found().is_none()
    }

    /// Takes note of what the disk has done, and goes on by one step. Never waits for a disk that works beside its caller,
    /// though operations on names and sizes take their time: for a housekeeping core.
    /// Returns how much was done.
    pub fn poll(&mut self, now: Nanos) -> usize {
        let mut done = 0;
        if self.is_waiting {
            let Some(completion) = self.disk.poll() else { return 0 };
            self.is_waiting = false;
            done = 1;
            self.completed(completion.result);
        }
        if self.work.is_none() {
            self.work = self.next_work();
        }
        done + self.begin_step(now)
    }

    /// The latest snapshot that was written, durable under its name, and read back, if there is one since the last call.
    pub fn take_written(&mut self) -> Option<SnapshotMeta> {
        self.written.take()
    }

    /// The oldest snapshot that is retained, sound and durable: a journal that begins right after it can still be recovered when
    /// every newer snapshot rots, so compaction may delete what is at or below it. `None` until all older ones were looked at.
    pub fn oldest_verified(&self) -> Option<Seq> {
        self.retained.oldest_verified()
    }

    /// The newest snapshot that is retained, sound and durable.
    pub fn newest_verified(&self) -> Option<Seq> {
        self.retained.newest_verified()
    }

    /// Whether the snapshot of this seq is retained, sound and durable. Writing it again would be in vain.
    pub fn is_verified(&self, seq: Seq) -> bool {
        self.retained.is_verified(seq)
    }

    /// Why the last snapshot was not written, or older ones not deleted; `None` again after one that was. No failure of the
    /// journal: it goes on, and the next snapshot is tried as if nothing had been.
    pub fn failed(&self) -> Option<&SnapshotError> {
        self.failed.as_ref()
    }

    /// How often that was so.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Snapshots in the directory that are not sound, of another log, or can't be made sure of, and why. They stay for inspection until they are
    /// older than what is retained.
    pub fn rejected(&self) -> impl Iterator<Item = (Seq, &SnapshotError)> {
        self.retained.rejected()
    }

    /// The allocation of the last snapshot that was begun, when the writer is done with it: to be filled again.
    pub fn take_body(&mut self) -> Option<Vec<u8>> {
        self.spent.take()
    }

    /// The disk, what it is and why.
    pub fn describe(&self) -> String {
        self.disk.describe()
    }

    /// Gives the processor away until the disk is likely to have done something. Returns at once when nothing is under way.
    pub fn wait(&mut self) {
        if self.is_waiting {
            self.disk.wait();
        }
    }

    /// A new snapshot goes first, then deletions, which free space, then looking at what was there at the start.
    fn next_work(&mut self) -> Option<Work> {
        if let Some(snapshot) = self.queued.take() {
            return Some(Work::write(&self.dir, snapshot));
        }
        if self.may_retire {
            if let Some(seq) = self.leftovers.pop() {
                return Some(Work::sweep(&self.dir, seq));
            }
            if let Some(seq) = self.retained.surplus(self.pace.retain) {
                return Some(Work::retire(&self.dir, seq));
            }
            self.may_retire = false;
        }
        self.retained.next_found().map(|seq| Work::adopt(&self.dir, seq, self.log_id))
    }

    /// Submits the operation of the stage that is next, if its time has come.
    fn begin_step(&mut self, now: Nanos) -> usize {
        let Some(work) = &mut self.work else { return 0 };
        let is_paced = matches!(work.stage, Stage::Body | Stage::ReadBack | Stage::Shrink);
        if is_paced && now < self.allowed_at {
            return 0;
        }
        let (disk, buffer, dir) = (&mut self.disk, self.buffer, &self.dir);
        let path = &work.path;
        let mut paced_bytes = 0;
        match work.stage {
            Stage::Discard | Stage::DeleteFailed | Stage::DeleteRetired => disk.submit(TOKEN, Op::Delete { path }),
            Stage::Create => disk.submit(TOKEN, Op::Open { path, mode: OpenMode::Create }),
            Stage::OpenBack => disk.submit(TOKEN, Op::Open { path, mode: OpenMode::ReadDirect }),
            Stage::OpenRetired => disk.submit(TOKEN, Op::Open { path, mode: OpenMode::Write }),
            Stage::StatBack | Stage::StatRetired => disk.submit(TOKEN, Op::Stat { file: work.file() }),
            Stage::SyncBody | Stage::SyncHeader | Stage::SyncFound => {
                disk.submit(TOKEN, Op::Sync { file: work.file() });
            }
            Stage::CloseWritten | Stage::CloseBack | Stage::CloseFailed | Stage::CloseRetired => {
                disk.submit(TOKEN, Op::Close { file: work.file() });
            }
            Stage::SyncDir | Stage::SyncRetired => disk.submit(TOKEN, Op::SyncDir { path: dir }),
            Stage::FreeSpace => disk.submit(TOKEN, Op::FreeSpace { path: dir }),
            Stage::Rename => disk.submit(TOKEN, Op::Rename { from: path, to: &names::snapshot(dir, work.seq) }),
            Stage::Retire => {
                disk.submit(TOKEN, Op::Rename { from: path, to: &names::snapshot_aside(dir, work.seq) });
            }
            Stage::Shrink => {
                let (bytes, cut_bytes) = work.cut();
                paced_bytes = cut_bytes;
                disk.submit(TOKEN, Op::Truncate { file: work.file(), bytes });
            }
            Stage::Reserve => {
                let (file, bytes) = (work.file(), work.writing().file_bytes());
                disk.submit(TOKEN, Op::Preallocate { file, bytes });
            }
            Stage::Body | Stage::Header => {
                let (file, is_header) = (work.file(), work.stage == Stage::Header);
                let (writing, bytes) = (work.writing(), disk.bytes_mut(buffer));
                let offset = if is_header { writing.load_header(bytes) } else { writing.load(bytes) };
                let (start, len) = (writing.loaded.start, writing.loaded.len());
                paced_bytes = len;
                disk.submit(TOKEN, Op::Write { file, buffer, start, len, offset, durable: false });
            }
            Stage::ReadBack => {
                let check = work.check.as_ref().expect("it was begun with the size");
                let (file, len, offset) = (work.file(), check.wanted(), check.at());
                paced_bytes = len;
                disk.submit(TOKEN, Op::Read { file, buffer, start: 0, len, offset });
            }
        }
        self.allowed_at = self.allowed_at.max(now) + pause_ns(paced_bytes, self.pace.bytes_per_ms);
        self.is_waiting = true;
        1
    }

    /// What follows the operation that has completed.
    fn completed(&mut self, result: Result<Outcome, DiskError>) {
        let work = self.work.as_mut().expect("some work was under way");
        let next = match result {
            Ok(outcome) => work.completed(&outcome, self.disk.bytes(self.buffer)),
            Err(error) => work.failed(error),
        };
        if let Next::Go(stage) = next {
            work.stage = stage;
            if stage == Stage::SyncRetired {
                self.retained.remove(work.seq);
            }
            return;
        }
        let work = self.work.take().expect("it is there");
        match next {
            Next::Go(_) => unreachable!("it went on"),
            Next::Retired => {}
            Next::GivenUp => self.given_up(work),
            Next::Verified => {
                self.retained.set(work.seq, State::Verified);
                self.may_retire = true;
                if let Some(writing) = work.writing {
                    self.failed = None;
                    self.written = Some(writing.snapshot.meta().clone());
                    self.spent = Some(writing.snapshot.into_body());
                }
            }
        }
    }

    fn given_up(&mut self, work: Work) {
        let is_named = work.is_named();
        if work.leaves_aside {
            self.leftovers.push(work.seq);
        }
        let error = work.error.expect("it was given up for a reason");
        match work.purpose {
            Purpose::Write => {
                // Its name may or may not outlast a crash: whatever is there under it is not relied on.
                if is_named {
                    self.retained.set(work.seq, State::Rejected(error.clone()));
                }
                self.spent = work.writing.map(|writing| writing.snapshot.into_body());
            }
            // It is tried again after the next snapshot.
            Purpose::Retire => self.may_retire = false,
            Purpose::Adopt => {
                let is_gone = matches!(&error, SnapshotError::Disk { error, .. } if error.is_missing());
                if is_gone {
                    self.retained.remove(work.seq);
                } else {
                    self.retained.set(work.seq, State::Rejected(error));
                }
                return;
            }
        }
        self.failures += 1;
        self.failed = Some(error);
    }
}

/// The only operation under way.
const TOKEN: u64 = 0;

/// How long so many bytes keep the next ones waiting, in nanoseconds.
fn pause_ns(bytes: usize, bytes_per_ms: usize) -> Nanos {
    bytes as u64 * 1_000_000 / bytes_per_ms as u64
}
