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
    let bare = subjects.len()..rounds[0].len();
    let quickest = fastest(&rounds, 0..subjects.len(), Latency::p50);
    let floor = fastest(&rounds, bare.clone(), Latency::p50);
    // What writes durably is compared with what does, and what syncs apart with that.
    let kind = |at: usize| ways[at - subjects.len()].is_durable_write == (calibration.choice == Strategy::Dsync);
    let like = fastest(&rounds, bare.filter(|&at| kind(at)), Latency::p50);
    let name = format!("{BATCH} x {FRAME_BYTES} B, one at a time");
    let row = |what: String, ours: usize, floor: usize, value: fn(&Latency) -> f64, times: f64| {
        Row::lower(SUITE, format!("{name}, {what}"), "us", us(&rounds, ours, value))
            .floor(us(&rounds, floor, value))
            .budget(Budget::OfFloor(times))
    };
    let quick = Strategy::ALL[quickest];
    let mut rows = vec![
        row(format!("{quick}, the fastest: p50"), quickest, floor, Latency::p50, 1.15),
        row(format!("{quick}, the fastest: p99"), quickest, floor, p99, 1.5),
    ];
    if picked != quickest {
        rows.push(row(format!("{}, as picked: p50", calibration.choice), picked, like, Latency::p50, 1.15));
        rows.push(row(format!("{}, as picked: p99", calibration.choice), picked, like, p99, 1.5));
    }
    let journals = ["journal, group", "journal, flush", "journal, dsync"];
    let names = journals.into_iter().chain(ways.iter().map(|way| way.name)).enumerate();
    let percentiles = names.map(|(at, whose)| Percentiles::of("one at a time", whose, &all(&rounds, at))).collect();
    let notes = vec![
        format!("one at a time: {}", subjects[picked].describe()),
        format!(
            "one at a time: {APPEND_BYTES} bytes to a zero-filled file beside the journal; the fastest strategy beside the fastest way of \
             all, {}; the picked one, which is judged by its tail, beside the fastest that makes durable as it does, {}",
            ways[floor - subjects.len()].name,
            ways[like - subjects.len()].name
        ),
    ];
    Ok(Outcome { rows, percentiles, notes })
}
