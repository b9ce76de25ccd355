//! Writers and readers of metrics, and files that are none.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use ticktape_core::Seq;

use super::layout::{ENTRIES, ENTRY_BYTES, ENTRY_KIND, ENTRY_OFFSET, FILE_BYTES, TABLE, VERSION};
use super::{
    FollowerMetrics, FollowerStanding, Kind, LatencyRecorder, Metrics, MetricsError, MetricsReader, Misfit, list,
};
use crate::{RingBuilder, RingConfig, RingError};

fn counting(metrics: &mut Metrics) -> (LatencyRecorder, super::Figures) {
    let latency = metrics.histogram("durable").unwrap();
    let figures = metrics.figures("journaler", [("commits", Kind::Counter), ("free_bytes", Kind::Level)]).unwrap();
    (latency, figures)
}

#[test]
fn what_writers_set_is_what_a_reader_in_another_map_sees() {
    let dir = tempfile::tempdir().unwrap();
    let mut metrics = Metrics::named(dir.path(), "lab", "bank", 7).unwrap();
    let (mut latency, mut figures) = counting(&mut metrics);
    let nobody = MetricsReader::open(dir.path(), "lab").err().unwrap();
    assert!(matches!(nobody, MetricsError::NotFound { .. }), "it has no name before it is complete");
    metrics.publish().unwrap();
    let reader = MetricsReader::open(dir.path(), "lab").unwrap();
    for ns in [80, 80, 5_000, u64::MAX] {
        latency.record(ns);
    }
    figures.set(0, 3);
    figures.set(1, 99);
    let mut late = metrics.figures("egress", [("released", Kind::Counter)]).unwrap();
    late.set(0, 5);

    let reading = reader.read();
    assert_eq!((reading.label.as_str(), reading.epoch, reading.pid), ("bank", 7, u64::from(std::process::id())));
    assert_eq!(reading.word("journaler.commits"), Some(3));
    assert_eq!(reading.word("egress.released"), Some(5), "added later");
    assert_eq!(reading.words[1], ("journaler.free_bytes".to_string(), Kind::Level, 99));
    let [durable] = &reading.histograms[..] else { panic!("{} histograms", reading.histograms.len()) };
    let (minute, counted) = (60_000_000_000, durable.counts().collect::<Vec<_>>());
    assert_eq!((durable.max, &counted[..2]), (minute, &[(80, 2), (4_998 + 2, 1)][..]));
    assert!(counted[2].0 <= minute && counted[2].1 == 1);
    assert!(durable.counts().eq(latency.read().counts()));
    latency.record(5_000);
    let since = reader.read().histograms[0].since(durable);
    assert_eq!(since.counts().collect::<Vec<_>>(), [(5_000, 1)]);
    assert!((5_000..5_010).contains(&since.max), "{}", since.max);
}

#[test]
fn a_name_has_one_writer_and_is_free_when_that_has_gone() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(list(dir.path()).unwrap(), []);
    let mut metrics = Metrics::named(dir.path(), "lab", "bank", 1).unwrap();
    let taken = Metrics::named(dir.path(), "lab", "bank", 1).err().unwrap();
    assert!(matches!(taken, MetricsError::Place(RingError::InUse { .. })), "{taken}");
    metrics.publish().unwrap();
    let reader = MetricsReader::open(dir.path(), "lab").unwrap();
    assert!(reader.is_live());
    assert_eq!(list(dir.path()).unwrap(), [("lab".to_string(), true)]);
    drop(metrics);
    assert!(!reader.is_live());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    assert_eq!(reader.read().label, "bank", "what is mapped stays");
    Metrics::named(dir.path(), "lab", "kv", 2).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nor of one that never had its name");
}

#[test]
fn there_is_room_for_so_many_and_no_more() {
    let mut metrics = Metrics::heap("bank", 1).unwrap();
    let made = (0..100).take_while(|index| metrics.histogram(&format!("stage {index}")).is_ok()).count();
    assert!((16..100).contains(&made), "{made} histograms");
    let names: Vec<String> = (0..2_000).map(|index| format!("{index}")).collect();
    let many = metrics.figures("a", names.iter().map(|name| (name.as_str(), Kind::Counter)));
    assert!(matches!(many, Err(MetricsError::NoRoom { .. })));
    let long = "n".repeat(60);
    assert!(metrics.figures("b", [(long.as_str(), Kind::Counter)]).is_err());
    assert_eq!(metrics.reader().read().histograms.len(), made, "what was refused has left nothing");
}

#[test]
fn who_goes_on_for_a_writer_writes_the_same_words() {
    let mut metrics = Metrics::heap_of_figures("bank", 1).unwrap();
    let figures = [("seq", Kind::Level), ("frames", Kind::Counter)];
    metrics.figures("intake", figures).unwrap().set(1, 7);
    let mut again = metrics.figures("intake", figures).unwrap();
    again.set(0, 9);
    let reading = metrics.reader().read();
    assert_eq!((reading.words.len(), reading.word("intake.seq"), reading.word("intake.frames")), (2, Some(9), Some(7)));
    let fewer = metrics.figures("intake", [("seq", Kind::Level)]);
    assert!(matches!(fewer, Err(MetricsError::NoRoom { name }) if name == "intake"));
    assert!(metrics.histogram("durable").is_err(), "there is room for figures alone");
}

