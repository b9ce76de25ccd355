//! The frame: one format for the ring, the disk and the wire. WIRE.md, "Frame".
//!
//! | offset | size | field | type |
//! |---|---|---|---|
//! | 0 | 8 | seq | u64 |
//! | 8 | 8 | timestamp | u64 |
//! | 16 | 2 | stream_id | u16 |
//! | 18 | 2 | kind | u16 |
//! | 20 | 4 | payload_len | u32 |
//! | 24 | 4 | header_crc | u32 |
//! | 28 | n | payload | bytes |
//! | 28 + n | 4 | payload_crc | u32 |

use std::fmt;

use ticktape_crc::{crc32c, crc32c_two};

use crate::limits::PAYLOAD_BYTES_MAX;
use crate::units::{Seq, Timestamp};

/// Offset of `seq`.
pub const SEQ: usize = 0;
/// Offset of `timestamp`.
pub const TIMESTAMP: usize = 8;
/// Offset of `stream_id`.
pub const STREAM_ID: usize = 16;
/// Offset of `kind`.
pub const KIND: usize = 18;
/// Offset of `payload_len`.
pub const PAYLOAD_LEN: usize = 20;
/// Offset of `header_crc`, which covers the bytes before it.
pub const HEADER_CRC: usize = 24;
/// Offset of the payload; also the header's size.
pub const PAYLOAD: usize = 28;
/// Bytes that a frame adds to its payload: the header and the payload's checksum.
pub const OVERHEAD_BYTES: usize = PAYLOAD + 4;

/// Payloads up to this are checked in one call with the header, whose length nobody has verified at that moment. A length that
/// lies must not make a search for frames among garbage read far; and above this the header's share is under a tenth.
const TOGETHER_BYTES_MAX: usize = 1024;

const _: () = assert!(SEQ == 0, "the ring publishes a frame by its first word");
const _: () = assert!(OVERHEAD_BYTES == 32);

/// What a frame is. The numbers are on disk and on the wire; they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Kind {
    /// An embedded submit: the command bytes alone.
    Input = 0x0001,
    /// A service's output. Never journaled.
    Output = 0x0002,
    /// A client's command with its session, client epoch and client seq.
    SessionInput = 0x0003,
    /// Time passing: carries nothing but its timestamp.
    Tick = 0x0010,
    /// A session begins, or begins again with a higher client epoch.
    SessionOpen = 0x0011,
    /// A session ends.
    SessionClose = 0x0012,
    /// Version 1 journals recorded each firing; version 2 derives it.
    TimerFired = 0x0013,
    /// Digests of an earlier point, for every node to compare.
    SnapshotMark = 0x0020,
    /// A new writer's reign begins.
    EpochChange = 0x0030,
    /// Keeps a stream alive; never journaled.
    Heartbeat = 0x00FF,
}

impl Kind {
    /// Every kind, in numeric order.
    pub const ALL: [Kind; 10] = [
        Kind::Input,
        Kind::Output,
        Kind::SessionInput,
        Kind::Tick,
        Kind::SessionOpen,
        Kind::SessionClose,
        Kind::TimerFired,
        Kind::SnapshotMark,
        Kind::EpochChange,
        Kind::Heartbeat,
    ];

    /// The kind with this number, if there is one.
    pub const fn from_u16(raw: u16) -> Option<Kind> {
        Some(match raw {
            0x0001 => Kind::Input,
            0x0002 => Kind::Output,
            0x0003 => Kind::SessionInput,
            0x0010 => Kind::Tick,
            0x0011 => Kind::SessionOpen,
            0x0012 => Kind::SessionClose,
            0x0013 => Kind::TimerFired,
            0x0020 => Kind::SnapshotMark,
            0x0030 => Kind::EpochChange,
            0x00FF => Kind::Heartbeat,
            _ => return None,
        })
    }
}

