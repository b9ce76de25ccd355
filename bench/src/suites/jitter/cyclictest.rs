//! `ticktape jitter --wake` beside cyclictest, on one core, under one policy, while both meet the same planted disturbance.
//!
//! ```text
//!   disturber  SCHED_FIFO 80   ▄▄ 200 µs ▄▄ … 10 ms …  ▄▄▄▄▄▄        a period that is no multiple of the millisecond, so that it
//!   measured   SCHED_FIFO 50   │ 1 ms │ 1 ms │ 1 ms │               falls on wake-ups by chance: on one in fifty
//! ```
//!
//! Cyclictest keeps cores from sleep while it runs, so ours does, too.
//!
//! Of all wake-ups 2 % are then late, evenly by 0 to 200 µs: without any other noise p99.9 is at 190 µs for both.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ticktape_tuning::clock::monotonic_ns;
use ticktape_tuning::jitter::watch::Asked;
use ticktape_tuning::jitter::watch_core;
use ticktape_tuning::pin::{go_first_at, pin_current_thread, sleep_precisely, usable_cores};
use ticktape_tuning::standing::hold_wakeup_latency;

use super::{Outcome, SUITE};
use crate::args::Options;
use crate::row::{Budget, Row};

const DISTURBER_PRIORITY: u8 = 80;
const DISTURBS_FOR_NS: u64 = 200_000;
const DISTURBS_EVERY_NS: u64 = 10_037_000;

const PRIORITY: u8 = 50;
const WAKE_US: u64 = 1_000;
/// Wake-ups of one round: enough for five beyond p99.9.
const WAKE_UPS: u64 = 5_000;
/// As far as cyclictest tells microseconds apart; what is beyond counts as this.
const LATE_US_MAX: u64 = 20_000;

const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// Both by turns, if there is a cyclictest and the right to go first; else a note.
pub(super) fn run(options: &Options) -> Outcome {
    let mut outcome = Outcome::default();
    if options.is_brief {
        outcome.notes.push("jitter --wake beside cyclictest: in the suite jitter alone".to_owned());
        return outcome;
    }
    match beside(options.rounds) {
        Ok(rows) => outcome.rows = rows,
        Err(why) => outcome.notes.push(format!("jitter --wake beside cyclictest: left out: {why}")),
    }
    outcome
}

