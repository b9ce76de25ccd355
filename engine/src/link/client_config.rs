//! How a client's end of a link is set up.

use super::receiver::ReceiverConfig;
use super::sender::SenderConfig;

/// How a [`ClientLink`](super::ClientLink) is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// The session, kept over reconnects and restarts.
    pub session: u64,
    /// The client's incarnation: higher than any this session has used, so persist it before use.
    pub client_epoch: u32,
    /// The seq of the first message sent in this epoch.
    pub first_seq: u64,
    /// The first event wanted: one beyond the last that was processed; 1 for all.
    pub resume_next: u64,
    /// The appliance's reign that this cursor is from, as [`ClientLink::reign`](super::ClientLink::reign) told it; 0 where that is not
    /// known. An appliance of tier `memory` may have lost what the cursor counts and made other events of the same numbers: by the
    /// reign it tells where to go back to ([`HistoryGap::Rewound`](super::HistoryGap::Rewound)). Where it can't, or no reign is known, the
    /// link ends with [`CursorUnproven`](super::CloseReason::CursorUnproven). `None` leaves that unasked.
    pub resume_reign: Option<u32>,
    /// The service's schema version; the appliance must have the same.
    pub schema: u32,
    /// What is sent.
    pub sender: SenderConfig,
    /// What is received.
    pub receiver: ReceiverConfig,
    /// Hello is sent again after this, doubling …
    pub hello_timeout_ns: u64,
    /// … up to this.
    pub hello_timeout_max_ns: u64,
    /// Something is sent at least this often.
    pub heartbeat_interval_ns: u64,
    /// An appliance that says nothing for so long is greeted anew. Must exceed its heartbeat interval.
    pub silence_ns: u64,
}

impl Default for ClientConfig {
    fn default() -> Self {
        ClientConfig {
            session: 1,
            client_epoch: 1,
            first_seq: 1,
            resume_next: 1,
            resume_reign: None,
            schema: 1,
            sender: SenderConfig::default(),
            // Events are committed already when they come: the delay and the count alone pace the acknowledgements.
            receiver: ReceiverConfig { ack_on_commit: false, ..ReceiverConfig::default() },
            hello_timeout_ns: 50_000_000,
            hello_timeout_max_ns: 1_000_000_000,
            heartbeat_interval_ns: 100_000_000,
            silence_ns: 500_000_000,
        }
    }
}
