//! The egress: lets outputs leave up to the commit watermark, and answers the clients.
//!
//! Order of a poll: count the last poll's latencies, hear what arrived, move the commit, release outputs to their sessions,
//! then build datagrams for every session that has something to say, and flush once.
//! Invariant: nothing of a step leaves, and no command is acknowledged, before its input is committed.
//! Invariant: a session that does not keep up never holds up another; it loses its place, not its history.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use ticktape_core::{Nanos, Seq, SessionId, Target};
use ticktape_nic::{Tx, TxCounters};
use ticktape_shm::{CommitMark, Consumer, Watermarks};

use crate::control::{Control, RANGES_MAX, SomeRanges};
use crate::events::{EventSink, NoEvents};
use crate::link::serial::truncate;
use crate::link::{
    Ack, AckOutcome, ByeReason, DropReason, EventMessage, EventStart, Hello, Identity, LinkCounters, Packet, Ranges,
    ResumeError, ResyncReason, SendError, Sender, SenderConfig, Tier, Welcome, layout,
};
use crate::machine::Emitted;
use crate::metrics::StageLatency;
use crate::outputs::Record;
use crate::payload::Origin;
use crate::session::Sessions;
use crate::tails::Tails;

/// Output records released in one poll: a few hundred keep a poll within tens of microseconds.
const RECORDS_PER_POLL_MAX: usize = 256;

/// Messages from the sequencer heard in one poll.
const CONTROL_PER_POLL_MAX: usize = 256;

/// Datagrams built for one session in one poll, so that one busy session can't starve the others.
const DATAGRAMS_PER_SESSION_MAX: usize = 16;

/// A command is acknowledged with the others of this many …
const ACK_EVERY_COMMANDS: u64 = 64;
/// … or so long after it arrived or was committed, whichever is first. The client waits for outputs, not for acknowledgements,
/// but sends again what it has no word of.
const ACK_DELAY_NS: u64 = 10_000_000;

/// What the ranges of one message take on the wire.
const RANGES_BYTES: usize = RANGES_MAX * layout::range::BYTES;

/// A silent link says at least this often that it lives. A client gives up on one after five of these.
const HEARTBEAT_NS: u64 = 100_000_000;

/// What the egress is told at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EgressConfig {
    /// This reign's epoch.
    pub epoch: u32,
    /// The service's schema version.
    pub schema_version: u32,
    /// What an acknowledgement promises.
    pub tier: Tier,
    /// Commands taken beyond the acknowledged ones, for each session.
    pub window: u32,
    /// The largest datagram that clients may send.
    pub client_datagram_bytes_max: usize,
    /// Each session's buffer of events that its client has not acknowledged.
    pub sender: SenderConfig,
}

/// What the egress did and dropped.
#[derive(Clone, Debug, Default)]
pub struct EgressCounters {
    /// Packets without effect, by reason.
    pub link: LinkCounters,
    /// Outputs released to sessions.
    pub released: u64,
    /// Sessions that were dropped for not keeping up.
    pub slow: u64,
    /// Events sent again, counting each time.
    pub resent: u64,
    /// Packets that asked clients for missing commands.
    pub asked: u64,
}

#[derive(Debug)]
struct Handshake {
    hello: Hello,
    client_epoch: u32,
    /// Whether the client was open with an earlier reign last.
    is_earlier: bool,
}

/// One session's end of the link.
#[derive(Debug)]
struct SessionLink {
    sender: Sender,
    address: Option<SocketAddrV4>,
    /// Where a client is that was dropped just now, and is to be told.
    dropped: Option<SocketAddrV4>,
    client_epoch: u32,
    committed_next: u64,
    received_next: u64,
    told_next: u64,
    told_received_next: u64,
    /// What the sequencer holds beyond `received_next`.
    held: Option<SomeRanges>,
    /// When word of what is committed or has arrived is due at the latest.
    ack_at: Option<Nanos>,
    /// Word is due at once: the client repeats itself.
    ack_now: bool,
    spoke_at: Nanos,
    handshake: Option<Handshake>,
    /// Where events go on after a handshake.
    start: EventStart,
}

/// Every session's events, rebuilt from history at the start and kept up by the egress.
#[derive(Debug)]
pub struct SessionLinks {
    config: EgressConfig,
    links: BTreeMap<SessionId, SessionLink>,
    counters: EgressCounters,
}

impl SessionLinks {
    /// No sessions.
    pub fn new(config: EgressConfig) -> Self {
        SessionLinks { config, links: BTreeMap::new(), counters: EgressCounters::default() }
    }

