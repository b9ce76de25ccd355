//! What is built is parsed again, and what is damaged is noticed.

use std::net::{Ipv4Addr, SocketAddrV4};

use proptest::prelude::*;

use super::*;

/// 10.0.0.1:4660 to 10.0.0.2:22136, "ticktape", ident 0x0102; the sums worked out by another program.
const GOLDEN: [u8; 50] = [
    0x02, 0, 0, 0, 0, 0x02, 0x02, 0, 0, 0, 0, 0x01, 0x08, 0x00, // Ethernet
    0x45, 0x00, 0x00, 0x24, 0x01, 0x02, 0x40, 0x00, 0x40, 0x11, 0x25, 0xc5, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
    0x12, 0x34, 0x56, 0x78, 0x00, 0x10, 0xc6, 0x83, // UDP
    b't', b'i', b'c', b'k', b't', b'a', b'p', b'e',
];

fn golden_headers() -> Headers {
    Headers::new(
        MacAddr([2, 0, 0, 0, 0, 1]),
        SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 0x1234),
        MacAddr([2, 0, 0, 0, 0, 2]),
        SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 0x5678),
    )
}

fn built(headers: &Headers, payload: &[u8], ident: u16) -> Vec<u8> {
    let template = Template::new(headers);
    let mut frame = vec![0xaa; template.headers_bytes() + payload.len()];
    frame[template.headers_bytes()..].copy_from_slice(payload);
    assert_eq!(template.write(&mut frame, payload.len(), ident), frame.len());
    frame
}

