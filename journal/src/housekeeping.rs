//! The chores around segments (those that take released ones away stand in `release.rs`), one under way at a time so that the commits find the disk free.

use std::path::PathBuf;

use ticktape_core::Nanos;

use crate::disk::{Disk, DiskError, FileId, Op, OpenMode, Outcome};
use crate::error::JournalError;
use crate::journal::Journal;
use crate::limits::{FILL_CHUNK_BYTES, FILL_WRITE_BYTES};
use crate::names;
use crate::pipeline::{CLASS_CHORE, CLASS_SHIFT};
use crate::recover::{at, run};
use crate::release::{Closed, Released};
use crate::segments::{Current, Spare};

/// How long to wait, after a spare could not be made, before trying again, in nanoseconds. Space comes back when a person
/// or a compaction frees it, so shorter helps no one.
const SPARE_RETRY_NS: Nanos = 100_000_000;

/// How often the current segment is looked for under its name, in nanoseconds. What is written after somebody removed the
/// directory goes nowhere, and no write fails of it; a look costs a few microseconds.
const LOOK_NS: Nanos = 1_000_000_000;

/// The chore that is under way. A spare goes through the first five in order.
#[derive(Clone, Debug)]
pub(crate) enum Chore {
    /// Take a released segment away.
    Release(Released),
    /// Create a spare.
    Open { path: PathBuf },
    /// Reserve its space.
    Preallocate(Spare),
    /// Write so many bytes of zeros to it, one write after the other.
    Fill(Spare, usize),
    /// Make its zeros and size durable.
    Sync(Spare),
    /// Make its name durable; then it is ready.
    SyncDir(Spare),
    /// Remove a spare that could not be made.
    Discard(Spare),
    /// See how much space there is, after there was too little.
    FreeSpace,
    /// Close a file.
    Close { file: FileId },
    /// Write zeros ahead of the commits up to `to`, and then up to `target`.
    FillCurrent { file: FileId, to: u64, target: u64 },
    /// Give a segment its final name.
    Rename { file: FileId, to: PathBuf },
    /// Make that name durable.
    SyncName,
    /// See whether the current segment is still there.
    Look,
}

impl<D: Disk> Journal<D> {
    /// The rare work: makes the next segment before it is needed, zero-fills ahead, gives segments their names, closes old
    /// ones. One step a call; returns how many were begun. Call it off the hot path, each few hundred microseconds or when
    /// idle; it may allocate, and operations on names may take their time.
    pub fn housekeeping(&mut self, now: Nanos) -> usize {
        self.segments.now = now;
        if self.failed.is_some() || !self.segments.is_idle() {
            return 0;
        }
        let chore = self
            .next_close()
            .or_else(|| self.next_rename())
            .or_else(|| self.next_spare_step(now))
            .or_else(|| self.next_excess())
            .or_else(|| self.next_recycle())
            .or_else(|| self.next_spare(now))
            .or_else(|| self.next_delete())
            .or_else(|| self.next_fill(now))
            .or_else(|| self.next_look(now));
        // Looking changes nothing: who waits for housekeeping to come to rest does not wait for it.
        let begun = usize::from(chore.as_ref().is_some_and(|chore| !matches!(chore, Chore::Look)));
        if let Some(chore) = chore {
            self.begin(chore);
        }
        begun
    }

