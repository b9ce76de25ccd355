//! The handshake of a client's link: how it begins, and how it goes on after a disconnection.

use std::cmp::Ordering;

use ticktape_core::Nanos;

use super::client::{ClientLink, ClientState};
use super::client_event::{CloseReason, Event, HistoryGap};
use super::data::DATA_OVERHEAD_BYTES;
use super::error::DropReason;
use super::packet::{DATAGRAM_BYTES_LIMIT, Hello, Identity, Packet, Refuse, RefuseReason, ResyncReason, Tier, Welcome};
use super::sender::ResumeError;

impl ClientLink {
    pub(super) fn on_welcome(
        &mut self,
        now: Nanos,
        appliance_epoch: u32,
        welcome: &Welcome,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), DropReason> {
        if appliance_epoch < self.identity.appliance_epoch {
            return Err(DropReason::StaleEpoch);
        }
        // An open link listens only to a new reign that answers the same Hello after its predecessor did.
        let is_news = match self.state {
            ClientState::Connecting => true,
            ClientState::Open => appliance_epoch > self.identity.appliance_epoch,
            ClientState::Closed(_) => false,
        };
        if welcome.nonce != self.nonce || !is_news {
            return Err(DropReason::StaleHandshake);
        }
        if self.state == ClientState::Open && self.receiver.received_next() != self.asked_from {
            // The new reign would send what has come since that Hello, and take the word of it for a lie: ask from here.
            self.reconnect(now);
            on_event(Event::Disconnected);
            return Ok(());
        }
        if welcome.schema != self.config.schema {
            let reason = RefuseReason::SchemaMismatch;
            self.end(CloseReason::Refused { reason, detail: u64::from(welcome.schema) }, on_event);
            return Ok(());
        }
        if let Err(reason) = self.prove_cursor(appliance_epoch, welcome.tier) {
            self.end(reason, on_event);
            return Ok(());
        }
        let acked_before = self.sender.acked_next();
        if let Err(reason) = self.resume_inputs(welcome) {
            self.end(reason, on_event);
            return Ok(());
        }
        self.identity.appliance_epoch = appliance_epoch;
        self.sender.set_identity(self.identity);
        self.sender.set_window(welcome.window);
        self.sender.limit_datagram(welcome.datagram_bytes_max as usize);
        let taken = (welcome.datagram_bytes_max as usize).saturating_sub(DATA_OVERHEAD_BYTES);
        self.message_bytes_max = self.sender.message_bytes_max().min(taken);
        self.state = ClientState::Open;
        self.heard_at = now;
        self.connects += 1;
        let committed_next = self.sender.acked_next();
        on_event(Event::Opened { appliance_epoch, tier: welcome.tier, committed_next });
        if committed_next > acked_before {
            on_event(Event::Acked { next: committed_next });
        }
        self.resume_events(welcome, on_event);
        Ok(())
    }

    /// Whether the cursor that this began with may be of the appliance's history. Of one that names its reign the appliance has judged:
    /// it knows how each reign began.
    fn prove_cursor(&self, appliance_epoch: u32, tier: Tier) -> Result<(), CloseReason> {
        let is_saved = self.connects == 0 && self.config.resume_next > 1;
        if is_saved && self.config.resume_reign == Some(0) && tier == Tier::Memory {
            return Err(CloseReason::CursorUnproven { reign: 0, appliance_epoch });
        }
        Ok(())
    }

    /// Sets the receiver to where the appliance can go on.
    fn resume_events(&mut self, welcome: &Welcome, on_event: &mut impl FnMut(Event<'_>)) {
        let was_overrun = std::mem::take(&mut self.was_overrun);
        let from = self.receiver.received_next();
        let next = from.max(welcome.first_event).min(welcome.next_event);
        self.receiver.restart(self.identity.appliance_epoch, next);
        let gap = match next.cmp(&from) {
            Ordering::Equal => return,
            Ordering::Less => HistoryGap::Rewound,
            Ordering::Greater if was_overrun => HistoryGap::Overflow,
            Ordering::Greater => HistoryGap::TooOld,
        };
        on_event(Event::Resync { gap, from, next });
    }

    /// Sets the sender to where the appliance stands.
    fn resume_inputs(&mut self, welcome: &Welcome) -> Result<(), CloseReason> {
        if welcome.received_next > self.sender.sent_end() {
            return Err(CloseReason::EpochReused { expected: welcome.received_next });
        }
        self.sender.resume(welcome.committed_next, welcome.received_next).map_err(|error| match error {
            ResumeError::Trimmed { wanted, first } => CloseReason::InputsLost { from: wanted, to: first },
            ResumeError::Beyond { wanted, .. } => CloseReason::EpochReused { expected: wanted },
        })
    }

    pub(super) fn on_refuse(
        &mut self,
        refuse: &Refuse,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), DropReason> {
        if self.state != ClientState::Connecting || refuse.nonce != self.nonce {
            return Err(DropReason::StaleHandshake);
        }
        let (from, to) = (self.config.first_seq, self.sender.acked_next());
        let reason = match refuse.reason {
            RefuseReason::InputsLost if from < to => CloseReason::InputsLost { from, to },
            RefuseReason::CursorUnproven => CloseReason::CursorUnproven {
                reign: self.identity.appliance_epoch,
                appliance_epoch: u32::try_from(refuse.detail).unwrap_or(u32::MAX),
            },
            reason => CloseReason::Refused { reason, detail: refuse.detail },
        };
        self.end(reason, on_event);
        Ok(())
    }

    pub(super) fn on_resync(
        &mut self,
        now: Nanos,
        identity: &Identity,
        reason: ResyncReason,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), DropReason> {
        if self.state != ClientState::Open {
            return Err(DropReason::Unexpected);
        }
        if identity.appliance_epoch < self.identity.appliance_epoch {
            return Err(DropReason::StaleEpoch);
        }
        self.was_overrun = reason == ResyncReason::Overflow;
        self.reconnect(now);
        on_event(Event::Disconnected);
        Ok(())
    }

    pub(super) fn reconnect(&mut self, now: Nanos) {
        self.state = ClientState::Connecting;
        self.nonce += 1;
        self.hello_at = now;
        self.hello_timeout_ns = self.config.hello_timeout_ns;
    }

    pub(super) fn poll_hello(&mut self, now: Nanos, out: &mut [u8]) -> Option<usize> {
        if now < self.hello_at {
            return None;
        }
        let hello = Hello {
            nonce: self.nonce,
            resume_next: self.receiver.received_next(),
            first_seq: self.sender.acked_next(),
            window: self.receiver.window(),
            datagram_bytes_max: DATAGRAM_BYTES_LIMIT.min(self.config.sender.datagram_bytes_max) as u32,
            schema: self.config.schema,
            is_resumed: self.sender.acked_next() > self.config.first_seq,
        };
        let bytes = Packet::Hello(hello).encode(&self.identity, out)?;
        self.asked_from = hello.resume_next;
        self.hello_at = now + self.hello_timeout_ns;
        self.hello_timeout_ns = self.hello_timeout_ns.saturating_mul(2).min(self.config.hello_timeout_max_ns);
        Some(bytes)
    }
}
