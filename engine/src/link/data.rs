//! Data: consecutive messages of one stream, each after its u16 length.

use super::error::PacketError;
use super::layout::data;
use super::packet::{Identity, Type, put, reserved_is_zero, seal, u16_at, u32_at};

/// Bytes that a datagram with one message adds to it.
pub const DATA_OVERHEAD_BYTES: usize = data::MESSAGES + data::LEN_BYTES;

/// Messages `base_seq .. base_seq + count` of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    base_seq: u32,
    count: u16,
    messages: &'a [u8],
}

impl<'a> Data<'a> {
    /// The first message's seq, its low 32 bits.
    #[inline]
    pub const fn base_seq(&self) -> u32 {
        self.base_seq
    }

    /// How many messages there are; at least one.
    #[inline]
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// The messages, in order.
    #[inline]
    pub const fn messages(&self) -> Messages<'a> {
        Messages { rest: self.messages }
    }

    #[inline]
    pub(super) const fn bytes(&self) -> usize {
        data::MESSAGES + self.messages.len()
    }

    /// Checks a whole packet. Its header was checked before.
    #[inline]
    pub(super) fn decode(packet: &'a [u8]) -> Result<Data<'a>, PacketError> {
        let messages = packet.get(data::MESSAGES..).ok_or(PacketError::Short)?;
        reserved_is_zero(&packet[data::RESERVED..data::MESSAGES])?;
        let count = u16_at(packet, data::COUNT);
        if count == 0 {
            return Err(PacketError::EmptyCount);
        }
        if !are_alike(messages, usize::from(count)) {
            check_each(messages, count)?;
        }
        Ok(Data { base_seq: u32_at(packet, data::BASE_SEQ), count, messages })
    }

    pub(super) fn write(&self, out: &mut [u8]) {
        put(out, data::BASE_SEQ, self.base_seq.to_le_bytes());
        put(out, data::COUNT, self.count.to_le_bytes());
        out[data::MESSAGES..].copy_from_slice(self.messages);
    }
}

/// Whether these are `count` messages of one size, as most are: where each begins is then known without the ones before it.
#[inline]
fn are_alike(messages: &[u8], count: usize) -> bool {
    let Some(&first) = messages.first_chunk::<{ data::LEN_BYTES }>() else { return false };
    let each = data::LEN_BYTES + usize::from(u16::from_le_bytes(first));
    each * count == messages.len()
        && messages.chunks_exact(each).fold(true, |alike, message| alike & (message[..data::LEN_BYTES] == first))
}

/// Walks from length to length.
fn check_each(messages: &[u8], count: u16) -> Result<(), PacketError> {
    let mut at = 0;
    for _ in 0..count {
        let len = messages.get(at..at + data::LEN_BYTES).ok_or(PacketError::LyingLength)?;
        at += data::LEN_BYTES + usize::from(u16_at(len, 0));
    }
    match at.cmp(&messages.len()) {
        std::cmp::Ordering::Greater => Err(PacketError::LyingLength),
        std::cmp::Ordering::Less => Err(PacketError::Trailing),
        std::cmp::Ordering::Equal => Ok(()),
    }
}

/// Writes a sealed Data packet whose `messages` already stand in wire form. The caller has seen to the room.
#[inline]
pub(super) fn write_data(identity: &Identity, base_seq: u32, count: u16, messages: &[u8], out: &mut [u8]) -> usize {
    let out = &mut out[..data::MESSAGES + messages.len()];
    put(out, data::BASE_SEQ, base_seq.to_le_bytes());
    put(out, data::COUNT, count.to_le_bytes());
    put(out, data::RESERVED, [0; 2]);
    out[data::MESSAGES..].copy_from_slice(messages);
    seal(identity, Type::Data, out);
    out.len()
}

/// Walks over the messages of a [`Data`].
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (len, rest) = self.rest.split_first_chunk::<{ data::LEN_BYTES }>()?;
        let (message, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        self.rest = rest;
        Some(message)
    }
}
