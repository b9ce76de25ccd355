//! What the sequencer tells the egress: everything of a session that arrives on one core and is answered from another.

use std::net::SocketAddrV4;

use ticktape_core::SessionId;

use crate::link::{Ack, Hello, Identity, Refuse, ResyncReason};

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
    /// The client acknowledges events.
    Ack {
        /// Whose.
        session: SessionId,
        /// What it says.
        ack: Ack,
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
