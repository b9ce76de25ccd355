//! An appliance: every stage of one service, on pinned threads, from start to stop.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ticktape_core::{Kind, Seq, Service, Timestamp};
use ticktape_journal::{CalibrationPlan, NativeDisk, StrategyChoice};
use ticktape_nic::capture::{Recorder, Tapped, monotonic_now};
use ticktape_nic::{Nic, UdpConfig, UdpNic};
use ticktape_shm::metrics::{Metrics, MetricsReader};
use ticktape_shm::{AttachError, Consumer, Horizon, RingBuilder, Tap, Watermarks};
use ticktape_tuning::{clock, pin};

use super::capture::{self, CaptureThread, FeedTaps, Taps};
use super::core_thread::{Closed, Core, Idle, prepare, run_core};
use super::cores::{describe_cores, describe_idle, idles, no_workers_on, shadow_cores, slot_of, spare_cores};
use super::events::{self, Events, Ports};
use super::exporter::{Exporter, Heartbeat, StageFigures};
use super::feed_server;
use super::idle::IdleStrategy;
use super::nic::{self, Opened};
use super::places::Places;
use super::plan::{CorePlan, StageName};
use super::recovery::{self, Start};
use super::report::{Choices, Report};
use super::rings::{egress_config, output_ring_config, ring_builder};
use super::runtime::Runtime;
use super::shadow::{self, Seed};
use super::stage::{Lifecycle, Stage};
use super::stages::{ExecutorStage, JournalerStage, SequencerStage};
use super::start_error::StartError;
use crate::catchup::EpochTable;
use crate::config::{ApplianceConfig, ConfigError, FeedConfig, SnapshotConfig};
use crate::control::CONTROL_QUEUE_MAX;
use crate::egress::Egress;
use crate::executor::{Deadline, Executor};
use crate::feed::{self, EndedSessions, FeedSession, Publisher};
use crate::journaler::Journaler;
use crate::link::Tier;
use crate::log::{LogWriter, SequencedClock};
use crate::mark::DIGESTS_MAX;
use crate::metrics::{Arrivals, Part};
use crate::outputs::OutputWriter;
use crate::payload::{EpochChange, Reign};
use crate::replica::Identity;
use crate::sequencer::{Sequencer, SequencerConfig};
use crate::shadow::Covered;

/// A running appliance. Dropping it without [`Appliance::stop`] asks the threads to stop and waits for them.
pub struct Appliance {
    lifecycle: Lifecycle,
    threads: Vec<JoinHandle<Vec<Closed>>>,
    /// Of each thread of the plan.
    beats: Vec<Arc<AtomicU64>>,
    runtime: Runtime,
    /// Outlives the stages' threads, so that it misses nothing.
    capture: Option<CaptureThread>,
    covered: Covered,
    watermarks: Watermarks,
    tap: Tap,
    local_addr: SocketAddrV4,
    repair_addr: Option<SocketAddrV4>,
    events_repair_addr: Option<SocketAddrV4>,
    epoch: u32,
    recovered_to: Seq,
    choices: Choices,
    part: Part,
    /// Seen by others for as long as this lives.
    metrics: Metrics,
}

