//! The segment header. WIRE.md, "Segment header, version 2" and "Segment header, version 1".
//!
//! Version 2, in the first block of the segment; the rest of the block is zero:
//!
//! | offset | size | field | type |
//! |---|---|---|---|
//! | 0 | 4 | magic | bytes `TKTJ` |
//! | 4 | 4 | version | u32 = 2 |
//! | 8 | 8 | first_seq | u64 |
//! | 16 | 8 | epoch | u64 |
//! | 24 | 8 | salt | u64 |
//! | 32 | 8 | previous_salt | u64 |
//! | 40 | 4 | previous_checksum | u32 |
//! | 44 | 4 | alignment | u32 |
//! | 48 | 4 | recycled | u32 |
//! | 52 | 8 | log_id | u64 |
//! | 60 | 4 | header_crc | u32 |

use std::fmt;

use ticktape_core::{Seq, crc32c};

use super::recycle::RecycleMark;
use super::{is_zero, put_u32, put_u64, u32_at, u64_at};
use crate::limits::{ALIGNMENT_BYTES_MAX, ALIGNMENT_BYTES_MIN};

/// The first four bytes of every segment.
pub const MAGIC: [u8; 4] = *b"TKTJ";
/// Offset of the magic.
pub const MAGIC_AT: usize = 0;
/// Offset of the format version.
pub const VERSION: usize = 4;
/// Offset of the seq of the segment's first frame.
pub const FIRST_SEQ: usize = 8;
/// Offset of the epoch in which the segment was begun.
pub const EPOCH: usize = 16;
/// Offset of the salt of this use of the file.
pub const SALT: usize = 24;
/// Offset of the salt of the segment before, 0 where there is none.
pub const PREVIOUS_SALT: usize = 32;
/// Offset of the checksum of the last commit of the segment before, 0 where there is none.
pub const PREVIOUS_CHECKSUM: usize = 40;
/// Offset of the block size that commits are aligned to.
pub const ALIGNMENT: usize = 44;
/// Offset of whether the file was used before: 1, and old commits may stand where none of this use does; else 0.
pub const RECYCLED: usize = 48;
/// Offset of the log's identity, 0 in segments from before there were such.
pub const LOG_ID: usize = 52;
/// Offset of the CRC32C of the bytes before it.
pub const HEADER_CRC: usize = 60;
/// Size of the version 2 header without its padding.
pub const HEADER_BYTES: usize = 64;

/// Offset of the CRC32C of the bytes before it in a version 1 header, whose fields before it stand as in version 2.
pub const V1_HEADER_CRC: usize = 24;
/// Size of a version 1 header; its frames follow at once, unpadded.
pub const V1_HEADER_BYTES: usize = 28;

/// The version that is written.
pub const VERSION_2: u32 = 2;
/// The older version, still read.
pub const VERSION_1: u32 = 1;

const _: () = assert!(LOG_ID + 8 == HEADER_CRC);
const _: () = assert!(HEADER_CRC + 4 == HEADER_BYTES && HEADER_BYTES <= ALIGNMENT_BYTES_MIN);
const _: () = assert!(V1_HEADER_CRC + 4 == V1_HEADER_BYTES);

/// What a segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The seq of its first frame.
    pub first_seq: Seq,
    /// The epoch in which it was begun.
    pub epoch: u64,
    /// Version 2 with its fields, or version 1.
    pub version: Version,
}

/// What only one version of the format has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Frames back to back, unpadded, no commits.
    One,
    /// Aligned commits.
    Two {
        /// Proves that a commit belongs to this use of the file. Never sent off the box.
        salt: u64,
        /// The salt of the segment before, 0 where there is none (or it is of version 1).
        previous_salt: u64,
        /// The checksum of the last commit of the segment before, 0 likewise.
        previous_checksum: u32,
        /// The block size in bytes that commits are aligned to.
        alignment: u32,
        /// Whether commits of an earlier use of the file may stand behind its own.
        recycled: bool,
        /// Which log it is a segment of; 0 where it was written before logs had identities.
        log_id: u64,
    },
}

