//! The book against a list of orders that is scanned for everything, with time and timers.

mod oracle;

use oracle::Oracle;
use orderbook::{BookConfig, Command, OrderBook, Report, Side, TimeInForce};
use proptest::prelude::*;
use ticktape::{Ctx, Effects, Encode, Invariants, Seq, Service, TimerId, TimerOp, Timestamp};

/// An engine's part: the clock, and the timers in (deadline, arming order).
struct Harness {
    book: OrderBook,
    config: BookConfig,
    seq: Seq,
    armed: Vec<(Timestamp, u64)>,
}

impl Harness {
    fn new(config: &BookConfig) -> Self {
        Harness { book: OrderBook::genesis(config), config: config.clone(), seq: Seq::ZERO, armed: Vec::new() }
    }

    fn step(&mut self, now: Timestamp, step: impl FnOnce(&mut OrderBook, &mut Ctx<'_, Report>)) -> Vec<Report> {
        let mut effects = Effects::with_capacity(0);
        step(&mut self.book, &mut Ctx::new(self.seq, now, None, &mut effects));
        for op in effects.timers {
            let (TimerOp::Set(TimerId(id), _) | TimerOp::Cancel(TimerId(id))) = op;
            self.armed.retain(|&(_, armed)| armed != id);
            if let TimerOp::Set(_, at) = op {
                self.armed.push((at, id));
            }
        }
        effects.outputs.into_iter().map(|outgoing| outgoing.output).collect()
    }

    fn expire(&mut self, now: Timestamp) -> Vec<Report> {
        let mut reports = Vec::new();
        while let Some(&(at, id)) = self.armed.iter().filter(|(at, _)| *at <= now).min_by_key(|(at, _)| *at) {
            self.armed.retain(|&(_, armed)| armed != id);
            reports.extend(self.step(at, |book, ctx| book.on_timer(TimerId(id), ctx)));
        }
        reports
    }

    fn apply(&mut self, command: &Command, now: Timestamp) -> Vec<Report> {
        self.seq = self.seq.next();
        let seq = self.seq;
        self.step(now, |book, ctx| book.apply(seq, command, ctx))
    }

    fn restart(&mut self) {
        self.book = OrderBook::restore(self.book.snapshot(), &self.config);
    }
}

fn prices() -> impl Strategy<Value = i64> {
    prop_oneof![
        20 => 95i64..106,
        2 => (95i64..106).prop_map(|n| n * 1_000_000_007),
        // Of one guess: equal low bits.
        2 => (0i64..4).prop_map(|n| 100 + n * 1024),
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(-1), Just(0)],
    ]
}

fn ids() -> impl Strategy<Value = u64> {
    prop_oneof![30 => 0u64..40, 1 => Just(u64::MAX), 1 => Just(1 << 63)]
}

fn sizes() -> impl Strategy<Value = u32> {
    prop_oneof![30 => 1u32..50, 1 => Just(0), 1 => Just(u32::MAX)]
}

/// Commands without a seq, the time that passes before each, and whether the book restarts before it.
fn steps() -> impl Strategy<Value = Vec<(Command, u64, bool)>> {
    let new = (ids(), any::<bool>(), prices(), sizes(), 0u64..10).prop_map(|(id, buy, price, qty, kind)| {
        let time_in_force = match kind {
            0 => TimeInForce::ImmediateOrCancel,
            // Made absolute later.
            1..4 => TimeInForce::GoodTill(Timestamp(kind * 7)),
            _ => TimeInForce::GoodTillCancel,
        };
        let side = if buy { Side::Buy } else { Side::Sell };
        Command::New { seq: 0, id, side, price, qty, time_in_force }
    });
    let cancel = ids().prop_map(|id| Command::Cancel { seq: 0, id });
    let modify = (ids(), prices(), sizes()).prop_map(|(id, price, qty)| Command::Modify { seq: 0, id, price, qty });
    let command = prop_oneof![5 => new, 2 => cancel, 2 => modify];
    prop::collection::vec((command, 0u64..5, prop::bool::weighted(0.02)), 1..400)
}

