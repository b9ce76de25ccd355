//! A graceful stop. As live, it passes along the pipeline: the sequencer takes no more, and each stage works on until everything has passed it.
//! Then the journal is sealed, and clients are told to look elsewhere.

use std::path::Path;

use ticktape::{Seq, Service};
use ticktape_journal::format::seal::Sealed;
use ticktape_journal::{JournalError, names};

use super::retention::NOTHING;
use super::{Host, read_log};
use crate::disk::Medium;
use crate::ledger::Wrong;

/// The name of what a graceful stop promises.
pub(crate) const STOP_LOSES_NOTHING: &str = "a graceful stop loses nothing";

impl<S: Service> Host<S> {
    /// Takes no more from now on.
    pub(crate) fn stop(&mut self) {
        self.stopping.get_or_insert(Seq(self.sequencer.next_seq().0 - 1));
    }

    /// Whether a stop is under way, and everything that was taken has passed every stage.
    pub(crate) fn is_drained(&self) -> bool {
        let Some(last) = self.stopping else { return false };
        let last_record = Seq(self.executor.next_record().0 - 1);
        self.journaler.durable() >= last
            && self.executor.machine().applied() >= last
            && self.has_published_all()
            && self.publisher.has_ended()
            && self.egress.released(last_record)
    }

    /// Whether a stop is under way, and the last frame is published: what is left to be said is that the feed ends.
    pub(super) fn has_published_all(&self) -> bool {
        self.stopping.is_some_and(|last| self.publisher.next_seq() > last)
    }

    /// Seals the journal and tells the clients.
    pub(crate) fn close(mut self) -> Result<(), JournalError> {
        let closed = self.journaler.close().map(|_| ());
        self.egress.bye();
        closed
    }
}

/// A box that was just stopped is sealed, and everything up to `last` would survive the power.
pub(crate) fn check_sealed(medium: &Medium, dir: &Path, last: Seq) -> Result<(), Wrong> {
    let left = medium.after_power_loss(NOTHING);
    // One that an opening wrote is there in any case: only what it says tells that the stop wrote another.
    match left.contents(&dir.join(names::SEALED)).and_then(|bytes| Sealed::decode(&bytes)) {
        Some(Sealed { durable, .. }) if durable == last => {}
        other => {
            return Err((STOP_LOSES_NOTHING, format!("{last} was the last seq, and the seal file says {other:?}")));
        }
    }
    let (first, found) = read_log(&left, dir)?;
    let reached = first.0 - 1 + found.len() as u64;
    if reached == last.0 {
        return Ok(());
    }
    Err((STOP_LOSES_NOTHING, format!("{last} was the last seq, and the log would end at {reached}")))
}
