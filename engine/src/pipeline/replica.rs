//! A replica: its threads, from start to stop, and its beginnings anew.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ticktape_core::{Seq, Service};
use ticktape_journal::{Binding, FileDisk, NativeDisk};
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, UdpConfig, UdpNic};
use ticktape_shm::metrics::MetricsReader;
use ticktape_tuning::{clock, pin};

use super::core_thread::{Closed, Core, Idle, prepare, run_core};
use super::exporter::StageFigures;
use super::feed_server;
use super::places::Places;
use super::plan::StageName;
use super::replica_cut;
use super::replica_executor::{self, Asked, Figured};
use super::replica_metrics::ReplicaMetrics;
use super::replica_parts::{Me, Parts, assemble, open_log};
use super::replica_plan::{ReplicaPlan, ThreadPlace};
use super::replica_reset as reset;
use super::replica_stage::IntakeStage;
use super::replica_tcp::{self, Begun, TcpBulk, Turns};
use super::report::Report;
use super::runtime::Runtime;
use super::stage::{Lifecycle, Stage};
use super::stages::JournalerStage;
use super::start_error::StartError;
use crate::catchup::EpochTable;
use crate::config::{ConfigError, Scheduler};
use crate::machine::Machine;
use crate::replica::{
    Board, BulkEnd, Figure, Identity, OnOutput, Ports, ReplicaConfig, ReplicaState, ReplicaStatus, SnapshotAt, Verdict,
    asking,
};
use crate::shadow::Covered;
use crate::snapshot::Found;

/// Between two looks at whether a replica has come to an end.
const WATCH: Duration = Duration::from_millis(5);

/// After a snapshot could not be had, until it is tried again.
const FETCH_PAUSE: Duration = Duration::from_secs(1);

/// How long a look at the state may take to come about: a step of the service, or the writing of a snapshot.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The threads that `[runtime] scheduler` is for: what the others do takes its time, a state that is rebuilt or a snapshot that is written.
const FIRST: &str = "intake and journaler";

/// A line for people, where there is one so far.
type Told = Arc<Mutex<Option<String>>>;

/// A running replica. Dropping it without [`Replica::stop`] asks its threads to stop and waits for them.
pub struct Replica<S: Service> {
    board: Board,
    stop: Arc<AtomicBool>,
    fault: Arc<Mutex<Option<String>>>,
    asked: mpsc::Sender<Asked<S>>,
    repair_addr: Option<SocketAddrV4>,
    /// Where what it measures can be read, for people, and a look at it.
    metrics: (String, MetricsReader),
    runtime: Runtime,
    nodes: Told,
    thread: Option<JoinHandle<Report>>,
}

