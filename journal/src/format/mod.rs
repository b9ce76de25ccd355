//! What stands on the disk. Each module is one table of WIRE.md.

pub mod commit;
pub mod recycle;
pub mod seal;
pub mod segment;
pub mod snapshot;

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[inline]
pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

#[inline]
pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Whether there are only zeros: a look for the end of what was written passes over most of a segment, so this is done by the line.
#[inline]
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (lines, rest) = bytes.as_chunks::<64>();
    let any_bit = |bytes: &[u8]| bytes.iter().fold(0, |all, &byte| all | byte);
    lines.iter().all(|line| any_bit(line) == 0) && any_bit(rest) == 0
}

/// `bytes` rounded up to whole blocks of `alignment`, a power of two.
#[inline]
pub const fn align_up(bytes: usize, alignment: usize) -> usize {
    (bytes + alignment - 1) & !(alignment - 1)
}

#[cfg(test)]
mod tests {
    use super::is_zero;

    #[test]
    fn a_single_bit_anywhere_is_no_zero() {
        let mut bytes = [0; 3 * 64 + 7];
        assert!(is_zero(&bytes) && is_zero(&[]));
        for at in 0..bytes.len() {
            bytes[at] = 0x10;
            assert!(!is_zero(&bytes), "{at}");
            assert!(is_zero(&bytes[..at]) && is_zero(&bytes[at + 1..]));
            bytes[at] = 0;
        }
    }
}
