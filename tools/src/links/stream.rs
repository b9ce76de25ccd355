//! One stream of numbered messages, as far as a capture has it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::SETTLE_PACKETS;
use super::missing::Missing;

/// What it takes to keep a message beside its bytes, about.
const KEPT_OVERHEAD_BYTES: usize = 64;

/// Reigns of which it is known what of a stream they lost: more than anybody restarts an appliance within one capture.
const LOSSES_MAX: usize = 256;

/// What stands beyond a gap.
#[derive(Clone, Debug)]
enum Kept {
    Message(Box<[u8]>),
    /// Numbers that never come, up to this one.
    Filled(u64),
}

impl Kept {
    fn bytes(&self) -> usize {
        match self {
            Kept::Message(message) => KEPT_OVERHEAD_BYTES + message.len(),
            Kept::Filled(_) => KEPT_OVERHEAD_BYTES,
        }
    }
}

/// What a stream came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The first number that the capture could have had.
    pub first: Option<u64>,
    /// The number after the last that was there, or is known to be missing.
    pub next: Option<u64>,
    /// Messages that were there, each counted once.
    pub messages: u64,
    /// Copies of them beyond the first.
    pub repeated: u64,
    /// Messages that came when they had been given up already.
    pub late: u64,
    /// Numbers that were announced never to come.
    pub filled: u64,
    /// Numbers that a lost reign had taken, and that were taken again.
    pub taken_back: u64,
    /// Numbers that are missing.
    pub missing: Missing,
}

/// A stream that is put in order.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    figures: Figures,
    kept: BTreeMap<u64, Kept>,
    /// What was said of how far the peer has come, in which packet.
    claimed: Option<(u64, u64)>,
    /// The same, said since.
    claimed_since: Option<u64>,
    /// Where the messages begin was told by a message alone: others may come that were before it.
    is_guessed: bool,
    /// In which packet it was told that the messages from a number on were lost.
    losses: Vec<(u64, u64)>,
}

/// What is handed on, with its number.
pub type Deliver<'a> = &'a mut dyn FnMut(u64, &[u8]);

impl Stream {
    /// What it came to so far.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The next number of the part that is in order; `None` before anything told.
    pub fn next(&self) -> Option<u64> {
        self.figures.next
    }

    /// Whether the message of this number was there.
    pub fn holds(&self, number: u64) -> bool {
        let Figures { first, next, missing, .. } = &self.figures;
        first.is_some_and(|first| first <= number) && *next > Some(number) && !missing.contains(number)
    }

    /// Whether this number is of those that the capture could have had, or comes before where it was told to begin.
    pub fn accounts_for(&self, number: u64) -> bool {
        let Figures { first, next, .. } = &self.figures;
        *next > Some(number) && (*first <= Some(number) || !self.is_guessed)
    }

    /// Whether the message of this number, handed on in packet `index`, was lost by the peer later on.
    pub fn is_taken_back(&self, number: u64, index: u64) -> bool {
        self.losses.iter().any(|&(at, from)| at >= index && from <= number)
    }

    /// It goes on with this number, as a message says, if nothing told yet where it stands.
    pub fn guess(&mut self, next: u64) {
        self.is_guessed |= self.figures.next.is_none();
        self.begin(next);
    }

    /// It goes on with this number, if nothing told yet where it stands.
    pub fn begin(&mut self, next: u64) {
        if self.figures.next.is_none() {
            (self.figures.first, self.figures.next) = (Some(next), Some(next));
        }
    }

    /// What came from `next` on was lost by the peer, and will come again: so packet `index` says.
    pub fn take_back(&mut self, index: u64, next: u64, room: &mut usize) {
        let Some(reached) = self.figures.next.filter(|reached| next < *reached) else { return };
        let next = next.max(self.figures.first.unwrap_or(0));
        self.figures.taken_back += reached - next;
        self.figures.next = Some(next);
        self.figures.missing.cut(next);
        if self.losses.len() < LOSSES_MAX {
            self.losses.push((index, next));
        }
        (self.claimed, self.claimed_since) = (None, None);
        while let Some((_, kept)) = self.kept.pop_first() {
            *room += kept.bytes();
        }
    }

