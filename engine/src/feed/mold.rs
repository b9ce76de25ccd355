//! MoldUDP64, version 1.00, as NASDAQ publishes it: downstream packets and requests. WIRE.md, "Feed".
//!
//! | offset | size | field | type |
//! |---|---|---|---|
//! | 0 | 10 | session | 10 characters |
//! | 10 | 8 | sequence | u64, big-endian |
//! | 18 | 2 | count | u16, big-endian |
//! | 20 | n | messages | each a big-endian u16 length and as many bytes |
//!
//! `sequence` is the first message's number. A count of 0 is a heartbeat and 0xFFFF the end of the session; both carry the
//! next number to come, and no messages. A request is a header alone: from `sequence` on, `count` messages.

use std::fmt;

use super::session::SESSION_BYTES;
use crate::link::layout::Field;

/// Offset of `session`.
pub const SESSION: usize = 0;
/// Offset of `sequence`.
pub const SEQUENCE: usize = 10;
/// Offset of `count`.
pub const COUNT: usize = 18;
/// Offset of the messages; also the header's size.
pub const MESSAGES: usize = 20;
/// Bytes of the length before each message.
pub const LEN_BYTES: usize = 2;
/// The count of a heartbeat.
pub const COUNT_HEARTBEAT: u16 = 0;
/// The count that ends a session.
pub const COUNT_END_OF_SESSION: u16 = 0xFFFF;
/// Bytes that a packet with one message adds to it.
pub const OVERHEAD_BYTES: usize = MESSAGES + LEN_BYTES;

const _: () = assert!(SESSION + SESSION_BYTES == SEQUENCE && SEQUENCE + 8 == COUNT && COUNT + 2 == MESSAGES);

/// The table above.
pub(super) const FIELDS: &[Field] = &[
    Field { offset: SESSION, bytes: SESSION_BYTES, name: "session" },
    Field { offset: SEQUENCE, bytes: 8, name: "sequence" },
    Field { offset: COUNT, bytes: 2, name: "count" },
    Field { offset: MESSAGES, bytes: 0, name: "messages" },
];

/// One of the messages, offsets from its own start.
pub(super) const MESSAGE_FIELDS: &[Field] =
    &[Field { offset: 0, bytes: LEN_BYTES, name: "length" }, Field { offset: LEN_BYTES, bytes: 0, name: "message" }];

/// A session's name, as it stands in the packet.
pub type SessionName = [u8; SESSION_BYTES];

/// Why bytes are not a MoldUDP64 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum MoldError {
    /// Fewer bytes than a header.
    Short,
    /// A byte of the session's name is not printable ASCII.
    BadSession,
    /// A sequence of zero, or a message whose number would not fit.
    BadSequence,
    /// The count or a length promises more bytes than there are.
    LyingLength,
    /// Bytes are left after the last message, or after a header that stands alone.
    Trailing,
    /// A request for no message, or for as many as end a session.
    BadRequest,
}

impl MoldError {
    /// Every reason, in index order.
    pub const ALL: [MoldError; 6] = [
        MoldError::Short,
        MoldError::BadSession,
        MoldError::BadSequence,
        MoldError::LyingLength,
        MoldError::Trailing,
        MoldError::BadRequest,
    ];

    /// Its place in [`MoldError::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// A short name for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            MoldError::Short => "short",
            MoldError::BadSession => "bad_session",
            MoldError::BadSequence => "bad_sequence",
            MoldError::LyingLength => "lying_length",
            MoldError::Trailing => "trailing_bytes",
            MoldError::BadRequest => "bad_request",
        }
    }
}

impl fmt::Display for MoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MoldError::Short => "feed packet is cut within its header",
            MoldError::BadSession => "feed packet whose session is not printable",
            MoldError::BadSequence => "feed packet with an impossible sequence",
            MoldError::LyingLength => "feed packet whose count or length exceeds its bytes",
            MoldError::Trailing => "feed packet with bytes after its last message",
            MoldError::BadRequest => "feed request for an impossible count",
        })
    }
}

impl std::error::Error for MoldError {}

/// A downstream packet: checked whole when it was parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoldPacket<'a> {
    /// Messages `sequence .. sequence + count`.
    Messages {
        /// The session's name.
        session: &'a SessionName,
        /// The first message's number.
        sequence: u64,
        /// How many messages there are, from 1 to 0xFFFE.
        count: u16,
        /// The messages, in order.
        messages: MoldMessages<'a>,
    },
    /// Nothing new.
    Heartbeat {
        /// The session's name.
        session: &'a SessionName,
        /// The number of the next message.
        sequence: u64,
    },
    /// No message will follow.
    EndOfSession {
        /// The session's name.
        session: &'a SessionName,
        /// The number that the next message would have had.
        sequence: u64,
    },
}

