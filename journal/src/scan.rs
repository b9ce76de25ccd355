//! Walking a segment's chain, and looking for evidence behind its end.

use ticktape_core::{Frame, FrameError, Kind, Seq, frame};

use crate::disk::{Disk, DiskError, FileId};
use crate::error::Damage;
use crate::format::commit::{self, CommitError, CommitHeader};
use crate::format::segment::{self, SegmentHeader, Version};
use crate::format::{u32_at, u64_at};
use crate::limits::{ALIGNMENT_BYTES_MAX, ALIGNMENT_BYTES_MIN};
use crate::recovery::ScanFacts;
use crate::window::Window;

/// A place in a version 2 segment's chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    pub(crate) file: FileId,
    pub(crate) salt: u64,
    pub(crate) alignment: usize,
    /// Where the next commit is to start.
    pub(crate) at: u64,
    /// The checksum it has to carry as `previous`; `None` accepts any, where the header is lost.
    pub(crate) previous: Option<u32>,
    /// The seq it has to begin with.
    pub(crate) next_seq: Seq,
    /// The epoch it may not fall below.
    pub(crate) epoch: u64,
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
        let Version::Two { salt, alignment, .. } = header.version else { return None };
        Some(Chain {
            file,
            salt,
            alignment: alignment as usize,
            at: u64::from(alignment),
            previous: Some(header_crc),
            next_seq: header.first_seq,
            epoch: header.epoch,
        })
    }

    /// The next commit if it is one, verified as a whole; moves behind it. Or why the chain ends here, and stays.
    pub(crate) fn step<D: Disk>(
        &mut self,
        disk: &mut D,
        window: &mut Window,
    ) -> Result<Result<Found, Damage>, DiskError> {
        let head = window.view(disk, self.file, self.at, self.alignment)?;
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
    let facts = ScanFacts {
        next_seq: chain.next_seq,
        epoch: chain.epoch,
        checksum: chain.previous.expect("begun from a header"),
        durable: durable.max(behind.durable),
        clean: behind.blank,
    };
    Ok(Scan { facts, end_offset: chain.at, damage })
}

/// What lies behind the end of a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behind {
    /// The highest `durable` of any commit there that has the segment's salt and a sound checksum.
    pub(crate) durable: Seq,
    /// Whether there are only blanks.
    pub(crate) blank: bool,
}

/// Looks at every block from the end of the chain to the end of the file. The salt, which never leaves the box, is what
/// makes a commit found there evidence: no client can have written it into a payload.
pub(crate) fn look_behind<D: Disk>(disk: &mut D, window: &mut Window, chain: &Chain) -> Result<Behind, DiskError> {
    let mut behind = Behind { durable: Seq::ZERO, blank: true };
    let mut at = chain.at;
    loop {
        let bytes = window.view(disk, chain.file, at, chain.alignment)?;
        if bytes.is_empty() {
            return Ok(behind);
        }
        if bytes.iter().all(|&byte| byte == 0) {
            at += bytes.len() as u64;
            continue;
        }
        match CommitHeader::declared_bytes(bytes, chain.alignment) {
            Err(CommitError::Blank) => {}
            Err(_) => behind.blank = false,
            Ok(declared) => {
                behind.blank = false;
                let bytes = window.view(disk, chain.file, at, declared)?;
                if let Ok((header, _)) = CommitHeader::decode(bytes, chain.alignment)
                    && header.salt == chain.salt
                {
                    behind.durable = behind.durable.max(header.durable);
                }
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
        if bytes.is_empty() || bytes.iter().any(|&byte| byte != 0) {
            return Ok(bytes.is_empty());
        }
        at += bytes.len() as u64;
    }
}

/// What a file proves whose segment header cannot be read: the commit right behind the header tells the salt, and its chain
/// is evidence. Where that commit stands depends on the block size, which is lost, too.
pub(crate) fn evidence_without_header<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    file: FileId,
) -> Result<Seq, DiskError> {
    let mut lost = [0; ALIGNMENT_BYTES_MAX];
    let block = window.view(disk, file, 0, ALIGNMENT_BYTES_MAX)?;
    let there = block.len().min(lost.len());
    lost[..there].copy_from_slice(&block[..there]);
    let mut durable = Seq::ZERO;
    for alignment in (0..).map(|power| ALIGNMENT_BYTES_MIN << power).take_while(|&bytes| bytes <= ALIGNMENT_BYTES_MAX) {
        let at = alignment as u64;
        let head = window.view(disk, file, at, alignment)?;
        let Ok(declared) = CommitHeader::declared_bytes(head, alignment) else { continue };
        let bytes = window.view(disk, file, at, declared)?;
        let Ok((header, _)) = CommitHeader::decode(bytes, alignment) else { continue };
        if !may_be_first(&header, &lost[..alignment]) {
            continue;
        }
        let next_seq = header.base_seq;
        let mut chain = Chain { file, salt: header.salt, alignment, at, previous: None, next_seq, epoch: 0 };
        while let Ok(found) = chain.step(disk, window)? {
            durable = durable.max(found.header.durable);
        }
        durable = durable.max(look_behind(disk, window, &chain)?.durable);
    }
    Ok(durable)
}

/// Whether this sound commit, found behind a header block that is damaged, is the segment's first, and no payload of a segment
/// with smaller blocks. What is left of the header says so; if nothing is left, there must be nothing else either.
fn may_be_first(commit: &CommitHeader, lost: &[u8]) -> bool {
    let salt = u64_at(lost, segment::SALT) == commit.salt;
    let checksum = u32_at(lost, segment::HEADER_CRC) == commit.previous;
    salt || checksum || lost[ALIGNMENT_BYTES_MIN..].iter().all(|&byte| byte == 0)
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
    let facts = ScanFacts { next_seq: seq, epoch: header.epoch, checksum: 0, durable, clean };
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
        blank &= bytes.iter().all(|&byte| byte == 0);
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
