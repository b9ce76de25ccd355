//! The blocking client against an appliance over loopback, as its users meet it.

mod support;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use support::{Answer, Command, Mailbox, config, copy_log, wait_durable};
use ticktape::client::blocking::{BlockingClient, Notice, Options};
use ticktape::client::{ClientError, EpochFile, StateSource, Waited, snapshot};
use ticktape::config::{ApplianceConfig, FeedConfig, SnapshotConfig};
use ticktape::link::{CloseReason, HistoryGap, RefuseReason, SendError, SenderConfig, Tier};
use ticktape::pipeline::Appliance;
use ticktape::{Seq, Service};

/// Reached only where something does not happen that must.
const PATIENCE: Duration = Duration::from_secs(20);
const AT_ONCE: Duration = Duration::ZERO;

fn start(config: &ApplianceConfig) -> Appliance {
    Appliance::start::<Mailbox>(config, &()).unwrap()
}

fn stop(appliance: Appliance) {
    let report = appliance.stop();
    assert_eq!((&report.fault, &report.errors[..]), (&None, &[][..]));
}

fn connect(appliance: &Appliance, options: &Options) -> BlockingClient {
    BlockingClient::connect(appliance.local_addr(), options, PATIENCE).unwrap()
}

fn event_seqs(client: &mut BlockingClient, count: usize) -> Vec<u64> {
    let mut seqs = Vec::new();
    while seqs.len() < count {
        match client.recv(PATIENCE).unwrap() {
            Some(Notice::Output(event)) => seqs.push(event.event_seq),
            other => panic!("{other:?} after {} of {count} events", seqs.len()),
        }
    }
    seqs
}

#[test]
fn a_request_is_answered_and_what_else_comes_keeps_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = start(&config(dir.path()));
    let mut client = connect(&appliance, &Options::default());
    assert_eq!((client.is_open(), client.tier()), (true, Some(Tier::Local)));
    client.submit(&Command::Echo { times: 3, bytes: 5 }, PATIENCE).unwrap();
    let total: Answer = client.submit_and_wait(&Command::Add(5), PATIENCE).unwrap();
    assert!(total == Answer::Total(5));
    assert_eq!(client.resume_next(), 1, "the echoes were not received yet");
    assert_eq!(event_seqs(&mut client, 3), [1, 2, 3]);
    client.flush(PATIENCE).unwrap();
    assert_eq!((client.recv(AT_ONCE).unwrap(), client.resume_next()), (None, 5), "the answer does not come again");
    let seq = client.submit(&Command::Add(1), PATIENCE).unwrap();
    client.wait_committed(seq, PATIENCE).unwrap();
    assert_eq!(client.wait_for_answer(seq, PATIENCE).unwrap().client_seq, seq);
    let wrong = client.submit_and_wait::<u8>(&Command::Add(1), PATIENCE);
    assert!(matches!(wrong, Err(ClientError::Decode(_))), "{wrong:?}");
    client.close();
    stop(appliance);
}

#[test]
fn it_reconnects_and_resumes_when_the_appliance_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let appliance = start(&config);
    let mut client = connect(&appliance, &Options::default());
    let total: Answer = client.submit_and_wait(&Command::Add(1), PATIENCE).unwrap();
    assert!(total == Answer::Total(1));
    stop(appliance);
    let away = client.submit_and_wait::<Answer>(&Command::Add(2), Duration::from_millis(30));
    assert!(matches!(away, Err(ClientError::Timeout(Waited::Answer))), "{away:?}");

    let appliance = start(&config);
    client.redirect(appliance.local_addr());
    let total: Answer = client.submit_and_wait(&Command::Add(4), PATIENCE).unwrap();
    assert!(total == Answer::Total(7), "what was taken before was sent again, once");
    assert_eq!(event_seqs(&mut client, 1), [2]);
    assert!(client.reconnects() >= 1);
    stop(appliance);
}

