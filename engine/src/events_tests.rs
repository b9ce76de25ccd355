use std::net::{Ipv4Addr, SocketAddrV4};

use ticktape_core::{Seq, SessionId};
use ticktape_nic::mem::{MemConfig, MemNic, MemRx, MemTx, pair, pair_with};
use ticktape_nic::{Nic, Rx};
use ticktape_shm::{RingBuilder, RingConfig};

use super::*;
use crate::egress::{Egress, EgressConfig, SessionLinks};
use crate::feed::{FeedConfig, FeedSession, MoldPacket, MoldRequest, RewinderConfig};
use crate::link::{SenderConfig, Tier};
use crate::metrics::{Arrivals, Part, StageLatency};
use crate::outputs::{OutputWriter, Record, record_bytes};

const SECOND: Nanos = 1_000_000_000;

fn session(epoch: u32) -> FeedSession {
    FeedSession::new(7, epoch).unwrap()
}

fn publisher(to: SocketAddrV4, first_seq: u64, datagram_bytes_max: usize) -> Publisher {
    let (session, heartbeat_interval_ns) = (session(3), SECOND);
    Publisher::new(&FeedConfig { session, first_seq, a: to, b: None, datagram_bytes_max, heartbeat_interval_ns })
}

/// A feed from event `next` on, who listens to it, and who asks for repairs.
struct World {
    feed: EventFeed<MemTx, MemRx, MemTx>,
    listener: MemRx,
    asker: (MemRx, MemTx),
    repair_addr: SocketAddrV4,
}

fn world_with(next: u64, shape: MemConfig) -> World {
    let (ours, theirs): (MemNic, MemNic) = pair_with(shape);
    let (repair, asker) = pair();
    let (to, repair_addr) = (theirs.local_addr(), repair.local_addr());
    let (rx, tx) = repair.split();
    let repair = EventRepair::new(rx, tx, Rewinder::new(&RewinderConfig::new(session(3))));
    let publisher = publisher(to, next, shape.datagram_bytes_max);
    let feed = EventFeed::new(publisher, ours.split().1, recent_events(1 << 10, next), Some(repair));
    World { feed, listener: theirs.split().0, asker: asker.split(), repair_addr }
}

fn world(next: u64) -> World {
    world_with(next, MemConfig::default())
}

fn event(event_seq: u64, bytes: &[u8]) -> Emitted<'_> {
    Emitted { seq: Seq(event_seq + 100), target: Target::Feed, event_seq, client_seq: 0, bytes }
}

#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Event(u64, Vec<u8>),
    Heartbeat(u64),
    End(u64),
}

fn heard(rx: &mut MemRx) -> Vec<Heard> {
    let mut all = Vec::new();
    rx.poll(0, 1_000, |datagram| match MoldPacket::parse(datagram.payload).expect("a packet") {
        MoldPacket::Messages { session: name, sequence, messages, .. } => {
            assert_eq!(*name, session(3).encode());
            all.extend((sequence..).zip(messages).map(|(seq, bytes)| Heard::Event(seq, bytes.to_vec())));
        }
        MoldPacket::Heartbeat { sequence, .. } => all.push(Heard::Heartbeat(sequence)),
        MoldPacket::EndOfSession { sequence, .. } => all.push(Heard::End(sequence)),
    });
    all
}

fn events(range: std::ops::Range<u64>) -> Vec<Heard> {
    range.map(|seq| Heard::Event(seq, vec![seq as u8; 5])).collect()
}

impl World {
    fn release(&mut self, now: Nanos, range: std::ops::Range<u64>) {
        for seq in range {
            assert!(self.feed.release(now, &event(seq, &[seq as u8; 5])), "event {seq}");
        }
        self.feed.flush(now);
    }

    fn ask(&mut self, from: u64, count: u16) -> Vec<Heard> {
        self.ask_at(1, from, count)
    }

    fn ask_at(&mut self, now: Nanos, from: u64, count: u16) -> Vec<Heard> {
        let bytes = MoldRequest { session: session(3).encode(), sequence: from, count }.encode();
        let tx = &mut self.asker.1;
        tx.reserve().unwrap()[..20].copy_from_slice(&bytes);
        tx.commit(20, self.repair_addr);
        tx.flush();
        self.feed.housekeeping(now);
        heard(&mut self.asker.0)
    }
}

