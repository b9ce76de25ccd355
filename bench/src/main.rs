//! `ticktape-bench SUITE`: prints a suite's tables, against the budgets.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use ticktape_bench::args::Args;
use ticktape_bench::header::Header;
use ticktape_bench::markdown::{self, Section};
use ticktape_bench::meanwhile::Begun;
use ticktape_bench::row::Row;
use ticktape_bench::suites::shm;
use ticktape_bench::{budgets, table};

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
    if arguments.first().is_some_and(|first| first == shm::CHILD) {
        return shm::child(&arguments[1..]);
    }
    let args = Args::parse(arguments.clone())?;
    let header = Header::take();
    say(&header.to_string())?;
    let mut sections = Vec::new();
    for &suite in &args.suites {
        say(&format!("== {} ==", suite.name()))?;
        let begun = Begun::now();
        let outcome = suite.run(&args.options).map_err(|error| format!("{}: {error}", suite.name()))?;
        let section = Section { suite, outcome, meanwhile: begun.end() };
        say(&format!("{}took {}\n", table::render(&section.outcome), section.meanwhile))?;
        sections.push(section);
    }
    let rows: Vec<Row> = sections.iter().flat_map(|section| section.outcome.rows.iter().cloned()).collect();
    say(&budgets::render(&args.suites, &rows))?;
    say(&format!("{:.0} s", sections.iter().map(|section| section.meanwhile.seconds).sum::<f64>()))?;
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&rows).map_err(|error| error.to_string())?;
        std::fs::write(path, text + "\n").map_err(|error| format!("--json {}: {error}", path.display()))?;
    }
    if let Some(path) = &args.markdown {
        let command = format!("{}{}", markdown::cargo_run(), arguments.join(" "));
        let options = format!(" --rounds {}", args.options.rounds);
        let text = markdown::document(&header, &command, &options, &sections);
        std::fs::write(path, text).map_err(|error| format!("--markdown {}: {error}", path.display()))?;
    }
    Ok(())
}

/// Prints to the standard output. Who reads it may leave early, which ends the run.
fn say(text: &str) -> Result<(), String> {
    writeln!(std::io::stdout(), "{text}").map_err(|error| format!("standard output: {error}"))
}
