//! The deterministic engine: a service, its timers and its sessions, stepped by the frames of the log.
//!
//! Leaders, followers, replays and the simulator all run this one type, so that they can't disagree.
//!
//! Invariant: state and outputs are a function of the frames alone.
//! Invariant: a step that fails has changed nothing that leaves this type.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use sha2::{Digest, Sha256};
use ticktape_core::limits::{OUTPUT_BYTES_MAX, OUTPUTS_PER_STEP_BYTES_MAX, OUTPUTS_PER_STEP_COUNT_MAX};
use ticktape_core::{Ctx, Decode, Effects, Encode, Frame, Kind, Seq, Service, SessionEvent, Target, Timestamp};

use crate::mark::{Compared, Mark, Points, fold_output};
use crate::payload::{EpochChange, Origin, Reign, are_of_other_reigns, decode_session, decode_session_open};
use crate::session::{Admission, Sessions};
use crate::timer::Timers;

/// The part of the configuration that every replica must share: it decides which steps fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepLimits {
    /// Outputs that one step may produce.
    pub outputs_per_step_count_max: usize,
    /// Encoded bytes of outputs that one step may produce.
    pub outputs_per_step_bytes_max: usize,
    /// Encoded bytes that one output may have.
    pub output_bytes_max: usize,
}

impl Default for StepLimits {
    fn default() -> Self {
        StepLimits {
            outputs_per_step_count_max: OUTPUTS_PER_STEP_COUNT_MAX,
            outputs_per_step_bytes_max: OUTPUTS_PER_STEP_BYTES_MAX,
            output_bytes_max: OUTPUT_BYTES_MAX,
        }
    }
}

/// How far [`Machine::step`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A due timer fired; the frame itself is still to be applied.
    TimerFired,
    /// The frame was applied.
    Applied,
}

/// One output of the latest step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emitted<'a> {
    /// The frame that caused it.
    pub seq: Seq,
    /// Whom it is for.
    pub target: Target,
    /// Its number among the target's events, from 1; 0 for an embedded caller.
    pub event_seq: u64,
    /// The client seq of the command it answers; 0 where it answers none of the target's own.
    pub client_seq: u64,
    /// Its encoding.
    pub bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
struct Meta {
    target: Target,
    event_seq: u64,
    client_seq: u64,
    end: usize,
}

/// Why a machine can go no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepError {
    /// The service panicked.
    ServicePanicked {
        /// The frame it was given.
        seq: Seq,
        /// What it said.
        message: String,
    },
    /// The service produced more than a step may.
    TooMuchOutput {
        /// The frame it was given.
        seq: Seq,
        /// Outputs it made.
        count: usize,
        /// Their encoded bytes.
        bytes: usize,
        /// The largest one's.
        largest: usize,
        /// What is allowed.
        limits: StepLimits,
    },
    /// A frame out of order.
    OutOfOrder {
        /// The seq that was due.
        expected: Seq,
        /// The seq that came.
        got: Seq,
    },
    /// A timestamp before its predecessor's.
    TimeWentBack {
        /// The frame.
        seq: Seq,
    },
    /// A frame that can't stand in a log.
    NotAnInput {
        /// The frame.
        seq: Seq,
        /// Its kind.
        kind: Kind,
    },
    /// The log was written for another service.
    OtherService {
        /// The frame that says so.
        seq: Seq,
        /// The service it was written for.
        log: String,
        /// The service of this machine.
        service: &'static str,
    },
    /// The reign that begins goes on after another reign than the one that was applied before it: an older copy of the log was
    /// started once, took the same epoch, and what it wrote is not what is here.
    OtherHistory {
        /// The frame that says so.
        seq: Seq,
        /// The epoch of both reigns.
        epoch: u64,
        /// The reign that it goes on after.
        log: u64,
        /// The reign that was applied.
        applied: u64,
    },
    /// A frame of another reign than the one that it stands in: an older copy of the log was led beside this one, and what it wrote got in.
    OtherReign {
        /// The frame.
        seq: Seq,
        /// The epoch that it stands in.
        epoch: u64,
        /// The reign of that epoch here.
        reign: u64,
    },
    /// A mark in the log says that another state or other outputs were computed from the same frames.
    Diverged {
        /// The frame that says so.
        seq: Seq,
        /// The earlier frame whose results differ.
        at: Seq,
        /// What differs.
        what: Divergence,
    },
    /// The log was written for another version of the service.
    SchemaMismatch {
        /// The frame that says so.
        seq: Seq,
        /// The version of the log.
        log: u32,
        /// The version of this build.
        service: u32,
    },
}

