//! Attaching: from the ring's name, or its descriptor, to the first frame.

use std::fs::File;
use std::path::Path;

use ticktape_alloc::shared::SharedWords;
use ticktape_core::Seq;
use ticktape_shm::RingConfig;

use super::place::{Place, Written, ring_dir};
use super::{Measured, SUITE, all};
use crate::args::Options;
use crate::latency::{Latency, Percentiles, Stopwatch};
use crate::rounds::{Contestant, Rounds, interleave};
use crate::row::Row;
use crate::suites::Outcome;
use crate::suites::ring::{MESSAGE_BYTES, sealed};

const RING: &str = "attach";
/// The default of an embedded ring, and of an appliance's.
const SIZES: [usize; 2] = [1 << 20, 4 << 20];
/// Attaches of a round.
const ATTACHES: usize = 300;
/// A stride through the ring's frames that meets every part of it.
const STRIDE: u64 = 2_654_435_761;

/// A ring that its writer has gone around three times.
fn full(place: Place, dir: &Path, bytes: usize) -> Measured<Written> {
    let mut ring = place.ring(dir, RING, RingConfig { capacity_bytes: bytes, ..RingConfig::default() })?;
    let mut frame = sealed::<MESSAGE_BYTES>(1);
    for seq in 1..=3 * (bytes / MESSAGE_BYTES) as u64 {
        frame[..8].copy_from_slice(&seq.to_le_bytes());
        ring.producer.push(&frame).map_err(|_| "a ring that nobody gates is full".to_owned())?;
        ring.producer.publish();
    }
    Ok(ring)
}

fn attach(place: Place, bytes: usize) -> Measured<Latency> {
    let dir = ring_dir()?;
    let ring = full(place, dir.path(), bytes)?;
    let newest = ring.producer.next_seq().0 - 1;
    // The older half of what is there may not be reachable any more.
    let reachable = (bytes / MESSAGE_BYTES / 2) as u64;
    let mut watch = Stopwatch::new(ATTACHES);
    for at in 0..ATTACHES as u64 {
        let from = Seq(newest - at * STRIDE % reachable);
        // Its end is not timed: dropped only after that.
        let _follower = watch.time(|| {
            let mut follower = place.follow(dir.path(), RING, from)?;
            let found = follower.poll().map_err(|error| error.to_string())?.is_some();
            if found { Ok(follower) } else { Err(format!("nothing at seq {from}, which is in the ring")) }
        })?;
    }
    Ok(watch.finish(1.0))
}

/// Opens and maps such a ring's file, and touches each page.
fn map(bytes: usize) -> Measured<Latency> {
    let fault = |error: std::io::Error| error.to_string();
    let dir = ring_dir()?;
    let _ring = full(Place::Named, dir.path(), bytes)?;
    let path = dir.path().join(format!("{RING}.ring"));
    let open = || File::options().read(true).write(true).open(&path);
    let mut watch = Stopwatch::new(ATTACHES);
    for _ in 0..ATTACHES {
        let _mapped = watch.time(|| SharedWords::map(&open()?, bytes / 8)).map_err(fault)?;
    }
    Ok(watch.finish(1.0))
}

/// The rows.
pub(super) fn rows(options: &Options) -> Measured<Outcome> {
    let mut outcome = Outcome::default();
    for bytes in SIZES {
        let mut contestants: Vec<Contestant<'_, Measured<Latency>>> = vec![
            Box::new(move || attach(Place::Named, bytes)),
            Box::new(move || attach(Place::Memfd, bytes)),
            Box::new(move || map(bytes)),
        ];
        let results = all(interleave(options.rounds, &mut contestants))?;
        let us = |at: usize, fraction: f64| -> Rounds {
            results[at].iter().map(|latency: &Latency| latency.quantile(fraction) / 1e3).collect()
        };
        let name = format!("attach to {} MiB, to the first frame", bytes >> 20);
        for (at, place) in Place::BOTH.into_iter().enumerate() {
            for (what, fraction) in [("p50", 0.5), ("p99", 0.99)] {
                let row = format!("{name}, {}: {what}", place.name());
                outcome.rows.push(Row::lower(SUITE, row, "us", us(at, fraction)).floor(us(2, fraction)));
            }
        }
        let whose = ["named file", "memfd", "raw map"];
        outcome.percentiles.extend(whose.iter().zip(&results).map(|(whose, all)| Percentiles::of(&name, *whose, all)));
    }
    outcome.notes.push(format!(
        "attach: {ATTACHES} a round, at places all over the newer half of a ring that is full; floor: the same file, opened, mapped, and \
         each page touched"
    ));
    Ok(outcome)
}
