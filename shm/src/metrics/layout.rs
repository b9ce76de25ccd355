//! The layout of a metrics file, version 1. WIRE.md, "Metrics".
//!
//! Every word is a little-endian u64 on an 8-byte boundary. A header, a table of entries, and the words that entries name. Words that
//! different stages write never share a line of 128 bytes.

/// What [`MAGIC`] holds: `TKMETRC1` as bytes.
pub const MAGIC_VALUE: u64 = u64::from_le_bytes(*b"TKMETRC1");
/// What [`VERSION`] holds.
pub const VERSION_VALUE: u64 = 1;

/// Offset of the magic.
pub const MAGIC: usize = 0;
/// Offset of the layout's version.
pub const VERSION: usize = 8;
/// Offset of the size of the whole file, in bytes.
pub const FILE_BYTES: usize = 16;
/// Offset of the number of entries that are there.
pub const ENTRIES: usize = 24;
/// Offset of the writer's process id, for people.
pub const WRITER_PID: usize = 32;
/// Offset of when the file was made, in nanoseconds since the Unix epoch.
pub const CREATED_NS: usize = 40;
/// Offset of the writer's epoch.
pub const EPOCH: usize = 48;
/// Offset of a word that is zero.
pub const RESERVED: usize = 56;
/// Offset of what is measured, such as the service's name.
pub const LABEL: usize = 64;
/// Bytes of the label: UTF-8, padded with zeros.
pub const LABEL_BYTES: usize = 64;
/// Offset of the writer's heartbeat, in nanoseconds of its own clock: only whether it moves means anything.
pub const HEARTBEAT_NS: usize = 128;
/// Offset of the table of entries.
pub const TABLE: usize = 256;

/// Size of an entry: the words below.
pub const ENTRY_BYTES: usize = 64;
/// Offset in an entry of its name.
pub const ENTRY_NAME: usize = 0;
/// Bytes of a name: UTF-8, padded with zeros.
pub const ENTRY_NAME_BYTES: usize = 48;
/// Offset in an entry of its kind.
pub const ENTRY_KIND: usize = 48;
/// Offset in an entry of where its words are in the file.
pub const ENTRY_OFFSET: usize = 56;
/// The most entries of a file. Bounds what a damaged header may claim.
pub const ENTRIES_MAX: usize = 1024;

/// A kind: a word that counts up.
pub const KIND_COUNTER: u64 = 1;
/// A kind: a word that goes up and down.
pub const KIND_LEVEL: u64 = 2;
/// A kind: a histogram of nanoseconds.
pub const KIND_HISTOGRAM: u64 = 3;

/// Offset in a histogram of its precision: how many bits of a value are kept.
pub const HISTOGRAM_BITS: usize = 0;
/// Offset in a histogram of how many counts there are.
pub const HISTOGRAM_COUNTS: usize = 8;
/// Offset in a histogram of the largest value there was, exactly.
pub const HISTOGRAM_MAX: usize = 16;
/// Offset in a histogram of the first count.
pub const HISTOGRAM_FIRST: usize = 128;

/// The bits of a value that a histogram keeps: three significant digits.
pub const BITS_FINE: u32 = 11;
/// One significant digit, in a few KiB.
pub const BITS_COARSE: u32 = 5;
/// The largest value that is counted as itself, in nanoseconds: a minute of stall is a failure, not a latency.
pub const VALUE_MAX: u64 = 60_000_000_000;

/// Bytes of a line that one stage alone writes.
pub(super) const LINE: usize = 128;

/// Where a value is counted: linear within each power of two, `2^(bits - 1)` counts for each.
#[inline]
pub(super) const fn index_of(value: u64, bits: u32) -> usize {
    let shift = (u64::BITS - (value | ((1 << bits) - 1)).leading_zeros()) - bits;
    (((shift as u64) << (bits - 1)) + (value >> shift)) as usize
}

/// The least value that is counted there.
pub(super) const fn value_at(index: usize, bits: u32) -> u64 {
    let (index, half) = (index as u64, 1 << (bits - 1));
    if index < 2 * half { index } else { (index % half + half) << (index / half - 1) }
}

/// How many counts a histogram has.
pub(super) const fn counts(bits: u32) -> usize {
    index_of(VALUE_MAX, bits) + 1
}

/// Bytes of a histogram, whole lines.
pub(super) const fn histogram_bytes(bits: u32) -> usize {
    (HISTOGRAM_FIRST + 8 * counts(bits)).next_multiple_of(LINE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_values_are_counted_exactly() {
        for bits in [BITS_COARSE, BITS_FINE] {
            assert!((0..1 << bits).all(|value| index_of(value, bits) == value as usize));
            assert_eq!(index_of(1 << bits, bits), 1 << bits);
        }
    }

    proptest! {
        #[test]
        fn a_value_is_counted_where_it_is_found_again(value in 0..=VALUE_MAX, coarse: bool) {
            let bits = if coarse { BITS_COARSE } else { BITS_FINE };
            let index = index_of(value, bits);
            prop_assert!(index < counts(bits));
            let (least, next) = (value_at(index, bits), value_at(index + 1, bits));
            prop_assert!(least <= value && value < next);
            prop_assert!((next - least) as f64 <= (value as f64 / f64::from(1 << (bits - 1))).max(1.0));
        }
    }
}
