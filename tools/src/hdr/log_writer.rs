//! Writes interval logs.

use std::io::{self, Write};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

/// The interval's longest is told in milliseconds, of nanoseconds, as those who read logs by eye are used to.
const MAX_DIVISOR: f64 = 1e6;

/// A histogram as it stands in an interval's line.
pub(crate) fn encode(histogram: &Histogram<u64>) -> String {
    let mut encoded = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut encoded).expect("memory takes everything");
    STANDARD.encode(encoded)
}

/// Writes one line an interval. What it writes is whole after each line, if `W` writes through.
pub struct LogWriter<W: Write> {
    out: W,
    serializer: V2DeflateSerializer,
    encoded: Vec<u8>,
    text: String,
}

impl<W: Write> LogWriter<W> {
    /// Begins a log whose intervals count from `start`, a time since the Unix epoch; `comment` is one line.
    ///
    /// # Errors
    /// What `out` says.
    pub fn new(mut out: W, comment: &str, start: Duration) -> io::Result<Self> {
        let start = start.as_secs_f64();
        writeln!(out, "#[{}]", comment.replace(['\n', '\r'], " "))?;
        writeln!(out, "#[Histogram log format version 1.2]")?;
        writeln!(out, "#[StartTime: {start:.3} (seconds since epoch)]")?;
        writeln!(out, "#[BaseTime: {start:.3} (seconds since epoch)]")?;
        writeln!(out, "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"")?;
        Ok(LogWriter { out, serializer: V2DeflateSerializer::new(), encoded: Vec::new(), text: String::new() })
    }

    /// An interval that began so long after the log's start.
    ///
    /// # Errors
    /// What the log's destination says.
    pub fn interval(&mut self, start: Duration, length: Duration, histogram: &Histogram<u64>) -> io::Result<()> {
        self.encoded.clear();
        self.text.clear();
        self.serializer.serialize(histogram, &mut self.encoded).map_err(io::Error::other)?;
        STANDARD.encode_string(&self.encoded, &mut self.text);
        let (start, length) = (start.as_secs_f64(), length.as_secs_f64());
        let max = histogram.max() as f64 / MAX_DIVISOR;
        writeln!(self.out, "{start:.3},{length:.3},{max:.3},{}", self.text)?;
        self.out.flush()
    }

    /// Where it was written.
    pub fn into_inner(self) -> W {
        self.out
    }
}