/// What two computations of one log disagree about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divergence {
    /// The outputs so far.
    Outputs,
    /// The contents of the state.
    State,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Divergence::Outputs => "outputs",
            Divergence::State => "contents of the state",
        })
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepError::ServicePanicked { seq, message } => write!(
                f,
                "service panicked at seq {seq}: {message}; nothing of that step was released. The log is sound: start a \
                 build whose service can apply seq {seq}"
            ),
            StepError::TooMuchOutput { seq, count, bytes, largest, limits } => write!(
                f,
                "service made {count} outputs of {bytes} bytes, the largest {largest}, at seq {seq}: at most {} of {} \
                 bytes, each at most {}; raise the step limits on every replica",
                limits.outputs_per_step_count_max, limits.outputs_per_step_bytes_max, limits.output_bytes_max
            ),
            StepError::OutOfOrder { expected, got } => {
                write!(f, "log continues with seq {got}, seq {expected} was due")
            }
            StepError::TimeWentBack { seq } => write!(f, "timestamp of seq {seq} is before its predecessor's"),
            StepError::NotAnInput { seq, kind } => write!(f, "seq {seq} is a damaged or misplaced {kind:?} frame"),
            StepError::OtherService { seq, log, service } => write!(
                f,
                "log is of service {log:?} from seq {seq} on, this is service {service:?}: take the matching service or another \
                 directory"
            ),
            StepError::OtherHistory { seq, epoch, log, applied } => write!(
                f,
                "what seq {seq} goes on after is reign {log:016x} of epoch {epoch}, what stands here before it is reign \
                 {applied:016x} of that epoch: an older copy of the journal was started, and the two were put together; go on \
                 with one of them alone"
            ),
            StepError::OtherReign { seq, epoch, reign } => write!(
                f,
                "seq {seq} is of another reign than {reign:016x} of epoch {epoch}, in which it stands: an older copy of the journal was \
                 led, and the two were put together; go on with one of them alone"
            ),
            StepError::Diverged { seq, at, what } => write!(
                f,
                "the {what} after seq {at} are not what the log records in its mark at seq {seq}: the service is not \
                 deterministic, or this is another build of it; compare replays of both builds up to seq {at}"
            ),
            StepError::SchemaMismatch { seq, log, service } => write!(
                f,
                "log is of schema version {log} from seq {seq} on, this service is of version {service}: start the matching \
                 build"
            ),
        }
    }
}

impl std::error::Error for StepError {}

/// A service with everything the log decides about it.
pub struct Machine<S: Service> {
    pub(crate) service: S,
    limits: StepLimits,
    pub(crate) timers: Timers,
    pub(crate) sessions: Sessions,
    pub(crate) applied: Seq,
    pub(crate) now: Timestamp,
    /// Each epoch with its first frame, in order.
    pub(crate) epochs: Vec<(u64, Seq)>,
    pub(crate) feed_event_seq: u64,
    /// The same up to the last frame applied: what timers fire before an EpochChange is of its reign already.
    pub(crate) feed_events_applied: u64,
    /// The first public event of each epoch. No part of the state: earlier builds recorded none.
    pub(crate) feed_reigns: Vec<(u64, u64)>,
    /// The reign of each epoch, as far as it is known. No part of the state either.
    pub(crate) reigns: Vec<(u64, u64)>,
    /// What frames of the latest reign carry as `stream_id`.
    pub(crate) writer: u16,
    pub(crate) malformed: u64,
    /// Of all outputs so far, the failed step's excepted.
    pub(crate) output_hash: u64,
    /// Which log its snapshots are of; 0 where it has no identity, or there are none.
    pub(crate) log_id: u64,
    points: Points,
    effects: Effects<S::Output>,
    metas: Vec<Meta>,
    encoded: Vec<u8>,
    failed: Option<StepError>,
}

