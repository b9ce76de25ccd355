//! The intake: everything that reaches a replica's log comes through here, on one thread.
//!
//! Order of a poll: take what came on both feeds and from rewinders, go on with a transfer, publish, hear how far it is
//! durable, tell and be told how far it is committed, ask for what is missing, decide what to do next.
//! Invariant: nothing of the feed is let in before somebody who has the log has said that this one is its beginning, nor when no leader of
//! this log has spoken lately, or one says that its log is another one; and no repair but from who has just named this log, in the reign that it is in here.

mod elsewhere;
mod report;
mod setup;

use std::net::SocketAddrV4;

use ticktape_core::{Frame, Nanos, Seq};
use ticktape_nic::{Rx, Tx};
use ticktape_shm::{CommitMark, Watermarks};

use super::bulk::{Bulk, BulkEnd, BulkProgress};
use super::claims::Claims;
use super::door::{Admission, Door, Way};
use super::lower::LowerEpoch;
use super::other_log::{NAMED_NS, OtherLog};
use super::status::{Board, Figure, ReplicaState};
use super::words::Words;
use crate::feed::status::is_status;
use crate::feed::{
    Arbiter, ArbiterConfig, Arrival, CommitTracker, FeedEvent, MoldPacket, PacketDrop, STOP_PATIENCE_NS, Side,
    TrackerConfig,
};
use crate::payload::are_of_other_reigns;
use crate::shadow::Committed;

pub use report::LIVE_WITHIN_FRAMES;
pub use setup::{IntakeConfig, Ports, RingSide, Verdict};

/// Datagrams taken from one queue in one poll.
const BURST_MAX: usize = 64;

/// Repair requests sent in one poll.
const REQUESTS_PER_POLL_MAX: usize = 16;

/// After everybody was asked in vain, until they are asked again.
const PAUSE_NS: u64 = 1_000_000_000;

/// The leader says so long that more is committed than the feed brings, until it is fetched in bulk.
const STALE_NS: u64 = 1_000_000_000;

/// Nobody says so long that what was received is committed, until it is asked for over TCP: the leader tells each 100 µs at most.
const UNCOMMITTED_NS: u64 = 1_000_000_000;

/// Frames of the feed wait so long for a word of the leader, until they are fetched over TCP: some heartbeats. A leader that stops gives no
/// more words and waits for its replicas for a while; they have to ask within that.
const UNLED_NS: u64 = 100_000_000;

const _: () = assert!(4 * UNLED_NS <= STOP_PATIENCE_NS);

/// Polls that brought bytes and no frame, after which it is taken to be a snapshot that comes: a message has fewer pieces.
const FRUITLESS_MAX: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A transfer is under way.
    Bulk,
    /// Everybody was asked in vain.
    Pause { until: Nanos, at: Seq },
    /// The feed is enough.
    Feed,
}

