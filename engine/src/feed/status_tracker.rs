//! The replica's side of Status and Commit: up to where it may act on its log, and what it tells the leader.
//!
//! Invariant: what is committed here is the lesser of the leader's word and the replica's own verified prefix, and only grows
//! within an epoch.
//! Invariant: a leader's word counts only for the log of its own epoch: the replica's log must have come to it.
//! Invariant: a leader's word counts only for its own log and its own history of it, and for what came while it was alive to say so.
//! Invariant: after a higher epoch was heard of, lower ones are not believed, for as long as it goes on to be heard.

use ticktape_core::{Nanos, Seq};

use super::status::{Commit, STATUS_BYTES, Status, StatusError, are_other_logs};
use crate::payload::Reign;

/// How a replica tracks commits and reports.
#[derive(Clone, Copy, Debug)]
pub struct TrackerConfig {
    /// Which stream, as in the feed's session.
    pub stream: u32,
    /// The replica's own number, kept over its restarts; not 0.
    pub replica: u64,
    /// Statuses are numbered from here on: above all that this replica sent before, such as the wall clock in nanoseconds.
    pub first_number: u64,
    /// The reign that the replica's log is in; of epoch 0 before it has one.
    pub reign: Reign,
    /// The identity of the replica's log; 0 where it has none.
    pub log_id: u64,
    /// What was known to be committed before, from a snapshot, or what a catch-up said.
    pub committed: Seq,
    /// A prefix that moved is told at most this often.
    pub coalesce_ns: u64,
    /// One that stands still is told at least this often; the leader forgets who is silent.
    pub heartbeat_ns: u64,
    /// A leader that said nothing for so long is reported silent.
    pub silence_ns: u64,
    /// A word covers what comes within so long after it: some heartbeats of a leader, less than a new one takes to begin.
    pub fresh_ns: u64,
}

impl TrackerConfig {
    /// Told within 100 µs, every 20 ms in any case; a leader is silent after 1 s, and its word covers what comes within 50 ms.
    pub fn new(stream: u32, replica: u64, first_number: u64) -> Self {
        TrackerConfig {
            stream,
            replica,
            first_number,
            reign: Reign::default(),
            log_id: 0,
            committed: Seq::ZERO,
            coalesce_ns: 100_000,
            heartbeat_ns: 20_000_000,
            silence_ns: 1_000_000_000,
            fresh_ns: 50_000_000,
        }
    }
}

/// Why a Commit was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommitDrop {
    /// It is no Commit.
    Malformed(StatusError),
    /// Of another stream.
    ForeignStream,
    /// Of another log.
    ForeignLog {
        /// Which.
        log_id: u64,
    },
    /// Of this log and its epoch, and of another reign: an older copy of the log was started, and goes on by itself.
    OtherHistory {
        /// Which reign.
        reign: Reign,
    },
    /// Of a reign that is over.
    StaleEpoch,
    /// Overtaken by a later one.
    Stale {
        /// Of the same epoch.
        epoch: u64,
    },
}

impl CommitDrop {
    /// How many reasons there are.
    pub const COUNT: usize = StatusError::ALL.len() + Self::OTHERS.len();

    const OTHERS: [CommitDrop; 5] = [
        CommitDrop::ForeignStream,
        CommitDrop::ForeignLog { log_id: 0 },
        CommitDrop::OtherHistory { reign: Reign::unnamed(0) },
        CommitDrop::StaleEpoch,
        CommitDrop::Stale { epoch: 0 },
    ];

    /// Every reason, in index order.
    pub fn all() -> impl Iterator<Item = CommitDrop> {
        StatusError::ALL.into_iter().map(CommitDrop::Malformed).chain(CommitDrop::OTHERS)
    }

    /// Its place in [`CommitDrop::all`].
    pub const fn index(self) -> usize {
        let other = match self {
            CommitDrop::Malformed(error) => return error.index(),
            CommitDrop::ForeignStream => 0,
            CommitDrop::ForeignLog { .. } => 1,
            CommitDrop::OtherHistory { .. } => 2,
            CommitDrop::StaleEpoch => 3,
            CommitDrop::Stale { .. } => 4,
        };
        StatusError::ALL.len() + other
    }

    /// A short name for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            CommitDrop::Malformed(error) => error.name(),
            CommitDrop::ForeignStream => "foreign_stream",
            CommitDrop::ForeignLog { .. } => "foreign_log",
            CommitDrop::OtherHistory { .. } => "other_history",
            CommitDrop::StaleEpoch => "stale_epoch",
            CommitDrop::Stale { .. } => "stale",
        }
    }
}

/// What a tracker did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackerCounters {
    /// Commits that were taken.
    pub commits: u64,
    /// Statuses that were handed out.
    pub statuses: u64,
    /// Commits that were dropped, by [`CommitDrop::index`].
    pub drops: [u64; CommitDrop::COUNT],
}

