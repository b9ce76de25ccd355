//! Two copies of one journal that both go on: one log, one epoch, two histories. Nobody takes one for the other.

mod support;

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::time::Duration;

use support::{Command, Mailbox, TestClient, config, copy_log};
use ticktape::config::{ApplianceConfig, FeedConfig};
use ticktape::payload::EpochChange;
use ticktape::pipeline::{Appliance, Replica};
use ticktape::replica::{Figure, ReplicaConfig, ReplicaState, ReplicaStatus};
use ticktape::{Frame, Kind, Node, NodeConfig, Seq, Service, Timestamp};
use ticktape_core::frame::padded;
use ticktape_journal::{FileDisk, Journal, JournalReader};

/// Reached only where what is waited for does not happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A port that nobody has at the moment.
fn free_address() -> SocketAddrV4 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, socket.local_addr().unwrap().port())
}

/// Where leaders of one stream are met, one after another: all under the same names.
struct Place {
    root: tempfile::TempDir,
    feed: SocketAddrV4,
    repair: SocketAddrV4,
    /// Of clients: each leader has one of its own.
    sessions: Cell<u64>,
}

impl Place {
    fn new() -> Self {
        let (feed, repair) = (free_address(), free_address());
        Place { root: tempfile::tempdir().unwrap(), feed, repair, sessions: Cell::new(1) }
    }

    fn dir(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join(name)
    }

    fn leader(&self, journal: &str) -> Led {
        self.leader_at(journal, self.repair)
    }

    /// One on the same feed that repairs elsewhere, so that it can be beside another.
    fn leader_at(&self, journal: &str, repair: SocketAddrV4) -> Led {
        let config = config(&self.dir(journal));
        let feed = Some(FeedConfig { repair: Some(repair), ..FeedConfig::on_loopback(self.feed) });
        let appliance = Appliance::start::<Mailbox>(&ApplianceConfig { feed, ..config }, &()).unwrap();
        let session = self.sessions.replace(self.sessions.get() + 1);
        Led { client: TestClient::new(appliance.local_addr(), session), appliance }
    }

    fn replica(&self, name: &str) -> Replica<Mailbox> {
        self.replica_of(name, vec![self.repair])
    }

    /// One that asks these for what it missed.
    fn replica_of(&self, name: &str, peers: Vec<SocketAddrV4>) -> Replica<Mailbox> {
        let mut config = ReplicaConfig::new(self.dir(name), self.feed, peers);
        config.ring.bytes = 1 << 20;
        Replica::start(&config, &(), None).unwrap()
    }

    /// A journal and an older copy of it, `a` and `b`, that both have the first reign's frames.
    fn two_copies() -> Self {
        let place = Place::new();
        let mut led = place.leader("a");
        led.add(50);
        led.stop();
        copy_log(&place.dir("a"), &place.dir("b"));
        place
    }

    fn frames(&self, name: &str) -> Vec<Vec<u8>> {
        frames(&self.dir(name))
    }
}

/// A leader, and who asks it for something.
struct Led {
    appliance: Appliance,
    client: TestClient,
}

impl Led {
    fn add(&mut self, times: usize) {
        for _ in 0..times {
            self.client.send(&Command::Add(1));
        }
        self.client.until_acked();
    }

    /// Waits until a replica has all of it.
    fn until_level(&self, replica: &Replica<Mailbox>) -> ReplicaStatus {
        let commit = self.appliance.watermarks().durable();
        let level = replica.wait_until(PATIENCE, |status| status.applied() >= commit);
        level.unwrap_or_else(|| panic!("it is not level: {}; {:?}", replica.status(), replica.fault()))
    }

    fn stop(self) {
        let report = self.appliance.stop();
        assert_eq!((&report.fault, &report.errors[..]), (&None, &[][..]));
    }
}

fn frames(dir: &Path) -> Vec<Vec<u8>> {
    let (mut reader, mut frames) = (JournalReader::open(dir, Seq(1)).unwrap(), Vec::new());
    while let Some(frame) = reader.next().unwrap() {
        frames.push(frame.to_vec());
    }
    frames
}