impl<S: Service> Machine<S> {
    /// The state before the first frame.
    pub fn genesis(config: &S::Config, limits: StepLimits) -> Self {
        Machine::begin(S::genesis(config), limits)
    }

    /// A machine that has stepped over nothing yet.
    pub(crate) fn begin(service: S, limits: StepLimits) -> Self {
        Machine {
            service,
            limits,
            timers: Timers::new(),
            sessions: Sessions::new(),
            applied: Seq::ZERO,
            now: Timestamp(0),
            epochs: Vec::new(),
            feed_event_seq: 0,
            feed_events_applied: 0,
            feed_reigns: Vec::new(),
            reigns: Vec::new(),
            writer: Reign::default().stream_id(),
            malformed: 0,
            output_hash: 0,
            log_id: 0,
            points: Points::default(),
            effects: Effects::with_capacity(1024),
            metas: Vec::with_capacity(1024),
            encoded: Vec::with_capacity(64 << 10),
            failed: None,
        }
    }

    /// Takes one step towards having applied `frame`: fires the next timer that is due by its time, or applies it. Call it
    /// until it says [`Progress::Applied`]; after each call the outputs are those of that step.
    ///
    /// # Errors
    /// [`StepError`]; from then on every call answers the same.
    #[inline]
    pub fn step(&mut self, frame: &Frame<'_>) -> Result<Progress, StepError> {
        self.clear_outputs();
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.try_step(frame);
        if let Err(error) = &result {
            self.clear_outputs();
            self.failed = Some(error.clone());
        }
        result
    }

    fn try_step(&mut self, frame: &Frame<'_>) -> Result<Progress, StepError> {
        let seq = frame.seq;
        if seq != self.applied.next() {
            return Err(StepError::OutOfOrder { expected: self.applied.next(), got: seq });
        }
        if are_of_other_reigns(frame.stream_id, self.writer) && frame.kind != Kind::EpochChange {
            let Reign { epoch, id } = self.reign();
            return Err(StepError::OtherReign { seq, epoch, reign: id });
        }
        if frame.timestamp < self.now {
            return Err(StepError::TimeWentBack { seq });
        }
        if let Some((id, deadline)) = self.timers.pop_due(frame.timestamp) {
            self.now = self.now.max(deadline);
            self.run(seq, None, |service, ctx| service.on_timer(id, ctx))?;
            return Ok(Progress::TimerFired);
        }
        self.now = frame.timestamp;
        self.apply(frame)?;
        self.applied = seq;
        self.feed_events_applied = self.feed_event_seq;
        Ok(Progress::Applied)
    }

    fn apply(&mut self, frame: &Frame<'_>) -> Result<(), StepError> {
        let seq = frame.seq;
        let damaged = StepError::NotAnInput { seq, kind: frame.kind };
        match frame.kind {
            Kind::Input => self.command(seq, None, frame.payload),
            Kind::SessionInput => {
                let (origin, command) = Origin::split(frame.payload).ok_or(damaged)?;
                match self.sessions.admit(&origin) {
                    Admission::Apply => self.command(seq, Some(origin), command),
                    Admission::Duplicate => Ok(()),
                }
            }
            Kind::SessionOpen => {
                let origin = decode_session_open(frame.payload).ok_or(damaged)?;
                if self.sessions.open(&origin) {
                    let event = SessionEvent::Opened(origin.session);
                    self.run(seq, None, |service, ctx| service.on_session(event, ctx))?;
                }
                Ok(())
            }
            Kind::SessionClose => {
                let (session, _) = decode_session(frame.payload).ok_or(damaged)?;
                if self.sessions.close(session) {
                    self.run(seq, None, |service, ctx| service.on_session(SessionEvent::Closed(session), ctx))?;
                }
                Ok(())
            }
            Kind::EpochChange => {
                let change = EpochChange::decode(frame.payload).ok_or(damaged)?;
                let (epoch, log) = (change.epoch, change.schema_version);
                if !change.service_name.is_empty() && !S::NAME.is_empty() && change.service_name != S::NAME {
                    let log = change.service_name.to_string();
                    return Err(StepError::OtherService { seq, log, service: S::NAME });
                }
                if log != S::SCHEMA_VERSION {
                    return Err(StepError::SchemaMismatch { seq, log, service: S::SCHEMA_VERSION });
                }
                let Reign { epoch: ended, id: applied } = self.reign();
                if change.is_after_another(self.reign()) {
                    return Err(StepError::OtherHistory { seq, epoch: ended, log: change.previous_reign, applied });
                }
                self.epochs.push((epoch, seq));
                if change.reign != 0 {
                    self.reigns.push((epoch, change.reign));
                }
                self.writer = change.begins().stream_id();
                self.feed_reigns.push((epoch, self.feed_events_applied + 1));
                Ok(())
            }
            Kind::SnapshotMark => self.check_mark(seq, &Mark::decode(frame.payload).ok_or(damaged)?),
            Kind::Tick | Kind::TimerFired => Ok(()),
            Kind::Output | Kind::Heartbeat => Err(damaged),
        }
    }

