//! A lost segment header, whatever the block size: what stood behind it is evidence, what a client wrote is none.

mod common;

use std::fs;
use std::path::Path;

use common::{Blocks, append, open, read, scratch, small};
use ticktape_core::Seq;
use ticktape_journal::format::commit::{self, CommitHeader};
use ticktape_journal::{Journal, JournalConfig, JournalError, names};

const BLOCK_SIZES: [usize; 4] = [512, 1024, 2048, 4096];

fn config() -> JournalConfig {
    JournalConfig { segment_bytes: 64 << 10, commit_bytes_max: 8192, ..small() }
}

/// Three durable commits in blocks of this size, and nothing but the segment to prove it.
fn unsealed(dir: &Path, alignment: usize) {
    let (mut journal, _) = Journal::open(Blocks::of(alignment), dir, config()).unwrap();
    for payload in [b"one", b"two", b"six"] {
        append(&mut journal, payload);
        journal.sync_blocking(|| 1).unwrap();
    }
    journal.close().unwrap();
    assert_eq!(read(dir, 1).unwrap().len(), 3);
    fs::remove_file(dir.join(names::SEALED)).unwrap();
}

#[test]
fn acknowledged_data_behind_a_damaged_header_is_never_passed_over() {
    for alignment in BLOCK_SIZES {
        let dir = scratch();
        unsealed(dir.path(), alignment);
        let segment = names::segment(dir.path(), Seq(1));
        let whole = fs::read(&segment).unwrap();
        let refused = |bytes: &[u8], what: &str| {
            fs::write(&segment, bytes).unwrap();
            for outcome in [read(dir.path(), 1).map(drop), open(dir.path(), config()).map(drop)] {
                let error = outcome.expect_err(what);
                let named = matches!(&error, JournalError::Corrupt { seq: Seq(1), .. })
                    || matches!(&error, JournalError::MissingSegment { seq: Seq(1), .. })
                    || matches!(&error, JournalError::Version { .. });
                assert!(named, "{what}: {error}");
            }
        };
        for at in (0..64).chain((64..alignment).step_by(61)) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x11;
            refused(&bytes, &format!("byte {at}, blocks of {alignment}"));
        }
        for sectors in 1..=alignment / 512 {
            let mut bytes = whole.clone();
            bytes[..sectors * 512].fill(0);
            refused(&bytes, &format!("{sectors} sectors, blocks of {alignment}"));
        }
    }
}

#[test]
fn an_imitated_commit_where_a_first_one_could_stand_proves_nothing() {
    for place in [1024, 2048, 4096] {
        let dir = scratch();
        let (mut journal, _) = open(dir.path(), config()).unwrap();
        let mut payload = vec![0x77; place + 512 - (512 + commit::HEADER_BYTES + 28)];
        let at = payload.len() - 512;
        let imitation = CommitHeader {
            salt: 0x1234,
            epoch: 9,
            base_seq: Seq(1 << 40),
            durable: Seq((1 << 40) - 1),
            count: 0,
            length: 0,
            previous: 0,
            next_salt: 0,
        };
        let end = payload.len();
        imitation.seal(&mut payload[at..end]);
        append(&mut journal, &payload);
        journal.sync_blocking(|| 1).unwrap();
        drop(journal);
        let segment = names::segment(dir.path(), Seq(1));
        let whole = fs::read(&segment).unwrap();
        assert_eq!(&whole[place..place + 4], b"TKTC", "it stands where it is meant to");
        // The crash that this is about: neither the header nor the first commit got to the disk as a whole.
        for at in 0..64 {
            let mut bytes = whole.clone();
            bytes[512] = 0;
            bytes[at] ^= 0x11;
            fs::write(&segment, &bytes).unwrap();
            let outcome = open(dir.path(), config());
            if (4..8).contains(&at) {
                assert!(matches!(outcome.map(drop), Err(JournalError::Version { .. })));
                continue;
            }
            let (journal, recovered) = outcome.unwrap();
            assert_eq!(recovered.next_seq, Seq(1), "byte {at}, imitation at {place}");
            drop(journal);
            fs::read_dir(dir.path()).unwrap().for_each(|entry| fs::remove_file(entry.unwrap().path()).unwrap());
        }
    }
}
