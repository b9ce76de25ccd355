//! Whether somebody has a journal open for writing.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::disk::{DiskError, sys};
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
