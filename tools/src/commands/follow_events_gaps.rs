//! Gaps: numbers that are missing before what is held, or is said to be there, and who is believed about them.
//!
//! ```text
//!  ahead of the next number ─► asked for at once ─► it comes: in order
//!    beyond the window, or not answered ─► what does the repair port have of the next number?
//!      it has it ─► asked for window by window      it begins later ─► what is before that is lost
//!      it is not there yet ─► what is held ahead of it is thrown away, and asked for a few times more
//!      no answer ─► what came is gone on to once a second packet says the same
//! ```
//!
//! Invariant: with a repair port that answers, no number is skipped but those that it says are gone.

use ticktape::Nanos;
use ticktape::feed::{MoldPacket, MoldRequest, Side};

use super::super::follow_events_sessions::led;
use super::super::follow_events_words::{Loss, Out};
use super::{SILENCE_NS, Stream, WINDOW_EVENTS, place};

/// Packets with messages near each other, beyond the window, that make up for a repair port that has nothing: one may be forged.
const FAR_BELIEVED: u32 = 3;
/// How long a probe is waited for, in ns: many round trips.
const PROBE_NS: u64 = 50_000_000;
/// How often it is sent.
const PROBES_MAX: u32 = 4;
/// The least time from a probe that brought nothing to the next, in ns: whoever forges must not make us ask without end.
const QUIET_NS: u64 = 100_000_000;
/// What is not there yet is asked for again after this, in ns, then after twice as long, and so on: a rewinder may be behind the feed.
const NOT_YET_NS: u64 = 5_000_000;
/// So often; then it is as if nobody had spoken of it. 0.3 s in all.
const NOT_YETS_MAX: u32 = 6;

/// Messages beyond the window, while the next one was `next_seq`.
#[derive(Clone, Copy)]
struct Far {
    next_seq: u64,
    sequence: u64,
    count: u32,
}

/// What named a number ahead of a gap, while the next one was `next_seq`.
#[derive(Clone, Copy)]
struct Witness {
    next_seq: u64,
    first: (Side, u64, u16),
    has_second: bool,
}

/// A request whose answer tells what the repair port has.
#[derive(Clone, Copy)]
struct Probe {
    sequence: u64,
    deadline: Nanos,
    sent: u32,
}

/// What is known of gaps.
#[derive(Default)]
pub struct Gaps {
    missing: u64,
    /// Numbers before this exist, somebody said.
    word: u64,
    far: Option<Far>,
    far_heard_at: Option<Nanos>,
    witness: Option<Witness>,
    /// What the arbiter gave up.
    stuck: Option<(u64, u64)>,
    probe: Option<Probe>,
    quiet_until: Nanos,
    /// How often in a row the repair port said that it has nothing yet, and when last.
    not_yets: u32,
    not_yet_at: Nanos,
    /// Whether messages were among what it spoke of so.
    has_thrown: bool,
    told_at: Option<Nanos>,
}

impl Gaps {
    /// Events that were declared lost.
    pub const fn missing(&self) -> u64 {
        self.missing
    }

    /// Another session: its numbers have to be spoken of anew.
    pub fn begin_session(&mut self) {
        *self =
            Gaps { missing: self.missing, far_heard_at: self.far_heard_at, told_at: self.told_at, ..Gaps::default() };
    }

    /// Whether the repair port has just said that it has nothing, and is left alone for a while.
    pub const fn is_resting(&self, now: Nanos) -> bool {
        self.not_yets > 0 && now < self.quiet_until
    }

    /// Whether something beyond the window was heard lately.
    pub fn was_far_heard(&self, now: Nanos) -> bool {
        self.far_heard_at.is_some_and(|at| now.saturating_sub(at) < SILENCE_NS)
    }
}

impl Stream {
    /// Numbers before `to` exist.
    pub(super) fn want(&mut self, to: u64) {
        self.gaps.word = self.gaps.word.max(to);
    }

    /// A packet of the session names `sequence`; whether the arbiter is to take it.
    pub(super) fn hear_ahead(&mut self, now: Nanos, side: Side, sequence: u64, count: u16) -> bool {
        let next_seq = self.next_seq();
        if sequence > next_seq {
            let first = (side, sequence, count);
            let before = self.gaps.witness.filter(|witness| witness.next_seq == next_seq);
            let has_second = before.is_some_and(|witness| witness.has_second || witness.first != first);
            let first = before.map_or(first, |witness| witness.first);
            self.gaps.witness = Some(Witness { next_seq, first, has_second });
        }
        if sequence <= next_seq.saturating_add(WINDOW_EVENTS) {
            return true;
        }
        self.gaps.far_heard_at = Some(now);
        self.want(sequence.saturating_add(count.into()));
        count > 0 && self.on_far(sequence)
    }

