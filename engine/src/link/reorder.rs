//! Messages that came before their turn: a ring of slots, their bytes in blocks of one bounded arena.
//!
//! ```text
//!   seq % slots ─► slot (length, first block) ─► block ─► block      free ─► block ─► block ─► …
//! ```
//!
//! A slot of the largest size for each message would cost twenty times as much for the same number of small messages. The arena
//! is not touched before something is lost, so that a session that loses nothing costs address space, not memory.

use super::bits::SeqSet;

/// Small commands and events fit one block.
const BLOCK_BYTES: usize = 64;

/// What every message may have, however small the arena; beyond that a single one may take a quarter of it.
const DATAGRAM_BYTES: usize = 1472;

/// No block.
const NONE: u32 = u32::MAX;

/// What is kept under a seq.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Held<'a> {
    /// A message.
    Message(&'a [u8]),
    /// The word that it will never come.
    Void,
}

/// The slots and the arena. Its owner keeps all seqs within [`Reorder::slots`] of each other.
#[derive(Debug)]
pub(super) struct Reorder {
    held: SeqSet,
    voids: SeqSet,
    first: Box<[u32]>,
    len: Box<[u16]>,
    /// Those that were ever used, one behind the other; the rest is reserved, and not even zeroed.
    blocks: Vec<u8>,
    next: Vec<u32>,
    blocks_max: u32,
    free: u32,
    blocks_free: u32,
    gathered: Vec<u8>,
    message_bytes_max: usize,
}

impl Reorder {
    /// Room for `messages` (rounded up to a power of two, at least 64) messages of `bytes` bytes in all, in blocks of 64.
    pub(super) fn new(messages: usize, bytes: usize) -> Self {
        let slots = messages.next_power_of_two().max(64);
        let blocks = bytes.div_ceil(BLOCK_BYTES).min(NONE as usize - 1);
        let message_bytes_max = (blocks * BLOCK_BYTES).min((bytes / 4).clamp(DATAGRAM_BYTES, usize::from(u16::MAX)));
        Reorder {
            held: SeqSet::new(slots),
            voids: SeqSet::new(slots),
            first: vec![0; slots].into_boxed_slice(),
            len: vec![0; slots].into_boxed_slice(),
            blocks: Vec::with_capacity(blocks * BLOCK_BYTES),
            next: Vec::with_capacity(blocks),
            blocks_max: blocks as u32,
            free: NONE,
            blocks_free: blocks as u32,
            gathered: Vec::with_capacity(message_bytes_max),
            message_bytes_max,
        }
    }

    /// How far apart two seqs may be.
    #[inline]
    pub(super) const fn slots(&self) -> u64 {
        self.first.len() as u64
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// How many are kept.
    pub(super) const fn len(&self) -> u64 {
        self.held.len()
    }

    #[inline]
    pub(super) fn contains(&self, seq: u64) -> bool {
        self.held.contains(seq)
    }

    /// The next of `from .. end` that is kept, and the next that is not.
    pub(super) fn next_held(&self, from: u64, end: u64) -> u64 {
        self.held.next_in(from, end)
    }

    pub(super) fn next_missing(&self, from: u64, end: u64) -> u64 {
        self.held.next_out(from, end)
    }

    /// Keeps a copy, where there is room and it is not there yet; whether it was kept now.
    pub(super) fn keep(&mut self, seq: u64, message: &[u8]) -> bool {
        let needed = message.len().div_ceil(BLOCK_BYTES) as u32;
        if needed > self.blocks_free || message.len() > self.message_bytes_max || self.held.contains(seq) {
            return false;
        }
        let mut first = NONE;
        // From the last block to the first, so that each knows its successor.
        for part in message.chunks(BLOCK_BYTES).rev() {
            let block = self.take_block();
            let at = block as usize * BLOCK_BYTES;
            self.blocks[at..at + part.len()].copy_from_slice(part);
            self.next[block as usize] = first;
            first = block;
        }
        let slot = self.slot(seq);
        self.first[slot] = first;
        self.len[slot] = message.len() as u16;
        self.held.insert(seq)
    }

    /// Notes that `seq` will never come, unless it is there; whether that is new.
    pub(super) fn keep_void(&mut self, seq: u64) -> bool {
        self.held.insert(seq) && self.voids.insert(seq)
    }

    /// What is kept under `seq`.
    pub(super) fn get(&mut self, seq: u64) -> Option<Held<'_>> {
        if !self.held.contains(seq) {
            return None;
        }
        if self.voids.contains(seq) {
            return Some(Held::Void);
        }
        let slot = self.slot(seq);
        let (mut block, len) = (self.first[slot], usize::from(self.len[slot]));
        if len <= BLOCK_BYTES {
            let at = if len == 0 { 0 } else { block as usize * BLOCK_BYTES };
            return Some(Held::Message(&self.blocks[at..at + len]));
        }
        self.gathered.clear();
        while self.gathered.len() < len {
            let (at, part) = (block as usize * BLOCK_BYTES, BLOCK_BYTES.min(len - self.gathered.len()));
            self.gathered.extend_from_slice(&self.blocks[at..at + part]);
            block = self.next[block as usize];
        }
        Some(Held::Message(&self.gathered))
    }

