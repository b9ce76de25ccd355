//! What stands in the payloads of the engine's own frames. WIRE.md, "Inputs on the log".

use ticktape_core::{SessionId, is_service_name};

use crate::link::layout::{Field, Table};
use crate::{mark, outputs};

/// Offset of the session in a `SessionInput`, `SessionOpen` or `SessionClose` payload.
pub const SESSION: usize = 0;
/// Offset of the client epoch in the same.
pub const CLIENT_EPOCH: usize = 8;
/// Offset of the client seq in a `SessionInput` payload.
pub const CLIENT_SEQ: usize = 12;
/// Offset of the command in a `SessionInput` payload.
pub const COMMAND: usize = 20;
/// Size of a `SessionClose` payload, and of what all three begin with.
pub const SESSION_BYTES: usize = 12;
/// Offset of the first client seq to come in a `SessionOpen` payload.
pub const FIRST_SEQ: usize = 12;
/// Size of a `SessionOpen` payload.
pub const SESSION_OPEN_BYTES: usize = 20;

/// Offset of the epoch in an `EpochChange` payload.
pub const EPOCH: usize = 0;
/// Offset of the service's schema version in an `EpochChange` payload.
pub const SCHEMA_VERSION: usize = 8;
/// Offset of the service's name in an `EpochChange` payload: UTF-8, up to a byte of zero, or to the end where no reign is told.
pub const SERVICE_NAME: usize = 12;
/// How far behind the name's end the reign stands: the byte of zero is between them.
pub const REIGN_BEHIND_NAME: usize = 1;
/// How far behind the name's end the reign of the epoch before stands.
pub const PREVIOUS_REIGN_BEHIND_NAME: usize = 9;
/// Bytes behind the name where a reign is told.
pub const REIGN_TAIL_BYTES: usize = 17;

const SESSION_FIELDS: &[Field] = &[
    Field { offset: SESSION, bytes: CLIENT_EPOCH - SESSION, name: "session" },
    Field { offset: CLIENT_EPOCH, bytes: SESSION_BYTES - CLIENT_EPOCH, name: "client_epoch" },
];

const SESSION_INPUT_FIELDS: &[Field] = &[
    SESSION_FIELDS[0],
    SESSION_FIELDS[1],
    Field { offset: CLIENT_SEQ, bytes: COMMAND - CLIENT_SEQ, name: "client_seq" },
    Field { offset: COMMAND, bytes: 0, name: "command" },
];

const SESSION_OPEN_FIELDS: &[Field] = &[
    SESSION_FIELDS[0],
    SESSION_FIELDS[1],
    Field { offset: FIRST_SEQ, bytes: SESSION_OPEN_BYTES - FIRST_SEQ, name: "first_seq" },
];

const EPOCH_CHANGE_FIELDS: &[Field] = &[
    Field { offset: EPOCH, bytes: SCHEMA_VERSION - EPOCH, name: "epoch" },
    Field { offset: SCHEMA_VERSION, bytes: SERVICE_NAME - SCHEMA_VERSION, name: "schema_version" },
    Field { offset: SERVICE_NAME, bytes: 0, name: "service_name" },
];

const _: () = assert!(SESSION_BYTES == CLIENT_SEQ && FIRST_SEQ == CLIENT_SEQ, "the payloads begin alike");

/// Every table of WIRE.md, "Inputs on the log", in its order.
pub const TABLES: [Table; 5] = [
    Table { name: "SessionInput", from: 0, fields: SESSION_INPUT_FIELDS },
    Table { name: "SessionOpen", from: 0, fields: SESSION_OPEN_FIELDS },
    Table { name: "SessionClose", from: 0, fields: SESSION_FIELDS },
    Table { name: "EpochChange", from: 0, fields: EPOCH_CHANGE_FIELDS },
    Table { name: "SnapshotMark", from: 0, fields: mark::FIELDS },
];

/// The table of WIRE.md, "Output records": the payload of frames that only one process sees.
pub const OUTPUT_RECORD: Table = Table { name: "Output records", from: 0, fields: outputs::FIELDS };

/// What an output record's `what` says, by number.
pub const OUTPUT_RECORD_WHATS: [(u32, &str); 4] = outputs::WHATS;

/// Who sent a command, and which of theirs it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The session.
    pub session: SessionId,
    /// The session's own reign: higher after its owner restarted.
    pub client_epoch: u32,
    /// The command's number within that reign, from 1.
    pub client_seq: u64,
}

impl Origin {
    /// The head of a `SessionInput` payload; the command follows it.
    pub fn encode(&self) -> [u8; COMMAND] {
        let mut out = [0; COMMAND];
        out[..SESSION_BYTES].copy_from_slice(&encode_session(self.session, self.client_epoch));
        out[CLIENT_SEQ..].copy_from_slice(&self.client_seq.to_le_bytes());
        out
    }

