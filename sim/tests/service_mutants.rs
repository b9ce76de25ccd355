//! Services with one thing wrong with them, each of which a check finds within a few seeds; without it they are clean on the same seeds.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::SystemTime;

use counter::Counter;
use feed::{Bank, BankConfig};
use kv::Kv;
use ticktape::{Ctx, Decode, Encode, InvariantViolation, Invariants, Seq, Service, SessionId, TimerId, Timestamp};
use ticktape_sim::services::{gen_kv, gen_transfer};
use ticktape_sim::{Rng, SimConfig, simulate};

/// Few: a flaw that hides for longer is no better than one that is not found.
const SEEDS: Range<u64> = 0..8;

fn config(seed: u64) -> SimConfig {
    SimConfig { steps: 150, snapshots: Some(true), ..SimConfig::new(seed) }
}

/// Runs seed after seed until something is wrong; its check's name.
fn found<S: Service + Invariants>(service: &S::Config, gen_input: fn(&mut Rng) -> S::Input) -> Option<&'static str> {
    SEEDS.clone().find_map(|seed| simulate::<S>(&config(seed), service, gen_input).err().map(|failure| failure.check))
}

/// The checks that find a state or an answer that does not follow from the log.
const NOT_FROM_THE_LOG: [&str; 5] = [
    "replay equals live",
    "snapshots never lie",
    "states and outputs agree at marks",
    "compaction keeps what recovery needs",
    "clients are told what the log says",
];

#[track_caller]
fn assert_not_from_the_log(found: Option<&'static str>) {
    assert!(found.is_some_and(|check| NOT_FROM_THE_LOG.contains(&check)), "{found:?}");
}

const CLEAN: u8 = 0;

// Around the bank.

const COUNTS_OUTSIDE: u8 = 1;
const READS_THE_CLOCK: u8 = 2;
const OVERDRAWS: u8 = 3;
const FORGETS_A_FIELD: u8 = 4;
const RESTORES_ONE_MORE: u8 = 5;
const ANSWERS_WHO_ASKED_BEFORE: u8 = 6;
const CHANGES_WHEN_CHECKED: u8 = 7;
const CHANGES_WHEN_KEPT: u8 = 8;
const PANICS: u8 = 9;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// A bank that numbers what it serves.
struct Teller<const FLAW: u8> {
    bank: Bank,
    served: u64,
    looked_at: Cell<u64>,
    /// Of no lasting use: kept, and not part of what is kept.
    asked_before: Option<SessionId>,
}

#[derive(Encode, Decode)]
struct Served {
    answer: feed::Answer,
    number: u64,
}

impl<const FLAW: u8> Teller<FLAW> {
    fn overdraw(&mut self, input: feed::Command) {
        let feed::Command::Transfer { from, to, amount } = input;
        let mut balances = self.bank.snapshot();
        let [from, to] = [from, to].map(usize::from);
        if from != to && from.max(to) < balances.len() && balances[from] < u64::from(amount) {
            balances[from] = 0;
            balances[to] += u64::from(amount);
            self.bank = Bank::restore(balances, &BankConfig::default());
        }
    }

    fn look(&self) {
        self.looked_at.set(self.looked_at.get() + 1);
    }
}

impl<const FLAW: u8> Service for Teller<FLAW> {
    type Input = feed::Command;
    type Output = Served;
    type Snapshot = (Vec<u64>, u64, u64);
    type Config = BankConfig;

    const NAME: &'static str = "teller";

    fn genesis(config: &BankConfig) -> Self {
        Teller { bank: Bank::genesis(config), served: 0, looked_at: Cell::new(0), asked_before: None }
    }

    fn apply(&mut self, seq: Seq, input: &feed::Command, ctx: &mut Ctx<'_, Served>) {
        let feed::Command::Transfer { from, to, mut amount } = *input;
        self.served += 1;
        match FLAW {
            COUNTS_OUTSIDE => {
                STEPS.set(STEPS.get() + 1);
                amount += u32::from(STEPS.get().is_multiple_of(7));
            }
            READS_THE_CLOCK => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later than 1970");
                amount += u32::from(now.subsec_nanos().is_multiple_of(2));
            }
            OVERDRAWS => self.overdraw(*input),
            PANICS => assert!(amount % 100 != 57, "a number that it does not like"),
            _ => {}
        }
        let answer = self.answer(seq, feed::Command::Transfer { from, to, amount }, ctx.now());
        let answer = Served { answer, number: self.served };
        match self.asked_before.filter(|_| FLAW == ANSWERS_WHO_ASKED_BEFORE) {
            Some(session) => ctx.send(session, answer),
            None => ctx.reply(answer),
        }
        self.asked_before = ctx.session();
    }

    fn snapshot(&self) -> (Vec<u64>, u64, u64) {
        if FLAW == CHANGES_WHEN_KEPT {
            self.look();
        }
        let served = if FLAW == FORGETS_A_FIELD { 0 } else { self.served };
        (self.bank.snapshot(), served, self.looked_at.get())
    }

    fn restore((balances, served, looked_at): (Vec<u64>, u64, u64), config: &BankConfig) -> Self {
        let served = served + u64::from(FLAW == RESTORES_ONE_MORE);
        Teller { bank: Bank::restore(balances, config), served, looked_at: Cell::new(looked_at), asked_before: None }
    }
}

