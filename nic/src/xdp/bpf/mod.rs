//! The XDP program: emitted as instructions, loaded with bpf(2), attached by a link.
//!
//! ```text
//!   Filter ──emit──► instructions ──load──► XdpProgram ──attach──► XdpLink
//!                                             │    │
//!                            sockets by queue ┘    └ counters by reason, one set a core
//! ```
//!
//! Only unfragmented UDP datagrams over IPv4 without options, to a configured (address or any, port), go to the socket of
//! their receive queue. Everything else passes to the kernel, and so do datagrams on a queue without a socket; each frame is
//! counted by reason.
//!
//! Invariant: the program drops nothing.
//! Invariant: a program of somebody else is never replaced.
//! Invariant: the attachment ends with the process, in whatever way that ends.
//!
//! Needs Linux 5.9 (links for XDP). Sources: the kernel's uapi headers, RFC 9669 (instruction set).

mod abi;
mod assembler;
mod attach;
mod counters;
mod emit;
mod error;
mod filter;
mod instruction;
mod netlink;
mod program;
mod registry;
mod sys;

pub use attach::{AttachMode, AttachPreference, XdpLink, attached_program};
pub use counters::{FilterCounters, UnservedQueue};
pub(super) use error::Queues;
pub use error::{BpfError, Refusal};
pub use filter::{Filter, RULES_MAX, Rule};
pub use program::{PROGRAM_NAME, QUEUES_MAX, TestRun, Verdict, XdpProgram, supported};
pub use registry::{ProgramInfo, map_ids, program_by_id, program_ids};