#[test]
fn public_events_go_out_in_order_and_what_is_for_others_does_not() {
    let mut world = world(41);
    let to_session = Emitted { target: Target::Session(SessionId(1)), ..event(1, b"private") };
    let to_caller = Emitted { target: Target::Caller, ..event(0, b"private") };
    assert!(world.feed.release(0, &to_session) && world.feed.release(0, &to_caller));
    world.release(0, 41..44);
    assert_eq!(heard(&mut world.listener), events(41..44));
    assert_eq!((world.feed.published().messages, world.feed.published().packets), (3, 1));
}

#[test]
fn an_idle_feed_says_where_it_stands_and_a_stopped_one_that_nothing_follows() {
    let mut world = world(9);
    world.feed.housekeeping(2 * SECOND);
    world.release(2 * SECOND, 9..11);
    world.feed.housekeeping(2 * SECOND);
    world.feed.housekeeping(4 * SECOND);
    let idle = [Heard::Heartbeat(9), Heard::Event(9, vec![9; 5]), Heard::Event(10, vec![10; 5]), Heard::Heartbeat(11)];
    assert_eq!(heard(&mut world.listener), idle);
    let rounds = (0..10).take_while(|_| !world.feed.end(6 * SECOND)).count();
    assert!(rounds < 10, "nobody asks for what was published so long ago");
    assert_eq!(heard(&mut world.listener), [Heard::End(11), Heard::End(11), Heard::End(11)]);
}

const MS: Nanos = 1_000_000;

/// Ends the feed at `from`, each millisecond; `ask` comes between. When it was through, and how often the end was said.
fn end(world: &mut World, from: Nanos, mut ask: impl FnMut(&mut World, Nanos)) -> (Nanos, usize) {
    let mut ends = 0;
    for now in (from..from + 2 * SECOND).step_by(MS as usize) {
        if world.feed.end(now) {
            return (now - from, ends + heard(&mut world.listener).len());
        }
        ask(world, now);
        world.feed.housekeeping(now);
        ends += heard(&mut world.listener).len();
    }
    panic!("it never ends");
}

#[test]
fn a_stop_waits_for_those_who_missed_the_last_events_and_not_for_ever() {
    let mut world = world(1);
    world.release(SECOND, 1..4);
    heard(&mut world.listener);
    // Somebody asks late, and once.
    let (took, ends) = end(&mut world, SECOND, |world, now| {
        if now == SECOND + 150 * MS {
            assert_eq!(world.ask_at(now, 2, 2), events(2..4));
        }
    });
    assert_eq!(took, 150 * MS + LINGER_QUIET_NS);
    assert!(ends >= (LINGER_QUIET_NS / LINGER_END_NS) as usize, "said again and again: {ends}");

    let mut asked = world_with(1, MemConfig::default());
    asked.release(SECOND, 1..4);
    let (took, _) = end(&mut asked, SECOND, |world, now| drop(world.ask_at(now, 1, 1)));
    assert_eq!(took, LINGER_MAX_NS, "whoever asks without end");

    let mut idle = world_with(1, MemConfig::default());
    idle.release(SECOND, 1..4);
    let (took, _) = end(&mut idle, SECOND + LINGER_AFTER_NS, |_, _| {});
    assert!(took < 10 * MS, "all know by now: {took}");

    let mut alone = world_with(1, MemConfig::default());
    alone.feed.repair = None;
    alone.release(SECOND, 1..4);
    let (took, _) = end(&mut alone, SECOND, |_, _| {});
    assert!(took < 10 * MS, "nobody can be asked: {took}");
}

#[test]
fn where_there_is_no_room_the_event_comes_again() {
    let shape = MemConfig { inbox: 1, burst: 1, datagram_bytes_max: 40, ..MemConfig::default() };
    let mut world = world_with(1, shape);
    // A datagram holds two of these. One waits at the listener, one in the queue, one in the publisher.
    let mut next = 1;
    while world.feed.release(0, &event(next, &[next as u8; 5])) {
        next += 1;
        assert!(next < 20, "it never blocks");
    }
    assert!(world.feed.published().blocked > 0);
    let mut got = heard(&mut world.listener);
    while next < 20 {
        assert!(world.feed.release(0, &event(next, &[next as u8; 5])));
        got.extend(heard(&mut world.listener));
        next += 1;
    }
    for _ in 0..4 {
        world.feed.flush(0);
        got.extend(heard(&mut world.listener));
    }
    assert_eq!(got, events(1..20), "none left out, none twice");
}

