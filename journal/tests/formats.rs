//! The bytes themselves: a golden version 2 segment, and version 1 journals that another program wrote.

mod common;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use common::{clock, frame, open, read, small};
use ticktape_core::{Frame, Kind, Seq};
use ticktape_journal::format::{commit, segment};
use ticktape_journal::{JournalConfig, JournalError, JournalReader, Salts, names};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_small_segment_has_exactly_these_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let config = JournalConfig { salts: Salts::Seeded(0x1122_3344_5566_7788), ..small() };
    let (mut journal, _) = open(dir.path(), config).unwrap();
    journal.set_epoch(3);
    common::append(&mut journal, b"hello");
    common::append(&mut journal, b"");
    journal.sync_blocking(clock()).unwrap();
    journal.close().unwrap();
    let bytes = fs::read(names::segment(dir.path(), Seq(1))).unwrap();
    assert_eq!(bytes.len(), 3 * 512, "header, one commit, the seal");
    let (header, first, seal) = (&bytes[..512], &bytes[512..1024], &bytes[1024..]);
    assert_eq!(hex(&header[..segment::HEADER_BYTES]), GOLDEN_HEADER);
    assert_eq!(hex(&first[..commit::HEADER_BYTES]), GOLDEN_COMMIT);
    assert_eq!(first[64..64 + 37], frame(1, b"hello"));
    assert_eq!(first[64 + 37..64 + 40], [0; 3]);
    assert_eq!(first[104..136], frame(2, b""));
    assert!(first[136..].iter().all(|&byte| byte == 0));
    assert_eq!(hex(&seal[..commit::HEADER_BYTES]), GOLDEN_SEAL);
    assert!(seal[64..].iter().all(|&byte| byte == 0));
    assert_eq!(
        &fs::read(dir.path().join(names::SEALED)).unwrap()[..24],
        b"TKTS\x03\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    );
}

// Computed by another program, from the tables alone.
const GOLDEN_HEADER: &str = concat!(
    "544b544a02000000010000000000000003000000000000008877665545332211",
    "000000000000000000000000000200000000000037fcdec114a725ba8596a287"
);
const GOLDEN_COMMIT: &str = concat!(
    "544b544322c2c0b5887766554533221103000000000000000100000000000000",
    "000000000000000002000000480000008596a28700000000fa1fbccaa6f12735"
);
const GOLDEN_SEAL: &str = concat!(
    "544b54432ea2a6af887766554533221103000000000000000300000000000000",
    "0200000000000000000000000000000022c2c0b500000000fa1fbccaa6f12735"
);

fn version_1(name: &str) -> Option<PathBuf> {
    let Some(cases) = std::env::var_os("TICKTAPE_CASES") else {
        let _ = writeln!(std::io::stderr(), "skipped: TICKTAPE_CASES is not set");
        return None;
    };
    Some(PathBuf::from(cases).join("journal-v1").join(name))
}

/// A copy that can be written to.
fn copy(from: &std::path::Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::write(dir.path().join(entry.file_name()), fs::read(entry.path()).unwrap()).unwrap();
    }
    dir
}

#[test]
fn version_1_journals_of_another_program_read() {
    for (name, count) in [("counter", 2), ("kv", 3), ("bank", 291)] {
        let Some(dir) = version_1(name) else { return };
        let frames = read(&dir, 1).unwrap();
        assert_eq!(frames.len(), count, "{name}");
        for (index, bytes) in frames.iter().enumerate() {
            let frame = Frame::decode(bytes).unwrap();
            assert_eq!((frame.seq, frame.kind, frame.bytes()), (Seq(index as u64 + 1), Kind::Input, bytes.len()));
        }
        assert_eq!(read(&dir, 2).unwrap(), frames[1..]);
        let mut reader = JournalReader::open(&dir, Seq(1)).unwrap();
        let mut run = Vec::new();
        while let Some(frames) = reader.next_run().unwrap() {
            run.extend(frames.map(<[u8]>::to_vec));
        }
        assert_eq!(run, frames);
    }
}

#[test]
fn a_version_1_journal_goes_on_in_version_2() {
    let Some(dir) = version_1("bank") else { return };
    let dir = copy(&dir);
    let mut frames = read(dir.path(), 1).unwrap();
    let (mut journal, recovered) = open(dir.path(), small()).unwrap();
    assert_eq!((recovered.first_seq, recovered.next_seq, recovered.cut), (Seq(1), Seq(292), None));
    frames.push(common::append(&mut journal, b"next"));
    journal.close().unwrap();
    assert_eq!(read(dir.path(), 1).unwrap(), frames);
}

#[test]
fn a_torn_version_1_tail_is_cut_and_rot_before_the_tail_is_loud() {
    let Some(dir) = version_1("bank") else { return };
    let segment = |dir: &tempfile::TempDir| names::segment(dir.path(), Seq(1));
    let torn = copy(&dir);
    let bytes = fs::read(segment(&torn)).unwrap();
    fs::write(segment(&torn), &bytes[..bytes.len() - 5]).unwrap();
    assert_eq!(read(torn.path(), 1).unwrap().len(), 290);
    let (_, recovered) = open(torn.path(), small()).unwrap();
    assert_eq!((recovered.next_seq, recovered.cut.unwrap().from_seq), (Seq(291), Seq(291)));

    let rotten = copy(&dir);
    let mut bytes = fs::read(segment(&rotten)).unwrap();
    bytes[28 + 40 + 3] ^= 1;
    fs::write(segment(&rotten), &bytes).unwrap();
    let named = |error| matches!(error, JournalError::Corrupt { offset: 68, seq: Seq(2), .. });
    assert!(named(read(rotten.path(), 1).unwrap_err()));
    assert!(named(open(rotten.path(), small()).unwrap_err()));
}
