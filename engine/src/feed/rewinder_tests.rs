use std::net::Ipv4Addr;

use ticktape_core::Seq;
use ticktape_nic::mem::{self, MemConfig, MemRx, MemTx};
use ticktape_nic::{Nic, Rx};

use super::super::history::Recent;
use super::super::identity::{LogTold, told_log_identity};
use super::super::mold::{MoldPacket, OVERHEAD_BYTES, SessionName};
use super::*;
use crate::payload::Reign;

const S: u64 = 1_000_000_000;

fn asker() -> SocketAddrV4 {
    MemConfig::default().addresses[1]
}

fn session(epoch: u32) -> FeedSession {
    FeedSession::new(1, epoch).unwrap()
}

/// A rewinder of messages 1 to before `next`, the oldest of which are gone, and what it sends to the asker.
struct World {
    rewinder: Rewinder,
    history: Recent,
    tx: MemTx,
    rx: MemRx,
}

fn world(config: RewinderConfig, next: u64) -> World {
    let mut history = Recent::new(1024, 1 << 20, 1);
    (1..next).for_each(|seq| history.push(&seq.to_le_bytes()));
    let (near, far) = mem::pair_with(MemConfig { inbox: 4096, burst: 64, ..MemConfig::default() });
    World { rewinder: Rewinder::new(&config), history, tx: near.split().1, rx: far.split().0 }
}

fn config() -> RewinderConfig {
    RewinderConfig { datagram_bytes_max: 100, ..RewinderConfig::new(session(2)) }
}

fn request(epoch: u32, sequence: u64, count: u16) -> [u8; MoldRequest::BYTES] {
    MoldRequest { session: session(epoch).encode(), sequence, count }.encode()
}

impl World {
    fn ask(&mut self, now: Nanos, bytes: &[u8]) -> Answer {
        let answer = self.rewinder.on_request(now, asker(), bytes, &mut self.history, &mut self.tx);
        self.tx.flush();
        answer
    }

    /// The numbers that came, which must carry the right messages; heartbeats as what they name.
    fn came(&mut self) -> (Vec<u64>, Vec<u64>) {
        let (mut messages, mut heartbeats) = (Vec::new(), Vec::new());
        self.rx.poll(0, 4096, |datagram| match MoldPacket::parse(datagram.payload).unwrap() {
            MoldPacket::Messages { sequence, messages: bodies, .. } => {
                for (seq, body) in (sequence..).zip(bodies) {
                    assert_eq!(body, seq.to_le_bytes());
                    messages.push(seq);
                }
                assert!(datagram.payload.len() <= 100);
            }
            MoldPacket::Heartbeat { sequence, .. } => heartbeats.push(sequence),
            MoldPacket::EndOfSession { .. } => panic!("nobody asked how a session ended"),
        });
        (messages, heartbeats)
    }

    /// What came about sessions: the name, and where it ended or, not being over, is.
    fn told(&mut self) -> Vec<(SessionName, u64, bool)> {
        let mut told = Vec::new();
        self.rx.poll(0, 4096, |datagram| match MoldPacket::parse(datagram.payload).unwrap() {
            MoldPacket::Messages { .. } => panic!("no messages of another session"),
            MoldPacket::Heartbeat { session, sequence } => told.push((*session, sequence, false)),
            MoldPacket::EndOfSession { session, sequence } => told.push((*session, sequence, true)),
        });
        told
    }
}

#[test]
fn what_is_asked_for_comes_in_full_packets() {
    let mut world = world(config(), 3_001);
    assert_eq!(world.ask(0, &request(2, 2_500, 17)), Answer::Sent { messages: 17, packets: 3 });
    assert_eq!(world.came(), ((2_500..2_517).collect(), vec![]));
    assert_eq!(world.ask(0, &request(2, 2_999, 300)), Answer::Sent { messages: 2, packets: 1 });
    assert_eq!(world.came(), (vec![2_999, 3_000], vec![]));
    let counters = world.rewinder.counters();
    assert_eq!((counters.requests, counters.served, counters.messages, counters.packets), (2, 2, 19, 4));
}

#[test]
fn what_there_is_not_is_refused_by_the_nearest_number() {
    let mut world = world(config(), 3_001);
    assert_eq!(world.ask(0, &request(2, 1, 5)), Answer::TooOld);
    assert_eq!(world.came(), (vec![], vec![world.history.first()]));
    assert_eq!(world.ask(0, &request(2, 3_001, 5)), Answer::NotYet);
    assert_eq!(world.ask(0, &request(2, 1 << 63, 5)), Answer::NotYet);
    assert_eq!(world.came(), (vec![], vec![3_001, 3_001]));
    let counters = world.rewinder.counters();
    assert_eq!((counters.too_old, counters.not_yet, counters.served), (1, 2, 0));
}

