//! A replica's process: its stages, wired as they are live, each polled when the world says so.

use ticktape::catchup::EpochTable;
use ticktape::feed::{RepairServer, RepairServerConfig};
use ticktape::journaler::Journaler;
use ticktape::machine::Machine;
use ticktape::pipeline::StartError;
use ticktape::pipeline::replica_parts::{ExecutorBegin, Me, Parts, assemble, open_log};
use ticktape::replica::{Board, Figure, Identity, Intake, Ports, ReplicaConfig, Verdict};
use ticktape::shadow::{Covered, Log, Replicating, Shadow, ShadowError};
use ticktape::snapshot::RestoreFailure;
use ticktape::tail::TailError;
use ticktape::{Invariants, Nanos, Seq, Service};
use ticktape_journal::disk::{DiskError, Op};
use ticktape_journal::{Disk, JournalError, Salts, SnapshotError};
use ticktape_nic::Nic;
use ticktape_shm::{Follower, Horizon, Watermarks};

use super::check::Ever;
use super::place::Place;
use super::tell::Standing;
use crate::bulk::{BulkServer, ServedLog, SimBulk, Wires};
use crate::clock::SimClock;
use crate::disk::{Medium, SimDisk};
use crate::ledger::Wrong;
use crate::nic::{Network, QueueConfig, SimRx, SimTx};
use crate::rng::Seed;

/// How long frames may wait for space before it gives up, as live.
const SPACE_PATIENCE_NS: u64 = 2_000_000_000;

/// What is polled of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Intake,
    Journaler,
    Executor,
    Server,
    Housekeeping,
}

impl Part {
    pub(crate) const ALL: [Part; 5] = [Part::Intake, Part::Journaler, Part::Executor, Part::Server, Part::Housekeeping];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Part::Intake => "intake",
            Part::Journaler => "journaler",
            Part::Executor => "executor",
            Part::Server => "feed server",
            Part::Housekeeping => "housekeeping",
        }
    }
}

/// The place of a part among all.
pub(crate) fn part_named(name: &str) -> Option<usize> {
    Part::ALL.iter().position(|part| part.name() == name)
}

/// What a replica is started with.
pub(crate) struct Boot<'a, C> {
    pub(crate) config: &'a ReplicaConfig,
    pub(crate) service: &'a C,
    pub(crate) identity: Identity,
    pub(crate) place: Place,
    pub(crate) network: &'a Network,
    pub(crate) wires: &'a Wires,
    pub(crate) medium: &'a Medium,
    pub(crate) clock: &'a SimClock,
    pub(crate) queues: QueueConfig,
    pub(crate) board: &'a Board,
    pub(crate) number: u64,
    pub(crate) log_id: u64,
    pub(crate) seed: Seed,
}

/// What a poll came to, beside work.
pub(crate) enum Turn {
    /// So much was done.
    Work(usize),
    /// It has to begin anew.
    Verdict(Verdict),
    /// It stops by itself: its disk.
    Stops(String),
}

/// Why a replica does not start.
pub(crate) enum StartFailed {
    Start(StartError),
    Shadow(ShadowError),
}

impl From<StartError> for StartFailed {
    fn from(error: StartError) -> Self {
        StartFailed::Start(error)
    }
}

impl StartFailed {
    /// Whether it is the disk, as it fails or as it is full now.
    pub(crate) fn is_disk(&self) -> bool {
        let error = match self {
            StartFailed::Start(StartError::Journal(error) | StartError::Restore(RestoreFailure::Journal(error))) => {
                error
            }
            StartFailed::Shadow(ShadowError::Tail(TailError::Journal(error))) => error,
            StartFailed::Shadow(ShadowError::Snapshots(SnapshotError::Disk { .. })) => return true,
            _ => return false,
        };
        matches!(error, JournalError::Disk { .. } | JournalError::NoSpace { .. } | JournalError::WriteZero { .. })
    }
}

impl std::fmt::Display for StartFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartFailed::Start(error) => error.fmt(f),
            StartFailed::Shadow(error) => error.fmt(f),
        }
    }
}

