//! Percentiles as text.

use std::io::{self, Write};

use hdrhistogram::Histogram;

/// Lines for each halving of what is left to 100 %.
const TICKS_PER_HALF_DISTANCE: f64 = 5.0;

/// One line of a percentile table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// In percent: so many of the values are at or below.
    pub percent: f64,
    /// The highest value that counts as this one.
    pub value: u64,
    /// Values up to it.
    pub count: u64,
}

impl Step {
    /// 1/(1-p), by which the axis of a percentile curve runs; infinite for the last.
    pub fn inverse(&self) -> f64 {
        1.0 / (1.0 - self.percent / 100.0)
    }
}

/// The lines of a percentile table, from 0 to 100 percent; none of an empty histogram.
///
/// The steps follow the distance that is left continuously, as the Python implementation's do; the Java one's halve in jumps, so the
/// same curve has its points elsewhere there.
pub fn percentile_steps(histogram: &Histogram<u64>) -> Vec<Step> {
    let total = histogram.len();
    let (mut steps, mut percent, mut count) = (Vec::new(), 0.0, 0_u64);
    for recorded in histogram.iter_recorded() {
        count = count.saturating_add(recorded.count_at_value());
        let value = histogram.highest_equivalent(recorded.value_iterated_to());
        if count >= total {
            steps.extend((percent < 100.0).then_some(Step { percent, value, count }));
            steps.push(Step { percent: 100.0, value, count });
            break;
        }
        let reached = 100.0 * count as f64 / total as f64;
        while reached >= percent && percent < 100.0 {
            steps.push(Step { percent, value, count });
            percent = next_percent(percent);
        }
    }
    steps
}

fn next_percent(percent: f64) -> f64 {
    let left = 100.0 - percent;
    let half_distance = 2.0_f64.powf((100.0 / left).ln() / 2.0_f64.ln() + 1.0);
    let next = percent + 100.0 / (TICKS_PER_HALF_DISTANCE * half_distance);
    // Closer than numbers can be told apart: there is nothing between it and the end.
    if next > percent { next } else { 100.0 }
}

/// Writes a percentile table with its footer. Values are as they were recorded.
///
/// # Errors
/// What `out` says.
pub fn write_percentiles(histogram: &Histogram<u64>, out: &mut impl Write) -> io::Result<()> {
    let digits = usize::from(histogram.sigfig());
    writeln!(out, "{:>12} {:>14} {:>10} {:>14}\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)")?;
    for step in percentile_steps(histogram) {
        write!(out, "{:12.digits$} {:2.12} {:10}", step.value as f64, step.percent / 100.0, step.count)?;
        if step.percent == 100.0 {
            writeln!(out)?;
        } else {
            writeln!(out, " {:14.2}", step.inverse())?;
        }
    }
    let (mean, deviation) = mean_and_deviation(histogram);
    let (max, total) = (histogram.max() as f64, histogram.len() as f64);
    writeln!(out, "#[Mean    = {mean:12.digits$}, StdDeviation   = {deviation:12.digits$}]")?;
    writeln!(out, "#[Max     = {max:12.digits$}, TotalCount     = {total:12.digits$}]")?;
    let sub_buckets = (2 * 10_u64.pow(histogram.sigfig().into())).next_power_of_two();
    writeln!(out, "#[Buckets = {:12}, SubBuckets     = {sub_buckets:12}]", histogram.buckets())
}

/// Each value taken as the middle of those that count as it.
fn mean_and_deviation(histogram: &Histogram<u64>) -> (f64, f64) {
    if histogram.is_empty() {
        return (0.0, 0.0);
    }
    let middles = || {
        let middle = |value| histogram.median_equivalent(value);
        histogram.iter_recorded().map(move |at| (middle(at.value_iterated_to()), at.count_at_value()))
    };
    let total = histogram.len() as f64;
    let sum = middles()
        .fold(0_u128, |sum, (middle, count)| sum.saturating_add(u128::from(middle).saturating_mul(count.into())));
    let mean = sum as f64 / total;
    let squares: f64 = middles().fold(0.0, |sum, (middle, count)| {
        let off = middle as f64 - mean;
        sum + off * off * count as f64
    });
    (mean, (squares / total).sqrt())
}
