//! Where a session's events go on after a Hello that names another reign than this one.
//!
//! A crash at tier `memory` takes events back, and the reigns that follow give their numbers to others. What a client holds of a reign is
//! the beginning of this history as far as the next reign went on from it: up to the session's next event when that one began.
//!
//! Invariant: it is the beginning of the reign after the client's that counts, not what there is by now, nor how many reigns came since.
//! Invariant: what can't be told is not guessed.

use ticktape_core::Seq;

use super::packet::Hello;

/// Every reign of a log, with its first frame.
#[derive(Clone, Debug, Default)]
pub struct Reigns(Box<[(u32, Seq)]>);

/// Of which reign a client's cursor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorReign {
    /// The present one, or the client says nothing about it.
    Present,
    /// An earlier one of this log.
    Before {
        /// The reign that came after it.
        next: u32,
    },
    /// Of none that this log knows.
    Foreign,
}

impl Reigns {
    /// The reigns of a log, both numbers ascending: such as [`Machine::epochs`](crate::machine::Machine::epochs).
    pub fn new(epochs: &[(u64, Seq)]) -> Self {
        Reigns(epochs.iter().map_while(|&(epoch, first)| Some((u32::try_from(epoch).ok()?, first))).collect())
    }

    /// What a Hello that names the reign `named` says, in the reign `present`.
    pub fn of(&self, named: u32, present: u32) -> CursorReign {
        if named == 0 || named >= present {
            return CursorReign::Present;
        }
        match self.0.binary_search_by_key(&named, |&(epoch, _)| epoch) {
            Ok(at) => CursorReign::Before { next: self.0.get(at + 1).map_or(present, |&(epoch, _)| epoch) },
            Err(_) => CursorReign::Foreign,
        }
    }
}

/// Where a session's events go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventStart {
    /// The session's next event when each reign began, ascending: an entry holds for the reigns from its own on, up to the next one's.
    /// Before the first nothing is known.
    begun: Vec<(u32, u64)>,
    /// The Hello that was answered last in this reign: its client epoch, its nonce, and where events went on.
    answered: Option<(u32, u64, u64)>,
}

impl Default for EventStart {
    /// Of a session without history: it had no events when any reign began.
    fn default() -> Self {
        EventStart { begun: vec![(0, 1)], answered: None }
    }
}

impl EventStart {
    /// At the beginning of the reign `present`, when events `first .. end` of the session are kept: `cause` says of each which frame made it.
    pub fn new(present: u32, reigns: &Reigns, first: u64, end: u64, cause: impl Fn(u64) -> Seq) -> Self {
        let mut begun = vec![(present, end)];
        for &(epoch, first_frame) in reigns.0.iter().rev().filter(|&&(epoch, _)| epoch < present) {
            let next = first_event_since(first, end, |event| cause(event) < first_frame);
            // Those that are no longer kept may have been made before it, or after.
            if next == first && first > 1 {
                break;
            }
            match begun.last_mut() {
                Some(last) if last.1 == next => last.0 = epoch,
                _ => begun.push((epoch, next)),
            }
        }
        begun.reverse();
        EventStart { begun, answered: None }
    }

    /// The first event to send; below the one that is wanted where the client has to go back. `None` where it can't be told whether what
    /// it holds is of this history.
    pub fn of(&self, client_epoch: u32, hello: &Hello, cursor: CursorReign) -> Option<u64> {
        match (self.answered, cursor) {
            // By now the same Hello may be found to be of this reign.
            (Some((epoch, nonce, from)), _) if (epoch, nonce) == (client_epoch, hello.nonce) => Some(from),
            (_, CursorReign::Present) => Some(hello.resume_next),
            // It holds nothing.
            _ if hello.resume_next == 1 => Some(1),
            (_, CursorReign::Before { next }) => self.begun(next).map(|begun| begun.min(hello.resume_next)),
            (_, CursorReign::Foreign) => None,
        }
    }

    /// The session's next event when a reign began, where that is known.
    fn begun(&self, reign: u32) -> Option<u64> {
        self.begun.iter().rfind(|&&(epoch, _)| epoch <= reign).map(|&(_, next)| next)
    }

    /// A Hello was answered so. The same one gets the same answer, whatever is made meanwhile.
    pub fn note_answer(&mut self, client_epoch: u32, nonce: u64, from: u64) {
        self.answered = Some((client_epoch, nonce, from));
    }
}

