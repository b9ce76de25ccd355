//! Fuzzes the appliance: `vopr`, or `vopr --runs 1000`, `--minutes 5`, `--seed 42`, `--service NAME`, `--faults LIST`, `--json`.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ticktape_sim::services::{NAMES, run};
use ticktape_sim::simulate::{Batch, Failure, Faults, SimConfig};

/// Between two lines that tell how far it is.
const PROGRESS: Duration = Duration::from_secs(10);

const USAGE: &str = "usage: vopr [--runs N] [--seed N] [--from N] [--minutes N] [--service bank|kv|orderbook] [--steps N] \
                     [--faults LIST] [--json]";

struct Args {
    runs: Option<u64>,
    seed: Option<u64>,
    from: Option<u64>,
    minutes: Option<u64>,
    steps: Option<u32>,
    service: Option<&'static str>,
    faults: Faults,
    json: bool,
}

fn parse() -> Result<Args, String> {
    let mut parsed = Args {
        runs: None,
        seed: None,
        from: None,
        minutes: None,
        steps: None,
        service: None,
        faults: Faults::ALL,
        json: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        if name == "--json" {
            parsed.json = true;
            continue;
        }
        let value = args.next().ok_or_else(|| format!("{name} wants a value; {USAGE}"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} {value}: take a whole number"));
        match name.as_str() {
            "--runs" => parsed.runs = Some(number()?),
            "--seed" => parsed.seed = Some(number()?),
            "--from" => parsed.from = Some(number()?),
            "--minutes" => parsed.minutes = Some(number()?),
            "--steps" => {
                parsed.steps = Some(u32::try_from(number()?).map_err(|_| format!("--steps {value}: too many"))?)
            }
            "--faults" => parsed.faults = Faults::parse(&value)?,
            "--service" => {
                let found = NAMES.into_iter().find(|known| *known == value);
                parsed.service = Some(found.ok_or_else(|| format!("--service {value}: one of {}", NAMES.join(", ")))?);
            }
            _ => return Err(format!("{name} is unknown; {USAGE}")),
        }
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    match parse() {
        Ok(args) => fuzz(&args),
        Err(error) => {
            eprintln!("vopr: {error}");
            ExitCode::from(2)
        }
    }
}

fn fuzz(args: &Args) -> ExitCode {
    // Panics are caught, named and told with their seed: one that prints itself, too, would print twice.
    if args.seed.is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let services: Vec<&str> = args.service.map_or_else(|| NAMES.to_vec(), |name| vec![name]);
    let from = args.seed.or(args.from).unwrap_or_else(fresh_seed);
    let runs = if args.seed.is_some() { Some(services.len() as u64) } else { args.runs };
    let begun = Instant::now();
    let until = args.minutes.map(|minutes| begun + Duration::from_secs(60 * minutes));
    let (mut batch, mut said, mut service) = (Batch::default(), begun, services[0]);
    while runs.is_none_or(|runs| batch.runs < runs) && until.is_none_or(|until| Instant::now() < until) {
        let run_number = batch.runs;
        service = services[(run_number % services.len() as u64) as usize];
        let seed = args.seed.unwrap_or(from + run_number);
        let mut config = SimConfig { faults: args.faults, ..SimConfig::new(seed) };
        config.steps = args.steps.unwrap_or(config.steps);
        let result = run(service, &config);
        if args.seed.is_some()
            && let Ok(report) = &result
        {
            eprintln!("seed {seed}, {service}: nothing wrong; trace hash {:016x}", report.trace_hash);
        }
        batch.add(result);
        if batch.failures > 0 {
            break;
        }
        if said.elapsed() >= PROGRESS {
            said = Instant::now();
            eprintln!("{} runs from seed {from}, {:.0} seeds/s", batch.runs, rate(&batch, begun));
        }
    }
    conclude(args, &batch, service, from, begun)
}

fn conclude(args: &Args, batch: &Batch, service: &str, from: u64, begun: Instant) -> ExitCode {
    let shallow = if args.faults == Faults::ALL && args.seed.is_none() { batch.too_shallow() } else { Vec::new() };
    eprintln!("{} runs, seeds {from} to {}, services in turn; met:", batch.runs, from + batch.runs.saturating_sub(1));
    for (name, times) in &batch.coverage {
        eprintln!("  {times:>10}  {name}");
    }
    let virtual_s = batch.virtual_ns as f64 / 1e9;
    let real_s = begun.elapsed().as_secs_f64();
    eprintln!(
        "{:.0} seeds/s, {:.0} inputs/s, {virtual_s:.0} s of virtual time in {real_s:.1} s",
        rate(batch, begun),
        batch.inputs as f64 / real_s
    );
    if let Some(failure) = &batch.first_failure {
        eprintln!("{failure}\nagain: {}", again(args, failure, service));
    }
    if batch.failures == 0 && !shallow.is_empty() {
        eprintln!("too shallow: never met {}", shallow.join("; "));
    }
    if args.json {
        println!("{}", json(batch, service, begun));
    }
    if batch.failures > 0 || !shallow.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The command that repeats a failure.
fn again(args: &Args, failure: &Failure, service: &str) -> String {
    let steps = args.steps.map_or(String::new(), |steps| format!(" --steps {steps}"));
    format!(
        "cargo run --release -p ticktape-sim --bin vopr -- --service {service} --seed {} --faults {}{steps}",
        failure.seed, args.faults
    )
}

fn rate(batch: &Batch, begun: Instant) -> f64 {
    batch.runs as f64 / begun.elapsed().as_secs_f64()
}

fn json(batch: &Batch, service: &str, begun: Instant) -> String {
    let coverage: Vec<String> = batch.coverage.iter().map(|(name, times)| format!("\"{name}\":{times}")).collect();
    let failure = batch.first_failure.as_ref().map_or("null".to_string(), |failure| {
        format!(
            "{{\"seed\":{},\"service\":\"{service}\",\"step\":{},\"check\":\"{}\"}}",
            failure.seed, failure.step, failure.check
        )
    });
    format!(
        "{{\"runs\":{},\"failures\":{},\"first_failure\":{failure},\"seeds_per_s\":{:.1},\"coverage\":{{{}}}}}",
        batch.runs,
        batch.failures,
        rate(batch, begun),
        coverage.join(",")
    )
}

/// A seed that was not used before, for who does not care which: it is printed.
fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() << 20
}
