//! `ticktape compact`: gives up the part of a log that a snapshot covers, while nobody writes it.
//!
//! Invariant: what goes is covered by the oldest kept snapshot, which was read back whole and found sound.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use ticktape::snapshot::Found;
use ticktape::{Frame, Seq};
use ticktape_journal::limits::SEGMENT_BYTES_MIN;
use ticktape_journal::{
    FileDisk, Journal, JournalConfig, JournalError, Snapshot, SnapshotPace, SnapshotWriter, is_live,
};

use crate::Failure;
use crate::args::CompactArgs;
use crate::log::Log;
use crate::out::say;
use crate::service::{AnyService, Keep};
use crate::snapshots::{self, Depth, SnapshotFile};
use crate::survey::Survey;

#[derive(Default, Serialize)]
struct Json {
    journal: String,
    dry_run: bool,
    snapshot_taken: Option<u64>,
    /// What is at or below it may go.
    covered_seq: u64,
    kept_snapshots: Vec<u64>,
    /// Snapshots that are not sound, and why: they cover nothing and count for nothing.
    rotten_snapshots: Vec<String>,
    /// Whether there never were as many as are to be kept.
    fewer_than_asked: bool,
    freed_files: Vec<String>,
    freed_bytes: u64,
    first_seq: u64,
}

impl Json {
    fn note(&mut self, args: &CompactArgs, snapshots: &[SnapshotFile]) {
        self.rotten_snapshots =
            snapshots.iter().filter_map(|file| Some(file.header.as_ref().err()?.to_string())).collect();
        self.fewer_than_asked = snapshots.len() - self.rotten_snapshots.len() < usize::from(args.keep);
    }
}

pub fn run(args: &CompactArgs, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    let log = Log::open(&args.dir)?;
    if is_live(&args.dir).map_err(Failure::failed)? {
        return Err(in_use(&args.dir));
    }
    let mut json = Json { journal: args.dir.display().to_string(), dry_run: args.dry_run, ..Json::default() };
    let service = args.snapshot.then(|| log.service(services, args.service.as_deref())).transpose()?;
    let service = service.transpose().map_err(Failure::usage)?;
    log.check_end()?;
    if service.is_none() {
        let snapshots = snapshots::look(&args.dir, Depth::Whole)?;
        check_enough(args, &log, &snapshots)?;
        json.note(args, &snapshots);
    }
    let before = files(&args.dir)?;
    let goes = if args.dry_run {
        dry_run(args, &log, &mut json)?
    } else {
        compact(args, &log, service, &mut json)?;
        let after = files(&args.dir)?;
        before.keys().filter(|file| !after.contains_key(*file)).cloned().collect()
    };
    json.freed_bytes = goes.iter().filter_map(|file| before.get(file)).sum();
    json.freed_files = goes.iter().map(|file| file.display().to_string()).collect();
    if args.json { say!("{}", crate::json::line(&json)?) } else { print(&json) }
}

fn in_use(dir: &Path) -> Failure {
    Failure::usage(format!(
        "journal {}: in use by another process; stop it, or let it compact by itself ([snapshots] compact = true)",
        dir.display()
    ))
}

/// Snapshots and segments, spares among them, with their sizes.
fn files(dir: &Path) -> Result<BTreeMap<PathBuf, u64>, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", dir.display()));
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|kind| kind == "seg" || kind == "spare" || kind == "snap") {
            let bytes = std::fs::metadata(&path).map_err(failed)?.len();
            files.insert(path, bytes);
        }
    }
    Ok(files)
}

/// Refuses to give anything up where fewer snapshots are sound than are to be kept; unless there never were as many.
fn check_enough(args: &CompactArgs, log: &Log, snapshots: &[SnapshotFile]) -> Result<(), Failure> {
    let rotten: Vec<_> = snapshots.iter().filter_map(|snapshot| snapshot.header.as_ref().err()).collect();
    let sound = snapshots.len() - rotten.len();
    if sound == 0 {
        // Where the log's beginning is gone, too, there is no state that a snapshot could be taken of.
        return log.oldest().and(Err(no_snapshot(args)));
    }
    if sound >= usize::from(args.keep) || rotten.is_empty() {
        return Ok(());
    }
    let not_sound: String = rotten.iter().map(|error| format!("; not sound: {error}")).collect();
    Err(Failure::failed(format!(
        "{}: of the {} snapshots to keep {sound} are sound, nothing was given up; take another with --snapshot, or give --keep \
         {sound}{not_sound}",
        args.dir.display(),
        args.keep
    )))
}

