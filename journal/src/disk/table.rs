//! Open files and locks, and the operations on names, run in the caller's time: all of them where there is no ring, and with one those that no running
//! log needs, or that wait for nothing.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{DiskError, FileId, NOT_REGULAR, Op, OpenMode, Outcome, Stat, sys};
use crate::limits::{ALIGNMENT_BYTES_MAX, ALIGNMENT_BYTES_MIN};

/// Flags and mode with which a file is created past the page cache. What is new is a regular file, and asks for no look at what it is.
pub(super) const CREATES: (i32, u32) =
    (libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_DIRECT | libc::O_CLOEXEC | libc::O_NOCTTY, MODE);

/// Segments may be read by whoever may enter their directory.
const MODE: u32 = 0o644;

#[derive(Debug)]
struct Entry {
    file: File,
    direct: bool,
}

/// A lock that is held: on the file, by which others see it, and on the directory that the file is in, which nobody takes away beneath who holds it.
#[derive(Debug)]
struct Lock {
    file: File,
    directory: Option<File>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        sys::unlock(&self.file);
        if let Some(directory) = &self.directory {
            // As for the file.
            let _ = directory.unlock();
        }
    }
}

/// Locks the directory of `path`; `None` where the file system locks none.
fn lock_directory(path: &Path) -> io::Result<Option<File>> {
    let Some(Ok(directory)) = path.parent().map(File::open) else { return Ok(None) };
    match directory.try_lock() {
        Ok(()) => Ok(Some(directory)),
        Err(TryLockError::WouldBlock) => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// The open files of one disk.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: Vec<Option<Entry>>,
    locks: Vec<Lock>,
    /// Whether files are opened for writing past the page cache.
    direct_writes: bool,
}

impl Table {
    pub(super) fn new(direct_writes: bool) -> Table {
        Table { direct_writes, ..Table::default() }
    }

    pub(super) fn file(&self, id: FileId) -> &File {
        &self.entries[id.0 as usize].as_ref().expect("the file is open").file
    }

    /// The files that are open.
    pub(super) fn open_files(&self) -> impl Iterator<Item = FileId> + '_ {
        self.entries.iter().enumerate().filter(|(_, entry)| entry.is_some()).map(|(slot, _)| FileId(slot as u32))
    }

    /// Runs any operation but reads, writes and syncs.
    pub(super) fn run(&mut self, op: Op<'_>) -> Result<Outcome, DiskError> {
        let result = match op {
            Op::CreateDir { path } => create_dir(path).map(|()| Outcome::Done),
            Op::Lock { path } => self.lock(path).map(|()| Outcome::Done),
            Op::List { path } => list(path),
            Op::FreeSpace { path } => sys::free_bytes(path).map(Outcome::Free),
            Op::Open { path, mode } => self.open(path, mode).map(Outcome::Opened),
            Op::Close { file } => {
                self.entries[file.0 as usize] = None;
                Ok(Outcome::Done)
            }
            Op::Stat { file } => self.stat(file).map(Outcome::Stat),
            Op::Preallocate { file, bytes } => preallocate(self.file(file), bytes).map(|()| Outcome::Done),
            Op::SyncDir { path } => File::open(path).and_then(|dir| dir.sync_all()).map(|()| Outcome::Done),
            Op::Rename { from, to } => fs::rename(from, to).map(|()| Outcome::Done),
            Op::Delete { path } => fs::remove_file(path).map(|()| Outcome::Done),
            Op::Truncate { file, bytes } => self.file(file).set_len(bytes).map(|()| Outcome::Done),
            Op::Sync { file } => self.file(file).sync_data().map(|()| Outcome::Done),
            Op::Read { .. } | Op::Write { .. } => unreachable!("transfers are the backend's"),
        };
        result.map_err(|error| DiskError::from_io(op.name(), &error))
    }

    fn lock(&mut self, path: &Path) -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        sys::lock(&file)?;
        // Given back where the directory is held by who made the file that was here before.
        let mut lock = Lock { file, directory: None };
        lock.directory = lock_directory(path)?;
        self.locks.push(lock);
        Ok(())
    }

    fn open(&mut self, path: &Path, mode: OpenMode) -> io::Result<FileId> {
        let mut options = OpenOptions::new();
        options.read(true).mode(MODE);
        let direct = match mode {
            OpenMode::Create => {
                options.write(true).create_new(true);
                self.direct_writes
            }
            OpenMode::Write => {
                options.write(true);
                self.direct_writes
            }
            OpenMode::Read => false,
            OpenMode::ReadDirect => true,
        };
        let entry = if direct {
            open_direct(&options, path, mode)?
        } else {
            Entry { file: open_regular(&options, 0, path)?, direct }
        };
        Ok(self.insert(entry))
    }

    /// Takes in a file that was created as [`CREATES`] says.
    pub(super) fn created(&mut self, file: File) -> io::Result<FileId> {
        sys::direct_alignment(&file)?;
        Ok(self.insert(Entry { file, direct: true }))
    }

    /// Opens a directory, to be synced.
    pub(super) fn open_dir(&mut self, path: &Path) -> Result<FileId, DiskError> {
        let opened = File::open(path).map_err(|error| DiskError::from_io("open", &error));
        opened.map(|file| self.insert(Entry { file, direct: false }))
    }

    fn insert(&mut self, entry: Entry) -> FileId {
        let free = self.entries.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.entries.len());
        match free {
            Some(slot) => self.entries[slot] = Some(entry),
            None => self.entries.push(Some(entry)),
        }
        FileId(slot as u32)
    }

    fn stat(&self, id: FileId) -> io::Result<Stat> {
        let entry = self.entries[id.0 as usize].as_ref().expect("the file is open");
        let bytes = entry.file.metadata()?.len();
        let alignment = if entry.direct {
            sys::direct_alignment(&entry.file)?.unwrap_or(ALIGNMENT_BYTES_MAX).max(ALIGNMENT_BYTES_MIN)
        } else {
            ALIGNMENT_BYTES_MIN
        };
        Ok(Stat { bytes, alignment, direct: entry.direct })
    }
}

