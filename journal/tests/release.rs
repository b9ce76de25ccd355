//! Releasing what a snapshot covers: segments are taken away and used again, the directory stays small, and whatever moment the
//! process dies at, nothing that was not released is missing.

mod common;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use common::memory::{Files, MemoryDisk};
use common::{Blocks, append, frame, open, payload, read, scratch, small};
use ticktape_core::Seq;
use ticktape_journal::disk::{BufferId, Completion, DiskError, FileId, Op, Outcome};
use ticktape_journal::format::recycle::RecycleMark;
use ticktape_journal::inspect::inspect;
use ticktape_journal::limits::SPARES_MAX;
use ticktape_journal::{Damage, Disk, Journal, JournalConfig, JournalError, JournalReader, names};

const DIR: &str = "/journal";

/// Appends a frame, makes it durable, releases all but the last `kept`, and lets housekeeping come to rest.
fn step<D: Disk>(journal: &mut Journal<D>, kept: u64) {
    let next = payload(journal.appended().0 + 1);
    append(journal, &next);
    journal.sync_blocking(|| 0).unwrap();
    journal.release_before(Seq((journal.durable().0 + 1).saturating_sub(kept)));
    settle(journal);
}

fn settle<D: Disk>(journal: &mut Journal<D>) {
    for round in 1..1000 {
        if journal.housekeeping(round * 1_000_000_000) == 0 {
            return;
        }
        journal.poll(0);
    }
    panic!("housekeeping comes to rest");
}

fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn released_segments_are_used_again_and_the_rest_stays_whole() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    assert_eq!(journal.first_seq(), Seq(1));
    for _ in 0..200 {
        step(&mut journal, 10);
        let (first, last) = (journal.first_seq(), journal.durable());
        // Whole segments only: one takes 30 of these frames, each in a block of its own.
        assert!(first.0 + 10 > last.0 || last.0 - first.0 < 60, "{first} to {last}");
    }
    let stats = journal.stats();
    assert!(stats.segments >= 7 && stats.recycled + 2 >= stats.segments, "{stats:?}");
    let first = journal.first_seq();
    assert!(first > Seq(100));
    let frames: Vec<_> = (first.0..=200).map(|seq| frame(seq, &payload(seq))).collect();
    assert_eq!(read(dir.path(), first.0).unwrap(), frames);
    assert_eq!(read(dir.path(), 1).unwrap_err(), JournalError::TooOld { from: Seq(1), first });
    let summary = inspect(dir.path(), &mut |_| ()).unwrap();
    assert_eq!((summary.first_seq, summary.damaged, summary.torn), (Some(first), 0, 0));
    journal.close().unwrap();
    let names = names_in(dir.path());
    assert!(
        names.iter().all(|name| name.ends_with(".seg") || name == names::LOCK || name == names::SEALED),
        "{names:?}"
    );
    let (mut journal, recovered) = open(dir.path(), small()).unwrap();
    assert_eq!((recovered.first_seq, recovered.next_seq, recovered.cut.clone()), (first, Seq(201), None));
    assert_eq!(journal.first_seq(), first);
    // What was adopted can be released as well; a segment that was cut to its end has not the size of a spare.
    journal.release_before(Seq(201));
    step(&mut journal, 0);
    assert_eq!(journal.first_seq(), Seq(201));
    let stats = journal.stats();
    assert!(
        stats.deleted > 0 && stats.deleted + stats.recycled == recovered.segments as u64,
        "{stats:?} {recovered:?}"
    );
}

#[test]
fn a_crash_leaves_stale_commits_behind_the_end_and_that_is_no_cut() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    while journal.stats().recycled < 4 {
        step(&mut journal, 5);
    }
    let segments = journal.stats().segments;
    while journal.stats().segments == segments {
        step(&mut journal, 5);
    }
    step(&mut journal, 5);
    let (first, last) = (journal.first_seq(), journal.durable());
    drop(journal);
    let summary = inspect(dir.path(), &mut |_| ()).unwrap();
    assert_eq!((summary.damaged, summary.torn, summary.last_seq), (0, 0, Some(last)));
    let (journal, recovered) = open(dir.path(), small()).unwrap();
    assert_eq!((recovered.first_seq, recovered.next_seq, recovered.cut), (first, last.next(), None));
    journal.close().unwrap();
    assert!(names_in(dir.path()).iter().all(|name| !name.ends_with("spare") && !name.ends_with("damaged")));
}