pub(crate) struct Running<S: Service> {
    intake: Intake<SimRx, SimTx, SimBulk>,
    journaler: Journaler<SimDisk>,
    executor: Shadow<S, SimDisk, SimDisk>,
    repairs: RepairServer<SimRx, SimTx, SimDisk>,
    bulk: BulkServer,
    /// Sees every frame that is let in, and gates nobody.
    observer: Follower,
    board: Board,
    epochs: EpochTable,
    watermarks: Watermarks,
    covered: Covered,
    compacts: bool,
    starved_since: Option<Nanos>,
}

impl<S: Service + Invariants> Running<S> {
    /// Goes on from what the disk holds.
    pub(crate) fn start(boot: &Boot<'_, S::Config>) -> Result<Self, StartFailed> {
        let Boot { place, network, medium, board, .. } = *boot;
        let mut config = boot.config.clone();
        config.journal.salts = Salts::Seeded(boot.seed.0);
        let config = &config;
        let opened = open_log::<S, _, _>(config, boot.service, boot.log_id, medium.open(), || medium.open())?;
        let (log_id, next_seq) = (opened.log_id(), opened.next_seq());
        let feeds = place.feeds().map(|(port, group)| {
            let nic = network.open(port, boot.queues);
            network.join(port, group);
            nic.split().0
        });
        let (repair_rx, repair_tx) = network.open(place.asks(), boot.queues).split();
        let ports = Ports { feeds: feeds.into(), repair_rx, repair_tx };
        let me = Me { number: boot.number, first_status: boot.clock.realtime().0, service: boot.identity };
        let bulk = SimBulk::new(boot.wires, place.own, medium, config, me.service, log_id);
        let Parts { intake, journaler, executor, tap, watermarks, role, epochs } =
            assemble(config, me, opened, ports, bulk, board)?;
        let observer = tap.follow(next_seq, Horizon::Sequenced).expect("the ring begins there");
        let served = ServedLog {
            dir: config.dir.clone(),
            medium: medium.clone(),
            tap: tap.clone(),
            watermarks: watermarks.clone(),
            committed: role.committed(),
            log_id,
            epochs: epochs.clone(),
        };
        let bulk = BulkServer::new(boot.wires, place.serves(), config.stream(), boot.identity, served);
        let repair = RepairServerConfig {
            dir: &config.dir,
            tap: &tap,
            watermarks: watermarks.clone(),
            stream: config.stream(),
            log_id,
            datagram_bytes_max: config.datagram_bytes_max,
            role,
        };
        let on = medium.clone();
        let port = network.open(place.serves(), boot.queues).split();
        let repairs = RepairServer::new(repair, port, move || on.open()).expect("its own ring can be followed");
        let ExecutorBegin { restored, ring, committed } = executor;
        let on = medium.clone();
        let log = Log { dir: config.dir.clone(), ring, open_disk: Box::new(move || on.open()) };
        let covered = Covered::default();
        let snapshots = config.snapshots.map(|snapshots| (medium.open(), snapshots.pace()));
        let replicating = Replicating { committed, on_output: None };
        let executor = Shadow::open_replica(log, restored, replicating, snapshots, covered.clone());
        let executor = executor.map_err(StartFailed::Shadow)?;
        let compacts = config.snapshots.is_some_and(|snapshots| snapshots.compact);
        let board = board.clone();
        Ok(Running {
            intake,
            journaler,
            executor,
            repairs,
            bulk,
            observer,
            board,
            epochs,
            watermarks,
            covered,
            compacts,
            starved_since: None,
        })
    }

    /// One poll of a part; frames that were let in are checked on the way.
    pub(crate) fn poll(&mut self, part: Part, now: Nanos, ever: &Ever, committed: Seq) -> Result<Turn, Wrong> {
        let work = match part {
            Part::Intake => {
                let work = self.intake.poll(now);
                self.observe(ever)?;
                if let Some(verdict) = self.intake.verdict() {
                    return Ok(Turn::Verdict(verdict.clone()));
                }
                work
            }
            Part::Journaler => self.journaler.poll(now),
            Part::Executor => match self.apply(now, committed)? {
                Turn::Work(work) => work,
                turn => return Ok(turn),
            },
            Part::Server => self.repairs.poll(now) + self.bulk.poll(now),
            Part::Housekeeping => {
                self.housekeeping(now);
                0
            }
        };
        match self.fault(now) {
            Some(fault) => Ok(Turn::Stops(fault)),
            None => Ok(Turn::Work(work)),
        }
    }

