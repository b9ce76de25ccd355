//! The log ring: hops and throughput between two cores, and followers in other processes.

mod burst;
mod follow;
mod hop;
mod stopped;

use ticktape_core::frame::{self, Kind};
use ticktape_core::{Seq, Timestamp};
use ticktape_tuning::pin::pin_current_thread;

use super::Outcome;
use crate::args::Options;
use crate::hop::Cores;

pub use follow::{CHILD, child};

const SUITE: &str = "ring";
/// Frames, events and slots that hop are all of this size: one cache line.
const MESSAGE_BYTES: usize = 64;

type Message = [u8; MESSAGE_BYTES];

/// A sealed frame of `BYTES` bytes.
fn sealed<const BYTES: usize>(seq: u64) -> [u8; BYTES] {
    let mut out = [7; BYTES];
    frame::seal(&mut out, Seq(seq), Timestamp(seq), 0, Kind::Input, BYTES - frame::OVERHEAD_BYTES);
    out
}

/// Sealed frames from 1 on, so that no contestant's time holds the sealing.
fn all_sealed(count: usize) -> Vec<Message> {
    (1..=count as u64).map(sealed).collect()
}

/// Keeps the calling thread on `core`; measures wherever it is where that fails, as the table's hop will show.
fn pin(core: usize) {
    let _ = pin_current_thread(core);
}

/// Runs the suite.
///
/// # Errors
/// What it could not do without, in one line.
pub fn run(options: &Options) -> Result<Outcome, String> {
    let Some(cores) = Cores::pair() else {
        let notes = vec!["skipped: every row needs two cores, and this process may use one".to_owned()];
        return Ok(Outcome { notes, ..Outcome::default() });
    };
    let mut outcome = hop::run(options, cores);
    outcome.append(burst::run(options, cores));
    outcome.append(follow::run(options, cores)?);
    outcome.append(stopped::run(options, cores)?);
    Ok(outcome)
}
