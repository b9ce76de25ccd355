//! Which log peers say that they have: packets of the feed and repairs name stream and epoch, and those of another log look just like them, or
//! those of another history of this one.
//!
//! A leader that began anew where the old log was removed, say, has the same names, and so has one that was started from an older copy of the
//! log. So a repair is taken only from who has just said that its log is this one, and is in the reign that the log is in here: who is in another
//! epoch proves nothing so about what comes before that, and is asked over TCP. And nothing of the feed is let in while somebody says that its log is another one, as it may be that one's; that falls when
//! somebody commits more of this log than was ever committed before: then the feed is of this one, and whoever says otherwise is none of its peers.
//!
//! Who has said over TCP that its log is another one has parted from this log. Whatever it says in datagrams of later epochs, or of another reign
//! whose frames tell that they are, is not said of this one, until it answers otherwise: two copies of a log may each lead, in epochs of
//! different numbers or in one, and nothing of the other one gets in here.

use std::fmt;
use std::net::SocketAddrV4;

use ticktape_core::{Nanos, Seq};

use crate::feed::{Commit, CommitDrop, CommitTracker};
use crate::payload::{Reign, are_of_other_reigns};

/// A word that is not repeated falls after so long, in ns: many heartbeats of whoever said it.
const STANDS_NS: u64 = 1_000_000_000;

/// Who says what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stranger {
    /// From where it was said.
    pub(super) address: SocketAddrV4,
    /// What is led there.
    pub(super) what: Elsewhere,
    at: Nanos,
}

/// What somebody has that is not the history of this log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Elsewhere {
    /// Another log.
    Log(u64),
    /// This log, as it went on in another reign of the same epoch.
    Reign(Reign),
}

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Elsewhere::Log(log_id) => write!(f, "its log is {log_id:016x}, another one than here"),
            Elsewhere::Reign(Reign { epoch, id }) => {
                write!(f, "its log went on in reign {id:016x} of epoch {epoch}, another one than here")
            }
        }
    }
}

/// So long after a peer has named this log it is believed to have it, in ns: some heartbeats, less than another process takes to begin there.
pub(super) const NAMED_NS: u64 = 100_000_000;

/// A peer that has said over TCP that its log is another one.
#[derive(Clone, Debug)]
struct Parted {
    address: SocketAddrV4,
    why: String,
    /// When it last spoke of a reign that it leads.
    heard_at: Option<Nanos>,
}

impl Parted {
    fn speaks(&self, now: Nanos) -> bool {
        self.heard_at.is_some_and(|at| now < at.saturating_add(STANDS_NS))
    }
}

/// Whether nothing that is fed in a reign gets into a log that is in another one: the session tells, or each frame.
fn is_led_apart(there: Reign, here: Reign) -> bool {
    there.epoch > here.epoch || there.epoch == here.epoch && are_of_other_reigns(there.stream_id(), here.stream_id())
}

/// What peers' Commits say about which log it is.
#[derive(Clone, Debug, Default)]
pub(super) struct OtherLog {
    said: Option<Stranger>,
    parted: Vec<Parted>,
    parted_words: u64,
    /// Who has named this log, when last, and in which epoch.
    named: Vec<(SocketAddrV4, Nanos, u64)>,
    /// The most that was ever committed of this log.
    committed: Seq,
}

impl OtherLog {
    /// A datagram that is a Commit came from a peer.
    pub(super) fn hear(&mut self, now: Nanos, address: SocketAddrV4, datagram: &[u8], tracker: &mut CommitTracker) {
        if let Some(parted) = self.parted.iter_mut().find(|parted| parted.address == address)
            && Commit::decode(datagram).is_ok_and(|commit| is_led_apart(commit.reign, tracker.reign()))
        {
            parted.heard_at = Some(now);
            self.parted_words += 1;
            return;
        }
        // What is not taken is counted by the tracker.
        let word = tracker.on_commit(now, datagram);
        self.on_word(now, address, word, tracker.reign());
    }

    /// A peer has said over TCP that its log is another one: `why` in a line.
    pub(super) fn part(&mut self, address: SocketAddrV4, why: &str) {
        self.named.retain(|(peer, ..)| *peer != address);
        let heard_at = self.parted.iter().find(|parted| parted.address == address).and_then(|parted| parted.heard_at);
        self.rejoin(address);
        self.parted.push(Parted { address, why: why.to_string(), heard_at });
    }

    /// A peer has said over TCP that it has this log.
    pub(super) fn rejoin(&mut self, address: SocketAddrV4) {
        self.parted.retain(|parted| parted.address != address);
    }

    /// Who leads another history, whose feed is told from this log's, in a line.
    pub(super) fn led_elsewhere(&self, now: Nanos) -> Option<&str> {
        self.parted.iter().find(|parted| parted.speaks(now)).map(|parted| &parted.why[..])
    }

    /// Commits that were not heeded, as their senders had parted from this log.
    pub(super) fn parted_words(&self) -> u64 {
        self.parted_words
    }

    /// A Commit came from a peer, and was taken or not; the log here is in the reign `here`.
    pub(super) fn on_word(&mut self, now: Nanos, address: SocketAddrV4, word: Result<Commit, CommitDrop>, here: Reign) {
        let elsewhere = match word {
            Err(CommitDrop::ForeignLog { log_id }) => Elsewhere::Log(log_id),
            Err(CommitDrop::OtherHistory { reign }) => Elsewhere::Reign(reign),
            Err(CommitDrop::Stale { epoch }) if epoch == here.epoch => return self.note(now, address, epoch),
            Ok(Commit { reign, commit, .. }) if reign.epoch == here.epoch => {
                if commit > self.committed {
                    (self.said, self.committed) = (None, commit);
                }
                return self.note(now, address, reign.epoch);
            }
            Ok(_) | Err(_) => return,
        };
        self.named.retain(|(peer, ..)| *peer != address);
        self.said = Some(Stranger { address, what: elsewhere, at: now });
    }

