//! Why an orders file is refused.

use std::fmt;
use std::io;

use super::{MAGIC, RECORD_BYTES, VERSION};

/// An orders file that can't be used, in one line.
#[derive(Debug)]
pub struct FlowError {
    /// The file.
    pub file: String,
    /// Bytes before the place, counted after decompression.
    pub offset: u64,
    /// What is wrong there.
    pub reason: Reason,
}

/// What is wrong with an orders file.
#[derive(Debug)]
pub enum Reason {
    /// The file can't be read or written.
    Io(io::Error),
    /// It does not start with the magic.
    Magic([u8; 8]),
    /// A version there is none of.
    Version(u32),
    /// It ends within its header.
    NoHeader,
    /// It ends within the records that its header announces.
    Short {
        /// Whole records that are there.
        records: u64,
        /// Records announced.
        count: u32,
    },
    /// It goes on after the records that its header announces.
    Trailing {
        /// Records announced.
        count: u32,
    },
    /// A record type other than 0, 1, 2.
    Type(u8),
    /// A side other than 0, 1.
    Side(u8),
    /// An ioc flag other than 0, 1, or 1 on what is no new order.
    Ioc(u8),
    /// A byte or word that must be zero is not.
    NotZero(i64),
    /// A seq that is not above the one before it.
    SeqNotAscending {
        /// The seq.
        seq: u64,
        /// The one before it.
        after: u64,
    },
    /// A command to be written has a good-till time, for which a record has no place.
    GoodTill {
        /// The command's seq.
        seq: u64,
    },
    /// More commands to be written than a header can announce.
    TooMany(usize),
}

impl fmt::Display for FlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "orders file {}: byte {}: ", self.file, self.offset)?;
        match &self.reason {
            Reason::Io(error) => error.fmt(f),
            Reason::Magic(found) => {
                write!(
                    f,
                    "starts with {:?}, must be {:?}",
                    found.escape_ascii().to_string(),
                    MAGIC.escape_ascii().to_string()
                )
            }
            Reason::Version(version) => write!(f, "version is {version}, must be {VERSION}"),
            Reason::NoHeader => write!(f, "ends within its header of 16 bytes"),
            Reason::Short { records, count } => {
                write!(f, "ends after {records} whole records of {RECORD_BYTES} bytes, its header announces {count}")
            }
            Reason::Trailing { count } => write!(f, "goes on after the {count} records its header announces"),
            Reason::Type(kind) => write!(f, "record type is {kind}, must be 0 (new), 1 (cancel) or 2 (modify)"),
            Reason::Side(side) => write!(f, "side is {side}, must be 0 (buy) or 1 (sell)"),
            Reason::Ioc(ioc) => write!(f, "ioc is {ioc}, must be 0, or 1 on a new order"),
            Reason::NotZero(value) => write!(f, "reserved field is {value}, must be 0"),
            Reason::SeqNotAscending { seq, after } => {
                write!(f, "seq {seq} follows {after}, must be above it")
            }
            Reason::GoodTill { seq } => {
                write!(f, "order of seq {seq} has a good-till time, the format has no place for it")
            }
            Reason::TooMany(count) => write!(f, "{count} commands, the format counts to {}", u32::MAX),
        }
    }
}

impl std::error::Error for FlowError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            Reason::Io(error) => Some(error),
            _ => None,
        }
    }
}
