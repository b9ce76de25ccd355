//! What a replica and its leader tell each other beside the feed, in datagrams of fixed size. WIRE.md, "Status and Commit".
//!
//! Both begin with a header:
//!
//! | offset | size | field | type |
//! |---|---|---|---|
//! | 0 | 4 | magic | bytes `TTST` |
//! | 4 | 4 | crc | u32 |
//! | 8 | 1 | version | u8 |
//! | 9 | 1 | type | u8 |
//! | 10 | 2 | age_ms | u16 |
//! | 12 | 4 | stream | u32 |
//! | 16 | 8 | epoch | u64 |
//! | 24 | 8 | log_id | u64 |
//! | 32 | 8 | reign | u64 |
//!
//! Neither is as long as a MoldUDP64 request, so that one port takes all three. Little-endian.

use std::fmt;

use ticktape_core::{Seq, crc32c};

use super::session::{EPOCH_MAX, STREAM_MAX};
use crate::link::layout::{Field, Table};
use crate::payload::Reign;

/// The first four bytes of both.
pub const MAGIC: [u8; 4] = *b"TTST";
/// The version of the layouts in this file.
pub const VERSION: u8 = 3;

/// Offset of the magic.
pub const MAGIC_AT: usize = 0;
/// Offset of the CRC32C of all bytes after it.
pub const CRC: usize = 4;
/// Offset of the version.
pub const VERSION_AT: usize = 8;
/// Offset of the type.
pub const TYPE: usize = 9;
/// Offset of how long ago the leader spoke, in ms, as a Commit's sender knows; of a Status zero.
pub const AGE_MS: usize = 10;
/// Offset of the stream's number, as in the feed's session.
pub const STREAM: usize = 12;
/// Offset of the sender's epoch.
pub const EPOCH: usize = 16;
/// Offset of the identity of the sender's log.
pub const LOG_ID: usize = 24;
/// Offset of the reign of the sender's epoch.
pub const REIGN: usize = 32;
/// The header's size: a body begins here.
pub const HEADER_BYTES: usize = 40;

/// Offset of the replica's own number.
pub const REPLICA: usize = HEADER_BYTES;
/// Offset of the Status's number among the replica's.
pub const NUMBER: usize = 48;
/// Offset of the last seq that is durable at the replica.
pub const DURABLE_SEQ: usize = 56;
/// Offset of the last seq that the replica's state contains.
pub const APPLIED_SEQ: usize = 64;
/// Bytes of a Status.
pub const STATUS_BYTES: usize = 72;

/// Offset of the last seq that is committed.
pub const COMMIT_SEQ: usize = HEADER_BYTES;
/// Bytes of a Commit.
pub const COMMIT_BYTES: usize = 48;

/// The number of a Status's type.
pub const TYPE_STATUS: u8 = 1;
/// The number of a Commit's type.
pub const TYPE_COMMIT: u8 = 2;

const HEADER_FIELDS: &[Field] = &[
    Field { offset: MAGIC_AT, bytes: 4, name: "magic" },
    Field { offset: CRC, bytes: 4, name: "crc" },
    Field { offset: VERSION_AT, bytes: 1, name: "version" },
    Field { offset: TYPE, bytes: 1, name: "type" },
    Field { offset: AGE_MS, bytes: 2, name: "age_ms" },
    Field { offset: STREAM, bytes: 4, name: "stream" },
    Field { offset: EPOCH, bytes: 8, name: "epoch" },
    Field { offset: LOG_ID, bytes: 8, name: "log_id" },
    Field { offset: REIGN, bytes: 8, name: "reign" },
];

const STATUS_FIELDS: &[Field] = &[
    Field { offset: REPLICA, bytes: 8, name: "replica" },
    Field { offset: NUMBER, bytes: 8, name: "number" },
    Field { offset: DURABLE_SEQ, bytes: 8, name: "durable_seq" },
    Field { offset: APPLIED_SEQ, bytes: 8, name: "applied_seq" },
];

const COMMIT_FIELDS: &[Field] = &[Field { offset: COMMIT_SEQ, bytes: 8, name: "commit_seq" }];

/// Every table of offsets in WIRE.md, "Status and Commit", in its order.
pub const TABLES: [Table; 3] = [
    Table { name: "Header", from: 0, fields: HEADER_FIELDS },
    Table { name: "Status", from: HEADER_BYTES, fields: STATUS_FIELDS },
    Table { name: "Commit", from: HEADER_BYTES, fields: COMMIT_FIELDS },
];

