//! The latest events of each session, for clients that come back after a restart from a snapshot.
//!
//! What a client has acknowledged is no part of history, so the bound is in bytes: the oldest events go first.

use std::collections::BTreeMap;

use ticktape_core::{DecodeError, Reader, Seq, SessionId, Target};

use crate::machine::Emitted;
use crate::{Decode, Encode};

/// An event's bytes of bookkeeping: cause, client seq and length.
const HEAD_BYTES: usize = 20;

/// The fewest bytes that a session takes in the encoding: its number, that of its first event, and how many there are.
const SESSION_BYTES_MIN: usize = 20;

/// The latest events of every session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tails {
    bytes_max: usize,
    sessions: BTreeMap<SessionId, Tail>,
}

/// One session's. Its bytes are kept as they are encoded, so that a snapshot takes them in one copy.
#[derive(Clone, Debug, Default)]
struct Tail {
    first_event: u64,
    events: u64,
    /// Events one behind the other: cause, client seq, length, output. What is forgotten goes once it is as much as what is kept.
    bytes: Vec<u8>,
    forgotten: usize,
}

impl PartialEq for Tail {
    fn eq(&self, other: &Tail) -> bool {
        (self.first_event, self.events, self.kept()) == (other.first_event, other.events, other.kept())
    }
}

impl Eq for Tail {}

impl Tails {
    /// No events, and room for `bytes_max` bytes of them for each session.
    pub fn new(bytes_max: usize) -> Self {
        Tails { bytes_max, sessions: BTreeMap::new() }
    }

    /// Keeps an output, if it is for a session.
    pub fn push(&mut self, output: &Emitted<'_>) {
        let Target::Session(session) = output.target else { return };
        let tail = self.sessions.entry(session).or_default();
        if tail.events == 0 {
            tail.first_event = output.event_seq;
        }
        tail.bytes.reserve(HEAD_BYTES + output.bytes.len());
        output.seq.encode(&mut tail.bytes);
        output.client_seq.encode(&mut tail.bytes);
        output.bytes.encode(&mut tail.bytes);
        tail.events += 1;
        tail.keep_within(self.bytes_max);
    }

    /// Every event that is kept, session by session, in order.
    pub fn for_each(&self, mut f: impl FnMut(&Emitted<'_>)) {
        for (&session, tail) in &self.sessions {
            let mut rest = tail.kept();
            for event_seq in tail.first_event..tail.first_event + tail.events {
                let (seq, client_seq, bytes) = split_event(&mut rest);
                f(&Emitted { seq, target: Target::Session(session), event_seq, client_seq, bytes });
            }
        }
    }

    /// The encoding of a snapshot's tails section: a map of sessions, for each the number of its first event and the list of (cause,
    /// client seq, output).
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let count = |count: u64| u32::try_from(count).expect("a bound in bytes bounds how many there are");
        let sessions = || self.sessions.iter().filter(|(_, tail)| tail.events > 0);
        out.reserve(4 + sessions().map(|(_, tail)| SESSION_BYTES_MIN + tail.kept().len()).sum::<usize>());
        count(sessions().count() as u64).encode(out);
        for (session, tail) in sessions() {
            session.encode(out);
            tail.first_event.encode(out);
            count(tail.events).encode(out);
            out.extend_from_slice(tail.kept());
        }
    }

    /// What [`Tails::encode`] wrote, within the bound that holds now. `None` where it is no such encoding.
    pub(crate) fn decode(reader: &mut Reader<'_>, bytes_max: usize) -> Option<Tails> {
        let mut tails = Tails::new(bytes_max);
        let mut last = None;
        for _ in 0..reader.count(SESSION_BYTES_MIN).ok()? {
            let session = SessionId::decode(reader).ok()?;
            if last.replace(session).is_some_and(|last| last >= session) {
                return None;
            }
            let tail = Tail::decode(reader).ok()?;
            tail.first_event.checked_add(tail.events)?;
            if tail.events > 0 {
                tails.sessions.entry(session).or_insert(tail).keep_within(bytes_max);
            }
        }
        Some(tails)
    }
}

impl Tail {
    fn kept(&self) -> &[u8] {
        &self.bytes[self.forgotten..]
    }

    /// Forgets the oldest events beyond the bound.
    fn keep_within(&mut self, bytes_max: usize) {
        while self.kept().len() > bytes_max {
            let mut rest = self.kept();
            split_event(&mut rest);
            self.forgotten = self.bytes.len() - rest.len();
            self.first_event += 1;
            self.events -= 1;
        }
        if self.forgotten > self.kept().len() {
            self.bytes.drain(..self.forgotten);
            self.forgotten = 0;
        }
    }

    /// A session's part of the encoding, but for its number.
    fn decode(reader: &mut Reader<'_>) -> Result<Tail, DecodeError> {
        let first_event = u64::decode(reader)?;
        let events = reader.count(HEAD_BYTES)?;
        let mut ahead = reader.clone();
        let before = ahead.remaining();
        for _ in 0..events {
            ahead.take(HEAD_BYTES - 4)?;
            let len = ahead.count(1)?;
            ahead.take(len)?;
        }
        let bytes = reader.take(before - ahead.remaining())?.to_vec();
        Ok(Tail { first_event, events: events as u64, bytes, forgotten: 0 })
    }
}

