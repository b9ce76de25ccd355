//! What an arbiter says: what became of a packet, what its owner has to know, and what it counted.

use super::mold::MoldError;
use super::repair::RepairCounters;

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It had messages that were new.
    News {
        /// Messages delivered meanwhile: its own, and those that had waited.
        delivered: u32,
        /// Messages of it that came before their turn.
        held: u32,
    },
    /// Everything in it had come before.
    Duplicate,
    /// No messages: a heartbeat, or a rewinder's refusal.
    Heartbeat,
    /// The session's end was announced.
    EndOfSession,
    /// Nothing of it was used.
    Dropped(PacketDrop),
}

/// Why nothing of a packet was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketDrop {
    /// It is no packet.
    Malformed(MoldError),
    /// Another stream, or a session that is none of ours.
    Foreign,
    /// A reign that is over.
    OldEpoch,
    /// A reign that has not been adopted.
    NewEpoch,
    /// Numbers beyond the window.
    BeyondWindow,
    /// Messages that are too large, or that were not believed.
    BadMessages,
}

/// What the arbiter's owner has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedEvent {
    /// Nobody has these messages in time: catch up by other means, then [`Arbiter::skip_to`](super::Arbiter::skip_to). Said again while it stands.
    Unrepairable {
        /// The first that is missing.
        from: u64,
        /// How many, at most, up to the last that is missing.
        count: u64,
    },
    /// A newer reign sends. Its packets are dropped until [`Arbiter::adopt_session`](super::Arbiter::adopt_session).
    NewSession {
        /// The reign.
        epoch: u32,
        /// The lowest number seen of it.
        from: u64,
    },
    /// The session has ended, and everything of it was delivered.
    EndOfSession {
        /// The number that would have come next.
        next: u64,
    },
    /// Neither side has sent anything of the session. Said again while it stands.
    Silent {
        /// For so long, in ns.
        for_ns: u64,
    },
}

/// One side's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideCounters {
    /// Packets of the session.
    pub packets: u64,
    /// Messages in them.
    pub messages: u64,
    /// Messages that this side brought first.
    pub first: u64,
    /// Messages that had come before.
    pub duplicates: u64,
    /// Numbers that this side passed over and has not brought since.
    pub lost: u64,
    /// Messages below the side's own highest: reordered or repeated.
    pub late: u64,
    /// Heartbeats, and rewinders' refusals.
    pub heartbeats: u64,
    /// Packets whose first copy had come from another side, as far as is remembered.
    pub lag_count: u64,
    /// How far they were behind it all together, in ns.
    pub lag_ns_sum: u64,
    /// The furthest behind, in ns.
    pub lag_ns_max: u64,
}

/// An arbiter's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArbiterCounters {
    /// By side.
    pub sides: [SideCounters; 3],
    /// Messages delivered.
    pub delivered: u64,
    /// Messages that came before their turn.
    pub held: u64,
    /// Numbers left out by [`Arbiter::skip_to`](super::Arbiter::skip_to).
    pub skipped: u64,
    /// Packets that are none, by [`MoldError::index`].
    pub malformed: [u64; MoldError::ALL.len()],
    /// Packets of other streams, or of no session of ours.
    pub foreign: u64,
    /// Packets of reigns that are over.
    pub old_epoch: u64,
    /// Packets of reigns that were not adopted.
    pub new_epoch: u64,
    /// Messages beyond the window.
    pub beyond_window: u64,
    /// Messages larger than the limit.
    pub oversized: u64,
    /// Messages that were not believed.
    pub not_verified: u64,
    /// What was asked for.
    pub repair: RepairCounters,
}