/// The first stage of a replica.
pub struct Intake<R: Rx, T: Tx, B: Bulk> {
    sides: Vec<(Side, R)>,
    repair_rx: R,
    repair_tx: T,
    bulk: B,
    arbiter: Arbiter,
    door: Door,
    tracker: CommitTracker,
    peers: Vec<SocketAddrV4>,
    watermarks: Watermarks,
    commit_mark: CommitMark,
    committed: Committed,
    board: Board,
    words: Words,
    last_wanted: Seq,
    /// The state is far behind what is committed.
    is_applying: bool,
    phase: Phase,
    /// What a transfer is for, as shown.
    shown: ReplicaState,
    /// Transfers that failed in a row.
    failures: usize,
    /// Polls in a row that brought much and no frame: a snapshot is coming.
    fruitless: u32,
    /// The transfer under way brings something.
    is_answered: bool,
    /// Somebody who has the log has said that this one is its beginning.
    joined: bool,
    silent: bool,
    /// The feed brought what is not let in: bulk will tell.
    refused: bool,
    /// Since when more is committed than is here, and what was next then.
    stale: Option<(Nanos, Seq)>,
    /// Since when frames are here that nobody says are committed, and what was committed then.
    uncommitted: Option<(Nanos, Seq)>,
    /// When all was here that the leader had said to be committed.
    level_at: Option<Nanos>,
    /// The frame that the transfer under way began with.
    bulk_from: Seq,
    /// The transfer under way is for what datagrams alone say there is.
    on_claim: bool,
    /// A later epoch that the feed alone speaks of, and how many have still to be asked about it.
    epoch_claim: Option<(u64, usize)>,
    claims: Claims,
    epoch_claims: Claims,
    other_log: OtherLog,
    lower: LowerEpoch,
    /// What comes before was here at the beginning, or somebody who has the log has vouched for it since.
    vouched: Seq,
    /// Whoever was asked had nothing more: nobody is asked for what is missing before this.
    rest_until: Nanos,
    /// Peers were asked about another log that one of them told of: not again before. It may go on to tell for as long as it lives.
    stranger_asked_until: Nanos,
    /// Peers of this round that serve something else.
    foreign: usize,
    /// What one of them serves, for as long as no leader of this log is heard.
    elsewhere: Option<String>,
    feed_frames: u64,
    bulk_frames: u64,
    foreign_datagrams: u64,
    /// Repairs of peers that had not just named this log.
    unnamed: u64,
    /// When the end of the session was heard last.
    ended_at: Option<Nanos>,
    /// Since when frames wait for a word of the leader.
    unled: Option<Nanos>,
    verdict: Option<Verdict>,
}

impl<R: Rx, T: Tx, B: Bulk> Intake<R, T, B> {
    /// An intake that goes on where the door stands.
    pub fn new(config: &IntakeConfig, ports: Ports<R, T>, ring: RingSide, bulk: B, board: Board) -> Self {
        let RingSide { door, watermarks, commit_mark, committed, epochs } = ring;
        let door = door.record_epochs(epochs);
        let epoch = door.epoch();
        let arbiter = Arbiter::new(&ArbiterConfig {
            stream: config.stream,
            epoch_min: u32::try_from(epoch).unwrap_or(u32::MAX),
            next_seq: door.next_seq().0,
            window_messages: config.window_messages,
            message_bytes_max: config.frame_bytes_max,
            wait_ns: config.wait_ns,
            rewinders: config.peers.len(),
            repair: config.repair,
            verify: Some(is_of_log),
        });
        let tracker = TrackerConfig::new(config.stream, config.replica, config.first_status);
        let tracker =
            TrackerConfig { reign: door.reign(), log_id: config.log_id, committed: config.committed, ..tracker };
        let mut tracker = CommitTracker::new(&tracker);
        let vouched = door.next_seq();
        tracker.set_verified(0, Seq(vouched.0 - 1));
        Intake {
            sides: [Side::A, Side::B].into_iter().zip(ports.feeds).collect(),
            repair_rx: ports.repair_rx,
            repair_tx: ports.repair_tx,
            bulk,
            arbiter,
            door,
            tracker,
            peers: config.peers.clone(),
            watermarks,
            commit_mark,
            committed,
            words: Words::new(board.clone()),
            board,
            last_wanted: config.last_wanted,
            is_applying: true,
            phase: Phase::Pause { until: 0, at: Seq::ZERO },
            shown: ReplicaState::Joining,
            failures: 0,
            fruitless: 0,
            is_answered: false,
            joined: false,
            silent: false,
            refused: false,
            stale: None,
            uncommitted: None,
            level_at: None,
            bulk_from: Seq::ZERO,
            on_claim: false,
            epoch_claim: None,
            claims: Claims::default(),
            epoch_claims: Claims::default(),
            other_log: OtherLog::default(),
            lower: LowerEpoch::default(),
            vouched,
            rest_until: 0,
            stranger_asked_until: 0,
            foreign: 0,
            elsewhere: None,
            feed_frames: 0,
            bulk_frames: 0,
            foreign_datagrams: 0,
            unnamed: 0,
            ended_at: None,
            unled: None,
            verdict: None,
        }
    }

