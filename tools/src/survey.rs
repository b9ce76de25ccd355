//! One look at everything that a journal holds, gathered: what `inspect` shows and `verify` judges.
//!
//! Beside a live writer the last commits may be read half written. Damage stays where it is and what is being written does not, so
//! what two looks find in the same place is damage.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;
use ticktape::mark::Mark;
use ticktape::{Kind, Seq};
use ticktape_journal::format::segment::{HeaderError, SegmentHeader, Version};
use ticktape_journal::inspect::{Fact, Summary, inspect};
use ticktape_journal::{JournalError, snapshot};

/// A segment that is there.
#[derive(Debug, Serialize)]
pub struct Segment {
    pub file: String,
    pub bytes: u64,
    pub first_seq: u64,
    pub next_seq: u64,
    pub epoch: u64,
    pub version: u32,
    /// Block size in bytes; 0 for version 1.
    pub alignment: u32,
    pub commits: u64,
    pub frames: u64,
}

/// A file that is free to be written to.
#[derive(Debug, Serialize)]
pub struct Spare {
    pub file: String,
    pub bytes: u64,
    /// Whether it carries a recycle mark: it was a segment that was given up.
    pub recycled: bool,
}

/// Seqs that are in no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    pub from: u64,
    pub to: u64,
}

/// A place that does not hold what belongs there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    pub segment: String,
    pub offset: u64,
    /// The seq that belongs there, where that is known.
    pub seq: Option<u64>,
    pub what: String,
}

/// What one look found.
#[derive(Debug, Default)]
pub struct Survey {
    pub summary: Summary,
    pub segments: Vec<Segment>,
    pub spares: Vec<Spare>,
    pub gaps: Vec<Gap>,
    /// Damage, and what a crash or a live writer left half written.
    pub places: Vec<Place>,
    pub sealed: Option<Seq>,
    /// The earlier points that marks speak of, in order.
    pub marked: Vec<Seq>,
    current: PathBuf,
}

impl Survey {
    /// Looks at all of `path`, and shows each fact.
    ///
    /// # Errors
    /// The disk failed, or there is no segment: damage is none.
    pub fn of(path: &Path, show: &mut dyn FnMut(&Fact<'_>)) -> Result<Survey, JournalError> {
        let mut survey = Survey::default();
        let summary = inspect(path, &mut |fact| {
            survey.note(fact);
            show(fact);
        });
        survey.summary = match summary {
            // A journal goes on from a snapshot alone; what the seal file says is compared with it by whoever reads on.
            Err(JournalError::Empty { .. }) if !snapshot::list(path)?.is_empty() => Summary::default(),
            summary => summary?,
        };
        Ok(survey)
    }

    fn note(&mut self, fact: &Fact<'_>) {
        match fact {
            Fact::Segment { path, bytes, header } => self.begin(path, *bytes, header.as_ref()),
            Fact::Commit { .. } => self.last(|segment| segment.commits += 1),
            Fact::Frame { frame, .. } => {
                let next = frame.seq.next().0;
                self.last(|segment| (segment.frames, segment.next_seq) = (segment.frames + 1, next));
                if frame.kind == Kind::SnapshotMark
                    && let Some(mark) = Mark::decode(frame.payload)
                    && mark.at > Seq::ZERO
                    && self.marked.last() != Some(&mark.at)
                {
                    self.marked.push(mark.at);
                }
            }
            Fact::Damaged { offset, seq, damage } => self.place(*offset, Some(*seq), damage.to_string()),
            Fact::Gap { from, to } => self.gaps.push(Gap { from: from.0, to: to.0 }),
            Fact::End { .. } => {}
            Fact::Sealed { durable } => self.sealed = *durable,
        }
    }

    fn begin(&mut self, path: &Path, bytes: u64, header: Result<&SegmentHeader, &HeaderError>) {
        path.clone_into(&mut self.current);
        let file = path.display().to_string();
        match header {
            Ok(header) => {
                let (version, alignment) = match header.version {
                    Version::One => (1, 0),
                    Version::Two { alignment, .. } => (2, alignment),
                };
                let (first_seq, epoch) = (header.first_seq.0, header.epoch);
                let (commits, frames) = (0, 0);
                let next_seq = first_seq;
                self.segments.push(Segment {
                    file,
                    bytes,
                    first_seq,
                    next_seq,
                    epoch,
                    version,
                    alignment,
                    commits,
                    frames,
                });
            }
            Err(HeaderError::Blank) => self.spares.push(Spare { file, bytes, recycled: false }),
            Err(HeaderError::Recycled) => self.spares.push(Spare { file, bytes, recycled: true }),
            Err(error) => self.place(0, None, error.to_string()),
        }
    }

    fn last(&mut self, note: impl FnOnce(&mut Segment)) {
        if let Some(segment) = self.segments.last_mut() {
            note(segment);
        }
    }

    fn place(&mut self, offset: u64, seq: Option<Seq>, what: String) {
        let segment = self.current.display().to_string();
        self.places.push(Place { segment, offset, seq: seq.map(|seq| seq.0), what });
    }

    /// Leaves only what `earlier` found in the same place: `path` has a live writer.
    pub fn keep_what_stays(&mut self, earlier: &Survey) {
        let before: BTreeSet<_> = earlier.places.iter().collect();
        self.places.retain(|place| before.contains(place));
        self.gaps.retain(|gap| earlier.gaps.contains(gap));
        let stays = (self.places.len() + self.gaps.len()) as u64;
        let damaged = self.summary.damaged.min(earlier.summary.damaged).min(stays);
        (self.summary.damaged, self.summary.torn) = (damaged, 0);
    }

    /// Where the log is damaged, worst first in the order of the log; a torn tail is not.
    pub fn damage(&self) -> impl Iterator<Item = &Place> {
        let (is_damaged, durable) = (self.summary.damaged > 0, self.summary.durable.0);
        self.places.iter().filter(move |place| is_damaged && place.seq.is_none_or(|seq| seq <= durable))
    }

    /// Where the next opening would cut a tail that was never acknowledged.
    pub fn cut(&self) -> Option<&Place> {
        let is_torn = self.summary.torn > 0;
        self.places.iter().find(|place| is_torn && place.seq.is_some_and(|seq| seq > self.summary.durable.0))
    }

    /// One line about the damage: the first place, and how many more there are.
    pub fn complaint(&self, path: &Path) -> Option<String> {
        let damaged = self.summary.damaged;
        if damaged == 0 {
            return None;
        }
        let first = match (self.damage().next(), self.gaps.first()) {
            (Some(Place { segment, offset, seq: Some(seq), what }), _) => {
                format!("{segment}: offset {offset}: seq {seq}: {what}")
            }
            (Some(Place { segment, offset, seq: None, what }), _) => format!("{segment}: offset {offset}: {what}"),
            (None, Some(Gap { from, to })) => format!("{}: seq {from} to {to} are in no sound segment", path.display()),
            (None, None) => path.display().to_string(),
        };
        let places = if damaged == 1 { "place" } else { "places" };
        Some(format!(
            "{first}: {damaged} damaged {places}; restore what is damaged or missing from a replica or a backup"
        ))
    }
}
