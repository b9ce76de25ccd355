//! A disk that misbehaves: nothing is acknowledged that is not durable, whatever it does.

mod common;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;

use common::{append, clock, padded, read, small};
use ticktape_core::Seq;
use ticktape_journal::disk::{BufferId, Completion, DiskError, Op, Outcome};
use ticktape_journal::{Disk, FileDisk, Journal, JournalConfig, JournalError, Strategy};

/// What the disk does next, shared with the test.
#[derive(Debug, Default)]
struct Mood {
    /// Writes only so many bytes of each write.
    short_to: Option<usize>,
    /// Fails operations of this name with this error.
    fails: Option<(&'static str, i32)>,
    /// Keeps completions back; they come out newest first.
    holds: bool,
    /// Whether a write and a sync were ever under way at once.
    wrote_beside_a_sync: bool,
    /// Every operation's name, in the order of submission.
    submitted: Vec<&'static str>,
}

/// Plain files, with moods.
#[derive(Debug)]
struct Moody {
    files: FileDisk,
    mood: Rc<RefCell<Mood>>,
    held: VecDeque<Completion>,
    /// What is under way, by token.
    under_way: Vec<(u64, &'static str)>,
}

impl Moody {
    fn new(mood: &Rc<RefCell<Mood>>) -> Moody {
        Moody { files: FileDisk::new(), mood: Rc::clone(mood), held: VecDeque::new(), under_way: Vec::new() }
    }
}

impl Disk for Moody {
    fn submit(&mut self, token: u64, op: Op<'_>) {
        let (short_to, fails) = (self.mood.borrow().short_to, self.mood.borrow().fails);
        let op = match (op, short_to) {
            (Op::Write { file, buffer, start, len, offset, durable }, Some(most)) => {
                Op::Write { file, buffer, start, len: len.min(most), offset, durable }
            }
            (op, _) => op,
        };
        let beside = |name| self.under_way.iter().any(|&(_, other)| other == name);
        let both = op.name() == "write" && beside("sync") || op.name() == "sync" && beside("write");
        self.mood.borrow_mut().wrote_beside_a_sync |= both;
        self.under_way.push((token, op.name()));
        self.mood.borrow_mut().submitted.push(op.name());
        match fails {
            Some((name, errno)) if op.name() == name => {
                self.held.push_front(Completion { token, result: Err(DiskError { op: name, errno }) });
            }
            _ => {
                self.files.submit(token, op);
                let done = self.files.poll().expect("plain files complete at once");
                self.held.push_front(done);
            }
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        if self.mood.borrow().holds {
            return None;
        }
        let completion = self.held.pop_front()?;
        let done = self.under_way.iter().position(|&(token, _)| token == completion.token).unwrap();
        self.under_way.swap_remove(done);
        Some(completion)
    }

    fn wait(&mut self) {
        self.mood.borrow_mut().holds = false;
    }

    fn allocate(&mut self, bytes: usize) -> Result<BufferId, DiskError> {
        self.files.allocate(bytes)
    }

    fn release(&mut self, buffer: BufferId) {
        self.files.release(buffer);
    }

    fn bytes(&self, buffer: BufferId) -> &[u8] {
        self.files.bytes(buffer)
    }

    fn bytes_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        self.files.bytes_mut(buffer)
    }

    fn describe(&self) -> String {
        "moody".into()
    }
}

fn moody(dir: &Path, config: JournalConfig) -> (Journal<Moody>, Rc<RefCell<Mood>>) {
    let mood = Rc::new(RefCell::new(Mood::default()));
    (Journal::open(Moody::new(&mood), dir, config).unwrap().0, mood)
}

#[test]
fn short_writes_are_gone_on_with_before_anything_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, mood) = moody(dir.path(), small());
    mood.borrow_mut().short_to = Some(700);
    let written: Vec<_> = (0..9u8).map(|i| append(&mut journal, &[i; 300])).collect();
    journal.sync_blocking(clock()).unwrap();
    assert!(journal.stats().short_writes > 3, "{:?}", journal.stats());
    assert_eq!(read(dir.path(), 1).unwrap(), written);
    journal.close().unwrap();
}

