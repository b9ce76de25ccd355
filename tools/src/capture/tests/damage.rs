//! Files that are cut, flipped, or lie: an error that says where, or a counted skip.

use super::super::{BLOCK_BYTES_MAX, Datagrams, Flaw, INTERFACES_MAX, ReadError, Reader, Reason};
use super::{Content, Order, Pcap, Pcapng, frame, read};

/// A small file of every kind of block, in this order.
fn pcapng(order: Order) -> Vec<u8> {
    let mut file = Pcapng::new(order);
    file.interface(1, 96, &[file.option(2, b"eth0"), file.option(9, &[9]), file.option(0, &[])].concat());
    file.block(4, &[0; 4]);
    file.packet(0, 1 << 60, &frame(b"a"), 43, &[file.option(2, &file.u32(1)), file.option(4, &file.u64(2))].concat());
    file.block(0x0bad, &[9; 8]);
    file.block(3, &[file.u32(43), frame(b"b")].concat());
    let head = [file.u16(0), file.u16(0), file.u32(0), file.u32(5), file.u32(43), file.u32(43)].concat();
    file.block(2, &[head, frame(b"c")].concat());
    file.block(5, &[file.u32(0), vec![0; 8], file.option(5, &file.u64(1))].concat());
    file.section();
    file.interface(101, 0, &[]);
    file.packet(0, 1, &frame(b"d")[14..], 29, &[]);
    file.bytes
}

fn pcap(order: Order, magic: u32) -> Vec<u8> {
    let mut file = Pcap::new(order, magic, 96, 1);
    for payload in [b"a", b"b", b"c"] {
        file.packet((1_700_000_000, 9), &frame(payload), 43, 0);
    }
    file.bytes
}

fn small_files() -> Vec<Vec<u8>> {
    let orders = [Order::Little, Order::Big];
    let magics = [0xa1b2_c3d4, 0xa1b2_3c4d, 0xa1b2_cd34];
    let pcaps = magics.into_iter().flat_map(|magic| orders.map(|order| pcap(order, magic)));
    orders.map(pcapng).into_iter().chain(pcaps).collect()
}

#[test]
fn a_cut_anywhere_is_told_and_what_stands_before_it_is_read() {
    for whole in small_files() {
        let all = read(&whole);
        all.ended.unwrap();
        assert!(all.packets.len() >= 3);
        let mut sound = 0;
        for end in 0..whole.len() {
            let Content { packets, ended, .. } = read(&whole[..end]);
            assert!(packets.len() <= all.packets.len() && packets == all.packets[..packets.len()], "cut at {end}");
            match ended {
                Ok(()) => sound += 1,
                Err(ReadError { reason: Reason::NotACapture, at: 0 }) => assert!(end < 4, "cut at {end}"),
                Err(ReadError { reason: Reason::Cut, at }) => assert!(at < end as u64, "cut at {end}"),
                Err(error) => panic!("cut at {end}: {error}"),
            }
        }
        // Between two blocks nothing tells that more was to come.
        let ends = if whole[0] == 0x0a { all.blocks.len() - 1 } else { all.packets.len() };
        assert_eq!(sound, ends);
    }
}

#[test]
fn no_flipped_byte_panics_or_runs_on() {
    let (mut refused, mut flawed) = (0, 0);
    for whole in small_files() {
        for at in 0..whole.len() {
            for change in [1, 2, 4, 0x40, 0x80, 0xff] {
                let mut spoiled = whole.clone();
                spoiled[at] ^= change;
                let content = read(&spoiled);
                refused += usize::from(content.ended.is_err());
                flawed += usize::from(content.flaws.total() > 0);
                let mut datagrams = match Reader::new(&spoiled[..]) {
                    Ok(reader) => Datagrams::new(reader),
                    Err(_) => continue,
                };
                while let Ok(Some(datagram)) = datagrams.next() {
                    assert!(datagram.payload.len() < whole.len());
                }
            }
        }
    }
    assert!(refused > 800 && flawed > 80, "{refused} refused, {flawed} flawed");
}

/// A section, and a block that begins with these two words.
fn with_block(kind: u32, length: u32) -> Vec<u8> {
    let mut file = Pcapng::new(Order::Little);
    file.bytes.extend([kind, length].map(u32::to_le_bytes).concat());
    file.bytes.extend([0; 64]);
    file.bytes
}

#[test]
fn lengths_that_cannot_be_end_the_reading_where_they_stand() {
    let at = Pcapng::new(Order::Little).bytes.len() as u64;
    for kind in [1, 2, 3, 4, 5, 6, 0x0bad, 0x0a0d_0d0a, 99] {
        for length in [0, 1, 4, 8, 11, 13, 30, u32::MAX] {
            let error = read(&with_block(kind, length)).ended.unwrap_err();
            assert_eq!(error.at, at);
            let is_section = kind == 0x0a0d_0d0a;
            assert!(is_section || matches!(error.reason, Reason::Length(found) if found == length), "{error}");
        }
        for length in [BLOCK_BYTES_MAX as u32 + 4, u32::MAX - 3] {
            let error = read(&with_block(kind, length)).ended.unwrap_err();
            match (kind, error.reason) {
                (4 | 99 | 0x0bad, Reason::Cut) => {}
                (0x0a0d_0d0a, Reason::ByteOrder([0, 0, 0, 0])) => {}
                (_, Reason::TooLong(found)) => assert_eq!(found, length),
                (_, other) => panic!("{kind}: {other:?}"),
            }
        }
    }
    let mut section = Pcapng::new(Order::Little).bytes;
    section[4] = 12;
    assert!(matches!(read(&section).ended.unwrap_err(), ReadError { at: 0, reason: Reason::Length(12) }));
    let mut pcap = Pcap::new(Order::Big, 0xa1b2_c3d4, 0, 1);
    pcap.packet((1, 1), b"x", 1, 0);
    pcap.packet((1, 1), b"y", 1, 0);
    pcap.bytes[49..53].fill(0xff);
    assert!(matches!(read(&pcap.bytes).ended.unwrap_err(), ReadError { at: 41, reason: Reason::TooLong(u32::MAX) }));
}

