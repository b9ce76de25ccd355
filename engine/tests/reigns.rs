//! Clients that come back after whole reigns of the appliance that they have heard nothing of.

mod support;

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use support::{Answer, Command, Mailbox, TestClient, config, copy_log, wait_durable};
use ticktape::config::{ApplianceConfig, EventsConfig, SnapshotConfig};
use ticktape::feed::{FeedSession, Proof, Verdict};
use ticktape::link::{ClientConfig, HistoryGap, Tier};
use ticktape::pipeline::Appliance;
use ticktape_tuning::clock;

/// Whose events are watched.
const SESSION: u64 = 1;
/// Events that every history has.
const KEPT: u64 = 3;
/// Events that only the first reign has, where it lost any.
const LOST: u64 = 4;
/// Events of each reign that is missed: more than were lost, so that their numbers are beyond all that the client holds.
const MISSED: u64 = 6;

fn start(config: &ApplianceConfig) -> Appliance {
    Appliance::start::<Mailbox>(config, &()).unwrap()
}

fn stop(appliance: Appliance) {
    let report = appliance.stop();
    assert_eq!((&report.fault, &report.errors[..]), (&None, &[][..]));
}

/// Sessions of those who tell, one each time.
static TELLERS: AtomicU64 = AtomicU64::new(1_000);

/// Sends so many words to the watched session, and returns them.
fn tell(appliance: &Appliance, word: &str, times: u64) -> Vec<String> {
    let mut teller = TestClient::new(appliance.local_addr(), TELLERS.fetch_add(1, Ordering::Relaxed));
    let words: Vec<_> = (0..times).map(|at| format!("{word} {at} of reign {}", appliance.epoch())).collect();
    words.iter().for_each(|word| {
        teller.send(&Command::Tell { session: SESSION, word: word.clone() });
    });
    teller.until_acked();
    words
}

fn link(client_epoch: u32, resume_next: u64, resume_reign: Option<u32>) -> ClientConfig {
    ClientConfig { session: SESSION, client_epoch, resume_next, resume_reign, ..ClientConfig::default() }
}

/// What a client was told, without what was taken back.
fn told(client: &TestClient) -> Vec<String> {
    let mut told = Vec::new();
    let mut resyncs = client.resyncs.iter();
    for (event_seq, _, answer) in &client.events {
        let Answer::Word(word) = answer else { panic!("only words are sent") };
        while told.len() as u64 + 1 != *event_seq {
            let &(from, next) = resyncs.next().expect("a number goes back, or is left out, only where that is said");
            assert_eq!(from, told.len() as u64 + 1);
            told.truncate(next as usize - 1);
        }
        told.push(word.clone());
    }
    told
}

/// A first reign that a client has heard all of, and reigns after it that it has heard nothing of.
struct History {
    config: ApplianceConfig,
    client: TestClient,
    words: Vec<String>,
}

impl History {
    fn new(dir: &Path, tier: Tier, loses: bool, missed: u32) -> Self {
        let (first, crashed): (PathBuf, PathBuf) = (dir.join("first"), dir.join("crashed"));
        let mut config = ApplianceConfig { tier, ..config(&first) };
        let appliance = start(&config);
        let mut client = TestClient::with(appliance.local_addr(), &link(1, 1, None));
        client.connect();
        let mut words = tell(&appliance, "kept", KEPT);
        wait_durable(&appliance);
        if loses {
            copy_log(&first, &crashed);
            config.dir = crashed;
        }
        let last = tell(&appliance, "lost", LOST);
        client.until("all of the first reign", |client| client.events.len() as u64 == KEPT + LOST);
        stop(appliance);
        if !loses {
            words.extend(last);
        }
        for _ in 0..missed {
            let appliance = start(&config);
            words.extend(tell(&appliance, "missed", MISSED));
            stop(appliance);
        }
        History { config, client, words }
    }
}