/// The types by number, as WIRE.md lists them.
pub const TYPES: [(u8, &str); 2] = [(TYPE_STATUS, "Status"), (TYPE_COMMIT, "Commit")];

const _: () =
    assert!(CRC + 4 == VERSION_AT && AGE_MS + 2 == STREAM && LOG_ID + 8 == REIGN && REIGN + 8 == HEADER_BYTES);
const _: () = assert!(APPLIED_SEQ + 8 == STATUS_BYTES && COMMIT_SEQ + 8 == COMMIT_BYTES);
const _: () = assert!(STATUS_BYTES != super::MoldRequest::BYTES && COMMIT_BYTES != super::MoldRequest::BYTES);

/// Why bytes are neither a Status nor a Commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum StatusError {
    /// Another size than its type has.
    Size,
    /// It does not begin with the magic.
    Magic,
    /// Its checksum does not fit its bytes.
    Crc,
    /// A version that is not spoken here.
    Version,
    /// A type that is not expected here.
    Type,
    /// A Status with an age.
    Reserved,
    /// A stream or an epoch that no feed's session can have, an epoch or a replica of 0, or a seq of 2^63 or above.
    Field,
}

impl StatusError {
    /// Every reason, in index order.
    pub const ALL: [StatusError; 7] = [
        StatusError::Size,
        StatusError::Magic,
        StatusError::Crc,
        StatusError::Version,
        StatusError::Type,
        StatusError::Reserved,
        StatusError::Field,
    ];

    /// Its place in [`StatusError::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// A short name for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            StatusError::Size => "bad_size",
            StatusError::Magic => "bad_magic",
            StatusError::Crc => "bad_crc",
            StatusError::Version => "bad_version",
            StatusError::Type => "bad_type",
            StatusError::Reserved => "reserved_not_zero",
            StatusError::Field => "bad_field",
        }
    }
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StatusError::Size => "status datagram of another size than its type has",
            StatusError::Magic => "no status datagram: it does not begin with TTST",
            StatusError::Crc => "status datagram whose checksum does not fit",
            StatusError::Version => "status datagram of another version than 3",
            StatusError::Type => "status datagram of a type that does not belong here",
            StatusError::Reserved => "status datagram with an age, which only a Commit has",
            StatusError::Field => "status datagram with an impossible stream, epoch or seq",
        })
    }
}

impl std::error::Error for StatusError {}

/// Whether a datagram is meant to be a Status or a Commit, and not a request for a repair.
#[inline]
pub fn is_status(datagram: &[u8]) -> bool {
    datagram.starts_with(&MAGIC) && datagram.len() != super::MoldRequest::BYTES
}

/// Whether two identities are those of different logs: not where a log has none.
pub(super) const fn are_other_logs(one: u64, other: u64) -> bool {
    one != 0 && other != 0 && one != other
}

/// Replica to leader: how far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Which stream, as in the feed's session.
    pub stream: u32,
    /// The reign that the replica's log is in.
    pub reign: Reign,
    /// The identity of the replica's log; 0 where it has none.
    pub log_id: u64,
    /// The replica's own number, kept over its restarts; not 0.
    pub replica: u64,
    /// Grows with each Status of a replica, over its restarts, too.
    pub number: u64,
    /// The last seq up to which its log is verified and durable; 0 for none.
    pub durable: Seq,
    /// The last seq that its state contains; 0 for none.
    pub applied: Seq,
}

/// Leader to replica: what can't be lost any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Which stream, as in the feed's session.
    pub stream: u32,
    /// The leader's reign.
    pub reign: Reign,
    /// The identity of the leader's log; 0 where it has none.
    pub log_id: u64,
    /// How long ago the leader spoke, in ms, as the sender knows: 0 of the leader itself.
    pub age_ms: u16,
    /// The last seq that is committed; 0 for none.
    pub commit: Seq,
}

impl Status {
    /// The datagram.
    pub fn encode(&self) -> [u8; STATUS_BYTES] {
        let mut out = [0; STATUS_BYTES];
        put_u64(&mut out, REPLICA, self.replica);
        put_u64(&mut out, NUMBER, self.number);
        put_u64(&mut out, DURABLE_SEQ, self.durable.0);
        put_u64(&mut out, APPLIED_SEQ, self.applied.0);
        seal(&mut out, TYPE_STATUS, Head { stream: self.stream, reign: self.reign, log_id: self.log_id });
        out
    }