#[test]
fn a_block_that_ends_otherwise_than_it_begins_ends_the_reading() {
    let mut file = Pcapng::new(Order::Big);
    let at = file.bytes.len() as u64;
    file.interface(1, 0, &[]);
    *file.bytes.last_mut().unwrap() = 24;
    let error = read(&file.bytes).ended.unwrap_err();
    assert_eq!(error.at, at);
    assert!(matches!(error.reason, Reason::LengthsDiffer { head: 20, tail: 24 }), "{error}");
}

#[test]
fn versions_and_orders_that_are_not_known_are_named() {
    let mut file = Pcapng::new(Order::Little);
    file.bytes[12] = 2;
    assert_eq!(
        read(&file.bytes).ended.unwrap_err().to_string(),
        "byte 0: version is 2.0, known are 2.4 of pcap and 1.0 of pcapng"
    );
    let mut pcap = Pcap::new(Order::Little, 0xa1b2_c3d4, 0, 1);
    pcap.bytes[6] = 5;
    assert!(matches!(read(&pcap.bytes).ended.unwrap_err().reason, Reason::Version { major: 2, minor: 5 }));
    let mut file = Pcapng::new(Order::Little);
    file.bytes[8] = 0;
    assert!(matches!(read(&file.bytes).ended.unwrap_err().reason, Reason::ByteOrder([0, 0x3c, 0x2b, 0x1a])));
    for other in [&b""[..], b"PK\x03", b"PK\x03\x04 something else", &[0; 100]] {
        let error = read(other).ended.unwrap_err();
        assert!(matches!(error, ReadError { at: 0, reason: Reason::NotACapture }) && error.is_no_capture());
    }
}

#[test]
fn interfaces_are_bounded() {
    let mut file = Pcapng::new(Order::Little);
    for number in 0..=INTERFACES_MAX {
        if number % 100 == 99 {
            file.section();
        }
        file.interface(1, 0, &[]);
    }
    let content = read(&file.bytes);
    assert!(matches!(content.ended.unwrap_err().reason, Reason::TooManyInterfaces));
    let mut short = Pcapng::new(Order::Little);
    short.block(1, &[0; 4]);
    assert!(matches!(read(&short.bytes).ended.unwrap_err().reason, Reason::Short));
}

#[test]
fn packets_that_cannot_be_are_skipped_and_counted() {
    let mut file = Pcapng::new(Order::Little);
    file.block(3, &[file.u32(2), b"ab".to_vec()].concat());
    file.interface(1, 4, &[]);
    file.packet(1, 0, b"abc", 3, &[]);
    file.packet(0, 0, b"abc", 2, &[]);
    file.packet(0, 0, b"abcde", 5, &[]);
    file.block(6, &[0; 16]);
    file.block(3, &[]);
    file.block(5, &[0; 4]);
    let beyond = [0, 0, 0, 4, 4].map(|word| file.u32(word)).concat();
    file.block(6, &beyond);
    file.block(3, &[file.u32(4), b"".to_vec()].concat());
    file.block(5, &[file.u32(7), vec![0; 8]].concat());
    file.packet(0, u64::MAX, b"abc", 3, &[]);
    file.packet(0, 1, b"abc", 3, &[2, 0, 99, 0]);
    file.section();
    file.packet(0, 1, b"abc", 3, &[]);
    let content = read(&file.bytes);
    content.ended.unwrap();
    assert_eq!(content.packets.iter().map(|packet| packet.time_ns).collect::<Vec<_>>(), [None, Some(1_000)]);
    let expected = [
        (Flaw::UnknownInterface, 4),
        (Flaw::PacketShort, 3),
        (Flaw::PacketBeyondBlock, 2),
        (Flaw::CapturedBeyondOriginal, 1),
        (Flaw::BeyondSnap, 1),
        (Flaw::BadOptions, 1),
        (Flaw::TimeOutOfRange, 1),
    ];
    for (flaw, count) in content.flaws.rows() {
        let wanted = expected.iter().find(|(other, _)| *other == flaw).map_or(0, |(_, count)| *count);
        assert_eq!(count, wanted, "{}", flaw.name());
    }

    let mut pcap = Pcap::new(Order::Little, 0xa1b2_3c4d, 4, 1);
    pcap.packet((1, 1), b"abcde", 5, 0);
    pcap.packet((1, 1), b"abc", 2, 0);
    pcap.packet((1, 1), b"abc", 3, 0);
    let content = read(&pcap.bytes);
    content.ended.unwrap();
    let counted = [Flaw::BeyondSnap, Flaw::CapturedBeyondOriginal].map(|flaw| content.flaws.get(flaw));
    assert_eq!((content.packets.len(), counted), (1, [1, 1]));
}
