//! Catching up over TCP: from a running log, across a snapshot, after interruptions, and from those who do not mean well.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use support::{Command, Mailbox};
use ticktape::catchup::{Ended, EpochTable, Fault, FetchConfig, RefuseReason, ServeConfig};
use ticktape::machine::StepLimits;
use ticktape::pipeline::{
    CatchupClient, CatchupClientConfig, CatchupCounters, CatchupError, CatchupItem, CatchupServer, CatchupServerConfig,
    CatchupStep, ServedRing, install_snapshot,
};
use ticktape::snapshot::Found;
use ticktape::{Frame, Kind, Node, NodeConfig, Seq, Service, Timestamp};
use ticktape_journal::{JournalConfig, JournalReader, snapshot};
use ticktape_shm::{Ring, RingBuilder, RingConfig};

/// Reached only where what is waited for does not happen.
const PATIENCE: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_millis(20);
const STREAM: u32 = 1;

/// A leader's log: history in a journal, and a ring that goes on behind it.
struct Leader {
    dir: tempfile::TempDir,
    ring: Ring,
    log_id: u64,
    digest: String,
    frames: Vec<Vec<u8>>,
}

impl Leader {
    /// `rounds` of 2000 additions, each with a snapshot where wanted; the last round has none.
    fn new(rounds: usize, compacts: bool) -> Leader {
        let dir = tempfile::tempdir().unwrap();
        let mut config = NodeConfig::new(dir.path());
        config.journal = JournalConfig { segment_bytes: 64 << 10, commit_bytes_max: 16 << 10, ..config.journal };
        config.payload_bytes_max = 1024;
        let mut node = Node::<Mailbox>::open(config, ()).unwrap();
        for round in 0..rounds {
            (0..100).for_each(|_| drop(node.submit_batch((0..20).map(|_| Command::Add(7))).unwrap()));
            if compacts && round + 1 < rounds {
                node.snapshot().unwrap();
                node.compact().unwrap();
            }
        }
        node.sync().unwrap();
        let digest = node.digest();
        drop(node);
        let frames = frames(dir.path());
        let next = Frame::view(frames.last().unwrap()).unwrap().seq.next();
        let config = RingConfig { commit_is_sequenced: true, ..RingConfig::default() };
        let mut ring = RingBuilder::new(config).heap().build(next).unwrap();
        ring.durable.set(Seq(next.0 - 1));
        let log_id = ticktape_journal::log_id(dir.path()).unwrap().unwrap();
        Leader { dir, ring, log_id, digest, frames }
    }

    fn last(&self) -> Seq {
        Frame::view(self.frames.last().unwrap()).unwrap().seq
    }

    fn publish(&mut self, count: u64) {
        for _ in 0..count {
            let (seq, mut bytes) = (self.last().next(), Vec::new());
            Frame { seq, timestamp: Timestamp(u64::MAX), stream_id: 2, kind: Kind::Tick, payload: &[] }
                .append_to(&mut bytes);
            self.ring.producer.push(&bytes).unwrap();
            self.frames.push(bytes);
        }
        self.ring.producer.publish();
    }

    fn config(&self) -> CatchupServerConfig {
        let serve = ServeConfig::new(STREAM, Mailbox::NAME, Mailbox::SCHEMA_VERSION);
        let ring = ServedRing::Here(self.ring.tap.clone());
        CatchupServerConfig { log_id: self.log_id, ..CatchupServerConfig::new(serve, self.dir.path(), ring) }
    }

    fn serve(&self, config: CatchupServerConfig) -> CatchupServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let watermarks = self.ring.watermarks.clone();
        CatchupServer::start(listener, config, EpochTable::default(), move || watermarks.commit()).unwrap()
    }
}

fn frames(dir: &Path) -> Vec<Vec<u8>> {
    let first = JournalReader::open(dir, Seq(1)).map_or_else(
        |error| match error {
            ticktape_journal::JournalError::TooOld { first, .. } => first,
            error => panic!("{error}"),
        },
        |_| Seq(1),
    );
    let (mut reader, mut frames) = (JournalReader::open(dir, first).unwrap(), Vec::new());
    while let Some(frame) = reader.next().unwrap() {
        frames.push(frame.to_vec());
    }
    frames
}

