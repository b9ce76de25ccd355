//! A box in calm weather: nothing fails, inputs come at an even pace, and time in which nothing happens is leapt over.
//!
//! It shows what a virtual second costs. Every stage is the one that [`simulate()`](crate::simulate()) runs, and so is every check at the end. What is
//! missing is chance: only those parts are polled that something has come for, time stands still meanwhile, and then it is the next event's.

use std::net::{Ipv4Addr, SocketAddrV4};

use ticktape::config::ApplianceConfig;
use ticktape::{Encode, Seq, Service};

use crate::clock::{SimClock, WorldTime};
use crate::customer::Customer;
use crate::disk::{DiskConfig, Medium};
use crate::host::{Boot, DATAGRAM_BYTES, Host, Pollable, config};
use crate::ledger::{Ledger, Replay, Wrong, check_effects};
use crate::nic::{Network, QueueConfig};
use crate::rng::{Ppm, Rng, Seed};

const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 9000);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 1, 1), 5000);

/// What a core does beside its stages is done so often, as live, in nanoseconds.
const HOUSEKEEPING_NS: u64 = 1_000_000;

/// How long the last inputs may take, in virtual nanoseconds.
const REST_NS_MAX: u64 = 10_000_000_000;

/// The pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calm {
    /// What inputs follow from, and the shape of the box.
    pub seed: u64,
    /// Inputs in all.
    pub inputs: u64,
    /// So many at a time.
    pub burst: u64,
    /// Virtual time from one burst to the next, in nanoseconds.
    pub every_ns: u64,
}

/// What it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalmReport {
    /// How long it was, in virtual nanoseconds.
    pub virtual_ns: u64,
    /// Frames in the log, beside the inputs those of the box itself.
    pub frames: u64,
    /// Of them, those that let timers fire.
    pub timers: u64,
    /// Polls of a part, those without work among them.
    pub polls: u64,
}

/// Runs a box with one client at this pace. `gen_input` is told the virtual nanoseconds since the beginning.
///
/// # Errors
/// The name of the check that does not hold, and what was found.
pub fn calm<S: Service>(
    pace: &Calm,
    service: &S::Config,
    gen_input: impl FnMut(&mut Rng, u64) -> S::Input,
) -> Result<CalmReport, (&'static str, String)> {
    let seed = Seed(pace.seed);
    let (time, mut shape) = (WorldTime::new(), seed.stream("shape"));
    let (network, clock) = (Network::new(seed, &time), SimClock::new(&time));
    let medium = Medium::new(seed, &time, DiskConfig::default());
    let appliance = config(SERVER, &mut shape, Some(false));
    let queues = QueueConfig { rx_slots: 64, tx_slots: 16, datagram_bytes_max: DATAGRAM_BYTES, block: Ppm::NEVER };
    let boot = Boot {
        config: &appliance,
        service,
        network: &network,
        medium: &medium,
        clock: &clock,
        time: &time,
        queues,
        seed: seed.child("start", 1),
    };
    let host = Host::<S>::start(&boot).map_err(|error| ("recovery is possible", error.to_string()))?;
    let customer = Customer::new(1, S::SCHEMA_VERSION, CLIENT, SERVER, &network, appliance.tier);
    let housekeeping_at = time.now();
    let mut run = Run {
        service,
        time,
        clock,
        network,
        medium,
        host,
        customer,
        ledger: Ledger::default(),
        housekeeping_at,
        due: Due::ALL,
        polls: 0,
    };
    run.live(pace, gen_input)?;
    run.check(&appliance)?;
    let (virtual_ns, frames) = (run.time.now(), run.ledger.last().0);
    let mut timers = 0;
    run.host.count(&mut |name, times| timers += if name == "ticks" { times } else { 0 });
    Ok(CalmReport { virtual_ns, frames, timers, polls: run.polls })
}

struct Run<'a, S: Service> {
    service: &'a S::Config,
    time: WorldTime,
    clock: SimClock,
    network: Network,
    medium: Medium,
    host: Host<S>,
    customer: Customer,
    ledger: Ledger,
    housekeeping_at: u64,
    /// For whom something has come.
    due: Due,
    polls: u64,
}

/// The parts that something has come for.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    sequencer: bool,
    journaler: bool,
    executor: bool,
    egress: bool,
    customer: bool,
}

impl Due {
    const ALL: Due = Due { sequencer: true, journaler: true, executor: true, egress: true, customer: true };

    fn any(self) -> bool {
        self.sequencer || self.journaler || self.executor || self.egress || self.customer
    }
}

