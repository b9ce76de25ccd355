//! Who may be connected to a catch-up server, and who goes where more would be.
//!
//! Whoever connects waits in a room of its own until it has asked: that costs a socket and some KB, and no place. Only a sound
//! question takes one of the few places at which the log is read.
//!
//! Invariant: connections that never ask keep nobody out: the newest displace the oldest, of the address that has most of them.
//! Invariant: one address never holds more places than are its share.

use std::net::IpAddr;

use ticktape_core::Nanos;

use super::message::RefuseReason;

/// How many may be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Clients served at one time.
    pub clients_max: usize,
    /// Those of them that are of one address.
    pub clients_per_address_max: usize,
    /// Connections that have asked nothing yet.
    pub waiting_max: usize,
    /// A client that was served and asks nothing more gives its place to another after so long. More than a round trip, which a
    /// client takes between an answer and its next question.
    pub idle_ns: u64,
}

/// What a connection is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It has asked nothing yet.
    Waiting,
    /// It is being answered.
    Served,
    /// It was answered, and has asked nothing more.
    Idle,
    /// It was told the last there is to tell.
    Leaving,
}

/// One connection, as the rule sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Where it is from.
    pub address: IpAddr,
    /// What it is at.
    pub stage: Stage,
    /// Since when nothing went either way.
    pub quiet_since: Nanos,
}

impl Connection {
    fn has_place(&self) -> bool {
        matches!(self.stage, Stage::Served | Stage::Idle)
    }
}

impl Places {
    /// Another connection was accepted: which of these has to go for it, if one has.
    pub fn for_newcomer(&self, connections: &[Connection]) -> Option<usize> {
        let waiting = || connections.iter().enumerate().filter(|(_, one)| one.stage == Stage::Waiting);
        if waiting().count() < self.waiting_max {
            return None;
        }
        let of_address = |address: IpAddr| waiting().filter(|(_, one)| one.address == address).count();
        let first_to_go = |&(_, one): &(usize, &Connection)| (usize::MAX - of_address(one.address), one.quiet_since);
        waiting().min_by_key(first_to_go).map(|(at, _)| at)
    }

    /// The waiting connection `at` may be about to ask. Whether it is served then, and which of the others gives its place to it, if
    /// one has to.
    ///
    /// # Errors
    /// What it is refused with, and the limit that it met.
    pub fn for_question(
        &self,
        now: Nanos,
        connections: &[Connection],
        at: usize,
    ) -> Result<Option<usize>, (RefuseReason, u64)> {
        let address = connections[at].address;
        let held = |of: Option<IpAddr>| {
            let theirs = move |(_, one): &(usize, &Connection)| of.is_none_or(|of| of == one.address);
            connections.iter().enumerate().filter(|(_, one)| one.has_place()).filter(theirs)
        };
        let is_idle = |(_, one): &(usize, &Connection)| {
            one.stage == Stage::Idle && now.saturating_sub(one.quiet_since) >= self.idle_ns
        };
        for (of, most, reason) in [
            (Some(address), self.clients_per_address_max, RefuseReason::TooManyOfAddress),
            (None, self.clients_max, RefuseReason::TooManyClients),
        ] {
            if held(of).count() >= most {
                let longest = held(of).filter(is_idle).min_by_key(|(_, one)| one.quiet_since);
                return longest.map(|(at, _)| Some(at)).ok_or((reason, most as u64));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: Places = Places { clients_max: 3, clients_per_address_max: 2, waiting_max: 4, idle_ns: 100 };

    fn one(address: u8, stage: Stage, quiet_since: Nanos) -> Connection {
        Connection { address: [10, 0, 0, address].into(), stage, quiet_since }
    }

    #[test]
    fn a_full_room_loses_the_oldest_of_the_address_that_has_most_there() {
        let mut there = vec![
            one(1, Stage::Waiting, 5),
            one(2, Stage::Waiting, 30),
            one(2, Stage::Waiting, 20),
            one(2, Stage::Served, 1),
        ];
        assert_eq!(PLACES.for_newcomer(&there), None, "there is room");
        there.push(one(3, Stage::Waiting, 1));
        assert_eq!(PLACES.for_newcomer(&there), Some(2));
        there.remove(2);
        there.push(one(4, Stage::Waiting, 40));
        assert_eq!(PLACES.for_newcomer(&there), Some(3), "all have one: the oldest");
    }

    #[test]
    fn a_question_takes_a_free_place_or_that_of_the_longest_idle() {
        let asking = one(9, Stage::Waiting, 0);
        let mut there = vec![asking, one(1, Stage::Served, 0), one(2, Stage::Idle, 50)];
        assert_eq!(PLACES.for_question(200, &there, 0), Ok(None));
        there.push(one(3, Stage::Idle, 60));
        assert_eq!(PLACES.for_question(200, &there, 0), Ok(Some(2)));
        assert_eq!(
            PLACES.for_question(149, &there, 0),
            Err((RefuseReason::TooManyClients, 3)),
            "not idle for long enough"
        );
        (there[2].stage, there[3].stage) = (Stage::Served, Stage::Leaving);
        assert_eq!(PLACES.for_question(200, &there, 0), Ok(None), "who is leaving has none");
        there[3].stage = Stage::Served;
        assert_eq!(PLACES.for_question(1_000, &there, 0), Err((RefuseReason::TooManyClients, 3)));
    }

    #[test]
    fn an_address_has_its_share_whether_there_are_places_or_not() {
        let mut there = vec![one(1, Stage::Waiting, 0), one(1, Stage::Served, 0), one(1, Stage::Idle, 0)];
        assert_eq!(PLACES.for_question(100, &there, 0), Ok(Some(2)), "its own idle one goes");
        there[2].stage = Stage::Served;
        assert_eq!(PLACES.for_question(100, &there, 0), Err((RefuseReason::TooManyOfAddress, 2)));
        there[0].address = [10, 0, 0, 2].into();
        assert_eq!(PLACES.for_question(100, &there, 0), Ok(None), "the last place is for others");
    }
}
