//! What the demo shows at the end, for people and as JSON.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;
use ticktape_tuning::host::Host;

use super::appliance::{Captured, Final, Ready};
use super::client::Driven;
use super::follower::Followed;
use super::phases::Phase;
use crate::Failure;
use crate::args::{DemoArgs, Rate};
use crate::hdr::Latency;
use crate::out::say;
use crate::service::Outcome;

/// The stages, in the order in which a message passes them; `sequenced` to `released` count from the wire.
const STAGES: [&str; 5] = ["sequenced", "durable", "applied", "released", "round_trip"];

/// What must hold, and whether it does.
#[derive(Debug)]
pub struct Verdict {
    mismatches: Vec<String>,
}

impl Verdict {
    /// Compares everything with everything.
    pub fn new(driven: &Driven, ended: &Final, followed: &Followed, replayed: &Outcome, orders: u64) -> Self {
        let mut mismatches = Vec::new();
        let mut same = |what: &str, left: &dyn std::fmt::Display, right: &dyn std::fmt::Display| {
            if left.to_string() != right.to_string() {
                mismatches.push(format!("{what}: {left} is not {right}"));
            }
        };
        same("orders answered and sent", &driven.answered, &orders);
        same("orders acknowledged and sent", &driven.acknowledged, &orders);
        same("commands in the journal and orders sent", &replayed.commands, &orders);
        same("answers out of turn", &driven.wrong_answers, &0);
        same("follower's and leader's last seq", &followed.seq, &ended.seq);
        same("follower's and leader's digest", &followed.digest, &ended.digest);
        same("replay's and leader's digest", &replayed.digest, &ended.digest);
        same("client's and replay's reports", &driven.reports.reports, &replayed.reports);
        same("client's and replay's report hash", &driven.reports.sha256, &replayed.report_sha256);
        if let Some(capture) = &ended.capture {
            same("packets lost by the capture", &capture.lost, &0);
            mismatches.extend(capture.error.clone());
        }
        Verdict { mismatches }
    }

    /// Whether everything is as it must be.
    pub fn is_good(&self) -> bool {
        self.mismatches.is_empty()
    }

    /// A failure that names the first mismatch.
    pub fn into_result(self) -> Result<(), Failure> {
        self.mismatches.into_iter().next().map_or(Ok(()), |mismatch| Err(Failure::Failed(mismatch)))
    }
}

/// Everything there is to show.
pub struct DemoResult<'a> {
    pub args: &'a DemoArgs,
    pub phases: &'a [Phase],
    pub ready: &'a Ready,
    pub driven: &'a Driven,
    pub ended: &'a Final,
    pub followed: &'a Followed,
    pub replayed: &'a Outcome,
    pub verdict: &'a Verdict,
    /// The same orders over kernel UDP, where they were played over something else.
    pub beside: Option<&'a Final>,
    pub host: Host,
    pub noise: Histogram<u64>,
    pub seconds: f64,
}

#[derive(Serialize)]
pub struct Json {
    messages: u64,
    reports: u64,
    report_sha256: String,
    throughput_per_s: f64,
    stages: BTreeMap<String, Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stages_max_rate: Option<BTreeMap<String, Latency>>,
    leader_digest: String,
    follower_digest: String,
    replay_digest: String,
    follower_overruns: u64,
    journal: JournalJson,
    tier: &'static str,
    nic: String,
    wire: &'static str,
    ring: String,
    cores: String,
    idle: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime: Option<String>,
    host: String,
    jitter: Latency,
    resent_messages: u64,
    counters: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capture: Option<Captured>,
    seconds: f64,
    ok: bool,
}

#[derive(Serialize)]
struct JournalJson {
    bytes: u64,
    commits: u64,
    strategy: String,
    backend: String,
}

