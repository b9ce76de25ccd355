//! A service with its type erased, as the commands see it.

use std::fmt::Debug;
use std::net::SocketAddrV4;
use std::path::Path;

use sha2::{Digest, Sha256};
use ticktape::config::{ApplianceConfig, SnapshotConfig};
use ticktape::machine::{Machine, Progress, StepLimits, hex};
use ticktape::mark::Compared;
use ticktape::pipeline::{Appliance, Replica, Report};
use ticktape::replica::{ReplicaConfig, ReplicaStatus};
use ticktape::snapshot::{Found, Restored};
use ticktape::tails::Tails;
use ticktape::{Decode, Encode, Frame, Kind, Seq, Service, Timestamp};
use ticktape_journal::Snapshot;

use crate::Failure;
use crate::log::{Log, no_end, on_log};
use crate::out::say;
use crate::replay::{AnyRig, Rig};

/// Gathers a service's outputs into one text to be hashed.
pub trait Outputs<O> {
    /// The outputs of one step, in order.
    fn push(&mut self, output: O);

    /// How many reports there were, and the SHA-256 of their text in lowercase hex.
    fn finish(self: Box<Self>) -> (u64, String);
}

/// Makes a gatherer for one replay.
pub type MakeOutputs<O> = fn() -> Box<dyn Outputs<O>>;

/// One of several clients that put load on an appliance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadClient {
    /// Which one, from 0.
    pub number: u64,
    /// Of how many.
    pub of: u64,
    /// The same seed and numbers are the same inputs.
    pub seed: u64,
}

/// Makes the inputs that one client loads an appliance with, in order, without end.
pub type MakeInputs<I> = fn(LoadClient) -> Box<dyn Iterator<Item = I> + Send>;

/// Appends the encoding of the next input; false where there is none.
pub type EncodedInputs = Box<dyn FnMut(&mut Vec<u8>) -> bool + Send>;

/// What a service may add to the commands.
pub struct ServiceOptions<I, O> {
    /// Makes a gatherer of reports for one replay; `None` hashes the outputs' encodings instead.
    pub reports: Option<MakeOutputs<O>>,
    /// Makes what `load` sends; with `None` it only takes flows from files. It times the first output to the session for each input.
    pub load: Option<MakeInputs<I>>,
}

impl<I, O> Default for ServiceOptions<I, O> {
    fn default() -> Self {
        ServiceOptions { reports: None, load: None }
    }
}

/// What a log came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The last seq.
    pub seq: Seq,
    /// Commands among the frames.
    pub commands: u64,
    /// SHA-256 of the state, lowercase hex.
    pub digest: String,
    /// Reports, or outputs where the service has no reports.
    pub reports: u64,
    /// SHA-256 of them, lowercase hex.
    pub report_sha256: String,
}

/// What a replay keeps beside the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// The reports, gathered into their hash.
    Reports,
    /// The sessions' latest events, for a snapshot.
    Tails,
}

/// Where a replay began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The snapshot's seq; `None` where it began with the log.
    pub snapshot: Option<Seq>,
    /// Snapshots that were not sound, each with the reason in a line.
    pub passed_over: Vec<String>,
    /// Whether the snapshot is all there is: the directory holds no segment.
    pub is_all: bool,
}

impl Begun {
    /// Tells people, where there is anything to tell.
    pub fn say(&self) -> Result<(), Failure> {
        self.passed_over.iter().try_for_each(|reason| say!("passed over    {reason}"))?;
        self.snapshot.map_or(Ok(()), |seq| say!("begun          from the snapshot after seq {seq}"))?;
        match self.snapshot.filter(|_| self.is_all) {
            Some(_) => say!("log            no segment is there: the state is the snapshot's"),
            None => Ok(()),
        }
    }
}

/// What is known of a state at no cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateFacts {
    /// The last seq applied.
    pub seq: Seq,
    /// Its time.
    pub time: Timestamp,
    /// The latest epoch that the log declared.
    pub epoch: u64,
    /// The rolling hash of all outputs so far.
    pub output_hash: u64,
    /// Sessions that the log knows.
    pub sessions: u64,
    /// Timers that are armed.
    pub timers: u64,
    /// Commands that were no encoding of one.
    pub malformed: u64,
    /// Marks that were compared.
    pub compared: Compared,
}

impl StateFacts {
    /// Of this machine.
    pub fn of<S: Service>(machine: &Machine<S>) -> Self {
        StateFacts {
            seq: machine.applied(),
            time: machine.now(),
            epoch: machine.epoch(),
            output_hash: machine.output_hash(),
            sessions: machine.sessions().iter().count() as u64,
            timers: machine.timers_armed() as u64,
            malformed: machine.malformed(),
            compared: machine.compared(),
        }
    }
}