impl<S: Service> Run<'_, S> {
    fn live(&mut self, pace: &Calm, mut gen_input: impl FnMut(&mut Rng, u64) -> S::Input) -> Result<(), Wrong> {
        let mut inputs = Seed(pace.seed).stream("inputs");
        let (mut asked, mut due) = (0, self.time.now());
        while asked < pace.inputs {
            let now = self.time.now();
            if now >= due {
                due += pace.every_ns;
                for _ in 0..pace.burst.min(pace.inputs - asked) {
                    let input = gen_input(&mut inputs, now).to_bytes();
                    if !self.customer.ask(now, &input) {
                        let (progress, last) = (self.host.progress(), self.ledger.last());
                        let what = format!("input {asked} finds no room at its client: {progress:?} of {last}");
                        return Err(("a calm box keeps up", what));
                    }
                    asked += 1;
                }
                self.due.customer = true;
            }
            self.round(due)?;
        }
        let until = self.time.now() + REST_NS_MAX;
        while !self.is_at_rest() {
            if self.time.now() > until {
                return Err(("there is progress once faults stop", format!("log ends at {}", self.ledger.last())));
            }
            self.round(until)?;
        }
        Ok(())
    }

    /// Polls the parts that something has come for, in the order in which it passes them; where there are none, it is the time of the next event,
    /// which is `next_input` at the latest.
    fn round(&mut self, next_input: u64) -> Result<(), Wrong> {
        let due = std::mem::take(&mut self.due);
        if due.sequencer {
            self.poll_sequencer()?;
        }
        if due.journaler || self.due.sequencer {
            self.due.journaler = self.poll(Pollable::Journaler) > 0;
        }
        if due.executor || self.due.sequencer {
            self.due.executor = self.poll(Pollable::Executor) > 0;
            // Without a feed it only lets go of the frames.
            self.poll(Pollable::Publisher);
        }
        if due.egress || self.due.any() {
            self.due.egress = self.poll(Pollable::Egress) > 0;
        }
        if due.customer {
            self.polls += 1;
            self.due.customer = self.customer.poll(self.time.now())? > 0;
        }
        if !self.due.any() {
            self.leap(next_input);
        }
        if self.time.now() >= self.housekeeping_at {
            // Whoever waits for nothing but time looks at it now.
            self.housekeeping_at += HOUSEKEEPING_NS;
            self.poll(Pollable::Housekeeping);
            self.due = Due::ALL;
            if let Some(fault) = self.host.fault(&self.clock) {
                return Err(("a calm box goes on", fault));
            }
        }
        Ok(())
    }

    fn poll(&mut self, part: Pollable) -> usize {
        self.polls += 1;
        self.host.poll(part, &self.clock, self.service)
    }

    /// What it writes is the order.
    fn poll_sequencer(&mut self) -> Result<(), Wrong> {
        self.due.sequencer = self.poll(Pollable::Sequencer) > 0;
        let (ledger, mut wrong) = (&mut self.ledger, Ok(()));
        if self.due.sequencer {
            self.host.observe(|bytes| {
                if wrong.is_ok() {
                    wrong = ledger.enter(bytes);
                }
            });
        }
        wrong
    }

    /// To the next event there is.
    fn leap(&mut self, next_input: u64) {
        let now = self.time.now();
        // What has come and was not taken waits for housekeeping.
        let is_to_come = |at: &u64| *at > now;
        let arrival = self.network.next_arrival().filter(is_to_come);
        let completion = self.medium.next_completion().filter(is_to_come);
        let known = [arrival, completion].into_iter().flatten();
        self.time.advance_to(known.fold(next_input.min(self.housekeeping_at), u64::min));
        let is_now = |at: Option<u64>| at.is_some_and(|at| at <= self.time.now());
        let comes_to = |port| is_now(arrival) && self.network.has_come(port);
        let (sequencer, customer) = (comes_to(SERVER), comes_to(CLIENT));
        self.due = Due { sequencer, customer, journaler: is_now(completion), ..Due::default() };
    }

    fn is_at_rest(&self) -> bool {
        let last = self.ledger.last();
        let sessions = self.host.machine().sessions();
        let events = sessions.get(ticktape::SessionId(self.customer.session)).map_or(0, |state| state.event_seq);
        self.customer.is_drained()
            && self.customer.next_event() == events + 1
            && self.host.machine().applied() == last
            && self.host.committed() == last
    }

    fn check(&self, appliance: &ApplianceConfig) -> Result<(), Wrong> {
        let last: Seq = self.ledger.last();
        check_effects(&self.ledger, std::slice::from_ref(&self.customer))?;
        let replay = Replay::<S>::of(self.ledger.frames(), last, self.service, appliance.limits)?;
        replay.check_told(&self.ledger, &self.customer)?;
        replay.check_equals(self.host.machine()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use orderbook::{OrderBook, Side, TimeInForce};
    use ticktape::Timestamp;

    use super::*;
    use crate::clock::REALTIME_AT_START;
    use crate::services::book_config;

    /// Orders that rest, those that take them, and one in a hundred that nobody takes and that expires.
    fn gen_order(count: &mut u64, now: u64) -> orderbook::Command {
        *count += 1;
        let (seq, id) = (*count, *count);
        let (side, price, time_in_force) = match *count % 100 {
            1 => (Side::Buy, 900, TimeInForce::GoodTill(Timestamp(REALTIME_AT_START.0 + now + 50_500_000))),
            odd if odd % 2 == 1 => (Side::Buy, 1000, TimeInForce::GoodTillCancel),
            _ => (Side::Sell, 1000, TimeInForce::ImmediateOrCancel),
        };
        orderbook::Command::New { seq, id, side, price, qty: 1, time_in_force }
    }

    #[test]
    fn calm_seconds_have_their_inputs_and_their_timers_and_are_the_same_again() {
        for burst in [1, 50] {
            let pace = Calm { seed: 1, inputs: 3000, burst, every_ns: burst * 1_000_000 };
            let run = || {
                let mut count = 0;
                calm::<OrderBook>(&pace, &book_config(), |_, now| gen_order(&mut count, now)).unwrap()
            };
            let report = run();
            assert!(report.virtual_ns >= 2_950_000_000 && report.frames > 3027, "{report:?}");
            assert!((28..=31).contains(&report.timers), "each order that nobody takes expires: {report:?}");
            assert_eq!(run(), report);
        }
    }
}
