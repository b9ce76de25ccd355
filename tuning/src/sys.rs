//! The system calls that no crate wraps.

#![allow(unsafe_code)]

use std::io;

/// Puts the calling thread into `SCHED_IDLE`.
pub(crate) fn set_idle_policy() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: `param` outlives the call, which reads it and changes nothing but the calling thread's policy.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &param) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
