//! Whole worlds: clean where nothing is wrong, the same for the same seed, and never clean where a service breaks its word.

use std::cell::Cell;
use std::process::Command;

use feed::{Bank, BankConfig};
use ticktape::{Ctx, InvariantViolation, Invariants, Seq, Service};
use ticktape_sim::services::{self, gen_transfer};
use ticktape_sim::{Faults, SimConfig, simulate, vopr};

fn short(seed: u64) -> SimConfig {
    SimConfig { steps: 150, ..SimConfig::new(seed) }
}

#[test]
fn worlds_of_every_service_are_clean_under_every_fault() {
    for name in services::NAMES {
        for seed in 1..15 {
            services::run(name, &short(seed)).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        }
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 1..6 {
        let [first, second] = [0, 1].map(|_| services::run("orderbook", &short(seed)).unwrap());
        assert_eq!(first, second);
        assert_ne!(first.trace_hash, services::run("orderbook", &short(seed + 100)).unwrap().trace_hash);
    }
}

#[test]
fn without_faults_nothing_of_them_is_met() {
    let config = SimConfig { faults: Faults::NONE, ..short(3) };
    let report = services::run("bank", &config).unwrap();
    assert!(report.inputs > 100, "{}", report.inputs);
    for name in ["packets lost", "process killed", "disk errors", "client restarted", "short writes"] {
        assert_eq!(report.coverage.get(name).copied().unwrap_or(0), 0, "{name}");
    }
}

#[test]
fn a_run_that_is_told_is_the_run_that_is_not() {
    for name in services::NAMES {
        let (sender, events) = std::sync::mpsc::channel();
        let told = services::run_told(name, &short(7), move |event| sender.send(event.clone()).unwrap()).unwrap();
        assert_eq!(told, services::run(name, &short(7)).unwrap());
        let events: Vec<_> = events.into_iter().collect();
        assert!(events.is_sorted_by_key(|event| event.number) && events.is_sorted_by_key(|event| event.ns));
        for what in ["\"sent\"", "\"stored\"", "\"sequenced\"", "\"applied\"", "\"told\"", "\"fault\"", "\"start\""] {
            assert!(events.iter().any(|event| event.to_json().contains(what)), "{name}: nothing {what}");
        }
    }
}

#[test]
fn few_runs_are_too_shallow_and_say_of_what() {
    let config = SimConfig { steps: 5, faults: Faults { power: true, ..Faults::NONE }, ..SimConfig::new(0) };
    let batch = vopr::<Bank>(&config, 0..2, &BankConfig::default(), gen_transfer);
    let missing = batch.too_shallow(&config);
    assert!(missing.contains(&"sectors torn"), "{missing:?}");
    assert!(!missing.contains(&"client restarted"), "no client could restart");
}

/// The exit code, and the last line of standard output.
fn vopr_says(line: &str) -> (i32, String) {
    let vopr = Command::new(env!("CARGO_BIN_EXE_vopr")).args(line.split_whitespace()).output().unwrap();
    let out = String::from_utf8(vopr.stdout).unwrap();
    (vopr.status.code().unwrap(), out.lines().last().unwrap_or_default().to_string())
}

#[test]
fn the_exit_code_says_how_it_went() {
    assert_eq!(vopr_says("--seed 3 --steps 40").0, 0);
    assert_eq!(vopr_says("--runs many").0, 2);
    let (code, last) = vopr_says("--runs 2 --steps 10 --from 5 --service kv --json");
    let said: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!(code, 3, "two short runs are too few");
    assert_eq!(
        (&said["runs"], &said["failures"], &said["first_seed"], &said["last_seed"]),
        (&2.into(), &0.into(), &5.into(), &6.into())
    );
    assert!(said["first_failure"].is_null() && said["seeds_per_s"].is_number() && said["coverage"].is_object());
}

#[test]
fn a_timeline_is_told_as_lines_or_as_json() {
    let (code, last) = vopr_says("--seed 3 --steps 20 --service bank --trace");
    assert_eq!((code, last.contains("host0") && last.contains("STOP ended")), (0, true), "{last}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.json");
    let line = format!("--seed 3 --steps 20 --service bank --trace {}", path.display());
    assert_eq!(vopr_says(&line).0, 0);
    let text = std::fs::read_to_string(&path).unwrap();
    let events: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&events[0]["service"], &events.last().unwrap()["what"]), (&"bank".into(), &"stop".into()));
}

