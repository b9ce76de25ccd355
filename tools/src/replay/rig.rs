//! An appliance's stages, from the Nic to the Nic, polled by hand. What is sequenced counts as durable at once: there is no disk.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use ticktape::config::ApplianceConfig;
use ticktape::control::CONTROL_QUEUE_MAX;
use ticktape::egress::{Egress, SessionLinks};
use ticktape::events::EventSink;
use ticktape::executor::{Deadline, Executor};
use ticktape::link::{DATA_OVERHEAD_BYTES, DATAGRAM_BYTES_LIMIT, EventMessage, event, layout};
use ticktape::log::{LogWriter, SequencedClock};
use ticktape::machine::{Emitted, Machine, StepError, StepLimits};
use ticktape::metrics::{Arrivals, Part, StageLatency};
use ticktape::outputs::OutputWriter;
use ticktape::payload::{EpochChange, Origin, decode_session_open};
use ticktape::pipeline::rings::{egress_config, output_ring_config};
use ticktape::sequencer::{Sequencer, SequencerConfig, datagram_room};
use ticktape::tails::Tails;
use ticktape::{Frame, Kind, Nanos, Seq, Service, Target, Timestamp};
use ticktape_core::frame::{frame_bytes, padded};
use ticktape_core::limits::{OUTPUTS_PER_STEP_BYTES_MAX, OUTPUTS_PER_STEP_COUNT_MAX};
use ticktape_nic::Nic;
use ticktape_nic::mem::{self, MemConfig, MemNic, MemRx, MemTx};
use ticktape_shm::{Consumer, DurableMark, RingBuilder, RingConfig};

use super::far_end::{FarEnd, WINDOW};
use crate::links::STREAMS_MAX;
use crate::service::StateFacts;

/// What a feed's message can hold: no frame of one is larger.
const PAYLOAD_BYTES_MAX: usize = 1 << 16;

/// Events that a session's buffer holds: what one step may make, with what each event adds to it. Untouched until it is used.
const SESSION_BYTES: usize = 2 << 20;

/// Sessions that the sequencer lets in: as many streams as are told apart in a capture.
const SESSIONS_MAX: usize = STREAMS_MAX;

const _: () = assert!(
    SESSION_BYTES > OUTPUTS_PER_STEP_BYTES_MAX + OUTPUTS_PER_STEP_COUNT_MAX * (layout::data::LEN_BYTES + event::OUTPUT)
);

/// Frames under way at once: those of a session's opening and a few ticks.
const ARRIVALS: usize = 1 << 10;

/// Datagrams that wait at either end of the Nic: more than all stages make in one round of polls, or the next takes the rest.
const INBOX: usize = 64;

/// Rounds of polls for one packet: beyond, the stages would talk to each other for ever.
const ROUNDS_MAX: usize = 1 << 20;

/// One output of a step, in the order in which the service made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output<'a> {
    /// Whom it is for; never the embedded caller.
    pub target: Target,
    /// Its number among the target's events.
    pub number: u64,
    /// As it leaves the appliance: a session's with what caused it before its encoding, a public one as it is encoded.
    pub message: &'a [u8],
}

/// What is told of each output.
pub type OnOutput<'a> = &'a mut dyn FnMut(Output<'_>);

/// Why a replay can't go on from a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RigError {
    /// The sequencer wrote another frame than the captured one, or none.
    Frame {
        /// The frame.
        seq: Seq,
        /// What was written, sealed; empty where nothing was.
        ours: Vec<u8>,
        /// What was captured.
        theirs: Vec<u8>,
    },
    /// The service or a mark.
    Step(StepError),
    /// A reign without an `EpochChange`, or with one that is none, or of no later reign than the one before.
    NoReign(Seq),
}

impl fmt::Display for RigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RigError::Frame { seq, ours, theirs } if ours.is_empty() => {
                write!(f, "frame {seq}: the sequencer takes nothing where the feed has {}", Shown(theirs))
            }
            RigError::Frame { seq, ours, theirs } => {
                let at = ours.iter().zip(theirs).position(|(a, b)| a != b).unwrap_or(ours.len().min(theirs.len()));
                write!(
                    f,
                    "frame {seq}: differs from byte {at} on: the sequencer writes {}, the feed has {}",
                    Shown(ours),
                    Shown(theirs)
                )
            }
            RigError::Step(error) => error.fmt(f),
            RigError::NoReign(seq) => write!(f, "frame {seq}: an EpochChange should stand there, or is damaged"),
        }
    }
}

