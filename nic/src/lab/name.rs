//! The namespaces' names: whose they are, and the removal of those whose owner is gone.

use std::path::{Path, PathBuf};
use std::{fs, process};

use super::error::LabError;
use super::ip;

/// Where `ip netns` keeps its namespaces.
const FOLDER: &str = "/run/netns";

/// What all names begin with.
const PREFIX: &str = "ticktape-lab";

/// So much of a hint goes into a name.
const HINT_BYTES_MAX: usize = 32;

/// `ticktape-lab-PID-START-NUMBER-HINT-END`. The start time guards against another process that got the same id.
pub(super) fn namespace(number: u32, hint: &str, end: &str) -> String {
    let pid = process::id();
    let start = start_time(pid).unwrap_or(0);
    let hint: String = hint.chars().filter(|letter| letter.is_ascii_alphanumeric()).take(HINT_BYTES_MAX).collect();
    format!("{PREFIX}-{pid}-{start}-{number}-{hint}-{end}")
}

/// A namespace's file.
pub(super) fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Removes a namespace with its interfaces. The interfaces first: a process or socket that is still inside keeps the
/// namespace alive, but not them.
pub(super) fn remove(name: &str) -> Result<(), LabError> {
    let links = ["veth-a", "veth-b"].map(|link| ip::run(&["-n", name, "link", "del", link]));
    // Of the two names each namespace has one, and none once the other end is gone.
    drop(links);
    match ip::run(&["netns", "del", name]) {
        // Removed by somebody else meanwhile.
        Err(_) if !path(name).exists() => Ok(()),
        other => other.map(drop),
    }
}

/// Removes what processes that live no more left behind, and returns how many namespaces that were.
///
/// # Errors
/// [`LabError`] when there is something to remove, and it can't be.
pub fn sweep() -> Result<usize, LabError> {
    let entries = match fs::read_dir(FOLDER) {
        Ok(entries) => entries,
        // None was ever made here.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(LabError::File { path: FOLDER.into(), error }),
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut removed = 0;
    for name in names.filter(|name| is_orphan(name)) {
        remove(&name)?;
        removed += 1;
    }
    Ok(removed)
}

fn is_orphan(name: &str) -> bool {
    owner(name).is_some_and(|(pid, start)| start_time(pid) != Some(start))
}

/// The owner's process id and start time; `None` for a name that is not of a lab.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.strip_prefix('-')?.split('-');
    let owner = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let _number: u32 = parts.next()?.parse().ok()?;
    Some(owner)
}

/// When a process was started, in clock ticks since boot (proc(5), field 22); `None` when it does not live.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may contain anything, these included.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    // One that ended, and that its parent has not asked about yet.
    let is_dead = matches!(fields.next()?, "Z" | "X");
    if is_dead { None } else { fields.nth(18)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_own_names_are_no_orphans() {
        let name = namespace(7, "a hint; with-bits", "a");
        assert!(name.ends_with("-7-ahintwithbits-a"), "{name}");
        assert_eq!(owner(&name).map(|(pid, _)| pid), Some(process::id()));
        assert!(!is_orphan(&name));
    }

    #[test]
    fn a_dead_owner_or_a_reused_id_makes_an_orphan() {
        let name = namespace(7, "x", "a");
        let (pid, start) = owner(&name).expect("a lab's name");
        assert!(is_orphan(&name.replace(&start.to_string(), &(start + 1).to_string())));
        // Process ids end at 2^22.
        assert!(is_orphan(&name.replace(&format!("-{pid}-"), "-4194305-")));
    }

    #[test]
    fn other_names_are_left_alone() {
        for name in [
            "",
            "ticktape-lab",
            "ticktape-lab-",
            "ticktape-lab-x-1-1",
            "ticktape-lab-1-1",
            "ticktape-labs-1-1-1",
            "blue",
        ] {
            assert_eq!(owner(name), None, "{name:?}");
        }
    }
}
