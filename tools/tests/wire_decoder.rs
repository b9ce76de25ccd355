//! The decoder that was written from WIRE.md alone reads journals as the code does.
//!
//! Skipped, with a word, where there is no `python3`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ticktape::{Frame, Kind, Seq, Timestamp};
use ticktape_core::frame;
use ticktape_journal::format::commit::CommitHeader;
use ticktape_journal::format::recycle::RecycleMark;
use ticktape_journal::format::segment::{SegmentHeader, Version, stored_crc};
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
        let _ = writeln!(std::io::stderr(), "skipped: no python3 to run the decoder with");
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

/// What the code reads from `first` on, and whether it came to the end without meeting damage.
fn read(dir: &Path, first: Seq) -> (Vec<String>, Result<(), JournalError>) {
    let mut lines = Vec::new();
    let mut read = || {
        let mut reader = JournalReader::open(dir, first)?;
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
    both_read_from(dir, Seq::FIRST, frames, damaged);
}

/// The same for a journal that begins late.
#[track_caller]
fn both_read_from(dir: &Path, first: Seq, frames: usize, damaged: bool) {
    let (lines, result) = read(dir, first);
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

#[test]
fn files_that_were_used_before_and_a_late_beginning() {
    if !has_python() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), 1);
    // A mark stays where its file waits to be used again.
    let waits = || {
        let names = std::fs::read_dir(dir.path()).expect("the journal").map(|entry| entry.expect("an entry").path());
        let mut spares = names.filter(|path| path.extension().is_some_and(|extension| extension == "spare"));
        spares.find(|path| std::fs::read(path).expect("a spare").starts_with(b"TKTR"))
    };
    while writer.journal.stats().recycled < 4 || waits().is_none() {
        writer.commit(3);
        writer.journal.release_before(Seq(writer.journal.durable().0.saturating_sub(40)));
        while writer.journal.housekeeping(1 << 40) > 0 {
            writer.journal.poll(0);
        }
    }
    let (first, last) = (writer.journal.first_seq(), writer.journal.durable());
    let frames = (last.0 + 1 - first.0) as usize;
    drop(writer);
    both_read_from(dir.path(), first, frames, false);
    // Marked, and not yet renamed.
    let spare = waits().expect("it waits");
    let renamed = dir.path().join("00000000000000000001.seg");
    std::fs::rename(&spare, &renamed).expect("it was there");
    both_read_from(dir.path(), first, frames, false);
    std::fs::remove_file(&renamed).expect("it was there");

    // The mark is back where a header was: that segment's first commit is of another use than the mark says.
    let newest = segments(dir.path()).pop().expect("a segment");
    let before = SegmentHeader::decode(&std::fs::read(&newest).expect("the segment")).expect("sound").first_seq;
    change(&newest, |bytes| RecycleMark { first_seq: Seq(1), salt: 1, alignment: 512 }.encode(&mut bytes[..512]));
    both_read_from(dir.path(), first, (before.0 - first.0) as usize, true);
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
fn a_lost_header_at_the_beginning_is_no_shorter_journal() {
    if !has_python() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for epoch in 1..=2 {
        let mut writer = Writer::open(dir.path(), epoch);
        writer.commit(5);
        writer.close();
    }
    both_read(dir.path(), 10, false);
    change(&segments(dir.path())[0], |bytes| bytes[9] ^= 1);
    both_read(dir.path(), 0, true);
    change(&segments(dir.path())[0], |bytes| bytes[..512].fill(0));
    both_read(dir.path(), 0, true);
}

/// The commits of a segment, as offset and header.
fn commits(bytes: &[u8]) -> Vec<(usize, CommitHeader)> {
    let mut found = Vec::new();
    let mut at = 512;
    while let Ok((header, _)) = CommitHeader::decode(bytes.get(at..).unwrap_or_default(), 512) {
        found.push((at, header));
        at += header.total_bytes(512);
    }
    found
}

/// Changes the header of each commit, told its place in the segment, and makes checksums and chain sound again.
fn rechain(bytes: &mut [u8], mut previous: u32, mut change: impl FnMut(usize, &mut CommitHeader)) {
    for (index, (at, mut header)) in commits(bytes).into_iter().enumerate() {
        header.previous = previous;
        change(index, &mut header);
        let end = at + header.total_bytes(512);
        previous = header.seal(&mut bytes[at..end]);
    }
}

#[test]
fn every_part_of_a_link_is_compared() {
    if !has_python() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for epoch in [2, 4, 6] {
        let mut writer = Writer::open(dir.path(), epoch);
        writer.commit(5);
        writer.commit(5);
        writer.close();
    }
    both_read(dir.path(), 30, false);
    let middle = segments(dir.path()).remove(1);
    let whole = std::fs::read(&middle).expect("the segment");
    let header = SegmentHeader::decode(&whole).expect("a sound header");
    let Version::Two { previous_salt, previous_checksum, salt, alignment, recycled, log_id } = header.version else {
        unreachable!()
    };
    let two = |previous_salt, previous_checksum| Version::Two {
        salt,
        alignment,
        previous_salt,
        previous_checksum,
        recycled,
        log_id,
    };
    let broken = [
        SegmentHeader { version: two(previous_salt ^ 1, previous_checksum), ..header },
        SegmentHeader { version: two(previous_salt, previous_checksum ^ 1), ..header },
        SegmentHeader { epoch: 1, ..header },
    ];
    for header in broken {
        change(&middle, |bytes| {
            let crc = header.encode(&mut bytes[..512]);
            rechain(bytes, crc, |_, _| ());
        });
        both_read(dir.path(), 10, true);
        std::fs::write(&middle, &whole).expect("it is back");
    }
    // The link of the segment after it: the salt fits, the last commit is another one.
    change(&middle, |bytes| {
        let at = last_commit(bytes);
        let (mut commit, _) = CommitHeader::decode(&bytes[at..], 512).expect("a sound commit");
        commit.epoch += 1;
        let end = at + commit.total_bytes(512);
        commit.seal(&mut bytes[at..end]);
    });
    both_read(dir.path(), 20, true);
}

#[test]
fn an_epoch_that_falls_within_a_segment_is_damage_wherever_it_is() {
    if !has_python() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), 5);
    for frames in [4, 4, 4] {
        writer.commit(frames);
    }
    drop(writer);
    let segment = segments(dir.path()).remove(0);
    let whole = std::fs::read(&segment).expect("the segment");
    let previous = stored_crc(&whole);
    for (fallen, frames) in [(0, 0), (1, 4), (2, 8)] {
        change(&segment, |bytes| {
            rechain(bytes, previous, |index, commit| commit.epoch -= u64::from(index == fallen) * 3)
        });
        // It is below what stands before it, or for the first below the segment's own.
        let begun = SegmentHeader::decode(&whole).expect("a sound header").epoch;
        let fell = fallen > 0 || begun > 2;
        both_read(dir.path(), if fell { frames } else { 12 }, fell);
        std::fs::write(&segment, &whole).expect("it is back");
    }
}

