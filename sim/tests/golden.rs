//! The same seed is the same run: here, elsewhere, optimised or not. Its hash stands in `golden.txt`.
//!
//! A change to what a stage does, or to what chance decides, changes the hashes, and is seen in review by them. To write them anew:
//! `TICKTAPE_WRITE_GOLDEN=1 cargo test -p ticktape-sim --test golden`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use ticktape_sim::{Faults, SimConfig, services};

const TABLE: &str = "tests/golden.txt";

/// Usual runs, and one without faults, of each service.
fn configs() -> Vec<SimConfig> {
    let usual = [1, 2, 3, 4, 0xffff_ffff_ffff_fff1].map(SimConfig::new);
    let quiet = SimConfig { faults: Faults::NONE, ..SimConfig::new(5) };
    usual.into_iter().chain([quiet]).collect()
}

fn table() -> String {
    let mut table = String::from("# service, hash, run\n");
    for service in services::NAMES {
        for config in configs() {
            let hash = match services::run(service, &config) {
                Ok(report) => format!("{:016x}", report.trace_hash),
                Err(failure) => panic!("{service}: {failure}"),
            };
            writeln!(table, "{service:<10} {hash} {config}").unwrap();
        }
    }
    table
}

#[test]
fn runs_have_the_hashes_that_are_written_down() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE);
    let found = table();
    if std::env::var_os("TICKTAPE_WRITE_GOLDEN").is_some() {
        fs::write(&path, &found).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    for (golden, found) in golden.lines().zip(found.lines()) {
        assert_eq!(
            golden, found,
            "in a {build} build; if it should differ, run this test with TICKTAPE_WRITE_GOLDEN=1"
        );
    }
    assert_eq!(golden.lines().count(), found.lines().count(), "run this test with TICKTAPE_WRITE_GOLDEN=1");
}
