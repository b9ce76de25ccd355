//! Words that several processes see: the bare memory under any ring between processes.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapRaw;

/// The first words of a file, mapped and shared. They stay mapped for as long as this lives.
#[derive(Debug)]
pub struct SharedWords {
    map: MmapRaw,
    words: usize,
}

impl SharedWords {
    /// Maps the first `words` words of `file`, which grows to that size where it is shorter, and touches each page. Take a file of a
    /// memory file system, and one that nobody shortens.
    ///
    /// # Errors
    /// What the system says.
    pub fn map(file: &File, words: usize) -> io::Result<Self> {
        let bytes = (words * size_of::<u64>()) as u64;
        if file.metadata()?.len() < bytes {
            file.set_len(bytes)?;
        }
        let map = MmapRaw::map_raw(file)?;
        assert!(map.len() >= words * size_of::<u64>(), "the file was just made long enough");
        let mapped = SharedWords { map, words };
        // Faults every page in now: a fault in a measurement would look like the memory's own latency.
        // A write, so that pages are there for writers, too; adding nothing would be one that an optimiser leaves out.
        mapped.words().iter().step_by(512).for_each(|word| {
            let _ = std::hint::black_box(word.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed));
        });
        Ok(mapped)
    }

    /// The words. Another process may change any of them at any time.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, readable, writable and at least this long (checked in `map`), lives as long as
        // `self`, and is reached through atomic words only, here and in the other processes.
        unsafe { std::slice::from_raw_parts(self.map.as_mut_ptr().cast::<AtomicU64>(), self.words) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_of_a_file_are_the_same_words() {
        let file = tempfile::tempfile().unwrap();
        let (a, b) = (SharedWords::map(&file, 1024).unwrap(), SharedWords::map(&file, 1024).unwrap());
        assert_eq!((a.words().len(), b.words().len()), (1024, 1024));
        a.words()[1023].store(7, Ordering::Relaxed);
        assert_eq!(b.words()[1023].load(Ordering::Relaxed), 7);
    }
}