#[test]
fn kinds_that_never_stand_in_a_journal_are_refused_in_a_sound_commit() {
    if !has_python() {
        return;
    }
    for kind in [Kind::Output, Kind::Heartbeat, Kind::TimerFired] {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(dir.path(), 1);
        writer.commit(3);
        writer.commit(3);
        drop(writer);
        let segment = segments(dir.path()).remove(0);
        change(&segment, |bytes| {
            let (at, header) = commits(bytes)[1];
            let frame = Frame::decode(&bytes[at + 64..]).expect("a sound frame");
            let mut changed = Vec::new();
            Frame { kind, ..frame }.append_to(&mut changed);
            bytes[at + 64..][..changed.len()].copy_from_slice(&changed);
            let end = at + header.total_bytes(512);
            header.seal(&mut bytes[at..end]);
        });
        both_read(dir.path(), 3, true);
        let dir = tempfile::tempdir().unwrap();
        change(&version_1(dir.path(), 3), |bytes| {
            Frame { seq: Seq(4), timestamp: Timestamp(4), stream_id: 1, kind, payload: b"" }.append_to(bytes);
        });
        let fits = kind == Kind::TimerFired;
        both_read(dir.path(), if fits { 4 } else { 3 }, !fits);
    }
}

/// A segment of one lost header and one commit of three frames, in blocks of this size, with a seal behind that proves them.
fn without_header(block: usize, lost: impl FnOnce(&mut [u8], &SegmentHeader, u32)) -> Vec<u8> {
    let salt = 77;
    let (previous_salt, previous_checksum, alignment, log_id) = (0, 0, block as u32, 6);
    let version = Version::Two { salt, alignment, previous_salt, previous_checksum, recycled: false, log_id };
    let header = SegmentHeader { first_seq: Seq(1), epoch: 1, version };
    let mut bytes = vec![0; 3 * block];
    let crc = header.encode(&mut bytes[..block]);
    let mut frames = Vec::new();
    for seq in 1..=3 {
        Frame { seq: Seq(seq), timestamp: Timestamp(seq), stream_id: 1, kind: Kind::Tick, payload: b"" }
            .append_to(&mut frames);
    }
    let length = frames.len() as u32;
    bytes[block + 64..][..frames.len()].copy_from_slice(&frames);
    let (base_seq, durable, count, next_salt) = (Seq(1), Seq(0), 3, 0);
    let first = CommitHeader { salt, epoch: 1, base_seq, durable, count, length, previous: crc, next_salt };
    let previous = first.seal(&mut bytes[block..2 * block]);
    let seal = CommitHeader { base_seq: Seq(4), durable: Seq(3), count: 0, length: 0, previous, ..first };
    seal.seal(&mut bytes[2 * block..]);
    lost(&mut bytes[..block], &header, crc);
    bytes
}

