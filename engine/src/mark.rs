//! Marks: where the log says what its frames came to. WIRE.md, "SnapshotMark".
//!
//! Each mark is a point at which snapshots may be taken, and carries the digests of an earlier one, as its writer's shadow
//! computed them. Whoever applies the log compares them with its own: a service that is not deterministic is found out
//! within two marks.

use std::collections::VecDeque;

use ticktape_core::{Kind, Nanos, Seq, Target};
use ticktape_crc::crc32c;

use crate::link::layout::Field;
use crate::log::LogWriter;
use crate::machine::Divergence;

const AT: usize = 0;
const STATE_DIGEST: usize = 8;
const OUTPUT_HASH: usize = 40;
/// Size of a `SnapshotMark` payload.
pub const MARK_BYTES: usize = 48;

/// A mark's fields, as WIRE.md has them.
pub(crate) const FIELDS: &[Field] = &[
    Field { offset: AT, bytes: STATE_DIGEST - AT, name: "at" },
    Field { offset: STATE_DIGEST, bytes: OUTPUT_HASH - STATE_DIGEST, name: "state_digest" },
    Field { offset: OUTPUT_HASH, bytes: MARK_BYTES - OUTPUT_HASH, name: "output_hash" },
];

/// Points that a machine remembers. Digests follow a point after a few marks; one that is later than this is not compared.
const POINTS_MAX: usize = 64;

/// What was computed up to an earlier mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// That mark's seq; 0 where this one carries nothing.
    pub at: Seq,
    /// SHA-256 of the state after it: the snapshot's engine and service sections.
    pub state_digest: [u8; 32],
    /// The rolling hash of all outputs up to it.
    pub output_hash: u64,
}

impl Mark {
    /// The payload of a `SnapshotMark` frame.
    pub fn encode(&self) -> [u8; MARK_BYTES] {
        let mut out = [0; MARK_BYTES];
        out[AT..STATE_DIGEST].copy_from_slice(&self.at.0.to_le_bytes());
        out[STATE_DIGEST..OUTPUT_HASH].copy_from_slice(&self.state_digest);
        out[OUTPUT_HASH..].copy_from_slice(&self.output_hash.to_le_bytes());
        out
    }

