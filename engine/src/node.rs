//! The embedded node: a service with its journal, in your own process and on your own thread.
//!
//! It polls the same stages that an appliance pins to cores, one after the other.
//!
//! Invariant: an input is sequenced only when ring and journal have room for it, so what is sequenced can be made durable.
//! Invariant: a step that failed is the last one; from then on every call gives the same error and sequences nothing.

mod config;
mod error;

use std::path::Path;

use ticktape_core::frame::{frame_bytes, padded};
use ticktape_core::{Encode, Frame, Kind, Nanos, Seq, Service, Timestamp};
use ticktape_journal::snapshot::{SnapshotPace, SnapshotWriter};
use ticktape_journal::{Binding, Journal, JournalConfig, JournalReader, NativeDisk, Recovered};
use ticktape_shm::{Consumer, RingBuilder};
use ticktape_tuning::clock;

pub use config::{NodeConfig, SyncPolicy};
pub use error::NodeError;

use crate::journaler::Journaler;
use crate::log::{LogWriter, SequencedClock};
use crate::machine::{Machine, Progress, StepError};
use crate::mark::Mark;
use crate::metrics::{Arrivals, Part, StageLatency};
use crate::snapshot::Found;
use crate::tails::Tails;

/// The stream that embedded inputs carry.
const STREAM_ID: u16 = 1;

/// Inputs between two looks at the disk where nobody waits for it. A look costs a system call when a write is due, so
/// fewer inputs a look are slower; more leave more of the log in memory only.
const INPUTS_PER_POLL: u32 = 64;

/// The same in time, for inputs that come one by one, in nanoseconds: about what a fast disk takes for a write.
const POLL_DELAY_NS: Nanos = 100_000;

/// Inputs between two looks at the journal's housekeeping: rare enough to cost nothing, often enough to stay ahead.
const INPUTS_PER_HOUSEKEEPING: u32 = 64;

/// How often sequenced time is compared with realtime, in nanoseconds. The clock is steered by the second.
const REALTIME_CHECK_NS: Nanos = 1_000_000_000;

/// Polls of the disk that may find nothing before the wait gives the processor to someone else.
const IDLE_POLLS_MAX: u32 = 64;

/// How long a sync is waited for in a spin before it is waited for in the kernel, in nanoseconds. Fast disks are done by then,
/// and a wake-up would cost them tens of microseconds; longer would keep the processor from those who complete the write.
const SYNC_SPIN_NS: Nanos = 500_000;

/// Where an input went in the order, and what the service answered.
type Applied<S> = (Seq, Vec<<S as Service>::Output>);

/// What a replay found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The last seq replayed.
    pub seq: Seq,
    /// The digest of the state there: lowercase hex SHA-256 of the snapshot's canonical encoding.
    pub digest: String,
}

type Subscriber<O> = Box<dyn FnMut(Seq, &O) + Send>;

/// A service with its journal.
pub struct Node<S: Service> {
    config: NodeConfig,
    service_config: S::Config,
    log: LogWriter,
    /// Taken on drop.
    journaler: Option<Journaler<NativeDisk>>,
    frames: Consumer,
    machine: Machine<S>,
    recovered: Recovered,
    passed_over: Vec<String>,
    subscribers: Vec<Subscriber<S::Output>>,
    encoded: Vec<u8>,
    failed: Option<StepError>,
    /// The digests of the latest snapshot, for the next mark.
    mark: Mark,
    /// What the oldest retained snapshot covers, as far as this node knows.
    covered: Seq,
    unsynced_since: Option<Nanos>,
    polled_at: Nanos,
    inputs_since_poll: u32,
    inputs_since_housekeeping: u32,
    realtime_checked_at: Nanos,
}

