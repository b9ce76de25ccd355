//! Kernel bypass: AF_XDP sockets, and the XDP program that steers datagrams to them.
//!
//! ```text
//!   wire ──► driver ──► XDP program ──► socket of the frame's receive queue    (configured UDP datagrams)
//!                            └────────► the kernel's network stack             (everything else)
//! ```

mod abi;
pub mod bpf;
mod config;
mod error;
mod frames;
mod limits;
mod nic;
mod ring;
mod socket;
mod stats;
mod sys;
mod umem;

pub use config::{BusyPoll, NextHops, XdpConfig, ZeroCopy};
pub use error::XdpError;
pub use nic::{XdpMonitor, XdpNic, XdpRx, XdpTx};
pub use stats::{SocketStatistics, XdpRxStatistics, XdpTxStatistics};
