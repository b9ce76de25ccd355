//! `ticktape follow --feed`: a replica on this box of an appliance on another, until a signal.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use ticktape::Seq;
use ticktape::config::SnapshotConfig;
use ticktape::pipeline::{Report, StageName};
use ticktape::replica::{Figure, ReplicaConfig, ReplicaStatus};

use crate::args::{FeedPair, FollowArgs};
use crate::out::say;
use crate::service::{AnyService, find};
use crate::{Failure, json};

/// How often it looks for a signal, a fault and whether the last seq is reached.
const WATCH: Duration = Duration::from_millis(2);
/// Between two lines of output.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Lines of states that it only went through, beside that: all those of a beginning, and then what can be read.
const BRIEF_LINES_MAX: u32 = 8;
/// Until one more of them.
const BRIEF_LINE_EVERY: Duration = Duration::from_millis(250);

/// A line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    state: &'static str,
    word: &'a str,
    behind: Option<u64>,
    #[serde(flatten)]
    figures: std::collections::BTreeMap<&'static str, u64>,
}

/// The last line of `--json`.
#[derive(Serialize)]
struct Last<'a> {
    state: &'static str,
    seq: u64,
    /// Of its log; 0 where it met none.
    epoch: u64,
    /// Of its log, as sixteen hexadecimal digits.
    log: Option<String>,
    digest: &'a str,
    output_hash: &'a str,
    counters: std::collections::BTreeMap<String, u64>,
}

pub fn run(
    args: &FollowArgs,
    feed: FeedPair,
    stop: &AtomicBool,
    services: &[Box<dyn AnyService>],
) -> Result<(), Failure> {
    let service = find(services, args.service.as_deref())?;
    let config = config(args, feed)?;
    let replica = service.replicate(&config)?;
    if !args.json {
        say!("{} from {} in {}", service.name(), feed_name(feed), config.dir.display())?;
        if let Some(serve) = replica.repair_addr() {
            say!("repair   UDP and TCP on {serve}")?;
        }
        say!("metrics  {}", replica.metrics_place())?;
    }
    match replica.runtime() {
        Some(runtime) if args.json => eprintln!("ticktape: runtime: {runtime}"),
        Some(runtime) => say!("runtime  {runtime}")?,
        None => {}
    }
    let until = args.until.unwrap_or(u64::MAX);
    let (mut line_at, mut shown, mut shown_nodes) = (Instant::now(), None, None);
    let mut brief = Budget::new(Instant::now());
    while !stop.load(Ordering::Relaxed) && replica.fault().is_none() {
        let status = replica.status();
        let is_done = status.applied().0 >= until;
        // A state that it goes through is a line, too, however short it is in it.
        let now = Instant::now();
        if is_done || now >= line_at || shown != Some(status.state) && brief.take(now) {
            (line_at, shown) = (now + LINE_EVERY, Some(status.state));
            let nodes = replica.nodes().filter(|nodes| !args.json && shown_nodes.as_ref() != Some(nodes));
            if let Some(nodes) = nodes {
                say!("nodes    {nodes}")?;
                shown_nodes = Some(nodes);
            }
            tell(args, &status)?;
        }
        if is_done {
            break;
        }
        std::thread::sleep(WATCH);
    }
    let epoch = replica.status().get(Figure::Epoch);
    let report = replica.stop();
    // What can't be read any more is told by whoever opens the journal again.
    let log = ticktape_journal::log_id(&config.dir).ok().flatten();
    finish(args, &report, epoch, log.map(|log| format!("{log:016x}")))
}

/// Lines that may be written beside those of each second: a state that goes back and forth is not worth a hundred.
struct Budget {
    left: u32,
    more_at: Instant,
}

impl Budget {
    const fn new(now: Instant) -> Self {
        Budget { left: BRIEF_LINES_MAX, more_at: now }
    }

