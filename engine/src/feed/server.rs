//! The repair server: answers who lost something of the log, hears how far replicas are, and tells them what is committed.
//!
//! Order of a poll: look how far the log is committed, go over to its epoch, answer what was asked, tell what is committed.
//! Invariant: what is served or said to be committed in an epoch is of no later one. A replica's log may come to another epoch at any
//! time, and its committed prefix grows after that: so the prefix is looked at first, and nothing beyond it goes out in this poll.

use std::path::Path;

use ticktape_core::{Nanos, Seq};
use ticktape_journal::{Disk, FileDisk};
use ticktape_nic::{Rx, Tx};
use ticktape_shm::{AttachError, Follower, Horizon, Tap, Watermarks};

use super::history::HistoryUpTo;
use super::history_log::LogHistory;
use super::rewinder::{Rewinder, RewinderConfig, RewinderCounters};
use super::session::FeedSession;
use super::status::{Status, is_status};
use super::status_reporter::{Followed, Reporter, ReporterConfig, StatusDrop, Twins};
use crate::catchup::EpochTable;
use crate::payload::Reign;
use crate::replica::{Board, Committed, Figure};

/// Datagrams taken in one poll.
const BURST_MAX: usize = 64;

/// How long the last commit is told at the end: a heartbeat, so that it is told twice.
const LAST_WORDS_NS: u64 = 25_000_000;

/// How long a stop waits for the last commit where no replica is heard, in ns.
const COMMIT_PATIENCE_NS: u64 = 500_000_000;

/// A stop does not wait for a replica that said nothing for so long, in ns: 50 of its heartbeats. One that was held up for half a second is
/// back by then.
const REPLICA_SILENCE_NS: u64 = 1_000_000_000;

/// How long a stop waits for replicas that it hears, in ns: for the last commit to tell them, as a busy disk may take its time with it, and
/// for what they miss of it: on a busy box they have to notice, ask, and sync.
pub(crate) const STOP_PATIENCE_NS: u64 = 2_000_000_000;

/// Whose log is served.
#[derive(Clone)]
pub enum Role {
    /// The leader's, in its one reign.
    Leader {
        /// Which.
        reign: Reign,
    },
    /// A replica's, in whichever epoch its log is.
    Replica {
        /// Up to where.
        committed: Committed,
        /// Which epoch.
        epochs: EpochTable,
        /// Where it shows what it served.
        board: Board,
    },
}

impl Role {
    /// Up to where it is committed, where the ring does not say.
    pub fn committed(&self) -> Option<Committed> {
        match self {
            Role::Leader { .. } => None,
            Role::Replica { committed, .. } => Some(committed.clone()),
        }
    }

    fn reign(&self) -> Reign {
        match self {
            Role::Leader { reign } => *reign,
            Role::Replica { epochs, .. } => epochs.last_reign(),
        }
    }

    /// Whoever lost something on the feed was sent it: a leader keeps nothing back.
    fn horizon(&self) -> Horizon {
        match self {
            Role::Leader { .. } => Horizon::Sequenced,
            Role::Replica { .. } => Horizon::Committed,
        }
    }
}

/// What a repair server serves.
pub struct RepairServerConfig<'a> {
    /// The journal's directory.
    pub dir: &'a Path,
    /// The log's ring.
    pub tap: &'a Tap,
    /// How far that is durable and committed.
    pub watermarks: Watermarks,
    /// Which stream, as in the feed's session.
    pub stream: u32,
    /// The log's identity; 0 where it has none.
    pub log_id: u64,
    /// The largest datagram.
    pub datagram_bytes_max: usize,
    /// Whose log it is.
    pub role: Role,
}

/// What a repair server did beside repairing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairServerCounters {
    /// Statuses of replicas that were taken.
    pub statuses: u64,
    /// Those that were not.
    pub statuses_dropped: u64,
    /// Those of them whose replica is heard from another address.
    pub statuses_of_twins: u64,
    /// Commits that were told.
    pub commits: u64,
}

/// The end of a server.
struct LastWords {
    stopping_at: Nanos,
    committed_at: Option<Nanos>,
}

/// The rewinder and the reporter of one log, on one port.
pub struct RepairServer<R: Rx, T: Tx, D: Disk = FileDisk> {
    rx: R,
    tx: T,
    rewinder: Rewinder,
    history: LogHistory<D>,
    /// None before there is an epoch to speak for.
    reporter: Option<Reporter>,
    ring: Follower,
    watermarks: Watermarks,
    stream: u32,
    log_id: u64,
    role: Role,
    commit: Seq,
    heard_at: Option<Nanos>,
    last_words: Option<LastWords>,
    counters: RepairServerCounters,
}

impl<R: Rx, T: Tx, D: Disk> RepairServer<R, T, D> {
    /// A server on a port's two halves; `open` opens a disk for each reader of the journal.
    ///
    /// # Errors
    /// [`AttachError`]: the ring can't be followed.
    ///
    /// # Panics
    /// For a stream or an epoch that no session can name.
    pub fn new(
        config: RepairServerConfig<'_>,
        (rx, tx): (R, T),
        open: impl Fn() -> D + Send + 'static,
    ) -> Result<Self, AttachError> {
        let RepairServerConfig { dir, tap, watermarks, stream, log_id, datagram_bytes_max, role } = config;
        let horizon = role.horizon();
        let session = FeedSession::new(stream, epoch_of(role.reign())).expect("checked with the configuration");
        Ok(RepairServer {
            rx,
            tx,
            rewinder: Rewinder::new(&RewinderConfig { datagram_bytes_max, ..RewinderConfig::new(session) }),
            history: LogHistory::beside_on(dir, open, follow(tap, horizon)?, horizon),
            reporter: None,
            ring: follow(tap, Horizon::Sequenced)?,
            watermarks,
            stream,
            log_id,
            role,
            commit: Seq::ZERO,
            heard_at: None,
            last_words: None,
            counters: RepairServerCounters::default(),
        })
    }

