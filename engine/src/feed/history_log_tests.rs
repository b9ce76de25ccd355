use ticktape_core::frame::{PAYLOAD, padded};
use ticktape_core::{Kind, Timestamp};
use ticktape_journal::{FileDisk, Journal, JournalConfig};
use ticktape_shm::{Ring, RingBuilder, RingConfig};

use super::*;

const MS: u64 = 1_000_000;

/// A log as its writer has it: a small ring and a journal.
struct Log {
    dir: tempfile::TempDir,
    ring: Ring,
    journal: Journal<FileDisk>,
    next: u64,
}

fn sealed(seq: u64) -> Vec<u8> {
    let payload = vec![seq as u8; 100 + (seq % 50) as usize];
    let mut bytes = Vec::new();
    let frame = Frame { seq: Seq(seq), timestamp: Timestamp(seq), stream_id: 1, kind: Kind::Input, payload: &payload };
    frame.append_to(&mut bytes);
    bytes
}

impl Log {
    fn new() -> Self {
        let config = RingConfig {
            capacity_bytes: 16 << 10,
            frame_bytes_max: 256,
            batch_bytes_max: 256,
            ..RingConfig::default()
        };
        let ring = RingBuilder::new(config).build(Seq::FIRST).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let config = JournalConfig { segment_bytes: 64 << 10, commit_bytes_max: 8 << 10, ..JournalConfig::default() };
        let (journal, _) = Journal::open(FileDisk::new(), dir.path(), config).unwrap();
        Log { dir, ring, journal, next: 1 }
    }

    /// Sequences frames; those up to `frames` from now are durable, and all but `uncommitted` are committed.
    fn write(&mut self, frames: u64, uncommitted: u64) {
        for _ in 0..frames {
            let bytes = sealed(self.next);
            self.ring.producer.push(&bytes).unwrap();
            self.ring.producer.publish();
            let mut padded_bytes = bytes.clone();
            padded_bytes.resize(padded(bytes.len()), 0);
            while !self.journal.room(padded_bytes.len()) {
                self.journal.poll(0);
            }
            self.journal.append(Seq(self.next), &padded_bytes);
            self.next += 1;
        }
        let mut now = 0;
        self.journal
            .sync_blocking(|| {
                now += 1;
                now
            })
            .unwrap();
        self.ring.durable.set(self.journal.durable());
        self.ring.commit.set(Seq(self.next - 1 - uncommitted));
    }

    fn history(&self, horizon: Horizon) -> LogHistory {
        let follower = self.ring.tap.follow(Seq(self.next), horizon).unwrap();
        LogHistory::beside(Some(self.dir.path()), follower, horizon)
    }
}

fn read(history: &mut LogHistory, now: u64, from: u64, count_max: usize, bytes_max: usize) -> (HistoryRead, Vec<u64>) {
    let mut got = Vec::new();
    let read = history.read(now, from, count_max, bytes_max, &mut |seq, bytes| {
        assert_eq!(bytes, sealed(seq));
        got.push(seq);
    });
    if let HistoryRead::Read(count) = read {
        assert_eq!(got, (from..from + count as u64).collect::<Vec<_>>());
    }
    (read, got)
}

