//! Why a blocking client could not do what it was asked to.

use std::fmt;
use std::io;

use super::{EpochError, StateError};
use crate::DecodeError;
use crate::link::{CloseReason, RefuseReason};

/// What a call waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The appliance's answer to the handshake.
    Handshake,
    /// Room in the send buffer: the appliance has acknowledged nothing for so long.
    Room,
    /// The acknowledgement of inputs.
    Commit,
    /// The answer to an input.
    Answer,
}

/// Why a call failed.
#[derive(Debug)]
pub enum ClientError {
    /// The socket can't be opened or used.
    Io(io::Error),
    /// It did not happen in time. What was sent is still being sent: wait again, or receive later.
    Timeout(Waited),
    /// The link is over for good; the reason says what would help.
    Closed(CloseReason),
    /// The input will never fit a datagram.
    TooLong {
        /// Its size in bytes.
        bytes: usize,
        /// The most that fits.
        bytes_max: usize,
    },
    /// As many events as are kept wait to be received: call `recv` first.
    Unread {
        /// How many wait.
        events: usize,
    },
    /// The events around the answer are lost: it may be among them. See [`Notice::Resync`](super::blocking::Notice::Resync).
    AnswerLost {
        /// The first event that is lost.
        from: u64,
        /// The next that comes.
        next: u64,
    },
    /// The answer is not what the caller takes it for: another version of the service, perhaps.
    Decode(DecodeError),
    /// No epoch could be begun.
    Epoch(EpochError),
    /// The state that lost events led to could not be had.
    State(StateError),
}

impl ClientError {
    /// Whether the same call may succeed later.
    pub const fn is_transient(&self) -> bool {
        matches!(self, ClientError::Timeout(_) | ClientError::Unread { .. })
    }

    /// The highest client epoch that the appliance knows, where it refused because of that.
    pub const fn known_epoch(&self) -> Option<u32> {
        match self {
            ClientError::Closed(CloseReason::Refused { reason: RefuseReason::StaleEpoch, detail }) => {
                Some(*detail as u32)
            }
            _ => None,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Io(error) => write!(f, "client's socket: {error}"),
            ClientError::Timeout(waited) => f.write_str(match waited {
                Waited::Handshake => {
                    "no answer to the handshake in time: is the appliance there, and is it the address?"
                }
                Waited::Room => "no room to send in time: the appliance acknowledges nothing",
                Waited::Commit => "not committed in time; it is still being sent",
                Waited::Answer => "no answer in time; the input is still being sent",
            }),
            ClientError::Closed(reason) => reason.fmt(f),
            ClientError::TooLong { bytes, bytes_max } => {
                write!(f, "input of {bytes} bytes does not fit a datagram: at most {bytes_max}")
            }
            ClientError::Unread { events } => write!(f, "{events} events wait to be received: receive them first"),
            ClientError::AnswerLost { from, next } => {
                write!(
                    f,
                    "events {from} to {} are no longer kept, the answer perhaps among them",
                    next.saturating_sub(1)
                )
            }
            ClientError::Decode(error) => write!(f, "answer can't be read: {error}"),
            ClientError::Epoch(error) => error.fmt(f),
            ClientError::State(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClientError::Io(error) => Some(error),
            ClientError::Decode(error) => Some(error),
            ClientError::Epoch(error) => Some(error),
            ClientError::State(error) => Some(error),
            _ => None,
        }
    }
}

impl From<StateError> for ClientError {
    fn from(error: StateError) -> Self {
        ClientError::State(error)
    }
}

impl From<EpochError> for ClientError {
    fn from(error: EpochError) -> Self {
        ClientError::Epoch(error)
    }
}