impl<const FLAW: u8> Teller<FLAW> {
    /// The bank's own answer, which it gives to whom it is told to give it.
    fn answer(&mut self, seq: Seq, input: feed::Command, now: Timestamp) -> feed::Answer {
        let mut effects = ticktape::Effects::with_capacity(2);
        self.bank.apply(seq, &input, &mut Ctx::new(seq, now, None, &mut effects));
        effects.outputs.swap_remove(0).output
    }
}

impl<const FLAW: u8> Invariants for Teller<FLAW> {
    fn check(&self) -> Result<(), InvariantViolation> {
        if FLAW == CHANGES_WHEN_CHECKED {
            self.look();
        }
        self.bank.check()
    }
}

fn teller<const FLAW: u8>() -> Option<&'static str> {
    found::<Teller<FLAW>>(&BankConfig::default(), gen_transfer)
}

#[test]
fn the_teller_is_clean() {
    assert_eq!(teller::<CLEAN>(), None);
}

#[test]
fn a_state_beside_the_state_is_found() {
    assert_not_from_the_log(teller::<COUNTS_OUTSIDE>());
}

#[test]
fn a_glance_at_the_clock_is_found() {
    assert_not_from_the_log(teller::<READS_THE_CLOCK>());
}

#[test]
fn an_overdraft_is_found() {
    assert_eq!(teller::<OVERDRAWS>(), Some("money is conserved"));
}

#[test]
fn a_field_that_is_not_kept_is_found() {
    assert_not_from_the_log(teller::<FORGETS_A_FIELD>());
}

#[test]
fn a_restore_that_is_one_off_is_found() {
    assert_eq!(teller::<RESTORES_ONE_MORE>(), Some("snapshots never lie"));
}

#[test]
fn an_answer_to_another_session_is_found() {
    assert_not_from_the_log(teller::<ANSWERS_WHO_ASKED_BEFORE>());
}

#[test]
fn a_state_that_changes_when_it_is_checked_is_found() {
    assert_not_from_the_log(teller::<CHANGES_WHEN_CHECKED>());
}

#[test]
fn a_state_that_changes_when_it_is_kept_is_found() {
    assert_not_from_the_log(teller::<CHANGES_WHEN_KEPT>());
}

#[test]
fn a_panic_is_found() {
    assert_eq!(teller::<PANICS>(), Some("the service goes on"));
}

// Around the key-value store.

const LISTS_AS_HASHED: u8 = 1;
const KEEPS_AS_HASHED: u8 = 2;
const LISTS_BY_ADDRESS: u8 = 3;

/// A store that answers each command with its first keys.
struct Lister<const FLAW: u8>(Kv);

/// So many fit a small datagram.
const LISTED: usize = 8;

impl<const FLAW: u8> Lister<FLAW> {
    fn keys(&self) -> Vec<String> {
        let keys = self.0.pairs().map(|(key, _)| key.to_string());
        match FLAW {
            LISTS_AS_HASHED => {
                let hashed: HashMap<String, ()> = keys.map(|key| (key, ())).collect();
                hashed.into_keys().take(LISTED).collect()
            }
            LISTS_BY_ADDRESS => {
                let mut boxed: Vec<Box<str>> = keys.map(String::into_boxed_str).collect();
                boxed.sort_by_key(|key| key.as_ptr().addr());
                boxed.into_iter().take(LISTED).map(String::from).collect()
            }
            _ => keys.take(LISTED).collect(),
        }
    }
}

impl<const FLAW: u8> Service for Lister<FLAW> {
    type Input = kv::Command;
    type Output = Vec<String>;
    type Snapshot = Vec<(String, String)>;
    type Config = ();

    const NAME: &'static str = "lister";

    fn genesis((): &()) -> Self {
        Lister(Kv::genesis(&()))
    }

    fn apply(&mut self, seq: Seq, input: &kv::Command, ctx: &mut Ctx<'_, Vec<String>>) {
        let mut effects = ticktape::Effects::with_capacity(1);
        self.0.apply(seq, input, &mut Ctx::new(seq, ctx.now(), None, &mut effects));
        ctx.reply(self.keys());
    }

    fn snapshot(&self) -> Vec<(String, String)> {
        let pairs = self.0.snapshot();
        if FLAW == KEEPS_AS_HASHED {
            return pairs.into_iter().collect::<HashMap<_, _>>().into_iter().collect();
        }
        pairs.into_iter().collect()
    }

    fn restore(pairs: Vec<(String, String)>, (): &()) -> Self {
        Lister(Kv::restore(pairs.into_iter().collect(), &()))
    }
}

impl<const FLAW: u8> Invariants for Lister<FLAW> {
    fn check(&self) -> Result<(), InvariantViolation> {
        self.0.check()
    }
}

