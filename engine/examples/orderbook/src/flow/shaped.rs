//! Order flow of a given shape: the same for the same seed and shape, on every machine.

use std::fmt;

use ticktape::Service;

use super::generate::{SplitMix64, order_name};
use crate::book::OrderBook;
use crate::command::{Command, Side, TimeInForce};
use crate::config::BookConfig;
use crate::drive::Driver;

/// A share of one.
pub const WHOLE_PPM: u32 = 1_000_000;
/// Prices are no further from zero than this, so that none of them overflows on the way.
pub const PRICE_LIMIT: i64 = 1 << 60;
/// The most orders that a flow lets rest: what a book with its default configuration takes.
pub const RESTING_MAX: u32 = 4 << 20;

/// Ticks from the middle within which most orders are priced: as in the public scenario `normal`.
const SPREAD_TICKS: i64 = 250;
/// One message in so many moves the middle by a tick.
const MOVE_ONE_IN: u64 = 32;
/// Names of orders that are no more, or have traded, are let go of when they are so many more than the orders that rest.
const FORGET_BEYOND: usize = 1024;

/// What a flow is like. Shares are in a million, and a flow comes close to them as long as enough orders rest: where none does that a
/// cancel or modify could hit, a new order comes instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// New orders, of all messages.
    pub new_ppm: u32,
    /// Cancels, of all messages.
    pub cancel_ppm: u32,
    /// Modifies, of all messages.
    pub modify_ppm: u32,
    /// Immediate-or-cancel orders, of the new ones.
    pub ioc_ppm: u32,
    /// Orders priced to trade at once where there is somebody to trade with, of the new and modified ones.
    pub crossing_ppm: u32,
    /// Those that name an order which does not rest, of the cancels and modifies. The others hit.
    pub miss_ppm: u32,
    /// The lowest and the highest price, in ticks.
    pub prices: (i64, i64),
    /// Sizes are 1 to this.
    pub qty_max: u32,
    /// Orders that rest at once, at most; cancels come instead of new orders then.
    pub resting_max: u32,
}

impl Default for Shape {
    /// Prices, sizes and crossing as in the public scenario `normal`; more new orders than that has, as some trade at once and the
    /// cancels are to hit all the same; one cancel or modify in fifty misses.
    fn default() -> Self {
        Shape {
            new_ppm: 600_000,
            cancel_ppm: 310_000,
            modify_ppm: 90_000,
            ioc_ppm: 150_000,
            crossing_ppm: 120_000,
            miss_ppm: 20_000,
            prices: (33_000, 34_800),
            qty_max: 99,
            resting_max: 1 << 20,
        }
    }
}

/// Why there is no flow of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// The shares of messages do not come to one: what they come to.
    Sum(u64),
    /// A share of more than all.
    Share {
        /// Whose.
        name: &'static str,
        /// The share.
        ppm: u32,
    },
    /// More cancels that hit than orders that rest.
    TooManyCancels {
        /// Cancels that hit, of all messages.
        hits_ppm: u64,
        /// New orders that may rest, of all messages.
        resting_ppm: u64,
    },
    /// The lowest price is above the highest, or one is beyond [`PRICE_LIMIT`].
    Prices(i64, i64),
    /// Sizes up to 0.
    Qty,
    /// No order may rest, or more than [`RESTING_MAX`].
    Resting(u32),
}

/// A share in percent.
struct Percent(u64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:04}", self.0 / 10_000, self.0 % 10_000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ShapeError::Sum(ppm) => {
                write!(f, "new, cancel and modify come to {} percent, must come to 100", Percent(ppm))
            }
            ShapeError::Share { name, ppm } => {
                write!(f, "{name} is {} percent, must be 0 to 100", Percent(ppm.into()))
            }
            ShapeError::TooManyCancels { hits_ppm, resting_ppm } => write!(
                f,
                "cancel hits with {} percent of the messages, only {} percent are orders that may rest",
                Percent(hits_ppm),
                Percent(resting_ppm)
            ),
            ShapeError::Prices(low, high) => write!(
                f,
                "prices are {low}..{high}, must be the lowest and the highest, each within {} of 0",
                PRICE_LIMIT
            ),
            ShapeError::Qty => f.write_str("sizes are up to 0, must be up to 1 or more"),
            ShapeError::Resting(count) => write!(f, "{count} orders may rest at once, must be 1 to {RESTING_MAX}"),
        }
    }
}

