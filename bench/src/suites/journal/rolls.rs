//! Over rolls: appends to small segments beside appends to one that is large enough for all.

use ticktape_journal::Calibration;

use super::subject::Subject;
use super::{APPEND_BYTES, SUITE, all, fastest, round};
use crate::args::Options;
use crate::latency::{Latency, Percentiles};
use crate::raw_disk;
use crate::rounds::Rounds;
use crate::row::{Budget, Row};
use crate::suites::Outcome;

/// Rolls in the whole run, at least: of a hundred rolls' appends, a dozen lie beyond the tail, and one stall of the disk decides.
const ROLLS: usize = 400;
/// A small segment: about a hundred appends, which is the time that housekeeping has to make the next one.
const SMALL_BYTES: usize = 1 << 20;
/// Of a pooled tail, this share lies beyond: some fifty samples of fifty thousand.
const TAIL: f64 = 0.999;
/// The tail's place among the percentiles shown.
const TAIL_AT: usize = 3;

const _: () = assert!(crate::latency::QUANTILES[TAIL_AT].1 == TAIL);

/// The row: tails of all rounds together, since one round's has two samples.
pub fn rows(options: &Options, calibration: &Calibration) -> Result<Outcome, String> {
    let appends = (ROLLS * SMALL_BYTES / APPEND_BYTES).div_ceil(options.rounds).next_multiple_of(super::IN_A_ROW);
    let dir = tempfile::tempdir_in(&options.dir).map_err(|error| error.to_string())?;
    let large_bytes = (2 * appends * options.rounds * APPEND_BYTES).next_multiple_of(SMALL_BYTES);
    let open = |name: &str, bytes| Subject::open(&dir.path().join(name), calibration.choice, bytes, true);
    let mut subjects = [open("rolls", SMALL_BYTES)?, open("stays", large_bytes)?];
    let mut ways = raw_disk::all_ways(dir.path(), APPEND_BYTES)?;
    // The disk's own tail: the way that is fastest in a short round alone, so that the others don't take the time.
    let trial = round(&mut [], &mut ways, super::IN_A_ROW)?;
    let bare = 0..trial.len();
    let fastest = fastest(&[trial], bare, Latency::p50);
    let mut ways = [ways.swap_remove(fastest)];
    let rounds =
        (0..options.rounds).map(|_| round(&mut subjects, &mut ways, appends)).collect::<Result<Vec<_>, _>>()?;

    let names = ["with rolls", "without rolls", ways[0].name].into_iter().enumerate();
    let percentiles: Vec<Percentiles> =
        names.map(|(at, whose)| Percentiles::of("over rolls", whose, &all(&rounds, at))).collect();
    let tail = |at: usize| -> Rounds { [percentiles[at].quantiles[TAIL_AT] / 1e3].into_iter().collect() };
    let rows = vec![
        Row::lower(SUITE, "durable append over rolls: p99.9", "us", tail(0))
            .floor(tail(1))
            .budget(Budget::OfFloor(1.5))
            .spends(
                "one append of a thousand: those that meet the next segment's zeros at the disk, or its mood: the journal without rolls \
                 and the bare way stand beside it in the suite's percentiles; the file itself is made by the kernel's workers",
            ),
    ];
    let notes = vec![format!(
        "over rolls: {} rolls, one in {} appends, and {}; floor is the same journal without any; the disk alone ({}): p99.9 {:.0} us, max {:.0} us",
        subjects[0].segments() - 1,
        SMALL_BYTES / APPEND_BYTES,
        if subjects[1].segments() == 1 { "none beside them" } else { "some in the other one, too" },
        ways[0].name,
        percentiles[2].quantiles[TAIL_AT] / 1e3,
        percentiles[2].max / 1e3
    )];
    Ok(Outcome { rows, percentiles, notes })
}
