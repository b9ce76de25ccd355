//! The sequencer: takes datagrams, checks them against their sessions, and writes commands into the one order.
//!
//! Order of a poll: count the last poll's latencies, tell the egress what had arrived by then, take a burst that is certain to fit the
//! ring, publish once; where there was none, sequence a tick if a timer is due.
//! What arrived is told a poll later because only acknowledgements depend on it: a reply does not wait for that.
//! Invariant: a datagram is taken only when all it may hold fits the ring; what can't be taken stays with the kernel.
//! Invariant: a session's commands enter the log once, in order, within a client epoch.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use ticktape_core::{Kind, Nanos, Seq, SessionId, Timestamp};
use ticktape_nic::{Datagram, Rx, RxCounters, TimeOrigin};

use crate::control::{Control, RANGES_MAX, SomeRanges};
use crate::executor::Deadline;
use crate::link::{
    Ack, Answer, Data, DropReason, Hello, Identity, LinkCounters, Outcome, Packet, RESEND_PER_NACK_MAX, Ranges,
    Receiver, ReceiverConfig, Refuse, RefuseReason, ResyncReason, SEQ_LIMIT, Standing, Terms, Tier, answer_hello,
    layout,
};
use crate::log::LogWriter;
use crate::mark::{Cadence, Mark, MarkWriter};
use crate::metrics::{Arrivals, StageLatency};
use crate::payload::{self, Origin, encode_session_open};
use crate::session::Sessions;

/// Datagrams taken in one poll: what one `recvmmsg` fetches cheaply, and few enough that other stages on the core wait
/// microseconds.
const BURST_MAX: usize = 32;

/// How long a due timer may wait for another tick when the executor has not come round yet.
const TICK_AGAIN_NS: u64 = 1_000_000;

/// Parts of [`RANGES_MAX`] ranges that one Nack may become on its way to the egress: the client repeats what is left out.
const NACK_PARTS_MAX: u16 = 8;

/// A held command takes a block of 64 bytes at least: more slots than blocks would serve nobody.
const REORDER_BYTES_PER_COMMAND: usize = 64;

/// Beyond it the client has to wait for a repeat anyway: what one Nack has sent again.
const REORDER_COMMANDS_MAX: usize = RESEND_PER_NACK_MAX as usize;

/// Bytes of commands kept for a session while those before them are missing, by default: 1024 small ones, or 45 full datagrams. With
/// its tables a receiver takes 90 KiB, so the default number of sessions 90 MiB; untouched until something is lost.
pub const REORDER_BYTES: usize = 64 << 10;

/// Sessions that one appliance keeps, by default. Each costs a send buffer in the egress.
pub const SESSIONS_MAX: usize = 1024;

/// What the sequencer is told at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequencerConfig {
    /// This reign's epoch.
    pub epoch: u32,
    /// The service's schema version; a client of another one is refused.
    pub schema_version: u32,
    /// The largest datagram, in bytes.
    pub datagram_bytes_max: usize,
    /// The largest command, in bytes: its frame must fit wherever frames go.
    pub command_bytes_max: usize,
    /// Commands taken beyond the acknowledged ones, for each session.
    pub window: u32,
    /// Sessions that may exist.
    pub sessions_max: usize,
    /// Bytes of commands kept for each session while those before them are missing.
    pub reorder_bytes: usize,
}

#[derive(Debug)]
struct SessionLink {
    receiver: Receiver,
    /// Where its packets must come from; `None` until it has shaken hands in this reign.
    address: Option<SocketAddrV4>,
    /// The nonce and cursor of the Hello that opened it in this reign.
    opened_by: Option<(u64, u64)>,
    open: bool,
    received_untold: bool,
}

/// What was dropped or refused, and how often.
#[derive(Clone, Debug, Default)]
pub struct SequencerCounters {
    /// Datagrams that had no effect, by reason.
    pub link: LinkCounters,
    /// Messages to the egress for which there was no room.
    pub control_full: u64,
    /// Commands sequenced.
    pub commands: u64,
    /// Packets with a command too long for a frame.
    pub commands_too_long: u64,
    /// Ticks sequenced.
    pub ticks: u64,
    /// Marks sequenced.
    pub marks: u64,
    /// Commands whose arrival the kernel stamped.
    pub stamped_by_kernel: u64,
}

