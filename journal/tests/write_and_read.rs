//! Appending, rolling, reopening, reading: against a vector as the oracle, on both backends.

mod common;

use common::{append, clock, frame, open, padded, payload, read, small};
use proptest::prelude::*;
use proptest::strategy::Strategy as _;
use ticktape_core::Seq;
use ticktape_journal::{
    Binding, Disk, FileDisk, Journal, JournalConfig, JournalError, JournalReader, NativeDisk, Strategy,
};

fn several_segments_on<D: Disk>(disk: impl Fn() -> D, config: &JournalConfig, dir: &std::path::Path) {
    let mut written = Vec::new();
    for round in 0..3u64 {
        let (mut journal, recovered) = Journal::open(disk(), dir, config.clone()).unwrap();
        assert_eq!(recovered.next_seq, Seq(written.len() as u64 + 1));
        assert_eq!((recovered.first_seq, recovered.cut), (Seq(1), None));
        assert_eq!(recovered.last_epoch, round);
        journal.set_epoch(round + 1);
        let mut now = clock();
        for i in 0..300 {
            written.push(append(&mut journal, &payload(written.len() as u64 + 1)));
            if i % 7 == 0 {
                journal.poll(now());
                journal.housekeeping(now());
            }
        }
        journal.sync_blocking(&mut now).unwrap();
        assert_eq!(journal.durable(), Seq(written.len() as u64));
        assert!(journal.stats().segments > 1, "{:?}", journal.stats());
        journal.close().unwrap();
    }
    assert_eq!(read(dir, 1).unwrap(), written);
    assert_eq!(read(dir, 555).unwrap(), written[554..]);
    assert_eq!(read(dir, 901).unwrap(), Vec::<Vec<u8>>::new());
    let names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().all(|name| name.ends_with(".seg") || name == "lock" || name == "sealed"), "{names:?}");
}

#[test]
fn several_segments_over_several_openings_read_back_on_plain_files() {
    let dir = tempfile::tempdir().unwrap();
    several_segments_on(FileDisk::new, &small(), dir.path());
}

#[test]
fn and_on_the_native_disk_with_each_strategy() {
    let bindings = [Binding::AnyThread, Binding::OneThread];
    for (binding, strategy) in bindings.into_iter().cycle().zip(Strategy::ALL) {
        let dir = tempfile::tempdir().unwrap();
        println!("{}", NativeDisk::new(dir.path(), binding).describe());
        let config = JournalConfig { strategy: strategy.into(), ..small() };
        several_segments_on(|| NativeDisk::new(dir.path(), binding), &config, dir.path());
    }
}

#[test]
fn a_one_thread_disk_moves_to_the_thread_that_runs_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(NativeDisk::new(dir.path(), Binding::OneThread), dir.path(), small()).unwrap();
    let written = std::thread::spawn(move || {
        let written: Vec<_> = (1..=50).map(|seq| append(&mut journal, &payload(seq))).collect();
        journal.sync_blocking(clock()).unwrap();
        journal.close().unwrap();
        written
    });
    assert_eq!(written.join().unwrap(), read(dir.path(), 1).unwrap());
}

#[test]
fn a_reader_follows_the_writer_up_to_what_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(NativeDisk::new(dir.path(), Binding::AnyThread), dir.path(), small()).unwrap();
    let mut reader = JournalReader::open(dir.path(), Seq(1)).unwrap();
    reader.set_durable(Seq(0));
    assert_eq!(reader.next().unwrap(), None);
    let mut now = clock();
    for round in 0..200u64 {
        for _ in 0..=round % 5 {
            let expected = append(&mut journal, &payload(round));
            assert_eq!(reader.next().unwrap(), None, "not durable yet");
            journal.sync_blocking(&mut now).unwrap();
            journal.housekeeping(now());
            reader.set_durable(journal.durable());
            assert_eq!(reader.next().unwrap(), Some(&expected[..]));
        }
    }
    assert!(journal.stats().segments > 3);
    assert_eq!(reader.next_seq(), journal.durable().next());
}

#[test]
fn a_reader_that_is_told_a_lower_mark_stops_within_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    let written: Vec<_> = (1..=9).map(|seq| append(&mut journal, &payload(seq))).collect();
    journal.sync_blocking(clock()).unwrap();
    assert_eq!(journal.stats().commits, 1);
    let mut reader = JournalReader::open(dir.path(), Seq(3)).unwrap();
    reader.set_durable(Seq(4));
    assert_eq!(reader.next().unwrap(), Some(&written[2][..]));
    assert_eq!(reader.next_run().unwrap().unwrap().collect::<Vec<_>>(), [&written[3][..]]);
    assert!(reader.next_run().unwrap().is_none());
    reader.set_durable(Seq(9));
    assert_eq!(reader.next_run().unwrap().unwrap().collect::<Vec<_>>(), written[4..]);
    assert_eq!(reader.next().unwrap(), None);
}

