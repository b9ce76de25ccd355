//! The commit header. WIRE.md, "Commit".
//!
//! A commit starts on the segment's alignment. After the header come the frames as they stand in the ring, each padded to
//! 8 bytes, then zeros up to the alignment. A commit of no frames is a seal: it only carries `durable`.
//!
//! | offset | size | field | type |
//! |---|---|---|---|
//! | 0 | 4 | magic | bytes `TKTC` |
//! | 4 | 4 | checksum | u32 |
//! | 8 | 8 | salt | u64 |
//! | 16 | 8 | epoch | u64 |
//! | 24 | 8 | base_seq | u64 |
//! | 32 | 8 | durable | u64 |
//! | 40 | 4 | count | u32 |
//! | 44 | 4 | length | u32 |
//! | 48 | 4 | previous | u32 |
//! | 52 | 4 | reserved | zeros |
//! | 56 | 8 | next_salt | u64 |

use std::fmt;

use ticktape_core::{Seq, crc32c};

use super::{align_up, is_zero, put_u32, put_u64, u32_at, u64_at};
use crate::limits::COMMIT_BYTES_MAX;

/// The first four bytes of every commit.
pub const MAGIC: [u8; 4] = *b"TKTC";
/// Offset of the magic.
pub const MAGIC_AT: usize = 0;
/// Offset of the CRC32C over everything after it: header, frames and padding.
pub const CHECKSUM: usize = 4;
/// Offset of the salt, which is the segment's.
pub const SALT: usize = 8;
/// Offset of the epoch of all its frames.
pub const EPOCH: usize = 16;
/// Offset of the seq of its first frame; of a seal, the seq that the next frame will have.
pub const BASE_SEQ: usize = 24;
/// Offset of the seq up to which everything was durable when this commit was submitted.
pub const DURABLE: usize = 32;
/// Offset of the number of frames.
pub const COUNT: usize = 40;
/// Offset of the bytes of all frames, each padded to 8; without header and final padding.
pub const LENGTH: usize = 44;
/// Offset of the checksum of the commit before it; of a segment's first, the segment header's CRC.
pub const PREVIOUS: usize = 48;
/// Offset of the reserved bytes.
pub const RESERVED: usize = 52;
/// Offset of the salt that the next segment will have, 0 where none is announced.
pub const NEXT_SALT: usize = 56;
/// Size of the header; the frames follow.
pub const HEADER_BYTES: usize = 64;

const CHECKED_FROM: usize = CHECKSUM + 4;
const _: () = assert!(RESERVED + 4 == NEXT_SALT && NEXT_SALT + 8 == HEADER_BYTES && CHECKED_FROM == SALT);

/// The header of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitHeader {
    /// The segment's salt.
    pub salt: u64,
    /// The epoch of its frames.
    pub epoch: u64,
    /// The seq of its first frame, or that the next frame will have.
    pub base_seq: Seq,
    /// What was durable when it was submitted.
    pub durable: Seq,
    /// How many frames it holds; 0 in a seal.
    pub count: u32,
    /// Bytes of all frames, each padded to 8.
    pub length: u32,
    /// Checksum of the commit before.
    pub previous: u32,
    /// The salt that the next segment will have: what proves that its commits are evidence, should its beginning be lost. 0 in commits
    /// from before there were such. Never sent off the box.
    pub next_salt: u64,
}

/// Why bytes are not the commit that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitError {
    /// The block is all zeros: nothing was written here.
    Blank,
    /// The file ends before the commit does.
    Short,
    /// It does not begin with the magic.
    Magic,
    /// A length that no writer writes.
    Length(u32),
    /// The checksum does not fit.
    Checksum {
        /// The checksum that stands in the bytes.
        stored: u32,
        /// The checksum that the bytes have.
        computed: u32,
    },
    /// Of another use of this file.
    Salt,
    /// It does not follow the commit before it.
    Previous,
    /// A field that no writer writes here.
    Field(&'static str),
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            CommitError::Blank => write!(f, "nothing was written here"),
            CommitError::Short => write!(f, "commit is cut by the end of the file"),
            CommitError::Magic => write!(f, "not a commit: it does not begin with TKTC"),
            CommitError::Length(length) => write!(f, "commit length {length} is out of range"),
            CommitError::Checksum { stored, computed } => {
                write!(f, "commit checksum is {stored:08x}, its bytes have {computed:08x}")
            }
            CommitError::Salt => write!(f, "commit of an earlier use of the file"),
            CommitError::Previous => write!(f, "commit does not follow the one before it"),
            CommitError::Field(name) => write!(f, "commit field {name} is out of range"),
        }
    }
}