/// A state that is built up frame by frame.
pub trait AnyReplay {
    /// Applies one frame.
    ///
    /// # Errors
    /// What the service can't apply.
    fn apply(&mut self, frame: &Frame<'_>) -> Result<(), Failure>;

    /// The last seq applied.
    fn seq(&self) -> Seq;

    /// SHA-256 of the state as it is now, lowercase hex.
    fn digest(&self) -> String;

    /// What is known of it at no cost.
    fn facts(&self) -> StateFacts;

    /// SHA-256 of engine and service state, as a snapshot has it. Marks to come that speak of this point are compared with it.
    fn state_digest(&mut self) -> [u8; 32];

    /// Takes a snapshot, after some frame. Marks to come that speak of this point are compared with its digest.
    fn snapshot(&mut self) -> Snapshot;

    /// The service's state, readable.
    fn text(&self) -> String;

    /// What it came to.
    fn finish(self: Box<Self>) -> Outcome;
}

/// Outputs on their way into the hash of their reports.
pub trait AnyReports {
    /// The next one, encoded; false where it is none of the service's.
    fn push(&mut self, bytes: &[u8]) -> bool;

    /// How many reports there were, and the SHA-256 of their text in lowercase hex.
    fn finish(self: Box<Self>) -> (u64, String);
}

struct Reports<O>(Box<dyn Outputs<O>>);

impl<O: Decode> AnyReports for Reports<O> {
    fn push(&mut self, bytes: &[u8]) -> bool {
        O::from_bytes(bytes).map(|output| self.0.push(output)).is_ok()
    }

    fn finish(self: Box<Self>) -> (u64, String) {
        self.0.finish()
    }
}

/// A running replica.
pub trait AnyReplica {
    /// Where it stands.
    fn status(&self) -> ReplicaStatus;

    /// Why it has stopped by itself, if it has.
    fn fault(&self) -> Option<String>;

    /// Where it serves others, if it does.
    fn repair_addr(&self) -> Option<SocketAddrV4>;

    /// Where what it measures can be read, for people.
    fn metrics_place(&self) -> &str;

    /// What the kernel was asked for, and gave, where anything was.
    fn runtime(&self) -> Option<String>;

    /// Where its memory and its threads are, once they are: on a box of several NUMA nodes.
    fn nodes(&self) -> Option<String>;

    /// Stops it.
    fn stop(self: Box<Self>) -> Report;
}

impl<S> AnyReplica for Replica<S>
where
    S: Service + Send + 'static,
    S::Output: Send,
    S::Config: Clone + Send + 'static,
{
    fn status(&self) -> ReplicaStatus {
        Replica::status(self)
    }

    fn fault(&self) -> Option<String> {
        Replica::fault(self)
    }

    fn repair_addr(&self) -> Option<SocketAddrV4> {
        Replica::repair_addr(self)
    }

    fn metrics_place(&self) -> &str {
        Replica::metrics_place(self)
    }

    fn runtime(&self) -> Option<String> {
        Replica::runtime(self)
    }

    fn nodes(&self) -> Option<String> {
        Replica::nodes(self)
    }

    fn stop(self: Box<Self>) -> Report {
        Replica::stop(*self)
    }
}

/// A service by name.
pub trait AnyService {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Its commands' and answers' version, which the handshake compares.
    fn schema(&self) -> u32;

    /// What a client loads an appliance of it with; `None` where that is not known.
    fn inputs(&self, client: LoadClient) -> Option<EncodedInputs>;

    /// Starts an appliance of it.
    ///
    /// # Errors
    /// What keeps it from starting.
    fn start(&self, config: &ApplianceConfig) -> Result<Appliance, Failure>;

    /// Starts a replica of it.
    ///
    /// # Errors
    /// What keeps it from starting.
    fn replicate(&self, config: &ReplicaConfig) -> Result<Box<dyn AnyReplica>, Failure>;

    /// Its name in logs and snapshots; may be empty.
    fn log_name(&self) -> &'static str;

    /// The state before the first frame.
    fn replay(&self) -> Box<dyn AnyReplay + '_>;

