//! What a receiver of public events believes: an arbiter that is told nothing but what a message or the repair port bears out.
//!
//! ```text
//!  A, B, repair port ─► of the same log? ─► a gap before it? ─► no: in order
//!                                               └─► [`gaps`]: what does the repair port have?
//! ```
//!
//! Invariant: a heartbeat alone, whatever it says, never makes the stream skip a number or change its epoch.
//! Invariant: no packet alone changes the epoch; the repair port bears it out, or a second packet where nobody answers.
//! Invariant: under a new epoch nothing is printed before it is told whether what was printed still counts: proven by the repair port, or
//! taken back, or said to be unproven.
//! Invariant: once the repair port has told another log, or another history of it, nothing is printed any more.

use std::num::NonZeroU64;

use ticktape::Nanos;
use ticktape::feed::{
    Arbiter, ArbiterConfig, ArbiterCounters, FeedEvent, FeedSession, MoldPacket, MoldRequest, Proof, SessionName, Side,
    Verdict,
};

use ticktape::payload::Reign;

use super::follow_events_log::{Came, LogGate, Told, Way};
use super::follow_events_lower::Lower;
use super::follow_events_sessions::{Found, Sessions, led};
use super::follow_events_words::Out;

#[path = "follow_events_gaps.rs"]
mod gaps;

use gaps::Gaps;

/// The largest datagram that carries events: a jumbo frame.
pub const DATAGRAM_BYTES_MAX: usize = 8_972;
/// Events that may wait for those before them, and be repaired at a time. Memory for as many of the largest is asked for, and little
/// of it touched.
pub const WINDOW_EVENTS: u64 = 1 << 15;
/// Without any packet for so long, silence is worth a word, in ns.
pub const SILENCE_NS: u64 = 3_000_000_000;
/// A heartbeat so long after the end of the session, in ns, was not merely late.
const LATE_NS: u64 = 100_000_000;

/// Where a stream is to begin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    /// The first event wanted; the first that is heard where not given.
    pub from: Option<u64>,
    /// The epoch in which those before it were received, where that is to be asked about.
    pub epoch: Option<u32>,
    /// The log that they are of, where that is to be asked about.
    pub log_id: Option<NonZeroU64>,
    /// The reign of that epoch in that log, where that is to be asked about.
    pub reign: Option<NonZeroU64>,
}

impl Cursor {
    /// The reign in which what comes before was received, where that is said.
    fn held(&self) -> Option<Reign> {
        self.epoch.zip(self.reign).map(|(epoch, id)| Reign { epoch: epoch.into(), id: id.get() })
    }
}

/// Where the stream was when an epoch was believed that nobody bore out.
#[derive(Clone, Copy)]
struct Base {
    /// The epoch before it, and the event that was due; none where it was the first.
    earlier: Option<(FeedSession, u64)>,
}

/// One stream of events. See the module.
pub struct Stream {
    arbiter: Arbiter,
    has_rewinder: bool,
    cursor: Cursor,
    out: Vec<Out>,
    gaps: Gaps,
    /// Which log it is of.
    log: LogGate,
    /// The repair port told another, or nothing where it had to.
    is_over: bool,
    is_silence_told: bool,
    /// Newer epochs that were heard of, and lower ones.
    newer: Sessions,
    lower: Lower,
    base: Option<Base>,
    begun_at: Nanos,
    /// That the feed is not where it was to be begun was told, or does not matter.
    is_place_told: bool,
    /// When the epoch that is listened to was last heard.
    heard_at: Nanos,
    /// One above the highest number that was heard in it.
    heard_next: u64,
    /// When its end was told, and the number that would come next.
    ended: Option<(Nanos, u64)>,
    /// Events of it that were printed; where nobody bore it out, since anybody last bore one out.
    printed: u64,
    /// Whether what was received in an earlier epoch counts: nothing is printed until that is told.
    proof: Option<Proof>,
    /// It was brought along.
    is_saved: bool,
    taken_back: u64,
    unproven: u64,
}

impl Stream {
    /// A stream that begins where the cursor says, or where `found` does.
    pub fn begin(now: Nanos, found: &Found, cursor: Cursor, has_rewinder: bool) -> Self {
        let mut stream = Stream::new(now, found.session, cursor.from.unwrap_or(found.from), has_rewinder);
        stream.cursor = cursor;
        stream.is_place_told = cursor.from.is_none();
        stream.log = LogGate::new(now, found.session, has_rewinder, cursor.log_id, cursor.held());
        stream.base = found.unanswered.then_some(Base { earlier: None });
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
    pub fn new(now: Nanos, session: FeedSession, next_seq: u64, has_rewinder: bool) -> Self {
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
            cursor: Cursor::default(),
            out: Vec::new(),
            gaps: Gaps::default(),
            log: LogGate::new(now, session, has_rewinder, None, None),
            is_over: false,
            is_silence_told: false,
            newer: Sessions::new(session.stream(), has_rewinder),
            lower: Lower::default(),
            base: None,
            begun_at: now,
            is_place_told: true,
            heard_at: now,
            heard_next: 0,
            ended: None,
            printed: 0,
            proof: None,
            is_saved: false,
            taken_back: 0,
            unproven: 0,
        }
    }

