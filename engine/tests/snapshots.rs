//! Snapshots, marks and compaction, as users of nodes and appliances meet them.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use support::{Answer, Command, Mailbox, TestClient, config};
use ticktape::config::{ApplianceConfig, SnapshotConfig};
use ticktape::link::Tier;
use ticktape::machine::{Machine, StepLimits};
use ticktape::pipeline::{Appliance, Report, StageName};
use ticktape::snapshot::Found;
use ticktape::{Ctx, Node, NodeConfig, Seq, Service, Timestamp, replay};
use ticktape_journal::{JournalConfig, names};

/// Reached only where what is waited for does not happen.
const PATIENCE: Duration = Duration::from_secs(20);

fn snapshots_in(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "snap"))
        .collect();
    found.sort();
    found
}

/// An appliance that marks each 50 frames, in segments so small that there are many.
fn often(dir: &Path) -> ApplianceConfig {
    let mut config = config(dir);
    config.journal = JournalConfig { segment_bytes: 64 << 10, commit_bytes_max: 16 << 10, ..config.journal };
    config.snapshots =
        Some(SnapshotConfig { every_frames: 50, bytes_per_ms: 1 << 20, compact: true, ..SnapshotConfig::default() });
    config
}

fn start(config: &ApplianceConfig) -> Appliance {
    Appliance::start::<Mailbox>(config, &()).unwrap()
}

fn stop(appliance: Appliance) -> Report {
    let report = appliance.stop();
    assert_eq!((&report.fault, &report.errors[..]), (&None, &[][..]));
    report
}

/// Sends additions until a snapshot covers `seq`; returns how many were sent.
fn add_until_covered(appliance: &Appliance, client: &mut TestClient, seq: Seq) -> i64 {
    let (begun, mut sent) = (Instant::now(), 0);
    while appliance.covered() < seq {
        assert!(begun.elapsed() < PATIENCE, "no snapshot covers seq {seq}: {:?}", appliance.fault());
        for _ in 1..50 {
            client.send(&Command::Add(1));
        }
        client.ask(&Command::Add(1));
        sent += 50;
    }
    sent
}

/// Waits until only so many snapshots are left: those beyond are deleted beside whatever else the disk does.
fn until_retained(appliance: &Appliance, dir: &Path, count: usize) {
    let begun = Instant::now();
    while snapshots_in(dir).len() != count {
        assert!(begun.elapsed() < PATIENCE, "{:?}, {:?}", snapshots_in(dir), appliance.fault());
        std::thread::yield_now();
    }
}

#[test]
fn an_appliance_goes_on_from_its_snapshot_though_the_log_before_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let config = often(dir.path());
    let appliance = start(&config);
    let mut client = TestClient::new(appliance.local_addr(), 1);
    let mut total = add_until_covered(&appliance, &mut client, Seq(3_000));
    client.until_acked();
    until_retained(&appliance, dir.path(), 2);
    let report = stop(appliance);
    assert!(report.counter(StageName::Shadow, "snapshots") >= 2);
    assert!(report.counter(StageName::Sequencer, "marks") > 10);
    assert!(!names::segment(dir.path(), Seq(1)).exists(), "what snapshots cover is given up");

    let appliance = start(&config);
    assert!(appliance.choices().recovery.starts_with("the snapshot after seq "), "{}", appliance.choices().recovery);
    client.redirect(appliance.local_addr());
    total += 1;
    assert_eq!(client.ask(&Command::Add(1)), &Answer::Total(total));
    let numbers: Vec<u64> = client.events.iter().map(|event| event.0).collect();
    assert_eq!(numbers, (1..=total as u64).collect::<Vec<_>>(), "events are numbered on");
    let live = stop(appliance).fact(StageName::Executor, "digest").unwrap().to_string();
    let found = Found::newest(dir.path(), Seq::MAX).unwrap();
    let mut restored = found.restore::<Mailbox>(dir.path(), &(), StepLimits::default(), 0).unwrap();
    replay(dir.path(), &mut restored.machine).unwrap();
    assert_eq!(restored.machine.digest(), live);
}

#[test]
fn a_client_that_was_away_is_told_from_the_snapshot_what_it_missed() {
    let dir = tempfile::tempdir().unwrap();
    let config = often(dir.path());
    let appliance = start(&config);
    let mut ada = TestClient::new(appliance.local_addr(), 1);
    ada.ask(&Command::Add(1));
    ada.send(&Command::Tell { session: 2, word: "kept".to_string() });
    ada.until_acked();
    add_until_covered(&appliance, &mut ada, Seq(3_000));
    stop(appliance);
    assert!(!names::segment(dir.path(), Seq(1)).exists());

    let appliance = start(&config);
    let mut bob = TestClient::new(appliance.local_addr(), 2);
    bob.until("the word", |bob| !bob.events.is_empty());
    assert_eq!(bob.events, [(1, 0, Answer::Word("kept".to_string()))]);
    stop(appliance);
}

