//! Carrying out recovery: gathers the facts, asks the table, applies its verdict.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ticktape_core::Seq;

use crate::announced;
use crate::disk::{BufferId, Disk, DiskError, FileId, Op, OpenMode, Outcome};
use crate::error::{Damage, JournalError};
use crate::format::commit::CommitError;
use crate::format::seal::Sealed;
use crate::format::segment::{HeaderError, SegmentHeader, Version, stored_crc};
use crate::limits::{ALIGNMENT_BYTES_MAX, ALIGNMENT_BYTES_MIN, READ_CHUNK_BYTES};
use crate::names;
use crate::recovery::{self, Refusal, SegmentFacts, Verdict, decide};
use crate::release::Closed;
use crate::scan::{
    Chain, Scan, end_of_chain, evidence_behind_mark, evidence_without_header, is_blank, look_behind, scan,
};
use crate::sealed::read_seal;
use crate::window::Window;

/// What a journal held when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The seq of the first frame there is; where there is none, of the first there will be: 1 in a new journal.
    pub first_seq: Seq,
    /// The seq that the next append has to have.
    pub next_seq: Seq,
    /// The epoch of the last commit that was kept.
    pub last_epoch: u64,
    /// What was cut off, if anything that looked like data was.
    pub cut: Option<Cut>,
    /// Segments that were kept.
    pub segments: usize,
    /// Which log it is: see [`Journal::log_id`](crate::Journal::log_id).
    pub log_id: u64,
    /// Files with a segment's name that are none that can be read, and nothing of which was missed: under the names that they have
    /// now.
    pub set_aside: Vec<PathBuf>,
}

impl Recovered {
    /// What an operator should hear of it: a line for each file that was set aside.
    pub fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        self.set_aside
            .iter()
            .map(|path| format!("{} has no header of this log that can be read, and was set aside", path.display()))
    }
}

/// A tail that was never acknowledged, and was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment in which the log broke off.
    pub segment: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// The first seq that is gone, if it was there at all.
    pub from_seq: Seq,
    /// Segments after it that were deleted, or set aside as `.damaged`.
    pub segments: usize,
}

/// How the next segment is linked to what is there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    pub(crate) salt: u64,
    pub(crate) checksum: u32,
}

/// A segment with a sound header.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) header: SegmentHeader,
    pub(crate) header_crc: u32,
}

/// A file with a segment's name whose header can't be read.
#[derive(Clone, Debug)]
pub(crate) struct Stray {
    pub(crate) path: PathBuf,
    pub(crate) error: HeaderError,
    /// Whether the whole file is zeros.
    pub(crate) blank: bool,
    /// The seq that it begins at, by its name or its first commit, or as what announced it says.
    pub(crate) first_seq: Option<Seq>,
    /// The seq that the commit behind the lost header begins with, whichever use it is of.
    pub(crate) first_commit: Option<Seq>,
    /// Where a sound commit with an announced salt stands.
    pub(crate) commits_at: Option<u64>,
}

impl Stray {
    /// The error of it, where something from `seq` on was acknowledged and is in it.
    fn corrupt(&self, seq: Seq, durable: Seq) -> JournalError {
        let damage = match self.commits_at {
            Some(commit_at) => Damage::Beginning { commit_at },
            None => Damage::Header(self.error),
        };
        JournalError::Corrupt { segment: self.path.clone(), offset: 0, seq, durable, damage }
    }
}

/// What a journal goes on from.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) recovered: Recovered,
    pub(crate) link: Link,
    /// Up to here everything is durable now.
    pub(crate) durable: Seq,
    /// The segments that were kept.
    pub(crate) closed: VecDeque<Closed>,
}

/// A disk with the paths that its errors are about.
pub(crate) fn run<D: Disk>(disk: &mut D, path: &Path, op: Op<'_>) -> Result<Outcome, JournalError> {
    disk.run(op).map_err(|error| at(path, error))
}

pub(crate) fn at(path: &Path, error: DiskError) -> JournalError {
    JournalError::Disk { path: path.to_owned(), error }
}

pub(crate) fn open<D: Disk>(disk: &mut D, path: &Path, mode: OpenMode) -> Result<FileId, JournalError> {
    match run(disk, path, Op::Open { path, mode })? {
        Outcome::Opened(file) => Ok(file),
        _ => unreachable!("open opens"),
    }
}

