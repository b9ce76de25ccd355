//! What can be wrong with a peer: one variant, one name and one counter a reason.

use std::fmt;

use ticktape_core::{FrameError, Seq};

use super::message::{Refuse, RefuseReason};
use crate::feed::StreamName;
use crate::payload::Reign;

/// Why bytes are not a catch-up message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum MessageError {
    /// They do not begin with the magic.
    Magic,
    /// The header's checksum does not fit.
    HeaderCrc,
    /// A version that is not spoken here.
    Version,
    /// A type that this version does not know.
    UnknownType,
    /// A reserved byte is not zero.
    Reserved,
    /// A length that its type never has, or that is above what was agreed on.
    Length,
    /// The body's checksum does not fit.
    BodyCrc,
    /// A field that no sound peer writes.
    Field,
    /// A refusal for a reason that this version does not know.
    UnknownReason,
}

impl MessageError {
    /// Every reason, in index order.
    pub const ALL: [MessageError; 9] = [
        MessageError::Magic,
        MessageError::HeaderCrc,
        MessageError::Version,
        MessageError::UnknownType,
        MessageError::Reserved,
        MessageError::Length,
        MessageError::BodyCrc,
        MessageError::Field,
        MessageError::UnknownReason,
    ];

    /// Its place in [`MessageError::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// A short name for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            MessageError::Magic => "bad_magic",
            MessageError::HeaderCrc => "bad_header_crc",
            MessageError::Version => "bad_version",
            MessageError::UnknownType => "unknown_type",
            MessageError::Reserved => "reserved_not_zero",
            MessageError::Length => "bad_length",
            MessageError::BodyCrc => "bad_body_crc",
            MessageError::Field => "bad_field",
            MessageError::UnknownReason => "unknown_reason",
        }
    }
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MessageError::Magic => "it does not speak catch-up: no TTCU where a message begins",
            MessageError::HeaderCrc => "the checksum of a message's header does not fit",
            MessageError::Version => "it speaks another version of catch-up than 2",
            MessageError::UnknownType => "a message of an unknown type",
            MessageError::Reserved => "a message with reserved bytes that are not zero",
            MessageError::Length => "a message of a length that its type never has, or above what was agreed on",
            MessageError::BodyCrc => "the checksum of a message's body does not fit",
            MessageError::Field => "a message with an impossible field",
            MessageError::UnknownReason => "a refusal for an unknown reason",
        })
    }
}

impl std::error::Error for MessageError {}

/// What a server did wrong, or would not do. The connection is of no more use; what was received stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It sent what is no message.
    Malformed(MessageError),
    /// It sent no whole message in time.
    Silent,
    /// It sent a message that does not belong there.
    Unexpected,
    /// It sent other frames than come next.
    OtherFrames {
        /// What came.
        seq: Seq,
        /// What comes next.
        next: Seq,
    },
    /// It sent what is no frame.
    BadFrame {
        /// The frame that comes next.
        next: Seq,
        /// Why it is none.
        error: FrameError,
    },
    /// It sent a frame of a kind that no log holds.
    NotOfALog {
        /// The frame.
        seq: Seq,
    },
    /// A snapshot that leads back, begins elsewhere, is too large, or has too many bytes.
    BadSnapshot {
        /// The last frame that it contains.
        seq: Seq,
    },
    /// It began snapshots again and again.
    TooManySnapshots,
    /// It is of another log.
    OtherLog {
        /// Its log's identity.
        server: u64,
        /// This one's.
        client: u64,
    },
    /// It is of this log, and its epoch of this name is another reign: an older copy of the journal was started, and each goes on by
    /// itself.
    OtherHistory {
        /// The log's identity; 0 where it has none.
        log_id: u64,
        /// Its reign.
        server: Reign,
        /// That of the same epoch here.
        client: Reign,
    },
    /// It says it has sent more, or less, than it has.
    WrongEnd {
        /// What it says comes next.
        server: Seq,
        /// What comes next.
        next: Seq,
    },
    /// It refused.
    Refused(Refuse),
}

impl Fault {
    /// How many reasons there are.
    pub const COUNT: usize = MessageError::ALL.len() + Self::OTHERS + RefuseReason::ALL.len();
    const OTHERS: usize = 10;

