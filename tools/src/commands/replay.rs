//! `ticktape replay`: the state from the journal alone. Captures are `replay_capture`'s, comparisons `replay_diff`'s and `replay_bisect`'s.

use std::time::Instant;

use serde::Serialize;

use crate::Failure;
use crate::args::ReplayArgs;
use crate::log::on_log;
use crate::out::say;
use crate::service::{AnyService, find, replay_journal};

#[derive(Serialize)]
struct Json {
    seq: u64,
    commands: u64,
    reports: u64,
    report_sha256: String,
    replay_digest: String,
    /// The snapshot that it began from: commands and reports are those after it.
    from_snapshot: Option<u64>,
}

pub fn run(args: &ReplayArgs, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    if let Some(pcap) = &args.pcap {
        return super::replay_capture::run(args, pcap, services);
    }
    let journal =
        args.journal.as_ref().ok_or_else(|| Failure::usage("--journal DIR or --pcap FILE says what to replay"))?;
    if let Some(path) = &args.json {
        crate::json::check(path)?;
    }
    match (&args.diff, &args.bisect) {
        (Some(other), _) => return super::replay_diff::run(args, journal, other, services),
        (None, Some(program)) => return super::replay_bisect::run(args, journal, program, services),
        (None, None) => {}
    }
    // A name that nobody knows is wrong whatever there is to replay.
    args.service.as_deref().map(|name| find(services, Some(name))).transpose()?;
    let service = on_log(journal, |log| log.service(services, args.service.as_deref()))?.map_err(Failure::usage)?;
    let started = Instant::now();
    let (outcome, begun) = replay_journal(service, journal, args.until)?;
    let seconds = started.elapsed().as_secs_f64();
    say!("replayed {} to seq {} in {seconds:.3} s", journal.display(), outcome.seq)?;
    begun.say()?;
    say!("commands       {}", outcome.commands)?;
    say!("digest         {}", outcome.digest)?;
    say!("reports        {}", outcome.reports)?;
    say!("report sha256  {}", outcome.report_sha256)?;
    let json = Json {
        seq: outcome.seq.0,
        commands: outcome.commands,
        reports: outcome.reports,
        report_sha256: outcome.report_sha256,
        replay_digest: outcome.digest,
        from_snapshot: begun.snapshot.map(|seq| seq.0),
    };
    args.json.as_deref().map_or(Ok(()), |path| crate::json::write(path, &json))
}
