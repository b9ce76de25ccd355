//! What is on the disk, told piece by piece, however damaged. Changes nothing and locks nothing.

use std::fmt;
use std::path::{Path, PathBuf};

use ticktape_core::{Frame, Seq, frame};

use crate::announced::{Proof, proof};
use crate::disk::{FileDisk, FileId, Op, OpenMode, Outcome};
use crate::error::{Damage, JournalError};
use crate::format::commit::{self, CommitError, CommitHeader};
use crate::format::seal::Sealed;
use crate::format::segment::{HeaderError, SegmentHeader, V1_HEADER_BYTES, Version};
use crate::limits::READ_CHUNK_BYTES;
use crate::names;
use crate::reader::LIST_TRIES;
use crate::recover::{self, at, open, run};
use crate::recovery::Announced;
use crate::scan::{
    Chain, evidence_behind_mark, evidence_without_header, frame_version_1, is_blank, is_journaled, look_behind,
    look_behind_version_1,
};
use crate::sealed::read_seal;
use crate::window::Window;

/// One piece of a journal. Offsets are in bytes within the segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact<'a> {
    /// A segment begins.
    Segment {
        /// The file.
        path: &'a Path,
        /// Its size.
        bytes: u64,
        /// What it says of itself, or why that can't be read.
        header: Result<SegmentHeader, HeaderError>,
    },
    /// A sound commit of the segment's chain.
    Commit {
        /// Where it starts.
        offset: u64,
        /// Its size with header and padding.
        bytes: usize,
        /// Its header.
        header: CommitHeader,
    },
    /// A sound frame.
    Frame {
        /// Where it starts.
        offset: u64,
        /// The frame.
        frame: Frame<'a>,
    },
    /// Something that is not what belongs there. The chain ends at a damaged commit; after a damaged frame the next commit
    /// follows.
    Damaged {
        /// Where.
        offset: u64,
        /// The seq that belongs there.
        seq: Seq,
        /// What is wrong.
        damage: Damage,
    },
    /// Seqs that are in no segment: between the one before this and the one after it, or behind the last one although they are
    /// known to have been durable.
    Gap {
        /// The first of them.
        from: Seq,
        /// The last of them.
        to: Seq,
    },
    /// The chain ends, and this lies behind.
    End {
        /// Where it ends.
        offset: u64,
        /// The seq after its last frame.
        next_seq: Seq,
        /// Up to where commits behind the end prove that the journal was durable; 0 if they prove nothing.
        durable_behind: Seq,
        /// Whether there are only blanks behind; in a file that was used before, nothing with the salt of this use.
        blank_behind: bool,
    },
    /// The seal file.
    Sealed {
        /// What was durable when the journal was last opened, or stopped in order; `None` if it is damaged.
        durable: Option<Seq>,
    },
}

impl fmt::Display for Fact<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::Segment { path, bytes, header: Err(error) } => {
                write!(f, "{}: {bytes} bytes, {error}", path.display())
            }
            Fact::Segment { path, bytes, header: Ok(header) } => {
                let (first, epoch) = (header.first_seq, header.epoch);
                write!(f, "{}: {bytes} bytes, from seq {first}, epoch {epoch}, ", path.display())?;
                match header.version {
                    Version::One => write!(f, "version 1"),
                    Version::Two { alignment, .. } => write!(f, "version 2, blocks of {alignment}"),
                }
            }
            Fact::Commit { offset, bytes, header: CommitHeader { base_seq, count: 0, durable, epoch, .. } } => {
                write!(f, "  {offset:>10} seal: {bytes} bytes, before seq {base_seq}, epoch {epoch}, durable {durable}")
            }
            Fact::Commit { offset, bytes, header } => {
                let (base, last) = (header.base_seq, header.next_seq().0 - 1);
                let (epoch, durable) = (header.epoch, header.durable);
                write!(f, "  {offset:>10} commit: {bytes} bytes, seq {base}..{last}, epoch {epoch}, durable {durable}")
            }
            Fact::Frame { offset, frame } => {
                let Frame { seq, timestamp, stream_id, kind, payload } = frame;
                let (time, len) = (timestamp.0, payload.len());
                write!(
                    f,
                    "  {offset:>10}   frame: seq {seq}, {kind:?}, stream {stream_id}, time {time}, payload {len} bytes"
                )
            }
            Fact::Damaged { offset, seq, damage } => write!(f, "  {offset:>10} DAMAGED at seq {seq}: {damage}"),
            Fact::Gap { from, to } => write!(f, "MISSING: seq {from} to {to} are in no sound segment"),
            Fact::End { offset, next_seq, durable_behind, blank_behind } => {
                write!(f, "  {offset:>10} end: next seq {next_seq}, ")?;
                match (blank_behind, durable_behind) {
                    (true, _) => write!(f, "nothing behind"),
                    (false, &Seq::ZERO) => write!(f, "torn or stale bytes behind"),
                    (false, durable) => write!(f, "commits behind prove that seq {durable} was durable"),
                }
            }
            Fact::Sealed { durable: None } => write!(f, "sealed: damaged"),
            Fact::Sealed { durable: Some(durable) } => write!(f, "sealed: durable up to seq {durable}"),
        }
    }
}