    /// Compares with what was computed elsewhere, and remembers this point for marks to come.
    #[cold]
    fn check_mark(&mut self, seq: Seq, mark: &Mark) -> Result<(), StepError> {
        if let Some(what) = self.points.compare(mark) {
            return Err(StepError::Diverged { seq, at: mark.at, what });
        }
        self.points.remember(seq, self.output_hash);
        Ok(())
    }

    /// Commands that don't decode were sequenced all the same: skipping them is as deterministic as applying them.
    #[inline]
    fn command(&mut self, seq: Seq, origin: Option<Origin>, bytes: &[u8]) -> Result<(), StepError> {
        match S::Input::from_bytes(bytes) {
            Ok(input) => self.run(seq, origin, |service, ctx| service.apply(seq, &input, ctx)),
            Err(_) => {
                self.malformed += 1;
                Ok(())
            }
        }
    }

    #[inline]
    fn run(
        &mut self,
        seq: Seq,
        origin: Option<Origin>,
        step: impl FnOnce(&mut S, &mut Ctx<'_, S::Output>),
    ) -> Result<(), StepError> {
        let mut ctx = Ctx::new(seq, self.now, origin.map(|origin| origin.session), &mut self.effects);
        let service = &mut self.service;
        // The service's state may be half changed by a panic; `failed` keeps anyone from looking at it again.
        catch_unwind(AssertUnwindSafe(|| step(service, &mut ctx)))
            .map_err(|panic| StepError::ServicePanicked { seq, message: panic_message(panic.as_ref()) })?;
        self.settle(seq, origin)
    }

    fn settle(&mut self, seq: Seq, origin: Option<Origin>) -> Result<(), StepError> {
        let mut largest = 0;
        for outgoing in &self.effects.outputs {
            let start = self.encoded.len();
            outgoing.output.encode(&mut self.encoded);
            largest = largest.max(self.encoded.len() - start);
            let (event_seq, client_seq) = match outgoing.target {
                Target::Feed => {
                    self.feed_event_seq += 1;
                    (self.feed_event_seq, 0)
                }
                Target::Session(session) => {
                    let own = origin.filter(|origin| origin.session == session);
                    (self.sessions.next_event(session), own.map_or(0, |origin| origin.client_seq))
                }
                Target::Caller => (0, 0),
            };
            self.metas.push(Meta { target: outgoing.target, event_seq, client_seq, end: self.encoded.len() });
        }
        let (count, bytes, limits) = (self.metas.len(), self.encoded.len(), self.limits);
        let fits = count <= limits.outputs_per_step_count_max
            && bytes <= limits.outputs_per_step_bytes_max
            && largest <= limits.output_bytes_max;
        if !fits {
            return Err(StepError::TooMuchOutput { seq, count, bytes, largest, limits });
        }
        let mut start = 0;
        for meta in &self.metas {
            let bytes = &self.encoded[start..meta.end];
            self.output_hash = fold_output(self.output_hash, seq, meta.target, meta.event_seq, bytes);
            start = meta.end;
        }
        for op in self.effects.timers.drain(..) {
            self.timers.apply(op);
        }
        Ok(())
    }

    fn clear_outputs(&mut self) {
        self.effects.clear();
        self.metas.clear();
        self.encoded.clear();
    }

    /// The latest step's outputs, encoded, in order. `seq` is the frame's that was being stepped.
    pub fn outputs(&self, seq: Seq) -> impl Iterator<Item = Emitted<'_>> {
        let mut start = 0;
        self.metas.iter().map(move |meta| {
            let bytes = &self.encoded[start..meta.end];
            start = meta.end;
            Emitted { seq, target: meta.target, event_seq: meta.event_seq, client_seq: meta.client_seq, bytes }
        })
    }

