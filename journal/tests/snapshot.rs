//! Writing, reading, retaining and replacing snapshots on a disk that behaves.

mod common;
mod snapshots;

use std::fs;
use std::io::Write as _;
use std::path::Path;

use snapshots::{drive, eager, pace, snapshot, write};
use ticktape_core::Seq;
use ticktape_journal::snapshot::{SectionBytes, SnapshotDamage, list, newest, purge_beyond, read, read_header, verify};
use ticktape_journal::{
    Binding, Disk, FileDisk, JournalError, NativeDisk, Snapshot, SnapshotError, SnapshotPace, SnapshotWriter, names,
};

fn writer(dir: &Path, retain: usize) -> SnapshotWriter<FileDisk> {
    SnapshotWriter::new(FileDisk::new(), dir, pace(retain)).unwrap()
}

/// A directory with these snapshots.
fn with(seqs: &[u64]) -> tempfile::TempDir {
    let dir = common::scratch();
    let mut writer = writer(dir.path(), 100);
    for &seq in seqs {
        write(&mut writer, snapshot(seq, 1000)).unwrap();
    }
    dir
}

fn files(dir: &Path) -> Vec<String> {
    let mut files: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    files
}

fn seqs(dir: &Path) -> Vec<u64> {
    list(dir).unwrap().into_iter().map(|(seq, _)| seq.0).collect()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn what_was_written_is_read_back_the_same_at_every_size() {
    let dir = common::scratch();
    let mut writer = SnapshotWriter::new(FileDisk::new(), dir.path(), eager()).unwrap();
    // Nothing, around one block, around one chunk, more than one slice between syncs.
    for (seq, bytes) in (1..).zip([0, 1, 4095, 4096, 4097, 262_143, 262_144, 262_145, 5_000_000]) {
        let expected = snapshot(seq, bytes);
        assert_eq!(write(&mut writer, expected.clone()).unwrap(), *expected.meta());
        let path = names::snapshot(dir.path(), Seq(seq));
        assert_eq!(fs::metadata(&path).unwrap().len(), 4096 + bytes.next_multiple_of(4096) as u64);
        assert_eq!(read(&path).unwrap(), expected);
        let header = verify(&path).unwrap();
        assert_eq!((&header.meta, header.sections), (expected.meta(), expected.sections()));
        assert_eq!(read_header(&path).unwrap(), header);
        assert_eq!(newest(dir.path(), Seq::MAX).unwrap().snapshot, Some(expected));
        assert_eq!((writer.newest_verified(), writer.is_verified(Seq(seq))), (Some(Seq(seq)), true));
        assert!(!writer.is_verified(Seq(seq + 1)));
    }
}

#[test]
fn sections_are_told_apart() {
    let meta = snapshot(1, 0).meta().clone();
    let sections = SectionBytes { engine: 2, service: 3, tails: 1 };
    let snapshot = Snapshot::new(meta, b"abcdef".to_vec(), sections);
    assert_eq!((snapshot.engine(), snapshot.service(), snapshot.tails()), (&b"ab"[..], &b"cde"[..], &b"f"[..]));
    assert_eq!((snapshot.digested(), snapshot.body()), (&b"abcde"[..], &b"abcdef"[..]));
}

#[test]
#[should_panic(expected = "the sections fill the body")]
fn sections_that_are_not_the_body_are_a_bug() {
    let sections = SectionBytes { engine: 2, service: u64::MAX, tails: 1 };
    Snapshot::new(snapshot(1, 0).meta().clone(), vec![0; 2], sections);
}

#[test]
fn as_many_are_kept_as_asked_for() {
    let dir = common::scratch();
    let mut writer = writer(dir.path(), 3);
    for seq in 1..=6 {
        write(&mut writer, snapshot(seq, 5000)).unwrap();
        assert_eq!(seqs(dir.path()), (seq.saturating_sub(2).max(1)..=seq).collect::<Vec<_>>());
        assert_eq!(writer.oldest_verified(), Some(Seq(seq.saturating_sub(2).max(1))));
    }
    assert_eq!((writer.failures(), writer.failed()), (0, None));
}

#[test]
fn a_large_one_goes_in_slices() {
    let dir = common::scratch();
    let pace = SnapshotPace { bytes_per_ms: 1 << 20, retain: 1 };
    let mut writer = SnapshotWriter::new(FileDisk::new(), dir.path(), pace).unwrap();
    let mut now = 0;
    let mut sizes = Vec::new();
    for (seq, bytes) in [(1, 10 << 20), (2, 100)] {
        writer.begin(snapshot(seq, bytes));
        while !writer.is_idle() {
            writer.poll(now);
            now += 1_000_000;
            let aside = fs::metadata(names::snapshot_aside(dir.path(), Seq(1))).map_or(0, |file| file.len());
            if seq == 2 && sizes.last() != Some(&aside) {
                sizes.push(aside);
            }
        }
    }
    let whole = (10 << 20) + 4096;
    assert_eq!(sizes, [0, whole, whole - (4 << 20), whole - (8 << 20), 0]);
    assert_eq!(seqs(dir.path()), [2]);
}

#[test]
fn those_of_an_earlier_run_are_verified_before_they_count() {
    let dir = with(&[10, 20, 30]);
    let mut writer = writer(dir.path(), 2);
    assert_eq!((writer.oldest_verified(), writer.is_idle(), writer.is_busy()), (None, false, false));
    drive(&mut writer);
    assert_eq!(seqs(dir.path()), [20, 30], "one more than is retained");
    assert_eq!(writer.oldest_verified(), Some(Seq(20)));
    write(&mut writer, snapshot(40, 100)).unwrap();
    assert_eq!(seqs(dir.path()), [30, 40]);
}

#[test]
fn a_rotten_one_is_not_counted_and_is_named() {
    let dir = with(&[10, 20, 30]);
    flip(&names::snapshot(dir.path(), Seq(20)), 4096 + 7);
    let mut writer = writer(dir.path(), 2);
    drive(&mut writer);
    assert_eq!(seqs(dir.path()), [10, 20, 30], "the rotten one is none of the two");
    assert_eq!(writer.oldest_verified(), Some(Seq(10)));
    let rejected: Vec<_> = writer.rejected().collect();
    assert_eq!((rejected.len(), rejected[0].0), (1, Seq(20)));
    let message = rejected[0].1.to_string();
    assert!(message.contains("00000000000000000020.snap: offset 4096: body checksum"), "{message}");
    assert!(message.contains("delete this file") && message.lines().count() == 1, "{message}");
    write(&mut writer, snapshot(40, 100)).unwrap();
    assert_eq!(seqs(dir.path()), [30, 40], "it goes with those around it");
    assert_eq!(writer.rejected().count(), 0);
}

#[test]
fn a_new_one_replaces_a_rotten_one_of_the_same_seq() {
    let dir = with(&[10]);
    flip(&names::snapshot(dir.path(), Seq(10)), 0);
    let mut writer = writer(dir.path(), 2);
    drive(&mut writer);
    assert_eq!((writer.oldest_verified(), writer.rejected().count()), (None, 1));
    write(&mut writer, snapshot(10, 7)).unwrap();
    assert_eq!((writer.oldest_verified(), writer.rejected().count()), (Some(Seq(10)), 0));
    assert_eq!(newest(dir.path(), Seq::MAX).unwrap().snapshot, Some(snapshot(10, 7)));
}

#[test]
fn the_newest_sound_one_is_found_past_rotten_ones() {
    let dir = with(&[10, 20, 30, 40]);
    let whole = fs::read(names::snapshot(dir.path(), Seq(30))).unwrap();
    fs::write(names::snapshot(dir.path(), Seq(30)), &whole[..5000]).unwrap();
    flip(&names::snapshot(dir.path(), Seq(20)), 100);
    let found = newest(dir.path(), Seq(39)).unwrap();
    assert_eq!(found.snapshot.unwrap().meta().seq, Seq(10));
    let reasons: Vec<_> = found.rejected.iter().map(|(path, error)| (names::snapshot_seq(path), error)).collect();
    let cut = SnapshotDamage::Size { expected: 8192, actual: 5000 };
    assert!(matches!(reasons[0], (Some(Seq(30)), SnapshotError::Damaged { damage, .. }) if *damage == cut));
    let crc = |damage: &SnapshotDamage| matches!(damage, SnapshotDamage::HeaderCrc { .. });
    assert!(matches!(reasons[1], (Some(Seq(20)), SnapshotError::Damaged { damage, .. }) if crc(damage)));
    assert_eq!(reasons.len(), 2, "40 is beyond, and not looked at");
    assert_eq!(newest(dir.path(), Seq(9)).unwrap().snapshot, None);
    assert_eq!(newest(dir.path(), Seq::MAX).unwrap().snapshot.unwrap().meta().seq, Seq(40));
}

#[test]
fn a_snapshot_under_anothers_name_is_refused_and_a_copy_is_not() {
    let dir = with(&[10]);
    let path = names::snapshot(dir.path(), Seq(10));
    let (wrong, copy) = (names::snapshot(dir.path(), Seq(11)), dir.path().join("copy"));
    fs::copy(&path, &wrong).unwrap();
    fs::copy(&path, &copy).unwrap();
    assert_eq!(read(&wrong).unwrap_err(), SnapshotError::Misnamed { path: wrong.clone(), seq: Seq(10) });
    assert_eq!(read_header(&wrong).unwrap_err(), verify(&wrong).unwrap_err());
    assert_eq!(read(&copy).unwrap(), read(&path).unwrap());
    let mut writer = writer(dir.path(), 2);
    drive(&mut writer);
    assert_eq!((writer.newest_verified(), writer.rejected().count()), (Some(Seq(10)), 1));
}

#[test]
fn only_its_own_leftovers_are_removed() {
    let dir = with(&[10]);
    let others =
        ["00000000000000000001.seg", "00000000000000000020.snap.bak", "1.snap", "1.snap.tmp", "a.snap", "sealed.tmp"];
    for name in others.iter().chain(&["00000000000000000020.snap.tmp", "00000000000000000000.snap"]) {
        fs::write(dir.path().join(name), b"x").unwrap();
    }
    assert_eq!(seqs(dir.path()), [10], "no other name is one of a snapshot");
    let mut writer = writer(dir.path(), 1);
    write(&mut writer, snapshot(30, 100)).unwrap();
    let mut expected: Vec<_> = others.iter().map(|name| (*name).to_owned()).collect();
    expected.extend(["00000000000000000000.snap".to_owned(), "00000000000000000030.snap".to_owned()]);
    expected.sort();
    assert_eq!(files(dir.path()), expected);
}

#[test]
fn what_is_beyond_the_journal_is_purged() {
    let dir = with(&[10, 20, 30, 40]);
    assert_eq!(purge_beyond(dir.path(), Seq(20)).unwrap(), [Seq(40), Seq(30)]);
    assert_eq!(seqs(dir.path()), [10, 20]);
    assert_eq!(purge_beyond(dir.path(), Seq(20)).unwrap(), []);
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let dir = common::scratch();
    let path = dir.path().join("none");
    for error in
        [list(&path).unwrap_err(), newest(&path, Seq::MAX).unwrap_err(), purge_beyond(&path, Seq(1)).unwrap_err()]
    {
        assert!(matches!(&error, JournalError::Disk { path: named, .. } if *named == path), "{error}");
    }
    let error = read(&names::snapshot(&path, Seq(1))).unwrap_err();
    assert!(error.to_string().contains("00000000000000000001.snap: open: No such file"), "{error}");
    assert!(writer(&path, 1).is_idle(), "a writer makes it");
}

#[test]
fn a_pace_of_nothing_is_refused() {
    let dir = common::scratch();
    for pace in [SnapshotPace { bytes_per_ms: 0, retain: 1 }, SnapshotPace { bytes_per_ms: 1, retain: 0 }] {
        let error = SnapshotWriter::new(FileDisk::new(), dir.path(), pace).unwrap_err();
        assert!(error.to_string().contains("at least 1"), "{error}");
    }
}

#[test]
fn the_pace_is_kept_and_the_allocation_comes_back() {
    let dir = common::scratch();
    // One chunk of 256 KiB each 2 ms; 4 MiB of body are 16 chunks, written once and read once.
    let pace = SnapshotPace { bytes_per_ms: 128 << 10, retain: 1 };
    let mut writer = SnapshotWriter::new(FileDisk::new(), dir.path(), pace).unwrap();
    let snapshot = snapshot(5, 4 << 20);
    let body = snapshot.body().as_ptr();
    writer.begin(snapshot);
    let mut now = 0;
    while writer.is_busy() {
        // However often it is polled at one time.
        (0..10).for_each(|_| {
            writer.poll(now);
        });
        now += 100_000;
    }
    let ms = now / 1_000_000;
    assert!((2 * 31..2 * 40).contains(&ms), "{ms} ms");
    let spent = writer.take_body().unwrap();
    assert_eq!((spent.as_ptr(), spent.len()), (body, 4 << 20), "not copied");
    assert_eq!(writer.take_body(), None);
}

#[test]
#[should_panic(expected = "one snapshot at a time")]
fn two_at_once_are_a_bug() {
    let dir = common::scratch();
    let mut writer = writer(dir.path(), 1);
    writer.begin(snapshot(1, 10));
    writer.begin(snapshot(2, 10));
}

#[test]
fn the_disk_of_this_machine_writes_past_the_page_cache() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for binding in [Binding::AnyThread, Binding::OneThread] {
        let disk = NativeDisk::new(dir.path(), binding);
        if let NativeDisk::File(disk) = &disk {
            let _ = writeln!(std::io::stderr(), "skipped: {}", disk.describe());
            return;
        }
        let mut writer = SnapshotWriter::new(disk, dir.path(), eager()).unwrap();
        for (seq, bytes) in [(1, 300), (2, 9_000_001)] {
            write(&mut writer, snapshot(seq, bytes)).unwrap();
            assert_eq!(newest(dir.path(), Seq::MAX).unwrap().snapshot, Some(snapshot(seq, bytes)));
        }
        assert_eq!(purge_beyond(dir.path(), Seq(0)).unwrap().len(), 2);
    }
}
