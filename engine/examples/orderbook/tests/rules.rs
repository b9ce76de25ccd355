//! The book's rules, one by one.

use orderbook::{BookConfig, Command, Driver, OrderBook, RejectReason, Report, ReportStream, Side, TimeInForce, flow};
use ticktape::{Ctx, Effects, Invariants, Outgoing, Seq, Service, SessionId, Target, TimerId, TimerOp, Timestamp};

const BUY: Side = Side::Buy;
const SELL: Side = Side::Sell;

/// A book, and the lines of each answer.
struct Desk {
    driver: Driver,
    seq: u64,
}

impl Desk {
    fn new() -> Self {
        Desk::with(BookConfig::default())
    }

    fn with(config: BookConfig) -> Self {
        Desk { driver: Driver::new(OrderBook::genesis(&config)), seq: 0 }
    }

    fn apply(&mut self, command: &Command) -> Vec<String> {
        let mut lines = Vec::new();
        self.driver.apply(command, |report| lines.push(report.to_string()));
        self.driver.book().check().unwrap();
        lines
    }

    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    fn new_order(&mut self, side: Side, id: u64, qty: u32, price: i64, time_in_force: TimeInForce) -> Vec<String> {
        let seq = self.next_seq();
        self.apply(&Command::New { seq, id, side, price, qty, time_in_force })
    }

    fn limit(&mut self, side: Side, id: u64, qty: u32, price: i64) -> Vec<String> {
        self.new_order(side, id, qty, price, TimeInForce::GoodTillCancel)
    }

    fn cancel(&mut self, id: u64) -> Vec<String> {
        let seq = self.next_seq();
        self.apply(&Command::Cancel { seq, id })
    }

    fn modify(&mut self, id: u64, qty: u32, price: i64) -> Vec<String> {
        let seq = self.next_seq();
        self.apply(&Command::Modify { seq, id, price, qty })
    }

    fn book(&self) -> &OrderBook {
        self.driver.book()
    }
}

#[test]
fn the_best_price_trades_first_then_the_oldest_order_at_the_makers_price() {
    let mut desk = Desk::new();
    desk.limit(SELL, 1, 10, 102);
    desk.limit(SELL, 2, 10, 101);
    desk.limit(SELL, 3, 10, 101);
    assert_eq!(desk.limit(BUY, 4, 25, 102), ["0,4,0,4,102,25", "1,4,101,10,2,4", "1,4,101,10,3,4", "1,4,102,5,1,4"]);
    assert_eq!(desk.book().to_string(), "BID - | ASK 5@102");
    assert_eq!(desk.limit(SELL, 5, 7, 103), ["0,5,1,5,103,7"]);
    assert_eq!(desk.limit(BUY, 6, 9, 99), ["0,6,0,6,99,9"]);
    assert_eq!(desk.book().to_string(), "BID 9@99 | ASK 5@102\nBID - | ASK 7@103");
}

#[test]
fn what_an_immediate_order_cannot_trade_is_canceled() {
    let mut desk = Desk::new();
    desk.limit(BUY, 1, 10, 100);
    let ioc = TimeInForce::ImmediateOrCancel;
    assert_eq!(desk.new_order(SELL, 2, 15, 100, ioc), ["0,2,1,2,100,15", "1,2,100,10,1,2", "2,2,1,2,100"]);
    assert_eq!(desk.new_order(SELL, 3, 5, 100, ioc), ["0,3,1,3,100,5", "2,3,1,3,100"]);
    desk.limit(BUY, 4, 5, 100);
    assert_eq!(desk.new_order(SELL, 5, 5, 90, ioc), ["0,5,1,5,90,5", "1,5,100,5,4,5"]);
    assert_eq!((desk.book().orders_live(), desk.book().shares().canceled), (0, 10));
}

