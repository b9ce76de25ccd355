//! Access to the ring's words. The one place where positions become addresses.

use std::sync::Arc;

use crate::copy::{load, store};
use crate::layout::DATA;
use crate::region::Region;
use crate::sync::{AtomicU64, Ordering};

/// The words of a region, from its start. Keeps the region.
#[derive(Clone)]
pub(crate) struct Words {
    base: *const AtomicU64,
    count: usize,
    _region: Arc<Region>,
}

// SAFETY: the words are atomics in memory that `_region` keeps mapped; sharing and sending references to atomics is sound.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    pub(crate) fn new(region: Arc<Region>) -> Self {
        Words { base: region.words(), count: region.bytes() / 8, _region: region }
    }

    /// The word at a byte offset. Offsets are the layout's constants, or validated against it.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset / 8 < self.count && offset.is_multiple_of(8));
        // SAFETY: within the region, which `_region` keeps; it is aligned to 8 at least and only accessed by words.
        unsafe { &*self.base.add(offset / 8) }
    }
}

/// The frame area. Positions grow for ever; their low bits are the offset.
#[derive(Clone)]
pub(crate) struct Data {
    base: *const AtomicU64,
    mask: u64,
    _region: Arc<Region>,
}

// SAFETY: the words are atomics in memory that `_region` keeps mapped; plain slices are lent only by `frame`, whose
// contract excludes writers.
unsafe impl Send for Data {}
// SAFETY: as above.
unsafe impl Sync for Data {}

impl Data {
    /// The area behind the header. `capacity_bytes` is a power of two, at least 8.
    pub(crate) fn new(region: Arc<Region>, capacity_bytes: usize) -> Self {
        assert!(capacity_bytes.is_power_of_two() && capacity_bytes >= 8 && DATA + capacity_bytes <= region.bytes());
        // SAFETY: DATA lies within the region, by the assertion.
        let base = unsafe { region.words().add(DATA / 8) };
        Data { base, mask: capacity_bytes as u64 - 1, _region: region }
    }

    #[inline]
    pub(crate) fn capacity(&self) -> u64 {
        self.mask + 1
    }

    /// Where `position` stands in the area, in bytes.
    #[inline]
    pub(crate) fn offset(&self, position: u64) -> u64 {
        position & self.mask
    }

    /// The end of the lap that `position` lies in.
    #[inline]
    pub(crate) fn lap_end(&self, position: u64) -> u64 {
        (position | self.mask).wrapping_add(1)
    }

    /// The word at a position, which is rounded down to a word.
    #[inline]
    pub(crate) fn at(&self, position: u64) -> &AtomicU64 {
        let index = (position & self.mask) as usize / 8;
        // SAFETY: the mask keeps the index within the area, which `new` checked against the region.
        unsafe { &*self.base.add(index) }
    }

    /// Writes a frame at `position`, padded with zeros, its words from `first_word` (0 or 1) on, the highest address first.
    #[inline(always)]
    pub(crate) fn write_frame(&self, position: u64, frame: &[u8], first_word: usize) {
        let (words, tail) = frame.as_chunks::<8>();
        let offset = position & self.mask;
        assert!(offset + frame.len() as u64 + 8 <= self.capacity(), "a frame never straddles the end");
        // SAFETY: the assertion keeps the frame, its pads, and a word after it within the area.
        unsafe {
            let to = self.base.add(offset as usize / 8);
            if !tail.is_empty() {
                let mut last = [0; 8];
                last[..tail.len()].copy_from_slice(tail);
                (*to.add(words.len())).store(u64::from_le_bytes(last), Ordering::Relaxed);
            }
            store(&words[first_word..], to.add(first_word));
        }
    }

    /// Copies `out.len()` words from `position` on.
    #[inline(always)]
    pub(crate) fn read(&self, position: u64, out: &mut [u64]) {
        let offset = position & self.mask;
        assert!(offset + 8 * out.len() as u64 <= self.capacity(), "a copy never straddles the end");
        // SAFETY: the assertion keeps the words within the area.
        unsafe { load(self.base.add(offset as usize / 8), out) }
    }

    /// Lends bytes of the area.
    ///
    /// # Safety
    /// Nothing may write to them while they are lent: they are published, and the writer can't pass a gate before them.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) unsafe fn lend(&self, position: u64, bytes: usize) -> &[u8] {
        let offset = (position & self.mask) as usize;
        debug_assert!(offset + bytes <= self.mask as usize + 1);
        // SAFETY: the caller excludes writers; the bounds were checked by the caller in release, here in debug builds.
        unsafe { std::slice::from_raw_parts(self.base.cast::<u8>().add(offset), bytes) }
    }
}

/// The first `bytes` bytes of `words`.
#[inline]
pub(crate) fn as_bytes(words: &[u64], bytes: usize) -> &[u8] {
    assert!(bytes <= words.len() * 8);
    // SAFETY: any byte of a u64 is a u8, and the assertion keeps the slice within the words.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), bytes) }
}
