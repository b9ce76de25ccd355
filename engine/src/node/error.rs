//! Why a node can't do what it was asked, each a line that an operator can act on.

use std::fmt;
use std::path::PathBuf;

use ticktape_core::Seq;
use ticktape_journal::JournalError;
use ticktape_journal::snapshot::SnapshotError;
use ticktape_shm::RingError;

use crate::machine::StepError;
use crate::snapshot::{RestoreError, RestoreFailure};

/// Why a node can't do what it was asked.
///
/// Its `Debug` is its `Display`: a `main` that returns it then shows the operator the line that was meant for one.
pub enum NodeError {
    /// A setting that can't be. Nothing was touched.
    Config(String),
    /// The journal.
    Journal(JournalError),
    /// The service or the log.
    Step(StepError),
    /// A snapshot that could not be written. The node goes on without it.
    Snapshot(SnapshotError),
    /// A snapshot that the service can't begin from.
    Restore {
        /// Its file.
        path: PathBuf,
        /// Why not.
        error: RestoreError,
    },
    /// The ring's settings.
    Ring(RingError),
    /// An input larger than `payload_bytes_max`. Nothing was sequenced.
    TooLarge {
        /// Its encoded size in bytes.
        bytes: usize,
        /// What is allowed.
        bytes_max: usize,
    },
    /// An input of the log that the service's `Input` can't be decoded from.
    NotAnInput {
        /// The journal's directory.
        dir: PathBuf,
        /// Where it stands.
        seq: Seq,
    },
    /// A replay of the journal gives another state than this node has.
    ReplayDiffers {
        /// The seq up to which was replayed.
        seq: Seq,
        /// The digest of this node's state.
        live: String,
        /// The digest of the replayed state.
        replayed: String,
    },
    /// A replay of the journal gives the same state, but other outputs than this node gave.
    OutputsDiffer {
        /// The first seq that this node applied itself.
        from: Seq,
        /// The last.
        to: Seq,
    },
}

impl fmt::Debug for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::Config(what) => write!(f, "node configuration: {what}"),
            NodeError::Journal(error) => error.fmt(f),
            NodeError::Step(error) => error.fmt(f),
            NodeError::Snapshot(error) => error.fmt(f),
            NodeError::Restore { path, error } => write!(f, "snapshot {}: {error}", path.display()),
            NodeError::Ring(error) => error.fmt(f),
            NodeError::TooLarge { bytes, bytes_max } => {
                write!(f, "input of {bytes} bytes, at most {bytes_max}: raise payload_bytes_max or split it")
            }
            NodeError::NotAnInput { dir, seq } => write!(
                f,
                "journal {}: seq {seq} is no input of this service: open it with the service, and a build of it, that wrote it",
                dir.display()
            ),
            NodeError::ReplayDiffers { seq, live, replayed } => write!(
                f,
                "replay up to seq {seq} gives state {replayed}, live state is {live}: the service is not deterministic"
            ),
            NodeError::OutputsDiffer { from, to } => write!(
                f,
                "replay of seq {from} to {to} gives other outputs than were given then: the service is not deterministic"
            ),
        }
    }
}

impl std::error::Error for NodeError {}

impl From<JournalError> for NodeError {
    fn from(error: JournalError) -> Self {
        NodeError::Journal(error)
    }
}

impl From<RestoreFailure> for NodeError {
    fn from(failure: RestoreFailure) -> Self {
        match failure {
            RestoreFailure::Journal(error) => NodeError::Journal(error),
            RestoreFailure::Snapshot { path, error } => NodeError::Restore { path, error },
        }
    }
}

impl From<SnapshotError> for NodeError {
    fn from(error: SnapshotError) -> Self {
        NodeError::Snapshot(error)
    }
}

impl From<StepError> for NodeError {
    fn from(error: StepError) -> Self {
        NodeError::Step(error)
    }
}

impl From<RingError> for NodeError {
    fn from(error: RingError) -> Self {
        NodeError::Ring(error)
    }
}
