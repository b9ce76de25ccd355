//! The document's examples, made again by the code.

use std::num::NonZeroU64;

use ticktape::catchup::{Hello, Message, Part, UpTo};
use ticktape::feed::{
    Commit, FeedSession, LogTold, MoldRequest, Packer, Status, ask_log_identity, log_identity, told_log_identity,
};
use ticktape::link::{Ack, EventMessage, Identity, Packet};
use ticktape::mark::Mark;
use ticktape::payload::{EpochChange, Origin, Reign};
use ticktape::{Decode, Encode, Frame, Kind, Seq, SessionId, Timestamp};
use ticktape_core::{crc32c, frame};
use ticktape_journal::format::commit::{CommitHeader, HEADER_BYTES};
use ticktape_journal::format::recycle::{self, RecycleMark};
use ticktape_journal::format::seal::{self, Sealed};
use ticktape_journal::format::segment::{SegmentHeader, V1_HEADER_BYTES, Version};
use ticktape_journal::format::snapshot::{SectionBytes, SnapshotMeta};
use ticktape_journal::format::{segment, snapshot};
use ticktape_shm::layout;

use super::wire_document::Document;

#[derive(Encode, Decode)]
enum Side {
    Buy,
    Sell,
}

#[derive(Encode, Decode)]
enum Order {
    New { side: Side, id: u64, price: i64, qty: u32 },
    Cancel(u64),
}

/// What the code makes of each example.
fn made() -> Vec<(&'static str, Vec<u8>)> {
    assert_ne!(Side::Buy.to_bytes(), Side::Sell.to_bytes());
    let origin = Origin { session: SessionId(258), client_epoch: 7, client_seq: 9 };
    let event = EventMessage { log_seq: 258, client_seq: 3, output: &[0xaa, 0xbb] };
    let request = MoldRequest { session: feed_session(), sequence: 7, count: 300 };
    vec![
        ("frame", sealed(1, 1_795_979_282_999_633_159, Kind::Input, &[0, 0, 5, 0, 0, 0, 0, 0, 0, 0])),
        ("codec new", Order::New { side: Side::Sell, id: 7, price: -2, qty: 100 }.to_bytes()),
        ("codec cancel", Order::Cancel(7).to_bytes()),
        ("session input", [&origin.encode()[..], b"buy"].concat()),
        ("epoch change", epoch_change(0x0102_0304_0506_0708).encode()),
        ("epoch change without a reign", epoch_change(0).encode()),
        ("snapshot mark", Mark { at: Seq(7), state_digest: [3; 32], output_hash: 9 }.encode().to_vec()),
        ("segment header", segment_header()),
        ("segment header version 1", segment_header_version_1()),
        ("recycle mark", recycle_mark()),
        ("commit", commit()),
        ("seal file", seal_file()),
        ("snapshot header", snapshot_header()),
        ("ack", ack()),
        ("event", [&EventMessage::head(event.log_seq, event.client_seq)[..], event.output].concat()),
        ("feed packet", feed_packet()),
        ("feed request", request.encode().to_vec()),
        ("feed log request", ask_log_identity(1, 3).encode().to_vec()),
        ("feed log identity", feed_log_identity()),
        ("status", status()),
        (
            "commit word",
            Commit { stream: 1, reign: Reign { epoch: 3, id: 77 }, log_id: 5, age_ms: 0, commit: Seq(258) }
                .encode()
                .to_vec(),
        ),
        ("catch-up hello", catchup_hello()),
        ("catch-up up to", catchup_up_to()),
        ("anchor", anchor()),
    ]
}

