//! Looking at a journal, sound and damaged.

mod common;

use std::fs;

use common::{append, clock, open, small};
use ticktape_core::Seq;
use ticktape_journal::inspect::{Summary, inspect};
use ticktape_journal::{JournalError, names};

fn told(path: &std::path::Path) -> (Vec<String>, Summary) {
    let mut lines = Vec::new();
    let summary = inspect(path, &mut |fact| lines.push(fact.to_string())).unwrap();
    (lines, summary)
}

#[test]
fn a_sound_journal_is_told_piece_by_piece() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let (mut journal, _) = open(dir.path(), small()).unwrap();
        append(&mut journal, b"hello");
        journal.sync_blocking(clock()).unwrap();
        journal.close().unwrap();
    }
    let (lines, summary) = told(dir.path());
    let expected = Summary {
        segments: 2,
        commits: 4,
        frames: 2,
        damaged: 0,
        torn: 0,
        first_seq: Some(Seq(1)),
        last_seq: Some(Seq(2)),
        durable: Seq(2),
    };
    assert_eq!(summary, expected);
    assert!(lines[0].ends_with("1536 bytes, from seq 1, epoch 0, version 2, blocks of 512"), "{}", lines[0]);
    assert_eq!(lines[1], "         512 commit: 512 bytes, seq 1..1, epoch 0, durable 0");
    assert_eq!(lines[2], "         576   frame: seq 1, Input, stream 1, time 10, payload 5 bytes");
    assert_eq!(lines[3], "        1024 seal: 512 bytes, before seq 2, epoch 0, durable 1");
    assert_eq!(lines[4], "        1536 end: next seq 2, nothing behind");
    assert_eq!(lines.last().unwrap(), "sealed: durable up to seq 2");
    let (one, summary) = told(&names::segment(dir.path(), Seq(2)));
    assert_eq!((one.len(), summary.frames), (5, 1));
}

#[test]
fn damage_is_told_and_what_it_means() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    append(&mut journal, b"hello");
    journal.close().unwrap();
    let segment = names::segment(dir.path(), Seq(1));
    let mut bytes = fs::read(&segment).unwrap();
    bytes[600] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let (lines, summary) = told(dir.path());
    assert_eq!((summary.frames, summary.damaged, summary.durable), (0, 1, Seq(1)));
    assert!(lines[1].contains("512 DAMAGED at seq 1: commit checksum is"), "{}", lines[1]);
    assert!(lines[2].ends_with("end: next seq 1, commits behind prove that seq 1 was durable"), "{}", lines[2]);
    bytes[9] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let (lines, summary) = told(dir.path());
    assert_eq!((summary.segments, summary.damaged), (0, 1));
    assert!(lines[0].contains("segment header checksum is"), "{}", lines[0]);
}

#[test]
fn every_flip_is_told_without_panic() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    append(&mut journal, b"hello");
    journal.close().unwrap();
    let segment = names::segment(dir.path(), Seq(1));
    let bytes = fs::read(&segment).unwrap();
    let mut noticed = 0;
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0xff;
        fs::write(&segment, &flipped).unwrap();
        noticed += u64::from(told(&segment).1.damaged + told(&segment).1.torn > 0);
    }
    assert_eq!(noticed, bytes.len() as u64);
}

#[test]
fn what_is_no_journal_is_said_to_be_none() {
    let dir = tempfile::tempdir().unwrap();
    let error = inspect(dir.path(), &mut |_| ()).unwrap_err();
    assert_eq!(error, JournalError::Empty { dir: dir.path().to_owned() });
    assert!(inspect(&dir.path().join("missing"), &mut |_| ()).is_err());
}

/// Four segments of ten frames each, cleanly closed.
fn four_segments() -> tempfile::TempDir {
    let dir = common::scratch();
    for _ in 0..4 {
        let (mut journal, _) = open(dir.path(), small()).unwrap();
        (0..10).for_each(|_| drop(append(&mut journal, b"input")));
        journal.close().unwrap();
    }
    assert_eq!((told(dir.path()).1.damaged, told(dir.path()).1.torn), (0, 0));
    dir
}

