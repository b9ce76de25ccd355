//! What a replay lets out, beside what was captured: message by message, in the order in which the service made them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use ticktape::link::event;
use ticktape::{Seq, Target};

use super::WAITING_BYTES_MAX;
use super::rig::{Output, Shown};
use crate::links::Links;
use crate::service::AnyReports;

/// What it takes to keep a message beside its bytes, about.
const KEPT_OVERHEAD_BYTES: usize = 96;

/// Of which stream a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// A session's events.
    Session(u64),
    /// The public ones.
    Public,
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stream::Session(session) => write!(f, "session {session}"),
            Stream::Public => f.write_str("public events"),
        }
    }
}

/// Two messages that should be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDifference {
    /// Of which stream.
    pub stream: Stream,
    /// Their number in it.
    pub number: u64,
    /// What the replay lets out; `None` where it makes none such.
    pub ours: Option<Vec<u8>>,
    /// What was captured.
    pub theirs: Vec<u8>,
}

impl fmt::Display for EventDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EventDifference { stream, number, ours, theirs } = self;
        let Some(ours) = ours else {
            return write!(f, "{stream}, event {number}: captured as {}, the replay makes none such", Shown(theirs));
        };
        let at = ours.iter().zip(theirs).position(|(a, b)| a != b).unwrap_or(ours.len().min(theirs.len()));
        write!(
            f,
            "{stream}, event {number}: differs from byte {at} on: captured {}, replayed {}",
            Shown(theirs),
            Shown(ours)
        )
    }
}

/// How the two compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Messages that were compared.
    pub compared: u64,
    /// Of them, those that differ; and captured ones that the replay does not make.
    pub different: u64,
    /// The replay's that are not in the capture.
    pub not_captured: u64,
    /// Captured ones of frames before the replay's first, or beyond its last.
    pub outside: u64,
    /// Messages, of either side, for which there was no room while they waited for each other.
    pub given_up: u64,
    /// Without a feed: events that the appliance had made before the one that the replay made just before them.
    pub out_of_order: u64,
}

#[derive(Debug)]
struct Ours {
    key: (Stream, u64),
    message: Box<[u8]>,
}

/// Compares both as they come, in either order.
pub struct Egress<'a> {
    /// What the capture holds, from a first look at all of it.
    known: &'a Links,
    /// The state before the first frame is after this one, and this is the public event to come.
    begun: (Seq, u64),
    /// Without the frames' own numbers the log seqs in events can't be the same.
    from: usize,
    ours: VecDeque<Ours>,
    theirs: BTreeMap<(Stream, u64), Box<[u8]>>,
    ours_bytes: usize,
    theirs_bytes: usize,
    figures: Figures,
    first: Option<EventDifference>,
    /// Without a feed: from which frame of the log on inputs are not in the capture.
    unheard: Option<u64>,
    /// The latest frame of the appliance's log whose event was compared.
    latest: u64,
    ours_reports: Box<dyn AnyReports + 'a>,
    theirs_reports: Box<dyn AnyReports + 'a>,
}

