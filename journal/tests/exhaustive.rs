//! A small sealed journal, damaged in every single place and in every way of three: each byte changed, each length cut to,
//! each sector lost. What was acknowledged is all there, or the damage is loud; no case is left out.

mod common;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use common::memory::{Files, MemoryDisk};
use common::{append, payload, small};
use ticktape_core::Seq;
use ticktape_journal::{Journal, JournalError, JournalReader, names};

const DIR: &str = "/journal";

/// Several openings and epochs, several segments, one of which was rolled to; cleanly closed. Its files and frames.
fn sealed() -> (Files, Vec<Vec<u8>>) {
    let files = Rc::new(RefCell::new(Files::new()));
    let mut written = Vec::new();
    for (epoch, frames) in [(1, 3), (2, 8), (3, 2)] {
        let (mut journal, _) = Journal::open(MemoryDisk::of(&files), Path::new(DIR), small()).unwrap();
        journal.set_epoch(epoch);
        for _ in 0..frames {
            let bytes = if epoch == 2 { vec![9; 1900] } else { payload(written.len() as u64) };
            written.push(append(&mut journal, &bytes));
            journal.sync_blocking(|| 0).unwrap();
            journal.housekeeping(1_000_000_000);
        }
        journal.close().unwrap();
    }
    (files.take(), written)
}

fn read(files: &Rc<RefCell<Files>>) -> Result<Vec<Vec<u8>>, JournalError> {
    let mut reader = JournalReader::open_on(MemoryDisk::of(files), Path::new(DIR), Seq(1))?;
    let mut frames = Vec::new();
    while let Some(frame) = reader.next()? {
        frames.push(frame.to_vec());
    }
    Ok(frames)
}

fn recover(files: &Rc<RefCell<Files>>) -> Result<Vec<Vec<u8>>, JournalError> {
    Journal::open(MemoryDisk::of(files), Path::new(DIR), small())?.0.close()?;
    read(files)
}

/// Counts cases, and how many of them were loud.
#[derive(Debug, Default)]
struct Count {
    cases: usize,
    loud: usize,
}

impl Count {
    fn check(&mut self, damaged: Files, written: &[Vec<u8>], what: impl Fn() -> String) {
        let untouched = Rc::new(RefCell::new(damaged));
        let outcomes = [read(&untouched), recover(&untouched)];
        self.cases += 1;
        let mut loud = false;
        for (outcome, how) in outcomes.into_iter().zip(["read", "recovered"]) {
            match outcome {
                Ok(frames) => assert!(frames == written, "{}, {how}: {} frames in silence", what(), frames.len()),
                Err(error) => {
                    loud = true;
                    assert!(!error.to_string().is_empty());
                }
            }
        }
        self.loud += usize::from(loud);
    }
}

#[test]
fn undamaged_it_is_whole() {
    let (files, written) = sealed();
    assert_eq!(files.len(), 5, "four segments and the seal: {:?}", files.keys());
    let mut count = Count::default();
    count.check(files, &written, || "as it is".into());
    assert_eq!(count.loud, 0);
}

#[test]
fn every_changed_byte() {
    let (files, written) = sealed();
    let mut count = Count::default();
    for (path, content) in &files {
        for at in 0..content.len() {
            // Another bit in each place: all eight come up hundreds of times.
            for bits in [1 << (at % 8), 0xff] {
                let mut damaged = files.clone();
                damaged.get_mut(path).unwrap()[at] ^= bits;
                count.check(damaged, &written, || format!("{} byte {at} ^ {bits:#x}", path.display()));
            }
        }
    }
    println!("{count:?}");
    // Harmless are: the seal file as long as the segments are whole, blanks behind a segment's chain, and the last seal commit,
    // which holds nothing that the seal file does not say, too. Everything else is loud, each single time.
    let blanks = files.values().map(|content| {
        content.rchunks(512).take_while(|block| block.iter().all(|&byte| byte == 0)).map(<[u8]>::len).sum::<usize>()
    });
    let seal = &files[&Path::new(DIR).join(names::SEALED)];
    let blank_in_seal = seal.len() - 512;
    let harmless = seal.len() - blank_in_seal + blanks.sum::<usize>() + 512;
    assert!(count.cases > 30_000, "{count:?}");
    assert_eq!(count.loud, count.cases - 2 * harmless, "{count:?}");
}

#[test]
fn every_length() {
    let (files, written) = sealed();
    let mut count = Count::default();
    for (path, content) in &files {
        for len in 0..content.len() {
            let mut damaged = files.clone();
            damaged.get_mut(path).unwrap().truncate(len);
            count.check(damaged, &written, || format!("{} cut to {len}", path.display()));
        }
        let mut damaged = files.clone();
        damaged.remove(path);
        count.check(damaged, &written, || format!("{} gone", path.display()));
    }
    println!("{count:?}");
    assert!(count.cases > 15_000 && count.loud > 12_000, "{count:?}");
}

#[test]
fn every_lost_sector_and_every_run_of_them() {
    let (files, written) = sealed();
    let mut count = Count::default();
    for (path, content) in &files {
        let sectors = content.len().div_ceil(512);
        for (first, last) in (0..sectors).flat_map(|first| (first..sectors).map(move |last| (first, last))) {
            for fill in [0, 0xff] {
                let mut damaged = files.clone();
                let end = content.len().min((last + 1) * 512);
                damaged.get_mut(path).unwrap()[first * 512..end].fill(fill);
                count.check(damaged, &written, || format!("{} sectors {first} to {last}", path.display()));
            }
        }
    }
    println!("{count:?}");
    assert!(count.cases > 800 && count.loud > 700, "{count:?}");
}
