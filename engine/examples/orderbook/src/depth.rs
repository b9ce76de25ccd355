//! Looking at the book.

use std::fmt;

use crate::book::OrderBook;
use crate::command::Side;
use crate::snapshot::{RestingOrder, Shares};

/// Levels that [`OrderBook`]'s `Display` lists.
pub const DEPTH_SHOWN: usize = 10;

/// One price of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// The price.
    pub price: i64,
    /// Shares that rest there.
    pub qty: u64,
    /// Orders that rest there.
    pub orders: u32,
}

impl OrderBook {
    /// The side's best price and the shares there.
    pub fn best(&self, side: Side) -> Option<(i64, u64)> {
        self.levels.best(side).map(|slot| (self.levels[slot].price, self.levels[slot].qty))
    }

    /// The side's prices, best first.
    pub fn depth(&self, side: Side) -> impl Iterator<Item = Depth> + '_ {
        self.levels.best_first(side).map(|(_, level)| Depth { price: level.price, qty: level.qty, orders: level.count })
    }

    /// The side's orders, as they would trade.
    pub fn orders(&self, side: Side) -> impl Iterator<Item = RestingOrder> + '_ {
        self.resting(side)
    }

    /// How many orders are live.
    pub fn orders_live(&self) -> usize {
        self.orders.len()
    }

    /// Whether an order of that name is live.
    pub fn is_live(&self, id: u64) -> bool {
        self.orders.find(id).is_some()
    }

    /// Where every accepted share went.
    pub fn shares(&self) -> Shares {
        self.shares
    }

    /// Heap memory taken, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.orders.bytes() + self.levels.bytes() + self.terms.bytes()
    }
}

/// The best levels side by side, one pair a line: `BID qty@px | ASK qty@px`, and `-` where a side has no more.
impl fmt::Display for OrderBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut bids, mut asks) = (self.depth(Side::Buy), self.depth(Side::Sell));
        let show = |level: Option<Depth>| level.map_or("-".into(), |Depth { price, qty, .. }| format!("{qty}@{price}"));
        let mut pair = (bids.next(), asks.next());
        write!(f, "BID {} | ASK {}", show(pair.0), show(pair.1))?;
        for _ in 1..DEPTH_SHOWN {
            pair = (bids.next(), asks.next());
            if pair == (None, None) {
                break;
            }
            write!(f, "\nBID {} | ASK {}", show(pair.0), show(pair.1))?;
        }
        Ok(())
    }
}
