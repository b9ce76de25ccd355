//! What a user writes: a deterministic [`Service`], and what the engine lends it for one step: a [`Ctx`].

use std::fmt;

use crate::codec::{Decode, Encode};
use crate::limits::SERVICE_NAME_BYTES_MAX;
use crate::units::{Seq, SessionId, TimerId, Timestamp};

/// Whether a service may have this name in its logs: at most [`SERVICE_NAME_BYTES_MAX`] bytes, and none of them 0, which ends it there.
pub fn is_service_name(name: &str) -> bool {
    name.len() <= SERVICE_NAME_BYTES_MAX && !name.as_bytes().contains(&0)
}

/// A deterministic state machine: `(state, input) → outputs`.
///
/// Its methods may use nothing but their arguments: no clock, no randomness, no I/O, no global state, no iteration order
/// that changes from run to run. In return the engine gives it a total order, durability, recovery by replay and replicas
/// with bit-identical state.
///
/// A panic is a bug of the service: the node stops with the seq and the message, and releases nothing of that step.
pub trait Service: Sized {
    /// A command.
    type Input: Encode + Decode;
    /// A result or event.
    type Output: Encode + Decode;
    /// The whole state in canonical form: equal states give equal snapshots.
    type Snapshot: Encode + Decode;
    /// What is fixed for the life of a log, such as the number of accounts.
    type Config;

    /// The service's name in its logs: see [`is_service_name`]. A log that names another service is refused; an empty name on either
    /// side is not compared.
    const NAME: &'static str = "";

    /// Bumped when the meaning of inputs, outputs or the snapshot changes; replicas of different versions refuse each other.
    const SCHEMA_VERSION: u32 = 1;

    /// The state before the first input.
    fn genesis(config: &Self::Config) -> Self;

    /// Applies one input. `seq` is its place in the order.
    fn apply(&mut self, seq: Seq, input: &Self::Input, ctx: &mut Ctx<'_, Self::Output>);

    /// The state, as it would be written to disk.
    fn snapshot(&self) -> Self::Snapshot;

    /// The state that [`Service::snapshot`] described.
    fn restore(snapshot: Self::Snapshot, config: &Self::Config) -> Self;

    /// A timer set through [`Ctx::set_timer`] is due. `ctx.now()` is its deadline.
    fn on_timer(&mut self, id: TimerId, ctx: &mut Ctx<'_, Self::Output>) {
        let _ = (id, ctx);
    }

    /// A session opened or closed, at its place in the order.
    fn on_session(&mut self, event: SessionEvent, ctx: &mut Ctx<'_, Self::Output>) {
        let _ = (event, ctx);
    }
}

/// A session's life, as the service sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// The session is there, for the first time or again after its owner restarted.
    Opened(SessionId),
    /// The session ended.
    Closed(SessionId),
}

/// What a service promises about its own state, checked by the simulator after every step.
pub trait Invariants {
    /// Checks everything that must hold between two steps.
    ///
    /// # Errors
    /// The first promise that does not hold.
    fn check(&self) -> Result<(), InvariantViolation>;
}

/// A promise that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvariantViolation {
    /// The promise's name.
    pub name: &'static str,
    /// What was found instead.
    pub detail: String,
}

impl InvariantViolation {
    /// A violation of `name`, with what was found.
    pub fn new(name: &'static str, detail: impl Into<String>) -> Self {
        InvariantViolation { name, detail: detail.into() }
    }
}

impl fmt::Display for InvariantViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {} does not hold: {}", self.name, self.detail)
    }
}

impl std::error::Error for InvariantViolation {}

/// Whom an output is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everyone who follows the event feed.
    Feed,
    /// One session.
    Session(SessionId),
    /// Whoever called an embedded node's `submit`.
    Caller,
}

/// An output on its way, still typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing<O> {
    /// Whom it is for.
    pub target: Target,
    /// What is said.
    pub output: O,
}

/// A change to the timers, in the order the service made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerOp {
    /// Arm, or move, the timer.
    Set(TimerId, Timestamp),
    /// Disarm it; nothing happens where it is not armed.
    Cancel(TimerId),
}

/// What one step asked for. Nothing of it takes effect until the step has returned, so a step that panics has done nothing.
#[derive(Debug)]
pub struct Effects<O> {
    /// Outputs, in the order they were made.
    pub outputs: Vec<Outgoing<O>>,
    /// Timer changes, in the order they were made.
    pub timers: Vec<TimerOp>,
}

impl<O> Effects<O> {
    /// No effects, with room for `capacity` outputs before the first allocation.
    pub fn with_capacity(capacity: usize) -> Self {
        Effects { outputs: Vec::with_capacity(capacity), timers: Vec::with_capacity(16) }
    }

    /// Forgets everything, keeps the room.
    pub fn clear(&mut self) {
        self.outputs.clear();
        self.timers.clear();
    }
}

/// What a service may use during one step, beside its own state.
#[derive(Debug)]
pub struct Ctx<'a, O> {
    seq: Seq,
    now: Timestamp,
    session: Option<SessionId>,
    effects: &'a mut Effects<O>,
}

impl<'a, O> Ctx<'a, O> {
    /// The context of the step at `seq`. The engine makes these; a service's own unit tests may too.
    pub fn new(seq: Seq, now: Timestamp, session: Option<SessionId>, effects: &'a mut Effects<O>) -> Self {
        Ctx { seq, now, session, effects }
    }

    /// The step's place in the order. A timer fires under the seq of the frame whose time made it due.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// The sequenced time: the input's stamp, or the timer's deadline. The same in every replay.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The session that sent this input, if one did.
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Publishes an event to everyone who follows the event feed.
    pub fn emit(&mut self, output: O) {
        self.effects.outputs.push(Outgoing { target: Target::Feed, output });
    }

    /// Answers the session that sent this input, or the caller of an embedded `submit`.
    pub fn reply(&mut self, output: O) {
        let target = self.session.map_or(Target::Caller, Target::Session);
        self.effects.outputs.push(Outgoing { target, output });
    }

    /// Sends to any session, present or not: it is kept for it like every other event.
    pub fn send(&mut self, session: SessionId, output: O) {
        self.effects.outputs.push(Outgoing { target: Target::Session(session), output });
    }

    /// Arms the timer `id` for `at`, moving it if it is armed. A deadline that has passed fires with the next frame.
    pub fn set_timer(&mut self, id: TimerId, at: Timestamp) {
        self.effects.timers.push(TimerOp::Set(id, at));
    }

    /// Disarms the timer `id`, if it is armed.
    pub fn cancel_timer(&mut self, id: TimerId) {
        self.effects.timers.push(TimerOp::Cancel(id));
    }
}