    /// Splits a `SessionInput` payload into its origin and the command. `None` where it is too short to hold an origin.
    pub fn split(payload: &[u8]) -> Option<(Origin, &[u8])> {
        let (session, client_epoch) = decode_session(payload)?;
        let client_seq = u64::from_le_bytes(payload.get(CLIENT_SEQ..COMMAND)?.try_into().ok()?);
        Some((Origin { session, client_epoch, client_seq }, &payload[COMMAND..]))
    }
}

/// A `SessionOpen` payload: the session's commands of this client epoch begin at `first_seq`.
pub fn encode_session_open(session: SessionId, client_epoch: u32, first_seq: u64) -> [u8; SESSION_OPEN_BYTES] {
    Origin { session, client_epoch, client_seq: first_seq }.encode()
}

/// Reads what [`encode_session_open`] wrote: an origin whose seq is the first to come.
pub fn decode_session_open(payload: &[u8]) -> Option<Origin> {
    Origin::split(payload).map(|(origin, _)| origin).filter(|origin| origin.client_seq > 0)
}

/// A `SessionClose` payload.
pub fn encode_session(session: SessionId, client_epoch: u32) -> [u8; SESSION_BYTES] {
    let mut out = [0; SESSION_BYTES];
    out[..CLIENT_EPOCH].copy_from_slice(&session.0.to_le_bytes());
    out[CLIENT_EPOCH..].copy_from_slice(&client_epoch.to_le_bytes());
    out
}

/// Reads what [`encode_session`] wrote, at the start of a payload.
pub fn decode_session(payload: &[u8]) -> Option<(SessionId, u32)> {
    let session = u64::from_le_bytes(payload.get(SESSION..CLIENT_EPOCH)?.try_into().ok()?);
    let client_epoch = u32::from_le_bytes(payload.get(CLIENT_EPOCH..SESSION_BYTES)?.try_into().ok()?);
    Some((SessionId(session), client_epoch))
}

/// What frames from links carry as `stream_id` where their reign is unknown.
const LINKS: u16 = 2;
/// With this bit, a frame's `stream_id` tells the reign that it is of, by the bits below: 15 of its number.
const OF_REIGN: u16 = 1 << 15;

/// Whether two frames tell by their `stream_id` that they are of different reigns: not where one tells of none.
pub const fn are_of_other_reigns(one: u16, other: u16) -> bool {
    one & other & OF_REIGN != 0 && one != other
}

/// One writer's reign: its epoch, and what tells it from another that an older copy of the log began in the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reign {
    /// The epoch; 0 where there is none yet.
    pub epoch: u64,
    /// The random number of its `EpochChange`; 0 where that is unknown.
    pub id: u64,
}

impl Reign {
    /// The reign of an epoch of which nothing else is known.
    pub const fn unnamed(epoch: u64) -> Reign {
        Reign { epoch, id: 0 }
    }

    /// What its frames carry as `stream_id`: packets of the feed name stream and epoch alone, so that frames have to tell whose they are.
    pub const fn stream_id(self) -> u16 {
        if self.id == 0 { LINKS } else { OF_REIGN | self.id as u16 }
    }

    /// Whether both are reigns of one epoch, and not the same one: what each wrote is another history. Not where one is unknown.
    pub const fn is_other(self, than: Reign) -> bool {
        self.epoch == than.epoch && self.id != 0 && than.id != 0 && self.id != than.id
    }
}

/// What an `EpochChange` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpochChange<'a> {
    /// The reign that begins.
    pub epoch: u64,
    /// The service's schema version.
    pub schema_version: u32,
    /// The service's name; empty where it has none.
    pub service_name: &'a str,
    /// A random number, made for this reign: an older copy of a log that is started takes the same epoch, and another number. 0 where
    /// it is unknown: the log was written before there were such.
    pub reign: u64,
    /// That of the epoch before it in this log; 0 where there is none, or it is unknown.
    pub previous_reign: u64,
}

impl<'a> EpochChange<'a> {
    /// The reign that begins.
    pub const fn begins(&self) -> Reign {
        Reign { epoch: self.epoch, id: self.reign }
    }

    /// Whether it goes on after another reign than this one, which stands before it: not where one of them is unknown.
    pub const fn is_after_another(&self, before: Reign) -> bool {
        self.previous_reign != 0 && before.id != 0 && self.previous_reign != before.id
    }

    /// The payload.
    ///
    /// # Panics
    /// For a name that no service may have, or a previous reign beside none.
    pub fn encode(&self) -> Vec<u8> {
        let name = self.service_name.as_bytes();
        assert!(is_service_name(self.service_name), "service name {:?}", self.service_name);
        let mut payload = [&self.epoch.to_le_bytes()[..], &self.schema_version.to_le_bytes(), name].concat();
        if self.reign != 0 {
            payload.push(0);
            payload.extend_from_slice(&self.reign.to_le_bytes());
            payload.extend_from_slice(&self.previous_reign.to_le_bytes());
        } else {
            assert_eq!(self.previous_reign, 0, "a reign that is unknown tells of none before it");
        }
        payload
    }

