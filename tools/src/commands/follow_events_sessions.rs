//! Sessions that were heard of and are not believed yet: the first of all, and each new one of the stream.
//!
//! ```text
//!  packet ─► heard of ─► does the repair port serve it? ─► believed, with what came meanwhile
//!                └─► nobody to ask, or no answer to any of a few requests: two packets that agree ┘
//! ```
//!
//! A repair port that lives answers whatever session of its stream it is asked about, if only with its own. Datagrams prove no sender.
//! What this keeps out is a packet that strayed or was forged once; whoever can send from the repair port's address, or repeatedly where
//! nobody can be asked or nobody answers, is believed.

use std::net::SocketAddrV4;

use ticktape::Nanos;
use ticktape::feed::{FeedSession, LOG_EPOCH, MoldPacket, MoldRequest, SessionName, Side, StreamName};

use super::follow_events_stream::{WINDOW_EVENTS, place};

/// Sessions that are remembered at a time: a true one has room beside many that are forged.
const HEARD_MAX: usize = 8;
/// Packets of each that are kept until it is believed: what comes within a round trip, and much more.
const PACKETS_MAX: usize = 256;
/// Packets near each other that make up for a repair port, where there is none, or none that answers.
const AGREED: u32 = 2;
/// How long an answer is waited for, in ns: many round trips.
const ASK_NS: u64 = 50_000_000;
/// How often a session is asked about, each time a packet of it came; a port that answers none of so many is done without.
const ASKS_MAX: u32 = 4;
/// Between two requests, in ns: whoever forges must not make us ask without end.
const ASK_GAP_NS: u64 = 5_000_000;

/// A session that may be one.
struct Heard {
    session: FeedSession,
    /// Where its first packet stood.
    sequence: u64,
    since: Nanos,
    times: u32,
    has_message: bool,
    packets: Vec<(Side, Vec<u8>)>,
    asked_at: Option<Nanos>,
    asks_left: u32,
    /// Asked about since `since`.
    asked: u32,
}

impl Heard {
    /// Whether the port was asked about it for long enough; that it said nothing since is for others to know.
    fn was_asked(&self, now: Nanos) -> bool {
        self.asked >= ASKS_MAX && self.asked_at.is_some_and(|at| now.saturating_sub(at) >= ASK_NS)
    }
}

/// A session that is believed.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    pub session: FeedSession,
    /// Where its first packet stood, or where the repair port ends.
    pub from: u64,
    /// What came of it meanwhile.
    pub packets: Vec<(Side, Vec<u8>)>,
    /// The repair port did not answer.
    pub unanswered: bool,
}

/// What is heard of. See the module.
pub struct Sessions {
    stream: u32,
    has_rewinder: bool,
    heard: Vec<Heard>,
    asked_at: Option<Nanos>,
    /// When the repair port last said anything.
    port_heard_at: Option<Nanos>,
    /// Another stream whose packets came.
    foreign: Option<u32>,
    /// Whoever forges must not be able to time what it strikes.
    chance: u64,
}

/// The session of that name. In the name of epoch 0 the repair port is asked which log it serves; nobody leads it, and a packet of it is forged.
pub fn led(name: &SessionName) -> Option<FeedSession> {
    FeedSession::parse(name).ok().filter(|session| session.epoch() != LOG_EPOCH)
}

impl Sessions {
    /// Nothing was heard of a stream yet.
    pub const fn new(stream: u32, has_rewinder: bool) -> Self {
        let heard = Vec::new();
        Sessions { stream, has_rewinder, heard, asked_at: None, port_heard_at: None, foreign: None, chance: 1 }
    }

    /// The repair port said something, whatever it was.
    pub const fn hear_port(&mut self, now: Nanos) {
        self.port_heard_at = Some(now);
    }

    /// A packet of a session of this stream, above `ours` where there is one, which is left only for one with a message that
    /// `parses`; it was heard last when that says.
    pub fn on_packet(
        &mut self,
        now: Nanos,
        (side, datagram): (Side, &[u8]),
        ours: Option<(FeedSession, Nanos)>,
        parses: impl Fn(&[u8]) -> bool,
    ) -> Option<Found> {
        let packet = MoldPacket::parse(datagram).ok()?;
        let (name, sequence) = place(&packet);
        let session = led(name)?;
        if session.stream() != self.stream {
            self.foreign = Some(session.stream());
            return None;
        }
        if ours.is_some_and(|(ours, _)| session.epoch() <= ours.epoch()) {
            return None;
        }
        let message = match packet {
            MoldPacket::Messages { messages, .. } => Some(messages.clone().next().is_some_and(parses)),
            _ => None,
        };
        if ours.is_some() && message == Some(false) {
            return None;
        }
        let at = self.find(now, session, sequence);
        let last_word = self.port_heard_at.max(ours.map(|(_, heard_at)| heard_at));
        let heard = &mut self.heard[at];
        if self.has_rewinder && last_word.is_some_and(|at| at >= heard.since) {
            // Who would have to be dead for it to be believed unasked has spoken since.
            (heard.since, heard.times, heard.asked) = (now, 0, 0);
        }
        (heard.times, heard.asks_left) = (heard.times + 1, ASKS_MAX);
        heard.has_message |= message.is_some();
        if heard.packets.len() < PACKETS_MAX {
            heard.packets.push((side, datagram.to_vec()));
        }
        self.is_agreed(now, at, ours).then(|| self.believe(at, None))
    }

