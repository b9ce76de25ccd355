//! Scripts: a world in which nothing happens but what is said, checked as any other.
//!
//! ```
//! use ticktape_sim::scenario::{Host, Scenario};
//! use ticktape_sim::services::gen_transfer;
//!
//! let config = feed::BankConfig::default();
//! let mut world = Scenario::<feed::Bank, _>::new(42, 1, &config, gen_transfer);
//! world.begin(Host::Replica(0));
//! world.ask(20);
//! world.settle();
//! assert_eq!(world.applied(Host::Replica(0)), world.sequenced());
//! world.lose_power(Host::Leader);
//! world.end();
//! ```
//!
//! What does not hold panics, by its name, with what happened before. What strikes stays until it is taken away; chance is only in the order of
//! polls and in what a power loss leaves.

use ticktape::{Invariants, Service};

use crate::disk::DiskFaults;
use crate::ledger::Wrong;
use crate::rng::Rng;
use crate::simulate::{Faults, SimConfig};
use crate::trace::Keep;
use crate::world::World;

/// Clients of a script.
const CLIENTS: usize = 2;

/// How long a script waits for what has to come, in virtual time.
const PATIENCE_NS: u64 = 120_000_000_000;

/// Polls between two looks at whether it has.
const POLLS: u64 = 16;

/// A box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The one that sequences.
    Leader,
    /// One that follows it, from 0.
    Replica(usize),
}

/// A way that can be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Feed A to a replica.
    FeedA(usize),
    /// Feed B to a replica.
    FeedB(usize),
    /// From one box to another, but for the feeds: repairs, commits, catch-up.
    Hosts(Host, Host),
    /// From a client, from 0, to the leader.
    ToLeader(usize),
    /// From the leader to a client.
    FromLeader(usize),
}

/// A script's world.
pub struct Scenario<'a, S: Service, G> {
    world: World<'a, S, G>,
}

