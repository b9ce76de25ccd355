//! Liveness: an open-file-description lock. The kernel drops it with its holder, however that dies.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use nix::fcntl::{FcntlArg, fcntl};

fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Takes the lock for as long as `file` is open. False where somebody else has it.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_WRLCK))) {
        Ok(_) => Ok(true),
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Gives the lock back while `file` stays open.
pub(crate) fn unlock(file: &File) {
    // Giving up a lock can only fail for an argument that is wrong.
    let _ = fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_UNLCK)));
}

/// Whether somebody else holds the lock.
pub(crate) fn is_locked(file: impl AsFd) -> io::Result<bool> {
    let mut probe = whole_file(libc::F_WRLCK);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut probe))?;
    Ok(libc::c_int::from(probe.l_type) != libc::F_UNLCK)
}
