//! Live orders: their slots, and the index from their names to their slots.

use crate::slab::{NONE, Slab, Slot};

/// A live order. Its price and side are its level's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) id: u64,
    pub(crate) qty: u32,
    pub(crate) level: u32,
    /// The order before it in its level's queue, or [`NONE`].
    pub(crate) prev: u32,
    /// The order after it in its level's queue, or [`NONE`].
    pub(crate) next: u32,
    /// The slot of its good-till terms, or [`NONE`].
    pub(crate) terms: u32,
}

// Two to a cache line.
const _: () = assert!(size_of::<Order>() == 32);

impl Slot for Order {
    const BLANK: Self = unlinked(0, 0, NONE);
}

#[derive(Clone, Debug)]
pub(crate) struct Orders {
    slab: Slab<Order>,
    index: IdIndex,
}

impl Orders {
    pub(crate) fn new(reserved: usize, hash_key: u64) -> Self {
        Orders { slab: Slab::with_capacity(reserved), index: IdIndex::new(reserved, hash_key) }
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    #[inline]
    pub(crate) fn high_water(&self) -> usize {
        self.slab.high_water()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slab.bytes() + self.index.entries.capacity() * size_of::<u64>()
    }

    #[inline]
    pub(crate) fn find(&self, id: u64) -> Option<u32> {
        self.index.find(id, &self.slab).map(|(_, slot)| slot)
    }

    /// Adds an order whose name is not live.
    #[inline]
    pub(crate) fn insert(&mut self, order: Order) -> u32 {
        let slot = self.slab.insert(order);
        self.index.insert(order.id, slot);
        slot
    }

    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        let id = self.slab[slot].id;
        let (at, found) = self.index.find(id, &self.slab).expect("a live order is in the index");
        debug_assert_eq!(found, slot);
        self.index.remove_at(at);
        self.slab.remove(slot);
    }
}

impl std::ops::Index<u32> for Orders {
    type Output = Order;

    #[inline]
    fn index(&self, slot: u32) -> &Order {
        &self.slab[slot]
    }
}

impl std::ops::IndexMut<u32> for Orders {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut Order {
        &mut self.slab[slot]
    }
}

/// The smallest table; it shrinks no further.
const ENTRIES_MIN: usize = 64;
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Open addressing with linear probing. An entry is `hash << 32 | slot + 1`, zero where there is none. The home position is
/// the hash's top bits, so that moving entries about needs nothing but the entries, and a probe that passes a stranger
/// rarely looks at its order.
#[derive(Clone, Debug)]
struct IdIndex {
    entries: Vec<u64>,
    len: usize,
    len_min: usize,
    /// `32 - log2(entries.len())`.
    shift: u32,
    hash_key: u64,
}

impl IdIndex {
    fn new(reserved: usize, hash_key: u64) -> Self {
        let entries_min = (reserved * 2).next_power_of_two().max(ENTRIES_MIN);
        let mut index = IdIndex { entries: Vec::new(), len: 0, len_min: entries_min, shift: 0, hash_key };
        index.resize(entries_min);
        index
    }

    #[inline]
    fn hash(&self, id: u64) -> u32 {
        let product = u128::from(id ^ self.hash_key) * u128::from(MULTIPLIER);
        (((product >> 64) as u64 ^ product as u64) >> 32) as u32
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        (hash >> self.shift) as usize
    }

    #[inline]
    fn find(&self, id: u64, slab: &Slab<Order>) -> Option<(usize, u32)> {
        let (hash, mask) = (self.hash(id), self.entries.len() - 1);
        let mut at = self.home(hash);
        loop {
            let entry = self.entries[at & mask];
            if entry == 0 {
                return None;
            }
            let slot = (entry as u32).wrapping_sub(1);
            if (entry >> 32) as u32 == hash && slab[slot].id == id {
                return Some((at & mask, slot));
            }
            at += 1;
        }
    }

    #[inline]
    fn insert(&mut self, id: u64, slot: u32) {
        if (self.len + 1) * 2 > self.entries.len() {
            self.resize(self.entries.len() * 2);
        }
        self.len += 1;
        self.place(u64::from(self.hash(id)) << 32 | u64::from(slot + 1));
    }

