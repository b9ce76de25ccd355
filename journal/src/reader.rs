//! Reading the log forward: history, and on beside the live writer.

use std::path::{Path, PathBuf};

use ticktape_core::{Seq, frame};

use crate::disk::{Disk, FileDisk, FileId, Op, OpenMode, Outcome};
use crate::error::{Damage, JournalError};
use crate::format::commit::{CommitError, HEADER_BYTES};
use crate::format::segment::V1_HEADER_BYTES;
use crate::limits::READ_CHUNK_BYTES;
use crate::recover::{self, Segment, at, run};
use crate::scan::{Chain, check_frames, frame_version_1};
use crate::seek::seek;
use crate::window::Window;

mod directory;

/// How often a directory is looked at again when files change their names meanwhile. Each segment does so once as it is begun
/// and once as it is taken away, and a look takes less than writing a segment does, so these tries are many.
pub(crate) const LIST_TRIES: usize = 64;

/// Verified frames that stand back to back. Iterating yields each frame's exact bytes, without its pad.
#[derive(Clone, Debug)]
pub struct FrameRun<'a> {
    /// The epoch of all of them.
    pub epoch: u64,
    bytes: &'a [u8],
    /// Whether a pad to 8 bytes follows each frame.
    padded: bool,
}

impl<'a> FrameRun<'a> {
    /// The frames with their pads, as they stand in the segment.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> Iterator for FrameRun<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.bytes.is_empty() {
            return None;
        }
        let bytes = frame::frame_bytes(frame::payload_len(self.bytes));
        let step = if self.padded { frame::padded(bytes) } else { bytes };
        let (frame, rest) = (&self.bytes[..bytes], &self.bytes[step..]);
        self.bytes = rest;
        Some(frame)
    }
}

/// A place in the log.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In no open segment: the next one has to be found.
    Between,
    /// Before a commit.
    Chain(Chain),
    /// Within a verified commit: where the next frame starts, and the frames end.
    Commit { chain: Chain, at: u64, end: u64, epoch: u64 },
    /// In a version 1 segment.
    VersionOne { file: FileId, at: u64, epoch: u64 },
}

/// A streaming reader. It holds one buffer and one open segment, whatever the size of the journal.
#[derive(Debug)]
pub struct JournalReader<D: Disk = FileDisk> {
    disk: D,
    dir: PathBuf,
    window: Window,
    /// The segments by first seq, as last listed.
    segments: Vec<Segment>,
    /// The first seq of the open one, if the place is in one.
    current: Seq,
    place: Place,
    /// Frames before this one are passed over.
    from: Seq,
    /// The seq of the next frame at `place`.
    at_seq: Seq,
    durable: Option<Seq>,
    /// What the seal file says: segments that begin at or before it are closed.
    sealed: Seq,
    /// The highest `durable` of the commits that were passed.
    seen: Seq,
    /// The end that was found to be one, so that it is examined once.
    examined: Option<Seq>,
}

impl JournalReader {
    /// Opens the journal in `dir` for reading from `from` on, beside its writer or without one. Nothing is changed or locked.
    ///
    /// # Errors
    /// [`JournalError`]: no such directory, no journal in it, or one that begins after `from`.
    pub fn open(dir: &Path, from: Seq) -> Result<JournalReader, JournalError> {
        JournalReader::open_on(FileDisk::new(), dir, from)
    }
}

impl<D: Disk> JournalReader<D> {
    /// As [`JournalReader::open`], on a disk of the caller's.
    ///
    /// # Errors
    /// As [`JournalReader::open`].
    pub fn open_on(disk: D, dir: &Path, from: Seq) -> Result<JournalReader<D>, JournalError> {
        let from = from.max(Seq::FIRST);
        let mut reader = JournalReader {
            disk,
            dir: dir.to_owned(),
            window: Window::new(READ_CHUNK_BYTES),
            segments: Vec::new(),
            current: Seq::ZERO,
            place: Place::Between,
            from,
            at_seq: from,
            durable: None,
            sealed: Seq::ZERO,
            seen: Seq::ZERO,
            examined: None,
        };
        reader.refresh()?;
        match reader.segments.first() {
            Some(first) if first.header.first_seq > from => {
                let first = first.header.first_seq;
                Err(reader.too_old(first))
            }
            Some(_) => Ok(reader),
            None => {
                reader.check_it_is_a_journal()?;
                Ok(reader)
            }
        }
    }

