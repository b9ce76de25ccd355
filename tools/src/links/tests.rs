//! Streams as captures have them: whole, repeated, out of order, with holes.

use std::net::SocketAddrV4;

use ticktape::feed::{FeedSession, Packer};
use ticktape::link::{Ack, Hello, Identity, Packet, Refuse, RefuseReason, Tier, Welcome};
use ticktape_core::{Frame, Kind, Seq, Timestamp};

use super::{Handed, KEPT_BYTES_MAX, Links, Missing, SETTLE_PACKETS, STREAMS_MAX};
use crate::capture::{Datagram, Interface, Resolution};

fn address(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

const SESSION: u64 = 7;

/// What was handed on: session, client epoch, number, command.
type Taken = (u64, u32, u64, Vec<u8>);

fn input(message: Handed<'_>) -> Option<Taken> {
    let Handed::Input(input) = message else { return None };
    Some((input.session, input.client_epoch, input.client_seq, input.command.to_vec()))
}

/// A capture under way, and what comes of it.
struct Captured {
    links: Links,
    index: u64,
    identity: Identity,
    handed: Vec<Taken>,
}

impl Captured {
    fn new() -> Self {
        Captured::of(Some(address("10.0.0.1:7001")))
    }

    fn of(listen: Option<SocketAddrV4>) -> Self {
        let identity = Identity { session: SESSION, client_epoch: 2, appliance_epoch: 3 };
        Captured { links: Links::new(listen), index: 0, identity, handed: Vec::new() }
    }

    fn datagram(&mut self, from: &str, to: &str, payload: &[u8]) {
        self.index += 1;
        let interface = Interface {
            link_type: 1,
            snap_bytes: 0,
            name: String::new(),
            description: String::new(),
            resolution: Resolution::NANOSECONDS,
            offset_s: 0,
        };
        let datagram = Datagram {
            index: self.index,
            at: 0,
            number: 0,
            interface: &interface,
            direction: None,
            time_ns: None,
            source: address(from),
            destination: address(to),
            payload,
        };
        let handed = &mut self.handed;
        self.links.on_datagram(&datagram, |message| handed.extend(input(message)));
    }

    fn encoded(&self, packet: &Packet<'_>) -> Vec<u8> {
        let mut bytes = vec![0; 65_507];
        let len = packet.encode(&self.identity, &mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    }

    fn up(&mut self, packet: &Packet<'_>) {
        let bytes = self.encoded(packet);
        self.datagram("10.0.0.2:5000", "10.0.0.1:7001", &bytes);
    }

    fn down(&mut self, packet: &Packet<'_>) {
        let bytes = self.encoded(packet);
        self.datagram("10.0.0.1:7001", "10.0.0.2:5000", &bytes);
    }

    /// A Data packet's bytes, with messages that say their numbers.
    fn data(&self, base: u64, count: u16) -> Vec<u8> {
        let messages = (base..base + u64::from(count)).flat_map(|seq| [&[8, 0][..], &seq.to_le_bytes()].concat());
        let mut body = [&(base as u32).to_le_bytes()[..], &count.to_le_bytes(), &[0, 0]].concat();
        body.extend(messages);
        // A packet that is sealed as one of another type would be: the type and the checksum are put right.
        let mut bytes = self.encoded(&Packet::Heartbeat { next_seq: 0 });
        bytes.truncate(28);
        bytes[9] = 4;
        bytes.extend(body);
        let crc = ticktape_core_crc(&bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(Packet::decode(&bytes), Ok((_, Packet::Data(_)))));
        bytes
    }

    fn inputs(&mut self, base: u64, count: u16) {
        let bytes = self.data(base, count);
        self.datagram("10.0.0.2:5000", "10.0.0.1:7001", &bytes);
    }

    fn events(&mut self, base: u64, count: u16) {
        let bytes = self.data(base, count);
        self.datagram("10.0.0.1:7001", "10.0.0.2:5000", &bytes);
    }

    fn hello(&mut self, first_seq: u64) {
        self.up(&Packet::Hello(hello(first_seq)));
    }

    fn welcome(&mut self, received_next: u64, events: (u64, u64)) {
        self.down(&Packet::Welcome(Welcome {
            nonce: 1,
            committed_next: received_next,
            received_next,
            first_event: events.0,
            next_event: events.1,
            window: 100,
            datagram_bytes_max: 1472,
            schema: 1,
            tier: Tier::Local,
        }));
    }

    /// The appliance has everything before it.
    fn ack(&mut self, received_next: u64) {
        self.down(&Packet::Ack(ack(received_next)));
    }

    /// Enough goes by that acknowledgements count.
    fn settle(&mut self) {
        for _ in 0..=SETTLE_PACKETS {
            self.datagram("10.9.9.9:1", "10.9.9.8:2", b"something else");
        }
    }

    fn finish(&mut self) {
        let (index, handed) = (self.index, &mut self.handed);
        self.links.finish(index, |message| handed.extend(input(message)));
    }

    /// The numbers that were handed on; each with its own command.
    fn numbers(&self) -> Vec<u64> {
        assert!(self.handed.iter().all(|(_, _, seq, command)| command[..] == seq.to_le_bytes()));
        self.handed.iter().map(|handed| handed.2).collect()
    }

    fn figures(&self) -> &super::Figures {
        self.links.inputs()[&(SESSION, self.identity.client_epoch)].figures()
    }
}

/// Of which the link's checksum is made.
fn ticktape_core_crc(bytes: &[u8]) -> u32 {
    // Frames carry the same over their payload, behind it.
    let mut frame = Vec::new();
    let (seq, timestamp) = (Seq(1), Timestamp(0));
    Frame { seq, timestamp, stream_id: 0, kind: Kind::Input, payload: bytes }.append_to(&mut frame);
    u32::from_le_bytes(*frame.last_chunk().unwrap())
}

fn hello(first_seq: u64) -> Hello {
    Hello { nonce: 1, resume_next: 1, first_seq, window: 100, datagram_bytes_max: 1472, schema: 1, is_resumed: false }
}

fn ack(received_next: u64) -> Ack {
    Ack { acked_next: received_next as u32, received_next: received_next as u32, window: 100 }
}

fn ranges(missing: &Missing) -> Vec<(u64, u64)> {
    missing.ranges().map(|range| (range.start, range.end)).collect()
}

#[test]
fn a_whole_stream_is_handed_on_as_it_comes() {
    let mut captured = Captured::new();
    captured.hello(1);
    captured.welcome(1, (1, 1));
    captured.inputs(1, 3);
    captured.inputs(4, 2);
    captured.events(1, 4);
    captured.up(&Packet::Ack(ack(5)));
    captured.ack(6);
    assert_eq!(captured.numbers(), [1, 2, 3, 4, 5]);
    captured.finish();
    assert_eq!(captured.numbers(), [1, 2, 3, 4, 5]);
    let figures = captured.figures();
    assert_eq!((figures.first, figures.next, figures.messages, figures.repeated), (Some(1), Some(6), 5, 0));
    assert_eq!(figures.missing, Missing::default());
    let events = captured.links.events()[&SESSION].figures();
    assert_eq!((events.messages, events.next, events.missing.count()), (4, Some(5), 0));
    assert_eq!((captured.links.counts().up, captured.links.counts().down), (4, 3));
}

#[test]
fn what_was_sent_again_is_handed_on_once_and_in_order() {
    let mut captured = Captured::new();
    captured.hello(1);
    captured.inputs(1, 2);
    captured.inputs(5, 2);
    captured.inputs(8, 1);
    assert_eq!(captured.numbers(), [1, 2]);
    captured.inputs(1, 4);
    assert_eq!(captured.numbers(), [1, 2, 3, 4, 5, 6]);
    captured.inputs(6, 3);
    captured.finish();
    assert_eq!(captured.numbers(), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!((captured.figures().repeated, captured.figures().missing.count()), (4, 0));
}

#[test]
fn what_the_appliance_has_and_the_capture_lacks_is_missing() {
    let mut captured = Captured::new();
    captured.hello(1);
    captured.inputs(1, 2);
    captured.inputs(5, 2);
    captured.ack(7);
    captured.inputs(9, 1);
    assert_eq!(captured.numbers(), [1, 2], "the capture may have swapped neighbours");
    captured.settle();
    captured.inputs(12, 1);
    assert_eq!(captured.numbers(), [1, 2, 5, 6]);
    captured.finish();
    assert_eq!(captured.numbers(), [1, 2, 5, 6, 9, 12], "and at the end all that is there has its turn");
    assert_eq!(ranges(&captured.figures().missing), [(3, 5), (7, 9), (10, 12)]);
}

#[test]
fn an_acknowledgement_that_comes_before_its_input_is_no_gap() {
    let mut captured = Captured::new();
    captured.hello(1);
    captured.ack(3);
    captured.inputs(1, 2);
    captured.ack(5);
    captured.settle();
    captured.inputs(3, 2);
    captured.ack(5);
    captured.finish();
    assert_eq!(captured.numbers(), [1, 2, 3, 4]);
    assert_eq!((captured.figures().missing.count(), captured.figures().late), (0, 0));
}

#[test]
fn an_input_behind_its_acknowledgement_by_far_is_late() {
    let mut captured = Captured::new();
    captured.hello(1);
    captured.ack(5);
    captured.settle();
    captured.inputs(9, 1);
    captured.inputs(2, 2);
    captured.finish();
    assert_eq!(captured.numbers(), [2, 3, 9]);
    assert_eq!((captured.figures().late, ranges(&captured.figures().missing)), (2, vec![(1, 2), (4, 9)]));
}

#[test]
fn what_is_missing_at_the_end_is_told_by_the_last_acknowledgement() {
    let mut captured = Captured::new();
    captured.hello(1);
    captured.inputs(1, 1);
    for next in 2..9 {
        captured.ack(next);
    }
    captured.finish();
    assert_eq!(ranges(&captured.figures().missing), [(2, 8)]);
}

#[test]
fn numbers_that_never_come_are_not_missing() {
    let mut captured = Captured::new();
    captured.hello(1);
    captured.up(&Packet::GapFill { from: 1, count: 2 });
    captured.up(&Packet::GapFill { from: 5, count: 3 });
    captured.inputs(8, 1);
    captured.inputs(3, 2);
    captured.up(&Packet::GapFill { from: 1, count: 2 });
    captured.finish();
    assert_eq!(captured.numbers(), [3, 4, 8]);
    assert_eq!((captured.figures().filled, captured.figures().missing.count()), (5, 0));
}

#[test]
fn each_client_epoch_is_a_stream_of_its_own_and_events_go_on() {
    let mut captured = Captured::new();
    captured.hello(1);
    captured.inputs(1, 2);
    captured.events(1, 2);
    captured.identity.client_epoch = 3;
    captured.hello(10);
    captured.welcome(10, (3, 3));
    captured.inputs(10, 1);
    captured.events(3, 1);
    captured.finish();
    assert_eq!(
        captured.handed.iter().map(|handed| (handed.1, handed.2)).collect::<Vec<_>>(),
        [(2, 1), (2, 2), (3, 10)]
    );
    assert_eq!(captured.links.events()[&SESSION].figures().messages, 3);
    assert!(captured.links.inputs().values().all(|stream| stream.figures().missing.count() == 0));
}

#[test]
fn what_a_reign_lost_is_taken_anew() {
    let mut captured = Captured::new();
    captured.hello(1);
    captured.welcome(1, (1, 1));
    captured.inputs(1, 4);
    captured.events(1, 4);
    captured.identity.appliance_epoch = 4;
    captured.hello(3);
    captured.welcome(3, (3, 3));
    captured.inputs(3, 3);
    captured.events(3, 3);
    captured.finish();
    assert_eq!(captured.numbers(), [1, 2, 3, 4, 3, 4, 5]);
    assert_eq!((captured.figures().taken_back, captured.figures().repeated), (2, 0));
    assert_eq!(captured.links.events()[&SESSION].figures().taken_back, 2);
}

#[test]
fn what_a_reign_lost_is_told_apart_from_what_came_in_its_place() {
    let mut captured = Captured::new();
    captured.hello(1);
    captured.welcome(1, (1, 1));
    captured.inputs(1, 3);
    captured.inputs(5, 1);
    for _ in 0..3 {
        captured.ack(6);
        captured.settle();
    }
    let before = captured.index;
    captured.identity.appliance_epoch = 4;
    captured.welcome(3, (1, 1));
    captured.inputs(3, 3);
    captured.finish();
    assert_eq!(captured.numbers(), [1, 2, 3, 5, 3, 4, 5]);
    // The fourth was missing only of what was lost.
    assert_eq!(captured.figures().missing.count(), 0);
    let stream = &captured.links.inputs()[&(SESSION, captured.identity.client_epoch)];
    let is_taken_back = |number| (stream.is_taken_back(number, before), stream.is_taken_back(number, captured.index));
    assert_eq!([2, 3, 5].map(is_taken_back), [(false, false), (true, false), (true, false)]);
    assert!(captured.links.reigns().iter().eq(&[3, 4]));
}

#[test]
fn what_comes_before_the_first_that_came_is_not_lost_where_nothing_told_the_beginning() {
    let mut captured = Captured::new();
    captured.inputs(4, 1);
    captured.inputs(2, 1);
    captured.finish();
    assert_eq!(captured.numbers(), [4, 2]);
    assert_eq!((captured.figures().first, ranges(&captured.figures().missing)), (Some(2), vec![(3, 4)]));
    let mut captured = Captured::new();
    captured.hello(4);
    captured.inputs(2, 1);
    captured.finish();
    assert_eq!((captured.numbers().len(), captured.figures().first), (0, Some(4)), "it was told");
}

#[test]
fn a_capture_that_begins_in_the_midst_counts_from_there() {
    let mut captured = Captured::new();
    captured.inputs(1 << 20, 2);
    captured.ack((1 << 20) + 2);
    captured.finish();
    assert_eq!(captured.numbers(), [1 << 20, (1 << 20) + 1]);
    assert_eq!((captured.figures().first, captured.figures().missing.count()), (Some(1 << 20), 0));
}

#[test]
fn numbers_go_on_beyond_32_bits() {
    let start = (1 << 32) - 2;
    let mut captured = Captured::new();
    captured.hello(start);
    captured.inputs(start, 1);
    captured.inputs(start + 2, 2);
    captured.ack(start + 4);
    captured.finish();
    assert_eq!(captured.numbers(), [start, start + 2, start + 3]);
    assert_eq!(ranges(&captured.figures().missing), [(start + 1, start + 2)]);
}

#[test]
fn the_first_handshake_tells_the_appliance() {
    let mut captured = Captured::of(None);
    captured.inputs(1, 1);
    assert_eq!((captured.links.listen(), captured.links.counts().before_handshake), (None, 1));
    captured.welcome(2, (1, 1));
    assert_eq!(captured.links.listen(), Some(address("10.0.0.1:7001")));
    captured.inputs(2, 1);
    let elsewhere = captured.encoded(&Packet::Hello(hello(1)));
    captured.datagram("10.0.0.2:5000", "10.0.0.7:7001", &elsewhere);
    captured.datagram("10.0.0.2:5000", "10.0.0.1:7001", b"no link packet");
    captured.down(&Packet::Refuse(Refuse { nonce: 1, reason: RefuseReason::Stopping, detail: 0 }));
    captured.finish();
    assert_eq!(captured.numbers(), [2]);
    let counts = captured.links.counts();
    assert_eq!((counts.other_appliances, counts.undecodable, counts.refused, counts.up), (1, 1, 1, 1));

    let mut by_hello = Captured::of(None);
    by_hello.hello(1);
    assert_eq!(by_hello.links.listen(), Some(address("10.0.0.1:7001")));
}

#[test]
fn a_feeds_frames_are_counted_once_over_both_sides() {
    let mut captured = Captured::new();
    let session = FeedSession::new(1, 3).unwrap().encode();
    let packet = |seqs: std::ops::Range<u64>| {
        let mut packer = Packer::new(session, seqs.start, 1472);
        for seq in seqs {
            let mut frame = Vec::new();
            let (seq, timestamp) = (Seq(seq), Timestamp(9));
            Frame { seq, timestamp, stream_id: 0, kind: Kind::Tick, payload: &[] }.append_to(&mut frame);
            assert!(packer.push(&frame));
        }
        packer.packet().to_vec()
    };
    for (seqs, sides) in [(1..3, 2), (3..5, 1), (5..6, 0), (6..8, 2), (9..10, 1)] {
        for side in 0..sides {
            captured.datagram("10.0.0.1:9", &format!("239.1.1.{side}:7100"), &packet(seqs.clone()));
        }
    }
    captured.finish();
    let feed = &captured.links.feeds()[&session];
    let figures = feed.stream.figures();
    assert_eq!((feed.frames, figures.messages, figures.repeated), (7, 7, 4));
    assert_eq!(ranges(&figures.missing), [(5, 6), (8, 9)]);
    assert_eq!(captured.links.counts().feed, 6);
}

#[test]
fn what_waits_and_what_is_told_apart_is_bounded() {
    let mut captured = Captured::new();
    captured.hello(1);
    // Each waits for the one before it, for ever.
    let message = vec![1; 60_000];
    let mut body = [&[0; 4][..], &1u16.to_le_bytes(), &[0, 0], &60_000u16.to_le_bytes()].concat();
    body.extend_from_slice(&message);
    let mut packet = captured.data(1, 1);
    packet.truncate(28);
    packet.extend_from_slice(&body);
    let count = 2 * KEPT_BYTES_MAX / 60_000;
    for number in 0..count as u32 {
        packet[28..32].copy_from_slice(&(3 + 2 * number).to_le_bytes());
        let crc = ticktape_core_crc(&packet[8..]);
        packet[4..8].copy_from_slice(&crc.to_le_bytes());
        captured.datagram("10.0.0.2:5000", "10.0.0.1:7001", &packet);
    }
    assert!(captured.handed.len() >= count / 3, "{} of {count} had to go on", captured.handed.len());
    captured.finish();
    assert_eq!(captured.handed.len(), count);
    assert!(captured.handed.is_sorted_by_key(|handed| handed.2));
    assert_eq!(captured.figures().missing.count(), count as u64 + 1);

    let mut many = Captured::new();
    for session in 0..STREAMS_MAX as u64 + 10 {
        many.identity.session = session;
        many.hello(1);
    }
    assert_eq!((many.links.inputs().len(), many.links.counts().beyond_streams), (STREAMS_MAX, 10));
}

/// However packets are lost, repeated and swapped: each number is handed on once or is missing, in order.
#[test]
fn every_number_is_handed_on_or_missing() {
    let mut state = 0x5eed_u64;
    let mut roll = |sides: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % sides
    };
    let (mut lossy, mut whole) = (0, 0);
    for _ in 0..200 {
        let mut packets: Vec<(u64, u16)> = Vec::new();
        let mut next = 1;
        while next < 60 {
            let count = 1 + roll(4) as u16;
            packets.extend(std::iter::repeat_n((next, count), 1 + roll(2) as usize));
            next += u64::from(count);
        }
        for _ in 0..roll(30) {
            let (a, b) = (roll(packets.len() as u64) as usize, roll(packets.len() as u64) as usize);
            packets.swap(a, b);
        }
        for _ in 0..roll(10) {
            packets.remove(roll(packets.len() as u64) as usize);
        }
        let mut captured = Captured::new();
        captured.hello(1);
        packets.iter().for_each(|&(base, count)| captured.inputs(base, count));
        captured.ack(next);
        captured.finish();
        let numbers = captured.numbers();
        assert!(numbers.is_sorted_by(|a, b| a < b));
        let there: std::collections::BTreeSet<u64> =
            packets.iter().flat_map(|&(base, count)| base..base + u64::from(count)).collect();
        assert_eq!(numbers, there.iter().copied().collect::<Vec<_>>());
        let missing: Vec<u64> = captured.figures().missing.ranges().flatten().collect();
        assert_eq!(missing, (1..next).filter(|number| !there.contains(number)).collect::<Vec<_>>());
        lossy += u32::from(!missing.is_empty());
        whole += u32::from(missing.is_empty());
    }
    assert!(lossy > 20 && whole > 20, "{lossy} {whole}");
}

#[test]
fn missing_numbers_come_back_out_of_ranges() {
    let mut missing = Missing::default();
    missing.add(3..6);
    missing.add(6..8);
    missing.add(10..11);
    missing.add(20..20);
    assert_eq!(ranges(&missing), [(3, 8), (10, 11)]);
    assert!(missing.contains(3) && missing.contains(7) && !missing.contains(8) && !missing.contains(2));
    assert!(missing.take(5) && !missing.take(5) && !missing.take(9) && !missing.take(2));
    assert!(missing.take(10) && missing.take(3));
    assert_eq!((ranges(&missing), missing.count()), (vec![(4, 5), (6, 8)], 3));
}