impl<S> Replica<S>
where
    S: Service + Send + 'static,
    S::Output: Send,
    S::Config: Clone + Send + 'static,
{
    /// Opens its sockets, and goes on from what `config.dir` holds, in threads of its own. `on_output` is told each output of the
    /// service in order, once it is committed; where the state is rebuilt, of frames after the snapshot it began from.
    ///
    /// # Errors
    /// [`StartError`], one line with what would be right. What comes up later is a [fault](Replica::fault).
    pub fn start(
        config: &ReplicaConfig,
        service: &S::Config,
        on_output: Option<OnOutput<S>>,
    ) -> Result<Self, StartError> {
        config.validate()?;
        config.cores.check(&pin::usable_cores())?;
        let runtime = Runtime::ask(&config.runtime, FIRST);
        std::fs::create_dir_all(&config.dir).map_err(|error| in_dir(&config.dir, &error))?;
        let sockets = Sockets::open(config)?;
        let server = config.serve.map(|address| feed_server::Ports::open(address, config.datagram_bytes_max));
        let server = server.transpose()?;
        let repair_addr = server.as_ref().map(|ports| ports.udp.local_addr());
        let (asked, asks) = mpsc::channel();
        let nodes = Told::default();
        let (board, stop, fault) = (Board::default(), Arc::new(AtomicBool::new(false)), Arc::default());
        let metrics = ReplicaMetrics::new(config, S::NAME, &board)?;
        let seen = (metrics.describe(), metrics.reader());
        let mut keeper = Keeper {
            config: config.clone(),
            service: service.clone(),
            board: board.clone(),
            stop: Arc::clone(&stop),
            fault: Arc::clone(&fault),
            asks: Arc::new(Mutex::new(asks)),
            on_output: on_output.map(|on_output| Arc::new(Mutex::new(on_output))),
            serve: repair_addr,
            log_id: 0,
            epochs: EpochTable::default(),
            turns: Turns::default(),
            metrics,
            scheduler: runtime.scheduler(),
            nodes: Arc::clone(&nodes),
            report: Report { stages: Vec::new(), fault: None, errors: Vec::new(), capture: None, warnings: Vec::new() },
        };
        reset::finish(&mut FileDisk::new(), &config.dir).map_err(|error| in_dir(&config.dir, &error))?;
        let disk = || NativeDisk::new(&config.dir, Binding::OneThread);
        replica_cut::finish(disk, &config.dir, &config.journal)?;
        let mut doors = Doors { sockets: Some(sockets), server };
        // Where there is something, what is wrong with it is said at once.
        let has_log = Found::newest(&config.dir, config.last_wanted())?.log_id() != 0;
        let first = if has_log { Some(keeper.open(&mut doors)?) } else { None };
        let keep = move || keeper.keep(first, doors);
        let thread = std::thread::Builder::new().name("tt-replica".to_string()).spawn(keep);
        let thread = Some(thread.map_err(StartError::Thread)?);
        Ok(Replica { board, stop, fault, asked, repair_addr, metrics: seen, runtime, nodes, thread })
    }

    /// Where it stands.
    pub fn status(&self) -> ReplicaStatus {
        self.board.read()
    }

    /// Where others get what they missed, if anywhere.
    pub fn repair_addr(&self) -> Option<SocketAddrV4> {
        self.repair_addr
    }

    /// A look at what it measures and counts, at any time.
    pub fn metrics(&self) -> &MetricsReader {
        &self.metrics.1
    }

    /// Where others can read the same while it runs, for people.
    pub fn metrics_place(&self) -> &str {
        &self.metrics.0
    }

    /// What the kernel was asked for, and gave, for people; `None` where nothing was.
    pub fn runtime(&self) -> Option<String> {
        self.runtime.describe()
    }

    /// Where its memory and its threads are, for people, once they are: on a box of several NUMA nodes.
    pub fn nodes(&self) -> Option<String> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why it has stopped by itself, if it has.
    pub fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until `holds` says so of where it stands. `None` where that takes longer than `timeout`, or it has stopped before.
    pub fn wait_until(
        &self,
        timeout: Duration,
        mut holds: impl FnMut(&ReplicaStatus) -> bool,
    ) -> Option<ReplicaStatus> {
        let mut held = false;
        let status = self.board.wait_until(timeout, |status| {
            held = holds(status);
            held || status.state == ReplicaState::Stopped
        });
        status.filter(|_| held)
    }

    /// Waits until it has stopped by itself, and says why. `None` where it runs on for `timeout`.
    pub fn wait_fault(&self, timeout: Duration) -> Option<String> {
        self.board.wait_until(timeout, |status| status.state == ReplicaState::Stopped)?;
        self.fault()
    }

    /// Shows the state to `look`, between two frames, on the executor's thread, which waits meanwhile. `None` where there is no
    /// state within a second: it is being begun anew, or the replica has stopped.
    pub fn inspect<T: Send + 'static>(&self, look: impl FnOnce(&Machine<S>) -> T + Send + 'static) -> Option<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        let ask = Asked::new(move |machine: &Machine<S>| {
            // Whoever asked may have gone.
            let _ = answer.send(look(machine));
        });
        self.asked.send(ask).ok()?;
        answered.recv_timeout(INSPECT_TIMEOUT).ok()
    }

    /// Takes no more, makes durable what it has, and reports.
    pub fn stop(mut self) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        self.join()
    }
}

