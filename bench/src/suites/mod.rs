//! The suites, one a file.

use crate::args::Options;
use crate::latency::Percentiles;
use crate::row::Row;

mod book;
mod core;
mod e2e;
mod feed;
mod journal;
mod link;
mod nic;
mod node;
mod recover;
pub mod ring;
mod sim;

/// A set of comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Frames and the codec, on one core.
    Core,
    /// The embedded node.
    Node,
    /// The log ring, between cores and between processes.
    Ring,
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
}

impl Suite {
    /// Every suite, in the order in which `all` runs them.
    pub const ALL: [Suite; 11] = [
        Suite::Core,
        Suite::Node,
        Suite::Ring,
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
            Suite::Book => "book",
            Suite::Journal => "journal",
            Suite::Recover => "recover",
            Suite::Nic => "nic",
            Suite::Feed => "feed",
            Suite::Link => "link",
            Suite::E2e => "e2e",
            Suite::Sim => "sim",
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// What it could not do without, in one line.
    pub fn run(self, options: &Options) -> Result<Outcome, String> {
        match self {
            Suite::Core => Ok(core::run(options)),
            Suite::Node => node::run(options),
            Suite::Ring => ring::run(options),
            Suite::Book => book::run(options),
            Suite::Journal => journal::run(options),
            Suite::Recover => recover::run(options),
            Suite::Nic => nic::run(options),
            Suite::Feed => feed::run(options),
            Suite::Link => Ok(link::run(options)),
            Suite::E2e => e2e::run(options),
            Suite::Sim => Ok(sim::run(options)),
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

/// The budgets in one line, and the rows that fall short by name.
pub fn verdict(rows: &[Row]) -> Vec<String> {
    let judged = rows.iter().filter_map(|row| Some((row, row.holds()?)));
    let short: Vec<&Row> = judged.clone().filter(|(_, holds)| !holds).map(|(row, _)| row).collect();
    let mut lines = vec![format!("budgets: {} of {} hold", judged.clone().count() - short.len(), judged.count())];
    lines.extend(short.iter().map(|row| format!("  short: {}: {}", row.suite, row.row)));
    lines
}
