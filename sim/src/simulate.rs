//! What users call: one run, or many.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use ticktape::{Invariants, Service};

use crate::rng::Rng;
use crate::trace::{Event, Keep};
use crate::world::World;

/// Which kinds of fault may strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The power is lost, in recovery, too.
    pub power: bool,
    /// The process is killed; the system lives on.
    pub kill: bool,
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
}

impl Faults {
    /// Every kind.
    pub const ALL: Faults = Faults {
        power: true,
        kill: true,
        network: true,
        disk: true,
        clock: true,
        stall: true,
        clients: true,
        full: true,
    };
    /// None: only the order of polls is chance.
    pub const NONE: Faults = Faults {
        power: false,
        kill: false,
        network: false,
        disk: false,
        clock: false,
        stall: false,
        clients: false,
        full: false,
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

    fn kinds_mut(&mut self) -> [(&'static str, &mut bool); 8] {
        [
            ("power", &mut self.power),
            ("kill", &mut self.kill),
            ("network", &mut self.network),
            ("disk", &mut self.disk),
            ("clock", &mut self.clock),
            ("stall", &mut self.stall),
            ("clients", &mut self.clients),
            ("full", &mut self.full),
        ]
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Faults::ALL {
            return f.write_str("all");
        }
        let mut copy = *self;
        let on: Vec<&str> = copy.kinds_mut().iter().filter(|(_, is_on)| **is_on).map(|(name, _)| *name).collect();
        f.write_str(if on.is_empty() { "none".to_string() } else { on.join(",") }.as_str())
    }
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// What it follows from.
    pub seed: u64,
    /// Inputs and strokes of fate, before faults stop.
    pub steps: u32,
    /// Clients, up to 8.
    pub clients: usize,
    /// What may strike.
    pub faults: Faults,
}

impl SimConfig {
    /// A run of 400 steps with three clients and every fault.
    pub fn new(seed: u64) -> Self {
        SimConfig { seed, steps: 400, clients: 3, faults: Faults::ALL }
    }
}

/// What a run came to that found nothing wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Of everything that was sequenced and told: the same for the same seed, in every build.
    pub trace_hash: u64,
    /// What was met, and how often.
    pub coverage: BTreeMap<&'static str, u64>,
    /// How long it was, in virtual nanoseconds.
    pub virtual_ns: u64,
    /// Inputs that clients asked for.
    pub inputs: u64,
}

/// What a run found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The run's seed.
    pub seed: u64,
    /// The step in which it showed.
    pub step: u32,
    /// The name of what does not hold.
    pub check: &'static str,
    /// What was found instead.
    pub detail: String,
    /// What happened last, oldest first.
    pub last_events: Vec<Event>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in &self.last_events {
            writeln!(f, "  {event}")?;
        }
        write!(f, "seed {}, step {}: it does not hold that {}: {}", self.seed, self.step, self.check, self.detail)
    }
}

impl std::error::Error for Failure {}

/// Runs one world with service `S`, whose clients ask for what `gen_input` makes.
///
/// # Errors
/// [`Failure`]: a check that does not hold, with what happened last.
///
/// # Panics
/// When `config` asks for no client or more than 8.
pub fn simulate<S: Service + Invariants>(
    config: &SimConfig,
    service: &S::Config,
    mut gen_input: impl FnMut(&mut Rng) -> S::Input,
) -> Result<Report, Failure> {
    assert!((1..=8).contains(&config.clients), "1 to 8 clients, not {}", config.clients);
    let result = World::<S, _>::new(config, service, &mut gen_input, Keep::Nothing).run();
    // A run tells nothing unless it fails; then it is run again, to tell.
    let outcome = result.map_err(|_| match World::<S, _>::new(config, service, &mut gen_input, Keep::Tail).run() {
        Err(failure) => failure,
        Ok(_) => panic!("seed {} failed once and not again: something in it is not its seed's", config.seed),
    })?;
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
    pub coverage: BTreeMap<&'static str, u64>,
    /// How long they were together, in virtual nanoseconds.
    pub virtual_ns: u64,
    /// Inputs that clients asked for.
    pub inputs: u64,
}

/// What a batch of runs with every fault has to have met: otherwise it shows nothing.
pub const RARE_BRANCHES: [&str; 14] = [
    "power lost",
    "power lost in recovery",
    "process killed",
    "recoveries that cut a torn tail",
    "frames lost, none of them acknowledged",
    "sectors torn",
    "sectors lost",
    "names lost",
    "journal segments rolled",
    "journal short writes continued",
    "receive rings overflowed",
    "events resent",
    "commands asked for again",
    "client reconnects",
];

impl Batch {
    /// Counts a run.
    pub fn add(&mut self, result: Result<Report, Failure>) {
        self.runs += 1;
        match result {
            Ok(report) => {
                self.virtual_ns += report.virtual_ns;
                self.inputs += report.inputs;
                for (name, times) in report.coverage {
                    *self.coverage.entry(name).or_insert(0) += times;
                }
            }
            Err(failure) => {
                self.failures += 1;
                self.first_failure.get_or_insert(failure);
            }
        }
    }

    /// The rare branches that were not met.
    pub fn too_shallow(&self) -> Vec<&'static str> {
        RARE_BRANCHES.into_iter().filter(|name| self.coverage.get(name).is_none_or(|&times| times == 0)).collect()
    }
}

/// Runs a world of each of the seeds, and stops at the first that finds something wrong.
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
        batch.add(simulate::<S>(&SimConfig { seed, ..*config }, service, &mut gen_input));
        if batch.failures > 0 {
            break;
        }
    }
    batch
}
