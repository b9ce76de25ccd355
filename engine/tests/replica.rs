//! Replicas of an appliance, in one process: joining, following, losing, falling behind, and being begun anew.

mod support;

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use support::{Command, Mailbox, TestClient, config};
use ticktape::config::{ApplianceConfig, FeedConfig, SnapshotConfig};
use ticktape::pipeline::{Appliance, Replica, Report, StageName};
use ticktape::replica::{Figure, ReplicaConfig, ReplicaState, ReplicaStatus};
use ticktape::Seq;
use ticktape_journal::{JournalConfig, names};

/// Reached only where what is waited for does not happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A port that nobody has at the moment.
fn free_address() -> SocketAddrV4 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, socket.local_addr().unwrap().port())
}

/// An appliance that feeds `a`, and repairs.
fn leader(dir: &Path, a: SocketAddrV4) -> ApplianceConfig {
    let mut config = config(dir);
    let repair = Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    config.feed = Some(FeedConfig { repair, ..FeedConfig::on_loopback(a) });
    config
}

fn start(config: &ApplianceConfig) -> Appliance {
    Appliance::start::<Mailbox>(config, &()).unwrap()
}

fn follower(dir: &Path, a: SocketAddrV4, appliance: &Appliance) -> ReplicaConfig {
    let mut config = ReplicaConfig::new(dir, a, vec![appliance.repair_addr().unwrap()]);
    config.ring.bytes = 1 << 20;
    config
}

fn follow(config: &ReplicaConfig) -> Replica<Mailbox> {
    Replica::start(config, &(), None).unwrap()
}

fn until(replica: &Replica<Mailbox>, what: &str, done: impl Fn(&ReplicaStatus) -> bool) -> ReplicaStatus {
    let begun = Instant::now();
    loop {
        let status = replica.status();
        if done(&status) {
            return status;
        }
        let fault = replica.fault();
        assert!(begun.elapsed() < PATIENCE && fault.is_none(), "{what} did not happen: {status}; {fault:?}");
        std::thread::yield_now();
    }
}

fn until_level(replica: &Replica<Mailbox>, appliance: &Appliance) -> ReplicaStatus {
    let commit = appliance.watermarks().durable();
    until(replica, "being level", |status| status.applied() >= commit)
}

fn stop(appliance: Appliance) -> Report {
    let report = appliance.stop();
    assert_eq!((&report.fault, &report.errors[..]), (&None, &[][..]));
    report
}

fn digest(report: &Report, stage: StageName) -> String {
    report.fact(stage, "digest").unwrap().to_string()
}

#[test]
fn a_replica_joins_late_and_comes_to_the_leaders_state() {
    let (dir, own, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), free_address());
    let appliance = start(&leader(dir.path(), a));
    let mut client = TestClient::new(appliance.local_addr(), 1);
    for _ in 0..500 {
        client.send(&Command::Add(2));
    }
    client.until_acked();
    let replica = follow(&follower(own.path(), a, &appliance));
    let joined = until_level(&replica, &appliance);
    assert!(joined.get(Figure::BulkFrames) >= 500, "{joined}");
    until(&replica, "being live", |status| status.state == ReplicaState::Live);
    for _ in 0..500 {
        client.send(&Command::Add(3));
    }
    client.until_acked();
    let live = until_level(&replica, &appliance);
    assert!(live.get(Figure::FeedFrames) >= 500, "{live}");
    let digest_live = replica.inspect(|machine| machine.digest()).unwrap();
    let report = stop(appliance);
    assert_eq!(digest_live, digest(&report, StageName::Executor));
    let report = replica.stop();
    assert_eq!((&report.fault, &report.errors[..]), (&None, &[][..]));
    assert_eq!(digest_live, digest(&report, StageName::Replica));
    let _ = (SnapshotConfig::default(), JournalConfig::default(), Seq(1), names::LOCK);
}
