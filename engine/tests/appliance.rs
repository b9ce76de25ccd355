//! The appliance over loopback, as clients and operators meet it.

mod support;

use std::net::{SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use support::{Answer, Command, Mailbox, TestClient, config};
use ticktape::config::ApplianceConfig;
use ticktape::link::{ClientConfig, HistoryGap, Tier};
use ticktape::machine::{Machine, StepLimits};
use ticktape::pipeline::{Appliance, IdleStrategy, Report, StageName};
use ticktape::tail::{Tail, TailError};
use ticktape::{Kind, Seq};
use ticktape_shm::Horizon;
use ticktape_tuning::{clock, pin};

fn start(config: &ApplianceConfig) -> Appliance {
    Appliance::start::<Mailbox>(config, &()).unwrap()
}

fn refused(config: &ApplianceConfig) -> String {
    match Appliance::start::<Mailbox>(config, &()) {
        Ok(_) => panic!("it started"),
        Err(error) => error.to_string(),
    }
}

fn stop(appliance: Appliance) -> Report {
    let report = appliance.stop();
    assert_eq!((&report.fault, &report.errors[..]), (&None, &[][..]));
    report
}

/// The digest of the state that the journal alone gives.
fn replayed_digest(config: &ApplianceConfig) -> String {
    let mut machine = Machine::<Mailbox>::genesis(&(), StepLimits::default());
    ticktape::replay(&config.dir, &mut machine).unwrap();
    machine.digest()
}

#[test]
fn a_command_is_answered_and_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let appliance = start(&config);
    let mut client = TestClient::new(appliance.local_addr(), 1);
    assert_eq!(client.ask(&Command::Add(5)), &Answer::Total(5));
    client.until_acked();
    let report = stop(appliance);
    assert_eq!(report.fact(StageName::Executor, "digest"), Some(replayed_digest(&config).as_str()));

    let appliance = start(&config);
    assert_eq!(appliance.epoch(), 2);
    client.redirect(appliance.local_addr());
    assert_eq!(client.ask(&Command::Add(37)), &Answer::Total(42));
    assert_eq!(client.events.iter().map(|event| event.0).collect::<Vec<_>>(), [1, 2], "events are numbered on");
    stop(appliance);
}

#[test]
fn every_plan_from_one_thread_to_five_works_at_both_tiers() {
    let plans = [
        "sequencer,journaler,executor,publisher,egress",
        "egress,publisher|sequencer,executor,journaler",
        "sequencer|journaler|executor|publisher|egress",
    ];
    for plan in plans {
        for tier in [Tier::Memory, Tier::Local] {
            let dir = tempfile::tempdir().unwrap();
            let mut config = config(dir.path());
            config.cores = Some(plan.parse().unwrap());
            config.idle = IdleStrategy::Backoff;
            config.tier = tier;
            let appliance = start(&config);
            let mut client = TestClient::new(appliance.local_addr(), 1);
            (1..=500).for_each(|_| {
                client.send(&Command::Add(1));
            });
            client.until(&format!("all answers ({plan}, {tier:?})"), |client| client.events.len() == 500);
            assert_eq!(client.events.last().unwrap().2, Answer::Total(500));
            let report = stop(appliance);
            assert_eq!(report.fact(StageName::Executor, "digest"), Some(replayed_digest(&config).as_str()));
        }
    }
}