    fn note(&mut self, now: Nanos, address: SocketAddrV4, epoch: u64) {
        match self.named.iter_mut().find(|(peer, ..)| *peer == address) {
            Some(known) => (known.1, known.2) = (now, epoch),
            // No more than there are peers.
            None => self.named.push((address, now, epoch)),
        }
    }

    /// Whether a peer has just said that it has this log, and is in the reign that it is in here.
    pub(super) fn has_named(&self, now: Nanos, address: SocketAddrV4, here: Reign) -> bool {
        let is_fresh = |at: Nanos| now <= at.saturating_add(NAMED_NS);
        self.named.iter().any(|&(peer, at, epoch)| peer == address && epoch == here.epoch && is_fresh(at))
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

    const HERE: Reign = Reign { epoch: 1, id: 10 };

    fn own(commit: u64) -> Result<Commit, CommitDrop> {
        Ok(Commit { stream: 1, reign: HERE, log_id: 5, age_ms: 0, commit: Seq(commit) })
    }

    #[test]
    fn a_leader_of_another_log_is_noticed_until_it_is_silent() {
        let mut log = OtherLog::default();
        log.on_word(0, peer(1), own(10), HERE);
        log.on_word(MS, peer(1), Err(CommitDrop::ForeignLog { log_id: 6 }), HERE);
        let stranger = log.stranger(MS).unwrap();
        assert_eq!((stranger.address, stranger.what), (peer(1), Elsewhere::Log(6)));
        // Another replica of this log repeats what it had.
        log.on_word(2 * MS, peer(2), own(10), HERE);
        log.on_word(2 * MS, peer(2), Err(CommitDrop::StaleEpoch), HERE);
        assert!(log.stranger(1000 * MS).is_some());
        assert_eq!(log.stranger(1001 * MS), None);
    }

    #[test]
    fn a_repair_is_taken_from_who_has_just_named_this_log() {
        let mut log = OtherLog::default();
        assert!(!log.has_named(0, peer(1), HERE), "nobody has said anything");
        log.on_word(0, peer(1), own(10), HERE);
        log.on_word(0, peer(2), Err(CommitDrop::Stale { epoch: 1 }), HERE);
        assert!(
            log.has_named(NAMED_NS, peer(1), HERE)
                && log.has_named(NAMED_NS, peer(2), HERE)
                && !log.has_named(0, peer(3), HERE)
        );
        assert!(!log.has_named(NAMED_NS + 1, peer(1), HERE));
        log.on_word(MS, peer(1), Err(CommitDrop::ForeignLog { log_id: 6 }), HERE);
        assert!(!log.has_named(MS, peer(1), HERE), "another process is there now");
    }

    #[test]
    fn who_is_in_another_epoch_or_reign_has_not_named_what_is_here() {
        let mut log = OtherLog::default();
        let later = Reign { epoch: 2, id: 20 };
        log.on_word(0, peer(1), own(10), HERE);
        assert!(!log.has_named(0, peer(1), later), "the log here has come to the next reign since");
        log.on_word(0, peer(2), Ok(Commit { reign: later, ..own(99).unwrap() }), HERE);
        log.on_word(0, peer(2), Err(CommitDrop::Stale { epoch: 2 }), HERE);
        log.on_word(0, peer(2), Err(CommitDrop::StaleEpoch), HERE);
        assert!(!log.has_named(0, peer(2), HERE), "of what is before its reign that says nothing");

        let copy = Reign { epoch: 1, id: 11 };
        log.on_word(MS, peer(1), Err(CommitDrop::OtherHistory { reign: copy }), HERE);
        let stranger = log.stranger(MS).unwrap();
        assert_eq!((stranger.address, stranger.what), (peer(1), Elsewhere::Reign(copy)));
        assert!(!log.has_named(MS, peer(1), HERE));
        log.on_word(MS, peer(2), Ok(Commit { reign: later, ..own(99).unwrap() }), HERE);
        assert!(log.stranger(MS).is_some(), "what is committed in another epoch tells nothing of this one");
        log.on_word(MS, peer(1), own(11), HERE);
        assert_eq!(log.stranger(MS), None);
    }

    #[test]
    fn what_is_fed_in_a_later_epoch_or_says_that_it_is_of_another_reign_is_told_apart() {
        let in_epoch = |epoch, id| Reign { epoch, id };
        assert!(is_led_apart(in_epoch(2, 10), HERE) && is_led_apart(in_epoch(1, 11), HERE));
        // Frames carry fifteen bits of the number; builds before carried none.
        assert!(!is_led_apart(in_epoch(1, 10 + (1 << 15)), HERE) && !is_led_apart(Reign::unnamed(1), HERE));
        assert!(!is_led_apart(HERE, HERE) && !is_led_apart(in_epoch(0, 11), HERE));
    }

    #[test]
    fn a_log_that_is_committed_further_has_a_leader() {
        let mut log = OtherLog::default();
        log.on_word(0, peer(1), own(10), HERE);
        log.on_word(MS, peer(2), Err(CommitDrop::ForeignLog { log_id: 6 }), HERE);
        log.on_word(MS, peer(1), own(11), HERE);
        assert_eq!(log.stranger(MS), None);
        log.on_word(2 * MS, peer(2), Err(CommitDrop::ForeignLog { log_id: 6 }), HERE);
        assert!(log.stranger(2 * MS).is_some(), "said again");
    }
}
