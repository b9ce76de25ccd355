//! The repair requester: which numbers are asked for, of whom, and until when.
//!
//! ```text
//!  gap seen ─► waiting (other side may have it) ─► asked ─┬─► came: done
//!                                                         ├─► deadline: asked again, of another, later each time
//!                                                         └─► attempts used up, or nobody keeps it: given up
//! ```
//!
//! Invariant: every number missing within the window is in a waiting gap, in an outstanding request, or given up.
//! Invariant: each of these but the last has a time at which it ends.

use ticktape_core::Nanos;

use super::slots::Slots;

/// How lost messages are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairConfig {
    /// A request that brought nothing for so long is sent again, to another rewinder, in ns. A few round trips: less repeats
    /// what is on its way, more delays the repair when a request was lost.
    pub deadline_ns: u64,
    /// The deadline doubles with each attempt, up to this, in ns.
    pub deadline_ns_max: u64,
    /// Requests for a range that bring nothing, until it is given up.
    pub attempts_max: u32,
    /// Messages asked for at once, from 1 to 65534: larger ranges are split, and spread over the rewinders.
    pub messages_per_request: u16,
    /// Requests on their way at a time, at least 1.
    pub requests_max: usize,
    /// Requests in a row that a rewinder left without an answer, until it is passed over for a while.
    pub strikes_max: u32,
    /// How long it is passed over, in ns.
    pub rest_ns: u64,
    /// A feed without a packet for so long is reported silent, in ns; a few heartbeat intervals. What was given up is
    /// reported again this often until somebody acts on it.
    pub silence_ns: u64,
}

impl Default for RepairConfig {
    /// For one network: round trips well below a millisecond, heartbeats each second.
    fn default() -> Self {
        RepairConfig {
            deadline_ns: 2_000_000,
            deadline_ns_max: 50_000_000,
            attempts_max: 6,
            messages_per_request: 256,
            requests_max: 64,
            strikes_max: 3,
            rest_ns: 500_000_000,
            silence_ns: 3_000_000_000,
        }
    }
}

/// Gaps that wait for the other side. Where there are more, the newest ones are taken for one.
const WAITING_MAX: usize = 1024;
/// Rewinders that can be told apart in a set of bits.
pub(super) const REWINDERS_MAX: usize = 64;

/// What a requester did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairCounters {
    /// Gaps that were seen.
    pub gaps: u64,
    /// Messages in them.
    pub gap_messages: u64,
    /// Requests, repeated ones included.
    pub requests: u64,
    /// Messages asked for, likewise.
    pub requested: u64,
    /// Requests that were a repetition.
    pub retries: u64,
    /// Requests that brought nothing within their deadline.
    pub timeouts: u64,
    /// Answers that a rewinder no longer has the range.
    pub too_old: u64,
    /// Answers that a rewinder does not have the range yet.
    pub not_yet: u64,
    /// How often a rewinder was set aside for its silence.
    pub rests: u64,
    /// Requests that brought something.
    pub answered: u64,
    /// Time from the request to its first repair, all together, in ns.
    pub round_trip_ns_sum: u64,
    /// The longest of them, in ns.
    pub round_trip_ns_max: u64,
    /// Ranges that were given up.
    pub given_up: u64,
}

/// What is to be sent: messages `from .. from + count`, to a rewinder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) rewinder: usize,
    pub(super) from: u64,
    pub(super) count: u16,
}

