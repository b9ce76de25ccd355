//! The canonical codec: one value, one encoding. WIRE.md, "Codec".
//!
//! Numbers are little-endian and of fixed width; a `bool` is one byte; text and collections stand behind a u32 count;
//! `Option` and `Result` behind a tag byte; structs and tuples are their fields in declaration order; an enum is the u16
//! index of its variant, then the variant's fields. `#[derive(Encode, Decode)]` writes the implementations.
//!
//! Invariant: what encodes also decodes, to the same value; what decodes encodes to the same bytes.
//! Invariant: decoding never panics, and reserves no more memory than the input has bytes before it has read elements
//! that pay for it.
//!
//! # What has no encoding
//! Where two replicas could disagree, there is no implementation, and the service does not compile: `usize` and `isize`
//! (their width is the machine's), `f32` and `f64`, `HashMap` and `HashSet` (their order is the run's). Each pair below
//! differs in that type alone.
//!
//! A hash map in an input, against a `BTreeMap`:
//! ```compile_fail
//! use std::collections::HashMap as Map;
//! # use ticktape_core::{Decode, Encode};
//! # use ticktape_macros::{Decode, Encode};
//! #[derive(Encode, Decode)]
//! #[codec(crate = "ticktape_core")]
//! struct Transfers { amounts: Map<u64, i64> }
//! ```
//! ```
//! use std::collections::BTreeMap as Map;
//! # use ticktape_core::{Decode, Encode};
//! # use ticktape_macros::{Decode, Encode};
//! #[derive(Encode, Decode)]
//! #[codec(crate = "ticktape_core")]
//! struct Transfers { amounts: Map<u64, i64> }
//! ```
//! A hash set, against a `BTreeSet`:
//! ```compile_fail
//! use std::collections::HashSet as Set;
//! # use ticktape_core::{Decode, Encode};
//! # use ticktape_macros::{Decode, Encode};
//! #[derive(Encode, Decode)]
//! #[codec(crate = "ticktape_core")]
//! enum Command { Close(Set<u64>) }
//! ```
//! ```
//! use std::collections::BTreeSet as Set;
//! # use ticktape_core::{Decode, Encode};
//! # use ticktape_macros::{Decode, Encode};
//! #[derive(Encode, Decode)]
//! #[codec(crate = "ticktape_core")]
//! enum Command { Close(Set<u64>) }
//! ```
//! Floats, against integers:
//! ```compile_fail
//! # use ticktape_core::{Decode, Encode};
//! # use ticktape_macros::{Decode, Encode};
//! #[derive(Encode, Decode)]
//! #[codec(crate = "ticktape_core")]
//! struct Order { price: f64 }
//! ```
//! ```compile_fail
//! # use ticktape_core::{Decode, Encode};
//! # use ticktape_macros::{Decode, Encode};
//! #[derive(Encode, Decode)]
//! #[codec(crate = "ticktape_core")]
//! struct Order { price: f32 }
//! ```
//! ```compile_fail
//! # use ticktape_core::{Decode, Encode};
//! # use ticktape_macros::{Decode, Encode};
//! #[derive(Encode, Decode)]
//! #[codec(crate = "ticktape_core")]
//! struct Order { price: usize }
//! ```
//! ```
//! # use ticktape_core::{Decode, Encode};
//! # use ticktape_macros::{Decode, Encode};
//! #[derive(Encode, Decode)]
//! #[codec(crate = "ticktape_core")]
//! struct Order { price: i64 }
//! ```
//! A service's snapshot that is a hash map, against one that is not:
//! ```compile_fail
//! use std::collections::{BTreeMap, HashMap};
//! # use ticktape_core::{Ctx, Seq, Service};
//! # struct Accounts;
//! impl Service for Accounts {
//!     type Input = u64;
//!     type Output = u64;
//!     type Snapshot = HashMap<u64, i64>;
//! #   type Config = ();
//! #   fn genesis(_: &()) -> Self { Accounts }
//! #   fn apply(&mut self, _: Seq, _: &u64, _: &mut Ctx<'_, u64>) {}
//!     fn snapshot(&self) -> Self::Snapshot { Default::default() }
//!     fn restore(_: Self::Snapshot, _: &()) -> Self { Accounts }
//! }
//! ```
//! ```
//! use std::collections::{BTreeMap, HashMap};
//! # use ticktape_core::{Ctx, Seq, Service};
//! # struct Accounts;
//! impl Service for Accounts {
//!     type Input = u64;
//!     type Output = u64;
//!     type Snapshot = BTreeMap<u64, i64>;
//! #   type Config = ();
//! #   fn genesis(_: &()) -> Self { Accounts }
//! #   fn apply(&mut self, _: Seq, _: &u64, _: &mut Ctx<'_, u64>) {}
//!     fn snapshot(&self) -> Self::Snapshot { Default::default() }
//!     fn restore(_: Self::Snapshot, _: &()) -> Self { Accounts }
//! }
//! ```
//! And an input that is a float, against one that is an integer:
//! ```compile_fail
//! # use ticktape_core::{Ctx, Seq, Service};
//! # struct Accounts;
//! impl Service for Accounts {
//!     type Input = f64;
//! #   type Output = u64;
//! #   type Snapshot = u64;
//! #   type Config = ();
//! #   fn genesis(_: &()) -> Self { Accounts }
//!     fn apply(&mut self, _: Seq, _: &Self::Input, _: &mut Ctx<'_, u64>) {}
//! #   fn snapshot(&self) -> u64 { 0 }
//! #   fn restore(_: u64, _: &()) -> Self { Accounts }
//! }
//! ```
//! ```
//! # use ticktape_core::{Ctx, Seq, Service};
//! # struct Accounts;
//! impl Service for Accounts {
//!     type Input = i64;
//! #   type Output = u64;
//! #   type Snapshot = u64;
//! #   type Config = ();
//! #   fn genesis(_: &()) -> Self { Accounts }
//!     fn apply(&mut self, _: Seq, _: &Self::Input, _: &mut Ctx<'_, u64>) {}
//! #   fn snapshot(&self) -> u64 { 0 }
//! #   fn restore(_: u64, _: &()) -> Self { Accounts }
//! }
//! ```