    /// The sessions of a restored state, with the events that were kept for them.
    pub fn restore(config: EgressConfig, history: &Sessions, tails: &Tails) -> Self {
        let mut sessions = SessionLinks::new(config);
        let mut begin = |session, first_event| {
            sessions.links.entry(session).or_insert_with(|| SessionLink::new(&config, session, first_event));
        };
        tails.for_each(|event| {
            if let Target::Session(session) = event.target {
                begin(session, event.event_seq);
            }
        });
        history.iter().for_each(|(session, state)| begin(session, state.event_seq + 1));
        tails.for_each(|event| sessions.release(event));
        sessions
    }

    /// Takes an output for its session. Where the session's buffer is full, its oldest events go.
    #[inline]
    pub fn release(&mut self, output: &Emitted<'_>) {
        let Target::Session(session) = output.target else { return };
        let link = self.links.entry(session).or_insert_with(|| SessionLink::new(&self.config, session, 1));
        let head = EventMessage::head(output.seq.0, output.client_seq);
        loop {
            debug_assert_eq!(link.sender.end_next(), output.event_seq, "events are numbered as history numbers them");
            match link.sender.push_parts(&head, output.bytes) {
                Ok(_) => break,
                Err(SendError::Full) => link.forget_oldest(&mut self.counters),
                // The machine's limit on one output is what a datagram holds.
                Err(error @ (SendError::TooLong { .. } | SendError::Closed)) => unreachable!("{error}"),
            }
        }
        self.counters.released += 1;
    }

    /// After a replay: begins the reign `epoch`, with what history says of the sessions' commands.
    pub fn begin(&mut self, epoch: u32, history: &Sessions) {
        self.config.epoch = epoch;
        for (session, state) in history.iter() {
            let link = self.links.entry(session).or_insert_with(|| SessionLink::new(&self.config, session, 1));
            link.client_epoch = state.client_epoch;
            link.committed_next = state.client_seq + 1;
            link.received_next = link.committed_next;
            link.told_next = link.committed_next;
        }
        for link in self.links.values_mut() {
            link.start = EventStart { reign_next: link.sender.end_next(), answered: None };
        }
    }

    fn progress(&mut self, origin: &Origin) {
        let link =
            self.links.entry(origin.session).or_insert_with(|| SessionLink::new(&self.config, origin.session, 1));
        if origin.client_epoch > link.client_epoch {
            link.client_epoch = origin.client_epoch;
            link.committed_next = 1;
            link.told_next = 1;
        }
        link.committed_next = link.committed_next.max(origin.client_seq + 1);
    }
}

/// The stage between the output ring and the network.
pub struct Egress<T: Tx, E: EventSink = NoEvents> {
    tx: T,
    events: E,
    records: Consumer,
    watermarks: Watermarks,
    commit: CommitMark,
    committed: Seq,
    control: rtrb::Consumer<Control>,
    sessions: SessionLinks,
    latency: StageLatency,
}

impl<T: Tx> Egress<T> {
    /// Releases what `records` delivers, once committed, to `sessions`, which hold what was released in earlier reigns.
    pub fn new(
        tx: T,
        records: Consumer,
        watermarks: Watermarks,
        commit: CommitMark,
        control: rtrb::Consumer<Control>,
        sessions: SessionLinks,
        latency: StageLatency,
    ) -> Self {
        let events = NoEvents;
        Egress { tx, events, records, watermarks, commit, committed: Seq::ZERO, control, sessions, latency }
    }

    /// Hands public events on to `events`.
    pub fn with_events<E: EventSink>(self, events: E) -> Egress<T, E> {
        let Egress { tx, records, watermarks, commit, committed, control, sessions, latency, .. } = self;
        Egress { tx, events, records, watermarks, commit, committed, control, sessions, latency }
    }
}

impl<T: Tx, E: EventSink> Egress<T, E> {
    /// One duty cycle; returns the messages heard, records released and datagrams sent.
    #[inline]
    pub fn poll(&mut self, now: Nanos) -> usize {
        self.latency.settle(now);
        let heard = self.hear(now);
        let released = self.release(now);
        heard + released + self.transmit(now)
    }

    fn hear(&mut self, now: Nanos) -> usize {
        let mut heard = 0;
        while heard < CONTROL_PER_POLL_MAX {
            let Ok(control) = self.control.pop() else { break };
            self.on_control(now, &control);
            heard += 1;
        }
        heard
    }