#[test]
fn what_is_current_or_the_last_acknowledged_stays_whatever_is_released() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    (0..3).for_each(|_| step(&mut journal, 100));
    journal.release_before(Seq::MAX);
    settle(&mut journal);
    assert_eq!(journal.first_seq(), Seq(1));
    journal.close().unwrap();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    journal.release_before(Seq::MAX);
    settle(&mut journal);
    assert_eq!(journal.first_seq(), Seq(1), "nothing durable stands in a later segment");
    append(&mut journal, b"four");
    settle(&mut journal);
    assert_eq!(journal.first_seq(), Seq(1), "not yet");
    journal.sync_blocking(|| 0).unwrap();
    settle(&mut journal);
    assert_eq!(journal.first_seq(), Seq(4));
    // Once said it is not taken back.
    journal.release_before(Seq(1));
    step(&mut journal, 100);
    assert_eq!(read(dir.path(), 4).unwrap().len(), 2);
}

#[test]
fn a_run_without_end_stays_within_its_disk_budget() {
    const BUDGET_BYTES: u64 = 8 * (16 << 10);
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    let (mut files_max, mut bytes_max, mut now) = (0, 0, 0);
    while journal.stats().bytes < 40 * BUDGET_BYTES {
        now += 1_000_000;
        for _ in 0..3 {
            append(&mut journal, &[7; 900]);
        }
        journal.sync_blocking(|| now).unwrap();
        journal.release_before(Seq(journal.durable().0.saturating_sub(20)));
        journal.housekeeping(now);
        journal.poll(now);
        let (mut files, mut bytes) = (0, 0);
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            files += 1;
            bytes += entry.unwrap().metadata().unwrap().len();
        }
        files_max = files_max.max(files);
        bytes_max = bytes_max.max(bytes);
    }
    // Two segments hold the 20 frames that are kept; one more is written, and one is being taken away; then the spares, and
    // one more that was begun before they were there; the lock.
    assert!(files_max <= 4 + SPARES_MAX + 1 + 1, "{files_max} files, {bytes_max} bytes");
    assert!(bytes_max <= BUDGET_BYTES, "{files_max} files, {bytes_max} bytes");
    let stats = journal.stats();
    assert!(stats.recycled > 100 && stats.deleted < 10, "{stats:?}");
}

/// What a write may leave behind when the process or the power goes: the files before and after it, and its place.
struct Torn {
    before: Files,
    path: PathBuf,
    offset: usize,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Moments {
    /// The files after each operation, and what was acknowledged and released then.
    after: Vec<(Files, Seq, Seq)>,
    torn: Vec<(Torn, Seq, Seq)>,
    acknowledged: Seq,
    released: Seq,
}

/// A disk that keeps every moment at which it could have been interrupted.
struct Recorder {
    disk: MemoryDisk,
    moments: Rc<RefCell<Moments>>,
    open: Vec<PathBuf>,
}

impl Disk for Recorder {
    fn submit(&mut self, token: u64, op: Op<'_>) {
        let mut moments = self.moments.borrow_mut();
        let (acknowledged, released) = (moments.acknowledged, moments.released);
        if let Op::Write { file, buffer, start, len, offset, .. } = op {
            let bytes = self.disk.bytes(buffer)[start..start + len].to_vec();
            let before = self.disk.files.borrow().clone();
            let path = self.open[file.0 as usize].clone();
            moments.torn.push((Torn { before, path, offset: offset as usize, bytes }, acknowledged, released));
        }
        match op {
            Op::Open { path, .. } => self.open.push(path.to_owned()),
            Op::Rename { from, to } => {
                self.open.iter_mut().filter(|path| *path == from).for_each(|path| to.clone_into(path));
            }
            _ => {}
        }
        self.disk.submit(token, op);
        moments.after.push((self.disk.files.borrow().clone(), acknowledged, released));
    }

    fn poll(&mut self) -> Option<Completion> {
        let completion = self.disk.poll()?;
        if let Ok(Outcome::Opened(FileId(file))) = completion.result {
            assert_eq!(file as usize + 1, self.open.len());
        }
        Some(completion)
    }

    fn wait(&mut self) {}

    fn allocate(&mut self, bytes: usize) -> Result<BufferId, DiskError> {
        self.disk.allocate(bytes)
    }

    fn release(&mut self, buffer: BufferId) {
        self.disk.release(buffer);
    }

    fn bytes(&self, buffer: BufferId) -> &[u8] {
        self.disk.bytes(buffer)
    }

    fn bytes_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        self.disk.bytes_mut(buffer)
    }

    fn describe(&self) -> String {
        "recorder".into()
    }
}

