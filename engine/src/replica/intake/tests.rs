use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddrV4;
use std::rc::Rc;

use ticktape_core::frame::{frame_bytes, padded};
use ticktape_core::{Kind, Timestamp};
use ticktape_nic::Nic;
use ticktape_nic::mem::{self, MemRx, MemTx};
use ticktape_shm::{RingBuilder, RingConfig};

use super::*;
use crate::catchup::EpochTable;
use crate::feed::{Commit, FeedSession, Packer, RepairConfig, end_of_session};
use crate::payload::Reign;
use crate::replica::Identity;

const MS: Nanos = 1_000_000;
/// When it begins: long after anybody spoke.
const T: Nanos = 100_000 * MS;
const STREAM: u32 = 7;
const LOG_ID: u64 = 5;
/// One that says nothing in datagrams.
const OTHER_PEER: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::new(10, 9, 9, 9), 9);
const HERE: Reign = Reign { epoch: 1, id: 10 };

/// Ends as it is told, one transfer after another.
struct Told {
    ends: Rc<RefCell<VecDeque<BulkEnd>>>,
    begun: Rc<Cell<u32>>,
    /// Brings frames up to this one.
    brings: Rc<Cell<u64>>,
    next: u64,
    peers: usize,
    address: SocketAddrV4,
}

impl Bulk for Told {
    fn begin(&mut self, _: Nanos, from: Seq, _: Reign) {
        self.begun.set(self.begun.get() + 1);
        self.next = from.0;
    }

    fn poll(&mut self, _: Nanos, admit: &mut dyn FnMut(u64, &[u8]) -> Admission) -> BulkProgress {
        while self.next <= self.brings.get() {
            assert_eq!(admit(self.next, &frame(self.next, HERE)), Admission::Taken);
            self.next += 1;
        }
        self.ends.borrow_mut().pop_front().map_or(BulkProgress::Working(0), BulkProgress::Ended)
    }

    /// One after the other; the last of them is who has an address.
    fn asked(&self) -> Option<SocketAddrV4> {
        let last = (self.begun.get() as usize).is_multiple_of(self.peers);
        Some(if last { self.address } else { OTHER_PEER })
    }

    fn peers(&self) -> usize {
        self.peers
    }
}

/// A frame of a log, as whoever is in that reign writes it.
fn frame(seq: u64, of: Reign) -> Vec<u8> {
    let mut frame = Vec::new();
    let (seq, timestamp) = (Seq(seq), Timestamp(seq));
    Frame { seq, timestamp, stream_id: of.stream_id(), kind: Kind::Tick, payload: &[] }.append_to(&mut frame);
    frame
}

/// An intake, and what is sent to it by the feed and by its one peer that has an address.
struct World {
    intake: Intake<MemRx, MemTx, Told>,
    board: Board,
    ends: Rc<RefCell<VecDeque<BulkEnd>>>,
    /// Transfers that began.
    begun: Rc<Cell<u32>>,
    brings: Rc<Cell<u64>>,
    feed: MemTx,
    peer: MemTx,
    to: SocketAddrV4,
}

impl World {
    /// Of a log that begins with seq 1, and is in the reign here already.
    fn new(peers: usize) -> Self {
        World::of(peers, HERE)
    }