/// Opens past the page cache. For readers a file system that has no direct I/O is no obstacle: there the writer beside
/// them does not use it either.
fn open_direct(options: &OpenOptions, path: &Path, mode: OpenMode) -> io::Result<Entry> {
    match open_regular(options, libc::O_DIRECT, path) {
        Ok(file) => {
            let alignment = sys::direct_alignment(&file)?;
            if mode == OpenMode::ReadDirect && alignment.is_none_or(|bytes| bytes > ALIGNMENT_BYTES_MAX) {
                return Ok(Entry { file: open_regular(options, 0, path)?, direct: false });
            }
            Ok(Entry { file, direct: true })
        }
        Err(error) if mode == OpenMode::ReadDirect && error.raw_os_error() == Some(libc::EINVAL) => {
            Ok(Entry { file: open_regular(options, 0, path)?, direct: false })
        }
        Err(error) => Err(error),
    }
}

/// Opens a regular file and nothing else: a pipe would keep the caller waiting for whoever writes into it, a terminal would
/// become its own.
fn open_regular(options: &OpenOptions, flags: i32, path: &Path) -> io::Result<File> {
    let mut options = options.clone();
    let file = match options.custom_flags(flags | libc::O_NONBLOCK | libc::O_NOCTTY).open(path) {
        // Pipes have no direct I/O, which would be tried without.
        Err(error) if flags & libc::O_DIRECT != 0 && error.raw_os_error() == Some(libc::EINVAL) => {
            check_regular(&fs::metadata(path)?)?;
            return Err(error);
        }
        opened => opened?,
    };
    check_regular(&file.metadata()?)?;
    // Only the opening was not to block: a read that says so may fail where it could have waited.
    sys::set_blocking(&file)?;
    Ok(file)
}

fn check_regular(metadata: &fs::Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return Ok(());
    }
    Err(io::Error::from_raw_os_error(if kind.is_dir() { libc::EISDIR } else { NOT_REGULAR }))
}

fn list(path: &Path) -> io::Result<Outcome> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name().into());
    }
    Ok(Outcome::Names(names))
}

/// A file system that cannot reserve still gets the size; space then runs out late, and the write that meets it says so.
fn preallocate(file: &File, bytes: u64) -> io::Result<()> {
    match sys::preallocate(file, bytes) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => file.set_len(bytes),
        other => other,
    }
}

/// Whether files can be created in `dir` at all, and with direct I/O at which alignment.
pub(super) fn probe_direct(dir: &Path) -> Result<usize, String> {
    let path = dir.join(format!(".probe-{}-{:016x}", std::process::id(), sys::random_u64()));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600).custom_flags(libc::O_DIRECT);
    let opened = options.open(&path);
    // A file system may create the file and only then refuse the flag.
    let removed = fs::remove_file(&path);
    let file = opened.map_err(|error| format!("{}: O_DIRECT is refused ({error})", dir.display()))?;
    removed.map_err(|error| format!("{}: {error}", path.display()))?;
    match sys::direct_alignment(&file) {
        Ok(Some(bytes)) if bytes <= ALIGNMENT_BYTES_MAX && bytes.is_power_of_two() => Ok(bytes),
        Ok(Some(bytes)) => {
            Err(format!("{}: direct I/O asks for {bytes}-byte blocks, at most {ALIGNMENT_BYTES_MAX}", dir.display()))
        }
        Ok(None) => {
            Err(format!("{}: its file system has no direct I/O, or the kernel does not say how", dir.display()))
        }
        Err(error) => Err(format!("{}: statx: {error}", dir.display())),
    }
}

/// Creates a directory with those above it, and makes their names durable: a log whose directory is lost with the power is lost.
fn create_dir(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let missing: Vec<&Path> = path.ancestors().take_while(|dir| !dir.exists()).collect();
    fs::create_dir_all(&path)?;
    missing.iter().filter_map(|dir| dir.parent()).try_for_each(|parent| fs::File::open(parent)?.sync_all())
}
