//! `ticktape verify`: every byte of a journal and its snapshots, and what a replay of it comes to.
//!
//! Exit code 0 is clean, 1 damage or divergence, told in one line that names place and remedy.

use serde::Serialize;
use ticktape::machine::hex;
use ticktape::{Frame, Kind, Seq};
use ticktape_journal::snapshot::SnapshotMeta;

use crate::Failure;
use crate::args::VerifyArgs;
use crate::log::{Log, liveness, on_log};
use crate::out::{printed_then, say};
use crate::service::{AnyReplay, AnyService, Begun, Keep, find};
use crate::snapshots::{self, Depth, SnapshotFile};
use crate::survey::Survey;

#[derive(Default, Serialize)]
struct Json {
    journal: String,
    clean: bool,
    error: Option<String>,
    /// None where the lock may not be looked at.
    live: Option<bool>,
    segments: u64,
    commits: u64,
    frames: u64,
    first_seq: Option<u64>,
    last_seq: Option<u64>,
    durable_seq: u64,
    torn_tail: bool,
    snapshots: u64,
    /// Where nothing was replayed: why.
    not_replayed: Option<String>,
    replay: Option<ReplayJson>,
}

/// What the replay came to, as far as it came.
#[derive(Default, Serialize)]
struct ReplayJson {
    service: &'static str,
    from_snapshot: Option<u64>,
    frames: u64,
    /// Snapshot files that the replay came by, and whose state is its own.
    snapshots_compared: u64,
    /// Marks whose output hash was compared.
    marks_compared: u64,
    /// Marks whose state digest was, too.
    states_compared: u64,
    seq: u64,
    time_ns: u64,
    epoch: u64,
    state_digest: String,
    digest: String,
    output_hash: String,
}

pub fn run(args: &VerifyArgs, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    if args.service.is_some() {
        find(services, args.service.as_deref())?;
    }
    if args.dir.exists() && !args.dir.is_dir() {
        return Err(Failure::usage(format!("{}: a file; give the journal's directory", args.dir.display())));
    }
    let mut json = Json { journal: args.dir.display().to_string(), ..Json::default() };
    let verdict = verify(args, services, &mut json);
    // What could not even be begun is no verdict.
    if let Err(failure @ Failure::Usage(_)) = verdict {
        return Err(failure);
    }
    json.clean = verdict.is_ok();
    json.error = verdict.as_ref().err().map(ToString::to_string);
    let printed = if args.json { crate::json::line(&json).and_then(|line| say!("{line}")) } else { print(&json) };
    printed_then(printed, verdict)
}

fn verify(args: &VerifyArgs, services: &[Box<dyn AnyService>], json: &mut Json) -> Result<(), Failure> {
    let survey = survey(args, json)?;
    if let Some(complaint) = survey.complaint(&args.dir) {
        return Err(Failure::failed(complaint));
    }
    on_log(&args.dir, |log| replay_and_compare(args, services, log, &survey, json))
}

fn replay_and_compare(
    args: &VerifyArgs,
    services: &[Box<dyn AnyService>],
    log: &Log,
    survey: &Survey,
    json: &mut Json,
) -> Result<(), Failure> {
    let snapshots = snapshots::look(&args.dir, Depth::Whole)?;
    json.snapshots = snapshots.len() as u64;
    let service = log.service(services, args.service.as_deref())?;
    let newest = snapshots.iter().rfind(|snapshot| snapshot.header.is_ok());
    let reaches = newest.map_or(Ok(()), |newest| log.check_reaches(newest.seq));
    // There has to be a state to begin from, whether anybody here can begin from it or not.
    reaches.and_then(|()| log.oldest())?;
    let replayed = match service {
        Ok(service) => replay(args, service, log, survey, &snapshots, json),
        Err(why) => {
            json.not_replayed = Some(why);
            Ok(())
        }
    };
    if let Err(Failure::Compacted(_)) = replayed {
        return replayed;
    }
    // A rotten snapshot may be the reason why the replay went wrong: it is the first thing to look at.
    match snapshots.iter().find_map(|snapshot| snapshot.header.as_ref().err()) {
        Some(error) => Err(Failure::failed(error)),
        None => replayed,
    }
}

fn survey(args: &VerifyArgs, json: &mut Json) -> Result<Survey, Failure> {
    let look = || Survey::of(&args.dir, &mut |_| {});
    json.live = liveness(&args.dir).map_err(Failure::failed)?;
    let mut survey = look().map_err(Failure::usage)?;
    if json.live != Some(false) {
        let earlier = std::mem::replace(&mut survey, look().map_err(Failure::usage)?);
        survey.keep_what_stays(&earlier);
    }
    let summary = &survey.summary;
    (json.segments, json.commits, json.frames) = (summary.segments, summary.commits, summary.frames);
    (json.first_seq, json.last_seq) = (summary.first_seq.map(|seq| seq.0), summary.last_seq.map(|seq| seq.0));
    (json.durable_seq, json.torn_tail) = (summary.durable.0, summary.torn > 0);
    Ok(survey)
}

