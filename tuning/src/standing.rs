//! What a process asks the kernel for while it runs, beside its cores: memory that stays, and cores that don't fall asleep.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use rustix::mm::{MlockAllFlags, mlockall};

use crate::facts::limits::Limits;
use crate::root::Root;

/// Where the kernel takes wishes for the latency of a core that wakes up.
const WAKEUP_LATENCY: &str = "/dev/cpu_dma_latency";

/// Keeps all memory of this process in place, what it gets later too: each page is there as soon as it is asked for, and stays.
///
/// # Errors
/// Why not: where there is a limit it is not even tried, as every later wish for memory could then fail.
pub fn lock_memory() -> io::Result<()> {
    let limits = Limits::read(&Root::live());
    check_locking(&limits)?;
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE).map_err(io::Error::from)
}

fn check_locking(limits: &Limits) -> io::Result<()> {
    match (limits.has("CAP_IPC_LOCK"), &limits.locked_bytes_max) {
        (Ok(true), _) | (_, Ok(None)) => Ok(()),
        (_, Ok(Some(bytes))) => {
            let what = format!("this process may lock {bytes} bytes only");
            Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
        }
        (_, Err(unread)) => Err(io::Error::other(unread.clone())),
    }
}

/// While this lives, no core falls so deeply asleep that it takes longer to wake up.
#[derive(Debug)]
pub struct WakeupLatency(#[expect(dead_code, reason = "the kernel forgets the wish when the file is closed")] File);

/// Asks for cores that wake up within so many microseconds; 0 keeps them from sleeping at all.
///
/// # Errors
/// What the kernel says: as a rule only root may ask.
pub fn hold_wakeup_latency(us: u32) -> io::Result<WakeupLatency> {
    let us = i32::try_from(us).map_err(io::Error::other)?;
    let mut file = OpenOptions::new().write(true).open(WAKEUP_LATENCY)?;
    file.write_all(&us.to_ne_bytes())?;
    Ok(WakeupLatency(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_locked_only_where_all_of_it_may_be() {
        let limits = |capabilities: &str, limit: &str| {
            let text = format!(
                "== proc/self/status\nCapEff:\t{capabilities}\n== proc/self/limits\nMax locked memory  {limit}  {limit}  bytes\n"
            );
            Limits::read(&Root::recorded(text.parse().unwrap()))
        };
        let (none, lock) = ("0000000000000000", "0000000000004000");
        for (capabilities, limit) in [(lock, "8192"), (none, "unlimited"), (lock, "unlimited")] {
            assert!(check_locking(&limits(capabilities, limit)).is_ok(), "{capabilities} {limit}");
        }
        let refused = check_locking(&limits(none, "8192")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(refused.to_string().contains("8192 bytes only"), "{refused}");
        assert!(check_locking(&Limits::read(&Root::recorded(Default::default()))).is_err());
    }

    #[test]
    fn the_wish_is_held_and_given_up() {
        assert!(hold_wakeup_latency(u32::MAX).is_err());
        let Ok(held) = hold_wakeup_latency(7) else { return };
        // Somebody else may hold the cores at less.
        let least = || Root::live().dma_latency().unwrap().parse::<u32>().unwrap();
        assert!(least() <= 7);
        drop(held);
    }
}
