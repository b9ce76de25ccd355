//! Beside a thread that spins on the other core, as pinned stages do: where the disk's interrupts may find no idle core.

use std::sync::atomic::{AtomicBool, Ordering};

use ticktape_journal::CalibrationPlan;
use ticktape_tuning::pin;

use super::subject::Subject;
use super::{APPEND_BYTES, SEGMENT_BYTES, SUITE, all, fastest, measure, p99, round, us};
use crate::args::Options;
use crate::hop::Cores;
use crate::latency::Percentiles;
use crate::raw_disk;
use crate::row::{Budget, Row};
use crate::suites::Outcome;

/// Appends of each contestant in a round.
const APPENDS: usize = 200;
/// What a durable append may take, in µs.
const P99_US: f64 = 1_000.0;

/// The row.
pub fn rows(options: &Options) -> Result<Outcome, String> {
    let Some(cores) = Cores::pair() else {
        return Ok(Outcome {
            notes: vec!["one core spinning: skipped, it takes two cores".to_owned()],
            ..Outcome::default()
        });
    };
    // As in an appliance: a thread spins on completions itself only where a core is left for the kernel.
    let spin = pin::usable_cores().len() > 2;
    let calibration = measure(&options.dir, CalibrationPlan { busy_cores: 1, spin, ..CalibrationPlan::default() })?;
    let dir = tempfile::tempdir_in(&options.dir).map_err(|error| error.to_string())?;
    let mut ways = raw_disk::all_ways(dir.path(), APPEND_BYTES)?;
    let mut subjects = [Subject::open(&dir.path().join("journal"), calibration.choice, SEGMENT_BYTES, spin)?];
    subjects[0].keep_workers_off(cores.there);
    let measure =
        || (0..options.rounds).map(|_| round(&mut subjects, &mut ways, APPENDS)).collect::<Result<Vec<_>, _>>();
    let rounds = beside_spinning(cores.there, measure)?;

    let floor = fastest(&rounds, 1..rounds[0].len(), p99);
    let rows = vec![
        Row::lower(SUITE, "durable append, the other core spinning: p99", "us", us(&rounds, 0, p99))
            .floor(us(&rounds, floor, p99))
            .budget(Budget::Value(P99_US))
            .spends("the disk, and the kernel's turn on cores of which one is never free: completions of durable writes wait for a tick of 4 ms there, plain writes and a sync do not"),
    ];
    let names = ["journal"].into_iter().chain(ways.iter().map(|way| way.name)).enumerate();
    let percentiles = names.map(|(at, whose)| Percentiles::of("a core spinning", whose, &all(&rounds, at))).collect();
    let notes = vec![
        format!("a core spinning: {} was picked, {calibration}", calibration.choice),
        format!("a core spinning: {}", subjects[0].describe()),
        format!(
            "a core spinning: the journal's thread {}; floor is the way with the lowest p99, {}",
            if spin { "spins, too" } else { "waits in the kernel, there is no third core" },
            ways[floor - 1].name
        ),
    ];
    Ok(Outcome { rows, percentiles, notes })
}

/// Ends the spinning when dropped, so that a panic does, too.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn beside_spinning<T>(core: usize, work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Unpinned it spins on whichever core is free, which is the other one.
            let _ = pin::pin_current_thread(core);
            // Relaxed: nothing but the flag itself is shared.
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let _stop = Stop(&stop);
        work()
    })
}