/// The fault of a replica that met the other history, in which all stands that an operator needs.
fn fault_of(replica: &Replica<Mailbox>, place: &Place, epoch: u64) -> String {
    let fault = replica.wait_fault(PATIENCE).unwrap_or_else(|| panic!("no fault: {}", replica.status()));
    let log_id = ticktape_journal::log_id(&place.dir("a")).unwrap().unwrap();
    assert_eq!(fault.lines().count(), 1, "{fault}");
    for word in [
        &place.repair.to_string()[..],
        &format!("{log_id:016x}"),
        &format!("of epoch {epoch},"),
        "an older copy of the journal was started",
        "keep one of the two",
    ] {
        assert!(fault.contains(word), "{word}: {fault}");
    }
    fault
}

#[test]
fn a_running_replica_that_hears_the_other_copy_under_the_same_names_takes_nothing_of_it_and_names_it() {
    // The other one is behind, about level, or far ahead of what the replica has.
    for others in [5, 48, 300] {
        let place = Place::two_copies();
        let mut ours = place.leader("a");
        let replica = place.replica("own");
        ours.add(50);
        ours.until_level(&replica);
        ours.stop();

        let mut theirs = place.leader("b");
        theirs.add(others);
        fault_of(&replica, &place, 2);
        replica.stop();
        theirs.stop();
        let (followed, true_ones) = (place.frames("own"), place.frames("a"));
        assert!(followed.len() > 100 && true_ones.starts_with(&followed), "{others}: {} frames", followed.len());
    }
}

#[test]
fn an_older_copy_that_is_led_beside_ours_on_the_same_feed_gets_nothing_into_a_replica() {
    let place = Place::two_copies();
    let mut ours = place.leader("a");
    let replica = place.replica("own");
    ours.add(20);
    ours.until_level(&replica);
    // Ours says no more than that it lives, and the other one writes beyond all that is here, in the same epoch.
    let mut theirs = place.leader_at("b", free_address());
    theirs.add(60);
    theirs.stop();
    ours.add(80);
    let level = ours.until_level(&replica);
    assert_eq!(level.get(Figure::TakenBack), 0, "{level}");
    assert_eq!(replica.stop().fault, None);
    ours.stop();
    let followed = place.frames("own");
    assert!(followed.len() > 150 && place.frames("a").starts_with(&followed), "{} frames", followed.len());
}

#[test]
fn of_two_leaders_the_one_in_the_higher_epoch_is_followed_whoever_is_asked_first() {
    for newer_first in [false, true] {
        let place = Place::new();
        let mut older = place.leader("a");
        older.add(50);
        // It hangs, and what it has is led elsewhere; then it is back, and has not heard of that.
        copy_log(&place.dir("a"), &place.dir("b"));
        older.add(30);
        let other = free_address();
        let peers = if newer_first { vec![other, place.repair] } else { vec![place.repair, other] };
        let replica = place.replica_of("own", peers);
        older.until_level(&replica);
        let mut newer = place.leader_at("b", other);
        for _ in 0..5 {
            newer.add(10);
            older.add(1);
        }
        let level = replica.wait_until(PATIENCE, |status| {
            status.get(Figure::Epoch) == 2 && status.applied() >= newer.appliance.watermarks().durable()
        });
        let level = level.unwrap_or_else(|| panic!("it does not follow: {}", replica.status()));
        assert!(level.get(Figure::Restarts) < 4, "{newer_first}: {} restarts, {level}", level.get(Figure::Restarts));
        assert_eq!(level.get(Figure::TakenBack), 30, "{newer_first}: {level}");
        assert_eq!(replica.stop().fault, None);
        older.stop();
        newer.stop();
        let followed = place.frames("own");
        assert!(followed.len() > 100 && place.frames("b").starts_with(&followed), "{newer_first}");
    }
}

