//! A crash or an error at any step of writing a snapshot: what is there afterwards is the old one or the new one, whole.

mod snapshots;

use std::cell::RefCell;
use std::rc::Rc;

use snapshots::crash::{CrashDisk, Fault, Platter, dir};
use snapshots::{drive, pace, snapshot, write};
use ticktape_core::Seq;
use ticktape_journal::snapshot::{list_on, newest_on, read_on, verify_on};
use ticktape_journal::{Snapshot, SnapshotError, SnapshotWriter, names};

/// A chunk and a bit, so that there is more than one write.
const BODY_BYTES: usize = 300_000;

fn writer(platter: &Rc<RefCell<Platter>>, retain: usize) -> SnapshotWriter<CrashDisk> {
    SnapshotWriter::new(CrashDisk::of(platter), dir(), pace(retain)).unwrap()
}

/// The newest sound snapshot; no file under a final name is ever anything else.
fn newest(platter: &Rc<RefCell<Platter>>) -> Option<Snapshot> {
    let found = newest_on(&mut CrashDisk::of(platter), dir(), Seq::MAX).unwrap();
    for (_, path) in list_on(&mut CrashDisk::of(platter), dir()).unwrap() {
        verify_on(&mut CrashDisk::of(platter), &path).unwrap();
    }
    found.snapshot
}

fn xorshift(mut state: u64) -> impl FnMut(usize) -> usize {
    move |sides| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % sides
    }
}

/// A directory with a snapshot at 10 and one at 20.
fn begun() -> Rc<RefCell<Platter>> {
    let platter = Platter::new();
    let mut writer = writer(&platter, 2);
    for seq in [10, 20] {
        write(&mut writer, snapshot(seq, BODY_BYTES)).unwrap();
    }
    platter.borrow().after_kill()
}

/// What the writer has said so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    written: u64,
    oldest: Option<Seq>,
}

/// Opens the directory anew and writes 30 and 40, calling `look` after each step with what was said until then.
fn run(platter: &Rc<RefCell<Platter>>, retain: usize, mut look: impl FnMut(&Platter, Said)) {
    let mut said = Said { written: 20, oldest: None };
    let mut writer = writer(platter, retain);
    for seq in [30, 40] {
        writer.begin(snapshot(seq, BODY_BYTES));
        while !writer.is_idle() {
            look(&platter.borrow(), said);
            writer.poll(0);
            said.written = writer.take_written().map_or(said.written, |meta| meta.seq.0);
            said.oldest = writer.oldest_verified();
        }
    }
    assert_eq!((writer.failed(), said.written), (None, 40));
    look(&platter.borrow(), said);
}

/// What has to hold in what a crash has left.
fn check(left: &Rc<RefCell<Platter>>, said: Said) {
    let found = newest(left).expect("there is always one");
    let seq = found.meta().seq;
    assert_eq!(found, snapshot(seq.0, BODY_BYTES));
    assert!(seq.0 >= said.written, "{seq} after {said:?}");
    assert!(said.oldest.is_none_or(|oldest| seq >= oldest), "{seq} after {said:?}");
    let mut writer = writer(left, 2);
    assert!(left.borrow().files().iter().all(|name| !name.ends_with(".tmp")), "leftovers are removed");
    write(&mut writer, snapshot(50, 100)).unwrap();
    assert_eq!(newest(left), Some(snapshot(50, 100)));
    assert_eq!((left.borrow().files().len(), writer.rejected().count()), (2, 0));
}

#[test]
fn a_kill_at_any_step_leaves_the_old_one_or_the_new_one() {
    for retain in [1, 2] {
        let mut steps = 0;
        run(&begun(), retain, |platter, said| {
            check(&platter.after_kill(), said);
            steps += 1;
        });
        assert!(steps > 40, "{steps}");
    }
}

#[test]
fn a_power_cut_at_any_step_leaves_the_old_one_or_the_new_one() {
    let mut dice = xorshift(0x5eed);
    let mut seen = [false; 4];
    for retain in [1, 2] {
        run(&begun(), retain, |platter, said| {
            for _ in 0..4 {
                let left = platter.after_power_cut(&mut dice);
                seen[newest(&left).unwrap().meta().seq.0 as usize / 10 - 1] = true;
                check(&left, said);
            }
        });
    }
    assert_eq!(seen, [false, true, true, true], "each of the newest was met, and 20 was never lost");
}

#[test]
fn a_power_cut_while_a_large_one_goes_leaves_none_that_is_cut() {
    let platter = Platter::new();
    write(&mut writer(&platter, 1), snapshot(10, 9 << 20)).unwrap();
    let mut dice = xorshift(0x5eed);
    let mut writer = writer(&platter, 1);
    write_only(&mut writer, snapshot(20, 100));
    let mut steps = 0;
    while !writer.is_idle() {
        for _ in 0..8 {
            assert_eq!(newest(&platter.borrow().after_power_cut(&mut dice)), Some(snapshot(20, 100)));
        }
        writer.poll(0);
        steps += 1;
    }
    assert!(steps > 6, "{steps}");
    assert_eq!(platter.borrow().files(), ["00000000000000000020.snap"]);
}

/// Polls until it is written, and no further.
fn write_only(writer: &mut SnapshotWriter<CrashDisk>, snapshot: Snapshot) {
    writer.begin(snapshot);
    while writer.is_busy() {
        writer.poll(0);
    }
    assert!(writer.take_written().is_some());
}

#[test]
fn the_oldest_verified_one_is_there_whenever_it_is_named() {
    let mut named = 0;
    run(&begun(), 2, |platter, said| {
        let Some(oldest) = said.oldest else { return };
        let left = platter.after_kill();
        let path = names::snapshot(dir(), oldest);
        // It may go once a newer one is verified, in the very steps that delete it.
        let is_going = !left.borrow().files().contains(&path.file_name().unwrap().to_str().unwrap());
        assert_eq!(verify_on(&mut CrashDisk::of(&left), &path).is_err(), is_going);
        named += u32::from(!is_going);
    });
    assert!(named > 20, "{named}");
}