    fn on_control(&mut self, now: Nanos, control: &Control) {
        let sessions = &mut self.sessions;
        match *control {
            Control::Received { session, received_next } => {
                if let Some(link) = sessions.links.get_mut(&session) {
                    link.ack_now |= received_next == link.received_next;
                    link.received_next = received_next;
                    link.held = None;
                }
            }
            Control::Held { session, received_next, held } => {
                if let Some(link) = sessions.links.get_mut(&session) {
                    link.received_next = received_next;
                    link.held = Some(held);
                    link.ack_at = link.ack_at.or(Some(now + ACK_DELAY_NS));
                }
            }
            Control::Missing { session, missing } => self.ask(session, &missing),
            Control::Ack { session, ack, held } => {
                if let Some(link) = sessions.links.get_mut(&session)
                    && link.sender.on_selective_ack(now, &ack, held.as_slice().iter().copied()) == AckOutcome::Bad
                {
                    sessions.counters.link.count(DropReason::BadAck);
                }
            }
            Control::Nack { session, missing } => {
                if let Some(link) = sessions.links.get_mut(&session)
                    && link.sender.on_nack(now, missing.as_slice().iter().copied()) == AckOutcome::Bad
                {
                    sessions.counters.link.count(DropReason::BadAck);
                }
            }
            Control::Hello { from, session, client_epoch, hello, known_reign, received_next } => {
                let config = sessions.config;
                let link = sessions.links.entry(session).or_insert_with(|| SessionLink::new(&config, session, 1));
                (link.address, link.dropped) = (Some(from), None);
                link.received_next = received_next;
                link.held = None;
                let is_earlier = known_reign != 0 && known_reign < config.epoch;
                link.handshake = Some(Handshake { hello, client_epoch, is_earlier });
            }
            Control::Refuse { to, identity, refuse } => self.send(to, &identity, &Packet::Refuse(refuse)),
            Control::Resync { to, identity, reason } => self.send(to, &identity, &Packet::Resync(reason)),
            Control::TooLong { session } => {
                let link = sessions.links.get(&session);
                if let Some((to, client_epoch)) = link.and_then(|link| Some((link.address?, link.client_epoch))) {
                    let identity = Identity { session: session.0, client_epoch, appliance_epoch: 0 };
                    self.send(to, &identity, &Packet::Bye(ByeReason::TooLong));
                }
            }
            Control::Bye { session } => {
                if let Some(link) = sessions.links.get_mut(&session) {
                    link.address = None;
                }
            }
        }
    }

    /// Asks a client for commands that are missing. Where the queue is full, the sequencer asks again.
    #[cold]
    fn ask(&mut self, session: SessionId, missing: &SomeRanges) {
        let link = self.sessions.links.get(&session);
        let Some((to, client_epoch)) = link.and_then(|link| Some((link.address?, link.client_epoch))) else { return };
        let identity = Identity { session: session.0, client_epoch, appliance_epoch: 0 };
        let mut bytes = [0; RANGES_BYTES];
        if let Ok(missing) = Ranges::write(missing.as_slice(), &mut bytes) {
            self.sessions.counters.asked += 1;
            self.send(to, &identity, &Packet::Nack(missing));
        }
    }

    /// Sends one small packet that nothing depends on: where the queue is full, the peer asks again.
    fn send(&mut self, to: SocketAddrV4, identity: &Identity, packet: &Packet<'_>) {
        let identity = Identity { appliance_epoch: self.sessions.config.epoch, ..*identity };
        emit(&mut self.tx, to, |out| packet.encode(&identity, out));
    }

    #[inline]
    fn release(&mut self, now: Nanos) -> usize {
        let commit = match self.sessions.config.tier {
            Tier::Memory => Seq::MAX,
            Tier::Local | Tier::Quorum => self.watermarks.durable(),
        };
        if commit > self.committed && commit != Seq::MAX {
            self.commit.set(commit);
            self.committed = commit;
        }
        let mut released = 0;
        while released < RECORDS_PER_POLL_MAX {
            let Some(bytes) = self.records.peek() else { break };
            let record = Record::read(bytes);
            let seq = record.seq();
            if seq > commit {
                break;
            }
            match &record {
                // What nobody takes now waits here, with all that follows: there is one order.
                Record::Output(output) if !self.events.release(now, output) => break,
                Record::Output(output) => self.sessions.release(output),
                Record::Progress { origin, .. } => {
                    self.sessions.progress(origin);
                    self.latency.pass(seq);
                }
            }
            self.records.advance();
            released += 1;
        }
        self.records.release();
        if released < RECORDS_PER_POLL_MAX {
            self.events.flush(now);
        }
        released
    }