#[test]
fn of_two_copies_that_lead_in_epochs_of_different_numbers_one_is_followed_and_the_other_named_all_the_time() {
    let place = Place::two_copies();
    // Both have taken epoch 2; one of them leads in it, and the other in epoch 3.
    let mut theirs = place.leader("b");
    theirs.add(40);
    theirs.stop();
    let (mut ours, other) = (place.leader("a"), free_address());
    let mut theirs = place.leader_at("b", other);
    ours.add(20);
    theirs.add(30);
    let replica = place.replica_of("own", vec![place.repair, other]);
    ours.until_level(&replica);
    let is_named = |status: &ReplicaStatus| {
        status.state == ReplicaState::Live
            && status.word.contains(&other.to_string())
            && status.word.contains("of epoch 2")
    };
    replica.wait_until(PATIENCE, is_named).unwrap_or_else(|| panic!("{}", replica.status()));
    // From now on that stands, whatever is committed on either side and asked meanwhile.
    let asked_before = replica.status().get(Figure::CatchUps);
    while replica.status().get(Figure::CatchUps) < asked_before + 2 {
        ours.add(5);
        theirs.add(5);
        ours.until_level(&replica);
        let status = replica.status();
        assert!(is_named(&status), "{status}");
    }
    let status = replica.status();
    assert_eq!([Figure::Restarts, Figure::TakenBack].map(|figure| status.get(figure)), [0, 0], "{status}");
    // The other one has gone: there is nothing to say any more.
    theirs.stop();
    ours.add(5);
    let is_clear = |status: &ReplicaStatus| status.word.is_empty() && status.state == ReplicaState::Live;
    replica.wait_until(PATIENCE, is_clear).unwrap_or_else(|| panic!("{}", replica.status()));
    ours.until_level(&replica);
    assert_eq!(replica.stop().fault, None);
    ours.stop();
    let own = place.frames("own");
    assert!(own.len() > 90 && place.frames("a").starts_with(&own), "{} frames", own.len());
}

#[test]
fn of_two_copies_that_lead_in_one_epoch_one_is_followed_without_a_break_and_the_other_named_all_the_time() {
    let place = Place::two_copies();
    let (mut ours, other) = (place.leader("a"), free_address());
    let replica = place.replica_of("own", vec![place.repair, other]);
    ours.add(20);
    ours.until_level(&replica);
    // The other one begins beside it, in the same epoch, and is soon far ahead.
    let mut theirs = place.leader_at("b", other);
    theirs.add(300);
    let is_named = |status: &ReplicaStatus| {
        status.state == ReplicaState::Live
            && status.word.contains(&other.to_string())
            && status.word.contains("of epoch 2")
    };
    let named = replica.wait_until(PATIENCE, |status| {
        ours.add(1);
        is_named(status)
    });
    named.unwrap_or_else(|| panic!("{}; {:?}", replica.status(), replica.fault()));
    let named = (0..100).filter(|_| {
        ours.add(5);
        theirs.add(5);
        is_named(&ours.until_level(&replica))
    });
    // What is on its way is repaired for a moment.
    let named = named.count();
    assert!(named >= 90, "{named} of 100");
    let status = replica.status();
    assert_eq!([Figure::Restarts, Figure::TakenBack].map(|figure| status.get(figure)), [0, 0], "{status}");
    theirs.stop();
    let is_clear = |status: &ReplicaStatus| {
        ours.add(1);
        status.word.is_empty() && status.state == ReplicaState::Live
    };
    replica.wait_until(PATIENCE, is_clear).unwrap_or_else(|| panic!("{}", replica.status()));
    ours.until_level(&replica);
    assert_eq!(replica.stop().fault, None);
    ours.stop();
    let own = place.frames("own");
    assert!(own.len() > 90 && place.frames("a").starts_with(&own), "{} frames", own.len());
}

