//! A byte ring of messages as they stand on the wire: each after its length, none straddling the ring's end, so that any run of
//! neighbours is one slice.

use super::layout::data;

/// The bytes, and where each message starts. Seqs are its owner's.
#[derive(Debug)]
pub(super) struct SentRing {
    bytes: Box<[u8]>,
    /// By `seq % messages`: a position, never reduced modulo the ring's size.
    starts: Box<[u64]>,
    tail: u64,
    head: u64,
    /// The seq that was not pushed yet: what comes before it ends at `head`.
    next_seq: u64,
}

impl SentRing {
    /// Both sizes are powers of two.
    pub(super) fn new(bytes: usize, messages: usize) -> Self {
        assert!(bytes.is_power_of_two() && messages.is_power_of_two());
        SentRing {
            bytes: vec![0; bytes].into_boxed_slice(),
            starts: vec![0; messages].into_boxed_slice(),
            tail: 0,
            head: 0,
            next_seq: 0,
        }
    }

    /// How many messages it may hold.
    #[inline]
    pub(super) const fn messages_max(&self) -> u64 {
        self.starts.len() as u64
    }

    /// Appends message `seq`, in two parts; false where there is no room. `is_empty`: nothing is kept any more.
    #[inline]
    pub(super) fn push(&mut self, seq: u64, front: &[u8], back: &[u8], is_empty: bool) -> bool {
        if is_empty {
            (self.tail, self.head) = (0, 0);
        }
        let message_bytes = front.len() + back.len();
        let (ring_bytes, needed) = (self.bytes.len() as u64, (data::LEN_BYTES + message_bytes) as u64);
        let left = ring_bytes - (self.head & (ring_bytes - 1));
        let start = if needed <= left { self.head } else { self.head + left };
        if start + needed - self.tail > ring_bytes {
            return false;
        }
        let at = (start & (ring_bytes - 1)) as usize;
        let out = &mut self.bytes[at..at + needed as usize];
        let (len, out) = out.split_at_mut(data::LEN_BYTES);
        len.copy_from_slice(&(message_bytes as u16).to_le_bytes());
        let (out_front, out_back) = out.split_at_mut(front.len());
        copy(out_front, front);
        copy(out_back, back);
        let slot = self.slot(seq);
        self.starts[slot] = start;
        self.head = start + needed;
        self.next_seq = seq + 1;
        true
    }

    /// Forgets what lies before `seq`, which is kept, or, where nothing is kept (`is_empty`), everything.
    #[inline]
    pub(super) fn release(&mut self, seq: u64, is_empty: bool) {
        self.tail = if is_empty { self.head } else { self.starts[self.slot(seq)] };
    }

    /// Takes back everything from `seq`, which is kept, on.
    pub(super) fn truncate(&mut self, seq: u64) {
        self.head = self.starts[self.slot(seq)];
        self.next_seq = seq;
    }

    /// The longest run of neighbours from `base` on, below `limit` and within `room` bytes: its bytes, and how many it has.
    #[inline]
    pub(super) fn run(&self, base: u64, limit: u64, room: usize) -> (&[u8], u64) {
        let mask = self.bytes.len() - 1;
        let start = self.starts[self.slot(base)];
        let begin = start as usize & mask;
        // A message may end just where the ring does: the next is not adjacent to it.
        let room = room.min(self.bytes.len() - begin);
        // All of it, where it fits. What begins at the ring's end may stand behind a gap before that: then it is walked over.
        let end = if limit == self.next_seq { self.head } else { self.starts[self.slot(limit)] };
        if base < limit && end > start && end - start <= room as u64 && end as usize & mask != 0 {
            return (&self.bytes[begin..begin + (end - start) as usize], limit - base);
        }
        let (mut bytes, mut seq) = (0, base);
        while seq < limit && self.starts[self.slot(seq)] == start + bytes as u64 && bytes + data::LEN_BYTES <= room {
            let at = begin + bytes;
            let len = u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]);
            let end = bytes + data::LEN_BYTES + usize::from(len);
            if end > room {
                break;
            }
            bytes = end;
            seq += 1;
        }
        (&self.bytes[begin..begin + bytes], seq - base)
    }

    #[inline]
    const fn slot(&self, seq: u64) -> usize {
        (seq & (self.starts.len() as u64 - 1)) as usize
    }
}

/// Copies a message. Small ones inline: a call to the system's copy costs as much as the copying itself.
#[inline]
fn copy(out: &mut [u8], from: &[u8]) {
    let len = from.len();
    assert!(out.len() == len);
    // Both ends, which overlap: no loop, and no size that is not known here.
    match len {
        // The front of a command: there is none.
        0 => {}
        33..=64 => both_ends::<32>(out, from),
        16..=32 => both_ends::<16>(out, from),
        8..=15 => both_ends::<8>(out, from),
        65..=128 => both_ends::<64>(out, from),
        _ => out.copy_from_slice(from),
    }
}

#[inline]
fn both_ends<const N: usize>(out: &mut [u8], from: &[u8]) {
    let at = from.len() - N;
    out[..N].copy_from_slice(&from[..N]);
    out[at..].copy_from_slice(&from[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_run_is_what_was_pushed_as_far_as_it_stands_in_one_piece(
            messages in prop::collection::vec((0usize..200, 0usize..3), 1..120),
            room in 0usize..700,
        ) {
            let mut ring = SentRing::new(1 << 10, 16);
            let (mut kept, mut first) = (std::collections::VecDeque::new(), 1u64);
            for (seq, (len, released)) in (1u64..).zip(messages) {
                for _ in 0..released {
                    if kept.pop_front().is_some() {
                        first += 1;
                        ring.release(first, kept.is_empty());
                    }
                }
                let message: Vec<u8> = (0..len).map(|at| (seq as usize * 7 + at) as u8).collect();
                while kept.len() == 16 || !ring.push(seq, &message[..len / 3], &message[len / 3..], kept.is_empty()) {
                    kept.pop_front();
                    first += 1;
                    ring.release(first, kept.is_empty());
                }
                kept.push_back(message);
                for base in first..=seq {
                    for limit in base..=seq + 1 {
                        let (bytes, count) = ring.run(base, limit, room);
                        let wire = |message: &Vec<u8>| {
                            [&(message.len() as u16).to_le_bytes()[..], message].concat()
                        };
                        let at = (base - first) as usize;
                        let expected: Vec<u8> = kept.range(at..at + count as usize).flat_map(wire).collect();
                        prop_assert_eq!(bytes, expected);
                        prop_assert!(bytes.len() <= room && count <= limit - base);
                        // It ends for a reason: the limit, the room, or the ring's end.
                        if count < limit - base {
                            let next = wire(&kept[at + count as usize]).len();
                            let end = (ring.starts[ring.slot(base)] as usize & 1023) + bytes.len();
                            prop_assert!(bytes.len() + next > room || end + next > 1024);
                        }
                    }
                }
            }
        }
    }
}