/// Everything but the port and the log, so that a datagram can be handled while both are borrowed.
#[derive(Debug)]
struct Desk {
    config: SequencerConfig,
    sessions: BTreeMap<SessionId, SessionLink>,
    control: rtrb::Producer<Control>,
    arrivals: Arrivals,
    counters: SequencerCounters,
    errands: Errands,
}

/// What is left to do for sessions after their datagrams.
#[derive(Debug)]
struct Errands {
    /// Sessions of which something has arrived that the egress was not told; each once.
    untold: Vec<SessionId>,
    /// When a session's missing commands are to be asked for; `Nanos::MAX` where none misses any.
    ask_at: Nanos,
    /// Commands whose turn has come wait for room in the log.
    waiting: bool,
}

/// The stage between the network and the log ring.
pub struct Sequencer<R: Rx> {
    rx: R,
    log: LogWriter,
    desk: Desk,
    deadline: Deadline,
    latency: StageLatency,
    ticked: (u64, Nanos),
    datagram_room: (usize, usize),
    marks: Option<MarkWriter>,
}

impl<R: Rx> Sequencer<R> {
    /// Receives from `rx` and writes to `log`, knowing the sessions that history knows. When each input arrived it notes for `latency`, and for
    /// whoever else looks at those arrivals.
    pub fn new(
        rx: R,
        log: LogWriter,
        config: SequencerConfig,
        history: &Sessions,
        control: rtrb::Producer<Control>,
        deadline: Deadline,
        latency: StageLatency,
    ) -> Self {
        let receiver_config = receiver_config(&config);
        let sessions: BTreeMap<SessionId, SessionLink> = history
            .iter()
            .map(|(session, state)| {
                let receiver = Receiver::new(state.client_epoch, state.client_seq + 1, &receiver_config);
                (session, SessionLink::new(receiver, state.open))
            })
            .collect();
        let known = sessions.len();
        Sequencer {
            rx,
            desk: Desk {
                config,
                sessions,
                control,
                arrivals: latency.arrivals().clone(),
                counters: SequencerCounters::default(),
                errands: Errands {
                    untold: Vec::with_capacity(config.sessions_max.max(known)),
                    ask_at: Nanos::MAX,
                    waiting: false,
                },
            },
            log,
            deadline,
            latency,
            ticked: (0, 0),
            datagram_room: datagram_room(config.datagram_bytes_max),
            marks: None,
        }
    }

    /// Marks the log from now on, with the digests that a shadow sends.
    pub fn set_marks(&mut self, cadence: Cadence, digests: rtrb::Consumer<Mark>) {
        self.marks = Some(MarkWriter::new(cadence, digests, &self.log));
    }

    /// One duty cycle; returns the datagrams taken and ticks written.
    #[inline]
    pub fn poll(&mut self, now: Nanos) -> usize {
        self.latency.settle(now);
        let (log, desk) = (&mut self.log, &mut self.desk);
        if !desk.errands.untold.is_empty() {
            desk.tell_received();
        }
        let mended = (now >= desk.errands.ask_at || desk.errands.waiting) && desk.mend(now, log);
        let burst = affordable_burst(log, self.datagram_room);
        let mut taken = 0;
        if burst > 0 {
            taken = self.rx.poll(now, burst, |datagram| desk.on_datagram(now, &datagram, log));
        }
        if taken > 0 || mended {
            log.publish();
            self.latency.enter(now, Seq(log.next_seq().0 - 1));
            return taken;
        }
        let ticks = self.tick(now);
        if ticks == 0 {
            self.log.idle();
        }
        ticks
    }

    /// Sequences the passing of time where a timer is due and nothing else has carried it there.
    fn tick(&mut self, now: Nanos) -> usize {
        let deadline = self.deadline.get();
        if deadline == Deadline::NEVER || deadline > self.log.time(now).0 {
            return 0;
        }
        let (ticked_for, at) = self.ticked;
        if deadline == ticked_for && now.saturating_sub(at) < TICK_AGAIN_NS {
            return 0;
        }
        let Ok(seq) = self.log.append(now, Kind::Tick, &[], &[]) else { return 0 };
        self.desk.arrivals.set(seq, 0);
        self.log.publish();
        self.latency.pass(seq);
        self.ticked = (deadline, now);
        self.desk.counters.ticks += 1;
        1
    }

