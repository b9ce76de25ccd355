//! Taking away what a snapshot covers: released segments become spares, or are deleted.
//!
//! Oldest first, one step at a time, each segment's end made durable before the next one's begins: a crash leaves a journal that
//! begins a little later or a little earlier, and never a hole. A segment ends when the recycle mark in the place of its header
//! is durable, or its deletion is; the new name of a marked file is a convenience, and recovery looks at the mark alone.
//!
//! The newest segment that holds anything acknowledged stays, whatever is released: without it, and without the snapshot, nothing
//! would tell a journal whose beginning was taken away from a new one.

use std::path::{Path, PathBuf};

use ticktape_core::Seq;

use crate::disk::{Disk, DiskError, FileId, Op, OpenMode, Outcome};
use crate::format::recycle::RecycleMark;
use crate::housekeeping::Chore;
use crate::journal::Journal;
use crate::limits::SPARES_MAX;
use crate::names;
use crate::recover::at;
use crate::segments::Spare;

/// A segment that nothing is written to any more.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    pub(crate) path: PathBuf,
    pub(crate) first_seq: Seq,
    /// The seq after its last frame.
    pub(crate) next_seq: Seq,
    /// 0 for version 1.
    pub(crate) salt: u64,
    /// The block size in bytes, 0 for version 1.
    pub(crate) alignment: u32,
}

/// A step on the way of a released segment. Recycling goes through all but the last three in order; a file that is not fit for
/// it through the last three.
#[derive(Clone, Debug)]
pub(crate) enum Released {
    /// Open it again.
    Open(Closed),
    /// See whether it has the size and blocks of a spare.
    Measure(Closed, FileId),
    /// Put the mark in the place of its header.
    Mark(Closed, FileId),
    /// Make the mark durable: from then on it is free.
    SyncMark(Closed, FileId),
    /// Give it a spare's name; that name's sync is what every spare ends with.
    Rename(Closed, Spare),
    /// Close it again: it is not fit.
    Close(Closed, FileId),
    /// Delete it.
    Delete(Closed),
    /// Make the deletion durable.
    SyncDir(Closed),
}

impl Released {
    fn path(&self) -> &Path {
        let (Released::Open(closed)
        | Released::Measure(closed, _)
        | Released::Mark(closed, _)
        | Released::SyncMark(closed, _)
        | Released::Rename(closed, _)
        | Released::Close(closed, _)
        | Released::Delete(closed)
        | Released::SyncDir(closed)) = self;
        &closed.path
    }
}

impl<D: Disk> Journal<D> {
    /// Everything before `seq` is covered by a snapshot that is durable and verified: [`housekeeping`](Journal::housekeeping) takes
    /// segments away that hold nothing else. Cheap; a lower seq than before changes nothing.
    ///
    /// The segment that is written stays, and so does the newest one that holds anything durable.
    pub fn release_before(&mut self, seq: Seq) {
        self.segments.released = self.segments.released.max(seq);
    }

    /// The first seq that is kept; where there is none, the first there will be.
    pub fn first_seq(&self) -> Seq {
        let segments = &self.segments;
        let open = segments.retired.iter().chain(std::iter::once(&segments.current));
        let open = open.filter(|segment| segment.offset > 0).map(|segment| segment.first_seq);
        let mut firsts = segments.closed.iter().map(|closed| closed.first_seq).chain(open);
        firsts.next().unwrap_or(self.durable.next())
    }

    /// The oldest segment, if it may be taken away.
    fn released(&self) -> Option<&Closed> {
        let oldest = self.segments.closed.front()?;
        (oldest.next_seq <= self.segments.released && self.durable >= oldest.next_seq).then_some(oldest)
    }

    /// Whether one more spare is of use.
    fn wants_spare(&self) -> bool {
        self.segments.spares.len() + usize::from(self.segments.partial.is_some()) < SPARES_MAX
    }

    /// A released segment becomes a spare where one is of use.
    pub(crate) fn next_recycle(&mut self) -> Option<Chore> {
        let blocks = self.alignment as u32;
        self.released().filter(|oldest| oldest.alignment == blocks)?;
        if !self.wants_spare() {
            return None;
        }
        self.segments.closed.pop_front().map(|closed| Chore::Release(Released::Open(closed)))
    }