    /// Reads what [`Mark::encode`] wrote; `None` where it is too short.
    pub fn decode(payload: &[u8]) -> Option<Mark> {
        let u64_at = |at: usize| Some(u64::from_le_bytes(payload.get(at..at + 8)?.try_into().ok()?));
        Some(Mark {
            at: Seq(u64_at(AT)?),
            state_digest: payload.get(STATE_DIGEST..OUTPUT_HASH)?.try_into().ok()?,
            output_hash: u64_at(OUTPUT_HASH)?,
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Point {
    at: Seq,
    output_hash: u64,
    state_digest: Option<[u8; 32]>,
}

/// What a machine itself came to at the latest marks.
#[derive(Clone, Debug)]
pub(crate) struct Points {
    points: VecDeque<Point>,
    compared: Compared,
}

/// How many marks a machine found to agree or differ with what it had come to itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// By their hash of the outputs.
    pub outputs: u64,
    /// By their digest of the state, too: where that was noted.
    pub states: u64,
}

impl Default for Points {
    fn default() -> Self {
        Points { points: VecDeque::with_capacity(POINTS_MAX), compared: Compared::default() }
    }
}

impl Points {
    pub(crate) fn remember(&mut self, at: Seq, output_hash: u64) {
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back(Point { at, output_hash, state_digest: None });
    }

    pub(crate) fn note_state(&mut self, at: Seq, state_digest: [u8; 32]) {
        if let Some(point) = self.points.iter_mut().find(|point| point.at == at) {
            point.state_digest = Some(state_digest);
        }
    }

    /// What differs from the mark, as far as it is remembered here.
    pub(crate) fn compare(&mut self, mark: &Mark) -> Option<Divergence> {
        let point = self.points.iter().find(|point| point.at == mark.at)?;
        self.compared.outputs += 1;
        if point.output_hash != mark.output_hash {
            return Some(Divergence::Outputs);
        }
        self.compared.states += u64::from(point.state_digest.is_some());
        point.state_digest.filter(|digest| *digest != mark.state_digest).map(|_| Divergence::State)
    }

    pub(crate) fn compared(&self) -> Compared {
        self.compared
    }
}

/// How often marks are written; whichever comes first. Nothing is marked where nothing was written since the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cadence {
    /// After so many frames.
    pub frames: u64,
    /// After so many bytes of log.
    pub bytes: u64,
    /// After so many nanoseconds.
    pub ns: u64,
}

/// Digests on their way from a shadow to the sequencer. More than a few are never under way: a shadow takes one snapshot at a time.
pub const DIGESTS_MAX: usize = 16;

/// Writes the marks of one reign.
#[derive(Debug)]
pub struct MarkWriter {
    cadence: Cadence,
    digests: rtrb::Consumer<Mark>,
    latest: Mark,
    /// What comes after the last mark, in frames, bytes and time.
    next_seq: Seq,
    bytes: u64,
    since: Option<Nanos>,
}

impl MarkWriter {
    /// Marks from where `log` stands, with the digests that come from a shadow.
    pub fn new(cadence: Cadence, digests: rtrb::Consumer<Mark>, log: &LogWriter) -> Self {
        let (next_seq, bytes) = (log.next_seq(), log.bytes_written());
        MarkWriter { cadence, digests, latest: Mark::default(), next_seq, bytes, since: None }
    }

    /// Writes a mark if one is due; its caller publishes it. Called every millisecond or so; a full ring puts it off.
    pub fn poll(&mut self, now: Nanos, log: &mut LogWriter) -> Option<Seq> {
        let frames = log.next_seq().0 - self.next_seq.0;
        if frames == 0 {
            return None;
        }
        let since = *self.since.get_or_insert(now);
        let due = frames >= self.cadence.frames
            || log.bytes_written() - self.bytes >= self.cadence.bytes
            || now.saturating_sub(since) >= self.cadence.ns;
        if !due {
            return None;
        }
        while let Ok(mark) = self.digests.pop() {
            self.latest = mark;
        }
        let seq = log.append(now, Kind::SnapshotMark, &self.latest.encode(), &[]).ok()?;
        (self.next_seq, self.bytes, self.since) = (seq.next(), log.bytes_written(), None);
        Some(seq)
    }
}

/// Odd, and without pattern: the fraction of the golden ratio.
const FOLD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The rolling hash over one more output.
#[inline]
pub(crate) fn fold_output(hash: u64, seq: Seq, target: Target, event_seq: u64, bytes: &[u8]) -> u64 {
    let who = match target {
        Target::Session(session) => session.0,
        Target::Feed => u64::MAX,
        Target::Caller => u64::MAX - 1,
    };
    let what = (bytes.len() as u64) << 32 | u64::from(crc32c(bytes));
    [seq.0, who, event_seq, what].iter().fold(hash, |hash, word| (hash.rotate_left(5) ^ word).wrapping_mul(FOLD))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ticktape_core::SessionId;

    const MARK: Mark = Mark { at: Seq(7), state_digest: [3; 32], output_hash: 9 };

    #[test]
    fn a_payload_reads_back_and_a_short_one_is_none() {
        let bytes = MARK.encode();
        assert_eq!(Mark::decode(&bytes), Some(MARK));
        assert_eq!(Mark::decode(&bytes[..MARK_BYTES - 1]), None);
    }

    #[test]
    fn what_differs_is_told_as_far_as_it_is_known() {
        let mut points = Points::default();
        assert_eq!(points.compare(&MARK), None, "nothing is remembered");
        points.remember(Seq(7), 9);
        assert_eq!(points.compare(&MARK), None);
        points.note_state(Seq(7), [4; 32]);
        assert_eq!(points.compare(&MARK), Some(Divergence::State));
        assert_eq!(points.compare(&Mark { output_hash: 8, ..MARK }), Some(Divergence::Outputs));
        (0..POINTS_MAX as u64).for_each(|seq| points.remember(Seq(100 + seq), 0));
        assert_eq!(points.compare(&MARK), None, "forgotten");
    }

    #[test]
    fn the_hash_of_outputs_tells_every_part_and_their_order() {
        let session = Target::Session(SessionId(1));
        let base = fold_output(0, Seq(1), session, 1, b"ab");
        let others = [
            fold_output(1, Seq(1), session, 1, b"ab"),
            fold_output(0, Seq(2), session, 1, b"ab"),
            fold_output(0, Seq(1), Target::Feed, 1, b"ab"),
            fold_output(0, Seq(1), Target::Caller, 1, b"ab"),
            fold_output(0, Seq(1), session, 2, b"ab"),
            fold_output(0, Seq(1), session, 1, b"ac"),
            fold_output(0, Seq(1), session, 1, b"ab\0"),
        ];
        assert!(others.iter().all(|other| *other != base));
        let two = |first: &[u8], second: &[u8]| {
            fold_output(fold_output(0, Seq(1), session, 1, first), Seq(1), session, 2, second)
        };
        assert_ne!(two(b"a", b"b"), two(b"b", b"a"));
    }
}