    /// Messages beyond the window; whether the stream went on to them.
    fn on_far(&mut self, sequence: u64) -> bool {
        let next_seq = self.next_seq();
        let is_near = |far: &Far| far.next_seq == next_seq && far.sequence.abs_diff(sequence) <= WINDOW_EVENTS;
        let count = self.gaps.far.filter(is_near).map_or(0, |far| far.count) + 1;
        self.gaps.far = Some(Far { next_seq, sequence, count });
        let is_believed = !self.has_rewinder && count >= FAR_BELIEVED;
        if is_believed {
            self.lose(sequence, Loss::NobodyAsked);
        }
        is_believed
    }

    /// Numbers up to `to` are lost, but those that are held.
    fn lose(&mut self, to: u64, loss: Loss) {
        while self.next_seq() < to {
            let next_seq = self.next_seq();
            let end = self.arbiter.next_held().map_or(to, |held| held.min(to));
            if end > next_seq {
                self.gaps.missing += end - next_seq;
                self.out.push(Out::Notice(loss.word(next_seq, end)));
                self.arbiter.skip_to(end);
            }
            self.deliver();
        }
    }

    /// The arbiter gave up numbers `from .. from + count`.
    pub(super) fn on_unrepairable(&mut self, now: Nanos, from: u64, count: u64) {
        self.gaps.stuck = Some((from, from.saturating_add(count)));
        if !self.has_rewinder {
            self.on_nobody(now);
        }
    }

    /// A probe of the next number, where it is missing and not being asked for.
    pub(super) fn poll_gap_probe(&mut self, now: Nanos) -> Option<MoldRequest> {
        let sequence = self.next_seq();
        if let Some(probe) = &mut self.gaps.probe {
            if now < probe.deadline {
                return None;
            }
            if probe.sent == PROBES_MAX {
                self.gaps.probe = None;
                self.on_nobody(now);
                return None;
            }
            (probe.sent, probe.deadline) = (probe.sent + 1, now + PROBE_NS);
        } else {
            if !self.has_rewinder || now < self.gaps.quiet_until || !self.is_behind() {
                return None;
            }
            self.gaps.probe = Some(Probe { sequence, deadline: now + PROBE_NS, sent: 1 });
        }
        let session = self.arbiter.session().encode();
        self.gaps.probe.map(|probe| MoldRequest { session, sequence: probe.sequence, count: 1 })
    }

    /// Whether the next number is missing and not being asked for.
    fn is_behind(&mut self) -> bool {
        let next_seq = self.next_seq();
        self.gaps.stuck = self.gaps.stuck.filter(|&(_, to)| next_seq < to);
        let is_idle = self.arbiter.known_next() == next_seq && self.gaps.word > next_seq;
        is_idle || self.gaps.stuck.is_some_and(|(from, _)| from <= next_seq)
    }

    /// A repair, or that there is none.
    pub(super) fn look_at_repair(&mut self, now: Nanos, datagram: &[u8]) {
        let Ok(packet) = MoldPacket::parse(datagram) else { return };
        let (name, sequence) = place(&packet);
        let is_ours = *name == self.arbiter.session().encode();
        if is_ours && !matches!(packet, MoldPacket::EndOfSession { .. }) {
            self.is_borne_out();
        }
        match packet {
            // That an epoch is over is told with the next one.
            MoldPacket::EndOfSession { .. } => {}
            // Nothing before the next number is asked for: what is gone is named by a higher one.
            MoldPacket::Heartbeat { .. } if is_ours && sequence <= self.next_seq() => self.on_not_yet(now),
            _ => {
                if is_ours && matches!(packet, MoldPacket::Messages { .. }) {
                    self.gaps.not_yets = 0;
                }
                self.feed(now, Side::Repair, datagram);
            }
        }
    }