    /// Where a spare is ready and more is released than will soon be of use, after a burst or a late snapshot, the oldest is deleted: a
    /// writer that never rests would carry it along for ever.
    pub(crate) fn next_excess(&mut self) -> Option<Chore> {
        let beyond = self.segments.closed.get(SPARES_MAX)?;
        let is_excess = beyond.next_seq <= self.segments.released && !self.segments.spares.is_empty();
        if is_excess { self.next_delete() } else { None }
    }

    /// What is not of use is deleted.
    pub(crate) fn next_delete(&mut self) -> Option<Chore> {
        self.released()?;
        self.segments.closed.pop_front().map(|closed| Chore::Release(Released::Delete(closed)))
    }

    pub(crate) fn begin_release(&mut self, step: &Released, token: u64) {
        let disk = &mut self.disk;
        match step {
            Released::Open(closed) => disk.submit(token, Op::Open { path: &closed.path, mode: OpenMode::Write }),
            Released::Measure(_, file) => disk.submit(token, Op::Stat { file: *file }),
            Released::Mark(closed, file) => {
                let &Closed { first_seq, salt, alignment, .. } = closed;
                let (buffer, len) = (self.segments.mark, self.alignment);
                RecycleMark { first_seq, salt, alignment }.encode(&mut disk.bytes_mut(buffer)[..len]);
                disk.submit(token, Op::Write { file: *file, buffer, start: 0, len, offset: 0, durable: false });
            }
            Released::SyncMark(_, file) => disk.submit(token, Op::Sync { file: *file }),
            Released::Rename(closed, spare) => {
                disk.submit(token, Op::Rename { from: &closed.path, to: &spare.path });
            }
            Released::Close(_, file) => disk.submit(token, Op::Close { file: *file }),
            Released::Delete(closed) => disk.submit(token, Op::Delete { path: &closed.path }),
            Released::SyncDir(_) => disk.submit(token, Op::SyncDir { path: &self.dir }),
        }
    }

    pub(crate) fn release_completed(&mut self, step: Released, outcome: Outcome) {
        let bytes = self.config.segment_bytes as u64;
        let next = match (step, outcome) {
            (Released::Open(closed), Outcome::Opened(file)) => Released::Measure(closed, file),
            (Released::Measure(closed, file), Outcome::Stat(stat)) => {
                // Cut by a recovery or a clean stop, or of another configuration, or moved to another kind of disk.
                let is_fit = stat.bytes == bytes && stat.alignment == self.alignment;
                if is_fit { Released::Mark(closed, file) } else { Released::Close(closed, file) }
            }
            (Released::Mark(closed, file), Outcome::Transferred(done)) if done < self.alignment => {
                Released::Close(closed, file)
            }
            (Released::Mark(closed, file), _) => Released::SyncMark(closed, file),
            (Released::SyncMark(closed, file), _) => {
                self.segments.spares_made += 1;
                let path = names::spare(&self.dir, self.segments.spares_made);
                Released::Rename(closed, Spare { file, path, bytes, filled: bytes, recycled: true })
            }
            (Released::Rename(_, spare), _) => return self.begin(Chore::SyncDir(spare)),
            (Released::Close(closed, _), _) => Released::Delete(closed),
            (Released::Delete(closed), _) => Released::SyncDir(closed),
            (Released::SyncDir(_), _) => {
                self.stats.deleted += 1;
                return;
            }
            (step, outcome) => unreachable!("{step:?} does not bring {outcome:?}"),
        };
        self.begin(Chore::Release(next));
    }

    /// What someone else took away is gone, too. Where a mark does not fit on the disk, the file is deleted instead. Anything
    /// else says that the disk is bad.
    pub(crate) fn release_failed(&mut self, step: Released, error: DiskError) {
        match step {
            Released::Open(closed) | Released::Delete(closed) if error.is_missing() => {
                self.begin(Chore::Release(Released::SyncDir(closed)));
            }
            Released::Mark(closed, file) | Released::SyncMark(closed, file) if error.is_full() => {
                self.begin(Chore::Release(Released::Close(closed, file)));
            }
            step => {
                let failed = at(step.path(), error);
                self.fail(failed);
            }
        }
    }
}