    /// Hears what is committed, and lets nothing more in: for the end.
    pub fn poll_commits(&mut self, now: Nanos) -> usize {
        let Intake { repair_rx, tracker, peers, other_log, .. } = self;
        let taken = repair_rx.poll(now, BURST_MAX, |datagram| {
            if peers.contains(&datagram.source) && is_status(datagram.payload) {
                other_log.hear(now, datagram.source, datagram.payload, tracker);
            }
        });
        self.advance_commit(now);
        taken
    }

    /// One duty cycle; returns the datagrams and frames taken.
    pub fn poll(&mut self, now: Nanos) -> usize {
        if self.verdict.is_some() {
            return 0;
        }
        let before = self.door.next_seq();
        self.arbiter.set_writer(self.door.reign().stream_id());
        let mut work = self.poll_feeds(now) + self.poll_repairs(now);
        work += self.poll_held(now);
        if self.phase == Phase::Bulk {
            work += self.poll_bulk(now);
        }
        if self.door.next_seq() > before {
            self.door.publish();
        } else {
            self.door.idle();
        }
        self.advance_commit(now);
        self.tell(now);
        self.decide(now);
        self.tell_elsewhere(now);
        work
    }

    fn poll_feeds(&mut self, now: Nanos) -> usize {
        let admits = self.admits(now);
        let Intake { sides, arbiter, door, silent, ended_at, refused, feed_frames, lower, .. } = self;
        let ours = arbiter.session().epoch();
        let way = Way::Feed { epoch: u64::from(ours) };
        let mut taken = 0;
        for (side, rx) in sides {
            taken += rx.poll(now, BURST_MAX, |datagram| {
                let arrival = arbiter.on_packet(now, *side, datagram.payload, |seq, frame| {
                    admits && let_in(door, seq, frame, way, refused, feed_frames)
                });
                *silent &= matches!(arrival, Arrival::Dropped(_) | Arrival::EndOfSession);
                match arrival {
                    Arrival::EndOfSession => *ended_at = Some(now),
                    Arrival::Dropped(PacketDrop::OldEpoch) => {
                        lower.on_packet(now, ours, datagram.source, datagram.payload);
                    }
                    _ => {}
                }
            });
        }
        taken
    }

    fn poll_repairs(&mut self, now: Nanos) -> usize {
        let Intake {
            repair_rx,
            arbiter,
            door,
            tracker,
            other_log,
            peers,
            joined,
            refused,
            feed_frames,
            foreign_datagrams,
            unnamed,
            ended_at,
            ..
        } = self;
        let way = Way::Feed { epoch: u64::from(arbiter.session().epoch()) };
        repair_rx.poll(now, BURST_MAX, |datagram| {
            if !peers.contains(&datagram.source) {
                *foreign_datagrams += 1;
            } else if is_status(datagram.payload) {
                other_log.hear(now, datagram.source, datagram.payload, tracker);
            } else {
                let admits = *joined && other_log.stranger(now).is_none();
                // What of the feed waited behind it is let in by the feed's own rule.
                let last = if is_led(tracker, *ended_at, now) { u64::MAX } else { last_of(datagram.payload) };
                if !other_log.has_named(now, datagram.source, tracker.reign()) {
                    *unnamed += 1;
                    return;
                }
                arbiter.on_packet(now, Side::Repair, datagram.payload, |seq, frame| {
                    admits && seq <= last && let_in(door, seq, frame, way, refused, feed_frames)
                });
            }
        })
    }

    /// Whether frames of the feed are let in.
    fn admits(&self, now: Nanos) -> bool {
        self.joined && is_led(&self.tracker, self.ended_at, now) && self.other_log.stranger(now).is_none()
    }

