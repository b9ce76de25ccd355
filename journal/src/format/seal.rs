//! The seal file. WIRE.md, "Seal file".
//!
//! A clean stop writes it aside and renames it to `sealed`. It says what was durable then, so that a journal that was later
//! shortened is noticed, even where the seal commit went with the rest. What it says stays true while the journal grows.
//!
//! | offset | size | field | type |
//! |---|---|---|---|
//! | 0 | 4 | magic | bytes `TKTS` |
//! | 4 | 4 | version | u32 = 2 |
//! | 8 | 8 | durable | u64 |
//! | 16 | 4 | crc | u32 |

use ticktape_core::{Seq, crc32c};

use super::{put_u32, put_u64, u32_at, u64_at};

/// The first four bytes of the file.
pub const MAGIC: [u8; 4] = *b"TKTS";
/// Offset of the magic.
pub const MAGIC_AT: usize = 0;
/// Offset of the format version.
pub const VERSION: usize = 4;
/// Offset of the seq that was durable.
pub const DURABLE: usize = 8;
/// Offset of the CRC32C of the bytes before it.
pub const CRC: usize = 16;
/// Size of the fields; zeros may follow.
pub const BYTES: usize = 20;

const VERSION_2: u32 = 2;

/// Writes the seal over the whole of `block`.
pub fn encode(durable: Seq, block: &mut [u8]) {
    block.fill(0);
    block[MAGIC_AT..VERSION].copy_from_slice(&MAGIC);
    put_u32(block, VERSION, VERSION_2);
    put_u64(block, DURABLE, durable.0);
    let crc = crc32c(&block[..CRC]);
    put_u32(block, CRC, crc);
}

/// What was durable, if `block` begins with a sound seal. A damaged one proves nothing and costs nothing.
pub fn decode(block: &[u8]) -> Option<Seq> {
    let block = block.get(..BYTES)?;
    let sound = block[MAGIC_AT..VERSION] == MAGIC
        && u32_at(block, VERSION) == VERSION_2
        && u32_at(block, CRC) == crc32c(&block[..CRC]);
    sound.then(|| Seq(u64_at(block, DURABLE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sound_seal_reads_back_and_a_damaged_one_is_nothing() {
        let mut block = [0xff; 512];
        encode(Seq(42), &mut block);
        assert_eq!(decode(&block), Some(Seq(42)));
        for bit in 0..BYTES * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&block), None, "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(decode(&block[..BYTES - 1]), None);
    }
}
