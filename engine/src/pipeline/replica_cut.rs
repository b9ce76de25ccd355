//! Cutting a replica's log where its leader took back what had been sent: what comes before stays, and is gone on from.
//!
//! Invariant: a kill at any instruction leaves a directory that this goes on with: where the cut is is written down before anything
//! goes. The log is cut by [`give_up`], which says of itself what it leaves.

use std::fs;
use std::io;
use std::path::Path;

use ticktape_core::Seq;
use ticktape_journal::{Binding, FileDisk, JournalConfig, NativeDisk, give_up, snapshot};

use super::replica_reset::{reset, sync_dir, write_synced};

/// Says that the log is being cut; its content is the last seq that stays.
const MARKER: &str = "replica.cut";

/// Cuts the log in `dir` after `keep`, with its snapshots; where nothing that can be gone on from is left, all of it goes. Returns
/// the last seq that is left.
pub(super) fn cut(dir: &Path, journal: &JournalConfig, keep: Seq) -> io::Result<Seq> {
    write_synced(dir, MARKER, &keep.0.to_string())?;
    go_on(dir, journal, keep)
}

/// Goes on with what a kill has interrupted, if it has. A marker that can't be read keeps nothing.
pub(super) fn finish(dir: &Path, journal: &JournalConfig) -> io::Result<()> {
    match fs::read_to_string(dir.join(MARKER)) {
        Ok(text) => go_on(dir, journal, Seq(text.trim().parse().unwrap_or(0))).map(|_| ()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Gives up all of the log instead.
pub(super) fn give_up_all(dir: &Path) -> io::Result<()> {
    reset(&mut FileDisk::new(), dir, Seq::ZERO).map_err(io::Error::other)?;
    match fs::remove_file(dir.join(MARKER)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => sync_dir(dir),
    }
}

fn go_on(dir: &Path, journal: &JournalConfig, keep: Seq) -> io::Result<Seq> {
    let disk = || NativeDisk::new(dir, Binding::OneThread);
    let left = give_up(disk, dir, journal, keep.next()).map_err(io::Error::other)?;
    // Before `keep` where a kill came between the cut and the writing of what stays of a commit.
    let last = if left.first_seq.is_some() { keep.min(Seq(left.next_seq.0 - 1)) } else { keep };
    let mut can_begin = left.first_seq.is_some_and(|first| first <= Seq::FIRST);
    let mut covered = Seq::ZERO;
    for (seq, path) in snapshot::list(dir).map_err(io::Error::other)? {
        if seq > last {
            fs::remove_file(&path)?;
        } else {
            covered = seq;
            can_begin |= left.first_seq.is_none_or(|first| first <= seq.next());
        }
    }
    sync_dir(dir)?;
    if !can_begin {
        // A log without its beginning, and no state to begin from.
        give_up_all(dir)?;
        return Ok(Seq::ZERO);
    }
    fs::remove_file(dir.join(MARKER))?;
    sync_dir(dir)?;
    Ok(if left.first_seq.is_some() { last } else { covered })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ticktape_core::{Frame, Kind, Timestamp, frame};
    use ticktape_journal::{Journal, JournalReader, names};

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
                write_synced(dir, MARKER, "60").unwrap();
                finish(dir, &JournalConfig::default()).unwrap();
            } else {
                assert_eq!(cut(dir, &JournalConfig::default(), Seq(60)).unwrap(), Seq(60));
            }
            assert_eq!((last(dir, 1), snapshots(dir)), (Seq(60), vec![Seq(20), Seq(60)]));
            assert!(!dir.join(MARKER).exists());
            finish(dir, &JournalConfig::default()).unwrap();
            assert_eq!(last(dir, 1), Seq(60));
        }
    }

    #[test]
    fn a_log_that_begins_late_needs_a_snapshot_to_be_gone_on_from() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        log(dir, 51, 100);
        fs::write(names::snapshot(dir, Seq(80)), "x").unwrap();
        assert_eq!(cut(dir, &JournalConfig::default(), Seq(70)).unwrap(), Seq::ZERO);
        assert_eq!(snapshots(dir), []);
        assert!(!names::segment(dir, Seq(51)).exists() && !dir.join(MARKER).exists());
    }
}
