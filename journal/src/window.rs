//! A sliding view of a file, read through the port in large steps.

use crate::disk::{BufferId, Disk, DiskError, FileId, Op, Outcome};
use crate::format::align_up;
use crate::limits::{ALIGNMENT_BYTES_MAX, COMMIT_BYTES_MAX, READ_CHUNK_BYTES, READ_START_BYTES};

/// Some bytes of one file at a time. Its buffer grows to the largest commit met, never beyond the format's bound.
#[derive(Debug)]
pub(crate) struct Window {
    buffer: Option<BufferId>,
    capacity: usize,
    file: Option<FileId>,
    start: u64,
    len: usize,
    /// Bytes to fetch at once, at most.
    chunk: usize,
    /// Bytes to fetch next: doubles while one file is read on, so that a short look costs little.
    fetch_bytes: usize,
}

impl Window {
    pub(crate) fn new(chunk: usize) -> Window {
        Window { buffer: None, capacity: 0, file: None, start: 0, len: 0, chunk, fetch_bytes: READ_START_BYTES }
    }

    /// Forgets what was read: the file may have changed, or another one is meant from now on.
    pub(crate) fn forget(&mut self) {
        self.len = 0;
        self.file = None;
        self.fetch_bytes = READ_START_BYTES;
    }

    /// Gives the buffer back.
    pub(crate) fn release<D: Disk>(&mut self, disk: &mut D) {
        self.forget();
        if let Some(buffer) = self.buffer.take() {
            disk.release(buffer);
        }
        self.capacity = 0;
    }

    /// At least `need` bytes from `at` on, or as many as the file has. `at` is a multiple of 8 at least.
    pub(crate) fn view<'d, D: Disk>(
        &mut self,
        disk: &'d mut D,
        file: FileId,
        at: u64,
        need: usize,
    ) -> Result<&'d [u8], DiskError> {
        assert!(need <= COMMIT_BYTES_MAX, "callers bound what they ask for");
        let held = self.file == Some(file) && at >= self.start && at + need as u64 <= self.start + self.len as u64;
        if !held {
            self.fetch(disk, file, at, need)?;
        }
        let buffer = self.buffer.expect("fetched");
        let from = ((at - self.start) as usize).min(self.len);
        Ok(&disk.bytes(buffer)[from..self.len])
    }

    /// A file's first bytes, up to `need`, and no more: what is behind them may be of no interest.
    pub(crate) fn head<'d, D: Disk>(
        &mut self,
        disk: &'d mut D,
        file: FileId,
        need: usize,
    ) -> Result<&'d [u8], DiskError> {
        self.forget();
        self.fetch_bytes = need;
        self.fetch(disk, file, 0, need)?;
        self.fetch_bytes = READ_START_BYTES;
        self.view(disk, file, 0, 0)
    }

    /// Bytes that a [`Window::view`] has shown, to borrow again without reading.
    #[inline]
    pub(crate) fn again<'d, D: Disk>(&self, disk: &'d D, at: u64, bytes: usize) -> &'d [u8] {
        let start = (at - self.start) as usize;
        &disk.bytes(self.buffer.expect("viewed before"))[..self.len][start..start + bytes]
    }

    fn fetch<D: Disk>(&mut self, disk: &mut D, file: FileId, at: u64, need: usize) -> Result<(), DiskError> {
        let start = at & !(ALIGNMENT_BYTES_MAX as u64 - 1);
        let want = align_up((at - start) as usize + need.max(self.fetch_bytes.min(self.chunk)), ALIGNMENT_BYTES_MAX);
        let want = if need > READ_CHUNK_BYTES { want.min(self.rest(disk, file, start)?) } else { want };
        self.fetch_bytes = (2 * self.fetch_bytes).min(self.chunk.max(READ_START_BYTES));
        if self.capacity < want {
            let next = self.fetch_bytes;
            self.release(disk);
            self.fetch_bytes = next;
            self.buffer = Some(disk.allocate(want)?);
            self.capacity = want;
        }
        let buffer = self.buffer.expect("just made sure");
        self.file = Some(file);
        self.start = start;
        self.len = 0;
        // A read may be cut short anywhere; only one that brings nothing is the end of the file. Direct I/O must go on at
        // a block, so a part of one is read again.
        while self.len < want {
            let from = self.len & !(ALIGNMENT_BYTES_MAX - 1);
            let read = Op::Read { file, buffer, start: from, len: want - from, offset: start + from as u64 };
            let Outcome::Transferred(bytes) = disk.run(read)? else { unreachable!("a read transfers") };
            if from + bytes <= self.len {
                break;
            }
            self.len = from + bytes;
        }
        Ok(())
    }

    /// Bytes of the file from `start` on, in whole blocks: no memory is taken for a length that the file can't hold.
    fn rest<D: Disk>(&self, disk: &mut D, file: FileId, start: u64) -> Result<usize, DiskError> {
        let Outcome::Stat(stat) = disk.run(Op::Stat { file })? else { unreachable!("stat stats") };
        let rest = stat.bytes.saturating_sub(start).min(2 * COMMIT_BYTES_MAX as u64) as usize;
        Ok(align_up(rest.max(1), ALIGNMENT_BYTES_MAX))
    }
}
