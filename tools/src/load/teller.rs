//! What the measuring thread hands over each second: told, logged, added up.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use hdrhistogram::Histogram;
use ticktape::metrics::latency_histogram;
use ticktape_tuning::clock;

use super::driver::{End, Ended, Second};
use super::out_dir::OutDir;
use super::schedule::Plan;
use super::summary::{Counts, FORMAT, Host, Options, PartSummary, Summary};
use crate::Failure;
use crate::hdr::Latency;
use crate::out::{self, say};

/// Shorter than this an interval is not told of.
const MOMENT_NS: u64 = 100_000_000;

/// Tells of a run.
pub struct Teller {
    plan: Arc<Plan>,
    out: Option<OutDir>,
    to_stderr: bool,
    give_back: Sender<Histogram<u64>>,
    interrupted: Arc<AtomicBool>,
    total: Histogram<u64>,
    /// Since the Unix epoch, of what counts.
    started: Option<Duration>,
}

impl Teller {
    /// Nothing was told yet. Empty histograms go back by `give_back`; `interrupted` is set where nobody listens any more.
    pub fn new(
        plan: Arc<Plan>,
        out: Option<OutDir>,
        to_stderr: bool,
        give_back: Sender<Histogram<u64>>,
        interrupted: Arc<AtomicBool>,
    ) -> Self {
        Teller { plan, out, to_stderr, give_back, interrupted, total: latency_histogram(), started: None }
    }

    /// One interval.
    ///
    /// # Errors
    /// It can't be printed or written; the run is told to end then.
    pub fn tell(&mut self, second: Second) -> Result<(), Failure> {
        // What is left at the end may be a moment, of which a rate says nothing.
        let is_moment = second.to_ns - second.from_ns < MOMENT_NS;
        let printed = if is_moment { Ok(()) } else { self.print(&second) };
        let logged = if is_moment && second.latency.is_empty() { Ok(()) } else { self.log(&second) };
        let told = printed.and(logged);
        if told.is_err() {
            self.interrupted.store(true, Ordering::Relaxed);
        }
        if second.is_measured {
            self.total.add(&second.latency).expect("both have the same bounds");
        }
        let mut latency = second.latency;
        latency.reset();
        // The measuring thread may be done.
        let _ = self.give_back.send(latency);
        told
    }

    fn print(&self, second: &Second) -> Result<(), Failure> {
        let (from_ns, part) = (self.plan.measured_from_ns(), &self.plan.parts[second.part]);
        let time = match second.to_ns.checked_sub(from_ns).filter(|_| second.is_measured) {
            Some(since) => format!("{:5.0} s ", since as f64 / 1e9),
            None => "warm-up ".to_string(),
        };
        let seconds = (second.to_ns.saturating_sub(second.from_ns)).max(1) as f64 / 1e9;
        let wanted = if part.rate > 0 { format!("wanted {}/s  ", part.rate) } else { String::new() };
        let Latency { p50_ns, p99_ns, p999_ns, max_ns, .. } = Latency::of(&second.latency);
        let us = |ns: u64| ns as f64 / 1e3;
        let line = format!(
            "{time} {wanted}sent {:.0}/s  answered {:.0}/s  acked {:.0}/s  in flight {}  p50 {:.1}  p99 {:.1}  p99.9 {:.1}  max {:.1} µs",
            second.sent as f64 / seconds,
            second.answered as f64 / seconds,
            second.acked as f64 / seconds,
            second.in_flight,
            us(p50_ns),
            us(p99_ns),
            us(p999_ns),
            us(max_ns),
        );
        if self.to_stderr {
            // Who reads the object need not look at this.
            let _ = writeln!(std::io::stderr().lock(), "{line}");
            return Ok(());
        }
        say!("{line}")
    }

    fn log(&mut self, second: &Second) -> Result<(), Failure> {
        if !second.is_measured {
            return Ok(());
        }
        let from_ns = self.plan.measured_from_ns();
        let since = Duration::from_nanos(second.to_ns.saturating_sub(from_ns));
        let now = Duration::from_nanos(clock::realtime_ns());
        let started = *self.started.get_or_insert(now.saturating_sub(since));
        let Some(out) = &mut self.out else { return Ok(()) };
        out.begin(started)?;
        out.interval(second.from_ns - from_ns, second.to_ns - from_ns, &second.latency)
    }

    /// What it came to.
    pub fn summary(&mut self, options: Options, host: Host, ended: &Ended, noise: &Histogram<u64>) -> Summary {
        let measured = || self.plan.parts.iter().zip(&ended.by_part).filter(|(part, _)| part.is_measured);
        let mut counts = Counts {
            acked: ended.acked,
            resent: ended.resent,
            resyncs: ended.resyncs,
            stray: ended.stray,
            late_sends: ended.late_sends,
            late_max_ns: ended.late_max_ns,
            ..Counts::default()
        };
        let mut parts = Vec::new();
        for (part, tally) in measured() {
            let wanted = tally.answered + tally.silent + tally.lost;
            counts.wanted += wanted;
            counts.sent += tally.sent;
            counts.answered += tally.answered;
            counts.silent += tally.silent;
            counts.lost += tally.lost;
            let seconds = part.seconds();
            parts.push(PartSummary {
                rate_wanted: if part.rate > 0 { part.rate as f64 } else { wanted as f64 / seconds },
                rate_reached: tally.in_time as f64 / seconds,
                wanted,
                answered: tally.answered,
                lost: tally.lost,
                latency: Latency::of(tally.latency.as_ref().unwrap_or(&self.total)),
            });
        }
        let from_ns = self.plan.measured_from_ns();
        let took_ns = ended.last_answer_ns.max(self.plan.end_ns().min(ended.ended_ns)).saturating_sub(from_ns);
        let seconds = took_ns.max(1) as f64 / 1e9;
        let planned = ended.ended_ns.min(self.plan.end_ns()).saturating_sub(from_ns).max(1) as f64 / 1e9;
        Summary {
            format: FORMAT.to_string(),
            options,
            host,
            started_unix_ms: self.started.map_or(0, |started| started.as_millis() as u64),
            ended: describe(&ended.end),
            counts,
            rate_wanted: counts.wanted as f64 / planned,
            rate_reached: counts.answered as f64 / seconds,
            latency: Latency::of(&self.total),
            jitter: Latency::of(noise),
            parts,
        }
    }

    /// Writes the directory, where there is one.
    ///
    /// # Errors
    /// The disk's.
    pub fn finish(self, summary: &Summary, noise: &Histogram<u64>) -> Result<(), Failure> {
        let Some(mut out) = self.out else { return Ok(()) };
        out.begin(self.started.unwrap_or_default())?;
        let dir = out.finish(summary, &self.total, noise)?;
        if self.to_stderr { Ok(()) } else { out::line(format_args!("written        {}", dir.display())) }
    }
}

fn describe(end: &End) -> String {
    match end {
        End::Complete => "complete".to_string(),
        End::Interrupted => "interrupted".to_string(),
        End::Silence => "given up, without an answer".to_string(),
        End::Over(why) | End::NotOpened(why) => why.clone(),
    }
}
