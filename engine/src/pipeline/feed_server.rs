//! The feed's server: a thread beside the stages of a leader or a replica that repairs what others lost, brings them what they
//! missed, and tells them what is committed. One UDP port, and the TCP port of the same number.

use std::net::{SocketAddrV4, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use ticktape_core::{Nanos, Seq};
use ticktape_journal::FileDisk;
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, NicError, UdpConfig, UdpNic};
use ticktape_shm::{Tap, Watermarks};
use ticktape_tuning::{clock, pin};

use super::catchup::{CatchupServer, CatchupServerConfig, ServedRing};
use super::exporter::{COUNTER, LEVEL, StageFigures, Tell};
use super::plan::StageName;
use super::stage::{Lifecycle, StageReport};
use crate::catchup::{EpochTable, ServeConfig};
pub(super) use crate::feed::Role;
use crate::feed::{Followed, RepairServer, RepairServerConfig, RepairServerCounters, RewinderCounters};
use crate::replica::{Committed, Identity};

/// Between two polls that find nothing, while somebody follows: a repair is late by this, a commit by this and the reporter's
/// pace.
const REST: Duration = Duration::from_micros(50);

/// The same while nobody does.
const REST_ALONE: Duration = Duration::from_millis(1);

/// After somebody was last heard, it rests briefly for so long.
const HEARD_NS: u64 = 3_000_000_000;

/// A port of UDP and TCP alike is looked for so often, where any will do.
const PORT_TRIES: usize = 16;

/// The two sockets of a server.
pub(super) struct Ports {
    pub(super) udp: UdpNic,
    pub(super) tcp: TcpListener,
}

impl Ports {
    /// Opens both on one port number.
    pub(super) fn open(address: SocketAddrV4, datagram_bytes_max: usize) -> Result<Ports, NicError> {
        let mut tries = 0;
        loop {
            let config = UdpConfig { datagram_bytes_max, ..UdpConfig::new(address) };
            let udp = UdpNic::open(&config)?;
            match TcpListener::bind(udp.local_addr()) {
                Ok(tcp) => {
                    tcp.set_nonblocking(true).map_err(NicError::Socket)?;
                    return Ok(Ports { udp, tcp });
                }
                // Another number may be free for both.
                Err(_) if address.port() == 0 && tries < PORT_TRIES => tries += 1,
                Err(error) => return Err(NicError::Bind { address: udp.local_addr(), error }),
            }
        }
    }
}

/// What a server's thread begins with.
pub(super) struct Seed {
    pub(super) ports: Ports,
    pub(super) dir: PathBuf,
    pub(super) tap: Tap,
    pub(super) watermarks: Watermarks,
    pub(super) stream: u32,
    pub(super) datagram_bytes_max: usize,
    pub(super) role: Role,
    pub(super) service: Identity,
    /// The log's epochs; whoever writes the log adds to them.
    pub(super) epochs: EpochTable,
    /// Which log it is.
    pub(super) log_id: u64,
    pub(super) lifecycle: Lifecycle,
    /// The cores it keeps to.
    pub(super) cores: Vec<usize>,
    /// Where others look at what it counts.
    pub(super) figures: Option<StageFigures>,
}

/// Runs a server until its lifecycle ends.
pub(super) fn run(mut seed: Seed) -> (StageName, Result<StageReport, String>) {
    // Without them it is only less considerate, or later.
    let _ = pin::keep_to(&seed.cores);
    let _ = pin::sleep_precisely();
    let (lifecycle, mut figures) = (seed.lifecycle.clone(), seed.figures.take());
    let report = Server::new(seed).map(|mut server| {
        while !lifecycle.failed() {
            let now = clock::monotonic_ns();
            if lifecycle.final_seq().is_some_and(|last| server.repairs.is_through(now, last)) {
                break;
            }
            if let Some(figures) = &mut figures {
                figures.export(now, |tell| server.figured().tell(tell));
            }
            if server.repairs.poll(now) == 0 {
                std::thread::sleep(server.rest(now));
            }
        }
        server.report(lifecycle.final_seq())
    });
    if let Err(error) = &report {
        lifecycle.fail(format!("feed server: {error}"));
    }
    (StageName::FeedServer, report.map_err(|error| error.to_string()))
}

