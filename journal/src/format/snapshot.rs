//! The snapshot file's header. WIRE.md, "Snapshot".
//!
//! It stands in the first block of the file, the rest of which is zero; the body follows: the sections engine, service and
//! tails back to back, then zeros up to a whole block.
//!
//! | offset | size | field | type |
//! |---|---|---|---|
//! | 0 | 4 | magic | bytes `TKTP` |
//! | 4 | 4 | version | u32 = 1 |
//! | 8 | 8 | seq | u64 |
//! | 16 | 8 | timestamp | u64 |
//! | 24 | 8 | epoch | u64 |
//! | 32 | 32 | state_digest | bytes |
//! | 64 | 8 | output_hash | u64 |
//! | 72 | 8 | engine_bytes | u64 |
//! | 80 | 8 | service_bytes | u64 |
//! | 88 | 8 | tails_bytes | u64 |
//! | 96 | 4 | body_crc | u32 |
//! | 100 | 4 | schema_version | u32 |
//! | 104 | 4 | name_bytes | u32 |
//! | 108 | 64 | service_name | bytes, zero-padded |
//! | 172 | 8 | log_id | u64 |
//! | 180 | 72 | reserved | zeros |
//! | 252 | 4 | header_crc | u32 |

use std::fmt;

use ticktape_core::{Seq, Timestamp, crc32c, is_service_name};

use super::{is_zero, put_u32, put_u64, u32_at, u64_at};
use crate::limits::ALIGNMENT_BYTES_MAX;

/// The first four bytes of every snapshot.
pub const MAGIC: [u8; 4] = *b"TKTP";
/// Offset of the magic.
pub const MAGIC_AT: usize = 0;
/// Offset of the format version.
pub const VERSION: usize = 4;
/// Offset of the seq of the last frame that the state contains.
pub const SEQ: usize = 8;
/// Offset of the sequenced time there.
pub const TIMESTAMP: usize = 16;
/// Offset of the epoch there.
pub const EPOCH: usize = 24;
/// Offset of the SHA-256 of the engine section followed by the service section.
pub const STATE_DIGEST: usize = 32;
/// Offset of the rolling hash of all outputs up to there.
pub const OUTPUT_HASH: usize = 64;
/// Offset of the size of the engine section.
pub const ENGINE_BYTES: usize = 72;
/// Offset of the size of the service section.
pub const SERVICE_BYTES: usize = 80;
/// Offset of the size of the tails section.
pub const TAILS_BYTES: usize = 88;
/// Offset of the CRC32C of the body, its padding included.
pub const BODY_CRC: usize = 96;
/// Offset of the version of the service's state.
pub const SCHEMA_VERSION: usize = 100;
/// Offset of the length of the service's name.
pub const NAME_BYTES: usize = 104;
/// Offset of the service's name, padded with zeros.
pub const SERVICE_NAME: usize = 108;
/// Offset of the log's identity, 0 in snapshots from before there were such.
pub const LOG_ID: usize = 172;
/// Offset of the reserved bytes.
pub const RESERVED: usize = 180;
/// Offset of the CRC32C of the bytes before it.
pub const HEADER_CRC: usize = 252;
/// Size of the header without its padding.
pub const HEADER_BYTES: usize = 256;

/// The block that the header fills and that the body is padded to, in bytes: it suits every direct-I/O alignment.
pub const BLOCK_BYTES: usize = ALIGNMENT_BYTES_MAX;
/// The version that is written and read.
pub const VERSION_1: u32 = 1;
/// The longest service name, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = LOG_ID - SERVICE_NAME;
/// The largest body, padding included: more than any state that is kept in memory, and far below where sums wrap.
pub const BODY_BYTES_MAX: u64 = 1 << 40;

const _: () = assert!(BLOCK_BYTES == 4096 && HEADER_BYTES <= BLOCK_BYTES);
const _: () = assert!(STATE_DIGEST + 32 == OUTPUT_HASH && NAME_BYTES + 4 == SERVICE_NAME && NAME_BYTES_MAX == 64);
const _: () = assert!(HEADER_CRC + 4 == HEADER_BYTES && LOG_ID + 8 == RESERVED && RESERVED < HEADER_CRC);
const _: () = assert!(BODY_BYTES_MAX.is_multiple_of(BLOCK_BYTES as u64));

