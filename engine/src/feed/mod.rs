//! The feed: a numbered stream of messages to whoever listens, as MoldUDP64.
//!
//! ```text
//!   publisher ──► packet (session, sequence, count, messages) ──► group A
//!                                                           └───► group B, the same bytes
//! ```
//!
//! Invariant: message n of a session is the same bytes in every packet that carries it, on A, on B and in a repair.
//! Invariant: a packet never exceeds one datagram; what would not fit is refused before it is numbered.

pub mod mold;
mod publisher;
mod session;

use crate::link::layout::Table;

pub use mold::{MoldError, MoldMessages, MoldPacket, MoldRequest, Packer};
pub use publisher::{FeedConfig, FeedCounters, Publisher};
pub use session::{FeedSession, FeedSessionError};

/// Every table of WIRE.md, "Feed", in its order.
pub const TABLES: [Table; 3] = [
    Table { name: "Packet", from: 0, fields: mold::FIELDS },
    Table { name: "Message", from: 0, fields: mold::MESSAGE_FIELDS },
    Table { name: "Session name", from: 0, fields: session::FIELDS },
];
