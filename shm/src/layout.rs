//! The shared layout, version 1. WIRE.md, "Shared memory".
//!
//! Every word is a little-endian u64 on an 8-byte boundary. Words that change while the ring lives have lines (128 bytes,
//! as adjacent lines are fetched in pairs) of their own; everything before [`CLAIM`] is written once, before the ring
//! gets its name.

use std::fmt;

use ticktape_core::Seq;
use ticktape_core::frame::padded;
#[cfg(not(loom))]
use ticktape_core::frame::{OVERHEAD_BYTES, frame_bytes};
#[cfg(not(loom))]
use ticktape_core::limits::PAYLOAD_BYTES_MAX;

#[cfg(not(target_endian = "little"))]
compile_error!("the ring's words are little-endian and are used in place");

/// What [`MAGIC`] holds: `TKTRING1` as bytes.
pub const MAGIC_VALUE: u64 = u64::from_le_bytes(*b"TKTRING1");
/// What [`VERSION`] holds.
pub const VERSION_VALUE: u64 = 1;

/// Offset of the magic.
pub const MAGIC: usize = 0;
/// Offset of the layout's version.
pub const VERSION: usize = 8;
/// Offset of the size of everything before the frame area, in bytes.
pub const HEADER_BYTES: usize = 16;
/// Offset of the size of the whole file, in bytes.
pub const FILE_BYTES: usize = 24;
/// Offset of the size of the frame area, in bytes; a power of two.
pub const CAPACITY_BYTES: usize = 32;
/// Offset of the size of the largest frame, in bytes, unpadded.
pub const FRAME_BYTES_MAX: usize = 40;
/// Offset of the size of the largest batch, in bytes.
pub const BATCH_BYTES_MAX: usize = 48;
/// Offset of the step in which the claim grows, in bytes.
pub const CHUNK_BYTES: usize = 56;
/// Offset of the number of anchors in the table.
pub const ANCHOR_COUNT: usize = 64;
/// Offset of the epoch of the writer.
pub const EPOCH: usize = 72;
/// Offset of the seq of the first frame this ring ever held, which stands at position 0.
pub const FIRST_SEQ: usize = 80;
/// Offset of the flags.
pub const FLAGS: usize = 88;
/// Offset of the writer's process id, for people.
pub const WRITER_PID: usize = 96;
/// Offset of when the ring was made, in nanoseconds since the Unix epoch, for people.
pub const CREATED_NS: usize = 104;
/// Offset of a word that is zero.
pub const RESERVED: usize = 112;
/// Offset of the CRC32C of the bytes before it; its upper half is zero.
pub const HEADER_CRC: usize = 120;
/// Offset of the claim: the position up to which the writer may be writing.
pub const CLAIM: usize = 128;
/// Offset of the state; on the claim's line, as both change rarely and are read together.
pub const STATE: usize = 136;
/// Offset of the seq up to which everything is durable on this machine.
pub const DURABLE_SEQ: usize = 256;
/// Offset of the seq up to which everything is committed.
pub const COMMIT_SEQ: usize = 384;
/// Offset of the writer's heartbeat, in nanoseconds of its own clock: only whether it moves means anything.
pub const HEARTBEAT_NS: usize = 512;
/// Offset of a seq that has been published; behind by up to a chunk or a heartbeat.
pub const SEQUENCED_HINT: usize = 520;
/// Offset of how many anchors have ever been written.
pub const ANCHORS_WRITTEN: usize = 640;
/// Offset of the anchor table.
pub const ANCHORS: usize = if cfg!(loom) { 768 } else { 4096 };
/// Size of an anchor: the words below.
pub const ANCHOR_BYTES: usize = 32;
/// Offset in an anchor of its version: odd while it is being written.
pub const ANCHOR_VERSION: usize = 0;
/// Offset in an anchor of the seq of the next frame at its position.
pub const ANCHOR_SEQ: usize = 8;
/// Offset in an anchor of its position.
pub const ANCHOR_POSITION: usize = 16;
/// Offset in an anchor of the epoch.
pub const ANCHOR_EPOCH: usize = 24;
/// What [`ANCHOR_COUNT`] holds: two laps of chunks, so that anchors that lie unevenly still reach back a lap.
pub const ANCHOR_COUNT_VALUE: usize = if cfg!(loom) { 2 } else { 128 };
/// Offset of the frame area, which is what [`HEADER_BYTES`] holds.
pub const DATA: usize = ANCHORS + ANCHOR_COUNT_VALUE * ANCHOR_BYTES;