fn fetch_config(wanted: Seq) -> FetchConfig {
    FetchConfig::new(STREAM, Mailbox::NAME, Mailbox::SCHEMA_VERSION, wanted)
}

fn client(fetch: FetchConfig, dir: &Path) -> CatchupClient {
    let spool = dir.join("catchup.part");
    CatchupClient::new(CatchupClientConfig { fetch, spool, connect_timeout: Duration::from_secs(5) })
}

/// What a client was given.
#[derive(Default)]
struct Got {
    frames: Vec<Vec<u8>>,
    snapshot: Option<Seq>,
}

impl Got {
    fn until_end(&mut self, client: &mut CatchupClient, dir: &Path) -> Result<ticktape::catchup::UpTo, CatchupError> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let step = client.next(WAIT, |item| {
                match item {
                    CatchupItem::Frame { bytes, .. } => self.frames.push(bytes.to_vec()),
                    CatchupItem::Snapshot { path, header } => {
                        install_snapshot(path, dir, header.meta.seq).unwrap();
                        self.snapshot = Some(header.meta.seq);
                    }
                }
                true
            })?;
            if let CatchupStep::UpTo(up_to) = step {
                return Ok(up_to);
            }
        }
        panic!("no end")
    }
}

/// What the server has done once `holds` says so of it.
fn eventually(server: &CatchupServer, what: &str, holds: impl FnMut(&CatchupCounters) -> bool) -> CatchupCounters {
    server.wait_until(PATIENCE, holds).unwrap_or_else(|| panic!("{what}: {:?}", server.counters()))
}

#[test]
fn a_newcomer_gets_the_journal_then_the_ring_then_what_is_new() {
    let mut leader = Leader::new(2, false);
    leader.publish(10);
    let (server, dir) = (leader.serve(leader.config()), tempfile::tempdir().unwrap());
    let (mut client, mut got) = (client(fetch_config(Seq(1)), dir.path()), Got::default());
    client.connect(server.local_addr());
    let up_to = got.until_end(&mut client, dir.path()).unwrap();
    assert_eq!((up_to.next, up_to.commit), (leader.last().next(), leader.last()));
    assert_eq!(got.frames, leader.frames);
    assert_eq!(client.fetch().log_id(), leader.log_id);
    leader.publish(5);
    client.ask_again();
    assert_eq!(got.until_end(&mut client, dir.path()).unwrap().next, leader.last().next());
    assert_eq!(got.frames, leader.frames);
    client.hang_up();
    eventually(&server, "it is noticed", |counters| counters.ended(&Ended::HungUp) == 1);
    let counters = server.stop();
    assert_eq!((counters.served.questions, counters.served.frames), (2, leader.frames.len() as u64));
    assert!(counters.dropped.is_empty(), "{:?}", counters.dropped);
}

#[test]
fn a_server_in_another_process_follows_the_ring_by_its_name() {
    let (mut leader, shm) = (Leader::new(1, false), tempfile::tempdir().unwrap());
    let (config, next) = (RingConfig { commit_is_sequenced: true, ..RingConfig::default() }, leader.last().next());
    leader.ring = RingBuilder::new(config).named(shm.path(), "log").build(next).unwrap();
    leader.ring.durable.set(leader.last());
    leader.publish(10);
    let ring = ServedRing::Named { dir: shm.path().to_owned(), name: "log".to_string() };
    let serve = ServeConfig::new(STREAM, Mailbox::NAME, Mailbox::SCHEMA_VERSION);
    let config = CatchupServerConfig::new(serve, leader.dir.path(), ring);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = CatchupServer::start(listener, config, EpochTable::default(), || Seq::MAX).unwrap();
    let (dir, mut got) = (tempfile::tempdir().unwrap(), Got::default());
    let mut client = client(fetch_config(Seq(1)), dir.path());
    client.connect(server.local_addr());
    got.until_end(&mut client, dir.path()).unwrap();
    leader.publish(5);
    client.ask_again();
    got.until_end(&mut client, dir.path()).unwrap();
    assert_eq!(got.frames, leader.frames);
    // A ring that is not there is named, whoever asks.
    for entry in std::fs::read_dir(shm.path()).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let error = fetch_all_anew(&server, dir.path());
    assert!(
        matches!(error.fault(), Some(Fault::Refused(refuse)) if refuse.reason == RefuseReason::LogDamaged),
        "{error}"
    );
    assert!(eventually(&server, "it is named", |counters| !counters.dropped.is_empty()).dropped[0].contains("log"));
}

