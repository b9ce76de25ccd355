//! Price levels: a queue of orders at one price of one side, and each side's levels from the best one on.

use crate::command::Side;
use crate::runs::Runs;
use crate::slab::{NONE, Slab};

/// The orders of one side at one price, first come first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    pub(crate) price: i64,
    /// Shares of all its orders.
    pub(crate) qty: u64,
    pub(crate) head: u32,
    pub(crate) tail: u32,
    /// Its orders; none: the slot is free.
    pub(crate) count: u32,
    pub(crate) side: Side,
}

// Two to a cache line.
const _: () = assert!(size_of::<Level>() == 32);

/// Guesses a side remembers, from a price's low bits to the slot of its level. Covers a contiguous range of this many ticks
/// without a miss; a wrong guess costs a binary search.
const GUESSES: usize = 1024;

#[derive(Clone, Debug)]
struct Ladder {
    side: Side,
    runs: Runs,
    best: Option<(i64, u32)>,
    guesses: Box<[u32; GUESSES]>,
}

/// A price as a key that grows towards the side's best.
#[inline]
const fn key_of(side: Side, price: i64) -> i64 {
    match side {
        Side::Buy => price,
        // Negation would overflow at the lowest price.
        Side::Sell => !price,
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Levels {
    slab: Slab<Level>,
    ladders: [Ladder; 2],
}

impl Levels {
    pub(crate) fn new(reserved: usize) -> Self {
        let ladders =
            Side::BOTH.map(|side| Ladder { side, runs: Runs::new(), best: None, guesses: Box::new([NONE; GUESSES]) });
        Levels { slab: Slab::with_capacity(reserved), ladders }
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    #[inline]
    pub(crate) fn high_water(&self) -> usize {
        self.slab.high_water()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slab.bytes() + self.ladders.iter().map(|ladder| ladder.runs.bytes() + GUESSES * 4).sum::<usize>()
    }

    /// The side's best level.
    #[inline]
    pub(crate) fn best(&self, side: Side) -> Option<u32> {
        self.ladders[side as usize].best.map(|(_, slot)| slot)
    }

    /// The best level that an order of `side` with this limit may trade with.
    #[inline]
    pub(crate) fn crossed_by(&self, side: Side, limit: i64) -> Option<u32> {
        let maker = side.opposite();
        let (key, slot) = self.ladders[maker as usize].best?;
        (key >= key_of(maker, limit)).then_some(slot)
    }

    /// The side's levels, best first.
    pub(crate) fn best_first(&self, side: Side) -> impl Iterator<Item = (u32, &Level)> + '_ {
        self.ladders[side as usize].runs.descending().map(|(_, slot)| (slot, &self.slab[slot]))
    }

    /// The level at this price, made where there is none.
    #[inline]
    pub(crate) fn at(&mut self, side: Side, price: i64) -> u32 {
        let ladder = &mut self.ladders[side as usize];
        let guess = &mut ladder.guesses[price as usize % GUESSES];
        if let Some(level) = self.slab.get(*guess)
            && level.price == price
            && level.side == side
            && level.count > 0
        {
            return *guess;
        }
        let key = key_of(side, price);
        let slot = ladder.runs.get(key).unwrap_or_else(|| {
            let slot = self.slab.insert(Level { price, qty: 0, head: NONE, tail: NONE, count: 0, side });
            ladder.runs.insert(key, slot);
            if ladder.best.is_none_or(|(best, _)| key > best) {
                ladder.best = Some((key, slot));
            }
            slot
        });
        *guess = slot;
        slot
    }

    /// Takes out a level whose last order has left.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        let Level { price, side, count, qty, .. } = self.slab[slot];
        debug_assert_eq!((count, qty), (0, 0));
        let ladder = &mut self.ladders[side as usize];
        let key = key_of(side, price);
        ladder.runs.remove(key);
        if ladder.best == Some((key, slot)) {
            ladder.best = ladder.runs.last();
        }
        self.slab.remove(slot);
    }

    /// What does not hold of the structure, if anything.
    pub(crate) fn defect(&self) -> Option<String> {
        for ladder in &self.ladders {
            if let Some(defect) = ladder.runs.defect() {
                return Some(defect);
            }
            if ladder.best != ladder.runs.last() {
                return Some(format!("best is {:?}, remembered as {:?}", ladder.runs.last(), ladder.best));
            }
            for (key, slot) in ladder.runs.descending() {
                let level = &self.slab[slot];
                if key_of(level.side, level.price) != key || level.side as u8 != ladder.side as u8 {
                    return Some(format!("level of price {} stands at key {key}", level.price));
                }
            }
        }
        None
    }
}

impl std::ops::Index<u32> for Levels {
    type Output = Level;

    #[inline]
    fn index(&self, slot: u32) -> &Level {
        &self.slab[slot]
    }
}

impl std::ops::IndexMut<u32> for Levels {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut Level {
        &mut self.slab[slot]
    }
}
