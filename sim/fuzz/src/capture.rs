//! Captures: whatever the bytes are, reading them ends, with a reason that names its place where they can't be followed; and
//! whatever links and feeds the datagrams make up, each input is handed on once.

use std::net::{Ipv4Addr, SocketAddrV4};

use ticktape::link::{Ack, Hello, Identity, Packet, Range, Ranges};
use ticktape_nic::capture::{Direction, pcapng};
use ticktape_nic::packet::{Headers, MacAddr, Template};
use ticktape_tools::capture::{Datagrams, INTERFACES_MAX, Item, Reader, TEXT_BYTES_MAX};
use ticktape_tools::links::{Handed, Links, Stream};

use super::Seeds;

/// The smallest step: an empty block of pcapng.
const STEP_BYTES_MIN: usize = 12;

pub fn run(data: &[u8]) -> bool {
    let Ok(mut reader) = Reader::new(data) else { return false };
    let (mut steps, mut packets, mut last_at) = (0, 0, None);
    let ended = loop {
        match reader.next() {
            Ok(Some(Item::Packet(packet))) => {
                packets += 1;
                assert!(packet.bytes.len() <= packet.original_bytes as usize && packet.bytes.len() <= data.len());
                assert!(packet.at < data.len() as u64 && packet.index >= packets);
            }
            Ok(Some(Item::Totals { interface: number, .. } | Item::Interface(number))) => {
                assert!(number < reader.interfaces().len());
            }
            Ok(Some(_)) => {}
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
        steps += 1;
        assert!(last_at < Some(reader.at()), "a step that consumes nothing");
        last_at = Some(reader.at());
    };
    assert!(steps * STEP_BYTES_MIN <= data.len());
    if let Err(error) = ended {
        assert!(error.at <= data.len() as u64);
        assert!(!error.to_string().contains('\n'), "one line: {error}");
    }
    assert!(matches!(reader.next(), Ok(None)), "nothing follows an end");
    assert!(reader.interfaces().len() <= INTERFACES_MAX);
    for interface in reader.interfaces() {
        assert!(interface.name.len() <= TEXT_BYTES_MAX && interface.description.len() <= TEXT_BYTES_MAX);
    }
    check_datagrams(data, packets);
    packets > 0
}

/// Each packet is a datagram or has a reason against it.
fn check_datagrams(data: &[u8], packets: u64) {
    let mut datagrams = Datagrams::new(Reader::new(data).expect("as before"));
    let (mut found, mut links) = (0, Links::new(None));
    // Of inputs, of events, and of feeds.
    let mut handed = [0; 3];
    let mut count = |message: Handed<'_>| match message {
        Handed::Hello { .. } => {}
        Handed::Input(input) => handed[0] += u64::from(input.command.len() < data.len()),
        Handed::Event { message, .. } => handed[1] += u64::from(message.len() < data.len()),
        Handed::Feed { message, .. } => handed[2] += u64::from(message.len() < data.len()),
    };
    while let Ok(Some(datagram)) = datagrams.next() {
        found += 1;
        assert!(datagram.payload.len() < data.len());
        links.on_datagram(&datagram, &mut count);
    }
    links.finish(packets, &mut count);
    let messages = |stream: &Stream| stream.figures().messages;
    assert_eq!(handed[0], links.inputs().values().map(messages).sum::<u64>());
    assert_eq!(handed[1], links.events().values().map(messages).sum::<u64>());
    assert_eq!(handed[2], links.feeds().values().map(|feed| messages(&feed.stream)).sum::<u64>());
    let others = datagrams.flaws().total() - datagrams.reader().flaws().total();
    assert_eq!(found + others, packets);
}

fn frame(payload: &[u8]) -> Vec<u8> {
    frame_between(payload, false)
}

fn frame_between(payload: &[u8], is_back: bool) -> Vec<u8> {
    let hosts = if is_back { [2, 1] } else { [1, 2] };
    let [from, to] = hosts.map(|host| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 1000));
    let template = Template::new(&Headers::new(MacAddr([2; 6]), from, MacAddr([4; 6]), to));
    let mut frame = vec![0; template.headers_bytes() + payload.len()];
    frame[template.headers_bytes()..].copy_from_slice(payload);
    template.write(&mut frame, payload.len(), 7);
    frame
}