impl<'a> MoldPacket<'a> {
    /// Reads a whole datagram.
    ///
    /// # Errors
    /// [`MoldError`], one variant a reason.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<MoldPacket<'a>, MoldError> {
        let (session, sequence, count) = parse_header(bytes)?;
        let rest = &bytes[MESSAGES..];
        if count == COUNT_HEARTBEAT || count == COUNT_END_OF_SESSION {
            if !rest.is_empty() {
                return Err(MoldError::Trailing);
            }
            return Ok(if count == COUNT_HEARTBEAT {
                MoldPacket::Heartbeat { session, sequence }
            } else {
                MoldPacket::EndOfSession { session, sequence }
            });
        }
        if sequence.checked_add(u64::from(count)).is_none() {
            return Err(MoldError::BadSequence);
        }
        let mut at = 0;
        for _ in 0..count {
            let len = rest.get(at..at + LEN_BYTES).ok_or(MoldError::LyingLength)?;
            at += LEN_BYTES + usize::from(u16::from_be_bytes([len[0], len[1]]));
        }
        match at {
            at if at > rest.len() => Err(MoldError::LyingLength),
            at if at < rest.len() => Err(MoldError::Trailing),
            _ => Ok(MoldPacket::Messages { session, sequence, count, messages: MoldMessages { rest } }),
        }
    }

    /// The session's name.
    pub const fn session(&self) -> &'a SessionName {
        match self {
            MoldPacket::Messages { session, .. }
            | MoldPacket::Heartbeat { session, .. }
            | MoldPacket::EndOfSession { session, .. } => session,
        }
    }
}

/// Walks over the messages of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoldMessages<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for MoldMessages<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (len, rest) = self.rest.split_first_chunk::<LEN_BYTES>()?;
        let (message, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        self.rest = rest;
        Some(message)
    }
}

/// A request for messages that were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoldRequest {
    /// The session's name.
    pub session: SessionName,
    /// The first message wanted.
    pub sequence: u64,
    /// How many are wanted, from 1 to 0xFFFE.
    pub count: u16,
}

impl MoldRequest {
    /// Bytes of a request.
    pub const BYTES: usize = MESSAGES;

    /// The packet.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        write_header(&mut out, &self.session, self.sequence, self.count);
        out
    }

    /// Reads a whole datagram.
    ///
    /// # Errors
    /// [`MoldError`], one variant a reason.
    pub fn parse(bytes: &[u8]) -> Result<MoldRequest, MoldError> {
        let (session, sequence, count) = parse_header(bytes)?;
        if bytes.len() > MESSAGES {
            return Err(MoldError::Trailing);
        }
        if count == COUNT_HEARTBEAT || count == COUNT_END_OF_SESSION {
            return Err(MoldError::BadRequest);
        }
        if sequence.checked_add(u64::from(count)).is_none() {
            return Err(MoldError::BadSequence);
        }
        Ok(MoldRequest { session: *session, sequence, count })
    }
}

#[inline]
fn parse_header(bytes: &[u8]) -> Result<(&SessionName, u64, u16), MoldError> {
    let (head, _) = bytes.split_first_chunk::<MESSAGES>().ok_or(MoldError::Short)?;
    let (session, head) = head.split_first_chunk::<SESSION_BYTES>().ok_or(MoldError::Short)?;
    let (sequence, count) = head.split_first_chunk::<8>().ok_or(MoldError::Short)?;
    if !session.iter().all(|byte| (b' '..=b'~').contains(byte)) {
        return Err(MoldError::BadSession);
    }
    match u64::from_be_bytes(*sequence) {
        0 => Err(MoldError::BadSequence),
        sequence => Ok((session, sequence, u16::from_be_bytes([count[0], count[1]]))),
    }
}

#[inline]
fn write_header(out: &mut [u8], session: &SessionName, sequence: u64, count: u16) {
    out[SESSION..SEQUENCE].copy_from_slice(session);
    out[SEQUENCE..COUNT].copy_from_slice(&sequence.to_be_bytes());
    out[COUNT..MESSAGES].copy_from_slice(&count.to_be_bytes());
}

/// The packet that ends `session` before number `sequence`.
pub fn end_of_session(session: &SessionName, sequence: u64) -> [u8; MESSAGES] {
    let mut out = [0; MESSAGES];
    write_header(&mut out, session, sequence, COUNT_END_OF_SESSION);
    out
}