#[test]
fn followers_are_told_apart_and_one_that_has_gone_leaves_its_name_to_the_next() {
    let (dir, config) = (tempfile::tempdir().unwrap(), RingConfig::default());
    let [ring, other] =
        ["log", "other"].map(|name| RingBuilder::new(config).named(dir.path(), name).build(Seq::FIRST).unwrap());
    let mut followers: Vec<_> = (0..3).map(|_| FollowerMetrics::numbered(dir.path(), "log").unwrap()).collect();
    let standing = |seq| FollowerStanding { seq, overruns: 1, frames_lost: 2 * seq };
    followers[1].show(ring.tap.header(), standing(5));
    followers[2].show(other.tap.header(), standing(6));
    let read = |number: u32| MetricsReader::open(dir.path(), &format!("log-follower-{number}")).unwrap().read();
    assert_eq!((read(2).follower(), read(2).label.as_str()), (Some(standing(5)), "log"));
    assert_eq!(read(2).ring_created_ns(), Some(ring.tap.header().created_ns));
    assert_ne!(read(3).ring_created_ns(), read(2).ring_created_ns());
    assert_eq!(read(1).ring_created_ns(), None, "it has said nothing yet");

    // As a kill leaves it: the file is there, and nobody has its lock.
    let (file, lock) = (dir.path().join("log-follower-2.metrics"), dir.path().join("log-follower-2.metrics.lock"));
    let left = fs::read(&file).unwrap();
    drop(followers.remove(1));
    fs::write(&file, left).unwrap();
    fs::write(&lock, []).unwrap();
    let live = || list(dir.path()).unwrap().into_iter().filter(|(_, is_live)| *is_live).map(|(name, _)| name);
    assert!(live().eq(["log-follower-1", "log-follower-3"]));
    followers.push(FollowerMetrics::numbered(dir.path(), "log").unwrap());
    assert!(live().eq(["log-follower-1", "log-follower-2", "log-follower-3"]));
    assert_eq!(read(2).follower(), Some(FollowerStanding::default()));
    assert_eq!(Metrics::heap("bank", 1).unwrap().reader().read().follower(), None);
}

/// A file of metrics whose bytes were changed.
fn opened(dir: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Result<MetricsReader, MetricsError> {
    let mut metrics = Metrics::named(dir, "lab", "bank", 1).unwrap();
    let _writers = counting(&mut metrics);
    metrics.publish().unwrap();
    let mut bytes = fs::read(dir.join("lab.metrics")).unwrap();
    drop(metrics);
    change(&mut bytes);
    fs::write(dir.join("other.metrics"), bytes).unwrap();
    MetricsReader::open(dir, "other")
}

#[test]
fn each_misfit_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let misfit = |change: &dyn Fn(&mut Vec<u8>)| match opened(dir.path(), change) {
        Err(MetricsError::Misfit { why, .. }) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was believed"),
    };
    let set =
        |at: usize, value: u64| move |bytes: &mut Vec<u8>| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    assert!(opened(dir.path(), |_| ()).is_ok());
    assert_eq!(misfit(&|bytes| bytes.truncate(255)), Misfit::Size { bytes: 255 });
    assert_eq!(misfit(&set(0, 1)), Misfit::Magic);
    assert_eq!(misfit(&set(VERSION, 2)), Misfit::Version { version: 2 });
    assert_eq!(misfit(&|bytes| bytes.truncate(8192)), Misfit::FileBytes { said: metrics_bytes() });
    assert_eq!(misfit(&set(ENTRIES, 1 << 40)), Misfit::Entries { said: 1 << 40 });
    assert_eq!(misfit(&set(TABLE + ENTRY_KIND, 9)), Misfit::Entry { index: 0 });
    assert_eq!(misfit(&set(TABLE + ENTRY_BYTES + ENTRY_OFFSET, u64::MAX - 7)), Misfit::Entry { index: 1 });
    assert_eq!(misfit(&set(TABLE + ENTRY_BYTES + ENTRY_OFFSET, 12)), Misfit::Entry { index: 1 });
    assert_eq!(misfit(&set(TABLE, 0xffff)), Misfit::Entry { index: 0 }, "no text");
    let away = MetricsReader::open(dir.path(), "../lab").err().unwrap();
    assert!(matches!(away, MetricsError::Place(RingError::Name(_))));
}

fn metrics_bytes() -> u64 {
    let metrics = Metrics::heap("bank", 1).unwrap();
    metrics.words.at(FILE_BYTES).load(crate::sync::Ordering::Relaxed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn damage_anywhere_before_the_values_is_read_or_named(
        at in 0..TABLE + 4 * ENTRY_BYTES, noise in prop::collection::vec(any::<u8>(), 1..40)
    ) {
        let dir = tempfile::tempdir().unwrap();
        if let Ok(reader) = opened(dir.path(), |bytes| bytes[at..at + noise.len()].copy_from_slice(&noise)) {
            reader.read();
        }
    }
}