impl Appliance {
    /// Recovers from the journal, makes the new epoch durable, and starts every stage.
    ///
    /// # Errors
    /// [`StartError`], one line with what would be right; nothing is left running.
    pub fn start<S>(config: &ApplianceConfig, service: &S::Config) -> Result<Self, StartError>
    where
        S: Service + Send + 'static,
        S::Output: Send,
        S::Config: Clone + Send + 'static,
    {
        config.validate()?;
        config.check_places()?;
        let config = &config.with_fitting_limits();
        let usable = pin::usable_cores();
        let plan = config.cores.clone().unwrap_or_else(|| CorePlan::for_cores(usable.len()));
        let cores = plan.assign(&usable)?;
        let idles = idles(&plan, config.idle, usable.len());
        let calibration = calibration_plan(&plan, &idles);
        let runtime = Runtime::ask(&config.runtime, "stages");
        let no_workers = &no_workers_on(&plan, &cores, &idles)[..];
        let places = Places::read();
        let kept = places.keep_beside(Some(cores[slot_of(&plan, StageName::Sequencer)]));
        let (stages, Beside { figures, shadow, server, recorder }, mut appliance) = match nic::open(config)? {
            Opened::Udp(nic, why) => build_captured::<S, _>(config, service, no_workers, calibration, *nic, &why)?,
            Opened::Xdp(nic, why) => build_captured::<S, _>(config, service, no_workers, calibration, *nic, &why)?,
        };
        drop(kept);
        appliance.choices.nodes = places.describe(&appliance.tap, &plan, &cores);
        appliance.choices.cores = describe_cores(&plan, &cores, usable.len());
        appliance.choices.idle = describe_idle(&plan, config.idle, &idles);
        appliance.choices.runtime = runtime.describe();
        appliance.runtime = runtime;
        if let Some((recorder, settings)) = recorder.zip(config.capture.as_ref()) {
            let spare = spare_cores(&usable, &cores);
            appliance.choices.capture = Some(capture::Described(settings, config, &spare).to_string());
            appliance.capture = Some(CaptureThread::start(recorder, spare).map_err(StartError::Thread)?);
        }
        appliance.spawn(&plan, &cores, &idles, stages.into_iter().zip(figures).collect())?;
        if let Some(mut seed) = shadow {
            seed.cores = shadow_cores(&plan, &usable, &cores);
            appliance.choices.snapshots = Some(describe_snapshots(&seed));
            let service = service.clone();
            appliance.start_thread("tt-shadow", move || vec![shadow::run::<S>(seed, &service)])?;
        }
        if let Some(mut seed) = server {
            seed.cores = shadow_cores(&plan, &usable, &cores);
            appliance.start_thread("tt-feed-server", move || vec![feed_server::run(seed)])?;
        }
        Ok(appliance)
    }

    fn start_thread(
        &mut self,
        name: &str,
        run: impl FnOnce() -> Vec<Closed> + Send + 'static,
    ) -> Result<(), StartError> {
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(run);
        self.threads.push(thread.map_err(|error| {
            self.lifecycle.fail("a thread could not be started".to_string());
            StartError::Thread(error)
        })?);
        Ok(())
    }

    fn spawn(
        &mut self,
        plan: &CorePlan,
        cores: &[usize],
        idles: &[Idle],
        mut stages: Vec<(Box<dyn Stage>, StageFigures)>,
    ) -> Result<(), StartError> {
        idles.iter().copied().for_each(prepare);
        for ((slot, &core), &idle) in plan.slots().iter().zip(cores).zip(idles) {
            let mut mine = Core { part: self.part.clone(), ..Core::default() };
            for name in &slot.stages {
                let named = stages.iter().position(|(stage, _)| stage.name() == *name);
                let (stage, figures) = stages.swap_remove(named.expect("a plan holds each stage once"));
                mine.stages.push(stage);
                mine.figures.push(figures);
                if *name == StageName::Sequencer {
                    mine.heartbeat = Some(Heartbeat::of(&self.metrics));
                }
            }
            self.beats.push(mine.beat.clone());
            let (lifecycle, scheduler) = (self.lifecycle.clone(), self.runtime.scheduler());
            self.start_thread(&format!("tt-{}", slot.stages[0].as_str()), move || {
                // Not being pinned costs speed, nothing else; the choices said what was meant.
                let _ = pin::pin_current_thread(core);
                let _ = pin::sleep_precisely();
                let _first = Runtime::take_place(scheduler);
                run_core(mine, idle, &lifecycle)
            })?;
        }
        Ok(())
    }

    /// Where clients connect.
    pub fn local_addr(&self) -> SocketAddrV4 {
        self.local_addr
    }

    /// Where replicas get what they missed, if anywhere.
    pub fn repair_addr(&self) -> Option<SocketAddrV4> {
        self.repair_addr
    }

    /// Where receivers of the public events ask for what they missed, if anywhere.
    pub fn events_repair_addr(&self) -> Option<SocketAddrV4> {
        self.events_repair_addr
    }

