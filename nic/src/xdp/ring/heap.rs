//! Rings over plain memory, both ends in one process, started at any index.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Cells, Consumer, Entry, Memory, Producer};

struct Heap<T> {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    entries: UnsafeCell<Box<[T]>>,
}

// SAFETY: the entries are reached through the two ends alone, which hand them to each other by the indices.
unsafe impl<T: Send> Sync for Heap<T> {}

/// The indices and flags of a ring, to do to them what only a broken kernel would.
pub struct Forge(Arc<dyn Words + Send + Sync>);

trait Words {
    fn words(&self) -> [&AtomicU32; 3];
}

impl<T> Words for Heap<T> {
    fn words(&self) -> [&AtomicU32; 3] {
        [&self.producer, &self.consumer, &self.flags]
    }
}

impl Forge {
    pub fn producer(&self) -> u32 {
        self.0.words()[0].load(Ordering::SeqCst)
    }

    pub fn set_producer(&self, index: u32) {
        self.0.words()[0].store(index, Ordering::SeqCst);
    }

    pub fn set_consumer(&self, index: u32) {
        self.0.words()[1].store(index, Ordering::SeqCst);
    }

    pub fn set_flags(&self, flags: u32) {
        self.0.words()[2].store(flags, Ordering::SeqCst);
    }
}

/// A ring of `size` entries whose indices start at `start`.
pub fn ring<T: Entry + Send + 'static>(size: u32, start: u32, empty: T) -> (Producer<T>, Consumer<T>, Forge) {
    assert!(size.is_power_of_two());
    let heap = Arc::new(Heap {
        producer: AtomicU32::new(start),
        consumer: AtomicU32::new(start),
        flags: AtomicU32::new(0),
        entries: UnsafeCell::new(vec![empty; size as usize].into_boxed_slice()),
    });
    let cells = || Cells {
        producer: NonNull::from(&heap.producer),
        consumer: NonNull::from(&heap.consumer),
        flags: NonNull::from(&heap.flags),
        // SAFETY: nobody reads or writes the entries while the ends are being made.
        entries: unsafe { NonNull::new((*heap.entries.get()).as_mut_ptr()) }.expect("a box is never null"),
        size,
        _memory: Memory::Heap { _heap: heap.clone() },
    };
    (Producer::new(cells()), Consumer::new(cells()), Forge(heap.clone()))
}
