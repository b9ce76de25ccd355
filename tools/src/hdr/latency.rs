//! What a table shows of a histogram.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Percentiles of a latency, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Half are at or below it.
    pub p50_ns: u64,
    /// Nine of ten.
    pub p90_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1000.
    pub p999_ns: u64,
    /// 9999 of 10 000.
    pub p9999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// How many there are.
    pub count: u64,
}

impl Latency {
    /// The percentiles of a histogram of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        Latency {
            p50_ns: histogram.value_at_quantile(0.5),
            p90_ns: histogram.value_at_quantile(0.9),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            p9999_ns: histogram.value_at_quantile(0.9999),
            max_ns: histogram.max(),
            count: histogram.len(),
        }
    }
}