    /// Reads a whole datagram.
    ///
    /// # Errors
    /// [`StatusError`], in the order of its variants.
    pub fn decode(bytes: &[u8]) -> Result<Status, StatusError> {
        let Head { stream, reign, log_id } = open(bytes, TYPE_STATUS, STATUS_BYTES)?;
        let status = Status {
            stream,
            reign,
            log_id,
            replica: u64_at(bytes, REPLICA),
            number: u64_at(bytes, NUMBER),
            durable: Seq(u64_at(bytes, DURABLE_SEQ)),
            applied: Seq(u64_at(bytes, APPLIED_SEQ)),
        };
        if bytes[AGE_MS..STREAM] != [0; 2] {
            return Err(StatusError::Reserved);
        }
        let sound = status.replica != 0 && status.durable <= Seq::MAX && status.applied <= Seq::MAX;
        sound.then_some(status).ok_or(StatusError::Field)
    }
}

impl Commit {
    /// The datagram.
    pub fn encode(&self) -> [u8; COMMIT_BYTES] {
        let mut out = [0; COMMIT_BYTES];
        put_u64(&mut out, COMMIT_SEQ, self.commit.0);
        out[AGE_MS..STREAM].copy_from_slice(&self.age_ms.to_le_bytes());
        seal(&mut out, TYPE_COMMIT, Head { stream: self.stream, reign: self.reign, log_id: self.log_id });
        out
    }

    /// Reads a whole datagram.
    ///
    /// # Errors
    /// [`StatusError`], in the order of its variants.
    pub fn decode(bytes: &[u8]) -> Result<Commit, StatusError> {
        let Head { stream, reign, log_id } = open(bytes, TYPE_COMMIT, COMMIT_BYTES)?;
        let age_ms = u16::from_le_bytes([bytes[AGE_MS], bytes[AGE_MS + 1]]);
        let commit = Commit { stream, reign, log_id, age_ms, commit: Seq(u64_at(bytes, COMMIT_SEQ)) };
        if commit.commit <= Seq::MAX { Ok(commit) } else { Err(StatusError::Field) }
    }
}

/// What both begin with.
struct Head {
    stream: u32,
    reign: Reign,
    log_id: u64,
}

fn seal(out: &mut [u8], packet_type: u8, Head { stream, reign, log_id }: Head) {
    let epoch = reign.epoch;
    assert!(stream <= STREAM_MAX && epoch > 0 && epoch <= u64::from(EPOCH_MAX), "a feed's stream and epoch");
    out[MAGIC_AT..CRC].copy_from_slice(&MAGIC);
    out[VERSION_AT] = VERSION;
    out[TYPE] = packet_type;
    out[STREAM..EPOCH].copy_from_slice(&stream.to_le_bytes());
    put_u64(out, EPOCH, epoch);
    put_u64(out, LOG_ID, log_id);
    put_u64(out, REIGN, reign.id);
    let crc = crc32c(&out[VERSION_AT..]);
    out[CRC..VERSION_AT].copy_from_slice(&crc.to_le_bytes());
}

/// Checks everything up to the header's fields.
fn open(bytes: &[u8], packet_type: u8, size: usize) -> Result<Head, StatusError> {
    if bytes.len() < HEADER_BYTES {
        return Err(StatusError::Size);
    }
    if bytes[MAGIC_AT..CRC] != MAGIC {
        return Err(StatusError::Magic);
    }
    if crc32c(&bytes[VERSION_AT..]) != u32_at(bytes, CRC) {
        return Err(StatusError::Crc);
    }
    if bytes[VERSION_AT] != VERSION {
        return Err(StatusError::Version);
    }
    if bytes[TYPE] != packet_type {
        return Err(StatusError::Type);
    }
    if bytes.len() != size {
        return Err(StatusError::Size);
    }
    let (stream, epoch) = (u32_at(bytes, STREAM), u64_at(bytes, EPOCH));
    if stream > STREAM_MAX || epoch == 0 || epoch > u64::from(EPOCH_MAX) {
        return Err(StatusError::Field);
    }
    Ok(Head { stream, reign: Reign { epoch, id: u64_at(bytes, REIGN) }, log_id: u64_at(bytes, LOG_ID) })
}

