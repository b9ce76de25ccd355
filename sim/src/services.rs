//! Services that come with the simulator, and what their clients ask for.

use feed::{Bank, BankConfig};
use kv::Kv;
use orderbook::{BookConfig, OrderBook, Side, TimeInForce};
use ticktape::Timestamp;

use crate::clock::REALTIME_AT_START;
use crate::rng::Rng;
use crate::simulate::{Failure, Report, SimConfig, simulate, simulate_told};
use crate::trace::Event;

/// Their names.
pub const NAMES: [&str; 3] = ["bank", "kv", "orderbook"];

/// Runs one world with the service of this name.
///
/// # Errors
/// As [`simulate`].
///
/// # Panics
/// When the name is none of [`NAMES`].
pub fn run(name: &str, config: &SimConfig) -> Result<Report, Failure> {
    match name {
        "bank" => simulate::<Bank>(config, &BankConfig::default(), gen_transfer),
        "kv" => simulate::<Kv>(config, &(), gen_kv),
        "orderbook" => simulate::<OrderBook>(config, &book_config(), gen_order),
        other => panic!("{other:?} is no service: one of {NAMES:?}"),
    }
}

/// As [`run`], telling each event.
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// As [`run`].
pub fn run_told(name: &str, config: &SimConfig, tell: impl FnMut(&Event) + Send + 'static) -> Result<Report, Failure> {
    match name {
        "bank" => simulate_told::<Bank>(config, &BankConfig::default(), gen_transfer, tell),
        "kv" => simulate_told::<Kv>(config, &(), gen_kv, tell),
        "orderbook" => simulate_told::<OrderBook>(config, &book_config(), gen_order, tell),
        other => panic!("{other:?} is no service: one of {NAMES:?}"),
    }
}

/// A transfer, most of them possible.
pub fn gen_transfer(rng: &mut Rng) -> feed::Command {
    feed::Command::Transfer { from: rng.below(9) as u8, to: rng.below(9) as u8, amount: rng.scaled(2000) as u32 }
}

/// A command about one of a few keys.
pub fn gen_kv(rng: &mut Rng) -> kv::Command {
    let key = format!("key-{}", rng.below(16));
    match rng.below(4) {
        0 => kv::Command::Del { key },
        1 => kv::Command::Get { key },
        _ => kv::Command::Put { key, value: "v".repeat(rng.scaled(200) as usize) },
    }
}

/// A book whose answers fit the small datagrams and rings of a simulated box.
pub fn book_config() -> BookConfig {
    BookConfig { orders_max: 64, trades_per_order_max: 16, orders_reserved: 64, ..BookConfig::default() }
}

/// An order near the others, some of which expire.
pub fn gen_order(rng: &mut Rng) -> orderbook::Command {
    let (seq, id) = (rng.below(1 << 20), rng.below(64));
    let price = 1000 + rng.below(16) as i64;
    let qty = rng.scaled(100) as u32;
    match rng.below(8) {
        0 => orderbook::Command::Cancel { seq, id },
        1 => orderbook::Command::Modify { seq, id, price, qty },
        _ => {
            let time_in_force = match rng.below(6) {
                0 => TimeInForce::ImmediateOrCancel,
                1 => TimeInForce::GoodTill(Timestamp(REALTIME_AT_START.0 + rng.scaled(5_000_000_000))),
                _ => TimeInForce::GoodTillCancel,
            };
            orderbook::Command::New { seq, id, side: *rng.pick(&Side::BOTH), price, qty, time_in_force }
        }
    }
}
