//! A log whose end is given up: exactly that is gone, whatever stopped it in between, and the log goes on.

mod common;

use std::cell::Cell;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::rc::Rc;

use common::{append, open, payload, read, scratch, small};
use ticktape_core::Seq;
use ticktape_journal::disk::{BufferId, Completion, DiskError, Op};
use ticktape_journal::format::commit::{self, CommitHeader};
use ticktape_journal::{Disk, FileDisk, GivenUp, JournalError, give_up, names};

const FRAMES: u64 = 300;

/// Several segments, with commits of one frame and of many; what was appended.
fn log(dir: &Path) -> Vec<Vec<u8>> {
    let (mut journal, _) = open(dir, small()).unwrap();
    let mut frames = Vec::new();
    for seq in 1..=FRAMES {
        if seq == 150 {
            journal.sync_blocking(|| 1).unwrap();
            journal.set_epoch(2);
        }
        frames.push(append(&mut journal, &payload(seq)));
        if seq % 7 == 0 {
            journal.sync_blocking(|| 1).unwrap();
        }
    }
    journal.close().unwrap();
    frames
}

fn copy(from: &Path) -> tempfile::TempDir {
    let to = scratch();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.path().join(path.file_name().unwrap())).unwrap();
    }
    to
}

/// Appends other frames, and reads all of it.
fn go_on(dir: &Path, mut kept: Vec<Vec<u8>>) {
    let (mut journal, recovered) = open(dir, small()).unwrap();
    assert_eq!((recovered.next_seq, recovered.cut), (Seq(kept.len() as u64 + 1), None));
    journal.set_epoch(3);
    kept.extend((0..40).map(|_| append(&mut journal, b"another reign's")));
    journal.close().unwrap();
    assert_eq!(read(dir, 1).unwrap(), kept);
}

#[test]
fn every_place_can_be_cut_at_and_the_log_goes_on_from_there() {
    let whole = scratch();
    let frames = log(whole.path());
    let segments = fs::read_dir(whole.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "seg"));
    assert!(segments.count() > 2);
    for from in (1..=FRAMES + 5).filter(|from| from % 3 == 0 || [1, 2, 149, 150, 151, FRAMES + 1].contains(from)) {
        let dir = copy(whole.path());
        let left = give_up(FileDisk::new, dir.path(), &small(), Seq(from)).unwrap();
        let kept = frames[..frames.len().min(from as usize - 1)].to_vec();
        let first_seq = (from > 1).then_some(Seq(1));
        assert_eq!(left, GivenUp { first_seq, next_seq: Seq(kept.len() as u64 + 1) });
        let again = give_up(FileDisk::new, dir.path(), &small(), Seq(from)).unwrap();
        assert_eq!(again, left);
        if from > 1 {
            assert_eq!(read(dir.path(), 1).unwrap(), kept);
        }
        go_on(dir.path(), kept);
    }
}

/// Plain files that lose power before one of their operations.
struct Cut {
    files: FileDisk,
    left: Rc<Cell<u32>>,
}

impl Disk for Cut {
    fn submit(&mut self, token: u64, op: Op<'_>) {
        let left = self.left.get().checked_sub(1).unwrap_or_else(|| resume_unwind(Box::new("no power")));
        self.left.set(left);
        self.files.submit(token, op);
    }

    fn poll(&mut self) -> Option<Completion> {
        self.files.poll()
    }

    fn wait(&mut self) {
        self.files.wait();
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
        "plain files that lose power".to_string()
    }
}

#[test]
fn stopped_at_any_operation_it_is_gone_on_with() {
    let whole = scratch();
    let frames = log(whole.path());
    let (from, mut shorter, mut operations) = (90, 0, 0);
    loop {
        let dir = copy(whole.path());
        let left = Rc::new(Cell::new(operations));
        let cut = || Cut { files: FileDisk::new(), left: Rc::clone(&left) };
        let done = catch_unwind(AssertUnwindSafe(|| give_up(cut, dir.path(), &small(), Seq(from)).unwrap()));
        let left = give_up(FileDisk::new, dir.path(), &small(), Seq(from)).unwrap();
        let kept = left.next_seq.0 as usize - 1;
        assert_eq!(read(dir.path(), 1).unwrap(), frames[..kept], "stopped at operation {operations}");
        assert!((80..90).contains(&kept), "no more than a commit's frames are lost beside: {kept}");
        shorter += u32::from(kept < 89);
        go_on(dir.path(), frames[..kept].to_vec());
        if done.is_ok() {
            assert_eq!(kept, 89);
            break;
        }
        operations += 1;
    }
    assert!(operations > 20 && shorter > 0, "{operations} operations, {shorter} times shorter");
}

/// The last segment, as a writer leaves it that ends while the first write is under way: a spare with a commit and no header. Returns the
/// commit's first frame.
fn tear_last_segment(dir: &Path) -> u64 {
    let segments = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let last = segments.filter(|path| path.extension().is_some_and(|extension| extension == "seg")).max().unwrap();
    let mut bytes = fs::read(&last).unwrap();
    let commit_at = (1..).map(|block| block * 512).find(|&at| bytes[at..].starts_with(&commit::MAGIC)).unwrap();
    bytes[..commit_at].fill(0);
    let behind = commit_at + CommitHeader::declared_bytes(&bytes[commit_at..], commit_at).unwrap();
    bytes[behind..].fill(0);
    fs::remove_file(&last).unwrap();
    fs::write(dir.join("00000000000000000001.spare"), bytes).unwrap();
    fs::remove_file(dir.join(names::SEALED)).unwrap();
    last.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

#[test]
fn the_beginning_of_a_segment_that_was_under_way_goes_with_what_is_given_up() {
    let whole = scratch();
    let frames = log(whole.path());
    let torn = tear_last_segment(whole.path()) as usize;
    for from in [20, torn / 2, torn - 5, torn - 1, torn] {
        let dir = copy(whole.path());
        let left = give_up(FileDisk::new, dir.path(), &small(), Seq(from as u64)).unwrap();
        assert_eq!(left, GivenUp { first_seq: Some(Seq(1)), next_seq: Seq(from as u64) });
        assert_eq!(read(dir.path(), 1).unwrap(), frames[..from - 1]);
        go_on(dir.path(), frames[..from - 1].to_vec());
    }
}

#[test]
fn a_journal_in_use_is_not_cut() {
    let dir = scratch();
    let frames = log(dir.path());
    let (journal, _) = open(dir.path(), small()).unwrap();
    let error = give_up(FileDisk::new, dir.path(), &small(), Seq(10)).unwrap_err();
    assert_eq!(error, JournalError::InUse { dir: dir.path().to_owned() });
    drop(journal);
    assert_eq!(read(dir.path(), 1).unwrap(), frames);
}

#[test]
fn damage_before_the_cut_stays_loud() {
    let dir = scratch();
    log(dir.path());
    let segment = names::segment(dir.path(), Seq(1));
    let mut bytes = fs::read(&segment).unwrap();
    bytes[1024] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let error = give_up(FileDisk::new, dir.path(), &small(), Seq(20)).unwrap_err();
    assert!(matches!(error, JournalError::Corrupt { .. }), "{error}");
    let error = open(dir.path(), small()).unwrap_err();
    assert!(matches!(error, JournalError::Corrupt { .. }), "{error}");
}
