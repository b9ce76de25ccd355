//! Datagrams behind every link header, and what is none.

use std::net::SocketAddrV4;

use ticktape_nic::capture::Direction;
use ticktape_nic::packet::Checksum;

use super::super::link::{ETHERNET, IPV4, LINUX_SLL, LINUX_SLL2, LOOP, NULL, RAW};
use super::super::{Flaw, Found, Interface, Packet, Resolution, find};
use super::{address, frame};

fn found_in(link_type: u16, bytes: &[u8], original: usize) -> Result<Found, Flaw> {
    let (name, description) = (String::new(), String::new());
    let interface =
        Interface { link_type, snap_bytes: 0, name, description, resolution: Resolution::MICROSECONDS, offset_s: 0 };
    let original_bytes = original as u32;
    find(&Packet {
        index: 1,
        at: 0,
        number: 0,
        interface: &interface,
        time_ns: None,
        direction: None,
        original_bytes,
        lost: 0,
        bytes,
    })
}

fn found(link_type: u16, bytes: &[u8]) -> Result<Found, Flaw> {
    found_in(link_type, bytes, bytes.len())
}

const PAYLOAD: &[u8] = b"payload";

fn datagram() -> Vec<u8> {
    frame(PAYLOAD)[14..].to_vec()
}

/// Behind a link header, the datagram is found and its payload is what it was.
fn is_found(link_type: u16, header: &[u8], direction: Option<Direction>) {
    let bytes = [header, &datagram(), &[0; 9]].concat();
    let found = found(link_type, &bytes).unwrap_or_else(|flaw| panic!("link type {link_type}: {flaw}"));
    let addresses: (SocketAddrV4, SocketAddrV4) = (address("10.0.0.1:1000"), address("10.0.0.2:2000"));
    assert_eq!((found.source, found.destination), addresses);
    assert_eq!((&bytes[found.payload], found.direction), (PAYLOAD, direction), "link type {link_type}");
    assert!(found.is_header_sound);
    assert_eq!(found.checksum, Checksum::Full);
}

const MACS: [u8; 12] = [2; 12];

#[test]
fn behind_every_link_header_it_is_found() {
    is_found(ETHERNET, &[&MACS[..], &[8, 0]].concat(), None);
    is_found(ETHERNET, &[&MACS[..], &[0x81, 0, 0, 5, 8, 0]].concat(), None);
    is_found(ETHERNET, &[&MACS[..], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0]].concat(), None);
    is_found(ETHERNET, &[&MACS[..], &[0x91, 0, 0, 5, 0x81, 0, 0, 6, 8, 0]].concat(), None);
    is_found(NULL, &[2, 0, 0, 0], None);
    is_found(NULL, &[0, 0, 0, 2], None);
    is_found(LOOP, &[0, 0, 0, 2], None);
    for link_type in RAW.into_iter().chain([IPV4]) {
        is_found(link_type, &[], None);
    }
}

#[test]
fn cooked_headers_tell_the_direction_too() {
    let cases = [
        (0, Some(Direction::Inbound)),
        (1, Some(Direction::Inbound)),
        (2, Some(Direction::Inbound)),
        (3, None),
        (4, Some(Direction::Outbound)),
        (9, None),
    ];
    for (packet_type, direction) in cases {
        let mut sll = [0; 16];
        (sll[1], sll[14]) = (packet_type, 8);
        is_found(LINUX_SLL, &sll, direction);
        let mut sll2 = [0; 20];
        (sll2[0], sll2[10]) = (8, packet_type);
        is_found(LINUX_SLL2, &sll2, direction);
    }
    let mut tagged = [0; 20];
    (tagged[14], tagged[17], tagged[18]) = (0x81, 5, 8);
    is_found(LINUX_SLL, &tagged, Some(Direction::Inbound));
}