#[test]
fn what_is_no_request_of_this_session_is_counted_and_has_no_answer() {
    let mut world = world(config(), 100);
    assert_eq!(world.ask(0, b"?"), Answer::Malformed(MoldError::Short));
    assert_eq!(world.ask(0, &request(2, 0, 5)), Answer::Malformed(MoldError::BadSequence));
    assert_eq!(world.ask(0, &request(2, u64::MAX, 5)), Answer::Malformed(MoldError::BadSequence));
    assert_eq!(world.ask(0, &request(2, 5, 0)), Answer::Malformed(MoldError::BadRequest));
    assert_eq!(world.ask(0, &request(1, 5, 5)), Answer::OtherEpoch);
    assert_eq!(world.ask(0, &request(3, 5, 5)), Answer::OtherEpoch);
    let foreign = MoldRequest { session: *b"someone's ", sequence: 1, count: 1 };
    assert_eq!(world.ask(0, &foreign.encode()), Answer::Foreign);
    let foreign = FeedSession::new(9, 2).unwrap().encode();
    assert_eq!(world.ask(0, &MoldRequest { session: foreign, sequence: 1, count: 1 }.encode()), Answer::Foreign);
    assert_eq!(world.came(), (vec![], vec![]));
    let counters = world.rewinder.counters();
    assert_eq!((counters.other_epoch, counters.foreign, counters.malformed.iter().sum::<u64>()), (2, 2, 4));
    assert_eq!(counters.malformed[MoldError::BadSequence.index()], 2);

    world.rewinder.adopt_session(3);
    assert_eq!(world.ask(0, &request(3, 5, 1)), Answer::Sent { messages: 1, packets: 1 });
    assert_eq!(world.ask(0, &request(2, 5, 1)), Answer::OtherEpoch);
}

#[test]
fn who_names_a_reign_that_is_over_is_told_where_it_ended_and_else_where_the_present_one_is() {
    let mut world = world(RewinderConfig { session: session(5), ..config() }, 100);
    let epochs = [(1, Seq(1)), (2, Seq(9)), (4, Seq(20))];
    world.rewinder.tell_ends(EndedSessions::new(&epochs, &[(4, 60)], 5, 80));
    for (epoch, name, number, has_ended) in
        [(2, 2, 60, true), (4, 4, 80, true), (1, 5, 100, false), (6, 5, 100, false), (3, 5, 100, false)]
    {
        let expected = if has_ended { Answer::Ended } else { Answer::OtherEpoch };
        for sequence in [1, 70, 1 << 60] {
            assert_eq!(world.ask(0, &request(epoch, sequence, 3)), expected, "epoch {epoch}");
            assert_eq!(world.told(), [(session(name).encode(), number, has_ended)]);
        }
    }
    let foreign = FeedSession::new(9, 2).unwrap().encode();
    assert_eq!(world.ask(0, &MoldRequest { session: foreign, sequence: 1, count: 1 }.encode()), Answer::Foreign);
    assert_eq!(world.told(), []);
    let counters = world.rewinder.counters();
    assert_eq!((counters.ended, counters.other_epoch, counters.foreign, counters.bytes), (6, 9, 1, 0));
    // It is within the rates, too.
    let mut asked = 0;
    while world.ask(0, &request(2, 1, 1)) == Answer::Ended {
        asked += 1;
        assert!(asked < 100_000 && world.told().len() == 1);
    }
    assert_eq!(world.ask(0, &request(5, 90, 1)), Answer::Limited);
}

