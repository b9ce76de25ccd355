//! The rewinder: answers requests for messages that were lost, from history.
//!
//! Invariant: a request costs a bounded amount of work and of answer, whoever sends it and whatever it says.
//! Invariant: only the adopted session is served, and only what the history says is fit to be seen.

use std::net::SocketAddrV4;

use ticktape_core::Nanos;
use ticktape_nic::Tx;

use super::mold::{MoldError, MoldRequest, Packer};
use super::session::{EPOCH_MAX, FeedSession};

/// What a history has of what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryRead {
    /// So many messages were handed on, at least one.
    Read(usize),
    /// It no longer has the first one: it begins with `first`.
    TooOld {
        /// The oldest that it has.
        first: u64,
    },
    /// It does not have the first one yet, or it is not fit to be seen: `next` comes next.
    NotYet {
        /// The first that it does not have.
        next: u64,
    },
    /// It has to do more than one request may cost; another time.
    Busy,
    /// It can't be read.
    Failed,
}

/// Messages that were sent, to be read again. A ring, a journal, or both.
pub trait History {
    /// Hands consecutive messages to `f` with their numbers, from `from` on: at most `count_max` of them, and none beyond the
    /// one with which they come to `bytes_max` or more. Does a bounded amount of work.
    fn read(
        &mut self,
        now: Nanos,
        from: u64,
        count_max: usize,
        bytes_max: usize,
        f: &mut dyn FnMut(u64, &[u8]),
    ) -> HistoryRead;
}

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
    /// It names a reign that is over, or one that was not adopted here.
    OtherEpoch,
    /// The requester has had its share for now.
    Limited,
    /// All requesters together have.
    LimitedInAll,
    /// The transmit queue is full.
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

/// Serves requests. See the module.
#[derive(Debug)]
pub struct Rewinder {
    config: RewinderConfig,
    session: FeedSession,
    counters: RewinderCounters,
}

impl Rewinder {
    /// A rewinder that has served nobody. Allocates everything here.
    ///
    /// # Panics
    /// Where no message would fit a datagram, or a limit is zero.
    pub fn new(config: &RewinderConfig) -> Self {
        assert!(config.messages_per_answer_max > 0 && config.bytes_per_answer_max > 0);
        Rewinder { config: *config, session: config.session, counters: RewinderCounters::default() }
    }

    /// The session that is served.
    pub const fn session(&self) -> FeedSession {
        self.session
    }

    /// What was served and refused.
    pub const fn counters(&self) -> RewinderCounters {
        self.counters
    }

    /// Serves the reign `epoch` from now on.
    ///
    /// # Panics
    /// Where the epoch is below the present one, or above what a session can name.
    pub fn adopt_session(&mut self, epoch: u32) {
        assert!(epoch >= self.session.epoch() && epoch <= EPOCH_MAX, "epoch {epoch} after {}", self.session.epoch());
        self.session = FeedSession::new(self.session.stream(), epoch).expect("the epoch was checked");
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
        let request = match MoldRequest::parse(request) {
            Ok(request) => request,
            Err(error) => {
                self.counters.malformed[error.index()] += 1;
                return Answer::Malformed(error);
            }
        };
        if request.session != self.session.encode() {
            return self.refuse_session(&request);
        }
        self.serve(now, source, &request, history, tx)
    }

    fn refuse_session(&mut self, request: &MoldRequest) -> Answer {
        match FeedSession::parse(&request.session) {
            Ok(session) if session.stream() == self.session.stream() => {
                self.counters.other_epoch += 1;
                Answer::OtherEpoch
            }
            _ => {
                self.counters.foreign += 1;
                Answer::Foreign
            }
        }
    }

    fn serve(
        &mut self,
        now: Nanos,
        source: SocketAddrV4,
        request: &MoldRequest,
        history: &mut impl History,
        tx: &mut impl Tx,
    ) -> Answer {
        let count = request.count.min(self.config.messages_per_answer_max);
        let mut packer = Packer::new(request.session, request.sequence, self.config.datagram_bytes_max);
        let (mut packets, mut blocked) = (0, false);
        let read =
            history.read(now, request.sequence, count.into(), self.config.bytes_per_answer_max, &mut |_, message| {
                if blocked {
                    return;
                }
                if !packer.push(message) {
                    blocked = !send(&mut packer, source, tx);
                    packets += u32::from(!blocked);
                    packer.push(message);
                }
            });
        match read {
            HistoryRead::Read(messages) => {
                packets += u32::from(!blocked && send(&mut packer, source, tx));
                self.counters.served += 1;
                Answer::Sent { messages: messages as u32, packets }
            }
            HistoryRead::TooOld { first } => self.tell(request, first, source, tx, Answer::TooOld),
            HistoryRead::NotYet { next } => self.tell(request, next, source, tx, Answer::NotYet),
            HistoryRead::Busy => Answer::Busy,
            HistoryRead::Failed => Answer::Failed,
        }
    }

    /// A heartbeat that names the nearest number there is.
    fn tell(&self, request: &MoldRequest, nearest: u64, to: SocketAddrV4, tx: &mut impl Tx, answer: Answer) -> Answer {
        let mut packer = Packer::new(request.session, nearest.max(1), self.config.datagram_bytes_max);
        if send(&mut packer, to, tx) { answer } else { Answer::Blocked }
    }
}

fn send(packer: &mut Packer, to: SocketAddrV4, tx: &mut impl Tx) -> bool {
    let packet = packer.packet();
    let Some(slot) = tx.reserve() else { return false };
    slot[..packet.len()].copy_from_slice(packet);
    tx.commit(packet.len(), to);
    packer.advance();
    true
}