/// Builds packets: as many consecutive messages as fit one datagram.
#[derive(Debug)]
pub struct Packer {
    session: SessionName,
    /// Number of the first message in the packet at hand, or of the next message.
    sequence: u64,
    count: u16,
    len: usize,
    datagram: Box<[u8]>,
}

impl Packer {
    /// A packer whose next message will be number `sequence`. Allocates one datagram, and nothing later.
    ///
    /// # Panics
    /// Where no message would fit, or `sequence` is zero.
    pub fn new(session: SessionName, sequence: u64, datagram_bytes_max: usize) -> Self {
        assert!(datagram_bytes_max > OVERHEAD_BYTES && sequence > 0);
        Packer { session, sequence, count: 0, len: MESSAGES, datagram: vec![0; datagram_bytes_max].into_boxed_slice() }
    }

    /// The largest message that fits.
    pub const fn message_bytes_max(&self) -> usize {
        let room = self.datagram.len() - OVERHEAD_BYTES;
        if room < u16::MAX as usize { room } else { u16::MAX as usize }
    }

    /// The session's name.
    pub const fn session(&self) -> &SessionName {
        &self.session
    }

    /// The number of the next message.
    pub const fn next_sequence(&self) -> u64 {
        self.sequence + self.count as u64
    }

    /// How many messages the packet at hand has.
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// Whether the packet at hand has no message.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a message. False where it does not fit beside those there are: finish the packet first.
    #[inline]
    pub fn push(&mut self, message: &[u8]) -> bool {
        let end = self.len + LEN_BYTES + message.len();
        if end > self.datagram.len() || message.len() > usize::from(u16::MAX) || self.count == COUNT_END_OF_SESSION - 1
        {
            return false;
        }
        let (len, body) = self.datagram[self.len..end].split_at_mut(LEN_BYTES);
        len.copy_from_slice(&(message.len() as u16).to_be_bytes());
        body.copy_from_slice(message);
        self.len = end;
        self.count += 1;
        true
    }

    /// The packet at hand, its header written. A heartbeat where it has no message.
    pub fn packet(&mut self) -> &[u8] {
        write_header(&mut self.datagram, &self.session, self.sequence, self.count);
        &self.datagram[..self.len]
    }

    /// Begins the next packet after the one at hand.
    pub fn advance(&mut self) {
        self.sequence += u64::from(self.count);
        self.count = 0;
        self.len = MESSAGES;
    }

    /// Leaves numbers out: the next message will be `sequence`. Only between packets.
    ///
    /// # Panics
    /// Where the packet at hand has messages, or `sequence` is zero.
    pub fn seek(&mut self, sequence: u64) {
        assert!(self.is_empty() && sequence > 0);
        self.sequence = sequence;
    }

