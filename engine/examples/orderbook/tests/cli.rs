//! The program, from run to run over one journal.

use std::path::Path;
use std::process::Command;

/// Runs the program in `dir`; returns what it printed and its exit code.
fn run(dir: &Path, args: &str) -> (Vec<String>, i32) {
    let program = env!("CARGO_BIN_EXE_orderbook");
    let output = Command::new(program).args(args.split_whitespace()).current_dir(dir).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let lines = String::from_utf8(text).unwrap().lines().map(str::to_owned).collect();
    (lines, output.status.code().unwrap())
}

fn says(dir: &Path, args: &str, lines: &[&str]) {
    assert_eq!(run(dir, args), (lines.iter().map(|line| line.to_string()).collect(), 0), "{args}");
}

#[test]
fn orders_trade_across_runs() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    says(
        dir,
        "sell 100 102",
        &[
            "recovered: 0 orders at seq 0 (replayed from ./orderbook-journal)",
            "seq 1: accepted: order 1, sell 100@102",
            "BID - | ASK 100@102",
        ],
    );
    says(
        dir,
        "buy 120 102",
        &[
            "recovered: 1 orders at seq 1 (replayed from ./orderbook-journal)",
            "seq 2: accepted: order 2, buy 120@102",
            "seq 2: traded: 100@102, order 2 with 1",
            "BID 20@102 | ASK -",
        ],
    );
    says(
        dir,
        "modify 2 5 -7",
        &[
            "recovered: 1 orders at seq 2 (replayed from ./orderbook-journal)",
            "seq 3: modified: order 2, buy 5@-7",
            "BID 5@-7 | ASK -",
        ],
    );
    says(
        dir,
        "verify",
        &[
            "recovered: 1 orders at seq 3 (replayed from ./orderbook-journal)",
            "invariants: OK · replay equivalence: OK",
        ],
    );
    says(
        dir,
        "cancel 2",
        &[
            "recovered: 1 orders at seq 3 (replayed from ./orderbook-journal)",
            "seq 4: canceled: order 2, buy @-7",
            "BID - | ASK -",
        ],
    );
    says(
        dir,
        "cancel 2",
        &[
            "recovered: 0 orders at seq 4 (replayed from ./orderbook-journal)",
            "seq 5: cancel rejected: order 2 is not in the book",
            "BID - | ASK -",
        ],
    );
    says(
        dir,
        "buy 0 1",
        &[
            "recovered: 0 orders at seq 5 (replayed from ./orderbook-journal)",
            "seq 6: rejected: order 6, QTY is 0",
            "BID - | ASK -",
        ],
    );
    says(
        dir,
        "buy 3 1 ioc",
        &[
            "recovered: 0 orders at seq 6 (replayed from ./orderbook-journal)",
            "seq 7: accepted: order 7, buy 3@1",
            "seq 7: canceled: order 7, buy @1",
            "BID - | ASK -",
        ],
    );
}

#[test]
fn an_order_good_for_no_time_expires_at_once_and_one_with_time_rests() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // Its deadline is the moment before it was sequenced, or its timer is due with the next frame: it is gone by then.
    run(dir, "buy 1 1 for 0");
    run(dir, "buy 1 1 for 100000");
    let (lines, code) = run(dir, "book");
    assert_eq!((lines.last().map(String::as_str), code), (Some("BID 1@1 | ASK -"), 0));
    assert_eq!(run(dir, "verify").1, 0);
}

#[test]
fn what_is_wrong_is_said_in_one_line_and_nothing_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let refused = |args: &str, line: &str| assert_eq!(run(dir, args), (vec![line.into()], 2), "{args}");
    refused("buy x 1", "QTY is `x`, must be a whole number from 1 to 4294967295");
    refused("buy 1 1.5", "PRICE is `1.5`, must be a whole number of ticks, of 64 bits with sign");
    refused("cancel -1", "ID is `-1`, must be a whole number from 0, of 64 bits");
    refused("sell 1 1 for ever", "SECONDS is `ever`, must be a whole number from 0");
    let (lines, code) = run(dir, "fly");
    assert!(lines[0].starts_with("usage: orderbook ") && code == 2);
    assert!(!dir.join("orderbook-journal").exists());
}
