//! What an appliance measures about itself, in memory that other processes may look at.
//!
//! A file of named words: counters, levels, and histograms of latencies. Each word has one writer, which stores it and goes on; whoever
//! looks maps the file read-only and can neither slow the writer down nor mislead it. Readers see each word whole, and no two at the same
//! instant.
//!
//! ```
//! use ticktape_shm::metrics::{Kind, Metrics};
//!
//! let mut metrics = Metrics::heap("counter", 1)?;
//! let mut durable = metrics.histogram("durable")?;
//! let mut figures = metrics.figures("journaler", [("commits", Kind::Counter)])?;
//! durable.record(81_000);
//! figures.set(0, 7);
//!
//! let seen = metrics.reader().read();
//! assert_eq!(seen.word("journaler.commits"), Some(7));
//! assert_eq!(seen.histograms[0].counts().map(|(_, count)| count).sum::<u64>(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod follower;
pub mod layout;
mod reader;
mod writer;

pub use error::{MetricsError, Misfit};
pub use follower::{FollowerMetrics, FollowerStanding};
pub use reader::{HistogramRead, MetricsReader, Reading, list};
pub use writer::{Figures, LatencyRecorder, Metrics};

#[cfg(test)]
mod tests;

/// What a word does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It counts up.
    Counter,
    /// It goes up and down.
    Level,
}
