//! Which log peers say that they have: packets of the feed and repairs name stream and epoch, and those of another log look just like them.
//!
//! A leader that began anew where the old log was removed, say, has the same names. So a repair is taken only from who has just said that its
//! log is this one. And nothing of the feed is let in while somebody says that its log is another one, as it may be that one's; that falls when
//! somebody commits more of this log than was ever committed before: then the feed is of this one, and whoever says otherwise is none of its peers.

use std::net::SocketAddrV4;

use ticktape_core::{Nanos, Seq};

use crate::feed::{Commit, CommitDrop};

/// A word that is not repeated falls after so long, in ns: many heartbeats of whoever said it.
const STANDS_NS: u64 = 1_000_000_000;

/// Who says what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stranger {
    /// From where it was said.
    pub(super) address: SocketAddrV4,
    /// The log that is led there.
    pub(super) log_id: u64,
    at: Nanos,
}

/// So long after a peer has named this log it is believed to have it, in ns: some heartbeats, less than another process takes to begin there.
pub(super) const NAMED_NS: u64 = 100_000_000;

/// What peers' Commits say about which log it is.
#[derive(Clone, Debug, Default)]
pub(super) struct OtherLog {
    said: Option<Stranger>,
    /// Who has named this log, and when last.
    named: Vec<(SocketAddrV4, Nanos)>,
    /// The most that was ever committed of this log.
    committed: Seq,
}

impl OtherLog {
    /// A Commit came from a peer, and was taken or not.
    pub(super) fn on_word(&mut self, now: Nanos, address: SocketAddrV4, word: Result<Commit, CommitDrop>) {
        match word {
            Err(CommitDrop::ForeignLog { .. }) => self.named.retain(|(peer, _)| *peer != address),
            Ok(_) | Err(CommitDrop::StaleEpoch | CommitDrop::Stale) => self.note(now, address),
            Err(_) => {}
        }
        match word {
            Err(CommitDrop::ForeignLog { log_id }) => self.said = Some(Stranger { address, log_id, at: now }),
            Ok(Commit { commit, .. }) if commit > self.committed => {
                (self.said, self.committed) = (None, commit);
            }
            Ok(_) | Err(_) => {}
        }
    }

    fn note(&mut self, now: Nanos, address: SocketAddrV4) {
        match self.named.iter_mut().find(|(peer, _)| *peer == address) {
            Some((_, at)) => *at = now,
            // No more than there are peers.
            None => self.named.push((address, now)),
        }
    }

    /// Whether a peer has just said that it has this log.
    pub(super) fn has_named(&self, now: Nanos, address: SocketAddrV4) -> bool {
        self.named.iter().any(|&(peer, at)| peer == address && now <= at.saturating_add(NAMED_NS))
    }

    /// Whose word stands.
    pub(super) fn stranger(&self, now: Nanos) -> Option<Stranger> {
        self.said.filter(|said| now < said.at.saturating_add(STANDS_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn peer(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new([10, 0, 0, 1].into(), port)
    }

    fn own(commit: u64) -> Result<Commit, CommitDrop> {
        Ok(Commit { stream: 1, epoch: 1, log_id: 5, age_ms: 0, commit: Seq(commit) })
    }

    #[test]
    fn a_leader_of_another_log_is_noticed_until_it_is_silent() {
        let mut log = OtherLog::default();
        log.on_word(0, peer(1), own(10));
        log.on_word(MS, peer(1), Err(CommitDrop::ForeignLog { log_id: 6 }));
        let stranger = log.stranger(MS).unwrap();
        assert_eq!((stranger.address, stranger.log_id), (peer(1), 6));
        // Another replica of this log repeats what it had.
        log.on_word(2 * MS, peer(2), own(10));
        log.on_word(2 * MS, peer(2), Err(CommitDrop::StaleEpoch));
        assert!(log.stranger(1000 * MS).is_some());
        assert_eq!(log.stranger(1001 * MS), None);
    }

    #[test]
    fn a_repair_is_taken_from_who_has_just_named_this_log() {
        let mut log = OtherLog::default();
        assert!(!log.has_named(0, peer(1)), "nobody has said anything");
        log.on_word(0, peer(1), own(10));
        log.on_word(0, peer(2), Err(CommitDrop::Stale));
        assert!(log.has_named(NAMED_NS, peer(1)) && log.has_named(NAMED_NS, peer(2)) && !log.has_named(0, peer(3)));
        assert!(!log.has_named(NAMED_NS + 1, peer(1)));
        log.on_word(MS, peer(1), Err(CommitDrop::ForeignLog { log_id: 6 }));
        assert!(!log.has_named(MS, peer(1)), "another process is there now");
    }

    #[test]
    fn a_log_that_is_committed_further_has_a_leader() {
        let mut log = OtherLog::default();
        log.on_word(0, peer(1), own(10));
        log.on_word(MS, peer(2), Err(CommitDrop::ForeignLog { log_id: 6 }));
        log.on_word(MS, peer(1), own(11));
        assert_eq!(log.stranger(MS), None);
        log.on_word(2 * MS, peer(2), Err(CommitDrop::ForeignLog { log_id: 6 }));
        assert!(log.stranger(2 * MS).is_some(), "said again");
    }
}
