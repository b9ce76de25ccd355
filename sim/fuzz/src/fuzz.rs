//! One program for all targets: `TICKTAPE_FUZZ` names the one to run. See `../run`.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use targets::{TARGETS, Target};

static CHOSEN: OnceLock<&Target> = OnceLock::new();

fn chosen() -> &'static Target {
    let name = std::env::var("TICKTAPE_FUZZ").unwrap_or_default();
    TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("TICKTAPE_FUZZ={name:?} names no target: one of {}", names.join(", "));
        std::process::exit(2)
    })
}

fuzz_target!(|data: &[u8]| {
    (CHOSEN.get_or_init(chosen).run)(data);
});
