//! The packets: golden bytes, round trips, and every way in which bytes can lie.

use proptest::prelude::*;

use super::data::write_data;
use super::layout::{self, ack, data, header, hello, nack, refuse, resync, selective_ack, welcome};
use super::*;

const IDENTITY: Identity =
    Identity { session: 0x1112_1314_1516_1718, client_epoch: 0x2122_2324, appliance_epoch: 0x3132 };

const HELLO: Hello =
    Hello { nonce: 1, resume_next: 2, first_seq: 3, window: 4, datagram_bytes_max: 1472, schema: 6, is_resumed: false };

const WELCOME: Welcome = Welcome {
    nonce: 1,
    committed_next: 2,
    received_next: 3,
    first_event: 4,
    next_event: 5,
    window: 6,
    datagram_bytes_max: 1472,
    schema: 8,
    tier: Tier::Local,
};

fn encoded(packet: &Packet<'_>) -> Vec<u8> {
    let mut out = vec![0xee; 65_507];
    let bytes = packet.encode(&IDENTITY, &mut out).expect("it fits");
    assert_eq!(bytes, packet.bytes());
    out.truncate(bytes);
    out
}

/// Wire form of `messages`, and how many they are.
fn data_packet(base_seq: u32, messages: &[&[u8]]) -> Vec<u8> {
    let mut wire = Vec::new();
    for message in messages {
        wire.extend_from_slice(&(message.len() as u16).to_le_bytes());
        wire.extend_from_slice(message);
    }
    let mut out = vec![0xee; data::MESSAGES + wire.len()];
    assert_eq!(write_data(&IDENTITY, base_seq, messages.len() as u16, &wire, &mut out), out.len());
    out
}

/// Makes the checksum fit again after the bytes were changed.
fn reseal(bytes: &mut [u8]) {
    let crc = ticktape_crc::crc32c(&bytes[header::CRC_FROM..]);
    bytes[header::CRC..header::CRC + 4].copy_from_slice(&crc.to_le_bytes());
}

