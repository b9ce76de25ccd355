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
        first_seq: Some(Seq(1)),
        last_seq: Some(Seq(2)),
        durable: Seq(2),
    };
    assert_eq!(summary, expected);
    assert!(lines[0].ends_with("1536 bytes, from seq 1, epoch 0, version 2, blocks of 512"), "{}", lines[0]);
    assert_eq!(lines[1], "         512 commit: 512 bytes, seq 1..1, epoch 0, durable 0");
    assert_eq!(lines[2], "         576   frame: seq 1, Input, stream 1, time 10, payload 5 bytes");
    assert_eq!(lines[3], "        1024 seal: 512 bytes, before seq 2, epoch 0, durable 1");
    assert_eq!(lines[4], "        1536 end: next seq 2, blank behind");
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
        noticed += u64::from(told(&segment).1.damaged > 0);
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
