//! What the capture says, told to the rig in the order in which the appliance took it.
//!
//! With a feed its frames are the order: each is applied when those before it were, and a command is sent as its client's packet
//! had it, where that was captured. Without one the order is the capture's, and stamps are the times of its packets.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use ticktape::feed::FeedSession;
use ticktape::payload::{EpochChange, Origin};
use ticktape::{Frame, Kind, Seq};

use super::WAITING_BYTES_MAX;
use super::egress::{Egress, EventDifference, Figures, Stream};
use super::rig::{AnyRig, Output, RigError};
use crate::links::{Figures as StreamFigures, Handed, Input, Links};
use crate::service::{AnyService, StateFacts};

/// What it takes to keep a message beside its bytes, about.
const KEPT_OVERHEAD_BYTES: usize = 96;

/// Why a replay ended before the capture did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The feed begins with another frame than the state goes on with.
    Beginning {
        /// The feed's first frame.
        first: Seq,
        /// The state is after this one.
        state: Seq,
    },
    /// The capture lacks a frame of the feed.
    Missing(Seq),
    /// A later reign gave numbers anew that were applied: what a crash had lost.
    TakenBack {
        /// The first frame of the later reign.
        seq: Seq,
        /// The reign.
        epoch: u32,
    },
    /// Without a feed: the capture lacks an input, and nothing else has it.
    MissingInput {
        /// Whose.
        session: u64,
        /// The client's incarnation.
        client_epoch: u32,
        /// Its number.
        client_seq: u64,
    },
    /// So many bytes of frames wait that the one before them is given up.
    TooFarApart(Seq),
    /// The stages.
    Rig(RigError),
}

impl Halt {
    /// Whether the replay differs from the capture, rather than lacks something.
    pub fn is_difference(&self) -> bool {
        matches!(self, Halt::Rig(_))
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Halt::Beginning { first, state: Seq::ZERO } => write!(
                f,
                "the feed in it begins with frame {first}: --base DIR names a journal or its copy with the {} before it",
                first.0.saturating_sub(1)
            ),
            Halt::Beginning { first, state } => {
                write!(f, "the feed in it begins with frame {first}, and the state to begin from is that after {state}")
            }
            Halt::Missing(seq) => write!(f, "frame {seq} is missing from the feed in it"),
            Halt::TakenBack { seq, epoch } => {
                write!(f, "reign {epoch} begins with frame {seq}, which took back what was applied from there on")
            }
            Halt::MissingInput { session, client_epoch, client_seq } => write!(
                f,
                "input {client_seq} of session {session}, client epoch {client_epoch}, is missing, and no feed in it has it"
            ),
            Halt::TooFarApart(seq) => {
                write!(f, "frame {seq} does not come within {WAITING_BYTES_MAX} bytes of those after it")
            }
            Halt::Rig(error) => error.fmt(f),
        }
    }
}

/// What a replay came to.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Whether a feed told the order.
    pub has_feed: bool,
    /// Why it ended early, if it did.
    pub halt: Option<Halt>,
    /// The last frame applied.
    pub seq: Seq,
    /// Commands among the frames.
    pub commands: u64,
    /// Commands that were taken from the feed, since the capture has no packet with them.
    pub commands_from_feed: u64,
    /// Captured commands that were not sequenced while it was captured, as far as it can be told.
    pub not_sequenced: u64,
    /// Without a feed: captured commands that the appliance lost in a restart; most are sent again.
    pub lost: u64,
    /// SHA-256 of the state; `None` where the service failed.
    pub digest: Option<String>,
    /// What else is known of the state.
    pub facts: StateFacts,
    /// Messages compared.
    pub egress: Figures,
    /// The first that differ.
    pub first_difference: Option<EventDifference>,
    /// The replay's reports, and the captured ones: how many, and the SHA-256 of their text.
    pub reports: [(u64, String); 2],
}

/// One command: its session, its client's incarnation, its number.
type CommandKey = (u64, u32, u64);

