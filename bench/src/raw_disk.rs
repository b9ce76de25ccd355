//! The durable write alone: the floor under every durable append.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use ticktape_journal::disk::{BufferId, FileId, Op, OpenMode, Outcome};
use ticktape_journal::{Binding, Disk, NativeDisk};

/// The file's size. Written full of zeros before anything is measured: a first write to a block costs more.
const FILE_BYTES: usize = 32 << 20;
/// Direct writes come from memory aligned to this.
const ALIGNMENT_BYTES: usize = 4096;
/// Direct writes are whole blocks; the smallest that the file system takes, of these.
const BLOCK_BYTES: [usize; 2] = [512, 4096];

/// Appends to a zero-filled file: a write, then an fdatasync unless the write itself is durable.
pub struct RawAppend {
    file: File,
    syncs: bool,
    buffer: Vec<u8>,
    start: usize,
    bytes: usize,
    offset: u64,
}

impl RawAppend {
    /// Appends of `bytes` bytes through the page cache.
    ///
    /// # Errors
    /// What the system says.
    pub fn buffered(path: &Path, bytes: usize) -> io::Result<Self> {
        zero_filled(path)?;
        Self::new(OpenOptions::new().write(true).open(path)?, bytes, true)
    }

    /// Appends of as many whole blocks as `bytes` bytes need, past the page cache.
    ///
    /// # Errors
    /// What the system says; some file systems refuse direct writes.
    pub fn direct(path: &Path, bytes: usize) -> io::Result<Self> {
        Self::direct_with(path, bytes, 0)
    }

    /// The same, each write durable by itself.
    ///
    /// # Errors
    /// What the system says; some file systems refuse direct writes.
    pub fn durable(path: &Path, bytes: usize) -> io::Result<Self> {
        Self::direct_with(path, bytes, libc::O_DSYNC)
    }

    fn direct_with(path: &Path, bytes: usize, flags: i32) -> io::Result<Self> {
        zero_filled(path)?;
        let attempt = |block: usize| {
            let file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT | flags).open(path)?;
            let mut raw = Self::new(file, bytes.next_multiple_of(block), flags & libc::O_DSYNC == 0)?;
            raw.append().map(|()| raw)
        };
        attempt(BLOCK_BYTES[0]).or_else(|_| attempt(BLOCK_BYTES[1]))
    }

    fn new(file: File, bytes: usize, syncs: bool) -> io::Result<Self> {
        let buffer = vec![0x5a; bytes + ALIGNMENT_BYTES];
        let start = buffer.as_ptr().align_offset(ALIGNMENT_BYTES);
        Ok(RawAppend { file, syncs, buffer, start, bytes, offset: 0 })
    }

    /// One durable append. At the file's end it starts over.
    ///
    /// # Errors
    /// What the system says.
    pub fn append(&mut self) -> io::Result<()> {
        if self.offset as usize + self.bytes > FILE_BYTES {
            self.offset = 0;
        }
        self.file.write_all_at(&self.buffer[self.start..self.start + self.bytes], self.offset)?;
        if self.syncs {
            self.file.sync_data()?;
        }
        self.offset += self.bytes as u64;
        Ok(())
    }
}

fn zero_filled(path: &Path) -> io::Result<()> {
    let file = File::create(path)?;
    let zeros = vec![0; 1 << 20];
    for offset in (0..FILE_BYTES).step_by(zeros.len()) {
        file.write_all_at(&zeros, offset as u64)?;
    }
    file.sync_all()
}

/// Appends through the disk port, polled like the journal's: a write, then a sync, spinning for each. Who blocks instead waits
/// for the scheduler too, wherever the core is shared.
pub struct PolledAppend {
    disk: NativeDisk,
    durable: bool,
    file: FileId,
    buffer: BufferId,
    bytes: usize,
    offset: u64,
}

impl PolledAppend {
    /// Appends of as many whole blocks as `bytes` bytes need to the file `path` of `dir`; with writes that are durable by
    /// themselves, or a sync after each.
    ///
    /// # Errors
    /// What the disk says.
    pub fn new(dir: &Path, path: &Path, bytes: usize, durable: bool) -> Result<Self, String> {
        zero_filled(path).map_err(|error| error.to_string())?;
        let mut disk = NativeDisk::new(dir, Binding::OneThread);
        let opened = disk.run(Op::Open { path, mode: OpenMode::Write }).map_err(|error| error.to_string())?;
        let Outcome::Opened(file) = opened else { return Err("an open file was expected".to_owned()) };
        let Ok(Outcome::Stat(stat)) = disk.run(Op::Stat { file }) else {
            return Err("no alignment to be had".to_owned());
        };
        let bytes = bytes.next_multiple_of(stat.alignment);
        let buffer = disk.allocate(bytes).map_err(|error| error.to_string())?;
        Ok(PolledAppend { disk, durable, file, buffer, bytes, offset: 0 })
    }

