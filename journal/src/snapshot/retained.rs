//! Which snapshots there are, what is known of each, and which go. No I/O.

use ticktape_core::Seq;

use super::SnapshotError;

/// What is known of a snapshot on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It was there, and was not looked at yet.
    Found,
    /// It is sound and durable, name and all.
    Verified,
    /// It is not sound, or can't be made sure of. Never counted; it goes when it is older than what is retained.
    Rejected(SnapshotError),
}

/// The snapshots of a directory, oldest first.
#[derive(Debug, Default)]
pub(super) struct Retained {
    all: Vec<(Seq, State)>,
}

impl Retained {
    pub(super) fn found(seqs: impl IntoIterator<Item = Seq>) -> Retained {
        let mut all: Vec<_> = seqs.into_iter().map(|seq| (seq, State::Found)).collect();
        all.sort_by_key(|&(seq, _)| seq);
        Retained { all }
    }

    /// Notes what is known of one now, new or not.
    pub(super) fn set(&mut self, seq: Seq, state: State) {
        match self.all.binary_search_by_key(&seq, |&(seq, _)| seq) {
            Ok(at) => self.all[at].1 = state,
            Err(at) => self.all.insert(at, (seq, state)),
        }
    }

    pub(super) fn remove(&mut self, seq: Seq) {
        self.all.retain(|&(other, _)| other != seq);
    }

    /// The newest that was not looked at yet: what a restart would want first.
    pub(super) fn next_found(&self) -> Option<Seq> {
        self.all.iter().rev().find(|(_, state)| *state == State::Found).map(|&(seq, _)| seq)
    }

    /// The oldest that is verified; `None` as long as there is an older one that may yet turn out to be.
    pub(super) fn oldest_verified(&self) -> Option<Seq> {
        let oldest = self.all.iter().find(|(_, state)| !matches!(state, State::Rejected(_)))?;
        (oldest.1 == State::Verified).then_some(oldest.0)
    }

    pub(super) fn newest_verified(&self) -> Option<Seq> {
        self.all.iter().rev().find(|(_, state)| *state == State::Verified).map(|&(seq, _)| seq)
    }

    pub(super) fn is_verified(&self, seq: Seq) -> bool {
        self.all.contains(&(seq, State::Verified))
    }

    /// The oldest that goes, so that `retain` verified ones stay and nothing older than those.
    pub(super) fn surplus(&self, retain: usize) -> Option<Seq> {
        let verified = self.all.iter().rev().filter(|(_, state)| *state == State::Verified);
        let &(oldest_kept, _) = verified.take(retain).nth(retain - 1)?;
        let &(oldest, _) = self.all.first()?;
        (oldest < oldest_kept).then_some(oldest)
    }

    pub(super) fn rejected(&self) -> impl Iterator<Item = (Seq, &SnapshotError)> {
        self.all.iter().filter_map(|(seq, state)| match state {
            State::Rejected(error) => Some((*seq, error)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected() -> State {
        State::Rejected(SnapshotError::Pace("for the test".into()))
    }

    #[test]
    fn only_what_is_verified_counts_and_the_oldest_goes_first() {
        let mut retained = Retained::found([30, 10, 20].map(Seq));
        assert_eq!((retained.oldest_verified(), retained.surplus(1)), (None, None), "nothing was looked at");
        assert_eq!(retained.next_found(), Some(Seq(30)));
        retained.set(Seq(30), State::Verified);
        assert_eq!(retained.oldest_verified(), None, "10 may yet be sound, and would need the journal from 11 on");
        assert_eq!(retained.surplus(1), Some(Seq(10)));
        assert_eq!(retained.surplus(2), None, "20 may be rotten, so 10 is still needed");
        retained.set(Seq(20), rejected());
        assert_eq!(retained.surplus(2), None);
        retained.set(Seq(10), State::Verified);
        assert_eq!((retained.oldest_verified(), retained.next_found()), (Some(Seq(10)), None));
        retained.set(Seq(40), State::Verified);
        assert_eq!(retained.surplus(2), Some(Seq(10)));
        retained.remove(Seq(10));
        assert_eq!(retained.surplus(2), Some(Seq(20)), "rotten ones go with their neighbours");
        assert_eq!(retained.rejected().count(), 1);
        assert_eq!(retained.oldest_verified(), Some(Seq(30)));
    }

    #[test]
    fn what_was_replaced_is_there_once() {
        let mut retained = Retained::found([Seq(5)]);
        retained.set(Seq(5), State::Verified);
        retained.set(Seq(5), State::Verified);
        assert_eq!(retained.surplus(1), None);
        assert_eq!(retained.oldest_verified(), Some(Seq(5)));
    }
}
