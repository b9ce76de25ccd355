//! All replicas of a world, the leader's feed server, and what befalls them.

use ticktape::config::ApplianceConfig;
use ticktape::{Invariants, Seq, Service};

use super::check::Ever;
use super::leader::{LeaderStreams, Led};
use super::member::Member;
use super::place::{LEADER, Place, leader_repair};
use super::running::Part;
use crate::bulk::{WireFaults, Wires};
use crate::clock::{SimClock, WorldTime};
use crate::coverage::Coverage;
use crate::disk::Loss;
use crate::ledger::{Ledger, Wrong};
use crate::nic::{LinkFaults, Network};
use crate::rng::{Ppm, Rng, Seed};
use crate::simulate::Faults;
use crate::trace::{Trace, What, Who};

/// How often the leader's feed server is polled, beside its other parts.
const LEADER_WEIGHT: u64 = 8;

/// What a replica's life takes place in.
pub(crate) struct Surroundings<'a, S: Service> {
    pub(crate) service: &'a S::Config,
    pub(crate) network: &'a Network,
    pub(crate) wires: &'a Wires,
    pub(crate) time: &'a WorldTime,
    pub(crate) trace: &'a Trace,
    pub(crate) ledger: &'a Ledger,
    pub(crate) ever: &'a Ever,
    pub(crate) coverage: &'a mut Coverage,
    pub(crate) step: u32,
    /// No fault strikes any more.
    pub(crate) is_calm: bool,
}

impl<S: Service> Surroundings<'_, S> {
    pub(crate) fn meet(&mut self, name: &'static str, times: u64) {
        if times > 0 {
            *self.coverage.entry(name).or_insert(0) += times;
        }
    }
}

/// What of the world a fleet needs, each time.
pub(crate) struct WorldView<'a, S: Service> {
    pub(crate) service: &'a S::Config,
    pub(crate) network: &'a Network,
    pub(crate) time: &'a WorldTime,
    pub(crate) trace: &'a Trace,
    pub(crate) ledger: &'a Ledger,
    pub(crate) coverage: &'a mut Coverage,
    pub(crate) step: u32,
}

/// The replicas.
pub(crate) struct Fleet<S: Service> {
    wires: Wires,
    ever: Ever,
    leader: Option<LeaderStreams>,
    members: Vec<Member<S>>,
    is_calm: bool,
}

macro_rules! around {
    ($fleet:ident, $world:ident) => {
        Surroundings {
            service: $world.service,
            network: $world.network,
            wires: &$fleet.wires,
            time: $world.time,
            trace: $world.trace,
            ledger: $world.ledger,
            ever: &$fleet.ever,
            coverage: $world.coverage,
            step: $world.step,
            is_calm: $fleet.is_calm,
        }
    };
}