    /// Takes what is to be printed.
    pub fn take(&mut self) -> std::vec::Drain<'_, Out> {
        self.out.drain(..)
    }

    /// Events that were declared lost.
    pub const fn missing(&self) -> u64 {
        self.gaps.missing()
    }

    /// Events that were taken back after they were printed, and how often it could not be told whether any were.
    pub const fn taken_back(&self) -> (u64, u64) {
        (self.taken_back, self.unproven)
    }

    /// The epoch that the printed events are known to be of, or were said not to be.
    pub fn epoch(&self) -> u32 {
        self.proof.map_or(self.arbiter.session(), |proof| proof.session()).epoch()
    }

    /// The epoch that is listened to.
    pub fn present_epoch(&self) -> u32 {
        self.arbiter.session().epoch()
    }

    /// The log that they are of, as far as anybody told.
    pub const fn log_id(&self) -> Option<NonZeroU64> {
        self.log.log_id()
    }

    /// The reign of [`Stream::epoch`] in that log, as far as anybody told.
    pub fn reign(&self) -> Option<NonZeroU64> {
        let known = self.log.reign().filter(|reign| reign.epoch == u64::from(self.epoch()));
        known.and_then(|reign| NonZeroU64::new(reign.id))
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
    pub fn on_packet(&mut self, now: Nanos, came: Came, side: Side, datagram: &[u8], parses: impl Fn(&[u8]) -> bool) {
        let present = self.arbiter.session();
        if let Some(found) = self.newer.on_packet(now, (side, datagram), Some((present, self.heard_at)), parses) {
            self.adopt(now, &found);
            return;
        }
        let Ok(packet) = MoldPacket::parse(datagram) else { return };
        let (name, sequence) = place(&packet);
        match led(name) {
            Some(session) if session == present => {
                self.heard_at = now;
                self.pass(now, came, Way::Feed(side), datagram);
            }
            Some(session) if session.stream() == present.stream() && session.epoch() < present.epoch() => {
                self.lower.on_packet(now, session, sequence, self.heard_at);
            }
            _ => {}
        }
    }

    /// A datagram of the repair port, on the socket of the repairs.
    pub fn on_repair(&mut self, now: Nanos, came: Came, datagram: &[u8]) {
        self.newer.hear_port(now);
        self.pass(now, came, Way::Repair, datagram);
    }

    /// A datagram of the repair port, on the socket of the probes.
    pub fn on_probed(&mut self, now: Nanos, came: Came, datagram: &[u8]) {
        self.newer.hear_port(now);
        self.pass(now, came, Way::Probed, datagram);
    }

    /// A datagram of the repair port, on the socket that it was asked from which log it serves.
    pub fn on_log(&mut self, now: Nanos, datagram: &[u8]) {
        self.newer.hear_port(now);
        let (told, next) = (self.log.on_answer(datagram), self.next_seq());
        let end = match told {
            Some(Told::Other { ours, theirs }) => Some(Out::OtherLog { ours, theirs, next }),
            Some(Told::OtherHistory { ours, theirs }) => Some(Out::OtherHistory { ours, theirs, next }),
            Some(Told::Unknown) => Some(Out::Refused(format!(
                "--from {next} with --from-reign: CursorUnproven, as the repair port can't tell the reign of that epoch: begin from the \
                 state as it is, without --from-reign"
            ))),
            Some(Told::First | Told::Same) => {
                if self.log.reign().is_some_and(|reign| reign.epoch == u64::from(self.present_epoch())) {
                    self.is_borne_out();
                }
                None
            }
            None => None,
        };
        if let Some(end) = end {
            if !self.is_over {
                self.out.push(end);
            }
            self.is_over = true;
        }
        self.take_kept(now);
    }

    /// A datagram is looked at once it is known to be of the log.
    fn pass(&mut self, now: Nanos, came: Came, way: Way, datagram: &[u8]) {
        if !self.is_over && self.log.on_datagram(now, came, way, datagram) {
            self.look_at(now, way, datagram);
        }
    }

    fn take_kept(&mut self, now: Nanos) {
        if let Some(log_id) = self.cursor.log_id.filter(|_| self.log.is_mute() && !self.is_over) {
            self.is_over = true;
            self.out.push(Out::Refused(format!(
                "--from {} of log {log_id:016x}: CursorUnproven, as the repair port does not tell which log it serves: begin from the state \
                 as it is, without --from-log",
                self.next_seq()
            )));
        }
        while let Some((way, datagram)) = self.log.pop().filter(|_| !self.is_over) {
            self.look_at(now, way, &datagram);
        }
    }

    fn look_at(&mut self, now: Nanos, way: Way, datagram: &[u8]) {
        match way {
            Way::Feed(side) => self.hear(now, side, datagram),
            Way::Repair => self.look_at_repair(now, datagram),
            Way::Probed => self.look_at_probed(now, datagram),
        }
    }

    /// A datagram of a side, of the log.
    fn hear(&mut self, now: Nanos, side: Side, datagram: &[u8]) {
        let Ok(packet) = MoldPacket::parse(datagram) else { return };
        let (name, sequence) = place(&packet);
        if *name != self.arbiter.session().encode() {
            return;
        }
        let (count, is_end) = match packet {
            MoldPacket::Messages { count, .. } => (count, false),
            MoldPacket::Heartbeat { .. } => (0, false),
            MoldPacket::EndOfSession { .. } => (0, true),
        };
        let end = sequence.saturating_add(count.into());
        self.heard_next = self.heard_next.max(end);
        if !is_end {
            self.unsay_end(now, end);
        }
        if self.hear_ahead(now, side, sequence, count) {
            self.feed(now, side, datagram);
        }
    }

    /// What comes after the end of the session takes it back.
    fn unsay_end(&mut self, now: Nanos, end: u64) {
        let goes_on = |&mut (told_at, next): &mut (Nanos, u64)| end > next || now.saturating_sub(told_at) >= LATE_NS;
        if self.ended.take_if(goes_on).is_some() {
            self.arbiter.forget_end();
            let word = "the appliance had not stopped: its session goes on after an end was heard";
            self.out.push(Out::Notice(word.to_string()));
        }
    }

    fn feed(&mut self, now: Nanos, side: Side, datagram: &[u8]) {
        let (out, printed, may_print) = (&mut self.out, &mut self.printed, self.proof.is_none());
        self.arbiter.on_packet(now, side, datagram, |number, event| {
            if may_print {
                out.push(Out::Event(number, event.to_vec()));
                *printed += 1;
            }
            may_print
        });
    }

    /// Prints what waited for its turn.
    fn deliver(&mut self) {
        let (out, printed) = (&mut self.out, &mut self.printed);
        self.arbiter.poll_deliver(0, |number, event| {
            out.push(Out::Event(number, event.to_vec()));
            *printed += 1;
            true
        });
    }

    fn adopt(&mut self, now: Nanos, found: &Found) {
        let (epoch, from, next) = (found.session.epoch(), found.from, self.next_seq());
        let earlier = self.proof.take().map_or(self.arbiter.session(), |proof| proof.session());
        let printed_on_word = if found.unanswered && self.base.is_some() { self.printed } else { 0 };
        if found.unanswered {
            self.base = self.base.or(Some(Base { earlier: Some((earlier, next)) }));
        } else {
            self.base = None;
        }
        self.arbiter.adopt_session(epoch);
        self.begin_session(now);
        self.printed = printed_on_word;
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

    /// The repair port serves the epoch that is listened to, whoever spoke of it first: it is not gone back before it for a later one that
    /// nobody bears out.
    fn is_borne_out(&mut self) {
        if self.base.take().is_some() {
            self.printed = 0;
        }
    }

    /// Nothing that was known of the session before matters now.
    fn begin_session(&mut self, now: Nanos) {
        self.gaps.begin_session();
        (self.heard_next, self.heard_at, self.ended, self.printed) = (0, now, None, 0);
        self.lower = Lower::default();
        self.log.begin_session(now, self.arbiter.session().epoch());
    }

    /// The epoch that is listened to is none of the log: back to `session`, of which the repair port names event `at`, or the feed alone.
    fn go_back(&mut self, now: Nanos, session: FeedSession, at: u64) {
        let (left, reached) = (self.arbiter.session().epoch(), self.next_seq());
        let base = self.base.take();
        let earlier = base.and_then(|base| base.earlier).filter(|(earlier, _)| earlier.epoch() <= session.epoch());
        self.proof = None;
        let next = match (earlier, base) {
            (Some((_, next)), _) => next,
            (None, Some(Base { earlier: None })) => self.cursor.from.unwrap_or(at),
            (None, _) => at.min(reached),
        };
        self.taken_back += self.printed;
        let (present, events) = (session.epoch(), self.printed);
        self.out.push(Out::Left { epoch: left, present, events, from: reached, next });
        self.arbiter.leave_session(session.epoch(), next);
        self.newer = Sessions::new(session.stream(), self.has_rewinder);
        self.begin_session(now);
        match (earlier, base) {
            (Some((earlier, _)), _) if earlier != session && next > 1 && self.has_rewinder => {
                self.proof = Some(Proof::new(earlier, next));
            }
            (Some((earlier, _)), _) if earlier != session && next > 1 => self.leave_unproven(earlier.epoch()),
            (Some(_), _) | (None, Some(Base { earlier: None })) => {}
            // Not even what was borne out before is of the log as it is now.
            (None, _) => self.leave_unproven(left),
        }
        self.want(at);
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
        self.want(self.heard_next);
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
        for (side, datagram) in &found.packets {
            self.pass(now, Came::at(now), Way::Feed(*side), datagram);
        }
    }

    /// The next request to send for repairs.
    pub fn poll_request(&mut self, now: Nanos) -> Option<MoldRequest> {
        if self.is_over || self.gaps.is_resting(now) {
            return None;
        }
        self.arbiter.poll_request(now).map(|(_, request)| request)
    }

    /// The next request that asks which log is served, from a socket of its own: what comes there is for [`Stream::on_log`].
    pub fn poll_log(&mut self, now: Nanos) -> Option<MoldRequest> {
        if self.is_over {
            return None;
        }
        let request = self.log.poll_ask(now);
        if self.log.is_silent() != self.is_silence_told {
            self.is_silence_told = self.log.is_silent();
            if self.is_silence_told {
                let word =
                    "the repair port no longer answers: that the events are of the same log is the feed's word alone";
                self.out.push(Out::Notice(word.to_string()));
            }
        }
        self.take_kept(now);
        request
    }

    /// The next probe to send, from a socket of its own: what comes there is for [`Stream::on_probed`].
    pub fn poll_probe(&mut self, now: Nanos) -> Option<MoldRequest> {
        if self.is_over {
            return None;
        }
        if let Some(about_newer) = self.newer.poll_probe(now) {
            return Some(about_newer);
        }
        if let Some(about_lower) = self.lower.poll_probe(now).filter(|_| self.has_rewinder) {
            return Some(about_lower);
        }
        if let Some(proof) = self.proof.as_mut().filter(|_| self.log.knows_session()) {
            if proof.is_over(now) {
                self.settle(now, Verdict::Unproven);
                return None;
            }
            return proof.poll_request(now);
        }
        if self.proof.is_some() { None } else { self.poll_gap_probe(now) }
    }

    /// Turns what the arbiter says into notices and probes.
    pub fn poll_events(&mut self, now: Nanos) {
        if self.is_over {
            return;
        }
        if let Some(found) = self.newer.poll_unanswered(now, Some((self.arbiter.session(), self.heard_at))) {
            self.adopt(now, &found);
        }
        if !self.has_rewinder {
            if let Some((session, at)) = self.lower.agreed(now, self.heard_at) {
                self.go_back(now, session, at);
            }
            // Gaps become due; nobody can be asked, so they are given up at once.
            while self.arbiter.poll_request(now).is_some() {}
        }
        while let Some(event) = self.arbiter.poll_event(now) {
            match event {
                FeedEvent::Unrepairable { from, count } => self.on_unrepairable(now, from, count),
                // Each packet of one is looked at as it comes.
                FeedEvent::NewSession { .. } => {}
                FeedEvent::EndOfSession { next } => {
                    self.ended = Some((now, next));
                    let word = format!("the appliance has stopped; event {next} would be next");
                    self.out.push(Out::Notice(word));
                }
                FeedEvent::Silent { for_ns } => self.on_silence(now, for_ns),
            }
        }
        self.tell_place(now);
    }

    fn on_silence(&mut self, now: Nanos, for_ns: u64) {
        let seconds = for_ns / 1_000_000_000;
        let word = match self.lower.heard(now) {
            Some(lower) => format!(
                "nothing was heard of epoch {} for {seconds} s, but epoch {} is heard",
                self.arbiter.session().epoch(),
                lower.epoch()
            ),
            None if self.gaps.was_far_heard(now) => return,
            None => format!("nothing was heard for {seconds} s"),
        };
        self.out.push(Out::Notice(word));
    }

    /// Says once where the log ends, where that is before it was to be begun.
    fn tell_place(&mut self, now: Nanos) {
        if self.is_place_told || now.saturating_sub(self.begun_at) < SILENCE_NS {
            return;
        }
        let (next, from) = (self.heard_next, self.next_seq());
        self.is_place_told = self.printed > 0 || next > 0;
        if self.printed == 0 && next > 0 && next < from {
            self.out.push(Out::Beyond { next, from });
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

#[cfg(test)]
#[path = "follow_events_forged_tests.rs"]
mod forged_tests;