fn fetch_all_anew(server: &CatchupServer, dir: &Path) -> CatchupError {
    let mut client = client(fetch_config(Seq(1)), dir);
    client.connect(server.local_addr());
    Got::default().until_end(&mut client, dir).unwrap_err()
}

#[test]
fn a_newcomer_to_a_log_that_begins_late_is_given_a_snapshot_and_computes_the_same() {
    let leader = Leader::new(4, true);
    assert!(Frame::view(&leader.frames[0]).unwrap().seq > Seq(1), "the log begins late");
    let (server, dir) = (leader.serve(leader.config()), tempfile::tempdir().unwrap());
    let (mut client, mut got) = (client(fetch_config(Seq(1)), dir.path()), Got::default());
    client.connect(server.local_addr());
    got.until_end(&mut client, dir.path()).unwrap();
    let seq = got.snapshot.expect("a snapshot came");
    let found = Found::newest(dir.path(), Seq::MAX).unwrap();
    assert_eq!((found.covered(), found.log_id()), (seq, leader.log_id));
    let mut machine = found.restore::<Mailbox>(dir.path(), &(), StepLimits::default(), 1 << 20).unwrap().machine;
    for bytes in &got.frames {
        let frame = Frame::decode(bytes).unwrap();
        while machine.step(&frame).unwrap() != ticktape::machine::Progress::Applied {}
        machine.take_outputs().for_each(drop);
    }
    assert_eq!(machine.applied(), leader.last());
    assert_eq!(machine.digest(), leader.digest);
    assert_eq!(server.stop().served.snapshots, 1);
}

#[test]
fn a_snapshot_goes_on_where_the_client_was_stopped() {
    let leader = Leader::new(3, true);
    let (server, dir) = (leader.serve(leader.config()), tempfile::tempdir().unwrap());
    // A chunk is less than a page, so the smallest snapshot takes several.
    let config = || FetchConfig { message_bytes_max: 4096, ..fetch_config(Seq(1)) };
    let part = {
        let mut client = client(config(), dir.path());
        client.connect(server.local_addr());
        let until = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < until);
            client.next(WAIT, |_| false).unwrap();
            let there = std::fs::metadata(dir.path().join("catchup.part")).map_or(0, |meta| meta.len());
            if there > 4096 {
                break there;
            }
        }
    };
    let file_bytes = std::fs::metadata(&snapshot::list(leader.dir.path()).unwrap().last().unwrap().1).unwrap().len();
    assert!(part <= file_bytes);
    let (mut client, mut got) = (client(config(), dir.path()), Got::default());
    client.connect(server.local_addr());
    got.until_end(&mut client, dir.path()).unwrap();
    assert!(got.snapshot.is_some());
    assert_eq!(*got.frames.last().unwrap(), *leader.frames.last().unwrap());
    assert!(!dir.path().join("catchup.part").exists());
}

#[test]
fn a_rotten_snapshot_is_named_and_another_way_is_found() {
    let leader = Leader::new(4, true);
    let newest = snapshot::list(leader.dir.path()).unwrap().pop().unwrap().1;
    let mut bytes = std::fs::read(&newest).unwrap();
    bytes[4096] ^= 1;
    std::fs::write(&newest, bytes).unwrap();
    let (server, dir) = (leader.serve(leader.config()), tempfile::tempdir().unwrap());
    let (mut client, mut got) = (client(fetch_config(Seq(1)), dir.path()), Got::default());
    client.connect(server.local_addr());
    let error = got.until_end(&mut client, dir.path()).unwrap_err();
    assert!(matches!(error, CatchupError::Snapshot { .. }), "{error}");
    assert!(!dir.path().join("catchup.part").exists());
    client.connect(server.local_addr());
    match got.until_end(&mut client, dir.path()) {
        // Where compaction has left the log that the older one goes on from.
        Ok(_) => assert!(got.snapshot.is_some()),
        Err(error) => assert!(matches!(error.fault(), Some(Fault::Refused(_))), "{error}"),
    }
}

