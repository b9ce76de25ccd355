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
use super::client_config::ClientConfig;
use super::client_event::{CloseReason, Event};
use super::error::{DropReason, LinkCounters};
use super::event::EventMessage;
use super::layout;
use super::packet::{Ack, ByeReason, Identity, Packet, SEQ_LIMIT};
use super::ranges::{Range, Ranges};
use super::receiver::{Outcome, Receiver};
use super::sender::{AckOutcome, SendError, Sender};
use super::serial::truncate;

/// Ranges in one Nack or SelectiveAck: what the smallest datagram holds. A Nack goes on in the next packet.
const RANGES_MAX: usize = (DATAGRAM_BYTES_MIN as usize - layout::selective_ack::RANGES) / layout::range::BYTES;
const RANGES_BYTES: usize = RANGES_MAX * layout::range::BYTES;

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
    pub(super) config: ClientConfig,
    pub(super) identity: Identity,
    pub(super) state: ClientState,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) message_bytes_max: usize,
    pub(super) nonce: u64,
    /// The event that the last Hello asked for.
    pub(super) asked_from: u64,
    pub(super) hello_at: Nanos,
    pub(super) hello_timeout_ns: u64,
    pub(super) heard_at: Nanos,
    pub(super) sent_at: Nanos,
    /// The appliance has dropped this client, which was too far behind: what is missing then is for that.
    pub(super) was_overrun: bool,
    pub(super) is_bye_due: bool,
    /// Events before it were taken by the link's owner, where that is later than they come.
    taken_next: Option<u64>,
    pub(super) connects: u64,
    pub(super) counters: LinkCounters,
}

impl ClientLink {
    /// A link that will say Hello at the first `poll_transmit`. Allocates all it will ever use.
    ///
    /// # Panics
    /// Where the config can't work: see [`Sender::new`] and [`Receiver::new`]; a seq or a timeout of zero.
    pub fn new(config: &ClientConfig) -> Self {
        assert!(config.first_seq > 0 && config.resume_next > 0 && config.resume_next < SEQ_LIMIT);
        assert!(config.hello_timeout_ns > 0 && config.heartbeat_interval_ns > 0 && config.silence_ns > 0);
        let appliance_epoch = config.resume_reign.unwrap_or(0);
        let identity = Identity { session: config.session, client_epoch: config.client_epoch, appliance_epoch };
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
            was_overrun: false,
            is_bye_due: false,
            taken_next: None,
            connects: 0,
            counters: LinkCounters::default(),
        }
    }

    /// Where the link stands.
    pub const fn state(&self) -> ClientState {
        self.state
    }

    /// Whose link it is.
    pub const fn session(&self) -> u64 {
        self.identity.session
    }

    /// The appliance's reign that was heard last: that of [`ClientLink::resume_next`]. 0 before any.
    pub const fn reign(&self) -> u32 {
        self.identity.appliance_epoch
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

    /// For an owner that keeps events before it takes them: those from `next` on are not acknowledged for now, though they have
    /// come, so that whoever takes its place still gets them. Without a call of this, events are taken as they come.
    pub fn set_taken_next(&mut self, next: u64) {
        self.taken_next = Some(next);
        self.acknowledge_taken();
    }

    fn acknowledge_taken(&mut self) {
        let received_next = self.receiver.received_next();
        self.receiver.set_committed_next(self.taken_next.map_or(received_next, |taken| taken.min(received_next)));
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
            Packet::Resync(reason) => self.on_resync(now, identity, reason, on_event),
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
            // Events have no numbers that never come: history counts them.
            Packet::Hello(_) | Packet::Welcome(_) | Packet::Refuse(_) | Packet::Resync(_) | Packet::GapFill { .. } => {
                Err(DropReason::Unexpected)
            }
        }
    }

    /// Events are committed already when they come.
    #[inline]
    fn after_events(&mut self, outcome: Outcome) -> Result<(), DropReason> {
        self.acknowledge_taken();
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
    pub(super) fn check_open(&self, identity: &Identity) -> Result<(), DropReason> {
        if self.state != ClientState::Open {
            return Err(DropReason::Unexpected);
        }
        match identity.appliance_epoch.cmp(&self.identity.appliance_epoch) {
            std::cmp::Ordering::Less => Err(DropReason::StaleEpoch),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(DropReason::UnknownEpoch),
        }
    }

    pub(super) fn end(&mut self, reason: CloseReason, on_event: &mut impl FnMut(Event<'_>)) {
        self.state = ClientState::Closed(reason);
        on_event(Event::Closed(reason));
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