fn faults() -> Vec<Fault> {
    let errors = [libc::EIO, libc::ENOSPC, libc::EROFS].map(Fault::Error);
    let others = [Fault::Short(0), Fault::Short(100), Fault::Short(5000), Fault::Rot, Fault::Astray];
    errors.into_iter().chain(others).collect()
}

/// What an operation that succeeds does: the names of all, from opening to the end.
fn operations() -> Vec<&'static str> {
    let platter = begun();
    let mut writer = writer(&platter, 2);
    write(&mut writer, snapshot(30, BODY_BYTES)).unwrap();
    let ops = platter.borrow().ops.clone();
    assert_eq!(ops.iter().filter(|&&op| op == "write").count(), 3, "two chunks and the header");
    ops
}

#[test]
fn any_single_fault_costs_one_snapshot_at_most_and_is_named() {
    let ops = operations();
    let mut failed = 0;
    for fault in faults() {
        for (number, &op) in ops.iter().enumerate().skip(2) {
            let platter = begun();
            platter.borrow_mut().fault = Some((number, 1, fault));
            let mut writer = writer(&platter, 2);
            let written = write(&mut writer, snapshot(30, BODY_BYTES));
            drive(&mut writer);
            let what = format!("{fault:?} in {op}, operation {number}");
            match &written {
                Ok(meta) => assert_eq!(meta.seq, Seq(30), "{what}"),
                Err(error) => {
                    failed += 1;
                    let message = error.to_string();
                    assert!(message.contains("/snapshots/") && message.lines().count() == 1, "{what}: {message}");
                    assert_eq!(writer.failures(), 1, "{what}");
                    let is_full = fault == Fault::Error(libc::ENOSPC);
                    assert_eq!(matches!(error, SnapshotError::NoSpace { .. }), is_full, "{what}: {error:?}");
                    assert!(!is_full || message.contains("77 bytes free, it takes 307200"), "{message}");
                }
            }
            let newest = newest(&platter).expect("the old one is there").meta().seq;
            assert!(newest == Seq(30) || written.is_err() && newest == Seq(20), "{what}: {newest}");
            // The next one is tried as if nothing had been.
            write(&mut writer, snapshot(40, 100)).unwrap();
            assert_eq!((writer.failed(), writer.newest_verified()), (None, Some(Seq(40))), "{what}");
            assert!(writer.oldest_verified().is_some(), "{what}");
            assert!(platter.borrow().files().iter().all(|name| !name.ends_with(".tmp")), "{what}");
        }
    }
    assert!(failed > 60, "{failed}");
}

#[test]
fn a_disk_that_stays_broken_ends_every_try() {
    let ops = operations();
    for fault in faults() {
        for number in 2..ops.len() {
            let platter = begun();
            platter.borrow_mut().fault = Some((number, usize::MAX, fault));
            let mut writer = writer(&platter, 2);
            let first = write(&mut writer, snapshot(30, BODY_BYTES));
            let second = write(&mut writer, snapshot(40, BODY_BYTES));
            platter.borrow_mut().fault = None;
            let newest = newest(&platter).unwrap().meta().seq.0;
            let believed =
                [20].into_iter().chain(first.map(|meta| meta.seq.0)).chain(second.map(|meta| meta.seq.0)).max();
            assert!(newest >= believed.unwrap(), "{fault:?} from operation {number} on: {newest}");
            drop(writer);
            check(&platter, Said { written: newest, oldest: None });
        }
    }
}

#[test]
fn rot_on_the_way_back_is_met_before_the_name_is_given() {
    let ops = operations();
    let first_read = ops.iter().position(|&op| op == "read").unwrap();
    for (fault, expected) in [
        (Fault::Rot, "checksum"),
        (Fault::Astray, "not what was written"),
        (Fault::Short(0), "offset 4096: the file has"),
    ] {
        let platter = begun();
        // All reads of the new one, not those of the old.
        let count = if fault == Fault::Rot { 1 } else { usize::MAX };
        let from = if fault == Fault::Rot { first_read + 1 } else { first_read + usize::from(fault != Fault::Astray) };
        platter.borrow_mut().fault = Some((from, count, fault));
        let mut writer = writer(&platter, 2);
        writer.begin(snapshot(30, BODY_BYTES));
        while writer.is_busy() {
            writer.poll(0);
        }
        let error = writer.failed().unwrap().to_string();
        assert!(error.contains("00000000000000000030.snap.tmp") && error.contains(expected), "{error}");
        platter.borrow_mut().fault = None;
        assert_eq!(newest(&platter), Some(snapshot(20, BODY_BYTES)));
    }
}

#[test]
fn a_poll_never_waits_for_a_slow_disk() {
    let platter = begun();
    let mut writer = writer(&platter, 2);
    writer.begin(snapshot(30, BODY_BYTES));
    platter.borrow_mut().is_slow = true;
    let mut waits = 0;
    while !writer.is_idle() {
        writer.poll(0);
        let begun = platter.borrow().ops.len();
        assert_eq!((writer.poll(0), writer.poll(0)), (0, 0), "nothing was completed");
        assert_eq!(platter.borrow().ops.len(), begun);
        writer.wait();
        waits += 1;
    }
    assert!(waits > 25, "{waits}");
    platter.borrow_mut().is_slow = false;
    assert_eq!(read_on(&mut CrashDisk::of(&platter), &names::snapshot(dir(), Seq(30))), Ok(snapshot(30, BODY_BYTES)));
}
