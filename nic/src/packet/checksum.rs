//! The internet checksum (RFC 1071): the complement of the ones' complement sum of 16-bit words.
//!
//! Such a sum does not care about byte order as long as the result is stored the way that the words were read, and words of
//! any size may be added first and folded later. So sums run over native words of 8 bytes.

/// The bytes' sum, folded to 16 bits, in network order. An odd last byte counts as if a zero followed. 0 only where all
/// bytes are.
///
/// Meant for what fits an IPv4 datagram; sums right up to 16 GiB.
#[inline]
pub fn sum(bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut total: u64 = 0;
    for word in words {
        let word = u64::from_ne_bytes(*word);
        // Each half goes into 64 bits, where carries have room: that vectorises, carries between whole words would not.
        total += (word & 0xffff_ffff) + (word >> 32);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let last = u64::from_ne_bytes(last);
    total += (last & 0xffff_ffff) + (last >> 32);
    u16::from_be(fold(total))
}

/// Folds a sum of 16-bit words, or of larger words made of them, to 16 bits.
#[inline]
pub const fn fold(total: u64) -> u16 {
    let total = (total & 0xffff_ffff) + (total >> 32);
    let total = (total & 0xffff) + ((total >> 16) & 0xffff) + (total >> 32);
    let total = (total & 0xffff) + (total >> 16);
    let total = (total & 0xffff) + (total >> 16);
    total as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As RFC 1071 says it, a word at a time.
    fn plain(bytes: &[u8]) -> u16 {
        let mut total = 0u32;
        for pair in bytes.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            total = (total & 0xffff) + (total >> 16);
        }
        total as u16
    }

    #[test]
    fn the_rfcs_example_comes_out() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    #[test]
    fn carries_are_never_lost() {
        for len in [0, 1, 2, 7, 8, 9, 1_472, 65_507] {
            assert_eq!(sum(&vec![0xff; len]), plain(&vec![0xff; len]), "{len} bytes");
        }
        for total in [0, 0xffff, 0x1_0000, 0xffff_ffff, 0x1_0000_0000, 0xffff_0000_ffff, u64::MAX - 1, u64::MAX] {
            assert_eq!(u64::from(fold(total)) % 0xffff, total % 0xffff, "{total:#x}");
            assert_eq!(fold(total) == 0, total == 0, "{total:#x}");
        }
    }

    proptest! {
        #[test]
        fn words_of_eight_sum_like_words_of_two(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            prop_assert_eq!(sum(&bytes), plain(&bytes));
        }
    }
}
