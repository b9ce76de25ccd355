//! `ticktape top`: what a running appliance or replica measures, from outside, and where the followers of its ring stand.
//!
//! It maps what they write and writes nothing itself, so that looking costs them nothing.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ticktape_shm::metrics::{MetricsReader, Reading, list};

use super::top_screen::{Follower, Look};
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
    let looked = |look: Look| look.with_followers(followers(args, &reader)).of_live(reader.is_live());
    if args.once {
        return show(args, &looked(Look::since_start(&reader.read())));
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
        show(args, &looked(Look::between(&before, &reading, now - at)))?;
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

/// The only appliance or replica that runs.
fn the_one(args: &TopArgs) -> Result<String, Failure> {
    let is_follower = |name: &str| {
        let reading = MetricsReader::open(&args.dir, name).map(|reader| reader.read());
        reading.is_ok_and(|reading| reading.follower().is_some())
    };
    let mut live: Vec<_> = live(args)?.into_iter().filter(|name| !is_follower(name)).collect();
    let dir = args.dir.display();
    match live.len() {
        1 => Ok(live.remove(0)),
        0 => Err(Failure::usage(format!("no appliance shows metrics in {dir}: start one, as with run"))),
        _ => {
            Err(Failure::usage(format!("several appliances or replicas show metrics: name one of {}", live.join(", "))))
        }
    }
}

/// Whatever has a writer.
fn live(args: &TopArgs) -> Result<Vec<String>, Failure> {
    let found = list(&args.dir).map_err(Failure::usage)?;
    Ok(found.into_iter().filter(|&(_, is_live)| is_live).map(|(name, _)| name).collect())
}

/// Where those stand that follow the ring of what is looked at. What comes or goes meanwhile is there next time, or not.
fn followers(args: &TopArgs, looked_at: &MetricsReader) -> Vec<Follower> {
    let Some(ring) = looked_at.read().ring_created_ns() else { return Vec::new() };
    let of_ring = |name: String| {
        let reading = MetricsReader::open(&args.dir, &name).ok()?.read();
        let standing = reading.follower().filter(|_| reading.ring_created_ns() == Some(ring))?;
        Some(Follower::new(name, reading.pid, standing))
    };
    live(args).unwrap_or_default().into_iter().filter_map(of_ring).collect()
}

fn show(args: &TopArgs, look: &Look) -> Result<(), Failure> {
    if args.json {
        return say!("{}", json::line(look)?);
    }
    let clear = if !args.once && std::io::stdout().is_terminal() { CLEAR } else { "" };
    say!("{clear}{look}")
}
