//! What the sequencer tells the egress: everything of a session that arrives on one core and is answered from another.

use std::net::SocketAddrV4;

use ticktape_core::SessionId;

use crate::link::{Ack, Hello, Identity, Range, Refuse, ResyncReason};

/// Ranges in one message: as few as keep it small. What is missing beyond goes into the next; of what is held the rest is left out.
pub const RANGES_MAX: usize = 8;

/// The first `count` of them.
#[derive(Clone, Copy, Debug)]
pub struct SomeRanges {
    ranges: [Range; RANGES_MAX],
    count: usize,
}

impl SomeRanges {
    /// What `fill` writes, which says how many that are.
    pub fn collect(fill: impl FnOnce(&mut [Range]) -> usize) -> Self {
        let mut ranges = [Range { from: 0, count: 0 }; RANGES_MAX];
        let count = fill(&mut ranges).min(RANGES_MAX);
        SomeRanges { ranges, count }
    }

    /// The first of what a peer said.
    pub fn first_of(said: impl Iterator<Item = Range>) -> Self {
        SomeRanges::collect(|ranges| ranges.iter_mut().zip(said).map(|(range, said)| *range = said).count())
    }

    /// The ranges.
    pub fn as_slice(&self) -> &[Range] {
        &self.ranges[..self.count]
    }
}

/// Messages under way between the two stages. Handshakes and one acknowledgement a datagram; when it is full the
/// sequencer drops the rest, and the peers say it again.
pub const CONTROL_QUEUE_MAX: usize = 4096;

/// One message from the sequencer to the egress.
#[derive(Clone, Copy, Debug)]
pub enum Control {
    /// A handshake was accepted. The egress answers once the session's opening is committed.
    Hello {
        /// Where from.
        from: SocketAddrV4,
        /// Whose.
        session: SessionId,
        /// In which reign.
        client_epoch: u32,
        /// What it says.
        hello: Hello,
        /// The appliance's reign that the client was open with last; 0 where it knows none.
        known_reign: u32,
        /// The next command that the sequencer expects.
        received_next: u64,
    },
    /// A handshake was refused.
    Refuse {
        /// Where to.
        to: SocketAddrV4,
        /// As in the Hello.
        identity: Identity,
        /// Why.
        refuse: Refuse,
    },
    /// A packet came from someone who must say Hello first.
    Resync {
        /// Where to.
        to: SocketAddrV4,
        /// As in the packet.
        identity: Identity,
        /// Why.
        reason: ResyncReason,
    },
    /// Commands have arrived up to, and without, `received_next`; some may have been duplicates.
    Received {
        /// Whose.
        session: SessionId,
        /// The next command that the sequencer expects.
        received_next: u64,
    },
    /// The same, while commands are held for which those before are missing.
    Held {
        /// Whose.
        session: SessionId,
        /// The next command that the sequencer expects.
        received_next: u64,
        /// What it holds beyond.
        held: SomeRanges,
    },
    /// Commands are missing: the client is to send them again.
    Missing {
        /// Whose.
        session: SessionId,
        /// Which.
        missing: SomeRanges,
    },
    /// The client acknowledges events.
    Ack {
        /// Whose.
        session: SessionId,
        /// What it says.
        ack: Ack,
        /// Which events it has beyond.
        held: SomeRanges,
    },
    /// The client asks for events again.
    Nack {
        /// Whose.
        session: SessionId,
        /// Which.
        missing: SomeRanges,
    },
    /// The client sent a command that no frame can hold.
    TooLong {
        /// Whose.
        session: SessionId,
    },
    /// The client is gone, by its own word.
    Bye {
        /// Whose.
        session: SessionId,
    },
}
