//! What a rewinder reads: messages that were sent before.
//!
//! [`LogHistory`] reads the log: the ring, and the journal for what has left the ring. [`Recent`] keeps the last messages of a
//! stream that is kept nowhere else.

use ticktape_core::{Nanos, Seq};

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

/// A history of which only what comes up to `last` is seen, whatever else it has by now.
pub(super) struct HistoryUpTo<'a, H> {
    pub(super) history: &'a mut H,
    pub(super) last: Seq,
}

impl<H: History> History for HistoryUpTo<'_, H> {
    fn read(
        &mut self,
        now: Nanos,
        from: u64,
        count_max: usize,
        bytes_max: usize,
        f: &mut dyn FnMut(u64, &[u8]),
    ) -> HistoryRead {
        let next = self.last.0 + 1;
        if from >= next {
            return HistoryRead::NotYet { next };
        }
        let count_max = usize::try_from(next - from).map_or(count_max, |seen| seen.min(count_max));
        self.history.read(now, from, count_max, bytes_max, f)
    }
}

/// The last messages of a stream, in memory: the oldest make room for new ones.
#[derive(Debug)]
pub struct Recent {
    /// Where each message stands, by the low bits of its number.
    places: Box<[Place]>,
    bytes: Box<[u8]>,
    /// Where the next message goes.
    at: usize,
    first: u64,
    next: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    start: usize,
    len: usize,
}

impl Recent {
    /// Room for so many messages, a power of two, of so many bytes together. The next one will be `next`. Allocates here, and
    /// nothing later.
    ///
    /// # Panics
    /// Where the number of messages is no power of two.
    pub fn new(messages: usize, bytes: usize, next: u64) -> Self {
        assert!(messages.is_power_of_two());
        Recent {
            places: vec![Place::default(); messages].into(),
            bytes: vec![0; bytes].into(),
            at: 0,
            first: next,
            next,
        }
    }

    /// The oldest that is kept.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// The number of the message to push next.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Keeps the next message. One that is larger than all room is not kept, nor is anything before it.
    pub fn push(&mut self, message: &[u8]) {
        if message.len() > self.bytes.len() {
            self.next += 1;
            (self.first, self.at) = (self.next, 0);
            return;
        }
        if self.next - self.first == self.places.len() as u64 {
            self.first += 1;
        }
        // What does not fit before the end goes to the start. The oldest ones stand right behind the newest, so they make
        // room in order; those behind `at` are older than those before it.
        if self.at + message.len() > self.bytes.len() {
            self.make_room(self.at, usize::MAX);
            self.at = 0;
        }
        self.make_room(self.at, self.at + message.len());
        self.bytes[self.at..self.at + message.len()].copy_from_slice(message);
        let place = Place { start: self.at, len: message.len() };
        let slot = self.slot(self.next);
        self.places[slot] = place;
        self.at += message.len();
        self.next += 1;
    }

    /// Lets go of the oldest that stand within `from .. to`.
    fn make_room(&mut self, from: usize, to: usize) {
        while self.first < self.next {
            let Place { start, len } = self.places[self.slot(self.first)];
            // One without bytes is let go of as well, or it would hide those behind it.
            if start >= to || start < from && start + len <= from {
                return;
            }
            self.first += 1;
        }
    }

    fn slot(&self, seq: u64) -> usize {
        (seq & (self.places.len() as u64 - 1)) as usize
    }
}

impl History for Recent {
    fn read(
        &mut self,
        _now: Nanos,
        from: u64,
        count_max: usize,
        bytes_max: usize,
        f: &mut dyn FnMut(u64, &[u8]),
    ) -> HistoryRead {
        if from >= self.next {
            return HistoryRead::NotYet { next: self.next };
        }
        if from < self.first {
            return HistoryRead::TooOld { first: self.first };
        }
        let (mut read, mut bytes) = (0, 0);
        for seq in (from..self.next).take(count_max) {
            if bytes >= bytes_max {
                break;
            }
            let Place { start, len } = self.places[self.slot(seq)];
            f(seq, &self.bytes[start..start + len]);
            (read, bytes) = (read + 1, bytes + len);
        }
        HistoryRead::Read(read)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn recent_messages_are_the_last_ones_that_fit(
            next in 1u64..100, sizes in prop::collection::vec(0usize..40, 1..200), froms in prop::collection::vec(0u64..320, 8)
        ) {
            let mut recent = Recent::new(16, 100, next);
            let mut all = Vec::new();
            for (i, &size) in sizes.iter().enumerate() {
                let message = vec![i as u8; size];
                recent.push(&message);
                all.push(message);
                prop_assert_eq!(recent.next(), next + all.len() as u64);
                let kept = recent.next() - recent.first();
                let bytes: usize = all[all.len() - kept as usize..].iter().map(Vec::len).sum();
                prop_assert!((1..=16).contains(&kept) && bytes <= 100);
                for &from in &froms {
                    let mut got = Vec::new();
                    let read = recent.read(0, from, 5, 60, &mut |seq, message| got.push((seq, message.to_vec())));
                    match read {
                        HistoryRead::Read(count) => {
                            prop_assert_eq!(count, got.len());
                            prop_assert!((1..=5).contains(&count));
                            for (step, (seq, message)) in got.iter().enumerate() {
                                prop_assert_eq!(*seq, from + step as u64);
                                prop_assert_eq!(message, &all[(seq - next) as usize]);
                            }
                        }
                        HistoryRead::TooOld { first } => prop_assert!(from < first && first == recent.first()),
                        HistoryRead::NotYet { next } => prop_assert!(from >= next && next == recent.next()),
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
            }
        }
    }

    #[test]
    fn all_of_the_room_is_of_use() {
        let mut recent = Recent::new(64, 100, 1);
        for seq in 1..=1_000u64 {
            recent.push(&[0; 10]);
            assert_eq!(recent.next() - recent.first(), seq.min(10));
        }
        let mut recent = Recent::new(16, 1_000, 1);
        for seq in 1..=1_000u64 {
            recent.push(&[0; 10]);
            assert_eq!(recent.next() - recent.first(), seq.min(16));
        }
    }

    #[test]
    fn a_message_larger_than_all_room_leaves_nothing() {
        let mut recent = Recent::new(4, 10, 1);
        recent.push(b"one");
        recent.push(&[0; 11]);
        assert_eq!((recent.first(), recent.next()), (3, 3));
        recent.push(b"three");
        assert_eq!(recent.read(0, 3, 9, 99, &mut |_, message| assert_eq!(message, b"three")), HistoryRead::Read(1));
    }
}
