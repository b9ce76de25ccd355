//! The memory that packets live in: mapped once, cut into frames, shared with the kernel.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::frames::Frame;
use super::sys::Mapping;

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The pages that a umem got.
#[derive(Debug)]
pub(super) enum Pages {
    /// Of 2 MiB.
    Huge,
    /// Of 4 KiB: so little memory would leave most of a huge page unused.
    Small,
    /// Of 4 KiB: the kernel gave no huge ones.
    Refused(io::Error),
}

/// The whole of it.
#[derive(Debug)]
pub(super) struct Umem {
    mapping: Mapping,
    /// What is in use; huge pages may reach beyond.
    len: usize,
    pages: Pages,
}

impl Umem {
    /// Maps `len` bytes, on huge pages where it pays and there are any.
    ///
    /// # Errors
    /// When there is no memory to be had.
    pub(super) fn map(len: usize) -> io::Result<Umem> {
        if len < HUGE_PAGE_BYTES / 2 {
            return Ok(Umem { mapping: Mapping::memory(len)?, len, pages: Pages::Small });
        }
        let (mapping, pages) = match Mapping::huge_memory(len.next_multiple_of(HUGE_PAGE_BYTES)) {
            Ok(mapping) => (mapping, Pages::Huge),
            Err(error) => (Mapping::memory(len)?, Pages::Refused(error)),
        };
        Ok(Umem { mapping, len, pages })
    }

    /// Its first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.mapping.start()
    }

    /// Its size, in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// What it lies on.
    pub(super) fn pages(&self) -> &Pages {
        &self.pages
    }
}

/// A cache line.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// The way from a [`Frame`] of a umem to its bytes.
///
/// What makes this sound is that there is one `Frame` a frame, and none while the kernel has it (see [`super::frames`]), and
/// that frames of one umem never meet the area of another: each half of a NIC has its pool and its area from the
/// same umem, and lets neither out.
#[derive(Debug)]
pub(super) struct Area {
    umem: Arc<Umem>,
    frame_bytes: usize,
}

impl Area {
    pub(super) fn new(umem: Arc<Umem>, frame_bytes: usize) -> Area {
        Area { umem, frame_bytes }
    }

    /// `len` bytes of the umem from `address` on, if they lie within the frame.
    #[inline]
    pub(super) fn bytes<'a>(&'a self, frame: &'a Frame, address: u64, len: usize) -> Option<&'a [u8]> {
        let at = self.place(frame, address, len)?;
        // SAFETY: inside the frame and so inside the mapping, which is initialised. The frame is in this process's hands, so
        // that the kernel does not write there; and it is borrowed, so that nobody else here does.
        Some(unsafe { std::slice::from_raw_parts(at.as_ptr(), len) })
    }

    /// The same bytes, to write.
    #[inline]
    pub(super) fn bytes_mut<'a>(&'a self, frame: &'a mut Frame, address: u64, len: usize) -> Option<&'a mut [u8]> {
        let at = self.place(frame, address, len)?;
        // SAFETY: as in `bytes`; and the frame is borrowed mutably, which makes this the only reference to its bytes.
        Some(unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), len) })
    }

    /// Has the two cache lines from an address on fetched, where that is inside the umem: a guess may be wrong.
    #[inline]
    pub(super) fn prefetch(&self, address: u64) {
        #[cfg(target_arch = "x86_64")]
        if let Ok(offset) = usize::try_from(address)
            && offset.saturating_add(2 * LINE_BYTES) <= self.umem.len()
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: both lines are inside the mapping; nothing is read, so whoever writes there meanwhile does no harm.
            unsafe {
                let at = self.umem.start().add(offset).as_ptr().cast::<i8>();
                _mm_prefetch::<_MM_HINT_T0>(at);
                _mm_prefetch::<_MM_HINT_T0>(at.add(LINE_BYTES));
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }

    #[inline]
    fn place(&self, frame: &Frame, address: u64, len: usize) -> Option<NonNull<u8>> {
        let offset = address.checked_sub(frame.address())?;
        let end = offset.checked_add(len as u64)?;
        let whole = frame.address().checked_add(self.frame_bytes as u64)?;
        if end > self.frame_bytes as u64 || whole > self.umem.len() as u64 {
            return None;
        }
        // SAFETY: the frame lies in the mapping, and the bytes in the frame, as was just found.
        Some(unsafe { self.umem.start().add(address as usize) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::Frames;
    use super::*;

    #[test]
    fn bytes_are_reached_only_within_their_frame() {
        let umem = Arc::new(Umem::map(3 * 2_048).expect("memory"));
        let area = Area::new(umem, 2_048);
        let mut frames = Frames::new(2_048, 2_048, 2);
        let mut first = frames.take().expect("two are free");
        let second = frames.take().expect("one is free");
        area.bytes_mut(&mut first, 2_048 + 10, 4).expect("inside").copy_from_slice(b"tape");
        assert_eq!(area.bytes(&first, 2_048 + 10, 4), Some(&b"tape"[..]));
        assert_eq!(area.bytes(&second, 4_096, 2_048), Some(&[0; 2_048][..]), "the neighbour is untouched");
        for (address, len) in [(2_047, 1), (2_048, 2_049), (4_096, 0), (4_095, 2), (u64::MAX, 1), (2_048, usize::MAX)] {
            let reached = area.bytes(&first, address, len).map(<[u8]>::len);
            assert_eq!(reached, (address == 4_096).then_some(0), "{len} bytes at {address}");
        }
        frames.give(first);
        frames.give(second);
    }

    #[test]
    fn a_pool_that_reaches_beyond_the_umem_has_no_bytes_there() {
        let area = Area::new(Arc::new(Umem::map(2_048).expect("memory")), 2_048);
        let mut frames = Frames::new(0, 2_048, 2);
        let (first, second) = (frames.take().expect("free"), frames.take().expect("free"));
        assert!(area.bytes(&first, 0, 2_048).is_some());
        assert_eq!(area.bytes(&second, 2_048, 1), None);
        frames.give(first);
        frames.give(second);
    }

    #[test]
    fn little_memory_takes_small_pages_and_much_says_what_it_got() {
        assert!(matches!(Umem::map(4_096).expect("memory").pages(), Pages::Small));
        let large = Umem::map(3 << 20).expect("memory");
        assert!(matches!(large.pages(), Pages::Huge | Pages::Refused(_)));
        assert_eq!(large.len(), 3 << 20);
    }
}
