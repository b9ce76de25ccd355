//! One box: the stages of an appliance, as they are live, over a simulated network and disk.
//!
//! They are wired as `pipeline` wires them, and each is polled when the world says so. What replicas ask for is answered
//! beside it, by `replica`.

mod oracle;
mod retention;
mod shadow;
mod stop;

use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};

use ticktape::catchup::EpochTable;
use ticktape::config::{ApplianceConfig, FeedConfig, SnapshotConfig};
use ticktape::control::CONTROL_QUEUE_MAX;
use ticktape::egress::Egress;
use ticktape::executor::{Deadline, Executor};
use ticktape::feed::{self, FeedSession, LogPublisher, Publisher};
use ticktape::journaler::Journaler;
use ticktape::link::{DATA_OVERHEAD_BYTES, EventMessage, Tier};
use ticktape::log::{LogWriter, SequencedClock};
use ticktape::machine::{Machine, StepError, StepLimits};
use ticktape::mark::{Cadence, DIGESTS_MAX};
use ticktape::metrics::{Arrivals, Part, StageLatency};
use ticktape::outputs::OutputWriter;
use ticktape::payload::EpochChange;
use ticktape::pipeline::StartError;
use ticktape::pipeline::recovery::{Start, start_on};
use ticktape::pipeline::rings::{egress_config, output_ring_config, ring_builder};
use ticktape::sequencer::{Sequencer, SequencerConfig};
use ticktape::shadow::{Covered, ShadowError};
use ticktape::{Kind, Nanos, Seq, Service};
use ticktape_journal::{JournalConfig, JournalError, Salts, Strategy, StrategyChoice};
use ticktape_nic::Nic;
use ticktape_shm::{Consumer, Follower, Horizon, RingBuilder, Tap, Watermarks};

use crate::clock::{SimClock, WorldTime};
use crate::disk::{Medium, SimDisk};
use crate::nic::{Network, QueueConfig, SimRx, SimTx};
use crate::replica::{Led, feed_source};
use crate::rng::{Rng, Seed};

pub(crate) use oracle::Oracle;
pub(crate) use retention::{NOTHING, Retention, Surroundings, may_rot, read_log, read_log_from};
pub(crate) use shadow::Beside;
pub(crate) use stop::{STOP_LOSES_NOTHING, check_sealed};

/// The largest datagram: little more than the protocol asks for, so that every batch has several.
pub(crate) const DATAGRAM_BYTES: usize = 576;

/// An idle feed says so this often, as live.
const FEED_HEARTBEAT_NS: u64 = 1_000_000_000;

/// Polls after which the first frame of a reign is given up: some seconds of virtual time.
const BEGIN_POLLS_MAX: usize = 1_000_000;

/// Virtual time between two of those, in nanoseconds.
const BEGIN_POLL_NS: u64 = 5_000;

/// How long frames may wait for space before the appliance gives up, as live.
const SPACE_PATIENCE_NS: u64 = 2_000_000_000;

/// Frames whose arrival is remembered: nobody looks at latencies here.
const ARRIVALS: usize = 16;

/// What is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pollable {
    /// Takes datagrams and writes the log.
    Sequencer,
    /// Takes the log to the disk.
    Journaler,
    /// Applies it.
    Executor,
    /// Multicasts it, where there is a feed.
    Publisher,
    /// Lets outputs go.
    Egress,
    /// Takes snapshots.
    Shadow,
    /// What each of them does once a millisecond.
    Housekeeping,
}

impl Pollable {
    /// All there are.
    pub const ALL: [Pollable; 7] = [
        Pollable::Sequencer,
        Pollable::Journaler,
        Pollable::Executor,
        Pollable::Publisher,
        Pollable::Egress,
        Pollable::Shadow,
        Pollable::Housekeeping,
    ];
}

