//! Order flow that is made up: the same for the same seed, of the shape that was asked for, and sent by the demo.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use orderbook::Command as Order;
use orderbook::TimeInForce;
use orderbook::flow::load;
use serde_json::Value;

fn ticktape(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ticktape")).args(args).stdin(Stdio::null()).output().unwrap()
}

/// Generates a file; what it says of it.
fn generate(out: &Path, args: &[&str]) -> Value {
    let output = ticktape(&[&["generate", "--json", "--out", out.to_str().unwrap()], args].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The one line with which it refuses.
fn refusal(args: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("orders.bin");
    let output = ticktape(&[&["generate", "--out", out.to_str().unwrap()], args].concat());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    errors
}

#[test]
fn the_same_seed_is_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.bin", "a.bin.gz"] {
        let bytes = |file: &str, seed: &str| {
            let path = dir.path().join(format!("{file}-{name}"));
            generate(&path, &["--orders", "3000", "--seed", seed]);
            fs::read(path).unwrap()
        };
        assert_eq!(bytes("first", "5"), bytes("second", "5"));
        assert_ne!(bytes("third", "5"), bytes("fourth", "6"));
        assert_eq!(bytes("fifth", "5").starts_with(&[0x1f, 0x8b]), name.ends_with("gz"));
    }
    assert_eq!(load(dir.path().join("first-a.bin")).unwrap(), load(dir.path().join("first-a.bin.gz")).unwrap());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 10, "no file aside is left");
}

#[test]
fn counts_and_shares_are_as_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders.bin.gz");
    let shares = ["--new", "60", "--cancel", "20", "--modify", "20", "--ioc", "25", "--miss", "7.5"];
    let limits = ["--orders", "40000", "--price-range", "-50..50", "--size-max", "7"];
    let said = generate(&path, &[&shares[..], &limits].concat());
    let orders = load(&path).unwrap();
    assert_eq!((orders.len(), &said["orders"]), (40_000, &40_000.into()));
    let count = |is: fn(&Order) -> bool| orders.iter().filter(|order| is(order)).count() as u64;
    let new = count(|order| matches!(order, Order::New { .. }));
    let ioc = count(|order| matches!(order, Order::New { time_in_force: TimeInForce::ImmediateOrCancel, .. }));
    let cancels = count(|order| matches!(order, Order::Cancel { .. }));
    let modifies = count(|order| matches!(order, Order::Modify { .. }));
    for (name, counted) in [("new", new), ("ioc", ioc), ("cancels", cancels), ("modifies", modifies)] {
        assert_eq!(said[name], counted, "{name}");
    }
    let near = |count: u64, wanted: u64| assert!(count.abs_diff(wanted) < 400, "{count} near {wanted}");
    near(new, 24_000);
    near(ioc, 6_000);
    near(cancels, 8_000);
    near(modifies, 8_000);
    near(said["misses"].as_u64().unwrap(), 1_200);
    assert!(orders.iter().all(|order| match *order {
        Order::New { price, qty, .. } | Order::Modify { price, qty, .. } =>
            (-50..=50).contains(&price) && (1..=7).contains(&qty),
        Order::Cancel { .. } => true,
    }));
}

#[test]
fn the_demo_sends_it() {
    let dir = tempfile::tempdir().unwrap();
    let (orders, json) = (dir.path().join("orders.bin.gz"), dir.path().join("demo.json"));
    let said = generate(&orders, &["--orders", "4000", "--seed", "9"]);
    let (orders, json_arg) = (orders.to_str().unwrap(), json.to_str().unwrap());
    let output = ticktape(&["demo", "--orders", orders, "--rate", "max", "--json", json_arg]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let demo: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(demo["messages"], said["orders"]);
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let cases: [(&[&str], &str); 6] = [
        (&["--cancel", "30"], "new, cancel and modify come to 99 percent, must come to 100"),
        (&["--new", "20", "--cancel", "80", "--modify", "0"], "cancel hits with 78.4 percent of the messages, only 17"),
        (&["--price-range", "7..5"], "prices are 7..5, must be the lowest and the highest"),
        (&["--orders", "0"], "0 is not in 1..=4294967295"),
        (&["--new", "120"], "is no share: 0 to 100 percent"),
        (&["--price-range", "5"], "is no range of prices, as 33000..34800"),
    ];
    for (args, wanted) in cases {
        let line = refusal(args);
        assert!(line.contains(wanted) && line.lines().count() == 1, "{args:?}: {line}");
    }
    for out in ["/nowhere/orders.bin", "/", "/tmp"] {
        let output = ticktape(&["generate", "--orders", "10", "--out", out]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && errors.lines().count() == 1 && errors.contains(out), "{errors}");
    }
}

#[test]
fn what_it_is_written_to_stays_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (link, target) = (dir.path().join("orders.bin"), dir.path().join("target"));
    std::os::unix::fs::symlink("target", &link).unwrap();
    for _ in 0..2 {
        generate(&link, &["--orders", "10", "--seed", "9"]);
        assert!(link.is_symlink() && fs::metadata(&target).unwrap().len() > 100);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    let output = ticktape(&["generate", "--orders", "10", "--out", "/dev/stdout"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}
