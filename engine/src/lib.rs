//! ticktape: write a deterministic [`Service`]; get a total order, a durable journal, recovery by replay, client sessions
//! and replicas with bit-identical state.
//!
//! ```text
//!  clients ──► link ──► sequencer ──► log ring ─┬─► journaler ─► disk ─► durable ─┐
//!                                               ├─► executor: Service::apply      ├─► egress ──► clients
//!                                               ├─► publisher ─► multicast        │   (up to commit)
//!                                               └─► followers in other processes ─┘
//! ```
//!
//! The stages are public for runners of another kind than those here: the simulator polls the same structs.
//!
//! Invariant: only the sequencer writes the log; everything else reads it.
//! Invariant: nothing leaves the box before the log up to it is committed.
//! Invariant: only the wiring in `pipeline` and `node` opens a socket, a thread or a clock, and `client::blocking`, which runs elsewhere;
//! files also `tail`, to read, `config`, and `client`, for its epoch and for a state on its way.

#![forbid(unsafe_code)]

extern crate self as ticktape;

pub mod catchup;
pub mod client;
pub mod config;
pub mod control;
pub mod egress;
pub mod events;
pub mod executor;
pub mod feed;
pub mod journaler;
pub mod link;
pub mod log;
pub mod machine;
pub mod mark;
pub mod metrics;
mod node;
pub mod outputs;
pub mod payload;
pub mod pipeline;
pub mod replica;
pub mod sequencer;
pub mod session;
pub mod shadow;
pub mod snapshot;
pub mod tail;
pub mod tails;
pub mod timer;

pub use node::{Node, NodeConfig, NodeError, Replayed, SyncPolicy, replay};
pub use ticktape_core::{
    Ctx, Decode, DecodeError, Effects, Encode, Frame, FrameError, InvariantViolation, Invariants, Kind, Nanos,
    Outgoing, Reader, Seq, Service, SessionEvent, SessionId, Target, TimerId, TimerOp, Timestamp,
};
pub use ticktape_macros::{Decode, Encode};
