//! Frames, and the payloads that the engine itself reads: what decodes encodes to the same bytes.

use ticktape::payload::{self, Origin};
use ticktape_core::frame::{HEADER_CRC, OVERHEAD_BYTES, PAYLOAD, payload_len};
use ticktape_core::{Frame, Kind, Seq, SessionId, Timestamp, crc32c};

use super::Seeds;

pub fn run(data: &[u8]) -> bool {
    let mut sound = data.to_vec();
    repair(&mut sound);
    check(data) | check(&sound)
}

/// Makes the checksums of a frame right, as far as it is there: no fuzzer guesses them.
pub fn repair(frame: &mut [u8]) {
    if frame.len() < OVERHEAD_BYTES {
        return;
    }
    let crc = crc32c(&frame[..HEADER_CRC]);
    frame[HEADER_CRC..PAYLOAD].copy_from_slice(&crc.to_le_bytes());
    let end = PAYLOAD + payload_len(frame);
    if end + 4 <= frame.len() {
        let crc = crc32c(&frame[PAYLOAD..end]);
        frame[end..end + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

fn check(bytes: &[u8]) -> bool {
    let view = Frame::view(bytes);
    if let Ok(frame) = view {
        assert!(frame.bytes() <= bytes.len());
    }
    let Ok(frame) = Frame::decode(bytes) else { return false };
    assert_eq!(view, Ok(frame));
    let mut again = Vec::new();
    frame.append_to(&mut again);
    assert_eq!(again, bytes[..frame.bytes()]);
    assert!(Frame::decode(&bytes[..frame.bytes() - 1]).is_err(), "a cut frame is none");
    check_payload(frame.payload);
    true
}

fn check_payload(bytes: &[u8]) {
    if let Some((origin, command)) = Origin::split(bytes) {
        assert_eq!([&origin.encode()[..], command].concat(), bytes);
    }
    if let Some((session, client_epoch)) = payload::decode_session(bytes) {
        assert!(bytes.starts_with(&payload::encode_session(session, client_epoch)));
    }
    if let Some(origin) = payload::decode_session_open(bytes) {
        let again = payload::encode_session_open(origin.session, origin.client_epoch, origin.client_seq);
        assert!(bytes.starts_with(&again));
    }
    if let Some(change) = payload::EpochChange::decode(bytes) {
        assert_eq!(bytes, change.encode());
    }
}

pub fn sealed(seq: u64, kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Frame { seq: Seq(seq), timestamp: Timestamp(seq.wrapping_mul(1_000)), stream_id: 1, kind, payload }
        .append_to(&mut bytes);
    bytes
}

pub fn seeds() -> Seeds {
    let origin = Origin { session: SessionId(7), client_epoch: 2, client_seq: 11 }.encode();
    vec![
        ("input", sealed(1, Kind::Input, b"buy")),
        ("tick", sealed(2, Kind::Tick, &[])),
        ("session_input", sealed(3, Kind::SessionInput, &[&origin[..], b"sell"].concat())),
        ("session_open", sealed(4, Kind::SessionOpen, &payload::encode_session_open(SessionId(7), 2, 11))),
        (
            "epoch_change",
            sealed(
                Seq::MAX.0,
                Kind::EpochChange,
                &payload::EpochChange {
                    epoch: 1,
                    schema_version: 1,
                    service_name: "kv",
                    reign: 258,
                    previous_reign: 257,
                }
                .encode(),
            ),
        ),
        (
            "epoch_change_without_a_reign",
            sealed(
                1,
                Kind::EpochChange,
                &payload::EpochChange { epoch: 1, schema_version: 1, service_name: "kv", ..Default::default() }
                    .encode(),
            ),
        ),
    ]
}