    fn poll_held(&mut self, now: Nanos) -> usize {
        if !self.admits(now) {
            return 0;
        }
        let Intake { arbiter, door, refused, feed_frames, .. } = self;
        let way = Way::Feed { epoch: u64::from(arbiter.session().epoch()) };
        arbiter.poll_deliver(now, |seq, frame| let_in(door, seq, frame, way, refused, feed_frames))
    }

    fn poll_bulk(&mut self, now: Nanos) -> usize {
        let Intake { bulk, door, bulk_frames, .. } = self;
        let mut taken = 0;
        let progress = bulk.poll(now, &mut |seq, frame| {
            let admission = door.admit(seq, frame, Way::Bulk);
            taken += u64::from(admission == Admission::Taken);
            admission
        });
        *bulk_frames += taken;
        if taken > 0 || self.fruitless > FRUITLESS_MAX {
            self.is_answered = true;
            self.words.is_answered();
        }
        self.fruitless = if taken > 0 { 0 } else { self.fruitless + u32::from(progress != BulkProgress::Working(0)) };
        if taken > 0 && self.shown == ReplicaState::Joining {
            self.shown = ReplicaState::CatchingUp;
        } else if self.fruitless > FRUITLESS_MAX {
            self.shown = ReplicaState::FetchingSnapshot;
        }
        self.follow_door();
        match progress {
            BulkProgress::Working(work) => work,
            BulkProgress::Ended(end) => {
                self.end_bulk(now, end);
                1
            }
        }
    }

    /// The arbiter goes on where the log stands, in the epoch that the log is in.
    fn follow_door(&mut self) {
        if let Ok(epoch) = u32::try_from(self.door.epoch())
            && epoch > self.arbiter.session().epoch()
        {
            self.arbiter.adopt_session(epoch);
        }
        if self.door.next_seq().0 > self.arbiter.next_seq() {
            self.arbiter.skip_to(self.door.next_seq().0);
        }
    }

    fn end_bulk(&mut self, now: Nanos, end: BulkEnd) {
        match end {
            BulkEnd::Complete { reign, commit } => {
                (self.joined, self.refused, self.failures, self.stale) = (true, false, 0, None);
                self.phase = Phase::Feed;
                self.foreign = 0;
                // Numbers that the feed only spoke of may never come: whoever forges a heartbeat can name any.
                self.arbiter.skip_to(self.door.next_seq().0);
                self.vouched = self.door.next_seq();
                self.board.add(Figure::CatchUps, 1);
                self.advance_epoch();
                // One of a reign that is over is not believed, as from the leader itself. What else was heard is forgotten: a datagram
                // may have lied, and what is true is told again.
                let _ = self.tracker.on_log_word(now, reign, commit);
                self.uncommitted = Some((now, self.heard_commit()));
                self.words.is_answered();
                if let Some(peer) = self.bulk.asked() {
                    self.other_log.rejoin(peer);
                }
                if self.goes_on_asking(now) {
                    return;
                }
                if self.door.next_seq() > self.bulk_from || self.shown == ReplicaState::Joining {
                    self.claims.was_founded();
                    self.words.clear();
                } else {
                    // What was missed is not to be had there, either; asking at once again would help nobody.
                    self.rest_until = now.saturating_add(PAUSE_NS);
                    if self.on_claim {
                        self.claims.was_unfounded(now);
                        let next = self.door.next_seq();
                        self.words
                            .news(format_args!("datagrams speak of more than seq {next}, and the log has no more"));
                    }
                }
            }
            BulkEnd::Failed(why) => self.bulk_failed(now, &why),
            BulkEnd::Snapshot(snapshot) => {
                self.verdict.get_or_insert(Verdict::Snapshot(snapshot));
            }
            BulkEnd::TakenBack { why, from } => {
                // Whoever gives it up says how much it was.
                self.board.set(Figure::Received, self.door.next_seq().0 - 1);
                self.verdict.get_or_insert(Verdict::TakenBack { why, from });
            }
            BulkEnd::Foreign(why) => self.is_foreign(now, why),
            BulkEnd::OtherLog(why) => self.is_of_other_log(now, why),
        }
    }

