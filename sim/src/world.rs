//! The world: a box, its clients, what is between them, and chance, which decides who is next.
//!
//! A run is a number of steps: each is an input, or a stroke of fate, followed by polls of whatever chance picks. Then all faults stop, and
//! everything has to come to its end.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ticktape::config::ApplianceConfig;
use ticktape::link::Tier;
use ticktape::{Invariants, Seq, Service};

use crate::clock::{SimClock, WorldTime};
use crate::coverage::Coverage;
use crate::customer::Customer;
use crate::disk::{DiskConfig, Medium};
use crate::fold;
use crate::host::{DATAGRAM_BYTES, Host, Pollable, Retention, Surroundings, config};
use crate::ledger::{Frames, Ledger, Replay, Wrong};
use crate::nic::{Network, QueueConfig};
use crate::replica::{Fleet, WorldView, feed_config};
use crate::rng::{Ppm, Rng, Seed};
use crate::simulate::{Failure, SimConfig};
use crate::trace::{Keep, Trace, What, Who};

const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 9000);

/// The box's number.
const BOX: u8 = 0;

/// Calls something of the fleet with the world around it.
macro_rules! with_fleet {
    ($world:ident, $call:ident($($argument:expr),*)) => {{
        let view = WorldView {
            service: $world.service,
            network: &$world.network,
            time: &$world.time,
            trace: &$world.trace,
            ledger: &$world.ledger,
            coverage: &mut $world.coverage,
            step: $world.step,
        };
        $world.fleet.$call($($argument,)* view)
    }};
}

mod fate;
mod polls;
mod reign;
mod rest;
mod script;

use polls::Turn;

/// How a run came out, beside failing.
pub(crate) struct Outcome {
    pub(crate) trace_hash: u64,
    pub(crate) coverage: Coverage,
    pub(crate) virtual_ns: u64,
    pub(crate) inputs: u64,
}

pub(crate) struct World<'a, S: Service, G> {
    sim: SimConfig,
    service: &'a S::Config,
    gen_input: G,
    appliance: ApplianceConfig,
    queues: QueueConfig,
    time: WorldTime,
    network: Network,
    medium: Medium,
    clock: SimClock,
    /// On the heap: it is taken out and put back at each poll.
    host: Option<Box<Host<S>>>,
    customers: Vec<Customer>,
    fleet: Fleet<S>,
    ledger: Ledger,
    /// What the last start had left on the disk: its memory is used again.
    read_back: Frames,
    /// What the log comes to, whose states those of boxes are held against.
    replay: Replay<S>,
    retention: Retention<S>,
    /// Snapshots that were made to rot.
    rotten: usize,
    choose: Rng,
    fate: Rng,
    inputs: Rng,
    /// Whose turn each draw means: parts are drawn as often as they are fast, as cores of unequal speed. Draws beyond are the fleet's.
    turns: Vec<Turn>,
    /// Who has it.
    turn: Turn,
    /// Of those that had theirs since anybody had work, a bit each.
    had_turns: u32,
    stalled_until: [u32; Pollable::ALL.len()],
    has_bad_disk: bool,
    is_coming_to_rest: bool,
    idle: u32,
    starts: u64,
    /// The epoch of the last.
    reign: u32,
    failed_starts: u32,
    /// The next start gets no further than so many operations of its disk, if a script says so.
    script_fuse: Option<u64>,
    /// The last frame when the box was stopped in good order, until it is up again.
    stopped_at: Option<Seq>,
    /// A start was cut off or failed since the box was up last.
    has_cut_off_starts: bool,
    step: u32,
    inputs_asked: u64,
    coverage: Coverage,
    trace_hash: u64,
    trace: Trace,
}