fn no_snapshot(args: &CompactArgs) -> Failure {
    let dir = args.dir.display();
    Failure::usage(format!(
        "{dir}: no sound snapshot covers anything, nothing was deleted; `compact {dir} --snapshot --service NAME` takes one first"
    ))
}

/// What would go, as [`Journal::release_before`] decides: whole segments, though never the newest that holds anything.
fn dry_run(args: &CompactArgs, log: &Log, json: &mut Json) -> Result<Vec<PathBuf>, Failure> {
    let snapshots = snapshots::look(&args.dir, Depth::Whole)?;
    let mut sound: Vec<_> = snapshots.iter().filter(|snapshot| snapshot.header.is_ok()).collect();
    let is_enough = sound.len() >= usize::from(args.keep);
    let surplus = sound.len().saturating_sub(usize::from(args.keep));
    let retired: Vec<_> = sound.drain(..surplus).collect();
    let covered = sound.first().ok_or_else(|| no_snapshot(args))?.seq;
    // What is older than the kept ones goes, too, if it is not sound.
    let rotten = snapshots.iter().filter(|snapshot| is_enough && snapshot.header.is_err() && snapshot.seq < covered);
    let mut goes: Vec<PathBuf> = retired.into_iter().chain(rotten).map(|snapshot| snapshot.path.clone()).collect();
    let survey = Survey::of(&args.dir, &mut |_| {}).map_err(Failure::failed)?;
    if let Some(complaint) = survey.complaint(&args.dir) {
        return Err(Failure::failed(complaint));
    }
    json.covered_seq = covered.0;
    json.kept_snapshots = sound.iter().map(|snapshot| snapshot.seq.0).collect();
    json.first_seq = log.first_seq().0;
    let held: Vec<_> = survey.segments.iter().filter(|segment| segment.frames > 0).collect();
    for (segment, next) in held.iter().zip(held.iter().skip(1)) {
        if segment.next_seq > covered.next().0 {
            break;
        }
        goes.push(PathBuf::from(&segment.file));
        json.first_seq = next.first_seq;
    }
    goes.extend(survey.spares.iter().map(|spare| PathBuf::from(&spare.file)));
    goes.sort();
    Ok(goes)
}

fn compact(args: &CompactArgs, log: &Log, service: Option<&dyn AnyService>, json: &mut Json) -> Result<(), Failure> {
    let found = Found::newest(&args.dir, Seq::MAX).map_err(Failure::failed)?;
    // No segment is of this size: none is kept as a spare, all that are given up are deleted.
    let config = JournalConfig {
        segment_bytes: SEGMENT_BYTES_MIN.max(ODD_SEGMENT_BYTES),
        commit_bytes_max: 64 << 10,
        log_id: found.log_id(),
        ..JournalConfig::default()
    };
    let open = || Journal::open_covered(FileDisk::new(), &args.dir, config.clone(), found.covered());
    let opened = match open() {
        // Opening it takes room for a segment, and where there is none that is what this is for.
        Err(JournalError::NoSpace { .. }) => {
            make_room(args, log)?;
            open()
        }
        opened => opened,
    };
    let (mut journal, _) = opened.map_err(|error| match error {
        JournalError::InUse { .. } => in_use(&args.dir),
        error => Failure::failed(error),
    })?;
    let taken = service.map(|service| snapshot_at_end(args, log, service)).transpose()?;
    json.snapshot_taken = taken.as_ref().map(|snapshot| snapshot.meta().seq.0);
    let is_taken = taken.is_some();
    json.covered_seq = retain(args, taken, journal.log_id())?.0;
    if is_taken && let Err(failure) = check_enough(args, log, &snapshots::look(&args.dir, Depth::Whole)?) {
        journal.close().map_err(Failure::failed)?;
        return Err(failure);
    }
    journal.release_before(Seq(json.covered_seq).next());
    let mut now = 0;
    loop {
        now += STEP_NS;
        let done = journal.poll(now) + journal.housekeeping(now);
        if let Some(error) = journal.failed() {
            return Err(Failure::failed(error));
        }
        if done == 0 && !journal.has_chores() {
            break;
        }
    }
    json.first_seq = journal.first_seq().0;
    journal.close().map_err(Failure::failed)?;
    let kept = snapshots::look(&args.dir, Depth::Whole)?;
    json.kept_snapshots = kept.iter().filter(|kept| kept.header.is_ok()).map(|kept| kept.seq.0).collect();
    if is_taken {
        json.note(args, &kept);
    }
    Ok(())
}

