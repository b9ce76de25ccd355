//! The leader's side of Status and Commit: who follows, how far each is, and what each is to be told.
//!
//! Order of a duty cycle: statuses in, the commit watermark in, Commits out. Pure: the wiring owns the socket.
//!
//! Invariant: no Commit says more than the watermark that was set last.
//! Invariant: the table is bounded; who is silent for too long leaves it, and a newcomer to a full one is refused.

use std::fmt;
use std::net::SocketAddrV4;

use ticktape_core::{Nanos, Seq};

use super::status::{COMMIT_BYTES, Commit, Status, StatusError, are_other_logs};
use crate::payload::Reign;

/// A replica that was heard within so long, in ns, is where it was: some heartbeats, less than another start of it takes.
const HEARD_NS: u64 = 100_000_000;

/// How a leader reports.
#[derive(Clone, Copy, Debug)]
pub struct ReporterConfig {
    /// Which stream, as in the feed's session.
    pub stream: u32,
    /// The leader's reign.
    pub reign: Reign,
    /// The identity of its log; 0 where it has none.
    pub log_id: u64,
    /// The most replicas that are told. Each costs a datagram for every `coalesce_ns`.
    pub replicas_max: usize,
    /// A moved watermark is told at most this often. Shorter costs datagrams, longer is latency at the replicas.
    pub coalesce_ns: u64,
    /// A watermark that stands still is told at least this often.
    pub heartbeat_ns: u64,
    /// A replica from which nothing came for so long is told nothing more.
    pub silence_ns: u64,
}

impl ReporterConfig {
    /// As the design has it: told within 100 µs, every 20 ms in any case, forgotten after 3 s; 16 replicas.
    pub fn new(stream: u32, reign: Reign) -> Self {
        ReporterConfig {
            stream,
            reign,
            log_id: 0,
            replicas_max: 16,
            coalesce_ns: 100_000,
            heartbeat_ns: 20_000_000,
            silence_ns: 3_000_000_000,
        }
    }
}

/// Why a Status was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusDrop {
    /// It is no Status.
    Malformed(StatusError),
    /// Of another stream.
    ForeignStream,
    /// Of another log: who sent it is told so, by a Commit that names this one.
    ForeignLog,
    /// Of this log and this leader's epoch, and of another reign: it followed another copy of the log. It is told as well.
    OtherHistory,
    /// Of a higher epoch than this leader's: there is another, newer one.
    HigherEpoch,
    /// Overtaken by a later one of the same replica.
    Stale,
    /// Of a replica that is heard from another address: a copy of its directory was started beside it. It is told what is committed.
    Twin,
    /// There is no room for one more replica.
    TooMany,
}

impl StatusDrop {
    /// How many reasons there are.
    pub const COUNT: usize = StatusError::ALL.len() + Self::OTHERS.len();

    const OTHERS: [StatusDrop; 7] = [
        StatusDrop::ForeignStream,
        StatusDrop::ForeignLog,
        StatusDrop::OtherHistory,
        StatusDrop::HigherEpoch,
        StatusDrop::Stale,
        StatusDrop::Twin,
        StatusDrop::TooMany,
    ];

    /// Every reason, in index order.
    pub fn all() -> impl Iterator<Item = StatusDrop> {
        StatusError::ALL.into_iter().map(StatusDrop::Malformed).chain(StatusDrop::OTHERS)
    }

    /// Its place in [`StatusDrop::all`].
    pub const fn index(self) -> usize {
        let other = match self {
            StatusDrop::Malformed(error) => return error.index(),
            StatusDrop::ForeignStream => 0,
            StatusDrop::ForeignLog => 1,
            StatusDrop::OtherHistory => 2,
            StatusDrop::HigherEpoch => 3,
            StatusDrop::Stale => 4,
            StatusDrop::Twin => 5,
            StatusDrop::TooMany => 6,
        };
        StatusError::ALL.len() + other
    }

    /// A short name for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            StatusDrop::Malformed(error) => error.name(),
            StatusDrop::ForeignStream => "foreign_stream",
            StatusDrop::ForeignLog => "foreign_log",
            StatusDrop::OtherHistory => "other_history",
            StatusDrop::HigherEpoch => "higher_epoch",
            StatusDrop::Stale => "stale",
            StatusDrop::Twin => "twin",
            StatusDrop::TooMany => "too_many_replicas",
        }
    }
}

