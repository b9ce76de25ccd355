//! Readers beside a writer that takes segments away: they read on as long as what comes next is there, and are told to be too late
//! when it is not. Never are they told of damage.

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{append, frame, open, payload, scratch, small};
use ticktape_core::Seq;
use ticktape_journal::{Binding, Disk, Journal, JournalConfig, JournalError, JournalReader, NativeDisk, Salts};

/// Appends so many frames, and keeps the last `kept` of them.
fn advance<D: Disk>(journal: &mut Journal<D>, frames: usize, kept: u64) {
    for _ in 0..frames {
        let next = payload(journal.appended().0 + 1);
        append(journal, &next);
        journal.sync_blocking(|| 0).unwrap();
        journal.release_before(Seq((journal.durable().0 + 1).saturating_sub(kept)));
        for round in 1..10 {
            journal.housekeeping(round << 40);
            journal.poll(0);
        }
    }
}

fn is_too_old<T>(result: Result<T, JournalError>, next: u64) -> bool {
    matches!(result, Err(JournalError::TooOld { from, first }) if from == Seq(next) && first > from)
}

#[test]
fn a_reader_in_a_segment_that_is_taken_away_is_too_old() {
    let (mut at_the_end, mut too_old) = (0, 0);
    // A reader may have stopped anywhere; and the segment may be marked, begun anew, used up, or gone.
    for (read, ahead) in (0..70).step_by(3).flat_map(|read| (0..200).step_by(9).map(move |ahead| (read, ahead))) {
        let dir = scratch();
        let (mut journal, _) = open(dir.path(), small()).unwrap();
        advance(&mut journal, 75, 1_000);
        let mut reader = JournalReader::open(dir.path(), Seq(1)).unwrap();
        for seq in 1..=read {
            assert_eq!(reader.next().unwrap(), Some(&frame(seq, &payload(seq))[..]));
        }
        advance(&mut journal, ahead as usize, 5);
        let mut seq = read;
        let end = loop {
            match reader.next() {
                Ok(Some(bytes)) => {
                    seq += 1;
                    assert_eq!(bytes, frame(seq, &payload(seq)), "read {read}, ahead {ahead}");
                }
                other => break other.map(|bytes| bytes.map(<[u8]>::to_vec)),
            }
        };
        match end {
            Ok(_) => {
                at_the_end += 1;
                assert_eq!(Seq(seq), journal.durable(), "read {read}, ahead {ahead}");
            }
            Err(error) => {
                too_old += 1;
                assert!(is_too_old(Err::<(), _>(error.clone()), seq + 1), "read {read}, ahead {ahead}: {error:?}");
                // It stays so.
                assert!(is_too_old(reader.next().map(|_| ()), seq + 1));
                assert!(journal.first_seq() > Seq(seq + 1));
            }
        }
    }
    assert!(at_the_end > 50 && too_old > 50, "{at_the_end} {too_old}");
}

#[test]
fn a_reader_at_the_end_that_sleeps_too_long_is_too_old() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    advance(&mut journal, 10, 1_000);
    let mut reader = JournalReader::open(dir.path(), Seq(1)).unwrap();
    while reader.next().unwrap().is_some() {}
    assert!(reader.next().unwrap().is_none(), "the end was looked at");
    advance(&mut journal, 200, 5);
    assert!(is_too_old(reader.next().map(|_| ()), 11));
    // Another one, bounded by the writer's word, likewise.
    let mut reader = JournalReader::open(dir.path(), journal.durable()).unwrap();
    reader.set_durable(journal.durable());
    assert!(reader.next().unwrap().is_some() && reader.next().unwrap().is_none());
    let next = journal.durable().0 + 1;
    advance(&mut journal, 200, 5);
    reader.set_durable(journal.durable());
    assert!(is_too_old(reader.next_run().map(|_| ()), next));
}

/// A writer at full speed, and readers that come and go, on the disk that is really used.
#[test]
fn readers_of_a_busy_writer_never_see_damage() {
    let dir = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let first = AtomicU64::new(1);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_on(dir.path(), &stop, &first));
        let readers = [0, 1].map(|slowness| {
            scope.spawn({
                let (dir, first) = (dir.path(), &first);
                move || read_along(dir, first, slowness)
            })
        });
        let seen = readers.map(|reader| reader.join());
        stop.store(true, Ordering::Relaxed);
        // Only now, so that a reader's failure does not leave the writer going on for ever.
        let seen = seen.map(Result::unwrap);
        let given_up = writer.join().unwrap();
        println!("{given_up} segments given up; (frames, times too old) of each reader: {seen:?}");
        assert!(given_up > 20 && seen.iter().all(|&(frames, _)| frames > 100));
        assert!(seen.iter().map(|&(_, too_old)| too_old).sum::<u64>() > 0, "some reader was too late: {seen:?}");
    });
}

/// Writes until it is told to stop; returns how many segments were used again or deleted: the backlog decides which.
fn write_on(dir: &Path, stop: &AtomicBool, first: &AtomicU64) -> u64 {
    let config = JournalConfig { salts: Salts::System, ..small() };
    let (mut journal, _) = Journal::open(NativeDisk::new(dir, Binding::OneThread), dir, config).unwrap();
    let mut now = 0;
    while !stop.load(Ordering::Relaxed) || given_up(&journal) <= 20 {
        now += 100_000;
        let next = payload(journal.appended().0 + 1);
        append(&mut journal, &next);
        journal.poll(now);
        journal.release_before(Seq((journal.durable().0 + 1).saturating_sub(100)));
        journal.housekeeping(now);
        first.store(journal.first_seq().0, Ordering::Relaxed);
    }
    let given_up = given_up(&journal);
    journal.close().unwrap();
    given_up
}

fn given_up(journal: &Journal<NativeDisk>) -> u64 {
    journal.stats().recycled + journal.stats().deleted
}

/// Reads until it was too late a few times; a slow one looks aside now and then. Returns frames read and times too late.
fn read_along(dir: &Path, first: &AtomicU64, slowness: u64) -> (u64, u64) {
    let (mut frames, mut too_old) = (0, 0);
    let mut from = 1;
    for round in 0..100_000 {
        let Ok(mut reader) = JournalReader::open(dir, Seq(from)).map_err(|error| match error {
            JournalError::TooOld { .. } => too_old += 1,
            JournalError::Empty { .. } if frames == 0 => {}
            JournalError::Disk { error, .. } if frames == 0 && error.is_missing() => {}
            error => panic!("opening at {from}: {error}"),
        }) else {
            from = first.load(Ordering::Relaxed) + 40;
            continue;
        };
        for step in 0..200 {
            match reader.next() {
                Ok(Some(bytes)) => {
                    let seq = reader_seq(bytes);
                    assert_eq!(bytes, frame(seq, &payload(seq)));
                    frames += 1;
                    from = seq + 1;
                }
                Ok(None) => break,
                Err(JournalError::TooOld { .. }) => {
                    too_old += 1;
                    break;
                }
                Err(error) => panic!("round {round}, at {from}: {error}"),
            }
            if slowness > 0 && step % 20 == 0 {
                let before = first.load(Ordering::Relaxed);
                // Until the writer took something away, or a while: it may be waiting for the disk.
                for _ in (0..20_000).take_while(|_| first.load(Ordering::Relaxed) == before) {
                    std::hint::spin_loop();
                }
            }
        }
        if too_old > 10 && frames > 1_000 {
            break;
        }
    }
    (frames, too_old)
}

fn reader_seq(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}
