//! The leader's side of the streams, beside its stages: repairs, commits, catch-up.

use std::path::Path;

use ticktape::catchup::EpochTable;
use ticktape::feed::{RepairServer, RepairServerConfig, Role};
use ticktape::payload::Reign;
use ticktape::replica::Identity;
use ticktape::{Nanos, Service};
use ticktape_nic::Nic;
use ticktape_shm::{Tap, Watermarks};

use super::place::{feed_config, leader_repair};
use crate::bulk::{BulkServer, ServedLog, Wires};
use crate::disk::{Medium, SimDisk};
use crate::host::DATAGRAM_BYTES;
use crate::nic::{Network, QueueConfig, SimRx, SimTx};

/// What a leader has that is served.
pub(crate) struct Led<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) medium: &'a Medium,
    pub(crate) tap: Tap,
    pub(crate) watermarks: Watermarks,
    pub(crate) log_id: u64,
    pub(crate) reign: Reign,
    pub(crate) epochs: EpochTable,
}

/// The feed server of a leader.
pub(crate) struct LeaderStreams {
    repairs: RepairServer<SimRx, SimTx, SimDisk>,
    bulk: BulkServer,
}

impl LeaderStreams {
    pub(crate) fn open<S: Service>(led: Led<'_>, network: &Network, wires: &Wires) -> Self {
        let Led { dir, medium, tap, watermarks, log_id, reign, epochs } = led;
        let stream = feed_config().stream();
        let config = RepairServerConfig {
            dir,
            tap: &tap,
            watermarks: watermarks.clone(),
            stream,
            log_id,
            datagram_bytes_max: DATAGRAM_BYTES,
            role: Role::Leader { reign },
        };
        let queues = QueueConfig { datagram_bytes_max: DATAGRAM_BYTES, ..QueueConfig::default() };
        let ports = network.open(leader_repair(), queues).split();
        let on = medium.clone();
        let repairs = RepairServer::new(config, ports, move || on.open()).expect("its own ring can be followed");
        let identity = Identity { name: S::NAME, schema_version: S::SCHEMA_VERSION };
        let served =
            ServedLog { dir: dir.to_owned(), medium: medium.clone(), tap, watermarks, committed: None, log_id, epochs };
        LeaderStreams { repairs, bulk: BulkServer::new(wires, leader_repair(), stream, identity, served) }
    }

    /// One duty cycle; returns the work done.
    pub(crate) fn poll(&mut self, now: Nanos) -> usize {
        self.repairs.poll(now) + self.bulk.poll(now)
    }

    pub(crate) fn count(&self, met: &mut impl FnMut(&'static str, u64)) {
        let repaired = self.repairs.repaired();
        met("repairs served", repaired.served);
        met("repairs not yet there", repaired.not_yet);
        met("repairs of another epoch", repaired.other_epoch);
        met("commits told", self.repairs.counters().commits);
        met("statuses heard", self.repairs.counters().statuses);
        met("frames served in bulk", self.bulk.served().frames);
        met("snapshots served", self.bulk.served().snapshots);
    }
}
