//! One session's end of the link: its events, and what it is told of its commands.

use std::net::SocketAddrV4;

use ticktape_core::{Nanos, Seq, SessionId};
use ticktape_nic::Tx;

use super::{EgressConfig, EgressCounters, RANGES_BYTES};
use crate::control::SomeRanges;
use crate::link::serial::truncate;
use crate::link::{
    Ack, CursorReign, EventMessage, EventStart, Hello, Identity, Packet, Ranges, Refuse, RefuseReason, Reigns,
    ResumeError, ResyncReason, Sender, Tier, Welcome,
};

/// Datagrams built for one session in one poll, so that one busy session can't starve the others.
const DATAGRAMS_PER_SESSION_MAX: usize = 16;

/// A command is acknowledged with the others of this many …
const ACK_EVERY_COMMANDS: u64 = 64;
/// … or so long after it arrived or was committed, whichever is first. The client waits for outputs, not for acknowledgements,
/// but sends again what it has no word of.
pub(super) const ACK_DELAY_NS: u64 = 10_000_000;

/// A silent link says at least this often that it lives. A client gives up on one after five of these.
const HEARTBEAT_NS: u64 = 100_000_000;

#[derive(Debug)]
pub(super) struct Handshake {
    pub(super) hello: Hello,
    pub(super) client_epoch: u32,
    /// Of which reign its cursor of events is.
    pub(super) cursor: CursorReign,
}

/// One session's end of the link.
#[derive(Debug)]
pub(super) struct SessionLink {
    pub(super) sender: Sender,
    pub(super) address: Option<SocketAddrV4>,
    /// Where a client is that was dropped just now, and is to be told.
    pub(super) dropped: Option<SocketAddrV4>,
    pub(super) client_epoch: u32,
    pub(super) committed_next: u64,
    pub(super) received_next: u64,
    pub(super) told_next: u64,
    pub(super) told_received_next: u64,
    /// What the sequencer holds beyond `received_next`.
    pub(super) held: Option<SomeRanges>,
    /// When word of what is committed or has arrived is due at the latest.
    pub(super) ack_at: Option<Nanos>,
    /// Word is due at once: the client repeats itself.
    pub(super) ack_now: bool,
    pub(super) spoke_at: Nanos,
    pub(super) handshake: Option<Handshake>,
    /// Where events go on after a handshake.
    pub(super) start: EventStart,
}

impl SessionLink {
    /// `first_event` is the number of the first event that will be released to it.
    pub(super) fn new(config: &EgressConfig, session: SessionId, first_event: u64) -> Self {
        let identity = Identity { session: session.0, client_epoch: 0, appliance_epoch: config.epoch };
        SessionLink {
            sender: Sender::new(identity, first_event, &config.sender),
            address: None,
            dropped: None,
            client_epoch: 0,
            committed_next: 1,
            received_next: 1,
            told_next: 1,
            told_received_next: 1,
            held: None,
            ack_at: None,
            ack_now: false,
            spoke_at: 0,
            handshake: None,
            start: EventStart::default(),
        }
    }

    /// Begins the reign `epoch`: what the session has been sent by now it was sent in those before.
    pub(super) fn begin(&mut self, epoch: u32, reigns: &Reigns) {
        let (first, end) = (self.sender.acked_next(), self.sender.end_next());
        let cause = |event| {
            self.sender.kept(event).and_then(EventMessage::decode).map_or(Seq::ZERO, |message| Seq(message.log_seq))
        };
        self.start = EventStart::new(epoch, reigns, first, end, cause);
    }

    /// Makes room by forgetting an eighth of the buffer. A client that still needs it is dropped, and told: it says Hello, and the
    /// Welcome names the events that are left.
    #[cold]
    pub(super) fn forget_oldest(&mut self, counters: &mut EgressCounters) {
        if let Some(address) = self.address.take() {
            counters.slow += 1;
            self.dropped = Some(address);
        }
        let kept = self.sender.end_next() - self.sender.acked_next();
        let first = self.sender.acked_next() + (kept / 8).max(1);
        self.sender.resume(first, first).expect("within what is kept");
    }

    /// Tells a client that it was dropped. Once: where that is lost, silence tells it.
    #[cold]
    pub(super) fn say_dropped(&mut self, tx: &mut impl Tx, identity: &Identity) -> bool {
        let Some(to) = self.dropped else { return false };
        let sent = emit(tx, to, |out| Packet::Resync(ResyncReason::Overflow).encode(identity, out));
        if sent {
            self.dropped = None;
        }
        sent
    }