impl<S: Service> Node<S> {
    /// Opens the journal, rebuilds the state by replay, and is ready to go on.
    ///
    /// # Errors
    /// [`NodeError`]: bad settings, a journal in use by another process, damage in acknowledged data, a service that can't
    /// apply what is in the log.
    pub fn open(config: NodeConfig, service_config: S::Config) -> Result<Self, NodeError> {
        config.validate()?;
        let found = Found::newest(&config.dir, Seq::MAX)?;
        let disk = NativeDisk::new(&config.dir, Binding::AnyThread);
        let of_this_log = JournalConfig { log_id: found.log_id(), ..config.journal.clone() };
        let (mut journal, recovered) = Journal::open_covered(disk, &config.dir, of_this_log, found.covered())?;
        journal.set_epoch(recovered.last_epoch + 1);
        let last = Seq(recovered.next_seq.0 - 1);
        let restored = found.restore::<S>(&config.dir, &service_config, config.limits, 0).map_err(NodeError::from);
        let restored = restored.and_then(|mut restored| {
            restored.check_goes_on(&config.dir, recovered.first_seq)?;
            replay_up_to(&config.dir, &mut restored.machine, Some(last))?;
            Ok(restored)
        });
        let restored = match restored {
            Ok(restored) => restored,
            Err(error) => {
                // Whatever goes wrong now was not the reason.
                let _ = journal.close();
                return Err(error);
            }
        };
        let passed_over = restored.rejected.into_iter().chain(recovered.warnings()).collect();
        let mut machine = restored.machine;
        machine.set_log_id(recovered.log_id);

        let mut builder = RingBuilder::new(config.ring()).heap();
        builder.consumer("journaler");
        builder.consumer("executor");
        let ring = builder.build(recovered.next_seq)?;
        let mut consumers = ring.consumers.into_iter();
        let (Some(journal_frames), Some(frames)) = (consumers.next(), consumers.next()) else {
            unreachable!("two consumers were asked for")
        };
        let now = clock::monotonic_ns();
        let sequenced = SequencedClock::new(machine.now(), Timestamp(clock::realtime_ns()), now);
        let latency = StageLatency::private(Arrivals::new(1, Part::default()), machine.applied());
        Ok(Node {
            log: LogWriter::new(ring.producer, sequenced, STREAM_ID, config.log_payload_bytes_max()),
            journaler: Some(Journaler::new(journal_frames, journal, ring.durable, latency)),
            config,
            service_config,
            frames,
            machine,
            recovered,
            passed_over,
            subscribers: Vec::new(),
            encoded: Vec::new(),
            failed: None,
            mark: Mark::default(),
            covered: Seq::ZERO,
            unsynced_since: None,
            polled_at: now,
            inputs_since_poll: 0,
            inputs_since_housekeeping: 0,
            realtime_checked_at: now,
        })
    }

    /// Sequences one input, applies it, and returns its place in the order with its outputs, once the sync policy is met.
    ///
    /// # Errors
    /// [`NodeError::TooLarge`], or a full disk, before anything happened. Any other error means that the node is done for:
    /// reopen it. An input whose step failed stays in the log.
    pub fn submit(&mut self, input: S::Input) -> Result<Applied<S>, NodeError> {
        let now = clock::monotonic_ns();
        self.check()?;
        self.encoded.clear();
        input.encode(&mut self.encoded);
        self.check_size(self.encoded.len())?;
        self.sequence(now, Kind::Input, 0, self.encoded.len()).and_then(|()| self.apply_and_finish(now))
    }

    /// As [`Node::submit`] for many inputs, which share one wait for the disk.
    ///
    /// # Errors
    /// As [`Node::submit`]; where one input is too large, none is sequenced. Where the disk is full or a step fails in
    /// between, the inputs before it are in the log and subscribers have their outputs.
    pub fn submit_batch(&mut self, inputs: impl IntoIterator<Item = S::Input>) -> Result<Vec<Applied<S>>, NodeError> {
        let now = clock::monotonic_ns();
        self.check()?;
        self.encoded.clear();
        let inputs = inputs.into_iter();
        let mut ends = Vec::with_capacity(inputs.size_hint().0);
        for input in inputs {
            let start = self.encoded.len();
            input.encode(&mut self.encoded);
            self.check_size(self.encoded.len() - start)?;
            ends.push(self.encoded.len());
        }
        let mut done = Vec::with_capacity(ends.len());
        let mut start = 0;
        let mut result = Ok(());
        for end in ends {
            result = self.sequence(now, Kind::Input, start, end).and_then(|()| {
                done.push(self.apply_next()?);
                Ok(())
            });
            if result.is_err() {
                break;
            }
            start = end;
        }
        if !done.is_empty() {
            self.meet_policy(now)?;
            done.iter().for_each(|(seq, outputs)| tell(&mut self.subscribers, *seq, outputs));
        }
        result.map(|()| done)
    }

    /// Sequences the passing of time, so that timers which are due fire; returns what they put out.
    ///
    /// # Errors
    /// As [`Node::submit`].
    pub fn tick(&mut self) -> Result<Applied<S>, NodeError> {
        let now = clock::monotonic_ns();
        self.check()?;
        self.sequence(now, Kind::Tick, 0, 0)?;
        self.apply_and_finish(now)
    }

