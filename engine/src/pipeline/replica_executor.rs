//! The executor's thread of a replica: rebuilds the state from the disk, then applies what is committed.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use ticktape_core::Service;
use ticktape_journal::NativeDisk;
use ticktape_tuning::{clock, pin};

use super::exporter::{COUNTER, LEVEL, StageFigures, Tell};
use super::plan::StageName;
use super::replica_parts::ExecutorBegin;
use super::stage::{Lifecycle, StageReport};
use crate::machine::Machine;
use crate::mark::Compared;
use crate::replica::{Board, Figure, OnOutput, ReplicaConfig};
use crate::shadow::{Committed, Covered, Log, Replicating, Shadow, ShadowCounters};

/// Between two polls that find nothing.
const REST: Duration = Duration::from_micros(50);

type Look<S> = Box<dyn FnOnce(&Machine<S>) + Send>;

/// A look at the state.
pub(super) struct Asked<S: Service>(Look<S>);

impl<S: Service> Asked<S> {
    pub(super) fn new(look: impl FnOnce(&Machine<S>) + Send + 'static) -> Self {
        Asked(Box::new(look))
    }
}

/// What an executor's thread begins with.
pub(super) struct Seed<S: Service> {
    pub(super) config: ReplicaConfig,
    /// Where snapshots go, if anywhere. Opened where every core may be used: what is left for its workers is a matter of all of them.
    pub(super) snapshots: Option<NativeDisk>,
    pub(super) begin: ExecutorBegin<S>,
    pub(super) covered: Covered,
    pub(super) board: Board,
    pub(super) asks: Arc<Mutex<mpsc::Receiver<Asked<S>>>>,
    pub(super) on_output: Option<Arc<Mutex<OnOutput<S>>>>,
    pub(super) lifecycle: Lifecycle,
    /// Where others look at what it counts.
    pub(super) figures: StageFigures,
}

/// Runs until the replica stops or fails; an executor that can't go on fails it.
pub(super) fn run<S: Service + 'static>(seed: Seed<S>) -> (StageName, Result<StageReport, String>) {
    let _ = pin::sleep_precisely();
    let lifecycle = seed.lifecycle.clone();
    let report = execute::<S>(seed).unwrap_or_else(|error| {
        lifecycle.fail(error);
        StageReport::default()
    });
    (StageName::Replica, Ok(report))
}

fn execute<S: Service + 'static>(seed: Seed<S>) -> Result<StageReport, String> {
    let Seed { config, snapshots, begin, covered, board, asks, on_output, lifecycle, mut figures } = seed;
    let ExecutorBegin { restored, ring, committed } = begin;
    let on_output = on_output.map(|on_output| {
        let forward: OnOutput<S> = Box::new(move |seq, output| {
            on_output.lock().unwrap_or_else(PoisonError::into_inner)(seq, output);
        });
        forward
    });
    let snapshots = snapshots.zip(config.snapshots.map(|snapshots| snapshots.pace()));
    // What it may apply: what is committed, and wanted.
    let allowed = Committed::new(committed.get().min(config.last_wanted()));
    let replicating = Replicating { committed: allowed.clone(), on_output };
    let log = Log::in_files(&config.dir, ring);
    let opened = Shadow::open_replica(log, restored, replicating, snapshots, covered);
    let mut shadow = opened.map_err(|error| error.to_string())?;
    while !lifecycle.failed() {
        allowed.raise(committed.get().min(config.last_wanted()));
        let now = clock::monotonic_ns();
        let applied = shadow.poll(now).map_err(|error| error.to_string())?;
        let counters = shadow.counters();
        figures.export(now, |tell| Figured::of(&shadow).tell(tell));
        board.set(Figure::Applied, shadow.machine().applied().0);
        board.set(Figure::Snapshots, counters.snapshots);
        let ask = asks.lock().unwrap_or_else(PoisonError::into_inner).try_recv();
        if let Ok(Asked(look)) = ask {
            look(shadow.machine());
        } else if applied == 0 {
            let all = lifecycle.final_seq().map(|last| last.min(committed.get()).min(config.last_wanted()));
            if all.is_some_and(|all| shadow.machine().applied() >= all) {
                break;
            }
            std::thread::sleep(REST);
        }
    }
    Ok(report(&shadow))
}

/// What an executor counts.
#[derive(Default)]
pub(super) struct Figured {
    applied: u64,
    malformed: u64,
    compared: Compared,
    shadow: ShadowCounters,
}

impl Figured {
    /// As an executor that has done nothing.
    pub(super) fn tell_none(tell: Tell<'_>) {
        Figured::default().tell(tell);
    }

    fn of<S: Service>(shadow: &Shadow<S, NativeDisk>) -> Self {
        let machine = shadow.machine();
        Figured {
            applied: machine.applied().0,
            malformed: machine.malformed(),
            compared: machine.compared(),
            shadow: shadow.counters(),
        }
    }

    fn tell(&self, tell: Tell<'_>) {
        let ShadowCounters { snapshots, last_snapshot, failed_snapshots, overruns, .. } = self.shadow;
        for (name, kind, value) in [
            ("applied_seq", LEVEL, self.applied),
            ("malformed_commands", COUNTER, self.malformed),
            ("marks_compared", COUNTER, self.compared.outputs),
            ("states_compared", COUNTER, self.compared.states),
            ("snapshots", COUNTER, snapshots),
            ("last_snapshot", LEVEL, last_snapshot),
            ("failed_snapshots", COUNTER, failed_snapshots),
            ("overruns", COUNTER, overruns),
        ] {
            tell(name, kind, value);
        }
    }
}

fn report<S: Service>(shadow: &Shadow<S, NativeDisk>) -> StageReport {
    let (machine, mut report) = (shadow.machine(), StageReport::default());
    Figured::of(shadow).tell(&mut |name, _, value| report.counters.push((name, value)));
    report.facts.push(("digest", machine.digest()));
    report.facts.push(("output_hash", format!("{:016x}", machine.output_hash())));
    if let Some(error) = shadow.snapshot_error() {
        report.facts.push(("snapshot_error", error.to_string()));
    }
    report
}
