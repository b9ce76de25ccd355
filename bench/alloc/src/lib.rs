//! Counts what a piece of code asks of the heap, thread by thread: for tests and benches that claim "no allocation".
//!
//! ```ignore
//! #[global_allocator]
//! static HEAP: ticktape_alloc::CountingAllocator = ticktape_alloc::CountingAllocator;
//!
//! let (counts, report) = ticktape_alloc::count_thread(|| service.step());
//! assert_eq!(counts, ticktape_alloc::Counts::default());
//! ```
//!
//! With the feature `shared` it also maps words that processes share: the other thing that benches need and safe Rust has not.
//!
//! Invariant: counting allocates nothing and takes no lock, so that it may run inside any allocation, in any thread.

#[cfg(feature = "shared")]
pub mod shared;

#[cfg(not(feature = "mimalloc"))]
use std::alloc::System as Heap;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "mimalloc")]
use mimalloc::MiMalloc as Heap;

/// Whose allocations are counted.
pub const HEAP: &str = if cfg!(feature = "mimalloc") { "mimalloc" } else { "the system's allocator" };

/// What one thread asked of the heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that ask for memory: allocations, zeroed ones, and reallocations (a growing vector counts each time).
    pub allocations: u64,
    /// Bytes asked for; a reallocation counts its new size. Nothing is subtracted for what is freed.
    pub bytes: u64,
}

impl Sub for Counts {
    type Output = Counts;

    fn sub(self, earlier: Counts) -> Counts {
        Counts { allocations: self.allocations - earlier.allocations, bytes: self.bytes - earlier.bytes }
    }
}

thread_local! {
    // Constant and without a destructor: its first use allocates nothing, and it outlives every other thread-local.
    static COUNTS: Cell<Counts> = const { Cell::new(Counts { allocations: 0, bytes: 0 }) };
    static IS_EXEMPT: Cell<bool> = const { Cell::new(false) };
}

/// Allocations of every thread that is not exempt.
static OTHERS: AtomicU64 = AtomicU64::new(0);

/// The [allocator](HEAP), counting for the calling thread. Make it the `#[global_allocator]` of a test or a bench;
/// without that every count stays zero, which [`is_counting`] tells.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

#[inline]
fn record(bytes: usize) {
    COUNTS.with(|counts| {
        let Counts { allocations, bytes: before } = counts.get();
        counts.set(Counts { allocations: allocations + 1, bytes: before + bytes as u64 });
    });
    if !IS_EXEMPT.get() {
        // Relaxed: a statistic; whoever compares two readings has synchronised with the threads in between by other means.
        OTHERS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to `Heap` unchanged; counting touches a plain thread-local only, and neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        record(layout.size());
        // SAFETY: the caller's promise about `layout` is the one that `Heap` asks for.
        unsafe { Heap.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        record(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { Heap.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        record(new_size);
        // SAFETY: `block` came from this allocator, that is from `Heap`, with this `layout`.
        unsafe { Heap.realloc(block, layout, new_size) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as in `realloc`.
        unsafe { Heap.dealloc(block, layout) }
    }
}

/// What the calling thread has asked for since it began.
pub fn thread_counts() -> Counts {
    COUNTS.get()
}

/// Runs `work` and returns what this thread asked of the heap meanwhile, and the result. Other threads are not counted.
pub fn count_thread<R>(work: impl FnOnce() -> R) -> (Counts, R) {
    let before = thread_counts();
    let result = work();
    (thread_counts() - before, result)
}

/// Leaves the calling thread out of [`other_allocations`] from now on: the one that drives a test of other threads.
pub fn exempt_this_thread() {
    IS_EXEMPT.set(true);
}

/// How often threads that are not exempt have asked for memory since the program began.
pub fn other_allocations() -> u64 {
    OTHERS.load(Ordering::Relaxed)
}

/// Whether [`CountingAllocator`] is this program's allocator. A test that finds no allocation should ask this first.
pub fn is_counting() -> bool {
    count_thread(|| std::hint::black_box(Box::new(0_u64))).0.allocations > 0
}
