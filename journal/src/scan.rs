//! Walking a segment's chain, and looking for evidence behind its end.

use ticktape_core::{Frame, FrameError, Kind, Seq, frame};

use crate::disk::{Disk, DiskError, FileId};
use crate::error::Damage;
use crate::format::commit::{self, CommitError, CommitHeader};
use crate::format::recycle::RecycleMark;
use crate::format::segment::{self, SegmentHeader, Version};
use crate::format::{is_zero, u32_at, u64_at};
use crate::limits::{ALIGNMENT_BYTES_MAX, ALIGNMENT_BYTES_MIN};
use crate::recovery::ScanFacts;
use crate::window::Window;

/// A place in a version 2 segment's chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    pub(crate) file: FileId,
    pub(crate) salt: u64,
    pub(crate) alignment: usize,
    /// Whether commits of an earlier use may stand where none of this one does.
    pub(crate) recycled: bool,
    /// Where the next commit is to start.
    pub(crate) at: u64,
    /// The checksum it has to carry as `previous`; `None` accepts any, where the header is lost.
    pub(crate) previous: Option<u32>,
    /// The seq it has to begin with.
    pub(crate) next_seq: Seq,
    /// The epoch it may not fall below.
    pub(crate) epoch: u64,
    /// The salt of the next segment, as the last commit announced it; 0 before the first.
    pub(crate) next_salt: u64,
}

/// A commit of the chain: where it is, and what its header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) at: u64,
    pub(crate) bytes: usize,
    pub(crate) header: CommitHeader,
}

impl Chain {
    /// The chain of a version 2 segment with this header and header checksum; `None` for version 1.
    pub(crate) fn begin(file: FileId, header: &SegmentHeader, header_crc: u32) -> Option<Chain> {
        let Version::Two { salt, alignment, recycled, .. } = header.version else { return None };
        Some(Chain {
            file,
            salt,
            alignment: alignment as usize,
            recycled,
            at: u64::from(alignment),
            previous: Some(header_crc),
            next_seq: header.first_seq,
            epoch: header.epoch,
            next_salt: 0,
        })
    }

    /// The next commit if it is one, verified as a whole; moves behind it. Or why the chain ends here, and stays.
    pub(crate) fn step<D: Disk>(
        &mut self,
        disk: &mut D,
        window: &mut Window,
    ) -> Result<Result<Found, Damage>, DiskError> {
        let head = window.view(disk, self.file, self.at, self.alignment)?;
        if self.recycled && !has_salt(head, self.salt) {
            return Ok(Err(Damage::Commit(CommitError::Blank)));
        }
        let declared = match CommitHeader::declared_bytes(head, self.alignment) {
            Ok(bytes) => bytes,
            Err(error) => return Ok(Err(Damage::Commit(error))),
        };
        let bytes = window.view(disk, self.file, self.at, declared)?;
        Ok(self.accept(bytes))
    }

    fn accept(&mut self, bytes: &[u8]) -> Result<Found, Damage> {
        let (header, checksum) = CommitHeader::decode(bytes, self.alignment).map_err(Damage::Commit)?;
        if header.salt != self.salt {
            return Err(Damage::Commit(CommitError::Salt));
        }
        if self.previous.is_some_and(|previous| previous != header.previous) {
            return Err(Damage::Commit(CommitError::Previous));
        }
        if header.base_seq != self.next_seq {
            return Err(Damage::OutOfOrder(header.base_seq));
        }
        if header.epoch < self.epoch {
            return Err(Damage::EpochFell { epoch: header.epoch, before: self.epoch });
        }
        let found = Found { at: self.at, bytes: header.total_bytes(self.alignment), header };
        self.at += found.bytes as u64;
        self.previous = Some(checksum);
        self.next_seq = header.next_seq();
        self.epoch = header.epoch;
        self.next_salt = header.next_salt;
        Ok(found)
    }
}

/// What a whole segment holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan {
    pub(crate) facts: ScanFacts,
    /// Where the chain ends.
    pub(crate) end_offset: u64,
    /// Why it ends there.
    pub(crate) damage: Damage,
}

