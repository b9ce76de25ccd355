//! Coming back: reading the log, seeking in it, and taking the snapshots that spare it.

mod ballast;
mod read;
mod stall;

use super::Outcome;
use crate::args::Options;

const SUITE: &str = "recover";

type Measured<T> = Result<T, String>;

/// Runs the suite.
///
/// # Errors
/// What it could not do without, in one line.
pub fn run(options: &Options) -> Result<Outcome, String> {
    let mut outcome = read::rows(options)?;
    outcome.append(stall::rows(options)?);
    Ok(outcome)
}
