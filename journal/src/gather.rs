//! Commits on their way into a buffer.

use ticktape_core::Seq;

use crate::disk::BufferId;
use crate::format::commit;
use crate::limits::ALIGNMENT_BYTES_MAX;

/// Where in its buffer a commit begins: before it there is room for a segment header, so that a segment's header and its
/// first commit go out in one write.
pub(crate) const LEAD_BYTES: usize = ALIGNMENT_BYTES_MAX;

/// A commit that is being filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gather {
    pub(crate) buffer: BufferId,
    pub(crate) epoch: u64,
    pub(crate) base_seq: Seq,
    pub(crate) count: u32,
    /// Bytes of frames so far.
    pub(crate) length: usize,
}

impl Gather {
    pub(crate) fn new(buffer: BufferId, epoch: u64, base_seq: Seq) -> Gather {
        Gather { buffer, epoch, base_seq, count: 0, length: 0 }
    }

    /// Whether `padded_bytes` more fit in a commit of at most `commit_bytes_max`, whatever the alignment.
    #[inline]
    pub(crate) fn fits(&self, padded_bytes: usize, commit_bytes_max: usize) -> bool {
        commit::HEADER_BYTES + self.length + padded_bytes <= commit_bytes_max
    }

    /// Where in the buffer the next frame goes.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        LEAD_BYTES + commit::HEADER_BYTES + self.length
    }
}
