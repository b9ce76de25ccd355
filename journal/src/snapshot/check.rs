//! Checking a snapshot as its bytes come by: no I/O, and no memory but one block's header.

use ticktape_core::crc32c_append;

use super::CHUNK_BYTES;
use crate::format::is_zero;
use crate::format::snapshot::{BLOCK_BYTES, SnapshotDamage, SnapshotHeader};

/// Is given a file from its beginning to its end, and says whether it is sound.
#[derive(Clone, Debug)]
pub(super) struct Check {
    file_bytes: u64,
    at: u64,
    header: Option<SnapshotHeader>,
    crc: u32,
    padding_is_zero: bool,
}

impl Check {
    /// Of a file of this size.
    pub(super) fn new(file_bytes: u64) -> Check {
        Check { file_bytes, at: 0, header: None, crc: 0, padding_is_zero: true }
    }

    /// Where the next bytes are to be read.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// How many to read there: whole blocks, first the header's, then chunks; 0 when all were seen.
    pub(super) fn wanted(&self) -> usize {
        match self.header {
            None => BLOCK_BYTES,
            Some(_) => (self.file_bytes - self.at).min(CHUNK_BYTES as u64) as usize,
        }
    }

    /// What the header says, once it was seen.
    pub(super) fn header(&self) -> Option<&SnapshotHeader> {
        self.header.as_ref()
    }

    /// Takes what was read where it was wanted; a short read is gone on from where its last whole block ends. Returns how many
    /// bytes of `bytes` were sections, from its beginning.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<usize, SnapshotDamage> {
        assert!(bytes.len() <= self.wanted(), "no more than was wanted");
        let Some(header) = &self.header else {
            self.header = Some(SnapshotHeader::decode(bytes, self.file_bytes)?);
            self.at = BLOCK_BYTES as u64;
            return Ok(0);
        };
        let bytes = &bytes[..bytes.len() - bytes.len() % BLOCK_BYTES];
        if bytes.is_empty() && self.at < self.file_bytes {
            // It was longer when it was opened.
            return Err(SnapshotDamage::Size { expected: self.file_bytes, actual: self.at });
        }
        let sections_end = BLOCK_BYTES as u64 + header.body_bytes();
        let of_sections = sections_end.saturating_sub(self.at).min(bytes.len() as u64) as usize;
        self.crc = crc32c_append(self.crc, bytes);
        self.padding_is_zero &= is_zero(&bytes[of_sections..]);
        self.at += bytes.len() as u64;
        Ok(of_sections)
    }

    /// The header of a file all of which was seen, if it is sound.
    pub(super) fn finish(self) -> Result<SnapshotHeader, SnapshotDamage> {
        assert_eq!(self.at, self.file_bytes, "all of it was seen");
        let header = self.header.expect("its first block was seen");
        if header.body_crc != self.crc {
            return Err(SnapshotDamage::BodyCrc { stored: header.body_crc, computed: self.crc });
        }
        if !self.padding_is_zero {
            return Err(SnapshotDamage::Padding { at: BLOCK_BYTES as u64 + header.body_bytes() });
        }
        Ok(header)
    }
}
