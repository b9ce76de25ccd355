//! Opening a journal in its middle comes out as reading it from its beginning does.

mod common;

use std::fs;
use std::path::Path;

use common::{append, frame, open, padded, read, scratch, small};
use proptest::prelude::*;
use ticktape_core::Seq;
use ticktape_journal::disk::{BufferId, Completion, DiskError, Op};
use ticktape_journal::format::commit::{self, CommitHeader};
use ticktape_journal::format::segment::{SegmentHeader, Version};
use ticktape_journal::{Disk, FileDisk, Journal, JournalConfig, JournalReader, names};

fn config(segment_bytes: usize) -> JournalConfig {
    JournalConfig { segment_bytes, commit_bytes_max: 64 << 10, ..small() }
}

/// Commits of these many frames of these many bytes.
fn write(dir: &Path, segment_bytes: usize, commits: &[(usize, usize)], closes: bool) -> u64 {
    let (mut journal, _) = open(dir, config(segment_bytes)).unwrap();
    for &(frames, payload_bytes) in commits {
        (0..frames).for_each(|_| drop(append(&mut journal, &vec![frames as u8; payload_bytes])));
        journal.sync_blocking(|| 0).unwrap();
        journal.housekeeping(1_000_000_000);
    }
    let last = journal.durable().0;
    if closes {
        journal.close().unwrap();
    }
    last
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn from_any_seq_on_the_same_frames_are_read(
        commits in prop::collection::vec((1usize..12, prop_oneof![0usize..64, 0usize..3_000, Just(50_000)]), 60..300),
        segment_bytes in prop_oneof![Just(256usize << 10), Just(1 << 20), Just(8 << 20)],
        closes: bool,
        from in prop::collection::vec(0.0f64..1.05, 12),
    ) {
        let dir = scratch();
        let last = write(dir.path(), segment_bytes, &commits, closes);
        let all = read(dir.path(), 1).unwrap();
        prop_assert_eq!(all.len() as u64, last);
        for share in from {
            let from = 1 + (share * last as f64) as u64;
            let rest = read(dir.path(), from).unwrap();
            prop_assert!(rest[..] == all[all.len().min(from as usize - 1)..], "from {}", from);
        }
    }
}

#[test]
fn it_works_over_stale_commits_as_well() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), config(256 << 10)).unwrap();
    let mut number = 0;
    while journal.stats().recycled < 4 || number % 100 != 0 {
        number += 1;
        append(&mut journal, &vec![number as u8; number % 700]);
        journal.sync_blocking(|| 0).unwrap();
        journal.release_before(Seq(journal.durable().0.saturating_sub(300)));
        while journal.housekeeping(1_000_000_000) > 0 {
            journal.poll(0);
        }
    }
    let (first, last) = (journal.first_seq().0, journal.durable().0);
    drop(journal);
    let all = read(dir.path(), first).unwrap();
    assert_eq!(all.len() as u64, last + 1 - first);
    for from in first..=last + 1 {
        assert!(read(dir.path(), from).unwrap()[..] == all[(from - first) as usize..], "from {from}");
    }
}

/// A commit that was written while the one before it was not: no one acknowledged it, and recovery cuts it.
#[test]
fn a_commit_behind_a_hole_is_not_begun_with() {
    let dir = scratch();
    let last = write(dir.path(), 1 << 20, &[(1, 100); 800], false);
    let path = names::segment(dir.path(), Seq(1));
    let mut bytes = fs::read(&path).unwrap();
    let Version::Two { salt, .. } = SegmentHeader::decode(&bytes[..512]).unwrap().version else { unreachable!() };
    let end = 512 * (1 + 800);
    let frames = padded(last + 2, b"unacknowledged");
    let header = CommitHeader {
        salt,
        epoch: 0,
        base_seq: Seq(last + 2),
        durable: Seq(last),
        count: 1,
        length: frames.len() as u32,
        previous: 1,
        next_salt: 0,
    };
    let mut behind = vec![0; header.total_bytes(512)];
    behind[commit::HEADER_BYTES..commit::HEADER_BYTES + frames.len()].copy_from_slice(&frames);
    header.seal(&mut behind);
    // The hole is as large as a large commit, so that a probe falls into it.
    let at = end + (150 << 10);
    bytes[at..at + behind.len()].copy_from_slice(&behind);
    fs::write(&path, bytes).unwrap();
    assert_eq!(read(dir.path(), last).unwrap(), [frame(last, &[1; 100])]);
    for from in [last + 1, last + 2, last + 3] {
        assert_eq!(read(dir.path(), from).unwrap(), Vec::<Vec<u8>>::new(), "from {from}");
    }
}

/// Counts the bytes that are read.
struct Meter {
    disk: FileDisk,
    read: std::rc::Rc<std::cell::Cell<u64>>,
}

impl Disk for Meter {
    fn submit(&mut self, token: u64, op: Op<'_>) {
        if let Op::Read { len, .. } = op {
            self.read.set(self.read.get() + len as u64);
        }
        self.disk.submit(token, op);
    }
    fn poll(&mut self) -> Option<Completion> {
        self.disk.poll()
    }
    fn wait(&mut self) {
        self.disk.wait();
    }
    fn allocate(&mut self, bytes: usize) -> Result<BufferId, DiskError> {
        self.disk.allocate(bytes)
    }
    fn release(&mut self, buffer: BufferId) {
        self.disk.release(buffer);
    }
    fn bytes(&self, buffer: BufferId) -> &[u8] {
        self.disk.bytes(buffer)
    }
    fn bytes_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        self.disk.bytes_mut(buffer)
    }
    fn describe(&self) -> String {
        self.disk.describe()
    }
}

#[test]
fn little_of_a_large_segment_is_read() {
    let dir = scratch();
    let last = write(dir.path(), 16 << 20, &[(10, 1_000); 1_200], true);
    for share in [3, 5, 7, 9] {
        let read = std::rc::Rc::default();
        let disk = Meter { disk: FileDisk::new(), read: std::rc::Rc::clone(&read) };
        let mut reader = JournalReader::open_on(disk, dir.path(), Seq(last * share / 10)).unwrap();
        assert_eq!(reader.next().unwrap().unwrap()[..8], (last * share / 10).to_le_bytes());
        assert!(read.get() < 2 << 20, "{} bytes", read.get());
    }
}

#[test]
fn the_writer_goes_on_beside_it() {
    let dir = scratch();
    let (mut journal, _) = Journal::open(FileDisk::new(), dir.path(), config(1 << 20)).unwrap();
    for number in 0..1_000u64 {
        let written = append(&mut journal, &[number as u8; 500]);
        journal.sync_blocking(|| 0).unwrap();
        if number % 50 == 0 {
            let mut reader = JournalReader::open(dir.path(), journal.durable()).unwrap();
            assert_eq!(reader.next().unwrap(), Some(&written[..]));
            assert_eq!(reader.next().unwrap(), None);
        }
    }
}
