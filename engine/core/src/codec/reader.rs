//! Where decoding stands in the bytes.

use super::error::DecodeError;
use crate::limits::{DECODE_DEPTH_MAX, ZERO_WIDTH_COUNT_MAX};

/// Walks over the bytes of an encoding.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    depth: u32,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, depth: 0 }
    }

    /// Bytes that are left.
    #[inline]
    pub const fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// [`DecodeError::Trailing`] where bytes are left.
    #[inline]
    pub const fn finish(&self) -> Result<(), DecodeError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(DecodeError::Trailing { left: self.bytes.len() }) }
    }

    /// Checks that at least `bytes` are left, and takes none.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    #[inline]
    pub const fn need(&self, bytes: usize) -> Result<(), DecodeError> {
        if bytes <= self.bytes.len() { Ok(()) } else { Err(self.short(bytes)) }
    }

    /// Takes the next `bytes` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Result<&'a [u8], DecodeError> {
        match self.bytes.split_at_checked(bytes) {
            Some((head, rest)) => {
                self.bytes = rest;
                Ok(head)
            }
            None => Err(self.short(bytes)),
        }
    }

    /// Takes the next `N` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    #[inline(always)]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.bytes.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.bytes = rest;
                Ok(*head)
            }
            None => Err(self.short(N)),
        }
    }

    /// Takes a count of elements that take at least `element_bytes_min` bytes each, and checks that the bytes that are
    /// left could hold them. Elements of no bytes are bounded by [`ZERO_WIDTH_COUNT_MAX`].
    ///
    /// # Errors
    /// [`DecodeError::Short`], [`DecodeError::CountTooLarge`].
    #[inline]
    pub fn count(&mut self, element_bytes_min: usize) -> Result<usize, DecodeError> {
        let count = u32::from_le_bytes(self.array()?);
        let count_max = self.bytes.len().checked_div(element_bytes_min).unwrap_or(ZERO_WIDTH_COUNT_MAX);
        if count as usize > count_max {
            return Err(DecodeError::CountTooLarge { count, left: self.bytes.len() });
        }
        Ok(count as usize)
    }

    /// Reads what stands within a box or a collection: one level deeper. Every type that may contain itself reads its
    /// content through this.
    ///
    /// # Errors
    /// [`DecodeError::TooDeep`] at [`DECODE_DEPTH_MAX`], and what `read` says.
    #[inline]
    pub fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, DecodeError>) -> Result<T, DecodeError> {
        if self.depth >= DECODE_DEPTH_MAX {
            return Err(DecodeError::TooDeep);
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    /// Elements to make room for before the first is read: no more memory than there are bytes left. Where elements are
    /// larger in memory than encoded, room beyond that grows with the elements that turn out to be there.
    #[inline]
    pub(super) fn capacity<T>(&self, count: usize) -> usize {
        count.min(self.bytes.len().checked_div(size_of::<T>()).unwrap_or(0))
    }

    #[cold]
    const fn short(&self, needed: usize) -> DecodeError {
        DecodeError::Short { needed, left: self.bytes.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_made_in_advance_never_exceeds_the_bytes_that_are_left() {
        let reader = Reader::new(&[0; 100]);
        assert_eq!(reader.capacity::<u64>(12), 12);
        assert_eq!(reader.capacity::<[u8; 30]>(50), 3);
        assert_eq!(reader.capacity::<[u8; 4096]>(50), 0);
        assert_eq!(reader.capacity::<()>(50), 0);
    }

    #[test]
    fn a_refused_take_takes_nothing() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.take(4), Err(DecodeError::Short { needed: 4, left: 3 }));
        assert_eq!(reader.array::<4>(), Err(DecodeError::Short { needed: 4, left: 3 }));
        assert_eq!(reader.need(4), Err(DecodeError::Short { needed: 4, left: 3 }));
        assert_eq!((reader.take(1), reader.array()), (Ok(&[1][..]), Ok([2, 3])));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn a_failure_within_leaves_the_depth_as_it_was() {
        let mut reader = Reader::new(&[]);
        for _ in 0..DECODE_DEPTH_MAX * 2 {
            let failed = reader.nested(|reader| reader.array::<1>());
            assert_eq!(failed, Err(DecodeError::Short { needed: 1, left: 0 }));
        }
    }
}