impl std::error::Error for RigError {}

impl From<StepError> for RigError {
    fn from(error: StepError) -> Self {
        RigError::Step(error)
    }
}

/// Bytes in hexadecimal digits, as many as a line bears.
pub struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 96;
        self.0.iter().take(SHOWN).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        match self.0.len() {
            0 => f.write_str("nothing"),
            all if all > SHOWN => write!(f, ".. ({all} bytes)"),
            _ => Ok(()),
        }
    }
}

/// A rig of some service.
pub trait AnyRig {
    /// Replays a frame of a captured feed, the next one. A command is sent as `command`, where that was captured, else as the frame
    /// has it.
    ///
    /// # Errors
    /// [`RigError`]: there is no going on from it.
    fn frame(&mut self, frame: &Frame<'_>, command: Option<&[u8]>, on_output: OnOutput<'_>) -> Result<(), RigError>;

    /// Begins a log of its own: the sequencer stamps and ticks by `now`, in nanoseconds.
    ///
    /// # Errors
    /// As [`AnyRig::frame`].
    fn begin(&mut self, now: Nanos, on_output: OnOutput<'_>) -> Result<(), RigError>;

    /// In such a log: a client says Hello.
    ///
    /// # Errors
    /// As [`AnyRig::frame`].
    fn hello(
        &mut self,
        now: Nanos,
        session: (u64, u32),
        first_seq: u64,
        on_output: OnOutput<'_>,
    ) -> Result<(), RigError>;

    /// In such a log: a command. False where the sequencer has it already, or takes none such.
    ///
    /// # Errors
    /// As [`AnyRig::frame`].
    fn input(
        &mut self,
        now: Nanos,
        session: (u64, u32),
        client_seq: u64,
        command: &[u8],
        on_output: OnOutput<'_>,
    ) -> Result<bool, RigError>;

    /// The last seq applied.
    fn seq(&self) -> Seq;

    /// The number of the public event to come.
    fn next_public(&self) -> u64;

    /// SHA-256 of the service's state, lowercase hex.
    fn digest(&self) -> String;

    /// What is known of the state at no cost.
    fn facts(&self) -> StateFacts;
}

struct Stages<S: Service> {
    sequencer: Sequencer<MemRx>,
    executor: Executor<S>,
    egress: Egress<MemTx, Listener>,
    /// Sees what the sequencer wrote.
    written: Consumer,
    durable: DurableMark,
    far: FarEnd,
}

/// The stages of one appliance, reign after reign.
pub struct Rig<S: Service> {
    config: ApplianceConfig,
    /// Before the first reign.
    machine: Option<Machine<S>>,
    stages: Option<Stages<S>>,
    outputs: Rc<RefCell<Outputs>>,
    /// The latest frame that the sequencer wrote, sealed.
    last_written: Vec<u8>,
}

impl<S: Service> Rig<S> {
    /// Goes on from this state.
    pub fn new(machine: Machine<S>) -> Self {
        let mut config = ApplianceConfig::new("", std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 1));
        config.datagram_bytes_max = DATAGRAM_BYTES_LIMIT;
        config.window = WINDOW;
        config.session_bytes = SESSION_BYTES;
        config.sessions_max = SESSIONS_MAX;
        config.limits = Self::limits();
        let (outputs, last_written) = (Rc::default(), Vec::with_capacity(frame_bytes(PAYLOAD_BYTES_MAX)));
        Rig { config, machine: Some(machine), stages: None, outputs, last_written }
    }

    /// The limits of its machine's steps: an output has to fit a datagram.
    pub fn limits() -> StepLimits {
        let output_bytes_max = DATAGRAM_BYTES_LIMIT - DATA_OVERHEAD_BYTES - EventMessage::head(0, 0).len();
        StepLimits { output_bytes_max, ..StepLimits::default() }
    }

    fn machine(&self) -> &Machine<S> {
        let running = self.stages.as_ref().map(|stages| stages.executor.machine());
        running.or(self.machine.as_ref()).expect("a machine is in the executor or waits for one")
    }

