//! The public event feed: what a service emits to everybody, once it is committed, as a MoldUDP64 stream of its own.
//!
//! ```text
//!   egress, up to commit ──► EventFeed ──► publisher ──► A and B
//!                                 └──► the latest events ◄── rewinder ◄── repair requests
//! ```
//!
//! Message n is event n of history, whatever the reign: the numbers go on over restarts, under a new session name. Whoever asks for
//! messages under an old name is told where that session ended: at tier `memory` a crash may have taken back what it held beyond. Whoever
//! asks in the name of epoch 0 is told which log this is.
//! Invariant: an event leaves when its input is committed, in order, and none is left out.
//! Invariant: an event that is repaired is the same bytes as when it was published.

use ticktape_core::{Nanos, Target};
use ticktape_nic::{Rx, Tx};

use crate::feed::{Answer, FeedCounters, Publisher, Recent, Rewinder, RewinderCounters};
use crate::machine::Emitted;

/// Repair requests answered in one round of housekeeping, so that whoever floods the port costs the egress a bounded time.
const REQUESTS_PER_ROUND_MAX: usize = 16;

/// How often the end of the session is said at once: a receiver that misses all of them hears only silence.
const ENDS: u32 = 3;

/// After the end was said, repairs are served until nobody has asked for so long, in ns: a request that is lost comes again sooner.
const LINGER_QUIET_NS: u64 = 500_000_000;

/// And for so long at most, in ns, whoever asks: a stop must come to an end. Longer than all that is kept takes at a requester's rate.
pub(crate) const LINGER_MAX_NS: u64 = 1_000_000_000;

/// Meanwhile the end is said again so often, in ns: what is lost behind the last event that came is known by it alone.
const LINGER_END_NS: u64 = 25_000_000;

/// Whoever has heard nothing of what was published so long ago, in ns, will not ask: several heartbeats have named it.
const LINGER_AFTER_NS: u64 = 3_000_000_000;

const _: () = assert!(LINGER_END_NS < LINGER_QUIET_NS && LINGER_QUIET_NS < LINGER_MAX_NS);

/// Bytes of recent events for each that may be kept: small ones fill both bounds at once.
const RECENT_EVENT_BYTES: usize = 32;

/// Recent events that are kept at most, whatever their size.
const RECENT_EVENTS_MAX: usize = 1 << 22;

const _: () = assert!(RECENT_EVENTS_MAX.is_power_of_two());

/// Room for about `bytes` bytes of the latest events, the next of which is number `next`.
pub fn recent_events(bytes: usize, next: u64) -> Recent {
    let events = (bytes / RECENT_EVENT_BYTES).clamp(1, RECENT_EVENTS_MAX).next_power_of_two();
    Recent::new(events, bytes, next)
}