    /// A message. `room` is what all streams may still keep, in bytes.
    pub fn on_message(&mut self, seq: u64, message: &[u8], room: &mut usize, deliver: Deliver<'_>) {
        self.guess(seq);
        loop {
            let next = self.figures.next.expect("it has begun");
            if seq < next {
                if let Some(first) = self.figures.first.filter(|first| self.is_guessed && seq < *first) {
                    self.figures.first = Some(seq);
                    self.figures.missing.add(seq..first);
                }
                if self.figures.missing.take(seq) {
                    self.figures.late += 1;
                    self.figures.messages += 1;
                    deliver(seq, message);
                } else {
                    self.figures.repeated += 1;
                }
                return;
            }
            if seq == next {
                self.hand_on(seq, message, deliver);
                return self.drain(room, deliver);
            }
            let Entry::Vacant(place) = self.kept.entry(seq) else {
                self.figures.repeated += 1;
                return;
            };
            let kept = Kept::Message(message.into());
            if let Some(left) = room.checked_sub(kept.bytes()) {
                *room = left;
                place.insert(kept);
                return;
            }
            self.give_up(seq, room, deliver);
        }
    }

    /// Numbers that never come.
    pub fn on_filled(&mut self, from: u64, count: u64, room: &mut usize, deliver: Deliver<'_>) {
        self.begin(from);
        let end = from.saturating_add(count);
        while self.figures.next.is_some_and(|next| next < from) {
            let Entry::Vacant(place) = self.kept.entry(from) else { return };
            if let Some(left) = room.checked_sub(KEPT_OVERHEAD_BYTES) {
                *room = left;
                place.insert(Kept::Filled(end));
                return;
            }
            self.give_up(from, room, deliver);
        }
        self.fill_to(end);
        self.drain(room, deliver);
    }

    /// The peer says, in packet `index`, that everything before `next` has arrived. It counts a little later.
    pub fn on_claim(&mut self, index: u64, next: u64) {
        self.begin(next);
        match self.claimed {
            None => self.claimed = Some((index, next)),
            Some(_) => self.claimed_since = self.claimed_since.max(Some(next)),
        }
    }

    /// The capture is at packet `index`.
    pub fn settle(&mut self, index: u64, room: &mut usize, deliver: Deliver<'_>) {
        if let Some((_, next)) = self.claimed.filter(|(at, _)| index.saturating_sub(*at) >= SETTLE_PACKETS) {
            self.claimed = self.claimed_since.take().map(|since| (index, since));
            self.give_up_before(next, room, deliver);
        }
    }

    /// The capture has ended.
    pub fn finish(&mut self, room: &mut usize, deliver: Deliver<'_>) {
        let claimed = self.claimed.take().map(|(_, next)| next).max(self.claimed_since.take());
        self.give_up_before(claimed.unwrap_or(0), room, deliver);
        while let Some((&last, _)) = self.kept.last_key_value() {
            self.give_up(last, room, deliver);
        }
    }

    /// What is not there of the numbers before `end` is missing.
    fn give_up_before(&mut self, end: u64, room: &mut usize, deliver: Deliver<'_>) {
        while self.figures.next.is_some_and(|next| next < end) {
            self.give_up(end, room, deliver);
        }
    }

    /// What lies before the first that is kept, or else before `limit`, is missing.
    fn give_up(&mut self, limit: u64, room: &mut usize, deliver: Deliver<'_>) {
        let next = self.figures.next.expect("it has begun");
        let to = self.kept.first_key_value().map_or(limit, |(&first, _)| first.min(limit));
        self.figures.missing.add(next..to);
        self.figures.next = Some(to);
        self.drain(room, deliver);
    }

    /// Hands on what is in order now.
    fn drain(&mut self, room: &mut usize, deliver: Deliver<'_>) {
        while let Some(first) = self.kept.first_entry() {
            let next = self.figures.next.expect("it has begun");
            let seq = *first.key();
            if seq > next {
                return;
            }
            let kept = first.remove();
            *room += kept.bytes();
            match kept {
                Kept::Message(message) if seq == next => self.hand_on(seq, &message, deliver),
                // Filled numbers lay over it.
                Kept::Message(_) => self.figures.repeated += 1,
                Kept::Filled(end) => self.fill_to(end),
            }
        }
    }

    fn hand_on(&mut self, seq: u64, message: &[u8], deliver: Deliver<'_>) {
        self.figures.messages += 1;
        self.figures.next = Some(seq + 1);
        deliver(seq, message);
    }

    fn fill_to(&mut self, end: u64) {
        if let Some(next) = self.figures.next.filter(|next| *next < end) {
            self.figures.filled += end - next;
            self.figures.next = Some(end);
        }
    }
}