/// Reads a segment to its end, and what lies behind.
pub(crate) fn scan<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    file: FileId,
    header: &SegmentHeader,
    header_crc: u32,
) -> Result<Scan, DiskError> {
    let Some(mut chain) = Chain::begin(file, header, header_crc) else {
        return scan_version_1(disk, window, file, header);
    };
    let mut durable = Seq::ZERO;
    let damage = loop {
        match chain.step(disk, window)? {
            Ok(found) => durable = durable.max(found.header.durable),
            Err(damage) => break damage,
        }
    };
    if matches!(damage, Damage::EpochFell { .. }) {
        // No torn tail looks like this: a sound commit that belongs here is never cut.
        durable = durable.max(chain.next_seq);
    }
    let behind = look_behind(disk, window, &chain)?;
    Ok(end_of_chain(&chain, durable, &behind, damage))
}

/// What a segment holds whose chain ends here, in which commits showed `durable`, for this reason.
pub(crate) fn end_of_chain(chain: &Chain, durable: Seq, behind: &Behind, damage: Damage) -> Scan {
    let facts = ScanFacts {
        next_seq: chain.next_seq,
        epoch: chain.epoch,
        checksum: chain.previous.unwrap_or_default(),
        durable: durable.max(behind.durable),
        clean: behind.blank,
        next_salt: if chain.next_salt == 0 { behind.next_salt } else { chain.next_salt },
    };
    Scan { facts, end_offset: chain.at, damage }
}

/// Whether a block begins a commit with this salt, as far as can be seen without its checksum.
///
/// In a recycled segment this decides what is there: a block without the salt counts as blank, whatever it holds. The argument:
/// - What an earlier use left behind is not told from a part of a torn write by anything but the salt. Neither is evidence:
///   only a sound commit with the salt is, and such a one has the salt in its first block.
/// - So the end of the log is where it would be over zeros: before the first block that is no sound commit with the salt that
///   continues the chain. A torn write of the newest commit leaves its head (salt, no checksum: told as torn) or only later parts
///   of it (no salt: as if nothing had been written). Either way nothing of it was acknowledged.
/// - Rot in what was acknowledged is noticed by what comes later, here as over zeros: the `durable` of later commits, which are
///   found by their salt wherever they stand, of later segments, and of the seal file. Where the rot took the salt itself, the
///   place reads as blank, which is no less an end before what is known to have been durable: refused.
/// - So nothing has to be zeroed ahead for the log's sake, and the extents are written ones: it costs nothing not to.
///
/// Looking at the salt before the checksum also means that stale payloads full of commit headers cost a reader nothing.
pub(crate) fn has_salt(block: &[u8], salt: u64) -> bool {
    block.get(commit::SALT..commit::SALT + 8).is_some_and(|bytes| bytes == salt.to_le_bytes())
}

/// What lies behind the end of a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behind {
    /// The highest `durable` of any commit there that has the segment's salt and a sound checksum.
    pub(crate) durable: Seq,
    /// Whether there are only blanks; in a recycled segment, no block with its salt.
    pub(crate) blank: bool,
    /// The salt of the next segment, as such a commit announces it; 0 where there is none.
    pub(crate) next_salt: u64,
}

/// Looks at every block from the end of the chain to the end of the file. The salt, which never leaves the box, is what
/// makes a commit found there evidence: no client can have written it into a payload.
pub(crate) fn look_behind<D: Disk>(disk: &mut D, window: &mut Window, chain: &Chain) -> Result<Behind, DiskError> {
    let mut behind = Behind { durable: Seq::ZERO, blank: true, next_salt: 0 };
    let mut at = chain.at;
    loop {
        let bytes = window.view(disk, chain.file, at, chain.alignment)?;
        if bytes.is_empty() {
            return Ok(behind);
        }
        let ours = has_salt(bytes, chain.salt);
        let block = &bytes[..bytes.len().min(chain.alignment)];
        behind.blank &= if chain.recycled { !ours } else { is_zero(block) };
        if ours && let Ok(declared) = CommitHeader::declared_bytes(bytes, chain.alignment) {
            let bytes = window.view(disk, chain.file, at, declared)?;
            if let Ok((header, _)) = CommitHeader::decode(bytes, chain.alignment) {
                behind.durable = behind.durable.max(header.durable);
                behind.next_salt = header.next_salt;
            }
        }
        at += chain.alignment as u64;
    }
}

/// Whether a file holds nothing but zeros.
pub(crate) fn is_blank<D: Disk>(disk: &mut D, window: &mut Window, file: FileId) -> Result<bool, DiskError> {
    let mut at = 0;
    loop {
        let bytes = window.view(disk, file, at, ALIGNMENT_BYTES_MAX)?;
        if bytes.is_empty() || !is_zero(bytes) {
            return Ok(bytes.is_empty());
        }
        at += bytes.len() as u64;
    }
}

