//! A hash that is the same in every build, a word at a time. Each step loses nothing of the word that it takes in, so what differs in one word has
//! another hash.

/// Takes in a word.
pub(crate) const fn word(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Takes in bytes, as words of eight; zeros fill the last.
pub(crate) fn bytes(hash: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(hash, |hash, &next| word(hash, u64::from_le_bytes(next)));
    if rest.is_empty() {
        return hash;
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    word(hash, u64::from_le_bytes(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_words_with_the_first_byte_lowest() {
        assert_eq!(bytes(7, &[]), 7);
        assert_eq!(bytes(7, &[1, 0, 0, 0, 0, 0, 0, 2]), word(7, 1 | 2 << 56));
        assert_eq!(bytes(7, &[1, 0, 0, 0, 0, 0, 0, 2, 3, 4]), word(word(7, 1 | 2 << 56), 3 | 4 << 8));
    }

    #[test]
    fn a_bit_more_or_less_is_another_hash() {
        let frame: Vec<u8> = (0..61).collect();
        for bit in 0..8 * frame.len() {
            let mut other = frame.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(bytes(1, &other), bytes(1, &frame), "bit {bit}");
        }
    }
}
