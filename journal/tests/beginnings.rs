//! A segment whose first write the disk acknowledged and doesn't have, or has elsewhere, or has something else in the place of:
//! what follows in the file bears witness, by the salt that was announced for it. Loud where something was acknowledged, and not a
//! word where nothing was.

mod common;

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use common::memory::{Files, MemoryDisk};
use common::{Blocks, append, payload, scratch, small};
use ticktape_core::Seq;
use ticktape_journal::format::commit::CommitHeader;
use ticktape_journal::format::recycle::RecycleMark;
use ticktape_journal::format::seal::Sealed;
use ticktape_journal::format::segment::SegmentHeader;
use ticktape_journal::inspect::inspect;
use ticktape_journal::{Damage, Journal, JournalError, JournalReader, names};

const DIR: &str = "/journal";
const BLOCK: usize = 512;

/// A log, and the segment of it whose beginning comes to harm.
struct Case {
    what: String,
    files: Files,
    segment: PathBuf,
    /// What stood in the file before its first write.
    before: Vec<u8>,
    /// What a snapshot has.
    covered: Seq,
    first: Seq,
    next: Seq,
}

type Shared = Rc<RefCell<Files>>;

fn opened(files: &Shared, covered: Seq) -> Journal<MemoryDisk> {
    Journal::open_covered(MemoryDisk::of(files), Path::new(DIR), small(), covered).unwrap().0
}

/// Commits of a frame each, so that one of them can be lost and others tell.
fn commits(journal: &mut Journal<MemoryDisk>, count: usize, bytes: usize) {
    for _ in 0..count {
        append(journal, &vec![journal.appended().0 as u8; bytes]);
        journal.sync_blocking(|| 0).unwrap();
    }
}

/// A commit after the other, each so large that a few fill a segment, until so many were begun.
fn roll(journal: &mut Journal<MemoryDisk>, segments: u64) {
    let target = journal.stats().segments + segments;
    while journal.stats().segments < target {
        commits(journal, 1, 1_900);
        settle(journal);
    }
}

fn settle(journal: &mut Journal<MemoryDisk>) {
    while journal.housekeeping(1_000_000_000) > 0 {
        journal.poll(0);
    }
}

/// Ends the log with a stop in order, or with a commit that tells of those before it; `segment` begins with `first`.
fn end(
    what: &str,
    files: &Shared,
    mut journal: Journal<MemoryDisk>,
    first: Seq,
    stops_in_order: bool,
    before: Vec<u8>,
    covered: Seq,
) -> Case {
    let next = journal.durable().next();
    if stops_in_order {
        journal.close().unwrap();
    } else {
        settle(&mut journal);
        drop(journal);
    }
    let files = files.borrow().clone();
    let segment = names::segment(Path::new(DIR), first);
    let content = files.get(&segment).unwrap_or_else(|| panic!("{what}: {segment:?} of {:?}", files.keys()));
    let before = if before.is_empty() { vec![0; content.len()] } else { before };
    let what = format!("{what}, stopped in order: {stops_in_order}");
    Case { what, files, segment, before, covered, first, next }
}

fn first_of_all(stops_in_order: bool) -> Case {
    let files = Shared::default();
    let mut journal = opened(&files, Seq::ZERO);
    commits(&mut journal, 4, 100);
    end("the first of all", &files, journal, Seq(1), stops_in_order, Vec::new(), Seq::ZERO)
}

fn after_a_restart(stopped: bool, stops_in_order: bool) -> Case {
    let files = Shared::default();
    let mut journal = opened(&files, Seq::ZERO);
    commits(&mut journal, 3, 100);
    if stopped {
        journal.close().unwrap();
    } else {
        drop(journal);
    }
    let mut journal = opened(&files, Seq::ZERO);
    commits(&mut journal, 4, 700);
    end(&format!("after a restart ({stopped})"), &files, journal, Seq(4), stops_in_order, Vec::new(), Seq::ZERO)
}