    /// One of them, if there is any.
    fn take(&mut self, now: Instant) -> bool {
        let due = now.saturating_duration_since(self.more_at).as_nanos() / BRIEF_LINE_EVERY.as_nanos();
        let due = u32::try_from(due).unwrap_or(u32::MAX).min(BRIEF_LINES_MAX);
        if due > 0 {
            (self.left, self.more_at) = ((self.left + due).min(BRIEF_LINES_MAX), now);
        }
        let has_one = self.left > 0;
        self.left -= u32::from(has_one);
        has_one
    }
}

fn feed_name(feed: FeedPair) -> String {
    feed.b.map_or_else(|| feed.a.to_string(), |b| format!("{} and {b}", feed.a))
}

fn config(args: &FollowArgs, feed: FeedPair) -> Result<ReplicaConfig, Failure> {
    let dir: PathBuf =
        args.dir.clone().ok_or_else(|| Failure::usage("--dir is needed with --feed: its log goes there"))?;
    let mut config = ReplicaConfig::new(dir, feed.a, args.repair.clone());
    config.b = feed.b;
    config.interface = args.interface.unwrap_or(config.interface);
    config.serve = args.serve;
    config.stream = args.stream.clone().unwrap_or(config.stream);
    let by_feed = || format!("ticktape-replica-{}", feed.a.port());
    config.metrics = args.metrics.clone().or_else(|| Some(by_feed())).filter(|_| !args.no_metrics);
    config.ring.name.clone_from(&args.ring);
    config.ring.dir.clone_from(&args.ring_dir);
    config.cores = args.cores.clone().unwrap_or_default();
    config.runtime = args.runtime.clone().unwrap_or_default();
    if let Some(bytes) = args.segment_bytes {
        config.journal.segment_bytes = bytes;
        config.journal.prefill_bytes = config.journal.prefill_bytes.min(bytes);
    }
    config.until = args.until.map(Seq);
    config.snapshots = args.snapshots.then(SnapshotConfig::default);
    Ok(config)
}

fn tell(args: &FollowArgs, status: &ReplicaStatus) -> Result<(), Failure> {
    if !args.json {
        return say!("{status}");
    }
    let figures = status.figures.iter().copied().collect();
    let line = Line { state: status.state.name(), word: &status.word, behind: status.behind(), figures };
    say!("{}", json::line(&line)?)
}

fn finish(args: &FollowArgs, report: &Report, epoch: u64, log: Option<String>) -> Result<(), Failure> {
    if let Some(fault) = &report.fault {
        return Err(Failure::failed(fault));
    }
    if let Some(error) = report.errors.first() {
        return Err(Failure::failed(error));
    }
    report.warnings.iter().for_each(|warning| eprintln!("ticktape: {warning}"));
    let seq = report.counter(StageName::Replica, "applied_seq");
    let fact = |name| report.fact(StageName::Replica, name).unwrap_or("-");
    let (digest, output_hash) = (fact("digest"), fact("output_hash"));
    let counters = report.stages.iter().flat_map(|(stage, of_stage)| {
        let met = of_stage.counters.iter().filter(|&&(_, count)| count > 0);
        met.map(|(name, count)| (format!("{}.{name}", stage.as_str()), *count))
    });
    if args.json {
        let last = Last { state: "stopped", seq, epoch, log, digest, output_hash, counters: counters.collect() };
        return say!("{}", json::line(&last)?);
    }
    counters.into_iter().try_for_each(|(name, count)| say!("{name} {count}"))?;
    if seq == 0 {
        return say!("no log was met: nothing was applied");
    }
    say!("outputs  {output_hash}")?;
    say!("state at seq {seq}: {digest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_of_a_beginning_is_a_line_and_a_hundred_a_second_are_not() {
        let begun = Instant::now();
        let mut brief = Budget::new(begun);
        let mut taken = |ms| brief.take(begun + Duration::from_millis(ms));
        assert!((0..8).all(|ms| taken(2 * ms)));
        let lines = (8..5_000).filter(|ms| taken(2 * ms)).count();
        assert!((36..=40).contains(&lines), "{lines} in 10 s");
        assert!((0..8).all(|ms| taken(60_000 + ms)) && !taken(60_009), "after a while all of them again");
    }
}
