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

mod session_link;

use session_link::{ACK_DELAY_NS, Handshake, SessionLink, emit};

use crate::control::{Control, RANGES_MAX, SomeRanges};
use crate::events::{EventSink, NoEvents};
use crate::link::{
    AckOutcome, ByeReason, DropReason, EventMessage, Identity, LinkCounters, Packet, Ranges, Reigns, SendError,
    SenderConfig, Tier, layout,
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

/// What the ranges of one message take on the wire.
const RANGES_BYTES: usize = RANGES_MAX * layout::range::BYTES;

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

/// Every session's events, rebuilt from history at the start and kept up by the egress.
#[derive(Debug)]
pub struct SessionLinks {
    config: EgressConfig,
    links: BTreeMap<SessionId, SessionLink>,
    /// Those before this one.
    reigns: Reigns,
    counters: EgressCounters,
}

impl SessionLinks {
    /// No sessions.
    pub fn new(config: EgressConfig) -> Self {
        SessionLinks { config, links: BTreeMap::new(), reigns: Reigns::default(), counters: EgressCounters::default() }
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

    /// After a replay: begins the reign `epoch`, with what history says of the sessions' commands, and of the reigns before.
    pub fn begin(&mut self, epoch: u32, history: &Sessions, epochs: &[(u64, Seq)]) {
        self.config.epoch = epoch;
        self.reigns = Reigns::new(epochs);
        for (session, state) in history.iter() {
            let link = self.links.entry(session).or_insert_with(|| SessionLink::new(&self.config, session, 1));
            link.client_epoch = state.client_epoch;
            link.committed_next = state.client_seq + 1;
            link.received_next = link.committed_next;
            link.told_next = link.committed_next;
        }
        for link in self.links.values_mut() {
            link.begin(epoch, &self.reigns);
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
                let cursor = sessions.reigns.of(known_reign, config.epoch);
                let link = sessions.links.entry(session).or_insert_with(|| SessionLink::new(&config, session, 1));
                (link.address, link.dropped) = (Some(from), None);
                link.received_next = received_next;
                link.held = None;
                link.handshake = Some(Handshake { hello, client_epoch, cursor });
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
        if self.tx.queued() == 0 {
            self.latency.leave();
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

    /// What was done and dropped, but what was sent again: that each session knows.
    pub fn own_counters(&self) -> &EgressCounters {
        &self.sessions.counters
    }

    /// The last seq whose outputs were all released.
    pub fn released_seq(&self) -> Seq {
        self.latency.passed()
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

    /// The latencies: at the wire those of what nothing kept back, but a client's own window.
    pub fn latency(&self) -> &StageLatency {
        &self.latency
    }
}
