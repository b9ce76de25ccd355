//! `ticktape follow`: attach to a running appliance from any terminal.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ticktape::snapshot::Found;
use ticktape::tail::{Tail, TailError};
use ticktape::{Frame, Kind, Seq};
use ticktape_journal::JournalError;
use ticktape_shm::layout::Header;
use ticktape_shm::metrics::{FollowerMetrics, FollowerStanding};
use ticktape_shm::{FollowError, Follower, Horizon};

use super::{follow_events, follow_feed};
use crate::Failure;
use crate::args::FollowArgs;
use crate::out::say;
use crate::service::{AnyReplay, AnyService, Keep, find};

/// Frames taken before the clock and the signal are looked at.
const BATCH: usize = 1024;
/// The wait when there is nothing new: a terminal's reader is in no hurry.
const PAUSE: Duration = Duration::from_millis(1);
/// Said at the end of a log.
const WRITER_GONE: &str = "the appliance has stopped, or was killed; everything it committed was read";
/// How often a log that loses its beginning meanwhile is begun anew: a snapshot takes seconds, beginning from one far less.
const BEGIN_TRIES: u32 = 8;
/// Between two lines of output.
const LINE_EVERY: Duration = Duration::from_secs(1);

pub fn run(args: &FollowArgs, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).map_err(Failure::failed)?;
    }
    if let Some(feed) = args.feed {
        return follow_feed::run(args, feed, &stop, services);
    }
    if let Some(events) = args.events {
        return follow_events::run(args, events, &stop, services);
    }
    let mut progress = Progress {
        seq: Seq::ZERO,
        kinds: BTreeMap::new(),
        frames: 0,
        frames_max: args.frames,
        overruns: 0,
        frames_lost: 0,
        seen: seen(args),
    };
    match &args.journal {
        Some(journal) => {
            let service = find(services, args.service.as_deref())?;
            with_state(args, journal, service, &mut progress, &stop)
        }
        None => frames_only(args, &mut progress, &stop),
    }
}

fn cannot_attach(args: &FollowArgs, error: &dyn std::error::Error) -> Failure {
    Failure::usage(format!("{} in {}: {error}", ring(args), args.ring_dir.display()))
}

/// The ring's name. The command line has one where there is no feed.
fn ring(args: &FollowArgs) -> &str {
    args.ring.as_deref().unwrap_or_default()
}

/// Where others look at it. Where the name is not to be had it follows without being looked at.
fn seen(args: &FollowArgs) -> Option<FollowerMetrics> {
    if args.no_metrics {
        return None;
    }
    let dir = Path::new(ticktape_shm::DEFAULT_DIR);
    let made = match &args.metrics {
        Some(name) => FollowerMetrics::named(dir, name, ring(args)),
        None => FollowerMetrics::numbered(dir, ring(args)),
    };
    made.inspect_err(|error| eprintln!("ticktape: top does not see this follower: {error}")).ok()
}

struct Progress {
    seq: Seq,
    kinds: BTreeMap<Kind, u64>,
    frames: u64,
    frames_max: Option<u64>,
    overruns: u64,
    frames_lost: u64,
    /// Where others look at it.
    seen: Option<FollowerMetrics>,
}

impl Progress {
    fn note(&mut self, frame: &Frame<'_>) {
        self.seq = frame.seq;
        self.frames += 1;
        *self.kinds.entry(frame.kind).or_default() += 1;
    }

    fn is_done(&self, stop: &AtomicBool) -> bool {
        stop.load(Ordering::Relaxed) || self.frames_max.is_some_and(|max| self.frames >= max)
    }

    /// Shows where it stands: behind everything before `next`.
    fn show(&mut self, ring: &Header, next: Seq) {
        let (overruns, frames_lost) = (self.overruns, self.frames_lost);
        if let Some(seen) = &mut self.seen {
            seen.show(ring, FollowerStanding { seq: next.0.saturating_sub(1), overruns, frames_lost });
        }
    }

    fn batch(&self) -> usize {
        self.frames_max.map_or(BATCH, |max| (max - self.frames).min(BATCH as u64) as usize)
    }

