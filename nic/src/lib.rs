//! Datagrams in and out of the box: the `Rx` and `Tx` ports, and the backends behind them.
//!
//! ```text
//!              ┌────────── Nic ──────────┐
//!   core A ◄── Rx ◄── receive queue  ◄── │ ── kernel UDP (recvmmsg, sendmmsg)
//!   core B ──► Tx ──► transmit queue ──► │ ── in-process link (tests, embedded wiring)
//!              └─────────────────────────┘
//! ```
//!
//! A [`Nic`] splits into two halves, and each half belongs to one core. Neither ever waits: a receive poll takes what is
//! there, a transmit flush hands over what the queue accepts, and what it does not accept stays queued for the next flush.
//! Stages are generic over the ports, so the same stage runs on sockets, on kernel-bypass rings and in the simulator.
//!
//! Invariant: nothing is allocated after a `Nic` is open.
//! Invariant: a datagram is delivered whole or not at all; what is dropped is counted by reason.
//! Invariant: `received <= now` for every delivered datagram, so latencies never come out negative.

pub mod capture;
pub mod conformance;
mod counters;
mod error;
pub mod lab;
pub mod limits;
pub mod lossy;
pub mod mem;
pub mod packet;
mod port;
pub mod probe;
pub mod udp;
pub mod xdp;

pub use error::NicError;
pub use port::{Datagram, Nic, Rx, RxCounters, TimeOrigin, Tx, TxCounters};
pub use udp::{UdpConfig, UdpNic};
pub use xdp::{XdpConfig, XdpNic};