#[test]
fn a_restarted_client_takes_a_higher_epoch_and_gets_what_it_missed() {
    let (dir, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let appliance = start(&config(dir.path()));
    let path = own.path().join("session-3.epoch");
    let mut resume_next = 1;
    for start in 1..=3u64 {
        let epoch = EpochFile::begin(&path, 3).unwrap();
        let options = Options { session: 3, client_epoch: epoch.epoch(), resume_next, ..Options::default() };
        let mut client = connect(&appliance, &options);
        if start > 1 {
            assert_eq!(event_seqs(&mut client, 1), [2 * (start - 1)], "made, and not received before the end");
        }
        client.submit(&Command::Add(1), PATIENCE).unwrap();
        client.submit(&Command::Add(1), PATIENCE).unwrap();
        client.flush(PATIENCE).unwrap();
        assert_eq!(event_seqs(&mut client, 1), [2 * start - 1]);
        resume_next = client.resume_next();
        // Without a word: it crashed.
    }
    let stale = Options { session: 3, client_epoch: 1, ..Options::default() };
    let error = BlockingClient::connect(appliance.local_addr(), &stale, PATIENCE).err().unwrap();
    assert_eq!(error.known_epoch(), Some(3), "{error}");
    let above = EpochFile::begin_above(&path, 3, error.known_epoch().unwrap()).unwrap();
    assert!(above.epoch() > 3);
    stop(appliance);
}

#[test]
fn what_its_owner_never_took_is_not_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = start(&config(dir.path()));
    let mut client = connect(&appliance, &Options::default());
    client.submit(&Command::Echo { times: 100, bytes: 5 }, PATIENCE).unwrap();
    // More have come than are acknowledged without delay.
    let total: Answer = client.submit_and_wait(&Command::Add(5), PATIENCE).unwrap();
    assert!(total == Answer::Total(5));
    drop(client);
    let mut client = connect(&appliance, &Options { client_epoch: 2, ..Options::default() });
    assert_eq!(event_seqs(&mut client, 101), (1..=101).collect::<Vec<u64>>());
    client.close();
    stop(appliance);
}

#[test]
fn errors_say_what_would_be_right() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = start(&config(dir.path()));
    let server = appliance.local_addr();
    let other = Options { schema: 99, ..Options::default() };
    let error = BlockingClient::connect(server, &other, PATIENCE).err().unwrap();
    let reason = RefuseReason::SchemaMismatch;
    assert!(matches!(error, ClientError::Closed(CloseReason::Refused { reason: found, detail: 1 }) if found == reason));
    assert!(error.to_string().contains("schema version 1") && !error.is_transient());

    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let Ok(SocketAddr::V4(silent)) = nobody.local_addr() else { panic!("an IPv4 address") };
    let error = BlockingClient::connect(silent, &Options::default(), Duration::from_millis(20)).err().unwrap();
    assert!(matches!(error, ClientError::Timeout(Waited::Handshake)) && error.is_transient());

    let mut client = connect(&appliance, &Options { events_max: 4, ..Options::default() });
    let error = client.send(&[0; 70_000], PATIENCE).unwrap_err();
    assert!(matches!(error, ClientError::TooLong { bytes: 70_000, .. }), "{error}");
    let error = client.submit_and_wait::<Answer>(&Command::Echo { times: 0, bytes: 0 }, Duration::from_millis(20));
    assert!(matches!(error, Err(ClientError::Timeout(Waited::Answer))), "it is never answered");
    client.submit(&Command::Echo { times: 9, bytes: 400 }, PATIENCE).unwrap();
    let seq = client.submit(&Command::Add(1), PATIENCE).unwrap();
    let error = client.wait_for_answer(seq, PATIENCE).unwrap_err();
    assert!(matches!(error, ClientError::Unread { events: 4.. }) && error.is_transient(), "{error}");
    event_seqs(&mut client, 9);
    assert_eq!(client.wait_for_answer(seq, PATIENCE).unwrap().event_seq, 10);
    stop(appliance);
}

#[test]
fn a_full_buffer_makes_a_send_wait_and_unsent_inputs_can_be_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let appliance = start(&config);
    let sender = SenderConfig { messages_max: 8, in_flight_messages_max: 8, ..SenderConfig::default() };
    let mut client = connect(&appliance, &Options { sender, ..Options::default() });
    for _ in 0..200 {
        client.submit(&Command::Add(1), PATIENCE).unwrap();
    }
    client.flush(PATIENCE).unwrap();
    assert_eq!(event_seqs(&mut client, 200), (1..=200).collect::<Vec<_>>());
    stop(appliance);
    while client.is_open() {
        client.recv(Duration::from_millis(1)).unwrap();
    }
    for _ in 0..8 {
        client.submit(&Command::Add(1000), PATIENCE).unwrap();
    }
    let full = client.submit(&Command::Add(1000), Duration::from_millis(10));
    assert!(matches!(full, Err(ClientError::Timeout(Waited::Room))), "{full:?}");
    assert_eq!(client.withdraw_unsent(), 8);
    let appliance = start(&config);
    client.redirect(appliance.local_addr());
    let total: Answer = client.submit_and_wait(&Command::Add(1), PATIENCE).unwrap();
    assert!(total == Answer::Total(201), "orders of before are not carried out late");
    stop(appliance);
}