/// One message of the log, its payload borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its place in the order, from 1; below 2^63.
    pub seq: Seq,
    /// When it was sequenced, in nanoseconds since the Unix epoch.
    pub timestamp: Timestamp,
    /// Which input stream it came from.
    pub stream_id: u16,
    /// What it is.
    pub kind: Kind,
    /// Its content, up to [`PAYLOAD_BYTES_MAX`] bytes.
    pub payload: &'a [u8],
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Fewer bytes than a header, or than the header's length asks for.
    Short {
        /// Bytes that were needed.
        needed: usize,
        /// Bytes that were there.
        got: usize,
    },
    /// The header's checksum does not fit the header.
    HeaderCrc {
        /// The checksum that stands in the bytes.
        stored: u32,
        /// The checksum that the bytes have.
        computed: u32,
    },
    /// The payload's checksum does not fit the payload.
    PayloadCrc {
        /// The checksum that stands in the bytes.
        stored: u32,
        /// The checksum that the bytes have.
        computed: u32,
    },
    /// A length above [`PAYLOAD_BYTES_MAX`].
    TooLong(u32),
    /// A kind this version does not know.
    UnknownKind(u16),
    /// A seq of zero, or of 2^63 and above.
    BadSeq(u64),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FrameError::Short { needed, got } => write!(f, "frame is cut: {got} bytes of {needed}"),
            FrameError::HeaderCrc { stored, computed } => {
                write!(f, "frame header checksum is {stored:08x}, its bytes have {computed:08x}")
            }
            FrameError::PayloadCrc { stored, computed } => {
                write!(f, "frame payload checksum is {stored:08x}, its bytes have {computed:08x}")
            }
            FrameError::TooLong(len) => write!(f, "frame payload of {len} bytes, at most {PAYLOAD_BYTES_MAX}"),
            FrameError::UnknownKind(kind) => write!(f, "frame kind {kind:#06x} is unknown"),
            FrameError::BadSeq(seq) => write!(f, "frame seq {seq:#x} is outside 1..2^63"),
        }
    }
}

impl std::error::Error for FrameError {}

/// The size of a frame with a payload of `payload_len` bytes, as on the wire.
#[inline]
pub const fn frame_bytes(payload_len: usize) -> usize {
    OVERHEAD_BYTES + payload_len
}

/// The size of such a frame in the ring and in the journal, where frames are padded to 8 bytes with zeros.
#[inline]
pub const fn padded(frame_bytes: usize) -> usize {
    (frame_bytes + 7) & !7
}

/// The payload length a frame's bytes declare. Trusts the caller that 28 bytes are there.
#[inline]
pub fn payload_len(frame: &[u8]) -> usize {
    u32_at(frame, PAYLOAD_LEN) as usize
}

/// Seals a frame in place around `payload_len` bytes that already stand at [`PAYLOAD`], and returns the frame's size.
///
/// # Panics
/// When `out` is shorter than the frame, the payload longer than the format allows, or the seq outside 1..2^63: all of them
/// checked at the door.
#[inline]
pub fn seal(out: &mut [u8], seq: Seq, timestamp: Timestamp, stream_id: u16, kind: Kind, payload_len: usize) -> usize {
    let bytes = lay_out(out, seq, timestamp, stream_id, kind, payload_len);
    let (header, rest) = out[..bytes].split_at_mut(PAYLOAD);
    let n = payload_len;
    let (header_crc, payload_crc) = crc32c_two(checked_header(header), &rest[..n]);
    header[HEADER_CRC..].copy_from_slice(&header_crc.to_le_bytes());
    rest[n..].copy_from_slice(&payload_crc.to_le_bytes());
    bytes
}

/// As [`seal`], with zeros for checksums: for frames that stay in this process, which [`Frame::view`] reads.
///
/// # Panics
/// As [`seal`].
#[inline]
pub fn lay_out(
    out: &mut [u8],
    seq: Seq,
    timestamp: Timestamp,
    stream_id: u16,
    kind: Kind,
    payload_len: usize,
) -> usize {
    let n = payload_len;
    assert!(n <= PAYLOAD_BYTES_MAX && seq.0 != 0 && seq <= Seq::MAX);
    let (header, rest) = out[..frame_bytes(n)].split_at_mut(PAYLOAD);
    header[SEQ..TIMESTAMP].copy_from_slice(&seq.0.to_le_bytes());
    header[TIMESTAMP..STREAM_ID].copy_from_slice(&timestamp.0.to_le_bytes());
    // One store, because the checksum loads these eight bytes at once: loads that span several fresh stores wait for them.
    let rest_of_header = u64::from(stream_id) | u64::from(kind as u16) << 16 | (n as u64) << 32;
    header[STREAM_ID..HEADER_CRC].copy_from_slice(&rest_of_header.to_le_bytes());
    header[HEADER_CRC..].fill(0);
    rest[n..].fill(0);
    frame_bytes(n)
}

