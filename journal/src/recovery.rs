//! What to do with what a directory holds: a pure decision over the facts, with no I/O.
//!
//! | the log breaks off at seq E | known durable | verdict |
//! |---|---|---|
//! | nowhere: the last segment ends in blanks | below E | adopt all |
//! | in the last segment, bytes follow that are no commit of it | below E | cut there |
//! | in a segment before the last, or at a gap or a broken link between two | below E | cut there, delete the later ones |
//! | any of these | E or above | refuse: acknowledged data is damaged or missing |
//! | no segment at all | up to C | begin at C + 1 |
//! | no segment at all | above C | refuse: missing |
//! | two segments are of different logs | any | refuse: another log's segment |
//! | two segments begin at the same seq | any | refuse: duplicate |
//!
//! C is what a snapshot covers, 0 without one. Above 0 it adds two refusals to what would be adopted: the first segment begins
//! after C + 1, so that seqs are in neither; the log ends before C, so that it lacks what the snapshot rests on.
//!
//! Files that were given up to be used again (they begin with a recycle mark) are no segments: the caller leaves them out, and
//! deletes them when the verdict is not to refuse. A journal may begin late: what is before its first segment was released.
//!
//! Before all that the caller refuses a file without a sound header whose name puts it before the first segment, where
//! anything was acknowledged from its seq on; unless a snapshot covers all that is before the first segment.
//!
//! "Known durable" is the highest `durable` of any commit that is evidence, of the seal file, and, for each segment after a
//! version 1 segment, of the frames before it: version 1 synced before it rolled.
//!
//! The beginning of a segment may be lost, and its salt with it. So that its other commits are evidence all the same, the segment
//! before it announces its salt, and the seal file that of the segment that an opening begins: [`announced`] tells which salts
//! to look for in files whose header is not sound.
//!
//! Two segments are linked when the later one begins at E, carries the salt of the earlier one and the checksum of the
//! commit that it ends with, and is of no earlier epoch.
//!
//! Evidence are commits with the segment's salt and a sound checksum. To be *adopted* a commit must also continue the chain.

use ticktape_core::Seq;

use crate::format::seal::Sealed;

/// What one segment with a sound header holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// The seq its header begins with.
    pub first_seq: Seq,
    /// The epoch it was begun in.
    pub epoch: u64,
    /// Its salt; 0 for version 1.
    pub salt: u64,
    /// The salt of the segment before it; 0 for none, or version 1.
    pub previous_salt: u64,
    /// The checksum of the last commit of the segment before it; 0 likewise.
    pub previous_checksum: u32,
    /// Which log it is of; 0 where it does not say.
    pub log_id: u64,
    /// What reading it brought; `None` if it was not read, because a later one proves that all before it was durable.
    pub scan: Option<ScanFacts>,
}

/// What reading a segment brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanFacts {
    /// The seq after the last frame of the unbroken chain.
    pub next_seq: Seq,
    /// The epoch of the last of it.
    pub epoch: u64,
    /// The checksum of that chain's last commit, or of the header; 0 for version 1.
    pub checksum: u32,
    /// The highest `durable` that any evidence in it carries.
    pub durable: Seq,
    /// Whether only blanks follow the chain.
    pub clean: bool,
    /// The salt of the next segment, as its commits announce it; 0 where they don't.
    pub next_salt: u64,
}

