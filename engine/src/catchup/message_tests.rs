//! The codec: golden bytes, what is refused, and that nothing else is.

use proptest::prelude::*;
use ticktape_core::{Seq, crc32c};

use super::layout::{header, hello, refuse};
use super::*;
use crate::payload::Reign;

const HELLO: Hello<'_> = Hello {
    stream: 1,
    schema_version: 9,
    log_id: 5,
    wanted: Seq(0x0102),
    reign: Reign { epoch: 3, id: 77 },
    replay_max: 1000,
    message_bytes_max: 65_536,
    part: Some(Part { seq: Seq(200), header_crc: 0x0403_0201, bytes: 4096 }),
    snapshot_max: Seq(900),
    service_name: "kv",
};

const UP_TO: Message<'_> = Message::UpTo(UpTo { next: Seq(10), commit: Seq(12), reign: Reign { epoch: 3, id: 77 } });

fn bytes(message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    message.append_to(&mut out);
    out
}

fn examples() -> Vec<Message<'static>> {
    let refusals = RefuseReason::ALL.map(|reason| Message::Refuse(Refuse { reason, detail: 7 }));
    let mut all = vec![
        Message::Hello(HELLO),
        Message::Hello(Hello { part: None, service_name: "", ..HELLO }),
        Message::Welcome(Welcome { log_id: 5, reign: Reign { epoch: 3, id: 77 }, commit: Seq(77) }),
        Message::SnapshotBegin(SnapshotBegin { seq: Seq(9), file_bytes: 8192, offset: 4096, header_crc: 1 }),
        Message::SnapshotChunk { offset: 4096, chunk: b"chunk" },
        Message::Frames { base: Seq(9), count: 1, frames: &[7; 32] },
        UP_TO,
    ];
    all.extend(refusals);
    all
}

#[test]
fn golden_bytes() {
    let word = |value: u64| value.to_le_bytes().to_vec();
    let hello = [
        b"TTCU\xcf\xf8\xec\x2b\x02\x01\0\0\x52\0\0\0\xad\xfc\x86\xe6\x01\0\0\0\x09\0\0\0".to_vec(),
        word(5),
        vec![2, 1, 0, 0, 0, 0, 0, 0],
        word(3),
        word(77),
        word(1000),
        b"\0\0\x01\0\x01\x02\x03\x04".to_vec(),
        word(200),
        word(4096),
        word(900),
        b"kv".to_vec(),
    ];
    assert_eq!(bytes(&Message::Hello(HELLO)), hello.concat());
    let up_to =
        [b"TTCU\x21\x8b\x7b\x26\x02\x07\0\0\x20\0\0\0\x5b\x69\x20\x18".to_vec(), word(10), word(12), word(3), word(77)];
    assert_eq!(bytes(&UP_TO), up_to.concat());
}

#[test]
fn each_message_reads_back() {
    for message in examples() {
        let mut decoder = Decoder::new(MESSAGE_BYTES_MIN);
        let bytes = bytes(&message);
        decoder.space()[..bytes.len()].copy_from_slice(&bytes);
        decoder.filled(bytes.len());
        assert_eq!(decoder.next(), Ok(Some(message)));
        assert_eq!(decoder.next(), Ok(None));
        assert!(!decoder.has_part());
    }
    assert!(Type::ALL.iter().all(|&known| Type::from_code(known.code()) == Some(known)));
    assert!(RefuseReason::ALL.iter().enumerate().all(|(index, known)| known.index() == index));
    assert!(MessageError::ALL.iter().enumerate().all(|(index, known)| known.index() == index));
}

fn reseal(bytes: &mut [u8]) {
    let crc = crc32c(&bytes[header::BYTES..]);
    bytes[header::BODY_CRC..header::BYTES].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c(&bytes[header::VERSION..header::BYTES]);
    bytes[header::HEADER_CRC..header::VERSION].copy_from_slice(&crc.to_le_bytes());
}

fn decode_changed(message: &Message<'_>, sealed: bool, change: impl Fn(&mut Vec<u8>)) -> Result<bool, MessageError> {
    let mut bytes = bytes(message);
    change(&mut bytes);
    if sealed {
        reseal(&mut bytes);
    }
    let mut decoder = Decoder::new(MESSAGE_BYTES_MIN);
    decoder.space()[..bytes.len()].copy_from_slice(&bytes);
    decoder.filled(bytes.len());
    decoder.next().map(|message| message.is_some())
}