    /// What is waited for, for people, where nothing is believed yet.
    pub fn waits_for(&self, sides: &str, rewinder: Option<SocketAddrV4>) -> String {
        let stream = StreamName(self.stream.into());
        let heard = self.heard.iter().max_by_key(|heard| heard.times).map(|heard| heard.session.epoch());
        match (heard, rewinder.filter(|_| self.port_heard_at.is_some()), self.foreign) {
            (Some(epoch), Some(rewinder), _) => format!(
                "epoch {epoch} of stream {stream} is heard on {sides}, but the repair port {rewinder} does not serve it: is that the same \
                 appliance's --events-repair?"
            ),
            (Some(epoch), None, _) => {
                format!("one packet of epoch {epoch} was heard on {sides}: it is believed once a second one agrees")
            }
            (None, _, Some(foreign)) => {
                let foreign = StreamName(foreign.into());
                format!(
                    "stream {foreign} is heard on {sides}, and {stream} is waited for: give its --stream, or another address"
                )
            }
            (None, _, None) => format!(
                "nothing was heard on {sides}: is that where the appliance's --events go, and, of a group, --interface the one that it \
                 comes in by?"
            ),
        }
    }

    /// A session that two packets agree about, and the repair port has by now been asked about in vain.
    pub fn poll_unanswered(&mut self, now: Nanos, ours: Option<(FeedSession, Nanos)>) -> Option<Found> {
        let at = (0..self.heard.len()).find(|&at| self.is_agreed(now, at, ours))?;
        Some(self.believe(at, None))
    }

    /// Whether a session is believed though no port bears it out.
    fn is_agreed(&self, now: Nanos, at: usize, ours: Option<(FeedSession, Nanos)>) -> bool {
        let heard = &self.heard[at];
        let is_silent = |last: Option<Nanos>| last.is_none_or(|at| at < heard.since);
        let has_nobody = !self.has_rewinder
            || heard.was_asked(now) && is_silent(self.port_heard_at) && is_silent(ours.map(|(_, heard_at)| heard_at));
        has_nobody && heard.times >= AGREED && (ours.is_none() || heard.has_message)
    }

    /// Any of those that are meant.
    fn draw(&mut self, is_meant: impl Fn(&Heard) -> bool) -> Option<usize> {
        // A step of a linear congruential generator (Knuth's constants): good enough to be fair.
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let meant = || self.heard.iter().enumerate().filter(|(_, heard)| is_meant(heard)).map(|(at, _)| at);
        meant().nth((self.chance >> 33) as usize % meant().count().max(1))
    }

    /// The place of a session and of numbers nearby.
    fn find(&mut self, now: Nanos, session: FeedSession, sequence: u64) -> usize {
        let is_near = |heard: &Heard| heard.sequence.abs_diff(sequence) <= WINDOW_EVENTS;
        let at = self.heard.iter().position(|heard| heard.session == session && is_near(heard));
        if let Some(at) = at {
            return at;
        }
        if self.heard.len() == HEARD_MAX {
            // What is heard again and again stays; whom of the others it strikes can't be foreseen.
            let least = self.heard.iter().map(|heard| heard.times).min().unwrap_or(0);
            if let Some(at) = self.draw(|heard| heard.times == least) {
                self.heard.swap_remove(at);
            }
        }
        let (packets, has_message, asked_at) = (Vec::new(), false, None);
        let (since, times, asks_left, asked) = (now, 0, ASKS_MAX, 0);
        self.heard.push(Heard { session, sequence, since, times, has_message, packets, asked_at, asks_left, asked });
        self.heard.len() - 1
    }

    /// The next request that asks whether a session is served.
    pub fn poll_probe(&mut self, now: Nanos) -> Option<MoldRequest> {
        let has_passed = |at: Option<Nanos>, ns: u64| at.is_none_or(|at| now.saturating_sub(at) >= ns);
        if !self.has_rewinder || !has_passed(self.asked_at, ASK_GAP_NS) {
            return None;
        }
        let is_due = |heard: &Heard| heard.asks_left > 0 && has_passed(heard.asked_at, ASK_NS);
        let first = self.heard.iter().filter(|heard| is_due(heard)).map(|heard| heard.asked_at).min()?;
        let at = self.draw(|heard| is_due(heard) && heard.asked_at == first)?;
        let heard = &mut self.heard[at];
        (heard.asked_at, self.asked_at) = (Some(now), Some(now));
        (heard.asks_left, heard.asked) = (heard.asks_left - 1, heard.asked + 1);
        Some(MoldRequest { session: heard.session.encode(), sequence: heard.sequence, count: 1 })
    }

    /// A datagram of the repair port: it serves the session that is in it, unless it says that this is over.
    pub fn on_answer(&mut self, datagram: &[u8]) -> Option<Found> {
        let packet = MoldPacket::parse(datagram).ok().filter(|it| !matches!(it, MoldPacket::EndOfSession { .. }))?;
        let (name, sequence) = place(&packet);
        let of_session = |heard: &Heard| heard.session.encode() == *name && heard.asked_at.is_some();
        let exact = self.heard.iter().position(|heard| of_session(heard) && heard.sequence == sequence);
        let at = exact.or_else(|| self.heard.iter().position(of_session))?;
        Some(self.believe(at, Some(sequence)))
    }

    /// Nothing else is left to doubt.
    fn believe(&mut self, at: usize, answered: Option<u64>) -> Found {
        let Heard { session, sequence, packets, .. } = self.heard.swap_remove(at);
        self.heard.clear();
        // Numbers that the port does not have yet were only spoken of.
        let from = answered.map_or(sequence, |nearest| nearest.min(sequence)).max(1);
        Found { session, from, packets, unanswered: self.has_rewinder && answered.is_none() }
    }
}

#[cfg(test)]
#[path = "follow_events_sessions_tests.rs"]
mod tests;