/// The first of `first .. end` that is not `before`; those that are come first.
fn first_event_since(first: u64, end: u64, before: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (first, end);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reign that begins.
    const PRESENT: u32 = 7;

    /// A log of four reigns.
    fn reigns() -> Reigns {
        Reigns::new(&[(1, Seq(1)), (2, Seq(100)), (5, Seq(200)), (6, Seq(300))])
    }

    const fn hello(nonce: u64, resume_next: u64) -> Hello {
        Hello { nonce, resume_next, first_seq: 1, window: 64, datagram_bytes_max: 1472, schema: 3, is_resumed: false }
    }

    /// Now, a session whose events up to 39 were each made by the frame of ten times its number; `first` is the oldest kept.
    fn start(first: u64) -> EventStart {
        EventStart::new(PRESENT, &reigns(), first, 40, |event| {
            assert!((first..40).contains(&event), "{event} is not kept");
            Seq(event * 10)
        })
    }

    fn from(start: &EventStart, named: u32, resume_next: u64) -> Option<u64> {
        start.of(1, &hello(1, resume_next), reigns().of(named, PRESENT))
    }

    #[test]
    fn a_cursor_is_of_this_reign_of_one_before_or_of_none() {
        let of = |named| reigns().of(named, 6);
        assert_eq!([of(0), of(6), of(7)], [CursorReign::Present; 3]);
        assert_eq!((of(1), of(2)), (CursorReign::Before { next: 2 }, CursorReign::Before { next: 5 }));
        assert_eq!((of(5), of(3)), (CursorReign::Before { next: 6 }, CursorReign::Foreign));
        // The log of the reign that is about to begin does not hold that yet.
        assert_eq!(reigns().of(6, 9), CursorReign::Before { next: 9 });
    }

    #[test]
    fn however_many_reigns_a_client_was_away_what_the_next_one_did_not_go_on_from_is_lost() {
        let start = start(1);
        for (named, begun) in [(1, 10), (2, 20), (5, 30), (6, 40)] {
            for resume_next in 1..=60 {
                assert_eq!(from(&start, named, resume_next), Some(resume_next.min(begun)), "{resume_next} of {named}");
            }
        }
        assert_eq!(from(&start, PRESENT, 55), Some(55), "what this reign told it is there");
        assert_eq!(from(&start, 0, 39), Some(39), "nothing is said against what names no reign");
        assert_eq!((from(&start, 3, 2), from(&start, 3, 1)), (None, Some(1)), "of a reign that this log never had");
    }

    #[test]
    fn what_the_events_that_are_kept_do_not_tell_is_not_guessed() {
        // The oldest kept is of reign 2.
        let kept = start(15);
        assert_eq!((from(&kept, 2, 30), from(&kept, 5, 38)), (Some(20), Some(30)));
        assert_eq!((from(&kept, 1, 9), from(&kept, 1, 30), from(&kept, 1, 1)), (None, None, Some(1)));
        // It is the first of its reign: the one before it may be of that, too.
        assert_eq!((from(&start(20), 2, 25), from(&start(20), 5, 38)), (None, Some(30)));
        let none = start(40);
        assert_eq!((from(&none, 6, 50), from(&none, 5, 5)), (Some(40), None), "the present reign's beginning is known");
    }

    #[test]
    fn a_session_without_events_had_none_in_any_reign() {
        assert_eq!(from(&EventStart::default(), 1, 5), Some(1));
        let empty = EventStart::new(PRESENT, &reigns(), 1, 1, |_| unreachable!("there are none"));
        assert_eq!((from(&empty, 1, 5), from(&empty, 5, 1)), (Some(1), Some(1)));
    }

    #[test]
    fn a_hello_that_is_repeated_gets_the_same_answer_whatever_was_made_since() {
        let mut start = start(1);
        start.note_answer(2, 5, 17);
        let of = |client_epoch, nonce, named| start.of(client_epoch, &hello(nonce, 33), reigns().of(named, PRESENT));
        assert_eq!((of(2, 5, PRESENT), of(2, 5, 5), of(2, 5, 3)), (Some(17), Some(17), Some(17)));
        assert_eq!((of(2, 6, PRESENT), of(3, 5, PRESENT)), (Some(33), Some(33)), "it is another one");
    }
}