impl Default for TrackerCounters {
    fn default() -> Self {
        TrackerCounters { commits: 0, statuses: 0, drops: [0; CommitDrop::COUNT] }
    }
}

/// The new epoch takes back what this replica was told was committed, which only tier `memory` allows: its state is of a log that
/// is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenBack {
    /// From here on.
    pub from: Seq,
    /// Up to here it was committed.
    pub committed: Seq,
}

#[derive(Clone, Copy, Debug)]
struct Word {
    reign: Reign,
    commit: Seq,
    /// When anything was heard of that reign.
    heard_at: Nanos,
    /// When the word itself was said last.
    said_at: Nanos,
}

impl Word {
    const fn new(now: Nanos, reign: Reign, commit: Seq) -> Self {
        Word { reign, commit, heard_at: now, said_at: now }
    }
}

/// Knows up to where a replica's log is committed. Whoever can send it datagrams can lie to it: the wiring hands it those of the
/// leader's address alone.
#[derive(Debug)]
pub struct CommitTracker {
    config: TrackerConfig,
    /// The reign that the log is in.
    reign: Reign,
    /// The leader's word of the highest epoch that was heard.
    word: Option<Word>,
    /// The last frame that is in the log, in order and verified.
    verified: Seq,
    durable: Seq,
    applied: Seq,
    committed: Seq,
    number: u64,
    told: Option<(Seq, Seq, u64)>,
    told_at: Nanos,
    heard_at: Option<Nanos>,
    leader_spoke_at: Option<Nanos>,
    counters: TrackerCounters,
}

impl CommitTracker {
    /// A tracker of a log that is verified up to what is committed.
    ///
    /// # Panics
    /// For a replica of number 0.
    pub fn new(config: &TrackerConfig) -> Self {
        assert!(config.replica != 0, "a replica has a number");
        CommitTracker {
            config: *config,
            reign: config.reign,
            word: None,
            verified: config.committed,
            durable: Seq::ZERO,
            applied: Seq::ZERO,
            committed: config.committed,
            number: config.first_number,
            told: None,
            told_at: 0,
            heard_at: None,
            leader_spoke_at: None,
            counters: TrackerCounters::default(),
        }
    }

    /// A datagram came from the leader.
    ///
    /// # Errors
    /// [`CommitDrop`], counted.
    pub fn on_commit(&mut self, now: Nanos, datagram: &[u8]) -> Result<Commit, CommitDrop> {
        let taken = Commit::decode(datagram).map_err(CommitDrop::Malformed).and_then(|commit| self.take(now, commit));
        match taken {
            Ok(_) => self.counters.commits += 1,
            Err(reason) => self.counters.drops[reason.index()] += 1,
        }
        taken
    }

    /// The word of somebody who has the log, over a connection: at the end of a catch-up. It takes the place of whatever datagrams
    /// said, higher or lower: who can send one can lie, and what is true of it is told again within a heartbeat.
    ///
    /// # Errors
    /// [`CommitDrop::StaleEpoch`], [`CommitDrop::OtherHistory`]; not counted.
    pub fn on_log_word(&mut self, now: Nanos, reign: Reign, commit: Seq) -> Result<(), CommitDrop> {
        if reign.is_other(self.reign) {
            return Err(CommitDrop::OtherHistory { reign });
        }
        if reign.epoch < self.reign.epoch {
            return Err(CommitDrop::StaleEpoch);
        }
        self.heard_at = Some(now);
        self.word = Some(Word::new(now, reign, commit));
        self.advance();
        Ok(())
    }

    fn take(&mut self, now: Nanos, commit: Commit) -> Result<Commit, CommitDrop> {
        if commit.stream != self.config.stream {
            return Err(CommitDrop::ForeignStream);
        }
        if are_other_logs(commit.log_id, self.config.log_id) {
            return Err(CommitDrop::ForeignLog { log_id: commit.log_id });
        }
        if commit.reign.is_other(self.reign) {
            return Err(CommitDrop::OtherHistory { reign: commit.reign });
        }
        let (epoch, here) = (commit.reign.epoch, self.reign.epoch);
        if epoch >= here {
            let spoke_at = now.saturating_sub(u64::from(commit.age_ms) * 1_000_000);
            self.leader_spoke_at = self.leader_spoke_at.max(Some(spoke_at));
        }
        // A reign that was heard of once and never again, and that the log has not come to, may have been a mistake.
        let silence_ns = self.config.silence_ns;
        let is_over = |word: &Word| word.reign.epoch > here && now >= word.heard_at.saturating_add(silence_ns);
        self.word = self.word.filter(|word| !is_over(word));
        if epoch < self.word.map_or(here, |word| word.reign.epoch.max(here)) {
            return Err(CommitDrop::StaleEpoch);
        }
        self.heard_at = Some(now);
        if let Some(word) = &mut self.word
            && word.reign.epoch == epoch
            && !word.reign.is_other(commit.reign)
        {
            word.heard_at = now;
            if commit.commit < word.commit {
                return Err(CommitDrop::Stale { epoch });
            }
        }
        self.word = Some(Word::new(now, commit.reign, commit.commit));
        self.advance();
        Ok(commit)
    }

