//! CRC32C (RFC 3720, Castagnoli) for the sizes a log is made of: headers of tens of bytes, payloads of tens to hundreds.
//!
//! At such sizes the general-purpose `crc32c` crate spends more on its calls and on reaching an 8-byte boundary byte by byte
//! than on the checksum. Here a frame's two checksums are one call, loads are unaligned, and whatever is not whole words is
//! one step.
//!
//! ```text
//!   crc32c_two(header, payload)
//!        │  one check that the CPU can, one call that cannot be inlined
//!        ├─ header  ─ word ─ word ─ word ──────────────►  two chains that do not depend
//!        └─ payload ─ part ─ word ─ word ─ … ──────────►  on each other, run side by side
//!                     (long: three chains, joined by one carry-less multiplication each;
//!                      a packet or a commit: 64 bytes a step, where the CPU has VPCLMULQDQ)
//! ```
//!
//! CPUs without SSE4.2 and PCLMULQDQ, and other architectures, get the `crc32c` crate.
//!
//! Invariant: every path gives the same value for the same bytes. Invariant: the two `unsafe` blocks are calls into
//! instructions that were checked for; no pointer is dereferenced outside safe slices.

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod sse42;

/// The CRC32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// The CRC32C of what `crc` covers followed by `bytes`; `crc` is 0 for nothing.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    two(&[], crc, bytes).1
}

/// The CRC32C of `header` and, apart from it, of `payload`: both for about the price of the longer.
#[inline]
pub fn crc32c_two<const N: usize>(header: &[u8; N], payload: &[u8]) -> (u32, u32) {
    two(header, 0, payload)
}

#[inline]
fn two<const N: usize>(header: &[u8; N], crc: u32, payload: &[u8]) -> (u32, u32) {
    // Constant when the build's target features include both; otherwise two loads of a word that std caches.
    #[cfg(target_arch = "x86_64")]
    if payload.len() >= avx512::FROM_BYTES && has_wide_steps() {
        // SAFETY: the callee asks only for the features that the line above has found.
        return unsafe { avx512::two(header, crc, payload) };
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq") {
        // SAFETY: the callee asks only for the two features that the line above has found.
        return unsafe { sse42::two(header, crc, payload) };
    }
    portable_two(header, crc, payload)
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn has_wide_steps() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("sse4.2")
}

#[inline]
fn portable_two(header: &[u8], crc: u32, payload: &[u8]) -> (u32, u32) {
    (::crc32c::crc32c(header), ::crc32c::crc32c_append(crc, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_other_cpus_gives_the_same_values() {
        let bytes: Vec<u8> = (0..=255).cycle().take(700).collect();
        for len in 0..bytes.len() - 24 {
            let (header, payload) = (bytes.first_chunk::<24>().unwrap(), &bytes[24..24 + len]);
            let crc = (len as u32).wrapping_mul(0x9e37_79b9);
            assert_eq!(portable_two(header, crc, payload), two(header, crc, payload), "{len} bytes");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn cpus_without_wide_steps_get_the_same_values() {
        if !(is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq")) {
            eprintln!("skipped: this CPU has no CRC32C step");
            return;
        }
        let bytes: Vec<u8> = (0..=255).cycle().map(|byte: u8| byte.wrapping_mul(131)).take(9_000).collect();
        for len in (0..2_000).chain([4_096, 8_191, 9_000]) {
            let (header, payload) = (bytes.first_chunk::<24>().unwrap(), &bytes[..len]);
            let crc = (len as u32).wrapping_mul(0x9e37_79b9);
            // SAFETY: both features were found above.
            let narrow = unsafe { sse42::two(header, crc, payload) };
            assert_eq!(narrow, two(header, crc, payload), "{len} bytes");
        }
    }
}
