//! The intake as a runner sees it.

use std::sync::{Arc, Mutex, PoisonError};

use ticktape_core::Nanos;
use ticktape_nic::{Rx, Tx};
use ticktape_shm::metrics::Kind;

use super::exporter::COUNTER;
use super::plan::StageName;
use super::stage::{Lifecycle, Stage, StageReport};
use crate::replica::{Bulk, Intake, Verdict};

/// The intake, and the end of its input.
pub(super) struct IntakeStage<R: Rx, T: Tx, B: Bulk> {
    intake: Intake<R, T, B>,
    verdict: Arc<Mutex<Option<Verdict>>>,
    lifecycle: Lifecycle,
}

impl<R: Rx, T: Tx, B: Bulk> IntakeStage<R, T, B> {
    /// A stage that takes what comes until the lifecycle drains, or there is a verdict.
    pub(super) fn new(intake: Intake<R, T, B>, verdict: Arc<Mutex<Option<Verdict>>>, lifecycle: Lifecycle) -> Self {
        IntakeStage { intake, verdict, lifecycle }
    }
}

impl<R: Rx + Send, T: Tx + Send, B: Bulk + Send> Stage for IntakeStage<R, T, B> {
    fn name(&self) -> StageName {
        StageName::Intake
    }

    #[inline]
    fn poll(&mut self, now: Nanos) -> usize {
        if self.lifecycle.draining() {
            if self.lifecycle.final_seq().is_none() {
                self.lifecycle.set_final_seq(self.intake.last());
            }
            // The last commits are heard and passed on while the journal empties.
            return self.intake.poll_commits(now);
        }
        let work = self.intake.poll(now);
        if let Some(verdict) = self.intake.verdict()
            && !self.lifecycle.failed()
        {
            self.verdict.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(verdict.clone());
            self.lifecycle.fail("the intake has come to an end".to_string());
        }
        work
    }

    fn housekeeping(&mut self, now: Nanos) {
        self.intake.housekeeping(now);
    }

    fn drained(&mut self, _now: Nanos) -> bool {
        self.lifecycle.final_seq().is_some()
    }

    fn figures(&self, tell: &mut dyn FnMut(&'static str, Kind, u64)) {
        self.intake.tell_counters(&mut |name, count| tell(name, COUNTER, count));
    }

    fn close(self: Box<Self>) -> Result<StageReport, String> {
        Ok(StageReport::of(&*self))
    }
}