/// Opens a file that was just listed, for reading beside a writer. `None` where it is no longer there: no segment loses its final
/// name unless it is taken away. A spare may have got that name, so a missing one is an error, and to be listed again.
pub(crate) fn open_listed<D: Disk>(disk: &mut D, path: &Path) -> Result<Option<FileId>, JournalError> {
    match open(disk, path, OpenMode::ReadDirect) {
        Ok(file) => Ok(Some(file)),
        Err(JournalError::Disk { error, .. }) if error.is_missing() && !names::is_spare(path) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The names of what may be segments, and whether there is a seal file.
pub(crate) fn list<D: Disk>(disk: &mut D, dir: &Path) -> Result<(Vec<PathBuf>, bool), JournalError> {
    let Outcome::Names(all) = run(disk, dir, Op::List { path: dir })? else { unreachable!("list lists") };
    let sealed = all.iter().any(|name| name.as_os_str() == names::SEALED);
    let mut segments: Vec<PathBuf> = all.into_iter().filter(|name| names::may_be_segment(name)).collect();
    segments.sort_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
    Ok((segments, sealed))
}

/// Reads a file's segment header.
pub(crate) fn header<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    file: FileId,
) -> Result<Result<(SegmentHeader, u32), HeaderError>, DiskError> {
    let block = window.head(disk, file, ALIGNMENT_BYTES_MAX)?;
    let block = &block[..block.len().min(ALIGNMENT_BYTES_MAX)];
    Ok(SegmentHeader::decode(block).map(|header| {
        let crc = if header.salt() == 0 { 0 } else { stored_crc(block) };
        (header, crc)
    }))
}

/// Up to where, by all evidence in the directory, the journal was durable. For readers, who change nothing.
pub(crate) fn known_durable<D: Disk>(disk: &mut D, window: &mut Window, dir: &Path) -> Result<Seq, JournalError> {
    let mut facts = list_facts(disk, window, dir, OpenMode::ReadDirect)?;
    read_back_to_the_acknowledged(disk, window, &mut facts, OpenMode::ReadDirect)?;
    announced::look(disk, window, &mut facts, OpenMode::ReadDirect)?;
    Ok(facts.durable())
}

/// The same for a reader that has read the last segment up to the end of `chain`, whose commits showed `seen`: only what lies
/// behind is looked at. `None` if it is not the last.
pub(crate) fn known_durable_at_end<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    dir: &Path,
    chain: &Chain,
    seen: Seq,
) -> Result<Option<Seq>, JournalError> {
    let mut facts = list_facts(disk, window, dir, OpenMode::ReadDirect)?;
    let Some(last) = facts.segments.last().filter(|last| last.header.salt() == chain.salt) else { return Ok(None) };
    let behind = look_behind(disk, window, chain).map_err(|error| at(&last.path, error))?;
    let scan = end_of_chain(chain, seen, &behind, Damage::Commit(CommitError::Blank));
    *facts.scans.last_mut().expect("one for each segment") = Some(scan);
    announced::look(disk, window, &mut facts, OpenMode::ReadDirect)?;
    Ok(Some(facts.durable()))
}

/// Which log the segments in `dir` are of: what the newest of them that carries an identity says. `None` where none does.
pub(crate) fn log_id<D: Disk>(disk: &mut D, dir: &Path) -> Result<Option<u64>, JournalError> {
    let mut window = Window::new(ALIGNMENT_BYTES_MAX);
    let mut found = Ok(None);
    let (mut names, _) = list(disk, dir)?;
    // Spares last: most hold nothing.
    names.sort_by_key(|name| !names::is_spare(name));
    while let Some(name) = names.pop() {
        let path = names::within(dir, &name);
        found = log_id_of(disk, &mut window, &path);
        if !matches!(found, Ok(None)) {
            break;
        }
    }
    window.release(disk);
    found
}

/// What one file says. Beside a live writer it may have another name by now; then a neighbour of it says the same.
fn log_id_of<D: Disk>(disk: &mut D, window: &mut Window, path: &Path) -> Result<Option<u64>, JournalError> {
    let file = match open(disk, path, OpenMode::ReadDirect) {
        Err(JournalError::Disk { error, .. }) if error.is_missing() => return Ok(None),
        opened => opened?,
    };
    let header = header(disk, window, file).map_err(|error| at(path, error));
    run(disk, path, Op::Close { file })?;
    Ok(header?.ok().map(|(header, _)| header.log_id()).filter(|&log_id| log_id != 0))
}

