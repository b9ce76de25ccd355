//! What sound files say.

use std::net::Ipv4Addr;

use ticktape_nic::capture::{Direction, pcapng};
use ticktape_nic::packet::MacAddr;

use super::super::{Block, Datagrams, Flaw, Flaws, Interface, Reader, Resolution};
use super::{Order, Owned, Pcap, Pcapng, address, frame, payloads, read};

const BOTH: [Order; 2] = [Order::Little, Order::Big];

fn owned(bytes: &[u8], time_ns: Option<u64>) -> Owned {
    let original_bytes = bytes.len() as u32;
    Owned { number: 0, time_ns, direction: None, original_bytes, lost: 0, bytes: bytes.to_vec() }
}

#[test]
fn what_this_project_writes_is_read() {
    let mut bytes = Vec::new();
    pcapng::section(&mut bytes, "test");
    let interface = pcapng::Interface {
        name: "eth7".to_string(),
        description: "what".to_string(),
        mac: MacAddr([2; 6]),
        address: Some((Ipv4Addr::LOCALHOST, 8)),
    };
    pcapng::interface(&mut bytes, &interface, 0);
    pcapng::interface(&mut bytes, &interface, 40);
    let (time_ns, direction, lost) = (1_700_000_000_123_456_789, Direction::Outbound, 3);
    let packet_at = bytes.len() as u64;
    let place = pcapng::Packet { interface: 0, time_ns, original_bytes: 0, direction, lost };
    pcapng::packet(&mut bytes, &place, &frame(b"a payload"));
    let cut = pcapng::Packet { interface: 1, time_ns: 1, original_bytes: 51, direction: Direction::Inbound, lost: 0 };
    pcapng::packet(&mut bytes, &cut, &frame(b"a payload")[..40]);
    pcapng::statistics(&mut bytes, 1, &pcapng::Totals { times_ns: (1, 2), seen: 4, lost: 3 });

    let content = read(&bytes);
    content.ended.unwrap();
    let expected = Owned { direction: Some(direction), lost, ..owned(&frame(b"a payload"), Some(time_ns)) };
    assert_eq!(content.packets[0], expected);
    assert_eq!((content.packets[1].number, content.packets[1].original_bytes), (1, 51));
    assert_eq!(content.totals, [(1, Some(4), Some(3))]);
    assert_eq!(content.flaws, Flaws::default());

    let mut datagrams = Datagrams::new(Reader::new(&bytes[..]).unwrap());
    let datagram = datagrams.next().unwrap().unwrap();
    assert_eq!((datagram.index, datagram.at, datagram.number), (1, packet_at, 0));
    assert_eq!((datagram.time_ns, datagram.direction), (Some(time_ns), Some(direction)));
    assert_eq!((datagram.source, datagram.destination), (address("10.0.0.1:1000"), address("10.0.0.2:2000")));
    assert_eq!(datagram.payload, b"a payload");
    let described = Interface {
        link_type: 1,
        snap_bytes: 0,
        name: "eth7".to_string(),
        description: "what".to_string(),
        resolution: Resolution::NANOSECONDS,
        offset_s: 0,
    };
    assert_eq!(*datagram.interface, described);
    assert!(datagrams.next().unwrap().is_none());
    assert_eq!((datagrams.flaws().get(Flaw::Cut), datagrams.flaws().total()), (1, 1));
}

#[test]
fn pcap_of_every_kind_is_read_alike() {
    let frame = frame(b"x");
    let time = 1_700_000_000_000_002_000;
    for order in BOTH {
        for (magic, fraction) in [(0xa1b2_c3d4, 2), (0xa1b2_3c4d, 2_000), (0xa1b2_cd34, 2)] {
            let mut file = Pcap::new(order, magic, 0, 1);
            file.packet((1_700_000_000, fraction), &frame, frame.len() as u32, 4);
            file.packet((1_700_000_000, fraction), &frame[..20], frame.len() as u32, 0);
            let content = read(&file.bytes);
            content.ended.unwrap();
            let outbound = (magic == 0xa1b2_cd34).then_some(Direction::Outbound);
            let inbound = (magic == 0xa1b2_cd34).then_some(Direction::Inbound);
            let whole = Owned { direction: outbound, ..owned(&frame, Some(time)) };
            let original_bytes = frame.len() as u32;
            let cut = Owned { direction: inbound, original_bytes, ..owned(&frame[..20], Some(time)) };
            assert_eq!(content.packets, [whole, cut], "{magic:#x} {order:?}");
            assert_eq!(content.blocks, [Block::Record; 2]);
            assert_eq!(payloads(&file.bytes).0.len(), 1);
        }
    }
}

