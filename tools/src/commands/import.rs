//! `ticktape import`: copies a journal, of whichever version, into a new one of the current version.
//!
//! Invariant: DST appears under its name only when it is whole, durable, and was compared with SRC frame by frame. Until then it
//! is DST.importing.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use ticktape::snapshot::Found;
use ticktape::{Frame, Kind, Seq};
use ticktape_core::frame;
use ticktape_journal::inspect::Fact;
use ticktape_journal::{FileDisk, FrameRun, Journal, JournalConfig, JournalReader, is_live, names, snapshot};

use crate::Failure;
use crate::args::ImportArgs;
use crate::log::Log;
use crate::out::say;
use crate::snapshots::{self, Depth};
use crate::survey::Survey;

#[derive(Debug, Default, Serialize)]
struct Json {
    src: String,
    dst: String,
    /// The oldest version among the segments of SRC.
    src_version: u32,
    first_seq: u64,
    last_seq: u64,
    frames: u64,
    /// Recorded firings of timers, which became ticks.
    timers_to_ticks: u64,
    snapshots: u64,
    /// Whether SRC ends in a tail that was never acknowledged, and was not copied.
    torn_tail: bool,
}

/// What a first look at SRC says.
struct Source<'a> {
    dir: &'a Path,
    log: Log,
    frame_bytes_max: usize,
    last_seq: Seq,
}

pub fn run(args: &ImportArgs) -> Result<(), Failure> {
    let mut json = Json { src: text(&args.src), dst: text(&args.dst), ..Json::default() };
    refuse_destination(&args.dst)?;
    let source = look(&args.src, &mut json)?;
    let aside = aside(&args.dst)?;
    refuse_leftovers(&aside)?;
    let copied = copy(&source, &aside, &mut json)
        .and_then(|()| compare(&source, &aside))
        .and_then(|()| finish(&aside, &args.dst));
    if let Err(failure) = copied {
        // Best as it can: under this name it says itself that it is not whole.
        let _ = fs::remove_dir_all(&aside);
        return Err(failure);
    }
    if args.json { say!("{}", crate::json::line(&json)?) } else { print(&json) }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn refuse_destination(dst: &Path) -> Result<(), Failure> {
    let refuse =
        |what: String| Err(Failure::usage(format!("{}: {what}: give a new or empty directory", dst.display())));
    match fs::read_dir(dst).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => refuse("not empty".to_string()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => refuse(error.to_string()),
    }
}

fn aside(dst: &Path) -> Result<PathBuf, Failure> {
    let name =
        dst.file_name().ok_or_else(|| Failure::usage(format!("{}: give a directory by its name", dst.display())))?;
    let mut name = OsString::from(name);
    name.push(".importing");
    Ok(dst.with_file_name(name))
}

fn refuse_leftovers(aside: &Path) -> Result<(), Failure> {
    match fs::symlink_metadata(aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::usage(format!("{}: {error}", aside.display()))),
        Ok(_) => Err(Failure::usage(format!(
            "{}: another import is under way, or was interrupted and left an incomplete journal: then delete it and import again",
            aside.display()
        ))),
    }
}

/// Checks all of SRC before anything is made.
fn look<'a>(dir: &'a Path, json: &mut Json) -> Result<Source<'a>, Failure> {
    if dir.exists() && !dir.is_dir() {
        return Err(Failure::usage(format!("{}: a file; give the journal's directory", dir.display())));
    }
    if is_live(dir).map_err(Failure::usage)? {
        let what = "in use by another process; stop it first, so that the copy is of all of it";
        return Err(Failure::usage(format!("journal {}: {what}", dir.display())));
    }
    let (mut frame_bytes_max, mut timers) = (0, 0);
    let survey = Survey::of(dir, &mut |fact| {
        if let Fact::Frame { frame, .. } = fact {
            frame_bytes_max = frame_bytes_max.max(frame.bytes());
            timers += u64::from(frame.kind == Kind::TimerFired);
        }
    });
    let survey = survey.map_err(Failure::usage)?;
    if let Some(complaint) = survey.complaint(dir) {
        return Err(Failure::failed(complaint));
    }
    let (Some(first), Some(last_seq)) = (survey.summary.first_seq, survey.summary.last_seq) else {
        return Err(Failure::usage(format!("{}: there are no frames in this journal", dir.display())));
    };
    let log = Log::open(dir)?;
    // What the snapshot has beyond the log's end was acknowledged, and would be left out.
    log.check_end()?;
    // A log without its beginning and without a snapshot would be of no use to anyone.
    log.oldest()?;
    json.src_version = survey.segments.iter().map(|segment| segment.version).min().unwrap_or_default();
    (json.first_seq, json.last_seq, json.frames) = (first.0, last_seq.0, survey.summary.frames);
    (json.timers_to_ticks, json.torn_tail) = (timers, survey.summary.torn > 0);
    Ok(Source { dir, log, frame_bytes_max, last_seq })
}

