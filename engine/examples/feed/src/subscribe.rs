//! The subscriber: a replica of the bank.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use feed::{Bank, BankConfig};
use serde_json::{Value, json};
use ticktape::Invariants;
use ticktape::pipeline::{Replica, StageName};
use ticktape::replica::ReplicaConfig;

use crate::SubArgs;
use crate::publish::{counters, say};

/// Between two lines.
const LINE_EVERY: Duration = Duration::from_millis(500);

/// How often it looks for a signal, and whether the last seq is reached.
const WATCH: Duration = Duration::from_millis(2);

pub fn run(args: &SubArgs, stop: &AtomicBool) -> Result<(), String> {
    let mut config = ReplicaConfig::new(&args.dir, args.bind, args.retx.clone());
    config.b = args.bind_b;
    config.interface = args.interface;
    config.serve = args.serve;
    config.snapshot_gap_frames = args.snapshot_gap;
    let replica = Replica::<Bank>::start(&config, &BankConfig::default(), None).map_err(|error| error.to_string())?;
    let (until, mut line_at, mut shown) = (args.until.unwrap_or(u64::MAX), Instant::now(), None);
    let from = args.bind_b.map_or_else(|| args.bind.to_string(), |b| format!("{} and {b}", args.bind));
    match replica.repair_addr() {
        _ if args.json => {}
        Some(serve) => say(format_args!("sub on {from}, retx {serve}"))?,
        None => say(format_args!("sub on {from}"))?,
    }
    while !stop.load(Ordering::Relaxed) && replica.fault().is_none() {
        let status = replica.status();
        if status.applied().0 >= until {
            break;
        }
        if Instant::now() >= line_at || shown != Some(status.state) {
            (line_at, shown) = (Instant::now() + LINE_EVERY, Some(status.state));
            line(&replica, args.json)?;
        }
        std::thread::sleep(WATCH);
    }
    if replica.fault().is_none() {
        line(&replica, args.json)?;
    }
    let report = replica.stop();
    if let Some(error) = report.fault.as_ref().or(report.errors.first()) {
        return Err(error.clone());
    }
    let digest = report.fact(StageName::Replica, "digest").unwrap_or("-");
    let seq = report.counter(StageName::Replica, "applied_seq");
    if args.json {
        let counters = report.stages.iter().flat_map(|(stage, of_stage)| {
            let met = of_stage.counters.iter().filter(|&&(_, count)| count > 0);
            met.map(|(name, count)| (format!("{}.{name}", stage.as_str()), Value::from(*count)))
        });
        let counters: serde_json::Map<String, Value> = counters.collect();
        return say(format_args!(
            "{}",
            json!({"state": "stopped", "seq": seq, "digest": digest, "counters": counters})
        ));
    }
    counters("sub", &report)?;
    say(format_args!("sub stopped at seq {seq}: {digest}"))
}

/// Where it stands, and that no money was made or lost.
fn line(replica: &Replica<Bank>, is_json: bool) -> Result<(), String> {
    let seen = replica.inspect(|machine| {
        let bank = machine.service();
        (machine.applied(), bank.balances().to_vec(), bank.check())
    });
    let status = replica.status();
    let (state, word, behind) = (status.state.name(), &status.word, status.behind());
    let Some((seq, balances, checked)) = seen else {
        return match is_json {
            true => say(format_args!("{}", json!({"state": state, "word": word, "behind": behind}))),
            false => say(format_args!("sub {status}")),
        };
    };
    if let Err(violation) = checked {
        return Err(format!("seq {seq}: {violation:?}"));
    }
    if is_json {
        let line = json!({"state": state, "word": word, "behind": behind, "seq": seq.0, "balances": balances, "balanced": true});
        return say(format_args!("{line}"));
    }
    say(format_args!("sub seq {seq} balances {balances:?} balanced; {status}"))
}