impl std::error::Error for ShapeError {}

impl Shape {
    /// That there can be such a flow.
    ///
    /// # Errors
    /// [`ShapeError`], the first reason against it.
    pub fn check(&self) -> Result<(), ShapeError> {
        let shares = [
            ("new", self.new_ppm),
            ("cancel", self.cancel_ppm),
            ("modify", self.modify_ppm),
            ("ioc", self.ioc_ppm),
            ("crossing", self.crossing_ppm),
            ("miss", self.miss_ppm),
        ];
        if let Some(&(name, ppm)) = shares.iter().find(|(_, ppm)| *ppm > WHOLE_PPM) {
            return Err(ShapeError::Share { name, ppm });
        }
        let sum = shares[..3].iter().map(|(_, ppm)| u64::from(*ppm)).sum();
        if sum != u64::from(WHOLE_PPM) {
            return Err(ShapeError::Sum(sum));
        }
        let of = |ppm: u32, share: u32| u64::from(ppm) * u64::from(share) / u64::from(WHOLE_PPM);
        let hits_ppm = of(self.cancel_ppm, WHOLE_PPM - self.miss_ppm);
        let resting_ppm = of(self.new_ppm, WHOLE_PPM - self.ioc_ppm);
        if hits_ppm > resting_ppm {
            return Err(ShapeError::TooManyCancels { hits_ppm, resting_ppm });
        }
        let (low, high) = self.prices;
        if low > high || low < -PRICE_LIMIT || high > PRICE_LIMIT {
            return Err(ShapeError::Prices(low, high));
        }
        if self.qty_max == 0 {
            return Err(ShapeError::Qty);
        }
        if !(1..=RESTING_MAX).contains(&self.resting_max) {
            return Err(ShapeError::Resting(self.resting_max));
        }
        Ok(())
    }
}

/// What a flow came to so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// New orders.
    pub new: u64,
    /// Those of them that are immediate-or-cancel.
    pub ioc: u64,
    /// Cancels.
    pub cancels: u64,
    /// Modifies.
    pub modifies: u64,
    /// Cancels and modifies that name an order which does not rest.
    pub misses: u64,
}

/// Endless order flow of a shape, around a price that walks at random. It keeps a book of its own, so it knows what rests.
#[derive(Debug)]
pub struct ShapedFlow {
    shape: Shape,
    random: SplitMix64,
    driver: Driver,
    seq: u64,
    orders: u64,
    mid: i64,
    /// Orders that were entered to rest, with their sides; they may have left since.
    entered: Vec<(u64, Side)>,
    /// The latest order that was found to have left; a name that was never given, before there is one.
    gone: u64,
    tally: Tally,
}

impl ShapedFlow {
    /// The flow of this seed and shape.
    ///
    /// # Errors
    /// [`ShapeError`], the first reason against the shape.
    pub fn new(seed: u64, shape: Shape) -> Result<Self, ShapeError> {
        shape.check()?;
        let (low, high) = shape.prices;
        Ok(ShapedFlow {
            shape,
            random: SplitMix64(seed),
            driver: Driver::new(OrderBook::genesis(&BookConfig::default())),
            seq: 0,
            orders: 0,
            mid: low + (high - low) / 2,
            entered: Vec::new(),
            gone: u64::MAX,
            tally: Tally::default(),
        })
    }