/// As a tap's recorder writes it: a handshake, numbers that never come, and acknowledgements.
fn recorded() -> Vec<u8> {
    let identity = Identity { session: 7, client_epoch: 1, appliance_epoch: 0 };
    let hello = Hello {
        nonce: 1,
        resume_next: 1,
        first_seq: 1,
        window: 100,
        datagram_bytes_max: 1472,
        schema: 1,
        is_resumed: false,
    };
    let ack = Ack { acked_next: 2, received_next: 4, window: 100 };
    let mut ranges = [0; 8];
    let ranges = Ranges::write(&[Range { from: 6, count: 2 }], &mut ranges).expect("one range");
    let packets = [
        (Direction::Inbound, Packet::Hello(hello)),
        (Direction::Inbound, Packet::GapFill { from: 1, count: 3 }),
        (Direction::Inbound, Packet::GapFill { from: 6, count: 2 }),
        (Direction::Outbound, Packet::SelectiveAck(ack, ranges)),
        (Direction::Inbound, Packet::Ack(ack)),
    ];
    let mut file = Vec::new();
    pcapng::section(&mut file, "a seed");
    let interface = pcapng::Interface {
        name: "lo".to_string(),
        description: "client link: kernel UDP".to_string(),
        mac: MacAddr::ZERO,
        address: Some((Ipv4Addr::LOCALHOST, 8)),
    };
    pcapng::interface(&mut file, &interface, 0);
    for (direction, packet) in packets {
        let mut payload = vec![0; packet.bytes()];
        packet.encode(&identity, &mut payload).expect("as many bytes as it has");
        let (lost, is_back) = if direction == Direction::Inbound { (0, false) } else { (3, true) };
        let place = pcapng::Packet { interface: 0, time_ns: 1 << 60, original_bytes: 0, direction, lost };
        pcapng::packet(&mut file, &place, &frame_between(&payload, is_back));
    }
    pcapng::statistics(&mut file, 0, &pcapng::Totals { times_ns: (1, 2), seen: 5, lost: 3 });
    file
}

/// A block in network order.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = (STEP_BYTES_MIN + body.len()) as u32;
    [&kind.to_be_bytes()[..], &length.to_be_bytes(), body, &length.to_be_bytes()].concat()
}

/// Simple and obsolete packets, names, a custom block and units of a 2^-20th second, in network order, then a little section.
fn other_blocks() -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let (raw, section) = (&frame(b"ab")[14..], [0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX]);
    let interface = [&words(&[101 << 16, 96])[..], &[0, 9, 0, 1, 0x80 | 20, 0, 0, 0], &words(&[0])].concat();
    let len = raw.len() as u32;
    let mut file = block(pcapng::SECTION, &words(&section));
    file.extend(block(pcapng::INTERFACE, &interface));
    file.extend(block(3, &[&words(&[len])[..], raw, &[0, 0]].concat()));
    file.extend(block(2, &[&words(&[1, 2, 3, len, len])[..], raw, &[0, 0]].concat()));
    file.extend(block(4, &words(&[0])));
    file.extend(block(0x0bad, &words(&[1, 2])));
    file.extend(recorded());
    file
}

/// A pcap file with one packet, of this magic and link type, its record `extra` bytes longer than usual.
fn pcap(magic: u32, link_type: u32, extra: usize, packet: &[u8]) -> Vec<u8> {
    let len = packet.len() as u32;
    let head = [magic, 0x0004_0002, 0, 0, 65_535, link_type, 1_700_000_000, 9, len, len];
    let mut file: Vec<u8> = head.into_iter().flat_map(u32::to_le_bytes).collect();
    file.resize(file.len() + extra, 0);
    file.extend_from_slice(packet);
    file
}

pub fn seeds() -> Seeds {
    let whole = frame(b"a payload");
    let tags = [&whole[..12], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2], &whole[12..]].concat();
    let cooked = [&[0, 4, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0, 8, 0], &whole[14..]].concat();
    let cooked_2 = [&[8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 4, 6, 2, 2, 2, 2, 2, 2, 0, 0], &whole[14..]].concat();
    vec![
        ("recorded", recorded()),
        ("other_blocks", other_blocks()),
        ("pcap_tags", pcap(0xa1b2_c3d4, 1, 0, &tags)),
        ("pcap_cooked", pcap(0xa1b2_3c4d, 113, 0, &cooked)),
        ("pcap_cooked_2", pcap(0xa1b2_3c4d, 276, 0, &cooked_2)),
        ("pcap_modified", pcap(0xa1b2_cd34, 0, 8, &[&[2, 0, 0, 0], &whole[14..]].concat())),
    ]
}
