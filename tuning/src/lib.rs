//! The box under the appliance: its clocks, its cores, and what they do to a latency.
//!
//! ```text
//!   clock   what time it is            pin     which core runs this thread
//!   host    what machine this is       jitter  what the machine takes away from a spinning core
//!                                      hop     what a cache line costs between two cores
//!   taken   what the machine takes from a thread that works
//!   standing  memory that stays, cores that stay awake, while the process runs
//!   root    where facts are read: this box, a directory, a recording
//!   facts   what is known of it            doctor  what of that stands between it and an even latency
//!                                          tune    settings changed for it, and given back
//! ```
//!
//! Nothing here runs on a hot path but [`clock::monotonic_ns`] and [`clock::SpinClock`]. Everything reads the machine; only [`pin`] changes
//! something, for the calling thread, [`standing`], for the process, and [`tune`], where it is told to, for the box.
//!
//! Invariant: usable cores are those of the process as it started, however its threads are pinned later.

#![forbid(unsafe_code)]

pub mod clock;
pub mod doctor;
pub mod facts;
pub mod hop;
pub mod host;
pub mod jitter;
pub mod pin;
pub mod root;
mod spin_clock;
pub mod standing;
pub mod taken;
pub mod tune;
