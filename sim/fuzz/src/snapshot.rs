//! Any bytes as a snapshot file: reading it answers with an error or with a snapshot, in memory that the file's size bounds;
//! all ways of reading agree, and what is accepted is written again to the same bytes.

use std::fs;
use std::path::Path;

use ticktape_core::{Seq, Timestamp, crc32c};
use ticktape_journal::format::snapshot::{BLOCK_BYTES, BODY_CRC, HEADER_BYTES, HEADER_CRC, MAGIC, NAME_BYTES_MAX};
use ticktape_journal::snapshot::{SectionBytes, SnapshotHeader, newest, purge_beyond, read, read_header, verify};
use ticktape_journal::{FileDisk, Snapshot, SnapshotMeta, SnapshotPace, SnapshotWriter, names};

use super::Seeds;
use super::scratch::scratch;

/// What the first byte asks for: guesses that the fuzzer does not make.
const REPAIR_HEADER: u8 = 1;
const REPAIR_BODY: u8 = 2;
const PAD: u8 = 4;
/// The name is that of the seq in the header.
const RIGHT_NAME: u8 = 8;

pub fn run(data: &[u8]) -> bool {
    let Some((&flags, bytes)) = data.split_first() else { return false };
    let dir = scratch();
    let bytes = repaired(flags, unpacked(bytes));
    let seq = bytes.get(8..16).map_or(0, |seq| u64::from_le_bytes(seq.try_into().expect("eight bytes")));
    let named = if flags & RIGHT_NAME != 0 && (1..=Seq::MAX.0).contains(&seq) { Seq(seq) } else { Seq(7) };
    let path = names::snapshot(dir.path(), named);
    fs::write(&path, &bytes).expect("room for a small file");
    let (whole, header) = (read(&path), verify(&path));
    for error in whole.as_ref().err().into_iter().chain(header.as_ref().err()) {
        assert_eq!(error.to_string().lines().count(), 1, "one line: {error}");
    }
    assert_eq!(whole.as_ref().map(Snapshot::meta), header.as_ref().map(|header| &header.meta));
    if let Ok(header) = &header {
        assert_eq!(read_header(&path).as_ref(), Ok(header), "the header is that of the whole");
        assert_eq!(header.meta.seq, named);
    }
    let found = newest(dir.path(), Seq::MAX).expect("memory can be listed");
    assert_eq!(found.rejected.len(), usize::from(whole.is_err()));
    assert_eq!(found.snapshot.as_ref(), whole.as_ref().ok());
    let Ok(snapshot) = whole else {
        adopt(dir.path(), None);
        return false;
    };
    assert!(snapshot.body().len() <= bytes.len());
    adopt(dir.path(), Some(named));
    assert_eq!(purge_beyond(dir.path(), Seq(named.0 - 1)), Ok(vec![named]));
    rewrite(dir.path(), snapshot);
    assert_eq!(fs::read(&path).expect("it was written"), bytes, "there is one encoding");
    true
}

/// A writer that finds the file believes it as far as a reader does.
fn adopt(dir: &Path, expected: Option<Seq>) {
    let pace = SnapshotPace { bytes_per_ms: usize::MAX, retain: 1 };
    let mut writer = SnapshotWriter::new(FileDisk::new(), dir, pace).expect("memory does not fail");
    while !writer.is_idle() {
        writer.poll(0);
    }
    assert_eq!((writer.oldest_verified(), writer.rejected().count()), (expected, usize::from(expected.is_none())));
}

fn rewrite(dir: &Path, snapshot: Snapshot) {
    let mut writer = SnapshotWriter::new(FileDisk::new(), dir, SnapshotPace::default()).expect("memory does not fail");
    writer.begin(snapshot);
    let mut now = 0;
    while !writer.is_idle() {
        writer.poll(now);
        now += 1_000_000;
    }
    assert_eq!(writer.failed(), None);
}

/// The header's 256 bytes, zeros to the end of its block, then the rest: the corpus need not hold the zeros.
fn unpacked(packed: &[u8]) -> Vec<u8> {
    let (header, body) = packed.split_at(packed.len().min(HEADER_BYTES));
    let mut bytes = header.to_vec();
    if header.len() == HEADER_BYTES {
        bytes.resize(BLOCK_BYTES, 0);
        bytes.extend_from_slice(body);
    }
    bytes
}

fn repaired(flags: u8, mut bytes: Vec<u8>) -> Vec<u8> {
    if flags & PAD != 0 {
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    }
    if bytes.len() >= BLOCK_BYTES && flags & REPAIR_BODY != 0 {
        let crc = crc32c(&bytes[BLOCK_BYTES..]);
        bytes[BODY_CRC..BODY_CRC + 4].copy_from_slice(&crc.to_le_bytes());
    }
    if bytes.len() >= HEADER_BYTES && flags & REPAIR_HEADER != 0 {
        bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
        let crc = crc32c(&bytes[..HEADER_CRC]);
        bytes[HEADER_CRC..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    }
    bytes
}

fn seed(flags: u8, name: &str, body: &[u8], sections: SectionBytes) -> Vec<u8> {
    let mut padded = body.to_vec();
    padded.resize(body.len().next_multiple_of(BLOCK_BYTES), 0);
    let meta = SnapshotMeta {
        seq: Seq(7),
        timestamp: Timestamp(11),
        epoch: 3,
        state_digest: [9; 32],
        output_hash: 5,
        schema_version: 2,
        service_name: name.into(),
        log_id: 6,
    };
    let mut block = vec![0; BLOCK_BYTES];
    SnapshotHeader { meta, sections, body_crc: crc32c(&padded) }.encode(&mut block);
    [&[flags], &block[..HEADER_BYTES], body].concat()
}

pub fn seeds() -> Seeds {
    let sections = SectionBytes { engine: 3, service: 4, tails: 1 };
    let none = SectionBytes::default();
    vec![
        ("as_it_is", seed(PAD, "kv", b"engistat", sections)),
        ("repaired", seed(PAD | REPAIR_HEADER | REPAIR_BODY, "kv", b"engistat", sections)),
        ("right_name", seed(PAD | REPAIR_HEADER | REPAIR_BODY | RIGHT_NAME, "kv", b"engistat", sections)),
        ("no_sections", seed(PAD | REPAIR_HEADER | RIGHT_NAME, &"é".repeat(NAME_BYTES_MAX / 2), b"", none)),
    ]
}
