//! The decoder that was written from WIRE.md alone reads journals as the code does.
//!
//! Skipped, with a word, where there is no `python3`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ticktape::{Frame, Kind, Seq, Timestamp};
use ticktape_core::frame;
use ticktape_journal::{FileDisk, Journal, JournalConfig, JournalError, JournalReader, Salts};

/// A few hundred frames roll over several segments; nothing seals by itself.
fn config() -> JournalConfig {
    JournalConfig {
        segment_bytes: 16 << 10,
        commit_bytes_max: 4096,
        writes_in_flight: 2,
        seal_delay_ns: u64::MAX,
        salts: Salts::Seeded(0x5eed),
        ..JournalConfig::default()
    }
}

fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: no python3 to run the decoder with");
    }
    found
}

fn decode(dir: &Path) -> Output {
    let decoder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/decoder/journal.py");
    Command::new("python3").arg(decoder).arg(dir).output().expect("python3 runs")
}

/// A frame as the decoder prints it.
fn line(frame: &[u8]) -> String {
    let Frame { seq, timestamp, stream_id, kind, payload } = Frame::decode(frame).expect("a sound frame");
    let payload: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
    let payload = if payload.is_empty() { "-" } else { &payload };
    format!("{seq} {} {stream_id} {} {payload}", timestamp.0, kind as u16)
}

/// What the code reads, and whether it came to the end without meeting damage.
fn read(dir: &Path) -> (Vec<String>, Result<(), JournalError>) {
    let mut lines = Vec::new();
    let mut read = || {
        let mut reader = JournalReader::open(dir, Seq::FIRST)?;
        while let Some(frame) = reader.next()? {
            lines.push(line(frame));
        }
        Ok(())
    };
    let result = read();
    (lines, result)
}

/// Both read the same `frames` frames, and both meet damage after them, or neither does.
#[track_caller]
fn both_read(dir: &Path, frames: usize, damaged: bool) {
    let (lines, result) = read(dir);
    assert_eq!((lines.len(), result.is_err()), (frames, damaged), "{result:?}");
    let output = decode(dir);
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8(output.stdout).expect("plain text");
    assert!(printed.lines().eq(lines.iter().map(String::as_str)), "{printed}\nshould be\n{}", lines.join("\n"));
    assert_eq!(output.status.code(), Some(i32::from(damaged)), "{said}");
}

/// One writer's reign over a journal: every frame that it appends is of another kind and length than the one before.
struct Writer {
    journal: Journal<FileDisk>,
}

impl Writer {
    fn open(dir: &Path, epoch: u64) -> Writer {
        let (mut journal, _) = Journal::open(FileDisk::new(), dir, config()).expect("it opens");
        journal.set_epoch(epoch);
        Writer { journal }
    }

    /// Appends so many frames as one commit, or a few, and waits until they are durable.
    fn commit(&mut self, frames: u64) {
        const KINDS: [Kind; 4] = [Kind::Input, Kind::SessionInput, Kind::Tick, Kind::EpochChange];
        for _ in 0..frames {
            let seq = self.journal.appended().next();
            let payload: Vec<u8> = (0..seq.0 * 37 % 211).map(|i| (i * seq.0) as u8).collect();
            let kind = KINDS[seq.0 as usize % KINDS.len()];
            let mut bytes = Vec::new();
            Frame { seq, timestamp: Timestamp(1 << 60 | seq.0), stream_id: 2, kind, payload: &payload }
                .append_to(&mut bytes);
            bytes.resize(frame::padded(bytes.len()), 0);
            while !self.journal.room(bytes.len()) {
                assert!(self.journal.failed().is_none() && self.journal.starved().is_none());
                self.journal.poll(0);
                self.journal.housekeeping(0);
            }
            self.journal.append(seq, &bytes);
        }
        self.journal.sync_blocking(|| 0).expect("it is durable");
    }

    fn close(self) {
        self.journal.close().expect("it closes");
    }
}

/// The segments, in order.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("the journal").map(|entry| entry.expect("an entry").path());
    let mut segments: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "seg")).collect();
    segments.sort();
    segments
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("the segment");
    change(&mut bytes);
    std::fs::write(path, bytes).expect("the segment, changed");
}

/// Offset of the last commit of a segment.
fn last_commit(bytes: &[u8]) -> usize {
    (0..bytes.len()).step_by(512).rfind(|&at| bytes[at..].starts_with(b"TKTC")).expect("a commit")
}

