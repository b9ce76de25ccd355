//! Calibration on the file system that the tests run on.

mod common;

use std::time::Duration;

use common::{append, small};
use ticktape_core::Seq;
use ticktape_journal::{
    Binding, CalibrationPlan, Journal, JournalConfig, NativeDisk, Strategy, StrategyChoice, calibrate,
};

#[test]
fn every_strategy_is_measured_one_is_chosen_and_nothing_stays_behind() {
    let dir = tempfile::tempdir().unwrap();
    // As a crash in an earlier calibration leaves it.
    let left = dir.path().join("calibration.tmp").join("group");
    std::fs::create_dir_all(&left).unwrap();
    std::fs::write(left.join("00000000000000000001.seg"), b"half").unwrap();
    let plan = CalibrationPlan { budget: Duration::from_millis(300), busy_cores: 1, spin: false };
    let calibration = calibrate(dir.path(), &JournalConfig::default(), plan).unwrap();
    assert_eq!(calibration.measured.map(|measured| measured.strategy), Strategy::ALL);
    let cores = std::thread::available_parallelism().unwrap().get();
    for measured in calibration.measured {
        assert!(measured.quiet.count > 0 && measured.bytes_per_s > 0, "{measured:?}");
        assert!(measured.quiet.p50_ns <= measured.quiet.p90_ns && measured.quiet.p90_ns <= measured.quiet.max_ns);
        assert_eq!(measured.busy.is_some(), cores > 1);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

    let disk = NativeDisk::new(dir.path(), Binding::AnyThread);
    let (mut journal, _) = Journal::open(disk, dir.path(), small()).unwrap();
    journal.adopt(calibration);
    append(&mut journal, b"input");
    journal.sync_blocking(|| 0).unwrap();
    println!("{}", journal.describe());
    assert_eq!((journal.strategy(), journal.durable()), (calibration.choice, Seq(1)));
    assert!(journal.describe().contains("calibrated in"), "{}", journal.describe());
    journal.close().unwrap();
}

#[test]
fn an_open_journal_calibrates_itself_and_takes_no_harm_where_that_fails() {
    let dir = tempfile::tempdir().unwrap();
    let config = JournalConfig { strategy: StrategyChoice::Auto, ..small() };
    let open = || Journal::open(NativeDisk::new(dir.path(), Binding::OneThread), dir.path(), config.clone()).unwrap().0;
    let mut journal = open();
    assert!(journal.describe().contains("group strategy (not calibrated)"), "{}", journal.describe());
    // A file stands where the measuring would be done.
    let place = dir.path().join("calibration.tmp");
    std::fs::write(&place, b"").unwrap();
    let plan = CalibrationPlan { budget: Duration::from_millis(200), ..CalibrationPlan::default() };
    journal.calibrate(plan);
    assert_eq!((journal.strategy(), journal.calibration()), (Strategy::Group, None));
    let said = journal.describe();
    assert!(said.contains("calibration failed") && said.contains("calibration.tmp"), "{said}");
    append(&mut journal, b"input");
    journal.sync_blocking(|| 0).unwrap();
    journal.close().unwrap();

    std::fs::remove_file(&place).unwrap();
    let mut journal = open();
    journal.calibrate(plan);
    assert_eq!(journal.calibration().unwrap().choice, journal.strategy());
    assert!(journal.describe().contains("calibrated in"), "{}", journal.describe());
    journal.close().unwrap();
}

#[test]
fn without_the_time_to_prepare_nothing_is_measured_and_group_stays() {
    let dir = tempfile::tempdir().unwrap();
    let plan = CalibrationPlan { budget: Duration::ZERO, ..CalibrationPlan::default() };
    let calibration = calibrate(dir.path(), &JournalConfig::default(), plan).unwrap();
    assert_eq!(calibration.choice, Strategy::Group);
    assert!(calibration.to_string().contains("not measured"), "{calibration}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_place_where_nothing_can_be_measured_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let error = calibrate(&file, &JournalConfig::default(), CalibrationPlan::default()).unwrap_err().to_string();
    assert!(error.contains("file/calibration.tmp"), "{error}");
}
