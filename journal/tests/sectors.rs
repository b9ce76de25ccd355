//! A real device with sectors of 4096 bytes, a file system in memory, and a layered one. They need root, and the first a
//! free loop device; without them they say that they were skipped.

mod common;

use std::io::Write as _;
use std::path::Path;

use common::mounted::Mounted;
use common::{append, payload, read, small};
use ticktape_core::Seq;
use ticktape_journal::format::segment::{SegmentHeader, Version};
use ticktape_journal::{Binding, Disk, Journal, JournalConfig, NativeDisk, Strategy, names};

/// Two openings that roll, with each strategy; returns the block size of the first segment.
fn goes_round(dir: &Path) -> u32 {
    let mut alignment = 0;
    for strategy in Strategy::ALL {
        let dir = dir.join(strategy.to_string());
        let mut written = Vec::new();
        for _ in 0..2 {
            let disk = NativeDisk::new(&dir, Binding::OneThread);
            println!("{}: {}", dir.display(), disk.describe());
            let config = JournalConfig { strategy: strategy.into(), segment_bytes: 64 << 10, ..small() };
            let (mut journal, recovered) = Journal::open(disk, &dir, config).unwrap();
            assert_eq!((recovered.next_seq, recovered.cut), (Seq(written.len() as u64 + 1), None));
            for _ in 0..60 {
                written.push(append(&mut journal, &payload(written.len() as u64)));
                journal.sync_blocking(|| 0).unwrap();
                journal.housekeeping(0);
            }
            journal.close().unwrap();
            assert_eq!(read(&dir, 1).unwrap(), written);
        }
        let first = std::fs::read(names::segment(&dir, Seq(1))).unwrap();
        let Version::Two { alignment: blocks, .. } = SegmentHeader::decode(&first).unwrap().version else {
            panic!("version 2 is written")
        };
        alignment = blocks;
    }
    alignment
}

#[test]
fn sectors_of_4096_bytes() {
    match Mounted::ext4(4096) {
        Ok(mounted) => {
            let blocks = goes_round(&mounted.path());
            assert_eq!(blocks, 4096, "what the open file asks for");
        }
        Err(reason) => {
            let _ = writeln!(std::io::stderr(), "skipped: no loop device with 4096-byte sectors here ({reason})");
        }
    }
}

/// It works; and where it works less well than it could, it says why.
fn works_or_says_why_not(dir: &Path) {
    goes_round(dir);
    let described = NativeDisk::new(dir, Binding::AnyThread).describe();
    let direct = described.contains("O_DIRECT in");
    let reason = ["direct I/O", "O_DIRECT is refused", "io_uring is refused"].iter().any(|why| described.contains(why));
    assert!(direct || described.starts_with("plain files (") && reason, "{described}");
    println!("{described}");
}

#[test]
fn a_file_system_in_memory_works_or_says_why_it_is_second_choice() {
    match Mounted::tmpfs(32 << 20) {
        Ok(mounted) => works_or_says_why_not(&mounted.path()),
        Err(reason) => {
            let _ = writeln!(std::io::stderr(), "skipped: no tmpfs of our own here ({reason}); /dev/shm instead");
            let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
            works_or_says_why_not(dir.path());
        }
    }
}

#[test]
fn a_layered_file_system_works_or_says_why_it_is_second_choice() {
    match Mounted::overlay() {
        Ok(mounted) => works_or_says_why_not(&mounted.path()),
        Err(reason) => {
            let _ = writeln!(std::io::stderr(), "skipped: no overlay here ({reason})");
        }
    }
}