#[test]
fn the_ring_serves_what_it_holds_and_the_journal_what_has_left_it() {
    let mut log = Log::new();
    log.write(1_000, 0);
    let mut history = log.history(Horizon::Committed);
    assert_eq!(read(&mut history, 0, 990, 5, 9_999).0, HistoryRead::Read(5));
    assert_eq!(read(&mut history, 0, 998, 50, 9_999).0, HistoryRead::Read(3));
    assert_eq!(read(&mut history, 0, 992, 50, 1).0, HistoryRead::Read(1));
    assert_eq!(history.counters(), LogHistoryCounters { from_ring: 3, ..LogHistoryCounters::default() });

    assert_eq!(read(&mut history, 0, 10, 7, 99_999).0, HistoryRead::Read(7));
    assert_eq!(read(&mut history, 0, 17, 7, 99_999).0, HistoryRead::Read(7));
    assert_eq!(read(&mut history, 0, 100, 7, 99_999).0, HistoryRead::Read(7), "not far: passed over");
    assert_eq!(history.counters().opened, 1);
    assert_eq!(read(&mut history, 0, 3, 7, 999).0, HistoryRead::Busy, "a second reader so soon is too much");
    let (answer, got) = read(&mut history, 5 * MS, 3, 700, 999);
    assert!(matches!(answer, HistoryRead::Read(_)));
    let bytes: usize = got.iter().map(|&seq| sealed(seq).len()).sum();
    assert!((999..999 + 256).contains(&bytes), "{bytes} bytes");
    assert_eq!((history.counters().opened, history.counters().put_off), (2, 1));
    assert_eq!(read(&mut history, 5 * MS, 1_001, 7, 999).0, HistoryRead::NotYet { next: 1_001 });
    assert_eq!(read(&mut history, 5 * MS, 1 << 63, 7, 999).1, []);
}

#[test]
fn only_what_is_committed_is_seen_unless_all_is_asked_for() {
    let mut log = Log::new();
    log.write(20, 5);
    let mut history = log.history(Horizon::Committed);
    assert_eq!(read(&mut history, 0, 10, 50, 99_999).0, HistoryRead::Read(6));
    assert_eq!(read(&mut history, 0, 16, 50, 99_999).0, HistoryRead::NotYet { next: 16 });
    assert_eq!(read(&mut log.history(Horizon::Sequenced), 0, 16, 50, 99_999).0, HistoryRead::Read(5));
    log.write(0, 0);
    assert_eq!(read(&mut history, 0, 16, 50, 99_999).0, HistoryRead::Read(5));

    // The same where the ring no longer holds them.
    log.write(1_000, 1_000);
    assert_eq!(read(&mut history, 0, 18, 50, 99_999).0, HistoryRead::Read(3));
    assert_eq!(read(&mut history, 0, 21, 50, 99_999).0, HistoryRead::NotYet { next: 21 });
}

#[test]
fn what_was_given_up_is_too_old() {
    let mut log = Log::new();
    for _ in 0..5 {
        log.write(1_000, 0);
    }
    log.journal.release_before(Seq(3_000));
    for now in 0..1_000 {
        log.journal.housekeeping(now << 30);
        log.journal.poll(now << 30);
    }
    let mut history = log.history(Horizon::Committed);
    let (answer, _) = read(&mut history, 0, 5, 7, 999);
    assert!(matches!(answer, HistoryRead::TooOld { first } if first > 5 && first <= 3_000), "{answer:?}");

    let follower = log.ring.tap.follow(Seq(log.next), Horizon::Committed).unwrap();
    let mut ring_alone = LogHistory::beside(None, follower, Horizon::Committed);
    assert!(matches!(read(&mut ring_alone, 0, 4_000, 7, 999).0, HistoryRead::TooOld { .. }));
    assert_eq!(read(&mut ring_alone, 0, 4_999, 7, 999).0, HistoryRead::Read(2));
}

#[test]
fn a_damaged_frame_is_not_handed_on() {
    let mut log = Log::new();
    log.write(2_000, 0);
    let file = std::fs::read_dir(log.dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let file = file.filter(|path| path.extension().is_some_and(|ext| ext == "seg")).min().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let frame = sealed(3);
    let at = bytes.windows(frame.len()).position(|window| window == frame).unwrap();
    bytes[at + PAYLOAD] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let mut history = log.history(Horizon::Committed);
    let (answer, got) = read(&mut history, 0, 1, 7, 9_999);
    assert!(answer == HistoryRead::Failed && got.is_empty() || !got.contains(&3), "{answer:?}");
    assert_eq!(history.counters().failed, u64::from(answer == HistoryRead::Failed));
}
