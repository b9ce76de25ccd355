//! The `Disk` port: a queue pair. Operations are submitted under a token and complete later, in any order; nothing waits.
//!
//! Buffers belong to the disk and are named by handles. From the submission of an operation to its completion the buffer is
//! the disk's alone; asking for its bytes in that time is a bug and panics.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

mod buffer;
mod file;
mod native;
pub(crate) mod sys;
mod table;
mod uring;
mod workers;

pub use file::FileDisk;
pub use native::NativeDisk;
pub use uring::{Binding, UringDisk};

/// An open file of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// A buffer of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u32);

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// A new file for reading and writing, past the page cache where the disk can; an existing one is an error.
    Create,
    /// An existing file for reading and writing, otherwise likewise.
    Write,
    /// An existing file for reading, through the page cache.
    Read,
    /// An existing file for reading, past the page cache where the file system can: what a writer beside it wrote is seen.
    ReadDirect,
}

/// One operation. Offsets and lengths of reads and writes are in bytes and whole multiples of the file's alignment.
#[derive(Clone, Copy, Debug)]
pub enum Op<'a> {
    /// Creates the directory and its parents. An existing one is fine.
    CreateDir {
        /// The directory.
        path: &'a Path,
    },
    /// Takes an exclusive lock on a file of its own, created if missing, until the disk is dropped. Held elsewhere:
    /// [`DiskError::is_held`].
    Lock {
        /// The lock file.
        path: &'a Path,
    },
    /// The names in a directory.
    List {
        /// The directory.
        path: &'a Path,
    },
    /// The bytes free to unprivileged processes on a directory's file system.
    FreeSpace {
        /// The directory.
        path: &'a Path,
    },
    /// Opens a file.
    Open {
        /// The file.
        path: &'a Path,
        /// How.
        mode: OpenMode,
    },
    /// Closes a file on which nothing is under way.
    Close {
        /// The file.
        file: FileId,
    },
    /// An open file's size and direct-I/O alignment.
    Stat {
        /// The file.
        file: FileId,
    },
    /// Reserves space from 0 to `bytes` and makes the file that long, reading as zeros.
    Preallocate {
        /// The file.
        file: FileId,
        /// Its new size.
        bytes: u64,
    },
    /// Reads into `len` bytes of a buffer from its `start` on.
    Read {
        /// The file.
        file: FileId,
        /// The buffer.
        buffer: BufferId,
        /// Where in the buffer.
        start: usize,
        /// How many bytes.
        len: usize,
        /// Where in the file.
        offset: u64,
    },
    /// Writes `len` bytes of a buffer from its `start` on.
    Write {
        /// The file.
        file: FileId,
        /// The buffer.
        buffer: BufferId,
        /// Where in the buffer.
        start: usize,
        /// How many bytes.
        len: usize,
        /// Where in the file.
        offset: u64,
        /// Completes only when the written bytes are durable.
        durable: bool,
    },
    /// Makes a file's completed writes durable, and its size as far as reading them needs it.
    Sync {
        /// The file.
        file: FileId,
    },
    /// Makes a directory's names durable.
    SyncDir {
        /// The directory.
        path: &'a Path,
    },
    /// Renames a file, over an existing one if there is one.
    Rename {
        /// Its name.
        from: &'a Path,
        /// Its new name.
        to: &'a Path,
    },
    /// Deletes a file.
    Delete {
        /// The file.
        path: &'a Path,
    },
    /// Cuts an open file, or lengthens it with zeros.
    Truncate {
        /// The file.
        file: FileId,
        /// Its new size.
        bytes: u64,
    },
}

impl Op<'_> {
    /// What it is, in a word or two, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Op::CreateDir { .. } => "create directory",
            Op::Lock { .. } => "lock",
            Op::List { .. } => "list",
            Op::FreeSpace { .. } => "free space",
            Op::Open { .. } => "open",
            Op::Close { .. } => "close",
            Op::Stat { .. } => "stat",
            Op::Preallocate { .. } => "preallocate",
            Op::Read { .. } => "read",
            Op::Write { .. } => "write",
            Op::Sync { .. } => "sync",
            Op::SyncDir { .. } => "sync directory",
            Op::Rename { .. } => "rename",
            Op::Delete { .. } => "delete",
            Op::Truncate { .. } => "truncate",
        }
    }
}