#[test]
fn who_names_epoch_0_is_told_which_log_this_is_and_of_a_port_that_does_not_know_only_where_it_is() {
    let mut world = world(RewinderConfig { session: session(5), ..config() }, 100);
    let none_yet = world.ask(0, &request(LOG_EPOCH, 1, 1));
    assert_eq!(none_yet, Answer::OtherEpoch);
    world.rewinder.tell_ends(EndedSessions::new(&[(4, Seq(1))], &[], 5, 80));
    assert_eq!(world.ask(0, &request(LOG_EPOCH, 1, 1)), Answer::OtherEpoch);
    assert_eq!(world.told(), [(session(5).encode(), 100, false)], "what a port without an identity answers");
    let log_id = NonZeroU64::new(0x0102_0304_0506_0708).unwrap();
    let reigns = [Reign { epoch: 4, id: 40 }, Reign { epoch: 5, id: 50 }];
    world.rewinder.tell_log(log_id, reigns.into());
    for (sequence, count, reign) in [
        (1, 1, None),
        (5, 2, Some(reigns[1])),
        (4, 3, Some(reigns[0])),
        // Of what is no epoch of the log nothing is known.
        (70, 2, Some(Reign::unnamed(70))),
        (1 << 60, 2, Some(Reign::unnamed(1 << 60))),
    ] {
        assert_eq!(world.ask(0, &request(LOG_EPOCH, sequence, count)), Answer::Identified);
        let mut told = Vec::new();
        world.rx.poll(0, 9, |datagram| told.push(told_log_identity(session(5).stream(), datagram.payload)));
        assert_eq!(told, [Some(LogTold { log_id, reign })], "{count} messages from {sequence} on");
    }
    assert_eq!(world.ask(0, &request(4, 1, 1)), Answer::Ended);
    let counters = world.rewinder.counters();
    assert_eq!((counters.identified, counters.ended, counters.other_epoch, counters.bytes), (5, 1, 2, 0));
    // It is within the rates, too.
    let mut asked = 0;
    while world.ask(0, &request(LOG_EPOCH, 1, 1)) == Answer::Identified {
        asked += 1;
        assert!(asked < 100_000);
        world.rx.poll(0, 9, |_| {});
    }
    assert_eq!(world.ask(0, &request(5, 90, 1)), Answer::Limited);
}

#[test]
fn one_requester_gets_its_share_and_all_together_theirs() {
    let limits =
        RewinderConfig { bytes_per_answer_max: 1_000, requester_bytes_per_s: 20_000, bytes_per_s: 100_000, ..config() };
    let mut world = world(limits, 1_000);
    let ask = |world: &mut World, now, from: u16| {
        let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), from);
        let bytes = request(2, 100, 400);
        let answer = world.rewinder.on_request(now, source, &bytes, &mut world.history, &mut world.tx);
        while world.tx.flush() > 0 || world.tx.queued() > 0 {
            world.rx.poll(now, 64, |_| {});
        }
        answer
    };
    let is_sent = |answer| matches!(answer, Answer::Sent { .. });
    let mut flood = |now| (0..1_000).filter(|_| is_sent(ask(&mut world, now, 1))).count();
    assert_eq!(flood(0), 1, "an answer is a burst");
    // Two thousand questions, and a second's worth of answers.
    let sent: usize = (1..=100).map(|step| flood(step * S / 100)).sum();
    assert!((10..=22).contains(&sent), "{sent} answers of a thousand bytes at 20 kB/s");
    let others = (2..200).filter(|&port| is_sent(ask(&mut world, 2 * S, port))).count();
    assert!((4..=6).contains(&others), "{others} more answers in all, of 5 kB at once");
    let counters = world.rewinder.counters();
    assert!(counters.limited > 90_000 && counters.limited_in_all > 100, "{counters:?}");
    assert!(counters.bytes < 20_000 + 20_000 + 10_000, "{counters:?}");
}

#[test]
fn a_full_transmit_queue_sends_what_it_can() {
    let mut world = world(config(), 3_001);
    let bytes = request(2, 2_500, 400);
    let ask = |world: &mut World| world.rewinder.on_request(0, asker(), &bytes, &mut world.history, &mut world.tx);
    assert_eq!(ask(&mut world), Answer::Sent { messages: 400, packets: 50 });
    assert_eq!(ask(&mut world), Answer::Sent { messages: 112, packets: 14 });
    assert_eq!(ask(&mut world), Answer::Blocked);
    world.tx.flush();
    assert_eq!(world.came().0, (2_500..2_900).chain(2_500..2_612).collect::<Vec<_>>());
    assert_eq!(world.rewinder.counters().blocked, 1);
}

/// A history that lies: it hands on what was not asked for.
struct Liar(u64, usize);

impl History for Liar {
    fn read(&mut self, _: Nanos, _: u64, _: usize, _: usize, f: &mut dyn FnMut(u64, &[u8])) -> HistoryRead {
        f(self.0, &vec![1; self.1]);
        HistoryRead::Read(1)
    }
}

#[test]
fn nothing_is_sent_under_a_wrong_number_or_beyond_a_datagram() {
    let mut world = world(config(), 1);
    let bytes = request(2, 5, 1);
    for mut liar in [Liar(6, 1), Liar(5, 100 - OVERHEAD_BYTES + 1)] {
        assert_eq!(world.rewinder.on_request(0, asker(), &bytes, &mut liar, &mut world.tx), Answer::Blocked);
    }
    assert_eq!(world.tx.queued(), 0);
    let fits = &mut Liar(5, 100 - OVERHEAD_BYTES);
    assert_eq!(
        world.rewinder.on_request(0, asker(), &bytes, fits, &mut world.tx),
        Answer::Sent { messages: 1, packets: 1 }
    );
}
