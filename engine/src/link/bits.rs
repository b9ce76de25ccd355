//! A set of seqs that lie within one window: bit `seq % size`.

/// Seqs, all within `size` of each other: its owner sees to that.
#[derive(Debug)]
pub(super) struct SeqSet {
    words: Box<[u64]>,
    count: u64,
}

impl SeqSet {
    /// An empty set for windows of `size` seqs: a power of two, at least 64.
    pub(super) fn new(size: usize) -> Self {
        assert!(size.is_power_of_two() && size >= 64);
        SeqSet { words: vec![0; size / 64].into_boxed_slice(), count: 0 }
    }

    pub(super) const fn len(&self) -> u64 {
        self.count
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn clear(&mut self) {
        if self.count > 0 {
            self.words.fill(0);
            self.count = 0;
        }
    }

    #[inline]
    pub(super) fn contains(&self, seq: u64) -> bool {
        self.words[self.word(seq)] >> (seq & 63) & 1 != 0
    }

    /// Whether it was not in.
    pub(super) fn insert(&mut self, seq: u64) -> bool {
        let (word, bit) = (self.word(seq), 1 << (seq & 63));
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.count += u64::from(is_new);
        is_new
    }

    /// Whether it was in.
    pub(super) fn remove(&mut self, seq: u64) -> bool {
        let (word, bit) = (self.word(seq), 1 << (seq & 63));
        let was_in = self.words[word] & bit != 0;
        self.words[word] &= !bit;
        self.count -= u64::from(was_in);
        was_in
    }

    /// Takes all of `from .. end` in, a word at a time.
    pub(super) fn insert_range(&mut self, from: u64, end: u64) {
        debug_assert!(end.saturating_sub(from) <= self.size());
        let mut seq = from;
        while seq < end {
            let (mask, bits) = mask_of(seq, end);
            let word = self.word(seq);
            self.count += u64::from((!self.words[word] & mask).count_ones());
            self.words[word] |= mask;
            seq += bits;
        }
    }

    /// Takes all of `from .. end` out, a word at a time; returns how many were in.
    pub(super) fn remove_range(&mut self, from: u64, end: u64) -> u64 {
        debug_assert!(end.saturating_sub(from) <= self.size());
        let (mut seq, mut removed) = (from, 0);
        while seq < end && self.count > removed {
            let (mask, bits) = mask_of(seq, end);
            let word = self.word(seq);
            removed += u64::from((self.words[word] & mask).count_ones());
            self.words[word] &= !mask;
            seq += bits;
        }
        self.count -= removed;
        removed
    }

    /// The first of `from .. end` that is in, or `end`.
    pub(super) fn next_in(&self, from: u64, end: u64) -> u64 {
        if self.count == 0 { from.max(end) } else { self.scan(from, end, 0) }
    }

    /// The first of `from .. end` that is not in, or `end`.
    pub(super) fn next_out(&self, from: u64, end: u64) -> u64 {
        self.scan(from, end, u64::MAX)
    }

    fn scan(&self, from: u64, end: u64, flip: u64) -> u64 {
        let mut seq = from;
        while seq < end {
            let left = (self.words[self.word(seq)] ^ flip) >> (seq & 63);
            if left != 0 {
                return end.min(seq + u64::from(left.trailing_zeros()));
            }
            seq += 64 - (seq & 63);
        }
        end.max(from)
    }

    const fn size(&self) -> u64 {
        self.words.len() as u64 * 64
    }

    #[inline]
    const fn word(&self, seq: u64) -> usize {
        ((seq / 64) & (self.words.len() as u64 - 1)) as usize
    }
}

/// The bits of `seq .. end` within the word that holds `seq`, and how many they are.
const fn mask_of(seq: u64, end: u64) -> (u64, u64) {
    let left = 64 - (seq & 63);
    let bits = if end - seq < left { end - seq } else { left };
    ((u64::MAX >> (64 - bits)) << (seq & 63), bits)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_set(
            start in prop_oneof![Just(0u64), Just((1 << 32) - 40), Just((1 << 62) + 7)],
            steps in prop::collection::vec((0u8..7, 0u64..128, 0u64..128), 1..200),
        ) {
            let (mut set, mut model) = (SeqSet::new(128), BTreeSet::new());
            for (step, a, b) in steps {
                let (from, end) = (start + a.min(b), start + a.max(b));
                match step {
                    0 | 1 => prop_assert_eq!(set.insert(start + a), model.insert(start + a)),
                    2 => prop_assert_eq!(set.remove(start + a), model.remove(&(start + a))),
                    3 => {
                        let before = model.len();
                        model.retain(|seq| !(from..end).contains(seq));
                        prop_assert_eq!(set.remove_range(from, end), (before - model.len()) as u64);
                    }
                    4 => {
                        set.insert_range(from, end);
                        model.extend(from..end);
                    }
                    5 => prop_assert_eq!(set.next_in(from, end), model.range(from..end).next().copied().unwrap_or(end)),
                    _ => prop_assert_eq!(set.next_out(from, end), (from..end).find(|seq| !model.contains(seq)).unwrap_or(end)),
                }
                prop_assert_eq!(set.len(), model.len() as u64);
                prop_assert_eq!(set.contains(start + b), model.contains(&(start + b)));
            }
            set.clear();
            prop_assert!(set.is_empty() && !set.contains(start));
        }
    }
}
