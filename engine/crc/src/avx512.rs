//! The x86-64 path for packets and commits: 64 bytes to a register, by carry-less multiplication.
//!
//! The bytes so far are four registers of four 128-bit lanes each, as polynomials. A step moves each lane past the 256 bytes that
//! follow it, which is two multiplications, and adds what stands there. At the end the lanes are moved together, and the CRC32C step
//! takes the last one.
//!
//! ```text
//!   bytes  │ 64 │ 64 │ 64 │ 64 │ 64 │ 64 │ 64 │ 64 │ …
//!            a    b    c    d
//!            └─────── × ────────► a    b    c    d       four at a time
//!                                 └────┴────┴────┴──►    sixteen lanes into the last of them, and that into a word
//! ```
//!
//! A lane's first word is what is worth more, so it is moved a word further than its second.

use std::arch::x86_64::{
    __m512i, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_unpackhi_epi64, _mm512_castsi512_si128,
    _mm512_clmulepi64_epi128, _mm512_set_epi64, _mm512_shuffle_i64x2, _mm512_ternarylogic_epi64, _mm512_xor_si512,
    _mm512_zextsi128_si512,
};

use crate::sse42::{SHIFT, one_chain, part_of_a_word, whole_words};

/// From this many bytes on. Bringing sixteen lanes together costs what the chains take for some 250 bytes (`examples/crc_floor.rs`, Zen 4):
/// both take as long at 384 bytes, this two thirds of that at 600, and half from 1024 on.
pub(crate) const FROM_BYTES: usize = 448;

/// Words to a register.
const WORDS: usize = 8;
/// Words to a step of four registers.
const STRIDE_WORDS: usize = 4 * WORDS;
/// The truth table of a xor of three.
const XOR: i32 = 0x96;

const _: () = assert!(FROM_BYTES >= (STRIDE_WORDS + 1) * 8, "a step, and the part of a word before it");

/// The checksum of `header`, and `crc` continued over `payload` of at least [`FROM_BYTES`].
#[inline(never)]
#[target_feature(enable = "sse4.2,pclmulqdq,avx512f,vpclmulqdq")]
pub(crate) fn two<const N: usize>(header: &[u8; N], crc: u32, payload: &[u8]) -> (u32, u32) {
    let header = one_chain(u64::from(!0u32), header);
    let (state, words) = part_of_a_word(u64::from(!crc), payload);
    (!(header as u32), !(folded(state, words) as u32))
}

#[inline]
#[target_feature(enable = "sse4.2,avx512f,vpclmulqdq")]
fn folded(state: u64, words: &[[u8; 8]]) -> u64 {
    let (blocks, rest) = words.as_chunks::<WORDS>();
    let (strides, blocks) = blocks.as_chunks::<4>();
    let (first, strides) = strides.split_first().expect("a step at least");
    let [mut a, mut b, mut c, mut d] = [load(&first[0]), load(&first[1]), load(&first[2]), load(&first[3])];
    a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi64_si128(state as i64)));
    let by_stride = factors(&BY_STRIDE);
    for [next_a, next_b, next_c, next_d] in strides {
        a = moved(a, by_stride, load(next_a));
        b = moved(b, by_stride, load(next_b));
        c = moved(c, by_stride, load(next_c));
        d = moved(d, by_stride, load(next_d));
    }
    // What is left of a step is the same for those that it reaches; and then the next one is the first.
    let state = match blocks {
        [] => together(a, b, c, d),
        [e] => together(b, c, d, moved(a, by_stride, load(e))),
        [e, f] => together(c, d, moved(a, by_stride, load(e)), moved(b, by_stride, load(f))),
        [e, f, g, ..] => {
            together(d, moved(a, by_stride, load(e)), moved(b, by_stride, load(f)), moved(c, by_stride, load(g)))
        }
    };
    whole_words(state, rest)
}

/// The state after these bytes: each lane moved to the last one's place, all at once.
#[inline]
#[target_feature(enable = "sse4.2,avx512f,vpclmulqdq")]
fn together(a: __m512i, b: __m512i, c: __m512i, d: __m512i) -> u64 {
    let zero = _mm512_xor_si512(d, d);
    let [to_a, to_b, to_c, to_d] = &TO_LAST_LANE;
    let first = moved(a, factors(to_a), moved(b, factors(to_b), zero));
    let second = moved(c, factors(to_c), moved(d, factors(to_d), zero));
    let lanes = _mm512_xor_si512(first, second);
    let halves = _mm512_xor_si512(lanes, _mm512_shuffle_i64x2::<0b00_00_11_10>(lanes, lanes));
    let one = _mm512_xor_si512(halves, _mm512_shuffle_i64x2::<0b00_00_00_01>(halves, halves));
    let one = _mm512_castsi512_si128(one);
    let first = _mm_crc32_u64(0, _mm_cvtsi128_si64(one) as u64);
    _mm_crc32_u64(first, _mm_cvtsi128_si64(_mm_unpackhi_epi64(one, one)) as u64)
}

/// The two factors of each lane that move it so many words.
const fn by_words(words: [usize; 4]) -> [i64; 8] {
    let (mut factors, mut lane) = ([0; 8], 0);
    while lane < 4 {
        factors[2 * lane] = SHIFT[words[lane] + 1] as i64;
        factors[2 * lane + 1] = SHIFT[words[lane]] as i64;
        lane += 1;
    }
    factors
}

static BY_STRIDE: [i64; 8] = by_words([STRIDE_WORDS; 4]);

/// From each lane of four registers to the last lane of the last.
static TO_LAST_LANE: [[i64; 8]; 4] =
    [by_words([30, 28, 26, 24]), by_words([22, 20, 18, 16]), by_words([14, 12, 10, 8]), by_words([6, 4, 2, 0])];

#[inline]
#[target_feature(enable = "avx512f")]
fn factors(of_lanes: &[i64; 8]) -> __m512i {
    let [a, b, c, d, e, f, g, h] = *of_lanes;
    _mm512_set_epi64(h, g, f, e, d, c, b, a)
}

/// Each lane of `lanes` moved by its factors, and added to `onto`.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn moved(lanes: __m512i, by: __m512i, onto: __m512i) -> __m512i {
    let (first, second) = (_mm512_clmulepi64_epi128::<0x00>(lanes, by), _mm512_clmulepi64_epi128::<0x11>(lanes, by));
    _mm512_ternarylogic_epi64::<XOR>(first, second, onto)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(words: &[[u8; 8]; WORDS]) -> __m512i {
    let [a, b, c, d, e, f, g, h] = words.map(i64::from_le_bytes);
    _mm512_set_epi64(h, g, f, e, d, c, b, a)
}
