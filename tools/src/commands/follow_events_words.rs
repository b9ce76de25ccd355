//! What is printed of a stream of events, and in which words.

use std::num::NonZeroU64;

use serde::Serialize;
use ticktape::payload::Reign;

use crate::Failure;
use crate::json;
use crate::out::say;

/// What is to be printed, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Out {
    /// An event, with its number.
    Event(u64, Vec<u8>),
    /// A word about the feed.
    Notice(String),
    /// The log ends before the event that was asked for.
    Beyond {
        /// One above its last event.
        next: u64,
        /// The event that is waited for.
        from: u64,
    },
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
    /// An epoch that was believed never was: what was printed under it, and taken back for it, does not count.
    Left {
        /// Which.
        epoch: u32,
        /// The one that is served.
        present: u32,
        /// Events that were printed under it.
        events: u64,
        /// The event that was due.
        from: u64,
        /// The event that comes next.
        next: u64,
    },
    /// The repair port serves another log than that of the events before `next`.
    OtherLog {
        /// That of the events.
        ours: NonZeroU64,
        /// That which is served.
        theirs: NonZeroU64,
        /// The event that was due.
        next: u64,
    },
    /// The repair port serves this log as it went on in another reign than that of the events before `next`.
    OtherHistory {
        /// That of the events.
        ours: Reign,
        /// That of the same epoch which is served.
        theirs: Reign,
        /// The event that was due.
        next: u64,
    },
    /// A cursor that was brought along can't be gone on from.
    Refused(String),
}

/// Why events can't be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The repair port keeps only later ones.
    TooOld,
    /// It does not answer.
    Unanswered,
    /// Nobody can be asked.
    NobodyAsked,
}

impl Loss {
    /// Events `from .. to` are lost.
    pub fn word(self, from: u64, to: u64) -> String {
        let why = match self {
            Loss::TooOld => "the repair port no longer keeps them",
            Loss::Unanswered => "the repair port does not answer",
            Loss::NobodyAsked => "without --events-repair nobody can be asked",
        };
        let last = to - 1;
        format!("events {from} to {last} are lost: {why}")
    }
}

/// The identity of a log, as people write it.
pub fn hex(log_id: NonZeroU64) -> String {
    format!("{log_id:016x}")
}

/// As [`hex`], of a reign.
pub fn reign_hex(reign: Reign) -> String {
    format!("{:016x}", reign.id)
}

/// Up to where something was printed.
fn up_to(next: u64) -> String {
    if next > 1 { format!("up to event {}", next - 1) } else { "up to no event".to_string() }
}

/// A word about the feed, in JSON.
#[derive(Default, Serialize)]
struct Notice<'a> {
    notice: &'a str,
    /// What became of events that were received: `rewound`, `unproven`, `left`, `other_log` or `other_history`.
    #[serde(skip_serializing_if = "Option::is_none")]
    resync: Option<&'static str>,
    /// In which they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u32>,
    /// The event that was due, and the one that comes next.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    /// The log that is served instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
    /// The reign of that epoch which is served instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    reign: Option<String>,
}

impl Out {
    /// For people. Events have words of their own, which only their service knows.
    pub fn text(&self) -> String {
        match self {
            Out::Event(number, _) => format!("event {number}"),
            Out::Notice(text) | Out::Refused(text) => text.clone(),
            Out::Beyond { next, from } => format!(
                "waiting for event {from}, as --from says, and the log ends {}: nothing is printed until that event comes",
                if *next > 1 { format!("with event {}", next - 1) } else { "before the first event".to_string() }
            ),
            Out::TakenBack { epoch, from, next } => {
                let last = from - 1;
                format!(
                    "events {next} to {last} don't count: epoch {epoch} ended before event {next}, what came after it was taken back, and others \
                     have their numbers"
                )
            }
            Out::Unproven { epoch, next } => format!(
                "unproven: whether the events before {next}, of epoch {epoch}, still count nobody who was asked can tell"
            ),
            Out::Left { epoch, present, events, next, .. } => format!(
                "epoch {epoch} is not of the log, which is in epoch {present}: the {events} events that were printed under epoch {epoch} \
                 don't count, nor does what was taken back for it; event {next} comes next"
            ),
            Out::OtherLog { ours, theirs, next } => {
                let (ours, theirs) = (hex(*ours), hex(*theirs));
                let last = up_to(*next);
                format!(
                    "the repair port serves log {theirs}, and what was printed is of log {ours}, {last}: none of it goes on there; to begin \
                     with the new log follow it --from 1, without --from-epoch and --from-log"
                )
            }
            Out::OtherHistory { ours, theirs, next } => {
                let (last, epoch) = (up_to(*next), ours.epoch);
                let (ours, theirs) = (reign_hex(*ours), reign_hex(*theirs));
                format!(
                    "the repair port serves the log as it went on in reign {theirs} of epoch {epoch}, and what was printed is of reign {ours} \
                     of that epoch, {last}: an older copy of the journal was started beside the other; keep one of the two, and move the \
                     other's directory away. To begin with the one that is served follow it --from 1, without --from-epoch and --from-reign"
                )
            }
        }
    }

    /// Prints a word about the feed.
    pub fn say(&self, json: bool) -> Result<(), Failure> {
        let text = self.text();
        if !json {
            return say!("{text}");
        }
        let word = Notice { notice: &text, ..Notice::default() };
        let resync = |resync, epoch, from, next| (Some(resync), epoch, Some(from), Some(next));
        let (resync, epoch, from, next) = match *self {
            Out::TakenBack { epoch, from, next } => resync("rewound", Some(epoch), from, next),
            Out::Unproven { epoch, next } => resync("unproven", Some(epoch), next, next),
            Out::Left { epoch, from, next, .. } => resync("left", Some(epoch), from, next),
            Out::OtherLog { next, .. } => resync("other_log", None, next, 1),
            Out::OtherHistory { ours, next, .. } => resync("other_history", u32::try_from(ours.epoch).ok(), next, 1),
            Out::Event(..) | Out::Notice(_) | Out::Beyond { .. } | Out::Refused(_) => (None, None, None, None),
        };
        let log = if let Out::OtherLog { theirs, .. } = self { Some(hex(*theirs)) } else { None };
        let reign = if let Out::OtherHistory { theirs, .. } = self { Some(reign_hex(*theirs)) } else { None };
        say!("{}", json::line(&Notice { resync, epoch, from, next, log, reign, ..word })?)
    }
}
