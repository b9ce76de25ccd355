//! What a receiver of public events believes: an arbiter that is told nothing but what a message or the repair port bears out.
//!
//! ```text
//!  A, B ─► within the window ─► arbiter ─► in order
//!      └─► beyond it, or given up: what does the repair port have of the next number?
//!            it has it ─► asked for window by window      it begins later ─► what is before that is lost
//!            nothing, or no answer ─► on to what really came, or on as before
//! ```
//!
//! Invariant: a heartbeat alone, whatever it says, never makes the stream skip a number or change its epoch.
//! Invariant: no packet alone changes the epoch; the repair port bears it out, or a second packet where nobody answers.
//! Invariant: under a new epoch nothing is printed before it is told whether what was printed still counts: proven by the repair port, or
//! taken back, or said to be unproven.

use ticktape::Nanos;
use ticktape::feed::{
    Arbiter, ArbiterConfig, ArbiterCounters, FeedEvent, FeedSession, MoldPacket, MoldRequest, Proof, SessionName, Side,
    Verdict,
};

use super::follow_events_sessions::{Found, Sessions};

/// The largest datagram that carries events: a jumbo frame.
pub const DATAGRAM_BYTES_MAX: usize = 8_972;
/// Events that may wait for those before them, and be repaired at a time. Memory for as many of the largest is asked for, and little
/// of it touched.
pub const WINDOW_EVENTS: u64 = 1 << 15;
/// Packets with messages near each other, beyond the window, that make up for a repair port that has nothing: one may be forged.
const FAR_BELIEVED: u32 = 3;
/// How long a probe is waited for, in ns: many round trips.
const PROBE_NS: u64 = 50_000_000;
/// How often it is sent.
const PROBES_MAX: u32 = 4;
/// The least time from a probe that brought nothing to the next, in ns: whoever forges must not make us ask without end.
const QUIET_NS: u64 = 100_000_000;
/// Without any packet for so long, silence is worth a word, in ns.
const SILENCE_NS: u64 = 3_000_000_000;

/// What is to be printed, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Out {
    /// An event, with its number.
    Event(u64, Vec<u8>),
    /// A word about the feed.
    Notice(String),
    /// The numbers went back: events `next .. from` of this epoch never happened, and others come in their place.
    TakenBack {
        /// In which they were received.
        epoch: u32,
        /// The event that was due.
        from: u64,
        /// The event that comes next.
        next: u64,
    },
    /// Whether the events before `next`, of this epoch, still count can't be told.
    Unproven {
        /// In which they were received.
        epoch: u32,
        /// The event that comes next.
        next: u64,
    },
    /// A cursor that was brought along can't be gone on from.
    Refused(String),
}

/// Where a stream is to begin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    /// The first event wanted; the first that is heard where not given.
    pub from: Option<u64>,
    /// The epoch in which those before it were received, where that is to be asked about.
    pub epoch: Option<u32>,
}

/// Messages beyond the window, while the next one was `next_seq`.
#[derive(Clone, Copy)]
struct Far {
    next_seq: u64,
    sequence: u64,
    count: u32,
}

/// A request whose answer tells what the repair port has.
#[derive(Clone, Copy)]
struct Probe {
    sequence: u64,
    deadline: Nanos,
    sent: u32,
}

/// One stream of events. See the module.
pub struct Stream {
    arbiter: Arbiter,
    has_rewinder: bool,
    out: Vec<Out>,
    missing: u64,
    /// Numbers before this exist, somebody said.
    word: u64,
    far: Option<Far>,
    far_heard_at: Option<Nanos>,
    /// What the arbiter gave up.
    stuck: Option<(u64, u64)>,
    /// Newer epochs that were heard of.
    newer: Sessions,
    /// When the epoch that is listened to was last heard.
    heard_at: Nanos,
    /// One above the highest number that was heard in it.
    heard_next: u64,
    /// Whether what was received in an earlier epoch counts: nothing is printed until that is told.
    proof: Option<Proof>,
    /// It was brought along.
    is_saved: bool,
    taken_back: u64,
    unproven: u64,
    probe: Option<Probe>,
    quiet_until: Nanos,
}

impl Stream {
    /// A stream that begins where the cursor says, or where `found` does.
    pub fn begin(now: Nanos, found: &Found, cursor: Cursor, has_rewinder: bool) -> Self {
        let mut stream = Stream::new(found.session, cursor.from.unwrap_or(found.from), has_rewinder);
        stream.heard_at = now;
        let (present, next) = (found.session.epoch(), stream.next_seq());
        if let Some(epoch) = cursor.epoch.filter(|&epoch| epoch != present && next > 1) {
            stream.is_saved = true;
            match FeedSession::new(found.session.stream(), epoch) {
                Ok(earlier) if epoch < present && !found.unanswered => stream.proof = Some(Proof::new(earlier, next)),
                _ => stream.refuse(epoch),
            }
        }
        stream.take_in(now, found);
        stream
    }

