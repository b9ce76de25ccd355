//! The book: price, then time.
//!
//! What the rules leave open is decided so:
//! - A modify to size zero is rejected, and the order stays. An order's side never changes.
//! - A modified order keeps its good-till time, and its session.
//! - An order whose time is over when it arrives is accepted, does not trade, and expires at once: timers that are due come
//!   before the frame.
//! - What is left of an order that has made its greatest number of trades is canceled, as it may not rest while it crosses.

use ticktape::{Ctx, Seq, Service, TimerId};

use crate::command::{Command, Side, TimeInForce};
use crate::config::{BookConfig, ORDERS_MAX};
use crate::levels::Levels;
use crate::orders::{Order, Orders, unlinked};
use crate::report::{RejectReason, Report};
use crate::slab::{NONE, Slab};
use crate::snapshot::{BookSnapshot, RestingOrder, Shares, Terms};

/// Memory shrinks when this many times more orders (or levels) were live than are live now. Larger keeps more for nothing;
/// at 2 a book that breathes would move its orders all the time.
const SHRINK_FACTOR: usize = 8;

type Lent<'a, 'b> = &'a mut Ctx<'b, Report>;

/// A limit order book of one instrument.
///
/// Invariant: the best bid is below the best ask.
/// Invariant: every accepted share is exactly one of traded, canceled, expired, resting.
/// Invariant: memory follows the live orders.
#[derive(Clone, Debug)]
pub struct OrderBook {
    pub(crate) config: BookConfig,
    pub(crate) orders: Orders,
    pub(crate) levels: Levels,
    pub(crate) terms: Slab<Terms>,
    pub(crate) shares: Shares,
}

/// An order that is looking for makers.
#[derive(Clone, Copy)]
struct Taker {
    seq: u64,
    id: u64,
    side: Side,
    price: i64,
    qty: u32,
}

impl Service for OrderBook {
    type Input = Command;
    type Output = Report;
    type Snapshot = BookSnapshot;
    type Config = BookConfig;

    const NAME: &'static str = "orderbook";

    fn genesis(config: &BookConfig) -> Self {
        OrderBook::with_room(config, 0)
    }

    #[inline]
    fn apply(&mut self, _: Seq, input: &Command, ctx: &mut Ctx<'_, Report>) {
        match *input {
            Command::New { seq, id, side, price, qty, time_in_force } => {
                self.enter(Taker { seq, id, side, price, qty }, time_in_force, ctx);
            }
            Command::Cancel { seq, id } => self.cancel(seq, id, ctx),
            Command::Modify { seq, id, price, qty } => self.modify(seq, id, price, qty, ctx),
        }
        self.shrink();
    }

    fn snapshot(&self) -> BookSnapshot {
        let side = |side| {
            let orders = self.levels.best_first(side).map(|(_, level)| level.count as usize).sum();
            let mut resting = Vec::with_capacity(orders);
            resting.extend(self.resting(side));
            resting
        };
        BookSnapshot { bids: side(Side::Buy), asks: side(Side::Sell), shares: self.shares }
    }

    fn restore(snapshot: BookSnapshot, config: &BookConfig) -> Self {
        let mut book = OrderBook::with_room(config, snapshot.bids.len() + snapshot.asks.len());
        for (side, orders) in [(Side::Buy, &snapshot.bids), (Side::Sell, &snapshot.asks)] {
            for &RestingOrder { id, price, qty, terms } in orders {
                assert!(qty > 0 && book.orders.find(id).is_none(), "snapshot holds order {id} twice or empty");
                let terms = terms.map_or(NONE, |terms| book.terms.insert(terms));
                book.rest(side, price, unlinked(id, qty, terms));
            }
        }
        book.shares = snapshot.shares;
        book
    }

    fn on_timer(&mut self, id: TimerId, ctx: &mut Ctx<'_, Report>) {
        let Some(slot) = self.orders.find(id.0) else { return };
        let Some(&terms) = self.terms.get(self.orders[slot].terms) else { return };
        let (side, price, qty) = self.take_out(slot);
        self.shares.expired += u128::from(qty);
        self.shares.resting -= u128::from(qty);
        let report = Report::Expired { seq: terms.seq, side, id: id.0, price };
        match terms.session {
            Some(session) => ctx.send(session, report),
            None => ctx.reply(report),
        }
        self.shrink();
    }
}

