//! The x86-64 path: the CPU's own CRC32C step, eight bytes at a time.
//!
//! A step takes 3 cycles and one can start each cycle, so a single chain runs at a third of what the CPU can do. Two short
//! inputs fill each other's gaps; a long one is cut into three chains that are joined at the end.
//!
//! All states here are the raw register: the complement of the checksum. As polynomials they are bit-reflected.

use std::arch::x86_64::{
    _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64, _mm_cvtsi64_si128,
    _mm_cvtsi128_si64, _mm_xor_si128,
};

/// From this many words on, three chains. Setting them up and joining them costs as much as they save at about 22 words (176
/// bytes; `examples/crc_floor.rs`, Zen 4): at 13 they lose 1 to 3 ns, and left for later they cost 1 ns every three words.
const CHAINS_FROM_WORDS: usize = 24;

/// Longest chain. Longer ones save nothing more (a join is 1% of a block by then) and need a longer [`SHIFT`].
const CHAIN_WORDS_MAX: usize = 128;

const _: () = assert!(CHAINS_FROM_WORDS >= 4, "a block is three chains of at least a word, and the word they join in");

/// CRC32C's polynomial, reflected, without its top term.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `SHIFT[d]` moves a state past `d` words of zeroes: x^(64d - 33) modulo the polynomial. Of the 33 that are missing, 32 come
/// from the step that reduces the product, and one from the product of two reflected numbers being a bit short.
pub(crate) static SHIFT: [u32; 2 * CHAIN_WORDS_MAX + 2] = {
    let mut table = [0; 2 * CHAIN_WORDS_MAX + 2];
    let (mut power, mut exponent, mut words) = (1_u32 << 31, 0, 0);
    while exponent > -33 {
        // What has a constant term is divided by x once the polynomial was added, which is nothing.
        power = if power >> 31 == 1 { (power ^ POLYNOMIAL) << 1 | 1 } else { power << 1 };
        exponent -= 1;
    }
    while words < table.len() {
        while exponent < 64 * words as i32 - 33 {
            power = (power >> 1) ^ if power & 1 == 1 { POLYNOMIAL } else { 0 };
            exponent += 1;
        }
        table[words] = power;
        words += 1;
    }
    table
};

/// The checksum of `header`, and `crc` continued over `payload`.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) fn two<const N: usize>(header: &[u8; N], crc: u32, payload: &[u8]) -> (u32, u32) {
    let header = one_chain(u64::from(!0u32), header);
    let start = u64::from(!crc);
    let payload =
        if payload.len() < CHAINS_FROM_WORDS * 8 { one_chain(start, payload) } else { three_chains(start, payload) };
    (!(header as u32), !(payload as u32))
}

#[inline]
#[target_feature(enable = "sse4.2")]
pub(crate) fn one_chain(state: u64, bytes: &[u8]) -> u64 {
    if bytes.len() < 8 {
        return less_than_a_word(state, bytes);
    }
    let (state, words) = part_of_a_word(state, bytes);
    whole_words(state, words)
}

#[inline]
#[target_feature(enable = "sse4.2")]
pub(crate) fn whole_words(state: u64, words: &[[u8; 8]]) -> u64 {
    words.iter().fold(state, |state, word| _mm_crc32_u64(state, u64::from_le_bytes(*word)))
}

/// Takes what is beyond whole words off the front, in one step whatever its size. Zeroes ahead of a message don't change an
/// empty state, so the part is pushed to the top of its word and the state goes in with it; of a part under four bytes the
/// rest of the state is what comes after it.
#[inline]
#[target_feature(enable = "sse4.2")]
pub(crate) fn part_of_a_word(state: u64, bytes: &[u8]) -> (u64, &[[u8; 8]]) {
    let part = bytes.len() % 8;
    let words = bytes[part..].as_chunks().0;
    if part == 0 {
        return (state, words);
    }
    let first = u64::from_le_bytes(*bytes.first_chunk().expect("a word at least"));
    let pushed = (first ^ state) << (64 - 8 * part);
    (_mm_crc32_u64(0, pushed) ^ (state >> (8 * part)), words)
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn less_than_a_word(state: u64, mut bytes: &[u8]) -> u64 {
    let mut state = state as u32;
    if let Some((four, rest)) = bytes.split_first_chunk() {
        (state, bytes) = (_mm_crc32_u32(state, u32::from_le_bytes(*four)), rest);
    }
    if let Some((two, rest)) = bytes.split_first_chunk() {
        (state, bytes) = (_mm_crc32_u16(state, u16::from_le_bytes(*two)), rest);
    }
    if let [one] = *bytes {
        state = _mm_crc32_u8(state, one);
    }
    u64::from(state)
}

/// In blocks of three chains of `n` words and one word more, in which they join: the first two states, moved past the words
/// that follow them, are added to that word before the third chain takes it.
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn three_chains(state: u64, bytes: &[u8]) -> u64 {
    let (mut state, mut words) = part_of_a_word(state, bytes);
    while words.len() >= CHAINS_FROM_WORDS {
        let n = ((words.len() - 1) / 3).min(CHAIN_WORDS_MAX);
        let (first, rest) = words.split_at(n);
        let (second, rest) = rest.split_at(n);
        let (third, rest) = rest.split_at(n);
        let (mut a, mut b, mut c) = (state, 0, 0);
        for ((first, second), third) in first.iter().zip(second).zip(third) {
            a = _mm_crc32_u64(a, u64::from_le_bytes(*first));
            b = _mm_crc32_u64(b, u64::from_le_bytes(*second));
            c = _mm_crc32_u64(c, u64::from_le_bytes(*third));
        }
        let moved = _mm_xor_si128(moved_past(a, 2 * n + 1), moved_past(b, n + 1));
        let last = u64::from_le_bytes(rest[0]);
        state = _mm_crc32_u64(c, last ^ _mm_cvtsi128_si64(moved) as u64);
        words = &rest[1..];
    }
    whole_words(state, words)
}

/// `state` moved past `words` words, not yet reduced: 63 bits, to be added to the last of those words.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn moved_past(state: u64, words: usize) -> std::arch::x86_64::__m128i {
    _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(state as i64), _mm_cvtsi64_si128(i64::from(SHIFT[words])))
}
