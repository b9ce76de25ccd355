//! What the log comes to, frame by frame from its beginning: everything that was ever restored is held against it.

use ticktape::config::ApplianceConfig;
use ticktape::machine::{Machine, Progress, StepError};
use ticktape::tails::Tails;
use ticktape::{Frame, Kind, Seq, Service};
use ticktape_journal::{Snapshot, SnapshotMeta};

use crate::ledger::{Frames, Wrong};

/// A replay that goes on as far as it is asked to, and begins anew where it is asked for less.
pub(crate) struct Oracle<S: Service> {
    machine: Machine<S>,
    tails: Tails,
    tail_bytes: usize,
    /// States compared in replays that are over.
    compared: u64,
}

impl<S: Service> Oracle<S> {
    pub(crate) fn new(config: &ApplianceConfig, service: &S::Config) -> Self {
        let tail_bytes = config.snapshots.map_or(0, |snapshots| snapshots.tail_bytes);
        let machine = Machine::genesis(service, config.limits);
        Oracle { machine, tails: Tails::new(tail_bytes), tail_bytes, compared: 0 }
    }

    /// Frames after `seq` may be others from now on.
    pub(crate) fn forget_after(&mut self, seq: Seq, service: &S::Config) {
        if self.machine.applied() > seq {
            self.compared += self.machine.compared().states;
            self.machine = Machine::genesis(service, self.machine.limits());
            self.tails = Tails::new(self.tail_bytes);
        }
    }

    /// Comes to stand after `seq`.
    pub(crate) fn go_to(&mut self, frames: &Frames, seq: Seq, service: &S::Config) -> Result<(), Wrong> {
        self.forget_after(seq, service);
        let from = self.machine.applied().0 as usize;
        for bytes in frames.range(from..seq.0 as usize) {
            let frame = Frame::view(bytes).expect("it was decoded");
            self.apply(&frame).map_err(|error| match &error {
                StepError::Diverged { .. } => ("states and outputs agree at marks", error.to_string()),
                _ => ("the log can be replayed", error.to_string()),
            })?;
        }
        Ok(())
    }

    fn apply(&mut self, frame: &Frame<'_>) -> Result<(), StepError> {
        loop {
            let progress = self.machine.step(frame)?;
            self.machine.outputs(frame.seq).for_each(|output| self.tails.push(&output));
            if progress == Progress::Applied {
                break;
            }
        }
        if frame.kind == Kind::SnapshotMark {
            // What a mark to come says of this one is then compared with the state, too.
            self.machine.note_state_digest(frame.seq, self.machine.state_digest());
        }
        Ok(())
    }

    /// The state where it stands.
    pub(crate) fn machine(&self) -> &Machine<S> {
        &self.machine
    }

    /// The snapshot of that, as one of this log.
    pub(crate) fn snapshot(&self, log_id: u64) -> Snapshot {
        let snapshot = self.machine.to_snapshot(&self.tails);
        let (meta, sections) = (SnapshotMeta { log_id, ..snapshot.meta().clone() }, snapshot.sections());
        Snapshot::new(meta, snapshot.into_body(), sections)
    }

    /// States that were compared with what marks in the log say.
    pub(crate) fn compared(&self) -> u64 {
        self.compared + self.machine.compared().states
    }
}
