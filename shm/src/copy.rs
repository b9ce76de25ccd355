//! Copies between plain memory and shared words.
//!
//! Followers race for the words, so a copy must be one relaxed access a word, which the compiler does not vectorise. Of long
//! frames the whole lines go through SSE registers, in assembly: the machine never tears an aligned 8-byte half of
//! such an access, so what the assembly does is a relaxed access to each word. Measured at frames of 1 KiB, beside word by
//! word in one run: 1.1 times the rate at bursts of 1, 1.25 to 1.5 at 10, 1.5 to 1.7 at 100. Ascending, or across the
//! lines, it is no faster than words. `memcpy` is no choice: its start-up costs more than a small frame.

use crate::sync::{AtomicU64, Ordering};

/// Shorter copies go word by word: no set-up, and the compiler unrolls them. In bytes.
const VECTOR_BYTES_MIN: usize = 256;

/// Words that one turn of the vector loops moves: a line.
const TURN_WORDS: usize = 8;

/// Stores the words of `from`, the highest address first: the reader waits on the lowest line, which should be taken from it
/// last.
///
/// # Safety
/// `to` points to as many words.
#[inline(always)]
pub(crate) unsafe fn store(from: &[[u8; 8]], to: *const AtomicU64) {
    if from.len() * 8 < VECTOR_BYTES_MIN {
        // SAFETY: the caller's `to` reaches as far as `from`.
        unsafe { store_words(from, to) }
    } else {
        // SAFETY: as above.
        unsafe { store_long(from, to) }
    }
}

/// # Safety
/// As [`store`].
#[inline(always)]
unsafe fn store_words(from: &[[u8; 8]], to: *const AtomicU64) {
    for (index, word) in from.iter().enumerate().rev() {
        // SAFETY: the caller's `to` reaches as far as `from`.
        unsafe { &*to.add(index) }.store(u64::from_le_bytes(*word), Ordering::Relaxed);
    }
}

/// Words up to the first line's start, lines, words: stored in the opposite order.
///
/// # Safety
/// As [`store`].
#[inline(never)]
unsafe fn store_long(from: &[[u8; 8]], to: *const AtomicU64) {
    let head = (to as usize / 8).wrapping_neg() % TURN_WORDS;
    let turns = (from.len() - head) / TURN_WORDS;
    let tail = head + turns * TURN_WORDS;
    // SAFETY: all three parts lie within `from`, and `to` reaches as far.
    unsafe {
        store_words(&from[tail..], to.add(tail));
        lines::store_descending(from[head..].as_ptr().cast(), to.add(head), turns);
        store_words(&from[..head], to);
    }
}

/// Loads as many words as `into` has.
///
/// # Safety
/// `from` points to as many words.
#[inline(always)]
pub(crate) unsafe fn load(from: *const AtomicU64, into: &mut [u64]) {
    let turns = if into.len() * 8 < VECTOR_BYTES_MIN { 0 } else { into.len() / TURN_WORDS };
    if turns != 0 {
        // SAFETY: `turns` lines lie within `into`, and `from` reaches as far.
        unsafe { lines::load_ascending(from, into.as_mut_ptr(), turns) };
    }
    for (index, word) in into.iter_mut().enumerate().skip(turns * TURN_WORDS) {
        // SAFETY: the caller's `from` reaches as far as `into`.
        *word = unsafe { &*from.add(index) }.load(Ordering::Relaxed);
    }
}

#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
mod lines {
    use super::AtomicU64;

    /// Stores `turns` lines, the highest first.
    ///
    /// # Safety
    /// Both point to as many lines.
    #[inline]
    pub(super) unsafe fn store_descending(from: *const u64, to: *const AtomicU64, turns: usize) {
        // SAFETY: the offset runs over [0, 64 * turns), which the caller vouches for; `to` is shared memory of atomics, so
        // it may be written through.
        unsafe {
            std::arch::asm!(
                "test {at}, {at}",
                "jz 3f",
                "2:",
                "movups {a}, [{from} + {at} - 16]",
                "movups {b}, [{from} + {at} - 32]",
                "movups {c}, [{from} + {at} - 48]",
                "movups {d}, [{from} + {at} - 64]",
                "movups [{to} + {at} - 16], {a}",
                "movups [{to} + {at} - 32], {b}",
                "movups [{to} + {at} - 48], {c}",
                "movups [{to} + {at} - 64], {d}",
                "sub {at}, 64",
                "jnz 2b",
                "3:",
                from = in(reg) from,
                to = in(reg) to,
                at = inout(reg) turns * 64 => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }

    /// Loads `turns` lines, at least one, the lowest first, as the prefetcher likes it.
    ///
    /// # Safety
    /// Both point to as many lines.
    #[inline]
    pub(super) unsafe fn load_ascending(from: *const AtomicU64, to: *mut u64, turns: usize) {
        // SAFETY: both pointers run over `turns` lines, which the caller vouches for.
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
}

/// Where there is no such assembly: word by word.
#[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
mod lines {
    use super::{AtomicU64, Ordering, TURN_WORDS};

    pub(super) unsafe fn store_descending(from: *const u64, to: *const AtomicU64, turns: usize) {
        for index in (0..turns * TURN_WORDS).rev() {
            // SAFETY: both point to as many lines, by the caller's contract; `from` may be unaligned.
            unsafe { (*to.add(index)).store(from.add(index).read_unaligned(), Ordering::Relaxed) };
        }
    }

    pub(super) unsafe fn load_ascending(from: *const AtomicU64, to: *mut u64, turns: usize) {
        for index in 0..turns * TURN_WORDS {
            // SAFETY: both point to as many lines, by the caller's contract.
            unsafe { to.add(index).write((*from.add(index)).load(Ordering::Relaxed)) };
        }
    }
}
