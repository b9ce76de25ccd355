//! Seeds that once found a fault of the appliance, each with the runs that it was found in: they stay clean.

use ticktape_sim::{SimConfig, services};

/// What was found, by which service, in which run.
fn found() -> Vec<(&'static str, &'static str, SimConfig)> {
    let followed = |replicas, seed| SimConfig { replicas, ..SimConfig::new(seed) };
    vec![(
        "a replica went on behind a frame that was taken back: the feed had brought it before a transfer that began earlier",
        "bank",
        followed(2, 120),
    )]
}

#[test]
fn what_was_found_once_is_found_no_more() {
    for (what, service, config) in found() {
        services::run(service, &config).unwrap_or_else(|failure| panic!("{what}\n{service}: {failure}"));
    }
}