fn rolled_to(is_last: bool, stops_in_order: bool) -> Case {
    let files = Shared::default();
    let mut journal = opened(&files, Seq::ZERO);
    roll(&mut journal, 2);
    let first = journal.durable();
    commits(&mut journal, 3, 900);
    if !is_last {
        roll(&mut journal, 1);
        commits(&mut journal, 1, 100);
    }
    end(&format!("rolled to (last: {is_last})"), &files, journal, first, stops_in_order, Vec::new(), Seq::ZERO)
}

fn used_before(stops_in_order: bool) -> Case {
    let files = Shared::default();
    let mut journal = opened(&files, Seq::ZERO);
    let mut first = Seq::ZERO;
    let mut before = Vec::new();
    // Until the segment that was just rolled to was waiting as a marked spare.
    while before.is_empty() {
        let waiting: Vec<Vec<u8>> =
            files.borrow().values().filter(|content| RecycleMark::decode(content).is_some()).cloned().collect();
        let segments = journal.stats().segments;
        commits(&mut journal, 1, 1_900);
        if journal.stats().segments > segments && journal.stats().recycled > 2 {
            first = journal.durable();
            settle(&mut journal);
            let now = files.borrow()[&names::segment(Path::new(DIR), first)].clone();
            // The file that it was: alike behind the first commit.
            before = waiting.into_iter().find(|old| old[4_096..] == now[4_096..]).unwrap_or_default();
        }
        journal.release_before(Seq((journal.durable().0 + 1).saturating_sub(9)));
        settle(&mut journal);
    }
    commits(&mut journal, 3, 900);
    end("used before", &files, journal, first, stops_in_order, before, Seq::ZERO)
}

/// No segment was there, only a snapshot.
fn after_a_snapshot(stops_in_order: bool) -> Case {
    let files = Shared::default();
    let covered = Seq(20);
    let mut journal = opened(&files, covered);
    commits(&mut journal, 4, 100);
    end("after a snapshot", &files, journal, Seq(21), stops_in_order, Vec::new(), covered)
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for stops_in_order in [true, false] {
        cases.push(first_of_all(stops_in_order));
        cases.push(after_a_restart(true, stops_in_order));
        cases.push(after_a_restart(false, stops_in_order));
        cases.push(rolled_to(true, stops_in_order));
        cases.push(rolled_to(false, stops_in_order));
        cases.push(used_before(stops_in_order));
        cases.push(after_a_snapshot(stops_in_order));
    }
    cases
}

/// Bytes of the segment's first write, and of the commit that follows it.
fn first_writes(content: &[u8], block: usize) -> (usize, usize) {
    let bytes_at = |at: usize| CommitHeader::decode(&content[at..], block).unwrap().0.total_bytes(block);
    let first = block + bytes_at(block);
    (first, bytes_at(first))
}

/// The file with its first write not done, done elsewhere, or with another over it.
fn harmed(content: &[u8], before: &[u8], block: usize) -> Vec<(&'static str, Vec<u8>)> {
    let (first, second) = first_writes(content, block);
    let mut lost = content.to_vec();
    lost[..first].copy_from_slice(&before[..first]);
    let mut overwritten = lost.clone();
    overwritten[..second].copy_from_slice(&content[first..first + second]);
    let mut over_all_of_it = lost.clone();
    over_all_of_it[..first].fill(0);
    over_all_of_it[..second].copy_from_slice(&content[first..first + second]);
    let mut elsewhere = lost.clone();
    let end = elsewhere.len() - first;
    let at = end - end % block;
    elsewhere[at..at + first].copy_from_slice(&content[..first]);
    let mut rubbish = lost.clone();
    rubbish[..first].fill(0xa5);
    vec![
        ("lost", lost),
        ("with another over it", overwritten),
        ("with another over all of it", over_all_of_it),
        ("elsewhere", elsewhere),
        ("rubbish", rubbish),
    ]
}

fn open_error(files: &Shared, covered: Seq) -> Option<JournalError> {
    Journal::open_covered(MemoryDisk::of(files), Path::new(DIR), small(), covered).err()
}

fn read_all(files: &Shared, from: Seq) -> Result<Vec<Vec<u8>>, JournalError> {
    let mut reader = JournalReader::open_on(MemoryDisk::of(files), Path::new(DIR), from)?;
    let mut frames = Vec::new();
    while let Some(frame) = reader.next()? {
        frames.push(frame.to_vec());
    }
    Ok(frames)
}