/// The error of segments of more than one log, if they are.
pub(crate) fn check_one_log(segments: &[Segment]) -> Result<(), JournalError> {
    let mut known = segments.iter().filter(|segment| segment.header.log_id() != 0);
    let Some(first) = known.next() else { return Ok(()) };
    match known.find(|segment| segment.header.log_id() != first.header.log_id()) {
        Some(segment) => Err(other_log(segment, first)),
        None => Ok(()),
    }
}

fn other_log(segment: &Segment, other: &Segment) -> JournalError {
    JournalError::OtherLog { segment: segment.path.clone(), other: other.path.clone() }
}

/// For readers who miss some of `seqs`: the error of the file that by its name begins there and has lost its header, if there is
/// one.
pub(crate) fn header_lost<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    dir: &Path,
    seqs: Range<Seq>,
) -> Result<Option<JournalError>, JournalError> {
    let mut facts = list_facts(disk, window, dir, OpenMode::ReadDirect)?;
    read_back_to_the_acknowledged(disk, window, &mut facts, OpenMode::ReadDirect)?;
    announced::look(disk, window, &mut facts, OpenMode::ReadDirect)?;
    Ok(lost_header(&facts, seqs))
}

/// Everything recovery knows of a directory.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) segments: Vec<Segment>,
    scans: Vec<Option<Scan>>,
    pub(crate) strays: Vec<Stray>,
    /// Files that were given up to be used again.
    pub(crate) free: Vec<PathBuf>,
    pub(crate) sealed: Sealed,
    /// What the seal file and files without a header prove.
    pub(crate) durable: Seq,
}

impl Facts {
    /// Files without a sound header that hold nothing before `from`, and commits that say so.
    pub(crate) fn strays_from(&self, from: Seq) -> impl Iterator<Item = &Path> {
        let begins_there = move |stray: &&Stray| stray.first_commit.is_some_and(|first| first >= from);
        self.strays.iter().filter(begins_there).map(|stray| stray.path.as_path())
    }

    fn durable(&self) -> Seq {
        recovery::known_durable(&self.table(), self.durable)
    }

    pub(crate) fn table(&self) -> Vec<SegmentFacts> {
        let facts = |(segment, scan): (&Segment, &Option<Scan>)| SegmentFacts {
            first_seq: segment.header.first_seq,
            epoch: segment.header.epoch,
            salt: segment.header.salt(),
            previous_salt: segment.header.previous_salt(),
            previous_checksum: segment.header.previous_checksum(),
            log_id: segment.header.log_id(),
            scan: scan.map(|scan| scan.facts),
        };
        self.segments.iter().zip(&self.scans).map(facts).collect()
    }
}

/// Recovers `dir`, which exists and is locked. A snapshot covers everything up to `covered`.
pub(crate) fn recover<D: Disk>(disk: &mut D, dir: &Path, covered: Seq) -> Result<Opening, JournalError> {
    let mut window = Window::new(READ_CHUNK_BYTES);
    let mut facts = list_facts(disk, &mut window, dir, OpenMode::Write)?;
    let last = read_back_to_the_acknowledged(disk, &mut window, &mut facts, OpenMode::Write)?;
    // One more, so that the link to it is compared, too. Links before that are compared by whoever reads there.
    if let Some(before) = last.checked_sub(1) {
        read(disk, &mut window, &mut facts, before, OpenMode::Write)?;
    }
    announced::look(disk, &mut window, &mut facts, OpenMode::Write)?;
    let first = facts.segments.first().map(|segment| segment.header.first_seq);
    // What a snapshot covers nobody misses.
    let missed = first.filter(|&first| covered == Seq::ZERO || first > covered.next());
    if let Some(error) = missed.and_then(|first| lost_header(&facts, Seq::ZERO..first)) {
        window.release(disk);
        return Err(error);
    }
    let stray = facts.strays.iter().any(|stray| !stray.blank);
    let mut verdict = decide(&facts.table(), facts.durable, stray, covered);
    while let Verdict::Refuse(Refusal::Unlinked { segment, .. }) = verdict
        && facts.scans[segment - 1].is_none()
    {
        // Where the one before it ends tells a segment that is missing between the two from one that does not belong here.
        read(disk, &mut window, &mut facts, segment - 1, OpenMode::ReadDirect)?;
        verdict = decide(&facts.table(), facts.durable, stray, covered);
    }
    window.release(disk);
    // Of those that are cut, too: what is begun in their place is the same log.
    let log_id = recovery::log_id(&facts.table());
    match verdict {
        Verdict::Begin { next_seq } => {
            take_free_away(disk, dir, &facts.free)?;
            let set_aside = set_strays_aside(disk, dir, &facts.strays)?;
            let (first_seq, last_epoch, cut, segments) = (next_seq, 0, None, 0);
            let recovered = Recovered { first_seq, next_seq, last_epoch, cut, segments, log_id, set_aside };
            // What a snapshot covers is not said to stand in the log.
            let durable = facts.durable();
            Ok(Opening { recovered, link: Link::default(), durable, closed: VecDeque::new() })
        }
        Verdict::Adopt { keep, next_seq, cut } => {
            let mut opening = adopt(disk, dir, &facts, keep, next_seq, cut)?;
            opening.recovered.log_id = log_id;
            Ok(opening)
        }
        Verdict::Refuse(refusal) => Err(refuse(dir, &facts, refusal, covered)),
    }
}