fn replay(
    args: &VerifyArgs,
    service: &dyn AnyService,
    log: &Log,
    survey: &Survey,
    snapshots: &[SnapshotFile],
    json: &mut Json,
) -> Result<(), Failure> {
    let found = if args.from_snapshot { log.newest(Seq::MAX)? } else { log.oldest()? };
    let (mut replay, begun) = service.replay_from(found, &args.dir, Keep::Nothing)?;
    let mut compared = 0;
    let marked: &[Seq] = if args.every_mark { &survey.marked } else { &[] };
    let done = compare(&mut *replay, log, &begun, marked, snapshots, &mut compared);
    json.replay = Some(replay_json(service, &mut *replay, &begun, compared));
    done.map_err(|failure| match failure {
        Failure::Failed(line) if !line.contains(&json.journal) => Failure::Failed(format!("{}: {line}", json.journal)),
        failure => failure,
    })
}

/// Applies the log to its end. The machine compares marks; snapshots are compared as they are come by.
fn compare(
    replay: &mut dyn AnyReplay,
    log: &Log,
    begun: &Begun,
    marked: &[Seq],
    snapshots: &[SnapshotFile],
    compared: &mut u64,
) -> Result<(), Failure> {
    let mut reader = log.from(replay.seq().next())?;
    let from = replay.seq();
    let mut snapshots = snapshots.iter().filter(|snapshot| snapshot.seq > from && snapshot.header.is_ok()).peekable();
    while let Some(bytes) = reader.next().map_err(Failure::reading)? {
        let frame = Frame::view(bytes).expect("the reader has checked it");
        replay.apply(&frame)?;
        if let Some(file) = snapshots.next_if(|snapshot| snapshot.seq == frame.seq) {
            let header = file.header.as_ref().expect("only sound ones are left");
            let computed = replay.snapshot();
            differs(&header.meta, computed.meta()).map_or(Ok(()), |what| Err(differing(file, what, begun)))?;
            *compared += 1;
        } else if frame.kind == Kind::SnapshotMark && marked.binary_search(&frame.seq).is_ok() {
            replay.state_digest();
        }
    }
    Ok(())
}

/// What is not the same in both; the name and the version were compared when the replay began.
fn differs(file: &SnapshotMeta, computed: &SnapshotMeta) -> Option<String> {
    let texts = |what: &str, file: String, computed: String| {
        (file != computed).then(|| format!("{what} is {file} in the file and {computed} in the replay"))
    };
    texts("the state digest", hex(&file.state_digest), hex(&computed.state_digest))
        .or_else(|| texts("the output hash", file.output_hash.to_string(), computed.output_hash.to_string()))
        .or_else(|| texts("the epoch", file.epoch.to_string(), computed.epoch.to_string()))
        .or_else(|| texts("the time", file.timestamp.0.to_string(), computed.timestamp.0.to_string()))
}

fn differing(file: &SnapshotFile, what: String, begun: &Begun) -> Failure {
    let from =
        begun.snapshot.map_or_else(|| "the beginning".to_string(), |seq| format!("the snapshot after seq {seq}"));
    Failure::failed(format!(
        "snapshot {}: after seq {}, {what}, which began from {from}; the service is not deterministic, or this is another build of \
         it: verify with the build that wrote the log, and delete the snapshot if the log is right",
        file.path.display(),
        file.seq
    ))
}

fn replay_json(service: &dyn AnyService, replay: &mut dyn AnyReplay, begun: &Begun, compared: u64) -> ReplayJson {
    let facts = replay.facts();
    ReplayJson {
        service: service.name(),
        from_snapshot: begun.snapshot.map(|seq| seq.0),
        frames: facts.seq.0 - begun.snapshot.unwrap_or(Seq::ZERO).0,
        snapshots_compared: compared,
        marks_compared: facts.compared.outputs,
        states_compared: facts.compared.states,
        seq: facts.seq.0,
        time_ns: facts.time.0,
        epoch: facts.epoch,
        state_digest: hex(&replay.state_digest()),
        digest: replay.digest(),
        output_hash: format!("{:016x}", facts.output_hash),
    }
}

fn print(json: &Json) -> Result<(), Failure> {
    let Json { journal, segments, commits, frames, snapshots, .. } = json;
    match json.live {
        Some(false) => {}
        Some(true) => say!("live           an appliance is writing this journal: this is a moment of it")?,
        None => {
            say!("live           can't tell: this user may not look at the lock; if one is, this is a moment of it")?
        }
    }
    say!("checked        {journal}: {segments} segments, {commits} commits, {frames} frames, {snapshots} snapshots")?;
    if json.torn_tail {
        say!("torn tail      that nothing here proves to have been acknowledged; the next opening cuts it")?;
    }
    if let Some(why) = &json.not_replayed {
        say!("not replayed   {why}")?;
    }
    if let Some(replay) = &json.replay {
        print_replay(replay)?;
    }
    if json.clean { say!("verdict        clean") } else { say!("verdict        NOT CLEAN") }
}

fn print_replay(replay: &ReplayJson) -> Result<(), Failure> {
    let from =
        replay.from_snapshot.map_or_else(|| "the beginning".to_string(), |seq| format!("the snapshot after seq {seq}"));
    say!("replayed       {} frames of {}, from {from} to seq {}", replay.frames, replay.service, replay.seq)?;
    say!(
        "compared       {} marks by outputs, {} of them by state, and {} snapshots",
        replay.marks_compared,
        replay.states_compared,
        replay.snapshots_compared
    )?;
    say!("state digest   {}", replay.state_digest)?;
    say!("digest         {}", replay.digest)?;
    say!("output hash    {}", replay.output_hash)
}