/// Where the egress hands on what everybody may see.
pub trait EventSink {
    /// Takes a released event, if it is a public one. False where there is no room now: the same one comes again.
    fn release(&mut self, now: Nanos, output: &Emitted<'_>) -> bool;

    /// Sends what was taken: nothing more is there to go with it.
    fn flush(&mut self, now: Nanos);

    /// Rare work: heartbeats and repairs.
    fn housekeeping(&mut self, now: Nanos);

    /// Says that nothing follows. False until it is said and sent, and while somebody may still ask for what was lost.
    fn end(&mut self, now: Nanos) -> bool;

    /// What was done, by name.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// Nobody listens to public events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl EventSink for NoEvents {
    #[inline]
    fn release(&mut self, _: Nanos, _: &Emitted<'_>) -> bool {
        true
    }

    #[inline]
    fn flush(&mut self, _: Nanos) {}

    fn housekeeping(&mut self, _: Nanos) {}

    fn end(&mut self, _: Nanos) -> bool {
        true
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Answers those who missed events.
#[derive(Debug)]
pub struct EventRepair<R, T> {
    rx: R,
    tx: T,
    rewinder: Rewinder,
    asked_at: Option<Nanos>,
}

impl<R: Rx, T: Tx> EventRepair<R, T> {
    /// Takes requests from `rx`, and answers through `tx`.
    pub fn new(rx: R, tx: T, rewinder: Rewinder) -> Self {
        EventRepair { rx, tx, rewinder, asked_at: None }
    }

    fn serve(&mut self, now: Nanos, recent: &mut Recent) {
        let EventRepair { rx, tx, rewinder, asked_at } = self;
        rx.poll(now, REQUESTS_PER_ROUND_MAX, |datagram| {
            // What else became of it is counted; there is nobody to tell.
            let answer = rewinder.on_request(now, datagram.source, datagram.payload, recent, tx);
            if !matches!(answer, Answer::Malformed(_) | Answer::Foreign | Answer::OtherEpoch) {
                *asked_at = Some(now);
            }
        });
        if self.tx.queued() > 0 {
            self.tx.flush();
        }
    }
}

/// The feed of public events.
#[derive(Debug)]
pub struct EventFeed<T, R, U> {
    publisher: Publisher,
    tx: T,
    recent: Recent,
    repair: Option<EventRepair<R, U>>,
    released_at: Option<Nanos>,
    ends_left: u32,
    last_words: Option<LastWords>,
}

/// When the end was said, and said again.
#[derive(Clone, Copy, Debug)]
struct LastWords {
    first_at: Nanos,
    last_at: Nanos,
}

impl<T: Tx, R: Rx, U: Tx> EventFeed<T, R, U> {
    /// Publishes through `tx`, going on from the latest events.
    ///
    /// # Panics
    /// Where the publisher's next message is not the event that comes next.
    pub fn new(publisher: Publisher, tx: T, recent: Recent, repair: Option<EventRepair<R, U>>) -> Self {
        assert_eq!(publisher.next_seq(), recent.next(), "message n is event n");
        EventFeed { publisher, tx, recent, repair, released_at: None, ends_left: ENDS, last_words: None }
    }

    /// What was published.
    pub const fn published(&self) -> FeedCounters {
        self.publisher.counters()
    }

    /// What was repaired, where that is offered.
    pub fn repaired(&self) -> Option<RewinderCounters> {
        self.repair.as_ref().map(|repair| repair.rewinder.counters())
    }

    /// Whether somebody may still ask for what was lost, after the end was said first at `said_at`.
    fn may_be_asked(&self, now: Nanos, said_at: Nanos) -> bool {
        let Some(repair) = &self.repair else { return false };
        let is_recent = |at: Nanos| said_at.saturating_sub(at) < LINGER_AFTER_NS;
        if !self.released_at.into_iter().chain(repair.asked_at).any(is_recent) {
            return false;
        }
        let quiet_since = repair.asked_at.map_or(said_at, |at| at.max(said_at));
        now.saturating_sub(quiet_since) < LINGER_QUIET_NS && now.saturating_sub(said_at) < LINGER_MAX_NS
    }

    /// Requests that came faster than they were taken.
    pub fn requests_lost(&self) -> u64 {
        self.repair.as_ref().map_or(0, |repair| repair.rx.counters().dropped_before_poll)
    }
}

impl<T: Tx, R: Rx, U: Tx> EventSink for EventFeed<T, R, U> {
    #[inline]
    fn release(&mut self, now: Nanos, output: &Emitted<'_>) -> bool {
        if output.target != Target::Feed {
            return true;
        }
        let (publisher, tx) = (&mut self.publisher, &mut self.tx);
        if !publisher.push(now, output.event_seq, output.bytes, tx) {
            // The queue may only want to be handed over.
            tx.flush();
            if !publisher.push(now, output.event_seq, output.bytes, tx) {
                return false;
            }
        }
        self.recent.push(output.bytes);
        self.released_at = Some(now);
        true
    }

    #[inline]
    fn flush(&mut self, now: Nanos) {
        self.publisher.flush(now, &mut self.tx);
        if self.tx.queued() > 0 {
            self.tx.flush();
        }
    }

    fn housekeeping(&mut self, now: Nanos) {
        if self.last_words.is_none() {
            self.publisher.heartbeat(now, &mut self.tx);
        }
        if self.tx.queued() > 0 {
            self.tx.flush();
        }
        if let Some(repair) = &mut self.repair {
            repair.serve(now, &mut self.recent);
        }
    }

    fn end(&mut self, now: Nanos) -> bool {
        let words = *self.last_words.get_or_insert(LastWords { first_at: now, last_at: now });
        if self.ends_left == 0 && now.saturating_sub(words.last_at) >= LINGER_END_NS {
            self.ends_left = 1;
        }
        if self.ends_left > 0 && self.publisher.end_of_session(now, &mut self.tx) {
            self.ends_left -= 1;
            self.last_words = Some(LastWords { last_at: now, ..words });
        }
        self.tx.flush();
        self.ends_left == 0 && self.tx.queued() == 0 && !self.may_be_asked(now, words.first_at)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let published = self.published();
        let mut rows = vec![
            ("events_messages", published.messages),
            ("events_packets", published.packets),
            ("events_heartbeats", published.heartbeats),
            ("events_blocked", published.blocked),
            ("events_datagrams", self.tx.counters().datagrams),
        ];
        if let Some(repaired) = self.repaired() {
            let refused = repaired.requests - repaired.served - repaired.ended - repaired.identified;
            rows.extend([
                ("events_repair_requests", repaired.requests),
                ("events_repaired", repaired.messages),
                ("events_repairs_refused", refused),
                ("events_ends_told", repaired.ended),
                ("events_identities_told", repaired.identified),
                ("events_repair_requests_lost", self.requests_lost()),
            ]);
        }
        rows
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
