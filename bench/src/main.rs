//! `ticktape-bench SUITE`: prints a suite's tables, against the budgets.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use ticktape_bench::args::Args;
use ticktape_bench::header::Header;
use ticktape_bench::row::Row;
use ticktape_bench::suites::ring;
use ticktape_bench::{suites, table};

#[global_allocator]
static HEAP: ticktape_alloc::CountingAllocator = ticktape_alloc::CountingAllocator;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ticktape-bench: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == ring::CHILD) {
        return ring::child(&arguments[1..]);
    }
    let args = Args::parse(arguments)?;
    let mut rows: Vec<Row> = Vec::new();
    say(&Header::take().to_string())?;
    for suite in args.suites {
        say(&format!("== {} ==", suite.name()))?;
        let outcome = suite.run(&args.options)?;
        say(&table::render(&outcome))?;
        rows.extend(outcome.rows);
    }
    say(&suites::verdict(&rows).join("\n"))?;
    if let Some(path) = args.json {
        let text = serde_json::to_string_pretty(&rows).map_err(|error| error.to_string())?;
        std::fs::write(&path, text + "\n").map_err(|error| format!("--json {}: {error}", path.display()))?;
    }
    Ok(())
}

/// Prints to the standard output. Who reads it may leave early, which ends the run.
fn say(text: &str) -> Result<(), String> {
    writeln!(std::io::stdout(), "{text}").map_err(|error| format!("standard output: {error}"))
}
