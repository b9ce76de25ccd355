//! Giving up the end of a log, durably: for a follower whose leader took back what it had sent.
//!
//! The log is cut before the commit that holds the first frame that goes; the frames of that commit that stay are appended anew, in
//! a segment of their own, as after any recovery.
//!
//! Invariant: the seal goes down before anything goes, and segments go from the last one back: a crash in between leaves a log that
//! ends earlier or later, and giving up again from the same seq comes to the same.

use std::path::Path;

use ticktape_core::frame::padded;
use ticktape_core::{Frame, Seq};

use crate::announced;
use crate::config::JournalConfig;
use crate::disk::{Disk, Op, OpenMode};
use crate::error::JournalError;
use crate::format::seal::Sealed;
use crate::journal::Journal;
use crate::limits::READ_CHUNK_BYTES;
use crate::names;
use crate::reader::JournalReader;
use crate::recover::{Segment, at, list_facts, open, run};
use crate::recovery::Announced;
use crate::scan::Chain;
use crate::sealed::{remove_seal, write_seal};
use crate::window::Window;

/// What is left of a log that was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// The first frame that is left; `None` where no segment is.
    pub first_seq: Option<Seq>,
    /// The frame that comes next.
    pub next_seq: Seq,
}

/// Gives up the frames from `from` on of the journal in `dir`, which nobody has open. `open_disk` is asked for a disk for each step.
///
/// # Errors
/// [`JournalError`]. What was begun is gone on with by another call.
pub fn give_up<D: Disk>(
    mut open_disk: impl FnMut() -> D,
    dir: &Path,
    config: &JournalConfig,
    from: Seq,
) -> Result<GivenUp, JournalError> {
    let mut disk = open_disk();
    let lock = dir.join(names::LOCK);
    disk.run(Op::Lock { path: &lock }).map_err(|error| {
        if error.is_held() { JournalError::InUse { dir: dir.to_owned() } } else { at(&lock, error) }
    })?;
    let mut window = Window::new(READ_CHUNK_BYTES);
    let facts = list_facts(&mut disk, &mut window, dir, OpenMode::Write)?;
    let kept = facts.segments.iter().filter(|segment| segment.header.first_seq < from).count();
    let (edge, next_salt) = match facts.segments[..kept].last() {
        Some(last) => edge(&mut disk, &mut window, last, from)?,
        None => (None, 0),
    };
    // Nor does what was announced and lost its beginning bear witness any more.
    let announced = [next_salt, facts.sealed.next_salt].map(|salt| Announced { salt, first_seq: from });
    let witnesses = announced::files_of(&mut disk, &mut window, &facts, &announced)?;
    window.release(&mut disk);
    let stays = match edge {
        Some(Edge { base, epoch, .. }) if base < from => Some(read_frames(open_disk(), dir, base, from, epoch)?),
        _ => None,
    };
    let left = if kept == 0 { Seq::ZERO } else { edge.map_or(Seq(from.0 - 1), |edge| Seq(edge.base.0 - 1)) };
    if facts.durable > left {
        lower_seal(&mut disk, dir, left)?;
    }
    // A segment of which nothing but a part of its first write was stored when its writer ended proves, as a whole one would, what had been
    // durable before it. That goes, too.
    let begun = facts.strays_from(from).filter(|path| !witnesses.iter().any(|other| other == path));
    let begun = begun.chain(witnesses.iter().map(|path| path.as_path()));
    for path in begun.chain(facts.segments[kept..].iter().rev().map(|segment| segment.path.as_path())) {
        run(&mut disk, path, Op::Delete { path })?;
        run(&mut disk, dir, Op::SyncDir { path: dir })?;
    }
    if let Some(Edge { offset, .. }) = edge {
        let path = &facts.segments[kept - 1].path;
        let file = open(&mut disk, path, OpenMode::Write)?;
        run(&mut disk, path, Op::Truncate { file, bytes: offset })?;
        run(&mut disk, path, Op::Sync { file })?;
        run(&mut disk, path, Op::Close { file })?;
    }
    // Its lock goes with it.
    drop(disk);
    if kept == 0 {
        return Ok(GivenUp { first_seq: None, next_seq: from });
    }
    append_again(open_disk(), dir, config, stays)
}