    /// Moves the latest step's outputs out, typed.
    pub fn take_outputs(&mut self) -> impl Iterator<Item = S::Output> + '_ {
        self.effects.outputs.drain(..).map(|outgoing| outgoing.output)
    }

    /// The service.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// The last frame applied.
    pub fn applied(&self) -> Seq {
        self.applied
    }

    /// The sequenced time so far.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The latest epoch that the log declared; 0 before the first.
    pub fn epoch(&self) -> u64 {
        self.epochs.last().map_or(0, |&(epoch, _)| epoch)
    }

    /// Every epoch that the log declared, with the frame that did.
    pub fn epochs(&self) -> &[(u64, Seq)] {
        &self.epochs
    }

    /// The reign of the latest epoch.
    pub fn reign(&self) -> Reign {
        let epoch = self.epoch();
        let known = self.reigns.last().filter(|&&(of, _)| of == epoch);
        Reign { epoch, id: known.map_or(0, |&(_, id)| id) }
    }

    /// Every reign that the log declared, with the frame that did.
    pub fn reigns(&self) -> Vec<(Reign, Seq)> {
        let id_of = |epoch| self.reigns.iter().find(|&&(of, _)| of == epoch).map_or(0, |&(_, id)| id);
        self.epochs.iter().map(|&(epoch, first)| (Reign { epoch, id: id_of(epoch) }, first)).collect()
    }

    /// The rolling hash of all outputs so far. WIRE.md, "SnapshotMark".
    pub fn output_hash(&self) -> u64 {
        self.output_hash
    }

    /// Remembers the last frame as a point with this state digest: it is where the machine was restored.
    pub(crate) fn remember_point(&mut self, state_digest: [u8; 32]) {
        self.points.remember(self.applied, self.output_hash);
        self.points.note_state(self.applied, state_digest);
    }

    /// Remembers that the state after frame `at` has this digest, for marks to come.
    pub fn note_state_digest(&mut self, at: Seq, state_digest: [u8; 32]) {
        self.points.note_state(at, state_digest);
    }

    /// How many marks were compared with what this machine remembered of the points they speak of.
    pub fn compared(&self) -> Compared {
        self.points.compared()
    }

    /// The number of the public event to come.
    pub fn next_feed_event(&self) -> u64 {
        self.feed_event_seq + 1
    }

    /// The first public event of each epoch, of the latest as far back as that is on record.
    pub fn feed_reigns(&self) -> &[(u64, u64)] {
        &self.feed_reigns
    }

    /// How many timers are armed.
    pub fn timers_armed(&self) -> usize {
        self.timers.len()
    }

    /// The sessions that the log knows.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// When the next timer is due.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.next_deadline()
    }

    /// Commands that were sequenced but are no encoding of an input.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// What one step may produce.
    pub fn limits(&self) -> StepLimits {
        self.limits
    }

    /// The lowercase hex SHA-256 of the canonical encoding of the service's snapshot.
    pub fn digest(&self) -> String {
        state_digest(&self.service)
    }
}

/// The lowercase hex SHA-256 of the canonical encoding of a service's snapshot.
pub fn state_digest<S: Service>(service: &S) -> String {
    hex(&Sha256::digest(service.snapshot().to_bytes()))
}

/// Lowercase hex.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        write!(out, "{byte:02x}").expect("writing to a string");
        out
    })
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|message| (*message).to_string())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "(no message)".to_string())
}
