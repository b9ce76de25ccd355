//! The window: messages that came before their turn, one slot a number.
//!
//! Invariant: only numbers of one window are held at a time, so a number's slot is its low bits.

/// A fixed number of slots of a fixed size, and a bitmap of which are taken.
#[derive(Debug)]
pub(super) struct Slots {
    present: Box<[u64]>,
    lens: Box<[u16]>,
    /// Untouched slots are pages that the system has not given yet.
    bytes: Box<[u8]>,
    slot_bytes: usize,
    mask: u64,
    taken: usize,
}

/// Numbers of one word of the bitmap.
const WORD: u64 = 64;

impl Slots {
    /// `count` slots, a power of two from 64 up, of `slot_bytes` each. Allocates here, and nothing later.
    pub(super) fn new(count: usize, slot_bytes: usize) -> Self {
        assert!(count.is_power_of_two() && count as u64 >= WORD && slot_bytes <= usize::from(u16::MAX));
        Slots {
            present: vec![0; count / WORD as usize].into(),
            lens: vec![0; count].into(),
            bytes: vec![0; count * slot_bytes].into(),
            slot_bytes,
            mask: count as u64 - 1,
            taken: 0,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.taken == 0
    }

    pub(super) const fn taken(&self) -> usize {
        self.taken
    }

    pub(super) const fn count(&self) -> u64 {
        self.mask + 1
    }

    /// The largest message that a slot takes.
    pub(super) const fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    fn place(&self, seq: u64) -> (usize, u64) {
        let slot = seq & self.mask;
        ((slot / WORD) as usize, 1 << (slot % WORD))
    }

    #[inline]
    pub(super) fn contains(&self, seq: u64) -> bool {
        let (word, bit) = self.place(seq);
        self.present[word] & bit != 0
    }

    /// Keeps `message`, which is no larger than a slot, and whose slot is free.
    pub(super) fn insert(&mut self, seq: u64, message: &[u8]) {
        let (word, bit) = self.place(seq);
        debug_assert!(self.present[word] & bit == 0, "the slot of {seq} is taken");
        let slot = (seq & self.mask) as usize;
        let start = slot * self.slot_bytes;
        self.bytes[start..start + message.len()].copy_from_slice(message);
        self.lens[slot] = message.len() as u16;
        self.present[word] |= bit;
        self.taken += 1;
    }

    #[inline]
    pub(super) fn get(&self, seq: u64) -> Option<&[u8]> {
        if !self.contains(seq) {
            return None;
        }
        let slot = (seq & self.mask) as usize;
        let start = slot * self.slot_bytes;
        Some(&self.bytes[start..start + usize::from(self.lens[slot])])
    }

    pub(super) fn remove(&mut self, seq: u64) {
        let (word, bit) = self.place(seq);
        if self.present[word] & bit != 0 {
            self.present[word] &= !bit;
            self.taken -= 1;
        }
    }

    pub(super) fn clear(&mut self) {
        self.present.fill(0);
        self.taken = 0;
    }

    /// The first number from `from` on and before `to` that is not held. At most one window.
    pub(super) fn next_missing(&self, from: u64, to: u64) -> Option<u64> {
        self.scan(from, to, !0)
    }

    /// The first number from `from` on and before `to` that is held. At most one window.
    pub(super) fn next_present(&self, from: u64, to: u64) -> Option<u64> {
        self.scan(from, to, 0)
    }

    /// One above the highest number that is held of the window that begins at `from`; `from` where none is.
    pub(super) fn end(&self, from: u64) -> u64 {
        let (mut end, mut at) = (from, from);
        let limit = from.saturating_add(self.count());
        while let Some(present) = self.next_present(at, limit) {
            end = self.next_missing(present, limit).unwrap_or(limit);
            at = end;
        }
        end
    }

    /// The first whose bit, flipped by `flip`, is set: a word at a time.
    fn scan(&self, mut from: u64, to: u64, flip: u64) -> Option<u64> {
        debug_assert!(to.saturating_sub(from) <= self.count());
        while from < to {
            let (word, _) = self.place(from);
            let shift = (from & self.mask) % WORD;
            let bits = (self.present[word] ^ flip) >> shift;
            if bits != 0 {
                let found = from + u64::from(bits.trailing_zeros());
                return (found < to).then_some(found);
            }
            from += WORD - shift;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map_of_one_window(
            base in prop_oneof![1u64..200, (1u64 << 40)..(1 << 40) + 200],
            steps in prop::collection::vec((0u64..128, 0usize..=10, 0u8..4), 1..200),
        ) {
            let (mut slots, mut model) = (Slots::new(128, 10), BTreeMap::new());
            for (offset, size, action) in steps {
                let seq = base + offset;
                if action == 0 {
                    slots.remove(seq);
                    model.remove(&seq);
                } else if !slots.contains(seq) {
                    let message = vec![offset as u8; size];
                    slots.insert(seq, &message);
                    model.insert(seq, message);
                }
                prop_assert_eq!(slots.get(seq), model.get(&seq).map(Vec::as_slice));
                prop_assert_eq!(slots.taken(), model.len());
                let (from, to) = (base + offset / 2, base + 128 - offset / 3);
                let missing = (from..to).find(|seq| !model.contains_key(seq));
                prop_assert_eq!(slots.next_missing(from, to), missing);
                let end = model.range(base..).next_back().map_or(base, |(seq, _)| seq + 1);
                prop_assert_eq!(slots.end(base), end);
                prop_assert_eq!(slots.next_present(from, to), (from..to).find(|seq| model.contains_key(seq)));
            }
            slots.clear();
            prop_assert!(slots.is_empty() && (base..base + 128).all(|seq| slots.get(seq).is_none()));
        }
    }
}
