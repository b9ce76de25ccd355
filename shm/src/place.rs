//! Where shared rings live: sealed memfds, and named files with a lock file beside them.
//!
//! Invariant: under a ring's name there is either nothing or a ring that was complete before it got the name.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl, posix_fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::statfs::{HUGETLBFS_MAGIC, fstatfs};

use crate::config::{RingError, name_is_valid};
use crate::lock::{is_locked, try_lock, unlock};
use crate::region::Region;

/// The usual directory of named rings.
pub const DEFAULT_DIR: &str = "/dev/shm";

/// Followers of the same group may map it; only its owner may write.
const RING_MODE: u32 = 0o640;
/// Nobody else may take the lock, and so keep a writer from starting.
const LOCK_MODE: u32 = 0o600;
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// How often a lock is tried anew whose file lost its name meanwhile: each time another writer has come and gone.
const LOCK_TRIES_MAX: usize = 64;

/// What a named file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Files {
    /// A ring.
    Ring,
    /// What an appliance measures.
    Metrics,
}

impl Files {
    /// The file.
    pub(crate) fn path(self, dir: &Path, name: &str) -> PathBuf {
        dir.join(match self {
            Files::Ring => format!("{name}.ring"),
            Files::Metrics => format!("{name}.metrics"),
        })
    }

    /// The lock file beside it. Its holder alone removes it, as the last thing; a lock counts only on the file that has the name.
    pub(crate) fn lock(self, dir: &Path, name: &str) -> PathBuf {
        dir.join(match self {
            Files::Ring => format!("{name}.lock"),
            Files::Metrics => format!("{name}.metrics.lock"),
        })
    }
}

fn io_error(doing: &'static str, place: &Path, source: io::Error) -> RingError {
    RingError::Io { doing, place: place.to_owned(), source }
}

/// Gives the file its size and its memory: a page missing later would be a SIGBUS.
fn allocate(file: &File, bytes: usize, place: &Path) -> Result<(), RingError> {
    match posix_fallocate(file, 0, bytes as libc::off_t) {
        Ok(()) => Ok(()),
        Err(Errno::ENOSPC | Errno::ENOMEM | Errno::EFBIG | Errno::EDQUOT) => {
            Err(RingError::NoSpace { place: place.to_owned(), needed_bytes: bytes })
        }
        Err(errno) => Err(io_error("allocate the ring", place, errno.into())),
    }
}

fn map(file: &File, bytes: usize, place: &Path) -> Result<Region, RingError> {
    Region::writable(file, bytes).map_err(|source| io_error("map the ring", place, source))
}

fn describe(kind: &str, huge: bool) -> String {
    format!("{kind}, {}", if huge { "huge pages" } else { "small pages (huge ones where the kernel merges them)" })
}

/// A memfd that can no longer change its size, locked for as long as it has a writer.
pub(crate) struct Memfd {
    file: File,
    bytes: usize,
    huge: bool,
}

impl Memfd {
    pub(crate) fn create(bytes: usize) -> Result<Self, RingError> {
        Self::huge(bytes.next_multiple_of(HUGE_PAGE_BYTES)).or_else(|_| Self::small(bytes))
    }

    fn huge(bytes: usize) -> Result<Self, RingError> {
        let flags = MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB;
        Ok(Memfd { file: Self::open(flags, bytes)?, bytes, huge: true })
    }

    fn small(bytes: usize) -> Result<Self, RingError> {
        Ok(Memfd { file: Self::open(MFdFlags::empty(), bytes)?, bytes, huge: false })
    }

    fn open(flags: MFdFlags, bytes: usize) -> Result<File, RingError> {
        let flags = flags | MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let fd = memfd_create(c"ticktape-ring", flags)
            .map_err(|errno| io_error("create a memfd", Path::new("memfd"), errno.into()))?;
        let file = File::from(fd);
        allocate(&file, bytes, Path::new("memfd"))?;
        Ok(file)
    }

    pub(crate) fn map(&self) -> Result<Region, RingError> {
        map(&self.file, self.bytes, Path::new("memfd"))
    }