    /// The packet that ends the session after the messages so far.
    ///
    /// # Panics
    /// Where the packet at hand has messages: they would be lost.
    pub fn end_of_session(&self) -> [u8; MESSAGES] {
        assert!(self.is_empty());
        end_of_session(&self.session, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAME: SessionName = *b"0001000002";

    fn packed(sequence: u64, messages: &[&[u8]]) -> Vec<u8> {
        let mut packer = Packer::new(NAME, sequence, 1472);
        assert!(messages.iter().all(|message| packer.push(message)));
        packer.packet().to_vec()
    }

    #[test]
    fn golden_bytes() {
        let bytes = packed(0x0102, &[b"ab", b"", b"c"]);
        let expected =
            [b"0001000002".as_slice(), &[0, 0, 0, 0, 0, 0, 1, 2, 0, 3, 0, 2], b"ab", &[0, 0, 0, 1], b"c"].concat();
        assert_eq!(bytes, expected);
        assert_eq!(packed(7, &[]), [b"0001000002".as_slice(), &[0, 0, 0, 0, 0, 0, 0, 7, 0, 0]].concat());
        let end = Packer::new(NAME, 7, 1472).end_of_session();
        assert_eq!(end[..], [b"0001000002".as_slice(), &[0, 0, 0, 0, 0, 0, 0, 7, 0xff, 0xff]].concat());
        let request = MoldRequest { session: NAME, sequence: 7, count: 300 };
        assert_eq!(request.encode()[..], [b"0001000002".as_slice(), &[0, 0, 0, 0, 0, 0, 0, 7, 1, 44]].concat());
        assert_eq!(MoldRequest::parse(&request.encode()), Ok(request));
    }

    #[test]
    fn each_kind_parses() {
        let bytes = packed(9, &[b"ab", b"c"]);
        let Ok(MoldPacket::Messages { session, sequence: 9, count: 2, messages }) = MoldPacket::parse(&bytes) else {
            panic!("messages")
        };
        assert_eq!(session, &NAME);
        assert_eq!(messages.collect::<Vec<_>>(), [b"ab".as_slice(), b"c"]);
        let idle = packed(9, &[]);
        assert_eq!(MoldPacket::parse(&idle), Ok(MoldPacket::Heartbeat { session: &NAME, sequence: 9 }));
        let end = Packer::new(NAME, 9, 1472).end_of_session();
        assert_eq!(MoldPacket::parse(&end), Ok(MoldPacket::EndOfSession { session: &NAME, sequence: 9 }));
    }

    #[test]
    fn each_lie_has_its_own_error() {
        let parse = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = packed(9, &[b"ab", b"c"]);
            change(&mut bytes);
            MoldPacket::parse(&bytes).err()
        };
        let set = |at: usize, value: u8| move |bytes: &mut Vec<u8>| bytes[at] = value;
        assert_eq!(parse(&|bytes| bytes.truncate(19)), Some(MoldError::Short));
        assert_eq!(parse(&set(SESSION + 3, 0)), Some(MoldError::BadSession));
        assert_eq!(parse(&set(SEQUENCE + 7, 0)), Some(MoldError::BadSequence));
        assert_eq!(parse(&|bytes| bytes[SEQUENCE..COUNT].fill(0xff)), Some(MoldError::BadSequence));
        assert_eq!(parse(&set(COUNT + 1, 3)), Some(MoldError::LyingLength));
        assert_eq!(parse(&set(COUNT, 0xff)), Some(MoldError::LyingLength));
        assert_eq!(parse(&set(MESSAGES, 1)), Some(MoldError::LyingLength));
        assert_eq!(parse(&set(COUNT + 1, 1)), Some(MoldError::Trailing));
        assert_eq!(parse(&set(COUNT + 1, 0)), Some(MoldError::Trailing));
        assert_eq!(parse(&|bytes| bytes[COUNT..MESSAGES].fill(0xff)), Some(MoldError::Trailing));
        let request = |sequence: u64, count: u16| MoldRequest { session: NAME, sequence, count }.encode();
        assert_eq!(MoldRequest::parse(&request(1, 0)), Err(MoldError::BadRequest));
        assert_eq!(MoldRequest::parse(&request(1, 0xffff)), Err(MoldError::BadRequest));
        assert_eq!(MoldRequest::parse(&request(0, 1)), Err(MoldError::BadSequence));
        assert_eq!(MoldRequest::parse(&request(u64::MAX, 1)), Err(MoldError::BadSequence));
        assert_eq!(MoldRequest::parse(&packed(9, &[b"a"])), Err(MoldError::Trailing));
        assert_eq!(MoldRequest::parse(&[0; 3]), Err(MoldError::Short));
        assert!(MoldError::ALL.iter().enumerate().all(|(i, error)| error.index() == i));
    }

    proptest! {
        #[test]
        fn what_is_packed_parses(sequence in 1u64.., sizes in prop::collection::vec(0usize..300, 1..60)) {
            prop_assume!(sequence < u64::MAX - 60);
            let messages: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(i, &size)| vec![i as u8; size]).collect();
            let mut packer = Packer::new(NAME, sequence, 700);
            let (mut sent, mut next) = (Vec::new(), sequence);
            let mut take = |packer: &mut Packer| {
                let Ok(MoldPacket::Messages { sequence, count, messages, .. }) = MoldPacket::parse(packer.packet()) else {
                    panic!("messages")
                };
                assert_eq!(sequence, next);
                next += u64::from(count);
                sent.extend(messages.map(<[u8]>::to_vec));
                packer.advance();
            };
            for message in &messages {
                if !packer.push(message) {
                    take(&mut packer);
                    prop_assert!(packer.push(message), "an empty packet takes any message up to the limit");
                }
            }
            take(&mut packer);
            prop_assert_eq!(sent, messages);
        }

        #[test]
        fn any_bytes_parse_without_panic(mut bytes in prop::collection::vec(prop_oneof![Just(0u8), 0..4u8, any::<u8>()], 0..80), printable: bool) {
            if printable {
                bytes.iter_mut().take(SESSION_BYTES).for_each(|byte| *byte = b'0');
            }
            if let Ok(MoldPacket::Messages { count, messages, .. }) = MoldPacket::parse(&bytes) {
                prop_assert_eq!(messages.count(), usize::from(count));
            }
            if let Ok(request) = MoldRequest::parse(&bytes) {
                prop_assert_eq!(request.encode().to_vec(), bytes);
            }
        }
    }
}