    fn of(peers: usize, here: Reign) -> Self {
        let frame_bytes_max = frame_bytes(64);
        let ring = RingConfig { frame_bytes_max: padded(frame_bytes_max), ..RingConfig::default() };
        let ring = RingBuilder::new(RingConfig { capacity_bytes: 1 << 16, batch_bytes_max: 1 << 10, ..ring }).heap();
        let ring = ring.build(Seq(1)).unwrap();
        let ((near, far), (feed_near, feed_far)) = (mem::pair(), mem::pair());
        let (to, from) = (near.local_addr(), far.local_addr());
        let (repair_rx, repair_tx) = near.split();
        let ports = Ports { feeds: vec![feed_near.split().0], repair_rx, repair_tx };
        let config = IntakeConfig {
            stream: STREAM,
            peers: vec![from],
            window_messages: 64,
            frame_bytes_max,
            wait_ns: MS,
            repair: RepairConfig::default(),
            replica: 3,
            first_status: 1,
            log_id: LOG_ID,
            committed: Seq::ZERO,
            last_wanted: Seq::MAX,
        };
        let service = Identity { name: "bank", schema_version: 1 };
        let side = RingSide {
            door: Door::new(ring.producer, frame_bytes_max, service, here),
            watermarks: ring.watermarks,
            commit_mark: ring.commit,
            committed: Committed::new(Seq::ZERO),
            epochs: EpochTable::new(&[(here, Seq(1))]),
        };
        let (board, ends, begun) =
            (Board::default(), Rc::new(RefCell::new(VecDeque::new())), Rc::<Cell<u32>>::default());
        let brings = Rc::<Cell<u64>>::default();
        let bulk = Told {
            ends: Rc::clone(&ends),
            begun: Rc::clone(&begun),
            brings: Rc::clone(&brings),
            next: 0,
            peers,
            address: from,
        };
        let intake = Intake::new(&config, ports, side, bulk, board.clone());
        World { intake, board, ends, begun, brings, feed: feed_far.split().1, peer: far.split().1, to }
    }

    /// One that somebody who has the log has vouched for.
    fn joined() -> Self {
        World::joined_in(HERE)
    }

    fn joined_in(here: Reign) -> Self {
        let mut world = World::of(1, here);
        world.end(BulkEnd::Complete { reign: here, commit: Seq::ZERO });
        world.poll(T);
        world.poll(T);
        world
    }

    fn end(&mut self, end: BulkEnd) {
        self.ends.borrow_mut().push_back(end);
    }

    fn poll(&mut self, now: Nanos) {
        self.intake.poll(now);
        self.intake.housekeeping(now);
    }

    fn last(&self) -> u64 {
        self.intake.last().0
    }

    /// What a peer says.
    fn commit(&mut self, reign: Reign, age_ms: u16, commit: u64) {
        let word = Commit { stream: STREAM, reign, log_id: LOG_ID, age_ms, commit: Seq(commit) };
        send(&mut self.peer, self.to, &word.encode());
        self.peer.flush();
    }

    fn packet(seq: u64, of: Reign) -> Vec<u8> {
        let session = FeedSession::new(STREAM, HERE.epoch as u32).unwrap();
        let mut packer = Packer::new(session.encode(), seq, 1_000);
        assert!(packer.push(&frame(seq, of)));
        packer.packet().to_vec()
    }

    fn feed(&mut self, seq: u64) {
        self.feed_of(seq, HERE);
    }

    /// A packet of the feed, as whoever is in that reign sends it: its session says nothing of that.
    fn feed_of(&mut self, seq: u64, of: Reign) {
        send(&mut self.feed, self.to, &World::packet(seq, of));
        self.feed.flush();
    }

    /// The end of the session, before `next`.
    fn feed_ends(&mut self, next: u64) {
        let session = FeedSession::new(STREAM, HERE.epoch as u32).unwrap();
        send(&mut self.feed, self.to, &end_of_session(&session.encode(), next));
        self.feed.flush();
    }

    /// The feed goes on, and has nothing from `next` on.
    fn feed_beats(&mut self, next: u64) {
        self.beats_of(HERE, next);
    }

    /// The same in another epoch.
    fn beats_of(&mut self, of: Reign, next: u64) {
        let session = FeedSession::new(STREAM, of.epoch as u32).unwrap();
        send(&mut self.feed, self.to, Packer::new(session.encode(), next, 1_000).packet());
        self.feed.flush();
    }

    /// A packet of the feed in another epoch.
    fn session_of(&mut self, of: Reign, seq: u64) {
        let session = FeedSession::new(STREAM, of.epoch as u32).unwrap();
        let mut packer = Packer::new(session.encode(), seq, 1_000);
        assert!(packer.push(&frame(seq, of)));
        send(&mut self.feed, self.to, packer.packet());
        self.feed.flush();
    }

    fn repair(&mut self, seq: u64) {
        send(&mut self.peer, self.to, &World::packet(seq, HERE));
        self.peer.flush();
    }
}

