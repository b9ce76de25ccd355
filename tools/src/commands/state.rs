//! `ticktape state`: what the log came to after one frame.

use std::path::Path;

use serde::Serialize;
use ticktape::machine::hex;
use ticktape::{Frame, Seq};

use crate::Failure;
use crate::args::StateArgs;
use crate::log::{Log, on_log};
use crate::out::say;
use crate::service::{AnyReplay, AnyService, Begun, Keep};

#[derive(Serialize)]
struct Json {
    journal: String,
    service: &'static str,
    seq: u64,
    time_ns: u64,
    epoch: u64,
    /// SHA-256 of engine and service state, as snapshots and marks have it.
    state_digest: String,
    /// SHA-256 of the service's state, as `run`, `replay` and `follow` print it.
    digest: String,
    /// The rolling hash of all outputs so far, as 16 hex digits.
    output_hash: String,
    sessions: u64,
    timers: u64,
    malformed: u64,
    from_snapshot: Option<u64>,
    replayed_frames: u64,
    passed_over: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

pub fn run(args: &StateArgs, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    let (json, begun) = on_log(&args.dir, |log| {
        let service = log.service(services, args.service.as_deref())?.or_else(|why| {
            // A snapshot that is passed over may be the reason: it is the first thing to look at.
            log.oldest()?;
            Err(Failure::usage(why))
        })?;
        let (mut replay, begun) = at(log, &args.dir, service, args.at)?;
        Ok((json(args, service, &mut *replay, begun.clone()), begun))
    })?;
    if args.json {
        return say!("{}", crate::json::line(&json)?);
    }
    print(&json, &begun)
}

/// The state after frame `at`, or at the end.
fn at<'a>(
    log: &Log,
    dir: &Path,
    service: &'a dyn AnyService,
    at: Option<u64>,
) -> Result<(Box<dyn AnyReplay + 'a>, Begun), Failure> {
    let wanted = at.map_or(Seq::MAX, Seq);
    let lowest = log.oldest()?.covered();
    if wanted < lowest {
        return Err(out_of_range(log, dir, wanted, lowest)?);
    }
    let found = log.newest(wanted)?;
    log.check_reaches(found.covered())?;
    let is_there = at.is_none() || wanted <= found.covered() || log.holds(wanted)?;
    if !is_there {
        return Err(out_of_range(log, dir, wanted, lowest)?);
    }
    let (mut replay, mut begun) = service.replay_from(found, dir, Keep::Nothing)?;
    begun.is_all = log.is_without_segments();
    if replay.seq() < wanted {
        let mut reader = log.from(replay.seq().next())?;
        while replay.seq() < wanted
            && let Some(bytes) = reader.next().map_err(Failure::reading)?
        {
            replay.apply(&Frame::view(bytes).expect("the reader has checked it"))?;
        }
    }
    Ok((replay, begun))
}

/// Why there is none; where the log ends before a snapshot, that comes first.
fn out_of_range(log: &Log, dir: &Path, wanted: Seq, lowest: Seq) -> Result<Failure, Failure> {
    log.check_end()?;
    let highest = log.last_seq()?;
    Ok(Failure::usage(format!(
        "{}: there is no state after seq {wanted}: --at takes {lowest} to {highest} here",
        dir.display()
    )))
}

fn json(args: &StateArgs, service: &dyn AnyService, replay: &mut dyn AnyReplay, begun: Begun) -> Json {
    let facts = replay.facts();
    Json {
        journal: args.dir.display().to_string(),
        service: service.name(),
        seq: facts.seq.0,
        time_ns: facts.time.0,
        epoch: facts.epoch,
        state_digest: hex(&replay.state_digest()),
        digest: replay.digest(),
        output_hash: format!("{:016x}", facts.output_hash),
        sessions: facts.sessions,
        timers: facts.timers,
        malformed: facts.malformed,
        from_snapshot: begun.snapshot.map(|seq| seq.0),
        replayed_frames: facts.seq.0 - begun.snapshot.unwrap_or(Seq::ZERO).0,
        passed_over: begun.passed_over,
        text: args.text.then(|| replay.text()),
    }
}

fn print(json: &Json, begun: &Begun) -> Result<(), Failure> {
    say!("state of {} after seq {}, from {}", json.service, json.seq, json.journal)?;
    begun.say()?;
    say!("replayed       {} frames", json.replayed_frames)?;
    say!("time           {} ns since 1970", json.time_ns)?;
    say!("epoch          {}", json.epoch)?;
    say!("sessions       {}", json.sessions)?;
    say!("timers         {}", json.timers)?;
    say!("state digest   {}", json.state_digest)?;
    say!("digest         {}", json.digest)?;
    say!("output hash    {}", json.output_hash)?;
    json.text.as_ref().map_or(Ok(()), |text| say!("{text}"))
}