    /// The log is in order and verified up to `seq`. What came long after a leader's last word may be another's, of another log, and is not
    /// covered by it: a leader that lives says it again within a heartbeat.
    pub fn set_verified(&mut self, now: Nanos, seq: Seq) {
        let fresh_ns = self.config.fresh_ns;
        if let Some(word) = &mut self.word
            && seq > self.verified
            && now > word.said_at.saturating_add(fresh_ns)
        {
            word.commit = word.commit.min(self.verified);
        }
        self.verified = self.verified.max(seq);
        self.advance();
    }

    /// The log is durable here up to `seq`.
    pub fn set_durable(&mut self, seq: Seq) {
        self.durable = self.durable.max(seq);
    }

    /// The state contains the log up to `seq`.
    pub fn set_applied(&mut self, seq: Seq) {
        self.applied = self.applied.max(seq);
    }

    /// The log has come to an `EpochChange`, at `first`, of a reign in a higher epoch. Whatever the log held from `first` on before is gone.
    ///
    /// # Errors
    /// [`TakenBack`]: something that was committed. The tracker then goes on from before `first`; the state can't.
    ///
    /// # Panics
    /// Where the epoch is not higher: a log's epochs only grow.
    pub fn adopt(&mut self, reign: Reign, first: Seq) -> Result<(), TakenBack> {
        let (epoch, before) = (reign.epoch, self.reign.epoch);
        assert!(epoch > before, "epoch {epoch} after {before}");
        self.reign = reign;
        let before = Seq(first.0.saturating_sub(1));
        let taken_back = TakenBack { from: first, committed: self.committed };
        self.verified = self.verified.min(before);
        self.durable = self.durable.min(before);
        if self.word.is_some_and(|word| word.reign.epoch < epoch || word.reign.is_other(reign)) {
            // What an earlier leader had committed it had; it says nothing about what is new. Nor does that of another history.
            self.word = None;
        }
        if self.committed > before {
            self.committed = before;
            self.applied = self.applied.min(before);
            self.advance();
            return Err(taken_back);
        }
        self.advance();
        Ok(())
    }

    fn advance(&mut self) {
        if let Some(word) = self.word
            && word.reign.epoch == self.reign.epoch
        {
            self.committed = self.committed.max(word.commit.min(self.verified));
        }
    }

    /// Up to here the replica may act on its log.
    #[inline]
    pub fn committed(&self) -> Seq {
        self.committed
    }

    /// The leader's own word: (epoch, commit) of the highest epoch heard of, whether or not the log has come to it.
    pub fn word(&self) -> Option<(u64, Seq)> {
        self.word.map(|word| (word.reign.epoch, word.commit))
    }

    /// The epoch that the log is in.
    pub fn epoch(&self) -> u64 {
        self.reign.epoch
    }

    /// The reign that the log is in.
    pub fn reign(&self) -> Reign {
        self.reign
    }

    /// The Status to send, if one is due. None before the log is in an epoch.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<[u8; STATUS_BYTES]> {
        if self.poll_timeout()? > now {
            return None;
        }
        (self.told, self.told_at) = (Some((self.durable, self.applied, self.reign.epoch)), now);
        let number = self.number;
        self.number += 1;
        self.counters.statuses += 1;
        let TrackerConfig { stream, replica, log_id, .. } = self.config;
        let (durable, applied) = (self.durable, self.applied);
        Some(Status { stream, reign: self.reign, log_id, replica, number, durable, applied }.encode())
    }

    /// When [`CommitTracker::poll_transmit`] has something to send, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        if self.reign.epoch == 0 {
            return None;
        }
        Some(match self.told {
            None => 0,
            Some(told) if told != (self.durable, self.applied, self.reign.epoch) => {
                self.told_at.saturating_add(self.config.coalesce_ns)
            }
            Some(_) => self.told_at.saturating_add(self.config.heartbeat_ns),
        })
    }

    /// When a leader of this log, in its epoch or a higher one, spoke last, as far as whoever was heard knows.
    pub fn leader_spoke_at(&self) -> Option<Nanos> {
        self.leader_spoke_at
    }

    /// For how long the leader has said nothing, where that is too long; counted from the first call or word.
    pub fn leader_silent(&mut self, now: Nanos) -> Option<u64> {
        let for_ns = now.saturating_sub(*self.heard_at.get_or_insert(now));
        (for_ns >= self.config.silence_ns).then_some(for_ns)
    }

    /// What it did.
    pub fn counters(&self) -> &TrackerCounters {
        &self.counters
    }
}
