//! How far durability and commitment have come.

use std::sync::Arc;

use ticktape_core::Seq;

use crate::layout::{COMMIT_SEQ, DURABLE_SEQ};
use crate::ring::Ownership;
use crate::sync::Ordering;
use crate::words::Words;

/// Says what is durable. One owner: whoever hears it from the disk.
pub struct DurableMark {
    pub(crate) owner: Arc<Ownership>,
    pub(crate) newest: Seq,
}

impl DurableMark {
    /// Everything up to `seq`, included, is durable on this machine.
    ///
    /// # Panics
    /// Where the mark would move backwards.
    pub fn set(&mut self, seq: Seq) {
        assert!(seq >= self.newest, "durable moves from {} back to {seq}", self.newest);
        self.newest = seq;
        // Pairs with the Acquire load in `Watermarks::durable`; followers need no more than the number.
        self.owner.words.at(DURABLE_SEQ).store(seq.0, Ordering::Release);
    }
}

/// Says what is committed. One owner: whoever decides it.
pub struct CommitMark {
    pub(crate) owner: Arc<Ownership>,
    pub(crate) newest: Seq,
}

impl CommitMark {
    /// Everything up to `seq`, included, is committed. Of no effect on readers where commit = sequenced.
    ///
    /// # Panics
    /// Where the mark would move backwards.
    pub fn set(&mut self, seq: Seq) {
        assert!(seq >= self.newest, "commit moves from {} back to {seq}", self.newest);
        self.newest = seq;
        // Pairs with the Acquire load in `Watermarks::commit`; followers need no more than the number.
        self.owner.words.at(COMMIT_SEQ).store(seq.0, Ordering::Release);
    }
}

/// Reads both marks, from any thread.
#[derive(Clone)]
pub struct Watermarks {
    pub(crate) words: Words,
    pub(crate) commit_is_sequenced: bool,
}

impl Watermarks {
    /// Everything up to this seq is durable on this machine.
    #[inline]
    pub fn durable(&self) -> Seq {
        // Pairs with the Release store in `DurableMark::set`.
        Seq(self.words.at(DURABLE_SEQ).load(Ordering::Acquire))
    }

    /// Everything up to this seq is committed: [`Seq::MAX`] where commit = sequenced, as whatever can be seen then is.
    #[inline]
    pub fn commit(&self) -> Seq {
        if self.commit_is_sequenced {
            return Seq::MAX;
        }
        // Pairs with the Release store in `CommitMark::set`.
        Seq(self.words.at(COMMIT_SEQ).load(Ordering::Acquire))
    }
}