#[test]
fn of_two_copies_that_lead_in_epochs_of_different_numbers_the_lower_one_is_named_on_a_replica_of_the_higher_one() {
    let place = Place::two_copies();
    let mut ours = place.leader("a");
    ours.add(20);
    ours.stop();
    // Ours leads in epoch 3, and the other copy in epoch 2: both on one feed, and both acknowledge what they are sent.
    let (mut ours, mut theirs) = (place.leader("a"), place.leader_at("b", free_address()));
    let replica = place.replica("own");
    let is_named = |status: &ReplicaStatus| {
        status.state == ReplicaState::Live
            && status.word.contains("goes on to send epoch 2 ")
            && status.word.contains("beside epoch 3,")
            && status.get(Figure::LowerEpoch) == 2
    };
    ours.add(10);
    ours.until_level(&replica);
    replica.wait_until(PATIENCE, is_named).unwrap_or_else(|| panic!("{}", replica.status()));
    // That keeps nothing of ours out.
    for _ in 0..20 {
        ours.add(5);
        theirs.add(5);
        ours.until_level(&replica);
    }
    let status = replica.wait_until(PATIENCE, is_named).unwrap_or_else(|| panic!("{}", replica.status()));
    assert_eq!([Figure::Restarts, Figure::TakenBack].map(|figure| status.get(figure)), [0, 0], "{status}");
    // The other one has gone: there is nothing to say any more.
    theirs.stop();
    let is_clear = |status: &ReplicaStatus| status.word.is_empty() && status.get(Figure::LowerEpoch) == 0;
    replica.wait_until(PATIENCE, is_clear).unwrap_or_else(|| panic!("{}", replica.status()));
    ours.add(5);
    ours.until_level(&replica);
    assert_eq!(replica.stop().fault, None);
    ours.stop();
    let own = place.frames("own");
    assert!(own.len() > 180 && place.frames("a").starts_with(&own), "{} frames", own.len());
}

#[test]
fn a_replica_that_comes_back_to_the_other_copy_is_refused_and_gives_up_nothing_that_was_committed() {
    let place = Place::two_copies();
    let mut ours = place.leader("a");
    let replica = place.replica("own");
    ours.add(50);
    ours.until_level(&replica);
    replica.stop();
    ours.stop();
    let before = place.frames("own");

    let mut theirs = place.leader("b");
    theirs.add(200);
    let replica = place.replica("own");
    fault_of(&replica, &place, 2);
    assert_eq!(replica.status().get(Figure::TakenBack), 0, "{}", replica.status());
    replica.stop();
    theirs.stop();
    // The other one has been started once more: in the epoch of before it is still another.
    let theirs = place.leader("b");
    let replica = place.replica("own");
    fault_of(&replica, &place, 2);
    replica.stop();
    theirs.stop();
    assert!(place.frames("own") == before);

    let mut ours = place.leader("a");
    ours.add(20);
    let replica = place.replica("own");
    ours.until_level(&replica);
    replica.stop();
    ours.stop();
    assert!(place.frames("a").starts_with(&place.frames("own")));
}

#[test]
fn a_replica_that_has_only_what_both_copies_have_follows_whichever_leads() {
    for journal in ["a", "b"] {
        let place = Place::new();
        let mut led = place.leader("a");
        let replica = place.replica("own");
        led.add(50);
        led.until_level(&replica);
        replica.stop();
        led.stop();
        copy_log(&place.dir("a"), &place.dir("b"));
        for copy in ["a", "b"] {
            let mut led = place.leader(copy);
            led.add(30);
            led.stop();
        }
        let mut led = place.leader(journal);
        led.add(30);
        let replica = place.replica("own");
        let level = led.until_level(&replica);
        assert_eq!(level.get(Figure::TakenBack), 0, "{level}");
        replica.stop();
        led.stop();
        let followed = place.frames("own");
        assert!(followed.len() > 110 && place.frames(journal).starts_with(&followed), "{journal}");
    }
}

#[test]
fn a_replica_of_one_history_serves_none_of_the_other() {
    let place = Place::two_copies();
    let mut ours = place.leader("a");
    let replica = place.replica("own");
    ours.add(50);
    ours.until_level(&replica);
    replica.stop();
    ours.stop();

    // It leads nothing, and is asked by a replica of the other history.
    let mut theirs = place.leader("b");
    theirs.add(50);
    let other = place.replica("other");
    theirs.until_level(&other);
    other.stop();
    theirs.stop();
    let mut serving = ReplicaConfig::new(place.dir("own"), free_address(), vec![free_address()]);
    (serving.ring.bytes, serving.serve) = (1 << 20, Some(place.repair));
    let server = Replica::<Mailbox>::start(&serving, &(), None).unwrap();
    let replica = place.replica("other");
    fault_of(&replica, &place, 2);
    replica.stop();
    server.stop();
    assert!(place.frames("b").starts_with(&place.frames("other")));
}