    /// A reign begins with this `EpochChange`, or goes on that began before the first frame. Where `ticks`, the sequencer says itself when a
    /// timer is due.
    fn reign(&mut self, now: Nanos, change: Option<&[u8]>, stream_id: u16, ticks: bool) -> Result<(), RigError> {
        let (seq, present) = (self.machine().applied().next(), self.machine().epoch());
        let epoch = match change {
            Some(payload) => EpochChange::decode(payload).map(|change| change.epoch).filter(|epoch| *epoch > present),
            None => Some(present).filter(|epoch| *epoch > 0),
        };
        let epoch = epoch.and_then(|epoch| u32::try_from(epoch).ok()).ok_or(RigError::NoReign(seq))?;
        let machine = match self.stages.take() {
            Some(stages) => stages.executor.into_parts().0,
            None => self.machine.take().expect("a machine is in the executor or waits for one"),
        };
        let config = &self.config;
        let mut sessions =
            SessionLinks::restore(egress_config(config, epoch, S::SCHEMA_VERSION), machine.sessions(), &Tails::new(0));
        sessions.begin(epoch, machine.sessions(), machine.epochs());

        let mut ring = log_ring(config, epoch);
        ring.consumer("written");
        ring.consumer("executor");
        let ring = ring.build(seq).expect("constant sizes");
        let [mut written, frames]: [Consumer; 2] =
            ring.consumers.try_into().unwrap_or_else(|_| unreachable!("two consumers were asked for"));
        let (records, writer) = output_ring(config);
        let (near, far) = nic();
        let far = FarEnd::new(far, near.local_addr(), epoch);
        let (rx, tx) = near.split();
        let (control_tx, control_rx) = rtrb::RingBuffer::new(CONTROL_QUEUE_MAX);
        let arrivals = Arrivals::new(ARRIVALS, Part::default());
        let latency = |after: Seq| StageLatency::coarse(arrivals.clone(), after);
        // Stamps are what the polls are told.
        let clock = SequencedClock::new(Timestamp(0), Timestamp(0), 0);
        let mut log = LogWriter::new(ring.producer, clock, stream_id, PAYLOAD_BYTES_MAX);
        if let Some(payload) = change {
            log.append(now, Kind::EpochChange, payload, &[]).expect("the ring is empty");
            log.publish();
        }
        let (deadline, last, sequenced) = (Deadline::never(), machine.applied(), Seq(log.next_seq().0 - 1));
        let heard = if ticks { deadline.clone() } else { Deadline::never() };
        let sequencer_config = sequencer_config::<S>(config, epoch);
        let sequencer =
            Sequencer::new(rx, log, sequencer_config, machine.sessions(), control_tx, heard, latency(sequenced));
        let executor = Executor::new(frames, machine, writer, deadline, latency(last));
        let egress = Egress::new(tx, records, ring.watermarks, ring.commit, control_rx, sessions, latency(last))
            .with_events(Listener(self.outputs.clone()));
        read_written(&mut written, &mut self.last_written);
        self.stages = Some(Stages { sequencer, executor, egress, written, durable: ring.durable, far });
        Ok(())
    }

    /// Clients whose sessions are open come back in a reign of which they said nothing yet.
    fn reconnect(&mut self) {
        let Some(Stages { executor, far, .. }) = &mut self.stages else { return };
        for (session, state) in executor.machine().sessions().iter().filter(|(_, state)| state.open) {
            let (key, first) = ((session.0, state.client_epoch), state.client_seq + 1);
            far.hello(key, first, state.event_seq + 1, S::SCHEMA_VERSION);
        }
    }

    /// Lets the stages come to rest, and tells what came of it.
    fn settle(&mut self, now: Nanos, on_output: OnOutput<'_>) -> Result<(), RigError> {
        let Some(stages) = &mut self.stages else { return Ok(()) };
        for _ in 0..ROUNDS_MAX {
            let mut work = stages.sequencer.poll(now);
            read_written(&mut stages.written, &mut self.last_written);
            stages.durable.set(Seq(stages.sequencer.next_seq().0 - 1));
            work += stages.executor.poll(now);
            if let Some(error) = stages.executor.failed() {
                return Err(error.clone().into());
            }
            work += stages.egress.poll(now) + stages.far.hear(now);
            if work == 0 && stages.executor.has_told_progress() {
                break;
            }
        }
        let mut outputs = self.outputs.borrow_mut();
        for told in &outputs.told {
            let bytes = &outputs.bytes[told.start..told.end];
            let Target::Session(session) = told.target else {
                on_output(Output { target: told.target, number: told.number, message: bytes });
                continue;
            };
            // One whose client is away stays with the egress until it comes back.
            let away;
            let message = match stages.far.event(session.0, told.number) {
                Some(message) => message,
                None => {
                    away = [&EventMessage::head(told.seq, told.client_seq)[..], bytes].concat();
                    &away
                }
            };
            on_output(Output { target: told.target, number: told.number, message });
        }
        outputs.clear();
        stages.far.forget();
        Ok(())
    }

