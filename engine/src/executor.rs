//! The executor: applies the log to the service, as soon as frames are published and in parallel with the journal.
//!
//! Order of a poll: tell how far each session had come by the last one, step through a bounded batch, publish each step's outputs at
//! once, then tell when the next timer is due.
//! Progress is told a poll later because only acknowledgements depend on it: an output does not wait for that.
//! Invariant: a step starts only when all the output it may make has room, so a step is never half released.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ticktape_core::{Frame, Kind, Nanos, Seq, Service};
use ticktape_shm::Consumer;

use crate::machine::{Machine, Progress, StepError, StepLimits};
use crate::metrics::StageLatency;
use crate::outputs::{OutputWriter, RECORD_BYTES, Record};
use crate::payload::{Origin, decode_session_open};

/// Frames applied in one poll: small, so that stages on the same core wait a few microseconds at most.
const FRAMES_PER_POLL_MAX: usize = 32;

/// The next timer's deadline, in sequenced nanoseconds: one word from the executor to the sequencer.
#[derive(Clone, Debug)]
pub struct Deadline(Arc<AtomicU64>);

impl Deadline {
    /// No timer is armed.
    pub const NEVER: u64 = u64::MAX;

    /// No deadline.
    pub fn never() -> Self {
        Deadline(Arc::new(AtomicU64::new(Deadline::NEVER)))
    }

    fn set(&self, deadline: u64) {
        // Relaxed: only the word's own value matters; a tick that comes a poll late is still a tick.
        if self.0.load(Ordering::Relaxed) != deadline {
            self.0.store(deadline, Ordering::Relaxed);
        }
    }

    /// The deadline, [`Deadline::NEVER`] where there is none.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Ring bytes that one step's outputs may need, with the two progress records that may go with them.
pub const fn step_room_bytes(limits: &StepLimits) -> usize {
    limits.outputs_per_step_bytes_max + (limits.outputs_per_step_count_max + 2) * RECORD_BYTES
}

/// The stage between the log ring and the output ring.
pub struct Executor<S: Service> {
    frames: Consumer,
    machine: Machine<S>,
    outputs: OutputWriter,
    deadline: Deadline,
    latency: StageLatency,
    step_room_bytes: usize,
    progress: Option<(Seq, Origin)>,
    failed: Option<StepError>,
}

impl<S: Service> Executor<S> {
    /// Applies what `frames` delivers to `machine`, which has applied everything before.
    pub fn new(
        frames: Consumer,
        machine: Machine<S>,
        outputs: OutputWriter,
        deadline: Deadline,
        latency: StageLatency,
    ) -> Self {
        assert_eq!(frames.next_seq(), machine.applied().next(), "the ring starts where the state ends");
        let step_room_bytes = step_room_bytes(&machine.limits());
        let executor =
            Executor { frames, machine, outputs, deadline, latency, step_room_bytes, progress: None, failed: None };
        executor.announce_deadline();
        executor
    }

    /// One duty cycle; returns the frames applied.
    #[inline]
    pub fn poll(&mut self, now: Nanos) -> usize {
        if self.failed.is_some() {
            return 0;
        }
        self.latency.settle(now);
        if self.progress.is_some() && self.outputs.room(RECORD_BYTES) {
            self.flush_progress();
            self.outputs.publish();
        }
        let mut applied = 0;
        while applied < FRAMES_PER_POLL_MAX && self.outputs.room(self.step_room_bytes) {
            let Some(bytes) = self.frames.peek() else { break };
            let frame = Frame::view(bytes).expect("a frame of the log ring");
            let seq = frame.seq;
            match self.machine.step(&frame) {
                Ok(progress) => {
                    for emitted in self.machine.outputs(seq) {
                        self.outputs.push(&Record::Output(emitted));
                    }
                    if progress == Progress::Applied {
                        let origin = origin(&frame);
                        self.frames.advance();
                        self.latency.pass(seq);
                        self.note_progress(seq, origin);
                        applied += 1;
                    }
                    self.outputs.publish();
                }
                Err(error) => {
                    self.failed = Some(error);
                    // There is no next poll, and what was applied before stands.
                    self.flush_progress();
                    self.outputs.publish();
                    break;
                }
            }
        }
        if applied > 0 {
            self.frames.release();
            self.announce_deadline();
        } else {
            self.outputs.idle();
        }
        applied
    }

    /// Progress is told once for a run of commands of one session, not for each.
    #[inline]
    fn note_progress(&mut self, seq: Seq, origin: Option<Origin>) {
        let Some(origin) = origin else { return };
        if self.progress.is_some_and(|(_, before)| before.session != origin.session) {
            self.flush_progress();
        }
        self.progress = Some((seq, origin));
    }

    fn flush_progress(&mut self) {
        if let Some((seq, origin)) = self.progress.take() {
            self.outputs.push(&Record::Progress { seq, origin });
        }
    }

    fn announce_deadline(&self) {
        self.deadline.set(self.machine.next_deadline().map_or(Deadline::NEVER, |deadline| deadline.0));
    }

    /// Remembers the digest of the state as it is now, for marks to come that speak of it. As slow as a snapshot: replays do that.
    pub fn note_state(&mut self) {
        let digest = self.machine.state_digest();
        self.machine.note_state_digest(self.machine.applied(), digest);
    }

    /// Why the service can go no further, if it can't.
    pub fn failed(&self) -> Option<&StepError> {
        self.failed.as_ref()
    }

    /// The state.
    pub fn machine(&self) -> &Machine<S> {
        &self.machine
    }

    /// Whether it was told how far everything applied brought its sessions.
    pub fn has_told_progress(&self) -> bool {
        self.progress.is_none()
    }

    /// The number of the next output record.
    pub fn next_record(&self) -> Seq {
        self.outputs.next_seq()
    }

    /// Hands over the state and the latencies.
    pub fn into_parts(self) -> (Machine<S>, StageLatency) {
        (self.machine, self.latency)
    }
}

/// Whose command, or whose opening, a frame is.
#[inline]
fn origin(frame: &Frame<'_>) -> Option<Origin> {
    match frame.kind {
        Kind::SessionInput => Origin::split(frame.payload).map(|(origin, _)| origin),
        Kind::SessionOpen => {
            decode_session_open(frame.payload).map(|origin| Origin { client_seq: origin.client_seq - 1, ..origin })
        }
        _ => None,
    }
}