/// A pinned thread sees but its own core; the disk's workers must not end up there for that, beside a stage that spins.
#[test]
fn whoever_starts_it_the_disks_workers_keep_off_the_core_that_spins() {
    let usable = ticktape_tuning::pin::usable_cores();
    let &[here, .., there] = &usable[..] else {
        eprintln!("skipped: one usable core leaves none for the disk's workers");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.cores = Some(format!("sequencer,executor,egress,journaler,publisher@{here}:spin").parse().unwrap());
    let journal = std::thread::spawn(move || {
        ticktape_tuning::pin::pin_current_thread(here).unwrap();
        let appliance = start(&config);
        let journal = appliance.choices().journal.clone();
        stop(appliance);
        journal
    });
    let journal = journal.join().unwrap();
    if !journal.starts_with("io_uring") {
        eprintln!("skipped: no workers without io_uring ({journal})");
        return;
    }
    let workers = journal.split_once("kernel workers on cores [").and_then(|(_, list)| list.split_once(']'));
    let workers: Vec<&str> = workers.unwrap_or_else(|| panic!("{journal}")).0.split(", ").collect();
    assert!(
        workers.contains(&there.to_string().as_str()) && !workers.contains(&here.to_string().as_str()),
        "{journal}"
    );
}

#[test]
fn what_the_machine_takes_from_a_spinning_thread_is_in_its_report_and_of_one_that_sleeps_nothing_is_said() {
    let here = pin::usable_cores()[0];
    let report_of = |idle: &str| {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        config.cores = Some(format!("sequencer,executor,egress,journaler,publisher@{here}:{idle}").parse().unwrap());
        let appliance = start(&config);
        // Another thread that wants the whole core.
        let taker = std::thread::spawn(move || {
            pin::pin_current_thread(here).unwrap();
            while clock::thread_ns() < 50_000_000 {}
        });
        taker.join().unwrap();
        appliance.part().next();
        stop(appliance)
    };
    let spun = report_of("spin");
    for (stage, report) in spun.stages.iter().filter(|(stage, _)| *stage != StageName::Shadow) {
        let Some([taken, _]) = report.taken else { panic!("{stage:?} spins: {report:?}") };
        assert!(
            taken.total_ns > 0 && taken.longest_ns > 0 && taken.behind_ns >= taken.longest_ns,
            "{stage:?}: {taken:?}"
        );
    }
    let slept = report_of("backoff");
    assert!(slept.stages.iter().all(|(_, report)| report.taken.is_none()), "{slept:?}");
}

#[test]
fn sessions_hear_what_is_sent_to_them_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = start(&config(dir.path()));
    let (mut ada, mut bob) = (TestClient::new(appliance.local_addr(), 1), TestClient::new(appliance.local_addr(), 2));
    ada.connect();
    bob.connect();
    ada.send(&Command::Tell { session: 2, word: "hello".to_string() });
    ada.until_acked();
    bob.until("the word", |bob| !bob.events.is_empty());
    assert_eq!(bob.events, [(1, 0, Answer::Word("hello".to_string()))]);
    assert!(ada.events.is_empty());
    stop(appliance);
}

#[test]
fn a_word_for_a_session_that_is_away_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let appliance = start(&config);
    let mut ada = TestClient::new(appliance.local_addr(), 1);
    ada.send(&Command::Tell { session: 2, word: "later".to_string() });
    ada.until_acked();
    stop(appliance);
    let appliance = start(&config);
    let mut bob = TestClient::new(appliance.local_addr(), 2);
    bob.until("the word", |bob| !bob.events.is_empty());
    assert_eq!(bob.events, [(1, 0, Answer::Word("later".to_string()))]);
    stop(appliance);
}

#[test]
fn a_timer_rings_though_nothing_else_flows() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let appliance = start(&config);
    let mut client = TestClient::new(appliance.local_addr(), 9);
    client.send(&Command::Alarm { after_ns: 2_000_000 });
    client.until("the alarm", |client| !client.events.is_empty());
    assert_eq!(client.events, [(1, 0, Answer::Rang(9))]);
    let report = stop(appliance);
    assert!(report.counter(StageName::Sequencer, "ticks") >= 1);
    assert_eq!(report.fact(StageName::Executor, "digest"), Some(replayed_digest(&config).as_str()));
}

#[test]
fn a_client_that_comes_back_with_its_cursor_gets_what_it_missed() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = start(&config(dir.path()));
    let server = appliance.local_addr();
    let mut client = TestClient::new(server, 1);
    (0..10).for_each(|_| {
        client.ask(&Command::Add(1));
    });
    client.bye();
    drop(client);
    let mut back = TestClient::with(
        server,
        &ClientConfig { session: 1, client_epoch: 2, resume_next: 11, ..ClientConfig::default() },
    );
    assert_eq!(back.ask(&Command::Add(1)), &Answer::Total(11));
    assert_eq!(back.events.first().unwrap().0, 11, "nothing it has seen comes again");
    assert!(back.resyncs.is_empty());
    stop(appliance);
}

#[test]
fn an_earlier_incarnation_of_a_client_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = start(&config(dir.path()));
    let server = appliance.local_addr();
    let with_epoch =
        |client_epoch| TestClient::with(server, &ClientConfig { session: 1, client_epoch, ..ClientConfig::default() });
    let mut newer = with_epoch(5);
    newer.ask(&Command::Add(1));
    let mut older = with_epoch(4);
    older.connect();
    assert!(older.closed.unwrap().contains("client epoch 5"));
    assert_eq!(newer.ask(&Command::Add(1)), &Answer::Total(2));
    stop(appliance);
}

