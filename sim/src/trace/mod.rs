//! What happened, told: typed events, each with its time, its step, and who it happened to.
//!
//! Nothing is computed for an event that nobody asked for: [`Trace::tell`] takes a closure, and without a tape it is one branch. Telling draws
//! no chance and moves no time, so a run that is told is the run that is not.

mod describe;
mod event;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::WorldTime;

pub(crate) use describe::{frame as describe_frame, input as describe_input, packet as describe_packet};
pub use event::{Event, What, Who};

/// Events of any kind that a tail ends with.
const TAIL_LAST: usize = 40;

/// Turns of the story (faults, starts, stops, recoveries, epochs) that a tail has before those.
const TAIL_TURNS: usize = 24;

/// What becomes of events.
pub enum Keep {
    /// Nobody asks.
    Nothing,
    /// The last ones, and before them the last turns of the story: what a failure is told with.
    Tail,
    /// Each is handed on as it happens.
    Each(Box<dyn FnMut(&Event) + Send>),
}

/// Where events go. Clones are the same tape.
#[derive(Clone, Default)]
pub struct Trace(Option<Arc<Mutex<Tape>>>);

struct Tape {
    time: WorldTime,
    step: u32,
    number: u64,
    keep: Keep,
    turns: VecDeque<Event>,
    last: VecDeque<Event>,
}

impl Trace {
    /// A tape for a world with this time.
    pub fn new(keep: Keep, time: &WorldTime) -> Self {
        if matches!(keep, Keep::Nothing) {
            return Trace(None);
        }
        let (turns, last) = (VecDeque::new(), VecDeque::new());
        Trace(Some(Arc::new(Mutex::new(Tape { time: time.clone(), step: 0, number: 0, keep, turns, last }))))
    }

    /// Whether anybody listens.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// From now on events belong to this step.
    #[inline]
    pub fn begin_step(&self, step: u32) {
        if let Some(tape) = &self.0 {
            lock(tape).step = step;
        }
    }

    /// Tells what happened to `who`, where anybody asks.
    #[inline]
    pub fn tell(&self, who: Who, what: impl FnOnce() -> What) {
        if let Some(tape) = &self.0 {
            // Before the lock is taken: the closure may look at things that tell.
            let what = what();
            lock(tape).put(who, what);
        }
    }

    /// What was kept: some turns of the story, then the last events, oldest first.
    pub fn take_tail(&self) -> Vec<Event> {
        let Some(tape) = &self.0 else { return Vec::new() };
        let mut tape = lock(tape);
        let first = tape.last.front().map_or(u64::MAX, |event| event.number);
        let turns = std::mem::take(&mut tape.turns).into_iter().filter(|event| event.number < first);
        turns.chain(std::mem::take(&mut tape.last)).collect()
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "Trace(on)" } else { "Trace(off)" })
    }
}

/// A stage that panics while it tells leaves the tape whole.
fn lock(tape: &Mutex<Tape>) -> MutexGuard<'_, Tape> {
    tape.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tape {
    fn put(&mut self, who: Who, what: What) {
        self.number += 1;
        let event = Event { number: self.number, ns: self.time.now(), step: self.step, who, what };
        if let Keep::Each(each) = &mut self.keep {
            return each(&event);
        }
        if event.what.is_turn() {
            push_bounded(&mut self.turns, event.clone(), TAIL_TURNS);
        }
        push_bounded(&mut self.last, event, TAIL_LAST);
    }
}

fn push_bounded(events: &mut VecDeque<Event>, event: Event, max: usize) {
    if events.len() == max {
        events.pop_front();
    }
    events.push_back(event);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(detail: &str) -> What {
        What::Fault { kind: "kill", detail: detail.to_string() }
    }

    #[test]
    fn without_a_tape_nothing_is_computed() {
        let trace = Trace::new(Keep::Nothing, &WorldTime::new());
        trace.tell(Who::World, || unreachable!("nobody asked"));
        assert!(trace.take_tail().is_empty() && !trace.is_on());
    }

    #[test]
    fn a_tail_is_bounded_and_keeps_the_turns_before_it() {
        let time = WorldTime::new();
        let trace = Trace::new(Keep::Tail, &time);
        for round in 0..TAIL_TURNS as u64 + 5 {
            time.advance(1);
            trace.begin_step(round as u32);
            trace.tell(Who::World, || fault(&round.to_string()));
        }
        for seq in 1..=1000 {
            trace.tell(Who::Stage(0, "executor"), || What::Applied { seq });
        }
        let tail = trace.take_tail();
        assert_eq!(tail.len(), TAIL_TURNS + TAIL_LAST);
        assert_eq!((tail[0].ns, tail[0].step, &tail[0].what), (6, 5, &fault("5")));
        assert_eq!(tail.last().unwrap().what, What::Applied { seq: 1000 });
        assert!(tail.is_sorted_by_key(|event| event.number));
    }

    #[test]
    fn a_turn_among_the_last_events_is_told_once() {
        let trace = Trace::new(Keep::Tail, &WorldTime::new());
        trace.tell(Who::World, || fault("only"));
        trace.clone().tell(Who::Net, || What::Applied { seq: 1 });
        assert_eq!(trace.take_tail().len(), 2);
    }
}
