//! Where a demo keeps its journal and how its ring and feed are called.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::out::say;

/// What a demo's directory and ring are called, before its process id.
const NAME: &str = "ticktape-demo-";

/// Removes what killed demos left in `dir`: what carries the id of a process that is no more.
fn sweep(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(NAME)) else { continue };
        let digits = rest.split('.').next().unwrap_or_default();
        let Ok(id) = digits.parse::<u32>() else { continue };
        if !Path::new(&format!("/proc/{id}")).exists() {
            // What can't be removed is somebody else's.
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let _ = if is_dir { std::fs::remove_dir_all(entry.path()) } else { std::fs::remove_file(entry.path()) };
        }
    }
}

/// A directory that is removed at the end, unless it is to be kept.
pub struct Workspace {
    dir: PathBuf,
    ring_dir: PathBuf,
    remove: bool,
    made: bool,
}

impl Workspace {
    /// The directory `dir`, which must be new or empty, or a temporary one.
    pub fn new(dir: Option<&Path>, ring_dir: &Path, keep: bool) -> Result<Self, Failure> {
        sweep(&std::env::temp_dir());
        sweep(ring_dir);
        let Some(dir) = dir else {
            let dir = std::env::temp_dir().join(format!("{NAME}{}", std::process::id()));
            std::fs::create_dir_all(&dir).map_err(|error| Failure::usage(format!("{}: {error}", dir.display())))?;
            return Ok(Workspace { dir, ring_dir: ring_dir.to_owned(), remove: !keep, made: true });
        };
        let made = !dir.exists();
        let name = dir.display();
        std::fs::create_dir_all(dir).map_err(|error| Failure::usage(format!("{name}: can't be made: {error}")))?;
        let mut entries = std::fs::read_dir(dir).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
        if entries.next().is_some() {
            return Err(Failure::usage(format!("{name}: is not empty; the demo takes a new or empty directory")));
        }
        Ok(Workspace { dir: dir.to_owned(), ring_dir: ring_dir.to_owned(), remove: !keep, made })
    }

    /// The journal's directory.
    pub fn journal(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// The ring's name: of this run alone.
    pub fn ring(&self) -> String {
        format!("{NAME}{}", std::process::id())
    }

    /// The feed's group and port. The port is derived from the process, so that two demos don't hear each other.
    pub fn feed(&self) -> SocketAddrV4 {
        let port = 20_000 + (std::process::id() % 20_000) as u16;
        SocketAddrV4::new(Ipv4Addr::new(239, 255, 84, 84), port)
    }

    /// Says where the journal is, if it stays. It also stays when something did not come out as it must.
    pub fn finish(mut self, is_good: bool) -> Result<(), Failure> {
        self.remove &= is_good;
        if self.remove { Ok(()) } else { say!("journal        kept in {}", self.journal().display()) }
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // The ring's name is this run's alone: nobody will come for its lock file, nor for what a killed appliance left.
        for kind in ["ring", "lock"] {
            let _ = std::fs::remove_file(self.ring_dir.join(format!("{}.{kind}", self.ring())));
        }
        if self.remove {
            // A leftover directory is untidy, not wrong.
            let _ =
                if self.made { std::fs::remove_dir_all(&self.dir) } else { std::fs::remove_dir_all(self.journal()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_dead_left_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let (dead, alive) = (child.id(), std::process::id());
        child.wait().unwrap();
        std::fs::create_dir(dir.path().join(format!("{NAME}{dead}"))).unwrap();
        let files =
            [format!("{NAME}{dead}.ring"), format!("{NAME}{alive}.lock"), format!("{NAME}x"), "other".to_string()];
        files.iter().for_each(|name| std::fs::write(dir.path().join(name), b"").unwrap());
        sweep(dir.path());
        let mut left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        let mut kept: Vec<_> = files[1..].iter().map(std::ffi::OsString::from).collect();
        kept.sort();
        assert_eq!(left, kept);
    }
}