#[test]
fn a_rotten_snapshot_is_passed_over_for_an_older_one_and_then_for_the_whole_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = often(dir.path());
    config.snapshots.as_mut().unwrap().compact = false;
    let appliance = start(&config);
    let mut client = TestClient::new(appliance.local_addr(), 1);
    let total = add_until_covered(&appliance, &mut client, Seq(500));
    client.until_acked();
    until_retained(&appliance, dir.path(), 2);
    stop(appliance);

    // One more may have come before the stop.
    let kept = snapshots_in(dir.path());
    for rotten in (0..kept.len()).rev() {
        let begun = if rotten > 0 { "the snapshot after seq" } else { "the beginning" };
        let mut bytes = fs::read(&kept[rotten]).unwrap();
        bytes[5_000] ^= 1;
        fs::write(&kept[rotten], bytes).unwrap();
        let mut config = config.clone();
        config.snapshots = None;
        let appliance = start(&config);
        let recovery = &appliance.choices().recovery;
        assert!(recovery.starts_with(begun) && recovery.contains("passed over"), "{recovery}");
        client.redirect(appliance.local_addr());
        assert_eq!(client.ask(&Command::Add(0)), &Answer::Total(total));
        stop(appliance);
    }
}

#[test]
fn a_journal_that_ends_before_its_snapshot_is_loud_where_it_was_promised_and_purged_where_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = often(dir.path());
    config.snapshots.as_mut().unwrap().compact = false;
    let appliance = start(&config);
    let mut client = TestClient::new(appliance.local_addr(), 1);
    // Until a snapshot covers more than the first segment, however many commands a commit takes.
    let last_segment = || {
        let paths = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let segments = paths.filter(|path| path.extension().is_some_and(|extension| extension == "seg"));
        segments.filter_map(|path| path.file_stem()?.to_str()?.parse::<u64>().ok()).max().unwrap()
    };
    let mut covered = 500;
    add_until_covered(&appliance, &mut client, Seq(covered));
    while last_segment() == 1 || covered < last_segment() {
        covered = last_segment().max(covered + 100);
        add_until_covered(&appliance, &mut client, Seq(covered));
    }
    stop(appliance);
    // The disk loses the log, and forgets that it ever had it.
    for entry in fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "seg") && path != names::segment(dir.path(), Seq(1)) {
            fs::remove_file(path).unwrap();
        }
    }
    fs::remove_file(dir.path().join(names::SEALED)).unwrap();

    let error = Appliance::start::<Mailbox>(&config, &()).err().expect("it is behind").to_string();
    let newest = snapshots_in(dir.path()).pop().unwrap();
    let seq: u64 = newest.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    assert!(error.contains(&seq.to_string()) && error.contains("snapshot"), "{error}");
    config.tier = Tier::Memory;
    let appliance = start(&config);
    assert!(appliance.recovered_to() < Seq(seq));
    stop(appliance);
    assert!(!newest.exists());
}

/// Answers and counts what no log decides.
struct Ambient {
    outputs: bool,
    sum: i64,
}

static AMBIENT: AtomicI64 = AtomicI64::new(0);

fn ambient() -> i64 {
    // Relaxed: any value that differs from call to call will do.
    AMBIENT.fetch_add(1, Ordering::Relaxed)
}

impl Service for Ambient {
    type Input = Command;
    type Output = Answer;
    type Snapshot = i64;
    type Config = bool;

    fn genesis(outputs: &bool) -> Self {
        Ambient { outputs: *outputs, sum: 0 }
    }

    fn apply(&mut self, _: Seq, _: &Command, ctx: &mut Ctx<'_, Answer>) {
        let said = if self.outputs { ambient() } else { 0 };
        self.sum += if self.outputs { 0 } else { ambient() };
        ctx.reply(Answer::Total(said));
    }

    fn snapshot(&self) -> i64 {
        self.sum
    }

    fn restore(sum: i64, outputs: &bool) -> Self {
        Ambient { outputs: *outputs, sum }
    }
}

#[test]
fn outputs_that_do_not_follow_from_the_log_stop_the_appliance_within_two_marks() {
    let dir = tempfile::tempdir().unwrap();
    let config = often(dir.path());
    let appliance = Appliance::start::<Ambient>(&config, &true).unwrap();
    let mut client = TestClient::new(appliance.local_addr(), 1);
    client.connect();
    client.until_with("the stop", |client| {
        client.try_send(&Command::Add(1));
        appliance.fault().is_some()
    });
    let fault = appliance.stop().fault.unwrap();
    assert!(fault.contains("outputs after seq") && fault.contains("not deterministic"), "{fault}");
}