    pub(crate) fn begin(&mut self, chore: Chore) {
        let token = CLASS_CHORE << CLASS_SHIFT;
        let (disk, zeros) = (&mut self.disk, self.segments.zeros);
        let zeros = |file, from: u64, to: u64| Op::Write {
            file,
            buffer: zeros,
            start: 0,
            len: (to - from) as usize,
            offset: from,
            durable: false,
        };
        match &chore {
            Chore::Release(step) => self.begin_release(step, token),
            Chore::Open { path } => disk.submit(token, Op::Open { path, mode: OpenMode::Create }),
            Chore::Preallocate(spare) => disk.submit(token, Op::Preallocate { file: spare.file, bytes: spare.bytes }),
            Chore::Fill(spare, bytes) => {
                let to = spare.filled + (*bytes).min(FILL_WRITE_BYTES) as u64;
                disk.submit(token, zeros(spare.file, spare.filled, to));
            }
            Chore::Sync(spare) => disk.submit(token, Op::Sync { file: spare.file }),
            Chore::SyncDir(_) | Chore::SyncName => disk.submit(token, Op::SyncDir { path: &self.dir }),
            Chore::Discard(spare) => disk.submit(token, Op::Delete { path: &spare.path }),
            Chore::Look => {
                let path = &self.segments.current.path;
                disk.submit(token, Op::Open { path, mode: OpenMode::Read });
            }
            Chore::FreeSpace => disk.submit(token, Op::FreeSpace { path: &self.dir }),
            Chore::Close { file } => disk.submit(token, Op::Close { file: *file }),
            Chore::FillCurrent { file, to, .. } => {
                let current = &mut self.segments.current;
                current.filling_to = *to;
                disk.submit(token, zeros(*file, current.filled, *to));
            }
            Chore::Rename { file, to } => {
                let from = self.segments.path_of(*file);
                disk.submit(token, Op::Rename { from: &from, to });
            }
        }
        self.segments.chore = Some(chore);
    }

