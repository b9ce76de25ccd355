//! The latest events of each session, for clients that come back after a restart from a snapshot.
//!
//! What a client has acknowledged is no part of history, so the bound is in bytes: the oldest events go first.

use std::collections::{BTreeMap, VecDeque};

use ticktape_core::{Reader, Seq, SessionId, Target};

use crate::machine::Emitted;
use crate::{Decode, Encode};

/// An event's bytes of bookkeeping: cause, client seq and length.
const HEAD_BYTES: usize = 20;

/// The latest events of every session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tails {
    bytes_max: usize,
    sessions: BTreeMap<SessionId, Tail>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tail {
    first_event: u64,
    events: u64,
    bytes: VecDeque<u8>,
}

/// Events of one session on their way to or from a snapshot: the number of the first, and (cause, client seq, output) of each.
#[derive(Encode, Decode)]
struct Kept {
    first_event: u64,
    events: Vec<(Seq, u64, Vec<u8>)>,
}

impl Tails {
    /// No events, and room for `bytes_max` bytes of them for each session.
    pub fn new(bytes_max: usize) -> Self {
        Tails { bytes_max, sessions: BTreeMap::new() }
    }

    /// Keeps an output, if it is for a session.
    pub fn push(&mut self, output: &Emitted<'_>) {
        let Target::Session(session) = output.target else { return };
        let bytes_max = self.bytes_max;
        let tail = self.sessions.entry(session).or_default();
        if tail.events == 0 {
            tail.first_event = output.event_seq;
        }
        tail.bytes.extend(output.seq.0.to_le_bytes());
        tail.bytes.extend(output.client_seq.to_le_bytes());
        tail.bytes.extend((output.bytes.len() as u32).to_le_bytes());
        tail.bytes.extend(output.bytes);
        tail.events += 1;
        while tail.bytes.len() > bytes_max && tail.events > 0 {
            tail.forget_oldest();
        }
    }

    /// Every event that is kept, session by session, in order.
    pub fn for_each(&self, mut f: impl FnMut(&Emitted<'_>)) {
        for (&session, tail) in &self.sessions {
            tail.for_each(|event_seq, seq, client_seq, bytes| {
                f(&Emitted { seq, target: Target::Session(session), event_seq, client_seq, bytes });
            });
        }
    }

    /// The encoding of a snapshot's tails section.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let kept: BTreeMap<SessionId, Kept> = self
            .sessions
            .iter()
            .filter(|(_, tail)| tail.events > 0)
            .map(|(&session, tail)| {
                let mut events = Vec::with_capacity(tail.events as usize);
                tail.for_each(|_, seq, client_seq, bytes| events.push((seq, client_seq, bytes.to_vec())));
                (session, Kept { first_event: tail.first_event, events })
            })
            .collect();
        kept.encode(out);
    }

    /// What [`Tails::encode`] wrote, within the bound that holds now. `None` where it is no such encoding.
    pub(crate) fn decode(reader: &mut Reader<'_>, bytes_max: usize) -> Option<Tails> {
        let kept = BTreeMap::<SessionId, Kept>::decode(reader).ok()?;
        let mut tails = Tails::new(bytes_max);
        for (session, Kept { first_event, events }) in kept {
            first_event.checked_add(events.len() as u64)?;
            for (event_seq, (seq, client_seq, bytes)) in (first_event..).zip(&events) {
                let (target, client_seq) = (Target::Session(session), *client_seq);
                tails.push(&Emitted { seq: *seq, target, event_seq, client_seq, bytes });
            }
        }
        Some(tails)
    }
}

impl Tail {
    fn forget_oldest(&mut self) {
        let (_, _, len) = self.head_at(0);
        self.bytes.drain(..HEAD_BYTES + len);
        self.first_event += 1;
        self.events -= 1;
    }

    fn head_at(&self, at: usize) -> (Seq, u64, usize) {
        let mut head = [0; HEAD_BYTES];
        head.iter_mut().zip(self.bytes.range(at..)).for_each(|(to, from)| *to = *from);
        let u64_at = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let len = u32::from_le_bytes(head[16..].try_into().expect("four bytes"));
        (Seq(u64_at(0)), u64_at(8), len as usize)
    }

    fn for_each(&self, mut f: impl FnMut(u64, Seq, u64, &[u8])) {
        let (mut at, mut output) = (0, Vec::new());
        for event_seq in self.first_event..self.first_event + self.events {
            let (seq, client_seq, len) = self.head_at(at);
            output.clear();
            output.extend(self.bytes.range(at + HEAD_BYTES..at + HEAD_BYTES + len));
            f(event_seq, seq, client_seq, &output);
            at += HEAD_BYTES + len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(tails: &mut Tails, session: u64, event_seq: u64, bytes: &[u8]) {
        let target = Target::Session(SessionId(session));
        tails.push(&Emitted { seq: Seq(event_seq * 10), target, event_seq, client_seq: event_seq + 3, bytes });
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

    #[test]
    fn an_encoding_reads_back_within_the_bound_of_the_reader() {
        let mut tails = Tails::new(1 << 10);
        (1..=4).for_each(|event| push(&mut tails, 1, event, b"xy"));
        push(&mut tails, 2, 7, b"");
        let mut bytes = Vec::new();
        tails.encode(&mut bytes);
        let decode = |bytes: &[u8], bytes_max| Tails::decode(&mut Reader::new(bytes), bytes_max);
        assert_eq!(decode(&bytes, 1 << 10), Some(tails));
        let fewer = decode(&bytes, 2 * (HEAD_BYTES + 2)).unwrap();
        assert_eq!(events(&fewer).len(), 3);
        assert_eq!(decode(&bytes[1..], 1 << 10), None);
    }
}
