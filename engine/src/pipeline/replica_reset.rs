//! Giving up a replica's log, to begin again from somebody else's: all of it, or its snapshots from a point on, too.
//!
//! Invariant: a kill at any instruction leaves a directory that this goes on with, and never one that seems sound and is not:
//! what is to go is written down before anything goes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use ticktape_core::Seq;
use ticktape_journal::names;

/// Says that the log is being given up; its content is the last seq of which snapshots stay.
const MARKER: &str = "replica.reset";
/// The replica's own number, kept over its restarts.
const NUMBER: &str = "replica.number";

/// Deletes the log in `dir` and its snapshots after `keep`.
pub(super) fn reset(dir: &Path, keep: Seq) -> io::Result<()> {
    write_synced(dir, MARKER, &keep.0.to_string())?;
    finish(dir)
}

/// Goes on with what a kill has interrupted, if it has. A marker that can't be read keeps no snapshot.
pub(super) fn finish(dir: &Path) -> io::Result<()> {
    let keep = match fs::read_to_string(dir.join(MARKER)) {
        Ok(text) => Seq(text.trim().parse().unwrap_or(0)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let goes = match names::snapshot_seq(&path) {
            Some(seq) => seq > keep,
            None => is_of_log(&path),
        };
        if goes {
            fs::remove_file(&path)?;
        }
    }
    sync_dir(dir)?;
    fs::remove_file(dir.join(MARKER))?;
    sync_dir(dir)
}

fn is_of_log(path: &Path) -> bool {
    let named = |name: &str| path.file_name().is_some_and(|file| file == name);
    let extension = path.extension().and_then(|extension| extension.to_str());
    named(names::SEALED) || named(names::SEALED_ASIDE) || matches!(extension, Some("seg" | "spare"))
}

/// The replica's own number: random, and the same for as long as the directory stands.
pub(super) fn number(dir: &Path) -> io::Result<u64> {
    match fs::read_to_string(dir.join(NUMBER)) {
        Ok(text) => {
            if let Some(number) = u64::from_str_radix(text.trim(), 16).ok().filter(|&number| number != 0) {
                return Ok(number);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut random = [0; 8];
    io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut random)?;
    let number = u64::from_le_bytes(random).max(1);
    write_synced(dir, NUMBER, &format!("{number:016x}\n"))?;
    Ok(number)
}

/// Puts a snapshot that was written aside, verified and synced under its name.
pub(super) fn install(aside: &Path, path: &Path) -> io::Result<()> {
    fs::rename(aside, path)?;
    path.parent().map_or(Ok(()), sync_dir)
}

fn write_synced(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    let aside = dir.join(format!("{name}.tmp"));
    let mut file = File::create(&aside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    install(&aside, &dir.join(name))
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_reset_keeps_older_snapshots_and_what_is_not_of_the_log_and_can_be_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let (kept, gone) = (names::snapshot(dir, Seq(10)), names::snapshot(dir, Seq(20)));
        for path in [&names::segment(dir, Seq(1)), &dir.join("00000000000000000007.spare"), &dir.join(names::SEALED)] {
            fs::write(path, "x").unwrap();
        }
        fs::write(&kept, "x").unwrap();
        fs::write(&gone, "x").unwrap();
        fs::write(dir.join(names::LOCK), "").unwrap();
        let number = number(dir).unwrap();
        // As a kill right after the marker leaves it.
        write_synced(dir, MARKER, "19").unwrap();
        finish(dir).unwrap();
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_string();
        assert_eq!(listed(dir), [name(&kept), names::LOCK.to_string(), NUMBER.to_string()]);
        assert_eq!(super::number(dir).unwrap(), number);
        reset(dir, Seq::ZERO).unwrap();
        assert_eq!(listed(dir), [names::LOCK.to_string(), NUMBER.to_string()]);
        finish(dir).unwrap();
    }
}
