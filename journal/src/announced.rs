//! Looking for a segment that has lost its beginning, by the salt that was announced for it.
//!
//! The first write of a segment is its header and its first commit. Where the disk acknowledged that write and doesn't have it, or has
//! another one in its place, the commits behind it are as sound as ever, and nothing in the file says that they are: blanks look like
//! the beginning of a file that was never used, and what is behind a recycle mark like an earlier use. The salt tells; and it
//! stands in the segment before, too, or in the seal file.
//!
//! A crash in the middle of the first write leaves such files as well. Then none of it was acknowledged, and no commit in it says
//! so: nothing is refused.

use std::path::{Path, PathBuf};

use ticktape_core::Seq;

use crate::disk::{Disk, DiskError, FileId, Op, OpenMode};
use crate::error::JournalError;
use crate::format::commit::{self, CommitHeader};
use crate::format::recycle::RecycleMark;
use crate::format::segment::HeaderError;
use crate::format::u64_at;
use crate::limits::{ALIGNMENT_BYTES_MAX, ALIGNMENT_BYTES_MIN};
use crate::names;
use crate::recover::{self, Facts, Segment, Stray, at, open, open_listed, run};
use crate::recovery::{self, Announced};
use crate::window::Window;

/// What commits with an announced salt prove, in a file that says nothing of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    /// Where the first of them stands.
    pub(crate) at: u64,
    /// Up to where they prove that the journal was durable.
    pub(crate) durable: Seq,
    /// The seq that their segment begins with.
    pub(crate) first_seq: Seq,
}

/// Adds to `facts`, in which the segments at the end of the log were read, what files without a sound header prove.
///
/// Blank files are passed over, and everything is where nothing is announced that has no header. So after a clean stop nothing is read, and
/// after a crash the spares that were used before: a few files.
pub(crate) fn look<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    facts: &mut Facts,
    mode: OpenMode,
) -> Result<(), JournalError> {
    let announced = recovery::announced(&facts.table(), facts.sealed);
    if announced.is_empty() {
        return Ok(());
    }
    for index in 0..facts.strays.len() {
        if facts.strays[index].blank {
            continue;
        }
        if let Some(proof) = look_into(disk, window, &facts.strays[index].path, &announced, mode)? {
            facts.durable = facts.durable.max(proof.durable);
            facts.strays[index].first_seq.get_or_insert(proof.first_seq);
            facts.strays[index].commits_at = Some(proof.at);
        }
    }
    for path in std::mem::take(&mut facts.free) {
        match look_into(disk, window, &path, &announced, mode)?.filter(|proof| proof.durable >= proof.first_seq) {
            None => facts.free.push(path),
            Some(proof) => {
                facts.durable = facts.durable.max(proof.durable);
                let (error, first_seq) = (HeaderError::Recycled, Some(proof.first_seq));
                let (blank, first_commit, commits_at) = (false, first_seq, Some(proof.at));
                facts.strays.push(Stray { path, error, blank, first_seq, first_commit, commits_at });
            }
        }
    }
    // The header of an earlier use, where the mark was not stored either, has the name of a later one.
    for index in 0..facts.segments.len() {
        let Segment { path, header, .. } = &facts.segments[index];
        if names::segment_seq(path) != Some(header.first_seq)
            && let Some(proof) = look_into(disk, window, path, &announced, mode)?
        {
            facts.durable = facts.durable.max(proof.durable);
        }
    }
    Ok(())
}

/// The files without a sound header that hold commits with one of these salts, of which 0 is none.
pub(crate) fn files_of<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    facts: &Facts,
    announced: &[Announced],
) -> Result<Vec<PathBuf>, JournalError> {
    let announced: Vec<_> = announced.iter().copied().filter(|next| next.salt != 0).collect();
    let strays = facts.strays.iter().filter(|stray| !stray.blank).map(|stray| &stray.path);
    let mut found = Vec::new();
    for path in strays.chain(&facts.free) {
        if look_into(disk, window, path, &announced, OpenMode::Write)?.is_some() {
            found.push(path.clone());
        }
    }
    Ok(found)
}

