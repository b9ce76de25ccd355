//! The client library: one session with an appliance, over all reconnects.
//!
//! | | for |
//! |---|---|
//! | [`Client`] | duty cycles: never waits, any pair of ports, the time is passed in |
//! | [`blocking::BlockingClient`] | everyone else: calls that wait, a socket of its own |
//! | [`EpochFile`] | a session that comes back after its client's restart |
//! | [`snapshot`] | the state that lost events led to, and the event that goes on from it |
//! | [`ClientLink`](crate::link::ClientLink) | those who bring their own I/O |
//!
//! All promise the same: an input is taken once and in order, however often it was sent; events come once and in order, or a
//! notice says which are lost; an acknowledged input is committed, to the tier that the appliance names.

pub mod blocking;
mod epoch_file;
mod error;
mod inbox;
mod options;
mod poll;
pub mod state;

pub use epoch_file::{EpochError, EpochFile};
pub use error::{ClientError, Waited};
pub use poll::Client;
pub use state::{State, StateError, StateSource, snapshot};
