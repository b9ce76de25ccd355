//! What ties one segment to the next: epochs, salts and checksums survive whatever is cut, and a broken tie is loud.

mod common;

use std::fs;
use std::path::Path;

use common::{append, open, read, scratch, small};
use ticktape_core::Seq;
use ticktape_journal::format::commit::CommitHeader;
use ticktape_journal::format::segment::{SegmentHeader, Version, stored_crc};
use ticktape_journal::{Damage, JournalError, JournalReader, names};

/// A header, as it stands in a segment.
fn header(dir: &Path, first_seq: u64) -> SegmentHeader {
    SegmentHeader::decode(&fs::read(names::segment(dir, Seq(first_seq))).unwrap()).unwrap()
}

/// The links that a header has to the segment before it.
fn link(dir: &Path, first_seq: u64) -> (u64, u32) {
    match header(dir, first_seq).version {
        Version::Two { previous_salt, previous_checksum, .. } => (previous_salt, previous_checksum),
        Version::One => panic!("version 2 is written"),
    }
}

/// The checksum of the last commit of a segment whose blocks are 512 bytes, or of its header.
fn last_checksum(dir: &Path, first_seq: u64) -> u32 {
    let bytes = fs::read(names::segment(dir, Seq(first_seq))).unwrap();
    let last = (512..bytes.len()).step_by(512).rfind(|&at| bytes[at..].starts_with(b"TKTC"));
    last.map_or(stored_crc(&bytes), |at| u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()))
}

/// Appends one frame in each of these epochs; each is durable before the next. Closes cleanly, or not.
fn write(dir: &Path, epochs: &[u64], cleanly: bool) -> (u64, u64) {
    let (mut journal, recovered) = open(dir, small()).unwrap();
    for &epoch in epochs {
        journal.set_epoch(epoch);
        append(&mut journal, b"frame");
        journal.sync_blocking(|| 1).unwrap();
    }
    if cleanly {
        journal.close().unwrap();
    }
    (recovered.next_seq.0, recovered.last_epoch)
}

#[test]
fn the_last_epoch_never_goes_back_whatever_part_of_a_first_commit_is_torn() {
    for sealed in [false, true] {
        for at in (512..1024).step_by(7) {
            let dir = scratch();
            write(dir.path(), &[1, 2], true);
            if !sealed {
                fs::remove_file(dir.path().join(names::SEALED)).unwrap();
            }
            assert_eq!(write(dir.path(), &[3], false), (3, 2));
            let torn = names::segment(dir.path(), Seq(3));
            let mut bytes = fs::read(&torn).unwrap();
            bytes[at] ^= 0x55;
            fs::write(&torn, bytes).unwrap();
            let before = last_checksum(dir.path(), 1);
            assert_eq!(write(dir.path(), &[4], true), (3, 2), "byte {at} of the first commit");
            assert_eq!(link(dir.path(), 3), (header(dir.path(), 1).salt(), before), "byte {at}");
            assert_ne!(before, 0);
            assert_eq!(read(dir.path(), 1).unwrap().len(), 3);
        }
    }
}

/// Changes the link of the segment that begins at `first_seq`, and makes its header and the chain behind it sound again.
/// Returns the checksum that it now ends with.
fn relink(dir: &Path, first_seq: u64, change: impl FnOnce(&mut u64, &mut u32)) -> u32 {
    let path = names::segment(dir, Seq(first_seq));
    let mut bytes = fs::read(&path).unwrap();
    let mut header = header(dir, first_seq);
    let Version::Two { previous_salt, previous_checksum, .. } = &mut header.version else { unreachable!() };
    change(previous_salt, previous_checksum);
    let mut previous = header.encode(&mut bytes[..512]);
    let mut at = 512;
    while let Ok((commit, _)) = CommitHeader::decode(&bytes[at..], 512) {
        let end = at + commit.total_bytes(512);
        previous = CommitHeader { previous, ..commit }.seal(&mut bytes[at..end]);
        at = end;
    }
    fs::write(path, bytes).unwrap();
    previous
}

#[test]
fn a_broken_link_between_acknowledged_segments_is_named_by_open_and_by_readers() {
    let dir = scratch();
    for epoch in 1..=3 {
        write(dir.path(), &[epoch, epoch], true);
    }
    assert_eq!(read(dir.path(), 1).unwrap().len(), 6);
    for broken in [3, 5] {
        for part in 0..2 {
            let path = names::segment(dir.path(), Seq(broken));
            let last = names::segment(dir.path(), Seq(5));
            let whole = [&path, &last].map(|path| (path, fs::read(path).unwrap()));
            let end = relink(dir.path(), broken, |salt, checksum| if part == 0 { *salt ^= 1 } else { *checksum ^= 1 });
            if broken == 3 {
                relink(dir.path(), 5, |_, checksum| *checksum = end);
            }
            let named = |error: &JournalError| {
                let JournalError::Corrupt { segment, offset: 0, seq, damage: Damage::Unlinked, .. } = error else {
                    panic!("{error:?}")
                };
                assert_eq!((segment, *seq), (&path, Seq(broken)));
            };
            named(&read(dir.path(), 1).unwrap_err());
            let mut live = JournalReader::open(dir.path(), Seq(1)).unwrap();
            live.set_durable(Seq(6));
            let error = (0..6).find_map(|_| live.next().err());
            named(&error.expect("damage within what the writer calls durable"));
            // Opening compares every salt, and the checksums of what it reads: the last segment and the one before it.
            match open(dir.path(), small()).map(drop) {
                Err(error) => named(&error),
                Ok(()) => assert_eq!((broken, part), (3, 1)),
            }
            for (path, bytes) in whole {
                fs::write(path, bytes).unwrap();
            }
        }
    }
}
