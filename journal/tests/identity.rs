//! Which log a segment and a snapshot are of: nothing of another log is taken for this one's.

mod common;
mod snapshots;

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use common::{append, frame, open, read, scratch, small};
use snapshots::{drive, snapshot};
use ticktape_core::Seq;
use ticktape_journal::format::commit::CommitHeader;
use ticktape_journal::format::segment::{SegmentHeader, Version};
use ticktape_journal::snapshot::{self as files, SnapshotError};
use ticktape_journal::{
    FileDisk, Journal, JournalConfig, JournalError, JournalReader, Salts, Snapshot, SnapshotWriter, log_id, names,
};

fn seeded(seed: u64) -> JournalConfig {
    JournalConfig { salts: Salts::Seeded(seed), ..small() }
}

/// Segments of ten frames each, cleanly closed; returns the log's identity.
fn segments(dir: &Path, seed: u64, count: usize) -> u64 {
    let mut log_id = 0;
    for _ in 0..count {
        let (mut journal, recovered) = open(dir, seeded(seed)).unwrap();
        (0..10).for_each(|_| drop(append(&mut journal, b"input")));
        log_id = journal.log_id();
        assert_eq!(recovered.log_id, log_id);
        journal.close().unwrap();
    }
    log_id
}

/// The identity in a segment's header.
fn header(dir: &Path, first_seq: u64) -> u64 {
    let bytes = fs::read(names::segment(dir, Seq(first_seq))).unwrap();
    SegmentHeader::decode(&bytes[..512]).unwrap().log_id()
}

/// Every file of a directory with its bytes, by name.
fn contents(dir: &Path) -> Vec<(OsString, Vec<u8>)> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect()
}

fn of_log(seq: u64, log_id: u64) -> Snapshot {
    let snapshot = snapshot(seq, 100);
    let meta = files::SnapshotMeta { log_id, ..snapshot.meta().clone() };
    Snapshot::new(meta, snapshot.body().to_vec(), snapshot.sections())
}

fn write(dir: &Path, snapshot: Snapshot) {
    let mut writer = SnapshotWriter::new(FileDisk::new(), dir, snapshots::pace(100)).unwrap();
    writer.begin(snapshot);
    drive(&mut writer);
    assert!(writer.take_written().is_some());
}

#[test]
fn a_log_keeps_its_identity_and_another_one_has_another() {
    let (dir, other) = (scratch(), scratch());
    let ours = segments(dir.path(), 1, 3);
    let theirs = segments(other.path(), 2, 1);
    assert!(ours != 0 && theirs != 0 && ours != theirs);
    assert_eq!([1, 11, 21].map(|first| header(dir.path(), first)), [ours; 3]);
    assert_eq!(log_id(dir.path()), Ok(Some(ours)));
    assert_eq!(JournalReader::open(dir.path(), Seq(1)).unwrap().log_id(), Some(ours));
    let random = [scratch(), scratch()].map(|dir| {
        let config = JournalConfig { salts: Salts::System, ..small() };
        open(dir.path(), config).unwrap().0.log_id()
    });
    assert!(random[0] != random[1] && !random.contains(&0));
    assert_eq!(log_id(scratch().path()), Ok(None));
}

#[test]
fn a_segment_of_another_log_is_refused_and_both_files_are_named() {
    let (dir, other) = (scratch(), scratch());
    segments(dir.path(), 1, 3);
    segments(other.path(), 2, 4);
    // In the place of one, behind the end, and under another name beside one.
    for (from, to) in [(11, "00000000000000000011.seg"), (31, "00000000000000000031.seg"), (1, "stray.seg")] {
        let mixed = scratch();
        for (name, bytes) in contents(dir.path()) {
            fs::write(mixed.path().join(name), bytes).unwrap();
        }
        fs::copy(names::segment(other.path(), Seq(from)), mixed.path().join(to)).unwrap();
        let before = contents(mixed.path());
        for error in
            [open(mixed.path(), seeded(1)).unwrap_err(), JournalReader::open(mixed.path(), Seq(1)).unwrap_err()]
        {
            let JournalError::OtherLog { segment, other } = &error else { panic!("{error}") };
            assert!([segment, other].iter().any(|path| path.ends_with(to)), "{error}");
            let line = error.to_string();
            assert!(line.contains(to) && line.contains("another log") && line.lines().count() == 1, "{line}");
        }
        let after = contents(mixed.path());
        assert!(before.iter().all(|file| after.contains(file)), "nothing was changed");
    }
}

/// A version 1 segment of three frames.
fn version_1() -> Vec<u8> {
    let mut bytes = b"TKTJ\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x46\x84\x3b\xc8".to_vec();
    (1..=3).for_each(|seq| bytes.extend(frame(seq, b"input")));
    bytes
}

