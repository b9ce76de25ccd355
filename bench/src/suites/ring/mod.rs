//! The log ring: hops and throughput between two cores.

mod burst;
pub(super) mod hop;
#[cfg(feature = "peers")]
mod queues;

use ticktape_core::frame::{self, Kind};
use ticktape_core::{Seq, Timestamp};
use ticktape_tuning::pin::pin_current_thread;

use super::Outcome;
use crate::args::Options;
use crate::hop::Cores;

const SUITE: &str = "ring";
/// Peers that are queues, by name.
const RTRB: &str = "rtrb";
const CHANNEL: &str = "crossbeam-channel";
/// Frames, events and slots that hop are all of this size: one cache line.
pub(super) const MESSAGE_BYTES: usize = 64;

pub(super) type Message = [u8; MESSAGE_BYTES];

/// A sealed frame of `BYTES` bytes.
pub(super) fn sealed<const BYTES: usize>(seq: u64) -> [u8; BYTES] {
    let mut out = [7; BYTES];
    frame::seal(&mut out, Seq(seq), Timestamp(seq), 0, Kind::Input, BYTES - frame::OVERHEAD_BYTES);
    out
}

/// Sealed frames from 1 on, so that no contestant's time holds the sealing.
pub(super) fn all_sealed(count: usize) -> Vec<Message> {
    (1..=count as u64).map(sealed).collect()
}

/// Keeps the calling thread on `core`; measures wherever it is where that fails, as the table's hop will show.
pub(super) fn pin(core: usize) {
    let _ = pin_current_thread(core);
}

/// Runs the suite.
pub fn run(options: &Options) -> Outcome {
    let Some(cores) = Cores::pair() else {
        let notes = vec!["skipped: every row needs two cores, and this process may use one".to_owned()];
        return Outcome { notes, ..Outcome::default() };
    };
    let mut outcome = hop::run(options, cores);
    outcome.append(burst::run(options, cores));
    outcome
}
