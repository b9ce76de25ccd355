//! Logs and percentile tables: written and read back, of others, and damaged.

mod damage;
mod shared;
mod written;

use std::time::Duration;

use hdrhistogram::Histogram;

use super::*;

/// A log of one interval a histogram, one second each.
fn log(histograms: &[Histogram<u64>]) -> Vec<u8> {
    let mut writer = LogWriter::new(Vec::new(), "a test", Duration::from_millis(1_700_000_000_250)).unwrap();
    for (second, histogram) in histograms.iter().enumerate() {
        writer.interval(Duration::from_secs(second as u64), Duration::from_secs(1), histogram).unwrap();
    }
    writer.into_inner()
}

fn histogram(values: impl IntoIterator<Item = u64>) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap();
    values.into_iter().for_each(|value| histogram.record(value).unwrap());
    histogram
}

fn hgrm(histogram: &Histogram<u64>) -> String {
    let mut text = Vec::new();
    write_percentiles(histogram, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}
