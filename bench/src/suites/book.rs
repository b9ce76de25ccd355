//! The order book alone: commands from memory through `Service::apply`, in one thread.

use std::time::Instant;

use orderbook::{BookConfig, Command, Driver, OrderBook, flow};
use ticktape::Service;
use ticktape_alloc::{count_thread, is_counting};

use super::Outcome;
use crate::args::Options;
use crate::rounds::{Contestant, interleave};
use crate::row::{Budget, Row};

const SUITE: &str = "book";
/// Without a file: as many as the public scenario has, to the nearest million.
const MESSAGES_DEFAULT: usize = 2_000_000;
const SEED: u64 = 23;

/// Commands from the file that was named, or made up; and what they are, in words.
pub fn commands(options: &Options) -> Result<(Vec<Command>, String), String> {
    match &options.orders {
        None => Ok((flow::generate(SEED, MESSAGES_DEFAULT), format!("made-up flow, seed {SEED}"))),
        Some(path) => {
            let commands = flow::load(path).map_err(|error| error.to_string())?;
            if commands.is_empty() {
                return Err(format!("{}: no orders in it; name a file with some", path.display()));
            }
            Ok((commands, path.display().to_string()))
        }
    }
}

fn driver() -> Driver {
    Driver::new(OrderBook::genesis(&BookConfig::default()))
}

/// Millions a second of `count` in what `work` takes.
fn rate(count: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    count as f64 / start.elapsed().as_secs_f64() / 1e6
}

pub fn run(options: &Options) -> Result<Outcome, String> {
    let (commands, source) = commands(options)?;
    let mut contestants: Vec<Contestant<'_, f64>> = vec![
        Box::new(|| {
            let mut driver = driver();
            rate(commands.len(), || {
                std::hint::black_box(driver.count_reports(&commands));
            })
        }),
        // Reading every command, and nothing else.
        Box::new(|| {
            rate(commands.len(), || {
                let sum = commands.iter().fold(0_u64, |sum, command| sum.wrapping_add(command.id() ^ command.seq()));
                std::hint::black_box(sum);
            })
        }),
    ];
    let results = interleave(options.rounds, &mut contestants);
    drop(contestants);

    // The first half fills the book and takes what memory it needs; the second is steady.
    let (filling, steady) = commands.split_at(commands.len() / 2);
    let mut driver = driver();
    driver.count_reports(filling);
    let (counts, reports) = count_thread(|| driver.count_reports(steady));
    let per_message = counts.allocations as f64 / steady.len().max(1) as f64;

    let mut rows = vec![
        Row::higher(SUITE, "book: messages, one thread", "M/s", results[0].iter().copied().collect())
            .floor(results[1].iter().copied().collect())
            .budget(Budget::Value(6.0)),
    ];
    if is_counting() {
        let counted = [per_message].into_iter().collect();
        rows.push(
            Row::lower(SUITE, "book: allocations a message, steady", "count", counted).budget(Budget::Value(0.0)),
        );
    }
    let notes = vec![
        format!("{} messages: {source}; floor: reading the commands alone", commands.len()),
        format!(
            "the second half made {} allocations, {} bytes, and {reports} reports; {} orders live at the end",
            counts.allocations,
            counts.bytes,
            driver.book().orders_live()
        ),
    ];
    Ok(Outcome { rows, percentiles: Vec::new(), notes })
}