impl<'a, S, G> Scenario<'a, S, G>
where
    S: Service + Invariants,
    G: FnMut(&mut Rng) -> S::Input,
{
    /// A leader that is up, two clients, and replicas that have not begun.
    pub fn new(seed: u64, replicas: usize, service: &'a S::Config, gen_input: G) -> Self {
        let config = SimConfig { clients: CLIENTS, replicas, faults: Faults::NONE, ..SimConfig::new(seed) };
        let world = World::new(&config, service, gen_input, Keep::Tail);
        let mut scenario = Scenario { world };
        scenario.begin(Host::Leader);
        scenario
    }

    // What happens.

    /// As [`Scenario::begin`], where it may be refused for what is on the box's disk.
    ///
    /// # Errors
    /// What an operator is told.
    pub fn try_begin(&mut self, host: Host) -> Result<(), String> {
        self.world.script_begin(host).map_err(|(_, why)| why)
    }

    /// A box's process begins, where none runs.
    pub fn begin(&mut self, host: Host) {
        let begun = self.world.script_begin(host);
        self.hold(begun);
    }

    /// Clients by turns ask for so many inputs, each as soon as it may.
    pub fn ask(&mut self, inputs: u32) {
        for _ in 0..inputs {
            let until = self.world.now() + PATIENCE_NS;
            while !self.world.script_ask() {
                assert!(self.world.now() < until, "clients were told to wait for too long");
                self.poll();
            }
            self.poll();
        }
    }

    /// So much virtual time passes.
    pub fn run_ms(&mut self, ms: u64) {
        let until = self.world.now() + ms * 1_000_000;
        while self.world.now() < until {
            self.poll();
        }
    }

    /// Runs until it holds.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let until = self.world.now() + PATIENCE_NS;
        while !holds(self) {
            let detail = || Err::<(), Wrong>(("a script comes on", format!("never {what}{}", self.world.laggards())));
            if self.world.now() >= until {
                let failed = detail();
                self.hold(failed);
            }
            self.poll();
        }
    }

    /// Runs until clients have all that they asked for and every replica that has begun has all of the log; then checks everything.
    pub fn settle(&mut self) {
        let settled = self.world.come_to_rest().and_then(|()| self.world.check_all());
        self.hold(settled);
    }

    /// A box's process is killed.
    pub fn kill(&mut self, host: Host) {
        let killed = self.world.script_kill(host);
        self.hold(killed);
    }

    /// The leader is asked to stop, and does so in good order.
    pub fn stop(&mut self) {
        self.world.script_stop();
        self.until("the leader has stopped", |world| !world.is_up(Host::Leader));
    }

    /// The leader begins, and loses its power after so many operations of its disk; false where it has come up before.
    pub fn begin_in_vain(&mut self, operations: u64) -> bool {
        let begun = self.world.script_begin_in_vain(operations);
        self.hold(begun)
    }

    /// A box's power is lost.
    pub fn lose_power(&mut self, host: Host) {
        let lost = self.world.script_lose_power(host);
        self.hold(lost);
    }

    /// A replica's process stands still for so long, as stopped by a signal.
    pub fn pause_ms(&mut self, replica: usize, ms: u64) {
        self.world.script_pause(replica, ms * 1_000_000);
    }

    /// A part of a box is not polled until [`Scenario::resume`]: for the leader a stage's name, as `Journaler`.
    pub fn stall(&mut self, host: Host, part: &str) {
        self.world.script_stall(host, Some(part));
    }

    /// All parts of a box are polled again.
    pub fn resume(&mut self, host: Host) {
        self.world.script_stall(host, None);
    }

    /// Nothing more gets through there.
    pub fn cut(&mut self, way: Way) {
        self.world.script_cut(way);
    }

    /// Every way is open and good again.
    pub fn heal(&mut self) {
        self.world.script_heal();
    }

    /// What befalls a box's disk operations from now on.
    pub fn disk(&mut self, host: Host, faults: DiskFaults) {
        self.world.script_medium(host).set_faults(faults);
    }

    /// So many bytes more fit a box's disk.
    pub fn leave_room(&mut self, host: Host, bytes: u64) {
        let medium = self.world.script_medium(host);
        medium.set_capacity(medium.used() + bytes);
    }

    /// Flips a bit in one of a box's files whose name ends so; false where there is none.
    pub fn rot(&mut self, host: Host, name_end: &str) -> bool {
        self.world.script_medium(host).rot(name_end)
    }

    /// Takes a box's disk away and gives it an empty one, as an operator would; its process has to be off.
    pub fn wipe(&mut self, replica: usize) {
        self.world.script_wipe(replica);
    }

    /// Somebody sets the leader's clock so much ahead, or back.
    pub fn set_clock_ahead(&mut self, ns: i64) {
        self.world.script_clock(ns);
    }

    /// The end: no fault any more, everybody begins, everything is checked; then once more after the leader has lost its power.
    pub fn end(mut self) {
        self.world.calm();
        let ended = self.world.finish();
        self.hold(ended);
    }

    // What is there.

    /// The last frame of the order.
    pub fn sequenced(&self) -> u64 {
        self.world.ledger().last().0
    }

    /// The last that anybody was told to be committed.
    pub fn committed(&self) -> u64 {
        self.world.ledger().committed.0
    }

    /// The last that a box's state contains; 0 where it is off.
    pub fn applied(&self, host: Host) -> u64 {
        self.world.script_applied(host)
    }

    /// Whether a box's process runs.
    pub fn is_up(&self, host: Host) -> bool {
        self.world.script_is_up(host)
    }

    /// What a replica says of itself, by the figure's name.
    pub fn figure(&self, replica: usize, figure: ticktape::replica::Figure) -> u64 {
        self.world.script_figure(replica, figure)
    }

    /// How often something was met, by its name in the coverage table; processes count when they end.
    pub fn met(&self, name: &str) -> u64 {
        self.world.script_met(name)
    }

    fn poll(&mut self) {
        let polled = self.world.polls(POLLS);
        self.hold(polled);
    }

    fn hold<T>(&mut self, result: Result<T, Wrong>) -> T {
        result.unwrap_or_else(|(check, detail)| {
            for event in self.world.told() {
                eprintln!("  {event}");
            }
            panic!("it does not hold that {check}: {detail}")
        })
    }
}