#[test]
fn what_of_the_feed_waits_behind_a_repair_is_let_in_only_once_a_leader_speaks() {
    let mut world = World::joined();
    // Another replica has the log; it has not heard the leader for long.
    world.commit(HERE, 60_000, 0);
    (2..=4).for_each(|seq| world.feed(seq));
    world.poll(T + MS);
    assert_eq!(world.last(), 0);
    world.repair(1);
    world.poll(T + 2 * MS);
    assert_eq!(world.last(), 1, "the repair is of who has the log; whose the others are nobody has said");
    world.poll(T + 3 * MS);
    assert_eq!(world.last(), 1);
    world.commit(HERE, 0, 0);
    world.poll(T + 4 * MS);
    world.poll(T + 4 * MS);
    assert_eq!(world.last(), 4);
}

#[test]
fn what_waits_behind_a_repair_as_the_leader_stops_is_fetched_while_it_still_waits_for_its_replicas() {
    let mut world = World::joined();
    world.commit(HERE, 0, 0);
    (2..=4).for_each(|seq| world.feed(seq));
    world.feed_ends(5);
    world.poll(T + MS);
    // As a leader says that nothing comes after it: its own word, and no word for what comes on the feed.
    world.commit(HERE, u16::MAX, 4);
    world.repair(1);
    world.poll(T + 2 * MS);
    assert_eq!(world.last(), 1);
    let before = world.begun.get();
    let asked_at = (2..).map(|ms| T + ms * MS).find(|&now| {
        world.poll(now);
        world.begun.get() > before
    });
    let waited_ns = asked_at.unwrap() - T;
    assert!(waited_ns <= STOP_PATIENCE_NS / 4, "{} ms", waited_ns / MS);
}

#[test]
fn a_repair_is_taken_only_from_who_is_in_the_reign_that_the_log_is_in() {
    for other in [Reign { epoch: 1, id: 11 }, Reign { epoch: 2, id: 20 }] {
        let mut world = World::joined();
        world.commit(other, 0, 0);
        world.poll(T + MS);
        world.repair(1);
        world.poll(T + MS);
        assert_eq!(world.last(), 0, "{other:?}");
        world.commit(HERE, 0, 0);
        world.poll(T + 2000 * MS);
        world.repair(1);
        world.poll(T + 2000 * MS);
        assert_eq!(world.last(), 1, "{other:?}");
    }
}

#[test]
fn a_frame_of_another_reign_is_not_taken_for_one_of_ours_whoever_speaks_and_does_not_keep_ours_out() {
    let copy = Reign { id: 11, ..HERE };
    let mut world = World::joined();
    world.commit(HERE, 0, 0);
    // A copy of the log is led beside ours, on the same feed, and is first: the next one, and some that have to wait.
    [1, 3, 4].into_iter().for_each(|seq| world.feed_of(seq, copy));
    world.poll(T + MS);
    world.poll(T + MS);
    assert_eq!(world.last(), 0);
    world.commit(HERE, 0, 0);
    (1..=4).for_each(|seq| world.feed(seq));
    world.poll(T + 2 * MS);
    assert_eq!((world.last(), world.intake.verdict()), (4, None));
    // The builds before told of none in their frames.
    world.feed_of(5, Reign::unnamed(HERE.epoch));
    world.poll(T + 3 * MS);
    assert_eq!(world.last(), 5);
}

#[test]
fn a_leader_of_another_history_lets_nothing_of_the_feed_in() {
    let mut world = World::joined();
    world.commit(HERE, 0, 0);
    world.commit(Reign { epoch: 1, id: 11 }, 0, 9);
    world.feed(1);
    world.poll(T + MS);
    world.poll(T + MS);
    assert_eq!((world.last(), world.board.get(Figure::Committed)), (0, 0));
    let word = world.board.read().word;
    assert!(word.contains("reign 000000000000000b of epoch 1, another one than here"), "{word}");
}

