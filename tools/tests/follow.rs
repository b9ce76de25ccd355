//! Following an appliance whose log has lost its beginning to compaction.

mod journals;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use counter::Counter;
use journals::{on, ticktape};
use ticktape::client::Client;
use ticktape::config::{ApplianceConfig, SnapshotConfig};
use ticktape::link::ClientConfig;
use ticktape::pipeline::{Appliance, IdleStrategy, Idler};
use ticktape::{Encode, Seq, Service};
use ticktape_journal::{JournalConfig, names};
use ticktape_nic::{Nic, UdpConfig, UdpNic};
use ticktape_tuning::clock;

/// Reached only where what is waited for does not happen.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_follower_begins_from_the_newest_snapshot_and_comes_to_the_state_that_the_log_has() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let mut config = ApplianceConfig::new(&journal, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    config.ring.bytes = 1 << 20;
    config.ring.name = Some("counted".to_string());
    config.ring.dir = dir.path().to_owned();
    config.journal = JournalConfig { segment_bytes: 64 << 10, commit_bytes_max: 16 << 10, ..config.journal };
    config.snapshots =
        Some(SnapshotConfig { every_frames: 50, bytes_per_ms: 1 << 20, compact: true, ..SnapshotConfig::default() });
    let appliance = Appliance::start::<Counter>(&config, &()).unwrap();

    let udp = UdpConfig::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    let (rx, tx) = UdpNic::open(&udp).unwrap().split();
    let schema = Counter::SCHEMA_VERSION;
    let mut client = Client::new(rx, tx, appliance.local_addr(), &ClientConfig { schema, ..ClientConfig::default() });
    let (begun, mut idler) = (Instant::now(), Idler::new(IdleStrategy::Backoff));
    let add = counter::Command::Add(1).to_bytes();
    while names::segment(&journal, Seq(1)).exists() || !client.link().is_drained() {
        assert!(begun.elapsed() < PATIENCE, "the log keeps its beginning: {:?}", appliance.fault());
        if names::segment(&journal, Seq(1)).exists() && client.link().is_drained() {
            // As many as the window takes.
            let _ = (0..64).try_for_each(|_| client.send(&add).map(|_| ()));
        }
        let work = client.poll(clock::monotonic_ns(), |_| {});
        idler.after_round(work);
    }

    // One frame more, so that there is one after every snapshot.
    client.send(&add).unwrap();
    while !client.link().is_drained() {
        assert!(begun.elapsed() < PATIENCE, "no acknowledgement: {:?}", appliance.fault());
        let work = client.poll(clock::monotonic_ns(), |_| {});
        idler.after_round(work);
    }
    let path = journal.to_str().unwrap();
    let ring_dir = dir.path().to_str().unwrap();
    let args = ["follow", "--ring", "counted", "--ring-dir", ring_dir, "--journal", path, "--service", "counter"];
    let followed = ticktape(&[&args[..], &["--frames", "1"]].concat());
    let out = followed.good();
    assert!(out.starts_with("begun          from the snapshot after seq "), "{out}");
    let state = out.lines().last().unwrap().strip_prefix("state at seq ").unwrap();
    let (seq, digest) = state.split_once(": ").unwrap();
    let verified = on("verify", &journal, &["--json"]).json();
    assert_eq!((&verified["clean"], &verified["live"]), (&true.into(), &true.into()), "{verified}");
    let report = appliance.stop();
    assert_eq!((&report.fault, &report.errors[..]), (&None, &[][..]));
    assert_eq!(on("state", &journal, &["--json", "--at", seq]).json()["digest"], digest);
}