    /// Forbids resizing, and any writable map but the one that is there (the latter from Linux 5.1 on).
    pub(crate) fn seal(&self) -> Result<(), RingError> {
        let sizes = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
        let future_write = SealFlag::from_bits_retain(libc::F_SEAL_FUTURE_WRITE);
        let all = sizes | future_write | SealFlag::F_SEAL_SEAL;
        fcntl(&self.file, FcntlArg::F_ADD_SEALS(all))
            .or_else(|_| fcntl(&self.file, FcntlArg::F_ADD_SEALS(sizes | SealFlag::F_SEAL_SEAL)))
            .map(drop)
            .map_err(|errno| io_error("seal", Path::new("memfd"), errno.into()))
    }

    pub(crate) fn lock(&self) -> Result<(), RingError> {
        match try_lock(&self.file) {
            Ok(true) => Ok(()),
            Ok(false) => Err(RingError::InUse { lock: "memfd".into() }),
            Err(source) => Err(io_error("lock", Path::new("memfd"), source)),
        }
    }

    pub(crate) fn unlock(&self) {
        unlock(&self.file);
    }

    /// A read-only descriptor with a description of its own, so that holding it does not hold the writer's lock.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd())).map(OwnedFd::from)
    }

    pub(crate) fn describe(&self) -> String {
        describe("memfd", self.huge)
    }
}

/// The lock file of a name, held.
struct NameLock {
    file: File,
    path: PathBuf,
    /// Made for a ring that has no name yet: it goes where that never gets one. One that was there stays, as what is left under the
    /// name would look as if it had a writer without it.
    is_new: bool,
}

impl NameLock {
    /// Takes the lock; makes the file where there is none.
    fn take(path: PathBuf) -> Result<Self, RingError> {
        let failed = |source| io_error("lock", &path, source);
        for _ in 0..LOCK_TRIES_MAX {
            let (file, is_new) = Self::open(&path).map_err(|source| io_error("open the lock file", &path, source))?;
            if !try_lock(&file).map_err(failed)? {
                break;
            }
            // Whoever had it may have removed it between the two calls: then it locks nothing, and others make a new one.
            if is_at(&path, &file).map_err(failed)? {
                return Ok(NameLock { file, path, is_new });
            }
        }
        Err(RingError::InUse { lock: path })
    }

