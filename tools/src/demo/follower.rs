//! The demo's follower process: maps the ring read-only and runs its own order book.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use ticktape::Seq;
use ticktape::tail::{Tail, TailError};
use ticktape_shm::Horizon;
use ticktape_tuning::pin;

use super::child::tell;
use crate::Failure;
use crate::args::DemoFollowerArgs;
use crate::service::{AnyService, find};

/// Frames taken in one drain.
const BATCH: usize = 512;

/// The wait when there is nothing new. Three processes share the cores of a small box, and a follower that spins would take
/// them from those it follows.
const PAUSE: Duration = Duration::from_micros(200);

/// How far the follower stands back: the weight of a tenth beside the appliance's threads.
const NICENESS: i32 = 10;

/// Empty drains between two looks after the writer.
const DRAINS_PER_LOOK: u32 = 50;

/// The first line: it stands on the ring.
#[derive(Debug, Serialize, Deserialize)]
pub struct Attached {
    pub seq: u64,
}

/// The last line: the log has ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct Followed {
    pub seq: u64,
    pub digest: String,
    pub overruns: u64,
}

pub fn run(args: &DemoFollowerArgs, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    let service = find(services, Some("orderbook"))?;
    let _ = super::interrupt_flag()?;
    // It shares the cores of those it follows: catching up must not take them away. Refused, it costs them some latency.
    let _ = pin::be_nice(NICENESS);
    let mut tail = Tail::open(&args.journal, &args.ring_dir, &args.ring, Seq::FIRST, Horizon::Committed)
        .map_err(Failure::usage)?;
    tell(&Attached { seq: tail.next_seq().0 })?;
    let mut replay = service.replay();
    let mut idle = 0_u32;
    loop {
        let mut failure = None;
        let drained = tail.drain(BATCH, |frame| {
            if failure.is_none() {
                failure = replay.apply(frame).err();
            }
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        match drained {
            Ok(0) => {
                idle += 1;
                if idle.is_multiple_of(DRAINS_PER_LOOK) {
                    tail.check_writer();
                }
                std::thread::sleep(PAUSE);
            }
            Ok(_) => idle = 0,
            Err(TailError::Ended) => break,
            Err(error) => return Err(Failure::failed(error)),
        }
    }
    let overruns = tail.overruns();
    let outcome = replay.finish();
    tell(&Followed { seq: outcome.seq.0, digest: outcome.digest, overruns })
}