impl<'a> Egress<'a> {
    /// Nothing yet. `begun`: the seq of the state to begin from, and its next public event. `with_log_seqs`: the replay numbers its log as the appliance did. `reports` gathers for each side.
    pub fn new(
        known: &'a Links,
        begun: (Seq, u64),
        with_log_seqs: bool,
        reports: [Box<dyn AnyReports + 'a>; 2],
    ) -> Self {
        let [ours_reports, theirs_reports] = reports;
        Egress {
            known,
            begun,
            from: if with_log_seqs { 0 } else { event::CLIENT_SEQ },
            ours: VecDeque::new(),
            theirs: BTreeMap::new(),
            ours_bytes: 0,
            theirs_bytes: 0,
            figures: Figures::default(),
            first: None,
            unheard: if with_log_seqs { None } else { known.first_unheard() },
            latest: 0,
            ours_reports,
            theirs_reports,
        }
    }

    /// The replay lets this out.
    pub fn on_ours(&mut self, output: &Output<'_>) {
        let stream = match output.target {
            Target::Session(session) => Stream::Session(session.0),
            Target::Feed | Target::Caller => Stream::Public,
        };
        self.ours_reports.push(encoding(stream, output.message));
        self.ours_bytes += KEPT_OVERHEAD_BYTES + output.message.len();
        self.ours.push_back(Ours { key: (stream, output.number), message: output.message.into() });
        while self.ours_bytes > WAITING_BYTES_MAX {
            self.give_up_ours();
        }
        self.compare();
    }

    /// This was captured.
    pub fn on_theirs(&mut self, stream: Stream, number: u64, message: &[u8]) {
        let cause = event::EventMessage::decode(message).map(|message| message.log_seq);
        let is_before = match stream {
            Stream::Session(_) => self.from == 0 && cause <= Some(self.begun.0.0),
            Stream::Public => number < self.begun.1,
        };
        if is_before {
            self.figures.outside += 1;
            return;
        }
        self.theirs_bytes += KEPT_OVERHEAD_BYTES + message.len();
        if let Some(before) = self.theirs.insert((stream, number), message.into()) {
            self.theirs_bytes -= KEPT_OVERHEAD_BYTES + before.len();
        }
        while self.theirs_bytes > WAITING_BYTES_MAX {
            let Some((_, message)) = self.theirs.pop_first() else { break };
            self.theirs_bytes -= KEPT_OVERHEAD_BYTES + message.len();
            self.figures.given_up += 1;
        }
        self.compare();
    }

    /// This was captured, and is of what the appliance lost.
    pub fn on_lost(&mut self) {
        self.figures.outside += 1;
    }

    /// The capture has ended, and the replay is at frame `reached`; `is_whole`: that is all there was.
    pub fn finish(&mut self, reached: u64, is_whole: bool) {
        self.compare();
        while !self.ours.is_empty() {
            self.give_up_ours();
            self.compare();
        }
        while let Some(((stream, number), theirs)) = self.theirs.pop_first() {
            let cause = event::EventMessage::decode(&theirs).map(|message| message.log_seq);
            let is_beyond = match stream {
                Stream::Session(_) if self.from == 0 => cause > Some(reached),
                // Whether a later frame makes it can't be told from it.
                Stream::Session(_) => !is_whole || self.is_unheard(&theirs),
                Stream::Public => !is_whole || self.unheard.is_some(),
            };
            if is_beyond {
                self.figures.outside += 1;
            } else {
                self.differ((stream, number), None, &theirs);
            }
        }
    }

    /// How they compare.
    pub fn figures(&self) -> Figures {
        self.figures
    }

    /// The first difference.
    pub fn first_difference(&self) -> Option<&EventDifference> {
        self.first.as_ref()
    }

    /// The reports of the replay, and of what was captured: how many, and the SHA-256 of their text.
    pub fn into_reports(self) -> [(u64, String); 2] {
        [self.ours_reports.finish(), self.theirs_reports.finish()]
    }

    /// In the order of the replay's, as long as that can be told.
    fn compare(&mut self) {
        while let Some(ours) = self.ours.front() {
            let (key, message) = (ours.key, &ours.message);
            if let Some(theirs) = self.theirs.remove(&key) {
                self.theirs_bytes -= KEPT_OVERHEAD_BYTES + theirs.len();
                self.theirs_reports.push(encoding(key.0, &theirs));
                let from = if key.0 == Stream::Public { 0 } else { self.from };
                let (is_same, ours) = (message.get(from..) == theirs.get(from..), message.to_vec());
                self.note_order(key.0, &theirs);
                if is_same || !self.is_unheard(&theirs) {
                    self.figures.compared += 1;
                } else {
                    self.figures.outside += 1;
                }
                if !is_same && !self.is_unheard(&theirs) {
                    self.differ(key, Some(ours), &theirs);
                }
            } else if self.holds(key) {
                return;
            } else {
                self.figures.not_captured += 1;
            }
            self.drop_ours();
        }
    }

    /// Without a feed: whether this event came after an input that is not in the capture.
    fn is_unheard(&self, theirs: &[u8]) -> bool {
        let cause = event::EventMessage::decode(theirs).map(|message| message.log_seq);
        self.unheard.is_some_and(|unheard| cause >= Some(unheard))
    }

    /// Without a feed the packets' order need not be the appliance's: its log seqs tell.
    fn note_order(&mut self, stream: Stream, theirs: &[u8]) {
        if let (Stream::Session(_), Some(message), true) = (stream, event::EventMessage::decode(theirs), self.from > 0)
        {
            self.figures.out_of_order += u64::from(message.log_seq < self.latest);
            self.latest = self.latest.max(message.log_seq);
        }
    }

    /// Whether the capture has this message, by now or later.
    fn holds(&self, (stream, number): (Stream, u64)) -> bool {
        match stream {
            Stream::Session(session) => self.known.events().get(&session).is_some_and(|stream| stream.holds(number)),
            Stream::Public => self.known.event_feeds().any(|(_, feed)| feed.stream.holds(number)),
        }
    }

    fn differ(&mut self, (stream, number): (Stream, u64), ours: Option<Vec<u8>>, theirs: &[u8]) {
        self.figures.different += 1;
        self.first.get_or_insert_with(|| EventDifference { stream, number, ours, theirs: theirs.to_vec() });
    }

    fn give_up_ours(&mut self) {
        if let Some(ours) = self.ours.front() {
            self.figures.given_up += u64::from(self.holds(ours.key));
            self.figures.not_captured += u64::from(!self.holds(ours.key));
            self.drop_ours();
        }
    }

    fn drop_ours(&mut self) {
        if let Some(ours) = self.ours.pop_front() {
            self.ours_bytes -= KEPT_OVERHEAD_BYTES + ours.message.len();
        }
    }
}

/// The service's output within a message.
fn encoding(stream: Stream, message: &[u8]) -> &[u8] {
    match stream {
        Stream::Session(_) => message.get(event::OUTPUT..).unwrap_or_default(),
        Stream::Public => message,
    }
}
