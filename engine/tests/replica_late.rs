//! A replica that joins when the leader is far ahead. `TICKTAPE_LATE_FRAMES` says how far; a million takes seconds in a release
//! build.

mod support;

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use support::{Command, Mailbox, TestClient, config};
use ticktape::config::FeedConfig;
use ticktape::pipeline::{Appliance, Replica, StageName};
use ticktape::replica::{Figure, LIVE_WITHIN_FRAMES, ReplicaConfig, ReplicaState, ReplicaStatus};
use ticktape::{Node, NodeConfig, Seq};

/// Reached only where what is waited for does not happen.
const PATIENCE: Duration = Duration::from_secs(240);

/// Commands of one batch.
const BATCH: u64 = 500;

#[test]
fn a_replica_that_joins_far_behind_catches_up_and_stays_live() {
    let ahead = std::env::var("TICKTAPE_LATE_FRAMES").map_or(20_000, |frames| frames.parse::<u64>().unwrap());
    let (dir, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut node = Node::<Mailbox>::open(NodeConfig::new(dir.path()), ()).unwrap();
    for _ in 0..ahead.div_ceil(BATCH) {
        node.submit_batch((0..BATCH).map(|_| Command::Add(1))).unwrap();
    }
    node.sync().unwrap();
    drop(node);

    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let a = SocketAddrV4::new(Ipv4Addr::LOCALHOST, socket.local_addr().unwrap().port());
    drop(socket);
    let mut leading = config(dir.path());
    let repair = Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    leading.feed = Some(FeedConfig { repair, ..FeedConfig::on_loopback(a) });
    let appliance = Appliance::start::<Mailbox>(&leading, &()).unwrap();
    let following = ReplicaConfig::new(own.path(), a, vec![appliance.repair_addr().unwrap()]);
    let replica = Replica::<Mailbox>::start(&following, &(), None).unwrap();
    let mut client = TestClient::new(appliance.local_addr(), 1);
    let met = |what: &str, met: Option<_>| {
        met.unwrap_or_else(|| panic!("{what}: {}; {:?}", replica.status(), replica.fault()))
    };
    let live = met("live", replica.wait_until(PATIENCE, |status| status.state == ReplicaState::Live));
    assert!(live.behind().is_some_and(|behind| behind <= LIVE_WITHIN_FRAMES), "{live}");
    let durable = appliance.watermarks().durable();
    let is_level = |status: &ReplicaStatus| status.applied() >= durable && status.get(Figure::BulkFrames) >= ahead;
    met("level", replica.wait_until(PATIENCE, is_level));
    for _ in 0..500 {
        client.send(&Command::Add(1));
    }
    client.until_acked();
    let durable = appliance.watermarks().durable();
    let is_level = |status: &ReplicaStatus| status.applied() >= durable && status.get(Figure::FeedFrames) >= 500;
    let live = met("level", replica.wait_until(PATIENCE, is_level));
    assert_eq!(live.get(Figure::Restarts), 0, "{live}");
    let report = appliance.stop();
    assert_eq!((&report.fault, &report.errors[..]), (&None, &[][..]));
    let last = Seq(report.counter(StageName::Executor, "applied_seq"));
    met("the last frame", replica.wait_until(PATIENCE, |status| status.applied() >= last));
    let followed = replica.stop();
    assert_eq!(report.fact(StageName::Executor, "digest"), followed.fact(StageName::Replica, "digest"));
}