/// How a box is set up: small everywhere, so that every end is near.
pub(crate) fn config(listen: SocketAddrV4, rng: &mut Rng, takes_snapshots: Option<bool>) -> ApplianceConfig {
    let mut config = ApplianceConfig::new(PathBuf::from("/box/journal"), listen);
    config.tier = *rng.pick(&[Tier::Local, Tier::Local, Tier::Local, Tier::Memory]);
    config.datagram_bytes_max = DATAGRAM_BYTES;
    config.window = *rng.pick(&[16, 64]);
    config.sessions_max = 8;
    config.session_reorder_bytes = 16 << 10;
    config.session_bytes = 16 << 10;
    let capacity = 4 * (config.frame_bytes_max() + config.batch_bytes_max());
    config.ring.bytes = capacity.next_power_of_two();
    config.ring.name = None;
    let segment_bytes = *rng.pick(&[20 << 10, 32 << 10, 64 << 10]);
    config.journal = JournalConfig {
        segment_bytes,
        commit_bytes_max: *rng.pick(&[4 << 10, 8 << 10]),
        writes_in_flight: *rng.pick(&[1, 2, 4]),
        seal_delay_ns: *rng.pick(&[100_000, 10_000_000]),
        strategy: StrategyChoice::Fixed(*rng.pick(&[Strategy::Dsync, Strategy::Flush, Strategy::Group])),
        prefill_bytes: *rng.pick(&[0, 8 << 10]),
        fill_bytes_per_ms: *rng.pick(&[4 << 10, 256 << 10]),
        salts: Salts::System,
        log_id: 0,
    };
    config.snapshots = snapshots(rng, takes_snapshots);
    let output_bytes_max = config.datagram_bytes_max - DATA_OVERHEAD_BYTES - EventMessage::head(0, 0).len();
    config.limits =
        StepLimits { outputs_per_step_count_max: 128, outputs_per_step_bytes_max: 16 << 10, output_bytes_max };
    config
}

/// Whether and how snapshots are taken: often, so that there are several in each reign.
fn snapshots(rng: &mut Rng, takes: Option<bool>) -> Option<SnapshotConfig> {
    let (by_chance, compact) = (rng.below(4) > 0, rng.flip());
    let settings = SnapshotConfig {
        every_frames: *rng.pick(&[20, 50]),
        every_bytes: *rng.pick(&[4 << 10, 1 << 20]),
        every_ms: *rng.pick(&[20, 10_000]),
        retained: *rng.pick(&[1, 2, 2, 3]),
        bytes_per_ms: *rng.pick(&[4 << 10, 1 << 20]),
        tail_bytes: *rng.pick(&[512, 8 << 10]),
        compact,
    };
    takes.unwrap_or(by_chance).then_some(settings)
}

/// What a box is started with.
pub(crate) struct Boot<'a, C> {
    pub(crate) config: &'a ApplianceConfig,
    pub(crate) service: &'a C,
    pub(crate) network: &'a Network,
    pub(crate) medium: &'a Medium,
    pub(crate) clock: &'a SimClock,
    pub(crate) time: &'a WorldTime,
    pub(crate) queues: QueueConfig,
    /// Of this start alone: the salts come from it.
    pub(crate) seed: Seed,
}

/// How far a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) durable: u64,
    pub(crate) committed: u64,
    pub(crate) applied: u64,
}

/// A running box.
pub(crate) struct Host<S: Service> {
    sequencer: Sequencer<SimRx>,
    journaler: Journaler<SimDisk>,
    executor: Executor<S>,
    publisher: LogPublisher<SimTx>,
    egress: Egress<SimTx>,
    /// Sees every frame as soon as it is sequenced, and gates nobody.
    observer: Follower,
    tap: Tap,
    log_id: u64,
    epochs: EpochTable,
    watermarks: Watermarks,
    starved_since: Option<Nanos>,
    /// In a graceful stop: the last frame there is.
    stopping: Option<Seq>,
    shadow: Option<Beside<S>>,
    /// Whether what its snapshots cover is given up.
    compacts: bool,
    /// What the state was rebuilt from, and how many newer snapshots were passed over.
    pub(crate) snapshot: Seq,
    pub(crate) passed_over: usize,
    /// The first frame of the log.
    pub(crate) first: Seq,
    /// The last frame that was recovered.
    pub(crate) recovered: Seq,
    /// Whether recovery cut something off.
    pub(crate) cut: bool,
    pub(crate) epoch: u32,
}

