//! The session name of a feed: which stream, and which reign of its writer. WIRE.md, "Feed".
//!
//! | offset | size | field | type |
//! |---|---|---|---|
//! | 0 | 4 | stream | base 36 |
//! | 4 | 6 | epoch | base 36 |
//!
//! Ten printable characters, `0`-`9` then `A`-`Z`, most significant first, padded with `0`.

use std::fmt;

use crate::link::layout::Field;

/// Bytes of a session name.
pub const SESSION_BYTES: usize = 10;
/// Offset of the stream's digits.
pub const STREAM: usize = 0;
/// Offset of the epoch's digits.
pub const EPOCH: usize = 4;
/// The largest stream number: four digits.
pub const STREAM_MAX: u32 = 36u32.pow(4) - 1;
/// The largest epoch: six digits.
pub const EPOCH_MAX: u32 = 36u32.pow(6) - 1;

const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The table above.
pub(super) const FIELDS: &[Field] = &[
    Field { offset: STREAM, bytes: EPOCH - STREAM, name: "stream" },
    Field { offset: EPOCH, bytes: SESSION_BYTES - EPOCH, name: "epoch" },
];

/// A feed's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FeedSession {
    stream: u32,
    epoch: u32,
}

/// Why there is no such session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedSessionError {
    /// A stream number above 36⁴ − 1: four digits.
    StreamTooLarge(u32),
    /// An epoch above 36⁶ − 1: six digits.
    EpochTooLarge(u32),
    /// A byte that is no digit of base 36; letters are upper case.
    NotADigit {
        /// Its offset in the name.
        offset: usize,
        /// The byte.
        byte: u8,
    },
}

impl fmt::Display for FeedSessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FeedSessionError::StreamTooLarge(stream) => write!(f, "feed stream {stream} is above {STREAM_MAX}"),
            FeedSessionError::EpochTooLarge(epoch) => write!(f, "feed epoch {epoch} is above {EPOCH_MAX}"),
            FeedSessionError::NotADigit { offset, byte } => {
                write!(f, "feed session has byte {byte:#04x} at {offset}, where 0-9 or A-Z belong")
            }
        }
    }
}

impl std::error::Error for FeedSessionError {}

impl FeedSession {
    /// The session of `stream` in the reign `epoch`.
    ///
    /// # Errors
    /// Where a number has too many digits.
    pub const fn new(stream: u32, epoch: u32) -> Result<Self, FeedSessionError> {
        if stream > STREAM_MAX {
            return Err(FeedSessionError::StreamTooLarge(stream));
        }
        if epoch > EPOCH_MAX {
            return Err(FeedSessionError::EpochTooLarge(epoch));
        }
        Ok(FeedSession { stream, epoch })
    }

    /// Which stream.
    pub const fn stream(self) -> u32 {
        self.stream
    }

    /// Which reign.
    pub const fn epoch(self) -> u32 {
        self.epoch
    }

    /// The ten characters.
    pub fn encode(self) -> [u8; SESSION_BYTES] {
        let mut name = [0; SESSION_BYTES];
        write_digits(self.stream, &mut name[STREAM..EPOCH]);
        write_digits(self.epoch, &mut name[EPOCH..]);
        name
    }

    /// Reads the ten characters.
    ///
    /// # Errors
    /// [`FeedSessionError::NotADigit`]: every ten digits are a session.
    pub fn parse(name: &[u8; SESSION_BYTES]) -> Result<Self, FeedSessionError> {
        Ok(FeedSession { stream: read_digits(name, STREAM, EPOCH)?, epoch: read_digits(name, EPOCH, SESSION_BYTES)? })
    }
}

impl fmt::Display for FeedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.encode().iter().try_for_each(|&digit| fmt::Write::write_char(f, char::from(digit)))
    }
}

/// A stream as people write it: four characters. What is no stream's number stays one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamName(pub u64);

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(stream) = u32::try_from(self.0).ok().filter(|&stream| stream <= STREAM_MAX) else {
            return self.0.fmt(f);
        };
        let mut name = [0; EPOCH - STREAM];
        write_digits(stream, &mut name);
        name.iter().try_for_each(|&digit| fmt::Write::write_char(f, char::from(digit)))
    }
}

fn write_digits(mut number: u32, out: &mut [u8]) {
    for digit in out.iter_mut().rev() {
        *digit = DIGITS[(number % 36) as usize];
        number /= 36;
    }
}

fn read_digits(name: &[u8; SESSION_BYTES], from: usize, to: usize) -> Result<u32, FeedSessionError> {
    let mut number = 0;
    for (offset, &byte) in name.iter().enumerate().take(to).skip(from) {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'A'..=b'Z' => byte - b'A' + 10,
            _ => return Err(FeedSessionError::NotADigit { offset, byte }),
        };
        number = number * 36 + u32::from(digit);
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_names() {
        let name = |stream, epoch| FeedSession::new(stream, epoch).unwrap().to_string();
        assert_eq!(name(0, 0), "0000000000");
        assert_eq!(name(1, 35), "000100000Z");
        assert_eq!(name(36, 36 * 36 + 1), "0010000101");
        assert_eq!(name(STREAM_MAX, EPOCH_MAX), "ZZZZZZZZZZ");
        let streams = [1_366_898, 1, u64::from(STREAM_MAX) + 1].map(|stream| StreamName(stream).to_string());
        assert_eq!(streams, ["TAPE", "0001", "1679616"]);
    }

    #[test]
    fn what_is_no_session() {
        assert_eq!(FeedSession::new(STREAM_MAX + 1, 0), Err(FeedSessionError::StreamTooLarge(STREAM_MAX + 1)));
        assert_eq!(FeedSession::new(0, EPOCH_MAX + 1), Err(FeedSessionError::EpochTooLarge(EPOCH_MAX + 1)));
        assert_eq!(FeedSession::parse(b"00000a0000"), Err(FeedSessionError::NotADigit { offset: 5, byte: b'a' }));
        assert_eq!(FeedSession::parse(b"0001     1"), Err(FeedSessionError::NotADigit { offset: 4, byte: b' ' }));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(stream in 0..=STREAM_MAX, epoch in 0..=EPOCH_MAX) {
            let session = FeedSession::new(stream, epoch).unwrap();
            prop_assert_eq!(FeedSession::parse(&session.encode()), Ok(session));
        }

        #[test]
        fn any_name_parses_to_itself_or_not_at_all(name: [u8; SESSION_BYTES]) {
            if let Ok(session) = FeedSession::parse(&name) {
                prop_assert_eq!(session.encode(), name);
            }
        }
    }
}
