//! What a run came to: the numbers of its table, and of `summary.json`.

use serde::{Deserialize, Serialize};

use crate::hdr::Latency;

/// What `summary.json` says that it is.
pub const FORMAT: &str = "ticktape load 1";

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`FORMAT`].
    pub format: String,
    pub options: Options,
    pub host: Host,
    /// Milliseconds since the Unix epoch.
    pub started_unix_ms: u64,
    /// "complete", or why it ended before.
    pub ended: String,
    pub counts: Counts,
    /// Messages a second that were to be sent, and that were answered, of those that count.
    pub rate_wanted: f64,
    pub rate_reached: f64,
    /// From the intended send to the first answer.
    pub latency: Latency,
    /// What a spinning core lost to the box before the run.
    pub jitter: Latency,
    pub parts: Vec<PartSummary>,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    pub to: String,
    pub service: String,
    /// What is sent when, in words.
    pub load: String,
    pub clients: u64,
    pub warmup_seconds: f64,
    pub seconds: f64,
    pub idle: String,
    pub core: Option<usize>,
    pub nic: String,
    pub version: String,
    /// The commit that the command was built from, where it runs in its own checkout.
    pub commit: Option<String>,
}

/// Where it ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    pub hostname: String,
    pub kernel: String,
    pub cpu_model: String,
    pub cores: Vec<usize>,
}

/// Messages, without those of the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// To be sent.
    pub wanted: u64,
    pub sent: u64,
    pub answered: u64,
    /// Committed without an answer of their own.
    pub silent: u64,
    /// Never answered, or never sent: in the percentiles with the time that they have waited.
    pub lost: u64,
    /// Committed, those of the warm-up among them.
    pub acked: u64,
    /// Sent again by the link.
    pub resent: u64,
    /// Times that the appliance could not keep events.
    pub resyncs: u64,
    /// Answers that fit no message.
    pub stray: u64,
    /// Sent a millisecond or more after they were meant to be.
    pub late_sends: u64,
    pub late_max_ns: u64,
}

/// One part, as one rate of `--steps`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartSummary {
    pub rate_wanted: f64,
    pub rate_reached: f64,
    pub wanted: u64,
    pub answered: u64,
    pub lost: u64,
    pub latency: Latency,
}
