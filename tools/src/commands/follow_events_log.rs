//! Which log the events are of: nothing is looked at before the repair port has said that the log behind it is still the one of before.
//!
//! ```text
//!  packet ─► within a moment of the one before it? ─► taken
//!                └─► after a pause, or after numbers went back: kept ─► which log is it? ─► the same: taken
//!                                                                                      └─► another: it is over
//! ```
//!
//! A session names an epoch and no log: who removes a journal and starts anew sends the same sessions and numbers once more, and so does who starts
//! an older copy of a journal: what tells that one is the reign of the epoch. In a new epoch it is asked first about the one before, in which what
//! was handed on was received, then about the new one. To start another appliance takes some
//! time, so packets without a pause between them are of one appliance, and what comes after a pause is asked about.
//!
//! Invariant: of what came after an asking that is answered with another identity or reign, nothing is handed on.
//! Invariant: nothing waits for long. A port that never told is waited for once; one that did, anew after each pause, since it may come back with
//! another log.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use ticktape::Nanos;
use ticktape::feed::{FeedSession, LogTold, MoldPacket, MoldRequest, Side, ask_log_identity, told_log_identity};
use ticktape::payload::Reign;

use super::follow_events_stream::place;

/// The least pause in which an appliance can be ended, its journal removed and another be started, in ns. From its start to its first packet
/// one takes 150 ms at the least (a journal on tmpfs; two shared cores): the rest is for hosts that are faster by far. Less asks more often, and
/// holds up more packets for a round trip; more could let one of another log through.
const RESTART_NS: u64 = 2_000_000;
/// How long an answer is waited for, in ns: many round trips.
const ASK_NS: u64 = 50_000_000;
/// The port is done without, until it tells, once as many are not answered, and for so long.
const ASKS_MAX: u32 = 4;
const MUTE_NS: u64 = ASKS_MAX as u64 * ASK_NS;
/// Between two askings, in ns: whoever forges must not make us ask without end.
const ASK_GAP_NS: u64 = 1_000_000;
/// Without a reason it is asked so often, in ns.
const ASK_EVERY_NS: u64 = 1_000_000_000;
/// Numbers that go back are a reason so often, in ns: a side may repeat what it sent.
const BACK_NS: u64 = 100_000_000;
/// Askings that may be under way: what is received within a round trip, of a network that is far.
const ASKED_MAX: usize = 16;
/// Bytes that wait for an answer. What comes beyond them is as lost as if it had not come, and repaired.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Reigns that are remembered: more starts than anybody follows through.
const KNOWN_MAX: usize = 1024;

/// Where a datagram came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// On a feed.
    Feed(Side),
    /// From the repair port, as a repair.
    Repair,
    /// From the repair port, as an answer to a probe.
    Probed,
}

/// When a datagram came, as far as that is known.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// Not before this.
    pub after: Nanos,
    /// Not after this.
    pub before: Nanos,
}

impl Came {
    /// At this very time.
    pub const fn at(at: Nanos) -> Self {
        Came { after: at, before: at }
    }
}

/// A datagram that waits.
struct Kept {
    way: Way,
    datagram: Vec<u8>,
    /// Asked about at or after this.
    doubted_at: Nanos,
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The first identity that was told.
    First,
    /// The same as before.
    Same,
    /// Another one.
    Other {
        /// That of what was handed on.
        ours: NonZeroU64,
        /// That of the log which the port serves.
        theirs: NonZeroU64,
    },
    /// The same, and another reign of an epoch: an older copy of the log was started.
    OtherHistory {
        /// The reign in which was received what was handed on.
        ours: Reign,
        /// That of the same epoch in the log which the port serves.
        theirs: Reign,
    },
    /// The reign that was brought along is one that the port can't tell of.
    Unknown,
}

/// See the module.
pub struct LogGate {
    stream: u32,
    has_rewinder: bool,
    log_id: Option<NonZeroU64>,
    /// The epoch that is listened to.
    epoch: u32,
    /// The reign in which was received what was handed on, as far as it is known.
    held: Option<Reign>,
    /// The reigns that were told of epochs listened to so far: an older copy that is started may come back to a lower one.
    known: VecDeque<Reign>,
    /// It was brought along, and nobody has borne it out.
    is_claimed: bool,
    /// The port does not tell.
    is_mute: bool,
    /// It did, but does not answer.
    is_silent: bool,
    /// When another session was begun with.
    session_at: Nanos,
    /// Since then another log may be behind the port.
    doubted_at: Nanos,
    was_told: bool,
    /// Before that it is known which one was, or was waited for in vain.
    confirmed_at: Option<Nanos>,
    /// What was heard last came after this.
    heard_after: Nanos,
    /// One above the highest number of each side.
    nexts: [u64; 2],
    back_at: Option<Nanos>,
    kept: VecDeque<Kept>,
    kept_bytes: usize,
    /// When it was asked, as far as that is not answered or given up.
    asked: VecDeque<Nanos>,
    asked_at: Option<Nanos>,
    /// Askings since the last answer, and when the first of them was.
    silent: Option<(Nanos, u32)>,
}

