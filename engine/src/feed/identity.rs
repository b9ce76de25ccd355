//! Which log a feed's repair port serves, and which history of it: its identity, and the reign of an epoch, told to who asks in the name of
//! epoch 0, which no reign has.
//!
//! A session names an epoch and not a log, and a log that begins anew has the epochs of the one before it once more; so has an older copy of a log
//! that is started. WIRE.md, "Request".

use std::num::NonZeroU64;

use super::mold::{COUNT, LEN_BYTES, MESSAGES, MoldPacket, MoldRequest, SEQUENCE, SESSION, SessionName};
use super::session::FeedSession;
use crate::payload::Reign;

/// The epoch in whose name the log's identity is asked for.
pub const LOG_EPOCH: u32 = 0;

/// Bytes of the message that tells the identity.
const IDENTITY_BYTES: usize = 8;

/// Bytes of the message that tells a reign: its epoch, and its number.
const REIGN_BYTES: usize = 16;

/// The number of the first of them.
const NUMBER: u64 = 1;

/// As many messages are asked for, and told by who knows of reigns.
const MESSAGES_WITH_REIGN: u16 = 2;

/// What a repair port tells of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogTold {
    /// Its identity.
    pub log_id: NonZeroU64,
    /// The epoch that was asked about, and its reign in that log; none by ports that know nothing of reigns.
    pub reign: Option<Reign>,
}

/// The packet that answers a request in the name of epoch 0, from what is known of the log; `reign_of` says the reign of an epoch, 0 where it
/// is unknown. Who asks for two messages names an epoch, and is told its reign.
pub fn log_identity(request: &MoldRequest, log_id: NonZeroU64, reign_of: impl Fn(u64) -> u64) -> LogPacket {
    let mut packet = LogPacket { bytes: [0; LogPacket::BYTES_MAX], len: MESSAGES };
    let has_reign = request.count >= MESSAGES_WITH_REIGN;
    packet.bytes[SESSION..SEQUENCE].copy_from_slice(&request.session);
    packet.bytes[SEQUENCE..COUNT].copy_from_slice(&NUMBER.to_be_bytes());
    let count = if has_reign { MESSAGES_WITH_REIGN } else { 1 };
    packet.bytes[COUNT..MESSAGES].copy_from_slice(&count.to_be_bytes());
    packet.push(&log_id.get().to_le_bytes());
    if has_reign {
        let epoch = request.sequence;
        packet.push(&[epoch.to_le_bytes(), reign_of(epoch).to_le_bytes()].concat());
    }
    packet
}

/// A packet that tells of a log.
pub struct LogPacket {
    bytes: [u8; LogPacket::BYTES_MAX],
    len: usize,
}

impl LogPacket {
    const BYTES_MAX: usize = MESSAGES + LEN_BYTES + IDENTITY_BYTES + LEN_BYTES + REIGN_BYTES;

    fn push(&mut self, message: &[u8]) {
        let (at, end) = (self.len + LEN_BYTES, self.len + LEN_BYTES + message.len());
        self.bytes[self.len..at].copy_from_slice(&(message.len() as u16).to_be_bytes());
        self.bytes[at..end].copy_from_slice(message);
        self.len = end;
    }

