//! The system calls that no crate wraps.

#![allow(unsafe_code)]

use std::io;

/// Gives the calling thread this niceness, and slices of so many nanoseconds, in the ordinary policy.
pub(crate) fn set_slice(nice: i32, slice_ns: u64) -> io::Result<()> {
    let attr = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: slice_ns,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: `attr` outlives the call, which reads `size` bytes of it and changes nothing but the calling thread's policy.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
