//! One batch at a time, on a box that does nothing else.

use ticktape_journal::{Calibration, Strategy};

use super::subject::{BATCH, FRAME_BYTES, Subject};
use super::{APPEND_BYTES, SEGMENT_BYTES, SUITE, all, fastest, p99, round, us};
use crate::args::Options;
use crate::latency::{Latency, Percentiles};
use crate::raw_disk;
use crate::row::{Budget, Row};
use crate::suites::Outcome;

/// Appends of each contestant in a round.
const APPENDS: usize = 300;
/// Where the time goes.
const DISK: &str = "the disk's own time and its mood: the bare ways stand beside it in the suite's percentiles, what is beyond the fastest is ours; \
                    perf trace -s -e io_uring_enter shows the waits";

/// The rows, with every strategy's percentiles beside those of every bare way.
pub fn rows(options: &Options, calibration: &Calibration) -> Result<Outcome, String> {
    let dir = tempfile::tempdir_in(&options.dir).map_err(|error| error.to_string())?;
    let mut ways = raw_disk::all_ways(dir.path(), APPEND_BYTES)?;
    let mut subjects = Vec::new();
    for strategy in Strategy::ALL {
        subjects.push(Subject::open(&dir.path().join(strategy.to_string()), strategy, SEGMENT_BYTES, true)?);
    }
    let rounds =
        (0..options.rounds).map(|_| round(&mut subjects, &mut ways, APPENDS)).collect::<Result<Vec<_>, _>>()?;

    let picked = Strategy::ALL.iter().position(|&strategy| strategy == calibration.choice).expect("one of them");
    let quickest = fastest(&rounds, 0..subjects.len(), Latency::p50);
    let floor = fastest(&rounds, subjects.len()..rounds[0].len(), Latency::p50);
    let name = format!("{BATCH} x {FRAME_BYTES} B, one at a time");
    let row = |what: String, ours: usize, value: fn(&Latency) -> f64| {
        Row::lower(SUITE, format!("{name}, {what}"), "us", us(&rounds, ours, value))
            .floor(us(&rounds, floor, value))
            .spends(DISK)
    };
    let choice = calibration.choice;
    let mut rows = vec![
        row(format!("{choice}, as picked: p50"), picked, Latency::p50).budget(Budget::OfFloor(1.15)),
        row(format!("{choice}, as picked: p99"), picked, p99).budget(Budget::OfFloor(1.5)),
    ];
    if picked != quickest {
        let quick = Strategy::ALL[quickest];
        rows.push(row(format!("{quick}, the fastest: p50"), quickest, Latency::p50));
        rows.push(row(format!("{quick}, the fastest: p99"), quickest, p99));
    }
    let journals = ["journal, group", "journal, flush", "journal, dsync"];
    let names = journals.into_iter().chain(ways.iter().map(|way| way.name)).enumerate();
    let percentiles = names.map(|(at, whose)| Percentiles::of("one at a time", whose, &all(&rounds, at))).collect();
    let notes = vec![
        format!("one at a time: {}", subjects[picked].describe()),
        format!(
            "one at a time: {APPEND_BYTES} bytes to a zero-filled file beside the journal; floor: the fastest way of all, {}",
            ways[floor - subjects.len()].name
        ),
    ];
    Ok(Outcome { rows, percentiles, notes })
}
