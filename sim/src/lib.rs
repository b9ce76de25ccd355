//! The simulator: an appliance on one seed.
//!
//! ```text
//!  Seed ─► World ─┬─ clients (the real link) ─► Network: loss, copies, reordering, corruption, partitions ─┐
//!                 ├─ clock of each host: skew, jumps                                                        ▼
//!                 └─ which stage polls next ─► host: sequencer, journaler, executor, egress, as they are live
//!                                                        └─► Medium: a volatile cache over a durable medium
//! ```
//!
//! Who owns what: [`rng`] all chance, [`clock`] all time, [`nic`] and [`disk`] stand in for the ports' backends.
//! `fuzz/` feeds hostile bytes to every parser, and `tests/corpus.rs` runs its corpus with the ordinary tests.
//!
//! Invariant: a run follows from its seed and configuration alone; nothing here reads a clock, the environment or a system's random numbers.

#![forbid(unsafe_code)]

pub mod clock;
pub mod disk;
pub mod nic;
pub mod rng;
