//! How a blocking client connects.

use crate::link::{ClientConfig, ReceiverConfig, SenderConfig};

/// Who connects, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The session, kept over reconnects and restarts.
    pub session: u64,
    /// The client's incarnation: higher than any this session has used. See [`EpochFile`](super::EpochFile).
    pub client_epoch: u32,
    /// The first event wanted: one beyond the last that was processed; 1 for all.
    pub resume_next: u64,
    /// The reign that this cursor is from, saved beside it: [`BlockingClient::resume_reign`](super::blocking::BlockingClient::resume_reign).
    /// 0 where it is not known: then an appliance of tier `memory`, which may have lost what the cursor counts, is not resumed from
    /// ([`CloseReason::CursorUnproven`](crate::link::CloseReason)).
    pub resume_reign: u32,
    /// The service's schema version; the appliance must have the same.
    pub schema: u32,
    /// Events kept until they are received. Where they are full, calls that wait for something else give up.
    pub events_max: usize,
    /// What is sent.
    pub sender: SenderConfig,
    /// What is received.
    pub receiver: ReceiverConfig,
}

impl Default for Options {
    fn default() -> Self {
        let link = ClientConfig::default();
        Options {
            session: link.session,
            client_epoch: link.client_epoch,
            resume_next: link.resume_next,
            resume_reign: 0,
            schema: link.schema,
            events_max: 65_536,
            sender: link.sender,
            receiver: link.receiver,
        }
    }
}
