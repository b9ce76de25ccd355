//! Price levels: a queue of orders at one price of one side, and each side's levels from the best one on.

use crate::command::Side;
use crate::runs::Runs;
use crate::slab::{NONE, Slab, Slot};

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

impl Slot for Level {
    const BLANK: Self = Level { price: 0, qty: 0, head: NONE, tail: NONE, count: 0, side: Side::Buy };
}

/// Ticks of a page, one bit each. A new price on a page costs a bit and no search. Larger would waste more where prices are
/// sparse: a page takes 272 bytes, though it may hold one price.
const PAGE_TICKS: usize = 64;
const PAGE_SHIFT: u32 = PAGE_TICKS.trailing_zeros();

/// Neighbouring prices of one side.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// What its prices' keys have in common: `key >> PAGE_SHIFT`, or [`NO_PAGE`] in a free slot.
    key: i64,
    /// Which of its prices have a level. The highest bit is the best price.
    occupied: u64,
    /// It was emptied not long ago, and stands in [`Ladder::emptied`].
    emptied: bool,
    levels: [u32; PAGE_TICKS],
}

/// No price has this page key.
const NO_PAGE: i64 = i64::MAX;
const _: () = assert!(i64::MAX >> PAGE_SHIFT < NO_PAGE);

/// Emptied pages that a side keeps, since most are soon in use again: a level that comes and goes costs a bit, not a search.
/// More would make the walk to the next best price longer where the best is gone.
const EMPTIED_PAGES_MAX: usize = 32;

impl Slot for Page {
    const BLANK: Self = Page { key: NO_PAGE, occupied: 0, emptied: false, levels: [NONE; PAGE_TICKS] };
}

impl Page {
    #[inline]
    fn best(&self) -> Option<u32> {
        self.occupied.checked_ilog2().map(|bit| self.levels[bit as usize % PAGE_TICKS])
    }
}

/// Guesses a side remembers, from a page key's low bits to the page's slot: 8192 neighbouring ticks without a miss, and a miss
/// costs a binary search.
const GUESSES: usize = 128;

#[derive(Clone, Debug)]
struct Ladder {
    side: Side,
    /// Page keys to page slots.
    runs: Runs,
    pages: Slab<Page>,
    guesses: Box<[u32; GUESSES]>,
    /// Pages that were emptied since pages were last given back. Some are in use again.
    emptied: Vec<u32>,
    /// The best price's key and level.
    best: Option<(i64, u32)>,
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

/// A key's page key, and its bit on the page.
#[inline]
const fn on_page(key: i64) -> (i64, usize) {
    (key >> PAGE_SHIFT, key as usize % PAGE_TICKS)
}

impl Ladder {
    fn new(side: Side) -> Self {
        let (runs, pages) = (Runs::new(), Slab::with_capacity(2 * EMPTIED_PAGES_MAX));
        let emptied = Vec::with_capacity(EMPTIED_PAGES_MAX);
        Ladder { side, runs, pages, guesses: Box::new([NONE; GUESSES]), emptied, best: None }
    }

    #[inline]
    fn page(&mut self, page_key: i64) -> Option<u32> {
        let guess = &mut self.guesses[page_key as usize % GUESSES];
        if self.pages.get(*guess).is_some_and(|page| page.key == page_key) {
            return Some(*guess);
        }
        let page = self.runs.get(page_key)?;
        *guess = page;
        Some(page)
    }

    #[cold]
    fn new_page(&mut self, page_key: i64) -> u32 {
        let page = self.pages.insert(Page { key: page_key, ..Page::BLANK });
        self.runs.insert(page_key, page);
        self.guesses[page_key as usize % GUESSES] = page;
        page
    }

    /// The best level, where that of `page` was the best before.
    #[inline]
    fn best_from(&self, page: u32) -> Option<u32> {
        // What stands above that page is empty, and there is not much of it.
        self.pages[page].best().or_else(|| self.runs.descending().find_map(|(_, page)| self.pages[page].best()))
    }

    /// Remembers an emptied page; gives back those that stayed empty once there are many.
    fn page_emptied(&mut self, page: u32) {
        if self.pages[page].emptied {
            return;
        }
        if self.emptied.len() == EMPTIED_PAGES_MAX {
            for page in self.emptied.drain(..) {
                let Page { key, occupied, emptied, .. } = &mut self.pages[page];
                *emptied = false;
                if *occupied == 0 {
                    self.runs.remove(std::mem::replace(key, NO_PAGE));
                    self.pages.remove(page);
                }
            }
        }
        self.pages[page].emptied = true;
        self.emptied.push(page);
    }