/// Corrects the IPv4 header's checksum after a change, so that what is behind it gets its turn.
fn with_ip_sum(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let sum = !checksum::sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = GOLDEN.to_vec();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

#[test]
fn the_bytes_are_golden() {
    assert_eq!(built(&golden_headers(), b"ticktape", 0x0102), GOLDEN);
    let packet = parse(&GOLDEN, Verify::Full).expect("it is whole");
    assert_eq!((packet.payload, packet.ttl, packet.checksum), (&b"ticktape"[..], 64, Checksum::Full));
    assert_eq!(packet.source.to_string(), "10.0.0.1:4660");
    assert_eq!(packet.destination.to_string(), "10.0.0.2:22136");
}

#[test]
fn a_tag_stands_before_the_type() {
    let frame = built(&Headers { vlan: Some(0xe02a), ..golden_headers() }, b"ticktape", 0x0102);
    assert_eq!(frame[..12], GOLDEN[..12]);
    assert_eq!(frame[12..18], [0x81, 0x00, 0xe0, 0x2a, 0x08, 0x00]);
    assert_eq!(frame[18..], GOLDEN[14..]);
    assert_eq!(parse(&frame, Verify::Full).expect("it is whole").vlan, Some(0xe02a));
}

#[test]
fn each_reason_is_told() {
    use PacketError::*;
    let cases = [
        (Short, GOLDEN[..13].to_vec()),
        (Short, GOLDEN[..33].to_vec()),
        (Short, [&GOLDEN[..12], &[0x81, 0, 0]].concat()),
        (NotIpv4, changed(12, &[0x08, 0x06])),
        (NotIpv4, changed(12, &[0x81, 0, 0, 1, 0x86, 0xdd])),
        (TwoTags, changed(12, &[0x81, 0, 0, 1, 0x81, 0])),
        (TwoTags, changed(12, &[0x88, 0xa8])),
        (Version, changed(14, &[0x65])),
        (HeaderLength, changed(14, &[0x44])),
        (Options, changed(14, &[0x46])),
        (IpChecksum, changed(24, &[0x25, 0xc4])),
        (TotalLengthShort, with_ip_sum(changed(16, &[0, 19]))),
        (TotalLengthLong, with_ip_sum(changed(16, &[0, 37]))),
        (Fragment, with_ip_sum(changed(20, &[0x20, 0]))),
        (Fragment, with_ip_sum(changed(20, &[0, 1]))),
        (NotUdp, with_ip_sum(changed(23, &[6]))),
        (Source, with_ip_sum(changed(26, &[0, 0, 0, 0]))),
        (Source, with_ip_sum(changed(26, &[239, 0, 0, 1]))),
        (Source, with_ip_sum(changed(26, &[255; 4]))),
        (UdpLength, with_ip_sum(changed(16, &[0, 27]))),
        (UdpLength, changed(38, &[0, 7])),
        (UdpLength, changed(38, &[0, 17])),
        (UdpChecksum, changed(40, &[0xc6, 0x84])),
        (UdpChecksumPartial, changed(40, &partial(&GOLDEN))),
    ];
    let mut counters = PacketCounters::default();
    for (reason, frame) in &cases {
        assert_eq!(parse(frame, Verify::Full), Err(*reason), "{frame:02x?}");
        counters.count(*reason);
    }
    assert_eq!(counters.total(), cases.len() as u64);
    assert!(counters.rows().all(|(name, count)| count > 0 && !name.is_empty()), "{counters:?}");
    assert_eq!(counters.rows().find(|row| row.0 == Fragment.name()), Some(("fragment", counters.get(Fragment))));
}

/// The checksum field as a kernel leaves it to a card to complete.
fn partial(frame: &[u8]) -> [u8; 2] {
    let total = u64::from(checksum::sum(&frame[26..34])) + 17 + u64::from(checksum::sum(&frame[38..40]));
    checksum::fold(total).to_be_bytes()
}

#[test]
fn checksums_are_told_apart() {
    let worth = |frame: &[u8]| parse(frame, Verify::Report).expect("all are taken").checksum;
    assert_eq!(worth(&GOLDEN), Checksum::Full);
    assert_eq!(worth(&changed(40, &[0, 0])), Checksum::Absent);
    assert_eq!(worth(&changed(40, &partial(&GOLDEN))), Checksum::Partial);
    assert_eq!(worth(&changed(42, b"T")), Checksum::Wrong);
    let tolerant = |frame: &[u8]| parse(frame, Verify::FullOrPartial).map(|packet| packet.checksum);
    assert_eq!(tolerant(&changed(40, &partial(&GOLDEN))), Ok(Checksum::Partial));
    assert_eq!(tolerant(&changed(42, b"T")), Err(PacketError::UdpChecksum));
}

#[test]
fn a_sum_of_zero_is_sent_as_ones() {
    // What is missing to a sum of all ones, as a payload, makes the checksum come out as zero.
    let bare = built(&golden_headers(), &[0, 0], 0);
    let frame = built(&golden_headers(), &bare[40..42], 0);
    assert_eq!(frame[40..42], [0xff, 0xff]);
    assert_eq!(parse(&frame, Verify::Full).expect("it is whole").checksum, Checksum::Full);
}

#[test]
fn padding_behind_a_datagram_is_ignored() {
    let padded = [&GOLDEN[..], &[0x5a; 10]].concat();
    assert_eq!(parse(&padded, Verify::Full), parse(&GOLDEN, Verify::Full));
}

#[test]
#[should_panic(expected = "a payload of 65508 bytes")]
fn more_than_ipv4_carries_is_a_mistake() {
    build(&golden_headers(), &mut [0; 70_000], 65_508, 0);
}

#[test]
fn the_largest_payload_is_carried() {
    let payload: Vec<u8> = (0..crate::limits::DATAGRAM_BYTES_MAX).map(|at| at as u8).collect();
    let frame = built(&golden_headers(), &payload, 9);
    assert_eq!(parse(&frame, Verify::Full).expect("it is whole").payload, payload);
}

fn any_address() -> impl Strategy<Value = SocketAddrV4> {
    let sender = |ip: &Ipv4Addr| !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast();
    let ip = any::<u32>().prop_map(Ipv4Addr::from).prop_filter("a sender's", sender);
    (ip, any::<u16>()).prop_map(|(ip, port)| SocketAddrV4::new(ip, port))
}

prop_compose! {
    fn any_headers()(
        (source_mac, destination_mac) in (any::<[u8; 6]>(), any::<[u8; 6]>()),
        vlan in any::<Option<u16>>(),
        (source, destination) in (any_address(), any_address()),
        (ttl, tos) in any::<(u8, u8)>(),
    ) -> Headers {
        let [source_mac, destination_mac] = [source_mac, destination_mac].map(MacAddr);
        Headers { source_mac, destination_mac, vlan, source, destination, ttl, tos }
    }
}

proptest! {
    #[test]
    fn what_is_built_is_parsed_again(
        headers in any_headers(),
        payload in proptest::collection::vec(any::<u8>(), 0..300),
        ident in any::<u16>(),
        padding in 0..20_usize,
    ) {
        let mut frame = built(&headers, &payload, ident);
        prop_assert_eq!(build(&headers, &mut frame, payload.len(), ident), frame.len());
        frame.resize(frame.len() + padding, 0xa5);
        let packet = parse(&frame, Verify::Full).expect("it is whole");
        prop_assert_eq!(packet, UdpPacket {
            source_mac: headers.source_mac,
            destination_mac: headers.destination_mac,
            vlan: headers.vlan,
            source: headers.source,
            destination: headers.destination,
            ttl: headers.ttl,
            payload: &payload,
            checksum: Checksum::Full,
        });
    }

    /// From the IPv4 header on a checksum covers everything, so that any one flipped bit is noticed. But for two fields that
    /// are no error to change where checksums are absent or partial: only [`Verify::Full`] promises it for the payload.
    #[test]
    fn every_flipped_bit_is_noticed(headers in any_headers(), payload in proptest::collection::vec(any::<u8>(), 0..40)) {
        let mut frame = built(&headers, &payload, 7);
        let start = Template::new(&headers).headers_bytes() - IPV4_BYTES - UDP_BYTES;
        for bit in start * 8..frame.len() * 8 {
            frame[bit / 8] ^= 1 << (bit % 8);
            let after = parse(&frame, Verify::Full).map(|packet| packet.checksum);
            // One bit away from a checksum of 0 is one that says there is none; its value covered the rest.
            let absent = after == Ok(Checksum::Absent) && bit / 8 >= start + 26 && bit / 8 < start + 28;
            prop_assert!(absent || after.is_err(), "bit {} of byte {}: {:?}", bit % 8, bit / 8, after);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100), verify in 0..3_usize) {
        let verify = [Verify::Full, Verify::FullOrPartial, Verify::Report][verify];
        prop_assert!(parse(&bytes, verify).is_err() || bytes.len() >= HEADERS_BYTES);
    }
}