fn look_into<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    path: &Path,
    announced: &[Announced],
    mode: OpenMode,
) -> Result<Option<Proof>, JournalError> {
    let file = match mode {
        OpenMode::ReadDirect => open_listed(disk, path)?,
        _ => Some(open(disk, path, mode)?),
    };
    let Some(file) = file else { return Ok(None) };
    let proof = proof(disk, window, file, announced).map_err(|error| at(path, error))?;
    run(disk, path, Op::Close { file })?;
    Ok(proof)
}

/// What sound commits with one of these salts prove, at any multiple of the smallest block and in blocks of any size: no payload can
/// pass for one. `None` where there is none; or where the file has a header with that salt by now, as a live writer brings it about.
///
/// A recycle mark says that what began with its seq, or before it, was released: only a later use can have lost its beginning.
pub(crate) fn proof<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    file: FileId,
    announced: &[Announced],
) -> Result<Option<Proof>, DiskError> {
    let mut found: Option<Proof> = None;
    let mut place = 0;
    window.forget();
    let mark = RecycleMark::decode(window.view(disk, file, 0, ALIGNMENT_BYTES_MIN)?);
    let is_later = |next: &&Announced| mark.is_none_or(|mark| next.first_seq > mark.first_seq);
    let announced: Vec<_> = announced.iter().filter(is_later).copied().collect();
    while let Some((at, next)) = next_head(disk, window, file, place, &announced)? {
        place = at + ALIGNMENT_BYTES_MIN as u64;
        if let Some(header) = commit_at(disk, window, file, at)? {
            let proof = found.get_or_insert(Proof { at, durable: Seq::ZERO, first_seq: next.first_seq });
            proof.durable = proof.durable.max(header.durable);
        }
    }
    if found.is_none() {
        return Ok(None);
    }
    let has_header = |salt| announced.iter().any(|next| next.salt == salt);
    let header = recover::header(disk, window, file)?;
    Ok(found.filter(|_| !header.is_ok_and(|(header, _)| has_header(header.salt()))))
}

/// The next block from `place` on that begins like a commit with one of these salts.
fn next_head<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    file: FileId,
    mut place: u64,
    announced: &[Announced],
) -> Result<Option<(u64, Announced)>, DiskError> {
    loop {
        let bytes = window.view(disk, file, place, ALIGNMENT_BYTES_MIN)?;
        if bytes.len() < commit::HEADER_BYTES {
            return Ok(None);
        }
        for (index, block) in bytes.chunks(ALIGNMENT_BYTES_MIN).enumerate() {
            if block.starts_with(&commit::MAGIC) && block.len() >= commit::HEADER_BYTES {
                let salt = u64_at(block, commit::SALT);
                if let Some(next) = announced.iter().find(|next| next.salt == salt) {
                    return Ok(Some((place + (index * ALIGNMENT_BYTES_MIN) as u64, *next)));
                }
            }
        }
        place += bytes.len().next_multiple_of(ALIGNMENT_BYTES_MIN) as u64;
    }
}

/// The sound commit at `at`, in blocks of whatever size.
fn commit_at<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    file: FileId,
    at: u64,
) -> Result<Option<CommitHeader>, DiskError> {
    let mut alignment = ALIGNMENT_BYTES_MIN;
    while alignment <= ALIGNMENT_BYTES_MAX {
        let head = window.view(disk, file, at, ALIGNMENT_BYTES_MIN)?;
        if let Ok(declared) = CommitHeader::declared_bytes(head, alignment) {
            let bytes = window.view(disk, file, at, declared)?;
            if let Ok((header, _)) = CommitHeader::decode(bytes, alignment) {
                return Ok(Some(header));
            }
        }
        alignment *= 2;
    }
    Ok(None)
}
