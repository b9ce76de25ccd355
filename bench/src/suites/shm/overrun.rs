//! A follower that was lapped: how long it takes from the poll that meets the overrun to the next frame, with a writer at rest and with one
//! that goes on at full speed.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ticktape_core::Seq;
use ticktape_shm::{FollowError, Follower, Producer, RingConfig};

use super::place::{Place, Written, ring_dir};
use super::{Measured, SUITE, all};
use crate::args::Options;
use crate::hop::{Cores, HopTag};
use crate::latency::{Latency, Percentiles, Stopwatch};
use crate::rounds::{Contestant, Rounds, interleave_with};
use crate::row::Row;
use crate::suites::Outcome;
use crate::suites::ring::{MESSAGE_BYTES, Message, pin, sealed};

const RING: &str = "overrun";
const RING_BYTES: usize = 1 << 20;
/// Frames of a lap.
const LAP: u64 = (RING_BYTES / MESSAGE_BYTES) as u64;
/// Overruns of a round.
const OVERRUNS: usize = 400;
const BURST: u64 = 16;

/// Recoveries of a round, and the overruns that they took: one each, unless the writer lapped the follower anew.
struct Recoveries {
    latency: Latency,
    overruns: u64,
}

fn open(dir: &Path) -> Measured<(Written, Follower)> {
    let ring = Place::Named.ring(dir, RING, RingConfig { capacity_bytes: RING_BYTES, ..RingConfig::default() })?;
    let follower = Place::Named.follow(dir, RING, Seq::FIRST)?;
    Ok((ring, follower))
}

/// Publishes a burst.
#[inline]
fn burst(producer: &mut Producer, frame: &mut Message) {
    for _ in 0..BURST {
        frame[..8].copy_from_slice(&producer.next_seq().0.to_le_bytes());
        producer.push(frame).expect("nobody gates this ring");
    }
    producer.publish();
}

/// Polls until there is a frame again; returns the overruns on the way.
#[inline]
fn recover(follower: &mut Follower) -> Measured<u64> {
    let mut overruns = 0;
    loop {
        match follower.poll() {
            Ok(Some(_)) => return Ok(overruns),
            Ok(None) => {}
            Err(FollowError::Overrun { .. }) => overruns += 1,
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn at_rest(cores: Cores) -> Measured<Recoveries> {
    let dir = ring_dir()?;
    let (mut ring, mut follower) = open(dir.path())?;
    pin(cores.here);
    let (mut frame, mut overruns) = (sealed(1), 0);
    let mut watch = Stopwatch::new(OVERRUNS);
    for _ in 0..OVERRUNS {
        (0..LAP * 3 / 2 / BURST).for_each(|_| burst(&mut ring.producer, &mut frame));
        overruns += watch.time(|| recover(&mut follower))?;
    }
    Ok(Recoveries { latency: watch.finish(1.0), overruns })
}

fn at_full_speed(cores: Cores) -> Measured<Recoveries> {
    let dir = ring_dir()?;
    let (mut ring, mut follower) = open(dir.path())?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (done, producer) = (&done, &mut ring.producer);
        scope.spawn(move || {
            pin(cores.there);
            let mut frame = sealed(1);
            // Relaxed: nothing but the flag itself is shared.
            while !done.load(Ordering::Relaxed) {
                burst(producer, &mut frame);
            }
        });
        pin(cores.here);
        let measured = overrun_again_and_again(&mut follower);
        done.store(true, Ordering::Relaxed);
        measured
    })
}

fn overrun_again_and_again(follower: &mut Follower) -> Measured<Recoveries> {
    let mut watch = Stopwatch::new(OVERRUNS);
    let mut overruns = 0;
    for _ in 0..OVERRUNS {
        // It looks away for two laps.
        let until = Seq(follower.next_seq().0 + 2 * LAP);
        while follower.sequenced_hint() < until {
            std::hint::spin_loop();
        }
        overruns += watch.time(|| recover(follower))?;
    }
    Ok(Recoveries { latency: watch.finish(1.0), overruns })
}

/// The rows.
pub(super) fn rows(options: &Options, cores: Cores) -> Measured<Outcome> {
    let mut contestants: Vec<Contestant<'_, Measured<Recoveries>>> =
        vec![Box::new(|| at_rest(cores)), Box::new(|| at_full_speed(cores))];
    let mut tag = HopTag::default();
    let results = all(interleave_with(options.rounds, &mut contestants, || tag.probe(cores)))?;
    let whose = ["writer at rest", "writer at full speed"];
    let (mut rows, mut percentiles) = (Vec::new(), Vec::new());
    for (whose, rounds) in whose.into_iter().zip(&results) {
        let of = |fraction: f64| -> Rounds { rounds.iter().map(|round| round.latency.quantile(fraction)).collect() };
        let name = |what: &str| format!("overrun to the next frame, {whose}: {what}");
        rows.push(Row::lower(SUITE, name("p50"), "ns", of(0.5)).hop(&tag));
        rows.push(Row::lower(SUITE, name("p99"), "ns", of(0.99)).hop(&tag));
        let latencies: Vec<Latency> = rounds.iter().map(|round| round.latency.clone()).collect();
        percentiles.push(Percentiles::of("overrun to the next frame", whose, &latencies));
    }
    let met: u64 = results[1].iter().map(|round| round.overruns).sum();
    let notes = vec![format!(
        "overruns: a ring of {} KiB, the follower on a read-only map of its own, lapped each time before it polls; beside the writer at full \
         speed {} recoveries took {met} overruns",
        RING_BYTES >> 10,
        OVERRUNS * results[1].len()
    )];
    Ok(Outcome { rows, percentiles, notes })
}