fn samples() -> Vec<Vec<u8>> {
    let mut room = [[0; 32]; 2];
    let [a, b] = &mut room;
    let one = Ranges::write(&[Range { from: 7, count: 2 }], a).unwrap();
    let two = Ranges::write(&[Range { from: 7, count: 2 }, Range { from: 20, count: 1 }], b).unwrap();
    let some = Ack { acked_next: 5, received_next: 6, window: 64 };
    let mut all: Vec<Vec<u8>> = [
        Packet::Hello(HELLO),
        Packet::Welcome(WELCOME),
        Packet::Refuse(Refuse { nonce: 1, reason: RefuseReason::SessionsFull, detail: 64 }),
        Packet::Ack(some),
        Packet::Nack(one),
        Packet::SelectiveAck(some, two),
        Packet::GapFill { from: 9, count: 3 },
        Packet::Resync(ResyncReason::Overflow),
        Packet::Heartbeat { next_seq: 77 },
        Packet::Bye(ByeReason::Stopping),
    ]
    .iter()
    .map(encoded)
    .collect();
    all.push(data_packet(u32::MAX, &[b"", b"ab", b"c"]));
    all
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn golden_bytes() {
    let head = |kind: &str, crc: &str| format!("54544c4b{crc}01{kind}000024232221181716151413121132310000");
    let golden = [
        (Packet::Ack(Ack { acked_next: 5, received_next: 6, window: 64 }), "05", "05000000 06000000 40000000"),
        (
            Packet::Hello(HELLO),
            "01",
            "0100000000000000 0200000000000000 0300000000000000 04000000 c0050000 06000000 00000000",
        ),
        (
            Packet::Welcome(WELCOME),
            "02",
            "0100000000000000 0200000000000000 0300000000000000 0400000000000000 0500000000000000 06000000 c0050000 08000000 01 000000",
        ),
        (
            Packet::Refuse(Refuse { nonce: 1, reason: RefuseReason::SchemaMismatch, detail: 3 }),
            "03",
            "0100000000000000 0200 0000 0300000000000000",
        ),
        (Packet::GapFill { from: 9, count: 3 }, "08", "09000000 03000000"),
        (Packet::Resync(ResyncReason::EpochChanged), "09", "0300 0000"),
        (Packet::Heartbeat { next_seq: 77 }, "0a", "4d000000"),
        (Packet::Bye(ByeReason::TooLong), "0b", "0300 0000"),
    ];
    for (packet, kind, body) in golden {
        let bytes = encoded(&packet);
        let crc = ticktape_crc::crc32c(&bytes[8..]);
        assert_eq!(hex(&bytes), head(kind, &hex(&crc.to_le_bytes())) + &body.replace(' ', ""), "{packet:?}");
    }
    let mut room = [0; 16];
    let ranges = Ranges::write(&[Range { from: 7, count: 2 }, Range { from: 20, count: 1 }], &mut room).unwrap();
    let ack = Ack { acked_next: 5, received_next: 6, window: 64 };
    let body = |packet: &Packet<'_>| hex(&encoded(packet)[header::BYTES..]);
    assert_eq!(body(&Packet::Nack(ranges)), "0200000007000000020000001400000001000000");
    assert_eq!(
        body(&Packet::SelectiveAck(ack, ranges)),
        "0500000006000000400000000200000007000000020000001400000001000000"
    );
    assert_eq!(hex(&data_packet(258, &[b"", b"ab"])[header::BYTES..]), "0201000002000000000002006162");
}

#[test]
fn a_whole_packet_by_its_bytes_alone() {
    // Written out in full once; the checksum was computed by another program.
    let identity = Identity { session: 7, client_epoch: 2, appliance_epoch: 3 };
    let mut out = [0; 40];
    let ack = Packet::Ack(Ack { acked_next: 65, received_next: 70, window: 1024 });
    assert_eq!(ack.encode(&identity, &mut out), Some(40));
    assert_eq!(&out[..4], b"TTLK");
    assert_eq!(out[4..8], 0x3168_078d_u32.to_le_bytes());
    assert_eq!(
        out[8..],
        [1, 5, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 65, 0, 0, 0, 70, 0, 0, 0, 0, 4, 0, 0]
    );
}

#[test]
fn every_type_reads_back_as_itself() {
    let samples = samples();
    let mut seen = std::collections::BTreeSet::new();
    for bytes in &samples {
        let (identity, packet) = Packet::decode(bytes).unwrap();
        assert_eq!(identity, IDENTITY);
        assert_eq!(&encoded(&packet), bytes);
        seen.insert(packet.packet_type().code());
        let mut short = vec![0; bytes.len() - 1];
        assert_eq!(packet.encode(&IDENTITY, &mut short), None);
    }
    assert_eq!(seen, Type::ALL.iter().map(|kind| kind.code()).collect());
}

#[test]
fn messages_come_back_in_order() {
    let bytes = data_packet(9, &[b"", b"ab", b"c"]);
    let Ok((_, Packet::Data(data))) = Packet::decode(&bytes) else { panic!("it is Data") };
    assert_eq!((data.base_seq(), data.count()), (9, 3));
    assert_eq!(data.messages().collect::<Vec<_>>(), [b"".as_slice(), b"ab", b"c"]);
}

#[test]
fn each_lie_has_its_own_error() {
    let error = |mut bytes: Vec<u8>, change: &dyn Fn(&mut Vec<u8>)| {
        change(&mut bytes);
        if bytes.len() >= header::BYTES && bytes[header::MAGIC] == b'T' {
            reseal(&mut bytes);
        }
        Packet::decode(&bytes).expect_err("it lies")
    };
    let ack = || encoded(&Packet::Ack(Ack { acked_next: 1, received_next: 1, window: 1 }));
    let set = |at: usize, value: u8| move |bytes: &mut Vec<u8>| bytes[at] = value;
    let mut met = std::collections::BTreeSet::new();
    let mut check = |found: PacketError, expected: PacketError| {
        assert_eq!(found, expected);
        met.insert(expected.index());
    };
    check(error(ack(), &|bytes| bytes.truncate(27)), PacketError::Short);
    check(error(ack(), &|bytes| bytes.truncate(39)), PacketError::Short);
    check(error(ack(), &|bytes| bytes.push(0)), PacketError::Trailing);
    check(error(ack(), &set(header::MAGIC, 0)), PacketError::BadMagic);
    check(error(ack(), &set(header::VERSION, 2)), PacketError::BadVersion);
    check(error(ack(), &set(header::TYPE, 0)), PacketError::UnknownType);
    check(error(ack(), &set(header::TYPE, 12)), PacketError::UnknownType);
    check(error(ack(), &set(header::RESERVED + 1, 1)), PacketError::ReservedNotZero);
    let mut flipped = ack();
    flipped[ack::WINDOW] ^= 1;
    check(Packet::decode(&flipped).unwrap_err(), PacketError::BadCrc);

    let some = || data_packet(1, &[b"ab", b"c"]);
    check(error(some(), &set(data::COUNT, 0)), PacketError::EmptyCount);
    check(error(some(), &set(data::COUNT, 1)), PacketError::Trailing);
    check(error(some(), &set(data::COUNT, 3)), PacketError::LyingLength);
    check(error(some(), &set(data::MESSAGES, 200)), PacketError::LyingLength);
    check(error(some(), &set(data::MESSAGES + 1, 255)), PacketError::LyingLength);
    check(error(some(), &set(data::RESERVED, 1)), PacketError::ReservedNotZero);
    check(error(some(), &|bytes| bytes.truncate(data::MESSAGES - 1)), PacketError::Short);

    let mut room = [0; 8];
    let ranges = Ranges::write(&[Range { from: 7, count: 2 }], &mut room).unwrap();
    let nacked = encoded(&Packet::Nack(ranges));
    check(error(nacked.clone(), &set(nack::COUNT, 0)), PacketError::Trailing);
    check(error(nacked.clone(), &set(nack::COUNT, 2)), PacketError::LyingLength);
    check(error(nacked.clone(), &set(nack::RESERVED, 1)), PacketError::ReservedNotZero);
    check(error(nacked.clone(), &set(nack::RANGES + 4, 0)), PacketError::BadRange);
    check(error(nacked, &|bytes| bytes.truncate(nack::RANGES - 1)), PacketError::Short);
    let selective = encoded(&Packet::SelectiveAck(Ack { acked_next: 1, received_next: 1, window: 1 }, ranges));
    check(error(selective.clone(), &set(selective_ack::COUNT + 1, 255)), PacketError::LyingLength);
    check(error(selective, &|bytes| bytes.truncate(ack::BYTES)), PacketError::Short);

    check(error(encoded(&Packet::Hello(HELLO)), &set(hello::FLAGS, 2)), PacketError::ReservedNotZero);
    check(error(encoded(&Packet::Hello(HELLO)), &set(hello::RESUME_NEXT + 7, 0x80)), PacketError::BadCursor);
    check(error(encoded(&Packet::Welcome(WELCOME)), &set(welcome::TIER, 3)), PacketError::UnknownCode);
    check(error(encoded(&Packet::Welcome(WELCOME)), &set(welcome::RECEIVED_NEXT, 1)), PacketError::BadCursor);
    check(error(encoded(&Packet::Welcome(WELCOME)), &set(welcome::FIRST_EVENT, 9)), PacketError::BadCursor);
    let refused = encoded(&Packet::Refuse(Refuse { nonce: 0, reason: RefuseReason::Forbidden, detail: 0 }));
    check(error(refused.clone(), &set(refuse::REASON, 0)), PacketError::UnknownCode);
    check(error(refused, &set(refuse::RESERVED, 1)), PacketError::ReservedNotZero);
    let resynced = encoded(&Packet::Resync(ResyncReason::Overflow));
    check(error(resynced, &set(resync::REASON + 1, 1)), PacketError::UnknownCode);
    check(
        error(encoded(&Packet::GapFill { from: 1, count: 1 }), &set(layout::gap_fill::COUNT, 0)),
        PacketError::EmptyCount,
    );
    check(
        error(encoded(&Packet::GapFill { from: 1, count: 1 }), &set(layout::gap_fill::COUNT + 3, 0x80)),
        PacketError::BadRange,
    );
    check(error(encoded(&Packet::Bye(ByeReason::Done)), &set(layout::bye::REASON, 9)), PacketError::UnknownCode);
    assert_eq!(met.len(), PacketError::ALL.len(), "each error was met");
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    for bytes in samples() {
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Packet::decode(&flipped).is_err(), "bit {bit} of {}", hex(&bytes));
        }
        for cut in 0..bytes.len() {
            assert!(Packet::decode(&bytes[..cut]).is_err(), "cut {cut} of {}", hex(&bytes));
        }
    }
}

