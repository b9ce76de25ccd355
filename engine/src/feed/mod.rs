//! The feed: a numbered stream of messages to whoever listens, as MoldUDP64.
//!
//! ```text
//!   publisher ──► packet (session, sequence, count, messages) ──► group A ──► arbiter ──► each message once, in order
//!                                                           └───► group B ──►   ▲ │ what both lost
//!                                           ring, journal ──► rewinder ── repair ┘ └► request ──► a rewinder
//! ```
//!
//! Invariant: message n of a session is the same bytes in every packet that carries it, on A, on B and in a repair.
//! Invariant: a packet never exceeds one datagram; what would not fit is refused before it is numbered.

mod arbiter;
mod arbiter_report;
mod ended;
mod history;
mod history_log;
mod identity;
mod log_publisher;
pub mod mold;
mod proof;
mod publisher;
mod repair;
mod rewinder;
mod rewinder_rate;
mod server;
mod session;
mod slots;
pub mod status;
mod status_reporter;
mod status_tracker;

use crate::link::layout::Table;

pub use arbiter::{Arbiter, ArbiterConfig, Side, Verify};
pub use arbiter_report::{ArbiterCounters, Arrival, FeedEvent, PacketDrop, SideCounters};
pub use ended::EndedSessions;
pub use history::{History, HistoryRead, Recent};
pub use history_log::{LogHistory, LogHistoryCounters};
pub use identity::{LOG_EPOCH, LogPacket, LogTold, ask_log_identity, log_identity, told_log_identity};
pub use log_publisher::LogPublisher;
pub use mold::{MoldError, MoldMessages, MoldPacket, MoldRequest, Packer, SessionName, end_of_session};
pub use proof::{Proof, Verdict};
pub(crate) use publisher::HEARTBEAT_NS;
pub use publisher::{FeedConfig, FeedCounters, Publisher};
pub use repair::{RepairConfig, RepairCounters};
pub use rewinder::{Answer, Rewinder, RewinderConfig, RewinderCounters};
pub(crate) use server::STOP_PATIENCE_NS;
pub use server::{RepairServer, RepairServerConfig, RepairServerCounters, Role};
pub use session::{FeedSession, FeedSessionError, StreamName};
pub use status::{Commit, Status, StatusError};
pub use status_reporter::{Followed, Reporter, ReporterConfig, ReporterCounters, StatusDrop, Twins};
pub use status_tracker::{CommitDrop, CommitTracker, TakenBack, TrackerConfig, TrackerCounters};

/// Every table of WIRE.md, "Feed", in its order.
pub const TABLES: [Table; 3] = [
    Table { name: "Packet", from: 0, fields: mold::FIELDS },
    Table { name: "Message", from: 0, fields: mold::MESSAGE_FIELDS },
    Table { name: "Session name", from: 0, fields: session::FIELDS },
];

#[cfg(test)]
mod status_tests;
