//! A journal whose place goes away under it: the directory is removed or moved, the file system turns read-only. It latches,
//! names the path, and acknowledges nothing more.

mod common;

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use common::mounted::Mounted;
use common::{append, read, small};
use ticktape_core::Seq;
use ticktape_journal::{Binding, Disk, FileDisk, Journal, JournalConfig, JournalError, NativeDisk, Strategy};

const MS: u64 = 1_000_000;

/// Some seconds of appends and housekeeping; the first error, with what had been acknowledged before it.
fn until_it_latches<D: Disk>(journal: &mut Journal<D>) -> (JournalError, Seq) {
    let (mut now, began) = (0, Instant::now());
    while journal.failed().is_none() {
        // A guard against hanging: the journal's own time runs ahead of the disk's here.
        assert!(began.elapsed() < Duration::from_secs(60), "it does not notice");
        now += 10 * MS;
        if journal.room(200) {
            append(journal, b"what next");
        }
        journal.poll(now);
        journal.housekeeping(now);
    }
    (journal.failed().unwrap().clone(), journal.durable())
}

/// Whatever is done afterwards, nothing is acknowledged.
fn stays_latched<D: Disk>(mut journal: Journal<D>, error: &JournalError, durable: Seq) {
    assert!(!journal.room(64));
    for now in 0..50 {
        journal.poll(now * 100 * MS);
        journal.housekeeping(now * 100 * MS);
    }
    assert_eq!((journal.durable(), journal.failed()), (durable, Some(error)));
    assert_eq!(journal.close().unwrap_err(), *error);
}

/// Named with the path, in one line.
fn names(error: &JournalError, dir: &Path, what: &str) {
    let said = error.to_string();
    assert!(said.contains(dir.to_str().unwrap()) && said.contains(what) && !said.contains('\n'), "{said}");
}

fn roomy() -> JournalConfig {
    JournalConfig { segment_bytes: 4 << 20, ..small() }
}

fn a_directory_that_goes<D: Disk>(disk: impl Fn(&Path) -> D, go: impl Fn(&Path)) {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("journal");
    let (mut journal, _) = Journal::open(disk(&dir), &dir, roomy()).unwrap();
    append(&mut journal, b"before");
    journal.sync_blocking(|| 0).unwrap();
    go(&dir);
    // The segment has room for long: only looking for it tells.
    let (error, durable) = until_it_latches(&mut journal);
    names(&error, &dir, "No such file or directory");
    stays_latched(journal, &error, durable);
}

#[test]
fn a_directory_that_is_removed_or_moved_away_is_noticed_within_a_second_or_two() {
    a_directory_that_goes(|dir| NativeDisk::new(dir, Binding::OneThread), |dir| std::fs::remove_dir_all(dir).unwrap());
    a_directory_that_goes(|_| FileDisk::new(), |dir| std::fs::remove_dir_all(dir).unwrap());
    a_directory_that_goes(|_| FileDisk::new(), |dir| std::fs::rename(dir, dir.with_extension("away")).unwrap());
}

#[test]
fn a_file_system_that_turns_read_only_under_an_open_journal_latches_it() {
    for strategy in Strategy::ALL {
        let mounted = match Mounted::ext4(512) {
            Ok(mounted) => mounted,
            Err(reason) => {
                let _ = writeln!(std::io::stderr(), "skipped: no loop device here ({reason})");
                return;
            }
        };
        let dir = mounted.path().join("journal");
        let config = JournalConfig { strategy: strategy.into(), ..roomy() };
        let disk = NativeDisk::new(&dir, Binding::OneThread);
        let (mut journal, _) = Journal::open(disk, &dir, config).unwrap();
        let written = append(&mut journal, b"before");
        journal.sync_blocking(|| 0).unwrap();
        if let Err(reason) = mounted.break_down() {
            let _ = writeln!(std::io::stderr(), "skipped: {reason}");
            return;
        }
        append(&mut journal, b"after");
        let error = journal.sync_blocking(|| 0).unwrap_err();
        names(&error, &dir, "Read-only file system");
        stays_latched(journal, &error, Seq(1));
        assert_eq!(read(&dir, 1).unwrap()[0], written);
    }
}

/// Whoever removes the lock's file beneath a writer lets nobody else in.
#[test]
fn a_lock_file_that_is_removed_lets_no_second_writer_in() {
    let dir = common::scratch();
    let (mut journal, _) = common::open(dir.path(), small()).unwrap();
    append(&mut journal, b"one");
    std::fs::remove_file(dir.path().join("lock")).unwrap();
    for _ in 0..2 {
        let refused = common::open(dir.path(), small()).expect_err("it is open");
        assert!(matches!(refused, JournalError::InUse { .. }), "{refused}");
    }
    let held = ticktape_journal::while_locked(dir.path(), || ()).unwrap_err();
    assert!(matches!(held, JournalError::InUse { .. }), "{held}");
    append(&mut journal, b"two");
    journal.close().unwrap();
    drop(common::open(dir.path(), small()).unwrap());
    assert!(ticktape_journal::while_locked(dir.path(), || common::open(dir.path(), small()).is_err()).unwrap());
}