/// The bit of [`FLAGS`] that says that whatever is sequenced is committed; [`COMMIT_SEQ`] is then unused.
pub const FLAG_COMMIT_IS_SEQUENCED: u64 = 1;
/// [`STATE`] while the ring has, or may have, a writer.
pub const STATE_OPEN: u64 = 0;
/// [`STATE`] once the writer has stopped in order.
pub const STATE_CLOSED: u64 = 1;
/// The bit that makes a word a skip to the next multiple of the capacity; the rest is the next frame's seq.
pub const SKIP: u64 = 1 << 63;
/// Bytes of the zero word (or skip) that always follows the last frame.
pub const TAIL_BYTES: u64 = 8;
/// The claim grows in steps of the capacity divided by this.
pub const CHUNKS_PER_LAP: usize = 64;
/// The smallest step of the claim, in bytes: a line, for rings so small that only tests make them.
pub const CHUNK_BYTES_MIN: usize = 64;
/// The largest frame area, in bytes. Bounds what a damaged header may claim.
pub const CAPACITY_BYTES_MAX: usize = 1 << 40;
/// Words before [`CLAIM`].
pub(crate) const FIXED_WORDS: usize = CLAIM / 8;

const _: () = assert!(HEADER_CRC + 8 == CLAIM);
const _: () = assert!(ANCHORS >= ANCHORS_WRITTEN + 128);
const _: () = assert!(cfg!(loom) || DATA == 8192, "the frame area starts on a page");
const _: () = assert!(ANCHOR_COUNT_VALUE >= 2 && SKIP == Seq::MAX.0 + 1);

/// The words before [`CLAIM`], validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Size of the whole file, in bytes.
    pub file_bytes: usize,
    /// Size of the frame area, in bytes; a power of two.
    pub capacity_bytes: usize,
    /// Largest frame, in bytes, unpadded.
    pub frame_bytes_max: usize,
    /// Largest batch, in bytes.
    pub batch_bytes_max: usize,
    /// The writer's epoch.
    pub epoch: u64,
    /// The seq of the frame at position 0.
    pub first_seq: Seq,
    /// Whether everything sequenced counts as committed.
    pub commit_is_sequenced: bool,
    /// The writer's process id.
    pub writer_pid: u64,
    /// When the ring was made, in nanoseconds since the Unix epoch.
    pub created_ns: u64,
}

/// What a field of the header should have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// This value.
    Exactly(u64),
    /// A value from the first to the second, both included.
    Between(u64, u64),
    /// A power of two from the first to the second, both included.
    PowerOfTwoBetween(u64, u64),
}

impl Expected {
    #[cfg(not(loom))]
    fn holds(self, found: u64) -> bool {
        match self {
            Expected::Exactly(value) => found == value,
            Expected::Between(low, high) => (low..=high).contains(&found),
            Expected::PowerOfTwoBetween(low, high) => found.is_power_of_two() && (low..=high).contains(&found),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::Exactly(value) => write!(f, "{value:#x}"),
            Expected::Between(low, high) => write!(f, "{low:#x} to {high:#x}"),
            Expected::PowerOfTwoBetween(low, high) => write!(f, "a power of two from {low:#x} to {high:#x}"),
        }
    }
}

/// The first field of a header that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field, as the layout's table names it.
    pub field: &'static str,
    /// What it holds.
    pub found: u64,
    /// What it should hold.
    pub expected: Expected,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ring header field {} is {:#x}, expected {}", self.field, self.found, self.expected)
    }
}

impl std::error::Error for FieldError {}

/// The step of the claim for a ring of this capacity, in bytes.
pub const fn chunk_bytes(capacity_bytes: usize) -> usize {
    let chunk = capacity_bytes / CHUNKS_PER_LAP;
    if chunk < CHUNK_BYTES_MIN { CHUNK_BYTES_MIN } else { chunk }
}

/// The least capacity for frames and batches of at most these sizes, in bytes: four times both, so that a batch, the skip
/// before it and what a consumer still holds fit beside each other.
pub const fn capacity_bytes_min(frame_bytes_max: usize, batch_bytes_max: usize) -> usize {
    4 * (padded(frame_bytes_max) + batch_bytes_max)
}

