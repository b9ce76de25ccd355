//! A snapshot of another log of the same service, at a seq that this log has, too: never believed, always named.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use support::{Answer, Command, Mailbox, TestClient, config};
use ticktape::config::{ApplianceConfig, SnapshotConfig};
use ticktape::pipeline::Appliance;
use ticktape::{Node, NodeConfig, Seq};
use ticktape_journal::{JournalConfig, names};

/// Reached only where what is waited for does not happen.
const PATIENCE: Duration = Duration::from_secs(20);

fn node_config(dir: &Path) -> NodeConfig {
    let mut config = NodeConfig::new(dir);
    config.journal = JournalConfig { segment_bytes: 64 << 10, commit_bytes_max: 16 << 10, ..config.journal };
    config.payload_bytes_max = 1024;
    config
}

fn open(dir: &Path) -> Node<Mailbox> {
    Node::open(node_config(dir), ()).unwrap()
}

/// Three snapshots, each after 2000 additions of `by`: at the same seqs in every such log. Two of them are retained.
fn three_rounds(dir: &Path, by: i64, compacts: bool) -> String {
    let mut node = open(dir);
    for _ in 0..3 {
        for _ in 0..100 {
            node.submit_batch((0..20).map(|_| Command::Add(by))).unwrap();
        }
        node.snapshot().unwrap();
        if compacts {
            node.compact().unwrap();
        }
    }
    node.digest()
}

const NEWEST: Seq = Seq(6_003);
const OLDER: Seq = Seq(4_002);

fn swap_in(from: &Path, to: &Path, seq: Seq) -> PathBuf {
    let path = names::snapshot(to, seq);
    fs::copy(names::snapshot(from, seq), &path).unwrap();
    path
}

#[test]
fn a_node_begins_from_its_own_older_snapshot_or_its_log_and_says_what_it_passed_over() {
    for compacts in [false, true] {
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let digest = three_rounds(ours.path(), 1, compacts);
        let other = three_rounds(theirs.path(), 2, compacts);
        assert_ne!(digest, other);
        let seqs = if compacts { &[NEWEST][..] } else { &[NEWEST, OLDER][..] };
        for &seq in seqs {
            let foreign = swap_in(theirs.path(), ours.path(), seq);
            let mut node = open(ours.path());
            assert_eq!((node.digest(), node.seq()), (digest.clone(), NEWEST));
            let passed_over = node.passed_over().concat();
            assert!(passed_over.contains(foreign.to_str().unwrap()), "{passed_over}");
            assert!(passed_over.contains("a snapshot of another log"), "{passed_over}");
            node.verify_replay().unwrap();
        }
    }
}

#[test]
fn compaction_relies_on_no_snapshot_of_another_log() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    three_rounds(ours.path(), 1, false);
    three_rounds(theirs.path(), 2, false);
    fs::remove_file(names::snapshot(ours.path(), OLDER)).unwrap();
    swap_in(theirs.path(), ours.path(), NEWEST);
    let mut node = open(ours.path());
    let seq = node.snapshot().unwrap();
    node.compact().unwrap();
    node.verify_replay().unwrap();
    let digest = node.digest();
    drop(node);
    assert_eq!(open(ours.path()).digest(), digest);
    // With the true one gone, the log says what was: unless it was given up on the word of another log's.
    if names::segment(ours.path(), Seq(1)).exists() {
        fs::remove_file(names::snapshot(ours.path(), seq)).unwrap();
        assert_eq!(open(ours.path()).digest(), digest);
    } else {
        assert!(names::snapshot(ours.path(), seq).exists());
    }
}

#[test]
fn where_the_log_before_it_is_gone_a_node_refuses_and_names_the_snapshot() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    three_rounds(ours.path(), 1, true);
    three_rounds(theirs.path(), 2, true);
    let foreign = [OLDER, NEWEST].map(|seq| swap_in(theirs.path(), ours.path(), seq));
    let error = Node::<Mailbox>::open(node_config(ours.path()), ()).err().expect("no state to begin from").to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("begins at seq ") && error.contains("another log"), "{error}");
    for path in foreign {
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_segment_of_another_log_is_refused_by_its_name() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    three_rounds(ours.path(), 1, false);
    three_rounds(theirs.path(), 2, false);
    let segment = names::segment(theirs.path(), Seq(1));
    fs::copy(segment, names::segment(ours.path(), Seq(1))).unwrap();
    let error = Node::<Mailbox>::open(node_config(ours.path()), ()).err().expect("two logs").to_string();
    assert!(error.contains("00000000000000000001.seg") && error.contains("of another log than"), "{error}");
}