    /// Hands the sequencer what makes it write this frame.
    fn offer(&mut self, frame: &Frame<'_>, command: Option<&[u8]>) {
        let Some(Stages { sequencer, executor, far, .. }) = &mut self.stages else { return };
        let now = frame.timestamp.0;
        match frame.kind {
            Kind::SessionOpen => {
                let Some(Origin { session, client_epoch, client_seq }) = decode_session_open(frame.payload) else {
                    return;
                };
                let known = executor.machine().sessions().get(session);
                let next_event = known.map_or(1, |state| state.event_seq + 1);
                far.hello((session.0, client_epoch), client_seq, next_event, S::SCHEMA_VERSION);
            }
            Kind::SessionInput => {
                if let Some((origin, as_sequenced)) = Origin::split(frame.payload) {
                    far.input(now, origin.session.0, origin.client_seq, command.unwrap_or(as_sequenced));
                }
            }
            kind => {
                sequencer.adopt(now, kind, frame.payload);
            }
        }
    }
}

impl<S: Service> AnyRig for Rig<S> {
    fn frame(&mut self, frame: &Frame<'_>, command: Option<&[u8]>, on_output: OnOutput<'_>) -> Result<(), RigError> {
        let (seq, now) = (frame.seq, frame.timestamp.0);
        let is_reign = frame.kind == Kind::EpochChange;
        self.last_written.clear();
        if is_reign {
            self.reign(now, Some(frame.payload), frame.stream_id, false)?;
        } else {
            if self.stages.is_none() {
                self.reign(now, None, frame.stream_id, false)?;
                self.reconnect();
                self.settle(now, on_output)?;
                self.last_written.clear();
            }
            self.offer(frame, command);
            let stages = self.stages.as_mut().ok_or(RigError::NoReign(seq))?;
            stages.sequencer.poll(now);
            read_written(&mut stages.written, &mut self.last_written);
        }
        if !Frame::view(&self.last_written).is_ok_and(|ours| ours == *frame) {
            let mut theirs = Vec::new();
            frame.append_to(&mut theirs);
            return Err(RigError::Frame { seq, ours: std::mem::take(&mut self.last_written), theirs });
        }
        self.settle(now, on_output)?;
        if is_reign {
            self.reconnect();
            self.settle(now, on_output)?;
        }
        if let Some(stages) = self.stages.as_mut().filter(|_| frame.kind == Kind::SnapshotMark) {
            stages.executor.note_state();
        }
        Ok(())
    }

    fn begin(&mut self, now: Nanos, on_output: OnOutput<'_>) -> Result<(), RigError> {
        let epoch = self.machine().epoch() + 1;
        // What is replayed is not journaled: nobody has to tell this reign from another.
        let change =
            EpochChange { epoch, schema_version: S::SCHEMA_VERSION, service_name: S::NAME, ..EpochChange::default() };
        self.reign(now, Some(&change.encode()), 0, true)?;
        self.reconnect();
        self.settle(now, on_output)
    }

    fn hello(
        &mut self,
        now: Nanos,
        session: (u64, u32),
        first_seq: u64,
        on_output: OnOutput<'_>,
    ) -> Result<(), RigError> {
        let Some(Stages { executor, far, .. }) = &mut self.stages else { return Ok(()) };
        if far.is_open(session.0, session.1) {
            return Ok(());
        }
        let known = executor.machine().sessions().get(ticktape::SessionId(session.0));
        let next_event = known.map_or(1, |state| state.event_seq + 1);
        far.hello(session, first_seq, next_event, S::SCHEMA_VERSION);
        self.settle(now, on_output)
    }