impl std::error::Error for CommitError {}

impl CommitHeader {
    /// Bytes of the whole commit on a segment of this `alignment`.
    #[inline]
    pub const fn total_bytes(&self, alignment: usize) -> usize {
        total_bytes(self.length as usize, alignment)
    }

    /// The seq after its last frame.
    #[inline]
    pub const fn next_seq(&self) -> Seq {
        Seq(self.base_seq.0 + self.count as u64)
    }

    /// Completes `commit`, which already holds the frames behind room for the header and zeros up to its end, and returns
    /// the checksum.
    pub fn seal(&self, commit: &mut [u8]) -> u32 {
        commit[MAGIC_AT..CHECKSUM].copy_from_slice(&MAGIC);
        put_u64(commit, SALT, self.salt);
        put_u64(commit, EPOCH, self.epoch);
        put_u64(commit, BASE_SEQ, self.base_seq.0);
        put_u64(commit, DURABLE, self.durable.0);
        put_u32(commit, COUNT, self.count);
        put_u32(commit, LENGTH, self.length);
        put_u32(commit, PREVIOUS, self.previous);
        commit[RESERVED..NEXT_SALT].fill(0);
        put_u64(commit, NEXT_SALT, self.next_salt);
        let checksum = crc32c(&commit[CHECKED_FROM..]);
        put_u32(commit, CHECKSUM, checksum);
        checksum
    }

    /// Bytes that the commit at the start of `bytes` declares; nothing is verified but that a writer could have written it.
    ///
    /// # Errors
    /// [`CommitError`]: blank, cut, no magic, or an impossible length.
    #[inline]
    pub fn declared_bytes(bytes: &[u8], alignment: usize) -> Result<usize, CommitError> {
        let Some(head) = bytes.get(..HEADER_BYTES) else {
            return Err(if is_zero(bytes) { CommitError::Blank } else { CommitError::Short });
        };
        if head[MAGIC_AT..CHECKSUM] != MAGIC {
            let block = &bytes[..bytes.len().min(alignment)];
            let blank = is_zero(block);
            return Err(if blank { CommitError::Blank } else { CommitError::Magic });
        }
        let length = u32_at(head, LENGTH);
        let total = total_bytes(length as usize, alignment);
        if !length.is_multiple_of(8) || total > COMMIT_BYTES_MAX {
            return Err(CommitError::Length(length));
        }
        Ok(total)
    }

    /// Reads and verifies the commit at the start of `bytes`: checksum first, then the fields. Returns it with its checksum.
    ///
    /// # Errors
    /// [`CommitError`], one variant a reason; [`CommitError::Short`] also when `bytes` merely ends too early.
    #[inline]
    pub fn decode(bytes: &[u8], alignment: usize) -> Result<(CommitHeader, u32), CommitError> {
        let total = CommitHeader::declared_bytes(bytes, alignment)?;
        let commit = bytes.get(..total).ok_or(CommitError::Short)?;
        let (stored, computed) = (u32_at(commit, CHECKSUM), crc32c(&commit[CHECKED_FROM..]));
        if stored != computed {
            return Err(CommitError::Checksum { stored, computed });
        }
        let header = CommitHeader {
            salt: u64_at(commit, SALT),
            epoch: u64_at(commit, EPOCH),
            base_seq: Seq(u64_at(commit, BASE_SEQ)),
            durable: Seq(u64_at(commit, DURABLE)),
            count: u32_at(commit, COUNT),
            length: u32_at(commit, LENGTH),
            previous: u32_at(commit, PREVIOUS),
            next_salt: u64_at(commit, NEXT_SALT),
        };
        header.check(commit)?;
        Ok((header, computed))
    }