#[test]
fn peers_are_asked_once_a_second_about_another_history_that_one_of_them_goes_on_to_tell_of() {
    let mut world = World::joined();
    let before = world.begun.get();
    for ms in 1..=5_000 {
        world.commit(Reign { epoch: 1, id: 11 }, 0, 9);
        // The log goes on meanwhile, so that each transfer brings something.
        world.brings.set(ms);
        if world.ends.borrow().is_empty() {
            world.end(BulkEnd::Complete { reign: HERE, commit: Seq(ms) });
        }
        world.poll(T + ms * MS);
    }
    assert!(world.last() > 3_000, "{}", world.last());
    let asked = world.begun.get() - before;
    assert!((2..=6).contains(&asked), "{asked} times in 5 s");
}

#[test]
fn a_later_epoch_that_only_another_history_has_is_named_all_the_time_and_keeps_nothing_of_ours_out() {
    let later = Reign { epoch: 3, id: 30 };
    let why = "10.0.0.3:3: its epoch 1 is another reign";
    // Ours is led by who is silent here; the other history by who has an address.
    let mut world = World::new(2);
    let mut since_named = None;
    for ms in 1..=30_000 {
        let now = T + ms * MS;
        world.commit(later, 0, 900);
        world.feed_beats(world.last() + 1);
        world.session_of(later, 900 + ms);
        // Whoever is asked now.
        let is_theirs = world.begun.get() > 0 && world.begun.get().is_multiple_of(2);
        world.ends.borrow_mut().clear();
        world.brings.set(if is_theirs { 0 } else { ms / 10 });
        world.end(match is_theirs {
            true => BulkEnd::OtherLog(why.to_string()),
            false => BulkEnd::Complete { reign: HERE, commit: Seq(ms / 10) },
        });
        world.poll(now);
        let status = world.board.read();
        since_named = since_named.or_else(|| status.word.starts_with(why).then_some(ms));
        if since_named.is_none_or(|since| ms < since + 10) {
            continue;
        }
        assert!(status.word.starts_with(why), "{ms} ms: {status}");
        assert_eq!(status.state, ReplicaState::Live, "{ms} ms: {status}");
    }
    assert_eq!(world.intake.verdict(), None);
    assert!(since_named.is_some_and(|since| since < 3_000), "{since_named:?}");
    assert!((4..20).contains(&world.begun.get()), "{} transfers", world.begun.get());
    assert!(world.last() > 2_000, "what was committed of ours: {}", world.last());
}

#[test]
fn a_leader_of_a_lower_epoch_on_the_feed_is_named_while_it_is_heard_and_changes_nothing_else() {
    let (here, lower) = (Reign { epoch: 3, id: 30 }, Reign { epoch: 2, id: 20 });
    let mut world = World::joined_in(here);
    let begun = world.begun.get();
    let mut named = Vec::new();
    for ms in (0..30_000).step_by(10) {
        let now = T + ms * MS;
        world.commit(here, 0, 0);
        world.beats_of(here, 1);
        if ms < 20_000 {
            // As it goes on, and as it lives.
            world.session_of(lower, 1 + ms);
            world.beats_of(lower, 2 + ms);
        }
        world.poll(now);
        let status = world.board.read();
        assert_eq!(status.state, ReplicaState::Live, "{ms}: {status}");
        let is_named = status.word.contains(" epoch 2 ") && status.word.contains("beside epoch 3,");
        assert_eq!(status.word.is_empty(), !is_named, "{ms}: {status}");
        assert_eq!(status.get(Figure::LowerEpoch), if is_named { 2 } else { 0 });
        named.extend(is_named.then_some(ms));
    }
    assert!((3_000..8_000).contains(&named[0]) && (20_000..26_000).contains(named.last().unwrap()), "{named:?}");
    assert_eq!(named.len() as u64, (named.last().unwrap() - named[0]) / 10 + 1, "without a pause");
    assert_eq!((world.begun.get(), world.last(), world.intake.verdict()), (begun, 0, None));
}