#[test]
fn refusals_reach_the_client_by_name() {
    let leader = Leader::new(1, false);
    let server = leader.serve(CatchupServerConfig { clients_max: 1, idle_ns: u64::MAX, ..leader.config() });
    let dir = tempfile::tempdir().unwrap();
    let refused = |fetch| {
        let mut client = client(fetch, dir.path());
        client.connect(server.local_addr());
        let error = Got::default().until_end(&mut client, dir.path()).unwrap_err();
        match error.fault() {
            Some(Fault::Refused(refuse)) => *refuse,
            _ => panic!("{error}"),
        }
    };
    let base = || fetch_config(Seq(1));
    let other_schema = FetchConfig { schema_version: 99, ..base() };
    assert_eq!(refused(other_schema).reason, RefuseReason::SchemaMismatch);
    let other_log = refused(FetchConfig { log_id: 1, ..base() });
    assert_eq!((other_log.reason, other_log.detail), (RefuseReason::OtherLog, leader.log_id));
    let beyond = refused(FetchConfig { wanted: Seq(1 << 40), ..base() });
    assert_eq!((beyond.reason, beyond.detail), (RefuseReason::BeyondTheLog, leader.last().0 + 1));
    let (mut held, mut hello) = (TcpStream::connect(server.local_addr()).unwrap(), Vec::new());
    ticktape::catchup::Fetch::new(base()).reconnect(0, &mut hello);
    held.write_all(&hello).unwrap();
    eventually(&server, "it has a place", |counters| counters.placed == 1);
    assert_eq!(refused(base()).reason, RefuseReason::TooManyClients);
    drop(held);
    let counters = server.stop();
    assert_eq!(counters.ended(&Ended::Refused(RefuseReason::TooManyClients)), 1);
    assert_eq!(counters.dropped.len(), 4);
    assert!(counters.dropped[0].contains("too_many_clients"), "{:?}", counters.dropped);
}

#[test]
fn clients_that_say_nothing_or_take_nothing_are_dropped_by_name_and_others_are_served() {
    let mut leader = Leader::new(1, false);
    let mut config = leader.config();
    config.serve.question_timeout_ns = 50_000_000;
    config.serve.taking_timeout_ns = 50_000_000;
    let server = leader.serve(config);
    let _silent = TcpStream::connect(server.local_addr()).unwrap();
    eventually(&server, "it was silent", |counters| counters.ended(&Ended::Silent) == 1);
    let mut babbler = TcpStream::connect(server.local_addr()).unwrap();
    babbler.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    babbler.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"TTCU"), "it is told");
    // One that asks for everything, time and again, and takes none of it.
    let mut hello = Vec::new();
    let fetch = FetchConfig { message_bytes_max: 4096, ..fetch_config(Seq(1)) };
    ticktape::catchup::Fetch::new(fetch).reconnect(0, &mut hello);
    leader.publish(1);
    let mut greedy = TcpStream::connect(server.local_addr()).unwrap();
    let greedy = thread::spawn(move || while greedy.write_all(&hello).is_ok() {});
    eventually(&server, "it was slow, or silent once more", |counters| {
        counters.ended(&Ended::Slow) + counters.ended(&Ended::HungUp) + counters.ended(&Ended::Silent) > 1
    });
    greedy.join().unwrap();
    let (dir, mut got) = (tempfile::tempdir().unwrap(), Got::default());
    let mut client = client(fetch_config(Seq(1)), dir.path());
    client.connect(server.local_addr());
    got.until_end(&mut client, dir.path()).unwrap();
    assert_eq!(got.frames, leader.frames);
    assert!(server.counters().dropped.len() >= 2);
}