mod collections;
mod error;
mod numbers;
mod plain;
mod reader;
mod tuples;

pub use error::DecodeError;
pub use reader::Reader;

/// A value with one canonical encoding.
///
/// Derive it; by hand only [`Encode::encode`] is needed. A value that nests deeper than
/// [`DECODE_DEPTH_MAX`](crate::limits::DECODE_DEPTH_MAX), or a collection of more than `u32::MAX` elements, has none.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no canonical encoding",
    label = "can't be an input, an output or part of a snapshot",
    note = "derive `Encode` and `Decode`",
    note = "floats, hash maps and `usize` have none, because replicas could differ: use fixed-width integers, `BTreeMap`, `BTreeSet`"
)]
pub trait Encode {
    /// Appends the encoding.
    ///
    /// # Panics
    /// When the value has none: see [`Encode`].
    fn encode(&self, out: &mut Vec<u8>);

    /// The encoding, alone.
    ///
    /// # Panics
    /// As [`Encode::encode`].
    fn to_bytes(&self) -> Vec<u8> {
        // What most values fit at once, where growing to it took four steps.
        let mut out = Vec::with_capacity(64);
        self.encode(&mut out);
        out
    }

    /// As `encode`, below `depth` boxes and collections: lets an encoder refuse what a decoder would.
    #[doc(hidden)]
    #[inline]
    fn encode_nested(&self, out: &mut Vec<u8>, depth: u32) {
        let _ = depth;
        self.encode(out);
    }

    /// The bytes that every value takes, where all take the same. Lets a struct be written with one check for room.
    #[doc(hidden)]
    #[inline]
    fn fixed_bytes() -> Option<usize>
    where
        Self: Sized,
    {
        None
    }

    /// Where there are `fixed_bytes`: writes that many at the start of `room`, and returns what is left of it.
    #[doc(hidden)]
    #[inline]
    fn encode_fixed<'a>(&self, room: &'a mut [u8]) -> &'a mut [u8] {
        let _ = room;
        unreachable!("the type has no fixed size")
    }

    /// As `encode_fixed`, for several.
    #[doc(hidden)]
    #[inline]
    fn encode_fixed_slice<'a>(values: &[Self], room: &'a mut [u8]) -> &'a mut [u8]
    where
        Self: Sized,
    {
        values.iter().fold(room, |room, value| value.encode_fixed(room))
    }

    /// The elements one after the other, without a count. Numbers do it in one copy.
    #[doc(hidden)]
    #[inline]
    fn encode_slice(values: &[Self], out: &mut Vec<u8>, depth: u32)
    where
        Self: Sized,
    {
        for value in values {
            value.encode_nested(out, depth);
        }
    }
}

/// A value that can be read back from its canonical encoding, and from nothing else.
///
/// Derive it; by hand [`Decode::MIN_BYTES`] and [`Decode::decode`] are needed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be read from a canonical encoding",
    label = "can't be an input, an output or part of a snapshot",
    note = "derive `Encode` and `Decode`",
    note = "floats, hash maps and `usize` have none, because replicas could differ: use fixed-width integers, `BTreeMap`, `BTreeSet`"
)]
pub trait Decode: Sized {
    /// The fewest bytes any value takes; zero only where every value takes none. Bounds what a declared count may allocate.
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
    #[inline]
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let value = Self::decode(&mut reader)?;
        reader.finish()?;
        Ok(value)
    }

    /// `count` elements, a number that [`Reader::count`] has checked. Numbers do it in one copy.
    #[doc(hidden)]
    #[inline]
    fn decode_vec(reader: &mut Reader<'_>, count: usize) -> Result<Vec<Self>, DecodeError> {
        let mut values = Vec::with_capacity(reader.capacity::<Self>(count));
        for _ in 0..count {
            values.push(Self::decode(reader)?);
        }
        Ok(values)
    }

    /// `N` elements, without a count.
    #[doc(hidden)]
    #[inline]
    fn decode_array<const N: usize>(reader: &mut Reader<'_>) -> Result<[Self; N], DecodeError> {
        reader.need(N.saturating_mul(Self::MIN_BYTES))?;
        let mut failed = None;
        let slots: [Option<Self>; N] = std::array::from_fn(|_| {
            if failed.is_some() {
                return None;
            }
            Self::decode(reader).map_err(|error| failed = Some(error)).ok()
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(slots.map(|slot| slot.expect("nothing failed"))),
        }
    }
}