    /// An answer to a probe, whatever it was about.
    pub(super) fn look_at_probed(&mut self, now: Nanos, datagram: &[u8]) {
        let Ok(packet) = MoldPacket::parse(datagram) else { return };
        if let MoldPacket::EndOfSession { .. } = packet {
            if let Some(verdict) = self.proof.and_then(|proof| proof.on_answer(datagram)) {
                self.settle(now, verdict);
            }
            return;
        }
        let (name, sequence) = place(&packet);
        if *name != self.arbiter.session().encode() {
            self.on_other_session(now, datagram, &packet);
            return;
        }
        self.is_borne_out();
        let probe = self.gaps.probe.take().filter(|probe| self.next_seq() == probe.sequence && self.proof.is_none());
        let Some(probe) = probe else { return };
        match packet {
            MoldPacket::Messages { .. } => {
                self.gaps.not_yets = 0;
                let to = self.gaps.stuck.take().map_or(self.gaps.word, |(_, to)| to.max(self.gaps.word));
                // What was given up is asked for again.
                self.arbiter.skip_to(probe.sequence);
                self.feed(now, Side::Repair, datagram);
                self.arbiter.want(now, to);
            }
            _ if sequence > probe.sequence => {
                self.gaps.stuck = None;
                self.lose(sequence, Loss::TooOld);
            }
            _ => self.on_not_yet(now),
        }
    }

    /// The repair port serves another session than ours.
    fn on_other_session(&mut self, now: Nanos, datagram: &[u8], packet: &MoldPacket<'_>) {
        if let Some(found) = self.newer.on_answer(datagram) {
            self.adopt(now, &found);
            return;
        }
        let (name, sequence) = place(packet);
        let present = self.arbiter.session();
        let is_lower = |it: &super::FeedSession| it.stream() == present.stream() && it.epoch() < present.epoch();
        if let Some(session) = led(name).filter(is_lower)
            && self.lower.was_asked(now)
        {
            self.go_back(now, session, sequence);
        }
    }

    /// The repair port has nothing from the next number on: what would be there is thrown away. What of it is true may be on its way there.
    fn on_not_yet(&mut self, now: Nanos) {
        let (next_seq, known_next) = (self.next_seq(), self.arbiter.known_next());
        // What waits to be told what it follows is no gap.
        if self.proof.is_some() || known_next.max(self.gaps.word) <= next_seq {
            return;
        }
        if now.saturating_sub(self.gaps.not_yet_at) >= SILENCE_NS {
            self.gaps.not_yets = 0;
        }
        (self.gaps.not_yets, self.gaps.not_yet_at) = (self.gaps.not_yets.saturating_add(1), now);
        let doublings = (self.gaps.not_yets - 1).min(NOT_YETS_MAX - 1);
        self.gaps.quiet_until = now + (NOT_YET_NS << doublings);
        self.gaps.has_thrown |= self.arbiter.held() > 0 || self.gaps.far.is_some();
        self.want(known_next);
        self.arbiter.forget_ahead();
        (self.gaps.stuck, self.gaps.far, self.gaps.witness, self.gaps.probe) = (None, None, None, None);
        if self.gaps.not_yets < NOT_YETS_MAX {
            return;
        }
        let last = std::mem::take(&mut self.gaps.word) - 1;
        self.heard_next = next_seq;
        let has_thrown = std::mem::take(&mut self.gaps.has_thrown);
        if has_thrown && self.gaps.told_at.is_none_or(|at| now.saturating_sub(at) >= SILENCE_NS) {
            self.gaps.told_at = Some(now);
            let word = format!(
                "events {next_seq} to {last} were spoken of, and the repair port has none of them: thrown away"
            );
            self.out.push(Out::Notice(word));
        }
    }

    /// Nobody says anything of the next number: on to what really came, or on as if nothing had been said.
    fn on_nobody(&mut self, now: Nanos) {
        self.gaps.quiet_until = now + QUIET_NS;
        let next_seq = self.next_seq();
        let far = self.gaps.far.filter(|far| far.next_seq == next_seq && far.count >= FAR_BELIEVED);
        let is_borne_out = !self.has_rewinder
            || self.gaps.witness.is_some_and(|witness| witness.next_seq == next_seq && witness.has_second);
        let held = self.arbiter.next_held().filter(|_| self.gaps.stuck.is_some());
        let loss = if self.has_rewinder { Loss::Unanswered } else { Loss::NobodyAsked };
        match (held, far) {
            // It stays stuck, and is probed again.
            (Some(_), None) if !is_borne_out => {}
            (Some(held), _) if is_borne_out => {
                self.gaps.stuck = None;
                self.lose(held, loss);
            }
            (_, Some(far)) => {
                self.gaps.stuck = None;
                self.lose(far.sequence, loss);
            }
            _ => {
                self.gaps.word = 0;
                if self.gaps.stuck.take().is_some() {
                    self.arbiter.skip_to(next_seq);
                }
            }
        }
    }
}