#[test]
fn a_second_opener_is_refused_by_name_and_the_first_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    let error = open(dir.path(), small()).unwrap_err();
    assert_eq!(error, JournalError::InUse { dir: dir.path().to_owned() });
    append(&mut journal, b"on");
    journal.sync_blocking(clock()).unwrap();
    drop(journal);
    open(dir.path(), small()).unwrap();
}

#[test]
fn a_place_that_cannot_be_written_or_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let error = open(&file.join("journal"), small()).unwrap_err().to_string();
    assert!(error.contains("file/journal") && error.contains("a directory is needed"), "{error}");
    let missing = dir.path().join("missing");
    let error = JournalReader::open(&missing, Seq(1)).unwrap_err().to_string();
    assert!(error.contains("missing") && error.contains("right path"), "{error}");
    let error = JournalReader::open(dir.path(), Seq(1)).unwrap_err();
    assert_eq!(error, JournalError::Empty { dir: dir.path().to_owned() });
    // Linux offers a file system that no one can write to, not even root.
    let error = open(std::path::Path::new("/proc/1/journal"), small()).unwrap_err().to_string();
    assert!(error.contains("/proc/1/journal"), "{error}");
}

#[test]
fn a_frame_larger_than_any_commit_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    let max = small().frame_bytes_max();
    assert!(journal.room(max));
    assert!(!journal.room(max + 8));
    assert_eq!(journal.starved(), Some(&JournalError::FrameTooLarge { bytes: max + 8, max }));
    let largest = vec![7; max - frame(1, b"").len()];
    let written = append(&mut journal, &largest);
    assert_eq!(journal.starved(), None);
    assert_eq!(padded(1, &largest).len(), max);
    journal.close().unwrap();
    assert_eq!(read(dir.path(), 1).unwrap(), [written]);
}

#[test]
fn opening_without_appending_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let (journal, _) = open(dir.path(), small()).unwrap();
        journal.close().unwrap();
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "only the lock");
    assert_eq!(read(dir.path(), 1).unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn one_small_input_costs_a_few_kilobytes() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) =
        Journal::open(NativeDisk::new(dir.path(), Binding::AnyThread), dir.path(), JournalConfig::default()).unwrap();
    append(&mut journal, b"add 5");
    journal.close().unwrap();
    let bytes: u64 = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes <= 20 << 10, "{bytes} bytes");
}

#[test]
fn a_quiet_log_is_sealed_once() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    append(&mut journal, b"x");
    journal.sync_blocking(|| 100).unwrap();
    assert_eq!(journal.stats().seals, 0);
    journal.poll(100 + small().seal_delay_ns - 1);
    assert_eq!(journal.stats().seals, 0);
    for _ in 0..5 {
        journal.poll(100 + small().seal_delay_ns);
    }
    assert_eq!(journal.stats().seals, 1);
    assert!(!journal.busy());
}

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<u8>),
    Poll,
    Housekeeping,
    Sync,
    Epoch,
    Reopen { cleanly: bool },
}

fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => proptest::collection::vec(any::<u8>(), 0..1500).prop_map(Step::Append),
        3 => Just(Step::Poll),
        2 => Just(Step::Housekeeping),
        1 => Just(Step::Sync),
        1 => Just(Step::Epoch),
        1 => any::<bool>().prop_map(|cleanly| Step::Reopen { cleanly }),
    ];
    proptest::collection::vec(step, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_done_the_journal_is_the_vector(steps in steps(), strategy in 0usize..3) {
        let dir = tempfile::tempdir().unwrap();
        let config = JournalConfig { strategy: Strategy::ALL[strategy].into(), ..small() };
        let (mut journal, _) = open(dir.path(), config.clone()).unwrap();
        let mut oracle: Vec<Vec<u8>> = Vec::new();
        let (mut now, mut epoch) = (clock(), 0);
        for step in steps {
            match step {
                Step::Append(payload) => oracle.push(append(&mut journal, &payload)),
                Step::Poll => { journal.poll(now()); }
                Step::Housekeeping => { journal.housekeeping(now()); }
                Step::Sync => journal.sync_blocking(&mut now).unwrap(),
                Step::Epoch => { epoch += 1; journal.set_epoch(epoch); }
                Step::Reopen { cleanly } => {
                    let durable = journal.durable().0 as usize;
                    if cleanly { journal.close().unwrap() } else { drop(journal) }
                    let (again, recovered) = open(dir.path(), config.clone()).unwrap();
                    journal = again;
                    let survived = recovered.next_seq.0 as usize - 1;
                    prop_assert!(survived >= durable && survived <= oracle.len());
                    prop_assert!(!cleanly || survived == oracle.len());
                    oracle.truncate(survived);
                    prop_assert_eq!(journal.appended(), journal.durable());
                }
            }
        }
        journal.close().unwrap();
        prop_assert_eq!(read(dir.path(), 1).unwrap(), oracle);
    }
}
