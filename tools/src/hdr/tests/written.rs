//! What is written, and what comes back.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;

/// Spread like latencies: most near 10 µs, a few far out.
fn spread(seed: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |i| {
        let mixed = (i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        8_000 + mixed % 4_000 + if i % 997 == 0 { mixed * 37 } else { 0 }
    })
}

#[test]
fn a_log_comes_back_as_it_was_written() {
    let written =
        [histogram(spread(1, 5_000)), histogram([]), histogram(spread(2, 7_000)), histogram([60_000_000_000])];
    let text = log(&written);
    let mut reader = LogReader::new(text.as_slice());
    for (second, histogram) in written.iter().enumerate() {
        let interval = reader.next_interval().unwrap().unwrap();
        assert_eq!(interval.histogram, *histogram);
        assert_eq!((interval.start, interval.length), (Duration::from_secs(second as u64), Duration::from_secs(1)));
        assert_eq!(interval.start_unix, Duration::from_millis(1_700_000_000_250) + Duration::from_secs(second as u64));
        assert_eq!(interval.tag, None);
    }
    assert!(reader.next_interval().unwrap().is_none());

    let summary = LogSummary::read(text.as_slice()).unwrap();
    assert_eq!(summary.start_time, Some(Duration::from_millis(1_700_000_000_250)));
    let mut total = histogram([]);
    written.iter().for_each(|histogram| total.add(histogram).unwrap());
    assert_eq!(summary.totals[&None], total);
    assert_eq!(hgrm(&summary.totals[&None]), hgrm(&total));
    assert_eq!(summary.rows.iter().map(|row| row.latency.count).collect::<Vec<_>>(), [5_000, 0, 7_000, 1]);
}

#[test]
fn a_percentile_table_ends_with_all_values() {
    let steps = percentile_steps(&histogram(spread(3, 10_000)));
    assert_eq!((steps[0].percent, steps.last().unwrap().percent), (0.0, 100.0));
    assert_eq!(steps.last().unwrap().count, 10_000);
    assert!(steps.windows(2).all(|pair| pair[0].percent < pair[1].percent && pair[0].value <= pair[1].value));
    for step in &steps[..steps.len() - 1] {
        assert!(step.count as f64 / 100.0 >= step.percent, "{step:?}");
    }
    assert!(percentile_steps(&histogram([])).is_empty());
    let one = percentile_steps(&histogram([42]));
    assert_eq!(one.iter().map(|step| (step.percent, step.value)).collect::<Vec<_>>(), [(0.0, 42), (100.0, 42)]);
}

#[test]
fn counts_too_large_for_a_percentage_still_end() {
    let mut lopsided = histogram([500]);
    lopsided.record_n(1, 1 << 62).unwrap();
    let steps = percentile_steps(&lopsided);
    assert!((10..1_000).contains(&steps.len()), "{}", steps.len());
    assert_eq!(steps.last(), Some(&Step { percent: 100.0, value: 500, count: (1 << 62) + 1 }));
}

/// A Python that has the package: one that is named, or the system's.
fn python() -> Option<std::path::PathBuf> {
    let named = std::env::var_os("TICKTAPE_HDR_PYTHON").map(std::path::PathBuf::from);
    let python = named.unwrap_or_else(|| "python3".into());
    let found = Command::new(&python).args(["-c", "import hdrh"]).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success()).then_some(python)
}

/// Reads a log and prints the table of all of it, and a line with each interval's count and longest.
const SCRIPT: &str = r#"
import sys
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
total = HdrHistogram(1, 60 * 1000 * 1000 * 1000, 3)
reader = HistogramLogReader(sys.argv[1], total)
while True:
    interval = reader.get_next_interval_histogram()
    if interval is None:
        break
    print("interval %d %d %d" % (round(interval.get_start_time_stamp()), interval.get_total_count(), interval.get_max_value()))
    total.add(interval)
sys.stdout.flush()
total.output_percentile_distribution(sys.stdout.buffer, 1.0)
"#;

fn read_by_python(python: &Path, log: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("latency.hlog");
    std::fs::write(&file, log).unwrap();
    let output = Command::new(python).args(["-c", SCRIPT]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_python_implementation_reads_the_same_and_prints_the_same_table() {
    let Some(python) = python() else {
        eprintln!("SKIPPED: no python3 with the package hdrhistogram (TICKTAPE_HDR_PYTHON may name one)");
        return;
    };
    let runs = [
        vec![histogram(spread(4, 20_000)), histogram(spread(5, 1)), histogram(spread(6, 3_000))],
        vec![histogram([7])],
        vec![histogram((1..2_100).chain([59_999_999_999]))],
    ];
    for histograms in runs {
        let (mut total, mut expected) = (histogram([]), String::new());
        for (second, histogram) in histograms.iter().enumerate() {
            total.add(histogram).unwrap();
            let at = 1_700_000_000_250 + second * 1_000;
            writeln!(expected, "interval {at} {} {}", histogram.len(), histogram.max()).unwrap();
        }
        expected += &hgrm(&total);
        assert_eq!(read_by_python(&python, &log(&histograms)), expected);
    }
}