/// What a whole inspection came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Files with a sound segment header.
    pub segments: u64,
    /// Sound commits, seals included.
    pub commits: u64,
    /// Sound frames.
    pub frames: u64,
    /// Places where acknowledged data is damaged or missing, or nothing but damage explains what is there.
    pub damaged: u64,
    /// Places where the log breaks off behind everything that is known to have been durable: what a crash leaves, and the next
    /// opening cuts.
    pub torn: u64,
    /// The first sound frame's seq.
    pub first_seq: Option<Seq>,
    /// The last sound frame's seq.
    pub last_seq: Option<Seq>,
    /// The highest seq that anything proves to have been durable.
    pub durable: Seq,
}

/// Tells `visit` every piece of `path`, a journal's directory or one segment, in the order of the segments' first seqs. Beside
/// a live writer what it is just writing may look damaged: look again.
///
/// # Errors
/// Only where the disk fails, or there is no segment: damage is a fact.
pub fn inspect(path: &Path, visit: &mut dyn FnMut(&Fact<'_>)) -> Result<Summary, JournalError> {
    let mut disk = FileDisk::new();
    let mut window = Window::new(READ_CHUNK_BYTES);
    let mut tries = 0;
    let (files, sealed) = loop {
        match files(&mut disk, &mut window, path) {
            // A live writer renamed it or took it away since it was listed.
            Err(JournalError::Disk { error, .. }) if error.is_missing() && tries < LIST_TRIES => tries += 1,
            found => break found?,
        }
    };
    let is_one = files[0].path == path;
    let said = sealed.flatten().unwrap_or_default();
    let summary = Summary { durable: said.durable, ..Summary::default() };
    let mut inspection = Inspection {
        disk: &mut disk,
        window: &mut window,
        summary,
        visit,
        breaks: Vec::new(),
        before: None,
        begun: None,
        salts: files.iter().filter_map(|listed| listed.salt).collect(),
        announced: Vec::new(),
        is_moving: false,
    };
    inspection.announce(said.next_salt, said.durable.next());
    for listed in files {
        inspection.file(path, listed.first_seq, &listed.path)?;
    }
    if !is_one && !inspection.is_moving {
        inspection.missing_tail();
    }
    let summary = inspection.finish();
    if let Some(sealed) = sealed {
        visit(&Fact::Sealed { durable: sealed.map(|sealed| sealed.durable) });
    }
    Ok(summary)
}

/// The names of what may be segments, and what the seal file says. It is read first: what it promises was there before then.
fn list(
    disk: &mut FileDisk,
    window: &mut Window,
    dir: &Path,
) -> Result<(Vec<PathBuf>, Option<Option<Sealed>>), JournalError> {
    let (_, has_seal) = recover::list(disk, dir)?;
    let sealed = if has_seal { Some(read_seal(disk, window, dir)?) } else { None };
    Ok((recover::list(disk, dir)?.0, sealed))
}

/// A file with the seq that it begins with, and its salt if it has a sound header.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    first_seq: Seq,
    path: PathBuf,
    salt: Option<u64>,
}

/// What may be segments, in order, and what the seal file says, if there is one.
fn files(
    disk: &mut FileDisk,
    window: &mut Window,
    path: &Path,
) -> Result<(Vec<Listed>, Option<Option<Sealed>>), JournalError> {
    let (paths, sealed) = match list(disk, window, path) {
        Ok((names, sealed)) => (names.into_iter().map(|name| path.join(name)).collect(), sealed),
        Err(JournalError::Disk { error, .. }) if error.errno == libc::ENOTDIR => (vec![path.to_owned()], None),
        Err(error) => return Err(error),
    };
    if paths.is_empty() {
        return Err(JournalError::Empty { dir: path.to_owned() });
    }
    Ok((sorted_by_first_seq(disk, window, paths)?, sealed))
}

