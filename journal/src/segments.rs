//! The segment that is written, the one that comes next, and the chores around them.
//!
//! A spare is created, reserved, zero-filled and synced under a name of its own before it is needed; or it is a segment whose
//! frames were released, under such a name. Rolling to it is a
//! matter of memory; its header goes out with its first commit, its final name comes later. One chore is under way at a
//! time, so that the commits find the disk free.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use ticktape_core::{Nanos, Seq};

use crate::disk::{BufferId, Disk, FileId};
use crate::error::JournalError;
use crate::housekeeping::Chore;
use crate::limits::{ALIGNMENT_BYTES_MAX, FILL_CHUNK_BYTES, SPARES_MAX};
use crate::recover::{Link, at};
use crate::release::Closed;
use crate::salt::Salts;

/// The segment that commits go to.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub(crate) file: FileId,
    pub(crate) path: PathBuf,
    pub(crate) first_seq: Seq,
    pub(crate) salt: u64,
    /// The salt of the segment that comes next, which every commit announces.
    pub(crate) next_salt: u64,
    /// Where the next commit goes; 0 until the header goes out with the first.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Up to here it was zero-filled.
    pub(crate) filled: u64,
    /// Up to here zeros are being written; equal to `filled` when none are.
    pub(crate) filling_to: u64,
    /// The checksum of the last commit, or of the header.
    pub(crate) chain: u32,
    /// The seq after its last frame, once there is one.
    pub(crate) next_seq: Seq,
    /// Whether old commits stand behind its own.
    pub(crate) recycled: bool,
    /// Whether it has its final name.
    pub(crate) renamed: bool,
}

impl Current {
    /// Whether a commit of so many bytes keeps out of where zeros are being written.
    pub(crate) fn fill_is_clear_of(&self, bytes: u64) -> bool {
        self.filling_to == self.filled || self.offset + bytes <= self.filled || self.offset >= self.filling_to
    }
}

/// A segment that no commit went to yet.
#[derive(Clone, Debug)]
pub(crate) struct Spare {
    pub(crate) file: FileId,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// Up to here it was written before, with zeros or whatever.
    pub(crate) filled: u64,
    pub(crate) recycled: bool,
}

/// All segments of a journal that are open.
#[derive(Debug)]
pub(crate) struct Segments {
    pub(crate) current: Current,
    /// What the current segment's header says of the one before.
    pub(crate) link: Link,
    /// Whether appends wait for a spare.
    pub(crate) wanted: bool,
    /// Why there is none.
    pub(crate) starved: Option<JournalError>,
    /// The size of a spare for which there was no space, until what is free was measured and it is called starved.
    pub(crate) refused_bytes: Option<u64>,
    /// What can be rolled to, the next first.
    pub(crate) spares: VecDeque<Spare>,
    pub(crate) chore: Option<Chore>,
    /// A spare that is being made and waits for the filler's next step.
    pub(crate) partial: Option<Spare>,
    /// Segments that were rolled away from, in order: closed when everything in them is durable.
    pub(crate) retired: VecDeque<Current>,
    /// Segments that nothing is written to any more and whose every frame is durable, in order.
    pub(crate) closed: VecDeque<Closed>,
    /// Everything before this seq is covered by a snapshot.
    pub(crate) released: Seq,
    pub(crate) zeros: BufferId,
    /// For recycle marks.
    pub(crate) mark: BufferId,
    salts: Salts,
    pub(crate) spares_made: u64,
    pub(crate) fill_allowed_at: Nanos,
    pub(crate) retry_at: Nanos,
    /// The time at the last housekeeping.
    pub(crate) now: Nanos,
    /// Whether zero-filling helps: only past the page cache.
    pub(crate) fills: bool,
}

impl Segments {
    pub(crate) fn new<D: Disk>(
        disk: &mut D,
        dir: &Path,
        mut salts: Salts,
        current: Current,
        link: Link,
        closed: VecDeque<Closed>,
        fills: bool,
    ) -> Result<Segments, JournalError> {
        let zeros = disk.allocate(FILL_CHUNK_BYTES).map_err(|error| at(dir, error))?;
        let mark = disk.allocate(ALIGNMENT_BYTES_MAX).map_err(|error| at(dir, error))?;
        Ok(Segments {
            current: Current { next_salt: salts.next(), ..current },
            link,
            wanted: false,
            starved: None,
            refused_bytes: None,
            spares: VecDeque::with_capacity(SPARES_MAX),
            chore: None,
            partial: None,
            retired: VecDeque::with_capacity(16),
            closed,
            released: Seq::ZERO,
            zeros,
            mark,
            salts,
            spares_made: 0,
            fill_allowed_at: 0,
            retry_at: 0,
            now: 0,
            fills,
        })
    }

    /// See [`Journal::mint`](crate::Journal::mint).
    pub(crate) fn mint(&mut self) -> u64 {
        self.salts.next()
    }

    /// Whether a commit of `bytes` fits in what is left of the current segment, whose header takes a block.
    pub(crate) fn current_fits(&self, bytes: u64, block: u64) -> bool {
        let lead = if self.current.offset == 0 { block } else { 0 };
        self.current.offset + lead + bytes <= self.current.bytes
    }

    /// Whether `bytes` of commits that are not submitted yet have their place on the disk. If not, a spare is wanted.
    pub(crate) fn has_space(&mut self, bytes: u64, block: u64) -> bool {
        let fits = self.current_fits(bytes + block, block)
            || self.spares.front().is_some_and(|spare| bytes + 2 * block <= spare.bytes);
        self.wanted |= !fits && self.spares.is_empty();
        fits
    }

    /// Goes over to the spare, if there is one.
    pub(crate) fn roll(&mut self) -> bool {
        let Some(spare) = self.spares.pop_front() else {
            self.wanted = true;
            return false;
        };
        self.link = Link { salt: self.current.salt, checksum: self.current.chain };
        let next = Current {
            file: spare.file,
            path: spare.path,
            first_seq: Seq::ZERO,
            salt: self.current.next_salt,
            next_salt: self.salts.next(),
            offset: 0,
            bytes: spare.bytes,
            filled: spare.filled,
            filling_to: spare.filled,
            chain: 0,
            next_seq: Seq::ZERO,
            recycled: spare.recycled,
            renamed: false,
        };
        self.retired.push_back(std::mem::replace(&mut self.current, next));
        true
    }

    /// Whether no chore is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.chore.is_none()
    }

    /// The path of an open segment.
    pub(crate) fn path_of(&self, file: FileId) -> PathBuf {
        let retired = self.retired.iter().find(|segment| segment.file == file);
        retired.unwrap_or(&self.current).path.clone()
    }

    /// An open segment.
    pub(crate) fn segment_mut(&mut self, file: FileId) -> &mut Current {
        let retired = self.retired.iter_mut().find(|segment| segment.file == file);
        retired.unwrap_or(&mut self.current)
    }
}
