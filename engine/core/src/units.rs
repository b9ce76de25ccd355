//! The numbers that travel through the whole appliance, each with a type of its own.

use std::fmt;

/// A duty cycle's `now`: nanoseconds of a monotonic clock, handed to every `poll`.
///
/// Its origin is the runner's choice; two values compare only within one process.
pub type Nanos = u64;

/// A position in the one order: gapless, from 1. Zero is "before the first frame".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first frame.
    pub const ZERO: Seq = Seq(0);
    /// The first frame of a log.
    pub const FIRST: Seq = Seq(1);
    /// The largest number a frame may carry; the bit above it marks a skip in the ring.
    pub const MAX: Seq = Seq((1 << 63) - 1);

    /// The number that follows.
    #[must_use]
    pub const fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A sequenced point in time: nanoseconds since the Unix epoch, stamped by the sequencer. Never backwards along a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The time `ns` nanoseconds later, saturating.
    #[must_use]
    pub const fn plus_ns(self, ns: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(ns))
    }
}

/// A client session's identity, chosen by its owner and kept over reconnects and restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A timer's name within a service. Arming a live name again moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(pub u64);