#[test]
fn a_hundred_connections_that_say_nothing_and_clients_that_ask_nothing_more_keep_nobody_out() {
    let leader = Leader::new(1, false);
    let mut config = CatchupServerConfig { clients_max: 2, idle_ns: 0, ..leader.config() };
    config.serve.question_timeout_ns = u64::MAX;
    let server = leader.serve(config);
    let idle: Vec<_> = (0..100).map(|_| TcpStream::connect(server.local_addr()).unwrap()).collect();
    let (dir, mut clients) = (tempfile::tempdir().unwrap(), Vec::new());
    for _ in 0..3 {
        let (mut client, mut got) = (client(fetch_config(Seq(1)), dir.path()), Got::default());
        client.connect(server.local_addr());
        got.until_end(&mut client, dir.path()).unwrap();
        assert_eq!(got.frames, leader.frames);
        clients.push(client);
    }
    // Who is there is counted at the end of a round, who came and went at once.
    let counters = eventually(&server, "all have come, and nobody was closed for another reason", |counters| {
        counters.clients == 103 && counters.connected + counters.ended(&Ended::Displaced) == 103
    });
    assert_eq!(counters.placed, 2, "the first of three has given its place to the third");
    let displaced = counters.ended(&Ended::Displaced);
    assert!((30..70).contains(&displaced), "{displaced} of a hundred");
    assert!(counters.dropped.iter().any(|line| line.contains("127.0.0.1:") && line.contains("wanted its place")));
    drop(idle);
    eventually(&server, "they are gone", |counters| counters.connected == 2);
}

#[test]
fn servers_that_are_not_there_do_not_answer_or_hang_up_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let failed = |server: SocketAddr| {
        let fetch = FetchConfig { answer_timeout_ns: 50_000_000, ..fetch_config(Seq(1)) };
        let mut client = client(fetch, dir.path());
        client.connect(server);
        let error = Got::default().until_end(&mut client, dir.path()).unwrap_err();
        assert!(error.to_string().contains(&server.to_string()), "{error}");
        let again = client.next(Duration::ZERO, |_| true).unwrap_err();
        assert!(matches!(again, CatchupError::Connection { .. }), "{again}");
        error
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    let error = failed(server);
    assert_eq!(error.fault(), Some(&Fault::Silent), "{error}");
    let hanging_up = thread::spawn(move || {
        // The first connection was the silent one's.
        let _ = listener.accept().unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello = [0; 92];
        stream.read_exact(&mut hello).unwrap();
    });
    let error = failed(server);
    assert!(matches!(error, CatchupError::HungUp { .. } | CatchupError::Connection { .. }), "{error}");
    hanging_up.join().unwrap();
    let error = failed(server);
    assert!(matches!(error, CatchupError::Connection { .. }), "nobody listens there now: {error}");
}

#[test]
fn a_server_that_stops_says_so_and_another_goes_on() {
    let leader = Leader::new(2, false);
    let server = leader.serve(CatchupServerConfig { bytes_per_s: Some(1), ..leader.config() });
    let (dir, mut got) = (tempfile::tempdir().unwrap(), Got::default());
    let mut client = client(FetchConfig { message_bytes_max: 4096, ..fetch_config(Seq(1)) }, dir.path());
    client.connect(server.local_addr());
    let until = Instant::now() + PATIENCE;
    while got.frames.is_empty() {
        assert!(Instant::now() < until);
        client
            .next(WAIT, |item| {
                if let CatchupItem::Frame { bytes, .. } = item {
                    got.frames.push(bytes.to_vec());
                }
                true
            })
            .unwrap();
    }
    drop(server);
    let other = leader.serve(leader.config());
    if let Err(error) = got.until_end(&mut client, dir.path()) {
        let is_passing = error.fault().is_none_or(|fault| matches!(fault, Fault::Refused(_)));
        assert!(is_passing, "{error}");
        client.connect(other.local_addr());
        got.until_end(&mut client, dir.path()).unwrap();
    }
    assert_eq!(got.frames, leader.frames);
}