#[test]
fn every_beginning_that_is_lost_is_loud_and_named() {
    let mut by_salt = 0;
    for case in cases() {
        let content = &case.files[&case.segment];
        assert_eq!(SegmentHeader::decode(content).unwrap().first_seq, case.first, "{}", case.what);
        for (harm, bytes) in harmed(content, &case.before, BLOCK) {
            // Where the next one would be: the file has its final name, or a spare's still.
            let spare = Path::new(DIR).join("00000000000000000099.spare");
            for path in [&case.segment, &spare] {
                let mut files = case.files.clone();
                files.remove(&case.segment);
                files.insert(path.clone(), bytes.clone());
                let before = files.clone();
                let files = Rc::new(RefCell::new(files));
                let what = format!("{}, {harm}, {}", case.what, path.display());
                let error = open_error(&files, case.covered).unwrap_or_else(|| panic!("{what}: opened"));
                let JournalError::Corrupt { segment, offset: 0, seq, durable, damage } = &error else {
                    panic!("{what}: {error}")
                };
                assert_eq!((segment, *seq), (path, case.first), "{what}: {error}");
                assert!(*durable >= case.first && *durable < case.next, "{what}: {error}");
                assert!(error.to_string().contains("restore this file"), "{what}: {error}");
                by_salt += usize::from(matches!(damage, Damage::Beginning { .. }));
                assert_eq!(*files.borrow(), before, "{what}: nothing was changed");
                let from = case.covered.next();
                let segments =
                    before.keys().filter(|path| path.extension().is_some_and(|extension| extension == "seg"));
                let first = segments.filter_map(|path| path.file_stem()?.to_str()?.parse().ok()).min();
                let error = read_all(&files, first.map_or(from, Seq).max(from)).expect_err(&what);
                assert!(error.to_string().contains(&format!("seq {}", case.first)), "{what}: {error}");
            }
        }
    }
    assert!(by_salt > 60, "{by_salt}");
}

/// What an inspection tells, and whether it counts it as damage.
#[test]
fn an_inspection_tells_it_and_changes_nothing() {
    for case in [first_of_all(false), rolled_to(true, false), rolled_to(false, false), used_before(false)] {
        let content = &case.files[&case.segment];
        for (harm, bytes) in harmed(content, &case.before, BLOCK) {
            let dir = written(&case.files);
            fs::write(dir.path().join(case.segment.file_name().unwrap()), &bytes).unwrap();
            let mut told = Vec::new();
            let summary = inspect(dir.path(), &mut |fact| told.push(fact.to_string())).unwrap();
            assert!(summary.damaged > 0, "{}, {harm}: {told:#?}", case.what);
            let names_it = |line: &String| line.contains("the segment's beginning is not there");
            assert!(told.iter().any(names_it), "{}, {harm}: {told:#?}", case.what);
        }
    }
}

/// The files as they are, in a directory of the real file system.
fn written(files: &Files) -> tempfile::TempDir {
    let dir = scratch();
    for (path, content) in files {
        fs::write(dir.path().join(path.file_name().unwrap()), content).unwrap();
    }
    dir
}

/// Whether a file with a recycle mark holds commits with this salt.
fn is_free_with(content: &[u8], salt: u64) -> bool {
    let is_of_it = |at| CommitHeader::decode(&content[at..], BLOCK).is_ok_and(|(commit, _)| commit.salt == salt);
    RecycleMark::decode(content).is_some() && (BLOCK..content.len()).step_by(BLOCK).any(is_of_it)
}