    /// One durable append. At the file's end it starts over.
    ///
    /// # Errors
    /// What the disk says.
    pub fn append(&mut self) -> Result<(), String> {
        if self.offset as usize + self.bytes > FILE_BYTES {
            self.offset = 0;
        }
        let (file, buffer, len, offset, durable) = (self.file, self.buffer, self.bytes, self.offset, self.durable);
        match self.complete(Op::Write { file, buffer, start: 0, len, offset, durable })? {
            Outcome::Transferred(done) if done == len => {}
            other => return Err(format!("write of {len} bytes: {other:?}")),
        }
        if !durable {
            self.complete(Op::Sync { file })?;
        }
        self.offset += len as u64;
        Ok(())
    }

    fn complete(&mut self, op: Op<'_>) -> Result<Outcome, String> {
        self.disk.submit(0, op);
        loop {
            if let Some(completion) = self.disk.poll() {
                return completion.result.map_err(|error| error.to_string());
            }
            std::hint::spin_loop();
        }
    }
}

/// A way to append durably without a journal.
pub struct Way {
    /// Its name.
    pub name: &'static str,
    /// Whether the write itself is durable, with no sync after it.
    pub is_durable_write: bool,
    /// Appends once.
    pub append: Box<dyn FnMut() -> Result<(), String>>,
}

/// Every way that `dir` allows, for appends of `bytes` bytes. The fastest is the floor; which one it is depends on the box.
///
/// # Errors
/// Where not even the plain one works.
pub fn ways(dir: &Path, bytes: usize) -> Result<Vec<Way>, String> {
    let way = |name, mut raw: RawAppend| {
        let append = move || raw.append().map_err(|error| format!("{name}: {error}"));
        Way { name, is_durable_write: false, append: Box::new(append) }
    };
    let buffered = RawAppend::buffered(&dir.join("raw-buffered"), bytes);
    let buffered = buffered.map_err(|error| format!("{}: {error}", dir.display()))?;
    let mut ways = vec![way("write + fdatasync", buffered)];
    ways.extend(RawAppend::direct(&dir.join("raw-direct"), bytes).map(|raw| way("O_DIRECT write + fdatasync", raw)));
    ways.extend(PolledAppend::new(dir, &dir.join("raw-polled"), bytes, false).map(|mut raw| {
        let append = move || raw.append().map_err(|error| format!("polled append: {error}"));
        Way { name: "polled O_DIRECT write + fdatasync", is_durable_write: false, append: Box::new(append) }
    }));
    Ok(ways)
}

/// The ways of [`ways`], and those whose writes are durable by themselves.
///
/// # Errors
/// As [`ways`].
pub fn all_ways(dir: &Path, bytes: usize) -> Result<Vec<Way>, String> {
    let mut all = ways(dir, bytes)?;
    all.extend(RawAppend::durable(&dir.join("raw-dsync"), bytes).map(|mut raw| {
        let append = move || raw.append().map_err(|error| format!("O_DSYNC append: {error}"));
        Way { name: "O_DIRECT O_DSYNC write", is_durable_write: true, append: Box::new(append) }
    }));
    all.extend(PolledAppend::new(dir, &dir.join("raw-polled-dsync"), bytes, true).map(|mut raw| {
        let append = move || raw.append().map_err(|error| format!("polled O_DSYNC append: {error}"));
        Way { name: "polled O_DIRECT dsync write", is_durable_write: true, append: Box::new(append) }
    }));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_follow_each_other_and_start_over_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("raw");
        let mut raw = RawAppend::buffered(&path, FILE_BYTES / 2).unwrap();
        for expected in [FILE_BYTES / 2, FILE_BYTES, FILE_BYTES / 2] {
            raw.append().unwrap();
            assert_eq!(raw.offset as usize, expected);
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len() as usize, FILE_BYTES);
    }
}
