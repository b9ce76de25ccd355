//! Page-aligned memory that the kernel may be writing to or reading from.

use std::ptr::NonNull;

use super::{BufferId, DiskError};
use crate::limits::BUFFERS_MAX;

/// One mapping of zeroed, resident pages.
#[derive(Debug)]
struct Pages {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is owned by this value alone and tied to no thread.
unsafe impl Send for Pages {}

impl Pages {
    fn map(bytes: usize) -> Result<Pages, DiskError> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(DiskError::from_io("allocate buffer", &std::io::Error::last_os_error()));
        }
        let at = NonNull::new(at.cast()).ok_or(DiskError { op: "allocate buffer", errno: libc::ENOMEM })?;
        Ok(Pages { at, bytes })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length and is unmapped once.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

#[derive(Debug)]
struct Buffer {
    pages: Pages,
    lent: bool,
}

/// All buffers of one disk, and which of them an operation has.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    slots: Vec<Option<Buffer>>,
}

impl Buffers {
    /// A new zeroed buffer.
    pub(super) fn allocate(&mut self, bytes: usize) -> Result<BufferId, DiskError> {
        let free = self.slots.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.slots.len());
        if slot >= BUFFERS_MAX {
            return Err(DiskError { op: "allocate buffer", errno: libc::ENOBUFS });
        }
        let buffer = Some(Buffer { pages: Pages::map(bytes)?, lent: false });
        match free {
            Some(slot) => self.slots[slot] = buffer,
            None => self.slots.push(buffer),
        }
        Ok(BufferId(slot as u32))
    }

    /// Unmaps a buffer that no operation has.
    pub(super) fn release(&mut self, id: BufferId) {
        assert!(!self.get(id).lent, "a buffer is released only when no operation has it");
        self.slots[id.0 as usize] = None;
    }

    pub(super) fn bytes(&self, id: BufferId) -> &[u8] {
        let buffer = self.get(id);
        assert!(!buffer.lent, "an operation has the buffer");
        // SAFETY: the pages are mapped and initialised for as long as `self` lives; the kernel does not write to them, as
        // the buffer is not lent; a mutable view needs `&mut self`.
        unsafe { std::slice::from_raw_parts(buffer.pages.at.as_ptr(), buffer.pages.bytes) }
    }

    pub(super) fn bytes_mut(&mut self, id: BufferId) -> &mut [u8] {
        let buffer = self.get(id);
        assert!(!buffer.lent, "an operation has the buffer");
        // SAFETY: as in `bytes`; `&mut self` makes this the only view.
        unsafe { std::slice::from_raw_parts_mut(buffer.pages.at.as_ptr(), buffer.pages.bytes) }
    }

    /// Lends a range of a buffer to an operation until [`Buffers::take_back`].
    pub(super) fn lend(&mut self, id: BufferId, start: usize, len: usize) -> *mut u8 {
        let buffer = self.slots[id.0 as usize].as_mut().expect("the buffer exists");
        assert!(!buffer.lent, "one operation at a time has a buffer");
        assert!(start <= buffer.pages.bytes && len <= buffer.pages.bytes - start, "the range is within the buffer");
        buffer.lent = true;
        // SAFETY: `start` is within the mapping, as asserted.
        unsafe { buffer.pages.at.as_ptr().add(start) }
    }

    pub(super) fn take_back(&mut self, id: BufferId) {
        let buffer = self.slots[id.0 as usize].as_mut().expect("the buffer exists");
        assert!(buffer.lent, "the buffer was lent");
        buffer.lent = false;
    }

    /// Every buffer's address and size, for registration.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (BufferId, *mut u8, usize)> + '_ {
        self.slots.iter().enumerate().filter_map(|(slot, buffer)| {
            buffer.as_ref().map(|buffer| (BufferId(slot as u32), buffer.pages.at.as_ptr(), buffer.pages.bytes))
        })
    }

    /// Address and size of one buffer, for registration.
    pub(super) fn range(&self, id: BufferId) -> (*mut u8, usize) {
        let pages = &self.get(id).pages;
        (pages.at.as_ptr(), pages.bytes)
    }

    fn get(&self, id: BufferId) -> &Buffer {
        self.slots[id.0 as usize].as_ref().expect("the buffer exists")
    }
}