#[test]
fn a_client_of_another_schema_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = start(&config(dir.path()));
    let other = ClientConfig { schema: 99, ..ClientConfig::default() };
    let mut client = TestClient::with(appliance.local_addr(), &other);
    client.connect();
    assert!(client.closed.unwrap().contains("schema version 1"));
    stop(appliance);
}

#[test]
fn a_session_without_commands_keeps_the_number_it_begins_at_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let appliance = start(&config);
    let from_nine = ClientConfig { first_seq: 9, ..ClientConfig::default() };
    let mut client = TestClient::with(appliance.local_addr(), &from_nine);
    client.connect();
    stop(appliance);
    let appliance = start(&config);
    client.redirect(appliance.local_addr());
    assert_eq!(client.ask(&Command::Add(1)), &Answer::Total(1));
    assert_eq!((client.events[0].1, &client.closed), (9, &None));
    stop(appliance);
}

#[test]
fn an_earlier_incarnation_cannot_speak_for_its_successor_even_from_the_same_address() {
    use ticktape::link::{ByeReason, Hello, Identity, Packet};

    let dir = tempfile::tempdir().unwrap();
    let appliance = start(&config(dir.path()));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(appliance.local_addr()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let identity = |client_epoch| Identity { session: 1, client_epoch, appliance_epoch: appliance.epoch() };
    let say = |client_epoch, packet: Packet<'_>| {
        let mut bytes = [0; 128];
        let len = packet.encode(&identity(client_epoch), &mut bytes).unwrap();
        socket.send(&bytes[..len]).unwrap();
    };
    let hear = |wanted: &dyn Fn(&Packet<'_>) -> bool| {
        let mut bytes = [0; 2048];
        loop {
            let len = match socket.recv(&mut bytes) {
                Ok(len) => len,
                // A process that was stopped meanwhile, by whoever shares the machine.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => panic!("{error}"),
            };
            if wanted(&Packet::decode(&bytes[..len]).unwrap().1) {
                break;
            }
        }
    };
    let hello = Hello {
        nonce: 1,
        resume_next: 1,
        first_seq: 1,
        window: 64,
        datagram_bytes_max: 1472,
        schema: 1,
        is_resumed: false,
    };
    for client_epoch in [1, 2] {
        say(client_epoch, Packet::Hello(hello));
        hear(&|packet| matches!(packet, Packet::Welcome(_)));
    }
    say(1, Packet::Bye(ByeReason::Done));
    hear(&|packet| matches!(packet, Packet::Resync { .. }));
    // The successor is still connected: a heartbeat of its own is no reason to send it to a new handshake.
    say(2, Packet::Heartbeat { next_seq: 1 });
    hear(&|packet| matches!(packet, Packet::Ack(_)));
    let report = stop(appliance);
    assert_eq!(report.counter(StageName::Sequencer, "stale_epoch"), 1);
    assert_eq!(report.counter(StageName::Sequencer, "foreign_session"), 0);
}

#[test]
fn a_command_that_no_frame_can_hold_ends_the_link_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.feed = Some(ticktape::config::FeedConfig::on_loopback("239.255.84.86:19777".parse().unwrap()));
    let appliance = start(&config);
    let mut client = TestClient::new(appliance.local_addr(), 1);
    client.send_bytes(&[0; 1430]);
    client.until("the refusal", |client| client.closed.is_some());
    assert!(client.closed.unwrap().contains("larger than a frame"));
    let report = stop(appliance);
    assert!(report.counter(StageName::Sequencer, "commands_too_long") > 0);
}

#[test]
fn an_output_that_no_datagram_can_hold_stops_the_appliance_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = start(&config(dir.path()));
    let mut client = TestClient::new(appliance.local_addr(), 1);
    client.send(&Command::Echo { times: 1, bytes: 2000 });
    client.until("the fault", |_| appliance.fault().is_some());
    assert!(appliance.stop().fault.unwrap().contains("the largest 2006"));
    assert!(client.events.is_empty());
}

#[test]
fn a_client_that_does_not_listen_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    (config.session_bytes, config.window) = (64 << 10, 1024);
    let appliance = start(&config);
    let mut deaf = TestClient::new(appliance.local_addr(), 1);
    deaf.connect();
    let mut ada = TestClient::new(appliance.local_addr(), 2);
    for _ in 0..400 {
        ada.send(&Command::Tell { session: 1, word: "x".repeat(1000) });
    }
    ada.until_acked();
    assert_eq!(ada.ask(&Command::Add(1)), &Answer::Total(1));
    // It was dropped meanwhile, and told so; it comes back to a named gap and what is kept.
    deaf.until("the gap", |deaf| !deaf.resyncs.is_empty() && deaf.resume_next() == 401);
    assert_eq!(deaf.gaps, [HistoryGap::Overflow]);
    let report = stop(appliance);
    assert_eq!(report.counter(StageName::Egress, "slow_sessions"), 1);
}

