//! A segment that is gone, or whose header is: both are told by name, and neither is told as the other.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{append, open, read, scratch, small};
use ticktape_core::Seq;
use ticktape_journal::{Damage, JournalError, names};

/// Four segments of ten frames each, the first of which is 1; all of them acknowledged, with a seal file or only commits to prove
/// it.
fn journal(sealed: bool) -> tempfile::TempDir {
    let dir = scratch();
    for _ in 0..4 {
        let (mut journal, _) = open(dir.path(), small()).unwrap();
        for _ in 0..10 {
            append(&mut journal, b"input");
        }
        journal.close().unwrap();
    }
    if !sealed {
        fs::remove_file(dir.path().join(names::SEALED)).unwrap();
    }
    assert_eq!(read(dir.path(), 1).unwrap().len(), 40);
    dir
}

fn segment(dir: &Path, first_seq: u64) -> PathBuf {
    names::segment(dir, Seq(first_seq))
}

/// What a reader and the next opening say.
fn errors(dir: &Path) -> [JournalError; 2] {
    [read(dir, 1).map(drop).unwrap_err(), open(dir, small()).map(drop).unwrap_err()]
}

#[test]
fn a_damaged_header_is_named_wherever_its_segment_stands() {
    [true, false].into_iter().for_each(damaged_headers);
}

fn damaged_headers(sealed: bool) {
    let dir = journal(sealed);
    for first_seq in [1, 11, 21, 31] {
        let path = segment(dir.path(), first_seq);
        let whole = fs::read(&path).unwrap();
        let mut damage: Vec<Vec<u8>> = (0..512)
            .step_by(5)
            .filter(|at| !(4..8).contains(at))
            .map(|at| {
                let mut bytes = whole.clone();
                bytes[at] ^= 0x21;
                bytes
            })
            .collect();
        damage.push([&[0; 512], &whole[512..]].concat());
        for bytes in damage {
            fs::write(&path, bytes).unwrap();
            for error in errors(dir.path()) {
                let JournalError::Corrupt { segment, offset: 0, seq, damage: Damage::Header(_), .. } = &error else {
                    panic!("{error}")
                };
                assert_eq!((segment, *seq), (&path, Seq(first_seq)), "{error}");
            }
            assert!(path.exists(), "nothing was changed");
        }
        fs::write(&path, whole).unwrap();
    }
    assert_eq!(read(dir.path(), 1).unwrap().len(), 40);
}

#[test]
fn a_missing_segment_is_told_as_the_seqs_between_two_files() {
    [true, false].into_iter().for_each(missing_segments);
}

fn missing_segments(sealed: bool) {
    let dir = journal(sealed);
    for (gone, to) in [(&[11u64][..], 20u64), (&[21], 30), (&[11, 21], 30)] {
        let kept: Vec<_> = gone.iter().map(|&seq| (segment(dir.path(), seq), seq)).collect();
        let kept: Vec<_> = kept.into_iter().map(|(path, seq)| (fs::read(&path).unwrap(), path, seq)).collect();
        kept.iter().for_each(|(_, path, _)| fs::remove_file(path).unwrap());
        let (before, after) = (segment(dir.path(), gone[0] - 10), segment(dir.path(), to + 1));
        for error in errors(dir.path()) {
            let expected = JournalError::MissingSegment {
                dir: dir.path().to_owned(),
                seq: Seq(gone[0]),
                to: Seq(to),
                between: Some((before.clone(), after.clone())),
                durable: Seq(40),
            };
            assert_eq!(error, expected);
            let said = error.to_string();
            assert!(said.contains(&format!("seq {} to {to} are in no segment", gone[0])), "{said}");
            assert!(said.contains(&format!("{:020}.seg and {:020}.seg", gone[0] - 10, to + 1)), "{said}");
        }
        kept.into_iter().for_each(|(bytes, path, _)| fs::write(path, bytes).unwrap());
    }
}

#[test]
fn a_beginning_that_was_taken_away_is_no_damage_but_told_to_who_asks_for_it() {
    let dir = journal(true);
    fs::remove_file(segment(dir.path(), 1)).unwrap();
    let error = read(dir.path(), 1).unwrap_err();
    assert_eq!(error, JournalError::TooOld { from: Seq(1), first: Seq(11) });
    assert!(error.to_string().contains("begins at 11 now; go on from a snapshot at or after seq 10"), "{error}");
    assert_eq!(read(dir.path(), 11).unwrap().len(), 30);
    let (_, recovered) = open(dir.path(), small()).unwrap();
    assert_eq!((recovered.first_seq, recovered.next_seq), (Seq(11), Seq(41)));
}