fn beside(rounds: usize) -> Result<Vec<Row>, String> {
    let core = *usable_cores().last().expect("this runs somewhere");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let disturber = scope.spawn(|| disturb(core, &stop));
        let mut both: Vec<[Vec<f64>; 2]> = Vec::new();
        let mut why = Ok(());
        for round in 0..rounds {
            // By turns first and second.
            let found = if round % 2 == 0 {
                ours(core).and_then(|ours| Ok([ours, cyclictest(core)?]))
            } else {
                cyclictest(core).and_then(|theirs| Ok([ours(core)?, theirs]))
            };
            match found {
                Ok(found) => both.push(found),
                Err(error) => {
                    why = Err(error);
                    break;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        disturber.join().expect("it only reads the clock")?;
        why.map(|()| rows(&both))
    })
}

fn rows(both: &[[Vec<f64>; 2]]) -> Vec<Row> {
    let row = |(index, (name, _)): (usize, &(&str, f64))| {
        let of = |who: usize| both.iter().map(|round| round[who][index]).collect();
        let name = format!("--wake {WAKE_US}, 200 us planted each 10 ms: {name}");
        let row = Row::lower(SUITE, name, "us", of(0)).peer("cyclictest", Some(of(1)));
        // What both are bound to meet alike; p50 is the kernel's wake-up and the loop's own way alone.
        if index == QUANTILES.len() - 1 { row.budget(Budget::OfPeer(1.2)) } else { row }
    };
    QUANTILES.iter().enumerate().map(row).collect()
}

/// Takes the core again and again, before everybody.
fn disturb(core: usize, stop: &AtomicBool) -> Result<(), String> {
    pin_current_thread(core).map_err(|error| error.to_string())?;
    sleep_precisely().map_err(|error| error.to_string())?;
    let _first = go_first_at(DISTURBER_PRIORITY).map_err(|error| format!("SCHED_FIFO: {error}"))?;
    let mut due = monotonic_ns();
    while !stop.load(Ordering::Relaxed) {
        due += DISTURBS_EVERY_NS;
        thread::sleep(Duration::from_nanos(due.saturating_sub(monotonic_ns())));
        let until = monotonic_ns() + DISTURBS_FOR_NS;
        while monotonic_ns() < until {}
    }
    Ok(())
}

/// Percentiles of a round, in µs.
fn ours(core: usize) -> Result<Vec<f64>, String> {
    let asked = Asked { duration_ns: WAKE_UPS * WAKE_US * 1_000, threshold_ns: 1_000, causes_above_ns: u64::MAX };
    let measure = || {
        pin_current_thread(core).map_err(|error| error.to_string())?;
        let _first = go_first_at(PRIORITY).map_err(|error| format!("SCHED_FIFO: {error}"))?;
        let _awake = hold_wakeup_latency(0).map_err(|error| format!("/dev/cpu_dma_latency: {error}"))?;
        let found = watch_core(core, &asked, Some(WAKE_US * 1_000), &AtomicBool::new(false));
        Ok(QUANTILES.iter().map(|(_, quantile)| found.waits.value_at_quantile(*quantile) as f64 / 1e3).collect())
    };
    thread::scope(|scope| scope.spawn(measure).join().expect("a clock can be read"))
}

fn cyclictest(core: usize) -> Result<Vec<f64>, String> {
    let arguments = format!("-q -m -t 1 -a {core} -p {PRIORITY} -i {WAKE_US} -l {WAKE_UPS} -h {LATE_US_MAX}");
    let run = Command::new("cyclictest").args(arguments.split(' ')).stdin(Stdio::null()).output();
    let output = run.map_err(|error| format!("cyclictest (Debian's rt-tests): {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cyclictest: {}", said.lines().next().unwrap_or("failed")));
    }
    let counts = histogram(&String::from_utf8_lossy(&output.stdout));
    let percentiles = QUANTILES.iter().map(|(_, quantile)| at_quantile(&counts, *quantile));
    percentiles.collect::<Option<_>>().ok_or_else(|| "cyclictest: no histogram in what it printed".to_owned())
}

/// What it prints of one thread: `MICROSECONDS COUNT` by line, and how many were beyond.
fn histogram(text: &str) -> Vec<(u64, u64)> {
    let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
    let line = |line: &str| {
        if let Some(beyond) = line.strip_prefix("# Histogram Overflows:") {
            return number(beyond.split_whitespace().next()).map(|count| (LATE_US_MAX, count));
        }
        let mut words = line.split_whitespace();
        Some((number(words.next())?, number(words.next())?))
    };
    text.lines().filter_map(line).filter(|(_, count)| *count > 0).collect()
}

fn at_quantile(counts: &[(u64, u64)], quantile: f64) -> Option<f64> {
    let total: u64 = counts.iter().map(|(_, count)| count).sum();
    let wanted = (total as f64 * quantile).ceil() as u64;
    let mut so_far = 0;
    let found = counts.iter().find(|(_, count)| {
        so_far += count;
        so_far >= wanted
    });
    found.map(|(us, _)| *us as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "# /dev/cpu_dma_latency set to 0us\n# Histogram\n000003 000900\n000004 000090\n000190 000009\n# Min Latencies: 00003\n# Histogram Overflows: 00001\n# Thread 0: 00999\n";

    #[test]
    fn its_histogram_is_read() {
        let counts = histogram(PRINTED);
        assert_eq!(counts, [(3, 900), (4, 90), (190, 9), (LATE_US_MAX, 1)]);
        let at = |quantile| at_quantile(&counts, quantile);
        assert_eq!([0.5, 0.99, 0.999, 1.0].map(at), [3.0, 4.0, 190.0, LATE_US_MAX as f64].map(Some));
        assert_eq!(at_quantile(&histogram("nothing of it"), 0.5), None);
    }
}
