//! A run that fails is shrunk to less that fails by the same check, and is repeated from what is printed of it.

use std::collections::BTreeMap;

use feed::{Bank, BankConfig};
use ticktape::{Ctx, InvariantViolation, Invariants, Seq, Service};
use ticktape_sim::services::gen_transfer;
use ticktape_sim::shrink::{RUNS_MAX, shrink};
use ticktape_sim::{Faults, SimConfig, simulate, vopr};

/// A bank that forgets a cent whenever a transfer's amount ends so.
struct Forgetful(Bank);

impl Service for Forgetful {
    type Input = feed::Command;
    type Output = feed::Answer;
    type Snapshot = Vec<u64>;
    type Config = BankConfig;

    const NAME: &'static str = "forgetful bank";

    fn genesis(config: &BankConfig) -> Self {
        Forgetful(Bank::genesis(config))
    }

    fn apply(&mut self, seq: Seq, input: &feed::Command, ctx: &mut Ctx<'_, feed::Answer>) {
        self.0.apply(seq, input, ctx);
        let feed::Command::Transfer { amount, .. } = *input;
        if amount % 256 == 77 {
            let mut balances = self.0.snapshot();
            *balances.iter_mut().max().expect("there are accounts") -= 1;
            self.0 = Bank::restore(balances, &BankConfig::default());
        }
    }

    fn snapshot(&self) -> Vec<u64> {
        self.0.snapshot()
    }

    fn restore(balances: Vec<u64>, config: &BankConfig) -> Self {
        Forgetful(Bank::restore(balances, config))
    }
}

impl Invariants for Forgetful {
    fn check(&self) -> Result<(), InvariantViolation> {
        self.0.check()
    }
}

fn run(config: &SimConfig) -> Result<ticktape_sim::Report, ticktape_sim::Failure> {
    simulate::<Forgetful>(config, &BankConfig::default(), gen_transfer)
}

#[test]
fn a_planted_fault_is_shrunk_to_less_that_fails_alike() {
    let mut whole = SimConfig::new(0);
    let failure = loop {
        match run(&whole) {
            Err(failure) => break failure,
            Ok(_) => whole.seed += 1,
        }
    };
    let (shrunk, runs) = shrink(failure.clone(), run);
    assert_eq!((shrunk.check, failure.check), ("money is conserved", "money is conserved"));
    assert!(shrunk.config.steps < whole.steps && shrunk.config.steps <= failure.step, "{}", shrunk.config);
    assert_eq!((shrunk.config.faults, shrunk.config.seed), (Faults::NONE, whole.seed), "no fault is needed for it");
    assert!(shrunk.config.clients < whole.clients, "one client is enough: {}", shrunk.config);
    assert!((1..=RUNS_MAX).contains(&runs));
    let again = run(&shrunk.config).unwrap_err();
    assert_eq!((again.step, again.check, &again.detail), (shrunk.step, shrunk.check, &shrunk.detail));
    assert_eq!(again.last_events, shrunk.last_events, "event by event");
    assert!(!again.last_events.is_empty());
}

#[test]
fn many_runs_end_with_a_failure_that_is_shrunk() {
    let batch = vopr::<Forgetful>(&SimConfig::new(0), 0..40, &BankConfig::default(), gen_transfer);
    let failure = batch.first_failure.expect("it is found");
    assert!(failure.config.steps < failure.found.steps);
    assert!(failure.to_string().contains("shrunk from"), "{failure}");
}

/// What is asked for in each step, by what is told.
fn asked(config: &SimConfig) -> BTreeMap<u32, Vec<String>> {
    let (sender, events) = std::sync::mpsc::channel();
    let told = ticktape_sim::services::run_told("kv", config, move |event| {
        if let ticktape_sim::trace::What::Asked { input } = &event.what {
            sender.send((event.step, input.clone())).unwrap();
        }
    });
    told.unwrap();
    let mut asked = BTreeMap::<u32, Vec<String>>::new();
    events.into_iter().for_each(|(step, input)| asked.entry(step).or_default().push(input));
    asked
}

#[test]
fn what_is_taken_out_of_a_run_leaves_the_rest_of_its_chance_alone() {
    let whole =
        SimConfig { faults: Faults { clock: true, stall: true, network: true, ..Faults::NONE }, ..SimConfig::new(3) };
    let all = asked(&whole);
    assert!(all.len() > 200);
    let quiet = asked(&SimConfig { faults: Faults::NONE, ..whole });
    // Where a queue is full, less is asked for: what both ask for is the same.
    let mut same = 0;
    for (step, inputs) in &all {
        let others = quiet.get(step).unwrap_or_else(|| panic!("step {step} asks for nothing without faults"));
        same += inputs.iter().zip(others).map(|(one, other)| assert_eq!(one, other, "step {step}")).count();
    }
    assert!(same > 200, "{same}");
    let short = asked(&SimConfig { steps: 100, ..whole });
    assert!(short.iter().all(|(step, inputs)| all[step] == *inputs), "fewer steps are the first of more");
}
