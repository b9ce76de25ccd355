//! When snapshots are taken, and what becomes of them.

use serde::Deserialize;
use ticktape_journal::snapshot::SnapshotPace;

use super::ConfigError;
use crate::mark::Cadence;

/// Snapshots that may be kept: each takes the disk that the state does, and is read back at every start.
const SNAPSHOTS_RETAINED_MAX: usize = 1000;

/// When a shadow replica takes snapshots, and what becomes of them and of the log that they cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table, as [snapshots] with every_frames = 1000000")]
pub struct SnapshotConfig {
    /// Frames between two points at which snapshots are taken.
    pub every_frames: u64,
    /// The same in bytes of log.
    pub every_bytes: u64,
    /// The same in milliseconds, where anything was written; whichever of the three comes first.
    pub every_ms: u64,
    /// Snapshots that are kept. With 1, a rotten one leaves only the whole log to begin from.
    pub retained: usize,
    /// How fast a snapshot is written, in bytes a millisecond: the journal's syncs wait behind it.
    pub bytes_per_ms: usize,
    /// Bytes of its latest events that are kept in a snapshot for each session: what a client that was away over a restart can
    /// still be told.
    pub tail_bytes: usize,
    /// Whether the log that the oldest kept snapshot covers is given up, so that the disk it takes is bounded. Otherwise the
    /// whole log is kept, for replays from its beginning.
    pub compact: bool,
}

impl Default for SnapshotConfig {
    fn default() -> Self {
        SnapshotConfig {
            every_frames: 4_000_000,
            every_bytes: 512 << 20,
            every_ms: 60_000,
            retained: 2,
            bytes_per_ms: 64 << 10,
            tail_bytes: 1 << 20,
            compact: false,
        }
    }
}

impl SnapshotConfig {
    /// Checks what can be checked without touching anything.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let bad = |key: &str, message: String| Err(ConfigError { place: format!("snapshots.{key}"), message });
        let bounds = [
            ("every_frames", self.every_frames),
            ("every_bytes", self.every_bytes),
            ("every_ms", self.every_ms),
            ("bytes_per_ms", self.bytes_per_ms as u64),
        ];
        if let Some((key, _)) = bounds.iter().find(|(_, value)| *value == 0) {
            return bad(key, "0 is no bound: at least 1; leave [snapshots] out to take none".to_string());
        }
        if !(1..=SNAPSHOTS_RETAINED_MAX).contains(&self.retained) {
            let (retained, most) = (self.retained, SNAPSHOTS_RETAINED_MAX);
            return bad("retained", format!("{retained} is outside 1..={most}"));
        }
        Ok(())
    }

    pub(crate) fn cadence(&self) -> Cadence {
        Cadence { frames: self.every_frames, bytes: self.every_bytes, ns: self.every_ms.saturating_mul(1_000_000) }
    }

    /// How snapshots are written.
    pub fn pace(&self) -> SnapshotPace {
        SnapshotPace { bytes_per_ms: self.bytes_per_ms, retain: self.retained }
    }
}
