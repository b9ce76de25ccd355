//! A capture, through an appliance's own stages once more.
//!
//! ```text
//!             Links: what the capture holds, in its order
//!               │ inputs        │ frames of the feed: their order, stamps, ticks and marks        │ events
//!               ▼               ▼                                                                 ▼
//!   far end ─► in-process Nic ─► sequencer ─► log ring ─► executor ─► output ring ─► egress ─► compared, byte for byte
//!                                    └─► each frame compared with the feed's
//! ```
//!
//! [`Rig`](rig::Rig) wires the live stages, but for the disk, and is polled by hand; [`Driver`] tells it what the capture says, and
//! compares. Neither reads a clock: the time is the capture's.
//!
//! Invariant: with a feed, nothing of the replay depends on when packets were captured.
//! Invariant: memory is bounded, whatever a capture holds.

mod driver;
#[cfg(test)]
mod driver_tests;
mod egress;
mod far_end;
mod rig;
#[cfg(test)]
mod tests;

pub use driver::{Driver, Halt, Summary};
pub use egress::Figures;
pub use rig::{AnyRig, Rig};

/// Bytes of messages that wait for what they are compared with, each kind by itself: what a capture has swapped, or lost.
pub const WAITING_BYTES_MAX: usize = 64 << 20;