    /// Whether the epoch that the feed speaks of is looked for at the next peer: whoever was asked has this log, and has not come to it.
    /// After the last, nobody bears it out.
    fn goes_on_asking(&mut self, now: Nanos) -> bool {
        let Some((epoch, left)) = self.epoch_claim.filter(|&(epoch, _)| self.door.epoch() < epoch) else {
            if self.epoch_claim.take().is_some() {
                self.epoch_claims.was_founded();
            }
            return false;
        };
        if left > 0 {
            self.begin_bulk(now, self.shown);
            return true;
        }
        self.epoch_claim = None;
        self.epoch_claims.was_unfounded(now);
        if self.other_log.led_elsewhere(now).is_none() {
            self.words.news(format_args!("the feed speaks of epoch {epoch}, and nobody who was asked has come to it"));
        }
        true
    }

    /// The next peer is asked; after the last, all of them again, a little later.
    fn bulk_failed(&mut self, now: Nanos, why: &str) {
        self.failures += 1;
        self.board.add(Figure::CatchUpsFailed, 1);
        match &self.elsewhere {
            // Whoever else there is may come back, with this log: until then an operator has to know of both.
            Some(elsewhere) if elsewhere != why => self.words.trouble(format_args!("{elsewhere}; {why}")),
            _ => self.words.trouble(why),
        }
        if self.failures.is_multiple_of(self.bulk.peers().max(1)) {
            self.foreign = 0;
            self.phase = Phase::Pause { until: now.saturating_add(PAUSE_NS), at: self.door.next_seq() };
        } else {
            self.begin_bulk(now, self.shown);
        }
    }

    fn begin_bulk(&mut self, now: Nanos, shown: ReplicaState) {
        (self.shown, self.fruitless) = (shown, 0);
        (self.on_claim, self.is_answered) = (false, false);
        if let Some((_, left)) = &mut self.epoch_claim {
            *left = left.saturating_sub(1);
        }
        self.phase = Phase::Bulk;
        self.bulk_from = self.door.next_seq();
        self.door.begin_bulk();
        self.bulk.begin(now, self.door.next_seq(), self.door.reign());
        if let Some(peer) = self.bulk.asked() {
            self.words.waits_for(peer);
        }
    }

    fn advance_epoch(&mut self) {
        let (reign, began_at) = (self.door.reign(), self.door.epoch_began_at());
        if reign.epoch > self.tracker.epoch() {
            // Nothing is taken back from a log that was only ever added to.
            let _ = self.tracker.adopt(reign, began_at);
        }
    }

    fn advance_commit(&mut self, now: Nanos) {
        self.advance_epoch();
        let durable = self.watermarks.durable();
        self.tracker.set_verified(now, Seq(self.door.next_seq().0 - 1));
        self.tracker.set_durable(durable);
        self.tracker.set_applied(Seq(self.board.get(Figure::Applied)));
        let committed = self.tracker.committed();
        if committed > self.committed.get() {
            self.committed.raise(committed);
        }
        if let Some(at) = self.tracker.leader_spoke_at() {
            self.committed.hear_leader(at);
        }
        let readable = committed.min(durable);
        self.board.set(Figure::Committed, readable.0);
        if readable > self.marked() {
            self.commit_mark.set(readable);
        }
    }

    fn marked(&self) -> Seq {
        self.watermarks.commit()
    }

    /// Requests and statuses.
    fn tell(&mut self, now: Nanos) {
        let Intake { arbiter, tracker, repair_tx, peers, phase, joined, is_answered, .. } = self;
        // Whoever is asked for all of it brings that, too, once it answers.
        if *phase != Phase::Bulk || *joined && !*is_answered {
            for _ in 0..REQUESTS_PER_POLL_MAX {
                let Some((rewinder, request)) = arbiter.poll_request(now) else { break };
                send(repair_tx, peers[rewinder], &request.encode());
            }
        }
        if let Some(status) = tracker.poll_transmit(now) {
            peers.iter().for_each(|&peer| send(repair_tx, peer, &status));
        }
        if repair_tx.queued() > 0 {
            repair_tx.flush();
        }
    }

