//! Reporter and tracker: who is told what, when, and what is believed.

use std::net::{Ipv4Addr, SocketAddrV4};

use proptest::prelude::*;
use ticktape_core::{Nanos, Seq};

use super::status::{COMMIT_BYTES, Commit, STATUS_BYTES, Status, StatusError};
use super::status_reporter::{Reporter, ReporterConfig, StatusDrop};
use super::status_tracker::{CommitDrop, CommitTracker, TakenBack, TrackerConfig};
use crate::payload::Reign;

const MS: Nanos = 1_000_000;
const LOG_ID: u64 = 5;
/// The reign here.
const HERE: Reign = reign_of(3);
const STATUS: Status =
    Status { stream: 1, reign: HERE, log_id: LOG_ID, replica: 7, number: 5, durable: Seq(9), applied: Seq(8) };

/// The reign of an epoch of this history.
const fn reign_of(epoch: u64) -> Reign {
    Reign { epoch, id: epoch * 10 }
}

fn at(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

fn reporter(replicas_max: usize) -> Reporter {
    Reporter::new(&ReporterConfig { replicas_max, log_id: LOG_ID, ..ReporterConfig::new(1, HERE) })
}

fn tracker() -> CommitTracker {
    CommitTracker::new(&TrackerConfig { reign: HERE, log_id: LOG_ID, ..TrackerConfig::new(1, 7, 1) })
}

fn commit(epoch: u64, commit: u64) -> [u8; COMMIT_BYTES] {
    Commit { stream: 1, reign: reign_of(epoch), log_id: LOG_ID, age_ms: 0, commit: Seq(commit) }.encode()
}

/// All that is told now.
fn told(reporter: &mut Reporter, now: Nanos) -> Vec<(u16, u64)> {
    std::iter::from_fn(|| reporter.poll_transmit(now))
        .map(|(to, word)| (to.port(), Commit::decode(&word).unwrap().commit.0))
        .collect()
}

#[test]
fn a_moved_commit_is_told_at_once_then_coalesced_and_a_still_one_now_and_then() {
    let mut reporter = reporter(4);
    assert_eq!((reporter.poll_timeout(), reporter.poll_transmit(0)), (None, None), "nobody is there");
    reporter.on_status(MS, at(1), &STATUS.encode()).unwrap();
    assert_eq!(told(&mut reporter, MS), [(1, 0)], "who has just come is told at once");
    reporter.set_commit(Seq(5));
    assert_eq!(reporter.poll_timeout(), Some(MS + 100_000));
    assert_eq!(told(&mut reporter, MS + 99_999), []);
    reporter.set_commit(Seq(6));
    assert_eq!(told(&mut reporter, MS + 100_000), [(1, 6)]);
    assert_eq!(told(&mut reporter, 21 * MS), []);
    assert_eq!(told(&mut reporter, 21 * MS + 100_000), [(1, 6)], "a heartbeat");
    reporter.set_commit(Seq(7));
    assert_eq!(told(&mut reporter, 30 * MS), [(1, 7)]);
    assert_eq!(reporter.counters().commits, 4);
}

#[test]
fn the_table_is_bounded_and_who_is_silent_leaves_it() {
    let mut reporter = reporter(2);
    let status = |replica| Status { replica, ..STATUS }.encode();
    for replica in [1, 2] {
        reporter.on_status(0, at(replica as u16), &status(replica)).unwrap();
    }
    assert_eq!(reporter.on_status(0, at(3), &status(3)), Err(StatusDrop::TooMany));
    reporter.on_status(2000 * MS, at(2), &Status { replica: 2, number: 6, ..STATUS }.encode()).unwrap();
    assert_eq!(told(&mut reporter, 3000 * MS), [(2, 0)], "the first is forgotten");
    assert_eq!((reporter.followed().len(), reporter.counters().silent), (1, 1));
    reporter.on_status(3000 * MS, at(3), &status(3)).unwrap();
    assert_eq!(told(&mut reporter, 3000 * MS), [(3, 0)]);
}

#[test]
fn a_replica_is_known_by_its_number_wherever_it_sends_from() {
    let mut reporter = reporter(2);
    reporter.on_status(0, at(1), &STATUS.encode()).unwrap();
    assert_eq!(told(&mut reporter, 0), [(1, 0)]);
    let moved = Status { number: 6, durable: Seq(11), ..STATUS };
    reporter.on_status(100 * MS, at(2), &moved.encode()).unwrap();
    assert_eq!((reporter.followed().len(), reporter.followed()[0].status), (1, moved));
    assert_eq!(told(&mut reporter, 100 * MS), [(2, 0)], "nobody there was told anything");
    assert_eq!(reporter.twins(), None);
}

#[test]
fn of_two_replicas_of_one_number_both_are_told_one_is_followed_and_the_two_are_named() {
    let mut reporter = reporter(2);
    reporter.set_commit(Seq(4));
    let mut both_told = [0, 0];
    for beat in 1..=50 {
        let now = beat * 20 * MS;
        // Whichever of them has the higher numbers.
        for (port, number) in [(1, beat), (2, 1_000 + beat)] {
            let taken = reporter.on_status(now, at(port), &Status { number, ..STATUS }.encode());
            assert_eq!(taken.is_err(), port == 2, "{taken:?}");
        }
        told(&mut reporter, now).iter().for_each(|&(port, _)| both_told[usize::from(port) - 1] += 1);
        assert_eq!(reporter.twins().is_some(), beat > 6, "{beat}");
    }
    assert_eq!((both_told, reporter.followed().len()), ([50, 50], 1));
    assert_eq!(reporter.counters().drops[StatusDrop::Twin.index()], 50);
    let word = reporter.twins().unwrap().to_string();
    assert!(word.contains(&format!("at {} and at {}", at(1), at(2))), "{word}");
    // The first has gone: the other one is followed.
    reporter.on_status(1_100 * MS, at(2), &Status { number: 2_000, ..STATUS }.encode()).unwrap();
    assert_eq!(reporter.followed()[0].address, at(2));
}

#[test]
fn statuses_that_are_not_for_this_leader_are_counted_by_reason() {
    let mut reporter = reporter(2);
    reporter.on_status(0, at(1), &STATUS.encode()).unwrap();
    let dropped = |reporter: &mut Reporter, status: Status| reporter.on_status(0, at(1), &status.encode()).unwrap_err();
    assert_eq!(dropped(&mut reporter, STATUS), StatusDrop::Stale, "once more");
    assert_eq!(dropped(&mut reporter, Status { number: 4, ..STATUS }), StatusDrop::Stale);
    assert_eq!(dropped(&mut reporter, Status { stream: 2, number: 6, ..STATUS }), StatusDrop::ForeignStream);
    assert_eq!(reporter.superseded_by(), None);
    assert_eq!(dropped(&mut reporter, Status { reign: reign_of(5), number: 6, ..STATUS }), StatusDrop::HigherEpoch);
    assert_eq!(dropped(&mut reporter, Status { reign: reign_of(4), number: 6, ..STATUS }), StatusDrop::HigherEpoch);
    assert_eq!(reporter.superseded_by(), Some(5));
    let malformed = reporter.on_status(0, at(1), &[0; 56]).unwrap_err();
    assert_eq!(malformed, StatusDrop::Malformed(StatusError::Magic));
    let counters = reporter.counters();
    assert_eq!((counters.statuses, counters.drops.iter().sum::<u64>()), (1, 6));
    assert_eq!(counters.drops[StatusDrop::Stale.index()], 2);
    assert!(StatusDrop::all().enumerate().all(|(index, reason)| reason.index() == index));
    assert_eq!(StatusDrop::all().count(), StatusDrop::COUNT);
    assert!(CommitDrop::all().enumerate().all(|(index, reason)| reason.index() == index));
    assert_eq!(CommitDrop::all().count(), CommitDrop::COUNT);
}

#[test]
fn committed_is_the_lesser_of_the_word_and_what_is_there() {
    let mut tracker = tracker();
    tracker.set_verified(MS, Seq(10));
    assert_eq!(tracker.committed(), Seq(0), "nobody has said so");
    tracker.on_commit(0, &commit(3, 7)).unwrap();
    assert_eq!(tracker.committed(), Seq(7));
    tracker.on_commit(0, &commit(3, 20)).unwrap();
    assert_eq!(tracker.committed(), Seq(10));
    assert_eq!(tracker.on_commit(0, &commit(3, 19)), Err(CommitDrop::Stale { epoch: 3 }));
    tracker.set_verified(MS, Seq(15));
    assert_eq!(tracker.committed(), Seq(15));
    assert_eq!(tracker.on_commit(0, &commit(2, 99)), Err(CommitDrop::StaleEpoch));
    let foreign = Commit { stream: 2, reign: HERE, log_id: LOG_ID, age_ms: 0, commit: Seq(99) }.encode();
    assert_eq!(tracker.on_commit(0, &foreign), Err(CommitDrop::ForeignStream));
    assert_eq!(tracker.on_commit(0, &foreign[1..]), Err(CommitDrop::Malformed(StatusError::Magic)));
    assert_eq!((tracker.counters().commits, tracker.counters().drops.iter().sum::<u64>()), (2, 4));
}

#[test]
fn a_leader_of_another_log_is_told_apart_at_both_ends_whatever_its_epoch() {
    let (mut reporter, mut tracker) = (reporter(2), tracker());
    tracker.set_verified(0, Seq(10));
    for epoch in [1, 3, 9] {
        let other = Commit { stream: 1, reign: Reign::unnamed(epoch), log_id: 6, age_ms: 0, commit: Seq(9) };
        assert_eq!(tracker.on_commit(0, &other.encode()), Err(CommitDrop::ForeignLog { log_id: 6 }));
    }
    assert_eq!((tracker.committed(), tracker.word()), (Seq(0), None));
    let unnamed = Commit { stream: 1, reign: HERE, log_id: 0, age_ms: 0, commit: Seq(9) };
    assert_eq!(tracker.on_commit(0, &unnamed.encode()), Ok(unnamed), "a log without an identity may be any");

    reporter.set_commit(Seq(4));
    for epoch in [1, 9] {
        let stranger = Status { log_id: 6, reign: Reign::unnamed(epoch), replica: 8, ..STATUS };
        assert_eq!(reporter.on_status(0, at(2), &stranger.encode()), Err(StatusDrop::ForeignLog));
        assert_eq!(reporter.poll_timeout(), Some(0));
        assert_eq!(told(&mut reporter, 0), [(2, 4)], "it has to hear of it: once for each Status");
    }
    assert_eq!((reporter.followed().len(), reporter.superseded_by(), reporter.poll_timeout()), (0, None, None));
}

#[test]
fn another_history_of_the_log_is_told_apart_at_both_ends() {
    let (mut reporter, mut tracker) = (reporter(2), tracker());
    tracker.set_verified(0, Seq(10));
    let copy = Reign { epoch: 3, id: 31 };
    let word = |reign, commit| Commit { stream: 1, reign, log_id: LOG_ID, age_ms: 0, commit: Seq(commit) };
    let other = CommitDrop::OtherHistory { reign: copy };
    assert_eq!(tracker.on_commit(0, &word(copy, 9).encode()), Err(other));
    assert_eq!(tracker.on_log_word(0, copy, Seq(9)), Err(other));
    assert_eq!((tracker.committed(), tracker.word(), tracker.leader_spoke_at()), (Seq(0), None, None));
    let unknown = word(Reign::unnamed(3), 4);
    assert_eq!(tracker.on_commit(0, &unknown.encode()), Ok(unknown), "a reign that is not told may be any");

    reporter.set_commit(Seq(4));
    let stranger = Status { reign: copy, replica: 8, ..STATUS };
    assert_eq!(reporter.on_status(0, at(2), &stranger.encode()), Err(StatusDrop::OtherHistory));
    assert_eq!(told(&mut reporter, 0), [(2, 4)], "it has to hear of it");
    reporter.on_status(0, at(3), &Status { reign: Reign::unnamed(3), ..STATUS }.encode()).unwrap();
    assert_eq!((reporter.followed().len(), reporter.superseded_by()), (1, None));
}

#[test]
fn the_word_of_a_reign_to_come_counts_for_that_one_alone() {
    let mut tracker = tracker();
    tracker.set_verified(0, Seq(10));
    let of = |id, commit| {
        let reign = Reign { epoch: 4, id };
        Commit { stream: 1, reign, log_id: LOG_ID, age_ms: 0, commit: Seq(commit) }.encode()
    };
    tracker.on_commit(0, &of(41, 30)).unwrap();
    // Two copies of the log have come to the epoch: what one has committed says nothing of the other.
    tracker.on_commit(0, &of(40, 9)).unwrap();
    tracker.on_commit(0, &of(41, 30)).unwrap();
    assert_eq!(tracker.adopt(reign_of(4), Seq(11)), Ok(()));
    tracker.set_verified(0, Seq(20));
    assert_eq!((tracker.committed(), tracker.word()), (Seq(0), None));
    tracker.on_commit(0, &of(40, 12)).unwrap();
    assert_eq!(tracker.committed(), Seq(12));
}

#[test]
fn a_word_does_not_cover_what_comes_long_after_it() {
    let mut tracker = tracker();
    tracker.set_verified(0, Seq(10));
    tracker.on_commit(0, &commit(3, 20)).unwrap();
    tracker.set_verified(50 * MS, Seq(12));
    assert_eq!(tracker.committed(), Seq(12), "of the same leader: it would have been noticed");
    // A peer that has less says that it is there; the leader's own word is none the younger for it.
    assert_eq!(tracker.on_commit(60 * MS, &commit(3, 5)), Err(CommitDrop::Stale { epoch: 3 }));
    tracker.set_verified(70 * MS, Seq(15));
    assert_eq!(tracker.committed(), Seq(12));
    tracker.on_commit(71 * MS, &commit(3, 20)).unwrap();
    assert_eq!(tracker.committed(), Seq(15));
}

#[test]
fn the_word_of_a_new_reign_counts_once_the_log_has_come_to_it() {
    let mut tracker = tracker();
    tracker.set_verified(MS, Seq(10));
    tracker.on_commit(0, &commit(3, 5)).unwrap();
    tracker.on_commit(0, &commit(4, 30)).unwrap();
    assert_eq!((tracker.committed(), tracker.word()), (Seq(5), Some((4, Seq(30)))));
    assert_eq!(tracker.on_commit(0, &commit(3, 9)), Err(CommitDrop::StaleEpoch), "that reign is over");
    // The new reign begins at 8: what this log held from there on was not committed.
    assert_eq!(tracker.adopt(reign_of(4), Seq(8)), Ok(()));
    assert_eq!(tracker.committed(), Seq(7));
    tracker.set_verified(MS, Seq(12));
    assert_eq!(tracker.committed(), Seq(12));
}

#[test]
fn a_reign_that_was_only_ever_heard_of_once_is_forgotten() {
    let mut tracker = tracker();
    tracker.set_verified(MS, Seq(10));
    tracker.on_commit(0, &commit(9, 30)).unwrap();
    assert_eq!(tracker.on_commit(999 * MS, &commit(3, 5)), Err(CommitDrop::StaleEpoch));
    tracker.on_commit(1000 * MS, &commit(3, 5)).unwrap();
    assert_eq!(tracker.committed(), Seq(5));
}

#[test]
fn a_reign_that_takes_back_what_was_committed_is_an_error() {
    let mut tracker = tracker();
    tracker.set_verified(MS, Seq(10));
    tracker.set_applied(Seq(9));
    tracker.on_commit(0, &commit(3, 10)).unwrap();
    assert_eq!(tracker.adopt(reign_of(4), Seq(6)), Err(TakenBack { from: Seq(6), committed: Seq(10) }));
    assert_eq!(tracker.committed(), Seq(5));
}

#[test]
fn statuses_go_out_when_something_moved_and_now_and_then() {
    let mut before = CommitTracker::new(&TrackerConfig::new(1, 7, 1));
    assert_eq!((before.poll_timeout(), before.poll_transmit(MS)), (None, None), "it has no log yet");
    let mut tracker = tracker();
    let sent =
        |tracker: &mut CommitTracker, now| tracker.poll_transmit(now).map(|status| Status::decode(&status).unwrap());
    let first = sent(&mut tracker, MS).unwrap();
    assert_eq!(
        first,
        Status { stream: 1, reign: HERE, log_id: LOG_ID, replica: 7, number: 1, durable: Seq(0), applied: Seq(0) }
    );
    assert_eq!(sent(&mut tracker, MS), None);
    tracker.set_durable(Seq(4));
    assert_eq!(tracker.poll_timeout(), Some(MS + 100_000));
    assert_eq!(sent(&mut tracker, MS + 100_000), Some(Status { number: 2, durable: Seq(4), ..first }));
    assert_eq!(sent(&mut tracker, 21 * MS), None);
    assert_eq!(sent(&mut tracker, 22 * MS), Some(Status { number: 3, durable: Seq(4), ..first }), "a heartbeat");
}

#[test]
fn a_silent_leader_is_noticed() {
    let mut tracker = tracker();
    assert_eq!(tracker.leader_silent(5 * MS), None);
    assert_eq!(tracker.leader_silent(1005 * MS), Some(1000 * MS));
    tracker.on_commit(1006 * MS, &commit(3, 1)).unwrap();
    assert_eq!(tracker.leader_silent(1007 * MS), None);
    assert_eq!(tracker.leader_silent(2006 * MS), Some(1000 * MS));
}

proptest! {
    #[test]
    fn over_a_network_that_loses_repeats_and_reorders_nothing_is_committed_too_early(
        steps in prop::collection::vec((0u8..6, 1u64..30, any::<prop::sample::Index>()), 1..200)
    ) {
        let (mut reporter, mut tracker) = (reporter(2), tracker());
        let (mut now, mut sequenced, mut committed, mut verified) = (MS, 0, 0, 0);
        let (mut up, mut down): (Vec<[u8; STATUS_BYTES]>, Vec<[u8; COMMIT_BYTES]>) = (vec![], vec![]);
        for (step, amount, pick) in steps {
            now += amount * 10_000;
            match step {
                0 => sequenced += amount,
                1 => {
                    committed = sequenced.min(committed + amount);
                    reporter.set_commit(Seq(committed));
                }
                2 => {
                    verified = sequenced.min(verified + amount);
                    tracker.set_verified(MS, Seq(verified));
                    tracker.set_durable(Seq(verified));
                }
                3 if !up.is_empty() => {
                    let status = up[pick.index(up.len())];
                    let _ = reporter.on_status(now, at(1), &status);
                }
                4 if !down.is_empty() => {
                    let word = down[pick.index(down.len())];
                    let _ = tracker.on_commit(now, &word);
                }
                _ => {
                    up.extend(tracker.poll_transmit(now));
                    down.extend(std::iter::from_fn(|| reporter.poll_transmit(now)).map(|(_, word)| word));
                }
            }
            prop_assert!(tracker.committed().0 <= committed.min(verified));
            prop_assert!(reporter.followed().iter().all(|known| known.status.durable.0 <= verified));
        }
        // Once nothing is lost any more, both know.
        now += 100 * MS;
        let status = tracker.poll_transmit(now).unwrap();
        reporter.on_status(now, at(1), &status).unwrap();
        let (_, word) = reporter.poll_transmit(now).unwrap();
        tracker.on_commit(now, &word).unwrap();
        prop_assert_eq!(tracker.committed().0, committed.min(verified));
    }
}
