//! Whether somebody has a journal open for writing, and keeping others from it.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::disk::{Disk as _, DiskError, FileDisk, Op, sys};
use crate::error::JournalError;
use crate::names;

/// Whether a writer holds the lock of the journal in `dir` now. Takes and makes nothing; false where there is no lock file.
///
/// # Errors
/// [`JournalError::Disk`], where the lock file can't be looked at.
pub fn is_live(dir: &Path) -> Result<bool, JournalError> {
    let path = dir.join(names::LOCK);
    let held = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        opened => opened.and_then(|file| sys::is_locked(&file)),
    };
    held.map_err(|error| JournalError::Disk { error: DiskError::from_io("lock", &error), path })
}

/// Does something while nobody can open the journal in `dir` for writing.
///
/// # Errors
/// [`JournalError::InUse`], [`JournalError::Disk`].
pub fn while_locked<R>(dir: &Path, act: impl FnOnce() -> R) -> Result<R, JournalError> {
    let (path, mut disk) = (dir.join(names::LOCK), FileDisk::new());
    disk.run(Op::Lock { path: &path }).map_err(|error| match error.is_held() {
        true => JournalError::InUse { dir: dir.to_owned() },
        false => JournalError::Disk { error, path: path.clone() },
    })?;
    let done = act();
    drop(disk);
    Ok(done)
}
