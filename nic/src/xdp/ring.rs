//! The rings that this process shares with the kernel: one producer, one consumer, a power-of-two array between them.
//!
//! ```text
//!   entries  [ . . c c c p p . ]        consumer ≤ producer ≤ consumer + size, all modulo 2^32
//!                  └ taken next └ written next
//! ```
//!
//! Both indices only grow, are 32 bits wide and wrap. Each side owns one and reads the other's when its remembered value no
//! longer suffices. What the other side says is checked, always: an index that goes backwards or claims more than there is
//! breaks the ring for good, which then looks idle, and says so ([`Producer::is_broken`], [`Consumer::is_broken`]).

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fmt, io};

use super::abi::{Descriptor, XDP_RING_NEED_WAKEUP, xdp_ring_offset};
use super::sys::Mapping;

/// What rings carry.
pub(super) trait Entry: Copy + sealed::Plain {}

impl Entry for u64 {}
impl Entry for Descriptor {}

mod sealed {
    /// Any bytes are a value.
    pub trait Plain {}
    impl Plain for u64 {}
    impl Plain for super::Descriptor {}
}

/// Where a ring's parts are. Whatever they lie in is kept alive along with it.
struct Cells<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    _memory: Memory,
}

/// What the parts lie in.
enum Memory {
    Mapped {
        _mapping: Mapping,
    },
    #[cfg_attr(not(test), expect(dead_code, reason = "tests run both ends in one process"))]
    Heap {
        _heap: Arc<dyn Send + Sync>,
    },
}

// SAFETY: the pointers lead into `_memory`, which may move to another thread; entries are plain data.
unsafe impl<T: Entry> Send for Cells<T> {}

impl<T: Entry> Cells<T> {
    /// Lays the parts into a mapping where the kernel says they are. Whoever maps a ring is its only user on that side.
    fn mapped(mapping: Mapping, offsets: &xdp_ring_offset, size: u32) -> io::Result<Cells<T>> {
        let end = |offset: u64, bytes: usize| offset.checked_add(bytes as u64);
        let holds = |offset: u64, bytes: usize, align: usize| {
            end(offset, bytes).is_some_and(|end| end <= mapping.len() as u64) && offset.is_multiple_of(align as u64)
        };
        let words = [offsets.producer, offsets.consumer, offsets.flags];
        let all_hold = words.iter().all(|&word| holds(word, size_of::<AtomicU32>(), align_of::<AtomicU32>()))
            && holds(offsets.desc, size as usize * size_of::<T>(), align_of::<T>())
            && size.is_power_of_two();
        if !all_hold {
            return Err(io::Error::other("the kernel placed a ring's parts outside the ring"));
        }
        // SAFETY: each offset and what lies there was just found to be inside the mapping.
        let at = |offset: u64| unsafe { mapping.start().add(offset as usize) };
        let (producer, consumer) = (at(offsets.producer).cast(), at(offsets.consumer).cast());
        let (flags, entries) = (at(offsets.flags).cast(), at(offsets.desc).cast());
        Ok(Cells { producer, consumer, flags, entries, size, _memory: Memory::Mapped { _mapping: mapping } })
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: inside `_memory`, aligned, and only ever used as an atomic.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    fn flags(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.flags.as_ref() }
    }

    /// The entry of an index.
    #[inline]
    fn entry(&self, index: u32) -> *mut T {
        // SAFETY: masked to less than `size`, and as many entries lie in `_memory`.
        unsafe { self.entries.as_ptr().add((index & (self.size - 1)) as usize) }
    }

    /// How far `newer` is ahead of `older`, as indices wrap.
    #[inline]
    fn ahead(newer: u32, older: u32) -> u32 {
        newer.wrapping_sub(older)
    }
}

/// Maps one of a socket's rings. `offset` is its place among the socket's mappings.
fn map<T: Entry>(
    fd: BorrowedFd<'_>,
    offset: libc::off_t,
    offsets: &xdp_ring_offset,
    size: u32,
) -> io::Result<Cells<T>> {
    let bytes = usize::try_from(offsets.desc)
        .ok()
        .filter(|&start| start < 1 << 20)
        .ok_or_else(|| io::Error::other("the kernel placed a ring's entries beyond reason"))?
        + size as usize * size_of::<T>();
    Cells::mapped(Mapping::ring(fd, offset, bytes)?, offsets, size)
}

/// The end that writes: of fill and transmit rings.
pub(super) struct Producer<T> {
    cells: Cells<T>,
    /// The index of the next entry to write.
    next: u32,
    /// What the consumer may see.
    published: u32,
    /// The consumer's index as last read.
    consumed: u32,
    broken: bool,
}

