//! What a client's link tells its owner.

use super::event::EventMessage;
use super::packet::{RefuseReason, Tier};

/// Why a link is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Its owner closed it.
    Done,
    /// An input was larger than the appliance takes; see [`ClientLink::message_bytes_max`](super::ClientLink::message_bytes_max).
    CommandTooLong,
    /// The appliance refused.
    Refused {
        /// Why.
        reason: RefuseReason,
        /// What would be right, as [`RefuseReason`] says.
        detail: u64,
    },
    /// The appliance lost inputs that it had acknowledged, as tier `memory` may: `from .. to` are gone.
    InputsLost {
        /// The first that is lost.
        from: u64,
        /// The first that is still held here.
        to: u64,
    },
    /// The cursor can't be told to be of this appliance's history, of which tier `memory` may have lost the end: it names no reign, or one
    /// whose end is not known there any more.
    CursorUnproven {
        /// The cursor's reign; 0 where it names none.
        reign: u32,
        /// The appliance's.
        appliance_epoch: u32,
    },
    /// The appliance knows inputs of this epoch that were never sent here: the epoch was used before.
    EpochReused {
        /// What it expects next.
        expected: u64,
    },
}

impl std::fmt::Display for CloseReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            CloseReason::Done => f.write_str("link closed by its owner"),
            CloseReason::Refused { reason, detail } => {
                f.write_str("appliance refused: ")?;
                refused(f, reason, detail)
            }
            CloseReason::InputsLost { from, to } => {
                write!(f, "appliance lost acknowledged inputs {from} to {}: begin a higher client epoch", to - 1)
            }
            CloseReason::CursorUnproven { reign, appliance_epoch } => {
                let of = if reign == 0 { "names no reign".to_string() } else { format!("is of reign {reign}") };
                write!(
                    f,
                    "the cursor {of}, and the appliance, of tier memory, is in reign {appliance_epoch} and may have lost what it counts: \
                     fetch the state (client::snapshot), and resume with its cursor and its reign"
                )
            }
            CloseReason::CommandTooLong => f.write_str("appliance refused an input larger than a frame there may hold"),
            CloseReason::EpochReused { expected } => {
                write!(f, "client epoch was used before, up to input {}: begin a higher one", expected - 1)
            }
        }
    }
}

/// What was wrong, and what would be right.
fn refused(f: &mut std::fmt::Formatter<'_>, reason: RefuseReason, detail: u64) -> std::fmt::Result {
    match reason {
        RefuseReason::StaleEpoch => write!(f, "client epoch {detail} of this session is known, use a higher one"),
        RefuseReason::SchemaMismatch => write!(f, "its service has schema version {detail}, connect with that"),
        RefuseReason::SessionsFull => write!(f, "it has all of its {detail} sessions, go on with one of them"),
        RefuseReason::NotLeader if detail == 0 => f.write_str("it does not lead, connect to the one that does"),
        RefuseReason::NotLeader => write!(f, "it does not lead, connect to number {detail}"),
        RefuseReason::Stopping => f.write_str("it is stopping, connect again in a while"),
        RefuseReason::Forbidden => f.write_str("this session is not allowed there"),
        RefuseReason::InputsLost => f.write_str("it lost inputs of this client epoch, begin a higher one"),
        RefuseReason::CursorUnproven => {
            write!(f, "in its reign {detail} it can't tell whether it lost what the cursor counts, fetch the state")
        }
        RefuseReason::BadHello => {
            write!(f, "a window, a cursor or a datagram size of {detail} can't be, see the options")
        }
    }
}

/// Why events are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryGap {
    /// They are no longer kept: the state that they led to has to come from elsewhere, as from
    /// [`client::state`](crate::client::state).
    TooOld,
    /// The appliance lost them in a crash, as tier `memory` may; those delivered with these numbers never happened.
    Rewound,
    /// This client acknowledged too few while it was connected, so the oldest had to go; otherwise as `TooOld`.
    Overflow,
}

/// What a datagram brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The handshake is done.
    Opened {
        /// The appliance's reign.
        appliance_epoch: u32,
        /// What its acknowledgements promise.
        tier: Tier,
        /// Inputs before it are committed.
        committed_next: u64,
    },
    /// An output, each once and in the order of `event_seq`.
    Output {
        /// Its number within the session, without gaps.
        event_seq: u64,
        /// What it says, and what caused it.
        message: EventMessage<'a>,
    },
    /// Inputs before `next` are committed.
    Acked {
        /// The first that is not.
        next: u64,
    },
    /// Events `from .. next` will not come (or, where it is lower, the numbering went back to `next`): go on from `next`.
    Resync {
        /// Why.
        gap: HistoryGap,
        /// The event that was due.
        from: u64,
        /// The event that comes next.
        next: u64,
    },
    /// The appliance is gone; Hello is being sent.
    Disconnected,
    /// The link is over.
    Closed(CloseReason),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_says_what_would_be_right() {
        let mut met = std::collections::BTreeSet::new();
        for &reason in RefuseReason::ALL {
            for detail in [0, 7] {
                let text = CloseReason::Refused { reason, detail }.to_string();
                assert!(text.starts_with("appliance refused: ") && !text.contains(&format!("{reason:?}")), "{text}");
                met.insert(text);
            }
        }
        // The three that have no detail say the same whatever it is.
        assert_eq!(met.len(), 2 * RefuseReason::ALL.len() - 3);
        let lost = CloseReason::InputsLost { from: 3, to: 9 }.to_string();
        assert!(lost.contains("inputs 3 to 8"), "{lost}");
    }
}