#[test]
fn a_write_that_gets_nowhere_latches() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, mood) = moody(dir.path(), small());
    mood.borrow_mut().short_to = Some(100);
    append(&mut journal, b"x");
    let error = journal.sync_blocking(clock()).unwrap_err();
    assert!(matches!(error, JournalError::WriteZero { offset: 0, .. }), "{error:?}");
    assert_eq!(journal.durable(), Seq(0));
}

#[test]
fn the_first_error_of_a_write_or_sync_freezes_the_mark_for_good() {
    for op in ["write", "sync"] {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, mood) = moody(dir.path(), small());
        append(&mut journal, b"durable");
        journal.sync_blocking(clock()).unwrap();
        mood.borrow_mut().fails = Some((op, libc::EIO));
        append(&mut journal, b"lost");
        let error = journal.sync_blocking(clock()).unwrap_err();
        assert!(error.to_string().contains(&format!("{op}: Input/output error")), "{error}");
        assert!(error.to_string().contains("00000000000000000001.seg"), "{error}");
        // The disk recovers; the journal does not believe it.
        mood.borrow_mut().fails = None;
        assert!(!journal.room(64));
        journal.append(Seq(3), &padded(3, b"ignored"));
        for now in 0..50 {
            journal.poll(now * 1_000_000);
            journal.housekeeping(now * 1_000_000);
        }
        assert_eq!((journal.durable(), journal.failed()), (Seq(1), Some(&error)));
        assert_eq!(journal.close().unwrap_err(), error);
    }
}

#[test]
fn completions_in_the_wrong_order_move_the_mark_in_the_right_one() {
    let dir = tempfile::tempdir().unwrap();
    let config = JournalConfig { writes_in_flight: 8, strategy: Strategy::Dsync.into(), ..small() };
    let (mut journal, mood) = moody(dir.path(), config);
    mood.borrow_mut().holds = true;
    // Each fills a commit, so that several are under way.
    let mut written = Vec::new();
    for i in 0..3u8 {
        written.push(append(&mut journal, &vec![i; 3900]));
        journal.poll(0);
    }
    assert_eq!(journal.durable(), Seq(0));
    mood.borrow_mut().holds = false;
    let mut marks = vec![];
    while journal.durable() < Seq(3) {
        journal.poll(0);
        marks.push(journal.durable());
    }
    assert!(marks.is_sorted());
    assert_eq!(read(dir.path(), 1).unwrap(), written);
}

#[test]
fn a_full_disk_is_met_before_an_input_is_accepted_and_space_that_comes_back_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, mood) = moody(dir.path(), small());
    mood.borrow_mut().fails = Some(("preallocate", libc::ENOSPC));
    let mut now = 0;
    let mut accepted = 0u64;
    let frame = |seq| padded(seq, &[7; 1000]);
    while journal.starved().is_none() || journal.room(frame(1).len()) {
        if journal.room(frame(1).len()) {
            accepted += 1;
            journal.append(Seq(accepted), &frame(accepted));
        }
        now += 1_000;
        journal.poll(now);
        journal.housekeeping(now);
        assert!(accepted < 100, "a segment of 16 KiB does not hold this");
    }
    let Some(JournalError::NoSpace { needed: 16384, free, .. }) = journal.starved() else {
        panic!("{:?}", journal.starved())
    };
    assert!(*free > 0, "it was measured");
    let chores: Vec<_> = mood.borrow().submitted.iter().copied().filter(|name| *name != "write").collect();
    assert!(chores.windows(4).any(|four| four == ["preallocate", "delete", "close", "free space"]), "{chores:?}");
    assert!(accepted > 8, "the current segment was used first");
    journal.sync_blocking(|| now).unwrap();
    assert_eq!((journal.durable(), journal.failed()), (Seq(accepted), None));
    mood.borrow_mut().fails = None;
    while !journal.room(frame(1).len()) {
        now += 10_000_000;
        journal.poll(now);
        journal.housekeeping(now);
    }
    assert_eq!(journal.starved(), None);
    journal.append(Seq(accepted + 1), &frame(accepted + 1));
    journal.close().unwrap();
    assert_eq!(read(dir.path(), 1).unwrap().len() as u64, accepted + 1);
}