/// Why the first block is not a segment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Nothing but zeros: no segment was begun here.
    Blank,
    /// The file ends before the header does.
    Short(usize),
    /// A recycle mark: what the file held was released, and no commit of a next use counts.
    Recycled,
    /// It does not begin with the magic.
    Magic,
    /// A version this program does not read.
    Version(u32),
    /// The checksum does not fit.
    Crc {
        /// The checksum that stands in the bytes.
        stored: u32,
        /// The checksum that the bytes have.
        computed: u32,
    },
    /// A field that no writer writes.
    Field(&'static str),
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            HeaderError::Blank => write!(f, "segment header is blank"),
            HeaderError::Short(bytes) => write!(f, "segment header is cut: {bytes} bytes"),
            HeaderError::Recycled => write!(f, "free to be used again: what it held was released"),
            HeaderError::Magic => write!(f, "not a segment: it does not begin with TKTJ"),
            HeaderError::Version(version) => write!(f, "segment version {version}, this program reads 1 and 2"),
            HeaderError::Crc { stored, computed } => {
                write!(f, "segment header checksum is {stored:08x}, its bytes have {computed:08x}")
            }
            HeaderError::Field(name) => write!(f, "segment header field {name} is out of range"),
        }
    }
}

impl std::error::Error for HeaderError {}

impl SegmentHeader {
    /// Writes a version 2 header over the whole of `block`, whose length is the alignment, and returns its checksum, with
    /// which the chain of commits begins.
    ///
    /// # Panics
    /// When it is a version 1 header: those are read, never written.
    pub fn encode(&self, block: &mut [u8]) -> u32 {
        let Version::Two { salt, previous_salt, previous_checksum, alignment, recycled, log_id } = self.version else {
            panic!("version 1 is not written");
        };
        assert_eq!(block.len(), alignment as usize, "the header fills one block");
        block.fill(0);
        block[MAGIC_AT..VERSION].copy_from_slice(&MAGIC);
        put_u32(block, VERSION, VERSION_2);
        put_u64(block, FIRST_SEQ, self.first_seq.0);
        put_u64(block, EPOCH, self.epoch);
        put_u64(block, SALT, salt);
        put_u64(block, PREVIOUS_SALT, previous_salt);
        put_u32(block, PREVIOUS_CHECKSUM, previous_checksum);
        put_u32(block, ALIGNMENT, alignment);
        put_u32(block, RECYCLED, u32::from(recycled));
        put_u64(block, LOG_ID, log_id);
        let crc = crc32c(&block[..HEADER_CRC]);
        put_u32(block, HEADER_CRC, crc);
        crc
    }

    /// Reads the header at the start of `block`: up to [`ALIGNMENT_BYTES_MAX`] bytes, or the whole file if it is shorter.
    ///
    /// # Errors
    /// [`HeaderError`], one variant a reason.
    pub fn decode(block: &[u8]) -> Result<SegmentHeader, HeaderError> {
        if is_zero(block) {
            return Err(HeaderError::Blank);
        }
        if block.len() < V1_HEADER_BYTES {
            return Err(HeaderError::Short(block.len()));
        }
        if block[MAGIC_AT..VERSION] != MAGIC {
            return Err(if RecycleMark::decode(block).is_some() { HeaderError::Recycled } else { HeaderError::Magic });
        }
        let version = match u32_at(block, VERSION) {
            VERSION_1 => {
                check_crc(block, V1_HEADER_CRC)?;
                Version::One
            }
            VERSION_2 => {
                if block.len() < HEADER_BYTES {
                    return Err(HeaderError::Short(block.len()));
                }
                check_crc(block, HEADER_CRC)?;
                decode_two(block)?
            }
            other => return Err(HeaderError::Version(other)),
        };
        let first_seq = Seq(u64_at(block, FIRST_SEQ));
        if first_seq == Seq::ZERO || first_seq > Seq::MAX {
            return Err(HeaderError::Field("first_seq"));
        }
        Ok(SegmentHeader { first_seq, epoch: u64_at(block, EPOCH), version })
    }

