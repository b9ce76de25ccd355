//! The simulator: an appliance on one seed.
//!
//! ```text
//!  Seed ─► World ─┬─ clients (the real link) ─► Network: loss, copies, reordering, corruption, partitions ─┐
//!                 ├─ clock of each host: skew, jumps                                                        ▼
//!                 └─ which stage polls next ─► host: sequencer, journaler, executor, egress, as they are live
//!                                                        └─► Medium: a volatile cache over a durable medium
//! ```
//!
//! Who owns what: [`rng`] all chance, [`clock`] all time, [`nic`] and [`disk`] stand in for the ports' backends, `world` decides
//! what happens and who is next, `ledger` knows what must hold, `trace` tells what happened. [`simulate()`] runs one world, [`vopr()`] many.
//! `fuzz/` feeds hostile bytes to every parser, and `tests/corpus.rs` runs its corpus with the ordinary tests.
//!
//! Invariant: a run follows from its seed and configuration alone; nothing here reads a clock, the environment or a system's random numbers.

#![forbid(unsafe_code)]

pub mod clock;
pub mod coverage;
mod customer;
pub mod disk;
mod host;
mod ledger;
pub mod nic;
pub mod rng;
pub mod services;
pub mod shrink;
pub mod simulate;
pub mod trace;
mod world;

pub use rng::{Ppm, Rng, Seed};
pub use simulate::{Batch, Failure, Faults, Report, SimConfig, simulate, simulate_told, vopr};