#[test]
fn who_missed_events_gets_the_same_bytes_again() {
    let mut world = world(5);
    world.release(0, 5..25);
    assert_eq!(world.ask(7, 3), events(7..10));
    assert_eq!(world.ask(24, 100), events(24..25));
    // What is not there yet, and what is there no longer: told by the nearest number.
    assert_eq!(world.ask(30, 1), [Heard::Heartbeat(25)]);
    assert_eq!(world.ask(2, 1), [Heard::Heartbeat(5)]);
    let repaired = world.feed.repaired().unwrap();
    assert_eq!((repaired.requests, repaired.served, repaired.messages), (4, 2, 4));
    let rows = world.feed.counters();
    assert!(rows.contains(&("events_repaired", 4)) && rows.contains(&("events_repairs_refused", 2)), "{rows:?}");
}

#[test]
fn a_flood_of_requests_costs_a_bounded_time_a_round() {
    let mut world = world(1);
    world.release(0, 1..3);
    let tx = &mut world.asker.1;
    for _ in 0..50 {
        tx.reserve().unwrap()[..3].copy_from_slice(b"???");
        tx.commit(3, world.repair_addr);
        tx.flush();
    }
    world.feed.housekeeping(1);
    assert_eq!(world.feed.repaired().unwrap().requests, REQUESTS_PER_ROUND_MAX as u64);
}

#[test]
fn the_room_for_recent_events_is_bounded_in_both_ways() {
    let mut recent = recent_events(64 * RECENT_EVENT_BYTES, 1);
    (0..1_000).for_each(|_| recent.push(b""));
    assert_eq!(recent.next() - recent.first(), 64, "empty ones by their number");
    (0..1_000).for_each(|_| recent.push(&[1; 1_000]));
    assert!((1..=2).contains(&(recent.next() - recent.first())), "large ones by their bytes");
}

#[test]
#[should_panic(expected = "message n is event n")]
fn a_publisher_that_numbers_otherwise_is_a_bug() {
    let (ours, theirs) = pair();
    let publisher = publisher(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1), 4, 1_472);
    let tx = ours.split().1;
    drop(EventFeed::<_, MemRx, MemTx>::new(publisher, tx, recent_events(64, 5), None));
    drop(theirs);
}

/// A ring for whatever these tests put into one.
fn ring(commit_is_sequenced: bool) -> RingBuilder {
    let frame_bytes_max = record_bytes(100);
    let capacity_bytes = 1 << 16;
    let batch_bytes_max = 4 * frame_bytes_max;
    RingBuilder::new(RingConfig { capacity_bytes, frame_bytes_max, batch_bytes_max, epoch: 3, commit_is_sequenced })
}

#[test]
fn an_event_leaves_when_its_input_is_durable_and_not_before() {
    let mut log = ring(false);
    log.consumer("nobody");
    let mut log = log.build(Seq::FIRST).unwrap();
    let mut outputs = ring(true);
    outputs.consumer("egress");
    let mut outputs = outputs.build(Seq::FIRST).unwrap();
    let mut writer = OutputWriter::new(outputs.producer, 100);
    let World { feed, mut listener, .. } = world(1);
    let (link, _client) = pair();
    let sender = SenderConfig::default();
    let config = EgressConfig {
        epoch: 3,
        schema_version: 1,
        tier: Tier::Local,
        window: 8,
        client_datagram_bytes_max: 1_000,
        sender,
    };
    let (_, control) = rtrb::RingBuffer::new(1);
    let latency = StageLatency::private(Arrivals::new(64, Part::default()), Seq::ZERO);
    let records = outputs.consumers.pop().unwrap();
    let (watermarks, commit) = (log.watermarks.clone(), log.commit);
    let tx = link.split().1;
    let sessions = SessionLinks::new(config);
    let mut egress = Egress::new(tx, records, watermarks, commit, control, sessions, latency).with_events(feed);

    // Input 2 makes two events, input 4 one.
    for (event_seq, input) in [(1, 2), (2, 2), (3, 4)] {
        writer.push(&Record::Output(Emitted { seq: Seq(input), ..event(event_seq, &[event_seq as u8; 5]) }));
    }
    writer.publish();
    for (durable, expected) in [(0, 1..1), (1, 1..1), (2, 1..3), (3, 3..3), (4, 3..4), (5, 4..4)] {
        log.durable.set(Seq(durable));
        egress.poll(durable);
        assert_eq!(heard(&mut listener), events(expected), "durable up to {durable}");
    }
    assert!(egress.released(Seq(3)) && (0..9).any(|round| egress.end_events(9 + round * SECOND)));
    assert_eq!(heard(&mut listener).last(), Some(&Heard::End(4)));
}
