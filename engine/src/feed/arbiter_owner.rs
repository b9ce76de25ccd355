//! What an arbiter's owner decides: where the stream goes on, in which reign, and what of it is to be forgotten.

use ticktape_core::Nanos;

use super::super::session::{EPOCH_MAX, FeedSession};
use super::{Arbiter, Far};

impl Arbiter {
    /// Asks for all up to before `to` that is missing, as far as the window goes: for an owner that would rather have a large gap
    /// repaired window by window than catch up by other means.
    pub fn want(&mut self, now: Nanos, to: u64) {
        let to = to.min(self.limit());
        if to > self.end {
            self.repair.gap(self.end, to, now);
            self.end = to;
        }
    }

    /// Goes on from `next_seq`, after a catch-up delivered everything up to before it. What is held from there on stays, and
    /// what is missing in between is asked for. What lay further above is forgotten, until a packet says so again.
    ///
    /// # Panics
    /// Where `next_seq` is zero.
    pub fn skip_to(&mut self, next_seq: u64) {
        assert!(next_seq > 0);
        if next_seq < self.next_seq {
            self.slots.clear();
        }
        while self.next_seq < next_seq && !self.slots.is_empty() {
            self.slots.remove(self.next_seq);
            self.next_seq += 1;
            self.counters.skipped += 1;
        }
        self.counters.skipped += next_seq.saturating_sub(self.next_seq);
        self.next_seq = next_seq;
        self.repair.forget();
        (self.far, self.told) = (None, None);
        self.end = self.slots.end(next_seq);
        if self.end > next_seq {
            self.repair.gap(next_seq, self.end, 0);
        }
    }

    /// Forgets all that is held or known to exist from the next number on: whoever would have it says that it is not there. What of it
    /// is true comes, or is told of, again.
    pub fn forget_ahead(&mut self) {
        self.slots.clear();
        self.repair.forget();
        (self.far, self.told, self.ends_at) = (None, None, None);
        self.end = self.next_seq;
    }

    /// Who has to have written the messages that come from now on: what the owner's check of each is told.
    pub const fn set_writer(&mut self, writer: u16) {
        self.writer = writer;
    }

    /// Takes back that the end of the session was told, for an owner that hears that it goes on: the next one is told again.
    pub const fn forget_end(&mut self) {
        (self.ends_at, self.end_told) = (None, None);
    }

    /// Listens to the reign `epoch` from now on, after the EpochChange that fits was seen elsewhere, or where none is needed.
    /// Messages of the reign before that are held are dropped: they may have been taken back.
    ///
    /// # Panics
    /// Where the epoch is below the present one, or above what a session can name.
    pub fn adopt_session(&mut self, epoch: u32) {
        assert!(epoch >= self.session.epoch() && epoch <= EPOCH_MAX, "epoch {epoch} after {}", self.session.epoch());
        if epoch == self.session.epoch() {
            return;
        }
        self.session = FeedSession::new(self.session.stream(), epoch).expect("the epoch was checked");
        self.name = self.session.encode();
        self.slots.clear();
        self.repair.forget();
        (self.far, self.told, self.ends_at, self.end_told) = (None, None, None, None);
        self.sides.iter_mut().for_each(|side| side.next = 0);
        self.end = self.next_seq;
        // What was dropped of it so far is asked for at once.
        if let Some(newer) = self.newer.take_if(|newer| newer.epoch <= epoch)
            && newer.epoch == epoch
            && newer.end > self.next_seq
        {
            if newer.end > self.limit() {
                self.far = Some(Far { next_seq: self.next_seq, to: newer.end });
            } else {
                self.repair.gap(self.next_seq, newer.end, 0);
                self.end = newer.end;
            }
        }
    }

    /// Listens to the reign `epoch`, whatever it is, from `next_seq` on, and forgets all of the present one: for an owner that finds out
    /// that this one never was.
    ///
    /// # Panics
    /// Where the epoch is above what a session can name, or `next_seq` is zero.
    pub fn leave_session(&mut self, epoch: u32, next_seq: u64) {
        assert!(next_seq > 0);
        self.session = FeedSession::new(self.session.stream(), epoch).expect("an epoch that can be named");
        self.name = self.session.encode();
        (self.next_seq, self.newer) = (next_seq, None);
        self.sides.iter_mut().for_each(|side| side.next = 0);
        self.forget_ahead();
        self.forget_end();
    }
}
