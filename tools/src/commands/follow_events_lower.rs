//! Sessions below the one that is listened to: a higher one that was believed because nobody answered may never have been.
//!
//! Only the repair port decides, and it serves one session: asked about any lower one it tells the end of one that is over, or something of
//! the one that it serves. Where nobody can be asked the present one is left once it is silent while the other goes on.

use ticktape::Nanos;
use ticktape::feed::{FeedSession, MoldRequest};

/// Between two requests, in ns: stragglers of the session before, and whoever forges, must not make us ask without end.
const ASK_GAP_NS: u64 = 250_000_000;
/// One that was not heard for so long, in ns, is not asked about, nor is an answer that comes so late one.
const HEARD_NS: u64 = 3_000_000_000;
/// Packets of one that make up for a repair port.
const AGREED: u32 = 2;

/// A lower session that sends.
#[derive(Clone, Copy)]
struct Heard {
    session: FeedSession,
    sequence: u64,
    heard_at: Nanos,
    /// Packets since the present session was heard last.
    times: u32,
}

/// See the module.
#[derive(Default)]
pub struct Lower {
    heard: Option<Heard>,
    asked_at: Option<Nanos>,
}

impl Lower {
    /// A packet of a session below the present one, which was heard last at `ours_heard_at`.
    pub fn on_packet(&mut self, now: Nanos, session: FeedSession, sequence: u64, ours_heard_at: Nanos) {
        let before = self.heard.filter(|heard| heard.session == session && heard.heard_at > ours_heard_at);
        let times = before.map_or(0, |heard| heard.times) + 1;
        self.heard = Some(Heard { session, sequence, heard_at: now, times });
    }

    /// The one that was heard lately.
    pub fn heard(&self, now: Nanos) -> Option<FeedSession> {
        self.fresh(now).map(|heard| heard.session)
    }

    fn fresh(&self, now: Nanos) -> Option<Heard> {
        self.heard.filter(|heard| now.saturating_sub(heard.heard_at) < HEARD_NS)
    }

    /// The one that goes on while the present one is silent, and where its last packet stood: for those who can ask nobody.
    pub fn agreed(&self, now: Nanos, ours_heard_at: Nanos) -> Option<(FeedSession, u64)> {
        let is_silent = now.saturating_sub(ours_heard_at) >= HEARD_NS;
        let heard = self.fresh(now).filter(|heard| is_silent && heard.times >= AGREED)?;
        Some((heard.session, heard.sequence))
    }

    /// The next request that asks what the repair port serves.
    pub fn poll_probe(&mut self, now: Nanos) -> Option<MoldRequest> {
        let heard = self.fresh(now)?;
        if self.asked_at.is_some_and(|at| now.saturating_sub(at) < ASK_GAP_NS) {
            return None;
        }
        self.asked_at = Some(now);
        Some(MoldRequest { session: heard.session.encode(), sequence: heard.sequence.max(1), count: 1 })
    }

    /// Whether the repair port was asked lately, so that what it says of a lower session is about the present.
    pub fn was_asked(&self, now: Nanos) -> bool {
        self.asked_at.is_some_and(|at| now.saturating_sub(at) < HEARD_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn session(epoch: u32) -> FeedSession {
        FeedSession::new(7, epoch).unwrap()
    }

    #[test]
    fn it_is_asked_about_as_long_as_it_is_heard_and_no_more_often_than_so() {
        let mut lower = Lower::default();
        assert!(lower.poll_probe(0).is_none() && !lower.was_asked(0));
        let mut asked = 0;
        for ms in 0..10_000 {
            let now = ms * 1_000_000;
            if ms < 1_000 {
                lower.on_packet(now, session(1), 9, 0);
            }
            asked += u32::from(lower.poll_probe(now).is_some());
            assert_eq!(lower.heard(now), (ms < 3_999).then(|| session(1)), "{ms}");
        }
        assert_eq!(asked, 16);
        assert!(!lower.was_asked(10 * S));
    }

    #[test]
    fn where_nobody_can_be_asked_it_takes_two_packets_and_silence() {
        let mut lower = Lower::default();
        lower.on_packet(S, session(1), 9, 2);
        assert_eq!(lower.agreed(3 * S + 2, 2), None, "one");
        lower.on_packet(2 * S, session(1), 10, 2);
        assert_eq!(lower.agreed(3 * S + 1, 2), None, "not silent for long enough");
        assert_eq!(lower.agreed(3 * S + 2, 2), Some((session(1), 10)));
        lower.on_packet(4 * S, session(1), 11, 3 * S);
        assert_eq!(lower.agreed(6 * S, 3 * S), None, "the present one was heard between them");
    }
}