    fn decide(&mut self, now: Nanos) {
        if let Some(misfit) = self.door.misfit() {
            self.verdict = Some(Verdict::Fault(misfit.to_string()));
            return;
        }
        match self.phase {
            Phase::Bulk => {}
            Phase::Pause { until, at } => {
                if self.joined && self.door.next_seq() > at && !self.refused {
                    self.phase = Phase::Feed;
                    self.words.clear();
                } else if now >= until {
                    self.begin_bulk(now, self.shown);
                }
            }
            Phase::Feed => self.heed_feed(now),
        }
    }

    /// The feed speaks of a later epoch. A datagram says so, and no more: whoever has the log is asked about it, one after another.
    fn heed_session(&mut self, now: Nanos, epoch: u64, from: u64) -> Option<ReplicaState> {
        if !self.epoch_claims.is_heeded(now) || now < self.rest_until {
            return None;
        }
        self.epoch_claim = Some((epoch, self.bulk.peers()));
        if self.other_log.led_elsewhere(now).is_some() {
            // It has been asked about before, and all is well where it does not get in the way.
            return Some(self.state(now));
        }
        self.words.trouble(format_args!("the feed is in epoch {epoch} at seq {from}"));
        Some(ReplicaState::ChangingEpoch)
    }

    fn heed_feed(&mut self, now: Nanos) {
        let needed = self.arbiter.poll_event(now).and_then(|event| match event {
            FeedEvent::Unrepairable { from, count } => {
                self.words.trouble(format_args!("nobody has {count} messages from seq {from} on in time"));
                Some(ReplicaState::CatchingUp)
            }
            FeedEvent::NewSession { epoch, from } => self.heed_session(now, u64::from(epoch), from),
            FeedEvent::EndOfSession { next } => {
                self.words.trouble(format_args!("the leader has stopped before seq {next}"));
                self.silent = true;
                None
            }
            FeedEvent::Silent { for_ns } => {
                self.words.trouble(format_args!("nothing on the feed for over {} ms", for_ns / 1_000_000));
                self.silent = true;
                Some(ReplicaState::Silent)
            }
        });
        let needed = needed.or_else(|| self.refused.then_some(ReplicaState::ChangingEpoch));
        // Nothing sound lies ahead: there is no more to it than a number in a datagram.
        let is_word = |state| matches!(state, ReplicaState::CatchingUp | ReplicaState::ChangingEpoch);
        let mut on_claim = needed.is_some_and(is_word) && self.arbiter.held() == 0 && self.epoch_claim.is_none();
        let needed = needed.or_else(|| {
            on_claim = self.is_stale(now) || self.hears_of_other_log(now);
            on_claim.then_some(ReplicaState::CatchingUp)
        });
        let needed = needed.filter(|_| !on_claim || self.claims.is_heeded(now));
        let needed = needed.or_else(|| {
            on_claim = false;
            (self.is_unled(now) || self.is_uncommitted(now)).then_some(ReplicaState::AwaitingCommit)
        });
        if let Some(state) = needed.filter(|_| now >= self.rest_until) {
            self.begin_bulk(now, state);
            self.on_claim = on_claim;
        }
    }

    fn heard_commit(&self) -> Seq {
        self.tracker.word().map_or(Seq::ZERO, |(_, commit)| commit)
    }

    /// Whether frames have come for a while, and no word of the leader, so that nobody knows whose they are.
    fn is_unled(&mut self, now: Nanos) -> bool {
        let waits = self.arbiter.held() > 0 && !is_led(&self.tracker, self.ended_at, now);
        let since = *self.unled.get_or_insert(now);
        if !waits {
            self.unled = None;
        } else if now.saturating_sub(since) >= UNLED_NS {
            self.unled = None;
            self.words.trouble("the feed goes on, and no leader of this log says that it does");
            return true;
        }
        false
    }

