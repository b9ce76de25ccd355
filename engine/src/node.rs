//! The embedded node: a service with its journal, in your own process and on your own thread.
//!
//! It polls the same stages that an appliance pins to cores, one after the other.

use std::fmt;
use std::path::{Path, PathBuf};

use ticktape_core::limits::PAYLOAD_BYTES_DEFAULT;
use ticktape_core::{Encode, Frame, Kind, Nanos, Seq, Service, Timestamp};
use ticktape_journal::{Binding, Journal, JournalConfig, JournalError, JournalReader, NativeDisk, Recovered};
use ticktape_shm::{Consumer, RingBuilder, RingConfig, RingError};
use ticktape_tuning::clock;

use crate::journaler::Journaler;
use crate::log::{LogWriter, SequencedClock};
use crate::machine::{Machine, Progress, StepError, StepLimits};
use crate::metrics::{Arrivals, Part, StageLatency};

/// The stream that embedded inputs carry.
const STREAM_ID: u16 = 1;

/// Submits between two looks at the journal's housekeeping: rare enough to cost nothing, often enough to stay ahead.
const SUBMITS_PER_HOUSEKEEPING: u64 = 64;

/// When a submit counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncPolicy {
    /// When it is durable. Inputs of one `submit_batch` share one wait.
    #[default]
    Every,
    /// At once; made durable at most this many nanoseconds later, by the next call. A crash may lose what came since.
    Window(u64),
    /// At once; made durable by [`Node::sync`] and on a clean end.
    Never,
}

/// How a node is set up. Start from [`NodeConfig::new`] and change what matters.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The journal's directory; made if it is missing.
    pub dir: PathBuf,
    /// When a submit counts as done.
    pub sync: SyncPolicy,
    /// The largest encoded input, in bytes.
    pub payload_bytes_max: usize,
    /// The ring's size in bytes, a power of two. At least four times the largest input and batch.
    pub ring_bytes: usize,
    /// The journal's own settings.
    pub journal: JournalConfig,
    /// What one step may produce. The same in every run of a log.
    pub limits: StepLimits,
}

impl NodeConfig {
    /// The defaults, with the journal in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        NodeConfig {
            dir: dir.into(),
            sync: SyncPolicy::default(),
            payload_bytes_max: PAYLOAD_BYTES_DEFAULT,
            ring_bytes: 1 << 20,
            journal: JournalConfig::default(),
            limits: StepLimits::default(),
        }
    }

    /// With another sync policy.
    #[must_use]
    pub fn sync(mut self, sync: SyncPolicy) -> Self {
        self.sync = sync;
        self
    }
}

/// Why a node can't do what it was asked.
#[derive(Debug)]
pub enum NodeError {
    /// The journal.
    Journal(JournalError),
    /// The service or the log.
    Step(StepError),
    /// The ring's settings.
    Ring(RingError),
    /// An input larger than `payload_bytes_max`. Nothing was sequenced.
    TooLarge {
        /// Its encoded size in bytes.
        bytes: usize,
        /// What is allowed.
        bytes_max: usize,
    },
    /// A replay of the journal gives another state than this node has.
    ReplayDiffers {
        /// The seq up to which was replayed.
        seq: Seq,
        /// The digest of this node's state.
        live: String,
        /// The digest of the replayed state.
        replayed: String,
    },
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::Journal(error) => error.fmt(f),
            NodeError::Step(error) => error.fmt(f),
            NodeError::Ring(error) => error.fmt(f),
            NodeError::TooLarge { bytes, bytes_max } => {
                write!(f, "input of {bytes} bytes, at most {bytes_max}: raise payload_bytes_max or split it")
            }
            NodeError::ReplayDiffers { seq, live, replayed } => write!(
                f,
                "replay up to seq {seq} gives state {replayed}, live state is {live}: the service is not deterministic"
            ),
        }
    }
}

impl std::error::Error for NodeError {}

impl From<JournalError> for NodeError {
    fn from(error: JournalError) -> Self {
        NodeError::Journal(error)
    }
}