/// What a server counts.
#[derive(Default)]
pub(super) struct Figured {
    repaired: RewinderCounters,
    beside: RepairServerCounters,
    /// Who follows, and how far the last of them is.
    replicas: u64,
    durable: u64,
    applied: u64,
}

impl Figured {
    /// As a server that has done nothing.
    pub(super) fn tell_none(tell: Tell<'_>) {
        Figured::default().tell(tell);
    }

    fn tell(&self, tell: Tell<'_>) {
        let Figured { repaired, beside, .. } = self;
        tell("replicas", LEVEL, self.replicas);
        tell("replicas_durable_seq", LEVEL, self.durable);
        tell("replicas_applied_seq", LEVEL, self.applied);
        for (name, count) in [
            ("repair_requests", repaired.requests),
            ("repairs_served", repaired.served),
            ("repaired_messages", repaired.messages),
            ("repairs_too_old", repaired.too_old),
            ("repairs_not_yet", repaired.not_yet),
            ("repairs_malformed", repaired.malformed.iter().sum()),
            ("repairs_foreign", repaired.foreign),
            ("repairs_other_epoch", repaired.other_epoch),
            ("repairs_limited", repaired.limited + repaired.limited_in_all),
            ("repairs_blocked", repaired.blocked),
            ("repairs_busy", repaired.busy),
            ("repairs_failed", repaired.failed),
            ("statuses", beside.statuses),
            ("statuses_dropped", beside.statuses_dropped),
            ("statuses_of_twins", beside.statuses_of_twins),
            ("commits_told", beside.commits),
        ] {
            tell(name, COUNTER, count);
        }
    }
}

struct Server {
    repairs: RepairServer<UdpRx, UdpTx>,
    bulk: Option<CatchupServer>,
}

impl Server {
    fn new(seed: Seed) -> Result<Server, Box<dyn std::error::Error>> {
        let Seed {
            ports, dir, tap, watermarks, stream, datagram_bytes_max, role, service, epochs, log_id, cores, ..
        } = seed;
        let serve = ServeConfig::new(stream, service.name, service.schema_version);
        let (committed, marks) = (role.committed(), watermarks.clone());
        let commit = move || committed.as_ref().map_or_else(|| marks.commit(), Committed::get);
        let config = RepairServerConfig { dir: &dir, tap: &tap, watermarks, stream, log_id, datagram_bytes_max, role };
        let repairs = RepairServer::new(config, ports.udp.split(), FileDisk::new)?;
        let bulk = CatchupServerConfig { log_id, cores, ..CatchupServerConfig::new(serve, dir, ServedRing::Here(tap)) };
        let bulk = CatchupServer::start(ports.tcp, bulk, epochs, commit)?;
        Ok(Server { repairs, bulk: Some(bulk) })
    }

    fn rest(&self, now: Nanos) -> Duration {
        match self.repairs.heard_at() {
            Some(at) if now.saturating_sub(at) < HEARD_NS => REST,
            _ => REST_ALONE,
        }
    }

    fn figured(&self) -> Figured {
        let followed = self.repairs.followed();
        let least = |seq: fn(&Followed) -> Seq| followed.iter().map(seq).min().map_or(0, |seq| seq.0);
        Figured {
            repaired: self.repairs.repaired(),
            beside: self.repairs.counters(),
            replicas: followed.len() as u64,
            durable: least(|replica| replica.status.durable),
            applied: least(|replica| replica.status.applied),
        }
    }

    fn report(mut self, last: Option<Seq>) -> StageReport {
        let mut warnings = last.map_or_else(Vec::new, |last| self.repairs.left_behind(last));
        warnings.extend(self.repairs.twins());
        let mut report = StageReport { warnings, ..StageReport::default() };
        self.figured().tell(&mut |name, _, value| report.counters.push((name, value)));
        let bulk = self.bulk.take().map(CatchupServer::stop).unwrap_or_default();
        report.counters.extend([
            ("catch_ups", bulk.clients),
            ("catch_up_frames", bulk.served.frames),
            ("catch_up_snapshots", bulk.served.snapshots),
            ("catch_up_bytes", bulk.served.bytes),
            ("catch_ups_dropped", bulk.ended.iter().skip(1).sum()),
        ]);
        report
    }
}
