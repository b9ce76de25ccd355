//! The seal file on the disk: read, written aside and renamed, taken away.

use std::path::Path;

use crate::disk::{Disk, Op, OpenMode};
use crate::error::JournalError;
use crate::format::seal::{self, Sealed};
use crate::limits::ALIGNMENT_BYTES_MAX;
use crate::names;
use crate::recover::{at, open, run, write_all};
use crate::window::Window;

/// What the seal file says; `None` if it is not sound.
pub(crate) fn read_seal<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    dir: &Path,
) -> Result<Option<Sealed>, JournalError> {
    let path = dir.join(names::SEALED);
    let file = open(disk, &path, OpenMode::Read)?;
    window.forget();
    let block = window.view(disk, file, 0, seal::BYTES).map_err(|error| at(&path, error))?;
    let sealed = Sealed::decode(block);
    run(disk, &path, Op::Close { file })?;
    Ok(sealed)
}

/// Records, outside the segments, what is durable and which salt comes next. Call when it is, and before that is used.
pub(crate) fn write_seal<D: Disk>(disk: &mut D, dir: &Path, sealed: Sealed) -> Result<(), JournalError> {
    let (aside, path) = (dir.join(names::SEALED_ASIDE), dir.join(names::SEALED));
    match disk.run(Op::Delete { path: &aside }) {
        Err(error) if !error.is_missing() => return Err(at(&aside, error)),
        _ => {}
    }
    let file = open(disk, &aside, OpenMode::Create)?;
    let buffer = disk.allocate(ALIGNMENT_BYTES_MAX).map_err(|error| at(&aside, error))?;
    sealed.encode(disk.bytes_mut(buffer));
    let written = write_all(disk, &aside, file, buffer, ALIGNMENT_BYTES_MAX, 0);
    disk.release(buffer);
    written?;
    run(disk, &aside, Op::Sync { file })?;
    run(disk, &aside, Op::Close { file })?;
    run(disk, &path, Op::Rename { from: &aside, to: &path })?;
    run(disk, dir, Op::SyncDir { path: dir })?;
    Ok(())
}

/// A log of which nothing is durable needs none.
pub(crate) fn remove_seal<D: Disk>(disk: &mut D, dir: &Path) -> Result<(), JournalError> {
    let path = dir.join(names::SEALED);
    match disk.run(Op::Delete { path: &path }) {
        Err(error) if !error.is_missing() => Err(at(&path, error)),
        _ => run(disk, dir, Op::SyncDir { path: dir }).map(|_| ()),
    }
}