    /// What it came to so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    fn next_command(&mut self) -> Command {
        let seq = self.seq;
        self.seq += 1;
        match self.random.below(2 * MOVE_ONE_IN) {
            0 => self.mid = (self.mid + 1).min(self.shape.prices.1),
            1 => self.mid = (self.mid - 1).max(self.shape.prices.0),
            _ => {}
        }
        let kind = self.random.below(WHOLE_PPM.into());
        let is_full = self.driver.book().orders.len() >= self.shape.resting_max as usize;
        if kind < self.shape.new_ppm.into() && !is_full {
            return self.new_order(seq);
        }
        let is_modify = kind >= u64::from(self.shape.new_ppm) + u64::from(self.shape.cancel_ppm);
        if self.chance(self.shape.miss_ppm) {
            self.tally.misses += 1;
            let side = if self.random.below(2) == 0 { Side::Buy } else { Side::Sell };
            return self.ask(seq, is_modify, self.gone, side);
        }
        // Where nothing rests there is nothing to hit.
        let Some((at, (id, side))) = self.any_resting() else { return self.new_order(seq) };
        if !is_modify {
            self.entered.swap_remove(at);
            self.gone = id;
        }
        self.ask(seq, is_modify, id, side)
    }

    fn ask(&mut self, seq: u64, is_modify: bool, id: u64, side: Side) -> Command {
        if is_modify {
            self.tally.modifies += 1;
            return Command::Modify { seq, id, price: self.price(side), qty: self.qty() };
        }
        self.tally.cancels += 1;
        Command::Cancel { seq, id }
    }

    fn new_order(&mut self, seq: u64) -> Command {
        let id = order_name(self.orders);
        self.orders += 1;
        self.tally.new += 1;
        let side = if self.random.below(2) == 0 { Side::Buy } else { Side::Sell };
        let ioc = self.chance(self.shape.ioc_ppm);
        if ioc {
            self.tally.ioc += 1;
        } else {
            self.enter(id, side);
        }
        let time_in_force = if ioc { TimeInForce::ImmediateOrCancel } else { TimeInForce::GoodTillCancel };
        Command::New { seq, id, side, price: self.price(side), qty: self.qty(), time_in_force }
    }

    fn enter(&mut self, id: u64, side: Side) {
        let orders = &self.driver.book().orders;
        if self.entered.len() > 2 * orders.len() + FORGET_BEYOND {
            self.entered.retain(|(id, _)| orders.find(*id).is_some());
        }
        self.entered.push((id, side));
    }

    /// An order that rests, and its place in the list. Those that are found to have left leave the list.
    fn any_resting(&mut self) -> Option<(usize, (u64, Side))> {
        while !self.entered.is_empty() {
            let at = self.random.below(self.entered.len() as u64) as usize;
            let (id, side) = self.entered[at];
            if self.driver.book().orders.find(id).is_some() {
                return Some((at, (id, side)));
            }
            self.entered.swap_remove(at);
            self.gone = id;
        }
        None
    }

    fn price(&mut self, side: Side) -> i64 {
        let (low, high) = self.shape.prices;
        let spread = SPREAD_TICKS.min((high - low) / 2).max(1) as u64;
        // The lesser of two is likelier near the middle, where books are deepest.
        let away = self.random.below(spread).min(self.random.below(spread)) as i64;
        let away = if self.chance(self.shape.crossing_ppm) { -away / 8 } else { away + 1 };
        let price = match side {
            Side::Buy => self.mid - away,
            Side::Sell => self.mid + away,
        };
        price.clamp(low, high)
    }

    fn qty(&mut self) -> u32 {
        self.random.below(self.shape.qty_max.into()) as u32 + 1
    }

    fn chance(&mut self, ppm: u32) -> bool {
        self.random.below(WHOLE_PPM.into()) < ppm.into()
    }
}

impl Iterator for ShapedFlow {
    type Item = Command;

