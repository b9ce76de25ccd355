//! Reads interval logs, line by line.

use std::io::{BufRead, Read};
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

use super::decode::decode;
use super::{LINE_BYTES_MAX, LogError, Reason, TAG_BYTES_MAX};

/// Timestamps that are further below the start time than this are taken as counted from it, where no base time says.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// One interval.
#[derive(Debug)]
pub struct Interval {
    /// Whose, where the log is of several.
    pub tag: Option<String>,
    /// When it began, as it stands there.
    pub start: Duration,
    /// The same since the Unix epoch, if the log says enough.
    pub start_unix: Duration,
    /// How long it was.
    pub length: Duration,
    /// The longest value, in a unit of the writer's choice.
    pub max: f64,
    /// What was recorded.
    pub histogram: Histogram<u64>,
}

/// Reads one log.
pub struct LogReader<R> {
    source: R,
    text: Vec<u8>,
    line: u64,
    start_time: Option<Duration>,
    base_time: Option<Duration>,
}

impl<R: BufRead> LogReader<R> {
    /// Of what `source` holds.
    pub fn new(source: R) -> Self {
        LogReader { source, text: Vec::new(), line: 0, start_time: None, base_time: None }
    }

    /// The latest start time so far, since the Unix epoch.
    pub fn start_time(&self) -> Option<Duration> {
        self.start_time
    }

    /// What timestamps count from, so far, since the Unix epoch.
    pub fn base_time(&self) -> Option<Duration> {
        self.base_time
    }

    /// The line that was read last, from 1 on.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// The next interval; `None` at the end.
    ///
    /// # Errors
    /// The first line that is none of a log's: what follows it can't be trusted.
    pub fn next_interval(&mut self) -> Result<Option<Interval>, LogError> {
        loop {
            match self.next_line() {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(reason) => return Err(LogError { line: self.line, reason }),
            }
            match self.parse() {
                Ok(Some(interval)) => return Ok(Some(interval)),
                Ok(None) => {}
                Err(reason) => return Err(LogError { line: self.line, reason }),
            }
        }
    }

    /// Reads one line, with an end of line whether or not the file has one there.
    fn next_line(&mut self) -> Result<bool, Reason> {
        self.text.clear();
        self.line += 1;
        let mut limited = self.source.by_ref().take(LINE_BYTES_MAX as u64 + 1);
        limited.read_until(b'\n', &mut self.text).map_err(Reason::Io)?;
        if self.text.is_empty() {
            return Ok(false);
        }
        if self.text.len() > LINE_BYTES_MAX {
            return Err(Reason::LineTooLong);
        }
        if self.text.last() != Some(&b'\n') {
            self.text.push(b'\n');
        }
        Ok(true)
    }

    /// The parser is given one line at a time: over a whole file it would look for a line's marks in all that follow.
    fn parse(&mut self) -> Result<Option<Interval>, Reason> {
        if self.text.trim_ascii().is_empty() {
            return Ok(None);
        }
        let (tag, start, length, max, histogram) = match IntervalLogIterator::new(&self.text).next() {
            None => return Ok(None),
            Some(Err(_)) => return Err(Reason::Syntax),
            Some(Ok(LogEntry::StartTime(time))) => {
                self.start_time = Some(time);
                return Ok(None);
            }
            Some(Ok(LogEntry::BaseTime(time))) => {
                self.base_time = Some(time);
                return Ok(None);
            }
            Some(Ok(LogEntry::Interval(entry))) => {
                let tag = entry.tag().map(|tag| tag.as_str().to_owned());
                (tag, entry.start_timestamp(), entry.duration(), entry.max(), decode(entry.encoded_histogram())?)
            }
        };
        if tag.as_ref().is_some_and(|tag| tag.len() > TAG_BYTES_MAX) {
            return Err(Reason::TagTooLong);
        }
        let start_unix = self.base(start).saturating_add(start);
        Ok(Some(Interval { tag, start, start_unix, length, max, histogram }))
    }

    /// What the first timestamp, and with it all, counts from.
    fn base(&mut self, first: Duration) -> Duration {
        let start_time = *self.start_time.get_or_insert(first);
        let is_relative = first < start_time.saturating_sub(YEAR);
        *self.base_time.get_or_insert(if is_relative { start_time } else { Duration::ZERO })
    }
}
