//! A small sealed journal, damaged in every single place and in every way of three: each byte changed, each length cut to,
//! each sector lost. What was acknowledged is all there, or the damage is loud; no case is left out. Once with new files, once
//! with files that were used before and have stale commits behind the ends; and that once stopped in order, once not.

mod common;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use common::memory::{Files, MemoryDisk};
use common::{append, payload, small};
use ticktape_core::Seq;
use ticktape_journal::format::commit::CommitHeader;
use ticktape_journal::format::recycle;
use ticktape_journal::format::segment::{SegmentHeader, Version};
use ticktape_journal::{Journal, JournalError, JournalReader, names};

const DIR: &str = "/journal";

/// A journal's files, its frames, and the seq of the first of them.
struct Case {
    files: Files,
    written: Vec<Vec<u8>>,
    first: Seq,
    /// What stood in a file before it is used again: a recycle mark, and stale commits.
    old: Option<Vec<u8>>,
}

/// Several openings and epochs, several segments, one of which was rolled to; cleanly closed. Its files and frames.
fn sealed() -> Case {
    let files = Rc::new(RefCell::new(Files::new()));
    let mut written = Vec::new();
    for (epoch, frames) in [(1, 3), (2, 8), (3, 2)] {
        let (mut journal, _) = Journal::open(MemoryDisk::of(&files), Path::new(DIR), small()).unwrap();
        journal.set_epoch(epoch);
        for _ in 0..frames {
            let bytes = if epoch == 2 { vec![9; 1900] } else { payload(written.len() as u64) };
            written.push(append(&mut journal, &bytes));
            journal.sync_blocking(|| 0).unwrap();
            journal.housekeeping(1_000_000_000);
        }
        journal.close().unwrap();
    }
    Case { files: files.take(), written, first: Seq(1), old: None }
}

/// The salt of a segment whose file was used before.
fn salt_of_later_use(content: &[u8]) -> Option<[u8; 8]> {
    match SegmentHeader::decode(content.get(..512)?).ok()?.version {
        Version::Two { salt, recycled: true, .. } => Some(salt.to_le_bytes()),
        _ => None,
    }
}

/// What is kept stands in files on a second or later use, with stale commits behind every end but, after a stop in order, the
/// last; spares wait. The newest commit is a seal that says that all is durable.
fn recycled(stops_in_order: bool) -> Case {
    let files = Rc::new(RefCell::new(Files::new()));
    let (mut journal, _) = Journal::open(MemoryDisk::of(&files), Path::new(DIR), small()).unwrap();
    let mut written = Vec::new();
    let write = |journal: &mut Journal<MemoryDisk>, written: &mut Vec<Vec<u8>>, len: usize| {
        written.push(append(journal, &vec![written.len() as u8; len]));
        journal.sync_blocking(|| 0).unwrap();
        journal.release_before(Seq((journal.durable().0 + 1).saturating_sub(7)));
        while journal.housekeeping(1_000_000_000) > 0 {
            journal.poll(0);
        }
    };
    // First commits of one sector each, so that there are heads of stale commits everywhere; then such as leave some of them.
    while journal.stats().recycled < 3 {
        write(&mut journal, &mut written, 300);
    }
    let segments = journal.stats().segments;
    let waiting = || files.borrow().values().find(|content| content.starts_with(&recycle::MAGIC)).cloned();
    let again = || files.borrow().values().filter(|content| salt_of_later_use(content).is_some()).count();
    while journal.stats().segments < segments + 2 || waiting().is_none() || again() < 2 {
        assert!(written.len() < 1_000, "it settles");
        write(&mut journal, &mut written, 3_900);
    }
    (0..2).for_each(|_| write(&mut journal, &mut written, 900));
    for _ in 0..3 {
        journal.poll(1_000_000_000);
    }
    assert_eq!(journal.stats().seals, 1);
    let (first, old) = (journal.first_seq(), waiting());
    assert!(old.is_some(), "a spare waits");
    if stops_in_order {
        journal.close().unwrap();
    }
    let files = files.take();
    let salts: Vec<_> = files.values().filter_map(|bytes| salt_of_later_use(bytes).zip(Some(bytes))).collect();
    assert!(salts.len() >= 2, "two segments on a later use");
    let is_stale = |(salt, bytes): &([u8; 8], &Vec<u8>)| {
        bytes.chunks(512).any(|block| block.starts_with(b"TKTC") && block[8..16] != salt[..])
    };
    let stale = salts.iter().filter(|file| is_stale(file)).count();
    assert!(stale >= salts.len() - usize::from(stops_in_order), "stale commits in {stale} of {}", salts.len());
    let written = written.split_off(first.0 as usize - 1);
    Case { files, written, first, old }
}

