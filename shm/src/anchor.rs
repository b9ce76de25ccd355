//! The anchors: places from which a follower can walk. One seqlock each, one writer.

use ticktape_core::Seq;

use crate::layout::{
    ANCHOR_BYTES, ANCHOR_COUNT_VALUE, ANCHOR_EPOCH, ANCHOR_POSITION, ANCHOR_SEQ, ANCHOR_VERSION, ANCHORS,
    ANCHORS_WRITTEN,
};
use crate::sync::{Ordering, fence};
use crate::words::Words;

/// A place where a batch begins or will begin: the word there is zero until it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub(crate) seq: Seq,
    pub(crate) position: u64,
}

/// Writes the table; part of the producer.
pub(crate) struct AnchorWriter {
    words: Words,
    epoch: u64,
    written: u64,
    newest: Option<Anchor>,
}

fn slot(index: u64) -> usize {
    ANCHORS + (index % ANCHOR_COUNT_VALUE as u64) as usize * ANCHOR_BYTES
}

impl AnchorWriter {
    pub(crate) fn new(words: Words, epoch: u64) -> Self {
        AnchorWriter { words, epoch, written: 0, newest: None }
    }

    /// Adds an anchor, over the oldest one; nothing where the newest says the same already.
    pub(crate) fn write(&mut self, anchor: Anchor) {
        if self.newest == Some(anchor) {
            return;
        }
        let at = slot(self.written);
        let version = 2 * self.written + 1;
        self.words.at(at + ANCHOR_VERSION).store(version, Ordering::Relaxed);
        // Pairs with the second Acquire fence in `read`: whoever sees a new field sees the odd version.
        fence(Ordering::Release);
        self.words.at(at + ANCHOR_SEQ).store(anchor.seq.0, Ordering::Relaxed);
        self.words.at(at + ANCHOR_POSITION).store(anchor.position, Ordering::Relaxed);
        self.words.at(at + ANCHOR_EPOCH).store(self.epoch, Ordering::Relaxed);
        // Pairs with the first Acquire fence in `read`.
        self.words.at(at + ANCHOR_VERSION).store(version + 1, Ordering::Release);
        self.written += 1;
        // Pairs with the Acquire fence in `newest_first`.
        self.words.at(ANCHORS_WRITTEN).store(self.written, Ordering::Release);
        self.newest = Some(anchor);
    }
}

/// The anchors that could be read whole, from the newest on; at most a table full.
pub(crate) fn newest_first(words: &Words, epoch: u64) -> impl Iterator<Item = Anchor> + '_ {
    let written = words.at(ANCHORS_WRITTEN).load(Ordering::Relaxed);
    fence(Ordering::Acquire); // pairs with the Release store of the count
    let count = written.min(ANCHOR_COUNT_VALUE as u64);
    (0..count).filter_map(move |back| read(words, written - 1 - back, epoch))
}

fn read(words: &Words, index: u64, epoch: u64) -> Option<Anchor> {
    let at = slot(index);
    let before = words.at(at + ANCHOR_VERSION).load(Ordering::Relaxed);
    fence(Ordering::Acquire); // pairs with the Release store of the even version
    let seq = words.at(at + ANCHOR_SEQ).load(Ordering::Relaxed);
    let position = words.at(at + ANCHOR_POSITION).load(Ordering::Relaxed);
    let found_epoch = words.at(at + ANCHOR_EPOCH).load(Ordering::Relaxed);
    fence(Ordering::Acquire); // pairs with the writer's Release fence
    let after = words.at(at + ANCHOR_VERSION).load(Ordering::Relaxed);
    let expected = index.wrapping_mul(2).wrapping_add(2);
    let whole = before == expected && after == before;
    let sound = found_epoch == epoch && (1..=Seq::MAX.0).contains(&seq) && position.is_multiple_of(8);
    (whole && sound).then_some(Anchor { seq: Seq(seq), position })
}