    /// Whether nobody has said for a while that what is here is committed. The word over TCP is as good as the leader's own.
    fn is_uncommitted(&mut self, now: Nanos) -> bool {
        let commit = self.heard_commit();
        let waits = commit.next() < self.door.next_seq();
        match self.uncommitted.filter(|&(_, at)| waits && at == commit) {
            Some((since, _)) if now.saturating_sub(since) >= UNCOMMITTED_NS => {
                self.words.trouble(format_args!("nobody says what is committed after seq {}", commit.0));
                true
            }
            Some(_) => false,
            None => {
                self.uncommitted = waits.then_some((now, commit));
                if self.shown == ReplicaState::AwaitingCommit {
                    self.shown = ReplicaState::Live;
                    self.words.clear();
                }
                false
            }
        }
    }

    /// Whether somebody says that its log is another one, which nobody was asked about lately.
    fn hears_of_other_log(&mut self, now: Nanos) -> bool {
        let stranger = self.other_log.stranger(now).filter(|_| now >= self.stranger_asked_until);
        let Some(stranger) = stranger else { return false };
        if self.claims.is_heeded(now) {
            self.stranger_asked_until = now.saturating_add(PAUSE_NS);
            self.words.trouble(format_args!("{} says that {}", stranger.address, stranger.what));
        }
        true
    }

    /// Whether the leader has committed for a while what the feed does not even hint at.
    fn is_stale(&mut self, now: Nanos) -> bool {
        let next = self.door.next_seq();
        let missing = self.tracker.word().is_some_and(|(_, commit)| commit >= next);
        match self.stale.filter(|&(_, at)| missing && at == next) {
            Some((since, _)) => now.saturating_sub(since) >= STALE_NS,
            None => {
                self.stale = missing.then_some((now, next));
                false
            }
        }
    }

    /// Why it has come to its end, if it has.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// The last frame that was let in.
    pub fn last(&self) -> Seq {
        Seq(self.door.next_seq().0 - 1)
    }
}

/// Whether a message is the frame of that number, and of the reign that the log is in, as far as it tells. One of another reign may come first,
/// from an older copy of the log that is led beside this one, and must not take its place.
fn is_of_log(seq: u64, message: &[u8], writer: u16) -> bool {
    Frame::decode(message).is_ok_and(|frame| frame.seq.0 == seq && !are_of_other_reigns(frame.stream_id, writer))
}

/// The number of a packet's last message; 0 where it has none.
fn last_of(packet: &[u8]) -> u64 {
    match MoldPacket::parse(packet) {
        Ok(MoldPacket::Messages { sequence, count, .. }) => sequence.saturating_add(u64::from(count)) - 1,
        _ => 0,
    }
}

/// Whether a leader of this log has spoken lately, and not stopped since.
fn is_led(tracker: &CommitTracker, ended_at: Option<Nanos>, now: Nanos) -> bool {
    let spoke_at = tracker.leader_spoke_at().filter(|at| now <= at.saturating_add(NAMED_NS));
    spoke_at.is_some_and(|at| ended_at.is_none_or(|ended_at| at > ended_at))
}

fn let_in(door: &mut Door, seq: u64, frame: &[u8], way: Way, refused: &mut bool, taken: &mut u64) -> bool {
    match door.admit(seq, frame, way) {
        Admission::Taken => {
            *taken += 1;
            true
        }
        Admission::Known => true,
        Admission::Full | Admission::Early => false,
        Admission::Refused(_) => {
            *refused = true;
            false
        }
    }
}

/// Where there is no room, it was lost: whatever goes this way is said again.
fn send(tx: &mut impl Tx, to: SocketAddrV4, bytes: &[u8]) {
    if tx.reserve().is_none() {
        tx.flush();
    }
    if let Some(slot) = tx.reserve() {
        slot[..bytes.len()].copy_from_slice(bytes);
        tx.commit(bytes.len(), to);
    }
}

#[cfg(test)]
mod tests;
