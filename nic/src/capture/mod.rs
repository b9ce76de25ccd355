//! A tap on what was received and sent, for where no other capture sees it: traffic that bypasses the kernel.
//!
//! ```text
//!   hot core: TappedRx, TappedTx ─► Tap ═ ring ═► TapEnd ─► Recorder: a thread of its own ─► pcapng file
//! ```
//!
//! - [`channel`] makes a [`Tap`] and its far end. The tap copies a datagram or a frame into a ring of bytes; where there is no
//!   room it is lost and counted, never waited for.
//! - [`Tapped`] puts taps around any [`crate::Nic`], so that every backend is captured alike.
//! - [`Recorder`] drains the taps and writes pcapng, which Wireshark reads: nanoseconds, interfaces, directions, losses in
//!   place and in sum. Datagrams get the Ethernet, IPv4 and UDP headers that they had or would have had.
//!
//! Invariant: a tap never allocates, waits, or calls the system.
//! Invariant: a file holds whole blocks only, whatever ended it; its summary tells how many packets are missing.

mod error;
pub mod pcapng;
mod record;
mod recorder;
mod tap;
mod tapped;

pub use error::CaptureError;
pub use recorder::{Recorder, RecorderConfig, RecorderThread, Summary, Timeline};
pub use tap::{Direction, Tap, TapEnd, channel};
pub use tapped::{Tapped, TappedRx, TappedTx, monotonic_now};
