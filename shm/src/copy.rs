//! Copies between plain memory and shared words.
//!
//! Shared words are raced for, so a copy must be one relaxed access a word, which the compiler does not vectorise. From
//! [`VECTOR_BYTES_MIN`] on the words go in pairs through SSE registers, in assembly: the machine never tears an aligned 8-byte
//! half of such an access, so what the assembly does is a relaxed access to each word. `memcpy` would be two to
//! five times slower at bursts, as its start-up costs more than a small frame.

use crate::sync::{AtomicU64, Ordering};

/// Shorter copies are faster word by word: no set-up, and the compiler unrolls them. In bytes.
pub(crate) const VECTOR_BYTES_MIN: usize = 256;

/// Bytes that one turn of the vector loop moves: a line.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
const TURN_BYTES: usize = 64;

/// Stores the words of `from`, the highest address first.
///
/// # Safety
/// `to` points to as many words.
#[inline(always)]
pub(crate) unsafe fn store_descending(from: &[[u8; 8]], to: *const AtomicU64) {
    for (index, word) in from.iter().enumerate().rev() {
        // SAFETY: the caller's `to` reaches as far as `from`.
        unsafe { &*to.add(index) }.store(u64::from_le_bytes(*word), Ordering::Relaxed);
    }
}

/// Stores the words of `from`, the lowest address first, as suits the caches with long bodies.
///
/// # Safety
/// `to` points to as many words.
#[inline]
pub(crate) unsafe fn store_ascending(from: &[[u8; 8]], to: *const AtomicU64) {
    // SAFETY: both reach as far as `from` does, in whole words.
    let done = unsafe { vector(from.as_ptr().cast(), to.cast_mut().cast(), from.len() * 8) } / 8;
    for (index, word) in from.iter().enumerate().skip(done) {
        // SAFETY: the caller's `to` reaches as far as `from`.
        unsafe { &*to.add(index) }.store(u64::from_le_bytes(*word), Ordering::Relaxed);
    }
}

/// Loads as many words as `into` has.
///
/// # Safety
/// `from` points to as many words.
#[inline(always)]
pub(crate) unsafe fn load(from: *const AtomicU64, into: &mut [u64]) {
    let done = if into.len() * 8 >= VECTOR_BYTES_MIN {
        // SAFETY: both reach as far as `into` does, in whole words.
        unsafe { vector(from.cast(), into.as_mut_ptr().cast(), into.len() * 8) / 8 }
    } else {
        0
    };
    for (index, word) in into.iter_mut().enumerate().skip(done) {
        // SAFETY: the caller's `from` reaches as far as `into`.
        *word = unsafe { &*from.add(index) }.load(Ordering::Relaxed);
    }
}

/// Moves whole lines, ascending, and says how many bytes that were; the caller moves the rest.
///
/// # Safety
/// Both point to `bytes` bytes, `to` to memory that may be written; what is shared of them is aligned to 8.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline]
unsafe fn vector(from: *const u8, to: *mut u8, bytes: usize) -> usize {
    let turns = bytes / TURN_BYTES;
    if turns != 0 {
        // SAFETY: reads and writes `turns * TURN_BYTES <= bytes` bytes, by the caller's contract.
        unsafe {
            std::arch::asm!(
                "2:",
                "movups {a}, [{from}]",
                "movups {b}, [{from} + 16]",
                "movups {c}, [{from} + 32]",
                "movups {d}, [{from} + 48]",
                "movups [{to}], {a}",
                "movups [{to} + 16], {b}",
                "movups [{to} + 32], {c}",
                "movups [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "dec {turns}",
                "jnz 2b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                turns = inout(reg) turns => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
    turns * TURN_BYTES
}

/// Where there is no such assembly, the caller moves all of it.
#[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
unsafe fn vector(_from: *const u8, _to: *mut u8, _bytes: usize) -> usize {
    0
}
