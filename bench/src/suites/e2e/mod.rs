//! The whole path: from a client's datagram to the reply, and the stages between without the network.

mod echo;
mod inline;
mod load;
mod path;
mod plain;
mod stages;

use ticktape::link::Tier;
use ticktape::pipeline::IdleStrategy;
use ticktape_nic::lab::{self, Lab};
use ticktape_tuning::pin::pin_current_thread;

use super::Outcome;
use crate::args::Options;
use crate::hop::{Cores, HopTag};
use crate::huge_pages::HugePages;
use crate::latency::{Latency, Percentiles, Stopwatch};
use crate::raw_disk::{self, Way};
use crate::rounds::{Contestant, Rounds, interleave_with};
use crate::row::{Budget, Row};

pub(super) use echo::{ANY_PORT, open};

const SUITE: &str = "e2e";
/// What a reply may take beyond the raw echo (and the raw append), in µs.
const BEYOND_US: f64 = 1.0;
/// What a durable append may take of the raw one.
const APPEND_TIMES: f64 = 1.15;
/// What appliance and client take together, and as much again for what a round before has not given back yet, in pages of 2 MiB.
pub(super) const HUGE_PAGES: u64 = 64;
/// Raw appends of a round.
const APPENDS: usize = 300;
/// What one small command makes the journal write: a commit within the smallest block there is.
const APPEND_BYTES: usize = 512;

type Measured<T> = Result<T, String>;

fn all<T>(results: Vec<Vec<Measured<T>>>) -> Measured<Vec<Vec<T>>> {
    results.into_iter().map(|rounds| rounds.into_iter().collect()).collect()
}

fn of(rounds: &[Latency], value: impl Fn(&Latency) -> f64) -> Rounds {
    rounds.iter().map(value).collect()
}

/// The way with the lowest median of this round. One way after the other: what one leaves to the file system's own journal
/// would slow the next one's syncs.
fn fastest_append(ways: &mut [Way]) -> Measured<Latency> {
    let measure = |way: &mut Way| {
        let mut watch = Stopwatch::new(APPENDS);
        (0..APPENDS).try_for_each(|_| watch.time(|| (way.append)()))?;
        Ok(watch.finish(1.0))
    };
    let latencies = ways.iter_mut().map(measure).collect::<Measured<Vec<Latency>>>()?;
    Ok(latencies.into_iter().min_by(|a, b| a.p50().total_cmp(&b.p50())).expect("one way at least"))
}

fn round_trip_rows(options: &Options, cores: Cores, spends: &str) -> Measured<Outcome> {
    let dir = tempfile::tempdir_in(&options.dir).map_err(|error| error.to_string())?;
    let mut ways = raw_disk::ways(dir.path(), APPEND_BYTES)?;
    let mut contestants: Vec<Contestant<'_, Measured<Latency>>> = vec![
        Box::new(|| path::round_trips(options, cores, Tier::Memory, IdleStrategy::Spin)),
        Box::new(|| path::round_trips(options, cores, Tier::Local, IdleStrategy::Backoff)),
        Box::new(|| echo::round_trips(cores)),
        Box::new(|| fastest_append(&mut ways)),
        Box::new(|| path::round_trips(options, cores, Tier::Local, IdleStrategy::Spin)),
        Box::new(|| plain::round_trips(options, cores)),
    ];
    let mut tag = HopTag::default();
    let results = all(interleave_with(options.rounds, &mut contestants, || tag.probe(cores)))?;
    drop(contestants);
    let [memory, local, echo, append, spinning, plain] = &results[..] else { unreachable!("six contestants") };
    let us = |latency: &Latency| latency.p50() / 1e3;
    let echo_us = of(echo, us);
    let local_floor = echo_us.pairwise(&of(append, us), |echo, append| echo + APPEND_TIMES * append);
    let row = |name: &str, ours: &[Latency], floor: Rounds| {
        Row::lower(SUITE, name, "us", of(ours, us)).floor(floor).budget(Budget::FloorPlus(BEYOND_US)).hop(&tag)
    };
    let rows = vec![
        row("round trip p50, tier memory", memory, echo_us.clone()).spends(spends),
        row("round trip p50, tier local", local, local_floor).peer(plain::NAME, Some(of(plain, us))).spends(format!(
            "the echo {:.1} us, a raw append {:.1} us, and what a hand-over to the kernel's workers and back costs on cores that they share with \
             appliance and client: perf sched timehist",
            echo_us.median(),
            of(append, us).median()
        )),
        Row::lower(SUITE, "round trip p50, tier local, appliance spinning", "us", of(spinning, us)).hop(&tag),
        Row::lower(SUITE, "raw durable append p50, one block", "us", of(append, us)),
    ];
    let percentiles = vec![
        Percentiles::of("round trip", "tier memory", memory),
        Percentiles::of("round trip", "tier local", local),
        Percentiles::of("round trip", "local, spinning", spinning),
        Percentiles::of("round trip", plain::NAME, plain),
        Percentiles::of("round trip", "raw echo", echo),
        Percentiles::of("durable append", "raw", append),
    ];
    let notes = vec![
        "round trips: one order at a time from its send to its first report; every stage on one core, the client on the \
         other; at memory both spin; at local the appliance backs off and the client yields, since syncs need a core, too"
            .to_owned(),
        format!("floors: a UDP echo through the same ports; for local, {APPEND_TIMES} x a raw durable append on top"),
        format!(
            "{}: one thread that blocks in recvfrom, writes {} bytes to a zero-filled file, syncs it and answers",
            plain::NAME,
            echo::PAYLOAD_BYTES
        ),
    ];
    Ok(Outcome { rows, percentiles, notes })
}