/// All but what is in the segments.
pub(crate) fn list_facts<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    dir: &Path,
    mode: OpenMode,
) -> Result<Facts, JournalError> {
    let (names, has_seal) = list(disk, dir)?;
    let sealed = if has_seal { read_seal(disk, window, dir)?.unwrap_or_default() } else { Sealed::default() };
    let durable = sealed.durable;
    let (segments, scans, strays, free) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut facts = Facts { segments, scans, strays, free, sealed, durable };
    for name in names {
        let path = names::within(dir, &name);
        let file = match mode {
            OpenMode::ReadDirect => open_listed(disk, &path)?,
            _ => Some(open(disk, &path, mode)?),
        };
        let Some(file) = file else { continue };
        match header(disk, window, file).map_err(|error| at(&path, error))? {
            Ok((header, header_crc)) => facts.segments.push(Segment { path: path.clone(), header, header_crc }),
            Err(HeaderError::Version(version)) => return Err(JournalError::Version { segment: path, version }),
            Err(error @ HeaderError::Recycled) => {
                match evidence_behind_mark(disk, window, file).map_err(|error| at(&path, error))? {
                    None => facts.free.push(path.clone()),
                    Some((first, durable)) => {
                        facts.durable = facts.durable.max(durable);
                        let (path, first_seq, first_commit) = (path.clone(), Some(first), Some(first));
                        let commits_at = None;
                        facts.strays.push(Stray { path, error, blank: false, first_seq, first_commit, commits_at });
                    }
                }
            }
            Err(error) => {
                let found = evidence_without_header(disk, window, file).map_err(|error| at(&path, error))?;
                let (first, durable) = found.unzip();
                facts.durable = facts.durable.max(durable.unwrap_or_default());
                let blank = is_blank(disk, window, file).map_err(|error| at(&path, error))?;
                let first_seq = names::segment_seq(&path);
                let (path, first_commit, commits_at) = (path.clone(), first, None);
                facts.strays.push(Stray { path, error, blank, first_seq, first_commit, commits_at });
            }
        }
        run(disk, &path, Op::Close { file })?;
    }
    facts.segments.sort_by_key(|segment| segment.header.first_seq);
    facts.scans = vec![None; facts.segments.len()];
    Ok(facts)
}

/// Reads segments from the last one back, until one is known to hold an acknowledged frame: what breaks off before that is
/// never cut, and whoever reads it will meet the damage. So the segment that the log ends in, whichever that is, was read.
/// Returns the first that was.
fn read_back_to_the_acknowledged<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    facts: &mut Facts,
    mode: OpenMode,
) -> Result<usize, JournalError> {
    let mut durable = facts.durable;
    for index in (0..facts.segments.len()).rev() {
        durable = durable.max(read(disk, window, facts, index, mode)?);
        if durable >= facts.segments[index].header.first_seq {
            return Ok(index);
        }
    }
    Ok(0)
}

/// Reads one segment; returns what it proves to have been durable.
fn read<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    facts: &mut Facts,
    index: usize,
    mode: OpenMode,
) -> Result<Seq, JournalError> {
    let Segment { path, header, header_crc } = &facts.segments[index];
    let file = open(disk, path, mode)?;
    window.forget();
    let found = scan(disk, window, file, header, *header_crc).map_err(|error| at(path, error))?;
    run(disk, path, Op::Close { file })?;
    facts.scans[index] = Some(found);
    Ok(found.facts.durable)
}

