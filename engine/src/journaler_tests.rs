use ticktape_core::{Frame, Kind, Timestamp};
use ticktape_journal::{FileDisk, Journal, JournalConfig};
use ticktape_shm::{Producer, RingBuilder, RingConfig};

use super::*;
use crate::metrics::{Arrivals, Part};

const RING_BYTES: usize = 64 << 10;
const PAYLOAD_BYTES: usize = 1000;

/// A journaler of a ring, and whoever writes that.
struct Log {
    _dir: tempfile::TempDir,
    producer: Producer,
    journaler: Journaler<FileDisk>,
    next: Seq,
}

impl Log {
    fn new() -> Self {
        let config = RingConfig {
            capacity_bytes: RING_BYTES,
            frame_bytes_max: 2048,
            batch_bytes_max: 2048,
            ..RingConfig::default()
        };
        let mut ring = RingBuilder::new(config);
        ring.consumer("journal");
        let mut ring = ring.build(Seq::FIRST).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(FileDisk::new(), dir.path(), JournalConfig::default()).unwrap();
        let latency = StageLatency::coarse(Arrivals::new(64, Part::default()), Seq::ZERO);
        let journaler = Journaler::new(ring.consumers.remove(0), journal, ring.durable, latency);
        Log { _dir: dir, producer: ring.producer, journaler, next: Seq::FIRST }
    }

    /// Sequences a frame, and has the journaler look at it.
    fn sequence(&mut self, now: Nanos) {
        let payload = [7; PAYLOAD_BYTES];
        let mut bytes = Vec::new();
        Frame { seq: self.next, timestamp: Timestamp(1), stream_id: 1, kind: Kind::Input, payload: &payload }
            .append_to(&mut bytes);
        self.producer.push(&bytes).expect("the ring is not full");
        self.producer.publish();
        self.next = self.next.next();
        self.journaler.poll(now);
    }

    /// Commits that were written, and frames in them.
    fn written(&self) -> (u64, u64) {
        let stats = self.journaler.journal().stats();
        (stats.commits, stats.frames)
    }
}

#[test]
fn whoever_waits_for_the_disk_gets_a_write_for_each_input() {
    let mut log = Log::new();
    for now in 1..=10 {
        log.sequence(now);
        assert_eq!(log.written(), (now, now));
    }
}

#[test]
fn where_nobody_waits_for_the_disk_inputs_share_a_write() {
    let mut log = Log::new();
    log.journaler.be_unhurried(RING_BYTES);
    let first_at = UNHURRIED_NS;
    log.sequence(first_at);
    assert_eq!(log.written(), (1, 1), "nothing was written for long");
    for at in 1..=5 {
        log.sequence(first_at + at);
    }
    assert_eq!(log.written(), (1, 1));
    log.journaler.poll(first_at + UNHURRIED_NS);
    assert_eq!(log.written(), (2, 6));
}

#[test]
fn a_good_write_s_worth_is_not_kept_waiting() {
    let mut log = Log::new();
    log.journaler.be_unhurried(RING_BYTES);
    // Ten times what the ring holds, without any time going by.
    for _ in 0..10 * RING_BYTES / PAYLOAD_BYTES {
        log.sequence(1);
    }
    let (commits, frames) = log.written();
    let behind = log.next.0 - 1 - frames;
    assert!(behind as usize * PAYLOAD_BYTES <= RING_BYTES / 8, "{behind} frames are not written");
    assert!(commits < log.next.0 / 4, "{commits} writes for {} frames", log.next.0 - 1);
}