/// What a reporter did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReporterCounters {
    /// Statuses that were taken.
    pub statuses: u64,
    /// Commits that were handed out.
    pub commits: u64,
    /// Replicas that were forgotten because they were silent.
    pub silent: u64,
    /// Statuses that were dropped, by [`StatusDrop::index`].
    pub drops: [u64; StatusDrop::COUNT],
}

impl Default for ReporterCounters {
    fn default() -> Self {
        ReporterCounters { statuses: 0, commits: 0, silent: 0, drops: [0; StatusDrop::COUNT] }
    }
}

/// What is known of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Where its last Status came from, and Commits go to.
    pub address: SocketAddrV4,
    /// Its last Status.
    pub status: Status,
    /// When that came.
    pub heard_at: Nanos,
    told_at: Nanos,
    /// `None` before it was told anything.
    told: Option<Seq>,
}

/// Two replicas that have one number, as of two copies of one directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twins {
    /// Their number.
    pub replica: u64,
    /// The one that is followed, and the last other one.
    pub addresses: [SocketAddrV4; 2],
    /// When the other one was heard first, and last.
    heard_at: [Nanos; 2],
}

impl fmt::Display for Twins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Twins { replica, addresses: [one, other], .. } = self;
        write!(
            f,
            "replica {replica:016x} is at {one} and at {other}: the directory of one is a copy of the other's; both follow, one of them is \
             counted. Start the copy once more in an empty directory"
        )
    }
}

/// A leader's table of its replicas.
#[derive(Debug)]
pub struct Reporter {
    config: ReporterConfig,
    commit: Seq,
    age_ms: u16,
    followed: Vec<Followed>,
    /// Who follows another log, or another history of it, and has to hear of it, or has another's number: one at a time, as each says so again.
    stranger: Option<SocketAddrV4>,
    twins: Option<Twins>,
    /// Where the last look for something to tell ended, so that each has its turn.
    turn: usize,
    superseded_by: Option<u64>,
    counters: ReporterCounters,
}

impl Reporter {
    /// A table of nobody. Allocates here, and nothing later.
    ///
    /// # Panics
    /// For an epoch of 0, or a table without room.
    pub fn new(config: &ReporterConfig) -> Self {
        assert!(config.reign.epoch > 0 && config.replicas_max > 0, "an epoch, and room for a replica");
        Reporter {
            config: *config,
            commit: Seq::ZERO,
            age_ms: 0,
            followed: Vec::with_capacity(config.replicas_max),
            stranger: None,
            twins: None,
            turn: 0,
            superseded_by: None,
            counters: ReporterCounters::default(),
        }
    }

    /// A datagram for which [`is_status`](super::status::is_status) holds came from `source`.
    ///
    /// # Errors
    /// [`StatusDrop`], counted.
    pub fn on_status(&mut self, now: Nanos, source: SocketAddrV4, datagram: &[u8]) -> Result<Status, StatusDrop> {
        let taken = self.take(now, source, datagram);
        match taken {
            Ok(_) => self.counters.statuses += 1,
            Err(reason) => self.counters.drops[reason.index()] += 1,
        }
        taken
    }

