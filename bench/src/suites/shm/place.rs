//! Where a ring that others follow lies, and how they find it.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;
use ticktape_core::Seq;
use ticktape_shm::{DEFAULT_DIR, Follower, Horizon, Producer, RingBuilder, RingConfig, Tap};

use super::Measured;

/// The two kinds of ring that another process can map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A file of a memory file system, found by its name.
    Named,
    /// A sealed memfd, whose descriptor is handed over.
    Memfd,
}

/// A ring without consumers.
pub(super) struct Written {
    pub(super) producer: Producer,
    pub(super) tap: Tap,
    /// What others open a memfd through: theirs is open for as long as this is.
    _shared: Option<OwnedFd>,
}

impl Place {
    pub(super) const BOTH: [Place; 2] = [Place::Named, Place::Memfd];

    pub(super) fn name(self) -> &'static str {
        match self {
            Place::Named => "named file",
            Place::Memfd => "memfd",
        }
    }

    /// In one word, for the other process's command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Place::Named => "named",
            Place::Memfd => "memfd",
        }
    }

    pub(super) fn of_word(word: &str) -> Option<Place> {
        Place::BOTH.into_iter().find(|place| place.word() == word)
    }

    /// A new ring, to be found in `dir` by `name`.
    pub(super) fn ring(self, dir: &Path, name: &str, config: RingConfig) -> Measured<Written> {
        let builder = RingBuilder::new(config);
        let builder = match self {
            Place::Named => builder.named(dir, name),
            Place::Memfd => builder.memfd(),
        };
        let ring = builder.build(Seq::FIRST).map_err(|error| error.to_string())?;
        let shared = ring.tap.share().map_err(|error| format!("the memfd can't be shared: {error}"))?;
        // Where an appliance would send the descriptor over a socket, a link to it in /proc does for a bench.
        if let Some(fd) = &shared {
            let target = format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
            symlink(&target, dir.join(name)).map_err(|error| format!("{target}: {error}"))?;
        }
        Ok(Written { producer: ring.producer, tap: ring.tap, _shared: shared })
    }

    /// Attaches to it, from the frame `from` on.
    pub(super) fn follow(self, dir: &Path, name: &str, from: Seq) -> Measured<Follower> {
        let follower = match self {
            Place::Named => Follower::attach(dir, name, from, Horizon::Sequenced),
            Place::Memfd => {
                let path = dir.join(name);
                let file = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                Follower::attach_fd(file, from, Horizon::Sequenced)
            }
        };
        follower.map_err(|error| error.to_string())
    }
}

/// A directory for rings, in memory.
pub(super) fn ring_dir() -> Measured<TempDir> {
    let dir = tempfile::Builder::new().prefix("ticktape-bench-").tempdir_in(DEFAULT_DIR);
    dir.map_err(|error| format!("{DEFAULT_DIR}: {error}; rings between processes need it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ticktape_core::frame::{OVERHEAD_BYTES, seal};
    use ticktape_core::{Kind, Timestamp};

    #[test]
    fn a_ring_of_either_kind_is_found_and_followed() {
        let dir = tempfile::tempdir().unwrap();
        for place in Place::BOTH {
            assert_eq!(Place::of_word(place.word()), Some(place));
            let mut ring = place.ring(dir.path(), place.word(), RingConfig::default()).unwrap();
            let mut follower = place.follow(dir.path(), place.word(), Seq::FIRST).unwrap();
            let mut frame = [7; 64];
            seal(&mut frame, Seq(1), Timestamp(1), 0, Kind::Input, 64 - OVERHEAD_BYTES);
            ring.producer.push(&frame).unwrap();
            ring.producer.publish();
            assert_eq!(follower.poll().unwrap(), Some(&frame[..]));
        }
        assert_eq!(Place::of_word("heap"), None);
    }
}
