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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every directory of up to three segments over a handful of seqs, links and ends, with every mark: some of them no crash
    /// leaves behind, and all of them must come out right.
    fn every_directory(mut check: impl FnMut(&[SegmentFacts], Seq, bool)) -> usize {
        let mut cases = 0;
        let ends = |first: u64| (first..=first + 2).flat_map(|next| [(next, true), (next, false)]);
        let mut each = |segments: &[SegmentFacts]| {
            for durable in 0..=7 {
                for stray in [false, true] {
                    cases += 1;
                    check(segments, Seq(durable), stray);
                }
            }
        };
        each(&[]);
        for (end_a, clean_a) in ends(1) {
            let a = segment(1, 10, 0, Some((end_a, clean_a)));
            each(&[a]);
            for first_b in 1..=4 {
                for (end_b, clean_b) in ends(first_b) {
                    for link in [10, 99] {
                        let b = segment(first_b, 20, link, Some((end_b, clean_b)));
                        each(&[a, b]);
                        each(&[SegmentFacts { scan: None, ..a }, b]);
                        for first_c in first_b..=5 {
                            for link in [20, 99] {
                                each(&[a, b, segment(first_c, 30, link, Some((first_c + 1, true)))]);
                            }
                        }
                    }
                }
            }
        }
        cases
    }

    fn segment(first: u64, salt: u64, previous_salt: u64, scan: Option<(u64, bool)>) -> SegmentFacts {
        let facts = |(next, clean)| ScanFacts { next_seq: Seq(next), durable: Seq::ZERO, clean };
        SegmentFacts { first_seq: Seq(first), salt, previous_salt, scan: scan.map(facts) }
    }

    /// How far the log goes on without a break, told in another way than the table does.
    fn unbroken(segments: &[SegmentFacts]) -> (u64, usize) {
        let mut reached = (segments[0].first_seq.0, 0);
        for (index, segment) in segments.iter().enumerate() {
            let linked = index == 0 || segments[index - 1].salt == segment.previous_salt;
            if segment.first_seq.0 != reached.0 || !linked {
                break;
            }
            let next = segments.get(index + 1).map(|next| next.first_seq.0);
            reached = (segment.scan.map_or_else(|| next.unwrap(), |scan| scan.next_seq.0), index);
        }
        reached
    }

    #[test]
    fn nothing_acknowledged_is_ever_cut_and_nothing_unacknowledged_ever_refused() {
        let (mut adopted, mut refused) = (0, 0);
        let cases = every_directory(|segments, durable, stray| {
            let verdict = decide(segments, durable, stray);
            let duplicate = segments.windows(2).any(|pair| pair[0].first_seq == pair[1].first_seq);
            match verdict {
                Verdict::Refuse(Refusal::Duplicate { segment }) => {
                    assert_eq!(segments[segment].first_seq, segments[segment - 1].first_seq);
                    return;
                }
                _ => assert!(!duplicate),
            }
            if segments.is_empty() {
                let expected = match durable {
                    Seq::ZERO => Verdict::Empty,
                    _ => Verdict::Refuse(Refusal::Missing { seq: Seq(1) }),
                };
                assert_eq!(verdict, expected);
                return;
            }
            let (end, last) = unbroken(segments);
            match verdict {
                Verdict::Empty => panic!("there are segments"),
                Verdict::Adopt { keep, next_seq, cut } => {
                    adopted += 1;
                    assert!(durable < next_seq, "acknowledged data was cut: {segments:?} {durable:?}");
                    assert_eq!(next_seq, Seq(end));
                    assert!(keep == last + 1 || keep == last && segments[last].first_seq.0 == end);
                    let clean = segments[last].scan.is_none_or(|scan| scan.clean);
                    assert_eq!(cut, stray || !clean || last + 1 < segments.len());
                }
                Verdict::Refuse(Refusal::Damaged { segment, seq }) => {
                    refused += 1;
                    assert!(durable >= seq && seq == Seq(end) && segment == last);
                }
                Verdict::Refuse(Refusal::Missing { seq }) => {
                    refused += 1;
                    assert!(durable >= seq && seq == Seq(end) && last + 1 < segments.len());
                }
                Verdict::Refuse(Refusal::Duplicate { .. }) => unreachable!("returned above"),
            }
        });
        assert!(cases > 10_000 && adopted > 1_000 && refused > 1_000, "{cases} cases, {adopted}, {refused}");
    }

    #[test]
    fn evidence_in_a_later_segment_forbids_to_cut_an_earlier_one() {
        let mut b = segment(4, 20, 10, Some((6, true)));
        let a = segment(1, 10, 0, Some((3, false)));
        assert_eq!(decide(&[a, b], Seq(0), false), Verdict::Adopt { keep: 1, next_seq: Seq(3), cut: true });
        b.scan = Some(ScanFacts { next_seq: Seq(6), durable: Seq(3), clean: true });
        assert_eq!(decide(&[a, b], Seq(0), false), Verdict::Refuse(Refusal::Damaged { segment: 0, seq: Seq(3) }));
    }

    #[test]
    fn version_1_synced_before_it_rolled() {
        let (a, b) = (segment(1, 0, 0, Some((3, false))), segment(4, 0, 0, Some((6, false))));
        assert_eq!(decide(&[a, b], Seq(0), false), Verdict::Refuse(Refusal::Damaged { segment: 0, seq: Seq(3) }));
        assert_eq!(decide(&[b], Seq(0), false), Verdict::Adopt { keep: 1, next_seq: Seq(6), cut: true });
    }
}
