//! What the journal's tests share.
#![allow(dead_code)] // Each test binary uses its own part of it.

pub mod memory;
pub mod mounted;

use std::path::Path;

use ticktape_core::{Frame, Kind, Seq, Timestamp, frame};
use ticktape_journal::disk::{BufferId, Completion, DiskError, Op, Outcome};
use ticktape_journal::{Disk, FileDisk, Journal, JournalConfig, JournalError, JournalReader, Recovered, Salts};

/// Memory, where there is such a file system: thousands of recoveries sync there for nothing.
pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap()
}

/// Small enough that a few hundred frames roll over several segments.
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

/// The exact bytes of a frame with this seq and payload.
pub fn frame(seq: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Frame { seq: Seq(seq), timestamp: Timestamp(seq * 10), stream_id: 1, kind: Kind::Input, payload }
        .append_to(&mut bytes);
    bytes
}

/// The same, padded as in the ring.
pub fn padded(seq: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = frame(seq, payload);
    bytes.resize(frame::padded(bytes.len()), 0);
    bytes
}

/// A payload that depends on the seq, of a length that does, too.
pub fn payload(seq: u64) -> Vec<u8> {
    (0..(seq * 37 % 200) as u8).map(|i| i.wrapping_mul(seq as u8)).collect()
}

pub fn open(dir: &Path, config: JournalConfig) -> Result<(Journal<FileDisk>, Recovered), JournalError> {
    Journal::open(FileDisk::new(), dir, config)
}

/// Appends the next frame, polling until there is room.
pub fn append<D: Disk>(journal: &mut Journal<D>, payload: &[u8]) -> Vec<u8> {
    let seq = journal.appended().next();
    let bytes = padded(seq.0, payload);
    while !journal.room(bytes.len()) {
        assert!(journal.failed().is_none(), "{:?}", journal.failed());
        assert!(journal.starved().is_none(), "{:?}", journal.starved());
        journal.poll(0);
    }
    journal.append(seq, &bytes);
    frame(seq.0, payload)
}

/// A clock that moves on by a microsecond a look.
pub fn clock() -> impl FnMut() -> u64 {
    let mut now = 0;
    move || {
        now += 1_000;
        now
    }
}

/// Everything from `from` on.
pub fn read(dir: &Path, from: u64) -> Result<Vec<Vec<u8>>, JournalError> {
    let mut reader = JournalReader::open(dir, Seq(from))?;
    let mut frames = Vec::new();
    while let Some(frame) = reader.next()? {
        frames.push(frame.to_vec());
    }
    Ok(frames)
}

/// Plain files that claim to need blocks of this size.
#[derive(Debug)]
pub struct Blocks {
    files: FileDisk,
    alignment: usize,
}

impl Blocks {
    pub fn of(alignment: usize) -> Blocks {
        Blocks { files: FileDisk::new(), alignment }
    }
}

impl Disk for Blocks {
    fn submit(&mut self, token: u64, op: Op<'_>) {
        if let Op::Read { start, len, offset, .. } | Op::Write { start, len, offset, .. } = op {
            let places = [start, len, offset as usize];
            assert!(places.iter().all(|place| place.is_multiple_of(self.alignment)), "{op:?}");
        }
        self.files.submit(token, op);
    }

    fn poll(&mut self) -> Option<Completion> {
        let mut completion = self.files.poll()?;
        if let Ok(Outcome::Stat(stat)) = &mut completion.result {
            stat.alignment = self.alignment;
        }
        Some(completion)
    }

    fn wait(&mut self) {
        self.files.wait();
    }

    fn allocate(&mut self, bytes: usize) -> Result<BufferId, DiskError> {
        self.files.allocate(bytes)
    }

    fn release(&mut self, buffer: BufferId) {
        self.files.release(buffer);
    }

    fn bytes(&self, buffer: BufferId) -> &[u8] {
        self.files.bytes(buffer)
    }

    fn bytes_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        self.files.bytes_mut(buffer)
    }

    fn describe(&self) -> String {
        format!("plain files in blocks of {}", self.alignment)
    }
}
