//! A run's curves.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use hdrhistogram::Histogram;

use super::out_dir::LATENCY_HLOG;
use super::summary::Summary;
use crate::Failure;
use crate::hdr::{LogSummary, Row, percentile_steps};
use crate::plots::{Moment, Plot, RatePoint};

/// Beyond these a file's numbers are nonsense, and no axis could show them.
const SECONDS_MAX: f64 = 1e9;
const RATE_MAX: f64 = 1e12;

/// Intervals over time; those without an answer have no latency to show.
pub fn timeline<'a>(rows: impl Iterator<Item = &'a Row>) -> Plot {
    let moment = |row: &Row| Moment {
        at_s: row.start.as_secs_f64().min(SECONDS_MAX),
        p50_ns: row.latency.p50_ns,
        p99_ns: row.latency.p99_ns,
        p999_ns: row.latency.p999_ns,
        max_ns: row.latency.max_ns,
    };
    Plot::Timeline(rows.filter(|row| row.latency.count > 0).map(moment).collect())
}

/// Parts by the rate that they reached.
pub fn sweep(summary: &Summary) -> Plot {
    let point = |part: &super::summary::PartSummary| RatePoint {
        per_second: part.rate_reached,
        p50_ns: part.latency.p50_ns,
        p999_ns: part.latency.p999_ns,
        max_ns: part.latency.max_ns,
    };
    let points = summary.parts.iter().map(point).filter(|point| (0.0..=RATE_MAX).contains(&point.per_second));
    Plot::Sweep(points.collect())
}

/// Draws what is in a run's directory, into it.
///
/// # Errors
/// The disk's, or the library's.
pub fn write(dir: &Path, summary: &Summary, latency: &Histogram<u64>, jitter: &Histogram<u64>) -> Result<(), Failure> {
    let path = dir.join(LATENCY_HLOG);
    let named = |error: &dyn std::fmt::Display| Failure::failed(format!("{}: {error}", path.display()));
    let file = File::open(&path).map_err(|error| named(&error))?;
    let log = LogSummary::read(BufReader::new(file)).map_err(|error| named(&error))?;
    let curves = [("answer", latency), ("jitter", jitter)];
    let curves = curves.map(|(name, histogram)| (name.to_string(), percentile_steps(histogram)));
    let mut plots = vec![("percentiles", Plot::Percentiles(curves.into())), ("timeline", timeline(log.rows.iter()))];
    if summary.parts.len() > 1 {
        plots.push(("sweep", sweep(summary)));
    }
    for (name, plot) in plots {
        let (svg, png) = (plot.svg().map_err(Failure::failed)?, plot.png().map_err(Failure::failed)?);
        for (extension, bytes) in [("svg", svg.as_bytes()), ("png", &png)] {
            let path = dir.join(format!("{name}.{extension}"));
            fs::write(&path, bytes).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        }
    }
    Ok(())
}