impl OrderBook {
    pub(crate) fn with_room(config: &BookConfig, orders: usize) -> Self {
        assert!(config.orders_max <= ORDERS_MAX, "orders_max is {}, at most {ORDERS_MAX}", config.orders_max);
        let room = orders.max(config.orders_reserved.min(config.orders_max) as usize);
        OrderBook {
            config: config.clone(),
            orders: Orders::new(room, config.hash_key),
            levels: Levels::new(room / 8),
            terms: Slab::with_capacity(room / 8),
            shares: Shares::default(),
        }
    }

    fn enter(&mut self, order: Taker, time_in_force: TimeInForce, ctx: Lent<'_, '_>) {
        let Taker { seq, id, side, price, qty } = order;
        if let Some(reason) = self.refusal(id, qty) {
            ctx.reply(Report::NewRejected { seq, id, reason });
            return;
        }
        ctx.reply(Report::New { seq, side, id, price, qty });
        self.shares.accepted += u128::from(qty);
        if let TimeInForce::GoodTill(good_till) = time_in_force {
            // What is due at the frame's time happens before the frame; so this order came too late to trade.
            if good_till <= ctx.now() {
                self.shares.expired += u128::from(qty);
                ctx.reply(Report::Expired { seq, side, id, price });
                return;
            }
        }
        let left = self.trade(order, ctx);
        if left == 0 {
            return;
        }
        if time_in_force == TimeInForce::ImmediateOrCancel || self.levels.crossed_by(side, price).is_some() {
            self.cancel_rest(order, left, ctx);
            return;
        }
        let mut terms = NONE;
        if let TimeInForce::GoodTill(good_till) = time_in_force {
            terms = self.terms.insert(Terms { good_till, seq, session: ctx.session() });
            ctx.set_timer(TimerId(id), good_till);
        }
        self.rest(side, price, unlinked(id, left, terms));
    }

    #[inline]
    fn refusal(&self, id: u64, qty: u32) -> Option<RejectReason> {
        if qty == 0 {
            Some(RejectReason::ZeroQuantity)
        } else if self.orders.find(id).is_some() {
            Some(RejectReason::LiveId)
        } else if self.orders.len() >= self.config.orders_max as usize {
            Some(RejectReason::BookFull)
        } else {
            None
        }
    }

    fn cancel(&mut self, seq: u64, id: u64, ctx: Lent<'_, '_>) {
        let Some(slot) = self.orders.find(id) else {
            ctx.reply(Report::CancelRejected { seq, id });
            return;
        };
        if self.orders[slot].terms != NONE {
            ctx.cancel_timer(TimerId(id));
        }
        let (side, price, qty) = self.take_out(slot);
        self.shares.canceled += u128::from(qty);
        self.shares.resting -= u128::from(qty);
        ctx.reply(Report::Canceled { seq, side, id, price });
    }

    fn modify(&mut self, seq: u64, id: u64, price: i64, qty: u32, ctx: Lent<'_, '_>) {
        let Some(slot) = self.orders.find(id).filter(|_| qty > 0) else {
            ctx.reply(Report::ModifyRejected { seq, id });
            return;
        };
        let terms = self.orders[slot].terms;
        let (side, old_qty) = self.unlink(slot);
        self.shares.canceled += u128::from(old_qty);
        self.shares.resting -= u128::from(old_qty);
        self.shares.accepted += u128::from(qty);
        ctx.reply(Report::Modified { seq, side, id, price, qty });
        let order = Taker { seq, id, side, price, qty };
        let left = self.trade(order, ctx);
        if left > 0 && self.levels.crossed_by(side, price).is_none() {
            if terms != NONE {
                self.terms[terms].seq = seq;
            }
            self.orders[slot].qty = left;
            self.link(side, price, slot);
            self.shares.resting += u128::from(left);
            return;
        }
        if terms != NONE {
            ctx.cancel_timer(TimerId(id));
            self.terms.remove(terms);
        }
        self.orders.remove(slot);
        if left > 0 {
            self.cancel_rest(order, left, ctx);
        }
    }

    /// Cancels what is left of an arriving order.
    fn cancel_rest(&mut self, order: Taker, left: u32, ctx: Lent<'_, '_>) {
        self.shares.canceled += u128::from(left);
        ctx.reply(Report::Canceled { seq: order.seq, side: order.side, id: order.id, price: order.price });
    }