/// Deletes what a compaction is to delete of segments, the oldest first, so that whoever is killed meanwhile leaves a log that begins later.
fn make_room(args: &CompactArgs, log: &Log) -> Result<(), Failure> {
    let goes = dry_run(args, log, &mut Json::default())?;
    let is_kind = |path: &&PathBuf, kind: &str| path.extension().is_some_and(|extension| extension == kind);
    let spares = goes.iter().filter(|path| is_kind(path, "spare"));
    let files: Vec<_> = spares.chain(goes.iter().filter(|path| is_kind(path, "seg"))).collect();
    let deleted = ticktape_journal::while_locked(&args.dir, || {
        files.iter().try_for_each(|path| {
            std::fs::remove_file(path).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
        })
    });
    deleted.map_err(|error| match error {
        JournalError::InUse { .. } => in_use(&args.dir),
        error => Failure::failed(error),
    })?
}

/// A step of the time that paces chores: many fit between two looks at the segment, which would otherwise never end.
const STEP_NS: u64 = 10_000_000;

/// A size that nobody chooses, so that no segment fits as a spare.
const ODD_SEGMENT_BYTES: usize = 37 * 4096;

fn snapshot_at_end(args: &CompactArgs, log: &Log, service: &dyn AnyService) -> Result<Snapshot, Failure> {
    let (mut replay, _) = service.replay_from(log.newest(Seq::MAX)?, &args.dir, Keep::Tails)?;
    let mut reader = log.from(replay.seq().next())?;
    while let Some(bytes) = reader.next().map_err(Failure::failed)? {
        replay.apply(&Frame::view(bytes).expect("the reader has checked it"))?;
    }
    if replay.seq() == Seq::ZERO {
        return Err(Failure::usage(format!(
            "{}: there is nothing in the log to take a snapshot of",
            args.dir.display()
        )));
    }
    Ok(replay.snapshot())
}

/// Writes the snapshot, reads every one back, and deletes those that are more than enough. Returns what the oldest that is
/// left covers.
fn retain(args: &CompactArgs, taken: Option<Snapshot>, log_id: u64) -> Result<Seq, Failure> {
    let pace = SnapshotPace { bytes_per_ms: usize::MAX, retain: usize::from(args.keep) };
    let writer = SnapshotWriter::new(FileDisk::new(), &args.dir, pace).map_err(Failure::failed)?;
    let mut writer = writer.for_log(log_id);
    let is_taken = taken.is_some();
    if let Some(snapshot) = taken {
        writer.begin(snapshot);
    }
    let mut now = 0;
    while !writer.is_idle() {
        now += STEP_NS;
        writer.poll(now);
        writer.wait();
        if let Some(error) = writer.failed() {
            return Err(Failure::failed(error));
        }
    }
    if is_taken && writer.take_written().is_none() {
        return Err(Failure::failed(format!("{}: the snapshot was not written", args.dir.display())));
    }
    writer.oldest_verified().ok_or_else(|| no_snapshot(args))
}

fn print(json: &Json) -> Result<(), Failure> {
    if let Some(seq) = json.snapshot_taken {
        say!("snapshot       taken after seq {seq}")?;
    }
    let kept: Vec<String> = json.kept_snapshots.iter().map(ToString::to_string).collect();
    say!("kept           {} snapshots, after seq {}", kept.len(), kept.join(", "))?;
    if json.fewer_than_asked {
        say!("fewer          than were asked for: no more were taken yet")?;
    }
    json.rotten_snapshots.iter().try_for_each(|reason| say!("not sound      {reason}"))?;
    let verb = if json.dry_run { "would go" } else { "gone" };
    json.freed_files.iter().try_for_each(|file| say!("{verb:14} {file}"))?;
    say!(
        "{:14} {} files, {} bytes; the log {} at seq {}",
        if json.dry_run { "would free" } else { "freed" },
        json.freed_files.len(),
        json.freed_bytes,
        if json.dry_run { "would begin" } else { "begins" },
        json.first_seq
    )
}