    /// Levels, best first.
    fn best_first(&self) -> impl Iterator<Item = (i64, u32)> + '_ {
        self.runs.descending().flat_map(|(page_key, page)| {
            let page = &self.pages[page];
            let bits = (0..PAGE_TICKS).rev().filter(|&bit| page.occupied & 1 << bit != 0);
            bits.map(move |bit| (page_key << PAGE_SHIFT | bit as i64, page.levels[bit]))
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Levels {
    slab: Slab<Level>,
    ladders: [Ladder; 2],
}

impl Levels {
    pub(crate) fn new(reserved: usize) -> Self {
        Levels { slab: Slab::with_capacity(reserved), ladders: Side::BOTH.map(Ladder::new) }
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    #[inline]
    pub(crate) fn high_water(&self) -> usize {
        self.slab.high_water()
    }

    pub(crate) fn bytes(&self) -> usize {
        let ladders = self.ladders.iter().map(|ladder| ladder.runs.bytes() + ladder.pages.bytes() + GUESSES * 4);
        self.slab.bytes() + ladders.sum::<usize>()
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
        self.ladders[side as usize].best_first().map(|(_, slot)| (slot, &self.slab[slot]))
    }

    /// The level at this price, made where there is none.
    #[inline]
    pub(crate) fn at(&mut self, side: Side, price: i64) -> u32 {
        let ladder = &mut self.ladders[side as usize];
        let key = key_of(side, price);
        let (page_key, bit) = on_page(key);
        let page = ladder.page(page_key).unwrap_or_else(|| ladder.new_page(page_key));
        let page = &mut ladder.pages[page];
        if page.occupied & 1 << bit != 0 {
            return page.levels[bit];
        }
        let slot = self.slab.insert(Level { price, side, ..Level::BLANK });
        page.occupied |= 1 << bit;
        page.levels[bit] = slot;
        if ladder.best.is_none_or(|(best, _)| key > best) {
            ladder.best = Some((key, slot));
        }
        slot
    }

    /// Takes out a level whose last order has left.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        let Level { price, side, count, qty, .. } = self.slab[slot];
        debug_assert_eq!((count, qty), (0, 0));
        self.slab.remove(slot);
        let ladder = &mut self.ladders[side as usize];
        let key = key_of(side, price);
        let (page_key, bit) = on_page(key);
        let at = ladder.page(page_key).expect("a level is on its page");
        let page = &mut ladder.pages[at];
        page.occupied &= !(1 << bit);
        if page.occupied == 0 {
            ladder.page_emptied(at);
        }
        if ladder.best == Some((key, slot)) {
            ladder.best = ladder.best_from(at).map(|slot| (key_of(side, self.slab[slot].price), slot));
        }
    }

    /// What does not hold of the structure, if anything.
    pub(crate) fn defect(&self) -> Option<String> {
        for ladder in &self.ladders {
            if let Some(defect) = ladder.runs.defect() {
                return Some(defect);
            }
            if ladder.best != ladder.best_first().next() {
                return Some(format!("best is {:?}, remembered as {:?}", ladder.best_first().next(), ladder.best));
            }
            let pages = ladder.runs.descending().filter(|&(key, slot)| {
                let page = &ladder.pages[slot];
                page.key == key
                    && page.emptied == ladder.emptied.contains(&slot)
                    && (page.emptied || page.occupied != 0)
            });
            if pages.count() != ladder.pages.len() {
                return Some(format!("{} pages, not all of them in order", ladder.pages.len()));
            }
            for (key, slot) in ladder.best_first() {
                let level = &self.slab[slot];
                if key_of(level.side, level.price) != key || level.side != ladder.side {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Prices on few pages, on many, and at the ends.
    fn prices() -> impl Strategy<Value = i64> {
        prop_oneof![
            -100i64..100,
            (-200i64..200).prop_map(|page| page * 64),
            // Pages that share a guess.
            (-3i64..3).prop_map(|page| page * 64 * GUESSES as i64),
            prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(i64::MIN + 63), Just(i64::MAX - 63)],
        ]
    }

    proptest! {
        #[test]
        fn levels_are_two_sorted_maps(steps in prop::collection::vec((any::<bool>(), prices()), 1..1000)) {
            let mut levels = Levels::new(0);
            let mut models = [BTreeMap::new(), BTreeMap::new()];
            for (n, (buy, price)) in steps.into_iter().enumerate() {
                let side = if buy { Side::Buy } else { Side::Sell };
                let model = &mut models[side as usize];
                // A price that comes again leaves, so that pages empty and fill.
                match model.remove(&price) {
                    Some(slot) => levels.remove(slot),
                    None => {
                        let slot = levels.at(side, price);
                        prop_assert_eq!(levels.at(side, price), slot);
                        model.insert(price, slot);
                    }
                }
                let best = match side {
                    Side::Buy => model.last_key_value(),
                    Side::Sell => model.first_key_value(),
                };
                prop_assert_eq!(levels.best(side), best.map(|(_, &slot)| slot));
                if let Some((&price, &slot)) = best {
                    let (taker, beyond) = match side {
                        Side::Buy => (Side::Sell, price.checked_add(1)),
                        Side::Sell => (Side::Buy, price.checked_sub(1)),
                    };
                    prop_assert_eq!(levels.crossed_by(taker, price), Some(slot));
                    prop_assert_eq!(beyond.and_then(|limit| levels.crossed_by(taker, limit)), None);
                }
                if n % 16 == 0 {
                    prop_assert_eq!(levels.defect(), None);
                }
            }
            prop_assert_eq!(levels.defect(), None);
            let prices = |side| levels.best_first(side).map(|(_, level)| level.price).collect::<Vec<_>>();
            prop_assert_eq!(prices(Side::Buy), models[0].keys().rev().copied().collect::<Vec<_>>());
            prop_assert_eq!(prices(Side::Sell), models[1].keys().copied().collect::<Vec<_>>());
        }
    }

    #[test]
    fn emptied_pages_are_kept_few() {
        let mut levels = Levels::new(0);
        for price in (0..10_000).map(|page| page * 64) {
            let level = levels.at(Side::Sell, price);
            levels.remove(level);
        }
        assert_eq!(levels.defect(), None);
        assert!(levels.ladders[Side::Sell as usize].pages.len() <= EMPTIED_PAGES_MAX);
        assert!(levels.bytes() < 64 << 10, "{} bytes", levels.bytes());
    }
}