/// The seal file announces the first segment of an opening for as long as the log is open: when that segment was released, too, and
/// what is left of it stands behind the mark of its own end or that of a later use.
#[test]
fn a_beginning_that_was_released_is_not_a_lost_one() {
    let (mut of_its_own, mut of_a_later_use) = (0, 0);
    for opening in 0..12 {
        let files = Shared::default();
        for _ in 0..opening % 3 {
            let mut journal = opened(&files, Seq::ZERO);
            roll(&mut journal, 1);
            drop(journal);
        }
        let mut journal = opened(&files, Seq::ZERO);
        let sealed = Sealed::decode(&files.borrow()[&Path::new(DIR).join(names::SEALED)]).unwrap();
        for round in 0..60 {
            // A later use that ends before an earlier one did leaves the end of that.
            commits(&mut journal, 1, 100 + (311 * opening + 97 * round) % 1_800);
            journal.release_before(Seq((journal.durable().0 + 1).saturating_sub(9)));
            settle(&mut journal);
            let there = files.borrow().clone();
            let left = there.values().filter(|content| is_free_with(content, sealed.next_salt));
            for mark in left.filter_map(|content| RecycleMark::decode(content)) {
                of_its_own += usize::from(mark.salt == sealed.next_salt);
                of_a_later_use += usize::from(mark.salt != sealed.next_salt);
            }
            let dir = written(&there);
            let mut told = Vec::new();
            let summary = inspect(dir.path(), &mut |fact| told.push(fact.to_string())).unwrap();
            assert_eq!((summary.damaged, summary.torn), (0, 0), "opening {opening}, round {round}: {told:#?}");
            let next = journal.durable().next();
            let (_, recovered) =
                Journal::open(MemoryDisk::of(&Rc::new(RefCell::new(there))), Path::new(DIR), small()).unwrap();
            assert_eq!((recovered.next_seq, recovered.cut), (next, None), "opening {opening}, round {round}");
        }
    }
    assert!(of_its_own > 0 && of_a_later_use > 0, "{of_its_own} {of_a_later_use}");
}

/// Without any witness: later commits of the segment were under way as well, and say of nothing in it that it was durable.
#[test]
fn a_beginning_that_was_never_acknowledged_is_cut_without_a_word() {
    for is_first_of_all in [true, false] {
        let files = Shared::default();
        let mut journal = opened(&files, Seq::ZERO);
        if !is_first_of_all {
            roll(&mut journal, 2);
            commits(&mut journal, 1, 100);
            drop(journal);
            journal = opened(&files, Seq::ZERO);
        }
        let first = journal.durable().next();
        for _ in 0..2 {
            append(&mut journal, &payload(5));
            journal.set_epoch(journal.appended().0);
        }
        // Both are submitted at once.
        journal.poll(0);
        drop(journal);
        let segment = names::segment(Path::new(DIR), first);
        let content = files.borrow()[&segment].clone();
        let (at, _) = first_writes(&content, BLOCK);
        let (second, _) = CommitHeader::decode(&content[at..], BLOCK).unwrap();
        assert!(second.durable < first && second.base_seq == first.next());
        for (harm, bytes) in harmed(&content, &vec![0; content.len()], BLOCK) {
            let mut torn = files.borrow().clone();
            torn.insert(segment.clone(), bytes);
            let torn = Rc::new(RefCell::new(torn));
            let (journal, recovered) = Journal::open(MemoryDisk::of(&torn), Path::new(DIR), small()).unwrap();
            assert_eq!(recovered.next_seq, first, "{harm}");
            // And again: what was set aside is out of the way, though its salt may be announced still.
            journal.close().unwrap();
            let (journal, recovered) = Journal::open(MemoryDisk::of(&torn), Path::new(DIR), small()).unwrap();
            assert_eq!((recovered.next_seq, recovered.cut), (first, None), "{harm}");
            journal.close().unwrap();
            if !is_first_of_all {
                assert_eq!(read_all(&torn, Seq::FIRST).unwrap().len() as u64, first.0 - 1, "{harm}");
            }
        }
    }
}

/// The salt of the commits and what they announce, from the first to the last segment.
fn announcements(files: &Files) -> Vec<(u64, u64)> {
    let mut segments: Vec<(Seq, u64, u64)> = Vec::new();
    for content in files.values() {
        let Ok(header) = SegmentHeader::decode(content) else { continue };
        let mut at = BLOCK;
        let mut announced = 0;
        while let Ok((commit, _)) = CommitHeader::decode(content.get(at..).unwrap_or_default(), BLOCK)
            && commit.salt == header.salt()
        {
            assert!(commit.next_salt != 0 && [0, commit.next_salt].contains(&announced), "one for all commits");
            announced = commit.next_salt;
            at += commit.total_bytes(BLOCK);
        }
        segments.push((header.first_seq, header.salt(), announced));
    }
    segments.sort_unstable();
    segments.into_iter().map(|(_, salt, announced)| (salt, announced)).collect()
}

