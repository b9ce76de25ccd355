//! A journal of format version 1, written by another program.

use std::io::Write as _;
use std::path::PathBuf;

use feed::{Bank, BankConfig};
use ticktape::machine::{Machine, StepLimits};
use ticktape::{Invariants, Seq, replay};

#[test]
fn its_transfers_conserve_money() {
    let Some(cases) = std::env::var_os("TICKTAPE_CASES") else {
        let _ = writeln!(std::io::stderr(), "skipped: TICKTAPE_CASES does not name the folder of the cases");
        return;
    };
    let dir = PathBuf::from(cases).join("journal-v1/bank");
    let config = BankConfig::default();
    let mut machine = Machine::<Bank>::genesis(&config, StepLimits::default());
    replay(&dir, &mut machine).unwrap();
    assert_eq!((machine.applied(), machine.malformed()), (Seq(291), 0));
    assert_eq!(machine.service().check(), Ok(()));
    let balances = machine.service().balances();
    assert_eq!(balances.iter().sum::<u64>(), 8 * config.opening_balance);
    assert_ne!(balances, [config.opening_balance; 8], "money moved");
}
