//! Why bytes are refused.

use std::fmt;

use crate::limits::{DECODE_DEPTH_MAX, ZERO_WIDTH_COUNT_MAX};

/// Why bytes are not the encoding of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The value goes on beyond the bytes.
    Short {
        /// Bytes that were needed next.
        needed: usize,
        /// Bytes that were left.
        left: usize,
    },
    /// The bytes go on beyond the value.
    Trailing {
        /// Bytes that were left.
        left: usize,
    },
    /// A `bool` that is neither 0 nor 1.
    BadBool {
        /// What stands there.
        value: u8,
    },
    /// The tag of an `Option` or a `Result` that is neither 0 nor 1.
    BadTag {
        /// What stands there.
        value: u8,
    },
    /// A discriminant that none of the enum's variants has.
    BadDiscriminant {
        /// The enum's name.
        name: &'static str,
        /// What stands there.
        value: u16,
    },
    /// A text that is not UTF-8.
    BadUtf8 {
        /// Bytes of the text that are.
        valid_up_to: usize,
    },
    /// A `char` that is no Unicode scalar value.
    BadChar {
        /// What stands there.
        value: u32,
    },
    /// A key of a map or a set that is not above the one before it.
    NotAscending {
        /// The key's place, from 0.
        index: usize,
    },
    /// A count of more elements than the bytes that are left could hold.
    CountTooLarge {
        /// What stands there.
        count: u32,
        /// Bytes that were left.
        left: usize,
    },
    /// Boxes and collections within each other beyond [`DECODE_DEPTH_MAX`].
    TooDeep,
    /// Bytes that a `Decode` written by hand refuses.
    Invalid {
        /// What they were to be.
        expected: &'static str,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            DecodeError::Short { needed, left } => write!(f, "value is cut: {left} bytes of {needed}"),
            DecodeError::Trailing { left } => write!(f, "{left} bytes follow the value, none may"),
            DecodeError::BadBool { value } => write!(f, "bool is {value:#04x}, must be 0 or 1"),
            DecodeError::BadTag { value } => write!(f, "tag is {value:#04x}, must be 0 or 1"),
            DecodeError::BadDiscriminant { name, value } => write!(f, "discriminant {value} is no variant of {name}"),
            DecodeError::BadUtf8 { valid_up_to } => write!(f, "text is not UTF-8 from byte {valid_up_to} on"),
            DecodeError::BadChar { value } => write!(f, "char {value:#x} is no Unicode scalar value"),
            DecodeError::NotAscending { index } => {
                write!(f, "key {index} is not above the one before it, keys must ascend")
            }
            DecodeError::CountTooLarge { count, left } => write!(
                f,
                "count {count} is more than {left} bytes can hold, or above {ZERO_WIDTH_COUNT_MAX} of elements without bytes"
            ),
            DecodeError::TooDeep => write!(f, "value nests deeper than {DECODE_DEPTH_MAX}"),
            DecodeError::Invalid { expected } => write!(f, "value is not {expected}"),
        }
    }
}

impl std::error::Error for DecodeError {}
