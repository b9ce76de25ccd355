//! Messages out of a stream of bytes, in one buffer of a size that was set at the start.
//!
//! Invariant: nothing of a message is handed on before both its checksums fit.
//! Invariant: a header that can't be one is refused as soon as it is there; no length makes anybody wait for, or allocate, more than
//! one message.

use std::ops::Range;

use ticktape_core::crc32c;

use super::error::MessageError;
use super::layout::{MAGIC, VERSION, header};
use super::message::{Message, Type, u32_at};

/// Takes bytes, gives messages.
#[derive(Debug)]
pub struct Decoder {
    buffer: Box<[u8]>,
    /// What has not been looked at begins here, and ends there.
    from: usize,
    to: usize,
    message_bytes_max: usize,
}

impl Decoder {
    /// For messages of up to `message_bytes_max` bytes. Allocates twice as much, and nothing later: so what is left of a message is
    /// rarely moved.
    pub fn new(message_bytes_max: usize) -> Self {
        Decoder { buffer: vec![0; 2 * message_bytes_max].into_boxed_slice(), from: 0, to: 0, message_bytes_max }
    }

    /// Forgets what it holds: a new connection begins.
    pub fn clear(&mut self) {
        (self.from, self.to) = (0, 0);
    }

    /// Where the next bytes go; never empty after [`Decoder::next`] has asked for more. What `next` gave before is void then.
    pub fn space(&mut self) -> &mut [u8] {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if self.buffer.len() - self.from < self.message_bytes_max || self.to == self.buffer.len() {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        &mut self.buffer[self.to..]
    }

    /// So many bytes were put there.
    ///
    /// # Panics
    /// For more than there was space.
    pub fn filled(&mut self, bytes: usize) {
        assert!(bytes <= self.buffer.len() - self.to, "no more than there was space");
        self.to += bytes;
    }

    /// Whether a message has begun.
    pub fn has_part(&self) -> bool {
        self.from < self.to
    }

    /// The next whole message: its type, and where it stands. `None`: more bytes are needed.
    ///
    /// # Errors
    /// [`MessageError`]; nothing more can be read from this stream.
    pub(super) fn next_span(&mut self) -> Result<Option<(Type, Range<usize>)>, MessageError> {
        let bytes = &self.buffer[self.from..self.to];
        if bytes.len() < header::BYTES {
            let known = bytes.len().min(MAGIC.len());
            return if bytes[..known] == MAGIC[..known] { Ok(None) } else { Err(MessageError::Magic) };
        }
        let (message_type, length) = open_header(bytes, self.message_bytes_max)?;
        let end = header::BYTES + length;
        let Some(body) = bytes.get(header::BYTES..end) else { return Ok(None) };
        if crc32c(body) != u32_at(bytes, header::BODY_CRC) {
            return Err(MessageError::BodyCrc);
        }
        let span = self.from..self.from + end;
        self.from = span.end;
        Ok(Some((message_type, span)))
    }

    /// The next whole message. `None`: more bytes are needed.
    ///
    /// # Errors
    /// [`MessageError`]; nothing more can be read from this stream.
    #[allow(clippy::should_implement_trait)] // It lends, which `Iterator` can't.
    pub fn next(&mut self) -> Result<Option<Message<'_>>, MessageError> {
        match self.next_span()? {
            None => Ok(None),
            Some((message_type, span)) => Message::parse(message_type, &self.buffer[span]).map(Some),
        }
    }

    /// What stands in a span that `next_span` gave, or in a part of it.
    #[inline]
    pub(super) fn bytes(&self, span: Range<usize>) -> &[u8] {
        &self.buffer[span]
    }
}

/// Checks a header; returns the type, and how many bytes follow.
fn open_header(bytes: &[u8], message_bytes_max: usize) -> Result<(Type, usize), MessageError> {
    if bytes[header::MAGIC..header::HEADER_CRC] != MAGIC {
        return Err(MessageError::Magic);
    }
    if crc32c(&bytes[header::VERSION..header::BYTES]) != u32_at(bytes, header::HEADER_CRC) {
        return Err(MessageError::HeaderCrc);
    }
    if bytes[header::VERSION] != VERSION {
        return Err(MessageError::Version);
    }
    let message_type = Type::from_code(bytes[header::TYPE]).ok_or(MessageError::UnknownType)?;
    if bytes[header::RESERVED..header::LENGTH] != [0; 2] {
        return Err(MessageError::Reserved);
    }
    let length = u32_at(bytes, header::LENGTH) as usize;
    let (least, most) = message_type.body_bytes(message_bytes_max);
    if length < least || length > most {
        return Err(MessageError::Length);
    }
    Ok((message_type, length))
}