impl Header {
    pub(crate) fn encode(&self) -> [u64; FIXED_WORDS] {
        let mut words = [0; FIXED_WORDS];
        words[MAGIC / 8] = MAGIC_VALUE;
        words[VERSION / 8] = VERSION_VALUE;
        words[HEADER_BYTES / 8] = DATA as u64;
        words[FILE_BYTES / 8] = self.file_bytes as u64;
        words[CAPACITY_BYTES / 8] = self.capacity_bytes as u64;
        words[FRAME_BYTES_MAX / 8] = self.frame_bytes_max as u64;
        words[BATCH_BYTES_MAX / 8] = self.batch_bytes_max as u64;
        words[CHUNK_BYTES / 8] = chunk_bytes(self.capacity_bytes) as u64;
        words[ANCHOR_COUNT / 8] = ANCHOR_COUNT_VALUE as u64;
        words[EPOCH / 8] = self.epoch;
        words[FIRST_SEQ / 8] = self.first_seq.0;
        words[FLAGS / 8] = if self.commit_is_sequenced { FLAG_COMMIT_IS_SEQUENCED } else { 0 };
        words[WRITER_PID / 8] = self.writer_pid;
        words[CREATED_NS / 8] = self.created_ns;
        words[HEADER_CRC / 8] = header_crc(&words);
        words
    }

    /// Checks every field, against each other and against the bytes that are mapped.
    #[cfg(not(loom))]
    pub(crate) fn decode(words: &[u64; FIXED_WORDS], mapped_bytes: usize) -> Result<Header, FieldError> {
        let check = |field, at: usize, expected: Expected| {
            let found = words[at / 8];
            if expected.holds(found) { Ok(found as usize) } else { Err(FieldError { field, found, expected }) }
        };
        check("magic", MAGIC, Expected::Exactly(MAGIC_VALUE))?;
        check("version", VERSION, Expected::Exactly(VERSION_VALUE))?;
        check("header_crc", HEADER_CRC, Expected::Exactly(header_crc(words)))?;
        check("header_bytes", HEADER_BYTES, Expected::Exactly(DATA as u64))?;
        let file_bytes = check("file_bytes", FILE_BYTES, Expected::Exactly(mapped_bytes as u64))?;
        let room = file_bytes.saturating_sub(DATA).min(CAPACITY_BYTES_MAX) as u64;
        let capacity_min = capacity_bytes_min(frame_bytes(0), frame_bytes(0)) as u64;
        let capacity_bytes = check("capacity_bytes", CAPACITY_BYTES, Expected::PowerOfTwoBetween(capacity_min, room))?;
        let frame_max = (capacity_bytes / 8).min(frame_bytes(PAYLOAD_BYTES_MAX)) as u64;
        let frame_bytes_max =
            check("frame_bytes_max", FRAME_BYTES_MAX, Expected::Between(OVERHEAD_BYTES as u64, frame_max))?;
        let (batch_min, batch_max) = (padded(frame_bytes_max), capacity_bytes / 4 - padded(frame_bytes_max));
        let batch_bytes_max =
            check("batch_bytes_max", BATCH_BYTES_MAX, Expected::Between(batch_min as u64, batch_max as u64))?;
        check("chunk_bytes", CHUNK_BYTES, Expected::Exactly(chunk_bytes(capacity_bytes) as u64))?;
        check("anchor_count", ANCHOR_COUNT, Expected::Exactly(ANCHOR_COUNT_VALUE as u64))?;
        let first_seq = check("first_seq", FIRST_SEQ, Expected::Between(1, Seq::MAX.0))?;
        let flags = check("flags", FLAGS, Expected::Between(0, FLAG_COMMIT_IS_SEQUENCED))?;
        check("reserved", RESERVED, Expected::Exactly(0))?;
        Ok(Header {
            file_bytes,
            capacity_bytes,
            frame_bytes_max,
            batch_bytes_max,
            epoch: words[EPOCH / 8],
            first_seq: Seq(first_seq as u64),
            commit_is_sequenced: flags as u64 & FLAG_COMMIT_IS_SEQUENCED != 0,
            writer_pid: words[WRITER_PID / 8],
            created_ns: words[CREATED_NS / 8],
        })
    }
}

fn header_crc(words: &[u64; FIXED_WORDS]) -> u64 {
    let mut bytes = [0; HEADER_CRC];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    u64::from(crc32c::crc32c(&bytes))
}
