//! What an intake makes of peers that have another log, or another history of this one.

use ticktape_core::Nanos;
use ticktape_nic::{Rx, Tx};

use super::{Intake, Phase, Verdict, is_led};
use crate::replica::bulk::Bulk;
use crate::replica::status::Figure;

impl<R: Rx, T: Tx, B: Bulk> Intake<R, T, B> {
    /// Whoever was asked serves something else; where all do, there is nothing to follow.
    pub(super) fn is_foreign(&mut self, now: Nanos, why: String) {
        self.foreign += 1;
        self.elsewhere = Some(why.clone());
        if self.foreign >= self.bulk.peers() {
            self.verdict.get_or_insert(Verdict::Fault(why));
        } else {
            self.bulk_failed(now, &why);
        }
    }

    /// Whoever was asked serves another log. What came of the feed since its leader was replaced is that one's: nobody who has this log
    /// has vouched for it or committed it, and it has to go. Not where our own leader speaks beside that one.
    pub(super) fn is_of_other_log(&mut self, now: Nanos, why: String) {
        if let Some(peer) = self.bulk.asked() {
            self.other_log.part(peer, &why);
        }
        let from = self.committed.get().next().max(self.vouched);
        let is_led_here = is_led(&self.tracker, self.ended_at, now);
        let is_led_there =
            self.foreign + 1 >= self.bulk.peers() || self.other_log.stranger(now).is_some() && !is_led_here;
        if self.door.next_seq() > from && is_led_there {
            self.board.set(Figure::Received, self.door.next_seq().0 - 1);
            self.verdict.get_or_insert(Verdict::TakenBack { why, from });
        } else {
            self.is_foreign(now, why);
        }
    }

    /// Says what a peer serves instead of this log, until a leader of this one is heard.
    pub(super) fn tell_elsewhere(&mut self, now: Nanos) {
        if self.elsewhere.is_none() || self.phase != Phase::Feed || self.other_log.led_elsewhere(now).is_some() {
            return;
        }
        if is_led(&self.tracker, self.ended_at, now) {
            self.elsewhere = None;
            self.words.clear();
        } else if let Some(elsewhere) = &self.elsewhere
            && !self.words.has_trouble()
        {
            self.words.trouble(format_args!("{elsewhere}; no leader of this log is heard"));
        }
    }

    /// Takes away what is no longer true of what was said, and says what goes on to be wrong where all else is well.
    pub(super) fn look_over_words(&mut self, now: Nanos, is_well: bool) {
        match self.other_log.led_elsewhere(now).filter(|_| is_well) {
            Some(elsewhere) => self.words.stands(elsewhere),
            None => self.words.poll(now, is_well && self.elsewhere.is_none()),
        }
    }
}