/// A log as it was written before there were reigns: two of them, and a command in each.
fn written_before(dir: &Path) {
    let (mut journal, _) = Journal::open(FileDisk::new(), dir, NodeConfig::new(dir).journal).unwrap();
    let change = |epoch| {
        let change = EpochChange { epoch, schema_version: Mailbox::SCHEMA_VERSION, ..EpochChange::default() };
        (Kind::EpochChange, change.encode())
    };
    let add = || (Kind::Input, ticktape::Encode::to_bytes(&Command::Add(7)));
    for (seq, (kind, payload)) in (1..).zip([change(1), add(), change(2), add()]) {
        let mut bytes = Vec::new();
        let (seq, timestamp) = (Seq(seq), Timestamp(seq));
        Frame { seq, timestamp, stream_id: 1, kind, payload: &payload }.append_to(&mut bytes);
        bytes.resize(padded(bytes.len()), 0);
        assert!(journal.room(bytes.len()));
        journal.set_epoch(if seq < Seq(3) { 1 } else { 2 });
        journal.append(seq, &bytes);
    }
    journal.close().unwrap();
}

#[test]
fn a_log_from_before_there_were_reigns_is_read_followed_and_gone_on_with() {
    let place = Place::new();
    written_before(&place.dir("a"));
    copy_log(&place.dir("a"), &place.dir("own"));
    let node = Node::<Mailbox>::open(NodeConfig::new(place.dir("a")), ()).unwrap();
    assert_eq!((node.seq(), node.service().snapshot().0), (Seq(4), 14));
    drop(node);
    let mut led = place.leader("a");
    assert_eq!(led.appliance.epoch(), 3);
    // One that has what was written before, and one that has nothing.
    let mut reigns = Vec::new();
    for name in ["own", "late"] {
        let replica = place.replica(name);
        led.add(20);
        led.until_level(&replica);
        reigns = replica.inspect(|machine| machine.reigns()).unwrap();
        assert!(reigns[..2].iter().all(|(reign, _)| reign.id == 0) && reigns[2].0.id != 0, "{reigns:?}");
        assert_eq!(replica.stop().fault, None);
        assert!(place.frames("a").starts_with(&place.frames(name)));
    }
    led.stop();
    // The next one goes on after the one that is known.
    let led = place.leader("a");
    let replica = place.replica("late");
    led.until_level(&replica);
    let frames = place.frames("a");
    let last =
        frames.iter().rev().map(|bytes| Frame::decode(bytes).unwrap()).find(|frame| frame.kind == Kind::EpochChange);
    let change = last.map(|frame| EpochChange::decode(frame.payload).unwrap()).unwrap();
    assert_eq!((change.epoch, change.previous_reign), (4, reigns[2].0.id));
    replica.stop();
    led.stop();
}

#[test]
fn a_journal_put_together_of_both_copies_stops_whoever_applies_it() {
    let place = Place::two_copies();
    for (copy, times) in [("a", 30), ("b", 30)] {
        let mut led = place.leader(copy);
        led.add(times);
        led.stop();
    }
    // Two reigns more of the one, of which the other's frames stand in place of the first.
    let (ours, theirs) = (place.frames("a"), place.frames("b"));
    let mut led = place.leader("a");
    led.add(5);
    led.stop();
    let beyond = place.frames("a")[ours.len()..].to_vec();
    let fork = ours.iter().zip(&theirs).take_while(|(one, other)| one == other).count();
    assert!(fork > 50 && ours.len() == theirs.len(), "{fork} of {} and {}", ours.len(), theirs.len());
    let mut machine = ticktape::machine::Machine::<Mailbox>::genesis(&(), ticktape::machine::StepLimits::default());
    let mut stopped = None;
    for bytes in theirs.iter().chain(&beyond) {
        let frame = Frame::decode(bytes).unwrap();
        while stopped.is_none() {
            match machine.step(&frame) {
                Ok(ticktape::machine::Progress::Applied) => break,
                Ok(ticktape::machine::Progress::TimerFired) => {}
                Err(error) => stopped = Some(error),
            }
        }
    }
    let error = stopped.expect("it stops").to_string();
    assert!(error.contains("of epoch 2") && error.contains("older copy of the journal"), "{error}");
}