impl<T: Entry> Producer<T> {
    /// A bound socket's ring.
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        offset: libc::off_t,
        offsets: &xdp_ring_offset,
        size: u32,
    ) -> io::Result<Producer<T>> {
        map(fd, offset, offsets, size).map(Producer::new)
    }

    fn new(cells: Cells<T>) -> Producer<T> {
        let at = cells.producer().load(Ordering::Relaxed);
        Producer { next: at, published: at, consumed: cells.consumer().load(Ordering::Relaxed), broken: false, cells }
    }

    /// Reads how far the consumer is.
    #[inline]
    fn refresh(&mut self) {
        // Pairs with the consumer's Release store after it read the entries: they may be overwritten now.
        let consumed = self.cells.consumer().load(Ordering::Acquire);
        let outstanding = Cells::<T>::ahead(self.published, self.consumed);
        if Cells::<T>::ahead(consumed, self.consumed) > outstanding {
            self.broken = true;
        }
        if !self.broken {
            self.consumed = consumed;
        }
    }

    /// Writes an entry, not yet visible to the consumer. `false` when there is no room, or the ring is broken.
    #[inline]
    pub(super) fn push(&mut self, entry: T) -> bool {
        if Cells::<T>::ahead(self.next, self.consumed) >= self.cells.size {
            self.refresh();
            if Cells::<T>::ahead(self.next, self.consumed) >= self.cells.size {
                return false;
            }
        }
        if self.broken {
            return false;
        }
        // SAFETY: the consumer has given this entry back, and sees it again only once it is published.
        unsafe { self.cells.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows the consumer everything that was written.
    #[inline]
    pub(super) fn publish(&mut self) {
        if self.published != self.next {
            // Pairs with the consumer's Acquire load: it finds the entries written.
            self.cells.producer().store(self.next, Ordering::Release);
            self.published = self.next;
        }
    }

    /// Entries that were published and not yet taken, freshly read; 0 when the ring is broken: it never will be less.
    #[inline]
    pub(super) fn outstanding(&mut self) -> u32 {
        self.refresh();
        if self.broken { 0 } else { Cells::<T>::ahead(self.published, self.consumed) }
    }

    /// The index below which the consumer has taken everything, as last read.
    #[inline]
    pub(super) fn consumed(&self) -> u32 {
        self.consumed
    }

    /// The index of the next entry to be written.
    #[inline]
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Entries that were written and not yet taken, by the last reading of the consumer's index.
    #[inline]
    pub(super) fn pending(&self) -> u32 {
        Cells::<T>::ahead(self.next, self.consumed)
    }

    /// The entry that was last written at an index; 0 where none was.
    #[inline]
    pub(super) fn written(&self, index: u32) -> T {
        // SAFETY: inside the memory, zeroed at first; this end alone writes entries, and the other one only reads them.
        unsafe { self.cells.entry(index).read() }
    }

    /// Whether the consumer sleeps until it is kicked.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        // Relaxed: a hint that is read again at the next flush.
        self.cells.flags().load(Ordering::Relaxed) & XDP_RING_NEED_WAKEUP != 0
    }

    /// Whether the consumer's index made no sense once.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }
}

/// The end that reads: of receive and completion rings.
pub(super) struct Consumer<T> {
    cells: Cells<T>,
    /// The index of the next entry to read.
    next: u32,
    /// What the producer knows to be read.
    released: u32,
    /// The producer's index as last read.
    produced: u32,
    broken: bool,
}

impl<T: Entry> Consumer<T> {
    /// A bound socket's ring.
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        offset: libc::off_t,
        offsets: &xdp_ring_offset,
        size: u32,
    ) -> io::Result<Consumer<T>> {
        map(fd, offset, offsets, size).map(Consumer::new)
    }

    fn new(cells: Cells<T>) -> Consumer<T> {
        let at = cells.consumer().load(Ordering::Relaxed);
        Consumer { next: at, released: at, produced: at, broken: false, cells }
    }

    /// Takes the next entry. The producer gets its room back with the next [`Consumer::release`].
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        if !self.has_next() {
            return None;
        }
        // SAFETY: the producer has published this entry, and does not touch it before it is released.
        let entry = unsafe { self.cells.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Whether there is an entry to take.
    #[inline]
    pub(super) fn has_next(&mut self) -> bool {
        if self.next == self.produced {
            self.refresh();
        }
        self.next != self.produced
    }

    #[inline]
    fn refresh(&mut self) {
        if self.broken {
            return;
        }
        // Pairs with the producer's Release store after it wrote the entries.
        let produced = self.cells.producer().load(Ordering::Acquire);
        // Since `next == produced` by the last reading, going backwards shows as a huge step ahead. What was taken but not
        // released still fills the ring.
        if Cells::<T>::ahead(produced, self.released) > self.cells.size
            || Cells::<T>::ahead(produced, self.released) < Cells::<T>::ahead(self.produced, self.released)
        {
            self.broken = true;
        } else {
            self.produced = produced;
        }
    }

    /// Gives the room of everything taken back to the producer.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.released != self.next {
            // Pairs with the producer's Acquire load: it overwrites the entries after they were read.
            self.cells.consumer().store(self.next, Ordering::Release);
            self.released = self.next;
        }
    }

    /// Whether the producer's index made no sense once.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("next", &self.next).field("broken", &self.broken).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("next", &self.next).field("broken", &self.broken).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod heap;

#[cfg(test)]
mod tests;