impl<'a> Frame<'a> {
    /// Bytes this frame takes on the wire.
    #[inline]
    pub const fn bytes(&self) -> usize {
        frame_bytes(self.payload.len())
    }

    /// Writes the sealed frame at the start of `out` and returns its size, which is [`Frame::bytes`].
    ///
    /// # Panics
    /// As [`seal`].
    #[inline]
    pub fn encode(&self, out: &mut [u8]) -> usize {
        let n = self.payload.len();
        out[PAYLOAD..PAYLOAD + n].copy_from_slice(self.payload);
        seal(out, self.seq, self.timestamp, self.stream_id, self.kind, n)
    }

    /// Appends the sealed frame to `out`.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.resize(at + self.bytes(), 0);
        self.encode(&mut out[at..]);
    }

    /// Reads the frame at the start of `bytes`, which may go on after it, and checks both checksums before any field.
    ///
    /// # Errors
    /// [`FrameError`], one variant a reason.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<Frame<'a>, FrameError> {
        if bytes.len() < OVERHEAD_BYTES {
            return Err(FrameError::Short { needed: OVERHEAD_BYTES, got: bytes.len() });
        }
        let declared = payload_len(bytes);
        let together = if declared <= TOGETHER_BYTES_MAX { bytes[PAYLOAD..].get(..declared) } else { None };
        let (header_crc, payload_crc) = crc32c_two(checked_header(bytes), together.unwrap_or(&[]));
        let stored = u32_at(bytes, HEADER_CRC);
        if stored != header_crc {
            return Err(FrameError::HeaderCrc { stored, computed: header_crc });
        }
        let frame = Frame::view(bytes)?;
        let stored = u32_at(bytes, PAYLOAD + frame.payload.len());
        let computed = if together.is_some() { payload_crc } else { crc32c(frame.payload) };
        if stored != computed {
            return Err(FrameError::PayloadCrc { stored, computed });
        }
        Ok(frame)
    }

    /// As [`Frame::decode`], without the checksums: for bytes this process sealed or has already verified.
    ///
    /// # Errors
    /// [`FrameError`], the checksums' excepted.
    #[inline]
    pub fn view(bytes: &'a [u8]) -> Result<Frame<'a>, FrameError> {
        if bytes.len() < OVERHEAD_BYTES {
            return Err(FrameError::Short { needed: OVERHEAD_BYTES, got: bytes.len() });
        }
        let len = u32_at(bytes, PAYLOAD_LEN);
        if len as usize > PAYLOAD_BYTES_MAX {
            return Err(FrameError::TooLong(len));
        }
        let needed = frame_bytes(len as usize);
        if bytes.len() < needed {
            return Err(FrameError::Short { needed, got: bytes.len() });
        }
        let raw = u16_at(bytes, KIND);
        let kind = Kind::from_u16(raw).ok_or(FrameError::UnknownKind(raw))?;
        let seq = u64_at(bytes, SEQ);
        if seq == 0 || seq > Seq::MAX.0 {
            return Err(FrameError::BadSeq(seq));
        }
        Ok(Frame {
            seq: Seq(seq),
            timestamp: Timestamp(u64_at(bytes, TIMESTAMP)),
            stream_id: u16_at(bytes, STREAM_ID),
            kind,
            payload: &bytes[PAYLOAD..PAYLOAD + len as usize],
        })
    }
}

