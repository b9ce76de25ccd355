//! A simulated network: [`SimNic`] is the port, [`Network`] everything between the ports.
//!
//! Faults, for each direction between two hosts: packets lost, delivered twice, overtaken, with a bit flipped, late; a direction that is cut. At a
//! port: a receive ring that overflows, and a transmit queue that is not taken.
//!
//! What is flipped is delivered: that a card or a kernel would have noticed most of it only hides what the protocols have to notice.
//!
//! Invariant: what arrives, and when, follows from the seed and from what was sent when.

mod network;
mod port;
mod repairs;

use ticktape_core::Nanos;

use crate::rng::Ppm;

pub use network::{Network, NetworkCounters};
pub(crate) use port::Bell;
pub use port::{QueueConfig, SimNic, SimRx, SimTx};

/// What happens to packets on their way from one host to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFaults {
    /// A packet never arrives.
    pub loss: Ppm,
    /// A packet arrives twice.
    pub duplicate: Ppm,
    /// A packet may be overtaken by later ones.
    pub reorder: Ppm,
    /// One bit of a packet is flipped.
    pub corrupt: Ppm,
    /// The shortest way takes so long, in nanoseconds.
    pub delay_ns: Nanos,
    /// Up to so much more, evenly spread.
    pub jitter_ns: Nanos,
    /// A packet takes much longer than others: up to a hundred times as long.
    pub straggle: Ppm,
}

impl LinkFaults {
    /// A good cable: ten microseconds, in order.
    pub const NONE: LinkFaults = LinkFaults {
        loss: Ppm::NEVER,
        duplicate: Ppm::NEVER,
        reorder: Ppm::NEVER,
        corrupt: Ppm::NEVER,
        delay_ns: 10_000,
        jitter_ns: 2_000,
        straggle: Ppm::NEVER,
    };
}

impl Default for LinkFaults {
    fn default() -> Self {
        LinkFaults::NONE
    }
}

#[cfg(test)]
mod tests;
