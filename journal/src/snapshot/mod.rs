//! Snapshots: the state after one frame, in a file of its own, so that a restart replays only what came later.
//!
//! ```text
//!  begin ──► aside file, chunk by chunk ──► synced ──► read back, CRC checked ──► renamed ──► directory synced: written
//!            {seq}.snap.tmp, paced           in slices   past the page cache       {seq}.snap   older ones retire
//! ```
//!
//! Who owns what: the engine encodes and decodes the sections; this module takes them as bytes. A [`SnapshotWriter`] is a duty
//! cycle of the journal's owner, on a disk of its own; everybody else reads: [`newest`], [`read`], [`verify`].
//!
//! Invariants:
//! - A file under its final name was complete, synced and read back before it got that name.
//! - A torn or rotten snapshot, or one of another log, is named and passed over, never believed; recovery then has an older one, or a longer replay.
//! - What [`SnapshotWriter::oldest_verified`] names stays until a newer one is verified, so compaction may rely on it.

mod check;
mod error;
mod read;
mod retained;
mod work;
mod writer;

use std::ops::Range;

use ticktape_core::{Seq, is_service_name};

use crate::format::snapshot::BLOCK_BYTES;
pub use crate::format::snapshot::{SectionBytes, SnapshotDamage, SnapshotHeader, SnapshotMeta};
pub use error::SnapshotError;
pub use read::{
    Newest, check_log, list, list_on, newest, newest_on, purge_beyond, purge_beyond_on, read, read_header,
    read_header_on, read_on, verify, verify_on,
};
pub use writer::{SnapshotPace, SnapshotWriter};

/// Bytes written or read at once. Larger ones would stand in the way of a commit; smaller ones make it slower.
pub const CHUNK_BYTES: usize = 256 << 10;

/// Bytes written between two syncs, or cut at once off a file that goes: what a flush of the journal may have to wait for, at
/// most, on a disk with a cache.
pub const SYNC_SLICE_BYTES: u64 = 4 << 20;

const _: () = assert!(CHUNK_BYTES.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(SYNC_SLICE_BYTES.is_multiple_of(CHUNK_BYTES as u64));

/// The state after one frame: engine, service and output tails, encoded, back to back in one allocation.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot {
    meta: SnapshotMeta,
    sections: SectionBytes,
    body: Vec<u8>,
}

impl Snapshot {
    /// A snapshot of a body that holds exactly these sections, back to back. Nothing is copied.
    ///
    /// # Panics
    /// When the sections are not the body's length, the seq is none of a frame, or the name is
    /// [none](is_service_name).
    pub fn new(meta: SnapshotMeta, body: Vec<u8>, sections: SectionBytes) -> Snapshot {
        assert_eq!(sections.total(), Some(body.len() as u64), "the sections fill the body");
        assert!(meta.seq >= Seq::FIRST && meta.seq <= Seq::MAX, "a snapshot contains a frame");
        assert!(is_service_name(&meta.service_name), "service name {:?}", meta.service_name);
        Snapshot { meta, sections, body }
    }

    /// What it is of.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.meta
    }

    /// The sizes of its sections.
    pub fn sections(&self) -> SectionBytes {
        self.sections
    }

    /// The engine's state.
    pub fn engine(&self) -> &[u8] {
        &self.body[self.ranges()[0].clone()]
    }

    /// The service's state.
    pub fn service(&self) -> &[u8] {
        &self.body[self.ranges()[1].clone()]
    }

    /// What the state digest covers: the engine's state and the service's, back to back.
    pub fn digested(&self) -> &[u8] {
        &self.body[..self.ranges()[1].end]
    }

    /// The retained tails of the outputs.
    pub fn tails(&self) -> &[u8] {
        &self.body[self.ranges()[2].clone()]
    }

    /// All sections, back to back.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The allocation, to be used again.
    pub fn into_body(self) -> Vec<u8> {
        self.body
    }

    fn ranges(&self) -> [Range<usize>; 3] {
        let engine = self.sections.engine as usize;
        let service = engine + self.sections.service as usize;
        [0..engine, engine..service, service..self.body.len()]
    }

    fn header(&self, body_crc: u32) -> SnapshotHeader {
        SnapshotHeader { meta: self.meta.clone(), sections: self.sections, body_crc }
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("meta", &self.meta).field("sections", &self.sections).finish_non_exhaustive()
    }
}
