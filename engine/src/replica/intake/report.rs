//! How an intake shows where it stands.

use ticktape_core::Nanos;
use ticktape_nic::{Rx, Tx};

use super::{Intake, Phase, UNLED_NS, is_led};
use crate::feed::CommitDrop;
use crate::replica::bulk::Bulk;
use crate::replica::door::Refusal;
use crate::replica::status::{Figure, ReplicaState};

/// A replica is live while its state is no further behind what is committed than this: a few milliseconds' work.
pub const LIVE_WITHIN_FRAMES: u64 = 16 << 10;

/// One that is live is applying only when it falls behind by more than this, so that a burst is no change of state.
const FALLS_BEHIND_FRAMES: u64 = 4 * LIVE_WITHIN_FRAMES;

impl<R: Rx, T: Tx, B: Bulk> Intake<R, T, B> {
    /// Shows where it stands. Every millisecond or so.
    pub fn housekeeping(&mut self, now: Nanos) {
        self.door.heartbeat(now);
        let state = self.state(now);
        self.board.set_state(state);
        self.look_over_words(now, matches!(state, ReplicaState::Live | ReplicaState::Applying));
        let lower = self.lower.leader(now, self.arbiter.session().epoch());
        self.words.lower(lower);
        let counters = self.arbiter.counters();
        let duplicates: u64 = counters.sides.iter().map(|side| side.duplicates).sum();
        let refused = self.door.refusals().iter().sum::<u64>() + counters.not_verified + counters.oversized;
        for (figure, value) in [
            (Figure::Epoch, self.door.epoch()),
            (Figure::Received, self.door.next_seq().0 - 1),
            (Figure::Durable, self.watermarks.durable().0),
            (Figure::LeaderCommit, self.tracker.word().map_or(0, |(_, commit)| commit.0)),
            (Figure::FeedFrames, self.feed_frames),
            (Figure::BulkFrames, self.bulk_frames),
            (Figure::Requests, counters.repair.requests),
            (Figure::Duplicates, duplicates),
            (Figure::Gaps, counters.repair.gaps),
            (Figure::GivenUp, counters.repair.given_up),
            (Figure::Refused, refused),
            (Figure::Unfounded, self.claims.unfounded() + self.epoch_claims.unfounded()),
            (Figure::LowerEpoch, lower.map_or(0, |leader| leader.epoch().into())),
        ] {
            self.board.set(figure, value);
        }
    }

    pub(super) fn state(&mut self, now: Nanos) -> ReplicaState {
        // Numbers of which nothing is here may be those of a copy of this log that is led beside it: it has been asked about.
        let is_repairing = self.arbiter.known_next() > self.arbiter.next_seq()
            && (self.arbiter.held() > 0 || self.other_log.led_elsewhere(now).is_none());
        let phase = if self.is_fed(now) && !is_repairing { Phase::Feed } else { self.phase };
        // What is here counts, too: right after a transfer nobody may have said yet what of it is committed.
        let known = self.committed.get().max(self.last()).min(self.last_wanted);
        let behind = known.0.saturating_sub(self.board.get(Figure::Applied));
        // Whoever goes over to the feed has yet to come close.
        self.is_applying = match phase {
            Phase::Feed if !self.is_applying => behind > FALLS_BEHIND_FRAMES,
            Phase::Feed => behind > LIVE_WITHIN_FRAMES,
            Phase::Bulk | Phase::Pause { .. } => true,
        };
        match phase {
            Phase::Bulk | Phase::Pause { .. } => self.shown,
            Phase::Feed if self.silent => ReplicaState::Silent,
            Phase::Feed if is_repairing => ReplicaState::Repairing,
            Phase::Feed if self.shown == ReplicaState::AwaitingCommit => ReplicaState::AwaitingCommit,
            Phase::Feed if self.is_applying => ReplicaState::Applying,
            Phase::Feed => ReplicaState::Live,
        }
    }

    /// Whether the feed brings all that its leader has committed, whoever is asked for whatever beside that.
    fn is_fed(&mut self, now: Nanos) -> bool {
        if self.heard_commit() <= self.last() {
            self.level_at = Some(now);
        }
        // The leader's word may come before its frames.
        let is_level = self.level_at.is_some_and(|at| now < at.saturating_add(UNLED_NS));
        self.joined && !self.silent && !self.refused && is_level && is_led(&self.tracker, self.ended_at, now)
    }

    /// Everything that was counted, by name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut rows = Vec::new();
        self.tell_counters(&mut |name, count| rows.push((name, count)));
        rows
    }

    /// The same to whoever wants it, in the same order at any time; allocates nothing.
    pub fn tell_counters(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        let counters = self.arbiter.counters();
        let [a, b, repair] = counters.sides;
        let commits = self.tracker.counters();
        let dropped = |of: fn(&CommitDrop) -> bool| {
            CommitDrop::all().zip(&commits.drops).filter(|(drop, _)| of(drop)).map(|(_, count)| count).sum::<u64>()
        };
        let rows = [
            ("feed_frames", self.feed_frames),
            ("bulk_frames", self.bulk_frames),
            ("datagrams_of_strangers", self.foreign_datagrams),
            ("repairs_of_unnamed_logs", self.unnamed),
            ("feed_a_packets", a.packets),
            ("feed_a_first", a.first),
            ("feed_a_lost", a.lost),
            ("feed_b_packets", b.packets),
            ("feed_b_first", b.first),
            ("feed_b_lost", b.lost),
            ("repaired", repair.first),
            ("feed_malformed", counters.malformed.iter().sum()),
            ("feed_foreign", counters.foreign),
            ("feed_old_epoch", counters.old_epoch),
            ("feed_new_epoch", counters.new_epoch),
            ("feed_beyond_window", counters.beyond_window),
            ("feed_oversized", counters.oversized),
            ("feed_not_verified", counters.not_verified),
            ("gaps", counters.repair.gaps),
            ("repair_requests", counters.repair.requests),
            ("repair_timeouts", counters.repair.timeouts),
            ("repairs_given_up", counters.repair.given_up),
            ("claims_unfounded", self.claims.unfounded() + self.epoch_claims.unfounded()),
            ("commits_heard", commits.commits),
            ("commits_malformed", dropped(|drop| matches!(drop, CommitDrop::Malformed(_)))),
            (
                "commits_foreign",
                dropped(|drop| {
                    use CommitDrop::{ForeignLog, ForeignStream, OtherHistory};
                    matches!(drop, ForeignStream | ForeignLog { .. } | OtherHistory { .. })
                }),
            ),
            ("commits_of_parted_peers", self.other_log.parted_words()),
            ("commits_stale", dropped(|drop| matches!(drop, CommitDrop::StaleEpoch | CommitDrop::Stale { .. }))),
        ];
        let refusals = Refusal::NAMES.into_iter().zip(self.door.refusals().iter().copied());
        rows.into_iter().chain(refusals).for_each(|(name, count)| tell(name, count));
    }
}
