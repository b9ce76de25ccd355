//! Any bytes in a journal's directory: inspecting, reading and recovery answer with an error or with frames; and what was
//! recovered can be gone on with.

use std::fs;
use std::path::Path;

use ticktape_core::frame::{OVERHEAD_BYTES, frame_bytes, padded, payload_len};
use ticktape_core::{Frame, Kind, Seq, crc32c};
use ticktape_journal::format::commit::{self, CommitHeader};
use ticktape_journal::format::{recycle, seal, segment};
use ticktape_journal::inspect::inspect;
use ticktape_journal::{FileDisk, Journal, JournalConfig, JournalError, JournalReader, Salts};

use super::Seeds;
use super::frame::{repair as repair_frame, sealed};
use super::input::{Input, Script};
use super::journal_damage::{append, built};
use super::scratch::scratch;

const NAMES: [&str; 7] = [
    "00000000000000000001.seg",
    "00000000000000000004.seg",
    "other.seg",
    "00000000000000000001.spare",
    "sealed",
    "sealed.tmp",
    "lock",
];
const FILES_MAX: usize = 4;

/// Small enough that a few frames roll over.
pub fn small() -> JournalConfig {
    JournalConfig {
        segment_bytes: 16 << 10,
        commit_bytes_max: 4096,
        writes_in_flight: 2,
        seal_delay_ns: 1_000,
        salts: Salts::Seeded(0x5eed),
        ..JournalConfig::default()
    }
}

/// Makes the files that the script describes; whether any frame could be read.
pub fn run(data: &[u8]) -> bool {
    let dir = scratch();
    let mut input = Input::new(data);
    for _ in 0..FILES_MAX {
        if input.is_empty() {
            break;
        }
        let (name, repair, len) = (NAMES[usize::from(input.u8()) % NAMES.len()], input.u8(), input.u16());
        let mut bytes = input.take(len.into()).to_vec();
        if repair & 1 != 0 {
            bytes.resize(bytes.len().next_multiple_of(512), 0);
        }
        if repair & 2 != 0 {
            repair_file(&mut bytes, repair & 4 != 0);
        }
        fs::write(dir.path().join(name), bytes).expect("room for a small file");
    }
    check(dir.path())
}

fn check(dir: &Path) -> bool {
    let _ = one_line(inspect(dir, &mut |fact| assert_eq!(fact.to_string().lines().count(), 1)));
    let before = read(dir, Seq::FIRST);
    let _ = read(dir, Seq(3));
    let Ok((mut journal, recovered)) = Journal::open(FileDisk::new(), dir, small()) else {
        return before.is_ok_and(|frames| !frames.is_empty());
    };
    assert_eq!(journal.appended().next(), recovered.next_seq);
    if recovered.next_seq >= Seq(Seq::MAX.0 - 1) {
        return false;
    }
    let next = append(&mut journal, b"next");
    journal.close().expect("memory does not fail");
    let Ok(mut before) = before else { return false };
    // A reader that met no damage saw exactly what recovery keeps.
    let has_frames = !before.is_empty();
    before.push(next);
    let from = Seq(recovered.first_seq.0.max(1));
    if from == Seq::FIRST {
        assert_eq!(read(dir, from).expect("what was recovered can be read"), before);
    }
    has_frames
}

