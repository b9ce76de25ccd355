//! A run, for people.

use super::summary::Summary;
use crate::Failure;
use crate::demo::{COLUMNS, row};
use crate::hdr::Latency;
use crate::out::say;

const OMISSION: &str = "latencies count from when each message was meant to be sent: one that had to wait for the appliance, the link's \
                        window or the socket is late by that, so a stall shows as often as it was met (no coordinated omission)";

impl Summary {
    /// The table.
    pub fn print(&self) -> Result<(), Failure> {
        let Summary { options, counts, .. } = self;
        say!()?;
        say!(
            "{}: {} for {:.1} s after {:.1} s of warm-up, {} client(s) of {} at {}",
            self.ended,
            options.load,
            options.seconds,
            options.warmup_seconds,
            options.clients,
            options.service,
            options.to
        )?;
        say!("µs          {COLUMNS}")?;
        say!("{}", row("answer", &self.latency))?;
        say!("{}", row("jitter", &self.jitter))?;
        say!()?;
        if self.parts.len() > 1 {
            self.print_parts()?;
        }
        say!("rate           {:.0}/s wanted, {:.0}/s answered", self.rate_wanted, self.rate_reached)?;
        say!(
            "messages       {} wanted, {} sent, {} answered, {} lost; {} acknowledged with the warm-up's",
            counts.wanted,
            counts.sent,
            counts.answered,
            counts.lost,
            counts.acked
        )?;
        if counts.silent > 0 {
            say!("               {} committed without an answer: not in the percentiles", counts.silent)?;
        }
        if counts.lost > 0 {
            say!("               those lost are in the percentiles with the time that they have waited")?;
        }
        say!(
            "sent late      {} by a millisecond or more, the latest by {:.3} ms; {} sent again",
            counts.late_sends,
            counts.late_max_ns as f64 / 1e6,
            counts.resent
        )?;
        say!("note           {OMISSION}")?;
        say!("jitter         gaps of a core that spins, before the run: what is within them is the box's")?;
        say!("client         {}, {}", options.idle, options.nic)?;
        let host = &self.host;
        say!("host           {}: {}, cores {:?}, {}", host.hostname, host.cpu_model, host.cores, host.kernel)
    }

    fn print_parts(&self) -> Result<(), Failure> {
        let us = |ns: u64| ns as f64 / 1e3;
        say!("wanted/s   answered/s        p50        p99      p99.9        max µs       lost")?;
        for part in &self.parts {
            let Latency { p50_ns, p99_ns, p999_ns, max_ns, .. } = part.latency;
            say!(
                "{:8.0} {:12.0} {:10.1} {:10.1} {:10.1} {:10.1} {:12}",
                part.rate_wanted,
                part.rate_reached,
                us(p50_ns),
                us(p99_ns),
                us(p999_ns),
                us(max_ns),
                part.lost
            )?;
        }
        say!()
    }
}