fn read(files: &Rc<RefCell<Files>>, first: Seq) -> Result<Vec<Vec<u8>>, JournalError> {
    let mut reader = JournalReader::open_on(MemoryDisk::of(files), Path::new(DIR), first)?;
    let mut frames = Vec::new();
    while let Some(frame) = reader.next()? {
        frames.push(frame.to_vec());
    }
    Ok(frames)
}

fn recover(files: &Rc<RefCell<Files>>, first: Seq) -> Result<Vec<Vec<u8>>, JournalError> {
    Journal::open(MemoryDisk::of(files), Path::new(DIR), small())?.0.close()?;
    read(files, first)
}

/// Counts cases, and how many of them were loud.
#[derive(Debug, Default)]
struct Count {
    cases: usize,
    loud: usize,
}

impl Count {
    fn check(&mut self, damaged: Files, case: &Case, what: impl Fn() -> String) {
        let written = &case.written;
        let untouched = Rc::new(RefCell::new(damaged));
        let outcomes = [read(&untouched, case.first), recover(&untouched, case.first)];
        self.cases += 1;
        let mut loud = false;
        for (outcome, how) in outcomes.into_iter().zip(["read", "recovered"]) {
            match outcome {
                Ok(frames) => assert!(frames == *written, "{}, {how}: {} frames in silence", what(), frames.len()),
                Err(error) => {
                    loud = true;
                    assert!(!error.to_string().is_empty());
                }
            }
        }
        self.loud += usize::from(loud);
    }
}

fn every_changed_byte(case: &Case) -> Count {
    let mut count = Count::default();
    for (path, content) in &case.files {
        for at in 0..content.len() {
            // Another bit in each place: all eight come up hundreds of times.
            for bits in [1 << (at % 8), 0xff] {
                let mut damaged = case.files.clone();
                damaged.get_mut(path).unwrap()[at] ^= bits;
                count.check(damaged, case, || format!("{} byte {at} ^ {bits:#x}", path.display()));
            }
        }
    }
    count
}

fn every_length(case: &Case) -> Count {
    let mut count = Count::default();
    for (path, content) in &case.files {
        for len in 0..content.len() {
            let mut damaged = case.files.clone();
            damaged.get_mut(path).unwrap().truncate(len);
            count.check(damaged, case, || format!("{} cut to {len}", path.display()));
        }
        let mut damaged = case.files.clone();
        damaged.remove(path);
        count.check(damaged, case, || format!("{} gone", path.display()));
    }
    count
}

/// Each segment without its first sectors, as many as leave its last commit.
fn every_lost_beginning(case: &Case) -> Count {
    let mut count = Count::default();
    for (path, content) in &case.files {
        let Some(last) = last_commit(content) else { continue };
        let old = case.old.as_ref().filter(|old| old.len() >= last);
        for end in (512..=last).step_by(512) {
            let losses = [Some(vec![0; end]), Some(vec![0xff; end]), old.map(|old| old[..end].to_vec())];
            for lost in losses.into_iter().flatten() {
                let mut damaged = case.files.clone();
                damaged.get_mut(path).unwrap()[..end].copy_from_slice(&lost);
                count.check(damaged, case, || format!("{} lost its first {end}", path.display()));
            }
        }
    }
    count
}

/// Where the last commit of a segment stands; `None` where it has only one.
fn last_commit(content: &[u8]) -> Option<usize> {
    let header = SegmentHeader::decode(content).ok()?;
    let Version::Two { salt, alignment, .. } = header.version else { return None };
    let (mut at, mut last) = (alignment as usize, 0);
    while let Ok((header, _)) = CommitHeader::decode(content.get(at..)?, alignment as usize)
        && header.salt == salt
    {
        last = at;
        at += header.total_bytes(alignment as usize);
    }
    (last > alignment as usize).then_some(last)
}

/// Lost, or holding what stands in the same place of another file, as if a write had never got there.
fn every_sector_and_every_run_of_them(case: &Case, runs_max: usize) -> Count {
    let mut count = Count::default();
    for (path, content) in &case.files {
        let sectors = content.len().div_ceil(512);
        let runs = |first: usize| first..sectors.min(first + runs_max);
        for (first, last) in (0..sectors).flat_map(|first| runs(first).map(move |last| (first, last))) {
            let (from, end) = (first * 512, content.len().min((last + 1) * 512));
            let old = case.old.as_ref().and_then(|old| old.get(from..end)).map(<[u8]>::to_vec);
            for lost in [Some(vec![0; end - from]), Some(vec![0xff; end - from]), old].into_iter().flatten() {
                let mut damaged = case.files.clone();
                damaged.get_mut(path).unwrap()[from..end].copy_from_slice(&lost);
                count.check(damaged, case, || format!("{} sectors {first} to {last}", path.display()));
            }
        }
    }
    count
}