    /// The state that was found in `dir`, to apply the rest of the log to.
    ///
    /// # Errors
    /// It is another service's, or of another version of this one.
    fn replay_from(&self, found: Found, dir: &Path, keep: Keep) -> Result<(Box<dyn AnyReplay + '_>, Begun), Failure>;

    /// Its stages, before the first frame, for a replay of a capture.
    fn rig(&self) -> Box<dyn AnyRig + '_>;

    /// The same, from the state that was found in `dir`, with the frames of its log up to `last`.
    ///
    /// # Errors
    /// It is another service's, or of another version of this one, or the log does not reach so far.
    fn rig_from(&self, log: &Log, dir: &Path, last: Seq) -> Result<Box<dyn AnyRig + '_>, Failure>;

    /// Gathers encoded outputs into the hash of their reports.
    fn reports(&self) -> Box<dyn AnyReports + '_>;

    /// A command's encoding as text, for people.
    fn describe_input(&self, frame: &Frame<'_>) -> String;

    /// An output's encoding as text, for people; `None` where it is none of this service's.
    fn describe_output(&self, bytes: &[u8]) -> Option<String>;
}

pub(crate) struct ServiceEntry<S: Service> {
    name: &'static str,
    config: S::Config,
    options: ServiceOptions<S::Input, S::Output>,
}

impl<S: Service> ServiceEntry<S> {
    pub(crate) fn new(name: &'static str, config: S::Config, options: ServiceOptions<S::Input, S::Output>) -> Self {
        ServiceEntry { name, config, options }
    }

    fn gatherer(&self) -> Box<dyn Outputs<S::Output>> {
        match self.options.reports {
            Some(reports) => reports(),
            None => Box::new(EncodedOutputs::default()),
        }
    }
}

impl<S> AnyService for ServiceEntry<S>
where
    S: Service + Send + 'static,
    S::Input: Debug + 'static,
    S::Snapshot: Debug,
    S::Output: Debug + Send,
    S::Config: Clone + Send + 'static,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn log_name(&self) -> &'static str {
        S::NAME
    }

    fn schema(&self) -> u32 {
        S::SCHEMA_VERSION
    }

    fn inputs(&self, client: LoadClient) -> Option<EncodedInputs> {
        let mut inputs = self.options.load?(client);
        Some(Box::new(move |encoded| inputs.next().map(|input| input.encode(encoded)).is_some()))
    }

    fn start(&self, config: &ApplianceConfig) -> Result<Appliance, Failure> {
        Appliance::start::<S>(config, &self.config).map_err(Failure::usage)
    }

    fn replicate(&self, config: &ReplicaConfig) -> Result<Box<dyn AnyReplica>, Failure> {
        let replica = Replica::<S>::start(config, &self.config, None).map_err(Failure::usage)?;
        Ok(Box::new(replica))
    }

    fn replay(&self) -> Box<dyn AnyReplay + '_> {
        let machine = Machine::genesis(&self.config, StepLimits::default());
        Box::new(Replay::<S> { machine, commands: 0, reports: None, tails: None })
    }

    fn replay_from(&self, found: Found, dir: &Path, keep: Keep) -> Result<(Box<dyn AnyReplay + '_>, Begun), Failure> {
        let tail_bytes = SnapshotConfig::default().tail_bytes;
        let restored = found.restore::<S>(dir, &self.config, StepLimits::default(), tail_bytes);
        let Restored { machine, tails, snapshot, rejected } = restored.map_err(Failure::failed)?;
        let reports = (keep == Keep::Reports).then(|| self.gatherer());
        let tails = (keep == Keep::Tails).then_some(tails);
        let begun = Begun { snapshot: snapshot.map(|meta| meta.seq), passed_over: rejected, is_all: false };
        Ok((Box::new(Replay::<S> { machine, commands: 0, reports, tails }), begun))
    }

    fn rig(&self) -> Box<dyn AnyRig + '_> {
        Box::new(Rig::<S>::new(Machine::genesis(&self.config, Rig::<S>::limits())))
    }

    fn rig_from(&self, log: &Log, dir: &Path, last: Seq) -> Result<Box<dyn AnyRig + '_>, Failure> {
        let restored = log.newest(last)?.restore::<S>(dir, &self.config, Rig::<S>::limits(), 0);
        let mut machine = restored.map_err(Failure::failed)?.machine;
        let mut reader = log.from(machine.applied().next())?;
        while machine.applied() < last {
            let Some(bytes) = reader.next().map_err(Failure::reading)? else { break };
            let frame = Frame::view(bytes).expect("the reader has checked it");
            while machine.step(&frame).map_err(Failure::failed)? != Progress::Applied {}
        }
        Ok(Box::new(Rig::<S>::new(machine)))
    }

    fn reports(&self) -> Box<dyn AnyReports + '_> {
        Box::new(Reports(self.gatherer()))
    }

    fn describe_input(&self, frame: &Frame<'_>) -> String {
        let command = match frame.kind {
            Kind::Input => Some(frame.payload),
            Kind::SessionInput => ticktape::payload::Origin::split(frame.payload).map(|(_, command)| command),
            _ => None,
        };
        match command.map(S::Input::from_bytes) {
            Some(Ok(input)) => format!("{input:?}"),
            Some(Err(error)) => format!("no {} command: {error}", self.name),
            None => String::new(),
        }
    }

    fn describe_output(&self, bytes: &[u8]) -> Option<String> {
        S::Output::from_bytes(bytes).ok().map(|output| format!("{output:?}"))
    }
}