    /// A stream that goes on with `next_seq`.
    pub fn new(session: FeedSession, next_seq: u64, has_rewinder: bool) -> Self {
        let arbiter = Arbiter::new(&ArbiterConfig {
            stream: session.stream(),
            epoch_min: session.epoch(),
            next_seq,
            window_messages: WINDOW_EVENTS as usize,
            message_bytes_max: DATAGRAM_BYTES_MAX,
            rewinders: usize::from(has_rewinder),
            ..ArbiterConfig::default()
        });
        Stream {
            arbiter,
            has_rewinder,
            out: Vec::new(),
            missing: 0,
            word: 0,
            far: None,
            far_heard_at: None,
            stuck: None,
            newer: Sessions::new(session.stream(), has_rewinder),
            heard_at: 0,
            heard_next: 0,
            proof: None,
            is_saved: false,
            taken_back: 0,
            unproven: 0,
            probe: None,
            quiet_until: 0,
        }
    }

    /// Takes what is to be printed.
    pub fn take(&mut self) -> std::vec::Drain<'_, Out> {
        self.out.drain(..)
    }

    /// Events that were declared lost.
    pub const fn missing(&self) -> u64 {
        self.missing
    }

    /// Events that were taken back after they were printed, and how often it could not be told whether any were.
    pub const fn taken_back(&self) -> (u64, u64) {
        (self.taken_back, self.unproven)
    }

    /// The epoch that the printed events are known to be of, or were said not to be.
    pub fn epoch(&self) -> u32 {
        self.proof.map_or(self.arbiter.session(), |proof| proof.session()).epoch()
    }

    /// The next number to print.
    pub const fn next_seq(&self) -> u64 {
        self.arbiter.next_seq()
    }

    /// What the arbiter counted.
    pub fn counters(&self) -> ArbiterCounters {
        self.arbiter.counters()
    }

    /// A datagram of a side. `parses` says whether a message is one of the service's.
    pub fn on_packet(&mut self, now: Nanos, side: Side, datagram: &[u8], parses: impl Fn(&[u8]) -> bool) {
        let ours = Some((self.arbiter.session(), self.heard_at));
        if let Some(found) = self.newer.on_packet(now, (side, datagram), ours, parses) {
            self.adopt(now, &found);
            return;
        }
        self.hear(now, side, datagram);
    }

    /// A datagram of a side, of whatever session.
    fn hear(&mut self, now: Nanos, side: Side, datagram: &[u8]) {
        if let Ok(packet) = MoldPacket::parse(datagram) {
            let limit = self.next_seq().saturating_add(WINDOW_EVENTS);
            let (name, sequence) = place(&packet);
            let is_ours = *name == self.arbiter.session().encode();
            let count = if let MoldPacket::Messages { count, .. } = packet { count } else { 0 };
            if is_ours {
                self.heard_at = now;
                self.heard_next = self.heard_next.max(sequence.saturating_add(count.into()));
            }
            if is_ours && sequence > limit {
                self.far_heard_at = Some(now);
                self.word = self.word.max(sequence.saturating_add(count.into()));
                if !matches!(packet, MoldPacket::Messages { .. }) || !self.on_far(sequence) {
                    return;
                }
            }
        }
        self.feed(now, side, datagram);
    }

    /// A datagram of the repair port, but an answer to a probe.
    pub fn on_repair(&mut self, now: Nanos, datagram: &[u8]) {
        self.newer.hear_port(now);
        // That an epoch is over is told with the next one.
        if !matches!(MoldPacket::parse(datagram), Ok(MoldPacket::EndOfSession { .. })) {
            self.feed(now, Side::Repair, datagram);
        }
    }

    fn feed(&mut self, now: Nanos, side: Side, datagram: &[u8]) {
        let (out, may_print) = (&mut self.out, self.proof.is_none());
        self.arbiter.on_packet(now, side, datagram, |number, event| {
            if may_print {
                out.push(Out::Event(number, event.to_vec()));
            }
            may_print
        });
    }

    /// Prints what waited for its turn.
    fn deliver(&mut self) {
        let out = &mut self.out;
        self.arbiter.poll_deliver(0, |number, event| {
            out.push(Out::Event(number, event.to_vec()));
            true
        });
    }

    fn adopt(&mut self, now: Nanos, found: &Found) {
        let (epoch, from, next) = (found.session.epoch(), found.from, self.next_seq());
        let earlier = self.proof.take().map_or(self.arbiter.session(), |proof| proof.session());
        self.arbiter.adopt_session(epoch);
        (self.word, self.far, self.stuck, self.probe, self.heard_next) = (0, None, None, None, 0);
        self.out.push(Out::Notice(format!("epoch {epoch} begins with event {from}")));
        if next > 1 && self.has_rewinder && !found.unanswered {
            self.proof = Some(Proof::new(earlier, next));
        } else if next > 1 {
            // No epoch sends what was there before it.
            if from < next {
                self.take_back(now, earlier.epoch(), from);
            }
            self.leave_unproven(earlier.epoch());
        }
        self.take_in(now, found);
    }

    /// What the repair port says of what was printed, or that it says nothing.
    fn settle(&mut self, now: Nanos, verdict: Verdict) {
        let Some(proof) = self.proof.take() else { return };
        let epoch = proof.session().epoch();
        match verdict {
            Verdict::Proven => {}
            Verdict::TakenBack { from } => self.take_back(now, epoch, from),
            Verdict::Unproven if self.is_saved => self.refuse(epoch),
            Verdict::Unproven => self.leave_unproven(epoch),
        }
        self.is_saved = false;
        self.deliver();
    }

    /// Goes back to event `next`, and on from there.
    fn take_back(&mut self, now: Nanos, epoch: u32, next: u64) {
        let from = self.next_seq();
        self.taken_back += from - next;
        self.out.push(Out::TakenBack { epoch, from, next });
        self.arbiter.skip_to(next);
        // What was heard meanwhile is to be repaired, window by window.
        self.word = self.word.max(self.heard_next);
        self.arbiter.want(now, self.heard_next);
    }

    fn leave_unproven(&mut self, epoch: u32) {
        self.unproven += 1;
        self.out.push(Out::Unproven { epoch, next: self.next_seq() });
    }

    fn refuse(&mut self, epoch: u32) {
        let (next, present) = (self.next_seq(), self.arbiter.session().epoch());
        self.out.push(Out::Refused(format!(
            "--from {next} of epoch {epoch}: CursorUnproven, as the feed is in epoch {present} and nobody who was asked can tell whether \
             the events before it still count: begin from the state as it is, without --from-epoch"
        )));
    }

    /// What came of a session before it was believed.
    fn take_in(&mut self, now: Nanos, found: &Found) {
        if found.unanswered {
            let notice =
                format!("the repair port does not answer: epoch {} is the feed's word alone", found.session.epoch());
            self.out.push(Out::Notice(notice));
        }
        found.packets.iter().for_each(|(side, datagram)| self.hear(now, *side, datagram));
    }

    /// Messages beyond the window; whether the stream went on to them.
    fn on_far(&mut self, sequence: u64) -> bool {
        let next_seq = self.next_seq();
        let before =
            self.far.filter(|far| far.next_seq == next_seq && far.sequence.abs_diff(sequence) <= WINDOW_EVENTS);
        let count = before.map_or(0, |far| far.count) + 1;
        self.far = Some(Far { next_seq, sequence, count });
        let is_believed = !self.has_rewinder && count >= FAR_BELIEVED;
        if is_believed {
            self.lose(sequence);
        }
        is_believed
    }

    /// Numbers up to `to` are lost, but those that are held.
    fn lose(&mut self, to: u64) {
        while self.next_seq() < to {
            let next_seq = self.next_seq();
            let end = self.arbiter.next_held().map_or(to, |held| held.min(to));
            if end > next_seq {
                self.missing += end - next_seq;
                let last = end - 1;
                let lost = format!("events {next_seq} to {last} are lost: nobody who was asked has them");
                self.out.push(Out::Notice(lost));
                self.arbiter.skip_to(end);
            }
            self.deliver();
        }
    }

    /// The next request to send for repairs.
    pub fn poll_request(&mut self, now: Nanos) -> Option<MoldRequest> {
        self.arbiter.poll_request(now).map(|(_, request)| request)
    }

    /// The next probe to send, from a socket of its own: what comes there is for [`Stream::on_probed`].
    pub fn poll_probe(&mut self, now: Nanos) -> Option<MoldRequest> {
        if let Some(about_newer) = self.newer.poll_probe(now) {
            return Some(about_newer);
        }
        if let Some(proof) = &mut self.proof {
            if proof.is_over(now) {
                self.settle(now, Verdict::Unproven);
                return None;
            }
            return proof.poll_request(now);
        }
        if let Some(probe) = &mut self.probe {
            if now < probe.deadline {
                return None;
            }
            if probe.sent == PROBES_MAX {
                self.probe = None;
                self.on_nothing(now);
                return None;
            }
            (probe.sent, probe.deadline) = (probe.sent + 1, now + PROBE_NS);
        } else {
            if !self.has_rewinder || now < self.quiet_until || !self.is_behind() {
                return None;
            }
            self.probe = Some(Probe { sequence: self.next_seq(), deadline: now + PROBE_NS, sent: 1 });
        }
        let session = self.arbiter.session().encode();
        self.probe.map(|probe| MoldRequest { session, sequence: probe.sequence, count: 1 })
    }

    /// Whether the next number is missing and not being asked for.
    fn is_behind(&mut self) -> bool {
        let next_seq = self.next_seq();
        self.stuck = self.stuck.filter(|&(_, to)| next_seq < to);
        let is_idle = self.arbiter.known_next() == next_seq && self.word > next_seq;
        is_idle || self.stuck.is_some_and(|(from, _)| from <= next_seq)
    }

    /// A datagram of the repair port, on the socket of the probes.
    pub fn on_probed(&mut self, now: Nanos, datagram: &[u8]) {
        let Ok(packet) = MoldPacket::parse(datagram) else { return };
        self.newer.hear_port(now);
        if let MoldPacket::EndOfSession { .. } = packet {
            if let Some(verdict) = self.proof.and_then(|proof| proof.on_answer(datagram)) {
                self.settle(now, verdict);
            }
            return;
        }
        let (name, sequence) = place(&packet);
        if *name != self.arbiter.session().encode() {
            if let Some(found) = self.newer.on_answer(datagram) {
                self.adopt(now, &found);
            }
            return;
        }
        let Some(probe) = self.probe.take() else { return };
        if self.next_seq() != probe.sequence {
            return;
        }
        match packet {
            MoldPacket::Messages { .. } => {
                let to = self.stuck.take().map_or(self.word, |(_, to)| to.max(self.word));
                // What was given up is asked for again.
                self.arbiter.skip_to(probe.sequence);
                self.feed(now, Side::Repair, datagram);
                self.arbiter.want(now, to);
            }
            _ if sequence > probe.sequence => {
                self.stuck = None;
                self.lose(sequence);
            }
            _ => self.on_nothing(now),
        }
    }

    /// Nobody has the next number: on to what really came, or on as if nothing had been said.
    fn on_nothing(&mut self, now: Nanos) {
        self.quiet_until = now + QUIET_NS;
        let next_seq = self.next_seq();
        let far = self.far.filter(|far| far.next_seq == next_seq && far.count >= FAR_BELIEVED);
        let is_stuck = self.stuck.take().is_some();
        match (self.arbiter.next_held().filter(|_| is_stuck), far) {
            (Some(held), _) => self.lose(held),
            (None, Some(far)) => self.lose(far.sequence),
            (None, None) => {
                self.word = 0;
                if is_stuck {
                    self.arbiter.skip_to(next_seq);
                }
            }
        }
    }

    /// Turns what the arbiter says into notices and probes.
    pub fn poll_events(&mut self, now: Nanos) {
        if let Some(found) = self.newer.poll_unanswered(now, Some((self.arbiter.session(), self.heard_at))) {
            self.adopt(now, &found);
        }
        if !self.has_rewinder {
            // Gaps become due; nobody can be asked, so they are given up at once.
            while self.arbiter.poll_request(now).is_some() {}
        }
        while let Some(event) = self.arbiter.poll_event(now) {
            let notice = match event {
                FeedEvent::Unrepairable { from, count } => {
                    self.stuck = Some((from, from.saturating_add(count)));
                    if !self.has_rewinder {
                        self.on_nothing(now);
                    }
                    continue;
                }
                // Each packet of one is looked at as it comes.
                FeedEvent::NewSession { .. } => continue,
                FeedEvent::EndOfSession { next } => format!("the appliance has stopped; event {next} would be next"),
                FeedEvent::Silent { .. } if self.far_heard_at.is_some_and(|at| now.saturating_sub(at) < SILENCE_NS) => {
                    continue;
                }
                FeedEvent::Silent { for_ns } => format!("nothing was heard for {} s", for_ns / 1_000_000_000),
            };
            self.out.push(Out::Notice(notice));
        }
    }
}

/// The session and the number in a packet's head.
pub fn place<'a>(packet: &MoldPacket<'a>) -> (&'a SessionName, u64) {
    match *packet {
        MoldPacket::Messages { session, sequence, .. }
        | MoldPacket::Heartbeat { session, sequence }
        | MoldPacket::EndOfSession { session, sequence } => (session, sequence),
    }
}

#[cfg(test)]
#[path = "follow_events_stream_tests.rs"]
mod tests;
