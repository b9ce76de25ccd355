//! What is said of many runs: on the way, and at the end.

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use ticktape_sim::coverage;
use ticktape_sim::simulate::{Batch, Failure};

use crate::args::Args;

/// Something was wrong.
pub(crate) const WRONG: u8 = 1;
/// The command line makes no sense.
pub(crate) const USAGE: u8 = 2;
/// Too little was met to show anything.
pub(crate) const TOO_SHALLOW: u8 = 3;

/// What repeats runs, before the arguments.
const COMMAND: &str = "cargo run --release -p ticktape-sim --bin vopr --";

/// The runs so far.
pub(crate) struct Fuzzed {
    pub(crate) batch: Batch,
    pub(crate) from: u64,
    pub(crate) begun: Instant,
    /// Whose service failed, and how many runs shrinking it took.
    pub(crate) failed: Option<(&'static str, u32)>,
    runs: Option<u64>,
    until: Option<Instant>,
}

impl Fuzzed {
    pub(crate) fn begin(args: &Args) -> Self {
        let begun = Instant::now();
        Fuzzed {
            batch: Batch::default(),
            from: args.seed.or(args.from).unwrap_or_else(fresh_seed),
            begun,
            failed: None,
            runs: args.seed.map_or(args.runs, |_| Some(args.services().len() as u64)),
            until: args.minutes.map(|minutes| begun + Duration::from_secs(60 * minutes)),
        }
    }

    pub(crate) fn is_over(&self, args: &Args) -> bool {
        let is_enough = self.runs.is_some_and(|runs| self.batch.runs >= runs);
        debug_assert!(args.seed.is_none() || self.runs.is_some());
        is_enough || self.until.is_some_and(|until| Instant::now() >= until)
    }

    pub(crate) fn next_seed(&self, args: &Args) -> u64 {
        args.seed.unwrap_or(self.from.wrapping_add(self.batch.runs))
    }

    fn last_seed(&self, args: &Args) -> u64 {
        args.seed.unwrap_or(self.from.wrapping_add(self.batch.runs.saturating_sub(1)))
    }

    fn seeds_per_s(&self) -> f64 {
        self.batch.runs as f64 / self.begun.elapsed().as_secs_f64()
    }

    /// A line on the way.
    pub(crate) fn progress(&self, args: &Args) {
        let kinds = args.kinds();
        let missing = coverage::not_met(&self.batch.coverage, &kinds);
        let reach = coverage::within_reach(&kinds);
        let waits = if missing.is_empty() { String::new() } else { format!("; not yet {}", missing.join(", ")) };
        eprintln!(
            "{} runs from seed {}, {:.0} seeds/s, rare branches {} of {reach}{waits}",
            self.batch.runs,
            self.from,
            self.seeds_per_s(),
            reach - missing.len(),
        );
    }

    /// The end: the table, the failure, the verdict.
    pub(crate) fn conclude(self, args: &Args) -> ExitCode {
        let kinds = args.kinds();
        // One seed is looked at for its own sake.
        let shallow = if args.seed.is_none() { coverage::not_met(&self.batch.coverage, &kinds) } else { Vec::new() };
        let (batch, real_s) = (&self.batch, self.begun.elapsed().as_secs_f64());
        eprintln!("met (* rare, ! rare and not met):\n{}", coverage::table(&batch.coverage, &kinds).trim_end());
        eprintln!(
            "{} runs, seeds {} to {}, of {}; {:.0} seeds/s, {:.0} inputs/s, {:.0} s of virtual time in {real_s:.1} s",
            batch.runs,
            self.from,
            self.last_seed(args),
            args.services().join(", "),
            self.seeds_per_s(),
            batch.inputs as f64 / real_s,
            batch.virtual_ns as f64 / 1e9,
        );
        if args.seed.is_none() {
            eprintln!("all of them again:\n  {COMMAND} {}", args.again_all(batch.runs, self.from));
        }
        let code = match (&batch.first_failure, self.failed) {
            (Some(failure), Some((service, runs))) => {
                tell_failure(failure, service, runs);
                WRONG
            }
            _ if !shallow.is_empty() => {
                eprintln!("too shallow: never met {}", shallow.join("; "));
                TOO_SHALLOW
            }
            _ => 0,
        };
        if args.json {
            println!("{}", self.json(args, &shallow));
        }
        ExitCode::from(code)
    }

    fn json(&self, args: &Args, shallow: &[&str]) -> String {
        let failure = self.batch.first_failure.as_ref().zip(self.failed).map(|(failure, (service, _))| {
            json!({
                "service": service, "seed": failure.seed(), "step": failure.step, "check": failure.check, "detail": failure.detail,
                "steps": failure.config.steps, "clients": failure.config.clients,
                "hosts": failure.config.replicas + 1, "faults": failure.config.faults.to_string(),
                "snapshots": failure.config.snapshots,
                "found_at": failure.found.to_string(), "again": again(failure, service),
            })
        });
        json!({
            "runs": self.batch.runs, "failures": self.batch.failures, "first_failure": failure,
            "seeds_per_s": self.seeds_per_s().round(), "first_seed": self.from, "last_seed": self.last_seed(args),
            "services": args.services(), "too_shallow": shallow, "coverage": self.batch.coverage,
        })
        .to_string()
    }
}

fn tell_failure(failure: &Failure, service: &str, runs: u32) {
    eprintln!(
        "\n{service}: the last events, of {} in which it shows, found in {runs} runs:\n{failure}",
        failure.config
    );
    eprintln!("again, in a debug build alike (--trace tells all of it):\n  {}", again(failure, service));
}

/// The command that repeats a failure.
fn again(failure: &Failure, service: &str) -> String {
    format!("{COMMAND} {}", Args::again(service, &failure.config))
}

/// A seed that was not used before, for who does not care which: it is printed.
fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() << 20
}
