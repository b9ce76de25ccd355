//! How an embedded node is set up.

use std::path::PathBuf;

use ticktape_core::frame::{frame_bytes, padded};
use ticktape_core::limits::{PAYLOAD_BYTES_DEFAULT, PAYLOAD_BYTES_MAX};
use ticktape_journal::JournalConfig;
use ticktape_shm::RingConfig;

use super::NodeError;
use crate::machine::StepLimits;
use crate::mark::MARK_BYTES;

/// When a submit counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncPolicy {
    /// When it is durable. Inputs of one `submit_batch` share one wait.
    #[default]
    Every,
    /// At once; made durable at most this many nanoseconds later, by the next call. A crash may lose what came since.
    Window(u64),
    /// At once; made durable by [`Node::sync`](super::Node::sync) and on a clean end.
    Never,
}

/// How a node is set up. Start from [`NodeConfig::new`] and change what matters.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The journal's directory; made if it is missing.
    pub dir: PathBuf,
    /// When a submit counts as done.
    pub sync: SyncPolicy,
    /// The largest encoded input, in bytes.
    pub payload_bytes_max: usize,
    /// The ring's size in bytes, a power of two. At least four times the largest input and batch.
    pub ring_bytes: usize,
    /// The journal's own settings.
    pub journal: JournalConfig,
    /// How many snapshots are kept; at least 1, and 2 so that a rotten one costs nothing but time.
    pub snapshots_retained: usize,
    /// What one step may produce. The same in every run of a log.
    pub limits: StepLimits,
}

impl NodeConfig {
    /// The defaults, with the journal in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        NodeConfig {
            dir: dir.into(),
            sync: SyncPolicy::default(),
            payload_bytes_max: PAYLOAD_BYTES_DEFAULT,
            ring_bytes: 1 << 20,
            journal: JournalConfig::default(),
            snapshots_retained: 2,
            limits: StepLimits::default(),
        }
    }

    /// With another sync policy.
    #[must_use]
    pub fn sync(mut self, sync: SyncPolicy) -> Self {
        self.sync = sync;
        self
    }

    /// The largest payload in the log: an input's or a mark's.
    pub(super) fn log_payload_bytes_max(&self) -> usize {
        self.payload_bytes_max.max(MARK_BYTES)
    }

    /// The ring's settings.
    pub(super) fn ring(&self) -> RingConfig {
        let frame_bytes_max = frame_bytes(self.log_payload_bytes_max());
        RingConfig {
            capacity_bytes: self.ring_bytes,
            frame_bytes_max,
            batch_bytes_max: 2 * padded(frame_bytes_max),
            commit_is_sequenced: self.sync != SyncPolicy::Every,
            ..RingConfig::default()
        }
    }

    /// Checks every setting against its bounds and against the others, before anything is touched.
    pub(super) fn validate(&self) -> Result<(), NodeError> {
        let payload = self.payload_bytes_max;
        if payload > PAYLOAD_BYTES_MAX {
            return Err(NodeError::Config(format!("payload_bytes_max = {payload}: at most {PAYLOAD_BYTES_MAX}")));
        }
        if self.snapshots_retained == 0 {
            return Err(NodeError::Config("snapshots_retained = 0: keep at least 1".to_string()));
        }
        self.ring().validate()?;
        self.journal.validate()?;
        let frame = padded(frame_bytes(self.log_payload_bytes_max()));
        if frame > self.journal.frame_bytes_max() {
            let needed = JournalConfig::commit_bytes_for(frame);
            return Err(NodeError::Config(format!(
                "payload_bytes_max = {payload}: needs journal.commit_bytes_max of {needed} at least, it is {}",
                self.journal.commit_bytes_max
            )));
        }
        Ok(())
    }
}
