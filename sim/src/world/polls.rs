//! Who is next, and what must hold after each poll.

use ticktape::machine::StepError;
use ticktape::shadow::ShadowError;
use ticktape::{Invariants, Seq, Service};

use super::{BOX, World, surroundings};
use crate::fold;
use crate::host::{Beside, Host, Pollable, Progress, Retention, Surroundings};
use crate::ledger::{Frames, Wrong};
use crate::replica::WorldView;
use crate::rng::Rng;
use crate::trace::{What, Who, describe_frame};

/// Polls without any work after which time makes a leap; where turns go round, a round of them is enough.
const IDLE_POLLS: u32 = 24;

/// Leaps double while faults strike; where everything only comes to rest, each is so many doublings longer than the one before.
const LEAP_POWERS_AT_REST: u32 = 3;

/// The longest leap, in nanoseconds.
const LEAP_NS_MAX: u64 = 50_000_000;

/// How often each client is polled, where parts have speeds from 1 to 12.
const CUSTOMER_SPEED: u64 = 4;

/// Who is next: a part of the box by its place among [`Pollable::ALL`], and behind those the clients.
pub(super) type Turn = u8;

const PARTS: usize = Pollable::ALL.len();

/// Each as often as it is fast.
pub(super) fn turns(speeds: [u64; PARTS], customers: usize) -> Vec<Turn> {
    let speeds = speeds.into_iter().chain(std::iter::repeat_n(CUSTOMER_SPEED, customers));
    (0..).zip(speeds).flat_map(|(turn, speed)| (0..speed).map(move |_| turn)).collect()
}

/// The name of the check that everybody who applies a mark comes to.
const AGREE_AT_MARKS: &str = "states and outputs agree at marks";

