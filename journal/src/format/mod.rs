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

/// `bytes` rounded up to whole blocks of `alignment`, a power of two.
#[inline]
pub const fn align_up(bytes: usize, alignment: usize) -> usize {
    (bytes + alignment - 1) & !(alignment - 1)
}
