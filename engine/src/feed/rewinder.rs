//! The rewinder: answers requests for messages that were lost, from history.
//!
//! Invariant: a request costs a bounded amount of work and of answer, whoever sends it and whatever it says.
//! Invariant: only the adopted session is served, and only what the history says is fit to be seen. Of others no more is told than
//! how they ended, by who knows that, and of which log this is.

use std::net::SocketAddrV4;
use std::num::NonZeroU64;

use ticktape_core::Nanos;
use ticktape_nic::Tx;

use super::ended::EndedSessions;
use super::history::{History, HistoryRead};
use super::identity::{LOG_EPOCH, log_identity};
use super::mold::{MESSAGES, MoldError, MoldRequest, Packer, end_of_session};
use super::rewinder_rate::{Bucket, Buckets, Rate};
use super::session::{EPOCH_MAX, FeedSession};
use crate::payload::Reign;

/// How a [`Rewinder`] is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RewinderConfig {
    /// The session that is served.
    pub session: FeedSession,
    /// The largest datagram to build; not above what the transmit queue takes.
    pub datagram_bytes_max: usize,
    /// Messages of one answer, at most: a request for more gets the first of them.
    pub messages_per_answer_max: u16,
    /// Bytes of one answer, about: it ends with the message that reaches them.
    pub bytes_per_answer_max: usize,
    /// Requesters that have a rate of their own; all others share one.
    pub requesters_max: usize,
    /// What one requester may be sent, in bytes a second.
    pub requester_bytes_per_s: u64,
    /// What all together may be sent, in bytes a second.
    pub bytes_per_s: u64,
}

impl RewinderConfig {
    /// For datagrams of an Ethernet frame: 50 MB/s for each requester, 200 MB/s in all.
    pub fn new(session: FeedSession) -> Self {
        RewinderConfig {
            session,
            datagram_bytes_max: 1_472,
            messages_per_answer_max: 1_024,
            bytes_per_answer_max: 256 << 10,
            requesters_max: 256,
            requester_bytes_per_s: 50_000_000,
            bytes_per_s: 200_000_000,
        }
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Messages were queued.
    Sent {
        /// How many.
        messages: u32,
        /// In so many datagrams.
        packets: u32,
    },
    /// The requester was told that the history begins later.
    TooOld,
    /// The requester was told that the history ends before.
    NotYet,
    /// It is no request.
    Malformed(MoldError),
    /// It names another stream, or no session.
    Foreign,
    /// It names a reign that is over, or one that was not adopted here. Where ends are told, the requester was told the present one.
    OtherEpoch,
    /// It names a reign that is over, and the requester was told where that ended.
    Ended,
    /// It names epoch 0, and the requester was told which log this is.
    Identified,
    /// The requester has had its share for now.
    Limited,
    /// All requesters together have.
    LimitedInAll,
    /// The transmit queue is full, or the first message fits no datagram.
    Blocked,
    /// The history has to do more than one request may cost.
    Busy,
    /// The history can't be read.
    Failed,
}

/// What a rewinder did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RewinderCounters {
    /// Datagrams that came.
    pub requests: u64,
    /// Those that were answered with messages.
    pub served: u64,
    /// Messages queued.
    pub messages: u64,
    /// Datagrams queued, refusals not counted.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests for what is no longer there.
    pub too_old: u64,
    /// Requests for what is not there yet.
    pub not_yet: u64,
    /// Datagrams that are no requests, by [`MoldError::index`].
    pub malformed: [u64; MoldError::ALL.len()],
    /// Requests for other streams.
    pub foreign: u64,
    /// Requests for other reigns.
    pub other_epoch: u64,
    /// Requests for reigns that are over, answered with their end.
    pub ended: u64,
    /// Requests for the log's identity that were answered.
    pub identified: u64,
    /// Requests above a requester's rate.
    pub limited: u64,
    /// Requests above the rate of all.
    pub limited_in_all: u64,
    /// Requesters that found no place in the table, and shared one rate.
    pub crowded: u64,
    /// Answers that found the transmit queue full.
    pub blocked: u64,
    /// Requests that the history could not afford.
    pub busy: u64,
    /// Requests that the history failed at.
    pub failed: u64,
}

/// What a request takes of the rates at least, in bytes: answering that there is nothing costs work, too.
const COST_BYTES_MIN: usize = 256;
/// A bucket holds what may be sent in so much time, in ns, and at least one answer.
const BURST_NS: u64 = 50_000_000;

/// A number that no history has reached: whoever is asked for it says where it stands.
const BEYOND: u64 = u64::MAX >> 1;

/// Serves requests. See the module.
#[derive(Debug)]
pub struct Rewinder {
    config: RewinderConfig,
    session: FeedSession,
    /// How earlier reigns ended, where that is told.
    ended: Option<EndedSessions>,
    /// Which log this is, and its reigns, where that is told.
    log: Option<(NonZeroU64, Box<[Reign]>)>,
    packer: Packer,
    buckets: Buckets,
    all: Bucket,
    rate_of_all: Rate,
    counters: RewinderCounters,
}

