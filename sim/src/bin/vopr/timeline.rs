//! One run, told event by event.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;

use ticktape_sim::services;
use ticktape_sim::trace::Event;

use crate::args::Args;
use crate::report;

/// Runs the seed with each of the services, and tells all of it: lines on standard output, or JSON in a file.
pub(crate) fn follow(args: &Args, seed: u64, to: &Option<PathBuf>) -> Result<ExitCode, String> {
    let config = args.config(seed);
    let mut ended = ExitCode::SUCCESS;
    let mut out = open(to)?;
    for service in args.services() {
        let head = match to {
            None => format!("{service}, {config}"),
            Some(_) => serde_json::json!({ "service": service, "run": config.to_string(), "seed": seed }).to_string(),
        };
        let name = to.as_ref().map_or("standard output".to_string(), |path| path.display().to_string());
        let writing = |error: io::Error| format!("{name}: {error}");
        writeln!(out, "{head}").map_err(writing)?;
        let line: fn(&Event) -> String = if to.is_some() { Event::to_json } else { ToString::to_string };
        // The run may panic, so what writes must not be in the middle of it.
        let (sender, lines) = mpsc::channel();
        let told = services::run_told(service, &config, move |event| {
            let _ = sender.send(line(event));
        });
        for line in lines {
            writeln!(out, "{line}").map_err(writing)?;
        }
        out.flush().map_err(writing)?;
        match told {
            Ok(found) => eprintln!("{service}, {config}: nothing wrong, trace hash {:016x}", found.trace_hash),
            Err(failure) => {
                eprintln!("{service}, {failure}");
                ended = ExitCode::from(report::WRONG);
            }
        }
    }
    Ok(ended)
}

fn open(to: &Option<PathBuf>) -> Result<Box<dyn Write>, String> {
    Ok(match to {
        None => Box::new(BufWriter::new(io::stdout())),
        Some(path) => {
            let file = File::create(path).map_err(|error| format!("--trace {}: {error}", path.display()))?;
            Box::new(BufWriter::new(file))
        }
    })
}
