//! A book as simple as can be: one list of orders in the order they came; every question is a scan.

use orderbook::{BookConfig, Command, RejectReason, Report, Side, TimeInForce};
use ticktape::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Order {
    pub id: u64,
    pub side: Side,
    pub price: i64,
    pub qty: u32,
    pub good_till: Option<Timestamp>,
    pub seq: u64,
}

pub struct Oracle {
    pub orders: Vec<Order>,
    config: BookConfig,
}

impl Oracle {
    pub fn new(config: &BookConfig) -> Self {
        Oracle { orders: Vec::new(), config: config.clone() }
    }

    /// The best resting order that `taker` crosses, the first of those equally good.
    fn maker(&self, taker: &Order) -> Option<usize> {
        let crosses = |maker: &Order| match taker.side {
            Side::Buy => maker.side == Side::Sell && maker.price <= taker.price,
            Side::Sell => maker.side == Side::Buy && maker.price >= taker.price,
        };
        let makers = self.orders.iter().enumerate().filter(|(_, maker)| crosses(maker));
        // Both keep the first of equals.
        match taker.side {
            Side::Buy => makers.min_by_key(|(_, maker)| maker.price),
            Side::Sell => makers.rev().max_by_key(|(_, maker)| maker.price),
        }
        .map(|(at, _)| at)
    }

    fn trade_and_rest(&mut self, mut taker: Order, ioc: bool, reports: &mut Vec<Report>) {
        let Order { seq, id, side, price, .. } = taker;
        for _ in 0..self.config.trades_per_order_max {
            let Some(at) = self.maker(&taker).filter(|_| taker.qty > 0) else { break };
            let maker = &mut self.orders[at];
            let qty = taker.qty.min(maker.qty);
            reports.push(Report::Trade { seq, price: maker.price, qty, maker: maker.id, taker: id });
            taker.qty -= qty;
            maker.qty -= qty;
            if maker.qty == 0 {
                self.orders.remove(at);
            }
        }
        if taker.qty > 0 {
            if ioc || self.maker(&taker).is_some() {
                reports.push(Report::Canceled { seq, side, id, price });
            } else {
                self.orders.push(taker);
            }
        }
    }

    fn find(&self, id: u64) -> Option<usize> {
        self.orders.iter().position(|order| order.id == id)
    }

    /// Fires what is due, earliest first, first armed first.
    pub fn expire(&mut self, now: Timestamp, armed: &[u64]) -> Vec<Report> {
        let rank = |id: u64| armed.iter().position(|&other| other == id);
        let mut due: Vec<Order> =
            self.orders.iter().copied().filter(|order| order.good_till.is_some_and(|at| at <= now)).collect();
        due.sort_by_key(|order| (order.good_till, rank(order.id)));
        self.orders.retain(|order| !due.contains(order));
        due.iter().map(|&Order { seq, side, id, price, .. }| Report::Expired { seq, side, id, price }).collect()
    }

    pub fn apply(&mut self, command: &Command, now: Timestamp) -> Vec<Report> {
        let mut reports = Vec::new();
        match *command {
            Command::New { seq, id, side, price, qty, time_in_force } => {
                let reason = match () {
                    () if qty == 0 => Some(RejectReason::ZeroQuantity),
                    () if self.find(id).is_some() => Some(RejectReason::LiveId),
                    () if self.orders.len() >= self.config.orders_max as usize => Some(RejectReason::BookFull),
                    () => None,
                };
                if let Some(reason) = reason {
                    return vec![Report::NewRejected { seq, id, reason }];
                }
                reports.push(Report::New { seq, side, id, price, qty });
                let good_till = match time_in_force {
                    TimeInForce::GoodTill(at) => Some(at),
                    _ => None,
                };
                if good_till.is_some_and(|at| at <= now) {
                    reports.push(Report::Expired { seq, side, id, price });
                    return reports;
                }
                let order = Order { id, side, price, qty, good_till, seq };
                self.trade_and_rest(order, time_in_force == TimeInForce::ImmediateOrCancel, &mut reports);
            }
            Command::Cancel { seq, id } => match self.find(id) {
                Some(at) => {
                    let Order { side, price, .. } = self.orders.remove(at);
                    reports.push(Report::Canceled { seq, side, id, price });
                }
                None => reports.push(Report::CancelRejected { seq, id }),
            },
            Command::Modify { seq, id, price, qty } => match self.find(id).filter(|_| qty > 0) {
                Some(at) => {
                    let order = Order { seq, price, qty, ..self.orders.remove(at) };
                    reports.push(Report::Modified { seq, side: order.side, id, price, qty });
                    self.trade_and_rest(order, false, &mut reports);
                }
                None => reports.push(Report::ModifyRejected { seq, id }),
            },
        }
        reports
    }

    /// One side's orders as they would trade.
    pub fn side(&self, side: Side) -> Vec<Order> {
        let mut orders: Vec<Order> = self.orders.iter().copied().filter(|order| order.side == side).collect();
        match side {
            Side::Buy => orders.sort_by_key(|order| std::cmp::Reverse(order.price)),
            Side::Sell => orders.sort_by_key(|order| order.price),
        }
        orders
    }
}
