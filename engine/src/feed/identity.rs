//! Which log a feed's repair port serves: its identity, told to who asks in the name of epoch 0, which no reign has.
//!
//! A session names an epoch and not a log, and a log that begins anew has the epochs of the one before it once more. WIRE.md, "Request".

use std::num::NonZeroU64;

use super::mold::{COUNT, LEN_BYTES, MESSAGES, MoldPacket, MoldRequest, SEQUENCE, SESSION, SessionName};
use super::session::FeedSession;

/// The epoch in whose name the log's identity is asked for.
pub const LOG_EPOCH: u32 = 0;

/// The one message's bytes.
const IDENTITY_BYTES: usize = 8;

/// Its number.
const NUMBER: u64 = 1;

/// The packet that tells `log_id` to who asked in the name of `session`.
pub fn log_identity(session: &SessionName, log_id: NonZeroU64) -> [u8; MESSAGES + LEN_BYTES + IDENTITY_BYTES] {
    let mut packet = [0; MESSAGES + LEN_BYTES + IDENTITY_BYTES];
    packet[SESSION..SEQUENCE].copy_from_slice(session);
    packet[SEQUENCE..COUNT].copy_from_slice(&NUMBER.to_be_bytes());
    packet[COUNT..MESSAGES].copy_from_slice(&1u16.to_be_bytes());
    packet[MESSAGES..MESSAGES + LEN_BYTES].copy_from_slice(&(IDENTITY_BYTES as u16).to_be_bytes());
    packet[MESSAGES + LEN_BYTES..].copy_from_slice(&log_id.get().to_le_bytes());
    packet
}

/// The request that asks which log `stream` is of.
///
/// # Panics
/// Where no session can name the stream.
pub fn ask_log_identity(stream: u32) -> MoldRequest {
    MoldRequest { session: log_session(stream), sequence: NUMBER, count: 1 }
}

/// The identity that a datagram tells of `stream`'s log; none where it is no answer to [`ask_log_identity`].
///
/// # Panics
/// Where no session can name the stream.
pub fn told_log_identity(stream: u32, datagram: &[u8]) -> Option<NonZeroU64> {
    match MoldPacket::parse(datagram) {
        Ok(MoldPacket::Messages { session, sequence: NUMBER, count: 1, mut messages })
            if *session == log_session(stream) =>
        {
            NonZeroU64::new(u64::from_le_bytes(messages.next()?.try_into().ok()?))
        }
        _ => None,
    }
}

fn log_session(stream: u32) -> SessionName {
    FeedSession::new(stream, LOG_EPOCH).expect("a stream that can be named").encode()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::mold::{Packer, end_of_session};
    use super::*;

    const STREAM: u32 = 7;

    fn identity(log_id: u64) -> Vec<u8> {
        log_identity(&log_session(STREAM), NonZeroU64::new(log_id).unwrap()).to_vec()
    }

    proptest! {
        #[test]
        fn what_is_told_is_read(log_id in 1u64..) {
            let packet = identity(log_id);
            prop_assert_eq!(told_log_identity(STREAM, &packet).map(NonZeroU64::get), Some(log_id));
            prop_assert_eq!(told_log_identity(STREAM + 1, &packet), None);
        }

        #[test]
        fn one_byte_less_or_more_or_another_is_no_answer(log_id in 1u64.., at in 0usize..MESSAGES + LEN_BYTES, with in 1u8..) {
            let mut packet = identity(log_id);
            prop_assert_eq!(told_log_identity(STREAM, &packet[..packet.len() - 1]), None);
            packet[at] ^= with;
            prop_assert_eq!(told_log_identity(STREAM, &packet), None);
            packet[at] ^= with;
            packet.push(0);
            prop_assert_eq!(told_log_identity(STREAM, &packet), None);
        }

        #[test]
        fn anything_at_all_is_read_or_refused(datagram: Vec<u8>) {
            let told = told_log_identity(STREAM, &datagram);
            prop_assert_eq!(told.map(|log_id| identity(log_id.get())), told.map(|_| datagram));
        }
    }

    #[test]
    fn what_an_older_port_answers_tells_nothing() {
        let present = FeedSession::new(STREAM, 3).unwrap().encode();
        let heartbeat = Packer::new(present, 9, 100).packet().to_vec();
        assert_eq!(told_log_identity(STREAM, &heartbeat), None);
        assert_eq!(told_log_identity(STREAM, &end_of_session(&log_session(STREAM), 1)), None);
        let mut none = identity(1);
        none[MESSAGES + LEN_BYTES..].fill(0);
        assert_eq!(told_log_identity(STREAM, &none), None, "no log has this one");
    }
}