#[test]
fn a_full_disk_at_the_start_is_named_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let mood = Rc::new(RefCell::new(Mood { fails: Some(("preallocate", libc::ENOSPC)), ..Mood::default() }));
    let error = Journal::open(Moody::new(&mood), dir.path(), small()).map(drop).unwrap_err();
    assert!(matches!(error, JournalError::NoSpace { needed: 16384, .. }), "{error:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "only the lock");
    // What a reservation took before it failed is free again before what is free is measured.
    assert!(mood.borrow().submitted.ends_with(&["preallocate", "delete", "close", "free space"]));
    let JournalError::NoSpace { free, .. } = &error else { unreachable!() };
    assert!(error.to_string().contains(&format!("{free} bytes free, ")) && error.to_string().contains("16384"));
}

#[test]
fn only_a_lock_that_another_holds_is_called_one_and_any_other_error_of_it_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    for errno in [libc::EACCES, libc::EPERM, libc::EROFS, libc::EIO] {
        let mood = Rc::new(RefCell::new(Mood { fails: Some(("lock", errno)), ..Mood::default() }));
        let error = Journal::open(Moody::new(&mood), dir.path(), small()).map(drop).unwrap_err();
        let path = dir.path().join("lock");
        assert_eq!(error, JournalError::Disk { path: path.clone(), error: DiskError { op: "lock", errno } });
        let said = error.to_string();
        let system = std::io::Error::from_raw_os_error(errno).to_string();
        assert!(said.contains(path.to_str().unwrap()) && said.contains(&system), "{said}");
    }
    let (held, _) = moody(dir.path(), small());
    let mood = Rc::new(RefCell::new(Mood::default()));
    let error = Journal::open(Moody::new(&mood), dir.path(), small()).map(drop).unwrap_err();
    assert_eq!(error, JournalError::InUse { dir: dir.path().to_owned() });
    drop(held);
    moody(dir.path(), small());
}

#[test]
fn the_port_says_what_it_did() {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = FileDisk::because("a reason");
    assert!(disk.describe().contains("a reason"));
    let missing = dir.path().join("missing");
    let error = disk.run(Op::Delete { path: &missing }).unwrap_err();
    assert!(error.is_missing() && !error.is_full() && !error.is_held());
    assert!(matches!(disk.run(Op::FreeSpace { path: dir.path() }).unwrap(), Outcome::Free(bytes) if bytes > 0));
}

#[test]
fn dsync_that_becomes_slow_is_given_up_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, mood) = moody(dir.path(), JournalConfig { strategy: Strategy::Dsync.into(), ..small() });
    let mut written = Vec::new();
    let mut now = 0;
    let mut one = |journal: &mut Journal<Moody>, took: u64| {
        written.push(append(journal, b"input"));
        mood.borrow_mut().holds = true;
        journal.poll(now);
        mood.borrow_mut().holds = false;
        now += took;
        while journal.durable() < journal.appended() {
            journal.poll(now);
        }
        written.clone()
    };
    for _ in 0..100 {
        one(&mut journal, 100_000);
    }
    assert_eq!((journal.strategy(), journal.stats().demotions, journal.stats().syncs), (Strategy::Dsync, 0, 0));
    let slow = (1..100).find(|_| {
        one(&mut journal, 4_000_000);
        journal.strategy() == Strategy::Group
    });
    assert!(slow.unwrap() < 10, "{slow:?} slow writes");
    let written = one(&mut journal, 100_000);
    assert_eq!(journal.stats().demotions, 1);
    assert!(
        journal.stats().syncs > 0 && journal.describe().contains("dsync had become slow"),
        "{}",
        journal.describe()
    );
    journal.close().unwrap();
    assert_eq!(read(dir.path(), 1).unwrap(), written);
}