    /// One duty cycle; returns the datagrams taken and commits told.
    pub fn poll(&mut self, now: Nanos) -> usize {
        let commit = self.look();
        self.follow_epoch();
        self.commit = self.commit.max(commit);
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

    /// Up to where the log is committed.
    fn look(&mut self) -> Seq {
        match &self.role {
            Role::Leader { .. } if self.watermarks.commit() == Seq::MAX => last_of(&mut self.ring),
            Role::Leader { .. } => self.watermarks.commit(),
            Role::Replica { committed, .. } => committed.get(),
        }
    }

    /// Serves the epoch that the log is in.
    fn follow_epoch(&mut self) {
        let reign = self.role.reign();
        let epoch = epoch_of(reign);
        if epoch > self.rewinder.session().epoch() || self.reporter.is_none() && epoch > 0 {
            self.rewinder.adopt_session(epoch);
            self.counters = self.counters();
            // Whoever follows says so again within a heartbeat.
            let config = ReporterConfig::new(self.stream, reign);
            self.reporter = Some(Reporter::new(&ReporterConfig { log_id: self.log_id, ..config }));
            self.commit = Seq::ZERO;
        }
    }

    fn answer(&mut self, now: Nanos) -> usize {
        let RepairServer { rx, tx, rewinder, history, reporter, role, commit, .. } = self;
        let last = match role {
            Role::Leader { .. } => Seq::MAX,
            Role::Replica { .. } => *commit,
        };
        let mut history = HistoryUpTo { history, last };
        rx.poll(now, BURST_MAX, |datagram| {
            if !is_status(datagram.payload) {
                rewinder.on_request(now, datagram.source, datagram.payload, &mut history, tx);
            } else if let Some(reporter) = reporter {
                // What is not taken is counted by the reporter.
                let _ = reporter.on_status(now, datagram.source, datagram.payload);
            }
        })
    }

    fn tell(&mut self, now: Nanos) -> usize {
        let Some(reporter) = &mut self.reporter else { return 0 };
        reporter.set_commit(self.commit);
        reporter.set_age(match &self.role {
            Role::Leader { .. } if self.last_words.is_none() => 0,
            // Whoever comes after it is another one.
            Role::Leader { .. } => u16::MAX,
            Role::Replica { committed, .. } => {
                let age_ms = now.saturating_sub(committed.leader_spoke_at()) / 1_000_000;
                u16::try_from(age_ms).unwrap_or(u16::MAX)
            }
        });
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

    /// When somebody was last heard.
    pub fn heard_at(&self) -> Option<Nanos> {
        self.heard_at
    }

    /// In a graceful stop: whether the last commit has been told for as long as a heartbeat and every replica that is heard of has
    /// all of the log, or they were waited for long enough.
    pub fn is_through(&mut self, now: Nanos, last: Seq) -> bool {
        let words = self.last_words.get_or_insert(LastWords { stopping_at: now, committed_at: None });
        if self.commit >= last {
            words.committed_at.get_or_insert(now);
        }
        let waited_ns = now.saturating_sub(words.stopping_at);
        let is_heard = |replica: &&Followed| now.saturating_sub(replica.heard_at) < REPLICA_SILENCE_NS;
        let mut heard = self.reporter.iter().flat_map(Reporter::followed).filter(is_heard);
        let is_done = match words.committed_at {
            Some(at) => now.saturating_sub(at) >= LAST_WORDS_NS && heard.all(|replica| replica.status.durable >= last),
            None => waited_ns >= COMMIT_PATIENCE_NS && heard.next().is_none(),
        };
        is_done || waited_ns >= STOP_PATIENCE_NS
    }

    /// Replicas that were heard of, and lack something of the log that ends with `last`: each in a line.
    pub fn left_behind(&self, last: Seq) -> Vec<String> {
        let behind = self.followed().iter().filter(|replica| replica.status.durable < last);
        let line = |replica: &Followed| {
            let (address, Status { replica, durable, .. }) = (replica.address, replica.status);
            format!(
                "replica {replica:016x} at {address} was left behind at seq {durable} of {last}: it fetches the rest from whoever leads next"
            )
        };
        behind.map(line).collect()
    }

    /// Two replicas that have one number, in a line.
    pub fn twins(&self) -> Option<String> {
        self.reporter.as_ref().and_then(Reporter::twins).map(Twins::to_string)
    }

    /// Who follows, and how far each is.
    pub fn followed(&self) -> &[Followed] {
        self.reporter.as_ref().map_or(&[], Reporter::followed)
    }

    /// What was repaired.
    pub fn repaired(&self) -> RewinderCounters {
        self.rewinder.counters()
    }

    /// What it did beside.
    pub fn counters(&self) -> RepairServerCounters {
        let mut all = self.counters;
        if let Some(reporter) = &self.reporter {
            let counters = reporter.counters();
            all.statuses += counters.statuses;
            all.statuses_dropped += counters.drops.iter().sum::<u64>();
            all.statuses_of_twins += counters.drops[StatusDrop::Twin.index()];
            all.commits += counters.commits;
        }
        all
    }
}

/// A reign's epoch, where a session can name it; else 0.
fn epoch_of(reign: Reign) -> u32 {
    u32::try_from(reign.epoch).unwrap_or(0)
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

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