impl<'a, S, G> World<'a, S, G>
where
    S: Service + Invariants,
    G: FnMut(&mut Rng) -> S::Input,
{
    pub(crate) fn new(sim: &SimConfig, service: &'a S::Config, gen_input: G, keep: Keep) -> Self {
        let seed = Seed(sim.seed);
        let time = WorldTime::new();
        let trace = Trace::new(keep, &time);
        let network = Network::new(seed, &time);
        network.set_trace(&trace);
        let mut shape = seed.stream("shape");
        let disk = DiskConfig { alignment: *shape.pick(&[512, 512, 4096]), ..DiskConfig::default() };
        let medium = Medium::new(seed, &time, disk);
        medium.set_trace(&trace, Who::Disk(BOX));
        let mut appliance = config(SERVER, &mut shape, sim.snapshots);
        if sim.replicas > 0 {
            appliance.feed = Some(feed_config());
            // At tier `memory` a leader may take back what replicas have applied.
            appliance.tier = Tier::Local;
        }
        let clients = sim.clients as u64;
        let customer = |index: u64| {
            let address = SocketAddrV4::new(Ipv4Addr::new(10, 0, 1, index as u8 + 1), 5000);
            Customer::new(index + 1, S::SCHEMA_VERSION, address, SERVER, &network, appliance.tier)
        };
        let (ledger, mut coverage) = (Ledger::default(), Coverage::new());
        let view = WorldView {
            service,
            network: &network,
            time: &time,
            trace: &trace,
            ledger: &ledger,
            coverage: &mut coverage,
            step: 0,
        };
        let fleet = Fleet::new(sim.replicas, seed, &appliance, view);
        World {
            sim: *sim,
            service,
            gen_input,
            fleet,
            queues: QueueConfig {
                rx_slots: *shape.pick(&[4, 64]),
                tx_slots: *shape.pick(&[2, 16]),
                datagram_bytes_max: DATAGRAM_BYTES,
                block: Ppm::percent(*shape.pick(&[0, 0, 20])),
            },
            customers: (0..clients).map(customer).collect(),
            replay: Replay::begin(service, appliance.limits),
            retention: Retention::new(&appliance, service),
            rotten: 0,
            appliance,
            medium,
            clock: SimClock::new(&time),
            network,
            time,
            host: None,
            ledger,
            read_back: Frames::default(),
            choose: seed.stream("schedule"),
            fate: seed.stream("fate"),
            inputs: seed.stream("inputs"),
            turn: 0,
            had_turns: 0,
            turns: polls::turns(std::array::from_fn(|_| shape.between(1, 12)), sim.clients),
            stalled_until: [0; Pollable::ALL.len()],
            has_bad_disk: shape.chance(Ppm::percent(30)),
            is_coming_to_rest: false,
            idle: 0,
            starts: 0,
            reign: 0,
            failed_starts: 0,
            script_fuse: None,
            stopped_at: None,
            has_cut_off_starts: false,
            step: 0,
            inputs_asked: 0,
            coverage,
            trace_hash: sim.seed,
            trace,
        }
    }

    /// The whole run. A stage that panics fails it, as anything else does.
    pub(crate) fn run(mut self) -> Result<Outcome, Failure> {
        let ran = catch_unwind(AssertUnwindSafe(|| self.live()));
        let result = ran.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
            Err(("no stage panics", text))
        });
        match result {
            Ok(()) => {
                self.count_all();
                let World { trace_hash, coverage, time, inputs_asked: inputs, .. } = self;
                Ok(Outcome { trace_hash, coverage, virtual_ns: time.now(), inputs })
            }
            Err((check, detail)) => Err(Failure {
                config: self.sim,
                found: Box::new(self.sim),
                step: self.step,
                check,
                detail,
                last_events: self.trace.take_tail(),
            }),
        }
    }

    fn live(&mut self) -> Result<(), Wrong> {
        self.start(true)?;
        while self.step < self.sim.steps {
            self.step += 1;
            self.trace.begin_step(self.step);
            self.step_fleet()?;
            self.begin_streams(u64::from(self.step));
            if self.host.is_none() {
                if !self.fate.chance(Ppm::percent(30)) {
                    self.polls(4)?;
                    continue;
                }
                self.start(false)?;
            }
            self.take_a_step()?;
        }
        self.calm();
        self.finish()
    }

    /// Each step has streams of its own, so that what is taken out of one leaves chance in the others as it was.
    fn begin_streams(&mut self, step: u64) {
        let seed = Seed(self.sim.seed).child("step", step);
        self.choose = seed.stream("schedule");
        self.fate = seed.stream("fate");
        self.inputs = seed.stream("inputs");
    }

    fn step_fleet(&mut self) -> Result<(), Wrong> {
        if self.fleet.is_empty() {
            return Ok(());
        }
        let mut fate = Seed(self.sim.seed).child("fleet", u64::from(self.step)).stream("fate");
        let faults = self.sim.faults;
        with_fleet!(self, step(&mut fate, &faults))
    }

    fn meet(&mut self, name: &'static str, times: u64) {
        *self.coverage.entry(name).or_insert(0) += times;
    }

    fn fold(&mut self, word: u64) {
        self.trace_hash = fold::word(self.trace_hash, word);
    }

    fn tell_fault(&self, kind: &'static str, detail: impl FnOnce() -> String) {
        self.trace.tell(Who::World, || What::Fault { kind, detail: detail() });
    }

    fn count_all(&mut self) {
        let net = self.network.counters();
        let disk = self.medium.counters();
        let reconnects = self.customers.iter().map(|customer| customer.reconnects).sum();
        let too_old = self.customers.iter().map(|customer| customer.events_too_old).sum();
        for (name, times) in [
            ("packets delivered", net.delivered),
            ("packets lost", net.lost),
            ("packets cut", net.cut),
            ("packets duplicated", net.duplicated),
            ("packets reordered", net.reordered),
            ("packets corrupted", net.corrupted),
            ("receive rings overflowed", net.overflowed),
            ("transmit queues blocked", net.blocked),
            ("sectors torn", disk.sectors_torn),
            ("sectors lost", disk.sectors_lost),
            ("sectors survived unsynced", disk.sectors_survived),
            ("names lost", disk.names_lost),
            ("operations cut off", disk.cut_off),
            ("short writes", disk.short_writes),
            ("disk errors", disk.errors),
            ("failed syncs", disk.sync_errors),
            ("disk full", disk.full),
            ("client reconnects", reconnects),
            ("events too old", too_old),
            ("frames sequenced", self.ledger.last().0),
            ("states compared at marks", self.retention.oracle.compared()),
        ] {
            self.meet(name, times);
        }
    }
}

fn surroundings<'a, C>(
    config: &'a ApplianceConfig,
    service: &'a C,
    medium: &'a Medium,
    rotten: usize,
) -> Surroundings<'a, C> {
    Surroundings { config, service, medium, unsound: rotten + medium.counters().errors as usize }
}