/// Takes the first event off what is kept: its cause, client seq and output.
fn split_event<'a>(kept: &mut &'a [u8]) -> (Seq, u64, &'a [u8]) {
    let (head, rest) = kept.split_first_chunk::<HEAD_BYTES>().expect("an event begins here");
    let u64_at = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let len = u32::from_le_bytes(head[16..].try_into().expect("four bytes"));
    let (output, rest) = rest.split_at(len as usize);
    *kept = rest;
    (Seq(u64_at(0)), u64_at(8), output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(tails: &mut Tails, session: u64, event_seq: u64, bytes: &[u8]) {
        let target = Target::Session(SessionId(session));
        tails.push(&Emitted { seq: Seq(event_seq * 10), target, event_seq, client_seq: event_seq + 3, bytes });
    }

    fn decode(bytes: &[u8], bytes_max: usize) -> Option<Tails> {
        Tails::decode(&mut Reader::new(bytes), bytes_max)
    }

    fn events(tails: &Tails) -> Vec<(u64, u64, Vec<u8>)> {
        let mut all = Vec::new();
        tails.for_each(|event| {
            let Target::Session(session) = event.target else { panic!("only sessions have tails") };
            assert_eq!((event.seq.0, event.client_seq), (event.event_seq * 10, event.event_seq + 3));
            all.push((session.0, event.event_seq, event.bytes.to_vec()));
        });
        all
    }

    #[test]
    fn the_oldest_events_of_a_session_go_and_no_other_session_pays() {
        let mut tails = Tails::new(3 * (HEAD_BYTES + 2));
        push(&mut tails, 9, 5, b"zz");
        (1..=5).for_each(|event| push(&mut tails, 1, event, &[b'a', event as u8]));
        let numbers: Vec<_> = events(&tails).iter().map(|event| (event.0, event.1)).collect();
        assert_eq!(numbers, [(1, 3), (1, 4), (1, 5), (9, 5)]);
    }

    #[test]
    fn an_event_larger_than_the_bound_leaves_nothing_and_numbers_go_on() {
        let mut tails = Tails::new(HEAD_BYTES + 4);
        push(&mut tails, 1, 1, b"abcdef");
        assert_eq!(events(&tails), []);
        push(&mut tails, 1, 2, b"ab");
        assert_eq!(events(&tails), [(1, 2, b"ab".to_vec())]);
    }

    /// What is written by hand, as the types have it.
    #[derive(Encode, Decode)]
    struct Kept {
        first_event: u64,
        events: Vec<(Seq, u64, Vec<u8>)>,
    }

    #[test]
    fn the_encoding_is_that_of_a_map_of_lists() {
        let mut tails = Tails::new(3 * (HEAD_BYTES + 2));
        (1..=5).for_each(|event| push(&mut tails, 1, event, &[b'a', event as u8]));
        push(&mut tails, 9, 5, b"");
        push(&mut tails, 4, 1, &[0; 100]);
        let mut kept: BTreeMap<SessionId, Kept> = BTreeMap::new();
        tails.for_each(|event| {
            let Target::Session(session) = event.target else { panic!("only sessions have tails") };
            let first_event = event.event_seq;
            let kept = kept.entry(session).or_insert_with(|| Kept { first_event, events: Vec::new() });
            kept.events.push((event.seq, event.client_seq, event.bytes.to_vec()));
        });
        assert_eq!(
            kept.keys().map(|session| session.0).collect::<Vec<_>>(),
            [1, 9],
            "one that holds nothing is left out"
        );
        let mut bytes = Vec::new();
        tails.encode(&mut bytes);
        assert_eq!(bytes, kept.to_bytes());
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len], 1 << 10), None, "the first {len} bytes of it");
        }
        let swapped = [&bytes[..4], &bytes[bytes.len() - 40..], &bytes[4..bytes.len() - 40]].concat();
        assert!(BTreeMap::<SessionId, Kept>::from_bytes(&swapped).is_err());
        assert_eq!(decode(&swapped, 1 << 10), None, "sessions ascend");
    }

    #[test]
    fn what_is_forgotten_takes_no_more_room_than_what_is_kept() {
        let mut tails = Tails::new(10 * (HEAD_BYTES + 2));
        (1..=1000).for_each(|event| push(&mut tails, 1, event, b"ab"));
        let tail = &tails.sessions[&SessionId(1)];
        assert_eq!((tail.first_event, tail.events, tail.kept().len()), (991, 10, 10 * (HEAD_BYTES + 2)));
        assert!(tail.bytes.len() <= 2 * tail.kept().len());
    }

    #[test]
    fn an_encoding_reads_back_within_the_bound_of_the_reader() {
        let mut tails = Tails::new(1 << 10);
        (1..=4).for_each(|event| push(&mut tails, 1, event, b"xy"));
        push(&mut tails, 2, 7, b"");
        let mut bytes = Vec::new();
        tails.encode(&mut bytes);
        assert_eq!(decode(&bytes, 1 << 10), Some(tails));
        let fewer = decode(&bytes, 2 * (HEAD_BYTES + 2)).unwrap();
        assert_eq!(events(&fewer).len(), 3);
        assert_eq!(decode(&bytes[1..], 1 << 10), None);
    }
}
