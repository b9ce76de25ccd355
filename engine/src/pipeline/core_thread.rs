//! One core: a thread that polls its stages, from their first round to their last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ticktape_tuning::clock::SpinClock;
use ticktape_tuning::taken::{Taken, Watch};

use super::exporter::{COUNTER, Heartbeat, LEVEL, StageFigures, Tell};
use super::idle::{IdleStrategy, Idler};
use super::plan::StageName;
use super::stage::{Lifecycle, Stage, StageReport};
use crate::metrics::{PARTS_MAX, Part};

/// Between two rounds of housekeeping. Heartbeats, clock steering and zero-filling need no more.
const HOUSEKEEPING_NS: u64 = 1_000_000;

pub(super) type Closed = (StageName, Result<StageReport, String>);

/// Fails the appliance where a stage's thread unwinds, so that the other threads don't wait for it.
struct Alarm<'a>(&'a Lifecycle);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("a stage's thread panicked; its message is above".to_string());
        }
    }
}

/// How a thread waits.
#[derive(Clone, Copy)]
pub(super) struct Idle {
    pub(super) strategy: IdleStrategy,
    pub(super) has_spare_core: bool,
}

/// Measures the counter that spinning threads read, once a process and for up to 0.2 s: while an appliance starts, not when its first
/// client waits.
pub(super) fn prepare(idle: Idle) {
    if idle.strategy == IdleStrategy::Spin {
        SpinClock::new();
    }
}

/// What a thread polls.
#[derive(Default)]
pub(super) struct Core {
    pub(super) stages: Vec<Box<dyn Stage>>,
    /// Of each stage, where anybody may look.
    pub(super) figures: Vec<StageFigures>,
    pub(super) heartbeat: Option<Heartbeat>,
    /// Moves on as long as the thread does.
    pub(super) beat: Arc<AtomicU64>,
    /// Which part of the run what is taken from the thread counts to.
    pub(super) part: Part,
}

/// One thread: polls its stages in plan order until they are drained, or one anywhere has failed.
pub(super) fn run_core(mut core: Core, idle: Idle, lifecycle: &Lifecycle) -> Vec<Closed> {
    let Core { stages, figures, heartbeat, beat, part } = &mut core;
    let alarm = Alarm(lifecycle);
    // Who sleeps now and then asks too seldom for a clock that has to be set each millisecond.
    let spins = idle.strategy == IdleStrategy::Spin;
    let mut clock = if spins { SpinClock::new() } else { SpinClock::system() };
    // Of a thread that sleeps, nobody can tell what it was robbed of.
    let mut watch = spins.then(Watch::begin);
    let mut taken = [Taken::default(); PARTS_MAX];
    let mut idler = Idler::new(idle.strategy).with_spare_core(idle.has_spare_core);
    let mut housekeeping_at = 0;
    while !lifecycle.failed() {
        let mut work = 0;
        let mut now = clock.now_ns();
        for stage in &mut *stages {
            let done = stage.poll(now);
            if done > 0 {
                work += done;
                // A stage that worked took time; one that was idle took less than reading the clock would.
                now = clock.now_ns();
            }
        }
        if now >= housekeeping_at {
            // What a stop takes is nobody's wait.
            if let (Some(watch), false) = (&mut watch, lifecycle.draining()) {
                watch.look(&mut taken[part.get()]);
            }
            stages.iter_mut().for_each(|stage| stage.housekeeping(now));
            figures
                .iter_mut()
                .zip(&*stages)
                .for_each(|(figures, stage)| figures.export(now, |tell| tell_stage(&**stage, &taken, tell)));
            if let Some(heartbeat) = heartbeat {
                heartbeat.beat(now);
            }
            // Nothing is read after it: whoever looks wants to know that it moves.
            beat.fetch_add(1, Ordering::Relaxed);
            housekeeping_at = now + HOUSEKEEPING_NS;
        }
        if lifecycle.draining() && stages.iter_mut().all(|stage| stage.drained(now)) {
            break;
        }
        idler.after_round_or(work, |timeout| stages.iter_mut().any(|stage| stage.wait(timeout)));
    }
    drop(alarm);
    let taken = watch.map(|_| taken);
    core.stages
        .into_iter()
        .map(|stage| (stage.name(), stage.close().map(|report| StageReport { taken, ..report })))
        .collect()
}

/// Tells what a stage counts, and what was taken from the thread that polls it, in both parts.
pub(super) fn tell_stage(stage: &dyn Stage, taken: &[Taken; PARTS_MAX], tell: Tell<'_>) {
    stage.figures(tell);
    let most = |of: fn(&Taken) -> u64| taken.iter().map(of).max().unwrap_or(0);
    tell("taken_ns", COUNTER, taken.iter().map(|taken| taken.total_ns).sum());
    tell("taken_longest_ns", LEVEL, most(|taken| taken.longest_ns));
    tell("taken_behind_ns", LEVEL, most(|taken| taken.behind_ns));
}
