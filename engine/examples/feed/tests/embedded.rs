//! The bank in an embedded node.

use feed::{Answer, Bank, BankConfig, Command};
use ticktape::{Invariants, Node, NodeConfig, Seq};

#[test]
fn transfers_are_answered_and_money_is_conserved_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let config = BankConfig { accounts: 3, opening_balance: 100 };
    let transfer = |from, to, amount| Command::Transfer { from, to, amount };
    let mut node = Node::<Bank>::open(NodeConfig::new(dir.path()), config).unwrap();
    let answers = node.submit_batch([transfer(0, 1, 60), transfer(0, 2, 60), transfer(1, 3, 1)]).unwrap();
    assert_eq!(
        answers,
        [
            (
                Seq(1),
                vec![Answer::Moved { from_balance: 40, to_balance: 160 }, Answer::Paid { from: 0, to: 1, amount: 60 },]
            ),
            (Seq(2), vec![Answer::Insufficient { balance: 40 }]),
            (Seq(3), vec![Answer::NoAccount(3)]),
        ]
    );
    drop(node);
    let mut node = Node::<Bank>::open(NodeConfig::new(dir.path()), config).unwrap();
    assert_eq!(node.service().balances(), [40, 160, 100]);
    assert_eq!(node.service().check(), Ok(()));
    node.verify_replay().unwrap();
}

#[test]
fn another_configuration_gives_another_bank_and_is_the_operators_to_keep() {
    let dir = tempfile::tempdir().unwrap();
    let open = |opening_balance| {
        Node::<Bank>::open(NodeConfig::new(dir.path()), BankConfig { accounts: 2, opening_balance }).unwrap()
    };
    open(100).submit(Command::Transfer { from: 0, to: 1, amount: 50 }).unwrap();
    assert_eq!(open(100).service().balances(), [50, 150]);
    assert_eq!(open(10).service().balances(), [10, 10], "the same log, from another genesis");
}