#[test]
fn each_segment_has_the_salt_that_was_announced_and_each_opening_another() {
    let files = Shared::default();
    let sealed = |files: &Shared| {
        let files = files.borrow();
        Sealed::decode(&files[&Path::new(DIR).join(names::SEALED)]).unwrap()
    };
    let mut announced_by_seals = Vec::new();
    for opening in 0..3 {
        let mut journal = opened(&files, Seq::ZERO);
        let seal = sealed(&files);
        assert_eq!(seal.durable, journal.durable());
        assert!(seal.next_salt != 0 && !announced_by_seals.contains(&seal.next_salt));
        announced_by_seals.push(seal.next_salt);
        let first = announcements(&files.borrow()).len();
        roll(&mut journal, 2);
        settle(&mut journal);
        let now = announcements(&files.borrow());
        assert_eq!(now[first].0, seal.next_salt, "the seal file tells of the first");
        assert!(now[first..].windows(2).all(|pair| pair[0].1 == pair[1].0), "and each of the next: {now:x?}");
        if opening == 1 {
            let durable = journal.durable();
            journal.close().unwrap();
            assert_eq!(sealed(&files), Sealed { durable, next_salt: 0 });
        }
    }
}

#[test]
fn logs_from_before_there_were_announcements_are_read_as_ever() {
    let case = rolled_to(true, false);
    let mut files = case.files.clone();
    let mut link = 0;
    let mut paths: Vec<_> =
        files.keys().filter(|path| path.extension().is_some_and(|ext| ext == "seg")).cloned().collect();
    paths.sort();
    for path in paths {
        let content = files.get_mut(&path).unwrap();
        let mut header = SegmentHeader::decode(content).unwrap();
        let ticktape_journal::format::segment::Version::Two { previous_checksum, .. } = &mut header.version else {
            panic!("version 2 is written")
        };
        *previous_checksum = link;
        link = header.encode(&mut content[..BLOCK]);
        let mut at = BLOCK;
        while let Ok((commit, _)) = CommitHeader::decode(&content[at..], BLOCK) {
            let end = at + commit.total_bytes(BLOCK);
            link = CommitHeader { previous: link, next_salt: 0, ..commit }.seal(&mut content[at..end]);
            at = end;
        }
    }
    // As version 2 of the seal file has it, durable up to 0.
    let mut seal = b"TKTS\x02\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    seal.extend(ticktape_core::crc32c(&seal).to_le_bytes());
    files.insert(Path::new(DIR).join(names::SEALED), seal);
    let shared = Rc::new(RefCell::new(files));
    assert_eq!(read_all(&shared, Seq(1)).unwrap().len() as u64, case.next.0 - 1);
    let mut journal = opened(&shared, Seq::ZERO);
    assert_eq!(journal.durable().next(), case.next);
    commits(&mut journal, 3, 100);
    journal.close().unwrap();
    assert_eq!(read_all(&shared, Seq(1)).unwrap().len() as u64, case.next.0 + 2);
}

#[test]
fn every_block_size_is_looked_for() {
    for block in [512, 1024, 2048, 4096] {
        let dir = scratch();
        let config = || ticktape_journal::JournalConfig { segment_bytes: 64 << 10, ..small() };
        let (mut journal, _) = Journal::open(Blocks::of(block), dir.path(), config()).unwrap();
        for _ in 0..3 {
            append(&mut journal, b"frame");
            journal.sync_blocking(|| 0).unwrap();
        }
        drop(journal);
        let segment = names::segment(dir.path(), Seq(1));
        let content = fs::read(&segment).unwrap();
        for (harm, bytes) in harmed(&content, &vec![0; content.len()], block) {
            fs::write(&segment, bytes).unwrap();
            let error = Journal::open(Blocks::of(block), dir.path(), config()).unwrap_err();
            assert!(
                matches!(&error, JournalError::Corrupt { segment: named, offset: 0, seq: Seq(1), .. } if *named == segment),
                "blocks of {block}, {harm}: {error}"
            );
        }
    }
}
