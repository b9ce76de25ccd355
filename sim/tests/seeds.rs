//! Seeds that once found a fault of the appliance, each with the runs that it was found in: they stay clean.
//!
//! A seed leads elsewhere once what runs on it has changed: so each fault has a test of its own beside, where it was mended.

use ticktape_sim::{Faults, SimConfig, services};

/// What was found, by which service, in which run.
fn found() -> Vec<(&'static str, &'static str, SimConfig)> {
    let followed = |replicas, seed| SimConfig { replicas, ..SimConfig::new(seed) };
    let faults = |list| Faults::parse(list).expect("a list of faults");
    vec![
        (
            "a replica went on behind a frame that was taken back: the feed had brought it before a transfer that began earlier",
            "bank",
            followed(2, 120),
        ),
        (
            "a replica told another what a new epoch had committed in the name of the old one, and that applied what was taken back",
            "orderbook",
            SimConfig { steps: 57, faults: faults("power,disk"), ..followed(2, 1_883_268_052_943_879) },
        ),
        (
            "a replica that gave up the end of its log missed it ever after: a part of a segment's first write said that it had been durable",
            "bank",
            followed(2, 700_000_490),
        ),
    ]
}

#[test]
fn what_was_found_once_is_found_no_more() {
    for (what, service, config) in found() {
        services::run(service, &config).unwrap_or_else(|failure| panic!("{what}\n{service}: {failure}"));
    }
}
