//! The link between a client and the appliance: two reliable, ordered streams over datagrams, commands up and outputs down.
//!
//! ```text
//!   client                                              appliance
//!   ClientLink ── Hello (resume cursor) ──────────────►
//!              ◄─ Welcome (where both streams stand) ──
//!   Sender     ── Data (client seqs) ─────────────────► Receiver   in the sequencer
//!              ◄─ Ack: committed, received ────────────
//!   Receiver   ◄─ Data (event seqs) ─────────────────── Sender     in the egress
//!              ── Ack ────────────────────────────────►
//! ```
//!
//! All are plain machines: no socket, no clock, no thread, no allocation after construction. The appliance's two ends of a
//! session share no state, so that they may live on different cores.
//!
//! Invariant: each stream has (epoch, seq); a message is delivered once, in order, within its epoch.
//! Invariant: an acknowledgement never goes beyond what is committed, and is where a reconnecting peer resumes.
//! Invariant: cursors named `_next` are half open: the first number that is not covered.

mod accept;
mod bits;
mod client;
mod client_config;
mod client_event;
mod client_handshake;
mod data;
mod error;
pub mod event;
mod event_start;
pub mod layout;
mod loss;
mod packet;
mod ranges;
mod receiver;
mod reorder;
mod sender;
mod sent_ring;
pub mod serial;

pub use accept::{Answer, Standing, Terms, answer_hello};
pub use client::{ClientLink, ClientState};
pub use client_config::ClientConfig;
pub use client_event::{CloseReason, Event, HistoryGap};
pub use data::{DATA_OVERHEAD_BYTES, Data, Messages};
pub use error::{DropReason, LinkCounters, PacketError};
pub use event::EventMessage;
pub use event_start::{CursorReign, EventStart, Reigns};
pub use packet::{
    Ack, ByeReason, DATAGRAM_BYTES_LIMIT, Hello, Identity, Packet, Refuse, RefuseReason, ResyncReason, SEQ_LIMIT, Tier,
    Type, Welcome,
};
pub use ranges::{Range, Ranges};
pub use receiver::{Outcome, Receiver, ReceiverConfig, ResyncCause};
pub use sender::{
    AckOutcome, RESEND_PER_NACK_MAX, RESEND_PER_TIMEOUT_MAX, ResumeError, SendError, Sender, SenderConfig,
};

#[cfg(test)]
mod client_tests;
#[cfg(test)]
mod packet_tests;
#[cfg(test)]
mod pipe_tests;
#[cfg(test)]
mod stream_tests;
