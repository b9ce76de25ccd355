//! What a runner polls, and how an appliance comes to a stop.
//!
//! A graceful stop passes along the pipeline: the sequencer takes no more and names the last seq; each stage works on until
//! it has passed that; the last record and the last seq are then durable, applied, published and released.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hdrhistogram::Histogram;
use ticktape_core::{Nanos, Seq};
use ticktape_shm::metrics::Kind;
use ticktape_tuning::taken::Taken;

use super::plan::StageName;
use crate::metrics::{PARTS_MAX, StageLatency};

/// A duty cycle on a core.
pub trait Stage: Send {
    /// Which stage this is.
    fn name(&self) -> StageName;

    /// Does what there is to do, bounded and without waiting; returns the work done, 0 when idle.
    fn poll(&mut self, now: Nanos) -> usize;

    /// Rare work, off the hot path; called about every millisecond and when a round was idle.
    fn housekeeping(&mut self, now: Nanos);

    /// Waits in the kernel for what is under way there, for `timeout` at most. False, at once, where nothing is.
    fn wait(&mut self, timeout: Duration) -> bool {
        let _ = timeout;
        false
    }

    /// Tells what it counts, the same figures in the same order at any time; allocates nothing.
    fn figures(&self, tell: &mut dyn FnMut(&'static str, Kind, u64)) {
        let _ = tell;
    }

    /// In a graceful stop: whether everything has passed this stage.
    fn drained(&mut self, now: Nanos) -> bool;

    /// Ends the stage after the last poll and hands over what it measured.
    ///
    /// # Errors
    /// What could not be completed, in one line.
    fn close(self: Box<Self>) -> Result<StageReport, String>;
}

/// What a stage leaves behind.
#[derive(Debug, Default)]
pub struct StageReport {
    /// Latencies by the name of the point they were measured at, and by part of the run.
    pub latencies: Vec<(&'static str, [Histogram<u64>; PARTS_MAX])>,
    /// Counters by name.
    pub counters: Vec<(&'static str, u64)>,
    /// What the machine took from the thread that polled it, by part of the run; none where that thread sleeps now and then, as nobody can
    /// tell the one from the other.
    pub taken: Option<[Taken; PARTS_MAX]>,
    /// Facts by name, such as the state's digest.
    pub facts: Vec<(&'static str, String)>,
    /// What an operator has to know of its end, each in a line.
    pub warnings: Vec<String>,
}

impl StageReport {
    /// With what a stage counts.
    pub fn of(stage: &impl Stage) -> Self {
        let mut report = StageReport::default();
        stage.figures(&mut |name, _, value| report.counters.push((name, value)));
        report
    }

    /// Adds what was measured behind the stage, and at the wire where it is there.
    pub(super) fn push_latencies(&mut self, point: &'static str, wire: &'static str, latency: &StageLatency) {
        let (behind, at_the_wire) = latency.histograms();
        self.latencies.push((point, behind));
        self.latencies.extend(at_the_wire.map(|histograms| (wire, histograms)));
    }
}

const RUNNING: u8 = 0;
const DRAINING: u8 = 1;
const FAILED: u8 = 2;

/// Not known yet.
const OPEN: u64 = u64::MAX;

/// The appliance's life, shared by its stages.
#[derive(Clone, Debug)]
pub struct Lifecycle(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    phase: AtomicU8,
    final_seq: AtomicU64,
    final_record: AtomicU64,
    fault: Mutex<Option<String>>,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Lifecycle(Arc::new(Inner {
            phase: AtomicU8::new(RUNNING),
            final_seq: AtomicU64::new(OPEN),
            final_record: AtomicU64::new(OPEN),
            fault: Mutex::new(None),
        }))
    }
}

impl Lifecycle {
    /// Asks for a graceful stop.
    pub fn stop(&self) {
        // Release, as in `fail`: pairs with the Acquire loads below.
        let _ = self.0.phase.compare_exchange(RUNNING, DRAINING, Ordering::Release, Ordering::Relaxed);
    }

    /// Stops at once, for a reason. The first reason stands.
    pub fn fail(&self, reason: String) {
        self.0.fault.lock().expect("no panic holds this lock").get_or_insert(reason);
        self.0.phase.store(FAILED, Ordering::Release);
    }

    /// Whether a graceful stop is under way.
    #[inline]
    pub fn draining(&self) -> bool {
        self.0.phase.load(Ordering::Acquire) == DRAINING
    }

    /// Whether some stage has failed.
    #[inline]
    pub fn failed(&self) -> bool {
        self.0.phase.load(Ordering::Acquire) == FAILED
    }

    /// Why, if so.
    pub fn fault(&self) -> Option<String> {
        self.0.fault.lock().expect("no panic holds this lock").clone()
    }

    /// The sequencer: nothing follows `seq`.
    pub fn set_final_seq(&self, seq: Seq) {
        self.0.final_seq.store(seq.0, Ordering::Release);
    }

    /// The last seq of this run, once it is known. Acquire pairs with the Release in `set_final_seq`.
    pub fn final_seq(&self) -> Option<Seq> {
        Some(self.0.final_seq.load(Ordering::Acquire)).filter(|&seq| seq != OPEN).map(Seq)
    }

    /// The executor: no output record follows `record`.
    pub fn set_final_record(&self, record: Seq) {
        self.0.final_record.store(record.0, Ordering::Release);
    }

    /// The last output record of this run, once it is known. Acquire pairs with the Release in `set_final_record`.
    pub fn final_record(&self) -> Option<Seq> {
        Some(self.0.final_record.load(Ordering::Acquire)).filter(|&record| record != OPEN).map(Seq)
    }
}