/// What a completed operation brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// The file it opened.
    Opened(FileId),
    /// The bytes it read or wrote, which may be fewer than asked for.
    Transferred(usize),
    /// The names it found, unordered.
    Names(Vec<PathBuf>),
    /// The open file's facts.
    Stat(Stat),
    /// Bytes that are free.
    Free(u64),
}

/// An open file's facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its size.
    pub bytes: u64,
    /// What offsets, lengths and buffer positions must be multiples of, in bytes.
    pub alignment: usize,
    /// Whether it is read and written past the page cache.
    pub direct: bool,
}

/// A completed operation.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The token it was submitted under.
    pub token: u64,
    /// What it brought.
    pub result: Result<Outcome, DiskError>,
}

/// The error number for what is no regular file: opening a socket, the system says so itself.
pub(super) const NOT_REGULAR: i32 = libc::ENXIO;

/// An operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskError {
    /// The operation, as [`Op::name`] has it.
    pub op: &'static str,
    /// The system's error number.
    pub errno: i32,
}

impl DiskError {
    /// Whether the file system is full (or the quota, or the largest file size is reached).
    pub fn is_full(&self) -> bool {
        matches!(self.errno, libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
    }

    /// Whether there is no such file or directory.
    pub fn is_missing(&self) -> bool {
        self.errno == libc::ENOENT
    }

    /// Whether whoever asked may not do that.
    pub fn is_refused(&self) -> bool {
        matches!(self.errno, libc::EACCES | libc::EPERM)
    }

    /// Whether a lock is held by another. Linux says `EAGAIN` then; `EACCES` is a lock file that may not be opened.
    pub fn is_held(&self) -> bool {
        self.errno == libc::EAGAIN && self.op == "lock"
    }

    /// The error of `op` with what the system said.
    pub(crate) fn from_io(op: &'static str, error: &std::io::Error) -> DiskError {
        DiskError { op, errno: error.raw_os_error().unwrap_or(libc::EIO) }
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errno {
            NOT_REGULAR if self.op == "open" => write!(f, "open: it is no regular file"),
            errno => write!(f, "{}: {}", self.op, std::io::Error::from_raw_os_error(errno)),
        }
    }
}

impl std::error::Error for DiskError {}

/// The port. Owned by one caller; at most [`DISK_DEPTH`](crate::limits::DISK_DEPTH) operations under way.
pub trait Disk {
    /// Begins an operation. Its completion carries `token`.
    ///
    /// Reads, writes and syncs run beside the caller where the backend can; operations on names may take the caller's time.
    ///
    /// # Panics
    /// When too many operations are under way, or the operation's buffer is.
    fn submit(&mut self, token: u64, op: Op<'_>);

    /// The next completion, if one is there. Never waits.
    fn poll(&mut self) -> Option<Completion>;

    /// Gives the processor away until a completion is likely to be there. Returns at once when nothing is under way.
    fn wait(&mut self);

    /// As [`wait`](Disk::wait), for `timeout` at most. For backends that complete in the caller's time there is nothing to wait for.
    fn wait_at_most(&mut self, timeout: Duration) {
        let _ = timeout;
    }

    /// A new zeroed buffer of `bytes`, aligned to 4096. At start-up only: it takes memory and, maybe, registration.
    ///
    /// # Errors
    /// [`DiskError`] when there is no memory, or too many buffers.
    fn allocate(&mut self, bytes: usize) -> Result<BufferId, DiskError>;

    /// Takes a buffer back.
    fn release(&mut self, buffer: BufferId);

    /// A buffer's bytes.
    ///
    /// # Panics
    /// While an operation has the buffer.
    fn bytes(&self, buffer: BufferId) -> &[u8];

    /// A buffer's bytes, to change.
    ///
    /// # Panics
    /// While an operation has the buffer.
    fn bytes_mut(&mut self, buffer: BufferId) -> &mut [u8];

    /// What it is and, if it is a second choice, why.
    fn describe(&self) -> String;

    /// Runs one operation to its end. For start-up and readers, with nothing else under way.
    ///
    /// # Errors
    /// The operation's own.
    fn run(&mut self, op: Op<'_>) -> Result<Outcome, DiskError> {
        const TOKEN: u64 = u64::MAX;
        self.submit(TOKEN, op);
        loop {
            if let Some(completion) = self.poll() {
                assert_eq!(completion.token, TOKEN, "nothing else is under way");
                return completion.result;
            }
            self.wait();
        }
    }
}