#[test]
fn the_lengths_of_old_pcap_files_may_be_swapped() {
    let mut file = Pcap::new(Order::Little, 0xa1b2_c3d4, 96, 1);
    file.bytes[6] = 2;
    file.packet((1, 0), &[7; 10], 10, 0);
    let at = file.bytes.len() + 8;
    file.packet((1, 0), &[8; 10], 200, 0);
    file.bytes[at..at + 8].rotate_left(4);
    let content = read(&file.bytes);
    content.ended.unwrap();
    assert_eq!(content.packets[1].bytes, [8; 10]);
    assert_eq!(content.packets[1].original_bytes, 200);
}

#[test]
fn times_and_interfaces_are_those_of_their_section() {
    let mut file = Pcapng::new(Order::Big);
    file.interface(1, 0, &[file.option(9, &[0x80 | 20]), file.option(14, &file.u64(100))].concat());
    file.packet(0, 3 << 19, b"first", 5, &[]);
    file.section_in(Order::Little);
    file.interface(1, 0, &[]);
    file.interface(1, 0, &[file.option(9, &[3]), file.option(14, &file.u64(u64::MAX))].concat());
    file.packet(1, 5_001, b"second", 6, &[]);
    file.packet(0, 5, b"third", 5, &[]);
    let statistics = [file.u32(1), vec![0; 8], file.option(5, &file.u64(9))].concat();
    file.block(5, &statistics);
    let content = read(&file.bytes);
    content.ended.unwrap();
    let times = content.packets.iter().map(|packet| (packet.number, packet.time_ns.unwrap()));
    assert_eq!(times.collect::<Vec<_>>(), [(0, 101_500_000_000), (2, 4_001_000_000), (1, 5_000)]);
    assert_eq!(content.totals, [(2, None, Some(9))]);
    assert_eq!(content.flaws, Flaws::default());
}

#[test]
fn simple_and_obsolete_packets_are_packets() {
    for order in BOTH {
        let mut file = Pcapng::new(order);
        file.interface(1, 4, &[]);
        file.interface(1, 0, &[]);
        file.block(3, &[file.u32(9), b"four".to_vec()].concat());
        file.block(3, &[file.u32(3), b"abc".to_vec()].concat());
        let head = [file.u16(1), file.u16(7), file.u32(0), file.u32(5), file.u32(3), file.u32(3)].concat();
        file.block(2, &[head, b"xyz\0".to_vec(), file.option(2, &file.u32(1))].concat());
        let unknown = [file.u16(1), file.u16(0xffff), file.u32(0), file.u32(5), file.u32(3), file.u32(3)].concat();
        file.block(2, &[unknown, b"xyz".to_vec()].concat());
        let content = read(&file.bytes);
        content.ended.unwrap();
        let obsolete = Owned { number: 1, ..owned(b"xyz", Some(5_000)) };
        let expected = [
            Owned { original_bytes: 9, ..owned(b"four", None) },
            owned(b"abc", None),
            Owned { direction: Some(Direction::Inbound), lost: 7, ..obsolete.clone() },
            obsolete,
        ];
        assert_eq!(content.packets, expected);
        let simple = [Block::SimplePacket; 2];
        assert_eq!(content.blocks[3..], [&simple[..], &[Block::ObsoletePacket; 2]].concat());
    }
}

#[test]
fn what_is_not_looked_into_may_be_of_any_length() {
    let mut file = Pcapng::new(Order::Little);
    for kind in [4, 0x0bad, 0x4000_0bad, 10, 0x7777_7777] {
        file.block(kind, &vec![1; 2 << 20]);
    }
    file.interface(1, 0, &[]);
    file.packet(0, 1, b"behind", 6, &[]);
    let content = read(&file.bytes);
    content.ended.unwrap();
    let passed = [Block::Names, Block::Custom, Block::CustomNotCopied, Block::Other(10), Block::Other(0x7777_7777)];
    assert_eq!(content.blocks[1..6], passed);
    assert_eq!(content.packets.len(), 1);
}

#[test]
fn long_names_are_cut_and_bad_letters_replaced() {
    let mut file = Pcapng::new(Order::Little);
    file.interface(1, 0, &[file.option(2, &[0xff; 400]), file.option(3, "ä".repeat(300).as_bytes())].concat());
    let mut reader = Reader::new(&file.bytes[..]).unwrap();
    while reader.next().unwrap().is_some() {}
    let interface = &reader.interfaces()[0];
    assert_eq!(interface.description, "ä".repeat(128));
    assert!(interface.name.len() <= 256 && interface.name.chars().all(|letter| letter == '\u{fffd}'));
}
