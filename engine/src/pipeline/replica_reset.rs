//! Giving up a replica's log, to begin again from somebody else's: all of it, or its snapshots from a point on, too.
//!
//! Invariant: a kill at any instruction leaves a directory that this goes on with, and never one that seems sound and is not:
//! what is to go is written down before anything goes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use ticktape_core::Seq;
use ticktape_journal::disk::{DiskError, Op, OpenMode, Outcome};
use ticktape_journal::{Disk, names};

/// Says that the log is being given up; its content is the last seq of which snapshots stay.
const MARKER: &str = "replica.reset";
/// The replica's own number, kept over its restarts.
const NUMBER: &str = "replica.number";

/// What a write that gets nowhere is taken for.
const EIO: i32 = 5;

/// What one write of the marker takes: whole blocks of any disk.
const MARKER_BYTES: usize = 4096;

/// Deletes the log in `dir` and its snapshots after `keep`.
///
/// # Errors
/// The disk's: it can be [gone on with](finish).
pub fn reset<D: Disk>(disk: &mut D, dir: &Path, keep: Seq) -> Result<(), DiskError> {
    write_marker(disk, dir, MARKER, keep)?;
    finish(disk, dir)
}

/// Goes on with what a kill has interrupted, if it has. A marker that can't be read keeps no snapshot.
///
/// # Errors
/// The disk's.
pub fn finish<D: Disk>(disk: &mut D, dir: &Path) -> Result<(), DiskError> {
    let Some(keep) = read_marker(disk, &dir.join(MARKER))? else { return Ok(()) };
    let Outcome::Names(names) = disk.run(Op::List { path: dir })? else { unreachable!("list lists") };
    for path in names.iter().map(|name| dir.join(name)) {
        let goes = match names::snapshot_seq(&path) {
            Some(seq) => seq > keep,
            None => is_of_log(&path),
        };
        if goes {
            disk.run(Op::Delete { path: &path })?;
        }
    }
    disk.run(Op::SyncDir { path: dir })?;
    disk.run(Op::Delete { path: &dir.join(MARKER) })?;
    disk.run(Op::SyncDir { path: dir }).map(|_| ())
}

/// Puts a snapshot that was written aside, verified and synced where a restart looks, in the place of the log.
///
/// # Errors
/// The disk's.
pub fn begin_from<D: Disk>(disk: &mut D, dir: &Path, aside: &Path, seq: Seq) -> Result<(), DiskError> {
    // Older snapshots may be of another log: they go, too.
    reset(disk, dir, Seq::ZERO)?;
    disk.run(Op::Rename { from: aside, to: &names::snapshot(dir, seq) })?;
    disk.run(Op::SyncDir { path: dir }).map(|_| ())
}

/// Writes down what is about to be done: it stands once this returns.
pub(super) fn write_marker<D: Disk>(disk: &mut D, dir: &Path, name: &str, keep: Seq) -> Result<(), DiskError> {
    let (path, aside) = (dir.join(name), dir.join(format!("{name}.tmp")));
    match disk.run(Op::Delete { path: &aside }) {
        Err(error) if !error.is_missing() => return Err(error),
        _ => {}
    }
    let Outcome::Opened(file) = disk.run(Op::Open { path: &aside, mode: OpenMode::Create })? else {
        unreachable!("open opens")
    };
    let buffer = disk.allocate(MARKER_BYTES)?;
    let text = keep.0.to_string();
    disk.bytes_mut(buffer)[..text.len()].copy_from_slice(text.as_bytes());
    let mut written = 0;
    while written < MARKER_BYTES {
        let (len, offset) = (MARKER_BYTES - written, written as u64);
        match disk.run(Op::Write { file, buffer, start: written, len, offset, durable: false })? {
            Outcome::Transferred(bytes) if bytes > 0 => written += bytes,
            _ => return Err(DiskError { op: "write", errno: EIO }),
        }
    }
    disk.run(Op::Sync { file })?;
    disk.run(Op::Close { file })?;
    disk.release(buffer);
    disk.run(Op::Rename { from: &aside, to: &path })?;
    disk.run(Op::SyncDir { path: dir }).map(|_| ())
}

/// What was written down; 0 where it can't be read, `None` where nothing was.
pub(super) fn read_marker<D: Disk>(disk: &mut D, path: &Path) -> Result<Option<Seq>, DiskError> {
    let file = match disk.run(Op::Open { path, mode: OpenMode::Read }) {
        Ok(Outcome::Opened(file)) => file,
        Ok(_) => unreachable!("open opens"),
        Err(error) if error.is_missing() => return Ok(None),
        Err(error) => return Err(error),
    };
    let buffer = disk.allocate(MARKER_BYTES)?;
    let read = disk.run(Op::Read { file, buffer, start: 0, len: MARKER_BYTES, offset: 0 });
    let bytes = if let Ok(Outcome::Transferred(bytes)) = read { bytes } else { 0 };
    let text = String::from_utf8_lossy(&disk.bytes(buffer)[..bytes]);
    let keep = text.trim_end_matches('\0').trim().parse().unwrap_or(0);
    disk.release(buffer);
    disk.run(Op::Close { file })?;
    Ok(Some(Seq(keep)))
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

/// Puts what was written aside and synced under its name.
fn install(aside: &Path, path: &Path) -> io::Result<()> {
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
    use ticktape_journal::FileDisk;

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
        write_marker(&mut FileDisk::new(), dir, MARKER, Seq(19)).unwrap();
        finish(&mut FileDisk::new(), dir).unwrap();
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_string();
        assert_eq!(listed(dir), [name(&kept), names::LOCK.to_string(), NUMBER.to_string()]);
        assert_eq!(super::number(dir).unwrap(), number);
        reset(&mut FileDisk::new(), dir, Seq::ZERO).unwrap();
        assert_eq!(listed(dir), [names::LOCK.to_string(), NUMBER.to_string()]);
        finish(&mut FileDisk::new(), dir).unwrap();
    }
}