/// A run of several rolls, each over a segment that was used before.
fn recorded() -> Moments {
    let moments = Rc::new(RefCell::new(Moments::default()));
    let files = Rc::new(RefCell::new(Files::new()));
    let disk = Recorder { disk: MemoryDisk::of(&files), moments: Rc::clone(&moments), open: Vec::new() };
    let (mut journal, _) = Journal::open(disk, Path::new(DIR), small()).unwrap();
    for number in 0..100u64 {
        // Commits of one to four sectors, so that the ends of old and new ones don't meet.
        let bytes = vec![number as u8; [100, 700, 1900, 1200][number as usize % 4]];
        append(&mut journal, &bytes);
        journal.sync_blocking(|| 0).unwrap();
        let durable = journal.durable();
        moments.borrow_mut().acknowledged = durable;
        if number % 3 == 0 {
            let released = Seq((durable.0 + 1).saturating_sub(6));
            moments.borrow_mut().released = released;
            journal.release_before(released);
        }
        settle(&mut journal);
    }
    assert!(journal.stats().recycled >= 4, "{:?}", journal.stats());
    drop(journal);
    moments.take()
}

/// Recovers these files: everything that was acknowledged and not released is there, and nothing is left over but, where it may be,
/// a new file without its header.
fn check_recovery(files: Files, acknowledged: Seq, released: Seq, may_be_damaged: bool, what: &dyn Fn() -> String) {
    let files = Rc::new(RefCell::new(files));
    let opened = Journal::open(MemoryDisk::of(&files), Path::new(DIR), small());
    let (journal, recovered) = opened.unwrap_or_else(|error| panic!("{}: {error}", what()));
    assert!(recovered.next_seq > acknowledged, "{}: {recovered:?}, acknowledged {acknowledged}", what());
    assert!(recovered.first_seq <= released.max(Seq(1)), "{}: {recovered:?}, released {released}", what());
    if acknowledged > Seq::ZERO {
        assert!(recovered.segments > 0, "{}: something acknowledged stays", what());
    }
    journal.close().unwrap();
    let left = files.borrow();
    let may_be = |end: &std::ffi::OsStr| end == "seg" || may_be_damaged && end == "damaged";
    let is_kept = |path: &&PathBuf| path.extension().is_some_and(may_be) || path.ends_with(names::SEALED);
    assert!(left.keys().all(|path| is_kept(&path)), "{}: {:?}", what(), left.keys());
    drop(left);
    if recovered.segments == 0 {
        return;
    }
    let mut reader = JournalReader::open_on(MemoryDisk::of(&files), Path::new(DIR), recovered.first_seq).unwrap();
    let mut seq = recovered.first_seq.0;
    while let Some(bytes) = reader.next().unwrap_or_else(|error| panic!("{}: {error}", what())) {
        assert_eq!(bytes[..8], seq.to_le_bytes());
        seq += 1;
    }
    assert_eq!(Seq(seq), recovered.next_seq, "{}", what());
}

#[test]
fn a_process_that_dies_after_any_operation_leaves_a_sound_journal() {
    let moments = recorded();
    assert!(moments.after.len() > 200, "{} moments", moments.after.len());
    for (number, (files, acknowledged, released)) in moments.after.into_iter().enumerate() {
        check_recovery(files, acknowledged, released, false, &|| format!("after operation {number}"));
    }
}

#[test]
fn a_write_that_stops_at_any_of_its_sectors_leaves_a_sound_journal() {
    const SECTOR: usize = 512;
    let (mut cases, mut over_a_mark) = (0, 0);
    for (number, (torn, acknowledged, released)) in recorded().torn.into_iter().enumerate() {
        let sectors = torn.bytes.len() / SECTOR;
        if sectors > 6 {
            continue;
        }
        let begins = torn.offset == 0 && torn.bytes.starts_with(b"TKTJ");
        let is_over_a_mark = begins && torn.before[&torn.path].starts_with(b"TKTR");
        over_a_mark += usize::from(is_over_a_mark);
        // Any of its sectors may have reached the disk.
        for reached in 0u32..1 << sectors {
            let mut files = torn.before.clone();
            let content = files.get_mut(&torn.path).unwrap();
            content.resize(content.len().max(torn.offset + torn.bytes.len()), 0);
            for sector in (0..sectors).filter(|sector| reached & 1 << sector != 0) {
                let (from, to) = (sector * SECTOR, torn.offset + sector * SECTOR);
                content[to..to + SECTOR].copy_from_slice(&torn.bytes[from..from + SECTOR]);
            }
            cases += 1;
            let may_be_damaged = begins && !is_over_a_mark;
            check_recovery(files, acknowledged, released, may_be_damaged, &|| {
                format!("write {number}, sectors {reached:b}")
            });
        }
    }
    println!("{cases} torn writes, {over_a_mark} of them begin a segment that was used before");
    assert!(cases > 500 && over_a_mark >= 4, "{cases} {over_a_mark}");
}