/// The error of seqs from `seq` on that no segment has.
pub(crate) fn missing(dir: &Path, segments: &[Segment], seq: Seq, durable: Seq) -> JournalError {
    let after = segments.iter().position(|segment| segment.header.first_seq > seq);
    let to = after.map_or(durable, |after| Seq(segments[after].header.first_seq.0 - 1));
    let between = after.filter(|&after| after > 0);
    let between = between.map(|after| (segments[after - 1].path.clone(), segments[after].path.clone()));
    JournalError::MissingSegment { dir: dir.to_owned(), seq, to, between, durable }
}

/// The error of a file that begins at one of `seqs` and has lost its header. Where something was acknowledged from
/// its seq on, and segments follow, it is no leftover of a crash: they were begun after it was written.
fn lost_header(facts: &Facts, seqs: Range<Seq>) -> Option<JournalError> {
    let durable = facts.durable();
    facts.strays.iter().filter(|stray| !stray.blank).find_map(|stray| {
        let seq = stray.first_seq.filter(|seq| seqs.contains(seq) && *seq <= durable)?;
        Some(stray.corrupt(seq, durable))
    })
}

fn refuse(dir: &Path, facts: &Facts, refusal: Refusal, covered: Seq) -> JournalError {
    let durable = facts.durable();
    // The one that proves it, if one does.
    let proves = facts.strays.iter().find(|stray| stray.commits_at.is_some());
    if let Some(stray) = proves.or_else(|| facts.strays.iter().find(|stray| !stray.blank))
        && let Refusal::Missing { seq } | Refusal::Damaged { seq, .. } | Refusal::Unlinked { seq, .. } = refusal
    {
        return stray.corrupt(seq, durable);
    }
    match refusal {
        Refusal::Damaged { segment, seq } => {
            let scan = facts.scans[segment].as_ref().expect("only what was read is found damaged");
            JournalError::Corrupt {
                segment: facts.segments[segment].path.clone(),
                offset: scan.end_offset,
                seq,
                durable,
                damage: scan.damage,
            }
        }
        Refusal::Missing { seq } => missing(dir, &facts.segments, seq, durable),
        Refusal::Unlinked { segment, seq } => {
            let path = facts.segments[segment].path.clone();
            JournalError::Corrupt { segment: path, offset: 0, seq, durable, damage: Damage::Unlinked }
        }
        Refusal::SnapshotGap { first } => JournalError::SnapshotGap { dir: dir.to_owned(), snapshot: covered, first },
        Refusal::BehindSnapshot { last } => {
            JournalError::JournalBehindSnapshot { dir: dir.to_owned(), durable: last, snapshot: covered }
        }
        Refusal::OtherLog { segment, other } => other_log(&facts.segments[segment], &facts.segments[other]),
        Refusal::Duplicate { segment } => JournalError::Duplicate {
            segment: facts.segments[segment].path.clone(),
            other: facts.segments[segment - 1].path.clone(),
            seq: facts.segments[segment].header.first_seq,
        },
    }
}

fn adopt<D: Disk>(
    disk: &mut D,
    dir: &Path,
    facts: &Facts,
    keep: usize,
    next_seq: Seq,
    cut: bool,
) -> Result<Opening, JournalError> {
    take_free_away(disk, dir, &facts.free)?;
    // Highest first, each made durable before the next: a crash in between leaves a log that only ends earlier.
    for segment in facts.segments[keep..].iter().rev() {
        run(disk, &segment.path, Op::Delete { path: &segment.path })?;
        run(disk, dir, Op::SyncDir { path: dir })?;
    }
    let set_aside = set_strays_aside(disk, dir, &facts.strays)?;
    for index in 0..keep {
        let Some(scan) = &facts.scans[index] else { continue };
        let path = &facts.segments[index].path;
        let file = open(disk, path, OpenMode::Write)?;
        if index + 1 == keep {
            run(disk, path, Op::Truncate { file, bytes: scan.end_offset })?;
        }
        run(disk, path, Op::Sync { file })?;
        run(disk, path, Op::Close { file })?;
    }
    for segment in facts.segments[..keep].iter().filter(|segment| names::is_spare(&segment.path)) {
        let to = names::segment(dir, segment.header.first_seq);
        run(disk, &segment.path, Op::Rename { from: &segment.path, to: &to })?;
    }
    run(disk, dir, Op::SyncDir { path: dir })?;
    let last = keep.checked_sub(1).map(|index| {
        let scan = facts.scans[index].as_ref();
        (&facts.segments[index], scan.expect("the segment that the log ends in was read"))
    });
    let link = last
        .map_or(Link::default(), |(segment, scan)| Link { salt: segment.header.salt(), checksum: scan.facts.checksum });
    let recovered = Recovered {
        first_seq: if keep == 0 { next_seq } else { facts.segments[0].header.first_seq },
        next_seq,
        last_epoch: last.map_or(0, |(_, scan)| scan.facts.epoch),
        cut: cut.then(|| cut_of(facts, keep, next_seq)),
        segments: keep,
        log_id: 0,
        set_aside,
    };
    let closed = closed(dir, &facts.segments[..keep], next_seq);
    Ok(Opening { recovered, link, durable: Seq(next_seq.0 - 1), closed })
}

