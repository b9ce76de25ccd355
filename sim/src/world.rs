//! The world: a box, its clients, what is between them, and chance, which decides who is next.
//!
//! A run is a number of steps: each is an input, or a stroke of fate, followed by polls of whatever chance picks. Then all faults stop, and
//! everything has to come to its end.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ticktape::config::ApplianceConfig;
use ticktape::link::Tier;
use ticktape::machine::StepError;
use ticktape::pipeline::StartError;
use ticktape::shadow::ShadowError;
use ticktape::{Encode, Invariants, Seq, Service};
use ticktape_journal::JournalError;

use crate::clock::{SimClock, WorldTime};
use crate::coverage::Coverage;
use crate::customer::Customer;
use crate::damage::Damage;
use crate::disk::{DiskConfig, DiskFaults, Loss, Medium};
use crate::history::check_histories;
use crate::host::{
    Beside, Boot, DATAGRAM_BYTES, Host, Pollable, Progress, Retention, STOP_LOSES_NOTHING, Surroundings, check_sealed,
    config, may_rot, read_log,
};
use crate::ledger::{Ledger, Replay, Wrong, check_effects};
use crate::nic::{LinkFaults, Network, QueueConfig};
use crate::replica::{Fleet, WorldView, feed_config};
use crate::rng::{Ppm, Rng, Seed};
use crate::simulate::{Failure, SimConfig};
use crate::trace::{Keep, Trace, What, Who, describe_frame, describe_input};

const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 9000);

/// Polls without any work after which time makes a leap.
const IDLE_POLLS: u32 = 24;

/// The longest leap, in nanoseconds.
const LEAP_NS_MAX: u64 = 50_000_000;

/// How long everything may take once faults have stopped, in virtual nanoseconds.
const PROGRESS_NS_MAX: u64 = 120_000_000_000;

/// Starts that may fail, one after the other, while faults go on.
const STARTS_MAX: u32 = 3;

/// The name of the check that everybody who applies a mark comes to.
const AGREE_AT_MARKS: &str = "states and outputs agree at marks";

/// The box's number.
const BOX: u8 = 0;

/// The last frames of the order, among which are those that a start adds.
const NOTED_AGAIN: usize = 64;

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