impl<S: Service> Host<S> {
    /// Recovers, and makes a new reign durable, as [`ticktape::pipeline::Appliance::start`] does.
    pub(crate) fn start(boot: &Boot<'_, S::Config>) -> Result<Self, StartError> {
        let mut config = boot.config.clone();
        config.journal.salts = Salts::Seeded(boot.seed.0);
        let config = &config;
        let open = || boot.medium.open();
        let egress = egress_config(config, 0, S::SCHEMA_VERSION);
        let started = start_on::<S, _, _>(config, boot.service, egress, open, open)?;
        let Start { mut journal, recovered, machine, mut sessions, snapshot, passed_over, .. } = started;
        let epoch = u32::try_from(recovered.last_epoch.max(machine.epoch()) + 1).expect("a few starts");
        journal.set_epoch(u64::from(epoch));
        let change = EpochChange {
            epoch: u64::from(epoch),
            schema_version: S::SCHEMA_VERSION,
            service_name: S::NAME,
            reign: journal.mint(),
            previous_reign: machine.reign().id,
        };
        sessions.begin(epoch, machine.sessions(), machine.epochs());
        let (log_id, epochs) = (journal.log_id(), EpochTable::new(&machine.reigns()));
        epochs.begin(change.begins(), machine.applied().next());

        let ring = ring_builder(config, epoch).build(recovered.next_seq)?;
        let [journal_frames, frames, published]: [Consumer; 3] =
            ring.consumers.try_into().unwrap_or_else(|_| unreachable!("three consumers were asked for"));
        let observer = ring.tap.follow(recovered.next_seq, Horizon::Sequenced).expect("the ring begins there");
        let arrivals = Arrivals::new(ARRIVALS, Part::default());
        let latency = |after: Seq| StageLatency::coarse(arrivals.clone(), after);
        let clock = SequencedClock::new(machine.now(), boot.clock.realtime(), boot.clock.monotonic());
        let mut log = LogWriter::new(ring.producer, clock, change.begins().stream_id(), config.payload_bytes_max());
        let last = machine.applied();
        let mut journaler = Journaler::new(journal_frames, journal, ring.durable, latency(last));
        begin_epoch(boot, &mut log, &mut journaler, &change)?;
        if config.tier == Tier::Memory {
            journaler.be_unhurried(config.ring.bytes);
        }

        let mut outputs = RingBuilder::new(output_ring_config(config)).heap();
        outputs.consumer("egress");
        let mut outputs = outputs.build(Seq::FIRST)?;
        let records = outputs.consumers.pop().expect("one consumer was asked for");
        let output_writer = OutputWriter::new(outputs.producer, config.limits.output_bytes_max);
        let (control_tx, control_rx) = rtrb::RingBuffer::new(CONTROL_QUEUE_MAX);
        let deadline = Deadline::never();
        let (rx, tx) = boot.network.open(config.listen, boot.queues).split();
        let sequencer_config = SequencerConfig {
            epoch,
            schema_version: S::SCHEMA_VERSION,
            datagram_bytes_max: config.datagram_bytes_max,
            command_bytes_max: config.command_bytes_max(),
            window: config.window,
            sessions_max: config.sessions_max,
            reorder_bytes: config.session_reorder_bytes,
        };
        let mut sequencer = Sequencer::new(
            rx,
            log,
            sequencer_config,
            machine.sessions(),
            control_tx,
            deadline.clone(),
            latency(last.next()),
        );
        let feed = config.feed.as_ref().map(|feed| open_feed(boot, feed, epoch, last.next()));
        let publisher = LogPublisher::new(published, feed);
        let executor = Executor::new(frames, machine, output_writer, deadline, latency(last));
        let watermarks = ring.watermarks.clone();
        let shadow = config.snapshots.map(|snapshots| {
            let (digests, received) = rtrb::RingBuffer::new(DIGESTS_MAX);
            sequencer.set_marks(cadence(&snapshots), received);
            let ring = ring.tap.follow(last.next(), Horizon::Durable).expect("the ring begins there");
            let (config, medium) = (config.clone(), boot.medium.clone());
            let (log_id, covered) = (journaler.journal().log_id(), Covered::default());
            Beside::new(shadow::Seed { config, medium, ring, log_id, digests, covered })
        });
        let egress = Egress::new(tx, records, ring.watermarks, ring.commit, control_rx, sessions, latency(last));
        Ok(Host {
            sequencer,
            journaler,
            executor,
            publisher,
            egress,
            observer,
            tap: ring.tap,
            log_id,
            epochs,
            watermarks,
            starved_since: None,
            stopping: None,
            shadow,
            compacts: config.snapshots.is_some_and(|snapshots| snapshots.compact),
            snapshot,
            passed_over,
            first: recovered.first_seq,
            recovered: last,
            cut: recovered.cut.is_some(),
            epoch,
        })
    }

