//! A follower that does not move: the hops of others beside it, against the hops without it.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ticktape_core::Seq;

use super::other::{Other, Role, say_ready};
use super::place::{Place, ring_dir};
use super::{Measured, SUITE, all};
use crate::args::Options;
use crate::hop::{Cores, HopTag};
use crate::latency::{Latency, Percentiles};
use crate::rounds::{Contestant, Rounds, interleave_with};
use crate::row::{Budget, Row};
use crate::suites::Outcome;
use crate::suites::ring::hop::{rings, round_trips};
use crate::suites::ring::{Message, all_sealed};

/// The ring that is followed.
const RING: &str = "stopped";
/// Round trips of a round: many laps of the ring, so that the follower is overrun many times.
const HOPS: usize = 200_000;

/// The other process: follows until it is ended.
pub(super) fn follow(dir: &Path) -> Measured<()> {
    let mut follower = Place::Named.follow(dir, RING, Seq::FIRST)?;
    say_ready()?;
    while follower.drain(usize::MAX, |_| ()).is_ok() {}
    Ok(())
}

fn measure(cores: Cores, messages: &[Message], with_follower: bool) -> Measured<Latency> {
    let dir = ring_dir()?;
    let mut names = [RING, "back"].into_iter();
    let mut fault = None;
    let ends = rings(|builder| {
        let name = names.next().expect("two rings make a pair of ends");
        let named = builder.named(dir.path(), name).build(Seq::FIRST);
        named.unwrap_or_else(|error| {
            fault = Some(error.to_string());
            ticktape_shm::RingBuilder::new(Default::default()).build(Seq::FIRST).expect("memory")
        })
    });
    if let Some(fault) = fault {
        return Err(fault);
    }
    let other = if with_follower { Some(Other::start(Role::Follow, dir.path(), cores)?) } else { None };
    if let Some(other) = &other {
        let pid = Pid::from_raw(i32::try_from(other.0.id()).expect("a process id"));
        kill(pid, Signal::SIGSTOP).map_err(|error| format!("the follower can't be stopped: {error}"))?;
    }
    Ok(round_trips(cores, messages, ends))
}

/// The row.
pub(super) fn rows(options: &Options, cores: Cores) -> Measured<Outcome> {
    let messages = all_sealed(HOPS);
    let mut contestants: Vec<Contestant<'_, Measured<Latency>>> =
        vec![Box::new(|| measure(cores, &messages, true)), Box::new(|| measure(cores, &messages, false))];
    let mut tag = HopTag::default();
    let results = all(interleave_with(options.rounds, &mut contestants, || tag.probe(cores)))?;
    let of = |at: usize| -> Rounds { results[at].iter().map(|latency| latency.quantile_within_step(0.99)).collect() };
    let name = "hop one to one beside a stopped follower";
    let row = Row::lower(SUITE, format!("{name}: p99"), "ns", of(0))
        .floor(of(1))
        .hop(&tag)
        .budget(Budget::OfFloor(1.05))
        .spends("cache lines on their way between the two cores, as without a follower: nobody waits for one, stopped or not, and its lines are its own");
    let percentiles =
        vec![Percentiles::of(name, "stopped", &results[0]), Percentiles::of(name, "without", &results[1])];
    let notes =
        vec!["stopped follower: SIGSTOP after it attached; floor: the same named rings without a follower; p99 within the step of the counter that it falls into".to_owned()];
    Ok(Outcome { rows: vec![row], percentiles, notes })
}