impl From<StepError> for NodeError {
    fn from(error: StepError) -> Self {
        NodeError::Step(error)
    }
}

impl From<RingError> for NodeError {
    fn from(error: RingError) -> Self {
        NodeError::Ring(error)
    }
}

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
///
/// ```no_run
/// use ticktape::{Ctx, Decode, Encode, Node, NodeConfig, Seq, Service};
///
/// struct Counter(i64);
///
/// #[derive(Encode, Decode)]
/// struct Add(i64);
///
/// #[derive(Encode, Decode)]
/// struct Value(i64);
///
/// impl Service for Counter {
///     type Input = Add;
///     type Output = Value;
///     type Snapshot = i64;
///     type Config = ();
///
///     fn genesis(_: &()) -> Self { Counter(0) }
///     fn apply(&mut self, _: Seq, input: &Add, ctx: &mut Ctx<'_, Value>) {
///         self.0 += input.0;
///         ctx.reply(Value(self.0));
///     }
///     fn snapshot(&self) -> i64 { self.0 }
///     fn restore(value: i64, _: &()) -> Self { Counter(value) }
/// }
///
/// let mut node = Node::<Counter>::open(NodeConfig::new("counter-journal"), ())?;
/// let (seq, outputs) = node.submit(Add(5))?;
/// println!("applied at seq {seq}: {outputs:?}");
/// # Ok::<(), ticktape::NodeError>(())
/// ```
pub struct Node<S: Service> {
    config: NodeConfig,
    service_config: S::Config,
    log: LogWriter,
    frames: Consumer,
    /// `None` only while the node is being dropped.
    journaler: Option<Journaler<NativeDisk>>,
    machine: Machine<S>,
    recovered: Recovered,
    subscribers: Vec<Subscriber<S::Output>>,
    encoded: Vec<u8>,
    unsynced_since: Option<Nanos>,
    submits: u64,
}

impl<S: Service> Node<S> {
    /// Opens the journal, rebuilds the state by replay, and is ready for inputs.
    ///
    /// # Errors
    /// [`NodeError`]: a journal that is in use, damaged or can't be written; a service that can't apply what it holds; ring
    /// settings that don't fit each other.
    pub fn open(config: NodeConfig, service_config: S::Config) -> Result<Self, NodeError> {
        let ring_config = RingConfig {
            frame_bytes_max: ticktape_core::frame::frame_bytes(config.payload_bytes_max),
            commit_is_sequenced: config.sync != SyncPolicy::Every,
            capacity_bytes: config.ring_bytes,
            ..RingConfig::default()
        };
        let mut builder = RingBuilder::new(ring_config).heap();
        builder.consumer("journaler");
        builder.consumer("executor");

        let (mut journal, recovered) =
            Journal::open(NativeDisk::new(&config.dir, Binding::AnyThread), &config.dir, config.journal.clone())?;
        journal.set_epoch(recovered.last_epoch + 1);
        let mut machine = Machine::genesis(&service_config, config.limits);
        replay(&config.dir, &mut machine)?;

        let ring = builder.build(recovered.next_seq)?;
        let mut consumers = ring.consumers.into_iter();
        let (Some(journal_frames), Some(frames)) = (consumers.next(), consumers.next()) else {
            unreachable!("two consumers were asked for")
        };
        let sequenced = SequencedClock::new(machine.now(), Timestamp(clock::realtime_ns()), clock::monotonic_ns());
        let latency = StageLatency::new(Arrivals::new(1, Part::default()), machine.applied());
        Ok(Node {
            log: LogWriter::new(ring.producer, sequenced, STREAM_ID, config.payload_bytes_max),
            journaler: Some(Journaler::new(journal_frames, journal, ring.durable, latency)),
            config,
            service_config,
            frames,
            machine,
            recovered,
            subscribers: Vec::new(),
            encoded: Vec::new(),
            unsynced_since: None,
            submits: 0,
        })
    }

