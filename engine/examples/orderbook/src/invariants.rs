//! What the book promises about itself.

use ticktape::{InvariantViolation, Invariants};

use crate::book::OrderBook;
use crate::command::Side;
use crate::levels::Level;
use crate::slab::NONE;

impl Invariants for OrderBook {
    fn check(&self) -> Result<(), InvariantViolation> {
        self.check_not_crossed()?;
        self.check_ladders()?;
        self.check_queues()?;
        self.check_shares()
    }
}

fn violated(name: &'static str, detail: impl Into<String>) -> Result<(), InvariantViolation> {
    Err(InvariantViolation::new(name, detail))
}

impl OrderBook {
    fn check_not_crossed(&self) -> Result<(), InvariantViolation> {
        match (self.best(Side::Buy), self.best(Side::Sell)) {
            (Some((bid, _)), Some((ask, _))) if bid >= ask => {
                violated("the best bid is below the best ask", format!("bid {bid}, ask {ask}"))
            }
            _ => Ok(()),
        }
    }

    fn check_ladders(&self) -> Result<(), InvariantViolation> {
        if let Some(defect) = self.levels.defect() {
            return violated("the ladder is in order", defect);
        }
        let in_ladders = Side::BOTH.map(|side| self.levels.best_first(side).count()).iter().sum::<usize>();
        if in_ladders != self.levels.len() {
            return violated("every level is in its ladder", format!("{in_ladders} of {}", self.levels.len()));
        }
        Ok(())
    }

    /// Queues, index and good-till terms agree on which orders there are.
    fn check_queues(&self) -> Result<(), InvariantViolation> {
        let (mut orders, mut terms) = (0, 0);
        for side in Side::BOTH {
            for (at, level) in self.levels.best_first(side) {
                terms += self.check_queue(at, level)?;
                orders += level.count as usize;
            }
        }
        if orders != self.orders.len() {
            return violated("every order is in its queue", format!("{orders} of {}", self.orders.len()));
        }
        if terms != self.terms.len() {
            return violated("terms belong to a live order", format!("{terms} of {}", self.terms.len()));
        }
        Ok(())
    }

    /// Returns how many of the level's orders have good-till terms.
    fn check_queue(&self, at: u32, level: &Level) -> Result<usize, InvariantViolation> {
        let (mut count, mut qty, mut terms, mut prev, mut slot) = (0, 0, 0, NONE, level.head);
        while slot != NONE && count <= level.count {
            let order = &self.orders[slot];
            if order.qty == 0 || order.level != at || order.prev != prev || self.orders.find(order.id) != Some(slot) {
                let detail = format!("slot {slot} at price {}: {order:?}", level.price);
                return Err(InvariantViolation::new("orders, queues and index agree", detail));
            }
            terms += usize::from(order.terms != NONE);
            (count, qty, prev, slot) = (count + 1, qty + u64::from(order.qty), slot, order.next);
        }
        if (count, qty, prev) != (level.count, level.qty, level.tail) || count == 0 {
            let detail = format!("{count} orders of {qty} shares in {level:?}");
            return Err(InvariantViolation::new("a level's totals are its orders'", detail));
        }
        Ok(terms)
    }

    fn check_shares(&self) -> Result<(), InvariantViolation> {
        let shares = self.shares;
        let in_book = Side::BOTH.iter().flat_map(|&side| self.levels.best_first(side));
        let resting: u128 = in_book.map(|(_, level)| u128::from(level.qty)).sum();
        if resting != shares.resting {
            return violated("resting shares are in the book", format!("{resting} shares, {shares:?}"));
        }
        if shares.traded + shares.canceled + shares.expired + shares.resting != shares.accepted {
            return violated("accepted shares are traded, canceled, expired or resting", format!("{shares:?}"));
        }
        Ok(())
    }
}