#[test]
fn a_modified_order_loses_its_place_and_trades_where_it_crosses() {
    let mut desk = Desk::new();
    desk.limit(BUY, 1, 10, 100);
    desk.limit(BUY, 2, 10, 100);
    assert_eq!(desk.modify(1, 10, 100), ["3,3,0,1,100,10"]);
    assert_eq!(desk.limit(SELL, 3, 5, 100), ["0,4,1,3,100,5", "1,4,100,5,2,3"]);
    desk.limit(SELL, 4, 8, 105);
    assert_eq!(desk.modify(1, 20, 105), ["3,6,0,1,105,20", "1,6,105,8,4,1"]);
    assert_eq!(desk.book().best(BUY), Some((105, 12)));
    // Filled by its own modify: its name is free again.
    desk.limit(SELL, 5, 30, 106);
    assert_eq!(desk.modify(1, 30, 106), ["3,8,0,1,106,30", "1,8,106,30,5,1"]);
    assert!(!desk.book().is_live(1));
}

#[test]
fn bad_orders_are_answered_and_change_nothing() {
    let mut desk = Desk::new();
    desk.limit(BUY, 1, 10, 100);
    let before = desk.book().snapshot();
    assert_eq!(desk.limit(BUY, 2, 0, 100), ["6,2,2,1"]);
    assert_eq!(desk.limit(SELL, 1, 10, 90), ["6,3,1,2"]);
    assert_eq!(desk.cancel(3), ["4,4,3"]);
    assert_eq!(desk.modify(3, 1, 100), ["5,5,3"]);
    assert_eq!(desk.modify(1, 0, 100), ["5,6,1"]);
    assert_eq!(desk.book().snapshot(), before);
}

#[test]
fn a_full_book_refuses_new_orders_until_one_leaves() {
    let mut desk = Desk::with(BookConfig { orders_max: 2, ..BookConfig::default() });
    desk.limit(BUY, 1, 1, 100);
    desk.limit(BUY, 2, 1, 100);
    assert_eq!(desk.limit(BUY, 3, 1, 100), ["6,3,3,3"]);
    desk.cancel(1);
    assert_eq!(desk.limit(BUY, 3, 1, 100), ["0,5,0,3,100,1"]);
}

#[test]
fn a_sweep_stops_at_its_limit_and_the_rest_is_canceled_rather_than_left_crossing() {
    let mut desk = Desk::with(BookConfig { trades_per_order_max: 2, ..BookConfig::default() });
    (1..5).for_each(|id| drop(desk.limit(SELL, id, 1, 100)));
    assert_eq!(desk.limit(BUY, 9, 9, 100), ["0,5,0,9,100,9", "1,5,100,1,1,9", "1,5,100,1,2,9", "2,5,0,9,100"]);
    desk.limit(BUY, 10, 9, 99);
    assert_eq!(desk.modify(10, 2, 100), ["3,7,0,10,100,2", "1,7,100,1,3,10", "1,7,100,1,4,10"]);
    assert_eq!(desk.book().orders_live(), 0);
}

#[test]
fn extreme_prices_names_and_sizes() {
    let mut desk = Desk::new();
    let (low, high, last) = (i64::MIN, i64::MAX, u64::MAX);
    desk.limit(BUY, 0, u32::MAX, low);
    desk.limit(SELL, last, u32::MAX, high);
    assert_eq!(desk.book().to_string(), format!("BID {0}@{low} | ASK {0}@{high}", u32::MAX));
    // More shares on a level than 32 bits count.
    (1..4).for_each(|id| drop(desk.limit(SELL, id << 62 | id, u32::MAX, high)));
    assert_eq!(desk.book().best(SELL), Some((high, 4 * u64::from(u32::MAX))));
    let report = format!("1,6,{high},1,{last},7");
    assert_eq!(desk.limit(BUY, 7, 1, high)[1], report);
    assert_eq!(desk.limit(SELL, 8, 1, low)[1], format!("1,7,{low},1,0,8"));
    assert_eq!(desk.limit(SELL, 9, 1, low + 1), [format!("0,8,1,9,{},1", low + 1)]);
    assert_eq!(desk.cancel(last), [format!("2,9,1,{last},{high}")]);
}