/// The part of a header that [`HEADER_CRC`] covers.
#[inline]
fn checked_header(header: &[u8]) -> &[u8; HEADER_CRC] {
    header.first_chunk().expect("a header")
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sealed(frame: &Frame<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        frame.append_to(&mut out);
        out
    }

    /// The first frame of a journal that another program wrote.
    const FOREIGN: &str = "0100000000000000076527 73a499ec18 0100 0100 0a000000 712f7ebd 00000500000000000000 210ffc8b";

    #[test]
    fn a_frame_of_another_program_reads_and_seals_to_the_same_bytes() {
        let hex: String = FOREIGN.split_whitespace().collect();
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
        let frame = Frame::decode(&bytes).unwrap();
        assert_eq!((frame.seq, frame.kind, frame.stream_id), (Seq(1), Kind::Input, 1));
        assert_eq!(frame.payload, [0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(sealed(&frame), bytes);
    }

    #[test]
    fn kinds_and_their_numbers_are_one_to_one() {
        let known: Vec<u16> = (0..=u16::MAX).filter(|&raw| Kind::from_u16(raw).is_some()).collect();
        assert_eq!(known, Kind::ALL.map(|kind| kind as u16));
        assert!(Kind::ALL.iter().all(|&kind| Kind::from_u16(kind as u16) == Some(kind)));
    }

    #[test]
    fn a_length_beyond_the_format_is_refused_even_with_a_good_checksum() {
        let mut bytes =
            sealed(&Frame { seq: Seq(1), timestamp: Timestamp(0), stream_id: 0, kind: Kind::Tick, payload: &[] });
        bytes[PAYLOAD_LEN..HEADER_CRC].copy_from_slice(&u32::MAX.to_le_bytes());
        let crc = crc32c(&bytes[..HEADER_CRC]);
        bytes[HEADER_CRC..PAYLOAD].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Frame::decode(&bytes), Err(FrameError::TooLong(u32::MAX)));
    }

    proptest! {
        #[test]
        fn what_is_sealed_reads_back(seq in 1u64..1 << 63, timestamp: u64, stream_id: u16, kind in 0usize..10, payload: Vec<u8>) {
            let frame = Frame { seq: Seq(seq), timestamp: Timestamp(timestamp), stream_id, kind: Kind::ALL[kind], payload: &payload };
            let bytes = sealed(&frame);
            prop_assert_eq!(bytes.len(), frame.bytes());
            prop_assert_eq!(Frame::decode(&bytes), Ok(frame));
        }

        #[test]
        fn every_flipped_bit_is_noticed(payload: Vec<u8>, bit: prop::sample::Index) {
            let mut bytes = sealed(&Frame { seq: Seq(7), timestamp: Timestamp(9), stream_id: 1, kind: Kind::Input, payload: &payload });
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Frame::decode(&bytes).is_err());
        }

        #[test]
        fn what_is_damaged_is_named_whatever_the_header_says(
            payload in prop::collection::vec(any::<u8>(), 0..2 * TOGETHER_BYTES_MAX),
            in_header in 0..PAYLOAD * 8,
            in_payload: prop::sample::Index,
            more in 0..2 * TOGETHER_BYTES_MAX,
        ) {
            let frame = Frame { seq: Seq(7), timestamp: Timestamp(9), stream_id: 1, kind: Kind::Input, payload: &payload };
            let mut bytes = sealed(&frame);
            let in_payload = PAYLOAD * 8 + in_payload.index((bytes.len() - PAYLOAD) * 8);
            bytes.resize(bytes.len() + more, 0);
            prop_assert_eq!(Frame::decode(&bytes), Ok(frame));
            bytes[in_payload / 8] ^= 1 << (in_payload % 8);
            let is_payload_crc = matches!(Frame::decode(&bytes), Err(FrameError::PayloadCrc { .. }));
            prop_assert!(is_payload_crc);
            bytes[in_header / 8] ^= 1 << (in_header % 8);
            let is_header_crc = matches!(Frame::decode(&bytes), Err(FrameError::HeaderCrc { .. }));
            prop_assert!(is_header_crc);
        }

        #[test]
        fn any_bytes_decode_without_panic(bytes: Vec<u8>) {
            let _ = Frame::decode(&bytes);
            let _ = Frame::view(&bytes);
        }

        #[test]
        fn every_cut_is_noticed(payload: Vec<u8>, cut: prop::sample::Index) {
            let bytes = sealed(&Frame { seq: Seq(7), timestamp: Timestamp(9), stream_id: 1, kind: Kind::Input, payload: &payload });
            prop_assert!(Frame::decode(&bytes[..cut.index(bytes.len())]).is_err());
        }
    }
}
