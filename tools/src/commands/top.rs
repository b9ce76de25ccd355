//! `ticktape top`: what a running appliance measures, from outside.
//!
//! It maps what the appliance's stages write and writes nothing itself, so that looking costs them nothing.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ticktape_shm::metrics::{MetricsReader, Reading, list};

use super::top_screen::Look;
use crate::args::TopArgs;
use crate::out::say;
use crate::{Failure, json};

/// How long a wait for the next look goes without seeing a signal.
const WATCH: Duration = Duration::from_millis(50);

/// Clears a terminal, and goes to its top.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub fn run(args: &TopArgs) -> Result<(), Failure> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => the_one(args)?,
    };
    let reader = MetricsReader::open(&args.dir, &name).map_err(Failure::usage)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).map_err(Failure::failed)?;
    }
    if args.once {
        return show(args, &Look::since_start(&reader.read()));
    }
    let (mut before, mut at) = (reader.read(), Instant::now());
    let interval = Duration::from_secs_f64(args.interval);
    let mut looks = 0;
    while args.count.is_none_or(|count| looks < count) {
        if !wait(at + interval, &stop, &reader) {
            if !stop.load(Ordering::Relaxed) && !args.json {
                say!("{name} has stopped")?;
            }
            break;
        }
        let (reading, now): (Reading, _) = (reader.read(), Instant::now());
        show(args, &Look::between(&before, &reading, now - at))?;
        (before, at, looks) = (reading, now, looks + 1);
    }
    Ok(())
}

/// False where it is to end, or nothing more comes.
fn wait(until: Instant, stop: &AtomicBool, reader: &MetricsReader) -> bool {
    while !stop.load(Ordering::Relaxed) && reader.is_live() {
        let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
            return true;
        };
        thread::sleep(left.min(WATCH));
    }
    false
}

/// The only appliance that runs.
fn the_one(args: &TopArgs) -> Result<String, Failure> {
    let found = list(&args.dir).map_err(Failure::usage)?;
    let mut live: Vec<_> = found.into_iter().filter(|&(_, is_live)| is_live).map(|(name, _)| name).collect();
    match live.len() {
        1 => Ok(live.remove(0)),
        0 => {
            Err(Failure::usage(format!("no appliance shows metrics in {}: start one, as with run", args.dir.display())))
        }
        _ => Err(Failure::usage(format!("several appliances show metrics: name one of {}", live.join(", ")))),
    }
}

fn show(args: &TopArgs, look: &Look) -> Result<(), Failure> {
    if args.json {
        return say!("{}", json::line(look)?);
    }
    let clear = if !args.once && std::io::stdout().is_terminal() { CLEAR } else { "" };
    say!("{clear}{look}")
}
