//! Where a demo keeps its journal and how its ring and feed are called.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::out::say;

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
        let Some(dir) = dir else {
            let dir = std::env::temp_dir().join(format!("ticktape-demo-{}", std::process::id()));
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
        format!("ticktape-demo-{}", std::process::id())
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
