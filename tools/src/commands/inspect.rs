//! `ticktape inspect`: what stands in a journal, readable, however damaged.
//!
//! Exit code 1 if acknowledged data or a snapshot is damaged or missing. A torn tail, which the next opening cuts, is none: 0.

use std::io::{self, BufWriter, Write};

use serde::Serialize;
use ticktape::payload::EpochChange;
use ticktape::{Frame, Kind};
use ticktape_journal::inspect::Fact;

use crate::Failure;
use crate::args::InspectArgs;
use crate::log::liveness;
use crate::out::{self, printed_then};
use crate::service::{AnyService, find};
use crate::snapshots::{self, Depth, SnapshotFile, SnapshotJson};
use crate::survey::{Gap, Place, Segment, Spare, Survey};

/// Said where it is so.
const LIVE: &str = "an appliance is writing this journal: what follows is a moment of it";

/// Said where nobody can tell.
const MAYBE_LIVE: &str =
    "this user may not look at the lock, so it is unknown whether an appliance is writing this journal";

#[derive(Serialize)]
struct Json<'a> {
    journal: String,
    /// None where the lock may not be looked at.
    live: Option<bool>,
    sound: bool,
    segments: &'a [Segment],
    spares: &'a [Spare],
    gaps: &'a [Gap],
    damage: Vec<&'a Place>,
    damaged_places: u64,
    cut: Option<&'a Place>,
    commits: u64,
    frames: u64,
    first_seq: Option<u64>,
    last_seq: Option<u64>,
    durable_seq: u64,
    sealed_seq: Option<u64>,
    reigns: &'a [BegunReign],
    snapshots: Vec<SnapshotJson>,
}

/// Who led, from which frame on: what a conflict between two copies of a journal is named by.
#[derive(Serialize)]
struct BegunReign {
    seq: u64,
    epoch: u64,
    /// None where the log was written before there were such numbers.
    reign: Option<String>,
    previous_reign: Option<String>,
}

impl BegunReign {
    fn of(frame: &Frame<'_>) -> Option<Self> {
        let change = EpochChange::decode(frame.payload).filter(|_| frame.kind == Kind::EpochChange)?;
        let known = |reign: u64| (reign != 0).then(|| format!("{reign:016x}"));
        Some(BegunReign {
            seq: frame.seq.0,
            epoch: change.epoch,
            reign: known(change.reign),
            previous_reign: known(change.previous_reign),
        })
    }

    fn line(&self) -> String {
        let BegunReign { seq, epoch, reign, previous_reign } = self;
        let reign = reign.as_deref().unwrap_or("unknown");
        let after = previous_reign.as_ref().map_or_else(String::new, |before| format!(", after reign {before}"));
        format!("epoch {epoch} from seq {seq} on: reign {reign}{after}")
    }
}

pub fn run(args: &InspectArgs, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    let service = args.service.as_deref().map(|name| find(services, Some(name))).transpose()?;
    let is_file = args.path.is_file();
    let live = liveness(&args.path).or_else(|error| if is_file { Ok(Some(false)) } else { Err(error) });
    let live = live.map_err(Failure::usage)?;
    let earlier = if live != Some(false) { Some(survey(args, &mut |_| {})?) } else { None };
    let mut printer = Printer { out: BufWriter::new(io::stdout().lock()), result: Ok(()) };
    if let Some(line) = live.map_or(Some(MAYBE_LIVE), |live| live.then_some(LIVE)).filter(|_| !args.json) {
        printer.line(format_args!("{line}"));
    }
    let mut reigns = Vec::new();
    let mut survey = survey(args, &mut |fact| {
        if let Fact::Frame { frame, .. } = fact {
            reigns.extend(BegunReign::of(frame));
        }
        if !args.json && (args.frames || !matches!(fact, Fact::Frame { .. })) {
            printer.fact(fact, service);
        }
    })?;
    if let Some(earlier) = &earlier {
        survey.keep_what_stays(earlier);
    }
    let depth = if args.deep { Depth::Whole } else { Depth::Header };
    let snapshots = snapshots::look(&args.path, depth)?;
    if args.json {
        printer.line(format_args!("{}", json(args, live, &survey, &reigns, &snapshots)?));
    } else {
        reigns.iter().for_each(|reign| printer.line(format_args!("{}", reign.line())));
        snapshots.iter().for_each(|snapshot| printer.line(format_args!("{}", snapshot.line(depth))));
        printer.line(format_args!("{}", last_line(&survey)));
    }
    let printed = printer.finish();
    printed_then(printed, verdict(args, &survey, &snapshots))
}

fn survey(args: &InspectArgs, show: &mut dyn FnMut(&Fact<'_>)) -> Result<Survey, Failure> {
    Survey::of(&args.path, show).map_err(Failure::usage)
}

fn verdict(args: &InspectArgs, survey: &Survey, snapshots: &[SnapshotFile]) -> Result<(), Failure> {
    if let Some(complaint) = survey.complaint(&args.path) {
        return Err(Failure::failed(complaint));
    }
    match snapshots.iter().find_map(|snapshot| snapshot.header.as_ref().err()) {
        Some(error) => Err(Failure::failed(error)),
        None => Ok(()),
    }
}

fn json(
    args: &InspectArgs,
    live: Option<bool>,
    survey: &Survey,
    reigns: &[BegunReign],
    snapshots: &[SnapshotFile],
) -> Result<String, Failure> {
    let summary = &survey.summary;
    crate::json::line(&Json {
        journal: args.path.display().to_string(),
        live,
        sound: verdict(args, survey, snapshots).is_ok(),
        segments: &survey.segments,
        spares: &survey.spares,
        gaps: &survey.gaps,
        damage: survey.damage().collect(),
        damaged_places: summary.damaged,
        cut: survey.cut(),
        commits: summary.commits,
        frames: summary.frames,
        first_seq: summary.first_seq.map(|seq| seq.0),
        last_seq: summary.last_seq.map(|seq| seq.0),
        durable_seq: summary.durable.0,
        sealed_seq: survey.sealed.map(|seq| seq.0),
        reigns,
        snapshots: snapshots.iter().map(SnapshotFile::json).collect(),
    })
}

fn last_line(survey: &Survey) -> String {
    let summary = &survey.summary;
    let seqs = match (summary.first_seq, summary.last_seq) {
        (Some(first), Some(last)) => format!("seq {first} to {last}"),
        _ => "no frames".to_string(),
    };
    format!(
        "{} segments, {} commits, {} frames, {seqs}, durable at least to seq {}, {} damaged places{}",
        summary.segments,
        summary.commits,
        summary.frames,
        summary.durable,
        summary.damaged,
        if summary.torn > 0 { ", a torn tail that nothing here proves to have been acknowledged" } else { "" }
    )
}

/// Goes on without printing when stdout takes no more: the verdict is still to come.
struct Printer<W: Write> {
    out: W,
    result: io::Result<()>,
}

impl<W: Write> Printer<W> {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        if self.result.is_ok() {
            self.result = writeln!(self.out, "{line}");
        }
    }

    fn fact(&mut self, fact: &Fact<'_>, service: Option<&dyn AnyService>) {
        match (fact, service) {
            (Fact::Frame { frame, .. }, Some(service)) => {
                let described = format!("{fact}  {}", service.describe_input(frame));
                self.line(format_args!("{}", described.trim_end()));
            }
            _ => self.line(format_args!("{fact}")),
        }
    }

    fn finish(self) -> Result<(), Failure> {
        let mut out = self.out;
        self.result.and_then(|()| out.flush()).map_err(|error| out::failure(&error))
    }
}