impl DemoResult<'_> {
    /// The stable keys, and some more.
    pub fn json(&self) -> Json {
        Json {
            messages: self.driven.answered,
            reports: self.driven.reports.reports,
            report_sha256: self.driven.reports.sha256.clone(),
            throughput_per_s: self.throughput_per_s(self.phases.len() - 1),
            stages: self.stages(0),
            stages_max_rate: (self.phases.len() > 1).then(|| self.stages(1)),
            leader_digest: self.ended.digest.clone(),
            follower_digest: self.followed.digest.clone(),
            replay_digest: self.replayed.digest.clone(),
            follower_overruns: self.followed.overruns,
            journal: JournalJson {
                bytes: self.ended.journal_bytes,
                commits: self.ended.journal_commits,
                strategy: self.ready.journal_strategy.clone(),
                backend: self.ready.journal.clone(),
            },
            tier: self.args.tier.as_str(),
            nic: self.ready.nic.clone(),
            wire: self.wire(),
            ring: self.ready.ring.clone(),
            cores: self.ready.cores.clone(),
            idle: self.ready.idle.clone(),
            runtime: self.ready.runtime.clone(),
            host: self.host.to_string(),
            jitter: Latency::of(&self.noise),
            resent_messages: self.driven.resent,
            counters: self.ended.counters.clone(),
            capture: self.ended.capture.clone(),
            seconds: self.seconds,
            ok: self.verdict.is_good(),
        }
    }

    /// The table and the verdict.
    pub fn print(&self) -> Result<(), Failure> {
        say!()?;
        for (i, phase) in self.phases.iter().enumerate() {
            self.print_phase(i, phase)?;
        }
        self.print_beside()?;
        say!("jitter of an idle core: {}", row("", &Latency::of(&self.noise)).trim_start())?;
        say!()?;
        say!("nic            {}", self.ready.nic)?;
        say!("wire time      {}", self.wire())?;
        say!("journal        {}", self.ready.journal)?;
        say!("               {} commits, {:.1} MB", self.ended.journal_commits, self.ended.journal_bytes as f64 / 1e6)?;
        say!("ring           {}", self.ready.ring)?;
        if let Some(feed) = &self.ready.feed {
            say!("feed           {feed}")?;
        }
        if let Some(snapshots) = &self.ready.snapshots {
            let count = |name: &str| self.ended.counters.get(&format!("shadow.{name}")).copied().unwrap_or_default();
            say!("snapshots      {snapshots}")?;
            say!("               {} taken, the last after seq {}", count("snapshots"), count("last_snapshot"))?;
        }
        if let Some(capture) = &self.ready.capture {
            say!("capture        {capture}")?;
        }
        say!("cores          {}", self.ready.cores)?;
        say!("idle           {}", self.ready.idle)?;
        if let Some(runtime) = &self.ready.runtime {
            say!("runtime        {runtime}")?;
        }
        if let Some(nodes) = &self.ready.nodes {
            say!("nodes          {nodes}")?;
        }
        say!("host           {}", self.host)?;
        say!()?;
        self.print_verdict()
    }

    fn print_phase(&self, part: usize, phase: &Phase) -> Result<(), Failure> {
        let rate = match phase.rate {
            Rate::Max => "as fast as acknowledgements allow".to_string(),
            Rate::PerSecond(rate) => format!("{rate} messages/s"),
        };
        say!(
            "{} orders, {rate}: {:.2} s, {:.0} orders/s, tier {}",
            phase.to - phase.from,
            self.driven.phases[part].seconds,
            self.throughput_per_s(part),
            self.args.tier.as_str()
        )?;
        say!("µs from wire{COLUMNS}")?;
        let stages = self.stages(part);
        for name in STAGES {
            if let Some(latency) = stages.get(name) {
                say!("{}", row(name, latency))?;
            }
        }
        say!()
    }

    /// Wire to released, over this backend and over the kernel's.
    fn print_beside(&self) -> Result<(), Failure> {
        let Some(beside) = self.beside else { return Ok(()) };
        let released = |ended: &Final, part: usize| ended.parts.get(part)?.get("released").copied();
        for part in 0..self.phases.len() {
            if let (Some(ours), Some(kernel)) = (released(self.ended, part), released(beside, part)) {
                let us = |ns: u64| ns as f64 / 1e3;
                say!(
                    "phase {}: wire to released p50 {:.1} µs over XDP, {:.1} µs over kernel UDP; p99 {:.1} and {:.1} µs (XDP counts from \
                     the poll that takes a burst, kernel UDP from the kernel's stamp before it)",
                    part + 1,
                    us(ours.p50_ns),
                    us(kernel.p50_ns),
                    us(ours.p99_ns),
                    us(kernel.p99_ns)
                )?;
            }
        }
        say!()
    }

    fn print_verdict(&self) -> Result<(), Failure> {
        say!(
            "orders         {} sent, answered and acknowledged, {} sent again",
            self.driven.answered,
            self.driven.resent
        )?;
        say!("reports        {}", self.driven.reports.reports)?;
        say!("report sha256  {}", self.driven.reports.sha256)?;
        say!("leader         {} at seq {}", self.ended.digest, self.ended.seq)?;
        say!(
            "follower       {} at seq {}, {} overruns",
            self.followed.digest,
            self.followed.seq,
            self.followed.overruns
        )?;
        say!("replay         {} at seq {}", self.replayed.digest, self.replayed.seq)?;
        for mismatch in &self.verdict.mismatches {
            say!("MISMATCH       {mismatch}")?;
        }
        if self.verdict.is_good() {
            say!(
                "verdict        OK: nothing lost, nothing doubled; leader = follower = replay ({:.1} s)",
                self.seconds
            )?;
        }
        if let Some(capture) = &self.ended.capture {
            let Captured { file, packets, lost, bytes, .. } = capture;
            say!("capture: {packets} packets, {lost} lost ({:.1} MB in {file})", *bytes as f64 / 1e6)?;
        }
        Ok(())
    }

    fn throughput_per_s(&self, part: usize) -> f64 {
        let phase = &self.phases[part];
        (phase.to - phase.from) as f64 / self.driven.phases[part].seconds
    }

    /// A part's latencies by stage, the client's round trip among them.
    fn stages(&self, part: usize) -> BTreeMap<String, Latency> {
        let mut stages = self.ended.parts.get(part).cloned().unwrap_or_default();
        stages.insert("round_trip".to_string(), self.driven.phases[part].round_trip);
        stages
    }

    fn wire(&self) -> &'static str {
        let counted = |name: &str| self.ended.counters.get(name).copied().unwrap_or(0);
        let (commands, stamped) = (counted("sequencer.commands"), counted("sequencer.stamped_by_kernel"));
        match stamped {
            0 => "the poll that took the burst",
            _ if stamped == commands => "the kernel's receive timestamp",
            _ => "the kernel's receive timestamp, or the poll where there was none",
        }
    }
}