/// What a snapshot is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotMeta {
    /// The last frame that the state contains.
    pub seq: Seq,
    /// The sequenced time there.
    pub timestamp: Timestamp,
    /// The epoch there.
    pub epoch: u64,
    /// SHA-256 of the engine section followed by the service section. The journal carries it and does not compute it.
    pub state_digest: [u8; 32],
    /// The rolling hash of all outputs up to there.
    pub output_hash: u64,
    /// The version of the service's state.
    pub schema_version: u32,
    /// The service's name, at most [`NAME_BYTES_MAX`] bytes.
    pub service_name: String,
    /// Which log it is a snapshot of; 0 where that log had no identity yet.
    pub log_id: u64,
}

/// The sizes of a body's sections, in bytes, in the order in which they stand there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectionBytes {
    /// The engine's state.
    pub engine: u64,
    /// The service's state.
    pub service: u64,
    /// The retained tails of the outputs.
    pub tails: u64,
}

impl SectionBytes {
    /// All of them together; `None` above [`BODY_BYTES_MAX`].
    pub fn total(&self) -> Option<u64> {
        let total = self.engine.checked_add(self.service)?.checked_add(self.tails)?;
        (total <= BODY_BYTES_MAX).then_some(total)
    }
}

/// What the header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// What it is a snapshot of.
    pub meta: SnapshotMeta,
    /// The sizes of the sections.
    pub sections: SectionBytes,
    /// CRC32C of the body, its padding included.
    pub body_crc: u32,
}

/// Why a file is not a sound snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotDamage {
    /// The first block is nothing but zeros: it was lost, or never written.
    Blank,
    /// The file ends before the header does; its size.
    Short(u64),
    /// It does not begin with the magic.
    Magic,
    /// A version this program does not read.
    Version(u32),
    /// The header's checksum does not fit.
    HeaderCrc {
        /// The checksum that stands in the bytes.
        stored: u32,
        /// The checksum that the bytes have.
        computed: u32,
    },
    /// A field that no writer writes.
    Field {
        /// Its name.
        name: &'static str,
        /// Its offset.
        at: usize,
    },
    /// The sections take another size of file.
    Size {
        /// What they take, in bytes.
        expected: u64,
        /// What there is, in bytes.
        actual: u64,
    },
    /// The body's checksum does not fit.
    BodyCrc {
        /// The checksum that stands in the header.
        stored: u32,
        /// The checksum that the body has.
        computed: u32,
    },
    /// The bytes between the end of the sections and the end of the file are not zeros.
    Padding {
        /// Where the sections end.
        at: u64,
    },
}

impl SnapshotDamage {
    /// Where in the file it was met, in bytes.
    pub fn offset(&self) -> u64 {
        match *self {
            SnapshotDamage::Blank | SnapshotDamage::Magic => MAGIC_AT as u64,
            SnapshotDamage::Short(bytes) => bytes,
            SnapshotDamage::Version(_) => VERSION as u64,
            SnapshotDamage::HeaderCrc { .. } => HEADER_CRC as u64,
            SnapshotDamage::Field { at, .. } => at as u64,
            SnapshotDamage::Size { expected, actual } => expected.min(actual),
            SnapshotDamage::BodyCrc { .. } => BLOCK_BYTES as u64,
            SnapshotDamage::Padding { at } => at,
        }
    }
}

impl fmt::Display for SnapshotDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SnapshotDamage::Blank => write!(f, "snapshot header is blank"),
            SnapshotDamage::Short(bytes) => write!(f, "snapshot header is cut: {bytes} bytes"),
            SnapshotDamage::Magic => write!(f, "not a snapshot: it does not begin with TKTP"),
            SnapshotDamage::Version(version) => write!(f, "snapshot version {version}, this program reads 1"),
            SnapshotDamage::HeaderCrc { stored, computed } => {
                write!(f, "snapshot header checksum is {stored:08x}, its bytes have {computed:08x}")
            }
            SnapshotDamage::Field { name, .. } => write!(f, "snapshot header field {name} is out of range"),
            SnapshotDamage::Size { expected, actual } => {
                write!(f, "the file has {actual} bytes, its sections take {expected}")
            }
            SnapshotDamage::BodyCrc { stored, computed } => {
                write!(f, "body checksum is {stored:08x}, its bytes have {computed:08x}")
            }
            SnapshotDamage::Padding { .. } => write!(f, "the padding after the sections is not zero"),
        }
    }
}

impl std::error::Error for SnapshotDamage {}