    /// Reads a payload; `None` where it is none.
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        let epoch = u64::from_le_bytes(payload.get(EPOCH..SCHEMA_VERSION)?.try_into().ok()?);
        let schema_version = u32::from_le_bytes(payload.get(SCHEMA_VERSION..SERVICE_NAME)?.try_into().ok()?);
        let rest = payload.get(SERVICE_NAME..)?;
        let (name, reigns) = match rest.iter().position(|&byte| byte == 0) {
            Some(end) => (&rest[..end], decode_reigns(&rest[end..])?),
            None => (rest, (0, 0)),
        };
        let service_name = std::str::from_utf8(name).ok().filter(|name| is_service_name(name))?;
        let (reign, previous_reign) = reigns;
        Some(EpochChange { epoch, schema_version, service_name, reign, previous_reign })
    }
}

/// What stands behind the name: a byte of zero, then both reigns, to the end.
fn decode_reigns(tail: &[u8]) -> Option<(u64, u64)> {
    let tail: &[u8; REIGN_TAIL_BYTES] = tail.try_into().ok()?;
    let u64_at = |at: usize| u64::from_le_bytes(tail[at..at + 8].try_into().expect("eight bytes"));
    let reign = u64_at(REIGN_BEHIND_NAME);
    (reign != 0).then_some((reign, u64_at(PREVIOUS_REIGN_BEHIND_NAME)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_input_splits_into_what_it_was_made_of() {
        let origin = Origin { session: SessionId(0x0102), client_epoch: 7, client_seq: u64::MAX };
        let payload = [&origin.encode()[..], b"buy"].concat();
        assert_eq!(Origin::split(&payload), Some((origin, &b"buy"[..])));
        assert_eq!(Origin::split(&payload[..COMMAND]), Some((origin, &b""[..])));
        assert!((0..COMMAND).all(|cut| Origin::split(&payload[..cut]).is_none()));
    }

    #[test]
    fn an_epoch_change_reads_back_and_what_is_none_does_not() {
        for service_name in ["book", ""] {
            let change = EpochChange { epoch: 3, schema_version: 9, service_name, reign: 258, previous_reign: 7 };
            let payload = change.encode();
            assert_eq!(payload.len(), SERVICE_NAME + service_name.len() + REIGN_TAIL_BYTES);
            assert_eq!(EpochChange::decode(&payload), Some(change));
            let first = EpochChange { previous_reign: 0, ..change };
            assert_eq!(EpochChange::decode(&first.encode()), Some(first));
            // Up to the end of the name it is what earlier builds wrote.
            let name_end = SERVICE_NAME + service_name.len();
            let earlier = EpochChange { reign: 0, previous_reign: 0, ..change };
            assert_eq!(EpochChange::decode(&payload[..name_end]), Some(earlier));
            assert_eq!(earlier.encode(), payload[..name_end]);
            for len in name_end + 1..payload.len() {
                assert_eq!(EpochChange::decode(&payload[..len]), None, "the first {len} bytes");
            }
            assert_eq!(EpochChange::decode(&[&payload[..], &[0]].concat()), None);
            let no_reign = [&payload[..name_end], &[0; REIGN_TAIL_BYTES]].concat();
            assert_eq!(EpochChange::decode(&no_reign), None, "a reign that is told is never 0");
        }
        let head = EpochChange { epoch: 3, schema_version: 9, ..EpochChange::default() }.encode();
        assert_eq!(EpochChange::decode(&head[..SERVICE_NAME - 1]), None);
        assert_eq!(EpochChange::decode(&[&head[..], b"\xff"].concat()), None);
        for (bytes, reads) in [(64, true), (65, false)] {
            let payload = [&head[..], &vec![b'x'; bytes], &[0], &[1; REIGN_TAIL_BYTES - 1]].concat();
            assert_eq!(EpochChange::decode(&payload).is_some(), reads, "a name of {bytes} bytes");
        }
    }

    #[test]
    fn frames_tell_their_reign_by_fifteen_bits_of_its_number() {
        let id = |id| Reign { epoch: 3, id }.stream_id();
        assert_eq!([id(0), id(1), id(0x1_8001), id(u64::MAX)], [2, 0x8001, 0x8001, 0xffff]);
        assert!(are_of_other_reigns(id(1), id(2)) && !are_of_other_reigns(id(1), id(1)));
        for silent in [0, 1, id(0)] {
            assert!(!are_of_other_reigns(silent, id(1)) && !are_of_other_reigns(id(1), silent));
        }
    }

    #[test]
    fn a_name_with_a_zero_in_it_is_never_written() {
        let change = EpochChange { service_name: "bo\0ok", ..EpochChange::default() };
        assert!(std::panic::catch_unwind(|| change.encode()).is_err());
    }
}