#[test]
fn a_log_whose_segments_are_gone_goes_on_as_the_log_of_its_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let digest = three_rounds(dir.path(), 1, true);
    let log_id = ticktape_journal::log_id(dir.path()).unwrap().unwrap();
    for entry in fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "seg" || extension == "spare") {
            fs::remove_file(path).unwrap();
        }
    }
    let mut node = open(dir.path());
    assert_eq!((node.digest(), node.recovered().log_id), (digest, log_id));
    node.submit(Command::Add(1)).unwrap();
    let digest = node.digest();
    drop(node);
    let node = open(dir.path());
    assert_eq!((node.digest(), node.passed_over()), (digest, &[][..]));
}

fn often(dir: &Path) -> ApplianceConfig {
    let mut config = config(dir);
    config.journal = JournalConfig { segment_bytes: 64 << 10, commit_bytes_max: 16 << 10, ..config.journal };
    let every = SnapshotConfig { every_frames: 50, bytes_per_ms: 1 << 20, compact: false, ..SnapshotConfig::default() };
    config.snapshots = Some(every);
    config
}

/// Runs an appliance until a snapshot covers seq 200; returns its total and the newest snapshot.
fn appliance(dir: &Path, by: i64) -> (i64, PathBuf) {
    let appliance = Appliance::start::<Mailbox>(&often(dir), &()).unwrap();
    let mut client = TestClient::new(appliance.local_addr(), 1);
    let (begun, mut total) = (Instant::now(), 0);
    while appliance.covered() < Seq(200) {
        assert!(begun.elapsed() < PATIENCE, "no snapshot: {:?}", appliance.fault());
        total += by;
        assert_eq!(client.ask(&Command::Add(by)), &Answer::Total(total));
    }
    let report = appliance.stop();
    assert_eq!((&report.fault, &report.errors[..]), (&None, &[][..]));
    let listed = ticktape_journal::snapshot::list(dir).unwrap();
    (total, listed.last().expect("one covers 200").1.clone())
}

#[test]
fn an_appliance_passes_it_over_and_goes_on_with_the_truth() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (total, newest) = appliance(ours.path(), 1);
    let (_, other) = appliance(theirs.path(), 1_000);
    // Whatever its seq is: under the name that it has it is beyond, or between, what this log has.
    let foreign = ours.path().join(other.file_name().unwrap());
    fs::copy(&other, &foreign).unwrap();
    if foreign < newest {
        fs::remove_file(&newest).unwrap();
    }
    let appliance = Appliance::start::<Mailbox>(&often(ours.path()), &()).unwrap();
    let recovery = appliance.choices().recovery.clone();
    assert!(recovery.contains("passed over: snapshot ") && recovery.contains("of another log"), "{recovery}");
    assert!(recovery.contains(foreign.to_str().unwrap()), "{recovery}");
    let mut client = TestClient::new(appliance.local_addr(), 2);
    assert_eq!(client.ask(&Command::Add(1)), &Answer::Total(total + 1));
    let report = appliance.stop();
    assert_eq!((&report.fault, &report.errors[..]), (&None, &[][..]));
}

#[test]
fn a_first_file_that_is_no_segment_is_set_aside_and_named() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for dir in &dirs {
        fs::write(names::segment(dir.path(), Seq(1)), "somebody else's").unwrap();
    }
    let [first, second] = dirs.each_ref().map(tempfile::TempDir::path);
    let aside = format!(
        "{}.damaged has no header of this log that can be read, and was set aside",
        names::segment(first, Seq(1)).display()
    );
    assert_eq!(open(first).passed_over(), [aside]);
    let appliance = Appliance::start::<Mailbox>(&often(second), &()).unwrap();
    let recovery = appliance.choices().recovery.clone();
    assert!(recovery.contains("00000000000000000001.seg.damaged has no header of this log"), "{recovery}");
    appliance.stop();
}