impl SnapshotHeader {
    /// Writes the header over the whole of `block`, of [`BLOCK_BYTES`].
    ///
    /// # Panics
    /// For a block of another size, or fields that [`SnapshotHeader::decode`] would refuse.
    pub fn encode(&self, block: &mut [u8]) {
        let (meta, sections, name) = (&self.meta, &self.sections, self.meta.service_name.as_bytes());
        assert_eq!(block.len(), BLOCK_BYTES, "the header fills one block");
        assert!(meta.seq >= Seq::FIRST && meta.seq <= Seq::MAX, "a snapshot contains a frame");
        assert!(is_service_name(&meta.service_name), "service name {:?}", meta.service_name);
        assert!(sections.total().is_some(), "a body of at most {BODY_BYTES_MAX} bytes");
        block.fill(0);
        block[MAGIC_AT..VERSION].copy_from_slice(&MAGIC);
        put_u32(block, VERSION, VERSION_1);
        put_u64(block, SEQ, meta.seq.0);
        put_u64(block, TIMESTAMP, meta.timestamp.0);
        put_u64(block, EPOCH, meta.epoch);
        block[STATE_DIGEST..OUTPUT_HASH].copy_from_slice(&meta.state_digest);
        put_u64(block, OUTPUT_HASH, meta.output_hash);
        put_u64(block, ENGINE_BYTES, sections.engine);
        put_u64(block, SERVICE_BYTES, sections.service);
        put_u64(block, TAILS_BYTES, sections.tails);
        put_u32(block, BODY_CRC, self.body_crc);
        put_u32(block, SCHEMA_VERSION, meta.schema_version);
        put_u32(block, NAME_BYTES, name.len() as u32);
        block[SERVICE_NAME..SERVICE_NAME + name.len()].copy_from_slice(name);
        put_u64(block, LOG_ID, meta.log_id);
        let crc = crc32c(&block[..HEADER_CRC]);
        put_u32(block, HEADER_CRC, crc);
    }

    /// Reads the header at the start of `block`, the first [`BLOCK_BYTES`] of a file of `file_bytes`, or all of a shorter one.
    /// The body is not looked at.
    ///
    /// # Errors
    /// [`SnapshotDamage`], in this order: magic, version, checksum, fields, the file's size.
    pub fn decode(block: &[u8], file_bytes: u64) -> Result<SnapshotHeader, SnapshotDamage> {
        if block.len() < HEADER_BYTES {
            return Err(SnapshotDamage::Short(block.len() as u64));
        }
        if is_zero(block) {
            return Err(SnapshotDamage::Blank);
        }
        if block[MAGIC_AT..VERSION] != MAGIC {
            return Err(SnapshotDamage::Magic);
        }
        if u32_at(block, VERSION) != VERSION_1 {
            return Err(SnapshotDamage::Version(u32_at(block, VERSION)));
        }
        let (stored, computed) = (u32_at(block, HEADER_CRC), crc32c(&block[..HEADER_CRC]));
        if stored != computed {
            return Err(SnapshotDamage::HeaderCrc { stored, computed });
        }
        let header = decode_fields(block)?;
        let expected = header.file_bytes();
        if expected != file_bytes {
            return Err(SnapshotDamage::Size { expected, actual: file_bytes });
        }
        Ok(header)
    }

    /// The size of the sections, in bytes.
    pub fn body_bytes(&self) -> u64 {
        self.sections.total().expect("checked when it was read or made")
    }

    /// The size of the file, in bytes.
    pub fn file_bytes(&self) -> u64 {
        BLOCK_BYTES as u64 + self.body_bytes().next_multiple_of(BLOCK_BYTES as u64)
    }
}