    /// Steers the sequenced clock and shows followers that this writer lives. Every millisecond or so.
    pub fn housekeeping(&mut self, realtime: Timestamp, now: Nanos) {
        self.log.observe_realtime(realtime, now);
        self.log.heartbeat(now);
    }

    /// Marks the log if that is due. Every millisecond or so, until the last seq is named.
    pub fn mark(&mut self, now: Nanos) {
        if let Some(seq) = self.marks.as_mut().and_then(|marks| marks.poll(now, &mut self.log)) {
            self.desk.arrivals.set(seq, 0);
            self.log.publish();
            self.desk.counters.marks += 1;
            self.latency.pass(seq);
        }
    }

    /// Writes a frame that another sequencer wrote: a replay of a captured log knows when a tick or a mark came. False where the ring is
    /// full.
    ///
    /// # Panics
    /// Where the payload is larger than the log's frames may have.
    pub fn adopt(&mut self, now: Nanos, kind: Kind, payload: &[u8]) -> bool {
        let Ok(seq) = self.log.append(now, kind, payload, &[]) else { return false };
        self.desk.arrivals.set(seq, 0);
        self.log.publish();
        self.latency.pass(seq);
        true
    }

    /// The next seq to be assigned.
    pub fn next_seq(&self) -> Seq {
        self.log.next_seq()
    }

    /// How often realtime was found more than a second from sequenced time: an alarm, as it is only slewed.
    pub fn clock_jumps(&self) -> u64 {
        self.log.clock_jumps()
    }

    /// What was dropped or refused.
    pub fn counters(&self) -> &SequencerCounters {
        &self.desk.counters
    }

    /// What the port counted.
    pub fn rx_counters(&self) -> RxCounters {
        self.rx.counters()
    }

    /// What the port's backend counted beside.
    pub fn rx_details(&self) -> Vec<(&'static str, u64)> {
        self.rx.details()
    }

    /// The latencies.
    pub fn latency(&self) -> &StageLatency {
        &self.latency
    }
}

impl SequencerConfig {
    /// What decides on a Hello. The tier plays no part in that: the Welcome is the egress's.
    fn terms(&self) -> Terms {
        Terms {
            schema: self.schema_version,
            tier: Tier::Memory,
            window: self.window,
            datagram_bytes_max: self.datagram_bytes_max as u32,
        }
    }
}

impl SessionLink {
    fn new(receiver: Receiver, open: bool) -> Self {
        SessionLink { receiver, address: None, opened_by: None, open, received_untold: false }
    }

    /// Whether a packet comes from where this session shook hands in this reign, and in its client's present one.
    #[inline]
    fn is_connected(&self, from: SocketAddrV4, identity: &Identity, epoch: u32) -> bool {
        self.address == Some(from)
            && self.receiver.epoch() == identity.client_epoch
            && identity.appliance_epoch == epoch
    }

    /// What decides on a Hello. Commits and events are the egress's, which writes the Welcome.
    fn standing(&self) -> Standing {
        let received_next = self.receiver.received_next();
        Standing {
            client_epoch: self.receiver.epoch(),
            opened_by: self.opened_by,
            committed_next: received_next,
            received_next,
            first_event: 1,
            next_event: SEQ_LIMIT,
        }
    }
}

impl Errands {
    /// A session's commands have come, or word that some won't.
    #[inline]
    fn after(&mut self, session: SessionId, link: &mut SessionLink, outcome: Outcome, counters: &mut LinkCounters) {
        if let Some(reason) = outcome.drop_reason() {
            counters.count(reason);
        }
        self.note_arrival(session, link);
        if !link.receiver.is_whole() {
            self.note_missing(link);
        }
    }

    /// Something has arrived that the egress has to be told.
    #[inline]
    fn note_arrival(&mut self, session: SessionId, link: &mut SessionLink) {
        if !link.received_untold {
            link.received_untold = true;
            self.untold.push(session);
        }
    }

    /// Commands are missing, or wait for room.
    #[inline]
    fn note_missing(&mut self, link: &SessionLink) {
        self.ask_at = self.ask_at.min(link.receiver.poll_nack_timeout().unwrap_or(Nanos::MAX));
        self.waiting |= link.receiver.is_ready();
    }
}