/// Files whose header can't be read keep the place that their name gives them, which for sound ones is the same.
fn sorted_by_first_seq(
    disk: &mut FileDisk,
    window: &mut Window,
    paths: Vec<PathBuf>,
) -> Result<Vec<Listed>, JournalError> {
    let mut keyed = Vec::with_capacity(paths.len());
    for path in paths {
        let file = open(disk, &path, OpenMode::ReadDirect)?;
        let header = recover::header(disk, window, file).map_err(|error| at(&path, error))?;
        run(disk, &path, Op::Close { file })?;
        let named = names::segment_seq(&path).unwrap_or(Seq::MAX);
        let first_seq = header.map_or(named, |(header, _)| header.first_seq);
        keyed.push(Listed { first_seq, path, salt: header.ok().map(|(header, _)| header.salt()) });
    }
    keyed.sort();
    Ok(keyed)
}

/// Where the log stands after a segment.
#[derive(Clone, Copy, Debug)]
struct Before {
    next_seq: Seq,
    /// The segment's salt, its last checksum and its last epoch; `None` if its header is lost.
    link: Option<(u64, u32, u64)>,
}

struct Inspection<'a, 'v> {
    disk: &'a mut FileDisk,
    window: &'a mut Window,
    summary: Summary,
    visit: &'a mut (dyn FnMut(&Fact<'_>) + 'v),
    /// The seqs at which the log breaks off. Whether that is damage shows when everything that proves what was durable was seen.
    breaks: Vec<Seq>,
    before: Option<Before>,
    /// Where the segment that was looked at last begins.
    begun: Option<Seq>,
    /// Of every file with a sound header.
    salts: Vec<u64>,
    /// Segments that were announced so far, and have no sound header.
    announced: Vec<Announced>,
    /// Whether a live writer took something away meanwhile: where the log ends then is not where it ended.
    is_moving: bool,
}

impl Inspection<'_, '_> {
    /// A file that was listed. A live writer may have given a spare its final name since, or taken a segment away.
    fn file(&mut self, dir: &Path, first_seq: Seq, path: &Path) -> Result<(), JournalError> {
        let is_gone = |done: &Result<FileId, JournalError>| matches!(done, Err(JournalError::Disk { error, .. }) if error.is_missing());
        let opened = open(self.disk, path, OpenMode::ReadDirect);
        if !is_gone(&opened) {
            return self.segment(path, opened?);
        }
        let named = names::segment(dir, first_seq);
        let renamed = open(self.disk, &named, OpenMode::ReadDirect);
        if !is_gone(&renamed) {
            return self.segment(&named, renamed?);
        }
        (self.before, self.is_moving) = (None, true);
        Ok(())
    }

    fn segment(&mut self, path: &Path, file: FileId) -> Result<(), JournalError> {
        let Outcome::Stat(stat) = run(self.disk, path, Op::Stat { file })? else { unreachable!("stat stats") };
        let header = recover::header(self.disk, self.window, file).map_err(|error| at(path, error))?;
        let joint = header.ok().map(|(header, _)| self.joint(&header));
        (self.visit)(&Fact::Segment { path, bytes: stat.bytes, header: header.map(|(header, _)| header) });
        match header {
            Ok((header, crc)) => {
                self.summary.segments += 1;
                if let Some(Some(damage)) = joint {
                    (self.visit)(&Fact::Damaged { offset: 0, seq: header.first_seq, damage });
                }
                match Chain::begin(file, &header, crc) {
                    Some(chain) => self.commits(path, chain)?,
                    None => self.version_1(path, file, &header)?,
                }
            }
            Err(HeaderError::Version(_)) => self.summary.damaged += 1,
            Err(HeaderError::Recycled) => self.free(path, file)?,
            Err(_) => self.without_header(path, file)?,
        }
        run(self.disk, path, Op::Close { file })?;
        Ok(())
    }