    /// Waits until everything submitted is durable.
    ///
    /// # Errors
    /// The journal's: final, unless it is that the disk is full.
    pub fn sync(&mut self) -> Result<(), NodeError> {
        let last = Seq(self.log.next_seq().0 - 1);
        let journaler = self.journaler.as_mut().expect("open until dropped");
        let (begun, mut idle_polls) = (clock::monotonic_ns(), 0);
        let mut now = begun;
        loop {
            let work = journaler.poll(now);
            if let Some(error) = journaler.failed() {
                return Err(error.clone().into());
            }
            if journaler.durable() >= last {
                self.unsynced_since = None;
                return Ok(());
            }
            now = clock::monotonic_ns();
            if work > 0 {
                continue;
            }
            let journal = journaler.journal();
            if let Some(error) = journal.starved().filter(|_| !journal.busy()) {
                return Err(error.clone().into());
            }
            if now.saturating_sub(begun) > SYNC_SPIN_NS {
                journaler.sync_blocking(clock::monotonic_ns)?;
            } else {
                wait_a_little(&mut idle_polls);
            }
        }
    }

    /// Calls `subscriber` with every output from now on, in order, once the sync policy is met.
    pub fn subscribe(&mut self, subscriber: impl FnMut(Seq, &S::Output) + Send + 'static) {
        self.subscribers.push(Box::new(subscriber));
    }

    /// Replays the journal from its start (where that was compacted away, from the oldest snapshot) into a fresh service, and
    /// compares its state, and all its outputs, with this node's.
    ///
    /// # Errors
    /// [`NodeError::ReplayDiffers`] or [`NodeError::OutputsDiffer`] where they are not the same; the journal's errors.
    pub fn verify_replay(&mut self) -> Result<Replayed, NodeError> {
        self.check()?;
        self.sync()?;
        let found = Found::oldest(&self.config.dir, self.first_seq())?;
        let restored = found.restore::<S>(&self.config.dir, &self.service_config, self.config.limits, 0)?;
        let (from, to, mut machine) = (restored.machine.applied().next(), self.seq(), restored.machine);
        replay_up_to(&self.config.dir, &mut machine, Some(to))?;
        let (seq, live, replayed) = (machine.applied(), self.machine.digest(), machine.digest());
        if seq != to || live != replayed {
            return Err(NodeError::ReplayDiffers { seq, live, replayed });
        }
        if machine.output_hash() != self.machine.output_hash() {
            return Err(NodeError::OutputsDiffer { from, to });
        }
        Ok(Replayed { seq, digest: live })
    }

    /// Writes a snapshot of the state as it is now, and waits for it: the next start begins from there. Takes the time that the
    /// state takes to encode and to write; an appliance has a shadow replica do it instead. Keeps the
    /// [`NodeConfig::snapshots_retained`] newest. Returns the last seq that it covers.
    ///
    /// # Errors
    /// [`NodeError::Snapshot`] where it can't be written; the node goes on. The journal's errors.
    pub fn snapshot(&mut self) -> Result<Seq, NodeError> {
        let now = clock::monotonic_ns();
        self.check()?;
        self.encoded.clear();
        self.encoded.extend(self.mark.encode());
        self.sequence(now, Kind::SnapshotMark, 0, self.encoded.len())?;
        self.apply_next()?;
        self.sync()?;
        let snapshot = self.machine.to_snapshot(&Tails::new(0));
        let meta = snapshot.meta().clone();
        self.machine.note_state_digest(meta.seq, meta.state_digest);
        self.mark = Mark { at: meta.seq, state_digest: meta.state_digest, output_hash: meta.output_hash };
        let pace = SnapshotPace { bytes_per_ms: usize::MAX, retain: self.config.snapshots_retained };
        let disk = NativeDisk::new(&self.config.dir, Binding::AnyThread);
        let mut writer = SnapshotWriter::new(disk, &self.config.dir, pace)?.for_log(self.recovered.log_id);
        writer.begin(snapshot);
        // Older ones are looked at, too, and those beyond what is retained deleted.
        while writer.poll(clock::monotonic_ns()) > 0 || writer.is_busy() {
            writer.wait();
        }
        if let Some(error) = writer.failed() {
            return Err(error.clone().into());
        }
        self.covered = writer.oldest_verified().unwrap_or(self.covered);
        Ok(meta.seq)
    }

    /// Gives up the part of the journal that the oldest retained snapshot covers, in whole segments: a few are kept to be used
    /// again, the others are deleted. Relies on nothing but what a [`Node::snapshot`] of this node has verified on the disk.
    ///
    /// # Errors
    /// The journal's.
    pub fn compact(&mut self) -> Result<(), NodeError> {
        self.check()?;
        let journaler = self.journaler.as_mut().expect("open until dropped");
        journaler.release_before(self.covered.next());
        let mut idle_polls = 0;
        loop {
            let now = clock::monotonic_ns();
            let work = journaler.poll(now) + journaler.housekeeping(now);
            if let Some(error) = journaler.failed() {
                return Err(error.clone().into());
            }
            if work == 0 && !journaler.journal().has_chores() {
                return Ok(());
            }
            wait_a_little(&mut idle_polls);
        }
    }