#[test]
fn flush_never_writes_beside_a_sync_and_group_does() {
    for strategy in [Strategy::Flush, Strategy::Group] {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, mood) =
            moody(dir.path(), JournalConfig { strategy: strategy.into(), segment_bytes: 1 << 20, ..small() });
        let mut written = Vec::new();
        for round in 0..60u64 {
            // Completions come at every third poll only.
            mood.borrow_mut().holds = round % 3 != 0;
            let bytes = padded(journal.appended().0 + 1, &[7; 1500]);
            if journal.room(bytes.len()) {
                written.push(append(&mut journal, &[7; 1500]));
            }
            journal.poll(round);
        }
        mood.borrow_mut().holds = false;
        journal.sync_blocking(clock()).unwrap();
        assert_eq!(mood.borrow().wrote_beside_a_sync, strategy == Strategy::Group, "{strategy}");
        journal.close().unwrap();
        assert!(written.len() > 10);
        assert_eq!(read(dir.path(), 1).unwrap(), written);
    }
}

/// Three closed segments of a dozen frames each, released and not yet taken away, and the one that is written.
fn released(dir: &Path) -> (Journal<Moody>, Rc<RefCell<Mood>>) {
    let (mut journal, mood) = moody(dir, small());
    while journal.stats().segments < 4 {
        append(&mut journal, &[5; 1_000]);
        journal.sync_blocking(|| 0).unwrap();
        for round in 1..10 {
            journal.housekeeping(round << 40);
            journal.poll(0);
        }
    }
    journal.release_before(journal.durable());
    (journal, mood)
}

/// Housekeeping until it rests; returns (recycled, deleted).
fn rest(journal: &mut Journal<Moody>) -> (u64, u64) {
    for round in 100..300 {
        if journal.housekeeping(round << 40) == 0 {
            break;
        }
        journal.poll(0);
    }
    (journal.stats().recycled, journal.stats().deleted)
}

#[test]
fn a_released_segment_that_cannot_be_taken_away_is_a_failure_that_names_it() {
    for (op, errno) in [("stat", libc::EIO), ("delete", libc::EIO), ("rename", libc::EIO), ("sync", libc::EIO)] {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, mood) = released(dir.path());
        let oldest = ticktape_journal::names::segment(dir.path(), Seq(1));
        if op == "delete" {
            // Of another size than a spare.
            std::fs::File::options().write(true).open(&oldest).unwrap().set_len(20_000).unwrap();
        }
        mood.borrow_mut().fails = Some((op, errno));
        rest(&mut journal);
        let failed = journal.failed().cloned();
        let expected = DiskError { op, errno };
        assert_eq!(failed, Some(JournalError::Disk { path: oldest, error: expected }), "{op}");
    }
}

#[test]
fn what_someone_else_took_away_is_gone_and_a_full_disk_deletes() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, mood) = released(dir.path());
    std::fs::remove_file(ticktape_journal::names::segment(dir.path(), Seq(1))).unwrap();
    // A file system that copies on writing may have no room for the mark.
    mood.borrow_mut().fails = Some(("write", libc::ENOSPC));
    assert_eq!(rest(&mut journal), (0, 3));
    mood.borrow_mut().fails = None;
    assert_eq!((journal.failed(), journal.starved()), (None, None));
    append(&mut journal, b"on");
    journal.sync_blocking(|| 0).unwrap();
    assert_eq!(read(dir.path(), journal.durable().0).unwrap().len(), 1);
}

#[test]
fn a_mark_that_is_written_in_part_is_not_relied_on() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, mood) = released(dir.path());
    mood.borrow_mut().short_to = Some(100);
    assert_eq!(rest(&mut journal), (0, 3));
    mood.borrow_mut().short_to = None;
    assert_eq!(journal.failed(), None);
}