    /// The datagram.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The request that asks which log `stream` is of, and which reign of it `epoch` is; of epoch 0, which no reign has, which log alone.
///
/// # Panics
/// Where no session can name the stream.
pub fn ask_log_identity(stream: u32, epoch: u32) -> MoldRequest {
    let (sequence, count) = if epoch == LOG_EPOCH { (NUMBER, 1) } else { (epoch.into(), MESSAGES_WITH_REIGN) };
    MoldRequest { session: log_session(stream), sequence, count }
}

/// What a datagram tells of `stream`'s log; none where it is no answer to [`ask_log_identity`].
///
/// # Panics
/// Where no session can name the stream.
pub fn told_log_identity(stream: u32, datagram: &[u8]) -> Option<LogTold> {
    match MoldPacket::parse(datagram) {
        Ok(MoldPacket::Messages { session, sequence: NUMBER, count: 1..=MESSAGES_WITH_REIGN, mut messages })
            if *session == log_session(stream) =>
        {
            let log_id = NonZeroU64::new(u64::from_le_bytes(messages.next()?.try_into().ok()?))?;
            let reign = messages.next().map(told_reign);
            let told = LogTold { log_id, reign: reign.flatten() };
            (reign.is_none() || told.reign.is_some()).then_some(told)
        }
        _ => None,
    }
}

fn told_reign(message: &[u8]) -> Option<Reign> {
    let (epoch, id) = message.split_first_chunk::<8>()?;
    let reign = Reign { epoch: u64::from_le_bytes(*epoch), id: u64::from_le_bytes(id.try_into().ok()?) };
    (reign.epoch > 0).then_some(reign)
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

    fn identity(log_id: u64, reign: Option<Reign>) -> Vec<u8> {
        let (sequence, count) = reign.map_or((NUMBER, 1), |reign| (reign.epoch, 2));
        let request = MoldRequest { session: log_session(STREAM), sequence, count };
        let log_id = NonZeroU64::new(log_id).unwrap();
        log_identity(&request, log_id, |epoch| reign.filter(|reign| reign.epoch == epoch).unwrap().id).bytes().to_vec()
    }

    fn any_reign() -> impl Strategy<Value = Option<Reign>> {
        prop::option::of((1u64..=u64::MAX >> 1, any::<u64>()).prop_map(|(epoch, id)| Reign { epoch, id }))
    }

    proptest! {
        #[test]
        fn what_is_told_is_read(log_id in 1u64.., reign in any_reign()) {
            let packet = identity(log_id, reign);
            let told = LogTold { log_id: NonZeroU64::new(log_id).unwrap(), reign };
            prop_assert_eq!(told_log_identity(STREAM, &packet), Some(told));
            prop_assert_eq!(told_log_identity(STREAM + 1, &packet), None);
        }

        #[test]
        fn one_byte_less_or_more_or_another_is_no_answer(
            log_id in 1u64.., reign in any_reign(), at in 0usize..MESSAGES + LEN_BYTES, with in 1u8..
        ) {
            let mut packet = identity(log_id, reign);
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
            prop_assert_eq!(told.map(|told| identity(told.log_id.get(), told.reign)), told.map(|_| datagram));
        }
    }

    #[test]
    fn what_an_older_port_answers_tells_no_more_than_it_knows() {
        let present = FeedSession::new(STREAM, 3).unwrap().encode();
        let heartbeat = Packer::new(present, 9, 100).packet().to_vec();
        assert_eq!(told_log_identity(STREAM, &heartbeat), None);
        assert_eq!(told_log_identity(STREAM, &end_of_session(&log_session(STREAM), 1)), None);
        // It answers with the identity alone, however many messages are asked for.
        let log_id = NonZeroU64::new(1).unwrap();
        assert_eq!(told_log_identity(STREAM, &identity(1, None)), Some(LogTold { log_id, reign: None }));
        let mut none = identity(1, None);
        none[MESSAGES + LEN_BYTES..].fill(0);
        assert_eq!(told_log_identity(STREAM, &none), None, "no log has this one");
    }

    #[test]
    fn an_older_receiver_is_told_the_identity_alone() {
        let asks = MoldRequest { session: log_session(STREAM), sequence: 1, count: 1 };
        assert_eq!(ask_log_identity(STREAM, LOG_EPOCH), asks);
        let packet = log_identity(&asks, NonZeroU64::new(5).unwrap(), |_| panic!("it did not ask"));
        assert_eq!(packet.bytes(), identity(5, None));
        let asks = ask_log_identity(STREAM, 3);
        let packet = log_identity(&asks, NonZeroU64::new(5).unwrap(), |epoch| epoch * 10);
        assert_eq!(packet.bytes(), identity(5, Some(Reign { epoch: 3, id: 30 })));
    }
}