/// A version 2 segment of one frame, from before there were identities.
fn without_identity() -> Vec<u8> {
    let (salt, previous_salt, previous_checksum, log_id) = (7, 0, 0, 0);
    let version = Version::Two { salt, previous_salt, previous_checksum, alignment: 512, recycled: false, log_id };
    let mut bytes = vec![0; 1024];
    let previous = SegmentHeader { first_seq: Seq(1), epoch: 0, version }.encode(&mut bytes[..512]);
    let padded = common::padded(1, b"input");
    bytes[576..576 + padded.len()].copy_from_slice(&padded);
    let length = padded.len() as u32;
    let (epoch, base_seq, durable, count, next_salt) = (0, Seq(1), Seq(0), 1, 0);
    let header = CommitHeader { salt, epoch, base_seq, durable, count, length, previous, next_salt };
    header.seal(&mut bytes[512..]);
    bytes
}

#[test]
fn a_log_from_before_there_were_identities_gets_one_with_its_next_segment() {
    for (old, frames) in [(version_1(), 3), (without_identity(), 1)] {
        let dir = scratch();
        fs::write(names::segment(dir.path(), Seq(1)), old).unwrap();
        assert_eq!(log_id(dir.path()), Ok(None));
        assert_eq!(JournalReader::open(dir.path(), Seq(1)).unwrap().log_id(), None);
        write(dir.path(), of_log(1, 99));
        assert_eq!(files::newest(dir.path(), Seq::MAX).unwrap().rejected.len(), 0, "there is nothing to compare with");
        let ours = segments(dir.path(), 1, 1);
        assert_eq!(header(dir.path(), frames + 1), ours);
        assert_eq!(log_id(dir.path()), Ok(Some(ours)));
        assert_eq!(segments(dir.path(), 3, 1), ours, "and keeps it");
        assert_eq!(read(dir.path(), 1).unwrap().len() as u64, frames + 20);
        assert_eq!(files::newest(dir.path(), Seq::MAX).unwrap().rejected.len(), 1);
    }
}

#[test]
fn a_journal_without_segments_is_the_log_that_it_is_told() {
    let dir = scratch();
    let config = JournalConfig { log_id: 0xabcd, ..seeded(1) };
    let (mut journal, recovered) = Journal::open_covered(FileDisk::new(), dir.path(), config, Seq(41)).unwrap();
    assert_eq!((recovered.log_id, journal.log_id()), (0xabcd, 0xabcd));
    append(&mut journal, b"after");
    journal.close().unwrap();
    assert_eq!(header(dir.path(), 42), 0xabcd);
    assert_eq!(read(dir.path(), 42).unwrap(), [frame(42, b"after")]);
    let config = JournalConfig { log_id: 7, ..seeded(1) };
    let (journal, _) = Journal::open_covered(FileDisk::new(), dir.path(), config, Seq(41)).unwrap();
    assert_eq!(journal.log_id(), 0xabcd, "what the segments say goes first");
}

#[test]
fn snapshots_of_another_log_are_passed_over_named_and_relied_on_for_nothing() {
    let dir = scratch();
    let ours = segments(dir.path(), 1, 3);
    write(dir.path(), of_log(5, ours ^ 1));
    write(dir.path(), of_log(10, 0));
    write(dir.path(), of_log(20, ours));
    write(dir.path(), of_log(25, ours ^ 1));
    let newest = files::newest(dir.path(), Seq::MAX).unwrap();
    assert_eq!(newest.snapshot.unwrap().meta().seq, Seq(20));
    assert_eq!(newest.log_id, Some(ours));
    let [(path, error)] = &newest.rejected[..] else { panic!("{:?}", newest.rejected) };
    assert_eq!(path, &names::snapshot(dir.path(), Seq(25)));
    assert!(matches!(error, SnapshotError::OtherLog { log, .. } if *log == ours));
    let line = error.to_string();
    assert!(line.contains("0025.snap: offset 172: it is a snapshot of another log"), "{line}");
    assert_eq!(files::newest(dir.path(), Seq(15)).unwrap().snapshot.unwrap().meta().seq, Seq(10), "it does not say");

    let pace = snapshots::pace(100);
    let mut writer = SnapshotWriter::new(FileDisk::new(), dir.path(), pace).unwrap().for_log(ours);
    drive(&mut writer);
    assert_eq!((writer.oldest_verified(), writer.newest_verified()), (Some(Seq(10)), Some(Seq(20))));
    assert_eq!(writer.rejected().map(|(seq, _)| seq).collect::<Vec<_>>(), [Seq(5), Seq(25)]);
}

#[test]
fn where_there_are_no_segments_nothing_is_compared() {
    let dir = scratch();
    write(dir.path(), of_log(25, 99));
    let newest = files::newest(dir.path(), Seq::MAX).unwrap();
    assert_eq!((newest.snapshot.unwrap().meta().log_id, newest.log_id, newest.rejected.len()), (99, None, 0));
}
