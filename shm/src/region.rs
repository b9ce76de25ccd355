//! The memory of a ring, and where it comes from: the heap, a sealed memfd, or a named file.

#[cfg(not(loom))]
mod mapped {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsFd;

    use memmap2::{Advice, MmapOptions, MmapRaw};

    use crate::sync::AtomicU64;

    /// Up to here a region comes from the allocator. To map, populate and unmap one takes some 20 µs, and huge pages need ten times as much:
    /// rings this small belong to those who build them by the thousand.
    const SMALL_BYTES_MAX: usize = 256 << 10;

    /// Two cache lines, which is what the layout keeps apart.
    const LINES_BYTES: usize = 128;

    enum Memory {
        /// The words from `first` on, which is aligned: an allocator that is asked for no more than words hands out zeros sooner.
        Small {
            words: Box<[AtomicU64]>,
            first: usize,
        },
        Mapped(MmapRaw),
    }

    /// Memory that stays where it is, aligned to 128 bytes at least, a whole number of words.
    pub(crate) struct Region {
        memory: Memory,
        bytes: usize,
    }

    impl Region {
        /// Zeroed memory of this process, populated.
        pub(crate) fn anonymous(bytes: usize) -> io::Result<Self> {
            if bytes <= SMALL_BYTES_MAX {
                let words =
                    Box::<[AtomicU64]>::new_zeroed_slice((bytes + LINES_BYTES).div_ceil(size_of::<AtomicU64>()));
                // SAFETY: a word of zeros is an atomic that holds 0.
                let words = unsafe { words.assume_init() };
                let first = words.as_ptr().align_offset(LINES_BYTES);
                assert!((words.len() - first) * size_of::<AtomicU64>() >= bytes, "all of it lies behind the first");
                return Ok(Region { memory: Memory::Small { words, first }, bytes });
            }
            let map = MmapRaw::from(MmapOptions::new().len(bytes).map_anon()?);
            // Only advice: where there are no huge pages, small ones do.
            let _ = map.advise(Advice::HugePage);
            Self::populate(&map, Advice::PopulateWrite);
            Ok(Region::mapped(map))
        }

        fn mapped(map: MmapRaw) -> Self {
            let bytes = map.len();
            Region { memory: Memory::Mapped(map), bytes }
        }

        /// The writer's map of a file that has been given its space.
        pub(crate) fn writable(file: &File, bytes: usize) -> io::Result<Self> {
            let map = MmapOptions::new().len(bytes).map_raw(file)?;
            let _ = map.advise(Advice::HugePage);
            Self::populate(&map, Advice::PopulateWrite);
            Ok(Region::mapped(map))
        }

        /// A reader's map. Populated only where the file has all its blocks: reading a hole would allocate it.
        pub(crate) fn read_only(file: impl AsFd, bytes: usize, populate: bool) -> io::Result<Self> {
            let map = MmapOptions::new().len(bytes).map_raw_read_only(&file.as_fd())?;
            if populate {
                Self::populate(&map, Advice::PopulateRead);
            }
            Ok(Region::mapped(map))
        }

        /// Faults the pages in now, so that no hop pays for it. A kernel before 5.14 refuses, and pays later.
        fn populate(map: &MmapRaw, advice: Advice) {
            let _ = map.advise(advice);
        }

        pub(crate) fn words(&self) -> *const AtomicU64 {
            match &self.memory {
                Memory::Small { words, first } => words[*first..].as_ptr(),
                Memory::Mapped(map) => map.as_ptr().cast(),
            }
        }

        pub(crate) fn bytes(&self) -> usize {
            self.bytes
        }
    }
}

#[cfg(not(loom))]
pub(crate) use mapped::Region;

#[cfg(loom)]
pub(crate) use modelled::Region;

#[cfg(loom)]
mod modelled {
    use crate::sync::AtomicU64;

    /// Words that loom watches.
    pub(crate) struct Region {
        words: Vec<AtomicU64>,
    }

    impl Region {
        pub(crate) fn anonymous(bytes: usize) -> std::io::Result<Self> {
            Ok(Region { words: (0..bytes / 8).map(|_| AtomicU64::new(0)).collect() })
        }

        pub(crate) fn words(&self) -> *const AtomicU64 {
            self.words.as_ptr()
        }

        pub(crate) fn bytes(&self) -> usize {
            self.words.len() * 8
        }
    }
}
