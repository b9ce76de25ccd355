//! A peer that says that its log is another one: a leader that began anew where the old log was removed, say, under the same stream and epoch.
//!
//! Nothing of the feed is let in while that stands, as it may be of the other log. It falls when somebody commits more of this log than
//! was ever committed before: so the feed is of this one, and whoever says otherwise is none of its peers.

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

/// What peers' Commits say about which log it is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OtherLog {
    said: Option<Stranger>,
    /// The most that was ever committed of this log.
    committed: Seq,
}

impl OtherLog {
    /// A Commit came from a peer, and was taken or not.
    pub(super) fn on_word(&mut self, now: Nanos, address: SocketAddrV4, word: Result<Commit, CommitDrop>) {
        match word {
            Err(CommitDrop::ForeignLog { log_id }) => self.said = Some(Stranger { address, log_id, at: now }),
            Ok(Commit { commit, .. }) if commit > self.committed => {
                (self.said, self.committed) = (None, commit);
            }
            Ok(_) | Err(_) => {}
        }
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
        Ok(Commit { stream: 1, epoch: 1, log_id: 5, commit: Seq(commit) })
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