impl LogGate {
    /// Of a stream that begins now with `session`, and goes on after what was received of the log `log_id` and in the reign `held`, where that
    /// is said.
    pub fn new(
        now: Nanos,
        session: FeedSession,
        has_rewinder: bool,
        log_id: Option<NonZeroU64>,
        held: Option<Reign>,
    ) -> Self {
        LogGate {
            stream: session.stream(),
            has_rewinder,
            log_id,
            epoch: session.epoch(),
            held,
            known: VecDeque::new(),
            is_claimed: held.is_some(),
            is_mute: !has_rewinder,
            is_silent: false,
            session_at: now,
            doubted_at: now,
            was_told: false,
            confirmed_at: None,
            heard_after: now,
            nexts: [0; 2],
            back_at: None,
            kept: VecDeque::new(),
            kept_bytes: 0,
            asked: VecDeque::with_capacity(ASKED_MAX),
            asked_at: None,
            silent: None,
        }
    }

    /// The log that the events are of, as far as anybody told.
    pub const fn log_id(&self) -> Option<NonZeroU64> {
        self.log_id
    }

    /// The reign in which was received what was handed on, as far as anybody told.
    pub const fn reign(&self) -> Option<Reign> {
        self.held
    }

    /// Whether the port never told, and is no longer waited for.
    pub const fn is_mute(&self) -> bool {
        self.is_mute
    }

    /// Whether the port told and then fell silent.
    pub const fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Whether it is known, or was waited for in vain, which log the present session is of.
    pub fn knows_session(&self) -> bool {
        self.is_settled_since(self.session_at)
    }

    fn is_settled_since(&self, at: Nanos) -> bool {
        self.is_mute || self.confirmed_at.is_some_and(|confirmed_at| confirmed_at >= at)
    }

    /// Another session is listened to: its numbers have nothing to do with those of before.
    pub fn begin_session(&mut self, now: Nanos, epoch: u32) {
        (self.session_at, self.nexts, self.epoch) = (now, [0; 2], epoch);
        // Of an epoch that was left nothing counts.
        self.held = self.held.filter(|held| held.epoch <= epoch.into());
        self.doubt(now);
    }

    fn doubt(&mut self, now: Nanos) {
        if self.is_settled_since(self.doubted_at) {
            // What was asked before this reason says nothing of it.
            self.silent = None;
        }
        self.doubted_at = now;
    }

    /// A datagram that came at some time in `came`; whether it is to be taken at once. It is kept otherwise.
    pub fn on_datagram(&mut self, now: Nanos, came: Came, way: Way, datagram: &[u8]) -> bool {
        let goes_back = self.goes_back(now, way, datagram);
        if goes_back || came.before.saturating_sub(self.heard_after) >= RESTART_NS {
            self.doubt(now);
        }
        self.heard_after = self.heard_after.max(came.after);
        if self.is_mute || self.kept.is_empty() && self.is_settled_since(self.doubted_at) {
            return true;
        }
        if self.kept_bytes + datagram.len() <= KEPT_BYTES_MAX {
            self.kept_bytes += datagram.len();
            self.kept.push_back(Kept { way, datagram: datagram.to_vec(), doubted_at: self.doubted_at });
        }
        false
    }

    /// Whether a side's numbers go back, and that is a reason to ask.
    fn goes_back(&mut self, now: Nanos, way: Way, datagram: &[u8]) -> bool {
        let (Way::Feed(side), Ok(packet)) = (way, MoldPacket::parse(datagram)) else { return false };
        let (_, sequence) = place(&packet);
        let count = if let MoldPacket::Messages { count, .. } = packet { count } else { 0 };
        let Some(next) = self.nexts.get_mut(side as usize) else { return false };
        if sequence < *next && self.back_at.is_none_or(|at| now.saturating_sub(at) >= BACK_NS) {
            (self.back_at, *next) = (Some(now), sequence.saturating_add(count.into()));
            return true;
        }
        *next = (*next).max(sequence.saturating_add(count.into()));
        false
    }

    /// The next datagram that was kept and may be taken now.
    pub fn pop(&mut self) -> Option<(Way, Vec<u8>)> {
        let may_go = |kept: &Kept| self.is_mute || self.confirmed_at.is_some_and(|at| at >= kept.doubted_at);
        let Kept { way, datagram, .. } = self.kept.pop_front_if(|kept| may_go(kept))?;
        self.kept_bytes -= datagram.len();
        Some((way, datagram))
    }

