//! The question of a receiver that finds its stream in another reign: does what it has still count?
//!
//! It is asked of a rewinder in the name of the old session, which a rewinder that knows how that ended answers with its end. Pure: whoever owns
//! it sends what is to be sent, and hands it what comes from the rewinder.
//!
//! Invariant: silence proves nothing.

use ticktape_core::Nanos;

use super::mold::{MoldPacket, MoldRequest};
use super::session::FeedSession;

/// How long an answer is waited for, in ns: many round trips.
const ASK_NS: u64 = 50_000_000;
/// How often it is asked: more than are lost in a row.
const ASKS_MAX: u32 = 4;

/// What became of what a receiver has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of it is of the stream as it is now.
    Proven,
    /// The messages from this number on were taken back, and others have their numbers.
    TakenBack {
        /// The first of them.
        from: u64,
    },
    /// Nobody who was asked can tell.
    Unproven,
}

/// A question under way.
#[derive(Clone, Copy, Debug)]
pub struct Proof {
    session: FeedSession,
    next_seq: u64,
    asked: u32,
    deadline: Nanos,
}

impl Proof {
    /// About the messages before `next_seq`, which were received in `session` or proven to be of it.
    pub const fn new(session: FeedSession, next_seq: u64) -> Self {
        Proof { session, next_seq, asked: 0, deadline: 0 }
    }

    /// In which session they were received.
    pub const fn session(&self) -> FeedSession {
        self.session
    }

    /// The next request to send, where one is due.
    pub fn poll_request(&mut self, now: Nanos) -> Option<MoldRequest> {
        if self.asked == ASKS_MAX || now < self.deadline {
            return None;
        }
        (self.asked, self.deadline) = (self.asked + 1, now.saturating_add(ASK_NS));
        Some(MoldRequest { session: self.session.encode(), sequence: self.next_seq, count: 1 })
    }

    /// A datagram of the rewinder that was asked. `None` where it is no answer to this.
    pub fn on_answer(&self, datagram: &[u8]) -> Option<Verdict> {
        match MoldPacket::parse(datagram) {
            Ok(MoldPacket::EndOfSession { session, sequence }) if *session == self.session.encode() => {
                let counts = self.next_seq <= sequence;
                Some(if counts { Verdict::Proven } else { Verdict::TakenBack { from: sequence } })
            }
            _ => None,
        }
    }

    /// Whether it was asked for long enough, in vain.
    pub const fn is_over(&self, now: Nanos) -> bool {
        self.asked == ASKS_MAX && now >= self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::mold;

    const MS: u64 = 1_000_000;

    fn session(epoch: u32) -> FeedSession {
        FeedSession::new(7, epoch).unwrap()
    }

    #[test]
    fn the_end_of_the_old_session_decides() {
        let proof = Proof::new(session(3), 10);
        let end = |epoch, sequence| mold::end_of_session(&session(epoch).encode(), sequence);
        assert_eq!(proof.on_answer(&end(3, 12)), Some(Verdict::Proven));
        assert_eq!(proof.on_answer(&end(3, 10)), Some(Verdict::Proven), "all before the next one");
        assert_eq!(proof.on_answer(&end(3, 9)), Some(Verdict::TakenBack { from: 9 }));
        assert_eq!(proof.on_answer(&end(4, 9)), None, "of another session");
        let mut beat = end(3, 9);
        beat[mold::COUNT..].fill(0);
        assert_eq!(proof.on_answer(&beat), None, "no end");
        assert_eq!(proof.on_answer(&end(3, 9)[..19]), None);
    }

    #[test]
    fn silence_is_asked_again_and_then_proves_nothing() {
        let mut proof = Proof::new(session(3), 10);
        let mut asked = Vec::new();
        for ms in 0..300 {
            if let Some(request) = proof.poll_request(ms * MS) {
                assert_eq!(request, MoldRequest { session: session(3).encode(), sequence: 10, count: 1 });
                asked.push(ms);
            }
            assert_eq!(proof.is_over(ms * MS), ms >= 200, "{ms}");
        }
        assert_eq!(asked, [0, 50, 100, 150]);
    }
}