impl Desk {
    #[inline]
    fn on_datagram(&mut self, now: Nanos, datagram: &Datagram<'_>, log: &mut LogWriter) {
        match Packet::decode(datagram.payload) {
            Ok((identity, Packet::Data(data))) => self.on_data(now, datagram, &identity, &data, log),
            Ok((identity, Packet::Ack(ack))) => {
                self.on_ack(datagram.source, &identity, ack, SomeRanges::first_of(std::iter::empty()));
            }
            Ok((identity, Packet::SelectiveAck(ack, held))) => {
                self.on_ack(datagram.source, &identity, ack, SomeRanges::first_of(held.iter()));
            }
            Ok((identity, Packet::Nack(missing))) => self.on_nack(datagram.source, &identity, missing),
            Ok((identity, Packet::GapFill { from, count })) => {
                self.on_gap_fill(now, datagram, &identity, (from, count), log);
            }
            Ok((identity, Packet::Hello(hello))) => self.on_hello(now, datagram.source, &identity, &hello, log),
            Ok((identity, Packet::Bye(_))) => self.on_bye(datagram.source, &identity),
            Ok((identity, Packet::Heartbeat { next_seq })) => {
                self.on_heartbeat(now, datagram.source, &identity, next_seq);
            }
            Ok(_) => self.counters.link.count(DropReason::Unexpected),
            Err(error) => self.counters.link.count(DropReason::Malformed(error)),
        }
    }

    #[inline]
    fn on_data(
        &mut self,
        now: Nanos,
        datagram: &Datagram<'_>,
        identity: &Identity,
        data: &Data<'_>,
        log: &mut LogWriter,
    ) {
        let session = SessionId(identity.session);
        let Some(link) = self.sessions.get_mut(&session) else { return self.turn_away(datagram.source, identity) };
        if !link.is_connected(datagram.source, identity, self.config.epoch) {
            return self.turn_away(datagram.source, identity);
        }
        if data.messages().any(|command| command.len() > self.config.command_bytes_max) {
            // It would be sent again for ever: the client hears why it is over.
            self.counters.commands_too_long += 1;
            self.tell(Control::TooLong { session });
            return;
        }
        let (arrivals, counters) = (&self.arrivals, &mut self.counters);
        let client_epoch = identity.client_epoch;
        let outcome = link.receiver.on_data(now, client_epoch, data, |client_seq, command| {
            let origin = Origin { session, client_epoch, client_seq };
            let Ok(seq) = log.append(now, Kind::SessionInput, &origin.encode(), command) else { return false };
            // One that waited for its turn counts from when that came.
            arrivals.set(seq, datagram.received);
            counters.commands += 1;
            counters.stamped_by_kernel += u64::from(datagram.origin != TimeOrigin::Poll);
            true
        });
        self.errands.after(session, link, outcome, &mut self.counters.link);
    }

    /// The client gave numbers up before it used them.
    #[cold]
    fn on_gap_fill(
        &mut self,
        now: Nanos,
        datagram: &Datagram<'_>,
        identity: &Identity,
        (from, count): (u32, u32),
        log: &mut LogWriter,
    ) {
        let session = SessionId(identity.session);
        if !self.is_connected(datagram.source, identity) {
            return;
        }
        let Some(link) = self.sessions.get_mut(&session) else { return };
        let sink = &mut HeldCommands { now, session, epoch: identity.client_epoch, log, arrivals: &self.arrivals };
        let commands = &mut self.counters.commands;
        let outcome = link.receiver.on_gap_fill(now, from, count, |seq, command| sink.take(seq, command, commands));
        self.errands.after(session, link, outcome, &mut self.counters.link);
    }