    fn transmit(&mut self, now: Nanos) -> usize {
        let (tx, config) = (&mut self.tx, &self.sessions.config);
        let mut built = 0;
        for (&session, link) in &mut self.sessions.links {
            if link.address.is_none() && link.dropped.is_none() {
                continue;
            }
            let identity =
                Identity { session: session.0, client_epoch: link.client_epoch, appliance_epoch: config.epoch };
            let Some(to) = link.address else {
                built += usize::from(link.say_dropped(tx, &identity));
                continue;
            };
            if link.handshake.is_some() {
                built += usize::from(link.welcome(tx, to, &identity, config, now));
                continue;
            }
            built += link.say(tx, to, &identity, config, now);
        }
        if self.tx.queued() > 0 {
            self.tx.flush();
        }
        built
    }

    /// Rare work, off the hot path.
    pub fn housekeeping(&mut self, now: Nanos) {
        self.events.housekeeping(now);
    }

    /// Ends the public events, once everything is released. False until that is said and sent.
    pub fn end_events(&mut self, now: Nanos) -> bool {
        self.events.end(now)
    }

    /// What became of the public events, by name.
    pub fn event_counters(&self) -> Vec<(&'static str, u64)> {
        self.events.counters()
    }

    /// Whether every record up to `last` has been released.
    pub fn released(&self, last: Seq) -> bool {
        self.records.next_seq() > last
    }

    /// Says good-bye to every client.
    pub fn bye(&mut self) {
        let epoch = self.sessions.config.epoch;
        for (&session, link) in &mut self.sessions.links {
            let Some(to) = link.address.take() else { continue };
            let identity = Identity { session: session.0, client_epoch: link.client_epoch, appliance_epoch: epoch };
            emit(&mut self.tx, to, |out| Packet::Bye(ByeReason::Stopping).encode(&identity, out));
        }
        self.tx.flush();
    }

    /// What was done and dropped.
    pub fn counters(&self) -> EgressCounters {
        let resent = self.sessions.links.values().map(|link| link.sender.resent_messages()).sum();
        EgressCounters { resent, ..self.sessions.counters.clone() }
    }

    /// What the port counted.
    pub fn tx_counters(&self) -> TxCounters {
        self.tx.counters()
    }

    /// What the port's backend counted beside.
    pub fn tx_details(&self) -> Vec<(&'static str, u64)> {
        self.tx.details()
    }

    /// Hands over the latencies.
    pub fn into_latency(self) -> StageLatency {
        self.latency
    }
}

impl SessionLink {
    /// `first_event` is the number of the first event that will be released to it.
    fn new(config: &EgressConfig, session: SessionId, first_event: u64) -> Self {
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
            start: EventStart { reign_next: first_event, answered: None },
        }
    }

    /// Makes room by forgetting an eighth of the buffer. A client that still needs it is dropped, and told: it says Hello, and the
    /// Welcome names the events that are left.
    #[cold]
    fn forget_oldest(&mut self, counters: &mut EgressCounters) {
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
    fn say_dropped(&mut self, tx: &mut impl Tx, identity: &Identity) -> bool {
        let Some(to) = self.dropped else { return false };
        let sent = emit(tx, to, |out| Packet::Resync(ResyncReason::Overflow).encode(identity, out));
        if sent {
            self.dropped = None;
        }
        sent
    }

    /// Answers a handshake, once its session's opening is committed.
    #[cold]
    fn welcome(
        &mut self,
        tx: &mut impl Tx,
        to: SocketAddrV4,
        identity: &Identity,
        config: &EgressConfig,
        now: Nanos,
    ) -> bool {
        let Some(Handshake { hello, client_epoch, is_earlier }) = &self.handshake else { return false };
        if *client_epoch != self.client_epoch {
            return false;
        }
        let (first, end) = (self.sender.acked_next(), self.sender.end_next());
        let (from, goes_back) = self.start.of(*client_epoch, hello, *is_earlier);
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
            self.start.answered = Some((*client_epoch, hello.nonce, resume));
            self.handshake = None;
            self.spoke_at = now;
        }
        sent
    }

    /// Sends what there is to say: an acknowledgement that is due, events, or a sign of life.
    #[inline]
    fn say(
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
fn emit(tx: &mut impl Tx, to: SocketAddrV4, build: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
    if tx.reserve().is_none() {
        tx.flush();
    }
    let Some(bytes) = tx.reserve().and_then(build) else { return false };
    tx.commit(bytes, to);
    true
}