/// Makes the new journal aside.
fn copy(source: &Source<'_>, aside: &Path, json: &mut Json) -> Result<(), Failure> {
    fs::create_dir_all(aside).map_err(|error| Failure::usage(format!("{}: {error}", aside.display())))?;
    json.snapshots = copy_snapshots(source, aside)?;
    let commit_bytes_max = JournalConfig::commit_bytes_for(frame::padded(source.frame_bytes_max));
    let default = JournalConfig::default();
    // The same log, so that its snapshots go on being of it.
    let log_id = Found::newest(source.dir, source.last_seq).map_err(Failure::failed)?.log_id();
    let config = JournalConfig {
        commit_bytes_max: default.commit_bytes_max.max(commit_bytes_max),
        segment_bytes: default.segment_bytes.max(2 * commit_bytes_max.next_power_of_two()),
        log_id,
        ..default
    };
    let covered = Seq(source.log.first_seq().0 - 1);
    let (journal, _) = Journal::open_covered(FileDisk::new(), aside, config, covered).map_err(Failure::failed)?;
    let mut writer = Writer { journal, now: 0, bytes: Vec::new() };
    let mut reader = source.log.from(source.log.first_seq())?;
    while let Some(run) = reader.next_run().map_err(Failure::failed)? {
        writer.journal.set_epoch(run.epoch);
        for bytes in run {
            writer.append(&imported(bytes))?;
        }
    }
    writer.journal.close().map_err(Failure::failed)
}

/// A frame as it stands in the new journal.
fn imported(bytes: &[u8]) -> Frame<'_> {
    let frame = Frame::view(bytes).expect("the reader has checked it");
    match frame.kind {
        // Whoever applies the log fires timers itself; what is left of the record is that time had come to there.
        Kind::TimerFired => Frame { kind: Kind::Tick, payload: &[], ..frame },
        _ => frame,
    }
}

struct Writer {
    journal: Journal<FileDisk>,
    /// Only paces the zero-filling.
    now: u64,
    bytes: Vec<u8>,
}

impl Writer {
    fn append(&mut self, frame: &Frame<'_>) -> Result<(), Failure> {
        self.bytes.clear();
        frame.append_to(&mut self.bytes);
        self.bytes.resize(frame::padded(self.bytes.len()), 0);
        while !self.journal.room(self.bytes.len()) {
            if let Some(error) = self.journal.failed().or(self.journal.starved()) {
                return Err(Failure::failed(error));
            }
            self.now += 1_000_000;
            self.journal.poll(self.now);
            self.journal.housekeeping(self.now);
        }
        self.journal.append(frame.seq, &self.bytes);
        Ok(())
    }
}

/// Copies the sound snapshots that the log goes on from; returns how many.
fn copy_snapshots(source: &Source<'_>, aside: &Path) -> Result<u64, Failure> {
    let of_the_log = Seq(source.log.first_seq().0 - 1)..=source.last_seq;
    let mut copied = 0;
    for file in snapshots::look(source.dir, Depth::Header)? {
        if file.header.is_err() || !of_the_log.contains(&file.seq) {
            continue;
        }
        let to = names::snapshot(aside, file.seq);
        let failed = |error: io::Error| Failure::failed(format!("{}: {error}", to.display()));
        fs::copy(&file.path, &to).and_then(|_| fs::File::open(&to)?.sync_all()).map_err(failed)?;
        snapshot::verify(&to).map_err(Failure::failed)?;
        copied += 1;
    }
    Ok(copied)
}

/// Reads both again: every frame the same, in the same epoch, and none more.
fn compare(source: &Source<'_>, aside: &Path) -> Result<(), Failure> {
    let differs =
        |seq: Seq| Failure::failed(format!("{}: seq {seq} is not what SRC has; import again", aside.display()));
    let first = source.log.first_seq();
    let mut theirs = source.log.from(first)?;
    let mut ours = JournalReader::open(aside, first).map_err(Failure::failed)?;
    let mut run: Option<FrameRun<'_>> = None;
    let mut next_seq = first;
    while let Some(of_theirs) = theirs.next_run().map_err(Failure::failed)? {
        let epoch = of_theirs.epoch;
        for bytes in of_theirs {
            let copy = loop {
                if let Some(copy) = run.as_mut().and_then(|run| Some((run.epoch, run.next()?))) {
                    break Some(copy);
                }
                run = ours.next_run().map_err(Failure::failed)?;
                if run.is_none() {
                    break None;
                }
            };
            let same = copy.is_some_and(|(copy_epoch, copy)| {
                copy_epoch == epoch && Frame::decode(copy).is_ok_and(|copy| copy == imported(bytes))
            });
            if !same {
                return Err(differs(next_seq));
            }
            next_seq = next_seq.next();
        }
    }
    let is_over = run.is_none_or(|mut run| run.next().is_none()) && ours.next().map_err(Failure::failed)?.is_none();
    if is_over && next_seq == source.last_seq.next() { Ok(()) } else { Err(differs(next_seq)) }
}

/// Gives the whole journal its name.
fn finish(aside: &Path, dst: &Path) -> Result<(), Failure> {
    let parent = dst.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(aside)
        .and_then(|dir| dir.sync_all())
        .and_then(|()| fs::rename(aside, dst))
        .and_then(|()| fs::File::open(parent)?.sync_all())
        .map_err(|error| Failure::failed(format!("{}: {error}", dst.display())))
}

fn print(json: &Json) -> Result<(), Failure> {
    let Json { src, dst, src_version, first_seq, last_seq, frames, timers_to_ticks, snapshots, .. } = json;
    say!("imported       {src} (version {src_version}) into {dst}: {frames} frames, seq {first_seq} to {last_seq}")?;
    if *timers_to_ticks > 0 {
        say!(
            "timers         {timers_to_ticks} recorded firings became ticks of the same seq and time: whoever applies the log fires \
             timers itself"
        )?;
    }
    if *snapshots > 0 {
        say!("snapshots      {snapshots} copied")?;
    }
    if json.torn_tail {
        say!("torn tail      that nothing here proves to have been acknowledged, not copied")?;
    }
    say!("compared       frame by frame with {src}: the same")
}