/// What can be read from `from` on, frame by frame and run by run.
pub fn read(dir: &Path, from: Seq) -> Result<Vec<Vec<u8>>, JournalError> {
    let mut reader = one_line(JournalReader::open(dir, from))?;
    let mut frames = Vec::new();
    let single = loop {
        match one_line(reader.next()) {
            Ok(Some(frame)) => frames.push(frame.to_vec()),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let mut reader = JournalReader::open(dir, from)?;
    let mut in_runs = 0;
    let runs = loop {
        match reader.next_run() {
            Ok(Some(run)) => {
                for frame in run {
                    assert_eq!(frame, frames[in_runs], "runs hold the same frames");
                    in_runs += 1;
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    assert_eq!((in_runs, runs.is_ok()), (frames.len(), single.is_ok()));
    let seqs = frames.iter().map(|frame| Frame::decode(frame).expect("readers verify").seq);
    assert!(seqs.zip(from.0..).all(|(seq, expected)| seq.0 == expected), "gapless from the first wanted");
    single.map(|()| frames)
}

pub fn one_line<T>(result: Result<T, JournalError>) -> Result<T, JournalError> {
    result.inspect_err(|error| assert_eq!(error.to_string().lines().count(), 1, "one line: {error}"))
}

/// Makes the checksums of a file right, as far as it makes sense: the fuzzer guesses none.
fn repair_file(bytes: &mut [u8], frames: bool) {
    if bytes.len() >= seal::BYTES && bytes.starts_with(&seal::MAGIC) {
        let is_old = u32_at(bytes, seal::VERSION) == seal::VERSION_2;
        put_crc(bytes, if is_old { seal::V2_CRC } else { seal::CRC });
        return;
    }
    if bytes.len() >= recycle::BYTES && bytes.starts_with(&recycle::MAGIC) {
        put_crc(bytes, recycle::CRC);
        return;
    }
    if bytes.len() < segment::HEADER_BYTES {
        return;
    }
    bytes[..4].copy_from_slice(&segment::MAGIC);
    if u32_at(bytes, segment::VERSION) == segment::VERSION_1 {
        put_crc(bytes, segment::V1_HEADER_CRC);
        repair_frames(bytes, segment::V1_HEADER_BYTES, usize::MAX, false);
        return;
    }
    put_crc(bytes, segment::HEADER_CRC);
    let block = u32_at(bytes, segment::ALIGNMENT) as usize;
    if !block.is_power_of_two() || !(512..=4096).contains(&block) {
        return;
    }
    let (mut at, mut previous) = (block, u32_at(bytes, segment::HEADER_CRC));
    while at + commit::HEADER_BYTES <= bytes.len() && bytes[at..].starts_with(&commit::MAGIC) {
        let length = u32_at(bytes, at + commit::LENGTH) as usize;
        let end = at.saturating_add(commit::total_bytes(length.min(1 << 26), block));
        if end > bytes.len() {
            return;
        }
        if frames {
            repair_frames(&mut bytes[..end], at + commit::HEADER_BYTES, length, true);
        }
        bytes.copy_within(segment::SALT..segment::SALT + 8, at + commit::SALT);
        bytes[at + commit::PREVIOUS..at + commit::RESERVED].copy_from_slice(&previous.to_le_bytes());
        previous = crc32c(&bytes[at + commit::CHECKSUM + 4..end]);
        bytes[at + commit::CHECKSUM..at + commit::SALT].copy_from_slice(&previous.to_le_bytes());
        at = end;
    }
}

fn repair_frames(bytes: &mut [u8], mut at: usize, length: usize, is_padded: bool) {
    let end = at.saturating_add(length).min(bytes.len());
    while at + OVERHEAD_BYTES <= end {
        let size = frame_bytes(payload_len(&bytes[at..]));
        if at + size > end {
            return;
        }
        repair_frame(&mut bytes[at..at + size]);
        at += if is_padded { padded(size) } else { size };
    }
}

fn put_crc(bytes: &mut [u8], at: usize) {
    let crc = crc32c(&bytes[..at]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn file(script: Script, name: u8, repair: u8, bytes: &[u8]) -> Script {
    let len = u16::try_from(bytes.len()).expect("a small file");
    script.bytes(&[name, repair]).bytes(&len.to_le_bytes()).bytes(bytes)
}

/// The file's bytes up to its last that is not blank, in whole blocks.
fn without_blanks(bytes: &[u8]) -> &[u8] {
    let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &bytes[..used.next_multiple_of(512).min(bytes.len())]
}

fn version_1() -> Vec<u8> {
    let mut bytes = segment::MAGIC.to_vec();
    bytes.extend_from_slice(&segment::VERSION_1.to_le_bytes());
    bytes.extend_from_slice(&1u64.to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    let crc = crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    (1..=3).fold(bytes, |bytes, seq| [bytes, sealed(seq, Kind::Input, b"add")].concat())
}

/// A segment whose only commit has any durable seq and count.
fn one_commit() -> Vec<u8> {
    let (salt, previous_salt, previous_checksum, log_id) = (7, 0, 0, 6);
    let version =
        segment::Version::Two { salt, previous_salt, previous_checksum, alignment: 512, recycled: false, log_id };
    let header = segment::SegmentHeader { first_seq: Seq(1), epoch: 1, version };
    let mut bytes = vec![0; 1024];
    let previous = header.encode(&mut bytes[..512]);
    let frame = sealed(1, Kind::Input, b"only");
    bytes[576..576 + frame.len()].copy_from_slice(&frame);
    let length = padded(frame.len()) as u32;
    let (epoch, base_seq, durable, count, next_salt) = (1, Seq(1), Seq(0), 1, 0);
    let commit = CommitHeader { salt: 7, epoch, base_seq, durable, count, length, previous, next_salt };
    commit.seal(&mut bytes[512..]);
    bytes
}

pub fn seeds() -> Seeds {
    let mut closed = Script::default();
    for (name, bytes) in &built().closed.files {
        let number = match name.as_str() {
            "sealed" => 4,
            "00000000000000000001.seg" => 0,
            "00000000000000000004.seg" => 1,
            _ => continue,
        };
        closed = file(closed, number, 0, without_blanks(bytes));
    }
    // A segment on a later use, and a file that is free.
    let mut recycled = Script::default();
    let files = &built().recycled.files;
    let in_use = files.iter().find(|(name, bytes)| name.ends_with(".seg") && bytes[segment::RECYCLED] == 1);
    let free = files.iter().find(|(_, bytes)| bytes.starts_with(&recycle::MAGIC));
    for (number, (_, bytes)) in [(0, in_use.expect("one is")), (3, free.expect("one waits"))] {
        recycled = file(recycled, number, 0, &bytes[..8 << 10]);
    }
    vec![
        ("closed", closed.0),
        ("recycled", recycled.0),
        ("version_1", file(Script::default(), 0, 0, &version_1()).0),
        ("one_commit", file(Script::default(), 0, 7, &one_commit()).0),
        ("spare", file(Script::default(), 3, 3, &one_commit()).0),
    ]
}