#[test]
fn a_client_whose_history_is_gone_is_told_from_where_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.window = 64;
    config.session_bytes = 32 << 10;
    let appliance = start(&config);
    let mut client = connect(&appliance, &Options::default());
    for _ in 0..400 {
        client.submit_and_wait::<Answer>(&Command::Echo { times: 1, bytes: 1000 }, PATIENCE).unwrap();
    }
    client.close();
    // Someone who says that he has seen nothing.
    let late = Options { client_epoch: 2, ..Options::default() };
    let mut late = connect(&appliance, &late);
    let Some(Notice::Resync { gap: HistoryGap::TooOld, from: 1, next }) = late.recv(PATIENCE).unwrap() else {
        panic!("events of before the buffer are gone")
    };
    assert!(next > 1 && next <= 401);
    assert_eq!(event_seqs(&mut late, (401 - next) as usize), (next..401).collect::<Vec<_>>());
    stop(appliance);
}

/// Little of each session's events is kept, and whoever lacks some finds the state on a port.
fn with_little_kept(dir: &std::path::Path) -> ApplianceConfig {
    let mut config = config(dir);
    (config.window, config.session_bytes) = (64, 32 << 10);
    let any_port = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    let group = SocketAddrV4::new(Ipv4Addr::new(239, 255, 84, 86), 27_311);
    config.feed = Some(FeedConfig { repair: Some(any_port), ..FeedConfig::on_loopback(group) });
    config
}

#[test]
fn a_saved_cursor_of_a_reign_that_was_lost_is_refused_and_never_taken_for_another() {
    let dir = tempfile::tempdir().unwrap();
    let (config, crashed) = (ApplianceConfig { tier: Tier::Memory, ..config(dir.path()) }, dir.path().join("crashed"));
    let echo = |client: &mut BlockingClient, times| {
        for _ in 0..times {
            client.submit_and_wait::<Answer>(&Command::Echo { times: 1, bytes: 1 }, PATIENCE).unwrap();
        }
    };
    let appliance = start(&config);
    let mut client = connect(&appliance, &Options::default());
    echo(&mut client, 1);
    // What a crash would leave: the log as it is now, without what follows.
    wait_durable(&appliance);
    copy_log(dir.path(), &crashed);
    echo(&mut client, 5);
    let (saved, reign) = (client.resume_next(), client.resume_reign());
    assert_eq!((saved, reign), (7, 1));
    drop(client);
    stop(appliance);

    // The next reign tells how far to go back; without a name it can't be asked.
    let after = ApplianceConfig { dir: crashed.clone(), ..config.clone() };
    let appliance = start(&after);
    let with =
        |client_epoch, resume_reign| Options { client_epoch, resume_next: saved, resume_reign, ..Options::default() };
    let connected =
        |appliance: &Appliance, options: &Options| BlockingClient::connect(appliance.local_addr(), options, PATIENCE);
    let refused = connected(&appliance, &with(2, 0)).map(drop).unwrap_err();
    assert!(refused.to_string().contains("names no reign") && refused.to_string().contains("in reign 2"), "{refused}");
    let mut other = connected(&appliance, &with(3, reign)).unwrap();
    echo(&mut other, 8);
    let Some(Notice::Resync { gap: HistoryGap::Rewound, from: 7, next: 2 }) = other.recv(PATIENCE).unwrap() else {
        panic!("five events are lost")
    };
    drop(other);
    stop(appliance);

    // A later one knows as much: its events are past the cursor, and are others.
    let appliance = start(&after);
    let mut late = connected(&appliance, &with(4, reign)).unwrap();
    let Some(Notice::Resync { gap: HistoryGap::Rewound, from: 7, next: 2 }) = late.recv(PATIENCE).unwrap() else {
        panic!("the reign between is no reason to believe it")
    };
    assert_eq!((late.resume_next(), late.resume_reign()), (2, 3));
    drop(late);
    stop(appliance);
    // What is durable before it is acknowledged is not lost.
    let appliance = start(&ApplianceConfig { tier: Tier::Local, ..after });
    connected(&appliance, &with(5, 0)).unwrap();
    stop(appliance);
}