impl<S: Service> Replica<S> {
    fn join(&mut self) -> Report {
        let stopped = |fault: &str| Report {
            stages: Vec::new(),
            fault: Some(fault.to_string()),
            errors: Vec::new(),
            capture: None,
            warnings: Vec::new(),
        };
        let Some(thread) = self.thread.take() else { return stopped("stopped before") };
        thread.join().unwrap_or_else(|_| stopped("the replica's thread panicked; its message is above"))
    }
}

impl<S: Service> Drop for Replica<S> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.thread.is_some() {
            self.join();
        }
    }
}

fn in_dir(dir: &Path, error: &dyn std::fmt::Display) -> StartError {
    StartError::Config(ConfigError { place: "dir".to_string(), message: format!("{}: {error}", dir.display()) })
}

/// The feed's sockets, and the one for repairs.
struct Sockets {
    feeds: Vec<UdpRx>,
    repair_rx: UdpRx,
    repair_tx: UdpTx,
}

impl Sockets {
    fn open(config: &ReplicaConfig) -> Result<Sockets, StartError> {
        let feed = |side: SocketAddrV4| {
            let is_group = side.ip().is_multicast();
            let udp = UdpConfig {
                join: if is_group { vec![*side.ip()] } else { Vec::new() },
                interface: is_group.then_some(config.interface),
                reuse_address: is_group,
                datagram_bytes_max: config.datagram_bytes_max,
                ..UdpConfig::new(side)
            };
            UdpNic::open(&udp).map(|nic| nic.split().0)
        };
        let feeds = [Some(config.a), config.b].into_iter().flatten().map(feed).collect::<Result<Vec<_>, _>>()?;
        let udp = UdpConfig {
            datagram_bytes_max: config.datagram_bytes_max,
            ..UdpConfig::new(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))
        };
        let (repair_rx, repair_tx) = UdpNic::open(&udp)?.split();
        Ok(Sockets { feeds, repair_rx, repair_tx })
    }
}

/// What keeps a replica going over its beginnings anew.
struct Keeper<S: Service> {
    config: ReplicaConfig,
    service: S::Config,
    board: Board,
    stop: Arc<AtomicBool>,
    fault: Arc<Mutex<Option<String>>>,
    asks: Arc<Mutex<mpsc::Receiver<Asked<S>>>>,
    on_output: Option<Arc<Mutex<OnOutput<S>>>>,
    /// Where others are served, with the port that was found.
    serve: Option<SocketAddrV4>,
    /// Which log it is, where nothing on the disk says so yet.
    log_id: u64,
    /// The epochs of the log as it was last opened.
    epochs: EpochTable,
    /// Whom it asks next.
    turns: Turns,
    /// Seen by others for as long as it runs.
    metrics: ReplicaMetrics,
    /// Of the threads that go first.
    scheduler: Scheduler,
    nodes: Told,
    report: Report,
}

/// Sockets that are open already.
struct Doors {
    sockets: Option<Sockets>,
    server: Option<feed_server::Ports>,
}

/// A replica that goes on from one point of the disk.
struct Running {
    lifecycle: Lifecycle,
    threads: Vec<JoinHandle<Vec<Closed>>>,
    verdict: Arc<Mutex<Option<Verdict>>>,
}

impl Running {
    /// Its threads have ended.
    fn has_ended(&self) -> bool {
        self.lifecycle.failed() || self.threads.iter().all(JoinHandle::is_finished)
    }

    fn join(self, report: &mut Report) -> Option<Verdict> {
        for thread in self.threads {
            match thread.join() {
                Ok(closed) => {
                    for (name, result) in closed {
                        match result {
                            Ok(stage) => report.stages.push((name, stage)),
                            Err(error) => report.errors.push(format!("{}: {error}", name.as_str())),
                        }
                    }
                }
                Err(_) => self.lifecycle.fail("a replica's thread panicked; its message is above".to_string()),
            }
        }
        let verdict = self.verdict.lock().unwrap_or_else(PoisonError::into_inner).take();
        verdict.or_else(|| self.lifecycle.fault().map(Verdict::Fault))
    }
}

