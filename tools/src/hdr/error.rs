//! Why a log can't be read.

use std::fmt;
use std::io;

use hdrhistogram::serialization::DeserializeError;

use super::{
    COUNTS_MAX, HISTOGRAM_BYTES_MAX, INTERVALS_MAX, LINE_BYTES_MAX, SUM_COUNTS_MAX, TAG_BYTES_MAX, TAGS_MAX, VALUES_MAX,
};

/// What is wrong, and in which line.
#[derive(Debug)]
pub struct LogError {
    /// The line, from 1 on.
    pub line: u64,
    /// What is wrong with it.
    pub reason: Reason,
}

/// What can be wrong.
#[derive(Debug)]
pub enum Reason {
    /// The system's word.
    Io(io::Error),
    /// It is longer than [`LINE_BYTES_MAX`].
    LineTooLong,
    /// It is neither a comment, nor the legend, nor an interval.
    Syntax,
    /// Its tag is longer than [`TAG_BYTES_MAX`].
    TagTooLong,
    /// There are more tags than [`TAGS_MAX`].
    TooManyTags,
    /// There are more intervals than [`INTERVALS_MAX`].
    TooManyIntervals,
    /// Its histogram is no base64.
    Base64,
    /// Its histogram is of another format than the second: this magic number.
    Cookie(u32),
    /// Its histogram is not compressed as it should be.
    Compression,
    /// Its histogram is longer or shorter than it says.
    Length,
    /// Its histogram unfolds to more than [`HISTOGRAM_BYTES_MAX`].
    TooLarge,
    /// Its histogram has more counts than [`COUNTS_MAX`].
    TooManyCounts,
    /// With it the sums of all tags have more counts than [`SUM_COUNTS_MAX`].
    TooManySums,
    /// Its histogram's digits or range can't be.
    Range,
    /// Its counts, or with it those of a tag's sum, add up to more than [`super::VALUES_MAX`].
    TooManyValues,
    /// The decoder's word.
    Histogram(DeserializeError),
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for LogError {}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Io(error) => error.fmt(f),
            Reason::LineTooLong => write!(f, "is longer than {LINE_BYTES_MAX} bytes"),
            Reason::Syntax => f.write_str("is no comment and no interval (start,length,max,histogram)"),
            Reason::TagTooLong => write!(f, "its tag is longer than {TAG_BYTES_MAX} bytes"),
            Reason::TooManyTags => write!(f, "is of one tag more than the {TAGS_MAX} that are told apart"),
            Reason::TooManyIntervals => write!(f, "is one interval more than the {INTERVALS_MAX} that are taken"),
            Reason::Base64 => f.write_str("its histogram is no base64"),
            Reason::Cookie(cookie) => {
                write!(
                    f,
                    "its histogram has the magic number {cookie:#010x}: format 2 is read, with 0x1c849314 or 0x1c849313"
                )
            }
            Reason::Compression => f.write_str("its histogram can't be uncompressed"),
            Reason::Length => f.write_str("its histogram is longer or shorter than it says"),
            Reason::TooLarge => write!(f, "its histogram unfolds to more than {HISTOGRAM_BYTES_MAX} bytes"),
            Reason::TooManyCounts => {
                write!(f, "its histogram has more than {COUNTS_MAX} counts: fewer digits, or a smaller range")
            }
            Reason::TooManySums => write!(f, "with it the sums of all tags have more than {SUM_COUNTS_MAX} counts"),
            Reason::TooManyValues => write!(f, "with it there are more than {VALUES_MAX} values"),
            Reason::Range => f.write_str("its histogram's range or number of digits can't be"),
            Reason::Histogram(error) => write!(f, "its histogram: {error}"),
        }
    }
}