    fn check(&self, commit: &[u8]) -> Result<(), CommitError> {
        if !is_zero(&commit[RESERVED..NEXT_SALT]) {
            return Err(CommitError::Field("reserved"));
        }
        if self.base_seq == Seq::ZERO || self.base_seq.0 > Seq::MAX.0 - u64::from(self.count) {
            return Err(CommitError::Field("base_seq"));
        }
        if self.durable >= self.base_seq {
            return Err(CommitError::Field("durable"));
        }
        // Every frame takes at least its overhead; a count beyond that is a lie.
        let least = u64::from(self.count) * ticktape_core::frame::OVERHEAD_BYTES as u64;
        if least > u64::from(self.length) || (self.count == 0) != (self.length == 0) {
            return Err(CommitError::Field("count"));
        }
        Ok(())
    }
}

/// Bytes of a commit with `length` bytes of padded frames.
#[inline]
pub const fn total_bytes(length: usize, alignment: usize) -> usize {
    align_up(HEADER_BYTES + length, alignment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (CommitHeader, Vec<u8>) {
        let (count, length, previous, next_salt) = (1, 40, 9, 11);
        let (base_seq, durable) = (Seq(5), Seq(3));
        let header = CommitHeader { salt: 7, epoch: 1, base_seq, durable, count, length, previous, next_salt };
        let mut commit = vec![0; header.total_bytes(512)];
        commit[HEADER_BYTES..HEADER_BYTES + 40].fill(0xa5);
        header.seal(&mut commit);
        (header, commit)
    }

    #[test]
    fn what_is_sealed_reads_back_and_every_flipped_bit_is_noticed() {
        let (header, mut commit) = sample();
        assert_eq!(CommitHeader::decode(&commit, 512).unwrap().0, header);
        for bit in 0..commit.len() * 8 {
            commit[bit / 8] ^= 1 << (bit % 8);
            assert!(CommitHeader::decode(&commit, 512).is_err(), "bit {bit}");
            commit[bit / 8] ^= 1 << (bit % 8);
        }
        for cut in 0..commit.len() {
            assert!(CommitHeader::decode(&commit[..cut], 512).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn blank_is_told_from_damage() {
        assert_eq!(CommitHeader::decode(&[0; 512], 512), Err(CommitError::Blank));
        assert_eq!(CommitHeader::decode(&[], 512), Err(CommitError::Blank));
        let mut block = [0; 512];
        block[511] = 1;
        assert_eq!(CommitHeader::decode(&block, 512), Err(CommitError::Magic));
    }

    #[test]
    fn fields_no_writer_writes_are_refused_even_with_a_good_checksum() {
        let (header, mut commit) = sample();
        for (name, bad) in [
            ("durable", CommitHeader { durable: Seq(5), ..header }),
            ("base_seq", CommitHeader { base_seq: Seq(0), ..header }),
            ("base_seq", CommitHeader { base_seq: Seq::MAX, ..header }),
            ("count", CommitHeader { count: 2, ..header }),
            ("count", CommitHeader { count: 0, ..header }),
        ] {
            bad.seal(&mut commit);
            assert_eq!(CommitHeader::decode(&commit, 512), Err(CommitError::Field(name)));
        }
        CommitHeader { length: 41, ..header }.seal(&mut commit);
        assert_eq!(CommitHeader::decode(&commit, 512), Err(CommitError::Length(41)));
        CommitHeader { length: u32::MAX - 7, ..header }.seal(&mut commit);
        assert_eq!(CommitHeader::decode(&commit, 512), Err(CommitError::Length(u32::MAX - 7)));
    }

    #[test]
    fn a_reserved_byte_is_refused_and_no_announcement_is_none() {
        let (header, mut commit) = sample();
        commit[RESERVED + 3] = 1;
        let checksum = crc32c(&commit[CHECKED_FROM..]);
        put_u32(&mut commit, CHECKSUM, checksum);
        assert_eq!(CommitHeader::decode(&commit, 512), Err(CommitError::Field("reserved")));
        let header = CommitHeader { next_salt: 0, ..header };
        header.seal(&mut commit);
        assert_eq!(CommitHeader::decode(&commit, 512).unwrap().0, header);
    }
}
