//! The journal: a durable append beside bare durable writes of the same bytes, saturated, beside a spinning core, and over
//! rolls. What calibration picks for the state of the box that a row is about is what runs.

mod busy;
mod one;
mod rolls;
mod saturated;
mod subject;

use std::path::Path;

use ticktape_journal::format::commit;
use ticktape_journal::{Calibration, CalibrationPlan, JournalConfig, calibrate};

use super::Outcome;
use crate::args::Options;
use crate::latency::{Latency, Stopwatch};
use crate::raw_disk::Way;
use crate::rounds::Rounds;
use subject::{BATCH, FRAME_BYTES, Subject};

const SUITE: &str = "journal";
/// Appends in a row before the next contestant's: the disk's mood changes within a round, and what one leaves to the file
/// system's own journal slows the first syncs after it.
const IN_A_ROW: usize = 50;
/// What one batch makes the journal write, where blocks have 512 bytes.
const APPEND_BYTES: usize = commit::total_bytes(BATCH * FRAME_BYTES, 512);
/// The journal's segment, zero-filled at the start, as an appliance's is.
const SEGMENT_BYTES: usize = 32 << 20;

/// Runs the suite.
///
/// # Errors
/// What it could not do without, in one line.
pub fn run(options: &Options) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let calm = measure(&options.dir, CalibrationPlan { spin: true, ..CalibrationPlan::default() })?;
    outcome.notes.push(format!("one at a time, over rolls: {} was picked, {calm}", calm.choice));
    outcome.append(one::rows(options, &calm)?);
    outcome.append(saturated::rows(options)?);
    outcome.append(busy::rows(options)?);
    outcome.append(rolls::rows(options, &calm)?);
    Ok(outcome)
}

fn measure(dir: &Path, plan: CalibrationPlan) -> Result<Calibration, String> {
    let dir = tempfile::tempdir_in(dir).map_err(|error| error.to_string())?;
    calibrate(dir.path(), &JournalConfig::default(), plan).map_err(|error| error.to_string())
}

/// Journals and bare writes in turn, `appends` of each: a latency of each journal, then of each way.
fn round(subjects: &mut [Subject], ways: &mut [Way], appends: usize) -> Result<Vec<Latency>, String> {
    let mut watches: Vec<Stopwatch> = (0..subjects.len() + ways.len()).map(|_| Stopwatch::new(appends)).collect();
    for _ in 0..appends / IN_A_ROW {
        let (ours, bare) = watches.split_at_mut(subjects.len());
        for (subject, watch) in subjects.iter_mut().zip(ours) {
            for _ in 0..IN_A_ROW {
                subject.prepare()?;
                watch.time(|| subject.append())?;
            }
        }
        for (way, watch) in ways.iter_mut().zip(bare) {
            (0..IN_A_ROW).try_for_each(|_| watch.time(|| (way.append)()))?;
        }
    }
    Ok(watches.into_iter().map(|watch| watch.finish(1.0)).collect())
}

/// One contestant's value in every round, in µs.
fn us(rounds: &[Vec<Latency>], at: usize, value: impl Fn(&Latency) -> f64) -> Rounds {
    rounds.iter().map(|round| value(&round[at]) / 1e3).collect()
}

/// Of these contestants, the one with the lowest median of this value.
fn fastest(
    rounds: &[Vec<Latency>],
    mut contestants: impl Iterator<Item = usize>,
    value: impl Fn(&Latency) -> f64,
) -> usize {
    let median = |at: usize| us(rounds, at, &value).median();
    contestants.by_ref().min_by(|&a, &b| median(a).total_cmp(&median(b))).expect("one way at least")
}

fn all(rounds: &[Vec<Latency>], at: usize) -> Vec<Latency> {
    rounds.iter().map(|round| round[at].clone()).collect()
}

fn p99(latency: &Latency) -> f64 {
    latency.quantile(0.99)
}
