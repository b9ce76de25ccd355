//! Kernel bypass: AF_XDP sockets, and the XDP program that steers datagrams to them.
//!
//! ```text
//!   wire ──► driver ──► XDP program ──► socket of the frame's receive queue    (configured UDP datagrams)
//!                            └────────► the kernel's network stack             (everything else)
//! ```

pub mod bpf;
