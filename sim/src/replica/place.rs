//! Where everything of the streams is: addresses, and how leader and replicas are set up for them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use ticktape::config::{ApplianceConfig, FeedConfig, SnapshotConfig};
use ticktape::replica::ReplicaConfig;
use ticktape_journal::{JournalConfig, Salts};

use crate::rng::Rng;

/// The leader's box.
pub(crate) const LEADER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

const GROUP_A: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 0, 0, 1), 7001);
const GROUP_B: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 0, 0, 2), 7002);

/// A replica that misses so many frames would rather have a snapshot.
const SNAPSHOT_GAP_FRAMES: u64 = 200;

/// The port that the leader publishes from.
pub(crate) const fn feed_source() -> SocketAddrV4 {
    SocketAddrV4::new(LEADER, 9001)
}

/// Where the leader repairs, and serves in bulk.
pub(crate) const fn leader_repair() -> SocketAddrV4 {
    SocketAddrV4::new(LEADER, 9010)
}

/// The leader's feed.
pub(crate) fn feed_config() -> FeedConfig {
    FeedConfig { b: Some(GROUP_B), repair: Some(leader_repair()), ..FeedConfig::on_loopback(GROUP_A) }
}

/// The addresses of one replica: each feed comes in by a card of its own, so that each has a way of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Feed A's card.
    pub(crate) a: Ipv4Addr,
    /// Feed B's.
    pub(crate) b: Ipv4Addr,
    /// Everything else.
    pub(crate) own: Ipv4Addr,
}

impl Place {
    /// Of replica `index`, from 0.
    pub(crate) fn of(index: usize) -> Place {
        let last = index as u8 + 1;
        Place { a: Ipv4Addr::new(10, 0, 2, last), b: Ipv4Addr::new(10, 0, 3, last), own: Ipv4Addr::new(10, 0, 4, last) }
    }

    /// The ports that feeds come in by, each with its group.
    pub(crate) fn feeds(&self) -> [(SocketAddrV4, SocketAddrV4); 2] {
        [(SocketAddrV4::new(self.a, 7001), GROUP_A), (SocketAddrV4::new(self.b, 7001), GROUP_B)]
    }

    /// Where it asks from, and is told.
    pub(crate) fn asks(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.own, 5010)
    }

    /// Where it serves others.
    pub(crate) fn serves(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.own, 9010)
    }

    /// Every port that its process has open.
    pub(crate) fn ports(&self) -> [SocketAddrV4; 4] {
        [self.feeds()[0].0, self.feeds()[1].0, self.asks(), self.serves()]
    }

    /// The ways on which something reaches it from the leader, feeds first.
    pub(crate) fn cards(&self) -> [Ipv4Addr; 3] {
        [self.a, self.b, self.own]
    }
}

/// How replica `index` of `all` is set up: small everywhere, as its leader.
pub(crate) fn config(index: usize, all: usize, leader: &ApplianceConfig, rng: &mut Rng) -> ReplicaConfig {
    let others = (0..all).filter(|&other| other != index).map(|other| Place::of(other).serves());
    let mut repair: Vec<SocketAddrV4> = std::iter::once(leader_repair()).chain(others).collect();
    if rng.flip() {
        repair.reverse();
    }
    let dir = PathBuf::from(format!("/replica{index}/journal"));
    let mut config = ReplicaConfig::new(dir, GROUP_A, repair);
    config.b = Some(GROUP_B);
    config.stream = feed_config().stream;
    config.datagram_bytes_max = leader.datagram_bytes_max;
    config.window_messages = *rng.pick(&[64, 256]);
    config.ring = leader.ring.clone();
    config.journal = JournalConfig { salts: Salts::System, log_id: 0, ..leader.journal.clone() };
    config.limits = leader.limits;
    config.snapshot_gap_frames = *rng.pick(&[SNAPSHOT_GAP_FRAMES, u64::MAX]);
    let small = SnapshotConfig { tail_bytes: 16 << 10, ..SnapshotConfig::default() };
    config.snapshots = rng.flip().then(|| leader.snapshots.unwrap_or(small));
    config
}
