//! The simulator, on one core: how many seeds a second, and what a virtual second costs.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use orderbook::{Command, OrderBook, Side, TimeInForce};
use ticktape::Timestamp;
use ticktape_sim::SimConfig;
use ticktape_sim::calm::{Calm, CalmReport, calm};
use ticktape_sim::clock::REALTIME_AT_START;
use ticktape_sim::services::{self, NAMES, book_config};

use super::Outcome;
use crate::args::Options;
use crate::rounds::{Contestant, interleave};
use crate::row::{Budget, Row};

const SUITE: &str = "sim";
/// Runs of each service in a round: the same seeds in every round, since one seed costs ten times another.
const SEEDS: u64 = 40;
const FIRST_SEED: u64 = 1;
/// What the default run of one host has to reach.
const SEEDS_PER_S: f64 = 300.0;
/// What a calm one has to reach.
const FASTER_THAN_REAL: f64 = 100_000.0;
/// Virtual time of a calm run, in seconds, at this many inputs a second.
const CALM_S: u64 = 10;
const INPUTS_PER_S: u64 = 1000;
/// One input in so many is an order that nobody takes: its timer fires.
const TIMER_EVERY: u64 = 100;
/// An order with a timer stands so long, in nanoseconds: until half way between two inputs.
const STANDS_NS: u64 = 50_500_000;

/// Where a calm run's time goes.
const WHY: &str = "100 000 times real time at 1000 inputs a second leaves 10 ns an input: sealing its frame takes 5 of them (suite core), and the \
     stages alone, in one thread, some 400 (suite e2e)";

/// What this thread has computed so far: others' turns on the core don't count.
fn cpu_time() -> Duration {
    Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every thread has this clock"))
}

/// What `work` returns, and the processor's time that it took, in seconds.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = cpu_time();
    let result = work();
    (result, (cpu_time() - start).as_secs_f64())
}

/// Seeds a second of the default run with so many replicas.
fn seeds(service: &'static str, replicas: usize) -> Contestant<'static, f64> {
    Box::new(move || {
        let ((), seconds) = timed(|| {
            for seed in FIRST_SEED..FIRST_SEED + SEEDS {
                let config = SimConfig { replicas, ..SimConfig::new(seed) };
                services::run(service, &config).unwrap_or_else(|failure| panic!("{service}: {failure}"));
            }
        });
        SEEDS as f64 / seconds
    })
}

/// A calm run in bursts of this many; with its processor time in seconds.
fn calm_run(burst: u64) -> (CalmReport, f64) {
    let inputs = CALM_S * INPUTS_PER_S;
    let pace = Calm { seed: 1, inputs, burst, every_ns: burst * 1_000_000_000 / INPUTS_PER_S };
    let mut count = 0;
    let gen_input = |_: &mut _, now: u64| {
        count += 1;
        let good_till = Timestamp(REALTIME_AT_START.0 + now + STANDS_NS);
        let (side, price, time_in_force) = match count % TIMER_EVERY {
            1 => (Side::Buy, 900, TimeInForce::GoodTill(good_till)),
            odd if odd % 2 == 1 => (Side::Buy, 1000, TimeInForce::GoodTillCancel),
            _ => (Side::Sell, 1000, TimeInForce::ImmediateOrCancel),
        };
        Command::New { seq: count, id: count, side, price, qty: 1, time_in_force }
    };
    let (result, seconds) = timed(|| calm::<OrderBook>(&pace, &book_config(), gen_input));
    let report = result.unwrap_or_else(|(check, what)| panic!("it does not hold that {check}: {what}"));
    (report, seconds)
}

pub fn run(options: &Options) -> Outcome {
    let kinds: Vec<(&'static str, usize)> =
        [0, 1].into_iter().flat_map(|hosts| NAMES.map(|name| (name, hosts))).collect();
    let mut contestants: Vec<Contestant<'_, f64>> =
        kinds.iter().map(|&(name, replicas)| seeds(name, replicas)).collect();
    let paces = [("evenly", 1), ("in bursts of 50", 50)];
    for (_, burst) in paces {
        contestants.push(Box::new(move || calm_run(burst).1));
    }
    let results = interleave(options.rounds, &mut contestants);
    drop(contestants);

    let seeds_row = |(&(service, replicas), rates): (&(&str, usize), &Vec<f64>)| {
        let with = if replicas == 0 { "" } else { ", with a replica" };
        let row = format!("seeds of the default run, one core: {service}{with}");
        let row = Row::higher(SUITE, row, "1/s", rates.iter().copied().collect());
        if replicas > 0 {
            return row;
        }
        row.budget(Budget::Value(SEEDS_PER_S)).spends(
            "stages, checks after every step, and what each start, crash and recovery replays: perf record -g target/release/vopr --runs 100",
        )
    };
    let mut rows: Vec<Row> = kinds.iter().zip(&results).map(seeds_row).collect();
    let mut notes = vec![format!(
        "times are the thread's own on its core, whatever else runs there; memory is from {}, that of vopr from mimalloc: cargo run --release -p \
         ticktape-bench --features mimalloc -- sim",
        ticktape_alloc::HEAP
    )];
    for ((how, burst), seconds) in paces.into_iter().zip(&results[kinds.len()..]) {
        let (report, _) = calm_run(burst);
        let (virtual_s, inputs) = (report.virtual_ns as f64 / 1e9, (CALM_S * INPUTS_PER_S) as f64);
        let what = format!("1000 inputs and 10 timers a virtual second, {how}");
        let factor = seconds.iter().map(|seconds| virtual_s / seconds).collect();
        let row = Row::higher(SUITE, format!("{what}: faster than real time"), "x", factor);
        rows.push(row.budget(Budget::Value(FASTER_THAN_REAL)).spends(WHY));
        let each = seconds.iter().map(|seconds| seconds * 1e9 / inputs).collect();
        rows.push(Row::lower(SUITE, format!("{what}: an input, checks and all"), "ns", each));
        notes.push(format!(
            "{how}: {virtual_s:.1} virtual seconds, {} frames, {} of them for timers, {:.1} polls an input",
            report.frames,
            report.timers,
            report.polls as f64 / inputs
        ));
    }
    notes.push(WHY.to_string());
    Outcome { rows, percentiles: Vec::new(), notes }
}