    /// Its place among the counters: malformed messages first, then the others, then refusals.
    pub const fn index(&self) -> usize {
        let other = match self {
            Fault::Malformed(error) => return error.index(),
            Fault::Silent => 0,
            Fault::Unexpected => 1,
            Fault::OtherFrames { .. } => 2,
            Fault::BadFrame { .. } => 3,
            Fault::NotOfALog { .. } => 4,
            Fault::BadSnapshot { .. } => 5,
            Fault::TooManySnapshots => 6,
            Fault::OtherLog { .. } => 7,
            Fault::OtherHistory { .. } => 8,
            Fault::WrongEnd { .. } => 9,
            Fault::Refused(refuse) => {
                return MessageError::ALL.len() + Self::OTHERS + refuse.reason.index();
            }
        };
        MessageError::ALL.len() + other
    }

    /// A short name for metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Fault::Malformed(error) => error.name(),
            Fault::Silent => "silent",
            Fault::Unexpected => "unexpected",
            Fault::OtherFrames { .. } => "other_frames",
            Fault::BadFrame { .. } => "bad_frame",
            Fault::NotOfALog { .. } => "not_of_a_log",
            Fault::BadSnapshot { .. } => "bad_snapshot",
            Fault::TooManySnapshots => "too_many_snapshots",
            Fault::OtherLog { .. } => "other_log",
            Fault::OtherHistory { .. } => "other_history",
            Fault::WrongEnd { .. } => "wrong_end",
            Fault::Refused(refuse) => refuse.reason.name(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Malformed(error) => error.fmt(f),
            Fault::Silent => f.write_str("it did not answer in time"),
            Fault::Unexpected => f.write_str("it sent a message that does not belong there"),
            Fault::OtherFrames { seq, next } => write!(f, "it sent frame {seq} where {next} comes next"),
            Fault::BadFrame { next, error } => write!(f, "what it sent as frame {next} is none: {error}"),
            Fault::NotOfALog { seq } => write!(f, "frame {seq} is of a kind that no log holds"),
            Fault::BadSnapshot { seq } => {
                write!(f, "its snapshot of frame {seq} leads back, is too large, or begins elsewhere")
            }
            Fault::TooManySnapshots => f.write_str("it began snapshots again and again"),
            Fault::OtherLog { server, client } => {
                write!(f, "it serves log {server:016x}, this one is {client:016x}: name a server of this log")
            }
            Fault::OtherHistory { log_id, server, client } => write!(
                f,
                "it has log {log_id:016x} as it went on in reign {:016x} of epoch {}, here it went on in reign {:016x} of that \
                 epoch: an older copy of the journal was started beside the other; keep one of the two, and move the other's \
                 directory away",
                server.id, server.epoch, client.id
            ),
            Fault::WrongEnd { server, next } => write!(f, "it says frame {server} comes next, and {next} does"),
            Fault::Refused(refuse) => refuse.fmt(f),
        }
    }
}

impl std::error::Error for Fault {}

impl fmt::Display for Refuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let detail = self.detail;
        match self.reason {
            RefuseReason::OtherVersion => write!(f, "it speaks version {detail} of catch-up: start matching builds"),
            RefuseReason::OtherStream => {
                write!(f, "it serves stream {}: name that one, or another server", StreamName(detail))
            }
            RefuseReason::OtherService => f.write_str("it serves another service"),
            RefuseReason::SchemaMismatch => {
                write!(f, "it serves schema version {detail} of the service: start the matching build")
            }
            RefuseReason::OtherLog => {
                write!(
                    f,
                    "it serves log {detail:016x}, another one than here: name a server of this log, or begin anew"
                )
            }
            RefuseReason::BeyondTheLog => write!(f, "its log goes on at {detail}, before what is wanted: ask another"),
            RefuseReason::Diverged => write!(f, "the logs part at {detail}: give up what comes from there on"),
            RefuseReason::ServerIsBehind => write!(f, "it has come to epoch {detail} only: ask another"),
            RefuseReason::TooManyClients => write!(f, "it serves {detail} clients already: ask later, or another"),
            RefuseReason::TooManyOfAddress => {
                write!(f, "it serves {detail} clients of this address already: ask later, or another")
            }
            RefuseReason::OtherHistory => {
                write!(
                    f,
                    "its epoch of that name is reign {detail:016x}, another one than here: name a server of this history"
                )
            }
            RefuseReason::FrameTooLarge => write!(f, "a message of {detail} bytes is coming: allow for that many"),
            RefuseReason::NotKept => f.write_str("its log begins later, and it has no snapshot to begin from"),
            RefuseReason::Malformed => f.write_str("it did not understand what was sent"),
            RefuseReason::LogDamaged => f.write_str("it can't read its own log: look there"),
            RefuseReason::Stopping => f.write_str("it stops: ask later, or another"),
        }
    }
}
