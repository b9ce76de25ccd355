//! The system calls that the standard library does not have.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A random number from the kernel.
///
/// # Panics
/// When the kernel has none to give, which it has since it booted.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    loop {
        // SAFETY: the buffer is valid for its own length.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        if got == bytes.len() as isize {
            return u64::from_le_bytes(bytes);
        }
        let error = io::Error::last_os_error();
        assert!(got >= 0 || error.kind() == io::ErrorKind::Interrupted, "the kernel gives random numbers: {error}");
    }
}

/// Reads and writes of the file wait, whichever way it was opened.
pub(super) fn set_blocking(file: &File) -> io::Result<()> {
    let fd = file.as_raw_fd();
    // SAFETY: the descriptor is open, and the call takes no pointer.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    let done = unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What direct I/O on this open file asks offsets, lengths and memory to be aligned to, in bytes; `None` where the file
/// has no direct I/O or the kernel (before 6.1) does not say.
pub(super) fn direct_alignment(file: &File) -> io::Result<Option<usize>> {
    // SAFETY: an all-zero statx is a valid value of that plain struct.
    let mut statx: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is an empty C string, the descriptor is open, and the result has room for a statx.
    let done = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &raw mut statx)
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    if statx.stx_mask & libc::STATX_DIOALIGN == 0 || statx.stx_dio_offset_align == 0 {
        return Ok(None);
    }
    Ok(Some(statx.stx_dio_offset_align.max(statx.stx_dio_mem_align) as usize))
}

/// Reserves and zeroes the file from 0 to `bytes`, making it that long.
pub(super) fn preallocate(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = libc::off_t::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    loop {
        // SAFETY: the descriptor is open; no memory is passed.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Takes the exclusive lock of this open file description; it goes with the last descriptor, however the process ends.
pub(super) fn lock(file: &File) -> io::Result<()> {
    set_lock(file, libc::F_WRLCK)
}

/// Gives the lock back at once: a process that another thread is just forking would hold a copy of the descriptor until it executes.
pub(super) fn unlock(file: &File) {
    // Giving up a lock can only fail for an argument that is wrong.
    let _ = set_lock(file, libc::F_UNLCK);
}

/// Whether another open file description holds the lock. Takes nothing.
pub(crate) fn is_locked(file: &File) -> io::Result<bool> {
    // SAFETY: an all-zero flock is a valid value of that plain struct.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open and the pointer is to a flock that F_OFD_GETLK may write.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } == 0 {
        Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
    } else {
        Err(io::Error::last_os_error())
    }
}

fn set_lock(file: &File, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: an all-zero flock is a valid value of that plain struct.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open and the pointer is to a flock, as F_OFD_SETLK expects.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The set of these cores, as far as a set reaches.
pub(super) fn core_set(cores: &[usize]) -> libc::cpu_set_t {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &core in cores.iter().filter(|&&core| core < libc::CPU_SETSIZE as usize) {
        // SAFETY: the number is below the set's size.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    set
}

/// Bytes free to unprivileged users on the path's file system.
pub(super) fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: an all-zero statvfs is a valid value of that plain struct.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a C string and the result has room for a statvfs.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