#[test]
fn many_outputs_of_one_command_arrive_whole() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = start(&config(dir.path()));
    let mut client = TestClient::new(appliance.local_addr(), 1);
    client.send(&Command::Echo { times: 10_000, bytes: 40 });
    client.until("all of them", |client| client.events.len() == 10_000);
    stop(appliance);
}

#[test]
fn a_command_that_is_no_input_is_acknowledged_skipped_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = start(&config(dir.path()));
    let mut client = TestClient::new(appliance.local_addr(), 1);
    client.send_bytes(b"\xff\xff garbage");
    assert_eq!(client.ask(&Command::Add(1)), &Answer::Total(1));
    let report = stop(appliance);
    assert_eq!(report.counter(StageName::Executor, "malformed_commands"), 1);
}

#[test]
fn hostile_datagrams_are_dropped_by_reason_and_disturb_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = start(&config(dir.path()));
    let server = appliance.local_addr();
    let mut client = TestClient::new(server, 1);
    client.ask(&Command::Add(1));
    for datagram in hostile_datagrams() {
        send_from_elsewhere(server, &datagram);
    }
    assert_eq!(client.ask(&Command::Add(1)), &Answer::Total(2));
    let report = stop(appliance);
    for reason in ["short", "bad_magic", "bad_crc", "bad_version", "lying_length", "stale_epoch", "foreign_session"] {
        assert!(report.counter(StageName::Sequencer, reason) > 0, "{reason} was not counted");
    }
    assert!(report.counter(StageName::Sequencer, "dropped_truncated") > 0, "the oversized one was not counted");
}

fn send_from_elsewhere(server: SocketAddrV4, datagram: &[u8]) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(datagram, server).unwrap();
}

/// One of every kind of bad datagram, and some random bytes.
fn hostile_datagrams() -> Vec<Vec<u8>> {
    use ticktape::link::layout::{data, header};
    use ticktape::link::{Ack, Identity, Packet};

    let sealed = |change: &dyn Fn(&mut Vec<u8>)| {
        let identity = Identity { session: 1, client_epoch: 1, appliance_epoch: 1 };
        let ack = Packet::Ack(Ack { acked_next: u32::MAX, received_next: u32::MAX, window: u32::MAX });
        let mut bytes = vec![0; 128];
        let len = ack.encode(&identity, &mut bytes).unwrap();
        bytes.truncate(len);
        change(&mut bytes);
        let crc = ticktape_core::crc32c(&bytes[header::CRC_FROM..]);
        bytes[header::CRC..header::CRC + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    };
    let mut all = vec![Vec::new(), b"TT".to_vec(), vec![0; 100], vec![0xff; 20_000]];
    // Sound, but from an address and of a session that never shook hands.
    all.push(sealed(&|_| {}));
    all.push(sealed(&|bytes| bytes[header::APPLIANCE_EPOCH] = 77));
    all.push(sealed(&|bytes| bytes[header::VERSION] = 200));
    all.push(sealed(&|bytes| {
        bytes[header::TYPE] = 4;
        bytes.truncate(header::BYTES);
        bytes.resize(data::MESSAGES + 4, 0xee);
        bytes[data::RESERVED..data::MESSAGES].fill(0);
    }));
    let mut broken = sealed(&|_| {});
    *broken.last_mut().unwrap() ^= 1;
    all.push(broken);
    let mut state = 42_u64;
    for len in 0..300 {
        let byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        all.push(std::iter::repeat_with(byte).take(len).collect());
    }
    all
}

#[test]
fn a_service_that_panics_stops_the_appliance_by_name_and_so_does_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    // One thread, the journaler before the executor: the fatal command is on its way to the disk when the service meets it.
    config.cores = Some("sequencer,journaler,executor,egress,publisher".parse().unwrap());
    let appliance = start(&config);
    let mut client = TestClient::new(appliance.local_addr(), 1);
    client.ask(&Command::Add(1));
    client.send(&Command::Crash);
    client.until("the fault", |_| appliance.fault().is_some());
    let fault = appliance.stop().fault.unwrap();
    assert!(fault.contains("seq 4") && fault.contains("the service has a bug"), "{fault}");
    assert_eq!(client.events.len(), 1, "nothing of that step was released");
    for _ in 0..2 {
        let error = refused(&config);
        assert!(error.contains("seq 4") && error.contains("the service has a bug"), "{error}");
        assert!(error.contains("start a build"), "{error}");
    }
}

