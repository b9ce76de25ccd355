//! The client's end of a link, both streams and the handshake, as one machine.
//!
//! ```text
//!              Welcome                    Bye or Resync from the appliance, or silence
//!   Connecting ───────► Open ──────────────────────────────────────────────► Connecting
//!       │ Refuse, or cursors that can't meet      │ close()
//!       └──────────────► Closed ◄─────────────────┘
//! ```
//!
//! Drive it so: hand every datagram to `on_datagram`; after that, after `send`, and when `poll_timeout` is reached, call
//! `poll_transmit` until it has nothing more.

use ticktape_core::Nanos;

use super::accept::DATAGRAM_BYTES_MIN;
use super::client_event::{CloseReason, Event, HistoryGap};
use super::data::DATA_OVERHEAD_BYTES;
use super::error::{DropReason, LinkCounters};
use super::event::EventMessage;
use super::layout;
use super::packet::{
    Ack, ByeReason, DATAGRAM_BYTES_LIMIT, Hello, Identity, Packet, Refuse, RefuseReason, ResyncReason, SEQ_LIMIT,
    Welcome,
};
use super::ranges::{Range, Ranges};
use super::receiver::{Outcome, Receiver, ReceiverConfig};
use super::sender::{AckOutcome, ResumeError, SendError, Sender, SenderConfig};
use super::serial::truncate;

/// Ranges in one Nack or SelectiveAck: what the smallest datagram holds. A Nack goes on in the next packet.
const RANGES_MAX: usize = (DATAGRAM_BYTES_MIN as usize - layout::selective_ack::RANGES) / layout::range::BYTES;
const RANGES_BYTES: usize = RANGES_MAX * layout::range::BYTES;

/// How a [`ClientLink`] is set up.
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

/// Where a link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientState {
    /// Saying Hello until it is answered. Messages are taken and wait.
    Connecting,
    /// Both streams flow.
    Open,
    /// Over for good. Another link needs a higher client epoch.
    Closed(CloseReason),
}

/// The client's end of a link.
#[derive(Debug)]
pub struct ClientLink {
    config: ClientConfig,
    identity: Identity,
    state: ClientState,
    sender: Sender,
    receiver: Receiver,
    message_bytes_max: usize,
    nonce: u64,
    /// The event that the last Hello asked for.
    asked_from: u64,
    hello_at: Nanos,
    hello_timeout_ns: u64,
    heard_at: Nanos,
    sent_at: Nanos,
    is_bye_due: bool,
    connects: u64,
    counters: LinkCounters,
}

impl ClientLink {
    /// A link that will say Hello at the first `poll_transmit`. Allocates all it will ever use.
    ///
    /// # Panics
    /// Where the config can't work: see [`Sender::new`] and [`Receiver::new`]; a seq or a timeout of zero.
    pub fn new(config: &ClientConfig) -> Self {
        assert!(config.first_seq > 0 && config.resume_next > 0 && config.resume_next < SEQ_LIMIT);
        assert!(config.hello_timeout_ns > 0 && config.heartbeat_interval_ns > 0 && config.silence_ns > 0);
        let identity = Identity { session: config.session, client_epoch: config.client_epoch, appliance_epoch: 0 };
        let sender = Sender::new(identity, config.first_seq, &config.sender);
        ClientLink {
            config: *config,
            identity,
            state: ClientState::Connecting,
            message_bytes_max: sender.message_bytes_max(),
            sender,
            receiver: Receiver::new(0, config.resume_next, &config.receiver),
            nonce: 1,
            asked_from: config.resume_next,
            hello_at: 0,
            hello_timeout_ns: config.hello_timeout_ns,
            heard_at: 0,
            sent_at: 0,
            is_bye_due: false,
            connects: 0,
            counters: LinkCounters::default(),
        }
    }

    /// Where the link stands.
    pub const fn state(&self) -> ClientState {
        self.state
    }

    /// Inputs before it are committed.
    pub const fn acked_next(&self) -> u64 {
        self.sender.acked_next()
    }

    /// The number of the next input to be sent.
    pub const fn end_next(&self) -> u64 {
        self.sender.end_next()
    }

    /// The event that is due next: the resume cursor to keep.
    pub const fn resume_next(&self) -> u64 {
        self.receiver.received_next()
    }

    /// Whether every input is committed.
    pub const fn is_drained(&self) -> bool {
        self.sender.is_drained()
    }

    /// The largest input that fits a datagram, of those that the appliance takes once that is known.
    pub const fn message_bytes_max(&self) -> usize {
        self.message_bytes_max
    }