    /// Takes note of a finished chore, and goes on with what follows from it.
    pub(crate) fn chore_completed(&mut self, result: Result<Outcome, DiskError>) {
        let chore = self.segments.chore.take().expect("a chore was under way");
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(error) => return self.chore_failed(chore, error),
        };
        match (chore, outcome) {
            (Chore::Release(step), outcome) => self.release_completed(step, outcome),
            (Chore::Open { path }, Outcome::Opened(file)) => {
                let bytes = self.config.segment_bytes as u64;
                self.begin(Chore::Preallocate(Spare { file, path, bytes, filled: 0, recycled: false }));
            }
            (Chore::Preallocate(spare), _) => {
                // There is space again. What else went wrong while frames wait is over once there is a spare, and not when the next one is begun: a
                // disk that fails each of them at the same step would never be found out.
                if !self.segments.wanted || matches!(self.segments.starved, Some(JournalError::NoSpace { .. })) {
                    self.segments.starved = None;
                }
                self.segments.partial = Some(spare);
            }
            (Chore::Fill(mut spare, bytes), Outcome::Transferred(done)) => {
                let whole = self.whole_blocks(done);
                spare.filled += whole;
                self.stats.filled_bytes += done as u64;
                match bytes.saturating_sub(whole as usize) {
                    // Who waits for the spare takes it as it is.
                    left if left > 0 && whole > 0 && !self.segments.wanted => self.begin(Chore::Fill(spare, left)),
                    _ => self.segments.partial = Some(spare),
                }
            }
            (Chore::Sync(spare), _) => self.begin(Chore::SyncDir(spare)),
            (Chore::SyncDir(spare), _) => {
                self.stats.recycled += u64::from(spare.recycled);
                self.segments.spares.push_back(spare);
                (self.segments.wanted, self.segments.starved) = (false, None);
            }
            (Chore::Discard(spare), _) => self.begin(Chore::Close { file: spare.file }),
            (Chore::FreeSpace, Outcome::Free(bytes)) => self.out_of_space(bytes),
            (Chore::Close { .. }, _) => {
                // Only now is what the discarded spare took free again.
                if self.segments.refused_bytes.is_some() {
                    self.begin(Chore::FreeSpace);
                }
            }
            (Chore::Look, Outcome::Opened(file)) => self.begin(Chore::Close { file }),
            (Chore::FillCurrent { file, target, .. }, Outcome::Transferred(done)) => {
                let whole = self.whole_blocks(done);
                let segment = self.segments.segment_mut(file);
                segment.filled += whole;
                segment.filling_to = segment.filled;
                self.stats.filled_bytes += done as u64;
                let goes_on = whole > 0 && self.segments.current.file == file;
                if let Some(chore) = goes_on.then(|| self.fill_current(target)).flatten() {
                    self.begin(chore);
                }
            }
            (Chore::Rename { file, to }, _) => {
                let segment = self.segments.segment_mut(file);
                segment.path = to;
                segment.renamed = true;
                self.begin(Chore::SyncName);
            }
            (Chore::SyncName, _) => {}
            (chore, outcome) => unreachable!("{chore:?} does not bring {outcome:?}"),
        }
    }

    /// Failing to make a spare is no failure of the journal: it only ends where the current segment does, unless a later
    /// try succeeds. A part of a spare whose sync failed is never relied on. Anything else says that the disk is bad.
    fn chore_failed(&mut self, chore: Chore, error: DiskError) {
        match chore {
            Chore::Release(step) => self.release_failed(step, error),
            Chore::Open { path } => {
                self.segments.starved = Some(at(&path, error));
                self.segments.retry_at = self.segments.now + SPARE_RETRY_NS;
            }
            Chore::Preallocate(spare) | Chore::Fill(spare, _) | Chore::Sync(spare) | Chore::SyncDir(spare) => {
                self.segments.retry_at = self.segments.now + SPARE_RETRY_NS;
                if error.is_full() {
                    self.segments.refused_bytes = Some(spare.bytes);
                } else {
                    self.segments.starved = Some(at(&spare.path, error));
                }
                self.begin(Chore::Discard(spare));
            }
            // It stays, blank, until the next start removes it.
            Chore::Discard(spare) => self.begin(Chore::Close { file: spare.file }),
            Chore::FreeSpace | Chore::Close { .. } => self.out_of_space(0),
            Chore::FillCurrent { file, .. } | Chore::Rename { file, .. } => {
                let path = self.segments.path_of(file);
                self.fail(at(&path, error));
            }
            // Another error than that it is gone, as too many open files, says nothing of what is written.
            Chore::Look if error.is_missing() => {
                let path = self.segments.current.path.clone();
                self.fail(at(&path, error));
            }
            Chore::Look => {}
            Chore::SyncName => {
                let dir = self.dir.clone();
                self.fail(at(&dir, error));
            }
        }
    }

    /// A spare was refused for want of space, if one was; so much is free now.
    fn out_of_space(&mut self, free: u64) {
        if let Some(needed) = self.segments.refused_bytes.take() {
            self.segments.starved = Some(JournalError::NoSpace { dir: self.dir.clone(), needed, free });
        }
    }

    fn next_look(&mut self, now: Nanos) -> Option<Chore> {
        let due = now.saturating_sub(self.looked_at) >= LOOK_NS;
        due.then(|| {
            self.looked_at = now;
            Chore::Look
        })
    }

    fn whole_blocks(&self, bytes: usize) -> u64 {
        (bytes & !(self.alignment - 1)) as u64
    }

    /// Closes what was rolled away from, when everything in it is durable and it has its name.
    fn next_close(&mut self) -> Option<Chore> {
        let oldest = self.segments.retired.front()?;
        let file = oldest.file;
        if !oldest.renamed || self.writes.iter().any(|write| write.file == file) {
            return None;
        }
        let Current { path, first_seq, next_seq, salt, .. } = self.segments.retired.pop_front()?;
        let alignment = self.alignment as u32;
        self.segments.closed.push_back(Closed { path, first_seq, next_seq, salt, alignment });
        Some(Chore::Close { file })
    }

    fn next_rename(&mut self) -> Option<Chore> {
        let segments = &self.segments;
        let mut open = segments.retired.iter().chain(std::iter::once(&segments.current));
        let segment = open.find(|segment| !segment.renamed && segment.offset > 0)?;
        Some(Chore::Rename { file: segment.file, to: names::segment(&self.dir, segment.first_seq) })
    }

    /// The next step of the spare that is being made. When appends wait, an unfilled one is better than none.
    fn next_spare_step(&mut self, now: Nanos) -> Option<Chore> {
        let segments = &mut self.segments;
        let spare = segments.partial.take()?;
        if spare.filled >= spare.bytes || segments.wanted || !segments.fills {
            return Some(Chore::Sync(spare));
        }
        if now < segments.fill_allowed_at {
            segments.partial = Some(spare);
            return None;
        }
        let bytes = (spare.bytes - spare.filled).min(FILL_CHUNK_BYTES as u64) as usize;
        self.limit_fill(now, bytes);
        Some(Chore::Fill(spare, bytes))
    }

    /// A new spare when the current segment is half full, or one is wanted now.
    fn next_spare(&mut self, now: Nanos) -> Option<Chore> {
        let segments = &mut self.segments;
        let due = segments.wanted || segments.current.offset > segments.current.bytes / 2;
        if !due || !segments.spares.is_empty() || segments.partial.is_some() || now < segments.retry_at {
            return None;
        }
        // Recovery leaves no spare behind, so numbers from 1 are free.
        segments.spares_made += 1;
        Some(Chore::Open { path: names::spare(&self.dir, segments.spares_made) })
    }

    /// Zeros ahead in the current segment: as much again as is used, so that there are few bursts of them.
    fn next_fill(&mut self, now: Nanos) -> Option<Chore> {
        let &Current { offset, filled, bytes, .. } = &self.segments.current;
        if !self.segments.fills || now < self.segments.fill_allowed_at || offset == 0 {
            return None;
        }
        let chunk = FILL_CHUNK_BYTES as u64;
        let (from, target) = (filled.max(offset), (2 * offset).max(chunk).min(bytes));
        let chore = self.fill_current(target.min(from + chunk))?;
        self.limit_fill(now, (target.min(from + chunk) - from) as usize);
        Some(chore)
    }

    /// The next write of zeros in the current segment, if it has none up to `target`.
    fn fill_current(&mut self, target: u64) -> Option<Chore> {
        let current = &mut self.segments.current;
        let from = current.filled.max(current.offset);
        if from >= target {
            return None;
        }
        current.filled = from;
        Some(Chore::FillCurrent { file: current.file, to: target.min(from + FILL_WRITE_BYTES as u64), target })
    }

    fn limit_fill(&mut self, now: Nanos, bytes: usize) {
        self.segments.fill_allowed_at = now + bytes as u64 * 1_000_000 / self.config.fill_bytes_per_ms as u64;
    }

    /// At a clean stop: names are made final, the last segment's unused reserve is given back, what got nothing goes.
    pub(crate) fn finish_segments(&mut self) -> Result<(), JournalError> {
        let (disk, segments) = (&mut self.disk, &mut self.segments);
        for spare in segments.spares.drain(..).chain(segments.partial.take()) {
            run(disk, &spare.path, Op::Delete { path: &spare.path })?;
        }
        let open = segments.retired.iter_mut().chain(std::iter::once(&mut segments.current));
        for segment in open.filter(|segment| !segment.renamed && segment.offset > 0) {
            let to = names::segment(&self.dir, segment.first_seq);
            run(disk, &segment.path, Op::Rename { from: &segment.path, to: &to })?;
            segment.path = to;
            segment.renamed = true;
        }
        let Current { path, file, offset, .. } = &segments.current;
        if *offset == 0 {
            run(disk, path, Op::Delete { path })?;
        } else {
            run(disk, path, Op::Truncate { file: *file, bytes: *offset })?;
            run(disk, path, Op::Sync { file: *file })?;
        }
        run(disk, &self.dir, Op::SyncDir { path: &self.dir })?;
        Ok(())
    }
}
