//! `orderbook buy|sell QTY PRICE`, `cancel ID`, `modify ID QTY PRICE`, `book`, `verify`: a book that survives.

use std::fmt::Display;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use orderbook::{BookConfig, Command, OrderBook, RejectReason, Report, Side, TimeInForce};
use ticktape::{Invariants, Node, NodeConfig, NodeError, Timestamp};

const DIR: &str = "./orderbook-journal";

const USAGE: &str = "\
usage: orderbook buy|sell QTY PRICE [ioc | for SECONDS]   enter an order; it is named by its seq
       orderbook cancel ID
       orderbook modify ID QTY PRICE
       orderbook book                                     show the best prices
       orderbook verify                                   check the book and replay the journal
The journal is ./orderbook-journal";

enum Request {
    New { side: Side, qty: u32, price: i64, terms: Terms },
    Cancel { id: u64 },
    Modify { id: u64, qty: u32, price: i64 },
    Book,
    Verify,
}

enum Terms {
    GoodTillCancel,
    ImmediateOrCancel,
    ForSeconds(u64),
}

fn number<T: FromStr>(what: &str, text: &str, range: impl Display) -> Result<T, String> {
    text.parse().map_err(|_| format!("{what} is `{text}`, must be a whole number {range}"))
}

fn qty(text: &str) -> Result<u32, String> {
    number("QTY", text, "from 1 to 4294967295")
}

fn price(text: &str) -> Result<i64, String> {
    number("PRICE", text, "of ticks, of 64 bits with sign")
}

fn id(text: &str) -> Result<u64, String> {
    number("ID", text, "from 0, of 64 bits")
}

fn parse(args: &[String]) -> Result<Request, String> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [side @ ("buy" | "sell"), quantity, limit, ref terms @ ..] => {
            let side = if side == "buy" { Side::Buy } else { Side::Sell };
            let terms = match *terms {
                [] => Terms::GoodTillCancel,
                ["ioc"] => Terms::ImmediateOrCancel,
                ["for", seconds] => Terms::ForSeconds(number("SECONDS", seconds, "from 0")?),
                _ => return Err(USAGE.into()),
            };
            Ok(Request::New { side, qty: qty(quantity)?, price: price(limit)?, terms })
        }
        ["cancel", name] => Ok(Request::Cancel { id: id(name)? }),
        ["modify", name, quantity, limit] => {
            Ok(Request::Modify { id: id(name)?, qty: qty(quantity)?, price: price(limit)? })
        }
        ["book"] => Ok(Request::Book),
        ["verify"] => Ok(Request::Verify),
        _ => Err(USAGE.into()),
    }
}

fn side(side: Side) -> &'static str {
    match side {
        Side::Buy => "buy",
        Side::Sell => "sell",
    }
}

fn describe(report: &Report) -> String {
    match *report {
        Report::New { side: on, id, price, qty, .. } => format!("accepted: order {id}, {} {qty}@{price}", side(on)),
        Report::Trade { price, qty, maker, taker, .. } => format!("traded: {qty}@{price}, order {taker} with {maker}"),
        Report::Canceled { side: on, id, price, .. } => format!("canceled: order {id}, {} @{price}", side(on)),
        Report::Modified { side: on, id, price, qty, .. } => {
            format!("modified: order {id}, {} {qty}@{price}", side(on))
        }
        Report::CancelRejected { id, .. } => format!("cancel rejected: order {id} is not in the book"),
        Report::ModifyRejected { id, .. } => format!("modify rejected: order {id} is not in the book, or QTY is 0"),
        Report::NewRejected { id, reason, .. } => {
            let why = match reason {
                RejectReason::ZeroQuantity => "QTY is 0",
                RejectReason::LiveId => "an order of that name is in the book",
                RejectReason::BookFull => "the book is full",
            };
            format!("rejected: order {id}, {why}")
        }
        Report::Expired { side: on, id, price, .. } => format!("expired: order {id}, {} @{price}", side(on)),
    }
}

fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(since_epoch.as_nanos().try_into().unwrap_or(u64::MAX))
}

fn command(request: &Request, seq: u64) -> Option<Command> {
    Some(match *request {
        Request::New { side, qty, price, ref terms } => {
            let time_in_force = match *terms {
                Terms::GoodTillCancel => TimeInForce::GoodTillCancel,
                Terms::ImmediateOrCancel => TimeInForce::ImmediateOrCancel,
                Terms::ForSeconds(seconds) => {
                    TimeInForce::GoodTill(now().plus_ns(seconds.saturating_mul(1_000_000_000)))
                }
            };
            Command::New { seq, id: seq, side, price, qty, time_in_force }
        }
        Request::Cancel { id } => Command::Cancel { seq, id },
        Request::Modify { id, qty, price } => Command::Modify { seq, id, price, qty },
        Request::Book | Request::Verify => return None,
    })
}

/// Lets orders expire whose time is over, though nothing else happens: only a sequenced time makes it so.
fn expire(node: &mut Node<OrderBook>) -> Result<(), NodeError> {
    let now = now();
    let is_due = |side| {
        let mut terms = node.service().orders(side).filter_map(|order| order.terms);
        terms.any(|terms| terms.good_till <= now)
    };
    if Side::BOTH.into_iter().any(is_due) {
        let (seq, reports) = node.tick()?;
        reports.iter().for_each(|report| println!("seq {seq}: {}", describe(report)));
    }
    Ok(())
}

fn run(request: &Request) -> Result<ExitCode, NodeError> {
    let mut node = Node::<OrderBook>::open(NodeConfig::new(DIR), BookConfig::default())?;
    println!("recovered: {} orders at seq {} (replayed from {DIR})", node.service().orders_live(), node.seq());
    if let Request::Verify = request {
        return verify(&mut node);
    }
    expire(&mut node)?;
    if let Some(command) = command(request, node.seq().next().0) {
        let (seq, reports) = node.submit(command)?;
        reports.iter().for_each(|report| println!("seq {seq}: {}", describe(report)));
    }
    println!("{}", node.service());
    Ok(ExitCode::SUCCESS)
}

fn verify(node: &mut Node<OrderBook>) -> Result<ExitCode, NodeError> {
    if let Err(violation) = node.service().check() {
        println!("invariants: BROKEN, {violation}");
        return Ok(ExitCode::FAILURE);
    }
    node.verify_replay()?;
    println!("invariants: OK · replay equivalence: OK");
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let request = match parse(&args) {
        Ok(request) => request,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    match run(&request) {
        Ok(code) => code,
        Err(error @ NodeError::ReplayDiffers { .. }) => {
            eprintln!("orderbook: {error}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("orderbook: {error}");
            ExitCode::from(2)
        }
    }
}
