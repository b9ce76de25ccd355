//! The embedded node: what a submit costs the caller, and what making a batch durable costs beside a bare write.

use std::path::Path;

use ticktape::{Decode, Encode, Frame, Kind, Node, NodeConfig, Seq, Service, SyncPolicy, Timestamp};
use ticktape_core::frame::{PAYLOAD, frame_bytes, padded, seal};
use ticktape_journal::format::commit;

use super::Outcome;
use crate::args::Options;
use crate::latency::{Latency, Percentiles, Stopwatch};
use crate::raw_disk::{self, Way};
use crate::rounds::{Contestant, Rounds, interleave};
use crate::row::{Budget, Row};
use crate::tally::{Entry, Tally};

const SUITE: &str = "node";
/// Submits of a round.
const SUBMITS: u64 = 100_000;
/// Inputs of a batch.
const BATCH: usize = 64;
/// Batches of a round. Each waits for the disk twice over.
const BATCHES: usize = 300;
/// Batches, or bare appends, in a row before the next contestant's: the disk's mood changes within a round, and what one leaves
/// to the file system's own journal slows the first syncs after it.
const IN_A_ROW: usize = 50;
/// The journal's segment, zero-filled at the start, as an appliance's is.
const SEGMENT_BYTES: usize = 32 << 20;

fn open(dir: &Path, sync: SyncPolicy) -> Result<Node<Tally>, String> {
    let mut config = NodeConfig::new(dir).sync(sync);
    config.journal.segment_bytes = SEGMENT_BYTES;
    config.journal.prefill_bytes = SEGMENT_BYTES;
    Node::open(config, ()).map_err(|error| error.to_string())
}

/// What every submit has to do: encode, seal, decode, apply. No ring, no journal.
fn bare_steps() -> Latency {
    let mut watch = Stopwatch::new(SUBMITS as usize);
    let mut tally = Tally::genesis(&());
    let mut effects = ticktape::Effects::with_capacity(1);
    let (mut encoded, mut frame) = (Vec::with_capacity(Entry::BYTES), [0; frame_bytes(Entry::BYTES)]);
    for n in 1..=SUBMITS {
        let entry = std::hint::black_box(Entry::numbered(n));
        watch.time(|| {
            encoded.clear();
            entry.encode(&mut encoded);
            frame[PAYLOAD..PAYLOAD + Entry::BYTES].copy_from_slice(&encoded);
            seal(&mut frame, Seq(n), Timestamp(n), 1, Kind::Input, Entry::BYTES);
            let view = Frame::view(std::hint::black_box(&frame)).expect("just sealed");
            let input = Entry::from_bytes(view.payload).expect("just encoded");
            effects.clear();
            tally.apply(Seq(n), &input, &mut ticktape::Ctx::new(Seq(n), Timestamp(n), None, &mut effects));
            std::hint::black_box(&effects);
        });
    }
    watch.finish(1.0)
}

fn submits(dir: &Path) -> Result<Latency, String> {
    let dir = tempfile::tempdir_in(dir).map_err(|error| error.to_string())?;
    let mut node = open(dir.path(), SyncPolicy::Never)?;
    let mut watch = Stopwatch::new(SUBMITS as usize);
    for n in 1..=SUBMITS {
        let entry = Entry::numbered(n);
        let (seq, _) = watch.time(|| node.submit(entry)).map_err(|error| error.to_string())?;
        debug_assert_eq!(seq, Seq(n));
    }
    Ok(watch.finish(1.0))
}