#[test]
fn what_cannot_be_is_refused_in_one_line_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let good = config(dir.path());
    let refused_with = |change: &dyn Fn(&mut ApplianceConfig)| {
        let mut config = good.clone();
        change(&mut config);
        let error = refused(&config);
        assert!(!error.contains('\n'), "{error}");
        error
    };
    let unusable = refused_with(&|config| {
        config.cores = Some("sequencer,egress@999|journaler,executor,publisher".parse().unwrap());
    });
    assert!(unusable.contains("core 999"), "{unusable}");
    let small = refused_with(&|config| config.ring.bytes = 4096);
    assert!(small.contains("4096"), "{small}");
    let name = refused_with(&|config| config.ring.name = Some("a/b".to_string()));
    assert!(name.contains("a/b"), "{name}");
    let listen = refused_with(&|config| config.listen = "203.0.113.7:1".parse().unwrap());
    assert!(listen.contains("203.0.113.7"), "{listen}");
    let interface = refused_with(&|config| {
        let mut feed = ticktape::config::FeedConfig::on_loopback("239.1.1.1:7100".parse().unwrap());
        feed.interface = "203.0.113.7".parse().unwrap();
        config.feed = Some(feed);
    });
    assert!(interface.contains("203.0.113.7"), "{interface}");
    let file = dir.path().join("file");
    std::fs::write(&file, b"mine").unwrap();
    let not_a_dir = refused_with(&|config| config.dir = file.clone());
    assert!(not_a_dir.contains("file"), "{not_a_dir}");
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");

    let appliance = start(&good);
    let in_use = refused(&good);
    assert!(in_use.contains(&dir.path().display().to_string()), "{in_use}");
    stop(appliance);
}

#[test]
fn a_start_that_fails_leaves_no_lock_of_its_ring() {
    let dir = tempfile::tempdir().unwrap();
    let ring_dir = dir.path().join("rings");
    // Where the ring would be built there is a directory.
    std::fs::create_dir_all(ring_dir.join("book.ring.new")).unwrap();
    let mut config = config(&dir.path().join("journal"));
    (config.ring.name, config.ring.dir) = (Some("book".to_string()), ring_dir.clone());
    let names = || std::fs::read_dir(&ring_dir).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    let refused = refused(&config);
    assert!(refused.contains("book.ring.new"), "{refused}");
    assert_eq!(names(), ["book.ring.new"]);
    std::fs::remove_dir(ring_dir.join("book.ring.new")).unwrap();
    stop(start(&config));
    assert!(names().is_empty());
}

#[test]
fn a_tail_reads_history_from_the_journal_and_then_the_ring_live() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir.path().join("journal"));
    let ring_dir = dir.path().join("rings");
    std::fs::create_dir(&ring_dir).unwrap();
    config.ring.name = Some("tail".to_string());
    config.ring.dir = ring_dir.clone();
    let appliance = start(&config);
    let mut client = TestClient::new(appliance.local_addr(), 1);
    // More than the ring holds, so that the first frames are in the journal alone.
    (0..30_000).for_each(|i| {
        client.send(&Command::Add(i));
        if i % 1000 == 999 {
            client.until_acked();
        }
    });
    let mut tail = Tail::open(&config.dir, &ring_dir, "tail", Seq::FIRST, Horizon::Committed).unwrap();
    let mut seen = Vec::new();
    let mut commands = 0;
    let begun = Instant::now();
    while commands < 30_000 {
        tail.drain(256, |frame| {
            seen.push(frame.seq.0);
            commands += u64::from(frame.kind == Kind::SessionInput);
        })
        .unwrap();
        assert!(begun.elapsed() < Duration::from_secs(20), "stuck at {}", tail.next_seq());
    }
    client.ask(&Command::Add(1));
    client.until("the live frame", |_| {
        tail.drain(256, |frame| seen.push(frame.seq.0)).unwrap();
        seen.len() as u64 > 30_002
    });
    stop(appliance);
    let ended = loop {
        tail.check_writer();
        match tail.drain(256, |frame| seen.push(frame.seq.0)) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(ended, TailError::Ended), "{ended}");
    assert!(seen.iter().copied().eq(1..=seen.len() as u64), "every frame once, in order");
}