impl<S> Keeper<S>
where
    S: Service + Send + 'static,
    S::Output: Send,
    S::Config: Clone + Send + 'static,
{
    fn keep(mut self, first: Option<Running>, mut doors: Doors) -> Report {
        let fault = self.run(first, &mut doors).err();
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&fault);
        self.report.fault = fault;
        self.board.set_state(ReplicaState::Stopped);
        self.report
    }

    /// Until it is asked to stop, or for a fault.
    fn run(&mut self, first: Option<Running>, doors: &mut Doors) -> Result<(), String> {
        let mut running = match first {
            Some(running) => running,
            None => match self.begin(doors, ReplicaState::Joining)? {
                Some(running) => running,
                None => return Ok(()),
            },
        };
        loop {
            while !running.has_ended() && !self.stopping() {
                self.watch();
            }
            running.lifecycle.stop();
            (self.report.stages, self.report.errors) = (Vec::new(), Vec::new());
            let verdict = running.join(&mut self.report);
            let shown = match verdict {
                None => return Ok(()),
                Some(Verdict::Fault(fault)) => return Err(fault),
                Some(_) if self.stopping() => return Ok(()),
                Some(Verdict::Snapshot(snapshot)) => {
                    self.begin_from_snapshot(&snapshot)?;
                    ReplicaState::FetchingSnapshot
                }
                Some(Verdict::TakenBack { why, from }) => {
                    self.give_up_from(&why, from)?;
                    ReplicaState::ChangingEpoch
                }
            };
            self.board.add(Figure::Restarts, 1);
            // The state is built anew.
            self.board.set(Figure::Applied, 0);
            running = match self.begin(doors, shown)? {
                Some(running) => running,
                None => return Ok(()),
            };
        }
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Shows where it stands, and rests.
    fn watch(&mut self) {
        self.metrics.show(&self.board, clock::monotonic_ns());
        std::thread::sleep(WATCH);
    }

    /// Cuts the log before `from`, which is 0 where all of its last epoch has to go: what comes before is gone on from. Where it can't
    /// be cut, or nothing is left of it, it is fetched anew.
    fn give_up_from(&self, why: &str, from: Seq) -> Result<(), String> {
        let dir = &self.config.dir;
        let from = if from == Seq::ZERO { self.epochs.last_began().unwrap_or(Seq::FIRST) } else { from };
        let keep = Seq(from.0.saturating_sub(1));
        let received = self.board.get(Figure::Received);
        let disk = || NativeDisk::new(dir, Binding::OneThread);
        let kept = match replica_cut::cut(disk, dir, &self.config.journal, keep) {
            Ok(kept) => {
                self.board.say(format_args!("{why}; what was here up to seq {kept} stays"));
                kept
            }
            Err(error) => {
                self.board.say(format_args!("{why}; the log can't be cut there, and is fetched anew: {error}"));
                replica_cut::give_up_all(&mut FileDisk::new(), dir).map_err(|error| error.to_string())?;
                Seq::ZERO
            }
        };
        self.board.add(Figure::TakenBack, received.saturating_sub(kept.0));
        for figure in [Figure::Received, Figure::Durable, Figure::Committed] {
            self.board.set(figure, self.board.get(figure).min(kept.0));
        }
        Ok(())
    }

    /// Gives up the log for a snapshot that has come.
    fn begin_from_snapshot(&mut self, snapshot: &SnapshotAt) -> Result<(), String> {
        let SnapshotAt { path, seq, log_id } = snapshot;
        let dir = &self.config.dir;
        let begun = reset::begin_from(&mut FileDisk::new(), dir, path, *seq);
        begun.map_err(|error| format!("{}: {error}", dir.display()))?;
        self.log_id = *log_id;
        self.board.add(Figure::SnapshotsTaken, 1);
        self.board.say(format_args!("began from a snapshot of seq {seq}"));
        Ok(())
    }

    /// Finds somebody to begin from where the disk has nothing, then goes on from what it holds. `None` where it was asked to stop
    /// meanwhile.
    fn begin(&mut self, doors: &mut Doors, shown: ReplicaState) -> Result<Option<Running>, String> {
        self.board.set_state(shown);
        self.metrics.show(&self.board, clock::monotonic_ns());
        let mut trouble = String::new();
        loop {
            let found =
                Found::newest(&self.config.dir, self.config.last_wanted()).map_err(|error| error.to_string())?;
            let (is_known, from) = (found.log_id() != 0, (found.covered().next(), found.epoch()));
            drop(found);
            if is_known {
                break;
            }
            let asked = |peer| match &trouble[..] {
                "" => self.board.say(asking(peer)),
                trouble => self.board.say(format_args!("{trouble}; now {}", asking(peer))),
            };
            match replica_tcp::begin(&self.config, self.identity(), from, &self.turns, &self.stop, asked) {
                Ok(None) => return Ok(None),
                Ok(Some(Begun::Snapshot(snapshot))) => {
                    self.begin_from_snapshot(&snapshot)?;
                    break;
                }
                Ok(Some(Begun::Frames { log_id })) => {
                    self.board.say("");
                    self.log_id = log_id;
                    break;
                }
                Err(BulkEnd::Foreign(why) | BulkEnd::OtherLog(why)) => return Err(why),
                Err(BulkEnd::Failed(why) | BulkEnd::TakenBack { why, .. }) => {
                    self.board.add(Figure::CatchUpsFailed, 1);
                    self.board.say(&why);
                    trouble = why;
                    self.pause();
                }
                Err(BulkEnd::Complete { .. } | BulkEnd::Snapshot(_)) => break,
            }
        }
        self.open(doors).map(Some).map_err(|error| error.to_string())
    }

    fn pause(&mut self) {
        let until = Instant::now() + FETCH_PAUSE;
        while Instant::now() < until && !self.stopping() {
            self.watch();
        }
    }

    fn identity(&self) -> Identity {
        Identity { name: S::NAME, schema_version: S::SCHEMA_VERSION }
    }

    /// Goes on from what the disk holds.
    fn open(&mut self, doors: &mut Doors) -> Result<Running, StartError> {
        let config = &self.config;
        let number = reset::number(&config.dir).map_err(|error| in_dir(&config.dir, &error))?;
        let usable = pin::usable_cores();
        let no_workers = config.cores.no_workers_on(config.idle, usable.len());
        let places = Places::read();
        let kept = places.keep_beside(config.cores.place(StageName::Intake).core);
        let open_disk = || {
            let mut disk = NativeDisk::new(&config.dir, Binding::OneThread);
            disk.keep_workers_off(&no_workers, &usable);
            disk
        };
        let opened = open_log::<S, _, _>(config, &self.service, self.log_id, open_disk(), FileDisk::new)?;
        for warning in opened.warnings() {
            self.board.add(Figure::SetAside, 1);
            self.board.say(warning);
            self.report.warnings.push(warning.clone());
        }
        let sockets = doors.sockets.take().map_or_else(|| Sockets::open(config), Ok)?;
        let server = match (doors.server.take(), self.serve) {
            (None, Some(address)) => Some(feed_server::Ports::open(address, config.datagram_bytes_max)?),
            (server, _) => server,
        };
        let (lifecycle, log_id) = (Lifecycle::default(), opened.log_id());
        let me = Me {
            number,
            first_status: SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64),
            service: self.identity(),
        };
        let ports = Ports { feeds: sockets.feeds, repair_rx: sockets.repair_rx, repair_tx: sockets.repair_tx };
        let bulk = TcpBulk::new(config, me.service, log_id, self.turns.clone());
        let Parts { intake, journaler, executor, tap, watermarks, role, epochs } =
            assemble(config, me, opened, ports, bulk, &self.board)?;
        drop(kept);
        let nodes = places.describe_replica(&tap, &config.cores);
        *self.nodes.lock().unwrap_or_else(PoisonError::into_inner) = nodes;
        self.epochs = epochs.clone();
        self.metrics.ring(&tap)?;
        let covered = Covered::default();
        let executor = replica_executor::Seed {
            config: config.clone(),
            snapshots: config.snapshots.map(|_| open_disk()),
            begin: executor,
            covered: covered.clone(),
            board: self.board.clone(),
            asks: Arc::clone(&self.asks),
            on_output: self.on_output.clone(),
            lifecycle: lifecycle.clone(),
            figures: self.metrics.figures_of(StageName::Executor, &Figured::tell_none)?,
        };
        let served = |metrics: &mut ReplicaMetrics| {
            metrics.figures_of(StageName::FeedServer, &feed_server::Figured::tell_none).ok()
        };
        let server = server.map(|ports| feed_server::Seed {
            ports,
            dir: config.dir.clone(),
            tap,
            watermarks,
            stream: config.stream(),
            datagram_bytes_max: config.datagram_bytes_max,
            role,
            service: me.service,
            epochs,
            log_id,
            lifecycle: lifecycle.clone(),
            cores: config.cores.place(StageName::FeedServer).core.map_or_else(pin::usable_cores, |core| vec![core]),
            figures: served(&mut self.metrics),
        });
        let mut journaler = JournalerStage::new(journaler, lifecycle.clone());
        if config.snapshots.is_some_and(|snapshots| snapshots.compact) {
            journaler.compact_to(covered);
        }
        let verdict = Arc::default();
        let intake = IntakeStage::new(intake, Arc::clone(&verdict), lifecycle.clone());
        let mut running = Running { lifecycle, threads: Vec::new(), verdict };
        let stages: [Box<dyn Stage>; 2] = [Box::new(intake), Box::new(journaler)];
        let figures = [self.metrics.stage(&*stages[0])?, self.metrics.stage(&*stages[1])?];
        self.spawn(&mut running, stages.into_iter().zip(figures), executor, server)?;
        Ok(running)
    }

    fn spawn(
        &self,
        running: &mut Running,
        stages: impl Iterator<Item = (Box<dyn Stage>, StageFigures)>,
        executor: replica_executor::Seed<S>,
        server: Option<feed_server::Seed>,
    ) -> Result<(), StartError> {
        let (plan, usable) = (&self.config.cores, pin::usable_cores().len());
        let has_spare_core = usable > ReplicaPlan::THREADS.len();
        for (stage, figures) in stages {
            let lifecycle = running.lifecycle.clone();
            let place = plan.place(stage.name());
            let idle = Idle { strategy: plan.idle(stage.name(), self.config.idle, usable), has_spare_core };
            prepare(idle);
            let scheduler = self.scheduler;
            running.start(&format!("tt-{}", stage.name().as_str()), move || {
                pin_to(place);
                let _ = pin::sleep_precisely();
                let _first = Runtime::take_place(scheduler);
                let core = Core { stages: vec![stage], figures: vec![figures], ..Core::default() };
                run_core(core, idle, &lifecycle)
            })?;
        }
        let place = self.config.cores.place(StageName::Executor);
        running.start("tt-executor", move || {
            pin_to(place);
            vec![replica_executor::run::<S>(executor)]
        })?;
        if let Some(server) = server {
            running.start("tt-feed-server", move || vec![feed_server::run(server)])?;
        }
        Ok(())
    }
}

/// Not being pinned costs speed, nothing else.
fn pin_to(place: ThreadPlace) {
    if let Some(core) = place.core {
        let _ = pin::pin_current_thread(core);
    }
}

impl Running {
    fn start(&mut self, name: &str, run: impl FnOnce() -> Vec<Closed> + Send + 'static) -> Result<(), StartError> {
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(run);
        self.threads.push(thread.map_err(|error| {
            self.lifecycle.fail("a thread could not be started".to_string());
            StartError::Thread(error)
        })?);
        Ok(())
    }
}
