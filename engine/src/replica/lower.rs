//! Who leads in a lower epoch on our feed, beside the one that is followed here.
//!
//! Packets of a lower epoch are of no use here, and some come in any failover: the last ones of the leader before, those of a slower path, the end
//! of its session. A leader that was replaced and lives on, or a copy of the journal that was started, goes on to send them, though, for as long as
//! it is there, and acknowledges to its clients what this log never gets. So they are told where they come for a while, long after our epoch began.
//!
//! A packet proves no sender. What a forged one can bring about is this word, where several come over some time, and no more: nothing is asked, let
//! in or given up on the strength of it.

use std::fmt;
use std::net::SocketAddrV4;

use ticktape_core::Nanos;

use crate::feed::{FeedSession, HEARTBEAT_NS, MoldPacket};

/// What comes so soon after our epoch began is what was still on its way, in ns.
const SETTLED_NS: u64 = 3_000_000_000;

/// Packets that come closer together than this count as one, in ns.
const BEAT_NS: u64 = 500_000_000;

/// So many have to come, each no more than [`LAPSE_NS`] after the one before. A leader with nothing to say sends one a second.
const BEATS_MIN: u32 = 4;

/// Whoever was not heard for so long is gone, in ns: several heartbeats of a leader.
const LAPSE_NS: u64 = 4_000_000_000;

const _: () = assert!(LAPSE_NS > 3 * HEARTBEAT_NS);

/// A leader in a lower epoch than the one that the log is in here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LowerLeader {
    epoch: u32,
    /// Where the first of its packets came from.
    from: SocketAddrV4,
    ours: u32,
}

impl LowerLeader {
    /// One that sends `epoch` from there, where `ours` is followed.
    pub(super) const fn new(epoch: u32, from: SocketAddrV4, ours: u32) -> Self {
        LowerLeader { epoch, from, ours }
    }

    /// The epoch in which it leads.
    pub(super) const fn epoch(&self) -> u32 {
        self.epoch
    }
}

impl fmt::Display for LowerLeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LowerLeader { epoch, from, ours } = self;
        write!(
            f,
            "{from} goes on to send epoch {epoch} on this feed, beside epoch {ours}, which the log here is in: a leader that was replaced, or one with \
             another journal, acknowledges what is not in this log: stop one of the two (replay --diff tells where their journals part)"
        )
    }
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    leader: LowerLeader,
    beats: u32,
    beat_at: Nanos,
    at: Nanos,
}

/// What was heard of lower epochs. See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LowerEpoch {
    /// The epoch that is listened to, and since when.
    ours: Option<(u32, Nanos)>,
    heard: Option<Heard>,
}

impl LowerEpoch {
    /// A packet of the feed, of a lower epoch than `ours`.
    #[cold]
    pub(super) fn on_packet(&mut self, now: Nanos, ours: u32, from: SocketAddrV4, packet: &[u8]) {
        self.listen(now, ours);
        let is_settled = self.ours.is_some_and(|(_, since)| now >= since.saturating_add(SETTLED_NS));
        // Whoever says that its session is over leads no more. No reign has epoch 0.
        let (Ok(MoldPacket::Messages { session, .. } | MoldPacket::Heartbeat { session, .. }), true) =
            (MoldPacket::parse(packet), is_settled)
        else {
            return;
        };
        let Some(epoch) = FeedSession::parse(session).ok().map(FeedSession::epoch).filter(|&epoch| epoch > 0) else {
            return;
        };
        match self.heard.as_mut().filter(|heard| !heard.is_gone(now)) {
            Some(heard) if heard.leader.epoch == epoch => {
                heard.at = now;
                if now >= heard.beat_at.saturating_add(BEAT_NS) {
                    (heard.beats, heard.beat_at) = (heard.beats.saturating_add(1), now);
                }
            }
            // One at a time: a second one is heard once the first has gone.
            Some(_) => {}
            None => {
                let leader = LowerLeader::new(epoch, from, ours);
                self.heard = Some(Heard { leader, beats: 1, beat_at: now, at: now });
            }
        }
    }

    /// Who leads in a lower epoch than `ours`, which is listened to now.
    pub(super) fn leader(&mut self, now: Nanos, ours: u32) -> Option<LowerLeader> {
        self.listen(now, ours);
        self.heard = self.heard.filter(|heard| !heard.is_gone(now));
        self.heard.filter(|heard| heard.beats >= BEATS_MIN).map(|heard| heard.leader)
    }

    fn listen(&mut self, now: Nanos, ours: u32) {
        if self.ours.is_none_or(|(epoch, _)| epoch != ours) {
            (self.ours, self.heard) = (Some((ours, now)), None);
        }
    }
}

