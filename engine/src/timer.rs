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

    /// Every armed timer in arming order, as (id, deadline, arming), and the number of armings so far.
    pub(crate) fn to_parts(&self) -> (Vec<(TimerId, Timestamp, u64)>, u64) {
        let mut armed: Vec<_> = self.armed.iter().map(|(&id, &(at, arming))| (id, at, arming)).collect();
        armed.sort_unstable_by_key(|&(_, _, arming)| arming);
        (armed, self.arming)
    }

    /// The timers that [`Timers::to_parts`] told of; `None` where the parts contradict each other.
    pub(crate) fn from_parts(armed: &[(TimerId, Timestamp, u64)], arming: u64) -> Option<Timers> {
        let ascending = armed.is_sorted_by(|a, b| a.2 < b.2) && armed.last().is_none_or(|last| last.2 <= arming);
        let mut timers = Timers { arming, ..Timers::default() };
        for &(id, at, arming) in armed {
            timers.armed.insert(id, (at, arming));
            timers.queue.insert((at, arming, id));
        }
        (ascending && timers.armed.len() == armed.len()).then_some(timers)
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
    fn parts_make_the_same_timers_and_contradictions_none() {
        let mut timers = Timers::new();
        for (id, at) in [(3, 10), (1, 10), (2, 5), (3, 7)] {
            timers.apply(TimerOp::Set(TimerId(id), Timestamp(at)));
        }
        let (armed, arming) = timers.to_parts();
        assert_eq!(Timers::from_parts(&armed, arming), Some(timers));
        assert_eq!(Timers::from_parts(&armed, arming - 1), None);
        assert_eq!(Timers::from_parts(&[armed[1], armed[0]], arming), None);
        let twice = (armed[0].0, armed[1].1, armed[1].2);
        assert_eq!(Timers::from_parts(&[armed[0], twice], arming), None);
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