impl Rewinder {
    /// A rewinder that has served nobody. Allocates everything here.
    ///
    /// # Panics
    /// Where no message would fit a datagram, or a limit is zero.
    pub fn new(config: &RewinderConfig) -> Self {
        assert!(config.messages_per_answer_max > 0 && config.bytes_per_answer_max > 0);
        assert!(config.requester_bytes_per_s > 0 && config.bytes_per_s > 0);
        let rate = |bytes_per_s: u64| {
            let burst = u128::from(bytes_per_s) * u128::from(BURST_NS) / 1_000_000_000;
            let burst = i64::try_from(burst).unwrap_or(i64::MAX);
            Rate { bytes_per_s, burst_bytes: burst.max(config.bytes_per_answer_max as i64) }
        };
        let rate_of_all = rate(config.bytes_per_s);
        Rewinder {
            config: *config,
            session: config.session,
            ended: None,
            log: None,
            packer: Packer::new(config.session.encode(), 1, config.datagram_bytes_max),
            buckets: Buckets::new(config.requesters_max, rate(config.requester_bytes_per_s)),
            all: Bucket::full(rate_of_all),
            rate_of_all,
            counters: RewinderCounters::default(),
        }
    }

    /// The session that is served.
    pub const fn session(&self) -> FeedSession {
        self.session
    }

    /// Requests for other reigns are answered from now on: with the end of the one that is named, or, where that is not known, with
    /// where the present one is.
    pub fn tell_ends(&mut self, ended: EndedSessions) {
        self.ended = Some(ended);
    }

    /// Requests in the name of epoch 0 are answered from now on with this identity, which is that of the log, and with the reign of the epoch
    /// that they name, where that is one of these.
    pub fn tell_log(&mut self, log_id: NonZeroU64, reigns: Box<[Reign]>) {
        self.log = Some((log_id, reigns));
    }

    /// What was served and refused.
    pub const fn counters(&self) -> RewinderCounters {
        self.counters
    }

    /// Serves the reign `epoch` from now on. Allocates.
    ///
    /// # Panics
    /// Where the epoch is below the present one, or above what a session can name.
    pub fn adopt_session(&mut self, epoch: u32) {
        assert!(epoch >= self.session.epoch() && epoch <= EPOCH_MAX, "epoch {epoch} after {}", self.session.epoch());
        self.session = FeedSession::new(self.session.stream(), epoch).expect("the epoch was checked");
        self.packer = Packer::new(self.session.encode(), 1, self.config.datagram_bytes_max);
    }

    /// Answers one datagram from `source`. Queues packets; whoever owns the transmit queue flushes it.
    pub fn on_request(
        &mut self,
        now: Nanos,
        source: SocketAddrV4,
        request: &[u8],
        history: &mut impl History,
        tx: &mut impl Tx,
    ) -> Answer {
        self.counters.requests += 1;
        let answer = match MoldRequest::parse(request) {
            Err(error) => Answer::Malformed(error),
            Ok(request) => match FeedSession::parse(&request.session) {
                Ok(session) if session == self.session => self.within_rates(now, source, &request, history, tx),
                Ok(session) if session.stream() != self.session.stream() => Answer::Foreign,
                Ok(session) if self.ended.is_some() || self.tells_log_to(session) => {
                    self.within_rates(now, source, &request, history, tx)
                }
                Ok(_) => Answer::OtherEpoch,
                Err(_) => Answer::Foreign,
            },
        };
        self.count(answer);
        answer
    }

    /// Whether a request in the name of `session` is told which log this is.
    fn tells_log_to(&self, session: FeedSession) -> bool {
        self.log.is_some() && session.epoch() == LOG_EPOCH && session != self.session
    }

    fn within_rates(
        &mut self,
        now: Nanos,
        source: SocketAddrV4,
        request: &MoldRequest,
        history: &mut impl History,
        tx: &mut impl Tx,
    ) -> Answer {
        // A requester above its own rate must not use up that of all.
        let (bucket, is_own) = self.buckets.of(now, source);
        self.counters.crowded += u64::from(!is_own);
        if !bucket.has_any() {
            return Answer::Limited;
        }
        if !self.all.fill(now, self.rate_of_all) {
            return Answer::LimitedInAll;
        }
        let before = self.counters.bytes;
        let answer = if request.session == *self.packer.session() {
            self.serve(now, source, request, history, tx)
        } else {
            self.tell_end(now, source, request, history, tx)
        };
        let cost = ((self.counters.bytes - before) as usize).max(COST_BYTES_MIN);
        self.all.take(cost);
        self.buckets.of(now, source).0.take(cost);
        answer
    }