/// A range within which something was missing; the bitmap says what still is.
#[derive(Clone, Copy, Debug)]
struct Gap {
    from: u64,
    to: u64,
    due: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Ask {
    from: u64,
    to: u64,
    rewinder: usize,
    /// Requests that brought nothing so far.
    attempts: u32,
    sent_at: Nanos,
    deadline: Nanos,
    /// Whether anything came since it was sent.
    progressed: bool,
    /// Whether its rewinder said that it has nothing of it.
    refused: bool,
    /// Rewinders that no longer have it.
    too_old: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Health {
    strikes: u32,
    rests_until: Nanos,
}

/// The requester's state.
#[derive(Debug)]
pub(super) struct Repair {
    config: RepairConfig,
    waiting: std::collections::VecDeque<Gap>,
    asks: Vec<Ask>,
    rewinders: Box<[Health]>,
    /// Where the next search for a rewinder begins.
    turn: usize,
    /// Nothing is to be done before.
    due_at: Nanos,
    given_up: Option<(u64, u64)>,
    counters: RepairCounters,
}

const NEVER: Nanos = Nanos::MAX;

impl Repair {
    pub(super) fn new(config: &RepairConfig, rewinders: usize) -> Self {
        assert!(rewinders <= REWINDERS_MAX, "{rewinders} rewinders are more than {REWINDERS_MAX}");
        assert!(config.requests_max > 0 && config.attempts_max > 0 && config.deadline_ns > 0);
        assert!((1..u16::MAX).contains(&config.messages_per_request));
        Repair {
            config: *config,
            waiting: std::collections::VecDeque::with_capacity(WAITING_MAX),
            asks: Vec::with_capacity(config.requests_max),
            rewinders: vec![Health::default(); rewinders].into(),
            turn: 0,
            due_at: NEVER,
            given_up: None,
            counters: RepairCounters::default(),
        }
    }

    pub(super) const fn counters(&self) -> RepairCounters {
        self.counters
    }

    /// When there is something to do; far in the future if never.
    pub(super) const fn due_at(&self) -> Nanos {
        self.due_at
    }

    /// Messages `from .. to` are missing, and may still come until `due`.
    pub(super) fn gap(&mut self, from: u64, to: u64, due: Nanos) {
        self.counters.gaps += 1;
        self.counters.gap_messages += to - from;
        if self.waiting.len() == WAITING_MAX
            && let Some(newest) = self.waiting.back_mut()
        {
            (newest.from, newest.to) = (newest.from.min(from), newest.to.max(to));
            return;
        }
        self.waiting.push_back(Gap { from, to, due });
        self.due_at = self.due_at.min(due);
    }

    /// Forgets everything: nothing is missing any more, as far as is known.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
        self.asks.clear();
        self.given_up = None;
        self.due_at = NEVER;
    }

    /// The range that was given up, as far as it is still missing.
    pub(super) fn given_up(&mut self, slots: &Slots, next_seq: u64) -> Option<(u64, u64)> {
        let (from, to) = self.given_up?;
        self.given_up = slots.next_missing(from.max(next_seq), to).map(|from| (from, to));
        self.given_up
    }

    /// Whether a range was given up that may still be missing.
    pub(super) const fn has_given_up(&self) -> bool {
        self.given_up.is_some()
    }

    fn give_up(&mut self, from: u64, to: u64) {
        self.counters.given_up += 1;
        let (first, end) = self.given_up.unwrap_or((from, to));
        self.given_up = Some((first.min(from), end.max(to)));
    }

    /// The next request to send.
    pub(super) fn poll(&mut self, now: Nanos, slots: &Slots, next_seq: u64) -> Option<Wanted> {
        if now < self.due_at {
            return None;
        }
        while let Some(at) = self.asks.iter().position(|ask| ask.deadline <= now) {
            if let Some(wanted) = self.expire(at, now, slots, next_seq) {
                return Some(wanted);
            }
        }
        let wanted = self.begin(now, slots, next_seq);
        if wanted.is_none() {
            let asks = self.asks.iter().map(|ask| ask.deadline).min().unwrap_or(NEVER);
            let is_full = self.asks.len() == self.config.requests_max;
            let gap = self.waiting.front().filter(|_| !is_full).map_or(NEVER, |gap| gap.due);
            self.due_at = asks.min(gap);
        }
        wanted
    }

    /// Turns waiting gaps that are due into a request.
    fn begin(&mut self, now: Nanos, slots: &Slots, next_seq: u64) -> Option<Wanted> {
        while self.asks.len() < self.config.requests_max {
            let gap = self.waiting.front_mut().filter(|gap| gap.due <= now)?;
            let Some(from) = slots.next_missing(gap.from.max(next_seq), gap.to) else {
                self.waiting.pop_front();
                continue;
            };
            let limit = gap.to.min(from.saturating_add(self.config.messages_per_request.into()));
            let to = slots.next_present(from, limit).unwrap_or(limit);
            gap.from = to;
            match self.choose(now, None, 0) {
                Some(rewinder) => return Some(self.ask(now, from, to, rewinder)),
                None => self.give_up(from, to),
            }
        }
        None
    }

    fn ask(&mut self, now: Nanos, from: u64, to: u64, rewinder: usize) -> Wanted {
        let deadline = now.saturating_add(self.patience(0));
        let (attempts, sent_at, progressed, refused, too_old) = (0, now, false, false, 0);
        self.asks.push(Ask { from, to, rewinder, attempts, sent_at, deadline, progressed, refused, too_old });
        self.due_at = self.due_at.min(deadline);
        self.wanted(rewinder, from, to)
    }

    fn wanted(&mut self, rewinder: usize, from: u64, to: u64) -> Wanted {
        let count = (to - from) as u16;
        self.counters.requests += 1;
        self.counters.requested += u64::from(count);
        Wanted { rewinder, from, count }
    }

    fn patience(&self, attempts: u32) -> u64 {
        let doubled = self.config.deadline_ns.saturating_mul(1 << attempts.min(20));
        doubled.min(self.config.deadline_ns_max.max(self.config.deadline_ns))
    }

    /// The request at `at` has met its deadline: it is done, asked of another, or given up.
    fn expire(&mut self, at: usize, now: Nanos, slots: &Slots, next_seq: u64) -> Option<Wanted> {
        let mut ask = self.asks[at];
        let Some(from) = slots.next_missing(ask.from.max(next_seq), ask.to) else {
            self.asks.swap_remove(at);
            return None;
        };
        ask.from = from;
        if !ask.progressed {
            ask.attempts += 1;
            if !ask.refused {
                self.counters.timeouts += 1;
                self.strike(ask.rewinder, now);
            }
        }
        let next = self.choose(now, Some(ask.rewinder), ask.too_old);
        let (Some(rewinder), true) = (next, ask.attempts < self.config.attempts_max) else {
            self.asks.swap_remove(at);
            self.give_up(ask.from, ask.to);
            return None;
        };
        (ask.rewinder, ask.sent_at, ask.progressed, ask.refused) = (rewinder, now, false, false);
        ask.deadline = now.saturating_add(self.patience(ask.attempts));
        self.asks[at] = ask;
        self.counters.retries += 1;
        Some(self.wanted(rewinder, ask.from, ask.to))
    }

    fn strike(&mut self, rewinder: usize, now: Nanos) {
        let health = &mut self.rewinders[rewinder];
        health.strikes += 1;
        if health.strikes >= self.config.strikes_max {
            health.strikes = 0;
            health.rests_until = now.saturating_add(self.config.rest_ns);
            self.counters.rests += 1;
        }
    }

    /// The next in turn but `last` and those in `too_old`; one that rests only where there is no other, and `last` only where
    /// there is none at all.
    fn choose(&mut self, now: Nanos, last: Option<usize>, too_old: u64) -> Option<usize> {
        let count = self.rewinders.len();
        let turns = (0..count).map(|step| (self.turn + step) % count);
        let best = turns
            .filter(|&at| too_old & (1 << at) == 0)
            .min_by_key(|&at| (self.rewinders[at].rests_until > now, Some(at) == last))?;
        self.turn = (best + 1) % count;
        Some(best)
    }

    /// Messages of `from .. to` came from a rewinder.
    pub(super) fn on_repair(&mut self, now: Nanos, from: u64, to: u64, slots: &Slots, next_seq: u64) {
        let mut at = 0;
        while at < self.asks.len() {
            let ask = &mut self.asks[at];
            if ask.to <= from || ask.from >= to {
                at += 1;
                continue;
            }
            if !ask.progressed {
                ask.progressed = true;
                let round_trip_ns = now.saturating_sub(ask.sent_at);
                self.counters.answered += 1;
                self.counters.round_trip_ns_sum += round_trip_ns;
                self.counters.round_trip_ns_max = self.counters.round_trip_ns_max.max(round_trip_ns);
                self.rewinders[ask.rewinder] = Health::default();
            }
            if slots.next_missing(ask.from.max(next_seq), ask.to).is_none() {
                self.asks.swap_remove(at);
                // A gap may have waited for the place.
                self.due_at = self.due_at.min(self.waiting.front().map_or(NEVER, |gap| gap.due));
            } else {
                at += 1;
            }
        }
    }

    /// A rewinder says that of what it was asked for it has nothing: its nearest number is `nearest`. Which request it means it does
    /// not say: of the unanswered ones, the first sent of those that are not there yet, before those that are gone. So a range that
    /// the rewinder may have is never taken for gone because of what it said of another.
    pub(super) fn on_refusal(&mut self, now: Nanos, nearest: u64) {
        let unanswered = self.asks.iter_mut().filter(|ask| !ask.progressed && !ask.refused);
        let Some(ask) = unanswered.min_by_key(|ask| (ask.from < nearest, ask.sent_at)) else { return };
        self.rewinders[ask.rewinder] = Health::default();
        ask.refused = true;
        if nearest > ask.from {
            self.counters.too_old += 1;
            ask.too_old |= 1 << ask.rewinder;
            ask.deadline = now;
        } else {
            self.counters.not_yet += 1;
            ask.deadline = ask.deadline.min(now.saturating_add(self.config.deadline_ns));
        }
        self.due_at = self.due_at.min(ask.deadline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_what_is_not_there_yet_gives_up_nothing_that_may_be_there() {
        let (mut repair, slots) = (Repair::new(&RepairConfig::default(), 1), Slots::new(1024, 8));
        repair.gap(100, 110, 0);
        repair.gap(500, 510, 0);
        let asked: Vec<_> = std::iter::from_fn(|| repair.poll(0, &slots, 100)).map(|wanted| wanted.from).collect();
        assert_eq!(asked, [100, 500]);
        // The answer to the first was lost; of the second the rewinder has nothing yet: its log ends before 300.
        repair.on_refusal(1, 300);
        assert_eq!((repair.counters().not_yet, repair.counters().too_old), (1, 0));
        // Asked for again, as before.
        let again = repair.poll(RepairConfig::default().deadline_ns, &slots, 100).expect("its deadline has come");
        assert_eq!(again.from, 100);
        assert!(!repair.has_given_up());
        // Now there is nothing else that it can mean.
        repair.on_refusal(2, 300);
        assert_eq!((repair.counters().not_yet, repair.counters().too_old), (1, 1));
    }
}