    fn line(&self) -> String {
        let kinds: Vec<String> = self.kinds.iter().map(|(kind, count)| format!("{kind:?} {count}")).collect();
        format!("seq {}  frames {}  {}", self.seq, self.frames, kinds.join("  "))
    }
}

fn with_state(
    args: &FollowArgs,
    journal: &Path,
    service: &dyn AnyService,
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let (mut tail, mut replay) = begin(args, journal, service)?;
    let mut line_at = Instant::now() + LINE_EVERY;
    while !progress.is_done(stop) {
        progress.overruns = tail.overruns();
        progress.show(tail.ring_header(), tail.next_seq());
        let mut failure = None;
        let drained = tail.drain(progress.batch(), |frame| {
            progress.note(frame);
            if failure.is_none() {
                failure = replay.apply(frame).err();
            }
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        match drained {
            Ok(0) => {
                std::thread::sleep(PAUSE);
                tail.check_writer();
            }
            Ok(_) => {}
            Err(TailError::Ended) => {
                say!("{WRITER_GONE}")?;
                break;
            }
            Err(error) => return Err(Failure::failed(error)),
        }
        if Instant::now() >= line_at {
            line_at += LINE_EVERY;
            say!("{}  overruns {}", progress.line(), tail.overruns())?;
        }
    }
    finish_state(progress, &*replay, tail.overruns())
}

/// The log from the newest snapshot on, or from its beginning, and the state there.
fn begin<'a>(
    args: &FollowArgs,
    journal: &Path,
    service: &'a dyn AnyService,
) -> Result<(Tail, Box<dyn AnyReplay + 'a>), Failure> {
    let mut tries = 0;
    loop {
        let found = Found::newest(journal, Seq::MAX).map_err(Failure::usage)?;
        let (replay, begun) = service.replay_from(found, journal, Keep::Nothing)?;
        let from = replay.seq().next();
        match Tail::open(journal, &args.ring_dir, ring(args), from, Horizon::Committed) {
            // The appliance has taken a newer snapshot meanwhile, and given up what this one goes on with.
            Err(TailError::Journal(JournalError::TooOld { .. })) if tries < BEGIN_TRIES => tries += 1,
            Err(error) => return Err(Failure::usage(error)),
            Ok(tail) => {
                begun.say()?;
                return Ok((tail, replay));
            }
        }
    }
}

fn finish_state(progress: &Progress, replay: &dyn AnyReplay, overruns: u64) -> Result<(), Failure> {
    say!("{}  overruns {overruns}", progress.line())?;
    say!("state at seq {}: {}", replay.seq(), replay.digest())
}

fn frames_only(args: &FollowArgs, progress: &mut Progress, stop: &AtomicBool) -> Result<(), Failure> {
    let mut follower = Follower::attach_live(&args.ring_dir, ring(args), Horizon::Committed)
        .map_err(|error| cannot_attach(args, &error))?;
    say!("attached to {} at seq {}, epoch {}", ring(args), follower.next_seq(), follower.epoch())?;
    let mut line_at = Instant::now() + LINE_EVERY;
    while !progress.is_done(stop) {
        progress.show(follower.header(), follower.next_seq());
        let drained = follower.drain(progress.batch(), |bytes| {
            if let Ok(frame) = Frame::decode(bytes) {
                progress.note(&frame);
            }
        });
        match drained {
            Ok(0) => {
                std::thread::sleep(PAUSE);
                // What it finds is met by the next drain that has nothing to hand on.
                let _ = follower.check_writer();
            }
            Ok(_) => {}
            Err(error @ FollowError::Overrun { from, to }) => {
                progress.overruns += 1;
                progress.frames_lost += to.0 - from.0;
                say!("{error}")?;
            }
            Err(FollowError::WriterGone) => {
                say!("{WRITER_GONE}")?;
                break;
            }
            Err(error) => return Err(Failure::failed(error)),
        }
        if Instant::now() >= line_at {
            line_at += LINE_EVERY;
            say!("{}", progress.line())?;
        }
    }
    say!("{}", progress.line())
}