#[test]
fn commits_segments_epochs_and_reopenings() {
    if !has_python() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), 1);
    both_read(dir.path(), 0, false);
    writer.commit(1);
    writer.commit(250);
    both_read(dir.path(), 251, false);
    writer.journal.set_epoch(2);
    writer.commit(49);
    writer.close();
    both_read(dir.path(), 300, false);
    assert!(segments(dir.path()).len() > 2, "it rolled");

    let mut writer = Writer::open(dir.path(), 3);
    writer.commit(100);
    drop(writer);
    both_read(dir.path(), 400, false);
}

#[test]
fn a_torn_tail_ends_the_log_and_damage_before_it_is_refused() {
    if !has_python() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), 1);
    for frames in [5, 4, 3] {
        writer.commit(frames);
    }
    drop(writer);
    let segment = segments(dir.path()).remove(0);
    change(&segment, |bytes| {
        let at = last_commit(bytes);
        bytes[at + 100] ^= 1;
    });
    both_read(dir.path(), 9, false);

    // Recovery cuts it; a clean stop says so, and what is missing after that is missed.
    let mut writer = Writer::open(dir.path(), 2);
    writer.commit(2);
    writer.close();
    both_read(dir.path(), 11, false);
    let last = segments(dir.path()).pop().expect("a segment");
    let kept = std::fs::read(&last).expect("the segment");
    let spare = dir.path().join("00000000000000000007.spare");
    std::fs::rename(&last, &spare).expect("it was there");
    both_read(dir.path(), 11, false);
    std::fs::rename(&spare, &last).expect("it was there");
    std::fs::remove_file(&last).expect("it was there");
    both_read(dir.path(), 9, true);

    // Rot in a header: the commits behind it prove what was there.
    std::fs::remove_file(dir.path().join("sealed")).expect("it was there");
    std::fs::write(&last, &kept).expect("it is back");
    both_read(dir.path(), 11, false);
    change(&last, |bytes| bytes[9] ^= 1);
    both_read(dir.path(), 9, true);

    // Rot in the first commit of the first segment.
    std::fs::write(&last, &kept).expect("it is back");
    change(&segment, |bytes| {
        let at = bytes.windows(4).position(|four| four == b"TKTC").expect("a commit");
        bytes[at + 70] ^= 1;
    });
    both_read(dir.path(), 0, true);
}

/// A version 1 journal of so many ticks.
fn version_1(dir: &Path, frames: u64) -> PathBuf {
    // Only read by the code, so written here.
    let mut bytes = b"TKTJ\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x46\x84\x3b\xc8".to_vec();
    for seq in 1..=frames {
        let payload = &seq.to_le_bytes()[..seq as usize % 8];
        let kind = Kind::TimerFired;
        Frame { seq: Seq(seq), timestamp: Timestamp(seq), stream_id: 1, kind, payload }.append_to(&mut bytes);
    }
    let path = ticktape_journal::names::segment(dir, Seq::FIRST);
    std::fs::write(&path, bytes).expect("the segment");
    path
}

#[test]
fn version_1_alone_torn_damaged_and_gone_on_with() {
    if !has_python() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let segment = version_1(dir.path(), 20);
    both_read(dir.path(), 20, false);
    change(&segment, |bytes| bytes.truncate(bytes.len() - 3));
    both_read(dir.path(), 19, false);
    change(&segment, |bytes| bytes[28 + 33 + 8] ^= 1);
    both_read(dir.path(), 1, true);

    version_1(dir.path(), 20);
    let mut writer = Writer::open(dir.path(), 7);
    writer.commit(10);
    drop(writer);
    both_read(dir.path(), 30, false);
    change(&segment, |bytes| bytes.truncate(bytes.len() - 3));
    both_read(dir.path(), 19, true);
}

#[test]
fn journals_that_another_program_wrote() {
    let Some(cases) = std::env::var_os("TICKTAPE_CASES") else {
        println!("skipped: set TICKTAPE_CASES to the directory of shared cases");
        return;
    };
    if !has_python() {
        return;
    }
    for (name, frames) in [("counter", 2), ("kv", 3), ("bank", 291)] {
        both_read(&Path::new(&cases).join("journal-v1").join(name), frames, false);
    }
}
