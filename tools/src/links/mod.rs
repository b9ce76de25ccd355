//! What a capture holds of an appliance: its client links and its feeds, put back in order.
//!
//! ```text
//!   datagrams ─► Links ─┬─ to the appliance ──► inputs ──────────┐
//!                       ├─ from it ───────────► events           ├─► each message once, in the order of its stream: Handed
//!                       └─ neither ───────────► feeds: MoldUDP64 ┘
//! ```
//!
//! [`Links`] is a plain machine, without file, clock or thread: it is told one datagram after another, and hands on each message as
//! soon as those before it in its stream were there, or are known to be missing from the capture. That is so when whoever received
//! them acknowledged them, or when too much waits behind them, or at the end.
//!
//! Invariant: memory is bounded, whatever a capture holds.

mod machine;
mod missing;
mod stream;
#[cfg(test)]
mod tests;
mod wire_to_wire;

pub use machine::{Counts, Feed, Handed, Input, Links, OnHanded};
pub use missing::Missing;
pub use stream::{Deliver, Figures, Stream};
pub use wire_to_wire::WireToWire;

/// Streams that are told apart: inputs of a client in one of its epochs, events of a session, and feeds. What is of more is counted.
pub const STREAMS_MAX: usize = 4_096;
/// Bytes of messages that wait for those before them, with what it takes to keep them, over all streams. Links keep 256 KiB each; a
/// capture that lost much lets more wait until an acknowledgement tells.
pub const KEPT_BYTES_MAX: usize = 64 << 20;
/// Ranges of missing numbers that are kept of a stream; those beyond are counted.
pub const RANGES_MAX: usize = 16_384;
/// Results that are kept until their input comes: those of a window of commands, as far as a recorder may swap packets.
pub const EARLY_RESULTS_MAX: usize = 65_536;
/// Packets after which an acknowledgement is believed to come after what it acknowledges: a recorder with several taps may swap
/// neighbours.
pub const SETTLE_PACKETS: u64 = 256;
