//! Catching up in bulk, over TCP: a follower that misses more than a repair is for asks a server for the log from a seq on.
//!
//! ```text
//!  client                                           server
//!  Fetch ── Hello (what it has, what it wants) ───► Serve ◄── Source: snapshots, journal, ring
//!        ◄─ Welcome | Refuse ──────────────────────
//!        ◄─ SnapshotBegin, SnapshotChunk … ────────         only where frames are gone, or would take longer
//!        ◄─ Frames … up to what is committed ──────
//!        ◄─ UpTo ──────────────────────────────────
//!        ── Hello, again ──────────────────────────►
//! ```
//!
//! All are plain machines; the sockets are in `pipeline`. WIRE.md, "Catch-up".
//!
//! Invariant: a client hands on each frame once, in order and checked, whatever the server sends.
//! Invariant: what is served is committed; a log that is not the beginning of the server's is refused, with the seq where they part.
//! Invariant: every wait has a deadline, every buffer a bound, every reason a name and a counter.

mod decoder;
mod epochs;
mod error;
mod fetch;
pub mod layout;
mod message;
mod places;
mod serve;

pub use decoder::Decoder;
pub use epochs::{Divergence, EpochTable};
pub use error::{Fault, MessageError};
pub use fetch::{Fetch, FetchConfig, Fetched, Step, is_passing};
pub use message::{
    Hello, MESSAGE_BYTES_LIMIT, MESSAGE_BYTES_MIN, Message, Part, Refuse, RefuseReason, SnapshotBegin, Type, UpTo,
    Welcome,
};
pub use places::{Connection, Places, Stage};
pub use serve::{Ended, MESSAGE_BYTES, Serve, ServeConfig, Served, Source, SourceError, Standing};

#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod message_tests;