    /// The first seq that the journal still holds; where it holds none, the next.
    pub fn first_seq(&self) -> Seq {
        self.journaler.as_ref().expect("open until dropped").journal().first_seq()
    }

    /// The service. After a failed step its state means nothing.
    pub fn service(&self) -> &S {
        self.machine.service()
    }

    /// The last seq applied; 0 before the first.
    pub fn seq(&self) -> Seq {
        self.machine.applied()
    }

    /// The last durable seq.
    pub fn durable(&self) -> Seq {
        self.journaler.as_ref().expect("open until dropped").durable()
    }

    /// The digest of the state: lowercase hex SHA-256 of the snapshot's canonical encoding.
    pub fn digest(&self) -> String {
        self.machine.digest()
    }

    /// What was found in the journal on opening.
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// Snapshots that were passed over on opening, and files that were set aside, each with the reason in a line.
    pub fn passed_over(&self) -> &[String] {
        &self.passed_over
    }

    /// The journal's directory.
    pub fn dir(&self) -> &Path {
        &self.config.dir
    }

    /// Which disk backend and strategy are in use, and why.
    pub fn describe(&self) -> String {
        self.journaler.as_ref().expect("open until dropped").journal().describe()
    }

    /// Whether the node can go on.
    fn check(&self) -> Result<(), NodeError> {
        if let Some(error) = &self.failed {
            return Err(error.clone().into());
        }
        let journaler = self.journaler.as_ref().expect("open until dropped");
        journaler.failed().map_or(Ok(()), |error| Err(error.clone().into()))
    }

    fn check_size(&self, bytes: usize) -> Result<(), NodeError> {
        let bytes_max = self.config.payload_bytes_max;
        if bytes > bytes_max { Err(NodeError::TooLarge { bytes, bytes_max }) } else { Ok(()) }
    }

    /// Appends a frame with these of the encoded bytes to the log, and hands it to the journal.
    #[inline]
    fn sequence(&mut self, now: Nanos, kind: Kind, start: usize, end: usize) -> Result<(), NodeError> {
        let bytes = padded(frame_bytes(end - start));
        let journaler = self.journaler.as_mut().expect("open until dropped");
        if !journaler.room(bytes) || !self.log.room(1, end - start) {
            self.make_room(end - start)?;
        }
        self.log.append(now, kind, &[], &self.encoded[start..end]).expect("room was made");
        self.log.publish();
        self.journaler.as_mut().expect("open until dropped").take();
        self.inputs_since_poll += 1;
        self.inputs_since_housekeeping += 1;
        if self.inputs_since_poll >= INPUTS_PER_POLL && self.config.sync != SyncPolicy::Every {
            self.poll_disk(now)?;
        }
        Ok(())
    }

    /// Lets the disk work until there is room for a payload of so many bytes.
    #[cold]
    fn make_room(&mut self, payload_bytes: usize) -> Result<(), NodeError> {
        let bytes = padded(frame_bytes(payload_bytes));
        let mut idle_polls = 0;
        loop {
            let now = clock::monotonic_ns();
            let journaler = self.journaler.as_mut().expect("open until dropped");
            let work = journaler.poll(now) + journaler.housekeeping(now);
            if let Some(error) = journaler.failed() {
                return Err(error.clone().into());
            }
            if journaler.room(bytes) && self.log.room(1, payload_bytes) {
                return Ok(());
            }
            let journal = journaler.journal();
            if let Some(error) = journal.starved().filter(|_| work == 0 && !journal.busy()) {
                return Err(error.clone().into());
            }
            if work == 0 {
                wait_a_little(&mut idle_polls);
            }
        }
    }

    fn poll_disk(&mut self, now: Nanos) -> Result<(), NodeError> {
        (self.inputs_since_poll, self.polled_at) = (0, now);
        let journaler = self.journaler.as_mut().expect("open until dropped");
        journaler.poll(now);
        journaler.failed().map_or(Ok(()), |error| Err(error.clone().into()))
    }

    fn apply_and_finish(&mut self, now: Nanos) -> Result<Applied<S>, NodeError> {
        if self.config.sync == SyncPolicy::Every {
            // The disk works while the service does.
            self.poll_disk(now)?;
        }
        let (seq, outputs) = self.apply_next()?;
        self.meet_policy(now)?;
        tell(&mut self.subscribers, seq, &outputs);
        Ok((seq, outputs))
    }