    /// Sequences one input, applies it, and returns its place in the order with its outputs, once the sync policy is met.
    ///
    /// # Errors
    /// [`NodeError::TooLarge`] before anything happened. Any other error means that the node is done for: reopen it.
    pub fn submit(&mut self, input: S::Input) -> Result<(Seq, Vec<S::Output>), NodeError> {
        let now = clock::monotonic_ns();
        let seq = self.append_input(now, &input)?;
        let outputs = self.apply_published(now)?.pop().map_or_else(Vec::new, |(_, outputs)| outputs);
        self.meet_policy(now)?;
        self.tell(seq, &outputs);
        Ok((seq, outputs))
    }

    /// As [`Node::submit`] for many inputs, which share one wait for the disk.
    ///
    /// # Errors
    /// As [`Node::submit`]; a too large input leaves those before it applied, and they are durable when this returns.
    pub fn submit_batch(
        &mut self,
        inputs: impl IntoIterator<Item = S::Input>,
    ) -> Result<Vec<(Seq, Vec<S::Output>)>, NodeError> {
        let now = clock::monotonic_ns();
        let mut done = Vec::new();
        let mut refused = None;
        for input in inputs {
            if let Err(error) = self.append_input_with(now, &input, |node| {
                done.extend(node.apply_published(now)?);
                Ok(())
            }) {
                refused = Some(error);
                break;
            }
        }
        done.extend(self.apply_published(now)?);
        self.meet_policy(now)?;
        for (seq, outputs) in &done {
            self.tell(*seq, outputs);
        }
        refused.map_or(Ok(done), Err)
    }

    /// Sequences the passing of time, so that timers which are due fire; returns what they put out.
    ///
    /// # Errors
    /// As [`Node::submit`].
    pub fn tick(&mut self) -> Result<(Seq, Vec<S::Output>), NodeError> {
        let now = clock::monotonic_ns();
        let seq = self.append(now, Kind::Tick, |_| Ok(()))?;
        let outputs = self.apply_published(now)?.pop().map_or_else(Vec::new, |(_, outputs)| outputs);
        self.meet_policy(now)?;
        self.tell(seq, &outputs);
        Ok((seq, outputs))
    }

    /// Waits until everything submitted is durable.
    ///
    /// # Errors
    /// The journal's, which are final.
    pub fn sync(&mut self) -> Result<(), NodeError> {
        let last = self.seq();
        let mut polls = 0_u32;
        loop {
            let journaler = self.journaler.as_mut().expect("open until dropped");
            let work = journaler.poll(clock::monotonic_ns());
            if let Some(error) = journaler.failed() {
                return Err(error.clone().into());
            }
            if journaler.durable() >= last {
                self.unsynced_since = None;
                return Ok(());
            }
            polls = if work > 0 { 0 } else { polls + 1 };
            if polls.is_multiple_of(64) {
                journaler.housekeeping(clock::monotonic_ns());
                std::thread::yield_now();
            }
        }
    }

    /// Calls `subscriber` with every output from now on, in order, once the sync policy is met.
    pub fn subscribe(&mut self, subscriber: impl FnMut(Seq, &S::Output) + Send + 'static) {
        self.subscribers.push(Box::new(subscriber));
    }

    /// Replays the journal from its start into a fresh service, and compares the state with this node's.
    ///
    /// # Errors
    /// [`NodeError::ReplayDiffers`] where they are not the same; the journal's errors.
    pub fn verify_replay(&mut self) -> Result<Replayed, NodeError> {
        self.sync()?;
        let mut machine = Machine::<S>::genesis(&self.service_config, self.config.limits);
        replay(&self.config.dir, &mut machine)?;
        let (seq, live, replayed) = (machine.applied(), self.machine.digest(), machine.digest());
        if seq != self.seq() || live != replayed {
            return Err(NodeError::ReplayDiffers { seq, live, replayed });
        }
        Ok(Replayed { seq, digest: live })
    }

    /// The service.
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

    /// The journal's directory.
    pub fn dir(&self) -> &Path {
        &self.config.dir
    }

    /// Which disk backend and strategy are in use, and why.
    pub fn describe(&self) -> String {
        self.journaler.as_ref().expect("open until dropped").journal().describe()
    }