    /// One poll; returns the work done.
    pub(crate) fn poll(&mut self, part: Pollable, clock: &SimClock, service: &S::Config) -> usize {
        let now = clock.monotonic();
        match part {
            Pollable::Sequencer if self.stopping.is_some() => 0,
            Pollable::Sequencer => self.sequencer.poll(now),
            Pollable::Journaler => self.journaler.poll(now),
            Pollable::Executor => self.executor.poll(now),
            Pollable::Publisher => self.publisher.poll(now),
            Pollable::Egress => self.egress.poll(now),
            Pollable::Shadow => self.shadow.as_mut().map_or(0, |shadow| shadow.poll(now, service)),
            Pollable::Housekeeping => {
                self.sequencer.housekeeping(clock.realtime(), now);
                let marked = self.sequencer.counters().marks;
                if self.stopping.is_none() {
                    self.sequencer.mark(now);
                }
                if let Some(shadow) = self.shadow.as_ref().filter(|_| self.compacts) {
                    self.journaler.release_before(shadow.covered().next());
                }
                self.journaler.housekeeping(now);
                if self.has_published_all() {
                    self.publisher.end(now);
                } else {
                    self.publisher.housekeeping(now);
                }
                if self.journaler.starved().is_none() {
                    self.starved_since = None;
                } else {
                    self.starved_since.get_or_insert(now);
                }
                (self.sequencer.counters().marks - marked) as usize
            }
        }
    }

    /// Hands every frame that was sequenced since the last call to `on_frame`.
    pub(crate) fn observe(&mut self, on_frame: impl FnMut(&[u8])) {
        self.observer.drain(usize::MAX, on_frame).expect("the observer looks after every poll of the writer");
    }

    /// Why the box would stop by itself now, if it would.
    pub(crate) fn fault(&self, clock: &SimClock) -> Option<String> {
        if let Some(error) = self.journaler.failed() {
            return Some(format!("journal: {error}"));
        }
        if let Some(error) = self.shadow_error() {
            return Some(format!("shadow replica: {error}"));
        }
        let since = self.starved_since?;
        (clock.monotonic().saturating_sub(since) >= SPACE_PATIENCE_NS).then(|| "journal: no space".to_string())
    }

    /// A write that found the disk full, if there was one.
    pub(crate) fn full_write(&self) -> Option<String> {
        match self.journaler.failed() {
            Some(failed @ JournalError::Disk { error, .. }) if error.is_full() => Some(failed.to_string()),
            _ => None,
        }
    }

    /// Why the service can go no further, if it can't.
    pub(crate) fn step_error(&self) -> Option<&StepError> {
        self.executor.failed()
    }

    /// Why the shadow can go no further, if it can't.
    pub(crate) fn shadow_error(&self) -> Option<&ShadowError> {
        self.shadow.as_ref().and_then(Beside::failed)
    }

    /// The shadow, if there is one.
    pub(crate) fn beside(&self) -> Option<&Beside<S>> {
        self.shadow.as_ref()
    }

    /// Segments that were given up.
    pub(crate) fn segments_gone(&self) -> u64 {
        let stats = self.journaler.journal().stats();
        stats.recycled + stats.deleted
    }

    /// Whether nothing is under way that snapshots bring about: all that is durable is seen, all that may go is gone.
    pub(crate) fn is_kept_in_order(&self) -> bool {
        let has_seen = |shadow: &Beside<S>| {
            let is_there = shadow.machine().is_some_and(|machine| machine.applied() == self.watermarks.durable());
            is_there && shadow.is_idle()
        };
        self.shadow.as_ref().is_none_or(has_seen) && !self.journaler.journal().has_chores()
    }

    /// The state.
    pub(crate) fn machine(&self) -> &Machine<S> {
        self.executor.machine()
    }

