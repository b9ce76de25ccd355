//! What every part of ticktape agrees on: the frame, the canonical codec, and the `Service` a user writes.
//!
//! ```text
//!   Input ──Encode──► Frame { seq, timestamp, kind, payload } ──► ring, disk, wire, replay
//!                                      │
//!                                      ▼
//!                 Service::apply(seq, &input, ctx) ──► outputs and timers, nothing else
//! ```
//!
//! This crate performs no I/O, reads no clock and contains no `unsafe`.
//!
//! Invariant: the bytes of a frame are the same in the ring, in the journal and on the wire.
//! Invariant: equal values encode to equal bytes; a decoder accepts exactly what an encoder produces.

#![forbid(unsafe_code)]

extern crate self as ticktape_core;

pub mod codec;
pub mod frame;
pub mod limits;
pub mod service;
mod units;

pub use codec::{Decode, DecodeError, Encode, Reader};
pub use frame::{Frame, FrameError, Kind};
pub use service::{
    Ctx, Effects, InvariantViolation, Invariants, Outgoing, Service, SessionEvent, Target, TimerOp, is_service_name,
};
pub use ticktape_crc::{crc32c, crc32c_append};
pub use units::{Nanos, Seq, SessionId, TimerId, Timestamp};