    fn append_input(&mut self, now: Nanos, input: &S::Input) -> Result<Seq, NodeError> {
        self.append_input_with(now, input, |_| Ok(()))
    }

    fn append_input_with(
        &mut self,
        now: Nanos,
        input: &S::Input,
        on_full: impl FnMut(&mut Self) -> Result<(), NodeError>,
    ) -> Result<Seq, NodeError> {
        self.encoded.clear();
        input.encode(&mut self.encoded);
        let (bytes, bytes_max) = (self.encoded.len(), self.config.payload_bytes_max);
        if bytes > bytes_max {
            return Err(NodeError::TooLarge { bytes, bytes_max });
        }
        self.append(now, Kind::Input, on_full)
    }

    /// Appends a frame with what stands in `encoded` (inputs) or nothing (ticks); makes room by letting the stages work.
    fn append(
        &mut self,
        now: Nanos,
        kind: Kind,
        mut on_full: impl FnMut(&mut Self) -> Result<(), NodeError>,
    ) -> Result<Seq, NodeError> {
        loop {
            let payload: &[u8] = if kind == Kind::Input { &self.encoded } else { &[] };
            if let Ok(seq) = self.log.append(now, kind, &[], payload) {
                return Ok(seq);
            }
            self.log.publish();
            on_full(self)?;
            self.poll_journaler(now)?;
            self.journaler.as_mut().expect("open until dropped").housekeeping(now);
        }
    }

    fn poll_journaler(&mut self, now: Nanos) -> Result<(), NodeError> {
        let journaler = self.journaler.as_mut().expect("open until dropped");
        journaler.poll(now);
        journaler.failed().map_or(Ok(()), |error| Err(error.clone().into()))
    }

    /// Publishes what was appended, starts its way to the disk, and applies it meanwhile.
    fn apply_published(&mut self, now: Nanos) -> Result<Vec<(Seq, Vec<S::Output>)>, NodeError> {
        self.log.publish();
        self.poll_journaler(now)?;
        let mut done = Vec::new();
        while let Some(bytes) = self.frames.peek() {
            let frame = Frame::view(bytes).expect("a frame of this node's ring");
            let mut outputs = Vec::new();
            loop {
                let progress = self.machine.step(&frame)?;
                outputs.extend(self.machine.take_outputs());
                if progress == Progress::Applied {
                    break;
                }
            }
            done.push((frame.seq, outputs));
            self.frames.advance();
        }
        self.frames.release();
        Ok(done)
    }

    fn meet_policy(&mut self, now: Nanos) -> Result<(), NodeError> {
        self.submits += 1;
        if self.submits.is_multiple_of(SUBMITS_PER_HOUSEKEEPING) {
            self.journaler.as_mut().expect("open until dropped").housekeeping(now);
        }
        let since = *self.unsynced_since.get_or_insert(now);
        match self.config.sync {
            SyncPolicy::Every => self.sync(),
            SyncPolicy::Window(ns) if now.saturating_sub(since) >= ns => self.sync(),
            SyncPolicy::Window(_) | SyncPolicy::Never => Ok(()),
        }
    }

    fn tell(&mut self, seq: Seq, outputs: &[S::Output]) {
        for subscriber in &mut self.subscribers {
            outputs.iter().for_each(|output| subscriber(seq, output));
        }
    }
}

impl<S: Service> Drop for Node<S> {
    /// Drains, syncs and seals. Errors have nowhere to go from here; [`Node::sync`] before it reports them.
    fn drop(&mut self) {
        if let Some(journaler) = self.journaler.take() {
            let _ = journaler.close();
        }
    }
}

/// Applies every frame of the journal in `dir` that comes after what `machine` has applied.
///
/// # Errors
/// The journal's damage, or what the service can't apply.
pub fn replay<S: Service>(dir: &Path, machine: &mut Machine<S>) -> Result<(), NodeError> {
    let mut reader = JournalReader::open(dir, machine.applied().next())?;
    while let Some(bytes) = reader.next()? {
        let frame = Frame::view(bytes).expect("the reader has checked it");
        while machine.step(&frame)? != Progress::Applied {}
    }
    Ok(())
}