    /// Lets go of `seq`; whether it was there.
    pub(super) fn remove(&mut self, seq: u64) -> bool {
        if !self.held.remove(seq) {
            return false;
        }
        if !self.voids.remove(seq) {
            let slot = self.slot(seq);
            let mut block = self.first[slot];
            for _ in 0..usize::from(self.len[slot]).div_ceil(BLOCK_BYTES) {
                let next = std::mem::replace(&mut self.next[block as usize], self.free);
                self.free = block;
                self.blocks_free += 1;
                block = next;
            }
        }
        true
    }

    pub(super) fn clear(&mut self) {
        self.held.clear();
        self.voids.clear();
        self.blocks.clear();
        self.next.clear();
        (self.free, self.blocks_free) = (NONE, self.blocks_max);
    }

    /// A block; the caller has seen that there is one.
    fn take_block(&mut self) -> u32 {
        self.blocks_free -= 1;
        if self.free == NONE {
            self.blocks.resize(self.blocks.len() + BLOCK_BYTES, 0);
            self.next.push(NONE);
            return self.next.len() as u32 - 1;
        }
        let block = self.free;
        self.free = self.next[block as usize];
        block
    }

    const fn slot(&self, seq: u64) -> usize {
        (seq & (self.first.len() as u64 - 1)) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_does_not_fit_is_left_out_and_room_comes_back() {
        let mut reorder = Reorder::new(1, 256);
        assert_eq!(reorder.slots(), 64);
        assert!(reorder.keep(5, &[1; 100]) && reorder.keep(6, &[2; 128]) && reorder.keep(7, &[]));
        assert!(!reorder.keep(8, &[3]), "four blocks are all there are");
        assert!(!reorder.keep(5, &[]), "it is there");
        assert_eq!(reorder.get(5), Some(Held::Message(&[1; 100])));
        assert_eq!(reorder.get(7), Some(Held::Message(&[])));
        assert!(reorder.remove(5) && !reorder.remove(5));
        assert!(reorder.keep(8, &[3; 65]));
        assert_eq!(reorder.get(5), None);
        assert_eq!(reorder.get(8), Some(Held::Message(&[3; 65])));
        reorder.clear();
        assert!(reorder.is_empty() && reorder.keep(9, &[4; 256]) && reorder.keep_void(10) && !reorder.keep_void(9));
        assert_eq!(reorder.get(10), Some(Held::Void));
        assert_eq!(reorder.len(), 2);
    }

    proptest! {
        #[test]
        fn it_is_a_map_of_bounded_size(steps in prop::collection::vec((0u8..4, 0u64..64, 0usize..300), 1..300)) {
            let start = (1 << 32) - 30;
            let (mut reorder, mut model) = (Reorder::new(64, 2048), BTreeMap::new());
            for (step, offset, len) in steps {
                let seq = start + offset;
                match step {
                    0 | 1 => {
                        let message = vec![(len % 251) as u8; len];
                        let used: usize = model.values().map(|kept: &Vec<u8>| kept.len().div_ceil(BLOCK_BYTES)).sum();
                        let fits = used + len.div_ceil(BLOCK_BYTES) <= 2048 / BLOCK_BYTES && !model.contains_key(&seq);
                        prop_assert_eq!(reorder.keep(seq, &message), fits);
                        if fits {
                            model.insert(seq, message);
                        }
                    }
                    2 => prop_assert_eq!(reorder.remove(seq), model.remove(&seq).is_some()),
                    _ => {
                        let held = reorder.get(seq);
                        prop_assert_eq!(held, model.get(&seq).map(|message| Held::Message(message)));
                    }
                }
                prop_assert_eq!(reorder.len(), model.len() as u64);
            }
        }
    }
}
