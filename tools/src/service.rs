//! A service with its type erased, as the commands see it.

use std::fmt::Debug;
use std::path::Path;

use sha2::{Digest, Sha256};
use ticktape::config::ApplianceConfig;
use ticktape::machine::{Machine, Progress, StepLimits, hex};
use ticktape::pipeline::Appliance;
use ticktape::{Decode, Frame, Kind, Seq, Service};

use crate::Failure;

/// Gathers a service's outputs into one text to be hashed.
pub trait Outputs<O> {
    /// The outputs of one step, in order.
    fn push(&mut self, output: O);

    /// How many reports there were, and the SHA-256 of their text in lowercase hex.
    fn finish(self: Box<Self>) -> (u64, String);
}

/// Makes a gatherer for one replay.
pub type MakeOutputs<O> = fn() -> Box<dyn Outputs<O>>;

/// What a service may add to the commands.
pub struct ServiceOptions<O> {
    /// Makes a gatherer of reports for one replay; `None` hashes the outputs' encodings instead.
    pub reports: Option<MakeOutputs<O>>,
}

impl<O> Default for ServiceOptions<O> {
    fn default() -> Self {
        ServiceOptions { reports: None }
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

    /// What it came to.
    fn finish(self: Box<Self>) -> Outcome;
}

/// A service by name.
pub trait AnyService {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Starts an appliance of it.
    ///
    /// # Errors
    /// What keeps it from starting.
    fn start(&self, config: &ApplianceConfig) -> Result<Appliance, Failure>;

    /// A fresh state to apply a log to; its outputs are gathered or thrown away.
    fn replay(&self, gather: bool) -> Box<dyn AnyReplay + '_>;

    /// A command's encoding as text, for people.
    fn describe_input(&self, frame: &Frame<'_>) -> String;
}

pub(crate) struct ServiceEntry<S: Service> {
    name: &'static str,
    config: S::Config,
    options: ServiceOptions<S::Output>,
}

impl<S: Service> ServiceEntry<S> {
    pub(crate) fn new(name: &'static str, config: S::Config, options: ServiceOptions<S::Output>) -> Self {
        ServiceEntry { name, config, options }
    }
}

impl<S> AnyService for ServiceEntry<S>
where
    S: Service + Send + 'static,
    S::Input: Debug,
    S::Output: Send,
    S::Config: Clone + Send + 'static,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&self, config: &ApplianceConfig) -> Result<Appliance, Failure> {
        Appliance::start::<S>(config, &self.config).map_err(Failure::usage)
    }

    fn replay(&self, gather: bool) -> Box<dyn AnyReplay + '_> {
        let reports: Option<Box<dyn Outputs<S::Output>>> = gather.then(|| match self.options.reports {
            Some(reports) => reports(),
            None => Box::new(EncodedOutputs::default()),
        });
        Box::new(Replay::<S> { machine: Machine::genesis(&self.config, StepLimits::default()), commands: 0, reports })
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
}

struct Replay<S: Service> {
    machine: Machine<S>,
    commands: u64,
    reports: Option<Box<dyn Outputs<S::Output>>>,
}

impl<S: Service> AnyReplay for Replay<S> {
    fn apply(&mut self, frame: &Frame<'_>) -> Result<(), Failure> {
        loop {
            let progress = self.machine.step(frame).map_err(Failure::failed)?;
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

/// Applies the whole journal in `dir` to a fresh state.
pub(crate) fn replay_journal(service: &dyn AnyService, dir: &Path) -> Result<Outcome, Failure> {
    let mut reader = ticktape_journal::JournalReader::open(dir, Seq::FIRST).map_err(Failure::usage)?;
    let mut replay = service.replay(true);
    while let Some(bytes) = reader.next().map_err(Failure::failed)? {
        replay.apply(&Frame::view(bytes).expect("the reader has checked it"))?;
    }
    Ok(replay.finish())
}
