//! The feed's server: a thread beside the stages of a leader or a replica that repairs what others lost, brings them what they
//! missed, and tells them what is committed. One UDP port, and the TCP port of the same number.

use std::net::{SocketAddrV4, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use ticktape_core::{Nanos, Seq};
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, NicError, Rx, Tx, UdpConfig, UdpNic};
use ticktape_shm::{AttachError, Follower, Horizon, Tap, Watermarks};
use ticktape_tuning::{clock, pin};

use super::catchup::{CatchupServer, CatchupServerConfig, ServedRing};
use super::plan::StageName;
use super::stage::{Lifecycle, StageReport};
use crate::catchup::{EpochTable, ServeConfig};
use crate::feed::status::is_status;
use crate::feed::{FeedSession, LogHistory, Reporter, ReporterConfig, Rewinder, RewinderConfig};
use crate::replica::{Board, Committed, Figure, Identity};

/// Datagrams taken in one poll.
const BURST_MAX: usize = 64;

/// Between two polls that find nothing, while somebody follows: a repair is late by this, a commit by this and the reporter's
/// pace.
const REST: Duration = Duration::from_micros(50);

/// The same while nobody does.
const REST_ALONE: Duration = Duration::from_millis(1);

/// After somebody was last heard, it rests briefly for so long.
const HEARD_NS: u64 = 3_000_000_000;

/// How long the last commit is told at the end: a heartbeat, so that it is told twice.
const LAST_WORDS_NS: u64 = 25_000_000;

/// How long a stop waits for the last commit, and for replicas that miss something.
const STOP_PATIENCE_NS: u64 = 500_000_000;

/// A port of UDP and TCP alike is looked for so often, where any will do.
const PORT_TRIES: usize = 16;

/// Whose log is served.
#[derive(Clone)]
pub(super) enum Role {
    /// The leader's, in its one epoch.
    Leader {
        /// Which.
        epoch: u32,
    },
    /// A replica's, in whichever epoch its log is.
    Replica {
        /// Up to where.
        committed: Committed,
        /// Which epoch.
        board: Board,
    },
}

impl Role {
    /// Up to where it is committed, where the ring does not say.
    fn committed(&self) -> Option<Committed> {
        match self {
            Role::Leader { .. } => None,
            Role::Replica { committed, .. } => Some(committed.clone()),
        }
    }

    fn epoch(&self) -> u32 {
        match self {
            Role::Leader { epoch } => *epoch,
            Role::Replica { board, .. } => u32::try_from(board.get(Figure::Epoch)).unwrap_or(0),
        }
    }
}

/// A follower of a ring of this process, from wherever it begins or ends.
fn follow(tap: &Tap, horizon: Horizon) -> Result<Follower, AttachError> {
    match tap.follow(Seq::MAX, horizon) {
        Err(AttachError::NotYet { next }) => tap.follow(next, horizon),
        followed => followed,
    }
}

/// The last frame that a ring's writer has shown.
fn last_of(ring: &mut Follower) -> Seq {
    match ring.seek(Seq::MAX) {
        Err(AttachError::NotYet { next }) => Seq(next.0 - 1),
        _ => ring.sequenced_hint(),
    }
}

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
}

/// Runs a server until its lifecycle ends.
pub(super) fn run(seed: Seed) -> (StageName, Result<StageReport, String>) {
    // Without them it is only less considerate, or later.
    let _ = pin::keep_to(&seed.cores);
    let _ = pin::sleep_precisely();
    let lifecycle = seed.lifecycle.clone();
    let report = Server::new(seed).map(|mut server| {
        let mut last_words = None;
        while !lifecycle.failed() {
            let now = clock::monotonic_ns();
            if lifecycle.final_seq().is_some_and(|last| server.is_through(now, last, &mut last_words)) {
                break;
            }
            if server.poll(now) == 0 {
                std::thread::sleep(server.rest(now));
            }
        }
        server.report()
    });
    if let Err(error) = &report {
        lifecycle.fail(format!("feed server: {error}"));
    }
    (StageName::FeedServer, report.map_err(|error| error.to_string()))
}

/// The end of a server.
struct LastWords {
    stopping_at: Nanos,
    committed_at: Option<Nanos>,
}

struct Server {
    rx: UdpRx,
    tx: UdpTx,
    rewinder: Rewinder,
    history: LogHistory,
    bulk: Option<CatchupServer>,
    /// None before there is an epoch to speak for.
    reporter: Option<Reporter>,
    ring: Follower,
    watermarks: Watermarks,
    stream: u32,
    role: Role,
    commit: Seq,
    heard_at: Option<Nanos>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    statuses: u64,
    statuses_dropped: u64,
    commits: u64,
}

impl Server {
    fn new(seed: Seed) -> Result<Server, Box<dyn std::error::Error>> {
        let Seed {
            ports, dir, tap, watermarks, stream, datagram_bytes_max, role, service, epochs, log_id, cores, ..
        } = seed;
        // Whoever lost something on the feed was sent it: a leader keeps nothing back.
        let horizon = match &role {
            Role::Leader { .. } => Horizon::Sequenced,
            Role::Replica { .. } => Horizon::Committed,
        };
        let history = LogHistory::beside(Some(&dir), follow(&tap, horizon)?, horizon);
        let ring = follow(&tap, Horizon::Sequenced)?;
        let serve = ServeConfig::new(stream, service.name, service.schema_version);
        let bulk = CatchupServerConfig { log_id, cores, ..CatchupServerConfig::new(serve, dir, ServedRing::Here(tap)) };
        let (committed, marks) = (role.committed(), watermarks.clone());
        let commit = move || committed.as_ref().map_or_else(|| marks.commit(), Committed::get);
        let bulk = CatchupServer::start(ports.tcp, bulk, epochs, commit)?;
        let session = FeedSession::new(stream, role.epoch()).expect("checked with the configuration");
        let (rx, tx) = ports.udp.split();
        Ok(Server {
            rx,
            tx,
            rewinder: Rewinder::new(&RewinderConfig { datagram_bytes_max, ..RewinderConfig::new(session) }),
            history,
            bulk: Some(bulk),
            reporter: None,
            ring,
            watermarks,
            stream,
            role,
            commit: Seq::ZERO,
            heard_at: None,
            counters: Counters::default(),
        })
    }

