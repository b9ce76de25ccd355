//! Mapping what others have made: nothing in the file is believed before it is checked.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use ticktape_core::Seq;

use crate::attach::AttachError;
use crate::config::name_is_valid;
use crate::follower::{Follower, Horizon};
use crate::layout::{CAPACITY_BYTES_MAX, DATA, FIXED_WORDS, Header, capacity_bytes_min};
use crate::place::{Files, Origin, is_sealed, open_read_only};
use crate::region::Region;
use crate::sync::Ordering;
use crate::words::Words;

/// The least size of a ring's file, in bytes.
const FILE_BYTES_MIN: u64 = (DATA + capacity_bytes_min(32, 32)) as u64;

fn io_error(doing: &'static str) -> impl FnOnce(io::Error) -> AttachError {
    move |source| AttachError::Io { doing, source }
}

pub(crate) fn named(dir: &Path, name: &str, from: Option<Seq>, horizon: Horizon) -> Result<Follower, AttachError> {
    if !name_is_valid(name) {
        return Err(AttachError::Name(name.to_owned()));
    }
    let (file, metadata) = open(&Files::Ring.path(dir, name))?;
    let (region, header) = map(&file, &metadata)?;
    Follower::new(region, header, Origin::named(Files::Ring, dir, name, &metadata), from, horizon)
}

pub(crate) fn fd(fd: BorrowedFd<'_>, from: Seq, horizon: Horizon) -> Result<Follower, AttachError> {
    let file = File::from(fd.try_clone_to_owned().map_err(io_error("keep the descriptor"))?);
    let metadata = file.metadata().map_err(io_error("ask for its size"))?;
    let (region, header) = map(&file, &metadata)?;
    let fd = OwnedFd::from(file);
    if !is_sealed(&fd) {
        return Err(AttachError::Unsealed);
    }
    Follower::new(region, header, Origin::Fd(fd), Some(from), horizon)
}

/// The header of the ring that has taken the name of `origin`, where it is whole.
pub(crate) fn successor(origin: &Origin) -> Option<Header> {
    let Origin::Named { path, .. } = origin else { return None };
    let (file, metadata) = open(path).ok()?;
    map(&file, &metadata).ok().map(|(_, header)| header)
}

fn open(path: &Path) -> Result<(File, Metadata), AttachError> {
    let file = open_read_only(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => AttachError::NoRing { path: path.to_owned() },
        _ => AttachError::Io { doing: "open", source },
    })?;
    let metadata = file.metadata().map_err(io_error("ask for its size"))?;
    Ok((file, metadata))
}

fn map(file: &File, metadata: &Metadata) -> Result<(Arc<Region>, Header), AttachError> {
    if !metadata.is_file() {
        return Err(AttachError::NotAFile);
    }
    let bytes = metadata.len();
    if bytes < FILE_BYTES_MIN {
        return Err(AttachError::Short { got: bytes, needed: FILE_BYTES_MIN });
    }
    let bytes = bytes.min(2 * CAPACITY_BYTES_MAX as u64) as usize;
    let has_all_blocks = metadata.blocks() * 512 >= bytes as u64;
    let region = Region::read_only(file, bytes, has_all_blocks).map_err(io_error("map"))?;
    let region = Arc::new(region);
    let words = Words::new(Arc::clone(&region));
    // Copied before it is checked: the file may be in anybody's hands.
    let mut fixed = [0; FIXED_WORDS];
    for (index, word) in fixed.iter_mut().enumerate() {
        *word = words.at(8 * index).load(Ordering::Relaxed);
    }
    let header = Header::decode(&fixed, region.bytes()).map_err(AttachError::Field)?;
    Ok((region, header))
}