    /// What of it is served to replicas.
    pub(crate) fn led<'a>(&self, dir: &'a Path, medium: &'a Medium) -> Led<'a> {
        let (tap, watermarks, epochs) = (self.tap.clone(), self.watermarks.clone(), self.epochs.clone());
        Led { dir, medium, tap, watermarks, log_id: self.log_id, reign: epochs.last_reign(), epochs }
    }

    /// The last frame that is committed: at tier `memory` whatever was seen sequenced is.
    pub(crate) fn committed(&self) -> Seq {
        self.watermarks.commit().min(Seq(self.observer.next_seq().0 - 1))
    }

    /// How far it is, for the timeline.
    pub(crate) fn progress(&self) -> Progress {
        let (durable, committed) = (self.watermarks.durable().0, self.committed().0);
        Progress { durable, committed, applied: self.executor.machine().applied().0 }
    }

    /// Counters that tell what was met.
    pub(crate) fn count(&self, met: &mut impl FnMut(&'static str, u64)) {
        let stats = self.journaler.journal().stats();
        met("journal segments rolled", stats.segments.saturating_sub(1));
        met("journal seals", stats.seals);
        met("journal stalls", stats.stalls);
        met("journal short writes continued", stats.short_writes);
        met("ticks", self.sequencer.counters().ticks);
        met("clock alarms", self.sequencer.clock_jumps());
        met("control queue full", self.sequencer.counters().control_full);
        met("events resent", self.egress.counters().resent);
        met("commands asked for again", self.egress.counters().asked);
        met("slow sessions", self.egress.counters().slow);
        met("datagrams without effect", self.sequencer.counters().link.total());
        met("marks", self.sequencer.counters().marks);
        met("segments compacted", self.segments_gone());
        met("states compared at marks", self.executor.machine().compared().states);
        let Some(shadow) = &self.shadow else { return };
        let counters = shadow.counters();
        met("states compared at marks", shadow.machine().map_or(0, |machine| machine.compared().states));
        met("snapshots taken", counters.snapshots);
        met("snapshots failed", counters.failed_snapshots);
        met("shadow overruns", counters.overruns);
    }
}

fn cadence(snapshots: &SnapshotConfig) -> Cadence {
    let SnapshotConfig { every_frames, every_bytes, every_ms, .. } = *snapshots;
    Cadence { frames: every_frames, bytes: every_bytes, ns: every_ms * 1_000_000 }
}

/// What publishes the log, and the queue that it publishes to.
fn open_feed<C>(boot: &Boot<'_, C>, feed: &FeedConfig, epoch: u32, first: Seq) -> (Publisher, SimTx) {
    let publisher = Publisher::new(&feed::FeedConfig {
        session: FeedSession::new(feed.stream(), epoch).expect("a few starts"),
        first_seq: first.0,
        a: feed.a,
        b: feed.b,
        datagram_bytes_max: DATAGRAM_BYTES,
        heartbeat_interval_ns: FEED_HEARTBEAT_NS,
    });
    let queues = QueueConfig { tx_slots: boot.queues.tx_slots.max(4), ..boot.queues };
    (publisher, boot.network.open(feed_source(), queues).split().1)
}

/// Makes the new reign durable before anything else can be.
fn begin_epoch<C>(
    boot: &Boot<'_, C>,
    log: &mut LogWriter,
    journaler: &mut Journaler<SimDisk>,
    change: &EpochChange<'_>,
) -> Result<(), StartError> {
    let seq = log.append(boot.clock.monotonic(), Kind::EpochChange, &change.encode(), &[]).expect("the ring is empty");
    log.publish();
    for _ in 0..BEGIN_POLLS_MAX {
        if journaler.durable() >= seq && !journaler.journal().busy() {
            return Ok(());
        }
        journaler.poll(boot.clock.monotonic());
        if let Some(error) = journaler.failed() {
            return Err(error.clone().into());
        }
        if let Some(error) = journaler.starved() {
            return Err(error.clone().into());
        }
        // Nothing comes of a poll before something completes.
        let waits_ns = boot.medium.next_completion().map_or(0, |at| at.saturating_sub(boot.time.now()));
        boot.time.advance(BEGIN_POLL_NS * waits_ns.div_ceil(BEGIN_POLL_NS).max(1));
    }
    panic!("a reign does not begin, and nothing says why");
}
