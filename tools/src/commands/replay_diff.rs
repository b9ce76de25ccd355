//! `ticktape replay --diff`: the first frame at which two journals part, or else the first snapshot whose digests differ.

use std::path::Path;

use serde::Serialize;
use ticktape::{Frame, Seq};

use crate::Failure;
use crate::args::ReplayArgs;
use crate::log::{Log, no_end, on_log};
use crate::out::{printed_then, say};
use crate::service::AnyService;
use crate::snapshots::{self, Depth, SnapshotFile};

/// What of two frames with one seq differs, and where they are the same up to.
#[derive(Debug, Serialize)]
struct Json {
    left: String,
    right: String,
    /// Frames that both have, from there …
    first: u64,
    /// … up to there, are the same.
    same_to: u64,
    left_last: u64,
    right_last: u64,
    /// The first frame that differs.
    parts_at: Option<u64>,
    differs: Option<String>,
    /// Snapshots that both have after the same frame.
    snapshots_compared: usize,
    /// The first of them whose digests differ.
    snapshot_differs: Option<u64>,
    ok: bool,
}

pub fn run(args: &ReplayArgs, left: &Path, right: &Path, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    let mut json = on_log(left, |a| on_log(right, |b| compare(args, (a, left), (b, right), services)))?;
    compare_snapshots(left, right, &mut json)?;
    let verdict = match (&json.differs, json.snapshot_differs) {
        (Some(differs), _) => {
            Err(Failure::failed(format!("the journals part at frame {}: {differs}", json.same_to + 1)))
        }
        (None, Some(seq)) => Err(Failure::failed(format!(
            "the snapshots after frame {seq} differ, and the frames up to there do not: a replica that is not deterministic, or \
             of another build"
        ))),
        (None, None) => Ok(()),
    };
    json.ok = verdict.is_ok();
    let printed = print(&json);
    if let Some(path) = &args.json {
        crate::json::write(path, &json)?;
    }
    printed_then(printed, verdict)
}

/// Reads both from the first frame that both have.
fn compare(
    args: &ReplayArgs,
    (a, left): (&Log, &Path),
    (b, right): (&Log, &Path),
    services: &[Box<dyn AnyService>],
) -> Result<Json, Failure> {
    let first = a.first_seq().max(b.first_seq());
    for (log, dir) in [(a, left), (b, right)] {
        if log.is_without_segments() || log.last_seq()? < first {
            return Err(Failure::usage(format!(
                "{}: has no frame {first}, with which the other begins: nothing to compare",
                dir.display()
            )));
        }
    }
    let (last, longest) = (args.until.map_or(Seq::MAX, Seq), a.last_seq()?.max(b.last_seq()?));
    if args.until.is_some_and(|until| until > longest.0) {
        return Err(no_end(left, last.0, first, longest));
    }
    if last < first {
        return Err(Failure::usage(format!(
            "--until {last}: the first frame that both have is {first}: nothing to compare"
        )));
    }
    let (mut ours, mut theirs) = (a.from(first)?, b.from(first)?);
    let (mut seq, mut differs) = (first, None);
    while seq <= last {
        let (Some(ours), Some(theirs)) =
            (ours.next().map_err(Failure::reading)?, theirs.next().map_err(Failure::reading)?)
        else {
            break;
        };
        let [ours, theirs] = [ours, theirs].map(|bytes| Frame::view(bytes).expect("the reader has checked it"));
        if ours != theirs {
            let service = a.service(services, args.service.as_deref())?.ok();
            differs = Some(describe(&ours, &theirs, service));
            break;
        }
        seq = seq.next();
    }
    Ok(Json {
        left: left.display().to_string(),
        right: right.display().to_string(),
        first: first.0,
        same_to: seq.0 - 1,
        left_last: a.last_seq()?.0,
        right_last: b.last_seq()?.0,
        parts_at: differs.is_some().then_some(seq.0),
        differs,
        snapshots_compared: 0,
        snapshot_differs: None,
        ok: false,
    })
}

fn describe(ours: &Frame<'_>, theirs: &Frame<'_>, service: Option<&dyn AnyService>) -> String {
    let mut what = Vec::new();
    if ours.kind != theirs.kind {
        what.push(format!("kind {:?} and {:?}", ours.kind, theirs.kind));
    }
    if ours.timestamp != theirs.timestamp {
        what.push(format!("time {} and {} ns", ours.timestamp.0, theirs.timestamp.0));
    }
    if ours.stream_id != theirs.stream_id {
        what.push(format!("stream {} and {}", ours.stream_id, theirs.stream_id));
    }
    if ours.payload != theirs.payload {
        let (a, b) = (ours.payload, theirs.payload);
        let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
        let inputs = [ours, theirs].map(|frame| service.map_or(String::new(), |service| service.describe_input(frame)));
        let [left, right] = &inputs;
        let shown = if left == right { String::new() } else { format!(" ({left} and {right})") };
        what.push(format!("payloads of {} and {} bytes from byte {at} on{shown}", a.len(), b.len()));
    }
    what.join(", ")
}

/// Those after frames up to where the journals are the same.
fn compare_snapshots(left: &Path, right: &Path, json: &mut Json) -> Result<(), Failure> {
    let sound = |dir: &Path| -> Result<Vec<SnapshotFile>, Failure> {
        let mut files = snapshots::look(dir, Depth::Header)?;
        files.retain(|file| file.header.is_ok() && file.seq.0 <= json.same_to);
        Ok(files)
    };
    let (ours, theirs) = (sound(left)?, sound(right)?);
    let meta = |file: &SnapshotFile| {
        file.header.as_ref().ok().map(|header| (header.meta.state_digest, header.meta.output_hash))
    };
    let pairs = ours.iter().filter_map(|a| Some((a, theirs.iter().find(|b| b.seq == a.seq)?)));
    let pairs: Vec<_> = pairs.collect();
    json.snapshots_compared = pairs.len();
    json.snapshot_differs = pairs.iter().find(|(a, b)| meta(a) != meta(b)).map(|(a, _)| a.seq.0);
    Ok(())
}

fn print(json: &Json) -> Result<(), Failure> {
    say!("left           {}: to frame {}", json.left, json.left_last)?;
    say!("right          {}: to frame {}", json.right, json.right_last)?;
    say!("the same       frames {} to {}", json.first, json.same_to)?;
    say!("snapshots      {} after the same frames", json.snapshots_compared)?;
    match (&json.differs, json.snapshot_differs) {
        (Some(differs), _) => say!("PARTS          at frame {}: {differs}", json.same_to + 1),
        (None, Some(seq)) => say!("PARTS          the snapshots after frame {seq}"),
        (None, None) => say!("verdict        the same, as far as both go"),
    }
}