    /// How many inputs were sent more than once, counting each time.
    pub const fn resent_messages(&self) -> u64 {
        self.sender.resent_messages()
    }

    /// How often the appliance asked for inputs that it lacked.
    pub const fn nacks_heard(&self) -> u64 {
        self.sender.nacks()
    }

    /// How often events were missing and asked for.
    pub const fn nacks_sent(&self) -> u64 {
        self.receiver.nacks()
    }

    /// How many events wait for those before them.
    pub const fn events_held(&self) -> u64 {
        self.receiver.held()
    }

    /// How often a handshake was completed.
    pub const fn connects(&self) -> u64 {
        self.connects
    }

    /// What was dropped, by reason.
    pub const fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// Takes a copy of an input's encoding and returns its client seq. It is sent, and sent again, until committed.
    ///
    /// # Errors
    /// [`SendError`].
    #[inline]
    pub fn send(&mut self, message: &[u8]) -> Result<u64, SendError> {
        if matches!(self.state, ClientState::Closed(_)) {
            return Err(SendError::Closed);
        }
        if message.len() > self.message_bytes_max {
            return Err(SendError::TooLong { bytes: message.len(), bytes_max: self.message_bytes_max });
        }
        self.sender.push(message)
    }

    /// Gives up an input, if it was never sent; whether it was. Its number is used again where it was the last.
    pub fn withdraw(&mut self, client_seq: u64) -> bool {
        self.sender.withdraw(client_seq)
    }

    /// Gives up all inputs that were never sent, as after a reconnect that came too late for them; returns how many. Their numbers
    /// are used again.
    pub fn withdraw_unsent(&mut self) -> u64 {
        self.sender.withdraw_unsent()
    }

    /// Ends the link; the next `poll_transmit` says Bye. What is not yet committed may or may not become so.
    pub fn close(&mut self) {
        if !matches!(self.state, ClientState::Closed(_)) {
            self.is_bye_due = self.state == ClientState::Open;
            self.state = ClientState::Closed(CloseReason::Done);
        }
    }