/// One order's way through the code, in one thread.
fn inline_rows(options: &Options, cores: Cores) -> Measured<(Outcome, String)> {
    let _ = pin_current_thread(cores.here);
    let rounds = (0..options.rounds).map(|_| inline::measure()).collect::<Measured<Vec<_>>>()?;
    let ns = |value: &dyn Fn(&inline::Inline) -> f64| rounds.iter().map(value).collect::<Rounds>();
    let mut rows = vec![
        Row::lower(SUITE, "software path of one order p50", "ns", ns(&|round| round.whole.p50()))
            .floor(ns(&|round| round.echo.p50())),
        Row::lower(SUITE, "the same after a system call p50", "ns", ns(&|round| round.after_kernel.p50())),
        Row::lower(SUITE, "idle round of sequencer, executor, egress p50", "ns", ns(&|round| round.idle.p50())),
    ];
    if let Some(allocations) = rounds.iter().map(|round| round.allocations).collect::<Option<Rounds>>() {
        let row = Row::lower(SUITE, "software path of one order: allocations", "count", allocations);
        rows.push(row.budget(Budget::Value(0.0)));
    }
    let stages = (0..inline::STAGES.len()).map(|at| {
        let median = ns(&|round| round.stages[at].p50()).median();
        format!("{} {median:.0}", inline::STAGES[at])
    });
    let stages = stages.collect::<Vec<_>>().join(", ");
    let spends = format!(
        "beyond the echo, the code of an order's way takes {:.0} ns after a system call ({stages}), and a datagram waits for half a round of polls, \
         of {:.0} ns; the rest is cache lines between the cores",
        ns(&|round| round.after_kernel.p50()).median(),
        ns(&|round| round.idle.p50()).median()
    );
    let notes = vec![
        format!("software path: one thread; by stage, each order after a system call, in ns: {stages}"),
        "its floor: two datagrams over the same in-process link".to_owned(),
    ];
    Ok((Outcome { rows, percentiles: Vec::new(), notes }, spends))
}

/// The round trip over AF_XDP, beside the raw echo over the same pair.
fn xdp_rows(options: &Options, cores: Cores, lab: &Lab, spends: &str) -> Measured<Outcome> {
    let mut contestants: Vec<Contestant<'_, Measured<Latency>>> = vec![
        Box::new(|| path::round_trips_over_xdp(options, cores, lab)),
        Box::new(|| super::nic::echo_over_xdp(cores, lab)),
    ];
    let mut tag = HopTag::default();
    let results = all(interleave_with(options.rounds, &mut contestants, || tag.probe(cores)))?;
    drop(contestants);
    let us = |at: usize| of(&results[at], |latency| latency.p50() / 1e3);
    let rows = vec![
        Row::lower(SUITE, "round trip p50 over AF_XDP, tier memory", "us", us(0))
            .floor(us(1))
            .budget(Budget::FloorPlus(BEYOND_US))
            .hop(&tag)
            .spends(spends),
    ];
    let percentiles = vec![
        Percentiles::of("round trip, AF_XDP", "tier memory", &results[0]),
        Percentiles::of("round trip, AF_XDP", "raw echo", &results[1]),
    ];
    let notes = vec!["over AF_XDP: a veth pair between two namespaces, native mode, copies; both ends spin".to_owned()];
    Ok(Outcome { rows, percentiles, notes })
}

