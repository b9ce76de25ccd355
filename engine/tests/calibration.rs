//! An appliance measures its disk at the start, shows what it chose and why, and starts where measuring fails, too.

mod support;

use std::path::Path;

use support::{Mailbox, config};
use ticktape::config::ApplianceConfig;
use ticktape::pipeline::{Appliance, IdleStrategy, StageName};
use ticktape_journal::{Strategy, StrategyChoice};

/// As an appliance is unless told otherwise.
fn measuring(dir: &Path) -> ApplianceConfig {
    let default = ApplianceConfig::new(dir, config(dir).listen).journal.strategy;
    assert_eq!(default, StrategyChoice::Auto);
    let mut config = config(dir);
    config.journal.strategy = default;
    config
}

#[test]
fn the_choice_and_its_figures_are_shown_and_exported() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = measuring(dir.path());
    // The other threads' spinning is part of what is measured.
    config.idle = IdleStrategy::Spin;
    let appliance = Appliance::start::<Mailbox>(&config, &()).unwrap();
    let choices = appliance.choices().clone();
    assert!(choices.journal.contains("calibrated in") && !choices.journal.contains('\n'), "{}", choices.journal);
    assert!(choices.journal_strategy.parse::<Strategy>().is_ok(), "{}", choices.journal_strategy);
    assert!(!dir.path().join("calibration.tmp").exists());
    let report = appliance.stop();
    assert_eq!(report.fault, None);
    assert_eq!(report.fact(StageName::Journaler, "journal_strategy"), Some(&*choices.journal_strategy));
    for figure in ["journal_group_p50_ns", "journal_flush_p90_ns", "journal_dsync_p90_ns"] {
        assert!(report.counter(StageName::Journaler, figure) > 0, "{figure}");
    }
}

#[test]
fn a_calibration_that_fails_prevents_no_start() {
    let dir = tempfile::tempdir().unwrap();
    // A file stands where the measuring would be done.
    std::fs::write(dir.path().join("calibration.tmp"), b"").unwrap();
    let appliance = Appliance::start::<Mailbox>(&measuring(dir.path()), &()).unwrap();
    let choices = appliance.choices().clone();
    assert!(choices.journal.contains("calibration failed") && choices.journal.contains("calibration.tmp"));
    assert_eq!(choices.journal_strategy, "group");
    assert_eq!(appliance.stop().fault, None);
}

#[test]
fn a_strategy_that_was_asked_for_is_taken_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = measuring(dir.path());
    config.journal.strategy = Strategy::Flush.into();
    let appliance = Appliance::start::<Mailbox>(&config, &()).unwrap();
    let choices = appliance.choices().clone();
    assert_eq!(choices.journal_strategy, "flush");
    assert!(choices.journal.contains("flush strategy (as configured)"), "{}", choices.journal);
    assert_eq!(appliance.stop().fault, None);
}