    /// Answers a handshake, once its session's opening is committed.
    #[cold]
    pub(super) fn welcome(
        &mut self,
        tx: &mut impl Tx,
        to: SocketAddrV4,
        identity: &Identity,
        config: &EgressConfig,
        now: Nanos,
    ) -> bool {
        let Some(Handshake { hello, client_epoch, cursor }) = &self.handshake else { return false };
        if *client_epoch != self.client_epoch {
            return false;
        }
        let (first, end) = (self.sender.acked_next(), self.sender.end_next());
        // What was durable before it was sent is not lost, whatever is known of its reign.
        let unasked = (config.tier != Tier::Memory).then_some(hello.resume_next);
        let Some(from) = self.start.of(*client_epoch, hello, *cursor).or(unasked) else {
            return self.refuse_cursor(tx, to, identity);
        };
        let goes_back = from < hello.resume_next;
        let resume = match self.sender.resume(from, from) {
            Ok(()) => from,
            Err(ResumeError::Trimmed { .. }) => first,
            Err(ResumeError::Beyond { .. }) => end,
        };
        self.sender.resume(resume, resume).expect("within what is kept");
        self.sender.set_identity(*identity);
        self.sender.set_window(hello.window);
        self.sender.limit_datagram(hello.datagram_bytes_max as usize);
        let committed_next = self.committed_next.max(hello.first_seq.min(self.received_next));
        let welcome = Welcome {
            nonce: hello.nonce,
            committed_next,
            received_next: self.received_next.max(committed_next),
            first_event: resume,
            // A client that holds more than that goes back to it.
            next_event: if goes_back { resume } else { end },
            window: config.window,
            datagram_bytes_max: config.client_datagram_bytes_max as u32,
            schema: config.schema_version,
            tier: config.tier,
        };
        let sent = emit(tx, to, |out| Packet::Welcome(welcome).encode(identity, out));
        if sent {
            self.committed_next = committed_next;
            self.told_next = committed_next;
            self.told_received_next = self.received_next;
            self.start.note_answer(*client_epoch, hello.nonce, resume);
            self.handshake = None;
            self.spoke_at = now;
        }
        sent
    }

    /// Answers a handshake whose cursor may count what never happened: its client has to begin anew.
    #[cold]
    fn refuse_cursor(&mut self, tx: &mut impl Tx, to: SocketAddrV4, identity: &Identity) -> bool {
        let Some(Handshake { hello, .. }) = &self.handshake else { return false };
        let detail = u64::from(identity.appliance_epoch);
        let refuse = Refuse { nonce: hello.nonce, reason: RefuseReason::CursorUnproven, detail };
        let sent = emit(tx, to, |out| Packet::Refuse(refuse).encode(identity, out));
        if sent {
            (self.handshake, self.address) = (None, None);
        }
        sent
    }

    /// Sends what there is to say: an acknowledgement that is due, events, or a sign of life.
    #[inline]
    pub(super) fn say(
        &mut self,
        tx: &mut impl Tx,
        to: SocketAddrV4,
        identity: &Identity,
        config: &EgressConfig,
        now: Nanos,
    ) -> usize {
        let mut built = 0;
        if self.ack_is_due(now) || now.saturating_sub(self.spoke_at) >= HEARTBEAT_NS {
            let ack = self.ack(config);
            let mut bytes = [0; RANGES_BYTES];
            let held = self.held.and_then(|held| Ranges::write(held.as_slice(), &mut bytes).ok());
            let packet = held.map_or(Packet::Ack(ack), |held| Packet::SelectiveAck(ack, held));
            if emit(tx, to, |out| packet.encode(identity, out)) {
                self.told_next = self.committed_next;
                self.told_received_next = self.received_next;
                self.ack_now = false;
                self.ack_at = None;
                built += 1;
            }
        }
        while built < DATAGRAMS_PER_SESSION_MAX && emit(tx, to, |out| self.sender.poll_transmit(now, out)) {
            built += 1;
        }
        if built > 0 {
            self.spoke_at = now;
        }
        built
    }

    #[inline]
    fn ack_is_due(&mut self, now: Nanos) -> bool {
        let untold = self.committed_next - self.told_next;
        if (untold > 0 || self.received_next > self.told_received_next) && self.ack_at.is_none() {
            self.ack_at = Some(now + ACK_DELAY_NS);
        }
        self.ack_now || untold >= ACK_EVERY_COMMANDS || self.ack_at.is_some_and(|at| now >= at)
    }

    /// A client whose events pile up here is told to send no more for now.
    fn ack(&self, config: &EgressConfig) -> Ack {
        let kept = self.sender.end_next() - self.sender.acked_next();
        let window = if kept > config.sender.messages_max as u64 / 2 { 0 } else { config.window };
        Ack {
            acked_next: truncate(self.committed_next),
            received_next: truncate(self.received_next.max(self.committed_next)),
            window,
        }
    }
}

/// Builds one datagram in the transmit queue, flushing once where that is full. Returns whether there was one.
#[inline]
pub(super) fn emit(tx: &mut impl Tx, to: SocketAddrV4, build: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
    if tx.reserve().is_none() {
        tx.flush();
    }
    let Some(bytes) = tx.reserve().and_then(build) else { return false };
    tx.commit(bytes, to);
    true
}