fn rate_rows(options: &Options, cores: Cores) -> Measured<Outcome> {
    let (commands, source) = super::book::commands(options)?;
    let encoded = path::Encoded::of(&commands);
    let mut contestants: Vec<Contestant<'_, Measured<path::Throughput>>> = vec![
        Box::new(|| path::max_rate(options, cores, Tier::Memory, &encoded)),
        Box::new(|| path::max_rate(options, cores, Tier::Local, &encoded)),
    ];
    let mut tag = HopTag::default();
    let results = all(interleave_with(options.rounds, &mut contestants, || tag.probe(cores)))?;
    drop(contestants);
    let rates = |at: usize| results[at].iter().map(|run| run.inputs_per_s / 1e6).collect::<Rounds>();
    let rows = vec![
        Row::higher(SUITE, "whole path with UDP, tier memory: inputs", "M/s", rates(0)).hop(&tag),
        Row::higher(SUITE, "whole path with UDP, tier local: inputs", "M/s", rates(1)).hop(&tag),
    ];
    let used = results[1].last().map(|run| run.choices.clone());
    let mut notes = vec![format!("whole path: {} orders a run ({source}) until each is acknowledged", encoded.len())];
    notes
        .extend(used.map(|choices| format!("whole path, three threads on two cores: {choices}; the client backs off")));
    Ok(Outcome { rows, percentiles: Vec::new(), notes })
}

fn stage_rows(options: &Options, cores: Cores) -> Measured<Outcome> {
    let mut contestants: Vec<Contestant<'_, Measured<f64>>> = vec![
        Box::new(|| stages::inputs_per_s(options, cores, true)),
        Box::new(|| stages::inputs_per_s(options, cores, false)),
    ];
    let mut tag = HopTag::default();
    let results = all(interleave_with(options.rounds, &mut contestants, || tag.probe(cores)))?;
    let row = |what: &str, at: usize| {
        let rates = results[at].iter().map(|rate| rate / 1e6).collect();
        Row::higher(SUITE, format!("{what}: 64 B inputs"), "M/s", rates).hop(&tag)
    };
    let rows = vec![
        row("sequence + journal + apply + publish", 0).budget(Budget::Value(2.0)).spends(
            "the far core: a datagram of 14 frames takes it some 3 us (UDP and IP output, the loopback's softirq, delivery), a commit with \
             its sync some 40 (the device notified twice, a worker woken), however few frames are in it; the near core waits for it, with \
             a full ring",
        ),
        row("sequence + journal + apply", 1),
    ];
    let notes = vec![
        "stages without a client's network: sealed into the ring and applied on one core; journaled (durable) and published as \
         MoldUDP64 over kernel UDP on the other; outputs are encoded, not released"
            .to_owned(),
    ];
    Ok(Outcome { rows, percentiles: Vec::new(), notes })
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
    let pages = HugePages::at_least(HUGE_PAGES);
    let mut outcome = stage_rows(options, cores)?;
    outcome.notes.push(pages.describe());
    let (inline, spends) = inline_rows(options, cores)?;
    outcome.append(inline);
    outcome.append(rate_rows(options, cores)?);
    outcome.append(round_trip_rows(options, cores, &spends)?);
    let lab = match lab::available() {
        Ok(()) => Some(Lab::new("e2e").map_err(|error| error.to_string())?),
        Err(why) => {
            outcome.notes.push(format!("everything over AF_XDP skipped: {why}"));
            None
        }
    };
    if let Some(lab) = &lab {
        outcome.append(xdp_rows(options, cores, lab, &spends)?);
    }
    outcome.append(load::rows(options, cores, lab.as_ref())?);
    Ok(outcome)
}
