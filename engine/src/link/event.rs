//! The message of the down-stream: one released output. WIRE.md, "Link", "Event".
//!
//! | offset | size | field | type |
//! |---|---|---|---|
//! | 0 | 8 | log_seq | u64 |
//! | 8 | 8 | client_seq | u64 |
//! | 16 | n | output | bytes |
//!
//! Its own number, the event seq, is the link's seq of the message.

use super::layout::Field;

/// Offset of `log_seq`.
pub const LOG_SEQ: usize = 0;
/// Offset of `client_seq`.
pub const CLIENT_SEQ: usize = 8;
/// Offset of the output; also what an event adds to it.
pub const OUTPUT: usize = 16;

/// The table above.
pub(super) const FIELDS: &[Field] = &[
    Field { offset: LOG_SEQ, bytes: 8, name: "log_seq" },
    Field { offset: CLIENT_SEQ, bytes: 8, name: "client_seq" },
    Field { offset: OUTPUT, bytes: 0, name: "output" },
];

/// One output, and what caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventMessage<'a> {
    /// The frame whose step made this output.
    pub log_seq: u64,
    /// The session's own input that caused it, as its client numbered it; 0 where something else did.
    pub client_seq: u64,
    /// The output's canonical encoding.
    pub output: &'a [u8],
}

impl<'a> EventMessage<'a> {
    /// Bytes this message takes.
    #[inline]
    pub const fn bytes(&self) -> usize {
        OUTPUT + self.output.len()
    }

    /// The fixed part, to be followed by the output.
    #[inline]
    pub fn head(log_seq: u64, client_seq: u64) -> [u8; OUTPUT] {
        let mut head = [0; OUTPUT];
        head[LOG_SEQ..CLIENT_SEQ].copy_from_slice(&log_seq.to_le_bytes());
        head[CLIENT_SEQ..OUTPUT].copy_from_slice(&client_seq.to_le_bytes());
        head
    }

    /// Writes the message at the start of `out` and returns its size; `None` where `out` is shorter.
    pub fn encode(&self, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..self.bytes())?;
        out[..OUTPUT].copy_from_slice(&Self::head(self.log_seq, self.client_seq));
        out[OUTPUT..].copy_from_slice(self.output);
        Some(self.bytes())
    }

    /// Reads a message; `None` where it is shorter than its fixed part.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Option<EventMessage<'a>> {
        let (log_seq, rest) = bytes.split_first_chunk::<8>()?;
        let (client_seq, output) = rest.split_first_chunk::<8>()?;
        Some(EventMessage {
            log_seq: u64::from_le_bytes(*log_seq),
            client_seq: u64::from_le_bytes(*client_seq),
            output,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let mut out = [0; 18];
        let event = EventMessage { log_seq: 0x0102, client_seq: 3, output: &[0xaa, 0xbb] };
        assert_eq!(event.encode(&mut out), Some(18));
        assert_eq!(out, [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0xaa, 0xbb]);
        assert_eq!(event.encode(&mut out[..17]), None);
        assert_eq!(EventMessage::decode(&out[..15]), None);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(log_seq: u64, client_seq: u64, output: Vec<u8>) {
            let event = EventMessage { log_seq, client_seq, output: &output };
            let mut out = vec![0; event.bytes()];
            prop_assert_eq!(event.encode(&mut out), Some(event.bytes()));
            prop_assert_eq!(EventMessage::decode(&out), Some(event));
        }
    }
}