    fn observe(&mut self, ever: &Ever) -> Result<(), Wrong> {
        let mut wrong = Ok(());
        let drained = self.observer.drain(usize::MAX, |bytes| {
            if wrong.is_ok() {
                wrong = ever.check(bytes);
            }
        });
        drained.expect("the observer looks after every poll of the writer");
        wrong
    }

    fn apply(&mut self, now: Nanos, committed: Seq) -> Result<Turn, Wrong> {
        let work = match self.executor.poll(now) {
            Ok(work) => work,
            Err(ShadowError::Step(error)) => return Err(("replicas compute the same", error.to_string())),
            Err(error) => return Ok(Turn::Stops(format!("executor: {error}"))),
        };
        let machine = self.executor.machine();
        self.board.set(Figure::Applied, machine.applied().0);
        self.board.set(Figure::Snapshots, self.executor.counters().snapshots);
        if machine.applied() > committed {
            let what = format!("applied up to {}, committed is {committed}", machine.applied());
            return Err(("a replica applies only what is committed", what));
        }
        if work > 0 {
            machine.service().check().map_err(|violation| (violation.name, violation.detail))?;
        }
        Ok(Turn::Work(work))
    }

    fn housekeeping(&mut self, now: Nanos) {
        self.intake.housekeeping(now);
        if self.compacts {
            self.journaler.release_before(self.covered.get().next());
        }
        self.journaler.housekeeping(now);
        if self.journaler.starved().is_none() {
            self.starved_since = None;
        } else {
            self.starved_since.get_or_insert(now);
        }
    }

    fn fault(&self, now: Nanos) -> Option<String> {
        if let Some(error) = self.journaler.failed() {
            return Some(format!("journal: {error}"));
        }
        let since = self.starved_since?;
        (now.saturating_sub(since) >= SPACE_PATIENCE_NS).then(|| "journal: no space".to_string())
    }

    /// The state.
    pub(crate) fn machine(&self) -> &Machine<S> {
        self.executor.machine()
    }

    /// The first frame of the epoch that its log is in.
    pub(crate) fn epoch_began_at(&self) -> Option<Seq> {
        self.epochs.last_began()
    }

    /// The last frame that was let in.
    pub(crate) fn last(&self) -> Seq {
        self.intake.last()
    }

    /// Where it stands, for a timeline.
    pub(crate) fn standing(&self) -> Standing {
        let counters = self.intake.counters();
        let counter = |wanted| counters.iter().find(|(name, _)| *name == wanted).map_or(0, |&(_, times)| times);
        Standing {
            last: self.intake.last().0,
            epoch: self.epochs.last(),
            epoch_began_at: self.epochs.last_began().unwrap_or(Seq::ZERO).0,
            durable: self.watermarks.durable().0,
            applied: self.machine().applied().0,
            gaps: counter("gaps"),
            requests: counter("repair_requests"),
            repaired: counter("repaired"),
            given_up: counter("repairs_given_up"),
            bulk: counter("bulk_frames"),
            state: self.board.state(),
        }
    }

    pub(crate) fn count(&self, met: &mut impl FnMut(&'static str, u64)) {
        for (name, times) in self.intake.counters() {
            match name {
                "gaps" => met("gaps seen", times),
                "repair_requests" => met("repairs requested", times),
                "repaired" => met("packets repaired", times),
                "repairs_given_up" => met("repairs given up", times),
                "feed_beyond_window" => met("arbiter overruns", times),
                "feed_new_epoch" => met("feed went over to a new epoch", times),
                "feed_not_verified" => met("damaged frames refused", times),
                "bulk_frames" => met("frames caught up in bulk", times),
                _ => {}
            }
        }
        let repaired = self.repairs.repaired();
        met("repairs served", repaired.served);
        met("frames served in bulk", self.bulk.served().frames);
        met("snapshots served", self.bulk.served().snapshots);
        met("replica executors fell behind the ring", self.executor.counters().overruns);
        met("replica snapshots written", self.executor.counters().snapshots);
        let stats = self.journaler.journal().stats();
        met("replica segments rolled", stats.segments.saturating_sub(1));
    }
}

/// Makes the directory of a box that may be new.
pub(crate) fn make_dir<D: Disk>(disk: &mut D, config: &ReplicaConfig) -> Result<(), DiskError> {
    disk.run(Op::CreateDir { path: &config.dir }).map(|_| ())
}