#[test]
fn fault_lists_are_read_and_written_alike() {
    assert_eq!(Faults::parse("all"), Ok(Faults::ALL));
    assert_eq!(Faults::parse("none"), Ok(Faults::NONE));
    let some = Faults { power: true, network: true, ..Faults::NONE };
    assert_eq!((Faults::parse("network,power"), some.to_string()), (Ok(some), "power,network".to_string()));
    assert!(Faults::parse("fire").unwrap_err().contains("power"));
}

/// A bank with one thing wrong with it.
struct Wrong<const WHAT: u8>(Bank);

const COUNTS_ITS_STEPS_OUTSIDE: u8 = 0;
const RESTORES_ONE_SHORT: u8 = 1;
const LOSES_MONEY: u8 = 2;
const PANICS: u8 = 3;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

impl<const WHAT: u8> Service for Wrong<WHAT> {
    type Input = feed::Command;
    type Output = feed::Answer;
    type Snapshot = Vec<u64>;
    type Config = BankConfig;

    const NAME: &'static str = "wrong bank";

    fn genesis(config: &BankConfig) -> Self {
        Wrong(Bank::genesis(config))
    }

    fn apply(&mut self, seq: Seq, input: &feed::Command, ctx: &mut Ctx<'_, feed::Answer>) {
        let feed::Command::Transfer { from, to, mut amount } = *input;
        if WHAT == COUNTS_ITS_STEPS_OUTSIDE {
            STEPS.set(STEPS.get() + 1);
            amount += u32::from(STEPS.get().is_multiple_of(7));
        }
        if WHAT == PANICS {
            assert!(amount % 100 != 57, "a number that it does not like");
        }
        self.0.apply(seq, &feed::Command::Transfer { from, to, amount }, ctx);
        if WHAT == LOSES_MONEY && amount % 64 == 13 {
            let mut balances = self.0.snapshot();
            let rich = balances.iter_mut().max().expect("there are accounts");
            *rich -= 1;
            self.0 = Bank::restore(balances, &BankConfig::default());
        }
    }

    fn snapshot(&self) -> Vec<u64> {
        self.0.snapshot()
    }

    fn restore(balances: Vec<u64>, config: &BankConfig) -> Self {
        let mut balances = balances;
        if WHAT == RESTORES_ONE_SHORT {
            balances[0] -= 1;
        }
        Wrong(Bank::restore(balances, config))
    }
}

impl<const WHAT: u8> Invariants for Wrong<WHAT> {
    fn check(&self) -> Result<(), InvariantViolation> {
        self.0.check()
    }
}

fn found_in<const WHAT: u8>() -> &'static str {
    let batch = vopr::<Wrong<WHAT>>(&short(0), 0..40, &BankConfig::default(), gen_transfer);
    batch.first_failure.expect("it is found").check
}

#[test]
fn a_service_that_loses_money_is_found_by_its_own_invariant() {
    assert_eq!(found_in::<LOSES_MONEY>(), "money is conserved");
}

#[test]
fn a_service_that_panics_is_found() {
    assert_eq!(found_in::<PANICS>(), "the service goes on");
}

#[test]
fn a_service_that_is_no_function_of_its_inputs_is_found() {
    // The state outside it goes on from run to run, so it can't be run again to tell; what is asked is only that it is noticed.
    let config = short(1);
    let noticed = std::panic::catch_unwind(|| {
        simulate::<Wrong<COUNTS_ITS_STEPS_OUTSIDE>>(&config, &BankConfig::default(), gen_transfer).map(|_| ())
    });
    assert!(!matches!(noticed, Ok(Ok(()))), "it went unnoticed");
}

#[test]
fn what_only_a_snapshot_could_show_is_clean_without_snapshots() {
    let without = SimConfig { snapshots: Some(false), ..short(0) };
    let batch = vopr::<Wrong<RESTORES_ONE_SHORT>>(&without, 0..10, &BankConfig::default(), gen_transfer);
    assert_eq!((batch.failures, batch.runs), (0, 10));
}
