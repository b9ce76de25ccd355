//! The session table: identity and deduplication are part of the deterministic history.

use std::collections::BTreeMap;

use ticktape_core::SessionId;

use crate::payload::Origin;
use crate::{Decode, Encode};

/// What history says of one session.
#[derive(Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct SessionState {
    /// The latest reign of the session's owner.
    pub client_epoch: u32,
    /// The last command applied in that reign; 0 before the first.
    pub client_seq: u64,
    /// The last event addressed to the session, counted over all reigns; 0 before the first.
    pub event_seq: u64,
    /// Whether it is open.
    pub open: bool,
}

/// What history says of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is new, and now on record.
    Apply,
    /// It was applied before, or belongs to an earlier reign.
    Duplicate,
}

/// Every session that history knows.
#[derive(Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct Sessions {
    table: BTreeMap<SessionId, SessionState>,
}

impl Sessions {
    /// No sessions.
    pub fn new() -> Self {
        Sessions::default()
    }

    /// Opens a session, or opens it again: in a higher reign its commands begin at `origin.client_seq`; a lower one changes nothing.
    /// Returns whether anything changed.
    pub fn open(&mut self, origin: &Origin) -> bool {
        let Origin { session, client_epoch, client_seq: first_seq } = *origin;
        let is_new = !self.table.contains_key(&session);
        let state = self.table.entry(session).or_default();
        if state.open && client_epoch <= state.client_epoch || client_epoch < state.client_epoch {
            return false;
        }
        if is_new || client_epoch > state.client_epoch {
            state.client_seq = first_seq - 1;
        }
        state.client_epoch = client_epoch;
        state.open = true;
        true
    }

    /// Closes a session. Returns whether it was open.
    pub fn close(&mut self, session: SessionId) -> bool {
        self.table.get_mut(&session).is_some_and(|state| std::mem::replace(&mut state.open, false))
    }

    /// Decides on a command and records it. Numbers may skip: a client may have given one up.
    pub fn admit(&mut self, origin: &Origin) -> Admission {
        let state = self.table.entry(origin.session).or_default();
        if (origin.client_epoch, origin.client_seq) <= (state.client_epoch, state.client_seq) {
            return Admission::Duplicate;
        }
        state.client_epoch = origin.client_epoch;
        state.client_seq = origin.client_seq;
        Admission::Apply
    }

    /// The number of the session's next event.
    pub fn next_event(&mut self, session: SessionId) -> u64 {
        let state = self.table.entry(session).or_default();
        state.event_seq += 1;
        state.event_seq
    }

    /// What is known of one session.
    pub fn get(&self, session: SessionId) -> Option<&SessionState> {
        self.table.get(&session)
    }

    /// All sessions, by identity.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &SessionState)> {
        self.table.iter().map(|(&session, state)| (session, state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(client_epoch: u32, client_seq: u64) -> Origin {
        Origin { session: SessionId(1), client_epoch, client_seq }
    }

    #[test]
    fn a_command_is_applied_once_however_often_it_is_sent() {
        let mut sessions = Sessions::new();
        assert!(sessions.open(&origin(1, 1)));
        assert_eq!(sessions.admit(&origin(1, 1)), Admission::Apply);
        assert_eq!(sessions.admit(&origin(1, 2)), Admission::Apply);
        for seq in 0..=2 {
            assert_eq!(sessions.admit(&origin(1, seq)), Admission::Duplicate);
        }
    }

    #[test]
    fn a_higher_reign_starts_over_and_a_lower_one_is_a_zombie() {
        let mut sessions = Sessions::new();
        sessions.open(&origin(5, 1));
        sessions.admit(&origin(5, 9));
        assert!(sessions.open(&origin(6, 1)));
        assert_eq!(sessions.admit(&origin(6, 1)), Admission::Apply);
        assert_eq!(sessions.admit(&origin(5, 10)), Admission::Duplicate);
        assert!(!sessions.open(&origin(5, 1)));
        assert_eq!(sessions.get(SessionId(1)).unwrap().client_epoch, 6);
    }

    #[test]
    fn closing_keeps_the_record_so_that_a_late_duplicate_stays_one() {
        let mut sessions = Sessions::new();
        sessions.open(&origin(1, 1));
        sessions.admit(&origin(1, 1));
        assert!(sessions.close(SessionId(1)));
        assert!(!sessions.close(SessionId(1)));
        assert!(sessions.open(&origin(1, 1)), "the same reign may come back after a close");
        assert_eq!(sessions.admit(&origin(1, 1)), Admission::Duplicate);
    }

    #[test]
    fn commands_begin_where_the_opening_says_and_earlier_ones_are_duplicates() {
        let mut sessions = Sessions::new();
        sessions.open(&origin(1, 9));
        assert_eq!(sessions.get(SessionId(1)).unwrap().client_seq, 8);
        assert_eq!(sessions.admit(&origin(1, 8)), Admission::Duplicate);
        assert_eq!(sessions.admit(&origin(1, 9)), Admission::Apply);
    }

    #[test]
    fn events_are_counted_over_all_reigns() {
        let mut sessions = Sessions::new();
        sessions.open(&origin(1, 1));
        assert_eq!(sessions.next_event(SessionId(1)), 1);
        sessions.open(&origin(2, 1));
        assert_eq!(sessions.next_event(SessionId(1)), 2);
    }
}
