//! The ring beside its floor (a raw slot, a raw shared-memory ring) and its peer (the `disruptor` crate), interleaved in one run.
//!
//! `cargo run --release -p ticktape-shm --example ring_floor [-- hop|burst|follow] [--rounds N]`. Prints medians over the rounds and
//! the ratio of each row to its floor or peer, with the budget.

mod burst;
mod follow;
mod hop;
mod stats;

use stats::Row;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds =
        arguments.iter().position(|a| a == "--rounds").map_or(9, |at| arguments[at + 1].parse().expect("a number"));
    let wants = |name: &str| {
        let named = ["hop", "burst", "follow"].iter().any(|n| arguments.iter().any(|a| a == n));
        !named || arguments.iter().any(|a| a == name)
    };
    if arguments.first().is_some_and(|a| a == follow::CHILD) {
        return follow::child(&arguments[1..]);
    }
    let mut rows: Vec<Row> = Vec::new();
    if wants("hop") {
        rows.extend(hop::rows(rounds));
    }
    if wants("burst") {
        rows.extend(burst::rows(rounds));
    }
    if wants("follow") {
        rows.extend(follow::rows(rounds));
    }
    for row in rows {
        println!("{row}");
    }
}