mod script;

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
    retention: Retention<S>,
    /// Snapshots that were made to rot.
    rotten: usize,
    choose: Rng,
    fate: Rng,
    inputs: Rng,
    /// How often each part is polled, beside the others: cores of unequal speed.
    speeds: [u64; Pollable::ALL.len()],
    stalled: Option<(usize, u32)>,
    has_bad_disk: bool,
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
            retention: Retention::new(&appliance, service),
            rotten: 0,
            appliance,
            medium,
            clock: SimClock::new(&time),
            network,
            time,
            host: None,
            ledger,
            choose: seed.stream("schedule"),
            fate: seed.stream("fate"),
            inputs: seed.stream("inputs"),
            speeds: std::array::from_fn(|_| shape.between(1, 12)),
            stalled: None,
            has_bad_disk: shape.chance(Ppm::percent(30)),
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

    fn take_a_step(&mut self) -> Result<(), Wrong> {
        let faults = &self.sim.faults;
        // A whole number of thousandths each; what is left is inputs.
        let chances = [
            (faults.power, 12),
            (faults.kill, 8),
            (faults.network, 30),
            (faults.disk, 30),
            (faults.clock, 10),
            (faults.stall, 30),
            (faults.clients, 10),
            (faults.full, 8),
            (faults.rot, 6),
            (faults.stop, 6),
            (faults.damage, 4),
        ];
        let mut draw = self.fate.below(1000);
        let mut stroke = None;
        for (index, (is_on, thousandths)) in chances.into_iter().enumerate() {
            if draw < thousandths {
                stroke = Some((index, is_on));
                break;
            }
            draw -= thousandths;
        }
        match stroke {
            None => self.ask(),
            // A stroke that is off leaves its place empty.
            Some((_, false)) => {}
            Some((0, _)) => self.lose_power()?,
            Some((1, _)) => self.kill("process killed")?,
            Some((2, _)) => self.change_network(),
            Some((3, _)) => self.change_disk(),
            Some((4, _)) => self.disturb_clock(),
            Some((5, _)) => self.stall(),
            Some((6, _)) => self.restart_a_client(),
            Some((7, _)) => self.fill_disk(),
            Some((8, _)) => self.rot(),
            Some((9, _)) => self.stop(),
            Some(_) => self.damage()?,
        }
        let polls = self.choose.between(1, 40);
        self.polls(polls)
    }

    // What happens.

    fn ask(&mut self) {
        let index = self.inputs.index(self.customers.len());
        for _ in 0..self.inputs.between(1, 4) {
            let input = (self.gen_input)(&mut self.inputs).to_bytes();
            self.trace
                .tell(Who::Client(self.customers[index].session), || What::Asked { input: describe_input(&input) });
            if !self.customers[index].ask(self.time.now(), input) {
                self.meet("client told to wait", 1);
                break;
            }
            self.inputs_asked += 1;
        }
    }

    fn lose_power(&mut self) -> Result<(), Wrong> {
        let Some(host) = self.host.take() else { return Ok(()) };
        self.leave(&host)?;
        self.fleet.lose_leader(true, &self.network, &mut self.coverage);
        drop(host);
        self.network.close(SERVER);
        let loss = Loss::any(&mut self.fate);
        self.tell_fault("power", || format!("{loss:?}"));
        self.medium.lose_power(loss);
        self.clock.reboot();
        self.meet("power lost", 1);
        Ok(())
    }

    fn kill(&mut self, why: &'static str) -> Result<(), Wrong> {
        let Some(host) = self.host.take() else { return Ok(()) };
        self.leave(&host)?;
        self.fleet.lose_leader(false, &self.network, &mut self.coverage);
        drop(host);
        self.network.close(SERVER);
        self.meet(why, 1);
        self.trace.tell(Who::Host(BOX), || What::Stop { why: why.to_string() });
        Ok(())
    }

    /// Asks the box to stop, which takes its time; whatever comes in between comes.
    fn stop(&mut self) {
        if let Some(host) = &mut self.host {
            host.stop();
            self.tell_fault("stop", || "asked to stop".to_string());
        }
    }

    /// Ends a stop that has come to its end.
    fn finish_stop(&mut self) -> Result<(), Wrong> {
        let Some(host) = self.host.take_if(|host| host.is_drained()) else { return Ok(()) };
        self.leave(&host)?;
        self.fleet.lose_leader(false, &self.network, &mut self.coverage);
        let last = self.ledger.last();
        let closed = host.close();
        self.network.close(SERVER);
        let why = match closed {
            Ok(()) => {
                check_sealed(&self.medium, &self.appliance.dir, last)?;
                self.stopped_at = Some(last);
                self.ledger.durable = last;
                self.meet("graceful stops", 1);
                "stopped and sealed".to_string()
            }
            Err(JournalError::Disk { .. } | JournalError::NoSpace { .. } | JournalError::WriteZero { .. }) => {
                self.meet("graceful stops that the disk failed", 1);
                "stopped, and could not be sealed".to_string()
            }
            Err(error) => return Err((STOP_LOSES_NOTHING, error.to_string())),
        };
        self.trace.tell(Who::Host(BOX), || What::Stop { why });
        Ok(())
    }

    /// The box is about to go: what it has computed must be what the log comes to.
    fn leave(&mut self, host: &Host<S>) -> Result<(), Wrong> {
        let live = host.machine();
        let replay = Replay::<S>::of(self.ledger.frames(), live.applied(), self.service, self.appliance.limits)?;
        let digest = replay.check_equals(live)?;
        self.fold(digest);
        let coverage = &mut self.coverage;
        host.count(&mut |name, times| *coverage.entry(name).or_insert(0) += times);
        Ok(())
    }

    fn change_network(&mut self) {
        let fate = &mut self.fate;
        let rate = |fate: &mut Rng| Ppm(*fate.pick(&[0, 0, 1_000, 20_000, 200_000]));
        let faults = LinkFaults {
            loss: rate(fate),
            duplicate: rate(fate),
            reorder: rate(fate),
            corrupt: rate(fate),
            delay_ns: *fate.pick(&[1_000, 10_000, 1_000_000]),
            jitter_ns: *fate.pick(&[0, 2_000, 500_000]),
            straggle: rate(fate),
        };
        let client = Ipv4Addr::new(10, 0, 1, fate.below(self.customers.len() as u64) as u8 + 1);
        let what = match fate.below(6) {
            0 => {
                self.network.heal();
                "network healed".to_string()
            }
            1 => {
                self.network.cut(client, *SERVER.ip());
                format!("cut {client} to box")
            }
            2 => {
                self.network.cut(*SERVER.ip(), client);
                format!("cut box to {client}")
            }
            _ => {
                self.network.set_default_faults(faults);
                format!("network: {faults:?}")
            }
        };
        self.tell_fault("network", || what);
    }

    fn change_disk(&mut self) {
        let fate = &mut self.fate;
        let errors = if self.has_bad_disk { [0, 0, 2_000] } else { [0; 3] };
        let faults = DiskFaults {
            latency_ns: *fate.pick(&[1_000, 15_000, 300_000]),
            jitter_ns: *fate.pick(&[0, 20_000, 1_000_000]),
            straggle: Ppm(*fate.pick(&[0, 1_000, 20_000])),
            short_write: Ppm(*fate.pick(&[0, 0, 50_000])),
            write_error: Ppm(*fate.pick(&errors)),
            read_error: Ppm(*fate.pick(&errors)),
            sync_error: Ppm(*fate.pick(&errors)),
            ..DiskFaults::NONE
        };
        self.medium.set_faults(faults);
        if fate.chance(Ppm::percent(10)) {
            self.medium.stall(fate.scaled(200_000_000));
            self.meet("disk stalled", 1);
        }
        self.tell_fault("disk", || format!("{faults:?}"));
    }

    fn disturb_clock(&mut self) {
        const DAY_NS: i64 = 86_400_000_000_000;
        let what = match self.fate.below(3) {
            0 => {
                let ppm = self.fate.between(0, 1000) as i32 - 500;
                self.clock.skew(ppm);
                format!("clock runs {ppm} ppm too fast")
            }
            1 => {
                let ns = self.fate.scaled(5_000_000_000);
                self.clock.jump_ahead(ns);
                format!("clock jumps {ns} ns ahead")
            }
            _ => {
                let ns = *self.fate.pick(&[-DAY_NS, -1_500_000_000, -1_000, 1_000, 1_500_000_000, DAY_NS]);
                self.clock.jump_realtime(ns);
                format!("realtime set {ns} ns ahead")
            }
        };
        self.meet("clock disturbed", 1);
        self.tell_fault("clock", || what);
    }

    fn stall(&mut self) {
        let part = self.fate.index(Pollable::ALL.len());
        let steps = self.fate.between(1, 20) as u32;
        self.stalled = Some((part, self.step + steps));
        self.meet("stage stalled", 1);
        self.tell_fault("stall", || format!("{:?} stalled for {steps} steps", Pollable::ALL[part]));
    }

    fn restart_a_client(&mut self) {
        let index = self.fate.index(self.customers.len());
        self.customers[index].restart(&self.network);
        self.meet("client restarted", 1);
        self.tell_fault("clients", || format!("client {} restarted", index + 1));
    }

    fn fill_disk(&mut self) {
        let capacity = if self.fate.flip() { 1 << 30 } else { self.medium.used() + self.fate.scaled(100 << 10) };
        self.medium.set_capacity(capacity);
        self.tell_fault("full", || format!("disk of {capacity} bytes"));
    }

    fn rot(&mut self) {
        let Some(path) = may_rot(&self.medium, &self.appliance, &mut self.fate) else { return };
        let name = path.to_string_lossy();
        if self.medium.rot(&name) {
            self.rotten += 1;
            self.meet("snapshots rotten", 1);
            self.tell_fault("rot", || name.to_string());
        }
    }

    fn damage(&mut self) -> Result<(), Wrong> {
        let damage = Damage { config: &self.appliance, service: self.service, medium: &self.medium };
        let Some(done) = damage.strike::<S>(&mut self.fate)? else { return Ok(()) };
        self.meet("damage refused", u64::from(done.refused.is_some()));
        self.meet("damage harmless", u64::from(done.refused.is_none()));
        self.meet("sectors rotten", done.sectors_rotten);
        self.meet("writes lost silently", done.writes_lost);
        self.meet("writes misdirected", done.writes_misdirected);
        self.tell_fault("damage", || format!("of a copy of the disk: {done:?}"));
        Ok(())
    }

    // The box starts.

    fn start(&mut self, is_calm: bool) -> Result<(), Wrong> {
        self.starts += 1;
        let fuse = self.fate.chance(Ppm::percent(20)).then(|| self.fate.scaled(200));
        self.medium.set_fuse(self.script_fuse.take().or(fuse.filter(|_| !is_calm && self.sim.faults.power)));
        let boot = Boot {
            config: &self.appliance,
            service: self.service,
            network: &self.network,
            medium: &self.medium,
            clock: &self.clock,
            time: &self.time,
            queues: self.queues,
            seed: Seed(self.sim.seed).child("start", self.starts),
        };
        let errors = self.medium.counters().errors;
        let started = Host::<S>::start(&boot);
        let met_errors = self.medium.counters().errors > errors;
        let was_cut_off = self.medium.is_fuse_blown();
        self.medium.set_fuse(None);
        self.has_cut_off_starts |= started.is_err();
        match started {
            Ok(host) => {
                self.failed_starts = 0;
                self.begin(host)
            }
            Err(_) if was_cut_off => {
                self.network.close(SERVER);
                let loss = Loss::any(&mut self.fate);
                self.tell_fault("power", || format!("in recovery, {loss:?}"));
                self.medium.lose_power(loss);
                self.clock.reboot();
                self.meet("power lost in recovery", 1);
                Ok(())
            }
            Err(error) => self.failed_start(&error, met_errors, is_calm),
        }
    }

    /// A disk that fails or is full may keep a box from starting, for as long as it does.
    fn failed_start(&mut self, error: &StartError, met_errors: bool, is_calm: bool) -> Result<(), Wrong> {
        let is_disk = matches!(
            error,
            StartError::Journal(
                JournalError::Disk { .. } | JournalError::NoSpace { .. } | JournalError::WriteZero { .. }
            )
        );
        // So does one from which the snapshots can't be read now.
        let has_no_beginning =
            matches!(error, StartError::Journal(JournalError::SnapshotGap { .. } | JournalError::NoBeginning { .. }));
        let is_disk = is_disk || met_errors && has_no_beginning;
        let text = error.to_string();
        self.trace.tell(Who::Host(BOX), || What::StartFailed { why: text.clone() });
        if is_calm || !is_disk {
            return Err(("recovery is possible", text));
        }
        self.meet("start failed for the disk", 1);
        self.failed_starts += 1;
        if self.failed_starts >= STARTS_MAX {
            self.failed_starts = 0;
            self.medium.set_faults(DiskFaults::NONE);
            self.medium.set_capacity(1 << 30);
        }
        Ok(())
    }

    fn begin(&mut self, mut host: Host<S>) -> Result<(), Wrong> {
        let (first, found) = read_log(&self.medium, &self.appliance.dir)?;
        self.meet("recoveries", 1);
        self.meet("recoveries from a snapshot", u64::from(host.snapshot > Seq::ZERO));
        self.meet("snapshot fallbacks", u64::from(host.passed_over > 0));
        self.meet("recoveries that cut a torn tail", u64::from(host.cut));
        let (recovered, epoch, cut) = (host.recovered, host.epoch, host.cut);
        if let Some(stopped_at) = self.stopped_at.take()
            && (recovered < stopped_at || cut && !self.has_cut_off_starts)
        {
            let what = format!("stopped after {stopped_at}, recovered up to {recovered}, cut: {cut}");
            return Err((STOP_LOSES_NOTHING, what));
        }
        self.trace.tell(Who::Host(BOX), || What::Start { recovered: recovered.0, epoch, cut });
        let before = self.ledger.last();
        let left = self.ledger.recover(recovered, first, &found, self.has_cut_off_starts)?;
        let lost = before.0 - left.0;
        self.meet("frames lost, none of them acknowledged", lost);
        if lost > 0 && self.appliance.tier == Tier::Memory {
            self.meet("frames lost, as tier memory may", lost);
            self.ledger.lose(self.reign, left);
        }
        self.reign = epoch;
        self.retention.oracle.forget_after(left, self.service);
        self.has_cut_off_starts = false;
        for customer in &self.customers {
            let told = customer.told.iter().find(|&(_, told)| told.log_seq > recovered.0);
            if let Some((_, told)) = told.filter(|(event_seq, _)| !self.ledger.is_void(customer, **event_seq)) {
                let what = format!(
                    "session {} was told of seq {}, recovered up to {recovered}",
                    customer.session, told.log_seq
                );
                return Err(("nothing leaves before it is committed", what));
            }
        }
        check_histories(&self.ledger, &self.customers)?;
        let replay = Replay::<S>::of(self.ledger.frames(), recovered, self.service, self.appliance.limits)?;
        let digest = replay.check_equals(host.machine())?;
        self.fold(digest);
        self.with_retention(|retention, frames, world| retention.check_start(world, frames, first))?;
        self.observe(&mut host)?;
        // Beginnings of reigns that nobody saw.
        self.ledger.frames().iter().rev().take(NOTED_AGAIN).for_each(|bytes| self.fleet.note(bytes));
        self.fleet.lead(host.led(&self.appliance.dir, &self.medium), &self.network);
        self.fold(recovered.0 ^ u64::from(epoch) << 32);
        self.host = Some(Box::new(host));
        Ok(())
    }

    /// Looks at what is kept on the disk.
    fn with_retention(
        &mut self,
        look: impl FnOnce(&mut Retention<S>, &[Vec<u8>], &Surroundings<'_, S::Config>) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        let world = surroundings(&self.appliance, self.service, &self.medium, self.rotten);
        look(&mut self.retention, self.ledger.frames(), &world)
    }

    fn observe(&mut self, host: &mut Host<S>) -> Result<(), Wrong> {
        let (ledger, trace, fleet, mut wrong, mut hash) = (&mut self.ledger, &self.trace, &mut self.fleet, Ok(()), 0);
        host.observe(|bytes| {
            let seq = ledger.last().0 + 1;
            trace.tell(Who::Stage(BOX, "sequencer"), || What::Sequenced { seq, frame: describe_frame(bytes) });
            if wrong.is_ok() {
                wrong = ledger.enter(bytes);
            }
            fleet.note(bytes);
            hash = fold_bytes(hash, bytes);
        });
        if hash != 0 {
            self.fold(hash);
        }
        wrong
    }

    // Who is next.

    pub(crate) fn polls(&mut self, polls: u64) -> Result<(), Wrong> {
        let parts = Pollable::ALL.len();
        let host_weight: u64 = self.speeds.iter().sum();
        let others_weight = host_weight + 4 * self.customers.len() as u64;
        let all = others_weight + self.fleet.weight();
        for _ in 0..polls {
            let mut draw = self.choose.below(all);
            if draw >= others_weight {
                let clock = self.clock.clone();
                let work = with_fleet!(self, poll(draw - others_weight, &clock))?;
                self.pass_time(work);
            } else if draw >= host_weight {
                let customer = ((draw - host_weight) / 4) as usize;
                self.poll_customer(customer)?;
            } else {
                let mut part = 0;
                while part + 1 < parts && draw >= self.speeds[part] {
                    draw -= self.speeds[part];
                    part += 1;
                }
                self.poll_part(part)?;
            }
        }
        self.finish_stop()
    }

    fn pass_time(&mut self, work: usize) {
        self.time.advance(self.choose.scaled(4_000));
        if work > 0 {
            self.idle = 0;
            return;
        }
        self.idle += 1;
        if self.idle.is_multiple_of(IDLE_POLLS) {
            let doublings = (self.idle / IDLE_POLLS).min(20);
            self.time.advance((1_000 << doublings).min(LEAP_NS_MAX));
        }
    }

    fn poll_customer(&mut self, index: usize) -> Result<(), Wrong> {
        let before = self.customers[index].next_event();
        let work = self.customers[index].poll(self.time.now())?;
        if self.customers[index].has_lost_inputs() {
            self.customers[index].restart(&self.network);
            self.meet("acknowledged inputs lost, as tier memory may", 1);
        }
        let after = self.customers[index].next_event();
        if after != before {
            self.tell_told(index, before);
            self.fold(after ^ (index as u64) << 56);
        }
        self.pass_time(work);
        Ok(())
    }

    fn poll_part(&mut self, index: usize) -> Result<(), Wrong> {
        let is_stalled = self.stalled.is_some_and(|(stalled, until)| stalled == index && self.step < until);
        let host = if is_stalled { None } else { self.host.take() };
        let Some(mut host) = host else {
            self.pass_time(0);
            return Ok(());
        };
        let part = Pollable::ALL[index];
        let before = host.progress();
        let work = host.poll(part, &self.clock, self.service);
        self.tell_progress(before, host.progress());
        let checked = match part {
            Pollable::Sequencer | Pollable::Housekeeping if work > 0 => self.observe(&mut host),
            Pollable::Executor if work > 0 || host.step_error().is_some() => self.check_state(&host),
            _ => Ok(()),
        };
        let checked = checked.and_then(|()| match part {
            Pollable::Shadow | Pollable::Journaler | Pollable::Housekeeping => {
                self.with_retention(|retention, frames, world| retention.look(&host, world, frames))
            }
            _ => Ok(()),
        });
        self.ledger.committed = self.ledger.committed.max(host.committed());
        self.ledger.durable = self.ledger.durable.max(Seq(host.progress().durable));
        let checked = checked.and_then(|()| check_shadow(&host)).and_then(|()| check_space(&host));
        let fault = host.fault(&self.clock);
        self.host = Some(host);
        self.pass_time(work);
        checked?;
        if let Some(fault) = fault {
            self.trace.tell(Who::Host(BOX), || What::Stop { why: fault });
            self.kill("box stopped by itself")?;
        }
        Ok(())
    }

    fn tell_told(&self, index: usize, from: u64) {
        if !self.trace.is_on() {
            return;
        }
        let customer = &self.customers[index];
        for (&event_seq, told) in customer.told.range(from..) {
            let log_seq = told.log_seq;
            self.trace.tell(Who::Client(customer.session), || What::Told { event_seq, log_seq });
        }
    }

    fn tell_progress(&self, before: Progress, after: Progress) {
        let told = |stage, before, after, what: fn(u64) -> What| {
            if before != after {
                self.trace.tell(Who::Stage(BOX, stage), || what(after));
            }
        };
        told("journaler", before.durable, after.durable, |seq| What::Durable { seq });
        told("journaler", before.committed, after.committed, |seq| What::Committed { seq });
        told("executor", before.applied, after.applied, |seq| What::Applied { seq });
    }

    fn check_state(&self, host: &Host<S>) -> Result<(), Wrong> {
        if let Some(error) = host.step_error() {
            let diverged = matches!(error, StepError::Diverged { .. });
            let check = if diverged { AGREE_AT_MARKS } else { "the service goes on" };
            return Err((check, error.to_string()));
        }
        host.machine().service().check().map_err(|violation| (violation.name, violation.detail))
    }

    // How it ends.

    /// No more faults.
    pub(crate) fn calm(&mut self) {
        self.begin_streams(u64::MAX);
        self.network.heal();
        self.medium.set_faults(DiskFaults::NONE);
        self.medium.set_capacity(1 << 30);
        self.stalled = None;
        self.fleet.calm();
        self.has_bad_disk = false;
        self.trace.tell(Who::World, || What::Calm);
    }

    pub(crate) fn finish(&mut self) -> Result<(), Wrong> {
        self.come_to_rest()?;
        self.check_all()?;
        // Once more from the disk.
        self.lose_power()?;
        self.start(true)?;
        self.come_to_rest()?;
        self.check_all()?;
        with_fleet!(self, end())?;
        self.kill("ended")
    }

    fn check_bounded(&self) -> Result<(), Wrong> {
        let Some(host) = &self.host else { return Ok(()) };
        self.retention.check_bounded(host, &surroundings(&self.appliance, self.service, &self.medium, self.rotten))
    }

    pub(crate) fn come_to_rest(&mut self) -> Result<(), Wrong> {
        let until = self.time.now() + PROGRESS_NS_MAX;
        while !self.is_at_rest() {
            if self.time.now() > until {
                self.check_bounded()?;
                let waiting = self.customers.iter().filter(|customer| !customer.is_drained()).count();
                let what = format!(
                    "after {} s without faults {waiting} clients wait, committed {} of {}{}",
                    PROGRESS_NS_MAX / 1_000_000_000,
                    self.ledger.committed,
                    self.ledger.last(),
                    self.fleet.laggards(self.ledger.last())
                );
                return Err(("there is progress once faults stop", what));
            }
            if self.host.is_none() {
                self.start(true)?;
            }
            with_fleet!(self, begin_all())?;
            self.polls(64)?;
        }
        Ok(())
    }

    fn is_at_rest(&self) -> bool {
        let Some(host) = &self.host else { return false };
        let sessions = host.machine().sessions();
        host.machine().applied() == self.ledger.last()
            && host.committed() == self.ledger.last()
            && host.is_kept_in_order()
            && self.fleet.is_at_rest(self.ledger.last())
            && self.customers.iter().all(|customer| {
                let events = sessions.get(ticktape::SessionId(customer.session)).map_or(0, |state| state.event_seq);
                customer.is_drained() && customer.next_event() == events + 1
            })
            && self.check_bounded().is_ok()
    }

    pub(crate) fn check_all(&mut self) -> Result<(), Wrong> {
        check_effects(&self.ledger, &self.customers)?;
        let replay = Replay::<S>::of(self.ledger.frames(), self.ledger.last(), self.service, self.appliance.limits)?;
        self.customers.iter().try_for_each(|customer| replay.check_told(&self.ledger, customer))?;
        check_histories(&self.ledger, &self.customers)?;
        if let Some(host) = &self.host {
            let digest = replay.check_equals(host.machine())?;
            self.fold(digest);
        }
        with_fleet!(self, check_all())
    }

    // What is kept of it.

    fn meet(&mut self, name: &'static str, times: u64) {
        *self.coverage.entry(name).or_insert(0) += times;
    }

    fn fold(&mut self, word: u64) {
        self.trace_hash = (self.trace_hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
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

/// A shadow that can go no further for another reason than a bad disk has found something.
fn check_shadow<S: Service>(host: &Host<S>) -> Result<(), Wrong> {
    match host.shadow_error() {
        Some(ShadowError::Step(error)) => Err((AGREE_AT_MARKS, error.to_string())),
        Some(error) if !host.beside().is_some_and(Beside::is_failed_by_disk) => {
            Err(("the shadow goes on", error.to_string()))
        }
        _ => Ok(()),
    }
}

/// What is accepted has its place on the disk.
fn check_space<S: Service>(host: &Host<S>) -> Result<(), Wrong> {
    match host.full_write() {
        Some(error) => Err(("a full disk is met before anything is accepted", error)),
        None => Ok(()),
    }
}

fn fold_bytes(hash: u64, bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)));
    words.fold(hash | 1, |hash: u64, word| (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