    /// This reign's epoch.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The last seq that was rebuilt from the journal.
    pub fn recovered_to(&self) -> Seq {
        self.recovered_to
    }

    /// What was chosen, and why.
    pub fn choices(&self) -> &Choices {
        &self.choices
    }

    /// The last seq that was sequenced.
    pub fn sequenced(&self) -> Seq {
        match self.tap.follow(Seq::MAX, Horizon::Sequenced) {
            Err(AttachError::NotYet { next }) => Seq(next.0 - 1),
            Ok(follower) => follower.sequenced_hint(),
            Err(_) => self.watermarks.durable(),
        }
    }

    /// How far the log is durable and committed.
    pub fn watermarks(&self) -> &Watermarks {
        &self.watermarks
    }

    /// The last seq that the oldest kept snapshot covers, once it is verified; 0 before.
    pub fn covered(&self) -> Seq {
        self.covered.get()
    }

    /// Waits until a verified snapshot covers the log up to `seq`. False where that takes longer than `timeout`.
    pub fn wait_covered(&self, seq: Seq, timeout: Duration) -> bool {
        self.covered.wait_for(seq, timeout)
    }

    /// A look at what the stages measure and count, at any time.
    pub fn metrics(&self) -> MetricsReader {
        self.metrics.reader()
    }

    /// The part of the run that latencies are counted to.
    pub fn part(&self) -> &Part {
        &self.part
    }

    /// How often each thread of the plan has come around, about once a millisecond: one that stays where it is has stopped.
    pub fn beats(&self) -> Vec<u64> {
        self.beats.iter().map(|beat| beat.load(Ordering::Relaxed)).collect()
    }

    /// Why it has stopped by itself, if it has.
    pub fn fault(&self) -> Option<String> {
        self.lifecycle.fault()
    }

    /// Takes no more, drains, syncs, seals, and reports.
    pub fn stop(mut self) -> Report {
        self.lifecycle.stop();
        self.join()
    }

    fn join(&mut self) -> Report {
        let mut report =
            Report { stages: Vec::new(), fault: None, errors: Vec::new(), capture: None, warnings: Vec::new() };
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(closed) => {
                    for (name, result) in closed {
                        match result {
                            Ok(mut stage) => {
                                report.warnings.append(&mut stage.warnings);
                                report.stages.push((name, stage));
                            }
                            Err(error) => report.errors.push(format!("{}: {error}", name.as_str())),
                        }
                    }
                }
                Err(_) => self.lifecycle.fail("a stage's thread panicked; its message is above".to_string()),
            }
        }
        match self.capture.take().map(CaptureThread::finish).transpose() {
            Ok(summary) => report.capture = summary,
            Err(_) => report.errors.push("the recorder's thread panicked; its message is above".to_string()),
        }
        report.fault = self.lifecycle.fault();
        report
    }
}

impl Drop for Appliance {
    fn drop(&mut self) {
        self.lifecycle.stop();
        self.join();
    }
}

/// What runs beside the stages, where there is such.
struct Beside {
    /// Of each stage, in their order.
    figures: Vec<StageFigures>,
    shadow: Option<Seed>,
    server: Option<feed_server::Seed>,
    recorder: Option<Recorder>,
}

/// The stages, what runs beside them, and what they belong to.
type Built = (Vec<Box<dyn Stage>>, Beside, Appliance);

/// Everything but the threads, with taps where a capture is wanted.
fn build_captured<S, N>(
    config: &ApplianceConfig,
    service: &S::Config,
    no_workers: &[usize],
    calibration: CalibrationPlan,
    nic: N,
    why_nic: &str,
) -> Result<Built, StartError>
where
    S: Service + Send + 'static,
    S::Output: Send,
    N: Nic,
    N::Rx: 'static,
    N::Tx: 'static,
{
    let Some(settings) = &config.capture else {
        return build::<S, _>(config, service, no_workers, calibration, nic, why_nic, FeedTaps::default());
    };
    let (Taps { rx, tx, feeds, ip }, recorder) = capture::open(settings, config, &nic)?;
    let tapped = Tapped::new(nic, rx, tx, ip, monotonic_now);
    let mut built = build::<S, _>(config, service, no_workers, calibration, tapped, why_nic, feeds)?;
    built.1.recorder = Some(recorder);
    Ok(built)
}