/// A segment that may have been begun, and has no sound header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The salt of its commits, never 0.
    pub salt: u64,
    /// The seq that it would begin with.
    pub first_seq: Seq,
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
    /// Acknowledged data is cut off by a segment that does not go on from the one before it, though there is no gap.
    Unlinked {
        /// Its index.
        segment: usize,
        /// The first seq that cannot be read.
        seq: Seq,
    },
    /// Seqs are neither covered by the snapshot nor in the journal, which begins after them.
    SnapshotGap {
        /// The journal's first seq.
        first: Seq,
    },
    /// The log ends before what the snapshot covers.
    BehindSnapshot {
        /// Its last seq.
        last: Seq,
    },
    /// Two segments are of different logs.
    OtherLog {
        /// The index of the later one.
        segment: usize,
        /// The index of the first that says which log it is of.
        other: usize,
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
    /// There is nothing: begin at this seq, 1 or the one after what a snapshot covers.
    Begin {
        /// The seq to begin with.
        next_seq: Seq,
    },
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

/// Decides over `segments`, ordered by `first_seq`, with what else is known to have been `durable`, and what a snapshot has
/// `covered`: everything up to that seq, [`Seq::ZERO`] without one.
///
/// `stray` says that there are files which were begun as segments but whose header cannot be read.
pub fn decide(segments: &[SegmentFacts], durable: Seq, stray: bool, covered: Seq) -> Verdict {
    if let Some(other) = segments.iter().position(|segment| segment.log_id != 0)
        && let Some(segment) =
            segments.iter().position(|segment| ![0, segments[other].log_id].contains(&segment.log_id))
    {
        return Verdict::Refuse(Refusal::OtherLog { segment, other });
    }
    if let Some(at) = segments.windows(2).position(|pair| pair[0].first_seq == pair[1].first_seq) {
        return Verdict::Refuse(Refusal::Duplicate { segment: at + 1 });
    }
    let durable = known_durable(segments, durable);
    let Some(first) = segments.first() else {
        let next_seq = covered.next();
        return if durable <= covered {
            Verdict::Begin { next_seq }
        } else {
            Verdict::Refuse(Refusal::Missing { seq: next_seq })
        };
    };
    if covered > Seq::ZERO && first.first_seq > covered.next() {
        return Verdict::Refuse(Refusal::SnapshotGap { first: first.first_seq });
    }
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
        if after.is_some_and(|after| after.first_seq == end && is_linked(segment, after)) {
            continue;
        }
        if durable >= next_seq {
            // Blanks before a later segment may be a lost segment or a lost part of this one; the seq is what is missing.
            return Verdict::Refuse(match after {
                Some(after) if clean && after.first_seq <= end => {
                    Refusal::Unlinked { segment: index + 1, seq: next_seq }
                }
                Some(_) if clean => Refusal::Missing { seq: next_seq },
                _ => Refusal::Damaged { segment: index, seq: next_seq },
            });
        }
        let last = Seq(next_seq.0 - 1);
        if last < covered {
            return Verdict::Refuse(Refusal::BehindSnapshot { last });
        }
        let cut = after.is_some() || !clean || stray;
        // A segment that was begun and holds nothing goes, so that the next one can begin at the same seq.
        let keep = if end == segment.first_seq { index } else { index + 1 };
        return Verdict::Adopt { keep, next_seq, cut };
    }
    unreachable!("the last segment has none after it")
}

/// Whether `after`, which begins at the seq where `before` ends, goes on from its last commit. Where that was not read, it
/// is known to have been acknowledged, and the salt has to do.
fn is_linked(before: &SegmentFacts, after: &SegmentFacts) -> bool {
    let goes_on = |scan: ScanFacts| scan.checksum == after.previous_checksum && scan.epoch <= after.epoch;
    after.previous_salt == before.salt && after.epoch >= before.epoch && before.scan.is_none_or(goes_on)
}

/// Which log segments that agree are of; 0 where none says.
pub(crate) fn log_id(segments: &[SegmentFacts]) -> u64 {
    segments.iter().map(|segment| segment.log_id).find(|&log_id| log_id != 0).unwrap_or(0)
}