#[test]
fn a_running_client_that_missed_whole_reigns_is_told_what_was_lost_with_the_first() {
    for tier in [Tier::Memory, Tier::Local] {
        for (missed, loses) in [(0, false), (0, true), (1, false), (1, true), (2, false), (2, true), (4, true)] {
            let dir = tempfile::tempdir().unwrap();
            let History { config, mut client, mut words } = History::new(dir.path(), tier, loses, missed);
            let appliance = start(&config);
            assert_eq!(appliance.epoch(), 2 + missed);
            client.redirect(appliance.local_addr());
            words.extend(tell(&appliance, "last", 1));
            let last = words.last().unwrap().clone();
            client.until("the last word", |client| {
                client.events.last().is_some_and(|(_, _, answer)| *answer == Answer::Word(last.clone()))
            });
            let rewound: &[_] = if loses { &[(KEPT + LOST + 1, KEPT + 1)] } else { &[] };
            assert_eq!((&client.resyncs[..], &client.closed), (rewound, &None), "{tier:?}, {missed} missed");
            assert!(client.gaps.iter().all(|&gap| gap == HistoryGap::Rewound));
            assert_eq!((told(&client), client.reign()), (words, 2 + missed), "{tier:?}, {missed} missed");
            stop(appliance);
        }
    }
}

#[test]
fn a_saved_cursor_is_judged_by_its_reign_however_many_came_since() {
    for tier in [Tier::Memory, Tier::Local] {
        for (missed, loses) in [(0, true), (1, false), (1, true), (2, false), (2, true)] {
            let dir = tempfile::tempdir().unwrap();
            let History { config, client, mut words } = History::new(dir.path(), tier, loses, missed);
            let (next, reign) = (client.resume_next(), client.reign());
            let appliance = start(&config);
            words.extend(tell(&appliance, "last", 1));
            let mut again = TestClient::with(appliance.local_addr(), &link(2, next, Some(reign)));
            let from = if loses { KEPT + 1 } else { next };
            again.until("what is new", |client| {
                client.events.last().is_some_and(|&(event, ..)| event == words.len() as u64)
            });
            let rewound: &[_] = if loses { &[(next, from)] } else { &[] };
            assert_eq!(&again.resyncs[..], rewound, "{tier:?}, {missed} missed");
            let new: Vec<_> = again.events.iter().map(|&(event, ..)| event).collect();
            assert_eq!(new, (from..=words.len() as u64).collect::<Vec<_>>());
            // Nothing is known of a cursor that names none.
            let mut unknown = TestClient::with(appliance.local_addr(), &link(3, next, Some(0)));
            unknown.connect();
            let refusal = unknown.closed.unwrap_or_default();
            assert_eq!(refusal.contains("names no reign"), tier == Tier::Memory, "{refusal}");
            stop(appliance);
        }
    }
}

#[test]
fn where_what_is_kept_does_not_tell_a_running_client_is_told_that() {
    for tier in [Tier::Memory, Tier::Local] {
        let dir = tempfile::tempdir().unwrap();
        let History { mut config, mut client, .. } = History::new(dir.path(), tier, true, 0);
        (config.window, config.session_bytes) = (16, 16 << 10);
        // What it fills, the words of before make room for.
        let appliance = start(&config);
        tell(&appliance, &"many ".repeat(80), 60);
        stop(appliance);
        let appliance = start(&config);
        client.redirect(appliance.local_addr());
        client.until("a word about it", |client| client.closed.is_some() || !client.resyncs.is_empty());
        match tier {
            Tier::Memory => {
                let closed = client.closed.unwrap();
                assert!(closed.contains("the cursor is of reign 1") && closed.contains("in reign 3"), "{closed}");
                let mut fresh = TestClient::with(appliance.local_addr(), &link(2, 1, Some(0)));
                fresh.until("a beginning", |client| !client.events.is_empty());
                assert_eq!((&fresh.gaps[..], fresh.closed), (&[HistoryGap::TooOld][..], None), "it holds nothing");
            }
            Tier::Local | Tier::Quorum => {
                assert_eq!((&client.gaps[..], client.closed), (&[HistoryGap::TooOld][..], None))
            }
        }
        stop(appliance);
    }
}

/// With public events, which nobody hears, and a port that answers who asks about them.
fn with_events(config: &mut ApplianceConfig) {
    let nobody = SocketAddrV4::new(Ipv4Addr::new(239, 255, 77, 1), 17_201);
    let repair = Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    config.events = Some(EventsConfig { repair, ..EventsConfig::on_loopback(nobody) });
}

