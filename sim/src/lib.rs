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
//! what happens and who is next, `ledger` knows what must hold, [`trace`] tells what happened, [`coverage`] what was met, and
//! [`shrink`] makes a failure small. [`simulate()`] runs one world, [`vopr()`] many.
//! `fuzz/` feeds hostile bytes to every parser, and `tests/corpus.rs` runs its corpus with the ordinary tests.
//!
//! # Your own service
//!
//! One trait, [`Invariants`](ticktape::Invariants), and one function that makes inputs put a service under all of it:
//!
//! ```
//! use ticktape::{Ctx, Decode, Encode, InvariantViolation, Invariants, Seq, Service};
//! use ticktape_sim::{Rng, SimConfig, simulate, vopr};
//!
//! /// A theatre that sells its seats.
//! struct Theatre {
//!     free: u32,
//!     sold: u32,
//! }
//!
//! const SEATS: u32 = 100;
//!
//! #[derive(Encode, Decode)]
//! enum Command {
//!     Buy(u32),
//!     GiveBack(u32),
//! }
//!
//! #[derive(Encode, Decode)]
//! struct Done(bool);
//!
//! impl Service for Theatre {
//!     type Input = Command;
//!     type Output = Done;
//!     type Snapshot = (u32, u32);
//!     type Config = ();
//!     const NAME: &'static str = "theatre";
//!
//!     fn genesis(_: &()) -> Self {
//!         Theatre { free: SEATS, sold: 0 }
//!     }
//!     fn apply(&mut self, _: Seq, input: &Command, ctx: &mut Ctx<'_, Done>) {
//!         let (bought, given_back) = match *input {
//!             Command::Buy(seats) => (seats, 0),
//!             Command::GiveBack(seats) => (0, seats),
//!         };
//!         let is_possible = bought <= self.free && given_back <= self.sold;
//!         if is_possible {
//!             self.free = self.free - bought + given_back;
//!             self.sold = self.sold + bought - given_back;
//!         }
//!         ctx.reply(Done(is_possible));
//!     }
//!     fn snapshot(&self) -> (u32, u32) {
//!         (self.free, self.sold)
//!     }
//!     fn restore((free, sold): (u32, u32), _: &()) -> Self {
//!         Theatre { free, sold }
//!     }
//! }
//!
//! impl Invariants for Theatre {
//!     fn check(&self) -> Result<(), InvariantViolation> {
//!         if self.free + self.sold == SEATS {
//!             return Ok(());
//!         }
//!         Err(InvariantViolation::new("no seat is lost", format!("{} free, {} sold", self.free, self.sold)))
//!     }
//! }
//!
//! /// Whatever is drawn from `rng` belongs to the seed; what a closure keeps from call to call does not.
//! fn gen_command(rng: &mut Rng) -> Command {
//!     if rng.flip() { Command::Buy(rng.below(9) as u32) } else { Command::GiveBack(rng.below(9) as u32) }
//! }
//!
//! let batch = vopr::<Theatre>(&SimConfig::new(0), 0..5, &(), gen_command);
//! if let Some(failure) = batch.first_failure {
//!     // Already shrunk: what was violated, in which step, the last events. This repeats it, event by event:
//!     let again = simulate::<Theatre>(&failure.config, &(), gen_command);
//!     assert_eq!(again.unwrap_err().check, failure.check);
//!     panic!("{failure}");
//! }
//! ```
//!
//! A batch in a test should also hold that [`Batch::too_shallow`] is empty: that the runs were many enough to lose power in the middle of
//! recovery, to tear sectors, to overflow rings. [`simulate_told`] hands over every event of one run.
//!
//! Invariant: a run follows from its seed and configuration alone; nothing here reads a clock, the environment or a system's random numbers.

#![forbid(unsafe_code)]

mod bulk;
pub mod calm;
pub mod clock;
pub mod coverage;
mod customer;
mod damage;
pub mod disk;
mod fold;
mod history;
mod host;
mod ledger;
pub mod linear;
pub mod nic;
mod replica;
pub mod rng;
pub mod scenario;
pub mod services;
pub mod shrink;
pub mod simulate;
mod told;
pub mod trace;
mod world;

pub use rng::{Ppm, Rng, Seed};
pub use simulate::{Batch, Failure, Faults, Report, SimConfig, simulate, simulate_told, vopr};

/// What the guide shows compiles.
#[cfg(doctest)]
#[doc = include_str!("../../engine/GUIDE.md")]
struct Guide;