struct Replay<S: Service> {
    machine: Machine<S>,
    commands: u64,
    reports: Option<Box<dyn Outputs<S::Output>>>,
    tails: Option<Tails>,
}

impl<S: Service> AnyReplay for Replay<S>
where
    S::Snapshot: Debug,
{
    fn apply(&mut self, frame: &Frame<'_>) -> Result<(), Failure> {
        loop {
            let progress = self.machine.step(frame).map_err(Failure::failed)?;
            if let Some(tails) = &mut self.tails {
                self.machine.outputs(frame.seq).for_each(|output| tails.push(&output));
            }
            if let Some(reports) = &mut self.reports {
                self.machine.take_outputs().for_each(|output| reports.push(output));
            }
            if progress == Progress::Applied {
                break;
            }
        }
        self.commands += u64::from(matches!(frame.kind, Kind::Input | Kind::SessionInput));
        Ok(())
    }

    fn seq(&self) -> Seq {
        self.machine.applied()
    }

    fn digest(&self) -> String {
        self.machine.digest()
    }

    fn facts(&self) -> StateFacts {
        StateFacts::of(&self.machine)
    }

    fn state_digest(&mut self) -> [u8; 32] {
        let digest = self.machine.state_digest();
        self.machine.note_state_digest(self.machine.applied(), digest);
        digest
    }

    fn snapshot(&mut self) -> Snapshot {
        let none = Tails::new(0);
        let snapshot = self.machine.to_snapshot(self.tails.as_ref().unwrap_or(&none));
        self.machine.note_state_digest(snapshot.meta().seq, snapshot.meta().state_digest);
        snapshot
    }

    fn text(&self) -> String {
        format!("{:#?}", self.machine.service().snapshot())
    }

    fn finish(self: Box<Self>) -> Outcome {
        let (seq, digest) = (self.machine.applied(), self.machine.digest());
        let (reports, report_sha256) = self.reports.map_or((0, String::new()), |reports| reports.finish());
        Outcome { seq, commands: self.commands, digest, reports, report_sha256 }
    }
}

/// Hashes outputs by their encodings, back to back.
#[derive(Default)]
struct EncodedOutputs {
    hash: Sha256,
    encoded: Vec<u8>,
    outputs: u64,
}

impl<O: ticktape::Encode> Outputs<O> for EncodedOutputs {
    fn push(&mut self, output: O) {
        self.encoded.clear();
        output.encode(&mut self.encoded);
        self.hash.update(&self.encoded);
        self.outputs += 1;
    }

    fn finish(self: Box<Self>) -> (u64, String) {
        (self.outputs, hex(&self.hash.finalize()))
    }
}

/// The service called `name`, or the first where no name is given.
pub(crate) fn find<'a>(services: &'a [Box<dyn AnyService>], name: Option<&str>) -> Result<&'a dyn AnyService, Failure> {
    let names = || services.iter().map(|service| service.name()).collect::<Vec<_>>().join(", ");
    let found = match name {
        None => services.first(),
        Some(name) => services.iter().find(|service| service.name() == name),
    };
    found
        .map(|service| &**service)
        .ok_or_else(|| Failure::usage(format!("service {:?} is unknown: one of {}", name.unwrap_or(""), names())))
}

/// Applies the journal in `dir`, up to a seq or all of it, to a fresh state, or to the oldest that it goes on from where its beginning
/// is gone.
pub(crate) fn replay_journal(
    service: &dyn AnyService,
    dir: &Path,
    until: Option<u64>,
) -> Result<(Outcome, Begun), Failure> {
    on_log(dir, |log| replay_log(service, log, dir, until.map(Seq)))
}

fn replay_log(
    service: &dyn AnyService,
    log: &Log,
    dir: &Path,
    until: Option<Seq>,
) -> Result<(Outcome, Begun), Failure> {
    log.check_end()?;
    let (mut replay, mut begun) = service.replay_from(log.oldest()?, dir, Keep::Reports)?;
    begun.is_all = log.is_without_segments();
    let (first, last) = (replay.seq(), until.unwrap_or(Seq::MAX));
    let mut reader = log.from(first.next())?;
    while replay.seq() < last {
        let Some(bytes) = reader.next().map_err(Failure::reading)? else { break };
        replay.apply(&Frame::view(bytes).expect("the reader has checked it"))?;
    }
    match until.filter(|until| *until != replay.seq()) {
        None => Ok((replay.finish(), begun)),
        Some(until) => Err(no_end(dir, until.0, first, log.last_seq()?)),
    }
}