    /// Asks for what is missing where that is due, and takes what waited for room in the log. Returns whether it took anything.
    #[cold]
    fn mend(&mut self, now: Nanos, log: &mut LogWriter) -> bool {
        let mut has_taken = false;
        (self.errands.ask_at, self.errands.waiting) = (Nanos::MAX, false);
        for (&session, link) in self.sessions.iter_mut().filter(|(_, link)| !link.receiver.is_whole()) {
            let epoch = link.receiver.epoch();
            let sink = &mut HeldCommands { now, session, epoch, log, arrivals: &self.arrivals };
            let commands = &mut self.counters.commands;
            let taken = link.receiver.poll_deliver(now, |seq, command| sink.take(seq, command, commands));
            if taken > 0 {
                has_taken = true;
                self.errands.note_arrival(session, link);
            }
            loop {
                let missing = SomeRanges::collect(|ranges| link.receiver.poll_nack(now, ranges));
                if missing.as_slice().is_empty() {
                    break;
                }
                if self.control.push(Control::Missing { session, missing }).is_err() {
                    self.counters.control_full += 1;
                }
            }
            self.errands.note_missing(link);
        }
        has_taken
    }

    fn on_ack(&mut self, from: SocketAddrV4, identity: &Identity, ack: Ack, held: SomeRanges) {
        if self.is_connected(from, identity) {
            self.tell(Control::Ack { session: SessionId(identity.session), ack, held });
        }
    }

    #[cold]
    fn on_nack(&mut self, from: SocketAddrV4, identity: &Identity, missing: Ranges<'_>) {
        if self.is_connected(from, identity) {
            let (session, mut said) = (SessionId(identity.session), missing.iter());
            for _ in 0..missing.count().div_ceil(RANGES_MAX as u16).min(NACK_PARTS_MAX) {
                self.tell(Control::Nack { session, missing: SomeRanges::first_of(said.by_ref()) });
            }
        }
    }

    fn on_heartbeat(&mut self, now: Nanos, from: SocketAddrV4, identity: &Identity, next_seq: u32) {
        if self.is_connected(from, identity)
            && let Some(link) = self.sessions.get_mut(&SessionId(identity.session))
        {
            self.errands.note_arrival(SessionId(identity.session), link);
            if link.receiver.on_heartbeat(now, next_seq) {
                self.errands.note_missing(link);
            }
        }
    }

    fn on_bye(&mut self, from: SocketAddrV4, identity: &Identity) {
        let session = SessionId(identity.session);
        if self.is_connected(from, identity)
            && let Some(link) = self.sessions.get_mut(&session)
        {
            link.address = None;
            self.tell(Control::Bye { session });
        }
    }

    /// Whether a packet belongs to a session that has shaken hands in this reign, from where it did. Tells the sender what
    /// to do where not.
    #[inline]
    fn is_connected(&mut self, from: SocketAddrV4, identity: &Identity) -> bool {
        let link = self.sessions.get(&SessionId(identity.session));
        let is_connected = link.is_some_and(|link| link.is_connected(from, identity, self.config.epoch));
        if !is_connected {
            self.turn_away(from, identity);
        }
        is_connected
    }

    /// Counts a packet that is of no connected session, and tells its sender what to do.
    #[cold]
    fn turn_away(&mut self, from: SocketAddrV4, identity: &Identity) {
        let address = self.sessions.get(&SessionId(identity.session)).and_then(|link| link.address);
        let (drop, reason) = if identity.appliance_epoch != self.config.epoch {
            (DropReason::StaleEpoch, ResyncReason::EpochChanged)
        } else if address == Some(from) {
            (DropReason::StaleEpoch, ResyncReason::UnknownSession)
        } else {
            (DropReason::ForeignSession, ResyncReason::UnknownSession)
        };
        self.counters.link.count(drop);
        self.tell(Control::Resync { to: from, identity: *identity, reason });
    }

    fn on_hello(&mut self, now: Nanos, from: SocketAddrV4, identity: &Identity, hello: &Hello, log: &mut LogWriter) {
        let (session, client_epoch) = (SessionId(identity.session), identity.client_epoch);
        match self.admit(now, identity, hello, log) {
            Ok(()) => {}
            Err(Some(refuse)) => return self.tell(Control::Refuse { to: from, identity: *identity, refuse }),
            Err(None) => return,
        }
        let Some(link) = self.sessions.get_mut(&session) else { return };
        link.address = Some(from);
        let received_next = link.receiver.received_next();
        let known_reign = identity.appliance_epoch;
        self.tell(Control::Hello { from, session, client_epoch, hello: *hello, known_reign, received_next });
    }

