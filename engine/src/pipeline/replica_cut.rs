//! Cutting a replica's log where its leader took back what had been sent: what comes before stays, and is gone on from.
//!
//! Invariant: a kill at any instruction leaves a directory that this goes on with: where the cut is is written down before anything
//! goes. The log is cut by [`give_up`], which says of itself what it leaves.

use std::path::Path;

use ticktape_core::Seq;
use ticktape_journal::disk::{DiskError, Op};
use ticktape_journal::{Disk, JournalConfig, JournalError, give_up, snapshot};

use super::replica_reset::{read_marker, reset, write_marker};

/// Says that the log is being cut; its content is the last seq that stays.
const MARKER: &str = "replica.cut";

/// Cuts the log in `dir` after `keep`, with its snapshots; where nothing that can be gone on from is left, all of it goes. Returns
/// the last seq that is left. `open_disk` is asked for a disk for each step.
///
/// # Errors
/// [`JournalError`]: the disk, or a log that can't be cut. It can be [gone on with](finish).
pub fn cut<D: Disk>(
    open_disk: impl Fn() -> D,
    dir: &Path,
    journal: &JournalConfig,
    keep: Seq,
) -> Result<Seq, JournalError> {
    write_marker(&mut open_disk(), dir, MARKER, keep).map_err(|error| at(dir, error))?;
    go_on(open_disk, dir, journal, keep)
}

/// Goes on with what a kill has interrupted, if it has. A marker that can't be read keeps nothing.
///
/// # Errors
/// As [`cut`].
pub fn finish<D: Disk>(open_disk: impl Fn() -> D, dir: &Path, journal: &JournalConfig) -> Result<(), JournalError> {
    let marker = read_marker(&mut open_disk(), &dir.join(MARKER)).map_err(|error| at(dir, error))?;
    marker.map_or(Ok(()), |keep| go_on(open_disk, dir, journal, keep).map(|_| ()))
}

/// Gives up all of the log instead.
///
/// # Errors
/// The disk's.
pub fn give_up_all<D: Disk>(disk: &mut D, dir: &Path) -> Result<(), JournalError> {
    reset(disk, dir, Seq::ZERO).map_err(|error| at(dir, error))?;
    remove_marker(disk, dir)
}

fn go_on<D: Disk>(
    open_disk: impl Fn() -> D,
    dir: &Path,
    journal: &JournalConfig,
    keep: Seq,
) -> Result<Seq, JournalError> {
    let left = give_up(&open_disk, dir, journal, keep.next())?;
    // Before `keep` where a kill came between the cut and the writing of what stays of a commit.
    let last = if left.first_seq.is_some() { keep.min(Seq(left.next_seq.0 - 1)) } else { keep };
    let mut can_begin = left.first_seq.is_some_and(|first| first <= Seq::FIRST);
    let mut covered = Seq::ZERO;
    let mut disk = open_disk();
    for (seq, path) in snapshot::list_on(&mut disk, dir)? {
        if seq > last {
            disk.run(Op::Delete { path: &path }).map_err(|error| at(&path, error))?;
        } else {
            covered = seq;
            can_begin |= left.first_seq.is_none_or(|first| first <= seq.next());
        }
    }
    disk.run(Op::SyncDir { path: dir }).map_err(|error| at(dir, error))?;
    if !can_begin {
        // A log without its beginning, and no state to begin from.
        give_up_all(&mut disk, dir)?;
        return Ok(Seq::ZERO);
    }
    remove_marker(&mut disk, dir)?;
    Ok(if left.first_seq.is_some() { last } else { covered })
}

fn remove_marker<D: Disk>(disk: &mut D, dir: &Path) -> Result<(), JournalError> {
    let path = dir.join(MARKER);
    match disk.run(Op::Delete { path: &path }) {
        Err(error) if !error.is_missing() => return Err(at(&path, error)),
        _ => {}
    }
    disk.run(Op::SyncDir { path: dir }).map(|_| ()).map_err(|error| at(dir, error))
}

fn at(path: &Path, error: DiskError) -> JournalError {
    JournalError::Disk { path: path.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ticktape_core::{Frame, Kind, Timestamp, frame};
    use ticktape_journal::{FileDisk, Journal, JournalReader, names};

    use super::*;

    fn log(dir: &Path, first: u64, last: u64) {
        let disk = FileDisk::new();
        let (mut journal, _) = Journal::open_covered(disk, dir, JournalConfig::default(), Seq(first - 1)).unwrap();
        for seq in (first..=last).map(Seq) {
            let mut bytes = Vec::new();
            Frame { seq, timestamp: Timestamp(seq.0), stream_id: 1, kind: Kind::Input, payload: b"x" }
                .append_to(&mut bytes);
            bytes.resize(frame::padded(bytes.len()), 0);
            assert!(journal.room(bytes.len()));
            journal.append(seq, &bytes);
        }
        journal.close().unwrap();
    }

    fn snapshots(dir: &Path) -> Vec<Seq> {
        snapshot::list(dir).unwrap().into_iter().map(|(seq, _)| seq).collect()
    }

    fn last(dir: &Path, first: u64) -> Seq {
        let mut reader = JournalReader::open(dir, Seq(first)).unwrap();
        while reader.next().unwrap().is_some() {}
        Seq(reader.next_seq().0 - 1)
    }

    #[test]
    fn the_log_and_its_snapshots_end_where_they_are_cut_and_a_kill_in_between_is_gone_on_with() {
        for killed in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let dir = dir.path();
            log(dir, 1, 100);
            for seq in [20, 60, 80] {
                fs::write(names::snapshot(dir, Seq(seq)), "x").unwrap();
            }
            if killed {
                write_marker(&mut FileDisk::new(), dir, MARKER, Seq(60)).unwrap();
                finish(FileDisk::new, dir, &JournalConfig::default()).unwrap();
            } else {
                assert_eq!(cut(FileDisk::new, dir, &JournalConfig::default(), Seq(60)).unwrap(), Seq(60));
            }
            assert_eq!((last(dir, 1), snapshots(dir)), (Seq(60), vec![Seq(20), Seq(60)]));
            assert!(!dir.join(MARKER).exists());
            finish(FileDisk::new, dir, &JournalConfig::default()).unwrap();
            assert_eq!(last(dir, 1), Seq(60));
        }
    }

    #[test]
    fn a_log_that_begins_late_needs_a_snapshot_to_be_gone_on_from() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        log(dir, 51, 100);
        fs::write(names::snapshot(dir, Seq(80)), "x").unwrap();
        assert_eq!(cut(FileDisk::new, dir, &JournalConfig::default(), Seq(70)).unwrap(), Seq::ZERO);
        assert_eq!(snapshots(dir), []);
        assert!(!names::segment(dir, Seq(51)).exists() && !dir.join(MARKER).exists());
    }
}
