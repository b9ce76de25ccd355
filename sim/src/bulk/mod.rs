//! Catch-up between simulated hosts: the machines that are live, both ends of them, over byte streams of the world's.

mod client;
mod server;
mod wire;

pub(crate) use client::{Begun, Joiner, SimBulk};
pub(crate) use server::{BulkServer, ServedLog};
pub(crate) use wire::{WireFaults, Wires};
