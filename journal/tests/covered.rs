//! Opening with a snapshot: a journal that begins late, ends early, or is gone.

mod common;

use std::fs;
use std::path::Path;

use common::{append, frame, open, read, scratch, small};
use ticktape_core::Seq;
use ticktape_journal::{FileDisk, Journal, JournalError, Recovered, names};

/// Segments of ten frames each, cleanly closed.
fn segments(count: usize) -> tempfile::TempDir {
    let dir = scratch();
    for _ in 0..count {
        let (mut journal, _) = open(dir.path(), small()).unwrap();
        (0..10).for_each(|_| drop(append(&mut journal, b"input")));
        journal.close().unwrap();
    }
    dir
}

fn open_covered(dir: &Path, covered: u64) -> Result<(Journal<FileDisk>, Recovered), JournalError> {
    Journal::open_covered(FileDisk::new(), dir, small(), Seq(covered))
}

fn listing(dir: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> = entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect();
    files.sort();
    files
}

#[test]
fn where_all_is_gone_it_begins_behind_the_snapshot() {
    let dir = segments(1);
    fs::remove_file(names::segment(dir.path(), Seq(1))).unwrap();
    // The seal file says that 10 were durable.
    let missing = |error| matches!(error, JournalError::MissingSegment { durable: Seq(10), .. });
    assert!(missing(open_covered(dir.path(), 0).unwrap_err()));
    assert!(missing(open_covered(dir.path(), 9).unwrap_err()));
    let (mut journal, recovered) = open_covered(dir.path(), 10).unwrap();
    assert_eq!((recovered.first_seq, recovered.next_seq, recovered.segments), (Seq(11), Seq(11), 0));
    assert_eq!((journal.first_seq(), journal.durable()), (Seq(11), Seq(10)));
    journal.set_epoch(7);
    append(&mut journal, b"eleven");
    journal.close().unwrap();
    assert_eq!(read(dir.path(), 11).unwrap(), [frame(11, b"eleven")]);
    assert_eq!(read(dir.path(), 12).unwrap(), Vec::<Vec<u8>>::new());
    assert_eq!(read(dir.path(), 10).unwrap_err(), JournalError::TooOld { from: Seq(10), first: Seq(11) });
    let (journal, recovered) = open_covered(dir.path(), 10).unwrap();
    assert_eq!((recovered.first_seq, recovered.next_seq, recovered.last_epoch), (Seq(11), Seq(12), 7));
    journal.close().unwrap();
}

#[test]
fn a_new_directory_begins_behind_the_snapshot_as_well() {
    let dir = scratch();
    let (mut journal, recovered) = open_covered(dir.path(), 41).unwrap();
    assert_eq!(recovered.next_seq, Seq(42));
    append(&mut journal, b"answer");
    journal.close().unwrap();
    assert_eq!(read(dir.path(), 42).unwrap(), [frame(42, b"answer")]);
    // A stop without an append leaves nothing, and that is no damage.
    let other = scratch();
    open_covered(other.path(), 41).unwrap().0.close().unwrap();
    assert_eq!(open_covered(other.path(), 41).unwrap().1.next_seq, Seq(42));
    assert_eq!(read(other.path(), 42).unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn a_log_that_ends_before_the_snapshot_is_refused_and_nothing_is_changed() {
    let dir = segments(3);
    let before = listing(dir.path());
    let error = open_covered(dir.path(), 31).unwrap_err();
    let expected =
        JournalError::JournalBehindSnapshot { dir: dir.path().to_owned(), durable: Seq(30), snapshot: Seq(31) };
    assert_eq!(error, expected);
    assert!(error.to_string().contains("ends at seq 30, before the snapshot of seq 31"), "{error}");
    assert_eq!(listing(dir.path()), before);
    for covered in [0, 1, 29, 30] {
        let (journal, recovered) = open_covered(dir.path(), covered).unwrap();
        assert_eq!((recovered.next_seq, recovered.cut), (Seq(31), None));
        journal.close().unwrap();
    }
}

#[test]
fn a_log_that_begins_after_the_snapshot_is_refused_unless_there_is_none() {
    let dir = segments(3);
    fs::remove_file(names::segment(dir.path(), Seq(1))).unwrap();
    let before = listing(dir.path());
    let error = open_covered(dir.path(), 9).unwrap_err();
    let expected = JournalError::SnapshotGap { dir: dir.path().to_owned(), snapshot: Seq(9), first: Seq(11) };
    assert_eq!(error, expected);
    assert!(error.to_string().contains("seq 10 to 10 are in neither"), "{error}");
    assert_eq!(listing(dir.path()), before);
    for covered in [10, 11, 30, 0] {
        let (journal, recovered) = open_covered(dir.path(), covered).unwrap();
        assert_eq!((recovered.first_seq, recovered.next_seq), (Seq(11), Seq(31)));
        journal.close().unwrap();
    }
}

#[test]
fn a_lost_header_before_the_snapshot_is_not_missed() {
    let dir = segments(3);
    let first = names::segment(dir.path(), Seq(1));
    let mut bytes = fs::read(&first).unwrap();
    bytes[9] ^= 1;
    fs::write(&first, bytes).unwrap();
    let corrupt = |error| matches!(error, JournalError::Corrupt { segment, seq: Seq(1), .. } if segment == first);
    assert!(corrupt(open_covered(dir.path(), 0).unwrap_err()));
    assert!(corrupt(open_covered(dir.path(), 9).unwrap_err()));
    let (journal, recovered) = open_covered(dir.path(), 10).unwrap();
    assert_eq!(recovered.first_seq, Seq(11));
    journal.close().unwrap();
    // Damage behind it is as loud as ever.
    let last = names::segment(dir.path(), Seq(21));
    let mut bytes = fs::read(&last).unwrap();
    bytes[600] ^= 1;
    fs::write(&last, bytes).unwrap();
    assert!(matches!(open_covered(dir.path(), 25).unwrap_err(), JournalError::Corrupt { seq: Seq(21), .. }));
}