/// The fields of a header whose checksum fits.
fn decode_fields(block: &[u8]) -> Result<SnapshotHeader, SnapshotDamage> {
    let field = |name, at| SnapshotDamage::Field { name, at };
    if !is_zero(&block[RESERVED..HEADER_CRC]) {
        return Err(field("reserved", RESERVED));
    }
    if !is_zero(&block[HEADER_BYTES..]) {
        return Err(field("rest of the block", HEADER_BYTES));
    }
    let seq = Seq(u64_at(block, SEQ));
    if seq == Seq::ZERO || seq > Seq::MAX {
        return Err(field("seq", SEQ));
    }
    let sections = SectionBytes {
        engine: u64_at(block, ENGINE_BYTES),
        service: u64_at(block, SERVICE_BYTES),
        tails: u64_at(block, TAILS_BYTES),
    };
    if sections.total().is_none() {
        return Err(field("engine_bytes, service_bytes, tails_bytes", ENGINE_BYTES));
    }
    let name_bytes = u32_at(block, NAME_BYTES) as usize;
    if name_bytes > NAME_BYTES_MAX {
        return Err(field("name_bytes", NAME_BYTES));
    }
    let (name, rest) = block[SERVICE_NAME..LOG_ID].split_at(name_bytes);
    let service_name = std::str::from_utf8(name).map_err(|_| field("service_name", SERVICE_NAME))?;
    if !is_zero(rest) || !is_service_name(service_name) {
        return Err(field("service_name", SERVICE_NAME));
    }
    let meta = SnapshotMeta {
        seq,
        timestamp: Timestamp(u64_at(block, TIMESTAMP)),
        epoch: u64_at(block, EPOCH),
        state_digest: block[STATE_DIGEST..OUTPUT_HASH].try_into().expect("32 bytes"),
        output_hash: u64_at(block, OUTPUT_HASH),
        schema_version: u32_at(block, SCHEMA_VERSION),
        service_name: service_name.to_owned(),
        log_id: u64_at(block, LOG_ID),
    };
    Ok(SnapshotHeader { meta, sections, body_crc: u32_at(block, BODY_CRC) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SnapshotHeader {
        let meta = SnapshotMeta {
            seq: Seq(42),
            timestamp: Timestamp(7),
            epoch: 3,
            state_digest: [0xd1; 32],
            output_hash: 0x0123_4567_89ab_cdef,
            schema_version: 2,
            service_name: "kv".into(),
            log_id: 0x0a0b_0c0d,
        };
        SnapshotHeader { meta, sections: SectionBytes { engine: 5, service: 4092, tails: 0 }, body_crc: 0xfeed }
    }

    fn block() -> Vec<u8> {
        let mut block = vec![0xff; BLOCK_BYTES];
        header().encode(&mut block);
        block
    }

    fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut block = block();
        block[at..at + bytes.len()].copy_from_slice(bytes);
        let crc = crc32c(&block[..HEADER_CRC]);
        put_u32(&mut block, HEADER_CRC, crc);
        block
    }

    #[test]
    fn a_header_reads_back_and_every_flipped_bit_of_its_block_is_noticed() {
        let mut block = block();
        assert_eq!(header().file_bytes(), 3 * 4096, "4097 bytes take two blocks");
        assert_eq!(SnapshotHeader::decode(&block, 3 * 4096), Ok(header()));
        for bit in 0..BLOCK_BYTES * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(SnapshotHeader::decode(&block, 3 * 4096).is_err(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn each_reason_is_told_apart() {
        let decode = |block: &[u8]| SnapshotHeader::decode(block, 3 * 4096).unwrap_err();
        let field = |name, at| SnapshotDamage::Field { name, at };
        let lengths = field("engine_bytes, service_bytes, tails_bytes", ENGINE_BYTES);
        assert_eq!(decode(&[0; 4096]), SnapshotDamage::Blank);
        assert_eq!(decode(&block()[..255]), SnapshotDamage::Short(255));
        assert_eq!(decode(&with(0, b"TKTJ")), SnapshotDamage::Magic);
        assert_eq!(decode(&with(VERSION, &[2])), SnapshotDamage::Version(2));
        assert!(
            matches!(decode(&[&block()[..252], &[0; 4]].concat()), SnapshotDamage::HeaderCrc { computed, .. } if computed != 0)
        );
        assert_eq!(decode(&with(RESERVED, &[1])), field("reserved", RESERVED));
        assert_eq!(decode(&with(HEADER_BYTES, &[1])), field("rest of the block", HEADER_BYTES));
        assert_eq!(decode(&with(SEQ, &[0])), field("seq", SEQ));
        assert_eq!(decode(&with(SEQ + 7, &[0x80])), field("seq", SEQ));
        assert_eq!(decode(&with(ENGINE_BYTES, &[0xff; 24])), lengths, "the sum would wrap");
        assert_eq!(decode(&with(ENGINE_BYTES + 5, &[2])), lengths, "two terabytes");
        assert_eq!(decode(&with(NAME_BYTES, &[65])), field("name_bytes", NAME_BYTES));
        assert_eq!(decode(&with(SERVICE_NAME, &[0])), field("service_name", SERVICE_NAME), "a zero in the name");
        assert_eq!(decode(&with(NAME_BYTES, &[1])), field("service_name", SERVICE_NAME), "more than its length");
        assert_eq!(decode(&with(SERVICE_NAME, &[0xff])), field("service_name", SERVICE_NAME), "not UTF-8");
        let size = SnapshotDamage::Size { expected: 4 * 4096, actual: 3 * 4096 };
        assert_eq!(decode(&with(TAILS_BYTES + 1, &[16])), size);
    }
}