#[test]
fn a_state_that_does_not_follow_from_the_log_is_found_by_the_next_shadow() {
    let dir = tempfile::tempdir().unwrap();
    let node_config = NodeConfig::new(dir.path());
    let mut node = Node::<Ambient>::open(node_config.clone(), false).unwrap();
    (0..10).for_each(|_| drop(node.submit(Command::Add(1)).unwrap()));
    let first = node.snapshot().unwrap();
    (0..10).for_each(|_| drop(node.submit(Command::Add(1)).unwrap()));
    node.snapshot().unwrap();
    drop(node);
    // A replica that takes the digest at the first point, as a shadow does, and goes on.
    let mut machine = Machine::<Ambient>::genesis(&false, StepLimits::default());
    let mut reader = ticktape_journal::JournalReader::open(dir.path(), Seq(1)).unwrap();
    let mut found = None;
    while let Some(bytes) = reader.next().unwrap() {
        let frame = ticktape::Frame::decode(bytes).unwrap();
        if let Err(error) = machine.step(&frame) {
            found = Some(error.to_string());
            break;
        }
        if frame.seq == first {
            let meta = machine.to_snapshot(&ticktape::tails::Tails::new(0)).meta().clone();
            machine.note_state_digest(meta.seq, meta.state_digest);
        }
    }
    let found = found.expect("the second mark carries the first point's digest");
    assert!(found.contains("contents of the state") && found.contains(&format!("seq {first}")), "{found}");
}

#[test]
fn a_node_goes_on_from_its_snapshot_and_gives_up_the_log_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = NodeConfig::new(dir.path());
    config.journal = JournalConfig { segment_bytes: 64 << 10, commit_bytes_max: 16 << 10, ..config.journal };
    config.payload_bytes_max = 1024;
    let mut node = Node::<Mailbox>::open(config.clone(), ()).unwrap();
    for round in 1..=3 {
        for _ in 0..100 {
            node.submit_batch((0..20).map(|_| Command::Add(1))).unwrap();
        }
        let seq = node.snapshot().unwrap();
        assert_eq!(seq, Seq(round * 2_001));
        node.compact().unwrap();
    }
    assert!(node.first_seq() > Seq(2_001), "{}", node.first_seq());
    assert!(node.first_seq() <= Seq(2 * 2_001 + 1), "the older of two retained snapshots can still be gone on from");
    node.verify_replay().unwrap();
    let digest = node.digest();
    drop(node);

    let mut node = Node::<Mailbox>::open(config.clone(), ()).unwrap();
    assert_eq!((node.digest(), node.seq()), (digest.clone(), Seq(3 * 2_001)));
    node.submit(Command::Add(1)).unwrap();
    node.verify_replay().unwrap();
    drop(node);

    // Without the snapshots the log begins too late to mean anything.
    snapshots_in(dir.path()).iter().for_each(|path| fs::remove_file(path).unwrap());
    let error = Node::<Mailbox>::open(config, ()).err().expect("its beginning is gone").to_string();
    assert!(error.contains("begins at"), "{error}");
}

#[test]
fn a_restored_machine_answers_as_the_one_that_it_was_taken_of() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::<Mailbox>::open(NodeConfig::new(dir.path()), ()).unwrap();
    for i in 0..40 {
        let command = match i % 4 {
            0 => Command::Alarm { after_ns: 1 },
            1 => Command::Tell { session: i, word: "word".to_string() },
            2 => Command::Echo { times: 2, bytes: 3 },
            _ => Command::Add(i as i64),
        };
        node.submit(command).unwrap();
    }
    drop(node);
    let mut frames = Vec::new();
    let mut reader = ticktape_journal::JournalReader::open(dir.path(), Seq(1)).unwrap();
    while let Some(bytes) = reader.next().unwrap() {
        frames.push(bytes.to_vec());
    }
    let whole = through(Machine::<Mailbox>::genesis(&(), StepLimits::default()), &frames);
    for cut in 1..frames.len() {
        let before = through(Machine::<Mailbox>::genesis(&(), StepLimits::default()), &frames[..cut]);
        let snapshot = before.to_snapshot(&ticktape::tails::Tails::new(0));
        let (restored, _) = Machine::restore(&snapshot, &(), StepLimits::default(), 0).unwrap();
        let after = through(restored, &frames[cut..]);
        let facts = |machine: &Machine<Mailbox>| {
            let snapshot = machine.to_snapshot(&ticktape::tails::Tails::new(0));
            (snapshot.meta().clone(), snapshot.into_body(), machine.now(), machine.next_deadline())
        };
        assert_eq!(facts(&after), facts(&whole), "cut after {cut} frames");
        assert_ne!(after.now(), Timestamp(0));
    }
}

fn through(mut machine: Machine<Mailbox>, frames: &[Vec<u8>]) -> Machine<Mailbox> {
    for bytes in frames {
        let frame = ticktape::Frame::decode(bytes).unwrap();
        while machine.step(&frame).unwrap() != ticktape::machine::Progress::Applied {}
    }
    machine
}