/// The segments that come next where the log breaks off, as far as they were announced and their headers are nowhere.
///
/// What the seal file announces is begun right after what was there then: of no interest once the log goes on from there, as it does
/// for as long as that segment is not the last. Where there is no segment at all, that one may be what is missing.
pub fn announced(segments: &[SegmentFacts], sealed: Sealed) -> Vec<Announced> {
    let mut found = Vec::new();
    let mut is_sealed_end = segments.is_empty();
    for (index, segment) in segments.iter().enumerate() {
        let Some(scan) = segment.scan else { continue };
        let goes_on = |after: &SegmentFacts| after.first_seq == scan.next_seq && is_linked(segment, after);
        if !segments.get(index + 1).is_some_and(goes_on) {
            is_sealed_end |= scan.next_seq == sealed.durable.next();
            found.push(Announced { salt: scan.next_salt, first_seq: scan.next_seq });
        }
    }
    if is_sealed_end {
        found.push(Announced { salt: sealed.next_salt, first_seq: sealed.durable.next() });
    }
    found.retain(|next| next.salt != 0 && segments.iter().all(|segment| segment.salt != next.salt));
    found
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
    fn every_directory(mut check: impl FnMut(&[SegmentFacts], Seq, bool, Seq)) -> usize {
        let mut cases = 0;
        let ends = |first: u64| (first..=first + 2).flat_map(|next| [(next, true), (next, false)]);
        let mut each = |segments: &[SegmentFacts]| {
            for durable in 0..=7 {
                for (stray, covered) in [false, true].into_iter().flat_map(|stray| (0..=7).map(move |seq| (stray, seq)))
                {
                    cases += 1;
                    check(segments, Seq(durable), stray, Seq(covered));
                }
            }
        };
        each(&[]);
        // A journal that begins late goes on from a segment that is gone.
        let beginnings = [(1, (0, 0)), (3, (5, 5))].into_iter();
        for (first_a, link_a, (end_a, clean_a)) in
            beginnings.flat_map(|(first, link)| ends(first).map(move |end| (first, link, end)))
        {
            let a = segment(first_a, 10, link_a, Some((end_a, clean_a)));
            each(&[a]);
            for first_b in first_a..=first_a + 3 {
                for (end_b, clean_b) in ends(first_b) {
                    for link in LINKS_TO_A {
                        let b = segment(first_b, 20, link, Some((end_b, clean_b)));
                        each(&[a, b]);
                        each(&[SegmentFacts { scan: None, ..a }, b]);
                        for first_c in first_b..=first_a + 4 {
                            for link in [(20, CHECKSUM), (99, CHECKSUM), (20, 0)] {
                                each(&[a, b, segment(first_c, 30, link, Some((first_c + 1, true)))]);
                            }
                        }
                    }
                }
            }
        }
        cases
    }

    /// What every chain in these cases ends with.
    const CHECKSUM: u32 = 0xc4ec;

    /// The right link from the second segment to the first, and each part of it wrong.
    const LINKS_TO_A: [(u64, u32); 3] = [(10, CHECKSUM), (99, CHECKSUM), (10, CHECKSUM ^ 1)];

    fn segment(first: u64, salt: u64, link: (u64, u32), scan: Option<(u64, bool)>) -> SegmentFacts {
        let facts = |(next, clean)| {
            let (next_seq, durable, next_salt) = (Seq(next), Seq::ZERO, salt + 10);
            ScanFacts { next_seq, epoch: 1, checksum: CHECKSUM, durable, clean, next_salt }
        };
        let (previous_salt, previous_checksum) = link;
        let (first_seq, scan) = (Seq(first), scan.map(facts));
        SegmentFacts { first_seq, epoch: 1, salt, previous_salt, previous_checksum, log_id: 0, scan }
    }

    /// How far the log goes on without a break, told in another way than the table does.
    fn unbroken(segments: &[SegmentFacts]) -> (u64, usize) {
        let mut reached = (segments[0].first_seq.0, 0);
        for (index, segment) in segments.iter().enumerate() {
            let linked = index == 0 || {
                let before = &segments[index - 1];
                let checksum = if before.scan.is_some() { CHECKSUM } else { segment.previous_checksum };
                (before.salt, checksum) == (segment.previous_salt, segment.previous_checksum)
            };
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
        let (mut adopted, mut refused, mut unlinked, mut behind, mut gaps) = (0, 0, 0, 0, 0);
        let cases = every_directory(|segments, durable, stray, covered| {
            let verdict = decide(segments, durable, stray, covered);
            let duplicate = segments.windows(2).any(|pair| pair[0].first_seq == pair[1].first_seq);
            match verdict {
                Verdict::Refuse(Refusal::Duplicate { segment }) => {
                    assert_eq!(segments[segment].first_seq, segments[segment - 1].first_seq);
                    return;
                }
                _ => assert!(!duplicate),
            }
            if segments.is_empty() {
                let next_seq = Seq(covered.0 + 1);
                let expected = match durable.0.saturating_sub(covered.0) {
                    0 => Verdict::Begin { next_seq },
                    _ => Verdict::Refuse(Refusal::Missing { seq: next_seq }),
                };
                assert_eq!(verdict, expected);
                return;
            }
            let late = (1..segments[0].first_seq.0).any(|seq| seq > covered.0) && covered > Seq::ZERO;
            assert_eq!(
                late,
                matches!(verdict, Verdict::Refuse(Refusal::SnapshotGap { .. })),
                "{segments:?} {covered:?}"
            );
            let (end, last) = unbroken(segments);
            match verdict {
                Verdict::Begin { .. } => panic!("there are segments"),
                Verdict::Adopt { keep, next_seq, cut } => {
                    adopted += 1;
                    assert!(durable < next_seq, "acknowledged data was cut: {segments:?} {durable:?}");
                    assert_eq!(next_seq, Seq(end));
                    assert!(covered < next_seq, "the snapshot rests on what is not there");
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
                    assert!(durable >= seq && seq == Seq(end) && segments[last + 1].first_seq > seq);
                }
                Verdict::Refuse(Refusal::Unlinked { segment, seq }) => {
                    unlinked += 1;
                    assert!(durable >= seq && seq == Seq(end) && segment == last + 1);
                    assert!(segments[segment].first_seq <= seq);
                }
                Verdict::Refuse(Refusal::SnapshotGap { first }) => {
                    gaps += 1;
                    assert_eq!(first, segments[0].first_seq);
                }
                Verdict::Refuse(Refusal::BehindSnapshot { last }) => {
                    behind += 1;
                    // Damage of what was acknowledged is the worse news.
                    assert!(durable <= last && last < covered && last == Seq(end - 1));
                }
                Verdict::Refuse(Refusal::Duplicate { .. } | Refusal::OtherLog { .. }) => {
                    unreachable!("the first returned above, and no segment says of which log it is")
                }
            }
        });
        assert!(cases > 100_000 && adopted > 1_000 && refused > 1_000 && unlinked > 1_000);
        assert!(behind > 1_000 && gaps > 1_000);
    }

    #[test]
    fn identities_that_agree_change_nothing_and_one_that_differs_is_always_refused() {
        let (mut agreed, mut refused) = (0, 0);
        every_directory(|segments, durable, stray, covered| {
            // The other tests go through those; this looks at each shape with its marks once.
            if durable.0 % 3 != 0 || covered.0 % 3 != 0 {
                return;
            }
            let of = |ids: [u64; 3]| -> Vec<_> {
                segments.iter().zip(ids).map(|(&segment, log_id)| SegmentFacts { log_id, ..segment }).collect()
            };
            let without = decide(segments, durable, stray, covered);
            for ids in [[7, 7, 7], [0, 7, 7], [7, 0, 7], [0, 0, 7]] {
                agreed += 1;
                assert_eq!(decide(&of(ids), durable, stray, covered), without);
            }
            for (ids, segment, other) in [([7, 8, 7], 1, 0), ([7, 7, 8], 2, 0), ([7, 0, 8], 2, 0), ([0, 7, 8], 2, 1)] {
                if segment < segments.len() {
                    refused += 1;
                    let expected = Verdict::Refuse(Refusal::OtherLog { segment, other });
                    assert_eq!(decide(&of(ids), durable, stray, covered), expected);
                }
            }
        });
        assert!(agreed > 10_000 && refused > 10_000);
    }

    #[test]
    fn evidence_in_a_later_segment_forbids_to_cut_an_earlier_one() {
        let mut b = segment(4, 20, (10, CHECKSUM), Some((6, true)));
        let a = segment(1, 10, (0, 0), Some((3, false)));
        assert_eq!(decide(&[a, b], Seq(0), false, Seq::ZERO), Verdict::Adopt { keep: 1, next_seq: Seq(3), cut: true });
        b.scan = b.scan.map(|scan| ScanFacts { durable: Seq(3), ..scan });
        assert_eq!(
            decide(&[a, b], Seq(0), false, Seq::ZERO),
            Verdict::Refuse(Refusal::Damaged { segment: 0, seq: Seq(3) })
        );
    }

    #[test]
    fn an_epoch_that_falls_breaks_the_link() {
        let mut a = segment(1, 10, (0, 0), Some((3, true)));
        let mut b = segment(3, 20, (10, CHECKSUM), Some((5, true)));
        assert_eq!(decide(&[a, b], Seq(4), false, Seq::ZERO), Verdict::Adopt { keep: 2, next_seq: Seq(5), cut: false });
        a.scan.as_mut().unwrap().epoch = 2;
        let refused = Verdict::Refuse(Refusal::Unlinked { segment: 1, seq: Seq(3) });
        assert_eq!(decide(&[a, b], Seq(4), false, Seq::ZERO), refused);
        assert_eq!(decide(&[a, b], Seq(2), false, Seq::ZERO), Verdict::Adopt { keep: 1, next_seq: Seq(3), cut: true });
        b.epoch = 2;
        assert_eq!(decide(&[a, b], Seq(4), false, Seq::ZERO), Verdict::Adopt { keep: 2, next_seq: Seq(5), cut: false });
        (a.scan, a.epoch) = (None, 3);
        assert_eq!(decide(&[a, b], Seq(4), false, Seq::ZERO), refused);
    }

    #[test]
    fn version_1_synced_before_it_rolled() {
        let (a, b) = (segment(1, 0, (0, 0), Some((3, false))), segment(4, 0, (0, 0), Some((6, false))));
        assert_eq!(
            decide(&[a, b], Seq(0), false, Seq::ZERO),
            Verdict::Refuse(Refusal::Damaged { segment: 0, seq: Seq(3) })
        );
        assert_eq!(decide(&[b], Seq(0), false, Seq::ZERO), Verdict::Adopt { keep: 1, next_seq: Seq(6), cut: true });
    }

    #[test]
    fn a_segment_is_looked_for_just_where_the_log_ends_and_nothing_has_its_salt() {
        const SEALED: u64 = 77;
        let (mut by_chain, mut by_seal, mut there) = (0, 0, 0);
        every_directory(|segments, durable, stray, covered| {
            // What else a directory is has no part in it.
            if stray || covered > Seq::ZERO {
                return;
            }
            let found = announced(segments, Sealed { durable, next_salt: SEALED });
            let has_header = |salt: u64| segments.iter().any(|segment| segment.salt == salt);
            assert!(found.iter().all(|next| next.salt != 0 && !has_header(next.salt)));
            let end = if segments.is_empty() { None } else { Some(unbroken(segments)) };
            let is_sealed = found.iter().any(|next| next.salt == SEALED && next.first_seq == durable.next());
            match end {
                None => assert_eq!(found.len(), 1, "only the seal file may tell of a segment"),
                Some((end, last)) => {
                    let (salt, first_seq) = (segments[last].salt + 10, Seq(end));
                    let scanned = segments[last].scan.is_some();
                    let is_there = found.contains(&Announced { salt, first_seq });
                    assert_eq!(is_there, scanned && !has_header(salt), "{segments:?}: {found:?}");
                    by_chain += usize::from(is_there);
                    there += usize::from(scanned && has_header(salt));
                    if scanned && durable == Seq(end - 1) {
                        assert!(is_sealed, "{segments:?}: {found:?}");
                    }
                }
            }
            by_seal += usize::from(is_sealed);
            // A log from before there were announcements, and a seal file of such.
            let silent = |&segment: &SegmentFacts| {
                let scan = segment.scan.map(|scan| ScanFacts { next_salt: 0, ..scan });
                SegmentFacts { scan, ..segment }
            };
            let segments: Vec<_> = segments.iter().map(silent).collect();
            assert_eq!(announced(&segments, Sealed { durable, next_salt: 0 }), []);
        });
        assert!(by_chain > 1_000 && by_seal > 1_000 && there > 1_000, "{by_chain} {by_seal} {there}");
    }

    #[test]
    fn what_the_seal_file_announces_is_found_by_its_header_or_looked_for() {
        let (a, sealed) = (segment(1, 10, (0, 0), Some((3, true))), Sealed { durable: Seq(2), next_salt: 30 });
        let by_chain = Announced { salt: 20, first_seq: Seq(3) };
        let by_seal = Announced { salt: 30, first_seq: Seq(3) };
        assert_eq!(announced(&[a], sealed), [by_chain, by_seal]);
        // The segment that it announced is there, and the log goes on from it.
        let b = segment(3, 30, (10, CHECKSUM), Some((5, true)));
        assert_eq!(announced(&[a, b], sealed), [Announced { salt: 40, first_seq: Seq(5) }]);
        // It was taken away meanwhile.
        let c = segment(5, 40, (30, CHECKSUM), Some((7, true)));
        assert_eq!(announced(&[c], sealed), [Announced { salt: 50, first_seq: Seq(7) }]);
        // Nothing else is there, whatever a snapshot covers.
        assert_eq!(announced(&[], sealed), [by_seal]);
    }
}