    /// The file, and whether there was none.
    fn open(path: &Path) -> io::Result<(File, bool)> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(LOCK_MODE).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        match options.clone().create_new(true).open(path) {
            // It may be gone again by now: then another one is made, and nobody's is taken away.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                options.create(true).truncate(false).open(path).map(|file| (file, false))
            }
            made => made.map(|file| (file, true)),
        }
    }

    /// Takes the name away; the lock itself goes with the descriptor.
    fn remove(&self) {
        if is_at(&self.path, &self.file).unwrap_or(false) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for NameLock {
    fn drop(&mut self) {
        if self.is_new {
            self.remove();
        }
    }
}

/// A named ring that has its lock and its memory, but not its name.
pub(crate) struct Pending {
    /// Taken once it has its name.
    lock: Option<NameLock>,
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    bytes: usize,
    huge: bool,
}

/// A named ring: its lock, and which file under the name is ours.
pub(crate) struct NamedFile {
    path: PathBuf,
    inode: Inode,
    lock: NameLock,
}

/// Tells files apart that have had the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inode(u64, u64);

impl Inode {
    pub(crate) fn of(metadata: &fs::Metadata) -> Self {
        Inode(metadata.dev(), metadata.ino())
    }

    /// The one that has the name now, if any does.
    pub(crate) fn at(path: &Path) -> io::Result<Option<Self>> {
        match fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(Inode::of(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether `file` is the one that has this name.
fn is_at(path: &Path, file: &File) -> io::Result<bool> {
    Ok(Inode::at(path)? == Some(Inode::of(&file.metadata()?)))
}

impl NamedFile {
    /// Takes the name's lock, and makes a file beside the one that may have been left under the name.
    pub(crate) fn create(files: Files, dir: &Path, name: &str, bytes: usize) -> Result<Pending, RingError> {
        if !name_is_valid(name) {
            return Err(RingError::Name(name.to_owned()));
        }
        let lock = NameLock::take(files.lock(dir, name))?;
        let path = files.path(dir, name);
        let temporary = path.with_added_extension("new");
        // We have the lock, so one that is there was left by a writer that died.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_error("remove what a writer left", &temporary, error));
            }
            _ => {}
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(RING_MODE)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&temporary)
            .map_err(|source| io_error("create", &temporary, source))?;
        let mut pending = Pending { lock: Some(lock), file, temporary, path, bytes, huge: false };
        if fstatfs(&pending.file).is_ok_and(|fs| fs.filesystem_type() == HUGETLBFS_MAGIC) {
            pending.huge = true;
            pending.bytes = bytes.next_multiple_of(HUGE_PAGE_BYTES);
        }
        allocate(&pending.file, pending.bytes, &pending.path)?;
        Ok(pending)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the name away, where it is still ours, and then the lock file's; the lock itself goes last, with the descriptor.
    pub(crate) fn remove(self) {
        if Inode::at(&self.path).is_ok_and(|there| there == Some(self.inode)) {
            let _ = fs::remove_file(&self.path);
        }
        self.lock.remove();
    }
}

impl Pending {
    /// Where it is going to be.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn map(&self) -> Result<Region, RingError> {
        map(&self.file, self.bytes, &self.path)
    }

    pub(crate) fn describe(&self) -> String {
        describe("named file", self.huge)
    }

    /// Gives the file its name, over whatever had it.
    pub(crate) fn publish(mut self) -> Result<NamedFile, RingError> {
        let failed = |source| io_error("publish the ring", &self.path, source);
        let inode = Inode::of(&self.file.metadata().map_err(failed)?);
        fs::rename(&self.temporary, &self.path).map_err(failed)?;
        let mut lock = self.lock.take().expect("it is held until now");
        lock.is_new = false;
        Ok(NamedFile { path: self.path.clone(), inode, lock })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // Gone already where it was renamed; we hold the lock, so nobody else's can have taken its place.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Opens a ring's file for reading. A FIFO or a link put in its place neither blocks nor misleads.
pub(crate) fn open_read_only(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// How a follower asks after the writer of what it has mapped.
pub(crate) enum Origin {
    /// A named file.
    Named {
        /// The ring's path.
        path: PathBuf,
        /// Which file was mapped.
        inode: Inode,
        /// The lock file, where we may open it: it belongs to the writer's user.
        lock: Option<File>,
    },
    /// A descriptor that was handed over.
    Fd(OwnedFd),
    /// The same process.
    Here,
}

/// What stands under a follower's name.
pub(crate) enum Standing {
    /// The ring that is mapped, with a writer as far as can be told.
    Live,
    /// The ring that is mapped, or none, and nobody writes it.
    Gone,
    /// Another ring.
    Replaced,
}

impl Origin {
    pub(crate) fn named(files: Files, dir: &Path, name: &str, metadata: &fs::Metadata) -> Self {
        Origin::Named {
            path: files.path(dir, name),
            inode: Inode::of(metadata),
            lock: open_read_only(&files.lock(dir, name)).ok(),
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        match self {
            Origin::Here => Standing::Live,
            Origin::Fd(fd) => Self::by_lock(is_locked(fd)),
            Origin::Named { path, inode, lock } => match Inode::at(path) {
                Ok(Some(there)) if there != *inode => Standing::Replaced,
                Ok(None) => Standing::Gone,
                // Not being allowed to look tells nothing.
                Ok(Some(_)) | Err(_) => Self::by_lock(lock.as_ref().map_or(Ok(true), is_locked)),
            },
        }
    }

    fn by_lock(locked: io::Result<bool>) -> Standing {
        if locked.unwrap_or(true) { Standing::Live } else { Standing::Gone }
    }
}

/// The seals that keep a memfd's size. Named files have none.
pub(crate) fn is_sealed(fd: &OwnedFd) -> bool {
    let needed = SealFlag::F_SEAL_SHRINK;
    fcntl(fd, FcntlArg::F_GET_SEALS).is_ok_and(|bits| SealFlag::from_bits_retain(bits).contains(needed))
}