    /// Takes one datagram and says what it brought.
    #[inline]
    pub fn on_datagram(&mut self, now: Nanos, bytes: &[u8], mut on_event: impl FnMut(Event<'_>)) {
        let result = match Packet::decode(bytes) {
            Ok((identity, packet)) => self.on_packet(now, &identity, &packet, &mut on_event),
            Err(error) => Err(DropReason::Malformed(error)),
        };
        if let Err(reason) = result {
            self.counters.count(reason);
        }
    }

    fn on_packet(
        &mut self,
        now: Nanos,
        identity: &Identity,
        packet: &Packet<'_>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), DropReason> {
        self.check_client(identity)?;
        match *packet {
            Packet::Welcome(welcome) => self.on_welcome(now, identity.appliance_epoch, &welcome, on_event),
            Packet::Refuse(refuse) => self.on_refuse(&refuse, on_event),
            Packet::Resync { reason, first } => self.on_resync(now, identity, reason, first, on_event),
            _ => {
                self.check_open(identity)?;
                self.heard_at = now;
                self.on_stream(now, packet, on_event)
            }
        }
    }

    /// Everything that belongs to an open link.
    #[inline]
    fn on_stream(
        &mut self,
        now: Nanos,
        packet: &Packet<'_>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), DropReason> {
        match *packet {
            Packet::Data(data) => {
                let epoch = self.identity.appliance_epoch;
                let (receiver, counters) = (&mut self.receiver, &mut self.counters);
                let outcome = receiver.on_data(now, epoch, &data, |seq, bytes| hand_on(seq, bytes, counters, on_event));
                self.after_events(outcome)
            }
            Packet::Ack(ack) => self.on_ack(&ack, on_event, |sender, ack| sender.on_ack(now, ack)),
            Packet::SelectiveAck(ack, held) => {
                self.on_ack(&ack, on_event, |sender, ack| sender.on_selective_ack(now, ack, held.iter()))
            }
            Packet::Nack(missing) => match self.sender.on_nack(now, missing.iter()) {
                AckOutcome::Bad => Err(DropReason::BadAck),
                AckOutcome::Advanced | AckOutcome::NotNew => Ok(()),
            },
            Packet::GapFill { from, count } => {
                let (receiver, counters) = (&mut self.receiver, &mut self.counters);
                let outcome =
                    receiver.on_gap_fill(now, from, count, |seq, bytes| hand_on(seq, bytes, counters, on_event));
                self.after_events(outcome)
            }
            Packet::Heartbeat { next_seq } => {
                if next_seq != truncate(self.receiver.received_next()) {
                    // Something was lost on the way, or overtaken: say where this end stands, and ask for it.
                    self.receiver.request_ack();
                    self.receiver.on_heartbeat(now, next_seq);
                }
                Ok(())
            }
            Packet::Bye(ByeReason::TooLong) => {
                self.end(CloseReason::CommandTooLong, on_event);
                Ok(())
            }
            Packet::Bye(_) => {
                self.reconnect(now);
                on_event(Event::Disconnected);
                Ok(())
            }
            Packet::Hello(_) | Packet::Welcome(_) | Packet::Refuse(_) | Packet::Resync { .. } => {
                Err(DropReason::Unexpected)
            }
        }
    }

    /// Events are committed already when they come.
    #[inline]
    fn after_events(&mut self, outcome: Outcome) -> Result<(), DropReason> {
        self.receiver.set_committed_next(self.receiver.received_next());
        outcome.drop_reason().map_or(Ok(()), Err)
    }

    fn on_ack(
        &mut self,
        ack: &Ack,
        on_event: &mut impl FnMut(Event<'_>),
        tell: impl FnOnce(&mut Sender, &Ack) -> AckOutcome,
    ) -> Result<(), DropReason> {
        let before = self.sender.acked_next();
        if tell(&mut self.sender, ack) == AckOutcome::Bad {
            return Err(DropReason::BadAck);
        }
        let next = self.sender.acked_next();
        if next > before {
            on_event(Event::Acked { next });
        }
        Ok(())
    }

    fn on_welcome(
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
        let from = self.receiver.received_next();
        let next = from.max(welcome.first_event).min(welcome.next_event);
        self.receiver.restart(appliance_epoch, next);
        if next != from {
            let gap = if next > from { HistoryGap::TooOld } else { HistoryGap::Rewound };
            on_event(Event::Resync { gap, from, next });
        }
        Ok(())
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

    fn on_refuse(&mut self, refuse: &Refuse, on_event: &mut impl FnMut(Event<'_>)) -> Result<(), DropReason> {
        if self.state != ClientState::Connecting || refuse.nonce != self.nonce {
            return Err(DropReason::StaleHandshake);
        }
        self.end(CloseReason::Refused { reason: refuse.reason, detail: refuse.detail }, on_event);
        Ok(())
    }

    fn on_resync(
        &mut self,
        now: Nanos,
        identity: &Identity,
        reason: ResyncReason,
        first: u64,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), DropReason> {
        if self.state != ClientState::Open {
            return Err(DropReason::Unexpected);
        }
        if identity.appliance_epoch < self.identity.appliance_epoch {
            return Err(DropReason::StaleEpoch);
        }
        match reason {
            ResyncReason::UnknownSession | ResyncReason::EpochChanged => {
                self.reconnect(now);
                on_event(Event::Disconnected);
            }
            ResyncReason::Trimmed | ResyncReason::Overflow => {
                self.check_open(identity)?;
                self.heard_at = now;
                let from = self.receiver.received_next();
                if first <= from {
                    return Err(DropReason::Duplicate);
                }
                self.receiver.restart(self.identity.appliance_epoch, first);
                let gap = if reason == ResyncReason::Trimmed { HistoryGap::TooOld } else { HistoryGap::Overflow };
                on_event(Event::Resync { gap, from, next: first });
            }
        }
        Ok(())
    }

    /// Whether a packet is for this incarnation of this session.
    #[inline]
    fn check_client(&self, identity: &Identity) -> Result<(), DropReason> {
        if identity.session != self.identity.session {
            return Err(DropReason::ForeignSession);
        }
        match identity.client_epoch.cmp(&self.identity.client_epoch) {
            std::cmp::Ordering::Less => Err(DropReason::StaleEpoch),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(DropReason::UnknownEpoch),
        }
    }

    /// Whether a packet is of the reign this link is open with.
    #[inline]
    fn check_open(&self, identity: &Identity) -> Result<(), DropReason> {
        if self.state != ClientState::Open {
            return Err(DropReason::Unexpected);
        }
        match identity.appliance_epoch.cmp(&self.identity.appliance_epoch) {
            std::cmp::Ordering::Less => Err(DropReason::StaleEpoch),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(DropReason::UnknownEpoch),
        }
    }

    fn end(&mut self, reason: CloseReason, on_event: &mut impl FnMut(Event<'_>)) {
        self.state = ClientState::Closed(reason);
        on_event(Event::Closed(reason));
    }

    fn reconnect(&mut self, now: Nanos) {
        self.state = ClientState::Connecting;
        self.nonce += 1;
        self.hello_at = now;
        self.hello_timeout_ns = self.config.hello_timeout_ns;
    }

    /// Builds the next datagram to send in `out` and returns its size. Call it until `None`.
    #[inline]
    pub fn poll_transmit(&mut self, now: Nanos, out: &mut [u8]) -> Option<usize> {
        let bytes = match self.state {
            ClientState::Open if now.saturating_sub(self.heard_at) >= self.config.silence_ns => {
                self.reconnect(now);
                self.poll_hello(now, out)
            }
            ClientState::Open => self.poll_open(now, out),
            ClientState::Connecting => self.poll_hello(now, out),
            ClientState::Closed(_) => {
                let bytes = self.is_bye_due.then(|| Packet::Bye(ByeReason::Done).encode(&self.identity, out))?;
                self.is_bye_due = false;
                bytes
            }
        }?;
        self.sent_at = now;
        Some(bytes)
    }

    #[inline]
    fn poll_open(&mut self, now: Nanos, out: &mut [u8]) -> Option<usize> {
        if let Some(ack) = self.receiver.poll_ack(now) {
            return self.encode_ack(ack, out);
        }
        if let Some(bytes) = self.poll_nack(now, out) {
            return Some(bytes);
        }
        if let Some(bytes) = self.sender.poll_transmit(now, out) {
            return Some(bytes);
        }
        if now.saturating_sub(self.sent_at) >= self.config.heartbeat_interval_ns {
            return Packet::Heartbeat { next_seq: truncate(self.sender.sent_end()) }.encode(&self.identity, out);
        }
        None
    }

    /// An acknowledgement, with what is held beyond it.
    #[inline]
    fn encode_ack(&self, ack: Ack, out: &mut [u8]) -> Option<usize> {
        if self.receiver.held() == 0 {
            return Packet::Ack(ack).encode(&self.identity, out);
        }
        let (mut held, mut bytes) = ([Range { from: 0, count: 0 }; RANGES_MAX], [0; RANGES_BYTES]);
        let ranges = self.receiver.held_ranges(&mut held);
        match Ranges::write(&held[..ranges], &mut bytes) {
            Ok(ranges) => Packet::SelectiveAck(ack, ranges).encode(&self.identity, out),
            Err(_) => Packet::Ack(ack).encode(&self.identity, out),
        }
    }

    /// The next part of what is missing, where it is time to ask for it.
    #[inline]
    fn poll_nack(&mut self, now: Nanos, out: &mut [u8]) -> Option<usize> {
        if self.receiver.is_whole() {
            return None;
        }
        let (mut missing, mut bytes) = ([Range { from: 0, count: 0 }; RANGES_MAX], [0; RANGES_BYTES]);
        let ranges = self.receiver.poll_nack(now, &mut missing);
        let ranges = Ranges::write(&missing[..ranges], &mut bytes).ok()?;
        Packet::Nack(ranges).encode(&self.identity, out)
    }

    fn poll_hello(&mut self, now: Nanos, out: &mut [u8]) -> Option<usize> {
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
        };
        let bytes = Packet::Hello(hello).encode(&self.identity, out)?;
        self.asked_from = hello.resume_next;
        self.hello_at = now + self.hello_timeout_ns;
        self.hello_timeout_ns = self.hello_timeout_ns.saturating_mul(2).min(self.config.hello_timeout_max_ns);
        Some(bytes)
    }

    /// When to call `poll_transmit` again, whatever else happens; `None` where the link is over.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        match self.state {
            ClientState::Closed(_) => None,
            ClientState::Connecting => Some(self.hello_at),
            ClientState::Open => [
                self.sender.poll_timeout(),
                self.receiver.poll_timeout(),
                self.receiver.poll_nack_timeout(),
                Some(self.sent_at + self.config.heartbeat_interval_ns),
                Some(self.heard_at + self.config.silence_ns),
            ]
            .into_iter()
            .flatten()
            .min(),
        }
    }
}

/// Hands one event to the owner. What is shorter than an event counts as delivered: it would come again for ever.
#[inline]
fn hand_on(event_seq: u64, bytes: &[u8], counters: &mut LinkCounters, on_event: &mut impl FnMut(Event<'_>)) -> bool {
    match EventMessage::decode(bytes) {
        Some(message) => on_event(Event::Output { event_seq, message }),
        None => counters.count(DropReason::BadEvent),
    }
    true
}