#[test]
fn a_few_packets_of_a_lower_epoch_and_any_number_as_repairs_say_nothing() {
    let (here, lower) = (Reign { epoch: 3, id: 30 }, Reign { epoch: 2, id: 20 });
    let mut world = World::joined_in(here);
    for ms in (0..30_000).step_by(10) {
        world.commit(here, 0, 0);
        world.beats_of(here, 1);
        // What was still on its way; then one alone, and answers of whoever repairs.
        if ms < 2_000 || ms == 10_000 {
            world.session_of(lower, 1 + ms);
        }
        let session = FeedSession::new(STREAM, lower.epoch as u32).unwrap();
        send(&mut world.peer, world.to, Packer::new(session.encode(), 1, 1_000).packet());
        world.peer.flush();
        world.poll(T + ms * MS);
        assert_eq!(world.board.read().word, "", "{ms}");
    }
    let old = world.intake.counters().into_iter().find(|(name, _)| *name == "feed_old_epoch").unwrap().1;
    assert!(old > 1_000, "{old}");
}

#[test]
fn of_two_peers_one_of_which_has_another_log_both_are_named_for_as_long_as_no_leader_of_ours_is_heard() {
    let mut world = World::new(2);
    for round in 0..3 {
        world.end(BulkEnd::OtherLog("10.0.0.3:3: it serves log 6".to_string()));
        world.end(BulkEnd::Failed("10.0.0.2:2: connection refused".to_string()));
        let now = T + round * 2_000 * MS;
        (0..4).for_each(|_| world.poll(now));
        assert_eq!(world.intake.verdict(), None, "the other may come back");
        let word = world.board.read().word;
        for part in ["10.0.0.3:3: it serves log 6", "10.0.0.2:2: connection refused"] {
            assert!(word.contains(part), "{round}: {word}");
        }
    }
    // The other one is another replica, which waits likewise: who has the log is no leader of it.
    world.end(BulkEnd::OtherLog("10.0.0.3:3: it serves log 6".to_string()));
    world.end(BulkEnd::Complete { reign: HERE, commit: Seq::ZERO });
    (0..4).for_each(|_| world.poll(T + 9_000 * MS));
    assert_eq!(world.intake.verdict(), None);
    let word = world.board.read().word;
    assert!(word.contains("it serves log 6") && word.contains("no leader of this log"), "{word}");
    world.commit(HERE, 0, 0);
    (0..4).for_each(|_| world.poll(T + 9_001 * MS));
    assert_eq!(world.board.read().word, "");

    // All of them have another: there is nobody to wait for.
    let mut world = World::new(2);
    for _ in 0..2 {
        world.end(BulkEnd::OtherLog("it serves log 6".to_string()));
    }
    (0..4).for_each(|_| world.poll(T));
    assert!(matches!(world.intake.verdict(), Some(Verdict::Fault(_))));
}

#[test]
fn a_request_that_nobody_answers_freezes_neither_the_state_nor_repairs() {
    let mut world = World::joined();
    let mut now = T;
    // Nothing on the feed for long: somebody is asked, who says nothing.
    while world.board.read().state != ReplicaState::Silent {
        now += 10 * MS;
        world.poll(now);
        assert!(now < T + 60_000 * MS, "{}", world.board.read());
    }
    assert!(world.board.read().word.contains("nothing on the feed for over "), "{}", world.board.read());
    let begun = world.begun.get();
    // The feed is back, and a number is lost of it.
    for seq in [1, 2, 4, 5] {
        now += MS;
        world.commit(HERE, 0, seq);
        world.feed(seq);
        world.poll(now);
    }
    for _ in 0..20 {
        now += MS;
        world.commit(HERE, 0, 5);
        world.poll(now);
    }
    let requests = world.intake.counters().into_iter().find(|(name, _)| *name == "repair_requests").unwrap().1;
    assert!(requests > 0 && world.last() == 2, "{requests} requests, up to {}", world.last());
    world.repair(3);
    // It takes some polls until the words are gone.
    for _ in 0..3 {
        now += MS;
        world.poll(now);
    }
    let status = world.board.read();
    assert_eq!((world.last(), status.state, &status.word[..]), (5, ReplicaState::Live, ""));
    assert_eq!(world.begun.get(), begun, "the request is still open");
}
