//! The shadow: a replica of the state that takes the snapshots, so that the live one never stands still for them.
//!
//! It reads the log behind the durable watermark, from the ring while it keeps up and from the journal after it was away
//! with a snapshot. Nothing waits for it: it is no gate of the ring. On another box than the leader's it is the executor: it stops
//! at commit, hands on what the service says, and takes snapshots only where that is wanted.
//!
//! Order of a poll: let the disk work on the snapshot that is being written, tell what is covered, apply a bounded batch;
//! at a mark, when no snapshot is being written, take the next.
//! Invariant: it applies only what is durable here, so no snapshot is ever ahead of the journal; and only what is committed, where
//! that is told apart.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use ticktape_core::{Frame, Kind, Nanos, Seq, Service};
use ticktape_journal::snapshot::{SnapshotError, SnapshotPace, SnapshotWriter};
use ticktape_journal::{Disk, FileDisk};
use ticktape_shm::{Follower, Horizon};

use crate::machine::{Machine, Progress, StepError};
use crate::mark::Mark;
use crate::snapshot::{RestoreFailure, Restored};
use crate::tail::{OpenDisk, Tail, TailError};
use crate::tails::Tails;

/// Frames applied in one poll: some ten microseconds' worth, as others may want the core.
const FRAMES_PER_POLL_MAX: usize = 64;

/// Up to where snapshots that were verified on disk make the log dispensable: one word from the shadow to the journaler.
#[derive(Clone, Debug, Default)]
pub struct Covered(Arc<CoveredWord>);

#[derive(Debug, Default)]
struct CoveredWord {
    seq: AtomicU64,
    gate: Mutex<()>,
    moved: Condvar,
}