    fn input(
        &mut self,
        now: Nanos,
        session: (u64, u32),
        client_seq: u64,
        command: &[u8],
        on_output: OnOutput<'_>,
    ) -> Result<bool, RigError> {
        self.hello(now, session, client_seq, on_output)?;
        let Some(stages) = &mut self.stages else { return Ok(false) };
        let before = stages.sequencer.counters().commands;
        stages.far.input(now, session.0, client_seq, command);
        self.settle(now, on_output)?;
        Ok(self.stages.as_ref().is_some_and(|stages| stages.sequencer.counters().commands > before))
    }

    fn seq(&self) -> Seq {
        self.machine().applied()
    }

    fn next_public(&self) -> u64 {
        self.machine().next_feed_event()
    }

    fn digest(&self) -> String {
        self.machine().digest()
    }

    fn facts(&self) -> StateFacts {
        StateFacts::of(self.machine())
    }
}

fn log_ring(config: &ApplianceConfig, epoch: u32) -> RingBuilder {
    let (frames, payload_bytes) = datagram_room(config.datagram_bytes_max);
    let frame_bytes_max = frame_bytes(PAYLOAD_BYTES_MAX);
    let batch_bytes_max = payload_bytes + frames * (padded(frame_bytes(0)) + 8);
    RingBuilder::new(RingConfig {
        capacity_bytes: (4 * (padded(frame_bytes_max) + batch_bytes_max)).next_power_of_two(),
        frame_bytes_max,
        batch_bytes_max,
        epoch: u64::from(epoch),
        commit_is_sequenced: false,
    })
    .heap()
}

/// Both ends of the ring between executor and egress.
fn output_ring(config: &ApplianceConfig) -> (Consumer, OutputWriter) {
    let mut ring = RingBuilder::new(output_ring_config(config)).heap();
    ring.consumer("egress");
    let mut ring = ring.build(Seq::FIRST).expect("constant sizes");
    let records = ring.consumers.pop().expect("one consumer was asked for");
    (records, OutputWriter::new(ring.producer, config.limits.output_bytes_max))
}

/// Both ends of the link.
fn nic() -> (MemNic, MemNic) {
    mem::pair_with(MemConfig { inbox: INBOX, datagram_bytes_max: DATAGRAM_BYTES_LIMIT, ..MemConfig::default() })
}

fn sequencer_config<S: Service>(config: &ApplianceConfig, epoch: u32) -> SequencerConfig {
    SequencerConfig {
        epoch,
        schema_version: S::SCHEMA_VERSION,
        datagram_bytes_max: config.datagram_bytes_max,
        command_bytes_max: config.datagram_bytes_max - DATA_OVERHEAD_BYTES,
        window: config.window,
        sessions_max: config.sessions_max,
        reorder_bytes: config.session_reorder_bytes,
    }
}

/// Passes over what was written, and keeps the last of it.
fn read_written(written: &mut Consumer, last: &mut Vec<u8>) {
    while let Some(bytes) = written.peek() {
        last.clear();
        last.extend_from_slice(bytes);
        written.advance();
    }
    written.release();
}

#[derive(Debug)]
struct Told {
    target: Target,
    number: u64,
    seq: u64,
    client_seq: u64,
    start: usize,
    end: usize,
}

/// What the latest steps made, in order.
#[derive(Debug, Default)]
struct Outputs {
    told: Vec<Told>,
    bytes: Vec<u8>,
}

impl Outputs {
    fn clear(&mut self) {
        self.told.clear();
        self.bytes.clear();
    }
}

/// Hears each output when the egress releases it.
struct Listener(Rc<RefCell<Outputs>>);

impl EventSink for Listener {
    fn release(&mut self, _: Nanos, output: &Emitted<'_>) -> bool {
        let Emitted { seq, target, event_seq, client_seq, bytes } = *output;
        if target != Target::Caller {
            let mut outputs = self.0.borrow_mut();
            let (start, end) = (outputs.bytes.len(), outputs.bytes.len() + bytes.len());
            outputs.bytes.extend_from_slice(bytes);
            outputs.told.push(Told { target, number: event_seq, seq: seq.0, client_seq, start, end });
        }
        true
    }

    fn flush(&mut self, _: Nanos) {}

    fn housekeeping(&mut self, _: Nanos) {}

    fn end(&mut self, _: Nanos) -> bool {
        true
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