/// One step with a clock and, where there is one, a session.
fn step(
    book: &mut OrderBook,
    (now, session): (u64, Option<u64>),
    step: impl FnOnce(&mut OrderBook, &mut Ctx<'_, Report>),
) -> (Vec<Outgoing<Report>>, Vec<TimerOp>) {
    let mut effects = Effects::with_capacity(0);
    step(book, &mut Ctx::new(Seq(1), Timestamp(now), session.map(SessionId), &mut effects));
    book.check().unwrap();
    (effects.outputs, effects.timers)
}

fn good_till(seq: u64, id: u64, qty: u32, at: u64) -> Command {
    let time_in_force = TimeInForce::GoodTill(Timestamp(at));
    Command::New { seq, id, side: BUY, price: 100, qty, time_in_force }
}

fn apply(command: Command) -> impl FnOnce(&mut OrderBook, &mut Ctx<'_, Report>) {
    move |book, ctx| book.apply(Seq(1), &command, ctx)
}

#[test]
fn an_expired_order_is_told_to_whoever_placed_it() {
    let mut book = OrderBook::genesis(&BookConfig::default());
    let (_, timers) = step(&mut book, (10, Some(77)), apply(good_till(5, 1, 9, 50)));
    assert_eq!(timers, [TimerOp::Set(TimerId(1), Timestamp(50))]);
    let (outputs, _) = step(&mut book, (50, None), |book, ctx| book.on_timer(TimerId(1), ctx));
    let output = Report::Expired { seq: 5, side: BUY, id: 1, price: 100 };
    assert_eq!(outputs, [Outgoing { target: Target::Session(SessionId(77)), output }]);
    assert_eq!((book.orders_live(), book.shares().expired), (0, 9));
}

#[test]
fn a_timer_that_lost_its_race_with_a_cancel_finds_nothing() {
    let mut book = OrderBook::genesis(&BookConfig::default());
    step(&mut book, (10, None), apply(good_till(1, 1, 9, 50)));
    let (_, timers) = step(&mut book, (20, None), apply(Command::Cancel { seq: 2, id: 1 }));
    assert_eq!(timers, [TimerOp::Cancel(TimerId(1))]);
    let (outputs, _) = step(&mut book, (50, None), |book, ctx| book.on_timer(TimerId(1), ctx));
    assert_eq!(outputs, []);
    // Nor does it take an order of the same name that may rest for ever.
    let forever =
        Command::New { seq: 3, id: 1, side: BUY, price: 100, qty: 1, time_in_force: TimeInForce::GoodTillCancel };
    step(&mut book, (20, None), apply(forever));
    let (outputs, _) = step(&mut book, (50, None), |book, ctx| book.on_timer(TimerId(1), ctx));
    assert_eq!((outputs.len(), book.is_live(1)), (0, true));
}

#[test]
fn a_timer_goes_with_its_order_when_that_trades() {
    let mut book = OrderBook::genesis(&BookConfig::default());
    step(&mut book, (10, None), apply(good_till(1, 1, 9, 50)));
    let sell = |seq, qty| Command::New {
        seq,
        id: seq,
        side: SELL,
        price: 100,
        qty,
        time_in_force: TimeInForce::GoodTillCancel,
    };
    assert_eq!(step(&mut book, (10, None), apply(sell(2, 4))).1, []);
    assert_eq!(step(&mut book, (10, None), apply(sell(3, 5))).1, [TimerOp::Cancel(TimerId(1))]);
    // As a taker: filled at once, no timer is ever set.
    step(&mut book, (10, None), apply(sell(4, 9)));
    assert_eq!(step(&mut book, (10, None), apply(good_till(5, 5, 9, 50))).1, []);
}

#[test]
fn a_modified_order_keeps_its_time() {
    let mut book = OrderBook::genesis(&BookConfig::default());
    step(&mut book, (10, None), apply(good_till(1, 1, 9, 50)));
    let (_, timers) = step(&mut book, (20, None), apply(Command::Modify { seq: 2, id: 1, price: 101, qty: 3 }));
    assert_eq!(timers, []);
    let (outputs, _) = step(&mut book, (50, None), |book, ctx| book.on_timer(TimerId(1), ctx));
    assert_eq!(outputs[0].output, Report::Expired { seq: 2, side: BUY, id: 1, price: 101 });
}

#[test]
fn an_order_that_is_over_when_it_comes_does_not_trade() {
    let mut book = OrderBook::genesis(&BookConfig::default());
    let sell =
        Command::New { seq: 1, id: 1, side: SELL, price: 100, qty: 5, time_in_force: TimeInForce::GoodTillCancel };
    step(&mut book, (10, None), apply(sell));
    let (outputs, timers) = step(&mut book, (50, None), apply(good_till(2, 2, 9, 50)));
    let lines: Vec<String> = outputs.iter().map(|outgoing| outgoing.output.to_string()).collect();
    assert_eq!((lines, timers), (vec!["0,2,0,2,100,9".into(), "7,2,0,2,100".into()], vec![]));
    assert_eq!(book.orders_live(), 1);
}

#[test]
fn memory_follows_the_live_orders() {
    let config = BookConfig { orders_reserved: 64, ..BookConfig::default() };
    let mut book = OrderBook::genesis(&config);
    let empty = book.memory_bytes();
    let mut driver = Driver::new(book);
    let orders = 200_000u64;
    let id = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for n in 0..orders {
        // A third each: few prices, many, and good till a time.
        let price = if n % 3 == 0 { 100 } else { n as i64 * 1_000_003 };
        let time_in_force = if n % 3 == 1 { TimeInForce::GoodTill(Timestamp(1)) } else { TimeInForce::GoodTillCancel };
        driver.apply(&Command::New { seq: n, id: id(n), side: SELL, price, qty: 1, time_in_force }, |_| ());
    }
    let full = driver.book().memory_bytes();
    assert!(full > orders as usize * 40, "{full} bytes");
    for n in 0..orders - 10 {
        driver.apply(&Command::Cancel { seq: orders + n, id: id(n) }, |_| ());
    }
    book = driver.into_book();
    book.check().unwrap();
    assert_eq!(book.orders_live(), 10);
    assert!(book.memory_bytes() < empty + 64 * 1024, "{} bytes of 10 orders, {empty} of none", book.memory_bytes());
    // What is left is still in order of time and price.
    let left: Vec<u64> = book.orders(SELL).map(|order| order.id).collect();
    let mut wanted: Vec<u64> = (orders - 10..orders).collect();
    wanted.sort_by_key(|n| (if n % 3 == 0 { 100 } else { *n as i64 * 1_000_003 }, *n));
    assert_eq!(left, wanted.into_iter().map(id).collect::<Vec<_>>());
}

#[test]
fn made_up_flow_trades_and_keeps_every_promise() {
    let commands = flow::generate(1, 30_000);
    let mut driver = Driver::new(OrderBook::genesis(&BookConfig { orders_reserved: 16, ..BookConfig::default() }));
    let (mut stream, mut kinds) = (ReportStream::new(), [0; 8]);
    for (n, command) in commands.iter().enumerate() {
        driver.apply(command, |report| {
            kinds[usize::from(report.kind())] += 1;
            stream.push(*report);
        });
        if n % 100 == 0 {
            driver.book().check().unwrap();
        }
    }
    driver.book().check().unwrap();
    assert!(kinds[..6].iter().all(|&count| count > 100), "{kinds:?}");
    assert_eq!(kinds[6..], [0, 0]);
}

#[test]
#[should_panic(expected = "twice or empty")]
fn a_snapshot_that_no_book_made_is_refused() {
    let mut desk = Desk::new();
    desk.limit(BUY, 1, 10, 100);
    let mut snapshot = desk.book().snapshot();
    snapshot.asks = snapshot.bids.clone();
    OrderBook::restore(snapshot, &BookConfig::default());
}

#[test]
fn reasons_have_the_published_numbers() {
    let reasons = [RejectReason::ZeroQuantity, RejectReason::LiveId, RejectReason::BookFull];
    assert_eq!(reasons.map(|reason| reason as u8), [1, 2, 3]);
}