#[test]
fn what_stands_behind_a_lost_header_is_evidence_for_every_block_size_if_the_header_still_says_so() {
    if !has_python() {
        return;
    }
    let reads = |bytes: Vec<u8>, frames: usize, damaged: bool| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(ticktape_journal::names::segment(dir.path(), Seq(1)), bytes).expect("the segment");
        both_read(dir.path(), frames, damaged);
    };
    for block in [512, 1024, 2048, 4096] {
        reads(without_header(block, |_, _, _| ()), 3, false);
        // Nothing is left of it.
        reads(without_header(block, |lost, _, _| lost.fill(0)), 0, true);
        // One flip, in the fields that are compared and elsewhere.
        for at in [0, 9, 24, 44, 60] {
            reads(without_header(block, |lost, _, _| lost[at] ^= 1), 0, true);
        }
        // Only the salt is left, or only the checksum, of a block that is full of something else.
        reads(
            without_header(block, |lost, _, _| {
                let salt = lost[24];
                lost.fill(0x5a);
                lost[24..32].fill(0);
                lost[24] = salt;
            }),
            0,
            true,
        );
        reads(
            without_header(block, |lost, _, crc| {
                lost.fill(0x5a);
                lost[60..64].copy_from_slice(&crc.to_le_bytes());
            }),
            0,
            true,
        );
        // Neither is: in the block of 512 bytes nothing else can stand there, in others a payload could.
        reads(without_header(block, |lost, _, _| lost.fill(0x5a)), 0, block == 512);
    }
}

#[test]
fn journals_that_another_program_wrote() {
    let Some(cases) = std::env::var_os("TICKTAPE_CASES") else {
        let _ = writeln!(std::io::stderr(), "skipped: set TICKTAPE_CASES to the directory of shared cases");
        return;
    };
    if !has_python() {
        return;
    }
    for (name, frames) in [("counter", 2), ("kv", 3), ("bank", 291)] {
        both_read(&Path::new(&cases).join("journal-v1").join(name), frames, false);
    }
}

/// Only what was announced before tells whose commits follow a beginning that is lost: the seal file of the first segment of an
/// opening, the segment before of each next one.
#[test]
fn a_beginning_that_is_lost_is_missed_by_the_salt_that_was_announced() {
    if !has_python() {
        return;
    }
    for is_stopped in [false, true] {
        for lost in 0..4 {
            let dir = tempfile::tempdir().unwrap();
            for epoch in 1..=2 {
                let mut writer = Writer::open(dir.path(), epoch);
                (0..14).for_each(|_| writer.commit(12));
                // Others tell of the first commit of the last segment.
                (0..3).for_each(|_| writer.commit(1));
                while writer.journal.housekeeping(1 << 40) > 0 {
                    writer.journal.poll(0);
                }
                if is_stopped || epoch == 1 {
                    writer.close();
                }
            }
            let all = segments(dir.path());
            let second_life = all.iter().position(|path| epoch_of(path) == 2).expect("two lives");
            assert!(second_life > 1 && all.len() > second_life + 1, "each rolled");
            let path = &all[[0, 1, second_life, all.len() - 1][lost]];
            let first = SegmentHeader::decode(&std::fs::read(path).expect("the segment")).expect("sound").first_seq;
            change(path, |bytes| {
                let (first, _) = CommitHeader::decode(&bytes[512..], 512).expect("a commit");
                bytes[..512 + first.total_bytes(512)].fill(0);
            });
            let frames = if lost == 0 { 0 } else { first.0 - 1 };
            println!("segment {lost} of {}, {first}, stopped in order: {is_stopped}", all.len());
            both_read(dir.path(), frames as usize, true);
        }
    }
}

fn epoch_of(path: &Path) -> u64 {
    SegmentHeader::decode(&std::fs::read(path).expect("the segment")).expect("sound").epoch
}
