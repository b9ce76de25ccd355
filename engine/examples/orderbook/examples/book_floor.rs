//! How fast the book alone is, in one thread: `cargo run --release -p orderbook --example book_floor -- [FILE] [ROUNDS]`.
//!
//! Prints messages per second of each round and their median, then the digest of the report stream. Without a file, made-up flow.

use std::process::ExitCode;
use std::time::Instant;

use orderbook::{BookConfig, Command, Driver, OrderBook, ReportHasher, flow};
use ticktape::Service;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next();
    let rounds = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(5).max(1);
    let commands = match file.map(flow::load) {
        None => flow::generate(23, 2_000_000),
        Some(Ok(commands)) => commands,
        Some(Err(error)) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let mut rates: Vec<f64> = (0..rounds).map(|_| round(&commands)).collect();
    rates.sort_by(f64::total_cmp);
    println!("median {:.2} M messages/s over {} messages", rates[rates.len() / 2], commands.len());
    digest(&commands);
    ExitCode::SUCCESS
}

fn driver() -> Driver {
    Driver::new(OrderBook::genesis(&BookConfig::default()))
}

/// Returns millions of messages per second.
fn round(commands: &[Command]) -> f64 {
    let mut driver = driver();
    let start = Instant::now();
    let reports = driver.count_reports(commands);
    let rate = commands.len() as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("{rate:.2} M messages/s, {reports} reports");
    rate
}

fn digest(commands: &[Command]) {
    let (mut driver, mut hasher) = (driver(), ReportHasher::new());
    let start = Instant::now();
    for command in commands {
        driver.apply(command, |report| hasher.push(report).expect("records come in order"));
    }
    let digest = hasher.finish();
    println!("{} reports, sha256 {}, hashed in {:?}", digest.reports, digest.sha256, start.elapsed());
    let book = driver.book();
    println!("{} orders live, {} bytes\n{book}", book.orders_live(), book.memory_bytes());
}
