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
        out_front.copy_from_slice(front);
        out_back.copy_from_slice(back);
        let slot = self.slot(seq);
        self.starts[slot] = start;
        self.head = start + needed;
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
    }

    /// The longest run of neighbours from `base` on, below `limit` and within `room` bytes: its bytes, and how many it has.
    #[inline]
    pub(super) fn run(&self, base: u64, limit: u64, room: usize) -> (&[u8], u64) {
        let mask = self.bytes.len() - 1;
        let start = self.starts[self.slot(base)];
        let begin = start as usize & mask;
        // A message may end just where the ring does: the next is not adjacent to it.
        let room = room.min(self.bytes.len() - begin);
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
