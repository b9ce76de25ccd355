//! The seal file. WIRE.md, "Seal file".
//!
//! A clean stop writes it aside and renames it to `sealed`. It says what was durable then, so that a journal that was later
//! shortened is noticed, even where the seal commit went with the rest. What it says stays true while the journal grows.
//! Every opening writes it, too: then it also announces the salt of the segment that is begun next.
//!
//! | offset | size | field | type |
//! |---|---|---|---|
//! | 0 | 4 | magic | bytes `TKTS` |
//! | 4 | 4 | version | u32 = 3 |
//! | 8 | 8 | durable | u64 |
//! | 16 | 8 | next_salt | u64 |
//! | 24 | 4 | crc | u32 |
//!
//! Version 2, still read, has its crc in the place of `next_salt`, and announces none.

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
/// Offset of the salt that the segment begun next will have, 0 where none is announced.
pub const NEXT_SALT: usize = 16;
/// Offset of the CRC32C of the bytes before it.
pub const CRC: usize = 24;
/// Size of the fields; zeros may follow.
pub const BYTES: usize = 28;

/// Offset of the CRC32C of the bytes before it in version 2, whose fields before it stand as in version 3.
pub const V2_CRC: usize = 16;
/// Size of a version 2 seal.
pub const V2_BYTES: usize = 20;

/// The version that is written.
pub const VERSION_3: u32 = 3;
/// The older version, still read.
pub const VERSION_2: u32 = 2;

const _: () = assert!(NEXT_SALT + 8 == CRC && CRC + 4 == BYTES && V2_CRC + 4 == V2_BYTES);

/// What a seal file says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sealed {
    /// Up to here everything was durable.
    pub durable: Seq,
    /// The salt of the segment that begins right after what was there when it was written; 0 where none is announced. Never sent off
    /// the box.
    pub next_salt: u64,
}

impl Sealed {
    /// Writes it over the whole of `block`.
    pub fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        block[MAGIC_AT..VERSION].copy_from_slice(&MAGIC);
        put_u32(block, VERSION, VERSION_3);
        put_u64(block, DURABLE, self.durable.0);
        put_u64(block, NEXT_SALT, self.next_salt);
        let crc = crc32c(&block[..CRC]);
        put_u32(block, CRC, crc);
    }

    /// What `block` begins with, if that is a sound seal. A damaged one proves nothing and costs nothing.
    pub fn decode(block: &[u8]) -> Option<Sealed> {
        if block.len() < V2_BYTES || block[MAGIC_AT..VERSION] != MAGIC {
            return None;
        }
        let crc_at = match u32_at(block, VERSION) {
            VERSION_2 => V2_CRC,
            VERSION_3 if block.len() >= BYTES => CRC,
            _ => return None,
        };
        let sound = u32_at(block, crc_at) == crc32c(&block[..crc_at]);
        let next_salt = if crc_at == CRC { u64_at(block, NEXT_SALT) } else { 0 };
        sound.then(|| Sealed { durable: Seq(u64_at(block, DURABLE)), next_salt })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sound_seal_reads_back_and_a_damaged_one_is_nothing() {
        let mut block = [0xff; 512];
        let sealed = Sealed { durable: Seq(42), next_salt: 7 };
        sealed.encode(&mut block);
        assert_eq!(Sealed::decode(&block), Some(sealed));
        for bit in 0..BYTES * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Sealed::decode(&block), None, "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
        (0..BYTES).for_each(|cut| assert_eq!(Sealed::decode(&block[..cut]), None, "cut at {cut}"));
    }

    #[test]
    fn a_seal_of_version_2_announces_nothing() {
        let mut bytes = b"TKTS\x02\0\0\0\x2a\0\0\0\0\0\0\0\xe7\x7c\xe6\x6c".to_vec();
        let sealed = Sealed { durable: Seq(42), next_salt: 0 };
        assert_eq!(Sealed::decode(&bytes), Some(sealed));
        assert_eq!(Sealed::decode(&bytes[..V2_BYTES - 1]), None);
        bytes.extend([0xff; 8]);
        assert_eq!(Sealed::decode(&bytes), Some(sealed), "what follows is none of it");
        bytes[8] ^= 1;
        assert_eq!(Sealed::decode(&bytes), None);
    }

    #[test]
    fn golden_bytes() {
        let mut block = [0; 512];
        Sealed { durable: Seq(42), next_salt: 7 }.encode(&mut block);
        let hex: String = block[..BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "544b5453030000002a000000000000000700000000000000c73c4a5f");
    }
}