/// Everything but the threads.
fn build<S, N>(
    config: &ApplianceConfig,
    service: &S::Config,
    no_workers: &[usize],
    calibration: CalibrationPlan,
    nic: N,
    why_nic: &str,
    taps: FeedTaps,
) -> Result<Built, StartError>
where
    S: Service + Send + 'static,
    S::Output: Send,
    N: Nic,
    N::Rx: 'static,
    N::Tx: 'static,
{
    let event_ports = config.events.as_ref().map(|events| Ports::open(events, config)).transpose()?;
    let feed_nic = config.feed.as_ref().map(|feed| open_feed(feed, config)).transpose()?;
    let repair = config.feed.as_ref().and_then(|feed| feed.repair);
    let repair = repair.map(|address| feed_server::Ports::open(address, config.datagram_bytes_max)).transpose()?;
    let Start { mut journal, recovered, machine, mut sessions, events, account, .. } =
        recovery::start::<S>(config, service, egress_config(config, 0, S::SCHEMA_VERSION))?;
    journal.keep_workers_off(no_workers, &pin::usable_cores());
    if config.journal.strategy == StrategyChoice::Auto {
        journal.calibrate(calibration);
    }
    let epoch = u32::try_from(recovered.last_epoch.max(machine.epoch()) + 1).expect("four billion starts");
    if (config.feed.is_some() || config.events.is_some()) && FeedSession::new(0, epoch).is_err() {
        let message = format!("epoch {epoch} does not fit the feed's session name: begin a new journal");
        return Err(ConfigError { place: "feed".to_string(), message }.into());
    }
    journal.set_epoch(u64::from(epoch));
    let reign = Reign { epoch: u64::from(epoch), id: journal.mint() };
    sessions.begin(epoch, machine.sessions(), machine.epochs());
    let (log_id, epochs) = (journal.log_id(), EpochTable::new(&machine.reigns()));
    epochs.begin(reign, machine.applied().next());

    let ring = ring_builder(config, epoch);
    let ring = ring.build(recovered.next_seq)?;
    let [journal_frames, frames, publish_frames]: [Consumer; 3] =
        ring.consumers.try_into().unwrap_or_else(|_| unreachable!("three consumers were asked for"));
    let part = Part::default();
    let arrivals = Arrivals::new(config.ring.bytes / 32, part.clone());
    let mut exporter = Exporter::new(config.metrics.as_deref(), S::NAME, epoch)?;
    let mut latency = |stage: &str, after: Seq| exporter.latency(stage, &arrivals, after);

    let time = SequencedClock::new(machine.now(), Timestamp(clock::realtime_ns()), clock::monotonic_ns());
    let mut log = LogWriter::new(ring.producer, time, reign.stream_id(), config.payload_bytes_max());
    let last = machine.applied();
    let mut journaler = Journaler::new(journal_frames, journal, ring.durable, latency("durable", last)?);
    let change = EpochChange {
        epoch: reign.epoch,
        schema_version: S::SCHEMA_VERSION,
        service_name: S::NAME,
        reign: reign.id,
        previous_reign: machine.reign().id,
    };
    begin_epoch(&mut log, &mut journaler, &change)?;
    if config.tier == Tier::Memory {
        journaler.be_unhurried(config.ring.bytes);
    }

    let mut outputs = RingBuilder::new(output_ring_config(config)).heap();
    outputs.consumer("egress");
    let mut outputs = outputs.build(Seq::FIRST)?;
    let records = outputs.consumers.pop().expect("one consumer was asked for");
    let output_writer = OutputWriter::new(outputs.producer, config.limits.output_bytes_max);

    let (control_tx, control_rx) = rtrb::RingBuffer::new(CONTROL_QUEUE_MAX);
    let (deadline, lifecycle) = (Deadline::never(), Lifecycle::default());
    let local_addr = nic.local_addr();
    let mut choices = Choices {
        nic: format!("{} ({why_nic})", nic.describe()),
        journal: journaler.journal().describe(),
        journal_strategy: journaler.journal().strategy().to_string(),
        ring: ring.memory,
        cores: String::new(),
        idle: String::new(),
        runtime: None,
        nodes: None,
        feed: None,
        repair: None,
        events: None,
        metrics: String::new(),
        recovery: recovered.warnings().fold(account, |account, warning| format!("{account}; {warning}")),
        snapshots: None,
        capture: None,
    };
    let (rx, tx) = nic.split();
    let sequencer_config = SequencerConfig {
        epoch,
        schema_version: S::SCHEMA_VERSION,
        datagram_bytes_max: config.datagram_bytes_max,
        command_bytes_max: config.command_bytes_max(),
        window: config.window,
        sessions_max: config.sessions_max,
        reorder_bytes: config.session_reorder_bytes,
    };
    let ended = EndedSessions::new(machine.epochs(), machine.feed_reigns(), epoch, machine.next_feed_event());
    let (sequenced, applied, released) =
        (latency("sequenced", last)?, latency("applied", last)?, latency("released", last)?);
    let sequenced = sequenced.at_the_wire(exporter.recorders("wire_in")?);
    let released = released.at_the_wire(exporter.recorders("wire_out")?);
    let mut sequencer =
        Sequencer::new(rx, log, sequencer_config, machine.sessions(), control_tx, deadline.clone(), sequenced);
    let reigns = machine.reigns().into_iter().map(|(reign, _)| reign).chain([reign]).collect();
    let executor = Executor::new(frames, machine, output_writer, deadline, applied);
    let egress = Egress::new(tx, records, ring.watermarks.clone(), ring.commit, control_rx, sessions, released);
    let feed = feed_nic.zip(config.feed.as_ref()).map(|(nic, feed)| {
        choices.feed =
            Some(format!("MoldUDP64 on {}{}", feed.a, feed.b.map_or(String::new(), |b| format!(" and {b}"))));
        if let Some(repair) = &repair {
            choices.repair =
                Some(format!("UDP and TCP on {}: lost messages, catch-up, commits", repair.udp.local_addr()));
        }
        let session = FeedSession::new(feed.stream(), epoch).expect("checked above");
        let publisher = Publisher::new(&feed::FeedConfig {
            session,
            first_seq: last.next().0,
            a: feed.a,
            b: feed.b,
            datagram_bytes_max: config.datagram_bytes_max,
            heartbeat_interval_ns: feed::HEARTBEAT_NS,
        });
        (publisher, nic, feed.interface)
    });
    let events = config.events.as_ref().zip(event_ports).zip(events).map(|((settings, ports), recent)| {
        let (datagram_bytes_max, tap) = (config.datagram_bytes_max, taps.events);
        Events { settings, ports, recent, epoch, ended, log_id, reigns, datagram_bytes_max, tap }
    });
    choices.events = events.as_ref().map(Events::describe);
    let events_repair_addr = events.as_ref().and_then(|events| events.ports.repair_addr());
    let covered = Covered::default();
    let shadow = config.snapshots.map(|snapshots| {
        let (digests, received) = rtrb::RingBuffer::new(DIGESTS_MAX);
        sequencer.set_marks(snapshots.cadence(), received);
        let ring = ring.tap.follow(last.next(), Horizon::Durable).expect("the ring begins there");
        let (config, covered, lifecycle) = (config.clone(), covered.clone(), lifecycle.clone());
        let log_id = journaler.journal().log_id();
        Seed { config, snapshots, ring, digests, covered, lifecycle, log_id, cores: Vec::new() }
    });
    let mut journaler = JournalerStage::new(journaler, lifecycle.clone());
    if config.snapshots.is_some_and(|snapshots| snapshots.compact) {
        journaler.compact_to(covered.clone());
    }
    let stages: Vec<Box<dyn Stage>> = vec![
        Box::new(SequencerStage::new(sequencer, lifecycle.clone())),
        Box::new(journaler),
        Box::new(ExecutorStage::new(executor, lifecycle.clone())),
        capture::publisher_stage(publish_frames, feed, taps.feed, lifecycle.clone()),
        events::egress_stage(egress, events, lifecycle.clone()),
    ];
    let figures = stages.iter().map(|stage| exporter.figures(&**stage)).collect::<Result<_, _>>()?;
    let repair_addr = repair.as_ref().map(|ports| ports.udp.local_addr());
    let server = repair.zip(config.feed.as_ref()).map(|(ports, feed)| feed_server::Seed {
        ports,
        dir: config.dir.clone(),
        tap: ring.tap.clone(),
        watermarks: ring.watermarks.clone(),
        stream: feed.stream(),
        datagram_bytes_max: config.datagram_bytes_max,
        role: feed_server::Role::Leader { reign },
        service: Identity { name: S::NAME, schema_version: S::SCHEMA_VERSION },
        epochs,
        log_id,
        lifecycle: lifecycle.clone(),
        cores: Vec::new(),
        figures: exporter.figures_of(StageName::FeedServer.as_str(), &feed_server::Figured::tell_none).ok(),
    });
    exporter.ring(ring.tap.header())?;
    exporter.publish()?;
    choices.metrics = exporter.describe();
    let appliance = Appliance {
        lifecycle,
        threads: Vec::new(),
        beats: Vec::new(),
        runtime: Runtime::default(),
        capture: None,
        covered,
        watermarks: ring.watermarks,
        tap: ring.tap,
        local_addr,
        repair_addr,
        events_repair_addr,
        epoch,
        recovered_to: last,
        choices,
        part,
        metrics: exporter.into_metrics(),
    };
    Ok((stages, Beside { figures, shadow, server, recorder: None }, appliance))
}