/// What a file proves whose segment header cannot be read: the commit right behind the header tells the salt, and its chain
/// is evidence. Where that commit stands depends on the block size, which is lost, too. Returns the seq that the commit begins with, and up to
/// where it and what follows prove that the journal was durable.
pub(crate) fn evidence_without_header<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    file: FileId,
) -> Result<Option<(Seq, Seq)>, DiskError> {
    let mut lost = [0; ALIGNMENT_BYTES_MAX];
    let block = window.view(disk, file, 0, ALIGNMENT_BYTES_MAX)?;
    let there = block.len().min(lost.len());
    lost[..there].copy_from_slice(&block[..there]);
    let mut found: Option<(Seq, Seq)> = None;
    for alignment in (0..).map(|power| ALIGNMENT_BYTES_MIN << power).take_while(|&bytes| bytes <= ALIGNMENT_BYTES_MAX) {
        let at = alignment as u64;
        let head = window.view(disk, file, at, alignment)?;
        let Ok(declared) = CommitHeader::declared_bytes(head, alignment) else { continue };
        let bytes = window.view(disk, file, at, declared)?;
        let Ok((header, _)) = CommitHeader::decode(bytes, alignment) else { continue };
        if !may_be_first(&header, &lost[..alignment]) {
            continue;
        }
        let (first, durable) = found.unwrap_or((header.base_seq, Seq::ZERO));
        found = Some((first, durable.max(evidence_of_chain(disk, window, file, at, alignment, &header)?)));
    }
    Ok(found)
}

/// What the chain that begins with the commit `first` at `at`, and what is behind it, proves to have been durable.
fn evidence_of_chain<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    file: FileId,
    at: u64,
    alignment: usize,
    first: &CommitHeader,
) -> Result<Seq, DiskError> {
    let (salt, next_seq) = (first.salt, first.base_seq);
    let (previous, epoch, next_salt) = (None, 0, 0);
    let mut chain = Chain { file, salt, alignment, recycled: true, at, previous, next_seq, epoch, next_salt };
    let mut durable = Seq::ZERO;
    while let Ok(found) = chain.step(disk, window)? {
        durable = durable.max(found.header.durable);
    }
    Ok(durable.max(look_behind(disk, window, &chain)?.durable))
}

/// What a file with a recycle mark proves. Nothing, unless the header of a later use was lost: then the first commit, which stands
/// at the same place in every use, has another salt than the mark says of the use that ended. Where something in that use
/// was acknowledged, which a crash in the middle of its first write does not leave behind, returns its first seq, and up to
/// where it proves that the journal was durable.
pub(crate) fn evidence_behind_mark<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    file: FileId,
) -> Result<Option<(Seq, Seq)>, DiskError> {
    let Some(mark) = RecycleMark::decode(window.view(disk, file, 0, ALIGNMENT_BYTES_MAX)?) else { return Ok(None) };
    let (at, alignment) = (u64::from(mark.alignment), mark.alignment as usize);
    if !alignment.is_power_of_two() || !(ALIGNMENT_BYTES_MIN..=ALIGNMENT_BYTES_MAX).contains(&alignment) {
        return Ok(None);
    }
    let head = window.view(disk, file, at, alignment)?;
    let Ok(declared) = CommitHeader::declared_bytes(head, alignment) else { return Ok(None) };
    if has_salt(head, mark.salt) {
        return Ok(None);
    }
    let bytes = window.view(disk, file, at, declared)?;
    let Ok((first, _)) = CommitHeader::decode(bytes, alignment) else { return Ok(None) };
    let durable = evidence_of_chain(disk, window, file, at, alignment, &first)?;
    Ok((durable >= first.base_seq).then_some((first.base_seq, durable)))
}

/// Whether this sound commit, found behind a header block that is damaged, is the segment's first, and no payload of a segment
/// with smaller blocks. What is left of the header says so; if nothing is left, there must be nothing else either.
fn may_be_first(commit: &CommitHeader, lost: &[u8]) -> bool {
    let salt = u64_at(lost, segment::SALT) == commit.salt;
    let checksum = u32_at(lost, segment::HEADER_CRC) == commit.previous;
    salt || checksum || is_zero(&lost[ALIGNMENT_BYTES_MIN..])
}