    fn take(&mut self, now: Nanos, source: SocketAddrV4, datagram: &[u8]) -> Result<Status, StatusDrop> {
        let status = Status::decode(datagram).map_err(StatusDrop::Malformed)?;
        if status.stream != self.config.stream {
            return Err(StatusDrop::ForeignStream);
        }
        if are_other_logs(status.log_id, self.config.log_id) {
            self.stranger = Some(source);
            return Err(StatusDrop::ForeignLog);
        }
        if status.reign.is_other(self.config.reign) {
            self.stranger = Some(source);
            return Err(StatusDrop::OtherHistory);
        }
        if status.reign.epoch > self.config.reign.epoch {
            self.superseded_by = self.superseded_by.max(Some(status.reign.epoch));
            return Err(StatusDrop::HigherEpoch);
        }
        if let Some(known) = self.followed.iter_mut().find(|known| known.status.replica == status.replica) {
            if known.address != source && now < known.heard_at.saturating_add(HEARD_NS) {
                let addresses = [known.address, source];
                let before = self.twins.filter(|twins| twins.addresses == addresses);
                let since = before.map_or(now, |twins| twins.heard_at[0]);
                self.twins = Some(Twins { replica: status.replica, addresses, heard_at: [since, now] });
                self.stranger = Some(source);
                return Err(StatusDrop::Twin);
            }
            if status.number <= known.status.number {
                return Err(StatusDrop::Stale);
            }
            if known.address != source {
                // Nobody there was told anything.
                known.told = None;
            }
            (known.address, known.status, known.heard_at) = (source, status, now);
            return Ok(status);
        }
        if self.followed.len() == self.config.replicas_max {
            self.forget_silent(now);
        }
        if self.followed.len() == self.config.replicas_max {
            return Err(StatusDrop::TooMany);
        }
        self.followed.push(Followed { address: source, status, heard_at: now, told_at: 0, told: None });
        Ok(status)
    }

    /// Everything up to `commit` is committed in this epoch. Where commit = sequenced: what was sequenced.
    ///
    /// # Panics
    /// Where it would move backwards.
    pub fn set_commit(&mut self, commit: Seq) {
        assert!(commit >= self.commit, "commit moves from {} back to {commit}", self.commit);
        self.commit = commit;
    }

    /// The leader spoke so long ago, in ms: 0, unless it is a replica that reports.
    pub fn set_age(&mut self, age_ms: u16) {
        self.age_ms = age_ms;
    }

    /// The next Commit to send, and to whom; call until there is none.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<(SocketAddrV4, [u8; COMMIT_BYTES])> {
        self.forget_silent(now);
        let ReporterConfig { stream, reign, log_id, .. } = self.config;
        let commit = self.commit;
        let word = Commit { stream, reign, log_id, age_ms: self.age_ms, commit }.encode();
        if let Some(stranger) = self.stranger.take() {
            self.counters.commits += 1;
            return Some((stranger, word));
        }
        let due = (0..self.followed.len())
            .map(|step| (self.turn + step) % self.followed.len())
            .find(|&at| now >= due_at(&self.followed[at], commit, &self.config))?;
        let known = &mut self.followed[due];
        (known.told, known.told_at) = (Some(commit), now);
        self.turn = due + 1;
        self.counters.commits += 1;
        Some((known.address, word))
    }

    /// When [`Reporter::poll_transmit`] has something to do, if nothing happens before; `None` where nobody follows.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        if self.stranger.is_some() {
            return Some(0);
        }
        let silence_ns = self.config.silence_ns;
        let at =
            |known: &Followed| due_at(known, self.commit, &self.config).min(known.heard_at.saturating_add(silence_ns));
        self.followed.iter().map(at).min()
    }

    fn forget_silent(&mut self, now: Nanos) {
        let before = self.followed.len();
        let silence_ns = self.config.silence_ns;
        self.followed.retain(|known| now < known.heard_at.saturating_add(silence_ns));
        self.counters.silent += (before - self.followed.len()) as u64;
    }

    /// Who follows at the moment.
    pub fn followed(&self) -> &[Followed] {
        &self.followed
    }

    /// The highest epoch above its own that a replica has named: this leader's reign is over.
    pub fn superseded_by(&self) -> Option<u64> {
        self.superseded_by
    }

    /// Two replicas of one number, where the second was heard for longer than one that only moved is.
    pub fn twins(&self) -> Option<&Twins> {
        self.twins.as_ref().filter(|twins| twins.heard_at[1].saturating_sub(twins.heard_at[0]) > HEARD_NS)
    }

    /// What it did.
    pub fn counters(&self) -> &ReporterCounters {
        &self.counters
    }
}

/// When a replica is to be told the watermark.
fn due_at(known: &Followed, commit: Seq, config: &ReporterConfig) -> Nanos {
    match known.told {
        None => 0,
        Some(told) if told < commit => known.told_at.saturating_add(config.coalesce_ns),
        Some(_) => known.told_at.saturating_add(config.heartbeat_ns),
    }
}