    /// Lets a session in, with a `SessionOpen` where history has none for it. `Err(None)`: no room just now, the client asks again.
    fn admit(
        &mut self,
        now: Nanos,
        identity: &Identity,
        hello: &Hello,
        log: &mut LogWriter,
    ) -> Result<(), Option<Refuse>> {
        let (session, client_epoch, config) = (SessionId(identity.session), identity.client_epoch, self.config);
        let link = self.sessions.get(&session);
        match answer_hello(&config.terms(), link.map(SessionLink::standing).as_ref(), identity, hello) {
            Answer::Refuse(refuse) => return Err(Some(refuse)),
            Answer::Repeat(_) => return Ok(()),
            Answer::Open { .. } => {}
        }
        if link.is_none() && self.sessions.len() >= config.sessions_max {
            let (nonce, reason) = (hello.nonce, RefuseReason::SessionsFull);
            return Err(Some(Refuse { nonce, reason, detail: config.sessions_max as u64 }));
        }
        let goes_on = link.is_some_and(|link| link.open && link.receiver.epoch() == client_epoch);
        if !goes_on {
            let payload = encode_session_open(session, client_epoch, hello.first_seq);
            let seq = log.append(now, Kind::SessionOpen, &payload, &[]).map_err(|_| None)?;
            self.arrivals.set(seq, 0);
        }
        let link = self.sessions.entry(session).or_insert_with(|| {
            SessionLink::new(Receiver::new(client_epoch, hello.first_seq, &receiver_config(&config)), true)
        });
        link.open = true;
        link.opened_by = Some((hello.nonce, hello.resume_next));
        if link.receiver.epoch() != client_epoch {
            link.receiver.restart(client_epoch, hello.first_seq);
        }
        Ok(())
    }

    /// Sessions are never forgotten, so each that is noted is there.
    fn tell_received(&mut self) {
        while let Some(&session) = self.errands.untold.last() {
            let Some(link) = self.sessions.get_mut(&session) else { break };
            let received_next = link.receiver.received_next();
            let control = if link.receiver.held() == 0 {
                Control::Received { session, received_next }
            } else {
                let held = SomeRanges::collect(|ranges| link.receiver.held_ranges(ranges));
                Control::Held { session, received_next, held }
            };
            if self.control.push(control).is_err() {
                self.counters.control_full += 1;
                return;
            }
            link.received_untold = false;
            self.errands.untold.pop();
        }
    }

    fn tell(&mut self, control: Control) {
        if self.control.push(control).is_err() {
            self.counters.control_full += 1;
        }
    }
}

fn receiver_config(config: &SequencerConfig) -> ReceiverConfig {
    let reorder_messages = (config.reorder_bytes / REORDER_BYTES_PER_COMMAND).clamp(64, REORDER_COMMANDS_MAX);
    ReceiverConfig {
        window: config.window,
        reorder_messages,
        reorder_bytes: config.reorder_bytes,
        ..ReceiverConfig::default()
    }
}

/// Takes commands that were held, where their turn comes without a packet of their own: they count as arrived now.
struct HeldCommands<'a> {
    now: Nanos,
    session: SessionId,
    epoch: u32,
    log: &'a mut LogWriter,
    arrivals: &'a Arrivals,
}

impl HeldCommands<'_> {
    fn take(&mut self, client_seq: u64, command: &[u8], commands: &mut u64) -> bool {
        let origin = Origin { session: self.session, client_epoch: self.epoch, client_seq };
        let Ok(seq) = self.log.append(self.now, Kind::SessionInput, &origin.encode(), command) else { return false };
        self.arrivals.set(seq, self.now);
        *commands += 1;
        true
    }
}

/// The most frames, and bytes of payload, that one datagram may turn into.
pub fn datagram_room(datagram_bytes_max: usize) -> (usize, usize) {
    let messages = (datagram_bytes_max - layout::data::MESSAGES) / layout::data::LEN_BYTES;
    (messages, datagram_bytes_max + messages * payload::COMMAND)
}

/// How many datagrams are certain to fit the ring now: a few sizes are enough to stay busy and to degrade.
#[inline]
fn affordable_burst(log: &mut LogWriter, (frames, bytes): (usize, usize)) -> usize {
    [BURST_MAX, BURST_MAX / 2, BURST_MAX / 4, BURST_MAX / 8, 1]
        .into_iter()
        .find(|burst| log.room(burst * frames, burst * bytes))
        .unwrap_or(0)
}