/// What is wrong with the document's examples.
pub fn problems(document: &Document) -> Vec<String> {
    let made = made();
    let mut problems = Vec::new();
    for example in &document.examples {
        match made.iter().find(|(name, _)| *name == example.name) {
            None => problems.push(format!("example {:?}: nothing checks it", example.name)),
            Some((name, bytes)) if example.bytes.as_ref() != Some(bytes) => {
                problems.push(format!("example {name:?}: should be {}", hex(bytes)));
            }
            Some(_) => {}
        }
    }
    for (name, _) in made {
        let times = document.examples.iter().filter(|example| example.name == name).count();
        if times != 1 {
            problems.push(format!("example {name:?}: is there {times} times"));
        }
    }
    problems
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sealed(seq: u64, timestamp: u64, kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let frame = Frame { seq: Seq(seq), timestamp: Timestamp(timestamp), stream_id: 1, kind, payload };
    frame.append_to(&mut bytes);
    bytes
}

/// The header; the zeros after it are left out.
fn segment_header() -> Vec<u8> {
    let (salt, previous_salt, previous_checksum, log_id) = (7, 5, 3, 0x0102_0304_0506_0708);
    let version = Version::Two { salt, previous_salt, previous_checksum, alignment: 512, recycled: false, log_id };
    let mut block = vec![0; 512];
    SegmentHeader { first_seq: Seq(9), epoch: 2, version }.encode(&mut block);
    block.truncate(segment::HEADER_BYTES);
    block
}

/// Version 1 is only read, so the example is written here and read by the code.
fn segment_header_version_1() -> Vec<u8> {
    let bytes = b"TKTJ\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x46\x84\x3b\xc8".to_vec();
    assert_eq!(bytes.len(), V1_HEADER_BYTES);
    let header = SegmentHeader { first_seq: Seq(1), epoch: 0, version: Version::One };
    assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
    bytes
}

/// The fields; the zeros after them are left out.
fn recycle_mark() -> Vec<u8> {
    let mut block = vec![0; 512];
    RecycleMark { first_seq: Seq(9), salt: 7, alignment: 512 }.encode(&mut block);
    block.truncate(recycle::BYTES);
    block
}

/// The header and the frame; the zeros after them are left out.
fn commit() -> Vec<u8> {
    let mut tick = sealed(5, 50, Kind::Tick, &[]);
    tick.resize(frame::padded(tick.len()), 0);
    let length = tick.len() as u32;
    let (base_seq, durable, count, previous, next_salt) = (Seq(5), Seq(3), 1, 9, 11);
    let header = CommitHeader { salt: 7, epoch: 1, base_seq, durable, count, length, previous, next_salt };
    let mut commit = vec![0; header.total_bytes(512)];
    commit[HEADER_BYTES..HEADER_BYTES + tick.len()].copy_from_slice(&tick);
    header.seal(&mut commit);
    assert!(CommitHeader::decode(&commit, 512).is_ok());
    commit.truncate(HEADER_BYTES + tick.len());
    commit
}

fn seal_file() -> Vec<u8> {
    let mut block = vec![0; 512];
    Sealed { durable: Seq(42), next_salt: 9 }.encode(&mut block);
    block.truncate(seal::BYTES);
    block
}

/// The header; the zeros after it are left out.
fn snapshot_header() -> Vec<u8> {
    let meta = SnapshotMeta {
        seq: Seq(42),
        timestamp: Timestamp(7),
        epoch: 3,
        state_digest: std::array::from_fn(|i| i as u8),
        output_hash: 9,
        schema_version: 2,
        service_name: "kv".into(),
        log_id: 0x0102_0304_0506_0708,
    };
    let sections = SectionBytes { engine: 2, service: 3, tails: 0 };
    let mut body = b"abcde".to_vec();
    body.resize(snapshot::BLOCK_BYTES, 0);
    let mut block = vec![0; snapshot::BLOCK_BYTES];
    snapshot::SnapshotHeader { meta, sections, body_crc: crc32c(&body) }.encode(&mut block);
    block.truncate(snapshot::HEADER_BYTES);
    block
}

fn ack() -> Vec<u8> {
    let identity = Identity { session: 7, client_epoch: 2, appliance_epoch: 3 };
    let ack = Packet::Ack(Ack { acked_next: 65, received_next: 70, window: 1024 });
    let mut out = vec![0; ack.bytes()];
    assert_eq!(ack.encode(&identity, &mut out), Some(out.len()));
    out
}

fn feed_session() -> [u8; 10] {
    FeedSession::new(1, 2).expect("both are small").encode()
}

fn feed_packet() -> Vec<u8> {
    let mut packer = Packer::new(feed_session(), 258, 64);
    assert!([&b"ab"[..], b"", b"c"].into_iter().all(|message| packer.push(message)));
    packer.packet().to_vec()
}

/// As it is told, and as who asked reads it.
fn feed_log_identity() -> Vec<u8> {
    let log_id = NonZeroU64::new(0x0102_0304_0506_0708).unwrap();
    let reign = Reign { epoch: 3, id: 77 };
    let packet = log_identity(&ask_log_identity(1, 3), log_id, |_| reign.id).bytes().to_vec();
    assert_eq!(told_log_identity(1, &packet), Some(LogTold { log_id, reign: Some(reign) }));
    packet
}

fn status() -> Vec<u8> {
    Status {
        stream: 1,
        reign: Reign { epoch: 3, id: 77 },
        log_id: 5,
        replica: 7,
        number: 258,
        durable: Seq(258),
        applied: Seq(257),
    }
    .encode()
    .to_vec()
}

fn catchup(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.append_to(&mut bytes);
    bytes
}

fn catchup_up_to() -> Vec<u8> {
    catchup(&Message::UpTo(UpTo { next: Seq(10), commit: Seq(12), reign: Reign { epoch: 3, id: 77 } }))
}

fn catchup_hello() -> Vec<u8> {
    catchup(&Message::Hello(Hello {
        stream: 1,
        schema_version: 9,
        log_id: 5,
        wanted: Seq(258),
        reign: Reign { epoch: 3, id: 77 },
        replay_max: 1000,
        message_bytes_max: 65_536,
        part: Some(Part { seq: Seq(200), header_crc: 0x0403_0201, bytes: 4096 }),
        snapshot_max: Seq(900),
        service_name: "kv",
    }))
}

/// The table's words, put where the code has them.
fn anchor() -> Vec<u8> {
    let mut bytes = vec![0; layout::ANCHOR_BYTES];
    for (at, word) in [
        (layout::ANCHOR_VERSION, 2 * 5 + 2),
        (layout::ANCHOR_SEQ, 9),
        (layout::ANCHOR_POSITION, 640),
        (layout::ANCHOR_EPOCH, 3u64),
    ] {
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn epoch_change(reign: u64) -> EpochChange<'static> {
    let previous_reign = if reign == 0 { 0 } else { 5 };
    EpochChange { epoch: 3, schema_version: 9, service_name: "kv", reign, previous_reign }
}
