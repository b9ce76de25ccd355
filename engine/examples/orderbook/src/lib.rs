//! A limit order book as a deterministic service: price-time priority, integer ticks, any `i64` price and any `u64` name.
//!
//! ```text
//!   Command ──► OrderBook::apply ──► Report ──► ReportStream (lines, SHA-256)
//!                │      │
//!                │      └─ levels ─► pages, runs   prices of a side, best first
//!                └─ orders ─► slab, index          a level's queue is a list through the slots of its orders
//! ```
//!
//! | who | owns |
//! |---|---|
//! | `book` | matching, and where every share went |
//! | `levels`, `runs` | prices: pages of 64 ticks, found by a guess or a binary search; the best price remembered |
//! | `orders`, `slab` | live orders: found by name, slots reused |
//! | `flow` | the orders file, and order flow that is made up |
//!
//! Invariant: the best bid is below the best ask.
//! Invariant: every accepted share is exactly one of traded, canceled, expired, resting.
//! Invariant: equal books have equal snapshots, however they came about.
//! Invariant: memory follows the live orders; while as many leave as arrive, none is allocated.

#![forbid(unsafe_code)]

mod book;
mod command;
mod config;
mod depth;
mod drive;
pub mod flow;
mod invariants;
mod levels;
mod orders;
mod report;
mod runs;
mod slab;
mod snapshot;
mod stream;

pub use book::OrderBook;
pub use command::{Command, Side, TimeInForce};
pub use config::{BookConfig, ORDERS_MAX};
pub use depth::{DEPTH_SHOWN, Depth};
pub use drive::Driver;
pub use report::{LINE_BYTES_MAX, RejectReason, Report};
pub use snapshot::{BookSnapshot, RestingOrder, Shares, Terms};
pub use stream::{Late, ReportHasher, ReportStream, StreamDigest};