/// The commit that holds the first frame that goes.
#[derive(Clone, Copy, Debug)]
struct Edge {
    offset: u64,
    /// Its first frame.
    base: Seq,
    epoch: u64,
}

/// Where in its last segment the log is cut, and the salt that it announces. `None` where it ends before `from`: what is damaged there is left to recovery.
fn edge<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    segment: &Segment,
    from: Seq,
) -> Result<(Option<Edge>, u64), JournalError> {
    let path = &segment.path;
    let file = open(disk, path, OpenMode::Write)?;
    window.forget();
    let mut edge = None;
    let Some(mut chain) = Chain::begin(file, &segment.header, segment.header_crc) else {
        let why =
            format!("{}: a segment of version 1 is not cut: begin with a directory of this version", path.display());
        return Err(JournalError::Config(why));
    };
    while let (None, Ok(found)) = (edge, chain.step(disk, window).map_err(|error| at(path, error))?) {
        if found.header.next_seq() > from {
            edge = Some(Edge { offset: found.at, base: found.header.base_seq, epoch: found.header.epoch });
        }
    }
    run(disk, path, Op::Close { file })?;
    Ok((edge, chain.next_salt))
}

/// Frames that stay and have to be written again.
struct Stays {
    epoch: u64,
    /// Each padded.
    frames: Vec<(Seq, Vec<u8>)>,
}

fn read_frames<D: Disk>(disk: D, dir: &Path, base: Seq, from: Seq, epoch: u64) -> Result<Stays, JournalError> {
    let mut reader = JournalReader::open_on(disk, dir, base)?;
    let mut frames = Vec::new();
    while let Some(bytes) = reader.next()? {
        let seq = Frame::view(bytes).expect("the reader has checked it").seq;
        if seq >= from {
            break;
        }
        let mut frame = bytes.to_vec();
        frame.resize(padded(frame.len()), 0);
        frames.push((seq, frame));
    }
    Ok(Stays { epoch, frames })
}

fn lower_seal<D: Disk>(disk: &mut D, dir: &Path, durable: Seq) -> Result<(), JournalError> {
    if durable > Seq::ZERO {
        return write_seal(disk, dir, Sealed { durable, next_salt: 0 });
    }
    remove_seal(disk, dir)
}

fn append_again<D: Disk>(
    disk: D,
    dir: &Path,
    config: &JournalConfig,
    stays: Option<Stays>,
) -> Result<GivenUp, JournalError> {
    let (mut journal, recovered) = Journal::open(disk, dir, config.clone())?;
    let mut next_seq = recovered.next_seq;
    // Where what comes before is damaged, recovery has cut more: then they are of no use.
    let goes_on = |stays: &Stays| stays.frames.first().is_some_and(|&(seq, _)| seq == recovered.next_seq);
    if let Some(Stays { epoch, frames }) = stays.filter(goes_on) {
        journal.set_epoch(epoch.max(recovered.last_epoch));
        for (seq, frame) in frames {
            if !journal.room(frame.len()) {
                journal.sync_blocking(|| 0)?;
            }
            if !journal.room(frame.len()) {
                let why = journal.starved().cloned();
                return Err(why.unwrap_or_else(|| JournalError::Config(format!("no room for frame {seq}"))));
            }
            journal.append(seq, &frame);
            next_seq = seq.next();
        }
    }
    journal.close()?;
    let first_seq = (recovered.first_seq < next_seq).then_some(recovered.first_seq);
    Ok(GivenUp { first_seq, next_seq })
}