    /// Whether the segment goes on where the one before it ended; tells the gap if there is one.
    fn joint(&mut self, header: &SegmentHeader) -> Option<Damage> {
        let twice = self.begun.replace(header.first_seq) == Some(header.first_seq);
        let Before { next_seq, link } = self.before?;
        if matches!(link, Some((0, ..))) {
            // Version 1 synced before it rolled.
            self.summary.durable = self.summary.durable.max(Seq(header.first_seq.0 - 1));
        }
        if header.first_seq > next_seq {
            self.gap(next_seq, Seq(header.first_seq.0 - 1));
            return None;
        }
        let goes_on = link.is_none_or(|(salt, checksum, epoch)| {
            (header.previous_salt(), header.previous_checksum()) == (salt, checksum) && header.epoch >= epoch
        });
        if header.first_seq == next_seq && goes_on {
            return None;
        }
        self.break_off(header.first_seq);
        Some(if twice { Damage::Twice } else { Damage::Unlinked })
    }

    fn gap(&mut self, from: Seq, to: Seq) {
        self.break_off(from);
        (self.visit)(&Fact::Gap { from, to });
    }

    /// The log breaks off before `seq`. What is found of that in more than one way is one place.
    fn break_off(&mut self, seq: Seq) {
        if self.breaks.last() != Some(&seq) {
            self.breaks.push(seq);
        }
    }

    /// A file that was given up to be used again; unless the header of a later use is lost.
    fn free(&mut self, path: &Path, file: FileId) -> Result<(), JournalError> {
        let marked = evidence_behind_mark(self.disk, self.window, file).map_err(|error| at(path, error))?;
        let beginning_lost = self.announced_in(path, file)?.filter(|proof| proof.durable >= proof.first_seq);
        let found = marked.or(beginning_lost.map(|proof| (proof.first_seq, proof.durable)));
        if let Some((first_seq, durable)) = found {
            self.summary.durable = self.summary.durable.max(durable);
            let next_seq = self.before.get_or_insert(Before { next_seq: first_seq, link: None }).next_seq;
            self.break_off(next_seq);
        }
        Ok(())
    }

    /// A file that was not begun, or whose header is lost.
    fn without_header(&mut self, path: &Path, file: FileId) -> Result<(), JournalError> {
        let (disk, window) = (&mut *self.disk, &mut *self.window);
        if is_blank(disk, window, file).map_err(|error| at(path, error))? {
            return Ok(());
        }
        let found = evidence_without_header(disk, window, file).map_err(|error| at(path, error))?;
        let announced = self.announced_in(path, file)?.map_or(Seq::ZERO, |proof| proof.durable);
        let durable = found.map_or(Seq::ZERO, |(_, durable)| durable).max(announced);
        self.summary.durable = self.summary.durable.max(durable);
        let named = names::segment_seq(path).unwrap_or(Seq::FIRST);
        let next_seq = self.before.get_or_insert(Before { next_seq: named, link: None }).next_seq;
        self.break_off(next_seq);
        Ok(())
    }

    /// What commits prove there that have an announced salt, which is told.
    fn announced_in(&mut self, path: &Path, file: FileId) -> Result<Option<Proof>, JournalError> {
        if self.announced.is_empty() {
            return Ok(None);
        }
        let found = proof(self.disk, self.window, file, &self.announced).map_err(|error| at(path, error))?;
        if let Some(Proof { at: commit_at, first_seq: seq, durable }) = found
            && durable >= seq
        {
            (self.visit)(&Fact::Damaged { offset: 0, seq, damage: Damage::Beginning { commit_at } });
        }
        Ok(found)
    }

    fn announce(&mut self, salt: u64, first_seq: Seq) {
        if salt != 0 && !self.salts.contains(&salt) {
            self.announced.push(Announced { salt, first_seq });
        }
    }

    /// Seqs that were durable and are behind the last segment.
    fn missing_tail(&mut self) {
        let next_seq = self.before.map_or(Seq::FIRST, |before| before.next_seq);
        if self.summary.durable >= next_seq {
            self.gap(next_seq, self.summary.durable);
        }
    }

    fn finish(self) -> Summary {
        let mut summary = self.summary;
        let damaged = self.breaks.iter().filter(|&&seq| seq <= summary.durable).count() as u64;
        summary.damaged += damaged;
        summary.torn = self.breaks.len() as u64 - damaged;
        summary
    }