/// Tells a rig what a capture says.
pub struct Driver<'a> {
    known: &'a Links,
    rig: Box<dyn AnyRig + 'a>,
    egress: Egress<'a>,
    /// The feeds that are the log, of the reigns to come, the present one first.
    reigns: VecDeque<FeedSession>,
    has_feed: bool,
    /// Frames that wait for those before them, or for the command's packet, by reign and seq.
    frames: BTreeMap<(u32, u64), Box<[u8]>>,
    frames_bytes: usize,
    commands: BTreeMap<CommandKey, Box<[u8]>>,
    commands_bytes: usize,
    now: u64,
    /// The last frame to be replayed.
    last: Seq,
    is_begun: bool,
    halt: Option<Halt>,
    sequenced: u64,
    from_feed: u64,
    not_sequenced: u64,
    lost: u64,
}

impl<'a> Driver<'a> {
    /// Replays what `known` found in a first look at the same capture.
    pub fn new(known: &'a Links, service: &'a dyn AnyService, rig: Box<dyn AnyRig + 'a>) -> Self {
        let stream = known.log_feeds().map(|(session, _)| session.stream()).next();
        let mut reigns: Vec<FeedSession> = known.log_feeds().map(|(session, _)| session).collect();
        reigns.retain(|session| Some(session.stream()) == stream);
        reigns.sort_by_key(|session| session.epoch());
        let has_feed = !reigns.is_empty();
        Driver {
            egress: Egress::new(
                known,
                (rig.seq(), rig.next_public()),
                has_feed,
                [service.reports(), service.reports()],
            ),
            known,
            rig,
            reigns: reigns.into(),
            has_feed,
            frames: BTreeMap::new(),
            frames_bytes: 0,
            commands: BTreeMap::new(),
            commands_bytes: 0,
            now: 1,
            last: Seq::MAX,
            is_begun: false,
            halt: None,
            sequenced: 0,
            from_feed: 0,
            not_sequenced: 0,
            lost: 0,
        }
    }

    /// The last frame applied.
    pub fn seq(&self) -> Seq {
        self.rig.seq()
    }

    /// No frame after this one is replayed.
    pub fn set_last(&mut self, last: Seq) {
        self.last = last;
    }

    /// Nothing more is replayed; what was let out is still compared.
    pub fn stop(&mut self) {
        self.last = self.rig.seq();
    }

    /// Whether it has come as far as it is to come, or can.
    pub fn is_over(&self) -> bool {
        self.halt.is_some() || self.rig.seq() >= self.last
    }

    /// The capture is at a packet of this time, in nanoseconds since 1970.
    pub fn on_time(&mut self, time_ns: Option<u64>) {
        self.now = self.now.max(time_ns.unwrap_or(0));
    }

    /// A message of the capture, in its turn.
    pub fn on_handed(&mut self, handed: &Handed<'_>) {
        let is_over = self.is_over();
        match *handed {
            Handed::Event { session, number, index, message } => {
                let stream = self.known.events().get(&session);
                if stream.is_some_and(|stream| stream.is_taken_back(number, index)) {
                    return self.egress.on_lost();
                }
                self.egress.on_theirs(Stream::Session(session), number, message);
            }
            Handed::Feed { name, number, message } => self.on_feed(name, number, message),
            Handed::Hello { .. } | Handed::Input(_) if is_over => {}
            Handed::Input(input) if self.has_feed => {
                self.keep_command(&input);
                self.go_on()
            }
            Handed::Input(input) => self.on_input(&input),
            Handed::Hello { session, client_epoch, first_seq } if !self.has_feed => {
                self.on_hello((session, client_epoch), first_seq)
            }
            Handed::Hello { .. } => {}
        }
    }