/// Makes so many public events.
fn announce(appliance: &Appliance, times: u32) {
    let mut client = TestClient::new(appliance.local_addr(), TELLERS.fetch_add(1, Ordering::Relaxed));
    client.ask(&Command::Announce { times, bytes: 4 });
    client.until_acked();
}

/// What a receiver that has all events before `next`, in an epoch, is told of them.
fn ask(appliance: &Appliance, epoch: u32, next: u64) -> Verdict {
    let stream = EventsConfig::on_loopback(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1)).stream();
    let mut proof = Proof::new(FeedSession::new(stream, epoch).unwrap(), next);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let mut answer = [0; 2_048];
    loop {
        let now = clock::monotonic_ns();
        if let Some(request) = proof.poll_request(now) {
            socket.send_to(&request.encode(), appliance.events_repair_addr().unwrap()).unwrap();
        }
        let verdict = socket.recv(&mut answer).ok().and_then(|bytes| proof.on_answer(&answer[..bytes]));
        match verdict {
            Some(verdict) => return verdict,
            None if proof.is_over(now) => return Verdict::Unproven,
            None => {}
        }
    }
}

#[test]
fn a_receiver_of_public_events_is_told_over_any_number_of_reigns_what_of_them_counts() {
    for tier in [Tier::Memory, Tier::Local] {
        for loses in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let (first, crashed) = (dir.path().join("first"), dir.path().join("crashed"));
            let mut config = ApplianceConfig { tier, ..config(&first) };
            with_events(&mut config);
            let appliance = start(&config);
            announce(&appliance, 3);
            wait_durable(&appliance);
            if loses {
                copy_log(&first, &crashed);
                config.dir = crashed;
            }
            announce(&appliance, 4);
            stop(appliance);
            let (held, end) = (8, if loses { 4 } else { 8 });
            let expected = if loses { Verdict::TakenBack { from: end } } else { Verdict::Proven };
            for missed in 0..3u32 {
                let appliance = start(&config);
                let what = format!("{tier:?}, loses: {loses}, {missed} missed");
                assert_eq!((appliance.epoch(), ask(&appliance, 1, held)), (2 + missed, expected), "{what}");
                assert_eq!(ask(&appliance, 1, end), Verdict::Proven, "{what}");
                announce(&appliance, 6);
                // Of the epoch before this one, too, of which nothing was lost, and of one that never was.
                if missed > 0 {
                    let before = end + 6 * u64::from(missed);
                    assert_eq!(ask(&appliance, 1 + missed, before), Verdict::Proven, "{what}");
                    assert_eq!(ask(&appliance, 1 + missed, before + 1), Verdict::TakenBack { from: before }, "{what}");
                }
                assert_eq!(ask(&appliance, 40, 2), Verdict::Unproven);
                assert_eq!(ask(&appliance, 1, held), expected, "{what}: whatever was made since");
                stop(appliance);
            }
        }
    }
}

#[test]
fn how_epochs_ended_is_known_from_a_snapshot_when_the_log_before_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    with_events(&mut config);
    config.journal.segment_bytes = 270_336;
    config.snapshots = Some(SnapshotConfig { every_frames: 64, compact: true, ..SnapshotConfig::default() });
    for epoch in 1..=3 {
        let appliance = start(&config);
        assert_eq!(appliance.epoch(), epoch);
        announce(&appliance, epoch);
        let begun = appliance.sequenced();
        while !appliance.wait_covered(begun, Duration::from_millis(20)) {
            tell(&appliance, "filler", 64);
        }
        stop(appliance);
    }
    let appliance = start(&config);
    assert!(appliance.choices().recovery.contains("the snapshot after seq"), "{}", appliance.choices().recovery);
    let ends = [2, 4, 7];
    for (epoch, end) in (1..).zip(ends) {
        assert_eq!(ask(&appliance, epoch, end), Verdict::Proven);
        assert_eq!(ask(&appliance, epoch, end + 1), Verdict::TakenBack { from: end }, "epoch {epoch}");
    }
    stop(appliance);
}
