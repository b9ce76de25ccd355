//! Calibration on the file system that the tests run on.

mod common;

use std::time::Duration;

use common::{append, small};
use ticktape_core::Seq;
use ticktape_journal::{Binding, CalibrationPlan, Journal, JournalConfig, NativeDisk, Strategy, calibrate};

#[test]
fn every_strategy_is_measured_one_is_chosen_and_nothing_stays_behind() {
    let dir = tempfile::tempdir().unwrap();
    // As a crash in an earlier calibration leaves it.
    let left = dir.path().join("calibration.tmp").join("group");
    std::fs::create_dir_all(&left).unwrap();
    std::fs::write(left.join("00000000000000000001.seg"), b"half").unwrap();
    let plan = CalibrationPlan { budget: Duration::from_millis(150), busy_cores: 1, spin: false };
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
fn a_place_where_nothing_can_be_measured_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let error = calibrate(&file, &JournalConfig::default(), CalibrationPlan::default()).unwrap_err().to_string();
    assert!(error.contains("file/calibration.tmp"), "{error}");
}
