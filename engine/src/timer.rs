//! Timers are deterministic engine state: what fires, and in which order, follows from the log alone.
//!
//! Invariant: timers fire in (deadline, arming order), each as a step of its own, before any frame stamped at or after the
//! deadline is applied.

use std::collections::{BTreeMap, BTreeSet};

use ticktape_core::{TimerId, TimerOp, Timestamp};

/// The armed timers of one engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timers {
    armed: BTreeMap<TimerId, (Timestamp, u64)>,
    queue: BTreeSet<(Timestamp, u64, TimerId)>,
    arming: u64,
}

impl Timers {
    /// No timers.
    pub fn new() -> Self {
        Timers::default()
    }

    /// Carries out what a step asked for.
    pub fn apply(&mut self, op: TimerOp) {
        match op {
            TimerOp::Set(id, at) => {
                self.cancel(id);
                self.arming += 1;
                self.armed.insert(id, (at, self.arming));
                self.queue.insert((at, self.arming, id));
            }
            TimerOp::Cancel(id) => self.cancel(id),
        }
    }

    fn cancel(&mut self, id: TimerId) {
        if let Some((at, arming)) = self.armed.remove(&id) {
            self.queue.remove(&(at, arming, id));
        }
    }

    /// Takes the next timer that is due at or before `now`.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<(TimerId, Timestamp)> {
        let &(at, arming, id) = self.queue.first()?;
        if at > now {
            return None;
        }
        self.queue.remove(&(at, arming, id));
        self.armed.remove(&id);
        Some((id, at))
    }

    /// The next deadline, if any timer is armed.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.queue.first().map(|&(at, ..)| at)
    }

    /// How many are armed.
    pub fn len(&self) -> usize {
        self.armed.len()
    }

    /// Whether none is armed.
    pub fn is_empty(&self) -> bool {
        self.armed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(timers: &mut Timers, now: u64) -> Vec<(u64, u64)> {
        std::iter::from_fn(|| timers.pop_due(Timestamp(now))).map(|(id, at)| (id.0, at.0)).collect()
    }

    #[test]
    fn equal_deadlines_fire_in_arming_order() {
        let mut timers = Timers::new();
        for id in [3, 1, 2] {
            timers.apply(TimerOp::Set(TimerId(id), Timestamp(10)));
        }
        timers.apply(TimerOp::Set(TimerId(9), Timestamp(5)));
        assert_eq!(drain(&mut timers, 9), [(9, 5)]);
        assert_eq!(drain(&mut timers, 10), [(3, 10), (1, 10), (2, 10)]);
        assert!(timers.is_empty());
    }

    #[test]
    fn arming_again_moves_a_timer_and_its_place_in_the_order() {
        let mut timers = Timers::new();
        timers.apply(TimerOp::Set(TimerId(1), Timestamp(10)));
        timers.apply(TimerOp::Set(TimerId(2), Timestamp(10)));
        timers.apply(TimerOp::Set(TimerId(1), Timestamp(10)));
        assert_eq!(timers.len(), 2);
        assert_eq!(drain(&mut timers, 10), [(2, 10), (1, 10)]);
    }

    #[test]
    fn a_canceled_timer_never_fires() {
        let mut timers = Timers::new();
        timers.apply(TimerOp::Set(TimerId(1), Timestamp(10)));
        timers.apply(TimerOp::Cancel(TimerId(1)));
        timers.apply(TimerOp::Cancel(TimerId(7)));
        assert_eq!(timers.next_deadline(), None);
        assert!(drain(&mut timers, u64::MAX).is_empty());
    }
}
