//! The suites, one a file.

use crate::args::Options;
use crate::latency::Percentiles;
use crate::row::Row;
use jitter::Beside;

mod book;
mod core;
mod e2e;
mod feed;
mod histograms;
mod jitter;
mod journal;
mod link;
mod nic;
mod node;
mod recover;
mod ring;
pub mod shm;
mod sim;

/// A set of comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Frames and the codec, on one core.
    Core,
    /// The embedded node.
    Node,
    /// The log ring, between cores.
    Ring,
    /// Followers in other processes.
    Shm,
    /// The order book alone, on one core.
    Book,
    /// Durable appends.
    Journal,
    /// Reading the log back, and the snapshots that spare it.
    Recover,
    /// The packet path: AF_XDP beside kernel UDP.
    Nic,
    /// The feed's receiving end.
    Feed,
    /// The client link, both ends on one core.
    Link,
    /// The whole path.
    E2e,
    /// The simulator, on one core.
    Sim,
    /// What cores lose to the system.
    Jitter,
}

impl Suite {
    /// Every suite, in the order in which `all` runs them.
    pub const ALL: [Suite; 13] = [
        Suite::Jitter,
        Suite::Core,
        Suite::Node,
        Suite::Ring,
        Suite::Shm,
        Suite::Book,
        Suite::Journal,
        Suite::Recover,
        Suite::Nic,
        Suite::Feed,
        Suite::Link,
        Suite::E2e,
        Suite::Sim,
    ];

    /// As written on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Suite::Core => "core",
            Suite::Node => "node",
            Suite::Ring => "ring",
            Suite::Shm => "shm",
            Suite::Book => "book",
            Suite::Journal => "journal",
            Suite::Recover => "recover",
            Suite::Nic => "nic",
            Suite::Feed => "feed",
            Suite::Link => "link",
            Suite::E2e => "e2e",
            Suite::Sim => "sim",
            Suite::Jitter => "jitter",
        }
    }

    /// Runs it. Where it has latencies, what its core lost to the system stands beside them.
    ///
    /// # Errors
    /// What it could not do without, in one line.
    pub fn run(self, options: &Options) -> Result<Outcome, String> {
        let beside = Beside::begin();
        let mut outcome = self.measure(options)?;
        if self != Suite::Jitter && !outcome.percentiles.is_empty() {
            // Suites leave their thread on the core that they measured on.
            outcome.percentiles.push(beside.end());
        }
        Ok(outcome)
    }

    fn measure(self, options: &Options) -> Result<Outcome, String> {
        match self {
            Suite::Core => Ok(core::run(options)),
            Suite::Node => node::run(options),
            Suite::Ring => Ok(ring::run(options)),
            Suite::Shm => shm::run(options),
            Suite::Book => book::run(options),
            Suite::Journal => journal::run(options),
            Suite::Recover => recover::run(options),
            Suite::Nic => nic::run(options),
            Suite::Feed => feed::run(options),
            Suite::Link => Ok(link::run(options)),
            Suite::E2e => e2e::run(options),
            Suite::Sim => Ok(sim::run(options)),
            Suite::Jitter => Ok(jitter::run(options)),
        }
    }
}

/// What a suite found.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The comparisons.
    pub rows: Vec<Row>,
    /// Latencies up to their maximum.
    pub percentiles: Vec<Percentiles>,
    /// What a reader has to know: what was left out and why, what was used.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Adds what another part of the suite found.
    pub fn append(&mut self, part: Outcome) {
        self.rows.extend(part.rows);
        self.percentiles.extend(part.percentiles);
        self.notes.extend(part.notes);
    }
}