    fn poll(&mut self, now: Nanos) -> usize {
        self.follow_epoch();
        let taken = self.answer(now);
        if taken > 0 {
            self.heard_at = Some(now);
        }
        let told = self.tell(now);
        if let Role::Replica { board, .. } = &self.role {
            board.set(Figure::Served, self.rewinder.counters().served);
        }
        if self.tx.queued() > 0 {
            self.tx.flush();
        }
        taken + told
    }

    /// Serves the epoch that the log is in.
    fn follow_epoch(&mut self) {
        let epoch = self.role.epoch();
        if epoch > self.rewinder.session().epoch() || self.reporter.is_none() && epoch > 0 {
            self.rewinder.adopt_session(epoch);
            self.note_reporter();
            // Whoever follows says so again within a heartbeat.
            self.reporter = Some(Reporter::new(&ReporterConfig::new(self.stream, u64::from(epoch))));
            self.commit = Seq::ZERO;
        }
    }

    fn answer(&mut self, now: Nanos) -> usize {
        let Server { rx, tx, rewinder, history, reporter, .. } = self;
        rx.poll(now, BURST_MAX, |datagram| {
            if !is_status(datagram.payload) {
                rewinder.on_request(now, datagram.source, datagram.payload, history, tx);
            } else if let Some(reporter) = reporter {
                // What is not taken is counted by the reporter.
                let _ = reporter.on_status(now, datagram.source, datagram.payload);
            }
        })
    }

    fn tell(&mut self, now: Nanos) -> usize {
        self.commit = self.commit.max(match &self.role {
            Role::Leader { .. } if self.watermarks.commit() == Seq::MAX => last_of(&mut self.ring),
            Role::Leader { .. } => self.watermarks.commit(),
            Role::Replica { committed, .. } => committed.get(),
        });
        let Some(reporter) = &mut self.reporter else { return 0 };
        reporter.set_commit(self.commit);
        let mut told = 0;
        while self.tx.reserve().is_some() {
            let Some((to, commit)) = reporter.poll_transmit(now) else { break };
            if let Some(slot) = self.tx.reserve() {
                slot[..commit.len()].copy_from_slice(&commit);
                self.tx.commit(commit.len(), to);
            }
            told += 1;
        }
        told
    }

    fn rest(&self, now: Nanos) -> Duration {
        match self.heard_at {
            Some(at) if now.saturating_sub(at) < HEARD_NS => REST,
            _ => REST_ALONE,
        }
    }

    /// In a graceful stop: whether the last commit has been told for as long as a heartbeat and every replica that is heard of has
    /// all of the log, or they were waited for long enough.
    fn is_through(&self, now: Nanos, last: Seq, since: &mut Option<LastWords>) -> bool {
        let words = since.get_or_insert(LastWords { stopping_at: now, committed_at: None });
        if self.commit >= last {
            words.committed_at.get_or_insert(now);
        }
        let told = words.committed_at.is_some_and(|at| now.saturating_sub(at) >= LAST_WORDS_NS);
        let mut followed = self.reporter.iter().flat_map(Reporter::followed);
        let all_have_it = followed.all(|replica| replica.status.durable >= last);
        told && all_have_it || now.saturating_sub(words.stopping_at) >= STOP_PATIENCE_NS
    }

    fn note_reporter(&mut self) {
        let Some(reporter) = &self.reporter else { return };
        let counters = reporter.counters();
        self.counters.statuses += counters.statuses;
        self.counters.statuses_dropped += counters.drops.iter().sum::<u64>();
        self.counters.commits += counters.commits;
    }

    fn report(mut self) -> StageReport {
        self.note_reporter();
        let bulk = self.bulk.take().map(CatchupServer::stop).unwrap_or_default();
        let served = self.rewinder.counters();
        let mut report = StageReport::default();
        report.counters.extend([
            ("repair_requests", served.requests),
            ("repairs_served", served.served),
            ("repaired_messages", served.messages),
            ("repairs_too_old", served.too_old),
            ("repairs_not_yet", served.not_yet),
            ("repairs_malformed", served.malformed.iter().sum()),
            ("repairs_foreign", served.foreign),
            ("repairs_other_epoch", served.other_epoch),
            ("repairs_limited", served.limited + served.limited_in_all),
            ("repairs_blocked", served.blocked),
            ("repairs_busy", served.busy),
            ("repairs_failed", served.failed),
            ("statuses", self.counters.statuses),
            ("statuses_dropped", self.counters.statuses_dropped),
            ("commits_told", self.counters.commits),
            ("catch_ups", bulk.clients),
            ("catch_up_frames", bulk.served.frames),
            ("catch_up_snapshots", bulk.served.snapshots),
            ("catch_up_bytes", bulk.served.bytes),
            ("catch_ups_dropped", bulk.ended.iter().skip(1).sum()),
        ]);
        report
    }
}