    fn next(&mut self) -> Option<Command> {
        let command = self.next_command();
        self.driver.apply(&command, |_| ());
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

    fn flow(seed: u64, shape: Shape, messages: usize) -> (Vec<Command>, Tally) {
        let mut flow = ShapedFlow::new(seed, shape).unwrap();
        let commands = flow.by_ref().take(messages).collect();
        (commands, flow.tally())
    }

    /// Whether a count is as asked for, but for one in a hundred messages: above four standard deviations here.
    fn is_near(count: u64, of: u64, ppm: u32) -> bool {
        let wanted = of * u64::from(ppm) / u64::from(WHOLE_PPM);
        count.abs_diff(wanted) <= of / 100 + 20
    }

    #[test]
    fn shares_are_as_asked_for_and_a_book_sees_them() {
        let plain = Shape::default();
        let shapes = [
            plain,
            Shape { new_ppm: 900_000, cancel_ppm: 50_000, modify_ppm: 50_000, ..plain },
            Shape {
                new_ppm: 400_000,
                cancel_ppm: 100_000,
                modify_ppm: 500_000,
                ioc_ppm: 0,
                miss_ppm: 300_000,
                ..plain
            },
            Shape { ioc_ppm: 0, crossing_ppm: 0, miss_ppm: 0, prices: (-3, 4), qty_max: 1, ..plain },
            Shape { new_ppm: WHOLE_PPM, cancel_ppm: 0, modify_ppm: 0, ioc_ppm: 500_000, ..plain },
        ];
        for shape in shapes {
            let (commands, tally) = flow(9, shape, 50_000);
            let asked = tally.cancels + tally.modifies;
            assert_eq!(tally.new + asked, 50_000);
            let nears = [
                (tally.new, 50_000, shape.new_ppm),
                (tally.cancels, 50_000, shape.cancel_ppm),
                (tally.modifies, 50_000, shape.modify_ppm),
                (tally.ioc, tally.new, shape.ioc_ppm),
                (tally.misses, asked, shape.miss_ppm),
            ];
            assert!(nears.iter().all(|&(count, of, ppm)| is_near(count, of, ppm)), "{shape:?}: {tally:?}");
            // Exactly what misses is rejected.
            let mut driver = Driver::new(OrderBook::genesis(&BookConfig::default()));
            let (mut rejected, mut trades) = (0, 0);
            for command in &commands {
                driver.apply(command, |report| match report {
                    Report::CancelRejected { .. } | Report::ModifyRejected { .. } => rejected += 1,
                    Report::NewRejected { .. } => panic!("{command:?} is refused"),
                    Report::Trade { .. } => trades += 1,
                    _ => {}
                });
            }
            assert_eq!(rejected, tally.misses, "{shape:?}");
            assert!(shape.crossing_ppm == 0 || trades > 100, "{shape:?}: {trades} trades");
        }
    }

    #[test]
    fn prices_sizes_and_what_rests_stay_within_their_limits() {
        let shape = Shape { prices: (-5, 5), qty_max: 3, resting_max: 100, crossing_ppm: 0, ..Shape::default() };
        let shape = Shape { new_ppm: 800_000, cancel_ppm: 100_000, modify_ppm: 100_000, ..shape };
        let (commands, _) = flow(1, shape, 20_000);
        let mut driver = Driver::new(OrderBook::genesis(&BookConfig::default()));
        let mut resting = 0;
        for command in &commands {
            if let Command::New { price, qty, .. } | Command::Modify { price, qty, .. } = *command {
                assert!((-5..=5).contains(&price) && (1..=3).contains(&qty));
            }
            driver.apply(command, |_| ());
            resting = resting.max(driver.book().orders.len());
        }
        assert_eq!(resting, 100);
        let narrow = Shape { prices: (7, 7), ..Shape::default() };
        let at_7 = |command: &Command| !matches!(*command, Command::New { price, .. } if price != 7);
        assert!(flow(1, narrow, 1_000).0.iter().all(at_7));
        let wide = Shape { prices: (-PRICE_LIMIT, PRICE_LIMIT), qty_max: u32::MAX, ..Shape::default() };
        assert_eq!(flow(1, wide, 1_000).0.len(), 1_000);
    }

    #[test]
    fn flow_follows_from_seed_and_shape_alone() {
        let shape = Shape::default();
        assert_eq!(flow(7, shape, 5_000), flow(7, shape, 5_000));
        assert_eq!(flow(7, shape, 5_000).0[..100], flow(7, shape, 100).0);
        assert_ne!(flow(7, shape, 100), flow(8, shape, 100));
        assert_ne!(flow(7, shape, 5_000), flow(7, Shape { miss_ppm: 0, ..shape }, 5_000));
    }

    #[test]
    fn shapes_that_cannot_be_are_refused_by_name() {
        let plain = Shape::default();
        let refused = |shape: Shape| shape.check().unwrap_err().to_string();
        assert_eq!(
            refused(Shape { cancel_ppm: 300_000, ..plain }),
            "new, cancel and modify come to 99 percent, must come to 100"
        );
        assert_eq!(refused(Shape { ioc_ppm: 1_250_000, ..plain }), "ioc is 125 percent, must be 0 to 100");
        let cancels = Shape { new_ppm: 400_000, cancel_ppm: 600_000, modify_ppm: 0, miss_ppm: 0, ..plain };
        assert_eq!(
            refused(cancels),
            "cancel hits with 60 percent of the messages, only 34 percent are orders that may rest"
        );
        assert!(refused(Shape { prices: (2, 1), ..plain }).starts_with("prices are 2..1, must be"));
        assert!(refused(Shape { prices: (0, i64::MAX), ..plain }).starts_with("prices are 0..9223372036854775807"));
        assert!(refused(Shape { qty_max: 0, ..plain }).starts_with("sizes are up to 0"));
        assert!(refused(Shape { resting_max: 0, ..plain }).starts_with("0 orders may rest"));
    }
}
