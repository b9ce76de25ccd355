//! A replica: the leader's log, followed from another box, journaled there and applied up to commit.
//!
//! ```text
//!  feed A ─►┐                                        ┌─► journaler ─► disk
//!  feed B ─►├─ arbiter ─► door ─► log ring of its own ┼─► executor, up to commit ─► state, outputs, snapshots
//!  repair ─►┘              ▲                          ├─► feed server: repairs and catch-up for others
//!  catch-up over TCP ──────┘                          └─► followers in other processes
//! ```
//!
//! Invariant: the log here is a prefix of the leader's, the same bytes, or is given up.
//! Invariant: the state never holds what the leader has not committed, nor what is not durable here.
//! Invariant: whatever it waits for has a deadline and a name: see [`ReplicaState`].

mod bulk;
mod claims;
mod config;
mod door;
mod intake;
mod lower;
mod other_log;
mod status;
mod words;

pub use crate::shadow::{Committed, OnOutput};
pub use bulk::{Bulk, BulkEnd, BulkProgress, SnapshotAt};
pub use config::ReplicaConfig;
pub use door::{Admission, Door, Identity, Misfit, Refusal, Way};
pub use intake::{Intake, IntakeConfig, LIVE_WITHIN_FRAMES, Ports, RingSide, Verdict};
pub use status::{Board, Figure, ReplicaState, ReplicaStatus};
pub(crate) use words::asking;