impl Heard {
    fn is_gone(&self, now: Nanos) -> bool {
        now >= self.at.saturating_add(LAPSE_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::Packer;

    const MS: Nanos = 1_000_000;
    const OURS: u32 = 5;
    /// When ours began.
    const T: Nanos = 1_000_000 * MS;
    const SETTLED: Nanos = T + SETTLED_NS;

    fn peer(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new([10, 0, 0, 1].into(), port)
    }

    fn packer(epoch: u32) -> Packer {
        Packer::new(FeedSession::new(7, epoch).unwrap().encode(), 9, 1_000)
    }

    /// One that has just begun to listen to ours.
    fn lower() -> LowerEpoch {
        let mut lower = LowerEpoch::default();
        assert_eq!(lower.leader(T, OURS), None);
        lower
    }

    fn beat(lower: &mut LowerEpoch, now: Nanos, epoch: u32) {
        lower.on_packet(now, OURS, peer(epoch as u16), packer(epoch).packet());
    }

    fn epoch_of(lower: &mut LowerEpoch, now: Nanos) -> Option<u32> {
        lower.leader(now, OURS).map(|leader| leader.epoch)
    }

    #[test]
    fn a_leader_of_a_lower_epoch_is_told_as_long_as_it_goes_on_with_heartbeats_or_messages() {
        for has_messages in [false, true] {
            let mut lower = lower();
            let mut told = Vec::new();
            for second in 0..60 {
                let now = T + second * 1_000 * MS;
                let mut packer = packer(3);
                assert!(!has_messages || packer.push(b"anything"));
                if second < 30 {
                    lower.on_packet(now, OURS, peer(second as u16), packer.packet());
                }
                told.extend(epoch_of(&mut lower, now).map(|_| second));
            }
            assert_eq!(told, (6..33).collect::<Vec<_>>(), "{has_messages}");
        }
    }

    #[test]
    fn it_names_both_epochs_from_where_it_came_and_what_to_do_in_one_line() {
        let mut lower = lower();
        (0..BEATS_MIN).for_each(|at| beat(&mut lower, SETTLED + u64::from(at) * BEAT_NS, 3));
        let word = lower.leader(SETTLED + 4 * BEAT_NS, OURS).unwrap().to_string();
        for part in ["10.0.0.1:3 goes on", "epoch 3", "epoch 5", "stop one of the two", "replay --diff"] {
            assert!(word.contains(part), "{part}: {word}");
        }
        assert_eq!(word.lines().count(), 1);
    }

    #[test]
    fn what_a_failover_leaves_behind_is_no_leader() {
        // Thousands of packets that were on their way, as long as a slow path takes.
        let mut lower = lower();
        (0..2_999).for_each(|ms| beat(&mut lower, T + ms * MS, 4));
        assert_eq!(epoch_of(&mut lower, SETTLED), None);
        // A late one, and the ends of a session, however often they come.
        beat(&mut lower, SETTLED, 4);
        for ms in (0..20_000).step_by(100) {
            lower.on_packet(SETTLED + ms * MS, OURS, peer(1), &packer(4).end_of_session());
            assert_eq!(epoch_of(&mut lower, SETTLED + ms * MS), None);
        }
    }

    #[test]
    fn few_packets_or_many_at_once_or_far_apart_are_no_leader() {
        let mut lower = lower();
        (0..BEATS_MIN - 1).for_each(|at| beat(&mut lower, SETTLED + u64::from(at) * BEAT_NS, 3));
        assert_eq!(epoch_of(&mut lower, SETTLED + 3 * BEAT_NS), None);
        let later = SETTLED + 100_000 * MS;
        (0..1_000).for_each(|at| beat(&mut lower, later + at * BEAT_NS / 1_000, 3));
        assert_eq!(epoch_of(&mut lower, later + BEAT_NS), None, "one burst");
        let later = later + 100_000 * MS;
        for at in 0..20 {
            beat(&mut lower, later + at * LAPSE_NS, 3);
            assert_eq!(epoch_of(&mut lower, later + at * LAPSE_NS), None, "{at}");
        }
    }

    #[test]
    fn numbers_that_are_no_epoch_and_what_is_no_packet_are_nobody() {
        let mut lower = lower();
        for at in 0..100 {
            beat(&mut lower, SETTLED + at * BEAT_NS, 0);
            lower.on_packet(SETTLED + at * BEAT_NS, OURS, peer(1), b"anything");
            assert_eq!(epoch_of(&mut lower, SETTLED + at * BEAT_NS), None);
        }
    }

    #[test]
    fn of_two_one_is_told_at_a_time_and_the_other_once_it_has_gone() {
        let mut lower = lower();
        let told: Vec<_> = (0..60)
            .map(|second| {
                let now = SETTLED + second * 1_000 * MS;
                if second < 20 {
                    beat(&mut lower, now, 3);
                }
                beat(&mut lower, now + MS, 4);
                epoch_of(&mut lower, now + MS)
            })
            .collect();
        assert_eq!(told[3], Some(3));
        assert!(told[3..22].iter().all(|&told| told == Some(3)), "{told:?}");
        assert!(told[30..].iter().all(|&told| told == Some(4)), "{told:?}");
    }

    #[test]
    fn where_ours_is_followed_by_a_later_one_it_is_counted_anew() {
        let mut lower = lower();
        (0..BEATS_MIN).for_each(|at| beat(&mut lower, SETTLED + u64::from(at) * BEAT_NS, 3));
        let now = SETTLED + 4 * BEAT_NS;
        assert_eq!(epoch_of(&mut lower, now), Some(3));
        assert_eq!(lower.leader(now, OURS + 1), None);
        for at in 0..6 {
            lower.on_packet(now + at * BEAT_NS, OURS + 1, peer(3), packer(3).packet());
        }
        assert_eq!(lower.leader(now + 5 * BEAT_NS, OURS + 1), None, "it has just begun");
    }
}
