//! Why a file can't be read, or not any further.

use std::{fmt, io};

/// Where a file could not be followed any more, and why.
#[derive(Debug)]
pub struct ReadError {
    /// Bytes of the file before the block or record that is meant.
    pub at: u64,
    /// What is wrong there.
    pub reason: Reason,
}

/// What is wrong with a file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reason {
    /// It can't be read.
    Io(io::Error),
    /// It begins neither as pcap nor as pcapng does.
    NotACapture,
    /// A version of its format that is not known.
    Version {
        /// Its major number.
        major: u16,
        /// Its minor number.
        minor: u16,
    },
    /// A section in neither byte order: the word that should tell.
    ByteOrder([u8; 4]),
    /// It ends within the block or record.
    Cut,
    /// A block whose length can't be: below that of an empty one, or no multiple of four.
    Length(u32),
    /// A block or record beyond [`super::BLOCK_BYTES_MAX`], in bytes.
    TooLong(u32),
    /// A block whose two lengths differ.
    LengthsDiffer {
        /// The one that it begins with.
        head: u32,
        /// The one that it ends with.
        tail: u32,
    },
    /// A section or an interface without the fields that it must have.
    Short,
    /// More interfaces than [`super::INTERFACES_MAX`].
    TooManyInterfaces,
}

impl ReadError {
    /// Whether it was no capture from the beginning, rather than one that is damaged.
    pub fn is_no_capture(&self) -> bool {
        matches!(self.reason, Reason::NotACapture | Reason::Version { .. }) && self.at == 0
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match &self.reason {
            Reason::Io(error) => write!(f, "byte {at}: {error}"),
            Reason::NotACapture => f.write_str("is neither a pcap nor a pcapng file"),
            Reason::Version { major, minor } => {
                write!(f, "byte {at}: version is {major}.{minor}, known are 2.4 of pcap and 1.0 of pcapng")
            }
            Reason::ByteOrder(word) => write!(f, "section at byte {at}: {word:02x?} tells no byte order"),
            Reason::Cut => write!(f, "ends within the block at byte {at}: it was cut"),
            Reason::Length(length) => write!(f, "block at byte {at}: its length can't be {length}"),
            Reason::TooLong(length) => {
                write!(f, "block at byte {at}: {length} bytes, at most {} are taken", super::BLOCK_BYTES_MAX)
            }
            Reason::LengthsDiffer { head, tail } => {
                write!(f, "block at byte {at}: begins with a length of {head} and ends with one of {tail}")
            }
            Reason::Short => write!(f, "block at byte {at}: lacks fields that it must have"),
            Reason::TooManyInterfaces => {
                write!(f, "block at byte {at}: one more interface than the {} that are taken", super::INTERFACES_MAX)
            }
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            Reason::Io(error) => Some(error),
            _ => None,
        }
    }
}