impl<S: Service + Invariants> Fleet<S> {
    /// So many, none of which has begun.
    pub(crate) fn new(replicas: usize, seed: Seed, leader: &ApplianceConfig, world: WorldView<'_, S>) -> Self {
        let wires = Wires::new(seed, world.time, world.network);
        if replicas > 0 {
            world.network.add_rewinder(leader_repair());
            (0..replicas).for_each(|index| world.network.add_rewinder(Place::of(index).serves()));
        }
        let mut fleet = Fleet { wires, ever: Ever::default(), leader: None, members: Vec::new(), is_calm: false };
        let around = around!(fleet, world);
        let members = (0..replicas).map(|index| Member::new(index, replicas, seed, leader, &around)).collect();
        fleet.members = members;
        fleet
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn members(&self) -> &[Member<S>] {
        &self.members
    }

    // The leader.

    /// A frame is in the order.
    pub(crate) fn note(&mut self, bytes: &[u8]) {
        if !self.members.is_empty() {
            self.ever.note(bytes);
        }
    }

    /// The leader is up.
    pub(crate) fn lead(&mut self, led: Led<'_>, network: &Network) {
        if !self.members.is_empty() {
            self.leader = Some(LeaderStreams::open::<S>(led, network, &self.wires));
        }
    }

    /// Frames after `seq` may be others from now on.
    pub(crate) fn forget_after(&mut self, seq: Seq, service: &S::Config) {
        self.members.iter_mut().for_each(|member| member.replay.forget_after(seq, service));
    }

    /// The leader's process is about to end; with its power, nobody hears that.
    pub(crate) fn lose_leader(&mut self, with_power: bool, network: &Network, coverage: &mut Coverage) {
        if with_power {
            self.wires.silence(LEADER);
        }
        if let Some(leader) = self.leader.take() {
            leader.count(&mut |name, times| *coverage.entry(name).or_insert(0) += times);
        }
        if !self.members.is_empty() {
            network.close(leader_repair());
            network.close(super::place::feed_source());
        }
    }

    // Who is next.

    /// How often one of its parts is polled, beside the world's other parts.
    pub(crate) fn weight(&self) -> u64 {
        if self.members.is_empty() {
            return 0;
        }
        LEADER_WEIGHT + self.members.iter().flat_map(|member| member.speeds).sum::<u64>()
    }

    /// Polls the part that a draw below [`Fleet::weight`] means; returns the work done.
    pub(crate) fn poll(&mut self, draw: u64, leader_clock: &SimClock, world: WorldView<'_, S>) -> Result<usize, Wrong> {
        let network = world.network;
        let work = self.poll_one(draw, leader_clock, world)?;
        match network.odd_repair() {
            Some(what) => Err(("repairs are what was asked for", what)),
            None => Ok(work),
        }
    }

    fn poll_one(&mut self, mut draw: u64, leader_clock: &SimClock, world: WorldView<'_, S>) -> Result<usize, Wrong> {
        if draw < LEADER_WEIGHT {
            return Ok(self.leader.as_mut().map_or(0, |leader| leader.poll(leader_clock.monotonic())));
        }
        draw -= LEADER_WEIGHT;
        let mut around = around!(self, world);
        for member in &mut self.members {
            for part in 0..Part::ALL.len() {
                if draw < member.speeds[part] {
                    return member.poll(part, &mut around);
                }
                draw -= member.speeds[part];
            }
        }
        unreachable!("a draw is below the weight")
    }

    // What happens.

    /// A step begins: something may befall them, and who is off may begin.
    pub(crate) fn step(&mut self, fate: &mut Rng, faults: &Faults, world: WorldView<'_, S>) -> Result<(), Wrong> {
        if self.members.is_empty() {
            return Ok(());
        }
        let mut around = around!(self, world);
        for member in &mut self.members {
            let starts = fate.chance(Ppm::percent(20));
            if member.is_off() && starts && around.step >= member.begins_at {
                member.start(&mut around)?;
            }
        }
        let at = fate.index(self.members.len());
        let draw = fate.below(1000);
        match draw {
            0..6 if faults.kill => self.members[at].kill("replica killed", &mut around)?,
            6..12 if faults.power => {
                let loss = Loss::any(fate);
                self.members[at].lose_power(loss, &mut around)?;
            }
            12..20 if faults.stall => pause(&mut self.members[at], fate, &mut around),
            20..40 if faults.stall => stall(&mut self.members[at], fate, &mut around),
            40..80 if faults.network => change_ways(&self.members[at].place, fate, &mut around),
            80..100 if faults.network => cut(at, self.members.len(), fate, &mut around),
            100..115 if faults.disk => {
                let changed = self.members[at].change_disk(fate);
                tell(&around, at, "disk", || format!("{changed:?}"));
            }
            115..130 if faults.network => change_wires(&self.wires, fate, &around),
            130..135 if faults.clock => {
                let ppm = fate.between(0, 1000) as i32 - 500;
                self.members[at].clock.skew(ppm);
                tell(&around, at, "clock", || format!("runs {ppm} ppm too fast"));
            }
            _ => {}
        }
        Ok(())
    }

    /// No more faults: everybody runs.
    pub(crate) fn calm(&mut self) {
        self.is_calm = true;
        self.wires.set_faults(WireFaults::NONE);
        self.members.iter_mut().for_each(Member::calm);
    }

    /// Once no fault strikes any more, whoever is off begins.
    pub(crate) fn begin_all(&mut self, world: WorldView<'_, S>) -> Result<(), Wrong> {
        if !self.is_calm {
            return Ok(());
        }
        let mut around = around!(self, world);
        self.members.iter_mut().filter(|member| member.is_off()).try_for_each(|member| member.start(&mut around))
    }

    /// What a script does to one of them.
    pub(crate) fn with<T>(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut Member<S>, &mut Surroundings<'_, S>) -> T,
        world: WorldView<'_, S>,
    ) -> T {
        let mut around = around!(self, world);
        act(&mut self.members[index], &mut around)
    }

    // What must hold.

    /// Everybody who runs has everything.
    pub(crate) fn is_at_rest(&self, last: Seq) -> bool {
        self.members.iter().all(|member| member.has_all(last) || member.is_off() && !self.is_calm)
    }

    /// Who has not, in a line.
    pub(crate) fn laggards(&self, last: Seq) -> String {
        let late = self.members.iter().filter(|member| !member.has_all(last));
        late.map(|member| format!("; {}", member.describe())).collect()
    }

    /// At rest: states and logs are the leader's.
    pub(crate) fn check_all(&mut self, world: WorldView<'_, S>) -> Result<(), Wrong> {
        let around = around!(self, world);
        for member in self.members.iter_mut().filter(|member| !member.is_off()) {
            member.check_state(&around)?;
            member.check_log(&around, around.ledger.last())?;
        }
        Ok(())
    }

    /// The end: everybody goes.
    pub(crate) fn end(&mut self, world: WorldView<'_, S>) -> Result<(), Wrong> {
        let mut around = around!(self, world);
        self.members.iter_mut().try_for_each(|member| member.kill("replica ended", &mut around))?;
        let counters = self.wires.counters();
        around.meet("streams connected", counters.connected);
        around.meet("streams refused", counters.refused);
        around.meet("streams reset", counters.reset);
        Ok(())
    }
}

fn tell<S: Service>(around: &Surroundings<'_, S>, at: usize, kind: &'static str, detail: impl FnOnce() -> String) {
    around.trace.tell(Who::Host(at as u8 + 1), || What::Fault { kind, detail: detail() });
}

fn pause<S: Service + Invariants>(member: &mut Member<S>, fate: &mut Rng, around: &mut Surroundings<'_, S>) {
    let ns = fate.scaled(20_000_000_000);
    member.paused_until = around.time.now() + ns;
    around.meet("replica paused", 1);
    around.trace.tell(Who::World, || What::Fault { kind: "stall", detail: format!("a replica paused for {ns} ns") });
}

fn stall<S: Service + Invariants>(member: &mut Member<S>, fate: &mut Rng, around: &mut Surroundings<'_, S>) {
    let (part, steps) = (fate.index(Part::ALL.len()), fate.between(1, 20) as u32);
    member.stalled = Some((part, around.step + steps));
    around.meet("replica stage stalled", 1);
    let detail = || format!("a replica's {} for {steps} steps", Part::ALL[part].name());
    around.trace.tell(Who::World, || What::Fault { kind: "stall", detail: detail() });
}

/// Each of the leader's ways to a replica has faults of its own: feed A, feed B, the rest.
fn change_ways<S: Service>(place: &Place, fate: &mut Rng, around: &mut Surroundings<'_, S>) {
    for card in place.cards() {
        let mut rate = || Ppm(*fate.pick(&[0, 0, 1_000, 50_000, 300_000]));
        let (loss, duplicate, reorder, corrupt, straggle) = (rate(), rate(), rate(), rate(), rate());
        let corrupt = Ppm(corrupt.0 / 10);
        let (delay_ns, jitter_ns) = (*fate.pick(&[1_000, 10_000, 1_000_000]), *fate.pick(&[0, 2_000, 500_000]));
        let faults = LinkFaults { loss, duplicate, reorder, corrupt, delay_ns, jitter_ns, straggle };
        around.network.set_faults(LEADER, card, faults);
    }
    around.meet("feeds disturbed", 1);
    around.trace.tell(Who::World, || What::Fault { kind: "network", detail: format!("ways to {place:?}") });
}

/// One direction between two hosts, or a feed, or both; or every way is open again.
fn cut<S: Service>(at: usize, all: usize, fate: &mut Rng, around: &mut Surroundings<'_, S>) {
    let place = Place::of(at);
    let other = Place::of((at + 1) % all);
    let cuts: &[_] = match fate.below(7) {
        0 => &[(LEADER, place.a)],
        1 => &[(LEADER, place.a), (LEADER, place.b)],
        2 => &[(LEADER, place.own)],
        3 => &[(place.own, LEADER)],
        4 => &[(place.own, other.own)],
        5 => &[(LEADER, place.a), (LEADER, place.b), (LEADER, place.own), (place.own, LEADER)],
        _ => &[],
    };
    for &(from, to) in cuts.iter().filter(|(from, to)| from != to) {
        around.network.cut(from, to);
    }
    if cuts.is_empty() {
        around.network.heal();
    }
    around.meet("replicas partitioned", u64::from(!cuts.is_empty()));
    around.trace.tell(Who::World, || What::Fault { kind: "network", detail: format!("cut {cuts:?}") });
}

fn change_wires<S: Service>(wires: &Wires, fate: &mut Rng, around: &Surroundings<'_, S>) {
    let faults = WireFaults {
        delay_ns: *fate.pick(&[5_000, 50_000, 5_000_000]),
        jitter_ns: *fate.pick(&[0, 50_000, 2_000_000]),
        reset: Ppm(*fate.pick(&[0, 0, 2_000, 50_000])),
    };
    wires.set_faults(faults);
    around.trace.tell(Who::World, || What::Fault { kind: "network", detail: format!("{faults:?}") });
}
