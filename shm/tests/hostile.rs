//! Any bytes in a ring's file: attaching and reading answer with an error or with frames, and never go astray.
#![cfg(not(loom))]

mod model;

use std::fs;
use std::path::Path;

use model::sealed;
use proptest::prelude::*;
use ticktape_core::Seq;
use ticktape_shm::layout::{CLAIM, DATA, HEADER_CRC};
use ticktape_shm::{Follower, Horizon, RingBuilder, RingConfig};

fn sound_file(dir: &Path) -> Vec<u8> {
    let config = RingConfig {
        capacity_bytes: 1024,
        frame_bytes_max: 96,
        batch_bytes_max: 128,
        epoch: 4,
        commit_is_sequenced: true,
    };
    let mut ring = RingBuilder::new(config).named(dir, "log").build(Seq(1)).unwrap();
    for seq in 1..=40 {
        ring.producer.push(&sealed(seq, (seq % 50) as usize)).unwrap();
        ring.producer.publish();
    }
    fs::read(dir.join("log.ring")).unwrap()
}

/// Attaches wherever it can and reads a bounded while. Returns how many frames it was given.
fn read_a_while(dir: &Path) -> usize {
    let mut frames = 0;
    for from in [1, 30, 41, u64::MAX >> 1] {
        let Ok(mut follower) = Follower::attach(dir, "log", Seq(from), Horizon::Committed) else { continue };
        for _ in 0..200 {
            if let Ok(Some(frame)) = follower.poll() {
                assert!(frame.len() >= 32 && frame.len() <= follower.header().frame_bytes_max);
                frames += 1;
            }
        }
        let _ = follower.check_writer();
        let _ = follower.seek(Seq(from / 2 + 1));
    }
    frames
}

fn repair_crc(bytes: &mut [u8]) {
    let crc = u64::from(crc32c::crc32c(&bytes[..HEADER_CRC]));
    bytes[HEADER_CRC..CLAIM].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn a_sound_file_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = sound_file(dir.path());
    fs::write(dir.path().join("log.ring"), bytes).unwrap();
    assert!(read_a_while(dir.path()) > 0);
}

fn interesting_word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0u64..2048,
        Just(u64::MAX),
        Just(1 << 63),
        (1u64..64).prop_map(|seq| 1 << 63 | seq),
        (0u64..64).prop_map(|bit| 1 << bit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn mutated_words_do_no_harm(
        edits in prop::collection::vec((any::<prop::sample::Index>(), interesting_word()), 1..6),
        region in 0usize..4,
        repair in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = sound_file(dir.path());
        let span = match region { 0 => 0..CLAIM, 1 => CLAIM..1024, 2 => 4096..DATA, _ => DATA..bytes.len() };
        for (index, word) in edits {
            let at = span.start + 8 * index.index(span.len() / 8);
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        if repair {
            repair_crc(&mut bytes);
        }
        fs::write(dir.path().join("log.ring"), bytes).unwrap();
        read_a_while(dir.path());
    }

    #[test]
    fn random_bytes_behind_a_sound_header_do_no_harm(seed in prop::collection::vec(interesting_word(), 64)) {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = sound_file(dir.path());
        for (at, chunk) in bytes[CLAIM..].chunks_exact_mut(8).enumerate() {
            chunk.copy_from_slice(&seed[at % seed.len()].to_le_bytes());
        }
        fs::write(dir.path().join("log.ring"), bytes).unwrap();
        read_a_while(dir.path());
    }

    #[test]
    fn random_files_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("log.ring"), bytes).unwrap();
        prop_assert!(Follower::attach(dir.path(), "log", Seq(1), Horizon::Sequenced).is_err());
    }
}