    #[inline]
    fn place(&mut self, entry: u64) {
        let mask = self.entries.len() - 1;
        let mut at = self.home((entry >> 32) as u32);
        while self.entries[at & mask] != 0 {
            at += 1;
        }
        self.entries[at & mask] = entry;
    }

    /// Closes the gap by moving back what would no longer be found across it, so that there are no tombstones to pile up.
    #[inline]
    fn remove_at(&mut self, at: usize) {
        let mask = self.entries.len() - 1;
        let (mut gap, mut next) = (at, at);
        loop {
            next = (next + 1) & mask;
            let entry = self.entries[next];
            if entry == 0 {
                break;
            }
            let home = self.home((entry >> 32) as u32);
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(gap) & mask {
                self.entries[gap] = entry;
                gap = next;
            }
        }
        self.entries[gap] = 0;
        self.len -= 1;
        // Far below the load at which it grows, so that it does not go back and forth.
        if self.len * 8 < self.entries.len() && self.entries.len() > self.len_min {
            self.resize(self.entries.len() / 2);
        }
    }

    #[cold]
    fn resize(&mut self, entries: usize) {
        assert!(entries.is_power_of_two() && entries <= 1 << 31, "orders_max is below 2^30");
        let old = std::mem::replace(&mut self.entries, vec![0; entries]);
        self.shift = 32 - entries.trailing_zeros();
        old.into_iter().filter(|&entry| entry != 0).for_each(|entry| self.place(entry));
    }
}

/// An order in no queue.
pub(crate) const fn unlinked(id: u64, qty: u32, terms: u32) -> Order {
    Order { id, qty, level: NONE, prev: NONE, next: NONE, terms }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn found(orders: &Orders, model: &BTreeMap<u64, u32>, id: u64) {
        assert_eq!(orders.find(id), model.get(&id).copied(), "id {id:#x}");
    }

    proptest! {
        #[test]
        fn the_index_is_a_map(steps in prop::collection::vec((any::<bool>(), 0u64..300, 0u32..3), 1..600), key: u64) {
            let mut orders = Orders::new(0, key);
            let mut model = BTreeMap::new();
            for (insert, n, shape) in steps {
                // Dense, sparse, and differing in the top bits only.
                let id = match shape { 0 => n, 1 => n.wrapping_mul(0x0123_4567_89ab_cdef), _ => n << 55 | 7 };
                match (insert, model.get(&id).copied()) {
                    (true, None) => { model.insert(id, orders.insert(unlinked(id, 1, NONE))); }
                    (false, Some(slot)) => { model.remove(&id); orders.remove(slot); }
                    _ => {}
                }
                found(&orders, &model, id);
            }
            model.keys().for_each(|&id| found(&orders, &model, id));
            prop_assert_eq!(orders.len(), model.len());
        }
    }

    #[test]
    fn the_table_shrinks_with_what_is_live() {
        let mut orders = Orders::new(0, 1);
        let slots: Vec<u32> = (0..100_000u64).map(|n| orders.insert(unlinked(n << 32, 1, NONE))).collect();
        assert_eq!(orders.index.entries.len(), 1 << 18);
        slots.iter().for_each(|&slot| orders.remove(slot));
        assert_eq!((orders.len(), orders.index.entries.len()), (0, ENTRIES_MIN));
    }

    #[test]
    fn names_of_one_home_survive_each_others_removal() {
        let mut orders = Orders::new(0, 0);
        let home = |orders: &Orders, id| orders.index.home(orders.index.hash(id));
        // Homes at the end of the table, so that the probes wrap.
        let ids: Vec<u64> = (1..).filter(|&id| home(&orders, id) >= ENTRIES_MIN - 2).take(20).collect();
        let slots: Vec<u32> = ids.iter().map(|&id| orders.insert(unlinked(id, 1, NONE))).collect();
        for n in 0..ids.len() {
            orders.remove(slots[n]);
            assert_eq!(orders.find(ids[n]), None);
            for m in n + 1..ids.len() {
                assert_eq!(orders.find(ids[m]), Some(slots[m]));
            }
        }
    }
}