fn submit_rows(options: &Options) -> Result<Outcome, String> {
    let mut contestants: Vec<Contestant<'_, Result<Latency, String>>> =
        vec![Box::new(|| submits(&options.dir)), Box::new(|| Ok(bare_steps()))];
    let results = interleave(options.rounds, &mut contestants);
    let results =
        results.into_iter().map(|rounds| rounds.into_iter().collect()).collect::<Result<Vec<Vec<Latency>>, _>>()?;
    let of = |at: usize, value: fn(&Latency) -> f64| -> Rounds { results[at].iter().map(value).collect() };
    let row = |what: &str, value: fn(&Latency) -> f64| {
        Row::lower(SUITE, format!("submit without sync, 64 B: {what}"), "ns", of(0, value)).floor(of(1, value))
    };
    let rows =
        vec![row("p50", Latency::p50).budget(Budget::Value(300.0)), row("p99", |latency| latency.quantile(0.99))];
    let name = "submit without sync, 64 B";
    let percentiles = vec![Percentiles::of(name, "ours", &results[0]), Percentiles::of(name, "floor", &results[1])];
    let notes = vec!["submit: floor is encode, seal, decode and apply alone; a clock reading is in both".to_owned()];
    Ok(Outcome { rows, percentiles, notes })
}

/// Batches and bare appends in turn.
fn batch_round(node: &mut Node<Tally>, ways: &mut [Way]) -> Result<Vec<Latency>, String> {
    let mut ours = Stopwatch::new(BATCHES);
    let mut bare: Vec<Stopwatch> = ways.iter().map(|_| Stopwatch::new(BATCHES)).collect();
    for _ in 0..BATCHES / IN_A_ROW {
        for _ in 0..IN_A_ROW {
            let entries: Vec<Entry> = (0..BATCH as u64).map(Entry::numbered).collect();
            ours.time(|| node.submit_batch(entries)).map_err(|error| error.to_string())?;
        }
        for (way, watch) in ways.iter_mut().zip(&mut bare) {
            (0..IN_A_ROW).try_for_each(|_| watch.time(|| (way.append)()))?;
        }
    }
    Ok([ours].into_iter().chain(bare).map(|watch| watch.finish(1.0)).collect())
}

fn batch_rows(options: &Options) -> Result<Outcome, String> {
    let dir = tempfile::tempdir_in(&options.dir).map_err(|error| error.to_string())?;
    let bytes = commit::HEADER_BYTES + BATCH * padded(frame_bytes(Entry::BYTES));
    let mut ways = raw_disk::ways(dir.path(), bytes)?;
    let mut node = open(&dir.path().join("journal"), SyncPolicy::Every)?;
    let results = (0..options.rounds).map(|_| batch_round(&mut node, &mut ways)).collect::<Result<Vec<_>, _>>()?;

    // Ours is the first of each round, the ways follow.
    let of = |at: usize, value: fn(&Latency) -> f64| -> Rounds {
        results.iter().map(|round| value(&round[at]) / 1e3).collect()
    };
    let p50 = |at: usize| of(at, Latency::p50).median();
    let fastest = (1..=ways.len()).min_by(|&a, &b| p50(a).total_cmp(&p50(b))).expect("one way at least");
    let row = |what: &str, value: fn(&Latency) -> f64| {
        let name = format!("batch of {BATCH} x 64 B, synced: {what}");
        Row::lower(SUITE, name, "us", of(0, value)).floor(of(fastest, value)).spends(
            "the disk's own time: the bare ways stand beside it in the suite's percentiles; 64 submits without a sync are some 16 us of it, of which the floor has none",
        )
    };
    let rows =
        vec![row("p50", Latency::p50).budget(Budget::OfFloor(1.15)), row("p99", |latency| latency.quantile(0.99))];
    let all = |at: usize| results.iter().map(|round| round[at].clone()).collect::<Vec<_>>();
    let names = ["ours"].into_iter().chain(ways.iter().map(|way| way.name)).enumerate();
    let percentiles =
        names.map(|(at, name)| Percentiles::of(format!("batch of {BATCH}, synced"), name, &all(at))).collect();
    let floor = ways[fastest - 1].name;
    let notes = vec![
        format!("journal: {}", node.describe()),
        format!(
            "batch: floor is the fastest way, {floor}, with {bytes} bytes to a zero-filled file beside the journal"
        ),
    ];
    Ok(Outcome { rows, percentiles, notes })
}

/// Runs the suite.
///
/// # Errors
/// What it could not do without, in one line.
pub fn run(options: &Options) -> Result<Outcome, String> {
    let mut outcome = submit_rows(options)?;
    outcome.append(batch_rows(options)?);
    Ok(outcome)
}