    /// The next asking, from a socket of its own: what comes there is for [`LogGate::on_answer`].
    pub fn poll_ask(&mut self, now: Nanos) -> Option<MoldRequest> {
        if !self.has_rewinder {
            return None;
        }
        while self.asked.pop_front_if(|at| now.saturating_sub(*at) >= ASK_NS).is_some() {}
        let is_mute = |(since, asks): (Nanos, u32)| asks >= ASKS_MAX && now.saturating_sub(since) >= MUTE_NS;
        if !self.is_settled_since(self.doubted_at) && self.silent.is_some_and(is_mute) {
            self.give_up();
        }
        let has_passed = |ns: u64| self.asked_at.is_none_or(|at| now.saturating_sub(at) >= ns);
        let is_new = self.asked_at.is_none_or(|at| at < self.doubted_at);
        let is_due = if self.is_settled_since(self.doubted_at) {
            has_passed(ASK_EVERY_NS)
        } else {
            is_new && has_passed(ASK_GAP_NS) || has_passed(ASK_NS)
        };
        if !is_due || self.asked.len() == ASKED_MAX {
            return None;
        }
        self.asked.push_back(now);
        self.asked_at = Some(now);
        self.silent = Some(self.silent.map_or((now, 1), |(since, asks)| (since, asks + 1)));
        Some(ask_log_identity(self.stream, self.asks_about()))
    }

    /// The epoch that is asked about: that of what was handed on, until it is known whose that is, then the present one.
    fn asks_about(&self) -> u32 {
        let held = self.held.and_then(|held| u32::try_from(held.epoch).ok());
        held.filter(|&epoch| epoch > 0 && epoch < self.epoch).unwrap_or(self.epoch)
    }

    /// The port is waited for no longer.
    fn give_up(&mut self) {
        self.silent = None;
        if self.was_told {
            // Where nothing waits nobody has to know.
            self.is_silent |= !self.kept.is_empty();
            self.confirmed_at = self.confirmed_at.max(self.asked_at);
        } else {
            self.is_mute = true;
        }
    }

    /// A datagram of the repair port, on the socket that it was asked from. `None` where it tells nothing.
    pub fn on_answer(&mut self, datagram: &[u8]) -> Option<Told> {
        // The port's answers come in order; what is not answered within its time was lost.
        let asked_at = self.asked.pop_front()?;
        (self.silent, self.is_silent) = (None, false);
        let Some(LogTold { log_id: theirs, reign }) = told_log_identity(self.stream, datagram) else {
            // A port that knows none.
            self.is_mute = true;
            return None;
        };
        let ours = *self.log_id.get_or_insert(theirs);
        if ours != theirs {
            self.forget_kept();
            return Some(Told::Other { ours, theirs });
        }
        if let Some(told) = self.judge_reign(reign) {
            return Some(told);
        }
        let is_first = !std::mem::replace(&mut self.was_told, true);
        self.confirmed_at = self.confirmed_at.max(Some(asked_at));
        self.heard_after = self.heard_after.max(asked_at);
        self.is_mute = false;
        Some(if is_first { Told::First } else { Told::Same })
    }

    /// What the reign that was told says, where that is not that all is as before.
    fn judge_reign(&mut self, told: Option<Reign>) -> Option<Told> {
        let held_epoch = self.held.map_or(0, |held| held.epoch);
        if self.is_claimed && told.is_none_or(|told| told.epoch == held_epoch && told.id == 0) {
            self.forget_kept();
            return Some(Told::Unknown);
        }
        let theirs = told?;
        if let Some(&ours) = self.held.iter().chain(&self.known).find(|ours| theirs.is_other(**ours)) {
            self.forget_kept();
            return Some(Told::OtherHistory { ours, theirs });
        }
        self.is_claimed &= theirs.epoch != held_epoch;
        if theirs.epoch == u64::from(self.epoch) {
            self.know(theirs);
            self.held = Some(theirs).filter(|theirs| theirs.id != 0).or(self.held);
            return None;
        }
        if theirs.epoch == held_epoch {
            // What was handed on is of this history: now for the present epoch, at once.
            (self.held, self.asked_at) = (None, None);
        }
        self.was_told = true;
        Some(Told::Same)
    }

    fn know(&mut self, reign: Reign) {
        if reign.id != 0 && !self.known.contains(&reign) {
            if self.known.len() == KNOWN_MAX {
                self.known.pop_front();
            }
            self.known.push_back(reign);
        }
    }

    fn forget_kept(&mut self) {
        (self.kept_bytes, self.is_mute) = (0, false);
        self.kept.clear();
    }
}

#[cfg(test)]
#[path = "follow_events_log_tests.rs"]
mod tests;