/// The frame at `at` of a version 1 segment, which has to have this seq: its size, or what is wrong. `None` at the end.
pub(crate) fn frame_version_1<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    file: FileId,
    at: u64,
    seq: Seq,
) -> Result<Option<Result<usize, Damage>>, DiskError> {
    let head = window.view(disk, file, at, frame::OVERHEAD_BYTES)?;
    if head.is_empty() {
        return Ok(None);
    }
    if let Err(error) = Frame::view(head)
        && !matches!(error, FrameError::Short { needed, .. } if needed > frame::OVERHEAD_BYTES)
    {
        return Ok(Some(Err(Damage::Frame(error))));
    }
    let bytes = frame::frame_bytes(frame::payload_len(head));
    let whole = window.view(disk, file, at, bytes)?;
    Ok(Some(match Frame::decode(whole) {
        Ok(frame) if frame.seq != seq => Err(Damage::OutOfOrder(frame.seq)),
        Ok(frame) if !is_journaled_version_1(frame.kind) => Err(Damage::Kind(frame.kind)),
        Ok(_) => Ok(bytes),
        Err(error) => Err(Damage::Frame(error)),
    }))
}

fn scan_version_1<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    file: FileId,
    header: &SegmentHeader,
) -> Result<Scan, DiskError> {
    let mut at = segment::V1_HEADER_BYTES as u64;
    let mut seq = header.first_seq;
    let end = Damage::Commit(CommitError::Blank);
    let damage = loop {
        match frame_version_1(disk, window, file, at, seq)? {
            None => break end,
            Some(Err(damage)) => break damage,
            Some(Ok(bytes)) => {
                at += bytes as u64;
                seq = seq.next();
            }
        }
    };
    let (mut durable, mut clean) = (Seq::ZERO, damage == end);
    if matches!(damage, Damage::Kind(_)) {
        // Sound as it is, it was not torn: it is never cut.
        (durable, clean) = (seq, false);
    } else if !clean {
        (durable, clean) = look_behind_version_1(disk, window, file, at, seq)?;
    }
    let facts = ScanFacts { next_seq: seq, epoch: header.epoch, checksum: 0, durable, clean, next_salt: 0 };
    Ok(Scan { facts, end_offset: at, damage })
}

/// Version 1 was appended in order: a sound frame behind a damaged one proves that the damaged one was once sound.
pub(crate) fn look_behind_version_1<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    file: FileId,
    from: u64,
    broken: Seq,
) -> Result<(Seq, bool), DiskError> {
    let mut blank = true;
    let mut at = from;
    loop {
        let bytes = window.view(disk, file, at, frame::OVERHEAD_BYTES)?;
        if bytes.is_empty() {
            return Ok((Seq::ZERO, blank));
        }
        blank &= is_zero(bytes);
        let starts = bytes.len().saturating_sub(frame::OVERHEAD_BYTES - 1);
        for start in 0..starts {
            if let Ok(frame) = Frame::decode(&bytes[start..])
                && frame.seq > broken
            {
                return Ok((Seq(frame.seq.0 - 1), false));
            }
        }
        // The last few bytes of a window begin no frame that it shows; at the end of the file they begin none at all.
        at += if starts == 0 { bytes.len() } else { starts } as u64;
    }
}

/// Whether frames of this kind stand in a version 2 journal.
pub(crate) fn is_journaled(kind: Kind) -> bool {
    is_journaled_version_1(kind) && kind != Kind::TimerFired
}

/// The same for version 1, which had its timers journaled.
fn is_journaled_version_1(kind: Kind) -> bool {
    !matches!(kind, Kind::Output | Kind::Heartbeat)
}

/// Checks every frame of a verified commit: place, kind, header checksum, payload checksum. Returns what is wrong and where in
/// the commit.
pub(crate) fn check_frames(commit: &[u8], header: &CommitHeader) -> Result<(), (usize, Damage)> {
    let end = commit::HEADER_BYTES + header.length as usize;
    let mut at = commit::HEADER_BYTES;
    for index in 0..u64::from(header.count) {
        let frame = Frame::decode(&commit[at..end]).map_err(|error| (at, Damage::Frame(error)))?;
        if frame.seq.0 != header.base_seq.0 + index {
            return Err((at, Damage::OutOfOrder(frame.seq)));
        }
        if !is_journaled(frame.kind) {
            return Err((at, Damage::Kind(frame.kind)));
        }
        at += frame::padded(frame.bytes());
        if at > end {
            return Err((end, Damage::Ragged));
        }
    }
    if at == end { Ok(()) } else { Err((at, Damage::Ragged)) }
}