fn at_seq(command: Command, n: u64, now: u64) -> Command {
    match command {
        Command::New { id, side, price, qty, time_in_force, .. } => {
            let time_in_force = match time_in_force {
                // Some of them come too late.
                TimeInForce::GoodTill(Timestamp(after)) => TimeInForce::GoodTill(Timestamp(now + after - 7)),
                other => other,
            };
            Command::New { seq: n, id, side, price, qty, time_in_force }
        }
        Command::Cancel { id, .. } => Command::Cancel { seq: n, id },
        Command::Modify { id, price, qty, .. } => Command::Modify { seq: n, id, price, qty },
    }
}

fn same_orders(book: &OrderBook, oracle: &Oracle) {
    for side in Side::BOTH {
        let ours = book
            .orders(side)
            .map(|order| (order.id, order.price, order.qty, order.terms.map(|terms| (terms.good_till, terms.seq))));
        let theirs = oracle
            .side(side)
            .into_iter()
            .map(|order| (order.id, order.price, order.qty, order.good_till.map(|good_till| (good_till, order.seq))));
        assert_eq!(ours.collect::<Vec<_>>(), theirs.collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_book_answers_as_the_oracle(steps in steps(), orders_max in prop_oneof![4 => Just(1000u32), 1 => 1u32..20],
        trades_per_order_max in prop_oneof![4 => Just(1000u32), 1 => 1u32..4])
    {
        let config = BookConfig { orders_max, trades_per_order_max, orders_reserved: 4, ..BookConfig::default() };
        let (mut harness, mut oracle) = (Harness::new(&config), Oracle::new(&config));
        let (mut now, mut kinds) = (0, [0; 8]);
        for (n, (command, passed, restart)) in steps.into_iter().enumerate() {
            now += passed;
            if restart {
                harness.restart();
            }
            let armed: Vec<u64> = harness.armed.iter().map(|&(_, id)| id).collect();
            let expired = oracle.expire(Timestamp(now), &armed);
            prop_assert_eq!(harness.expire(Timestamp(now)), expired);
            let command = at_seq(command, n as u64, now);
            let reports = harness.apply(&command, Timestamp(now));
            prop_assert_eq!(&reports, &oracle.apply(&command, Timestamp(now)), "{:?}", command);
            reports.iter().for_each(|report| kinds[usize::from(report.kind())] += 1);
            prop_assert_eq!(harness.book.check(), Ok(()));
        }
        same_orders(&harness.book, &oracle);
        // A timer is armed for exactly the orders that need one.
        let mut armed: Vec<_> = harness.armed.iter().map(|&(at, id)| (id, at)).collect();
        let mut wanted: Vec<_> = oracle.orders.iter().filter_map(|order| Some((order.id, order.good_till?))).collect();
        armed.sort();
        wanted.sort();
        prop_assert_eq!(armed, wanted);
    }

    #[test]
    fn equal_books_are_equal_bytes_however_they_came_about(steps in steps()) {
        let config = BookConfig { orders_reserved: 4, ..BookConfig::default() };
        let mut harness = Harness::new(&config);
        for (n, (command, ..)) in steps.into_iter().enumerate() {
            harness.apply(&at_seq(command, n as u64, 7), Timestamp(0));
        }
        let snapshot = harness.book.snapshot();
        // The same orders, entered one by one in another order of sides, prices and names.
        let mut other = Harness::new(&BookConfig { hash_key: 99, ..config });
        for (side, orders) in [(Side::Sell, &snapshot.asks), (Side::Buy, &snapshot.bids)] {
            let mut orders = orders.clone();
            orders.sort_by_key(|order| order.price.wrapping_mul(0x5851_f42d_4c95_7f2d));
            for order in orders {
                let seq = order.terms.map_or(0, |terms| terms.seq);
                let time_in_force =
                    order.terms.map_or(TimeInForce::GoodTillCancel, |terms| TimeInForce::GoodTill(terms.good_till));
                let (id, price, qty) = (order.id, order.price, order.qty);
                other.apply(&Command::New { seq, id, side, price, qty, time_in_force }, Timestamp(0));
            }
        }
        let mut rebuilt = other.book.snapshot();
        rebuilt.shares = snapshot.shares;
        prop_assert_eq!(rebuilt.to_bytes(), snapshot.to_bytes());
    }
}