#[test]
fn what_is_missing_is_told_and_counted() {
    let dir = four_segments();
    for (gone, missing) in [
        (&[11u64][..], Some((11, 20))),
        (&[11, 21], Some((11, 30))),
        (&[31], Some((31, 40))),
        (&[21, 31], Some((21, 40))),
        // A beginning may be taken away.
        (&[1], None),
        (&[1, 11], None),
    ] {
        let paths: Vec<_> = gone.iter().map(|&seq| names::segment(dir.path(), Seq(seq))).collect();
        let kept: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
        paths.iter().for_each(|path| fs::remove_file(path).unwrap());
        let (lines, summary) = told(dir.path());
        let gaps: Vec<_> = lines.iter().filter(|line| line.starts_with("MISSING")).collect();
        let expected = missing.map(|(from, to)| format!("MISSING: seq {from} to {to} are in no sound segment"));
        assert_eq!(gaps, expected.iter().collect::<Vec<_>>());
        assert_eq!((summary.damaged, summary.torn, summary.durable), (gaps.len() as u64, 0, Seq(40)));
        paths.iter().zip(kept).for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    }
    // Two of them apart are two.
    fs::remove_file(names::segment(dir.path(), Seq(11))).unwrap();
    fs::remove_file(names::segment(dir.path(), Seq(31))).unwrap();
    assert_eq!(told(dir.path()).1.damaged, 2);
}

#[test]
fn a_lost_header_is_one_damaged_place_and_its_seqs_are_missing() {
    let dir = four_segments();
    for first in [1, 11, 21, 31] {
        let path = names::segment(dir.path(), Seq(first));
        let whole = fs::read(&path).unwrap();
        for zeroed in [1, 512] {
            let mut bytes = whole.clone();
            bytes[60] ^= 1;
            bytes[..zeroed].fill(0);
            fs::write(&path, &bytes).unwrap();
            let (lines, summary) = told(dir.path());
            assert_eq!((summary.damaged, summary.segments), (1, 3));
            let missing = format!("MISSING: seq {first} to {} are in no sound segment", first + 9);
            assert!(lines.contains(&missing), "{lines:?}");
        }
        fs::write(&path, whole).unwrap();
    }
}

#[test]
fn a_torn_tail_is_no_damage_until_something_proves_that_it_was_durable() {
    let dir = common::scratch();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    append(&mut journal, b"one");
    journal.sync_blocking(|| 0).unwrap();
    append(&mut journal, b"two");
    journal.sync_blocking(|| 0).unwrap();
    drop(journal);
    let segment = names::segment(dir.path(), Seq(1));
    let mut bytes = fs::read(&segment).unwrap();
    bytes[1024 + 100] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let (lines, summary) = told(dir.path());
    assert_eq!((summary.frames, summary.damaged, summary.torn), (1, 0, 1), "{lines:?}");
    bytes[512 + 100] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    assert_eq!((told(dir.path()).1.damaged, told(dir.path()).1.torn), (0, 1), "its only proof is damaged, too");
    bytes[1024 + 100] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    assert_eq!((told(dir.path()).1.damaged, told(dir.path()).1.torn), (1, 0));
}

#[test]
fn a_segment_of_another_journal_is_told_to_be_one() {
    let (dir, other) = (four_segments(), common::scratch());
    let config = || ticktape_journal::JournalConfig { salts: ticktape_journal::Salts::Seeded(9), ..small() };
    for _ in 0..2 {
        let (mut journal, _) = open(other.path(), config()).unwrap();
        (0..10).for_each(|_| drop(append(&mut journal, b"other")));
        journal.close().unwrap();
    }
    fs::copy(names::segment(other.path(), Seq(11)), names::segment(dir.path(), Seq(11))).unwrap();
    let (lines, summary) = told(dir.path());
    // It follows neither what stands before it, nor does what stands behind follow it.
    assert_eq!(summary.damaged, 2, "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.contains("does not go on")).count(), 2);
}

#[test]
fn a_segment_that_is_there_twice_is_told_to_be_and_what_follows_it_is_sound() {
    let dir = four_segments();
    for (copied, name) in [(11, 5), (11, 35), (21, 99)] {
        let copy = names::segment(dir.path(), Seq(name));
        fs::copy(names::segment(dir.path(), Seq(copied)), &copy).unwrap();
        let (lines, summary) = told(dir.path());
        assert_eq!(summary.damaged, 1, "{lines:?}");
        let twice: Vec<_> =
            lines.iter().filter(|line| line.contains("another segment begins at the same seq")).collect();
        assert_eq!(twice.len(), 1, "{lines:?}");
        fs::remove_file(copy).unwrap();
    }
}
