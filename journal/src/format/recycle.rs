//! The recycle mark. WIRE.md, "Recycle mark".
//!
//! It takes the place of the header of a segment whose frames are released, within one sector, before the file gets another
//! name: from then on the file is free, whatever it is called. The old commits behind it stay; the salt tells which they are.
//!
//! | offset | size | field | type |
//! |---|---|---|---|
//! | 0 | 4 | magic | bytes `TKTR` |
//! | 4 | 4 | version | u32 = 2 |
//! | 8 | 8 | first_seq | u64 |
//! | 16 | 8 | salt | u64 |
//! | 24 | 4 | alignment | u32 |
//! | 28 | 4 | crc | u32 |

use ticktape_core::{Seq, crc32c};

use super::{put_u32, put_u64, u32_at, u64_at};
use crate::limits::ALIGNMENT_BYTES_MIN;

/// The first four bytes of a file that is free.
pub const MAGIC: [u8; 4] = *b"TKTR";
/// Offset of the magic.
pub const MAGIC_AT: usize = 0;
/// Offset of the format version.
pub const VERSION: usize = 4;
/// Offset of the first seq of the use that ended.
pub const FIRST_SEQ: usize = 8;
/// Offset of the salt of the use that ended.
pub const SALT: usize = 16;
/// Offset of the block size of every use of the file.
pub const ALIGNMENT: usize = 24;
/// Offset of the CRC32C of the bytes before it.
pub const CRC: usize = 28;
/// Size of the fields; zeros follow up to the end of the block.
pub const BYTES: usize = 32;

const VERSION_2: u32 = 2;

const _: () = assert!(CRC + 4 == BYTES && BYTES <= ALIGNMENT_BYTES_MIN);

/// What a file says whose last use is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecycleMark {
    /// The first seq it held.
    pub first_seq: Seq,
    /// The salt of the commits that are stale: a first commit with another one is of a use whose header was lost.
    pub salt: u64,
    /// The block size of those commits, and of any that follow: a file is not recycled across block sizes.
    pub alignment: u32,
}

impl RecycleMark {
    /// Writes the mark over the whole of `block`.
    pub fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        block[MAGIC_AT..VERSION].copy_from_slice(&MAGIC);
        put_u32(block, VERSION, VERSION_2);
        put_u64(block, FIRST_SEQ, self.first_seq.0);
        put_u64(block, SALT, self.salt);
        put_u32(block, ALIGNMENT, self.alignment);
        let crc = crc32c(&block[..CRC]);
        put_u32(block, CRC, crc);
    }

    /// The mark at the start of `block`, if a sound one stands there.
    pub fn decode(block: &[u8]) -> Option<RecycleMark> {
        let block = block.get(..BYTES)?;
        let sound = block[MAGIC_AT..VERSION] == MAGIC
            && u32_at(block, VERSION) == VERSION_2
            && u32_at(block, CRC) == crc32c(&block[..CRC]);
        sound.then(|| RecycleMark {
            first_seq: Seq(u64_at(block, FIRST_SEQ)),
            salt: u64_at(block, SALT),
            alignment: u32_at(block, ALIGNMENT),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::segment::{HeaderError, SegmentHeader};

    #[test]
    fn a_sound_mark_reads_back_and_a_damaged_one_is_none() {
        let mut block = [0xff; 512];
        let mark = RecycleMark { first_seq: Seq(42), salt: 7, alignment: 512 };
        mark.encode(&mut block);
        assert_eq!(RecycleMark::decode(&block), Some(mark));
        assert_eq!(SegmentHeader::decode(&block), Err(HeaderError::Recycled));
        for bit in 0..BYTES * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecycleMark::decode(&block), None, "bit {bit}");
            assert_eq!(SegmentHeader::decode(&block), Err(HeaderError::Magic), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(RecycleMark::decode(&block[..BYTES - 1]), None);
    }

    #[test]
    fn golden_bytes() {
        let mut block = [0; 512];
        RecycleMark { first_seq: Seq(9), salt: 7, alignment: 512 }.encode(&mut block);
        let hex: String = block[..BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "544b54520200000009000000000000000700000000000000000200006e28bfa3");
    }
}
