//! A service that comes back from a snapshot a little other than it was: found within few runs where snapshots are taken, and clean where
//! they are not.

use feed::{Bank, BankConfig};
use ticktape::{Ctx, InvariantViolation, Invariants, Seq, Service};
use ticktape_sim::services::gen_transfer;
use ticktape_sim::{SimConfig, vopr};

/// A bank that forgets a coin of one account whenever it is restored.
struct OneShort(Bank);

impl Service for OneShort {
    type Input = feed::Command;
    type Output = feed::Answer;
    type Snapshot = Vec<u64>;
    type Config = BankConfig;

    const NAME: &'static str = "bank, one short";

    fn genesis(config: &BankConfig) -> Self {
        OneShort(Bank::genesis(config))
    }

    fn apply(&mut self, seq: Seq, input: &feed::Command, ctx: &mut Ctx<'_, feed::Answer>) {
        self.0.apply(seq, input, ctx);
    }

    fn snapshot(&self) -> Vec<u64> {
        self.0.snapshot()
    }

    fn restore(mut balances: Vec<u64>, config: &BankConfig) -> Self {
        if let Some(balance) = balances.iter_mut().find(|balance| **balance > 0) {
            *balance -= 1;
        }
        OneShort(Bank::restore(balances, config))
    }
}

/// None of its own: that a coin is missing is for the simulator to find.
impl Invariants for OneShort {
    fn check(&self) -> Result<(), InvariantViolation> {
        Ok(())
    }
}

/// Few: each run takes several snapshots, and one is enough.
const SEEDS: std::ops::Range<u64> = 0..10;

fn run(snapshots: bool) -> ticktape_sim::Batch {
    let config = SimConfig { steps: 150, snapshots: Some(snapshots), ..SimConfig::new(0) };
    vopr::<OneShort>(&config, SEEDS, &BankConfig::default(), gen_transfer)
}

#[test]
fn a_restore_that_is_one_short_is_found_where_snapshots_are_taken() {
    let failure = run(true).first_failure.expect("it is found");
    assert_eq!(failure.check, "snapshots never lie");
    assert!(failure.config.seed < SEEDS.end);
}

#[test]
fn the_same_runs_are_clean_where_none_are_taken() {
    let batch = run(false);
    assert_eq!((batch.failures, batch.runs), (0, SEEDS.end));
    assert_eq!(batch.coverage.get("snapshots taken").copied().unwrap_or(0), 0);
    assert!(batch.coverage["recoveries"] > batch.runs, "they were restarted all the same");
}