/// The segments that were kept, under their final names; the log ends before `next_seq`.
fn closed(dir: &Path, segments: &[Segment], next_seq: Seq) -> VecDeque<Closed> {
    let ends = segments.iter().skip(1).map(|segment| segment.header.first_seq).chain([next_seq]);
    let closed = segments.iter().zip(ends).map(|(segment, next_seq)| {
        let SegmentHeader { first_seq, version, .. } = segment.header;
        let (salt, alignment) = match version {
            Version::One => (0, 0),
            Version::Two { salt, alignment, .. } => (salt, alignment),
        };
        let is_spare = names::is_spare(&segment.path);
        let path = if is_spare { names::segment(dir, first_seq) } else { segment.path.clone() };
        Closed { path, first_seq, next_seq, salt, alignment }
    });
    closed.collect()
}

/// Deletes what was given up to be used again: the next use begins with new files, which are sized as is configured now.
fn take_free_away<D: Disk>(disk: &mut D, dir: &Path, free: &[PathBuf]) -> Result<(), JournalError> {
    for path in free {
        run(disk, path, Op::Delete { path })?;
    }
    if !free.is_empty() {
        run(disk, dir, Op::SyncDir { path: dir })?;
    }
    Ok(())
}

fn cut_of(facts: &Facts, keep: usize, next_seq: Seq) -> Cut {
    let broken = keep.saturating_sub(1);
    Cut {
        segment: facts.segments[broken].path.clone(),
        offset: facts.scans[broken].as_ref().map_or(0, |scan| scan.end_offset),
        from_seq: next_seq,
        segments: facts.segments.len() - keep + facts.strays.len(),
    }
}

/// Blank files go; others, which prove nothing but may interest someone, keep their bytes under another name, which is returned.
fn set_strays_aside<D: Disk>(disk: &mut D, dir: &Path, strays: &[Stray]) -> Result<Vec<PathBuf>, JournalError> {
    let mut set_aside = Vec::new();
    for stray in strays.iter().rev() {
        let op = Op::Delete { path: &stray.path };
        if stray.blank {
            run(disk, &stray.path, op)?;
        } else {
            let to = names::damaged(&stray.path);
            run(disk, &stray.path, Op::Rename { from: &stray.path, to: &to })?;
            set_aside.push(to);
        }
    }
    if !strays.is_empty() {
        run(disk, dir, Op::SyncDir { path: dir })?;
    }
    Ok(set_aside)
}

/// Writes the first `len` bytes of a buffer, going on where the disk takes only a part.
pub(crate) fn write_all<D: Disk>(
    disk: &mut D,
    path: &Path,
    file: FileId,
    buffer: BufferId,
    len: usize,
    offset: u64,
) -> Result<(), JournalError> {
    let mut start = 0;
    while start < len {
        let at = offset + start as u64;
        let write = Op::Write { file, buffer, start, len: len - start, offset: at, durable: false };
        let Outcome::Transferred(done) = run(disk, path, write)? else { unreachable!("a write transfers") };
        // A device with larger blocks stops at one of those, which is one of these, too.
        let whole = if start + done == len { done } else { done & !(ALIGNMENT_BYTES_MIN - 1) };
        if whole == 0 {
            return Err(JournalError::WriteZero { segment: path.to_owned(), offset: at });
        }
        start += whole;
    }
    Ok(())
}
