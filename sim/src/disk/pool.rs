//! Buffers that ports gave back, for the next: a box that is started by the thousand takes the same few each time.
//!
//! Invariant: a buffer that is handed out holds zeros. Only what may have been written is zeroed again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes that wait in a thread's pool, at most: a few boxes have no more.
const POOL_BYTES_MAX: usize = 32 << 20;

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

#[derive(Debug, Default)]
struct Pool {
    by_len: BTreeMap<usize, Vec<Box<[u8]>>>,
    bytes: usize,
}

/// Memory for one operation at a time.
#[derive(Debug)]
pub(super) struct Pooled {
    bytes: Box<[u8]>,
    /// From here on it holds zeros.
    touched: usize,
}

impl Pooled {
    /// Zeroed memory.
    pub(super) fn zeroed(len: usize) -> Pooled {
        let found = POOL.with_borrow_mut(|pool| {
            let found = pool.by_len.get_mut(&len).and_then(Vec::pop);
            pool.bytes -= found.as_ref().map_or(0, |bytes| bytes.len());
            found
        });
        Pooled { bytes: found.unwrap_or_else(|| vec![0; len].into()), touched: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes bytes from `start` on, and so many zeros behind them.
    pub(super) fn take(&mut self, start: usize, bytes: &[u8], zeros: usize) {
        let (end, touched) = (start + bytes.len(), self.touched);
        self.bytes_mut(start..end).copy_from_slice(bytes);
        // What was never touched holds zeros.
        if touched > end {
            self.bytes[end..touched.min(end + zeros)].fill(0);
        }
    }

    /// A part of it, to be written.
    pub(super) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.touched = self.touched.max(range.end);
        &mut self.bytes[range]
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes[..self.touched].fill(0);
        // A thread that ends has no pool any more.
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            if pool.bytes + bytes.len() <= POOL_BYTES_MAX {
                pool.bytes += bytes.len();
                pool.by_len.entry(bytes.len()).or_default().push(bytes);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_zero_again_when_it_is_handed_out_anew() {
        let mut first = Pooled::zeroed(4096);
        let place = first.bytes().as_ptr();
        first.bytes_mut(100..200).fill(7);
        first.bytes_mut(0..10).fill(8);
        first.take(4000, &[9; 10], 86);
        assert!(first.bytes()[4000..4010] == [9; 10] && first.bytes()[4010..].iter().all(|&byte| byte == 0));
        first.take(90, &[6; 10], 20);
        assert!(first.bytes()[100..120].iter().all(|&byte| byte == 0) && first.bytes()[120..200] == [7; 80]);
        drop(first);
        let again = Pooled::zeroed(4096);
        assert_eq!(again.bytes().as_ptr(), place, "it is the same memory");
        assert!(again.bytes().iter().all(|&byte| byte == 0));
        assert_ne!(Pooled::zeroed(4096).bytes().as_ptr(), place, "nobody shares it");
        assert_eq!(Pooled::zeroed(512).len(), 512);
    }
}
