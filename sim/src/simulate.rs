//! What users call: one run, or many.

use std::fmt;
use std::ops::Range;

use ticktape::{Invariants, Service};

use crate::coverage::{self, Coverage};
use crate::rng::Rng;
use crate::shrink::shrink;
use crate::trace::{Event, Keep};
use crate::world::World;

/// Which kinds of fault may strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The power is lost, in recovery, too.
    pub power: bool,
    /// The process is killed; the system lives on.
    pub kill: bool,
    /// The process is asked to stop, and does so in good order.
    pub stop: bool,
    /// Packets are lost, repeated, overtaken, damaged, late; directions are cut.
    pub network: bool,
    /// The disk is slow, stalls, writes in part, fails.
    pub disk: bool,
    /// Clocks run wrong and jump.
    pub clock: bool,
    /// A stage is not polled for a while.
    pub stall: bool,
    /// Clients restart.
    pub clients: bool,
    /// The disk is full for a while.
    pub full: bool,
    /// Bits of snapshots flip on the disk.
    pub rot: bool,
    /// Bits of the log rot, and writes are lost or go elsewhere, on a disk that says nothing of it.
    pub damage: bool,
}

impl Faults {
    /// Every kind.
    pub const ALL: Faults = Faults {
        power: true,
        kill: true,
        stop: true,
        network: true,
        disk: true,
        clock: true,
        stall: true,
        clients: true,
        full: true,
        rot: true,
        damage: true,
    };
    /// None: only the order of polls is chance.
    pub const NONE: Faults = Faults {
        power: false,
        kill: false,
        stop: false,
        network: false,
        disk: false,
        clock: false,
        stall: false,
        clients: false,
        full: false,
        rot: false,
        damage: false,
    };

    /// The kinds in a list such as `power,network`; `all` and `none` are lists, too.
    ///
    /// # Errors
    /// The name that is none, with those that are.
    pub fn parse(list: &str) -> Result<Faults, String> {
        let mut faults = Faults::NONE;
        for name in list.split(',').filter(|name| !name.is_empty()) {
            match name {
                "all" => faults = Faults::ALL,
                "none" => faults = Faults::NONE,
                name => {
                    let mut kinds = faults.kinds_mut();
                    let Some((_, is_on)) = kinds.iter_mut().find(|(known, _)| *known == name) else {
                        let known = kinds.map(|(name, _)| name);
                        return Err(format!("fault {name:?} is unknown: all, none, or of {}", known.join(", ")));
                    };
                    **is_on = true;
                }
            }
        }
        Ok(faults)
    }

    /// The names of those that are on.
    pub fn names(mut self) -> impl Iterator<Item = &'static str> {
        self.kinds_mut().map(|(name, is_on)| is_on.then_some(name)).into_iter().flatten()
    }

    /// These, but for one.
    #[must_use]
    pub fn without(mut self, name: &str) -> Faults {
        if let Some((_, is_on)) = self.kinds_mut().into_iter().find(|(known, _)| *known == name) {
            *is_on = false;
        }
        self
    }

    fn kinds_mut(&mut self) -> [(&'static str, &mut bool); 11] {
        [
            ("power", &mut self.power),
            ("kill", &mut self.kill),
            ("stop", &mut self.stop),
            ("network", &mut self.network),
            ("disk", &mut self.disk),
            ("clock", &mut self.clock),
            ("stall", &mut self.stall),
            ("clients", &mut self.clients),
            ("full", &mut self.full),
            ("rot", &mut self.rot),
            ("damage", &mut self.damage),
        ]
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Faults::ALL {
            return f.write_str("all");
        }
        let on: Vec<&str> = self.names().collect();
        f.write_str(if on.is_empty() { "none".to_string() } else { on.join(",") }.as_str())
    }
}

/// Clients in a run at most: each has an address and a session, which a simulated box has room for.
pub const CLIENTS_MAX: usize = 8;

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// What it follows from.
    pub seed: u64,
    /// Inputs and strokes of fate, before faults stop.
    pub steps: u32,
    /// Clients, from 1 to [`CLIENTS_MAX`].
    pub clients: usize,
    /// Replicas that follow the box over its feed, up to [`REPLICAS_MAX`].
    pub replicas: usize,
    /// What may strike.
    pub faults: Faults,
    /// Whether boxes take snapshots; by chance where it is not said.
    pub snapshots: Option<bool>,
}

/// Replicas in a run at most: two are enough for one to repair the other.
pub const REPLICAS_MAX: usize = 2;

impl SimConfig {
    /// A run of 400 steps with three clients, no replica, and every fault.
    pub fn new(seed: u64) -> Self {
        SimConfig { seed, steps: 400, clients: 3, replicas: 0, faults: Faults::ALL, snapshots: None }
    }
}

impl fmt::Display for SimConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SimConfig { seed, steps, clients, replicas, faults, .. } = self;
        let plural = if *clients == 1 { "" } else { "s" };
        let followed = match replicas {
            0 => "",
            1 => ", 1 replica",
            _ => ", 2 replicas",
        };
        write!(f, "seed {seed}, {steps} steps, {clients} client{plural}{followed}, faults {faults}")
    }
}

/// What a run came to that found nothing wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Of everything that was sequenced, applied and told: the same for the same seed, in every build.
    pub trace_hash: u64,
    /// What was met, and how often.
    pub coverage: Coverage,
    /// How long it was, in virtual nanoseconds.
    pub virtual_ns: u64,
    /// Inputs that clients asked for.
    pub inputs: u64,
}

