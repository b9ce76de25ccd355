//! Latencies as files that other programs read, after HdrHistogram's formats.
//!
//! | | file | |
//! |---|---|---|
//! | [`write_percentiles`] | `.hgrm` | percentiles as text, which the plotters of that family take |
//! | [`LogWriter`] | `.hlog` | one histogram an interval, compressed: format 2, version 1.2 of the log |
//! | [`write_pair`] | both | one histogram, in both |
//! | [`LogReader`], [`LogSummary`] | | the same read back, whoever wrote it: base times, tags, comments |
//!
//! Values are nanoseconds, unscaled, in every file that is written here.
//!
//! Invariant: whatever a file holds, reading it takes bounded memory and ends.

mod decode;
mod error;
mod hgrm;
mod latency;
mod log_reader;
mod log_summary;
mod log_writer;
mod pair;
#[cfg(test)]
mod tests;

pub(crate) use decode::decode;
pub use error::{LogError, Reason};
pub use hgrm::{Step, percentile_steps, write_percentiles};
pub use latency::Latency;
pub use log_reader::{Interval, LogReader};
pub use log_summary::{LogSummary, Row};
pub use log_writer::LogWriter;
pub(crate) use log_writer::encode;
pub use pair::write_pair;

/// The longest line of a log. A histogram of five digits in full use takes some MiB before it is compressed.
pub const LINE_BYTES_MAX: usize = 4 << 20;
/// Bytes of a histogram, uncompressed: a compressed line may claim to unfold to a thousand times its length.
pub const HISTOGRAM_BYTES_MAX: usize = 8 << 20;
/// Counts of one histogram, at 8 bytes each: four digits over the whole range of numbers, or five up to 2^25 times the lowest.
pub const COUNTS_MAX: usize = 1 << 20;
/// Values of one histogram, and of a tag's sum: what others keep in a signed number.
pub const VALUES_MAX: u64 = i64::MAX as u64;
/// Counts of all sums of a log together.
pub const SUM_COUNTS_MAX: usize = 4 << 20;
/// Intervals of a log: two days of seconds.
pub const INTERVALS_MAX: usize = 200_000;
/// Tags that are told apart.
pub const TAGS_MAX: usize = 16;
/// The longest tag, in bytes.
pub const TAG_BYTES_MAX: usize = 64;