    /// The salt, 0 for version 1.
    pub fn salt(&self) -> u64 {
        match self.version {
            Version::One => 0,
            Version::Two { salt, .. } => salt,
        }
    }

    /// Which log it is a segment of, 0 where it does not say.
    pub fn log_id(&self) -> u64 {
        match self.version {
            Version::One => 0,
            Version::Two { log_id, .. } => log_id,
        }
    }

    /// The salt of the segment before, 0 for version 1.
    pub fn previous_salt(&self) -> u64 {
        match self.version {
            Version::One => 0,
            Version::Two { previous_salt, .. } => previous_salt,
        }
    }

    /// The checksum of the last commit of the segment before, 0 for version 1.
    pub fn previous_checksum(&self) -> u32 {
        match self.version {
            Version::One => 0,
            Version::Two { previous_checksum, .. } => previous_checksum,
        }
    }
}

/// The checksum that stands in a version 2 header's bytes.
pub fn stored_crc(block: &[u8]) -> u32 {
    u32_at(block, HEADER_CRC)
}

fn check_crc(block: &[u8], at: usize) -> Result<(), HeaderError> {
    let (stored, computed) = (u32_at(block, at), crc32c(&block[..at]));
    if stored == computed { Ok(()) } else { Err(HeaderError::Crc { stored, computed }) }
}

fn decode_two(block: &[u8]) -> Result<Version, HeaderError> {
    let alignment = u32_at(block, ALIGNMENT);
    let blocks = ALIGNMENT_BYTES_MIN..=ALIGNMENT_BYTES_MAX;
    if !alignment.is_power_of_two() || !blocks.contains(&(alignment as usize)) {
        return Err(HeaderError::Field("alignment"));
    }
    let salt = u64_at(block, SALT);
    if salt == 0 {
        return Err(HeaderError::Field("salt"));
    }
    let recycled = u32_at(block, RECYCLED);
    if recycled > 1 {
        return Err(HeaderError::Field("recycled"));
    }
    let end = block.len().min(alignment as usize);
    if !is_zero(&block[HEADER_BYTES..end]) {
        return Err(HeaderError::Field("padding"));
    }
    Ok(Version::Two {
        salt,
        previous_salt: u64_at(block, PREVIOUS_SALT),
        previous_checksum: u32_at(block, PREVIOUS_CHECKSUM),
        alignment,
        recycled: recycled == 1,
        log_id: u64_at(block, LOG_ID),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        let (salt, previous_salt, previous_checksum, log_id) = (7, 5, 3, 0x0102_0304_0506_0708);
        let version = Version::Two { salt, previous_salt, previous_checksum, alignment: 512, recycled: false, log_id };
        SegmentHeader { first_seq: Seq(9), epoch: 2, version }
    }

    #[test]
    fn what_is_written_reads_back_and_every_flipped_bit_is_noticed() {
        let mut block = [0; 512];
        let crc = header().encode(&mut block);
        assert_eq!(crc, stored_crc(&block));
        assert_eq!(SegmentHeader::decode(&block), Ok(header()));
        for bit in 0..block.len() * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&block).is_err(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn golden_bytes() {
        let mut block = [0; 512];
        header().encode(&mut block);
        let hex: String = block[..HEADER_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "544b544a0200000009000000000000000200000000000000070000000000000005000000000000000300000000020000000000000807060504030201a82c4f9d"
        );
    }

    #[test]
    fn a_version_1_header_of_another_program_reads() {
        let mut bytes = b"TKTJ\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x46\x84\x3b\xc8".to_vec();
        let header = SegmentHeader::decode(&bytes).unwrap();
        assert_eq!(header, SegmentHeader { first_seq: Seq(1), epoch: 0, version: Version::One });
        bytes[4] = 3;
        assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderError::Version(3)));
        assert_eq!(SegmentHeader::decode(&bytes[..9]), Err(HeaderError::Short(9)));
        assert_eq!(SegmentHeader::decode(&[]), Err(HeaderError::Blank));
    }
}