#[test]
fn a_client_whose_events_are_gone_gets_the_state_they_led_to_and_the_rest_without_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = with_little_kept(dir.path());
    config.snapshots = Some(SnapshotConfig { every_frames: 100, ..SnapshotConfig::default() });
    let appliance = start(&config);
    let mut first = connect(&appliance, &Options::default());
    for _ in 0..300 {
        first.submit_and_wait::<Answer>(&Command::Add(1), PATIENCE).unwrap();
        first.submit_and_wait::<Answer>(&Command::Echo { times: 1, bytes: 1000 }, PATIENCE).unwrap();
    }
    // Without a word: it crashed, and has kept nothing.
    drop(first);
    let server = appliance.repair_addr().unwrap();
    // One that wants the newest snapshot, and one that computes all of it anew.
    assert!(appliance.wait_covered(Seq(1), PATIENCE), "no snapshot was taken: {:?}", appliance.fault());
    let by_snapshot = StateSource { replay_max: 0, ..StateSource::new(server) };
    let by_frames = StateSource { replay_max: u64::MAX, ..StateSource::new(server) };
    let (one, other) = (
        snapshot::<Mailbox>(&by_snapshot, (), PATIENCE).unwrap(),
        snapshot::<Mailbox>(&by_frames, (), PATIENCE).unwrap(),
    );
    assert_eq!((one.digest(), one.service().snapshot().0, one.resume_next(1)), (other.digest(), 300, 601));

    let mut late = connect(&appliance, &Options { client_epoch: 2, ..Options::default() });
    let Some(Notice::Resync { gap: HistoryGap::TooOld, from: 1, next: 2.. }) = late.recv(PATIENCE).unwrap() else {
        panic!("most events are gone")
    };
    let address = appliance.local_addr();
    let other = std::thread::spawn(move || {
        let mut other =
            BlockingClient::connect(address, &Options { session: 2, ..Options::default() }, PATIENCE).unwrap();
        for word in 0..600 {
            other.submit(&Command::Tell { session: 1, word: word.to_string() }, PATIENCE).unwrap();
            if word % 20 == 0 {
                other.flush(PATIENCE).unwrap();
            }
        }
        other.flush(PATIENCE).unwrap();
    });
    let mut state = late.resync::<Mailbox>(&by_snapshot, (), PATIENCE).unwrap();
    assert_eq!(state.service().snapshot().0, 300);
    let mut due = state.resume_next(1);
    assert!((601..=1201).contains(&due) && late.resume_next() == due, "{due}");
    while due < 1201 {
        match late.recv(PATIENCE).unwrap() {
            Some(Notice::Output(event)) => {
                assert_eq!(event.event_seq, due, "each one after what the state at {} reflects", state.seq());
                assert!(event.decode::<Answer>().unwrap() == Answer::Word((due - 601).to_string()));
                due += 1;
            }
            // It was too slow for the little that is kept: the same once more.
            Some(Notice::Resync { next, .. }) => {
                state = late.resync::<Mailbox>(&by_frames, (), PATIENCE).unwrap();
                assert!(state.resume_next(1) >= next);
                due = state.resume_next(1);
            }
            None => panic!("event {due} is missing"),
        }
    }
    other.join().unwrap();
    let total: Answer = late.submit_and_wait(&Command::Add(1), PATIENCE).unwrap();
    assert!(total == Answer::Total(301));
    stop(appliance);
}