    /// The capture has ended.
    pub fn finish(mut self) -> Summary {
        if self.halt.is_none() && self.has_feed {
            // What a command's packet was waited for has not come.
            while self.step(true) {}
        }
        let is_whole = !self.is_over();
        self.not_sequenced += self.commands.len() as u64;
        self.egress.finish(self.rig.seq().0, is_whole);
        let has_failed = matches!(self.halt, Some(Halt::Rig(RigError::Step(_))));
        Summary {
            has_feed: self.has_feed,
            seq: self.rig.seq(),
            commands: self.sequenced,
            commands_from_feed: self.from_feed,
            not_sequenced: self.not_sequenced,
            lost: self.lost,
            digest: (!has_failed).then(|| self.rig.digest()),
            facts: self.rig.facts(),
            halt: self.halt,
            egress: self.egress.figures(),
            first_difference: self.egress.first_difference().cloned(),
            reports: self.egress.into_reports(),
        }
    }

    fn on_feed(&mut self, name: &[u8; 10], number: u64, message: &[u8]) {
        let Ok(session) = FeedSession::parse(name) else { return };
        if self.known.event_feeds().any(|(other, _)| other == session) {
            let is_later = |other: FeedSession| other.stream() == session.stream() && other.epoch() > session.epoch();
            let mut later = self.known.event_feeds().filter(|(other, _)| is_later(*other));
            // A later reign took the number anew, or tells the same once more.
            if later.any(|(_, feed)| feed.stream.holds(number)) {
                return self.egress.on_lost();
            }
            self.egress.on_theirs(Stream::Public, number, message);
            return;
        }
        let is_past = self.reigns.front() == Some(&session) && number <= self.rig.seq().0;
        if is_past || self.is_over() || !self.reigns.contains(&session) {
            return;
        }
        self.frames_bytes += KEPT_OVERHEAD_BYTES + message.len();
        if let Some(before) = self.frames.insert((session.epoch(), number), message.into()) {
            self.frames_bytes -= KEPT_OVERHEAD_BYTES + before.len();
        }
        self.go_on();
        if self.frames_bytes > WAITING_BYTES_MAX && !self.step(true) {
            self.halt.get_or_insert(Halt::TooFarApart(self.rig.seq().next()));
        }
    }

    /// Keeps a command until its frame comes. Where that takes too long the feed's own copy does.
    fn keep_command(&mut self, input: &Input<'_>) {
        self.commands_bytes += KEPT_OVERHEAD_BYTES + input.command.len();
        let key = (input.session, input.client_epoch, input.client_seq);
        if let Some(before) = self.commands.insert(key, input.command.into()) {
            self.commands_bytes -= KEPT_OVERHEAD_BYTES + before.len();
        }
        while self.commands_bytes > WAITING_BYTES_MAX {
            let Some((_, command)) = self.commands.pop_first() else { break };
            self.commands_bytes -= KEPT_OVERHEAD_BYTES + command.len();
            self.not_sequenced += 1;
        }
    }

    fn go_on(&mut self) {
        while self.step(false) {}
    }

    /// Replays the next frame, where it is there with its command; `without_packet`: where the frame alone is there, too.
    fn step(&mut self, without_packet: bool) -> bool {
        if self.is_over() {
            return false;
        }
        let Some(epoch) = self.next_reign() else { return false };
        let seq = self.rig.seq().next();
        let Some(bytes) = self.frames.get(&(epoch, seq.0)) else { return false };
        let Ok(frame) = Frame::decode(bytes) else {
            // The file changed since it was looked at first.
            self.halt = Some(Halt::Missing(seq));
            return false;
        };
        let key = (frame.kind == Kind::SessionInput)
            .then(|| Origin::split(frame.payload))
            .flatten()
            .map(|(origin, _)| (origin.session.0, origin.client_epoch, origin.client_seq));
        let command = key.and_then(|key| self.commands.remove(&key));
        if let (Some(key), None, false) = (key, &command, without_packet)
            && self.has_packet(key)
        {
            return false;
        }
        if frame.kind == Kind::EpochChange && !is_of(&frame, epoch) {
            self.halt = Some(Halt::Rig(RigError::NoReign(seq)));
            return false;
        }
        let egress = &mut self.egress;
        let replayed = self.rig.frame(&frame, command.as_deref(), &mut |output| egress.on_ours(&output));
        self.sequenced += u64::from(key.is_some());
        self.from_feed += u64::from(key.is_some() && command.is_none());
        self.commands_bytes -= command.map_or(0, |command| KEPT_OVERHEAD_BYTES + command.len());
        let taken = self.frames.remove(&(epoch, seq.0)).map_or(0, |bytes| KEPT_OVERHEAD_BYTES + bytes.len());
        self.frames_bytes -= taken;
        self.halt = replayed.err().map(Halt::Rig);
        true
    }