impl Covered {
    fn set(&self, seq: Seq) {
        if self.get() == seq {
            // The writer works on at what it found before, and each wake-up is a call into the system.
            return;
        }
        // Release pairs with the Acquire in `get`: who deletes by it does so after the snapshot was made durable.
        self.0.seq.store(seq.0, Ordering::Release);
        // Whoever waits has the gate from its look at the word until it sleeps.
        drop(self.0.gate.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.moved.notify_all();
    }

    /// The last seq that the oldest retained and verified snapshot covers; 0 before there is one.
    pub fn get(&self) -> Seq {
        Seq(self.0.seq.load(Ordering::Acquire))
    }

    /// Waits until that is `seq` or later. False where it takes longer than `timeout`.
    pub fn wait_for(&self, seq: Seq, timeout: Duration) -> bool {
        let gate = self.0.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.moved.wait_timeout_while(gate, timeout, |()| self.get() < seq);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// Up to where a replica may apply what it has: one word from who hears the leader to who computes the state. Only grows.
#[derive(Clone, Debug)]
pub struct Committed(Arc<CommittedWords>);

#[derive(Debug)]
struct CommittedWords {
    seq: AtomicU64,
    /// When the leader spoke last, as far as is known here; 0 for never.
    leader_spoke_at: AtomicU64,
}

impl Committed {
    /// Nothing after `seq` yet.
    pub fn new(seq: Seq) -> Self {
        Committed(Arc::new(CommittedWords { seq: AtomicU64::new(seq.0), leader_spoke_at: AtomicU64::new(0) }))
    }

    /// The leader has spoken, at `at`.
    pub fn hear_leader(&self, at: Nanos) {
        // Relaxed, as is the load: it stands for itself.
        self.0.leader_spoke_at.fetch_max(at, Ordering::Relaxed);
    }

    /// When the leader spoke last, as far as is known here; 0 for never.
    pub fn leader_spoke_at(&self) -> Nanos {
        self.0.leader_spoke_at.load(Ordering::Relaxed)
    }

    /// Everything up to `seq` is.
    pub fn raise(&self, seq: Seq) {
        // Release pairs with the Acquire in `get`: whoever sees what is committed sees the epoch that it is of, too, in the log's table of
        // them. The frames come by the ring or the disk.
        self.0.seq.fetch_max(seq.0, Ordering::Release);
    }

    /// The last that is.
    pub fn get(&self) -> Seq {
        Seq(self.0.seq.load(Ordering::Acquire))
    }
}

/// What is told of each output, in order: the frame that caused it, and it.
pub type OnOutput<S> = Box<dyn FnMut(Seq, <S as Service>::Output) + Send>;

/// What sets the executor of a replica apart from the shadow beside a leader.
pub struct Replicating<S: Service> {
    /// Where it stops.
    pub committed: Committed,
    /// Who hears what the service says.
    pub on_output: Option<OnOutput<S>>,
}

/// Why a shadow can't go on.
#[derive(Debug)]
pub enum ShadowError {
    /// It computes something else than the log says, or can't apply it.
    Step(StepError),
    /// The log can't be read.
    Tail(TailError),
    /// The directory of the snapshots.
    Snapshots(SnapshotError),
    /// The state to go on from can't be had.
    Restore(RestoreFailure),
}

impl fmt::Display for ShadowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShadowError::Step(error) => error.fmt(f),
            ShadowError::Tail(error) => error.fmt(f),
            ShadowError::Snapshots(error) => error.fmt(f),
            ShadowError::Restore(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ShadowError {}

impl From<RestoreFailure> for ShadowError {
    fn from(error: RestoreFailure) -> Self {
        ShadowError::Restore(error)
    }
}

/// What a shadow did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShadowCounters {
    /// The last frame it applied.
    pub applied: u64,
    /// Snapshots written and verified.
    pub snapshots: u64,
    /// The last of them.
    pub last_snapshot: u64,
    /// Snapshots that could not be written.
    pub failed_snapshots: u64,
    /// How often it fell behind the ring, and went on from the journal.
    pub overruns: u64,
}

/// Where a shadow finds the log: in a ring, and behind it in the journal's directory, which snapshots go to as well.
pub struct Log<R: Disk = FileDisk> {
    /// The directory.
    pub dir: PathBuf,
    /// The ring, with the horizon of what is durable.
    pub ring: Follower,
    /// Where the journal is read.
    pub open_disk: OpenDisk<R>,
}

impl Log {
    /// In plain files.
    pub fn in_files(dir: &Path, ring: Follower) -> Self {
        Log { dir: dir.to_owned(), ring, open_disk: Box::new(FileDisk::new) }
    }
}

/// A replica that takes snapshots, which it writes to a disk `D`, and that reads the journal on disks `R`.
pub struct Shadow<S: Service, D: Disk, R: Disk = FileDisk> {
    tail: Tail<R>,
    state: State<S>,
    /// Where snapshots are taken.
    writer: Option<SnapshotWriter<D>>,
    /// Where a sequencer wants to know of them.
    digests: Option<rtrb::Producer<Mark>>,
    covered: Covered,
    committed: Option<Committed>,
    counters: ShadowCounters,
    snapshot_error: Option<String>,
}

struct State<S: Service> {
    machine: Machine<S>,
    tails: Tails,
    on_output: Option<OnOutput<S>>,
}

impl<S: Service, D: Disk, R: Disk> Shadow<S, D, R> {
    /// Goes on from `restored` along the log, and writes snapshots on `disk`: of the log that its machine was
    /// [told](Machine::set_log_id).
    ///
    /// # Errors
    /// [`ShadowError`]: the log can't be read from there on.
    pub fn open(
        log: Log<R>,
        disk: D,
        restored: Restored<S>,
        pace: SnapshotPace,
        digests: rtrb::Producer<Mark>,
        covered: Covered,
    ) -> Result<Self, ShadowError> {
        let dir = log.dir.clone();
        let mut shadow = Shadow::new(log, restored, covered)?;
        shadow.write_snapshots(&dir, disk, pace)?;
        shadow.digests = Some(digests);
        Ok(shadow)
    }

    /// The executor of a replica: as [`Shadow::open`], but it stops at commit. `snapshots` are written where given.
    ///
    /// # Errors
    /// As [`Shadow::open`].
    pub fn open_replica(
        log: Log<R>,
        restored: Restored<S>,
        replicating: Replicating<S>,
        snapshots: Option<(D, SnapshotPace)>,
        covered: Covered,
    ) -> Result<Self, ShadowError> {
        let dir = log.dir.clone();
        let mut shadow = Shadow::new(log, restored, covered)?;
        if let Some((disk, pace)) = snapshots {
            shadow.write_snapshots(&dir, disk, pace)?;
        }
        replicating.committed.raise(shadow.state.machine.applied());
        shadow.committed = Some(replicating.committed);
        shadow.state.on_output = replicating.on_output;
        Ok(shadow)
    }

    fn new(log: Log<R>, restored: Restored<S>, covered: Covered) -> Result<Self, ShadowError> {
        let Restored { machine, tails, .. } = restored;
        let from = machine.applied().next();
        let Log { dir, ring, open_disk } = log;
        let tail = Tail::beside_on(&dir, open_disk, ring, from, Horizon::Durable).map_err(ShadowError::Tail)?;
        Ok(Shadow {
            tail,
            state: State { machine, tails, on_output: None },
            writer: None,
            digests: None,
            covered,
            committed: None,
            counters: ShadowCounters::default(),
            snapshot_error: None,
        })
    }

    fn write_snapshots(&mut self, dir: &Path, disk: D, pace: SnapshotPace) -> Result<(), ShadowError> {
        let writer = SnapshotWriter::new(disk, dir, pace).map_err(ShadowError::Snapshots)?;
        self.writer = Some(writer.for_log(self.state.machine.log_id));
        Ok(())
    }

    /// One duty cycle; returns the frames applied plus the disk's work.
    ///
    /// # Errors
    /// [`ShadowError`]: the log and this replica disagree, or the log can't be read. It must not be polled again.
    pub fn poll(&mut self, now: Nanos) -> Result<usize, ShadowError> {
        let work = self.writer.as_mut().map_or(0, |writer| writer.poll(now));
        if work > 0 {
            self.look_at_the_writer();
        }
        Ok(work + self.apply()?)
    }

    fn look_at_the_writer(&mut self) {
        let Some(writer) = &mut self.writer else { return };
        if let Some(meta) = writer.take_written() {
            self.counters.snapshots += 1;
            self.counters.last_snapshot = meta.seq.0;
        }
        if writer.failures() > self.counters.failed_snapshots {
            self.counters.failed_snapshots = writer.failures();
            self.snapshot_error = writer.failed().map(ToString::to_string);
        }
        if let Some(seq) = writer.oldest_verified() {
            self.covered.set(seq);
        }
    }

    fn apply(&mut self) -> Result<usize, ShadowError> {
        let allowed = self
            .committed
            .as_ref()
            .map_or(u64::MAX, |committed| committed.get().0.saturating_sub(self.state.machine.applied().0));
        let most = usize::try_from(allowed).unwrap_or(usize::MAX).min(FRAMES_PER_POLL_MAX);
        let mut applied = 0;
        while applied < most {
            let (state, mut step, mut marked) = (&mut self.state, Ok(()), false);
            // One at a time: a snapshot is of the state right after its mark.
            let drained = self.tail.drain(1, |frame| {
                step = state.apply(frame);
                marked = frame.kind == Kind::SnapshotMark;
            });
            step.map_err(ShadowError::Step)?;
            if drained.map_err(ShadowError::Tail)? == 0 {
                break;
            }
            applied += 1;
            if marked {
                self.at_mark();
            }
        }
        self.counters.applied = self.state.machine.applied().0;
        self.counters.overruns = self.tail.overruns();
        Ok(applied)
    }

    fn at_mark(&mut self) {
        if self.writer.as_ref().is_some_and(|writer| !writer.is_busy()) {
            self.take_snapshot();
        } else if self.committed.is_some() {
            // What a mark to come says of this point is then compared with the state as well, not only with the outputs.
            let machine = &mut self.state.machine;
            machine.note_state_digest(machine.applied(), machine.state_digest());
        }
    }

    fn take_snapshot(&mut self) {
        let Some(writer) = &mut self.writer else { return };
        let State { machine, tails, .. } = &mut self.state;
        let snapshot = machine.to_snapshot_in(tails, writer.take_body().unwrap_or_default());
        let meta = snapshot.meta();
        machine.note_state_digest(meta.seq, meta.state_digest);
        let mark = Mark { at: meta.seq, state_digest: meta.state_digest, output_hash: meta.output_hash };
        if let Some(digests) = &mut self.digests {
            // Where the sequencer has not fetched the earlier ones, one more tells nobody more.
            let _ = digests.push(mark);
        }
        writer.begin(snapshot);
    }

    /// How far it is behind what is durable.
    pub fn frames_behind(&self) -> u64 {
        self.tail.durable().0.saturating_sub(self.state.machine.applied().0)
    }

    /// Whether no snapshot is being written, looked at or taken away.
    pub fn is_idle(&self) -> bool {
        self.writer.as_ref().is_none_or(SnapshotWriter::is_idle)
    }

    /// The state.
    pub fn machine(&self) -> &Machine<S> {
        &self.state.machine
    }

    /// What it did.
    pub fn counters(&self) -> ShadowCounters {
        self.counters
    }

    /// Why the last snapshot that failed did.
    pub fn snapshot_error(&self) -> Option<&str> {
        self.snapshot_error.as_deref()
    }
}

impl<S: Service> State<S> {
    fn apply(&mut self, frame: &Frame<'_>) -> Result<(), StepError> {
        loop {
            let progress = self.machine.step(frame)?;
            self.machine.outputs(frame.seq).for_each(|output| self.tails.push(&output));
            if let Some(on_output) = &mut self.on_output {
                self.machine.take_outputs().for_each(|output| on_output(frame.seq, output));
            }
            if progress == Progress::Applied {
                return Ok(());
            }
        }
    }
}
