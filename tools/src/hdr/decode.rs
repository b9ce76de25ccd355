//! A histogram out of its line: what the decoder believes is checked before.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

use super::{COUNTS_MAX, HISTOGRAM_BYTES_MAX, Reason, VALUES_MAX};

const COOKIE: u32 = 0x1c84_9313;
const COOKIE_COMPRESSED: u32 = 0x1c84_9314;

/// Magic number, length, offset, digits, lowest, highest, ratio.
const HEADER_BYTES: usize = 40;
const LENGTH: usize = 4;
const DIGITS: usize = 12;
const LOWEST: usize = 16;
const HIGHEST: usize = 24;

const DIGITS_MAX: u32 = 5;
/// Bytes of the longest number.
const VARINT_BYTES_MAX: usize = 9;

/// Decodes the last field of an interval.
pub(crate) fn decode(text: &str) -> Result<Histogram<u64>, Reason> {
    let bytes = STANDARD.decode(text).map_err(|_| Reason::Base64)?;
    let plain = match be32(&bytes, 0)? {
        COOKIE => bytes,
        COOKIE_COMPRESSED => unfold(&bytes)?,
        cookie => return Err(Reason::Cookie(cookie)),
    };
    check(&plain)?;
    Deserializer::new().deserialize(&mut plain.as_slice()).map_err(Reason::Histogram)
}

fn unfold(bytes: &[u8]) -> Result<Vec<u8>, Reason> {
    let compressed = bytes.get(8..).ok_or(Reason::Length)?;
    if be32(bytes, 4)? as usize != compressed.len() {
        return Err(Reason::Length);
    }
    let mut plain = Vec::new();
    let mut limited = ZlibDecoder::new(compressed).take(HISTOGRAM_BYTES_MAX as u64 + 1);
    limited.read_to_end(&mut plain).map_err(|_| Reason::Compression)?;
    if plain.len() > HISTOGRAM_BYTES_MAX {
        return Err(Reason::TooLarge);
    }
    match be32(&plain, 0)? {
        COOKIE => Ok(plain),
        cookie => Err(Reason::Cookie(cookie)),
    }
}

/// What would make the decoder allocate, or count beyond its numbers.
fn check(plain: &[u8]) -> Result<(), Reason> {
    let counts = plain.get(HEADER_BYTES..).ok_or(Reason::Length)?;
    if be32(plain, LENGTH)? as usize != counts.len() {
        return Err(Reason::Length);
    }
    let (digits, lowest, highest) = (be32(plain, DIGITS)?, be64(plain, LOWEST)?, be64(plain, HIGHEST)?);
    // Others keep values in signed numbers.
    if digits > DIGITS_MAX || lowest == 0 || highest > i64::MAX as u64 || highest / 2 < lowest {
        return Err(Reason::Range);
    }
    let slots = slots(digits, lowest, highest);
    if slots > COUNTS_MAX {
        return Err(Reason::TooManyCounts);
    }
    check_counts(counts, slots)
}

/// Counts that a histogram of this range has.
fn slots(digits: u32, lowest: u64, highest: u64) -> usize {
    let sub_buckets = (2 * 10_u128.pow(digits)).next_power_of_two();
    let mut untrackable = sub_buckets << lowest.ilog2();
    let mut buckets = 1;
    while untrackable <= u128::from(highest) {
        untrackable <<= 1;
        buckets += 1;
    }
    (buckets + 1) * (sub_buckets / 2) as usize
}

/// Each number is a count, or, negative, a run of zeros: all of them must fit.
fn check_counts(mut counts: &[u8], slots: usize) -> Result<(), Reason> {
    let (mut used, mut values) = (0_u64, 0_u64);
    while !counts.is_empty() {
        let (number, bytes) = varint(counts).ok_or(Reason::Length)?;
        counts = &counts[bytes..];
        let value = ((number >> 1) as i64) ^ -((number & 1) as i64);
        used = used.saturating_add(if value < 0 { value.unsigned_abs() } else { 1 });
        values = values.saturating_add(value.max(0).unsigned_abs());
        if used > slots as u64 {
            return Err(Reason::Range);
        }
    }
    if values > VALUES_MAX { Err(Reason::TooManyValues) } else { Ok(()) }
}

/// A number in groups of seven bits, lowest first; the ninth byte is taken whole.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0;
    for (i, &byte) in bytes.iter().enumerate().take(VARINT_BYTES_MAX) {
        let is_last = i == VARINT_BYTES_MAX - 1;
        number |= u64::from(if is_last { byte } else { byte & 0x7f }) << (7 * i);
        if is_last || byte & 0x80 == 0 {
            return Some((number, i + 1));
        }
    }
    None
}

fn be32(bytes: &[u8], at: usize) -> Result<u32, Reason> {
    let field = bytes.get(at..at + 4).ok_or(Reason::Length)?;
    Ok(u32::from_be_bytes(field.try_into().expect("four bytes")))
}

fn be64(bytes: &[u8], at: usize) -> Result<u64, Reason> {
    let field = bytes.get(at..at + 8).ok_or(Reason::Length)?;
    Ok(u64::from_be_bytes(field.try_into().expect("eight bytes")))
}
