//! The canonical codec. WIRE.md, "Codec".

use std::fmt;

/// A value with one canonical encoding.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no canonical encoding",
    label = "can't be an input, an output or part of a snapshot",
    note = "derive `Encode` and `Decode`; floats and hash maps have none, because replicas could differ: use integers, `BTreeMap`, `BTreeSet`"
)]
pub trait Encode {
    /// Appends the encoding.
    fn encode(&self, out: &mut Vec<u8>);

    /// The encoding, alone.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
}

/// A value that can be read back from its canonical encoding, and from nothing else.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be read from a canonical encoding",
    label = "can't be an input, an output or part of a snapshot",
    note = "derive `Encode` and `Decode`; floats and hash maps have none, because replicas could differ: use integers, `BTreeMap`, `BTreeSet`"
)]
pub trait Decode: Sized {
    /// The fewest bytes any value takes. Bounds what a declared count may allocate.
    const MIN_BYTES: usize;

    /// Reads one value, leaving what follows.
    ///
    /// # Errors
    /// [`DecodeError`], one variant a reason.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// Reads exactly one value that takes all of `bytes`.
    ///
    /// # Errors
    /// As [`Decode::decode`], and [`DecodeError::Trailing`] where bytes are left.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let value = Self::decode(&mut reader)?;
        reader.finish()?;
        Ok(value)
    }
}

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
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            DecodeError::Short { needed, left } => write!(f, "value is cut: {left} bytes of {needed}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Walks over the bytes of an encoding.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes }
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// Where bytes are left.
    pub fn finish(&self) -> Result<(), DecodeError> {
        assert!(self.bytes.is_empty());
        Ok(())
    }
}
