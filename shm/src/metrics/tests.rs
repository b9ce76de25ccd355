//! Writers and readers of metrics, and files that are none.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::layout::{ENTRIES, ENTRY_BYTES, ENTRY_KIND, ENTRY_OFFSET, FILE_BYTES, TABLE, VERSION};
use super::{Kind, LatencyRecorder, Metrics, MetricsError, MetricsReader, Misfit, list};
use crate::RingError;

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