fn lister<const FLAW: u8>() -> Option<&'static str> {
    found::<Lister<FLAW>>(&(), gen_kv)
}

#[test]
fn the_lister_is_clean() {
    assert_eq!(lister::<CLEAN>(), None);
}

#[test]
fn answers_in_a_hash_maps_order_are_found() {
    assert_not_from_the_log(lister::<LISTS_AS_HASHED>());
}

#[test]
fn a_snapshot_in_a_hash_maps_order_is_found() {
    assert_not_from_the_log(lister::<KEEPS_AS_HASHED>());
}

#[test]
fn answers_in_the_order_of_addresses_are_found() {
    assert_not_from_the_log(lister::<LISTS_BY_ADDRESS>());
}

// Around the counter.

const ADDS_UP_AS_HASHED: u8 = 1;
const ARMS_TWICE: u8 = 2;
const FORGETS_WHAT_IS_OUT: u8 = 3;

/// How long something is lent.
const LENT_NS: u64 = 2_000_000;

/// The twin of a timer that was armed before.
const TWIN: u64 = 1 << 40;

/// A counter of what is lent, and comes back by itself after a while.
struct Lender<const FLAW: u8> {
    lent: Counter,
    back: u64,
    /// What is out, by its timer.
    out: BTreeMap<u64, u64>,
}

impl<const FLAW: u8> Lender<FLAW> {
    /// What is out, weighed, in floating point, as of which no addition may be moved.
    fn weight(&self) -> u64 {
        let weigh = |amount: &u64| 1.0 / (*amount as f64 + 3.0);
        let weight: f64 = if FLAW == ADDS_UP_AS_HASHED {
            self.out.iter().map(|(id, amount)| (*id, *amount)).collect::<HashMap<_, _>>().values().map(weigh).sum()
        } else {
            self.out.values().map(weigh).sum()
        };
        weight.to_bits()
    }

    fn lend(&mut self, id: u64, amount: u64, ctx: &mut Ctx<'_, u64>) {
        self.out.insert(id, amount);
        ctx.set_timer(TimerId(id), Timestamp(ctx.now().0 + LENT_NS));
    }
}

impl<const FLAW: u8> Service for Lender<FLAW> {
    type Input = counter::Command;
    type Output = u64;
    type Snapshot = (i64, u64, BTreeMap<u64, u64>);
    type Config = ();

    const NAME: &'static str = "lender";

    fn genesis((): &()) -> Self {
        Lender { lent: Counter::default(), back: 0, out: BTreeMap::new() }
    }

    fn apply(&mut self, seq: Seq, input: &counter::Command, ctx: &mut Ctx<'_, u64>) {
        if let counter::Command::Add(amount) = *input {
            let mut effects = ticktape::Effects::with_capacity(1);
            self.lent.apply(seq, input, &mut Ctx::new(seq, ctx.now(), None, &mut effects));
            self.lend(seq.0, amount.unsigned_abs(), ctx);
            if FLAW == ARMS_TWICE {
                self.lend(seq.0 + TWIN, amount.unsigned_abs(), ctx);
            }
        }
        ctx.reply(self.weight());
    }

    fn on_timer(&mut self, id: TimerId, _: &mut Ctx<'_, u64>) {
        self.back += self.out.remove(&id.0).expect("what comes back was out");
    }

    fn snapshot(&self) -> (i64, u64, BTreeMap<u64, u64>) {
        (self.lent.value(), self.back, self.out.clone())
    }

    fn restore((lent, back, mut out): (i64, u64, BTreeMap<u64, u64>), (): &()) -> Self {
        if FLAW == FORGETS_WHAT_IS_OUT {
            out.pop_last();
        }
        Lender { lent: Counter::restore(lent, &()), back, out }
    }
}

impl<const FLAW: u8> Invariants for Lender<FLAW> {
    fn check(&self) -> Result<(), InvariantViolation> {
        let lent = self.lent.value().unsigned_abs();
        if self.back <= lent {
            return Ok(());
        }
        Err(InvariantViolation::new("no more comes back than was lent", format!("{} of {lent}", self.back)))
    }
}

fn gen_loan(rng: &mut Rng) -> counter::Command {
    counter::Command::Add(rng.between(1, 9) as i64)
}

fn lender<const FLAW: u8>() -> Option<&'static str> {
    found::<Lender<FLAW>>(&(), gen_loan)
}

#[test]
fn the_lender_is_clean() {
    assert_eq!(lender::<CLEAN>(), None);
}

#[test]
fn sums_that_depend_on_their_order_are_found() {
    assert_not_from_the_log(lender::<ADDS_UP_AS_HASHED>());
}

#[test]
fn a_timer_that_is_armed_twice_is_found() {
    assert_eq!(lender::<ARMS_TWICE>(), Some("no more comes back than was lent"));
}

#[test]
fn a_restore_that_forgets_what_timers_are_for_is_found() {
    assert_eq!(lender::<FORGETS_WHAT_IS_OUT>(), Some("snapshots never lie"));
}
