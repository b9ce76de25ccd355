//! What an intake is set up with, and what it comes to.

use std::net::SocketAddrV4;

use ticktape_core::Seq;
use ticktape_nic::{Rx, Tx};
use ticktape_shm::{CommitMark, Watermarks};

use crate::catchup::EpochTable;
use crate::feed::RepairConfig;
use crate::replica::bulk::SnapshotAt;
use crate::replica::door::Door;
use crate::shadow::Committed;

/// How an intake is set up.
#[derive(Clone, Debug)]
pub struct IntakeConfig {
    /// Which stream, as in the feed's session.
    pub stream: u32,
    /// Who repairs and tells what is committed, by address; the same as the arbiter's rewinders.
    pub peers: Vec<SocketAddrV4>,
    /// Messages that may be held ahead of their turn: a power of two.
    pub window_messages: usize,
    /// The largest frame.
    pub frame_bytes_max: usize,
    /// How long a missing message is waited for on the other side, in ns.
    pub wait_ns: u64,
    /// How rewinders are asked.
    pub repair: RepairConfig,
    /// The replica's own number.
    pub replica: u64,
    /// Its statuses are numbered from here on.
    pub first_status: u64,
    /// The identity of the log; 0 where it has none.
    pub log_id: u64,
    /// What was known to be committed before.
    pub committed: Seq,
    /// The last frame that the state is to contain.
    pub last_wanted: Seq,
}

/// Why an intake has come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A snapshot has come, to begin again from.
    Snapshot(SnapshotAt),
    /// Frames from `from` on were taken back: the log has to be given up there.
    TakenBack {
        /// Who says so, in a line.
        why: String,
        /// The first of them.
        from: Seq,
    },
    /// Nothing that could be tried again would help.
    Fault(String),
}

/// The ports of an intake.
pub struct Ports<R: Rx, T: Tx> {
    /// Feed A and, if there is one, feed B.
    pub feeds: Vec<R>,
    /// Where repairs and commits come in.
    pub repair_rx: R,
    /// Where requests and statuses go out.
    pub repair_tx: T,
}

/// The ring's part of an intake.
pub struct RingSide {
    /// Writes to it.
    pub door: Door,
    /// How far it is durable.
    pub watermarks: Watermarks,
    /// What its followers may read.
    pub commit_mark: CommitMark,
    /// What the executor may apply.
    pub committed: Committed,
    /// The log's epochs, for whoever serves it.
    pub epochs: EpochTable,
}