/// What a run found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The run that shows it.
    pub config: SimConfig,
    /// The run that showed it first, before it was shrunk to that.
    pub found: Box<SimConfig>,
    /// The step in which it showed.
    pub step: u32,
    /// The name of what does not hold.
    pub check: &'static str,
    /// What was found instead.
    pub detail: String,
    /// What happened last, oldest first, and some turns of the story before that.
    pub last_events: Vec<Event>,
}

impl Failure {
    /// The seed that shows it.
    pub fn seed(&self) -> u64 {
        self.config.seed
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in &self.last_events {
            writeln!(f, "{event}")?;
        }
        writeln!(f, "seed {}, step {}: it does not hold that {}: {}", self.seed(), self.step, self.check, self.detail)?;
        write!(f, "with {}", self.config)?;
        if *self.found == self.config { Ok(()) } else { write!(f, "; shrunk from {}", self.found) }
    }
}

impl std::error::Error for Failure {}

/// Runs one world with service `S`, whose clients ask for what `gen_input` makes.
///
/// # Errors
/// [`Failure`]: a check that does not hold, with what happened last.
///
/// # Panics
/// When `config` asks for no client or more than [`CLIENTS_MAX`].
pub fn simulate<S: Service + Invariants>(
    config: &SimConfig,
    service: &S::Config,
    mut gen_input: impl FnMut(&mut Rng) -> S::Input,
) -> Result<Report, Failure> {
    // A run tells nothing unless it fails; then it is run again, to tell.
    run_world::<S>(config, service, &mut gen_input, Keep::Nothing).map_err(|first| {
        match run_world::<S>(config, service, &mut gen_input, Keep::Tail) {
            Err(again) if (again.step, again.check) == (first.step, first.check) => again,
            _ => {
                let what =
                    "a second run of the seed came out differently, so something in it is not a function of the seed";
                Failure { detail: format!("{} ({what})", first.detail), ..first }
            }
        }
    })
}

/// As [`simulate`]; each event is handed to `tell` when it happens.
///
/// # Errors
/// As [`simulate`]; a failure repeats no events.
///
/// # Panics
/// As [`simulate`].
pub fn simulate_told<S: Service + Invariants>(
    config: &SimConfig,
    service: &S::Config,
    mut gen_input: impl FnMut(&mut Rng) -> S::Input,
    tell: impl FnMut(&Event) + Send + 'static,
) -> Result<Report, Failure> {
    run_world::<S>(config, service, &mut gen_input, Keep::Each(Box::new(tell)))
}

fn run_world<S: Service + Invariants>(
    config: &SimConfig,
    service: &S::Config,
    gen_input: &mut impl FnMut(&mut Rng) -> S::Input,
    keep: Keep,
) -> Result<Report, Failure> {
    assert!((1..=CLIENTS_MAX).contains(&config.clients), "1 to {CLIENTS_MAX} clients, not {}", config.clients);
    let outcome = World::<S, _>::new(config, service, gen_input, keep).run()?;
    let (trace_hash, coverage, virtual_ns, inputs) =
        (outcome.trace_hash, outcome.coverage, outcome.virtual_ns, outcome.inputs);
    Ok(Report { trace_hash, coverage, virtual_ns, inputs })
}

/// What many runs came to.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Runs.
    pub runs: u64,
    /// Those that found something wrong.
    pub failures: u64,
    /// The first of them.
    pub first_failure: Option<Failure>,
    /// What was met in all of them.
    pub coverage: Coverage,
    /// How long they were together, in virtual nanoseconds.
    pub virtual_ns: u64,
    /// Inputs that clients asked for.
    pub inputs: u64,
}

impl Batch {
    /// Counts a run.
    pub fn add(&mut self, result: Result<Report, Failure>) {
        self.runs += 1;
        match result {
            Ok(report) => {
                self.virtual_ns += report.virtual_ns;
                self.inputs += report.inputs;
                coverage::add(&mut self.coverage, &report.coverage);
            }
            Err(failure) => {
                self.failures += 1;
                self.first_failure.get_or_insert(failure);
            }
        }
    }

    /// The [rare branches](coverage::RARE) that runs of this kind can reach, and that none of them met. Where there is one, the batch was too small, or
    /// injected too little, to show anything.
    pub fn too_shallow(&self, config: &SimConfig) -> Vec<&'static str> {
        coverage::not_met(&self.coverage, std::slice::from_ref(config))
    }
}

/// Runs a world of each of the seeds, and stops at the first that finds something wrong, which is shrunk. `gen_input` should draw all that it
/// makes from the stream it is given: what it keeps from call to call is not part of the seed.
///
/// # Panics
/// As [`simulate`].
pub fn vopr<S: Service + Invariants>(
    config: &SimConfig,
    seeds: Range<u64>,
    service: &S::Config,
    mut gen_input: impl FnMut(&mut Rng) -> S::Input,
) -> Batch {
    let mut batch = Batch::default();
    for seed in seeds {
        let mut run = |config: &SimConfig| simulate::<S>(config, service, &mut gen_input);
        let result = run(&SimConfig { seed, ..*config });
        batch.add(result.map_err(|failure| shrink(failure, run).0));
        if batch.failures > 0 {
            break;
        }
    }
    batch
}