#[test]
fn what_is_no_ipv4_has_its_reason() {
    let ethernet = |kind: &[u8]| found(ETHERNET, &[&MACS[..], kind, &datagram()].concat());
    assert_eq!(ethernet(&[0x08, 0x06]), Err(Flaw::NotIpv4));
    assert_eq!(ethernet(&[0x86, 0xdd]), Err(Flaw::NotIpv4));
    assert_eq!(ethernet(&[0x81, 0, 0, 1, 0x88, 0xa8, 0, 1, 0x81, 0, 0, 1, 8, 0]), Err(Flaw::TooManyTags));
    assert_eq!(found(NULL, &[&[30, 0, 0, 0][..], &datagram()].concat()), Err(Flaw::NotIpv4));
    assert_eq!(found(229, &datagram()), Err(Flaw::NotIpv4));
    assert_eq!(found(127, &datagram()), Err(Flaw::LinkType));
    assert_eq!(found(101, &[0x60; 40]), Err(Flaw::NotIpv4), "version 6 where there is no link header");
    assert_eq!(found(101, &[0x10; 40]), Err(Flaw::Version));
    for link_type in [ETHERNET, NULL, LOOP, LINUX_SLL, LINUX_SLL2, IPV4] {
        assert_eq!(found(link_type, &[]), Err(Flaw::Short), "link type {link_type}");
        assert_eq!(found_in(link_type, &[], 100), Err(Flaw::Cut), "link type {link_type}");
    }
}

/// A datagram with a byte or two of it changed.
fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Result<Found, Flaw> {
    let mut datagram = datagram();
    change(&mut datagram);
    found(IPV4, &datagram)
}

#[test]
fn what_is_no_udp_has_its_reason() {
    assert_eq!(changed(|ip| ip[0] = 0x44), Err(Flaw::HeaderLength));
    assert_eq!(changed(|ip| ip[6] = 0x20), Err(Flaw::Fragment), "the first of several");
    assert_eq!(changed(|ip| ip[7] = 1), Err(Flaw::Fragment), "a later one");
    assert_eq!(changed(|ip| ip[9] = 6), Err(Flaw::NotUdp));
    assert_eq!(changed(|ip| ip[2..4].fill(0)), Err(Flaw::TotalLengthShort));
    assert_eq!(changed(|ip| ip[3] += 1), Err(Flaw::TotalLengthLong));
    assert_eq!(changed(|ip| ip[3] = 27), Err(Flaw::UdpLength), "no room for its header");
    assert_eq!(changed(|ip| ip[25] = 7), Err(Flaw::UdpLength));
    assert_eq!(changed(|ip| ip[25] += 1), Err(Flaw::UdpLength));
    assert_eq!(changed(|ip| ip[0] = 0x4f), Err(Flaw::TotalLengthShort), "options beyond its end");
}

#[test]
fn checksums_are_told_and_not_insisted_on() {
    let of = |change: fn(&mut Vec<u8>)| changed(change).map(|found| (found.is_header_sound, found.checksum));
    assert_eq!(of(|_| ()), Ok((true, Checksum::Full)));
    assert_eq!(of(|ip| ip[10] ^= 1), Ok((false, Checksum::Full)));
    assert_eq!(of(|ip| ip[28] ^= 1), Ok((true, Checksum::Wrong)));
    assert_eq!(of(|ip| ip[26..28].fill(0)), Ok((true, Checksum::Absent)));
    // 10.0.0.1, 10.0.0.2, protocol 17, 15 bytes: what a kernel leaves to the card.
    assert_eq!(
        of(|ip| ip[26..28].copy_from_slice(&(0x1400u16 + 3 + 17 + 15).to_be_bytes())),
        Ok((true, Checksum::Partial))
    );
}

#[test]
fn options_are_passed_over() {
    let mut datagram = datagram();
    datagram.splice(20..20, [1, 1, 1, 0]);
    (datagram[0], datagram[3]) = (0x46, datagram[3] + 4);
    let found = found(IPV4, &datagram).unwrap();
    assert_eq!(&datagram[found.payload], PAYLOAD);
    assert!(!found.is_header_sound, "its checksum was made without them");
    assert_eq!(found.checksum, Checksum::Full);
}

#[test]
fn a_packet_that_was_cut_counts_as_that_unless_all_of_the_datagram_is_there() {
    let whole = frame(PAYLOAD);
    for kept in 0..whole.len() {
        assert_eq!(found_in(ETHERNET, &whole[..kept], whole.len()), Err(Flaw::Cut), "{kept} bytes kept");
        assert_ne!(found(ETHERNET, &whole[..kept]), Err(Flaw::Cut));
    }
    assert!(found_in(ETHERNET, &whole, whole.len() + 9).is_ok(), "only padding was cut off");
}