/// What the columns of [`row`] are, behind a title of twelve letters.
pub const COLUMNS: &str = "      p50       p90       p99     p99.9    p99.99       max      count";

/// A latency in µs, as a line.
pub fn row(name: &str, latency: &Latency) -> String {
    let us = |ns: u64| format!("{:10.1}", ns as f64 / 1e3);
    format!(
        "{name:11}{}{}{}{}{}{} {:10}",
        us(latency.p50_ns),
        us(latency.p90_ns),
        us(latency.p99_ns),
        us(latency.p999_ns),
        us(latency.p9999_ns),
        us(latency.max_ns),
        latency.count
    )
}

#[cfg(test)]
mod tests {
    use orderbook::StreamDigest;
    use ticktape::Seq;

    use super::*;

    fn good() -> (Driven, Final, Followed, Outcome) {
        let (digest, sha256) = ("d".to_string(), "s".to_string());
        let reports = StreamDigest { reports: 3, sha256: sha256.clone() };
        (
            Driven { phases: Vec::new(), reports, answered: 2, acknowledged: 2, wrong_answers: 0, resent: 0 },
            Final {
                fault: None,
                seq: 4,
                digest: digest.clone(),
                parts: Vec::new(),
                counters: BTreeMap::new(),
                journal_bytes: 0,
                journal_commits: 0,
                capture: Some(Captured { file: "f".to_string(), packets: 9, lost: 0, bytes: 900, error: None }),
            },
            Followed { seq: 4, digest: digest.clone(), overruns: 0 },
            Outcome { seq: Seq(4), commands: 2, digest, reports: 3, report_sha256: sha256 },
        )
    }

    #[test]
    fn only_a_run_without_any_mismatch_is_good() {
        let (driven, ended, followed, replayed) = good();
        assert!(Verdict::new(&driven, &ended, &followed, &replayed, 2).is_good());
        type Spoil = fn(&mut Driven, &mut Final, &mut Followed, &mut Outcome);
        let spoils: [Spoil; 11] = [
            |driven, _, _, _| driven.answered = 1,
            |driven, _, _, _| driven.acknowledged = 3,
            |driven, _, _, _| driven.wrong_answers = 1,
            |driven, _, _, _| driven.reports.reports = 2,
            |driven, _, _, _| driven.reports.sha256 = "x".to_string(),
            |_, ended, _, _| ended.digest = "x".to_string(),
            |_, ended, _, _| ended.capture.as_mut().unwrap().lost = 1,
            |_, ended, _, _| ended.capture.as_mut().unwrap().error = Some("full".to_string()),
            |_, _, followed, _| followed.digest = "x".to_string(),
            |_, _, followed, _| followed.seq = 3,
            |_, _, _, replayed| replayed.commands = 3,
        ];
        for (i, spoil) in spoils.into_iter().enumerate() {
            let (mut driven, mut ended, mut followed, mut replayed) = good();
            spoil(&mut driven, &mut ended, &mut followed, &mut replayed);
            let verdict = Verdict::new(&driven, &ended, &followed, &replayed, 2);
            assert!(!verdict.is_good(), "mismatch {i} went unseen");
            assert!(matches!(verdict.into_result(), Err(Failure::Failed(_))));
        }
    }
}
