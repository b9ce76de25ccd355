//! A follower that does not move: the hops of others beside it, against the hops without it.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ticktape_core::Seq;

use super::super::Outcome;
use super::follow::{Other, ring_dir};
use super::hop::{rings, round_trips};
use super::{Message, SUITE, all_sealed};
use crate::args::Options;
use crate::hop::{Cores, HopTag};
use crate::latency::{Latency, Percentiles};
use crate::rounds::{Contestant, Rounds, interleave_with};
use crate::row::{Budget, Row};

/// The ring that is followed.
pub(super) const RING: &str = "stopped";
/// Round trips of a round: many laps of the ring, so that the follower is overrun many times.
const HOPS: usize = 200_000;

fn measure(cores: Cores, messages: &[Message], with_follower: bool) -> Result<Latency, String> {
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
    let other = if with_follower { Some(Other::start("follow", dir.path(), cores)?) } else { None };
    if let Some(other) = &other {
        let pid = Pid::from_raw(i32::try_from(other.0.id()).expect("a process id"));
        kill(pid, Signal::SIGSTOP).map_err(|error| format!("the follower can't be stopped: {error}"))?;
    }
    Ok(round_trips(cores, messages, ends))
}

pub fn run(options: &Options, cores: Cores) -> Result<Outcome, String> {
    let messages = all_sealed(HOPS);
    let mut contestants: Vec<Contestant<'_, Result<Latency, String>>> =
        vec![Box::new(|| measure(cores, &messages, true)), Box::new(|| measure(cores, &messages, false))];
    let mut tag = HopTag::default();
    let results = interleave_with(options.rounds, &mut contestants, || tag.probe(cores));
    let results =
        results.into_iter().map(|rounds| rounds.into_iter().collect()).collect::<Result<Vec<Vec<Latency>>, _>>()?;
    let of = |at: usize| -> Rounds { results[at].iter().map(|latency| latency.quantile(0.99)).collect() };
    let name = "hop one to one beside a stopped follower";
    let row =
        Row::lower(SUITE, format!("{name}: p99"), "ns", of(0)).floor(of(1)).hop(&tag).budget(Budget::OfFloor(1.05));
    let percentiles =
        vec![Percentiles::of(name, "stopped", &results[0]), Percentiles::of(name, "without", &results[1])];
    let notes =
        vec!["stopped follower: SIGSTOP after it attached; floor: the same named rings without a follower".to_owned()];
    Ok(Outcome { rows: vec![row], percentiles, notes })
}
