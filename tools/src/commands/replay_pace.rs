//! The pace of a replay: each packet has a deadline on the clock, counted from the first, so that nothing adds up.

use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use ticktape::metrics::latency_histogram;
use ticktape_tuning::clock::monotonic_ns;
use ticktape_tuning::{jitter, pin};

use crate::Failure;
use crate::args::Speed;
use crate::demo::{COLUMNS, Latency, row};
use crate::out::say;

/// So long before a deadline the sleep ends, in nanoseconds: kernels wake later than asked, and what is left is spun. Longer takes more of
/// the core, shorter lets a late wake-up through.
const SPIN_NS: u64 = 300_000;

/// How long the noise of the box is looked at, before and after, in milliseconds.
const JITTER_MS: u64 = 300;

/// Parts of a replay, so that errors that grow are seen.
const PARTS: usize = 4;

/// From here on a packet is late, in nanoseconds: what such a pace may add to the noise of the box.
const LATE_NS: u64 = 50_000;

/// What the replay was at when a packet's time came and went.
const CAUSES: [&str; 3] = ["at work on those before", "asleep", "spinning"];
const AT_WORK: usize = 0;
const ASLEEP: usize = 1;
const SPINNING: usize = 2;

/// Packets that were late for one cause.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Late {
    count: u64,
    longest_ns: u64,
}

impl Late {
    fn note(&mut self, error_ns: u64) {
        self.longest_ns = self.longest_ns.max(error_ns);
        self.count += u64::from(error_ns > LATE_NS);
    }
}

/// Holds packets back until their time.
pub struct Pace {
    times: u32,
    /// The first packet's time, and when it was let through.
    begun: Option<(u64, u64)>,
    /// From the first packet to the last, in the capture.
    span_ns: u64,
    errors: [Histogram<u64>; PARTS],
    late: [Late; CAUSES.len()],
    /// What others had taken of the core before: the host, in milliseconds, and other threads, so many times.
    taken: [u64; 2],
    noise: Histogram<u64>,
}

/// How well it was kept.
#[derive(Debug, Serialize)]
pub struct Kept {
    speed: u32,
    /// How long after its deadline each packet was let through.
    deadline_error: Latency,
    /// The same, for each quarter of the time.
    deadline_error_quarters: [Latency; PARTS],
    /// Packets more than 50 µs late, by what it was at meanwhile.
    late_at_work: Late,
    late_asleep: Late,
    late_spinning: Late,
    /// What the host took of all cores meanwhile, in milliseconds.
    stolen_ms: u64,
    /// How often another thread took the core from this one.
    preempted: u64,
    /// Gaps between two looks at the clock, before and after.
    jitter: Latency,
}

/// What others have taken so far.
fn taken() -> [u64; 2] {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let preempted = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    let preempted = preempted.and_then(|count| count.trim().parse().ok()).unwrap_or(0);
    [jitter::stolen_ms(None).unwrap_or(0), preempted]
}

impl Pace {
    /// None where nothing is to be waited for. The capture's last packet is at `last_ns`.
    pub fn new(speed: Speed, first_ns: u64, last_ns: u64) -> Option<Self> {
        let Speed::Times(times) = speed else { return None };
        // What is refused costs some precision, which the figures show.
        let _ = pin::sleep_precisely();
        let noise = jitter::baseline(JITTER_MS);
        let errors = std::array::from_fn(|_| latency_histogram());
        let span_ns = last_ns.saturating_sub(first_ns);
        Some(Pace { times, begun: None, span_ns, errors, late: Default::default(), taken: taken(), noise })
    }

    /// Returns when the time of this packet has come.
    pub fn wait(&mut self, time_ns: u64) {
        let now = monotonic_ns();
        let Some((first_ns, begun_ns)) = self.begun else {
            self.span_ns = self.span_ns.max(1);
            self.begun = Some((time_ns, now));
            return;
        };
        let passed_ns = time_ns.saturating_sub(first_ns);
        let deadline = begun_ns + passed_ns / u64::from(self.times);
        let early_ns = deadline.saturating_sub(now);
        let mut cause = if early_ns == 0 { AT_WORK } else { SPINNING };
        if early_ns > SPIN_NS {
            thread::sleep(Duration::from_nanos(early_ns - SPIN_NS));
            cause = if monotonic_ns() < deadline { SPINNING } else { ASLEEP };
        }
        let mut now = monotonic_ns();
        while now < deadline {
            std::hint::spin_loop();
            now = monotonic_ns();
        }
        self.late[cause].note(now - deadline);
        let part = u128::from(passed_ns) * PARTS as u128 / u128::from(self.span_ns);
        self.errors[(part as usize).min(PARTS - 1)].saturating_record((now - deadline).max(1));
    }

    /// Looks at the box's noise once more, and tells how well it was kept.
    pub fn finish(mut self) -> Kept {
        let ([stolen, preempted], before) = (taken(), self.taken);
        self.noise.add(jitter::baseline(JITTER_MS)).expect("the same bounds");
        let mut all = latency_histogram();
        self.errors.iter().for_each(|part| all.add(part).expect("the same bounds"));
        Kept {
            speed: self.times,
            deadline_error: Latency::of(&all),
            deadline_error_quarters: self.errors.each_ref().map(Latency::of),
            late_at_work: self.late[AT_WORK],
            late_asleep: self.late[ASLEEP],
            late_spinning: self.late[SPINNING],
            stolen_ms: stolen.saturating_sub(before[0]),
            preempted: preempted.saturating_sub(before[1]),
            jitter: Latency::of(&self.noise),
        }
    }
}

impl Kept {
    /// For people.
    pub fn print(&self) -> Result<(), Failure> {
        say!("µs late     {COLUMNS}")?;
        say!("{}", row(&format!("speed {}", self.speed), &self.deadline_error))?;
        for (number, part) in (1..).zip(&self.deadline_error_quarters) {
            say!("{}", row(&format!("quarter {number}"), part))?;
        }
        say!("{}", row("jitter", &self.jitter))?;
        for (cause, late) in CAUSES.iter().zip([self.late_at_work, self.late_asleep, self.late_spinning]) {
            let Late { count, longest_ns } = late;
            say!(
                "late           {count} by more than {} µs, {:.1} µs at most, while it was {cause}",
                LATE_NS / 1000,
                longest_ns as f64 / 1e3
            )?;
        }
        say!("taken          {} ms by the host, and the core {} times by other threads", self.stolen_ms, self.preempted)
    }
}