proptest! {
    #[test]
    fn data_reads_back(base_seq: u32, messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..40)) {
        let slices: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let bytes = data_packet(base_seq, &slices);
        let Ok((_, Packet::Data(data))) = Packet::decode(&bytes) else { panic!("it is Data") };
        prop_assert_eq!(data.base_seq(), base_seq);
        prop_assert_eq!(usize::from(data.count()), messages.len());
        prop_assert_eq!(data.messages().collect::<Vec<_>>(), slices);
    }

    /// With the checksum made to fit, so that the fields behind it are reached.
    #[test]
    fn any_bytes_decode_without_panic_and_only_to_what_encodes_to_them(
        kind in 0u8..14, mut body in prop::collection::vec(prop_oneof![Just(0u8), 0..4u8, any::<u8>()], 0..80)
    ) {
        let mut bytes = vec![0; header::BYTES];
        bytes[..4].copy_from_slice(b"TTLK");
        bytes[header::VERSION] = 1;
        bytes[header::TYPE] = kind;
        bytes.append(&mut body);
        reseal(&mut bytes);
        if let Ok((identity, packet)) = Packet::decode(&bytes) {
            let mut out = vec![0xee; bytes.len()];
            prop_assert_eq!(packet.encode(&identity, &mut out), Some(bytes.len()));
            prop_assert_eq!(out, bytes);
        }
    }

    #[test]
    fn noise_decodes_without_panic(bytes: Vec<u8>) {
        prop_assert!(Packet::decode(&bytes).is_err());
    }
}
