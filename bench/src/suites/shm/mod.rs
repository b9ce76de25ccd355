//! Followers: readers that the writer does not wait for, in other processes, over a memfd and over a named file.

mod attach;
mod hop;
mod other;
mod overrun;
#[cfg(feature = "iceoryx2")]
mod peer;
mod place;
mod rate;
mod stopped;

use super::Outcome;
use crate::args::Options;
use crate::hop::Cores;

pub use other::{CHILD, child};

const SUITE: &str = "shm";

type Measured<T> = Result<T, String>;

fn all<T>(results: Vec<Vec<Measured<T>>>) -> Measured<Vec<Vec<T>>> {
    results.into_iter().map(|rounds| rounds.into_iter().collect()).collect()
}

/// Runs the suite.
///
/// # Errors
/// What it could not do without, in one line.
pub fn run(options: &Options) -> Measured<Outcome> {
    let mut outcome = attach::rows(options)?;
    let Some(cores) = Cores::pair() else {
        let why = "hops, rates, overruns: skipped, they need two cores and this process may use one";
        outcome.notes.push(why.to_owned());
        return Ok(outcome);
    };
    outcome.append(overrun::rows(options, cores)?);
    outcome.append(rate::rows(options, cores)?);
    outcome.append(hop::rows(options, cores)?);
    outcome.append(stopped::rows(options, cores)?);
    Ok(outcome)
}