    /// Applies the frame that was sequenced last.
    #[inline]
    fn apply_next(&mut self) -> Result<Applied<S>, NodeError> {
        let bytes = self.frames.peek().expect("a frame was published");
        let frame = Frame::view(bytes).expect("a frame of this node's ring");
        let seq = frame.seq;
        let malformed = self.machine.malformed();
        let mut outputs = Vec::new();
        let result = loop {
            let progress = self.machine.step(&frame);
            outputs.extend(self.machine.take_outputs());
            match progress {
                Ok(Progress::TimerFired) => {}
                Ok(Progress::Applied) => break Ok((seq, outputs)),
                Err(error) => break Err(error),
            }
        };
        self.frames.advance();
        self.frames.release();
        match result {
            Ok(_) if self.machine.malformed() > malformed => {
                // What its type encoded, it does not decode.
                self.failed = Some(StepError::NotAnInput { seq, kind: Kind::Input });
                Err(NodeError::NotAnInput { dir: self.config.dir.clone(), seq })
            }
            Ok(done) => Ok(done),
            Err(error) => {
                self.failed = Some(error.clone());
                // The next start meets the same step, so that what was said here is not forgotten; if the disk fails too, that
                // is the lesser news.
                let _ = self.sync();
                Err(error.into())
            }
        }
    }

    fn meet_policy(&mut self, now: Nanos) -> Result<(), NodeError> {
        let since = *self.unsynced_since.get_or_insert(now);
        match self.config.sync {
            SyncPolicy::Every => self.sync()?,
            SyncPolicy::Window(ns) if now.saturating_sub(since) >= ns => self.sync()?,
            SyncPolicy::Window(_) | SyncPolicy::Never => {
                if now.saturating_sub(self.polled_at) >= POLL_DELAY_NS {
                    self.poll_disk(now)?;
                }
            }
        }
        if self.inputs_since_housekeeping >= INPUTS_PER_HOUSEKEEPING {
            self.housekeeping(now);
        }
        Ok(())
    }

    #[cold]
    fn housekeeping(&mut self, now: Nanos) {
        self.inputs_since_housekeeping = 0;
        self.journaler.as_mut().expect("open until dropped").housekeeping(now);
        if now.saturating_sub(self.realtime_checked_at) >= REALTIME_CHECK_NS {
            self.realtime_checked_at = now;
            self.log.observe_realtime(Timestamp(clock::realtime_ns()), clock::monotonic_ns());
        }
    }
}

impl<S: Service> Drop for Node<S> {
    /// Drains, syncs and seals. Errors have nowhere to go from here; [`Node::sync`] before it reports them.
    fn drop(&mut self) {
        if self.sync().is_ok()
            && let Some(journaler) = self.journaler.take()
        {
            let _ = journaler.close();
        }
    }
}

fn tell<O>(subscribers: &mut [Subscriber<O>], seq: Seq, outputs: &[O]) {
    for subscriber in subscribers {
        outputs.iter().for_each(|output| subscriber(seq, output));
    }
}

/// Between two polls that find nothing: the disk is waited for in a spin, which now and then lets others run.
fn wait_a_little(idle_polls: &mut u32) {
    *idle_polls += 1;
    if idle_polls.is_multiple_of(IDLE_POLLS_MAX) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// Applies every frame of the journal in `dir` that comes after what `machine` has applied.
///
/// # Errors
/// The journal's damage, or what the service can't apply.
pub fn replay<S: Service>(dir: &Path, machine: &mut Machine<S>) -> Result<(), NodeError> {
    replay_up_to(dir, machine, None)
}

/// As [`replay`], where it is known up to where the journal is durable: all of that must be there, and nothing beyond it is
/// looked at.
fn replay_up_to<S: Service>(dir: &Path, machine: &mut Machine<S>, durable: Option<Seq>) -> Result<(), NodeError> {
    let next = machine.applied().next();
    if durable.is_some_and(|durable| durable < next) {
        return Ok(());
    }
    let mut reader = JournalReader::open(dir, next)?;
    if let Some(durable) = durable {
        reader.set_durable(durable);
    }
    while let Some(bytes) = reader.next()? {
        let frame = Frame::view(bytes).expect("the reader has checked it");
        let malformed = machine.malformed();
        while machine.step(&frame)? != Progress::Applied {}
        // What a client sent may be anything; an embedded input was encoded by this very type.
        if frame.kind == Kind::Input && machine.malformed() > malformed {
            return Err(NodeError::NotAnInput { dir: dir.to_owned(), seq: frame.seq });
        }
    }
    Ok(())
}