/// The state of the box in which the journal will run: which other threads spin, and whether its own does.
fn calibration_plan(plan: &CorePlan, idles: &[Idle]) -> CalibrationPlan {
    let spins = |idle: &Idle| idle.strategy == IdleStrategy::Spin;
    let own = &idles[slot_of(plan, StageName::Journaler)];
    let busy_cores = idles.iter().filter(|idle| spins(idle)).count() - usize::from(spins(own));
    CalibrationPlan { busy_cores, spin: spins(own) && own.has_spare_core, ..CalibrationPlan::default() }
}

fn open_feed(feed: &FeedConfig, config: &ApplianceConfig) -> Result<UdpNic, StartError> {
    let udp = UdpConfig {
        interface: Some(feed.interface),
        datagram_bytes_max: config.datagram_bytes_max,
        ..UdpConfig::new(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))
    };
    Ok(UdpNic::open(&udp)?)
}

/// Makes the new reign durable before anything else can be.
fn begin_epoch(
    log: &mut LogWriter,
    journaler: &mut Journaler<NativeDisk>,
    change: &EpochChange<'_>,
) -> Result<(), StartError> {
    let payload = change.encode();
    let seq = log.append(clock::monotonic_ns(), Kind::EpochChange, &payload, &[]).expect("the ring is empty");
    log.publish();
    // Until nothing is under way, too: the disk is about to move to its stage's thread.
    while journaler.durable() < seq || journaler.journal().busy() {
        journaler.poll(clock::monotonic_ns());
        if let Some(error) = journaler.failed() {
            return Err(error.clone().into());
        }
        if let Some(error) = journaler.starved() {
            return Err(error.clone().into());
        }
    }
    Ok(())
}

fn describe_snapshots(seed: &Seed) -> String {
    let SnapshotConfig { every_frames, every_bytes, every_ms, retained, compact, .. } = seed.snapshots;
    format!(
        "a shadow replica on cores {}, each {every_frames} frames, {} MiB or {} s; {retained} kept, the log before them {}",
        pin::list(&seed.cores),
        every_bytes >> 20,
        every_ms as f64 / 1000.0,
        if compact { "given up" } else { "kept" }
    )
}