    /// The next frame: its exact bytes, checksums verified. `None` is the end of what is there for now; a later call goes on.
    ///
    /// # Errors
    /// [`JournalError`]: acknowledged data is damaged or missing, or the disk fails; [`JournalError::TooOld`] where what comes next
    /// was released and taken away meanwhile.
    #[inline]
    #[allow(clippy::should_implement_trait)] // It lends, which `Iterator` can't.
    pub fn next(&mut self) -> Result<Option<&[u8]>, JournalError> {
        if !self.find_frames()? {
            return Ok(None);
        }
        let head = match self.place {
            Place::Commit { at, end, .. } => self.window.again(&self.disk, at, (end - at) as usize),
            Place::VersionOne { at, .. } => self.window.again(&self.disk, at, frame::OVERHEAD_BYTES),
            _ => unreachable!("frames were found"),
        };
        let bytes = frame::frame_bytes(frame::payload_len(head));
        let start = self.pass_frame(bytes);
        self.from = self.at_seq;
        Ok(Some(self.window.again(&self.disk, start, bytes)))
    }

    /// The next frames that stand together: the rest of a commit, as far as it may be read. As [`JournalReader::next`], but
    /// many at once.
    ///
    /// # Errors
    /// As [`JournalReader::next`].
    pub fn next_run(&mut self) -> Result<Option<FrameRun<'_>>, JournalError> {
        if !self.find_frames()? {
            return Ok(None);
        }
        let (start, epoch, padded, whole) = match self.place {
            Place::Commit { chain, at, end, epoch } => {
                let may_all = self.durable.is_none_or(|durable| chain.next_seq.0 - 1 <= durable.0);
                (at, epoch, true, may_all.then_some((end, chain)))
            }
            Place::VersionOne { at, epoch, .. } => (at, epoch, false, None),
            _ => unreachable!("frames were found"),
        };
        let end = match whole {
            Some((end, chain)) => {
                self.at_seq = chain.next_seq;
                self.place = Place::Chain(chain);
                end
            }
            None => self.pass_allowed(start),
        };
        self.from = self.at_seq;
        let bytes = self.window.again(&self.disk, start, (end - start) as usize);
        Ok(Some(FrameRun { epoch, bytes, padded }))
    }

    /// What the writer says is durable: nothing beyond it is read, and everything up to it has to be there.
    pub fn set_durable(&mut self, durable: Seq) {
        assert!(self.durable.is_none_or(|before| before <= durable), "the watermark never moves back");
        self.durable = Some(durable);
    }

    /// The seq of the frame that [`JournalReader::next`] will return.
    pub fn next_seq(&self) -> Seq {
        self.from.max(self.at_seq)
    }

    /// The first seq of the journal, as last listed; `None` when nothing is there.
    pub fn first_seq(&self) -> Option<Seq> {
        self.segments.first().map(|segment| segment.header.first_seq)
    }

    /// Which log the segments are of, as last listed; `None` where none says.
    pub fn log_id(&self) -> Option<u64> {
        self.segments.iter().map(|segment| segment.header.log_id()).find(|&log_id| log_id != 0)
    }

    /// Moves past the frame at the place, which has so many bytes; returns where it starts.
    #[inline]
    fn pass_frame(&mut self, bytes: usize) -> u64 {
        self.at_seq = self.at_seq.next();
        match &mut self.place {
            Place::Commit { chain, at, end, .. } => {
                let start = *at;
                *at += frame::padded(bytes) as u64;
                if at == end {
                    self.place = Place::Chain(*chain);
                }
                start
            }
            Place::VersionOne { at, .. } => {
                let start = *at;
                *at += bytes as u64;
                start
            }
            _ => unreachable!("frames were found"),
        }
    }

    /// Moves past what may be read of a commit, or past one frame of version 1; returns where that ends.
    fn pass_allowed(&mut self, start: u64) -> u64 {
        let (mut end, limit) = (start, self.durable.unwrap_or(Seq::MAX));
        while let Place::Commit { at, .. } | Place::VersionOne { at, .. } = self.place
            && self.at_seq <= limit
        {
            let one = matches!(self.place, Place::VersionOne { .. });
            let head = self.window.again(&self.disk, at, frame::OVERHEAD_BYTES);
            let bytes = frame::frame_bytes(frame::payload_len(head));
            end = self.pass_frame(bytes) + if one { bytes } else { frame::padded(bytes) } as u64;
            if one {
                break;
            }
        }
        end
    }

    /// Goes on until the place is at a verified frame that may be read; false at the end of what is there.
    #[inline]
    fn find_frames(&mut self) -> Result<bool, JournalError> {
        loop {
            if self.durable.is_some_and(|durable| self.next_seq() > durable) {
                return Ok(false);
            }
            let moved = match self.place {
                Place::Commit { at, .. } if self.at_seq < self.from => {
                    let head = self.window.again(&self.disk, at, frame::OVERHEAD_BYTES);
                    let bytes = frame::frame_bytes(frame::payload_len(head));
                    self.pass_frame(bytes);
                    true
                }
                Place::Commit { .. } => return Ok(true),
                Place::Chain(chain) => self.step(chain)?,
                Place::VersionOne { file, at, .. } => match self.step_version_1(file, at)? {
                    Some(bytes) if self.at_seq < self.from => {
                        self.pass_frame(bytes);
                        true
                    }
                    Some(_) => return Ok(true),
                    None => !matches!(self.place, Place::VersionOne { .. }),
                },
                Place::Between => self.enter()?,
            };
            if !moved {
                return Ok(false);
            }
        }
    }

    /// Reads the next commit, or moves to the next segment; false when there is neither.
    fn step(&mut self, mut chain: Chain) -> Result<bool, JournalError> {
        for fresh in [false, true] {
            if fresh {
                // What the window holds may be from before the writer wrote there.
                self.window.forget();
            }
            let found = chain.step(&mut self.disk, &mut self.window).map_err(|error| self.disk_error(error))?;
            let damage = match found {
                Ok(found) => {
                    return self.enter_commit(chain, found.at, found.bytes, &found.header).map(|()| true);
                }
                Err(damage) => damage,
            };
            if !fresh {
                continue;
            }
            return self.end_of_chain(chain, damage);
        }
        unreachable!("the second look decides")
    }

    fn enter_commit(
        &mut self,
        chain: Chain,
        start: u64,
        bytes: usize,
        header: &crate::format::commit::CommitHeader,
    ) -> Result<(), JournalError> {
        let commit = self.window.again(&self.disk, start, bytes);
        if let Err((within, damage)) = check_frames(commit, header) {
            return Err(self.corrupt(start + within as u64, header.base_seq, header.durable, damage));
        }
        self.examined = None;
        self.seen = self.seen.max(header.durable);
        let passed = chain.next_seq <= self.from;
        self.place = if header.count == 0 || passed {
            self.at_seq = chain.next_seq;
            Place::Chain(chain)
        } else {
            self.at_seq = header.base_seq;
            let at = start + HEADER_BYTES as u64;
            Place::Commit { chain, at, end: at + u64::from(header.length), epoch: header.epoch }
        };
        Ok(())
    }

    /// Nothing more at this place of this segment: on to the next segment, or the end, or damage; or the segment is gone.
    fn end_of_chain(&mut self, chain: Chain, damage: Damage) -> Result<bool, JournalError> {
        if self.leave(&chain)? {
            return Ok(true);
        }
        let is_last = self.segments.iter().all(|segment| segment.header.first_seq <= chain.next_seq);
        if self.durable.is_none() && is_last && self.examined == Some(chain.next_seq) {
            return Ok(false);
        }
        let Some(chain) = self.reopen(chain)? else { return self.taken_away() };
        let durable = match self.durable {
            Some(durable) => durable,
            // A sound commit that belongs here was not torn.
            None if matches!(damage, Damage::EpochFell { .. }) => chain.next_seq.max(self.known_durable()?),
            None => self.known_durable()?,
        };
        if durable < chain.next_seq {
            self.examined = Some(chain.next_seq);
            return Ok(false);
        }
        // It was durable before this look, so a look from now on finds it, here or in a next segment.
        self.window.forget();
        let mut again = chain;
        if again.step(&mut self.disk, &mut self.window).map_err(|error| self.disk_error(error))?.is_ok() {
            return Ok(true);
        }
        if self.leave(&chain)? {
            return Ok(true);
        }
        if self.reopen(chain)?.is_none() {
            return self.taken_away();
        }
        Err(self.broken_off(chain.at, chain.next_seq, durable, damage))
    }

    /// The error of a segment that ends before acknowledged data, at `offset` for this reason.
    fn broken_off(&mut self, offset: u64, seq: Seq, durable: Seq, damage: Damage) -> JournalError {
        if let Some(first) = self.first_seq().filter(|&first| first > seq) {
            return self.too_old(first);
        }
        if damage != Damage::Commit(CommitError::Blank) {
            return self.corrupt(offset, seq, durable, damage);
        }
        let here = self.current;
        let next = self.segments.iter().find(|segment| segment.header.first_seq > here);
        let next_first = next.map(|next| next.header.first_seq);
        if let Some(next) = next.filter(|next| next.header.first_seq <= seq) {
            let segment = next.path.clone();
            return JournalError::Corrupt { segment, offset: 0, seq, durable, damage: Damage::Unlinked };
        }
        if let Some(error) = self.header_lost(seq..next_first.unwrap_or(Seq::MAX)) {
            return error;
        }
        match next_first {
            Some(_) => recover::missing(&self.dir, &self.segments, seq, durable),
            None => self.corrupt(offset, seq, durable, damage),
        }
    }

    /// The error of a journal that begins at `first`, after what is to be read.
    fn too_old(&mut self, first: Seq) -> JournalError {
        let taken_away = JournalError::TooOld { from: self.from, first };
        self.header_lost(Seq::ZERO..first).unwrap_or(taken_away)
    }

    /// The size of the frame at the place of a version 1 segment; `None` when there is none, or the place has changed.
    fn step_version_1(&mut self, file: FileId, at: u64) -> Result<Option<usize>, JournalError> {
        let found = frame_version_1(&mut self.disk, &mut self.window, file, at, self.at_seq);
        let damage = match found.map_err(|error| self.disk_error(error))? {
            Some(Ok(bytes)) => return Ok(Some(bytes)),
            Some(Err(damage)) => Some(damage),
            None => None,
        };
        let end = self.at_seq;
        if self.leave_version_1(end)? {
            return Ok(None);
        }
        if self.examined == Some(end) {
            return Ok(None);
        }
        let durable = match self.durable {
            Some(durable) => durable,
            None => self.known_durable()?,
        };
        if durable >= end {
            let damage = damage.unwrap_or(Damage::Commit(CommitError::Blank));
            return Err(self.broken_off(at, end, durable, damage));
        }
        self.examined = Some(end);
        Ok(None)
    }

    /// Goes on to the segment that follows the chain, if it is there.
    fn leave(&mut self, chain: &Chain) -> Result<bool, JournalError> {
        self.leave_to(chain.next_seq, chain.epoch, (chain.salt, chain.previous.unwrap_or_default()))
    }

    fn leave_version_1(&mut self, next_seq: Seq) -> Result<bool, JournalError> {
        let Place::VersionOne { epoch, .. } = self.place else { unreachable!("that is where it is") };
        self.leave_to(next_seq, epoch, (0, 0))
    }

    /// `link` is the salt of the segment and the last checksum in it.
    fn leave_to(&mut self, next_seq: Seq, epoch: u64, link: (u64, u32)) -> Result<bool, JournalError> {
        let here = self.current;
        let follows = |segment: &Segment| {
            let header = &segment.header;
            let linked = (header.previous_salt(), header.previous_checksum()) == link && header.epoch >= epoch;
            linked && header.first_seq == next_seq && header.first_seq > here
        };
        if !self.segments.iter().any(follows) {
            self.refresh()?;
        }
        let Some(index) = self.segments.iter().position(follows) else { return Ok(false) };
        self.close_current()?;
        self.open_segment(index)
    }

    /// Finds the segment to begin in.
    fn enter(&mut self) -> Result<bool, JournalError> {
        if self.segments.is_empty() {
            self.refresh()?;
        }
        let Some(index) = self.segments.iter().rposition(|segment| segment.header.first_seq <= self.from) else {
            if let Some(first) = self.first_seq() {
                return Err(self.too_old(first));
            }
            let durable = match self.durable {
                Some(durable) => durable,
                None => self.known_durable()?,
            };
            if durable >= self.from {
                // It was durable before this look, so a look from now on finds the segment: it was just being begun.
                self.refresh()?;
                if !self.segments.is_empty() {
                    return Ok(true);
                }
                let lost = self.header_lost(self.from..Seq::MAX);
                return Err(lost.unwrap_or_else(|| recover::missing(&self.dir, &self.segments, self.from, durable)));
            }
            return Ok(false);
        };
        self.open_segment(index)
    }

    fn open_segment(&mut self, index: usize) -> Result<bool, JournalError> {
        let first_seq = self.segments[index].header.first_seq;
        for _ in 0..LIST_TRIES {
            let listed = self.segments.iter().position(|segment| segment.header.first_seq == first_seq);
            let Some(index) = listed else { return self.taken_away() };
            let closed = index + 1 < self.segments.len() || first_seq <= self.sealed;
            let mode = if closed { OpenMode::Read } else { OpenMode::ReadDirect };
            match self.disk.run(Op::Open { path: &self.segments[index].path, mode }) {
                Ok(Outcome::Opened(file)) => return self.begin(index, file).map(|()| true),
                Ok(_) => unreachable!("open opens"),
                // Renamed since it was listed, or taken away.
                Err(error) if error.is_missing() => self.refresh()?,
                Err(error) => return Err(at(&self.segments[index].path, error)),
            }
        }
        self.taken_away()
    }

    fn begin(&mut self, index: usize, file: FileId) -> Result<(), JournalError> {
        self.window.forget();
        let Segment { header, header_crc, .. } = &self.segments[index];
        self.current = header.first_seq;
        self.at_seq = header.first_seq;
        self.place = match Chain::begin(file, header, *header_crc) {
            Some(chain) => Place::Chain(chain),
            None => Place::VersionOne { file, at: V1_HEADER_BYTES as u64, epoch: header.epoch },
        };
        self.seek()
    }

    /// In a version 2 segment, goes on to near the first wanted frame.
    fn seek(&mut self) -> Result<(), JournalError> {
        let Place::Chain(chain) = self.place else { return Ok(()) };
        if self.from <= chain.next_seq {
            return Ok(());
        }
        let known = self.sealed.max(self.seen).max(self.durable.unwrap_or_default());
        let found = seek(&mut self.disk, &mut self.window, &chain, self.from, known);
        let (chain, durable) = found.map_err(|error| self.disk_error(error))?;
        self.window.forget();
        self.at_seq = chain.next_seq;
        self.seen = self.seen.max(durable);
        self.place = Place::Chain(chain);
        Ok(())
    }

    fn close_current(&mut self) -> Result<(), JournalError> {
        if let Place::Chain(Chain { file, .. })
        | Place::Commit { chain: Chain { file, .. }, .. }
        | Place::VersionOne { file, .. } = self.place
        {
            run(&mut self.disk, &self.dir, Op::Close { file })?;
        }
        self.place = Place::Between;
        Ok(())
    }

    fn corrupt(&self, offset: u64, seq: Seq, durable: Seq, damage: Damage) -> JournalError {
        JournalError::Corrupt { segment: self.current_path().to_owned(), offset, seq, durable, damage }
    }

    fn disk_error(&self, error: crate::disk::DiskError) -> JournalError {
        at(self.current_path(), error)
    }

    /// The open segment, or the directory when there is none or it is gone.
    fn current_path(&self) -> &Path {
        let open = self.segments.iter().find(|segment| segment.header.first_seq == self.current);
        open.map_or(&self.dir, |segment| &segment.path)
    }
}