impl<S, G> World<'_, S, G>
where
    S: Service + Invariants,
    G: FnMut(&mut Rng) -> S::Input,
{
    pub(crate) fn polls(&mut self, polls: u64) -> Result<(), Wrong> {
        let turns = self.turns.len() as u64;
        let all = turns + self.fleet.weight();
        for _ in 0..polls {
            let draw = self.choose.below(all);
            let Some(&turn) = self.turns.get(draw as usize) else {
                let clock = self.clock.clone();
                let work = with_fleet!(self, poll(draw - turns, &clock))?;
                self.pass_time(work);
                continue;
            };
            self.turn = if self.goes_round() { self.next_turn(turn) } else { turn };
            match usize::from(self.turn).checked_sub(PARTS) {
                None => self.poll_part(usize::from(self.turn))?,
                Some(customer) => self.poll_customer(customer)?,
            }
        }
        self.finish_stop()
    }

    /// Whether turns go round: where everything only comes to rest, a second look at who had nothing to do finds nothing before somebody else
    /// had something. A fleet has its own turns.
    fn goes_round(&self) -> bool {
        self.is_coming_to_rest && self.fleet.is_empty()
    }

    fn parties(&self) -> u32 {
        (PARTS + self.customers.len()) as u32
    }

    /// The first from `turn` on who had none in this round.
    fn next_turn(&self, turn: Turn) -> Turn {
        let left = !self.had_turns & ((1 << self.parties()) - 1);
        let behind = left >> turn << turn;
        (if behind == 0 { left } else { behind }).trailing_zeros() as Turn
    }

    fn pass_time(&mut self, work: usize) {
        self.time.advance(self.choose.scaled(4_000));
        if work > 0 {
            (self.idle, self.had_turns) = (0, 0);
            return;
        }
        self.idle += 1;
        if self.goes_round() {
            self.had_turns |= 1 << self.turn;
            let (rounds, is_round) = (self.idle / self.parties(), self.idle.is_multiple_of(self.parties()));
            if is_round {
                self.had_turns = 0;
                self.leap_to_rest(rounds);
            }
        } else if self.idle.is_multiple_of(IDLE_POLLS) {
            let leaps = (self.idle / IDLE_POLLS).min(20);
            if self.is_coming_to_rest {
                return self.leap_to_rest(leaps);
            }
            self.time.advance((1_000 << leaps).min(LEAP_NS_MAX));
        }
    }

    /// No fault strikes any more, and nobody asks for anything: what is under way is leapt to, and what only waits is given its time sooner.
    fn leap_to_rest(&mut self, leaps: u32) {
        let now = self.time.now();
        let under_way = [self.network.next_arrival(), self.medium.next_completion()];
        let next = under_way.into_iter().flatten().filter(|&at| at > now).min().unwrap_or(now);
        let leap_ns = (1_000 << (LEAP_POWERS_AT_REST * leaps.min(6))).min(LEAP_NS_MAX);
        self.time.advance_to(next.clamp(now + leap_ns, now + LEAP_NS_MAX));
    }

    fn poll_customer(&mut self, index: usize) -> Result<(), Wrong> {
        if !self.customers[index].is_due(self.time.now()) {
            self.pass_time(0);
            return Ok(());
        }
        let before = self.customers[index].next_event();
        let work = self.customers[index].poll(self.time.now())?;
        if let Some(why) = self.customers[index].needs_restart() {
            self.customers[index].restart(&self.network);
            self.meet(why, 1);
        }
        if let Some((reign, before)) = self.customers[index].let_in_by().filter(|&(reign, _)| reign == self.reign) {
            self.ledger.check_taken_back(&self.customers[index], reign)?;
            let has_missed = before > 0 && reign > before + 1;
            self.meet("clients back after reigns that they missed", u64::from(has_missed));
            let has_lost = has_missed && self.ledger.left_of(before).is_some();
            self.meet("clients back after reigns that they missed, and a loss before", u64::from(has_lost));
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
        let host = if self.step < self.stalled_until[index] { None } else { self.host.take() };
        let Some(mut host) = host else {
            self.pass_time(0);
            return Ok(());
        };
        let part = Pollable::ALL[index];
        let before = host.progress();
        let work = host.poll(part, &self.clock, self.service);
        let after = host.progress();
        self.tell_progress(before, after);
        self.ledger.committed = self.ledger.committed.max(Seq(after.committed));
        self.ledger.durable = self.ledger.durable.max(Seq(after.durable));
        let checked = self.check_polled(part, work, &mut host);
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

    /// What must hold once a part was polled.
    fn check_polled(&mut self, part: Pollable, work: usize, host: &mut Host<S>) -> Result<(), Wrong> {
        match part {
            Pollable::Sequencer | Pollable::Housekeeping if work > 0 => {
                self.observe(host)?;
                self.ledger.committed = self.ledger.committed.max(host.committed());
            }
            Pollable::Executor if work > 0 || host.step_error().is_some() => self.check_state(host)?,
            _ => {}
        }
        if matches!(part, Pollable::Shadow | Pollable::Journaler | Pollable::Housekeeping)
            && self.retention.has_news(host)
        {
            self.with_retention(|retention, frames, world| retention.look(host, world, frames))?;
        }
        check_shadow(host)?;
        check_space(host)
    }

    pub(super) fn observe(&mut self, host: &mut Host<S>) -> Result<(), Wrong> {
        let (ledger, trace, fleet, mut wrong, mut hash) = (&mut self.ledger, &self.trace, &mut self.fleet, Ok(()), 0);
        host.observe(|bytes| {
            let seq = ledger.last().0 + 1;
            trace.tell(Who::Stage(BOX, "sequencer"), || What::Sequenced { seq, frame: describe_frame(bytes) });
            if wrong.is_ok() {
                wrong = ledger.enter(bytes);
            }
            fleet.note(bytes);
            hash = fold::bytes(hash | 1, bytes);
        });
        if hash != 0 {
            self.fold(hash);
        }
        wrong
    }

    /// Looks at what is kept on the disk.
    pub(super) fn with_retention(
        &mut self,
        look: impl FnOnce(&mut Retention<S>, &Frames, &Surroundings<'_, S::Config>) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        let world = surroundings(&self.appliance, self.service, &self.medium, self.rotten);
        look(&mut self.retention, self.ledger.frames(), &world)
    }

    fn tell_told(&self, index: usize, from: u64) {
        if !self.trace.is_on() {
            return;
        }
        let customer = &self.customers[index];
        for event in customer.told.since(from) {
            let (event_seq, log_seq) = (event.event_seq, event.says.log_seq);
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