#[test]
fn undamaged_it_is_whole() {
    for (case, files) in [(sealed(), 5), (recycled(true), 4), (recycled(false), 4)] {
        assert!(case.files.len() >= files, "segments and the seal, or spares: {:?}", case.files.keys());
        let mut count = Count::default();
        count.check(case.files.clone(), &case, || "as it is".into());
        assert_eq!(count.loud, 0);
    }
}

#[test]
fn every_changed_byte_of_new_files() {
    let case = sealed();
    let count = every_changed_byte(&case);
    println!("{count:?}");
    // Harmless are: the seal file as long as the segments are whole, blanks behind a segment's chain, and the last seal commit,
    // which holds nothing that the seal file does not say, too. Everything else is loud, each single time.
    let blanks = case.files.values().map(|content| {
        content.rchunks(512).take_while(|block| block.iter().all(|&byte| byte == 0)).map(<[u8]>::len).sum::<usize>()
    });
    let seal = &case.files[&Path::new(DIR).join(names::SEALED)];
    let blank_in_seal = seal.len() - 512;
    let harmless = seal.len() - blank_in_seal + blanks.sum::<usize>() + 512;
    assert!(count.cases > 30_000, "{count:?}");
    assert_eq!(count.loud, count.cases - 2 * harmless, "{count:?}");
}

/// The bytes of sound commits and headers of what is kept: a change of any of them has to be noticed, but for the last seal's.
fn bytes_that_matter(case: &Case) -> usize {
    let mut bytes = 0;
    for content in case.files.values() {
        let Ok(SegmentHeader { version: Version::Two { salt, alignment, .. }, .. }) = SegmentHeader::decode(content)
        else {
            continue;
        };
        let mut at = alignment as usize;
        while let Ok((header, _)) = CommitHeader::decode(content.get(at..).unwrap_or_default(), alignment as usize)
            && header.salt == salt
        {
            at += header.total_bytes(alignment as usize);
        }
        bytes += at;
    }
    bytes - 512
}

#[test]
fn every_changed_byte_of_files_that_were_used_before() {
    for stops_in_order in [true, false] {
        let case = recycled(stops_in_order);
        let count = every_changed_byte(&case);
        println!("{count:?}");
        assert!(count.cases > 60_000, "{count:?}");
        assert_eq!(count.loud, 2 * bytes_that_matter(&case), "{count:?}");
    }
}

#[test]
fn every_length_of_new_files() {
    let count = every_length(&sealed());
    println!("{count:?}");
    assert!(count.cases > 15_000 && count.loud > 12_000, "{count:?}");
}

#[test]
fn every_length_of_files_that_were_used_before() {
    let count = every_length(&recycled(true));
    println!("{count:?}");
    assert!(count.cases > 30_000 && count.loud > 12_000, "{count:?}");
}

#[test]
fn every_lost_sector_of_new_files() {
    let count = every_sector_and_every_run_of_them(&sealed(), usize::MAX / 2);
    println!("{count:?}");
    assert!(count.cases > 800 && count.loud > 700, "{count:?}");
}

#[test]
fn every_lost_sector_of_files_that_were_used_before() {
    let count = every_sector_and_every_run_of_them(&recycled(true), usize::MAX / 2);
    println!("{count:?}");
    assert!(count.cases > 2_500 && count.loud > 2_000, "{count:?}");
    // Where no seal file tells the end, every single sector that is lost is noticed all the same.
    let count = every_sector_and_every_run_of_them(&recycled(false), 1);
    println!("{count:?}");
    assert!(count.cases > 200 && count.loud > 80, "{count:?}");
}

#[test]
fn every_lost_beginning_is_loud() {
    for (case, cases) in [(sealed(), 60), (recycled(true), 20), (recycled(false), 20)] {
        let count = every_lost_beginning(&case);
        println!("{count:?}");
        assert!(count.cases > cases && count.loud == count.cases, "{count:?}");
        // As after a crash, or where the seal file is lost, too: the segment before tells of those that were rolled to.
        if case.old.is_some() {
            let mut unsealed = case;
            unsealed.files.remove(&Path::new(DIR).join(names::SEALED));
            let count = every_lost_beginning(&unsealed);
            assert_eq!(count.loud, count.cases, "{count:?}");
        }
    }
}
