//! What a log comes to.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::{INTERVALS_MAX, Latency, LogError, LogReader, Reason, SUM_COUNTS_MAX, TAGS_MAX, VALUES_MAX};

/// One interval's figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Whose.
    pub tag: Option<String>,
    /// When it began, since the log's first interval.
    pub start: Duration,
    /// How long it was.
    pub length: Duration,
    /// What it holds.
    pub latency: Latency,
}

/// A log's intervals, and their sum by tag.
#[derive(Debug, Default)]
pub struct LogSummary {
    /// When it began, since the Unix epoch, where it says so.
    pub start_time: Option<Duration>,
    /// Intervals, as they stand there.
    pub rows: Vec<Row>,
    /// All values, by tag.
    pub totals: BTreeMap<Option<String>, Histogram<u64>>,
}

impl LogSummary {
    /// Reads a log to its end.
    ///
    /// # Errors
    /// The first line that can't be taken.
    pub fn read(source: impl BufRead) -> Result<Self, LogError> {
        let mut reader = LogReader::new(source);
        let mut summary = LogSummary::default();
        let mut first = None;
        while let Some(interval) = reader.next_interval()? {
            let refuse = |reason| Err(LogError { line: reader.line(), reason });
            if summary.rows.len() >= INTERVALS_MAX {
                return refuse(Reason::TooManyIntervals);
            }
            let begun = *first.get_or_insert(interval.start_unix);
            let latency = Latency::of(&interval.histogram);
            if let Err(reason) = summary.add(&interval.tag, interval.histogram) {
                return refuse(reason);
            }
            summary.rows.push(Row {
                start: interval.start_unix.saturating_sub(begun),
                length: interval.length,
                latency,
                tag: interval.tag,
            });
        }
        summary.start_time = reader.start_time();
        Ok(summary)
    }

    fn add(&mut self, tag: &Option<String>, histogram: Histogram<u64>) -> Result<(), Reason> {
        let tags = self.totals.len();
        match self.totals.get_mut(tag) {
            Some(total) if total.len().saturating_add(histogram.len()) > VALUES_MAX => {
                return Err(Reason::TooManyValues);
            }
            Some(total) => {
                total.auto(true);
                total.add(&histogram).map_err(|_| Reason::Range)?;
            }
            None if tags >= TAGS_MAX => return Err(Reason::TooManyTags),
            None => {
                self.totals.insert(tag.clone(), histogram);
            }
        }
        let counts: usize = self.totals.values().map(Histogram::distinct_values).sum();
        if counts > SUM_COUNTS_MAX { Err(Reason::TooManySums) } else { Ok(()) }
    }
}
