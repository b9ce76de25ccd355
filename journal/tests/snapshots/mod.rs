//! What the snapshot tests share.
#![allow(dead_code)] // Each test binary uses its own part of it.

pub mod crash;

use ticktape_core::{Seq, Timestamp};
use ticktape_journal::snapshot::SectionBytes;
use ticktape_journal::{Disk, Snapshot, SnapshotError, SnapshotMeta, SnapshotPace, SnapshotWriter};

/// As fast as it goes, two kept.
pub fn eager() -> SnapshotPace {
    pace(2)
}

/// As fast as it goes.
pub fn pace(retain: usize) -> SnapshotPace {
    SnapshotPace { bytes_per_ms: usize::MAX, retain }
}

/// A snapshot whose body is of this size and depends on the seq.
pub fn snapshot(seq: u64, bytes: usize) -> Snapshot {
    let meta = SnapshotMeta {
        seq: Seq(seq),
        timestamp: Timestamp(seq * 10),
        epoch: 3,
        state_digest: [seq as u8; 32],
        output_hash: seq ^ 0x5555,
        schema_version: 4,
        service_name: "service".into(),
        log_id: 0,
    };
    let body = (0..bytes as u64).map(|i| ((i * 31 + seq * 7) % 251) as u8 | 1).collect();
    let (engine, service) = (bytes as u64 / 5, bytes as u64 / 2);
    let tails = bytes as u64 - engine - service;
    Snapshot::new(meta, body, SectionBytes { engine, service, tails })
}

/// Polls until nothing is left to do, deletions and looking at old ones included.
pub fn drive<D: Disk>(writer: &mut SnapshotWriter<D>) {
    while !writer.is_idle() {
        writer.poll(0);
        writer.wait();
    }
}

/// Writes one to its end.
pub fn write<D: Disk>(writer: &mut SnapshotWriter<D>, snapshot: Snapshot) -> Result<SnapshotMeta, SnapshotError> {
    writer.begin(snapshot);
    drive(writer);
    writer.take_written().ok_or_else(|| writer.failed().expect("written or failed").clone())
}