#[test]
fn a_state_that_can_not_be_had_is_named_and_the_client_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = start(&with_little_kept(dir.path()));
    let mut client = connect(&appliance, &Options::default());
    let server = appliance.repair_addr().unwrap();
    let mut refused = |source: &StateSource| {
        let error = client.resync::<Mailbox>(source, (), Duration::from_millis(300)).err().unwrap();
        assert!(matches!(error, ClientError::State(_)), "{error}");
        error.to_string()
    };
    let other = StateSource { stream: "ELSE".to_string(), ..StateSource::new(server) };
    assert!(refused(&other).contains("stream"));
    let none = StateSource { stream: "no".to_string(), ..StateSource::new(server) };
    assert!(refused(&none).contains("\"no\" is not four characters"));
    let nowhere = StateSource { dir: dir.path().join("nowhere"), ..StateSource::new(server) };
    assert!(refused(&nowhere).contains("nowhere: "));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nobody = StateSource::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
    assert!(refused(&nobody).contains(&format!("127.0.0.1:{port}")));
    let total: Answer = client.submit_and_wait(&Command::Add(2), PATIENCE).unwrap();
    assert!(total == Answer::Total(2));
    stop(appliance);
}

/// Carries datagrams between a client and the appliance, and loses, repeats and overtakes some: an address to connect to.
struct BadNetwork {
    address: SocketAddrV4,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl BadNetwork {
    fn before(server: SocketAddrV4) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let Ok(SocketAddr::V4(address)) = socket.local_addr() else { panic!("an IPv4 address") };
        socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut client, mut buffer, mut dice, mut lost) = (None, [0; 65_536], 0x5eed_u64, 0);
            let mut late: Option<(Vec<u8>, SocketAddr)> = None;
            while !stopped.load(Ordering::Relaxed) {
                let Ok((bytes, from)) = socket.recv_from(&mut buffer) else { continue };
                let to = if from == SocketAddr::V4(server) {
                    client
                } else {
                    client = Some(from);
                    Some(SocketAddr::V4(server))
                };
                let Some(to) = to else { continue };
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                match dice >> 33 & 15 {
                    0 => lost += 1,
                    1 => late = Some((buffer[..bytes].to_vec(), to)),
                    2 => (0..2).for_each(|_| drop(socket.send_to(&buffer[..bytes], to))),
                    _ => drop(socket.send_to(&buffer[..bytes], to)),
                }
                if dice >> 40 & 3 == 0
                    && let Some((bytes, to)) = late.take()
                {
                    drop(socket.send_to(&bytes, to));
                }
            }
            lost
        });
        BadNetwork { address, stop, thread }
    }

    fn lost(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[test]
fn over_a_bad_network_every_input_is_taken_once_and_every_answer_comes_once() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = start(&config(dir.path()));
    let network = BadNetwork::before(appliance.local_addr());
    let mut client = BlockingClient::connect(network.address, &Options::default(), PATIENCE).unwrap();
    const INPUTS: i64 = 5000;
    let mut totals = Vec::new();
    let mut take = |notice: Option<Notice>| match notice {
        Some(Notice::Output(event)) => totals.push(event.decode::<Answer>().unwrap()),
        Some(Notice::Resync { .. }) => panic!("nothing is too old here"),
        None => {}
    };
    for _ in 0..INPUTS {
        client.submit(&Command::Add(1), PATIENCE).unwrap();
        take(client.recv(AT_ONCE).unwrap());
    }
    client.flush(PATIENCE).unwrap();
    while client.resume_next() <= INPUTS as u64 {
        take(client.recv(PATIENCE).unwrap());
    }
    assert!(totals == (1..=INPUTS).map(Answer::Total).collect::<Vec<_>>());
    let link = client.link();
    assert!(link.nacks_heard() > 0 && link.nacks_sent() > 0, "losses both ways were asked for");
    client.close();
    assert!(network.lost() > 100);
    stop(appliance);
}

#[test]
fn the_end_of_a_link_is_an_error_that_lasts() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = start(&config(dir.path()));
    let mut first = connect(&appliance, &Options::default());
    let second = connect(&appliance, &Options { client_epoch: 2, ..Options::default() });
    // Only one incarnation of a session speaks: the earlier one is told as soon as it says something.
    let error = first.submit_and_wait::<Answer>(&Command::Add(1), PATIENCE).unwrap_err();
    assert_eq!(error.known_epoch(), Some(2), "{error}");
    assert_eq!(first.recv(AT_ONCE).unwrap_err().known_epoch(), Some(2));
    assert!(matches!(first.send(b"x", AT_ONCE), Err(ClientError::Closed(_))));
    assert_eq!(SendError::Closed.to_string(), "link is closed");
    second.close();
    stop(appliance);
}