/// A journal on its second or later use of a file; the file is the last segment, of which so many commits were acknowledged.
fn used_again(commits: usize) -> (Files, PathBuf, Seq) {
    let files = Rc::new(RefCell::new(Files::new()));
    let (mut journal, _) = Journal::open(MemoryDisk::of(&files), Path::new(DIR), small()).unwrap();
    while journal.stats().recycled < 4 {
        step(&mut journal, 5);
    }
    let segments = journal.stats().segments;
    while journal.stats().segments == segments {
        step(&mut journal, 5);
    }
    let first = journal.durable();
    (1..commits).for_each(|_| step(&mut journal, 5));
    drop(journal);
    (files.take(), names::segment(Path::new(DIR), first), first)
}

#[test]
fn a_header_that_never_reached_its_recycled_file_is_loud() {
    let (mut files, last, first) = used_again(3);
    // As it stood there before, but for the salt.
    RecycleMark { first_seq: Seq(1), salt: 1, alignment: 512 }.encode(&mut files.get_mut(&last).unwrap()[..512]);
    let before = files.clone();
    let files = Rc::new(RefCell::new(files));
    let error = Journal::open(MemoryDisk::of(&files), Path::new(DIR), small()).unwrap_err();
    assert!(
        matches!(&error, JournalError::Corrupt { segment, offset: 0, seq, damage, .. }
            if *segment == last && *seq == first && *damage == Damage::Beginning { commit_at: 512 }),
        "{error:?}"
    );
    assert_eq!(*files.borrow(), before, "nothing was changed");
    let mut reader = JournalReader::open_on(MemoryDisk::of(&files), Path::new(DIR), Seq(first.0 - 1)).unwrap();
    assert!(reader.next().unwrap().is_some());
    assert!(reader.next().is_err());
}

#[test]
fn a_mark_that_rotted_costs_nothing() {
    let (mut files, ..) = used_again(8);
    let expected = {
        let files = Rc::new(RefCell::new(files.clone()));
        Journal::open(MemoryDisk::of(&files), Path::new(DIR), small()).unwrap().1
    };
    let spare = files.values_mut().find(|content| content.starts_with(b"TKTR")).expect("a spare waits");
    spare[20] ^= 1;
    let files = Rc::new(RefCell::new(files));
    let (_, recovered) = Journal::open(MemoryDisk::of(&files), Path::new(DIR), small()).unwrap();
    assert_eq!((recovered.first_seq, recovered.next_seq), (expected.first_seq, expected.next_seq));
    assert!(files.borrow().keys().any(|path| path.to_string_lossy().ends_with(".damaged")), "it may interest someone");
}

#[test]
fn every_block_size_is_recycled_and_none_across_another() {
    for alignment in [512, 1024, 4096] {
        let dir = scratch();
        let config = || JournalConfig { segment_bytes: 64 << 10, ..small() };
        let (mut journal, _) = Journal::open(Blocks::of(alignment), dir.path(), config()).unwrap();
        while journal.stats().recycled < 4 {
            step(&mut journal, 5);
        }
        (0..20).for_each(|_| step(&mut journal, 5));
        let (first, last) = (journal.first_seq(), journal.durable());
        drop(journal);
        assert_eq!(read(dir.path(), first.0).unwrap().len() as u64, last.0 + 1 - first.0);
        let summary = inspect(dir.path(), &mut |_| ()).unwrap();
        assert_eq!((summary.damaged, summary.torn), (0, 0));
        // Moved to a disk with other blocks: what is there is deleted when its time has come.
        let other = if alignment == 512 { 4096 } else { 512 };
        let (mut journal, recovered) = Journal::open(Blocks::of(other), dir.path(), config()).unwrap();
        assert_eq!((recovered.first_seq, recovered.next_seq), (first, last.next()));
        step(&mut journal, 0);
        let stats = journal.stats();
        assert_eq!((stats.deleted, stats.recycled), (recovered.segments as u64, 0), "{stats:?}");
        while journal.stats().recycled < 2 {
            step(&mut journal, 5);
        }
    }
}
