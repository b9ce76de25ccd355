//! Fuzzes the appliance: one virtual box after the other, each on a seed of its own, until one shows something wrong.

#![forbid(unsafe_code)]

mod args;
mod report;
mod timeline;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use ticktape_sim::services;
use ticktape_sim::shrink::shrink;
use ticktape_sim::simulate::{Failure, Report};

use args::Args;
use report::Fuzzed;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static HEAP: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Between two lines that tell how far it is.
const PROGRESS: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let args = Args::parse();
    // Panics are caught, and told with their seed: one that prints itself, too, would print each time it is shrunk.
    if args.seed.is_none() || args.trace.is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let ended = if let (Some(seed), Some(to)) = (args.seed, &args.trace) {
        timeline::follow(&args, seed, to)
    } else {
        Ok(fuzz(&args))
    };
    ended.unwrap_or_else(|error| {
        eprintln!("vopr: {error}");
        ExitCode::from(report::USAGE)
    })
}

fn fuzz(args: &Args) -> ExitCode {
    let services = args.services();
    let mut fuzzed = Fuzzed::begin(args);
    let mut said = fuzzed.begun;
    while !fuzzed.is_over(args) {
        let service = services[(fuzzed.batch.runs % services.len() as u64) as usize];
        let config = args.config(fuzzed.next_seed(args));
        let result = services::run(service, &config);
        match result {
            Err(failure) => return fail(args, fuzzed, service, failure),
            Ok(report) => pass(args, &mut fuzzed, service, report),
        }
        if said.elapsed() >= PROGRESS {
            said = Instant::now();
            fuzzed.progress(args);
        }
    }
    fuzzed.conclude(args)
}

fn pass(args: &Args, fuzzed: &mut Fuzzed, service: &str, report: Report) {
    if args.seed.is_some() {
        eprintln!("{service}, {}: nothing wrong, trace hash {:016x}", args.config(fuzzed.from), report.trace_hash);
    }
    fuzzed.batch.add(Ok(report));
}

fn fail(args: &Args, mut fuzzed: Fuzzed, service: &'static str, failure: Failure) -> ExitCode {
    eprintln!("{service}, {}: FAILED at step {}; shrinking", failure.config, failure.step);
    let (failure, runs) = shrink(failure, |config| services::run(service, config));
    fuzzed.batch.add(Err(failure));
    fuzzed.failed = Some((service, runs));
    fuzzed.conclude(args)
}