    fn serve(
        &mut self,
        now: Nanos,
        to: SocketAddrV4,
        request: &MoldRequest,
        history: &mut impl History,
        tx: &mut impl Tx,
    ) -> Answer {
        let (packer, counters) = (&mut self.packer, &mut self.counters);
        packer.advance();
        packer.seek(request.sequence);
        let (mut messages, mut packets, mut can_go_on) = (0, 0, true);
        let count_max = request.count.min(self.config.messages_per_answer_max).into();
        let mut send = |packer: &mut Packer| {
            let (count, bytes) = (packer.count(), queue(packer, to, tx));
            counters.bytes += bytes as u64;
            messages += if bytes > 0 { u32::from(count) } else { 0 };
            packets += u32::from(bytes > 0);
            bytes > 0
        };
        let bytes_max = self.config.bytes_per_answer_max;
        let read = history.read(now, request.sequence, count_max, bytes_max, &mut |seq, message| {
            // A history that leaves a number out would have others sent under a wrong number.
            can_go_on = can_go_on && seq == packer.next_sequence();
            if can_go_on && !packer.push(message) {
                // What fits no datagram was never sent on this feed.
                can_go_on = message.len() <= packer.message_bytes_max() && send(packer) && packer.push(message);
            }
        });
        match read {
            HistoryRead::Read(_) => {
                if !packer.is_empty() {
                    send(packer);
                }
                if messages > 0 { Answer::Sent { messages, packets } } else { Answer::Blocked }
            }
            HistoryRead::TooOld { first } => self.tell(first.max(request.sequence + 1), to, tx, Answer::TooOld),
            HistoryRead::NotYet { next } => self.tell(next.clamp(1, request.sequence), to, tx, Answer::NotYet),
            HistoryRead::Busy => Answer::Busy,
            HistoryRead::Failed => Answer::Failed,
        }
    }

    /// Which log this is, where epoch 0 is named. Else how the session that is named ended; where that is not known, or it has not, a heartbeat of the one that is served.
    #[cold]
    fn tell_end(
        &mut self,
        now: Nanos,
        to: SocketAddrV4,
        request: &MoldRequest,
        history: &mut impl History,
        tx: &mut impl Tx,
    ) -> Answer {
        let epoch = FeedSession::parse(&request.session).map_or(LOG_EPOCH, FeedSession::epoch);
        if let Some((log_id, reigns)) = self.log.as_ref().filter(|_| epoch == LOG_EPOCH) {
            let reign_of = |epoch| reigns.iter().find(|reign| reign.epoch == epoch).map_or(0, |reign| reign.id);
            let told = queue_bytes(log_identity(request, *log_id, reign_of).bytes(), to, tx);
            return if told { Answer::Identified } else { Answer::Blocked };
        }
        if let Some(end) = self.ended.as_ref().and_then(|ended| ended.end_of(epoch)) {
            let told = queue_bytes(&end_of_session(&request.session, end), to, tx);
            return if told { Answer::Ended } else { Answer::Blocked };
        }
        match history.read(now, BEYOND, 1, 1, &mut |_, _| {}) {
            HistoryRead::NotYet { next } => self.tell(next.max(1), to, tx, Answer::OtherEpoch),
            _ => Answer::OtherEpoch,
        }
    }

    /// A heartbeat that names the nearest number there is.
    fn tell(&mut self, nearest: u64, to: SocketAddrV4, tx: &mut impl Tx, answer: Answer) -> Answer {
        self.packer.advance();
        self.packer.seek(nearest);
        if queue(&mut self.packer, to, tx) == MESSAGES { answer } else { Answer::Blocked }
    }

    fn count(&mut self, answer: Answer) {
        let counters = &mut self.counters;
        match answer {
            Answer::Sent { messages, packets } => {
                counters.served += 1;
                counters.messages += u64::from(messages);
                counters.packets += u64::from(packets);
            }
            Answer::TooOld => counters.too_old += 1,
            Answer::NotYet => counters.not_yet += 1,
            Answer::Malformed(error) => counters.malformed[error.index()] += 1,
            Answer::Foreign => counters.foreign += 1,
            Answer::OtherEpoch => counters.other_epoch += 1,
            Answer::Ended => counters.ended += 1,
            Answer::Identified => counters.identified += 1,
            Answer::Limited => counters.limited += 1,
            Answer::LimitedInAll => counters.limited_in_all += 1,
            Answer::Blocked => counters.blocked += 1,
            Answer::Busy => counters.busy += 1,
            Answer::Failed => counters.failed += 1,
        }
    }
}

/// Queues the packet at hand and begins the next; its bytes, 0 where there is no room.
fn queue(packer: &mut Packer, to: SocketAddrV4, tx: &mut impl Tx) -> usize {
    let packet = packer.packet();
    let bytes = packet.len();
    if !queue_bytes(packet, to, tx) {
        return 0;
    }
    packer.advance();
    bytes
}

/// Whether there was room for it.
fn queue_bytes(packet: &[u8], to: SocketAddrV4, tx: &mut impl Tx) -> bool {
    let Some(slot) = tx.reserve().filter(|slot| slot.len() >= packet.len()) else { return false };
    slot[..packet.len()].copy_from_slice(packet);
    tx.commit(packet.len(), to);
    true
}

#[cfg(test)]
#[path = "rewinder_tests.rs"]
mod tests;