#[test]
fn each_reason_is_named() {
    let hello = Message::Hello(HELLO);
    let refusal = Message::Refuse(Refuse { reason: RefuseReason::Stopping, detail: 0 });
    let set = |at: usize, value: u8| move |bytes: &mut Vec<u8>| bytes[at] = value;
    assert_eq!(decode_changed(&hello, true, |bytes| bytes.truncate(header::BYTES)), Ok(false), "the rest may come");
    assert_eq!(decode_changed(&hello, true, set(0, b'X')), Err(MessageError::Magic));
    assert_eq!(
        decode_changed(&hello, false, |bytes| bytes.splice(.., *b"GE").for_each(drop)),
        Err(MessageError::Magic)
    );
    assert_eq!(decode_changed(&hello, false, set(header::LENGTH, 1)), Err(MessageError::HeaderCrc));
    assert_eq!(decode_changed(&hello, true, set(header::VERSION, 1)), Err(MessageError::Version));
    assert_eq!(decode_changed(&hello, true, set(header::TYPE, 0)), Err(MessageError::UnknownType));
    assert_eq!(decode_changed(&hello, true, set(header::TYPE, 8)), Err(MessageError::UnknownType));
    assert_eq!(decode_changed(&hello, true, set(header::RESERVED, 1)), Err(MessageError::Reserved));
    assert_eq!(decode_changed(&hello, true, set(header::LENGTH + 3, 1)), Err(MessageError::Length));
    assert_eq!(decode_changed(&hello, true, set(header::LENGTH, 9)), Err(MessageError::Length));
    assert_eq!(decode_changed(&refusal, true, set(header::LENGTH, 13)), Err(MessageError::Length));
    assert_eq!(decode_changed(&hello, false, set(hello::SERVICE_NAME, b'x')), Err(MessageError::BodyCrc));
    for (at, value) in [
        (hello::SERVICE_NAME, 0xff),
        (hello::SERVICE_NAME, 0),
        (hello::EPOCH, 0),
        (hello::WANTED_SEQ + 7, 0x80),
        (hello::SNAPSHOT_MAX + 7, 0x80),
        (hello::PART_SEQ + 7, 0x80),
        (hello::PART_SEQ, 0),
        (hello::MESSAGE_BYTES_MAX + 3, 0xff),
        (hello::MESSAGE_BYTES_MAX + 2, 0),
    ] {
        assert_eq!(decode_changed(&hello, true, set(at, value)), Err(MessageError::Field), "{at} = {value}");
    }
    assert_eq!(decode_changed(&refusal, true, set(refuse::REASON, 0)), Err(MessageError::UnknownReason));
    assert_eq!(decode_changed(&refusal, true, set(refuse::REASON, 17)), Err(MessageError::UnknownReason));
    assert_eq!(decode_changed(&refusal, true, set(refuse::RESERVED, 1)), Err(MessageError::Reserved));
}

proptest! {
    #[test]
    fn however_the_bytes_come_the_messages_are_the_same(
        picks in prop::collection::vec(0usize..21, 1..60), cuts in prop::collection::vec(1usize..300, 1..40)
    ) {
        let examples = examples();
        let expected: Vec<Message<'_>> = picks.iter().map(|&pick| examples[pick]).collect();
        let mut stream = Vec::new();
        expected.iter().for_each(|message| message.append_to(&mut stream));
        let mut decoder = Decoder::new(MESSAGE_BYTES_MIN);
        let (mut at, mut got, mut cuts) = (0, 0, cuts.into_iter().cycle());
        while got < expected.len() {
            if let Some(message) = decoder.next().unwrap() {
                prop_assert_eq!(message, expected[got]);
                got += 1;
                continue;
            }
            let space = decoder.space();
            let bytes = space.len().min(cuts.next().unwrap()).min(stream.len() - at);
            prop_assert!(bytes > 0);
            space[..bytes].copy_from_slice(&stream[at..at + bytes]);
            decoder.filled(bytes);
            at += bytes;
        }
        prop_assert_eq!(at, stream.len());
    }

    #[test]
    fn every_flipped_bit_is_noticed_or_waited_for(pick in 0usize..21, bit: prop::sample::Index) {
        let message = examples()[pick];
        let flipped = decode_changed(&message, false, |bytes| {
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        });
        prop_assert!(flipped.is_err());
    }
}