fn put_u64(out: &mut [u8], at: usize, value: u64) {
    out[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REIGN_3: Reign = Reign { epoch: 3, id: 77 };
    const STATUS: Status = Status {
        stream: 1,
        reign: REIGN_3,
        log_id: 5,
        replica: 7,
        number: 258,
        durable: Seq(0x0102),
        applied: Seq(0x0101),
    };
    const COMMIT: Commit = Commit { stream: 1, reign: REIGN_3, log_id: 5, age_ms: 0, commit: Seq(0x0102) };

    #[test]
    fn golden_bytes() {
        let head = |crc: [u8; 4], packet_type| {
            let words = [1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0];
            [b"TTST".as_slice(), &crc, &[3, packet_type, 0, 0], &words].concat()
        };
        let word = |low: [u8; 2]| [low[0], low[1], 0, 0, 0, 0, 0, 0];
        let status = [&word([7, 0])[..], &word([2, 1]), &word([2, 1]), &word([1, 1])].concat();
        let status = [head([0x18, 0xab, 0xf9, 0x6a], 1), status].concat();
        assert_eq!(STATUS.encode()[..], status);
        assert_eq!(COMMIT.encode()[..], [head([0x50, 0xe9, 0x8e, 0x49], 2), word([2, 1]).to_vec()].concat());
    }

    #[test]
    fn each_reason_is_named() {
        let good = STATUS.encode();
        let with = |change: &dyn Fn(&mut Vec<u8>), reseal: bool| {
            let mut bytes = good.to_vec();
            change(&mut bytes);
            if reseal {
                let crc = crc32c(&bytes[VERSION_AT..]);
                bytes[CRC..VERSION_AT].copy_from_slice(&crc.to_le_bytes());
            }
            Status::decode(&bytes)
        };
        let set = |at: usize, value: u8| move |bytes: &mut Vec<u8>| bytes[at] = value;
        assert_eq!(with(&|bytes| bytes.truncate(HEADER_BYTES - 1), false), Err(StatusError::Size));
        assert_eq!(with(&set(0, b'X'), true), Err(StatusError::Magic));
        assert_eq!(with(&set(60, 1), false), Err(StatusError::Crc));
        assert_eq!(with(&set(VERSION_AT, 2), true), Err(StatusError::Version));
        assert_eq!(with(&set(TYPE, TYPE_COMMIT), true), Err(StatusError::Type));
        assert_eq!(with(&|bytes| bytes.push(0), true), Err(StatusError::Size));
        assert_eq!(with(&set(AGE_MS + 1, 1), true), Err(StatusError::Reserved));
        assert_eq!(with(&set(STREAM + 3, 1), true), Err(StatusError::Field));
        assert_eq!(with(&set(EPOCH, 0), true), Err(StatusError::Field));
        assert_eq!(with(&set(EPOCH + 7, 1), true), Err(StatusError::Field));
        assert_eq!(with(&set(REPLICA, 0), true), Err(StatusError::Field));
        assert_eq!(with(&set(DURABLE_SEQ + 7, 0x80), true), Err(StatusError::Field));
        assert_eq!(with(&set(APPLIED_SEQ + 7, 0x80), true), Err(StatusError::Field));
        assert_eq!(with(&|_| {}, true), Ok(STATUS));
        assert_eq!(Commit::decode(&good), Err(StatusError::Type));
        assert!(StatusError::ALL.iter().enumerate().all(|(index, error)| error.index() == index));
    }

    #[test]
    fn the_port_tells_all_three_apart() {
        let request = super::super::MoldRequest { session: *b"TTST000001", sequence: 1, count: 1 };
        assert!(is_status(&STATUS.encode()) && is_status(&COMMIT.encode()));
        assert!(!is_status(&request.encode()), "a session may begin like the magic");
        assert!(super::super::MoldRequest::parse(&STATUS.encode()).is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            stream in 0..=STREAM_MAX, epoch in 1..=u64::from(EPOCH_MAX), log_id: u64, id: u64, replica in 1u64.., number: u64, durable in 0..1u64 << 63, applied in 0..1u64 << 63, age_ms: u16
        ) {
            let reign = Reign { epoch, id };
            let status = Status { stream, reign, log_id, replica, number, durable: Seq(durable), applied: Seq(applied) };
            prop_assert_eq!(Status::decode(&status.encode()), Ok(status));
            let commit = Commit { stream, reign, log_id, age_ms, commit: Seq(durable) };
            prop_assert_eq!(Commit::decode(&commit.encode()), Ok(commit));
        }

        #[test]
        fn every_flipped_bit_is_noticed(bit in 0..STATUS_BYTES * 8) {
            let mut bytes = STATUS.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Status::decode(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_refused_or_read_back(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(status) = Status::decode(&bytes) {
                prop_assert_eq!(&status.encode()[..], &bytes[..]);
            }
            if let Ok(commit) = Commit::decode(&bytes) {
                prop_assert_eq!(&commit.encode()[..], &bytes[..]);
            }
        }
    }
}