    fn commits(&mut self, path: &Path, mut chain: Chain) -> Result<(), JournalError> {
        let damage = loop {
            match chain.step(self.disk, self.window).map_err(|error| at(path, error))? {
                Ok(found) => {
                    self.summary.commits += 1;
                    self.summary.durable = self.summary.durable.max(found.header.durable);
                    (self.visit)(&Fact::Commit { offset: found.at, bytes: found.bytes, header: found.header });
                    let bytes = self.window.again(self.disk, found.at, found.bytes);
                    frames(bytes, found.at, &found.header, &mut self.summary, self.visit);
                }
                Err(damage) => break damage,
            }
        };
        let behind = look_behind(self.disk, self.window, &chain).map_err(|error| at(path, error))?;
        let (offset, next_seq) = (chain.at, chain.next_seq);
        if damage != Damage::Commit(CommitError::Blank) || !behind.blank {
            self.break_off(next_seq);
            (self.visit)(&Fact::Damaged { offset, seq: next_seq, damage });
        }
        // No torn tail looks like a sound commit of an earlier epoch.
        let fell = if matches!(damage, Damage::EpochFell { .. }) { next_seq } else { Seq::ZERO };
        self.summary.durable = self.summary.durable.max(behind.durable).max(fell);
        let next_salt = if chain.next_salt == 0 { behind.next_salt } else { chain.next_salt };
        self.announce(next_salt, next_seq);
        let checksum = chain.previous.expect("begun from a header");
        self.before = Some(Before { next_seq, link: Some((chain.salt, checksum, chain.epoch)) });
        let (durable_behind, blank_behind) = (behind.durable, behind.blank);
        (self.visit)(&Fact::End { offset, next_seq, durable_behind, blank_behind });
        Ok(())
    }

    fn version_1(&mut self, path: &Path, file: FileId, header: &SegmentHeader) -> Result<(), JournalError> {
        let (mut offset, mut seq) = (V1_HEADER_BYTES as u64, header.first_seq);
        let damage = loop {
            match frame_version_1(self.disk, self.window, file, offset, seq).map_err(|error| at(path, error))? {
                Some(Ok(bytes)) => {
                    let frame = Frame::decode(self.window.again(self.disk, offset, bytes)).expect("just verified");
                    tell_frame(offset, frame, &mut self.summary, self.visit);
                    offset += bytes as u64;
                    seq = seq.next();
                }
                Some(Err(damage)) => break Some(damage),
                None => break None,
            }
        };
        self.before = Some(Before { next_seq: seq, link: Some((0, 0, header.epoch)) });
        let Some(damage) = damage else {
            let end = Fact::End { offset, next_seq: seq, durable_behind: Seq::ZERO, blank_behind: true };
            (self.visit)(&end);
            return Ok(());
        };
        let durable = match damage {
            // Sound as it is, it was not torn.
            Damage::Kind(_) => seq,
            _ => look_behind_version_1(self.disk, self.window, file, offset, seq).map_err(|error| at(path, error))?.0,
        };
        self.summary.durable = self.summary.durable.max(durable);
        self.break_off(seq);
        (self.visit)(&Fact::Damaged { offset, seq, damage });
        Ok(())
    }
}

fn tell_frame(offset: u64, frame: Frame<'_>, summary: &mut Summary, visit: &mut dyn FnMut(&Fact<'_>)) {
    summary.frames += 1;
    summary.first_seq.get_or_insert(frame.seq);
    summary.last_seq = Some(frame.seq);
    visit(&Fact::Frame { offset, frame });
}

/// Each frame of a sound commit, up to the first that is not one.
fn frames(bytes: &[u8], offset: u64, header: &CommitHeader, summary: &mut Summary, visit: &mut dyn FnMut(&Fact<'_>)) {
    let (mut within, end) = (commit::HEADER_BYTES, commit::HEADER_BYTES + header.length as usize);
    let mut seq = header.base_seq;
    while seq < header.next_seq() {
        let damage = match Frame::decode(bytes.get(within..end).unwrap_or_default()) {
            Ok(frame) if frame.seq == seq && is_journaled(frame.kind) => {
                tell_frame(offset + within as u64, frame, summary, visit);
                within += frame::padded(frame.bytes());
                seq = seq.next();
                continue;
            }
            Ok(frame) if frame.seq == seq => Damage::Kind(frame.kind),
            Ok(frame) => Damage::OutOfOrder(frame.seq),
            Err(error) => Damage::Frame(error),
        };
        summary.damaged += 1;
        visit(&Fact::Damaged { offset: offset + within as u64, seq, damage });
        return;
    }
    if within != end {
        summary.damaged += 1;
        visit(&Fact::Damaged { offset: offset + within as u64, seq, damage: Damage::Ragged });
    }
}
