//! Looks for something wrong, seed after seed, for a while, and says in a line of JSON what it found. Nothing is shrunk and nothing told on
//! the way: `tests/mutants.rs` runs it in copies of the tree in which something is wrong, and in one in which nothing is.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use ticktape_sim::services;
use ticktape_sim::simulate::{Batch, Failure, Faults, Report, SimConfig, simulate};

#[path = "alarms.rs"]
mod alarms;

use alarms::{Alarms, gen_alarm};

/// A service that knows of its timers when each is due, beside those that `vopr` runs.
const ALARMS: &str = "alarms";

/// The names of the services there are.
const SERVICES: [&str; 4] = ["bank", "kv", "orderbook", ALARMS];

/// Looks for something wrong.
#[derive(Debug, Parser)]
struct Args {
    /// One service; without it, all by turns
    #[arg(long, value_parser = PossibleValuesParser::new(SERVICES))]
    service: Option<String>,
    /// Whether boxes take snapshots; by chance where it is not said
    #[arg(long)]
    snapshots: Option<bool>,
    /// Replicas beside the leader
    #[arg(long, default_value_t = 0)]
    replicas: usize,
    /// What may strike
    #[arg(long, value_parser = Faults::parse)]
    faults: Option<Faults>,
    /// Inputs and strokes of fate in a run
    #[arg(long, default_value_t = SimConfig::new(0).steps)]
    steps: u32,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Seeds at most
    #[arg(long, default_value_t = u64::MAX)]
    seeds: u64,
    /// Seconds of one core at most
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    std::panic::set_hook(Box::new(|_| {}));
    let usual = SimConfig::new(args.from);
    let faults = args.faults.unwrap_or(usual.faults);
    let config = SimConfig { steps: args.steps, faults, snapshots: args.snapshots, replicas: args.replicas, ..usual };
    let (begun, limit) = (Instant::now(), Duration::from_secs(args.seconds));
    let (mut batch, mut found) = (Batch::default(), None);
    while batch.runs < args.seeds && found.is_none() && time_on_core(begun) < limit {
        let service = match &args.service {
            Some(service) => service.as_str(),
            None => SERVICES[(batch.runs % SERVICES.len() as u64) as usize],
        };
        let seed = args.from.wrapping_add(batch.runs);
        let result = run(service, &SimConfig { seed, ..config });
        if let Err(failure) = &result {
            let (check, detail) = (failure.check, failure.detail.as_str());
            found = Some(json!({ "service": service, "seed": seed, "check": check, "detail": detail }));
        }
        batch.add(result);
    }
    let seconds = time_on_core(begun).as_secs_f64();
    let too_shallow = batch.too_shallow(&config);
    println!("{}", json!({ "runs": batch.runs, "seconds": seconds, "found": found, "too_shallow": too_shallow }));
    ExitCode::SUCCESS
}

/// How long this thread has had a core; how long it has lived, where the system does not say.
fn time_on_core(begun: Instant) -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = stat.and_then(|text| text.split(' ').next()?.parse().ok());
    ns.map_or_else(|| begun.elapsed(), Duration::from_nanos)
}

fn run(service: &str, config: &SimConfig) -> Result<Report, Failure> {
    if service == ALARMS { simulate::<Alarms>(config, &(), gen_alarm) } else { services::run(service, config) }
}
