//! What to do with what a directory holds: a pure decision over the facts, with no I/O.
//!
//! | the log breaks off at seq E | known durable | verdict |
//! |---|---|---|
//! | nowhere: the last segment ends in blanks | below E | adopt all |
//! | in the last segment, bytes follow that are no commit of it | below E | cut there |
//! | in a segment before the last, or at a gap or a wrong link between two | below E | cut there, delete the later ones |
//! | any of these | E or above | refuse: acknowledged data is damaged or missing |
//! | no segment at all | 0 | empty |
//! | no segment at all | above 0 | refuse: missing |
//! | two segments begin at the same seq | any | refuse: duplicate |
//!
//! "Known durable" is the highest `durable` of any commit that is evidence, of the seal file, and, for each segment after a
//! version 1 segment, of the frames before it: version 1 synced before it rolled.
//!
//! Evidence are commits with the segment's salt and a sound checksum. To be *adopted* a commit must also continue the chain.

use ticktape_core::Seq;

/// What one segment with a sound header holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// The seq its header begins with.
    pub first_seq: Seq,
    /// Its salt; 0 for version 1.
    pub salt: u64,
    /// The salt of the segment before it; 0 for none, or version 1.
    pub previous_salt: u64,
    /// What reading it brought; `None` if it was not read, because a later one proves that all before it was durable.
    pub scan: Option<ScanFacts>,
}

/// What reading a segment brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanFacts {
    /// The seq after the last frame of the unbroken chain.
    pub next_seq: Seq,
    /// The highest `durable` that any evidence in it carries.
    pub durable: Seq,
    /// Whether only blanks follow the chain.
    pub clean: bool,
}

/// Why the journal is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Acknowledged data is damaged where this segment breaks off.
    Damaged {
        /// Its index.
        segment: usize,
        /// The first seq that cannot be read.
        seq: Seq,
    },
    /// Acknowledged data is in no segment.
    Missing {
        /// The first seq that is missing.
        seq: Seq,
    },
    /// Two segments claim the same frames.
    Duplicate {
        /// The index of the second; the one before it is the first.
        segment: usize,
    },
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is nothing: begin at seq 1.
    Empty,
    /// Keep the first `keep` segments, up to before `next_seq`; delete the others, highest first.
    Adopt {
        /// How many segments stay.
        keep: usize,
        /// The seq to go on with.
        next_seq: Seq,
        /// Whether something that looked like data is cut off.
        cut: bool,
    },
    /// Touch nothing, and say why.
    Refuse(Refusal),
}

/// Decides over `segments`, ordered by `first_seq`, with what else is known to have been `durable`.
///
/// `stray` says that there are files which were begun as segments but whose header cannot be read.
pub fn decide(segments: &[SegmentFacts], durable: Seq, stray: bool) -> Verdict {
    if let Some(at) = segments.windows(2).position(|pair| pair[0].first_seq == pair[1].first_seq) {
        return Verdict::Refuse(Refusal::Duplicate { segment: at + 1 });
    }
    let durable = known_durable(segments, durable);
    let Some(first) = segments.first() else {
        return match durable {
            Seq::ZERO => Verdict::Empty,
            _ => Verdict::Refuse(Refusal::Missing { seq: Seq::FIRST }),
        };
    };
    let mut next_seq = first.first_seq;
    for (index, segment) in segments.iter().enumerate() {
        let after = segments.get(index + 1);
        let (end, clean) = match (segment.scan, after) {
            (Some(scan), _) => (scan.next_seq, scan.clean),
            (None, Some(after)) => (after.first_seq, true),
            (None, None) => unreachable!("the last segment is always read"),
        };
        assert!(end >= next_seq, "a segment ends at or after its beginning");
        next_seq = end;
        let follows = after.is_some_and(|after| after.first_seq == end && after.previous_salt == segment.salt);
        if follows {
            continue;
        }
        if durable >= next_seq {
            // Blanks before a later segment may be a lost segment or a lost part of this one; the seq is what is missing.
            let missing = after.is_some() && (clean || after.is_some_and(|after| after.first_seq == end));
            let refusal = if missing {
                Refusal::Missing { seq: next_seq }
            } else {
                Refusal::Damaged { segment: index, seq: next_seq }
            };
            return Verdict::Refuse(refusal);
        }
        let cut = after.is_some() || !clean || stray;
        // A segment that was begun and holds nothing goes, so that the next one can begin at the same seq.
        let keep = if end == segment.first_seq { index } else { index + 1 };
        return Verdict::Adopt { keep, next_seq, cut };
    }
    unreachable!("the last segment has none after it")
}

/// Everything that is known to have been durable.
pub(crate) fn known_durable(segments: &[SegmentFacts], durable: Seq) -> Seq {
    let scanned = segments.iter().filter_map(|segment| segment.scan).map(|scan| scan.durable);
    let after_version_1 = segments.windows(2).filter(|pair| pair[0].salt == 0);
    let rolled = after_version_1.map(|pair| Seq(pair[1].first_seq.0 - 1));
    scanned.chain(rolled).fold(durable, Seq::max)
}