    /// Trades an arriving order with the best makers it crosses, the oldest of a price first. Returns what is left of it.
    #[inline]
    fn trade(&mut self, taker: Taker, ctx: Lent<'_, '_>) -> u32 {
        let mut left = taker.qty;
        let mut trades_left = self.config.trades_per_order_max;
        while left > 0
            && trades_left > 0
            && let Some(level) = self.levels.crossed_by(taker.side, taker.price)
        {
            left = self.trade_with_head(taker, left, level, ctx);
            trades_left -= 1;
        }
        if left < taker.qty {
            let traded = u128::from(taker.qty - left);
            self.shares.traded += 2 * traded;
            self.shares.resting -= traded;
        }
        left
    }

    fn trade_with_head(&mut self, taker: Taker, left: u32, level: u32, ctx: Lent<'_, '_>) -> u32 {
        let price = self.levels[level].price;
        let slot = self.levels[level].head;
        let maker = &mut self.orders[slot];
        let qty = left.min(maker.qty);
        ctx.reply(Report::Trade { seq: taker.seq, price, qty, maker: maker.id, taker: taker.id });
        if qty < maker.qty {
            maker.qty -= qty;
            self.levels[level].qty -= u64::from(qty);
        } else {
            if maker.terms != NONE {
                ctx.cancel_timer(TimerId(maker.id));
            }
            self.take_out(slot);
        }
        left - qty
    }

    /// Adds an order to the book, behind all others of its price.
    #[inline]
    fn rest(&mut self, side: Side, price: i64, order: Order) {
        let slot = self.orders.insert(order);
        self.link(side, price, slot);
        self.shares.resting += u128::from(order.qty);
    }

    /// Puts an order at the end of its level's queue.
    #[inline]
    fn link(&mut self, side: Side, price: i64, slot: u32) {
        let at = self.levels.at(side, price);
        let level = &mut self.levels[at];
        let tail = std::mem::replace(&mut level.tail, slot);
        let order = &mut self.orders[slot];
        (order.level, order.prev, order.next) = (at, tail, NONE);
        level.count += 1;
        level.qty += u64::from(order.qty);
        if tail == NONE {
            level.head = slot;
        } else {
            self.orders[tail].next = slot;
        }
    }

    /// Takes an order out of its level's queue, and the level out of the ladder where it was the last. Returns its side and size.
    #[inline]
    fn unlink(&mut self, slot: u32) -> (Side, u32) {
        let Order { qty, level: at, prev, next, .. } = self.orders[slot];
        let level = &mut self.levels[at];
        let side = level.side;
        level.count -= 1;
        level.qty -= u64::from(qty);
        if level.count == 0 {
            self.levels.remove(at);
            return (side, qty);
        }
        match prev {
            NONE => level.head = next,
            _ => self.orders[prev].next = next,
        }
        match next {
            NONE => level.tail = prev,
            _ => self.orders[next].prev = prev,
        }
        (side, qty)
    }

    /// Takes an order out of the book and forgets it. Returns its side, price and size.
    #[inline]
    fn take_out(&mut self, slot: u32) -> (Side, i64, u32) {
        let Order { level, terms, .. } = self.orders[slot];
        let price = self.levels[level].price;
        let (side, qty) = self.unlink(slot);
        if terms != NONE {
            self.terms.remove(terms);
        }
        self.orders.remove(slot);
        (side, price, qty)
    }

    /// Moves everything to smaller memory where most of it stands empty. Paid for by the orders that have left since. Slots
    /// change, so this is the last thing a step does.
    #[inline]
    fn shrink(&mut self) {
        let reserved = self.config.orders_reserved as usize;
        let empty = |live: usize, high_water: usize| high_water > reserved && live * SHRINK_FACTOR < high_water;
        if empty(self.orders.len(), self.orders.high_water())
            || empty(self.levels.len(), self.levels.high_water())
            || empty(self.terms.len(), self.terms.high_water())
        {
            self.rebuild();
        }
    }

    #[cold]
    fn rebuild(&mut self) {
        *self = OrderBook::restore(self.snapshot(), &self.config);
    }

    /// One side's orders as they would trade.
    pub(crate) fn resting(&self, side: Side) -> impl Iterator<Item = RestingOrder> + '_ {
        self.levels.best_first(side).flat_map(|(_, level)| {
            let next = |&slot: &u32| Some(self.orders[slot].next).filter(|&next| next != NONE);
            std::iter::successors(Some(level.head), next).map(|slot| {
                let Order { id, qty, terms, .. } = self.orders[slot];
                RestingOrder { id, price: level.price, qty, terms: self.terms.get(terms).copied() }
            })
        })
    }
}