    /// The reign that the next frame is of; `None` where there is none, or its feed does not go on there.
    fn next_reign(&mut self) -> Option<u32> {
        let next = self.rig.seq().next().0;
        let feed = |session: FeedSession| &self.known.feeds()[&session.encode()];
        loop {
            let session = *self.reigns.front()?;
            if feed(session).stream.holds(next) {
                return Some(session.epoch());
            }
            let figures = feed(session).stream.figures();
            let (first, end) = (figures.first.unwrap_or(0), figures.next.unwrap_or(0));
            if next < first {
                self.halt = Some(Halt::Beginning { first: Seq(first), state: self.rig.seq() });
                return None;
            }
            if next < end {
                self.halt = Some(Halt::Missing(Seq(next)));
                return None;
            }
            let later = *self.reigns.get(1)?;
            if let Some((_, seq)) = feed(later).begun.as_ref().filter(|(_, seq)| *seq < next) {
                self.halt = Some(Halt::TakenBack { seq: Seq(*seq), epoch: later.epoch() });
                return None;
            }
            self.reigns.pop_front();
        }
    }

    fn has_packet(&self, (session, client_epoch, client_seq): CommandKey) -> bool {
        self.known.inputs().get(&(session, client_epoch)).is_some_and(|stream| stream.holds(client_seq))
    }

    fn begin(&mut self) {
        if !std::mem::replace(&mut self.is_begun, true) {
            let egress = &mut self.egress;
            self.halt = self.rig.begin(self.now, &mut |output| egress.on_ours(&output)).err().map(Halt::Rig);
        }
    }

    fn on_hello(&mut self, session: (u64, u32), first_seq: u64) {
        self.begin();
        let egress = &mut self.egress;
        let halt = self.rig.hello(self.now, session, first_seq, &mut |output| egress.on_ours(&output)).err();
        self.halt = self.halt.take().or(halt.map(Halt::Rig));
        self.stop_before(session, first_seq);
    }

    fn on_input(&mut self, input: &Input<'_>) {
        let session = (input.session, input.client_epoch);
        let stream = self.known.inputs().get(&session);
        if stream.is_some_and(|stream| stream.is_taken_back(input.client_seq, input.index)) {
            self.lost += 1;
            return;
        }
        self.begin();
        // Numbers that never come may lie before one that is missing.
        self.stop_before(session, input.client_seq.saturating_sub(1));
        if self.is_over() {
            return;
        }
        let egress = &mut self.egress;
        let on_output = &mut |output: Output<'_>| egress.on_ours(&output);
        match self.rig.input(self.now, session, input.client_seq, input.command, on_output) {
            Ok(true) => self.sequenced += 1,
            Ok(false) => self.not_sequenced += 1,
            Err(error) => {
                self.halt.get_or_insert(Halt::Rig(error));
            }
        }
        self.stop_before(session, input.client_seq + 1);
    }

    /// Ends it where this input would come next and is missing: whatever comes after it was made with it.
    fn stop_before(&mut self, (session, client_epoch): (u64, u32), client_seq: u64) {
        let is_missing = |figures: &StreamFigures| figures.missing.contains(client_seq);
        let known = self.known.inputs().get(&(session, client_epoch));
        if self.halt.is_none() && known.is_some_and(|stream| is_missing(stream.figures())) {
            self.halt = Some(Halt::MissingInput { session, client_epoch, client_seq });
        }
    }
}

/// Whether an `EpochChange` begins this reign: each feed is of one.
fn is_of(frame: &Frame<'_>, epoch: u32) -> bool {
    EpochChange::decode(frame.payload).is_some_and(|change| change.epoch == u64::from(epoch))
}
