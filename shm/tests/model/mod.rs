//! The oracle: what a ring must do, said with a plain queue. Property tests and loom models check against the same one.
#![allow(dead_code)]

use std::collections::VecDeque;

use ticktape_core::frame::padded;
use ticktape_core::{Frame, Kind, Seq, Timestamp};

/// The sealed frame number `seq`, with a payload that depends on nothing but its arguments.
pub fn sealed(seq: u64, payload_bytes: usize) -> Vec<u8> {
    let payload: Vec<u8> =
        (0..payload_bytes).map(|at| (seq as u8).wrapping_mul(31).wrapping_add(at as u8) | 1).collect();
    let mut out = Vec::new();
    let timestamp = Timestamp(seq.wrapping_mul(1_000_003));
    Frame { seq: Seq(seq), timestamp, stream_id: seq as u16, kind: Kind::Input, payload: &payload }.append_to(&mut out);
    out
}

/// `frame` as it must stand in the ring.
pub fn padded_frame(frame: &[u8]) -> Vec<u8> {
    let mut out = frame.to_vec();
    out.resize(padded(frame.len()), 0);
    out
}

/// A log with consumers: what was pushed, how far it is published, how far each has come.
pub struct Oracle {
    first_seq: u64,
    frames: Vec<Vec<u8>>,
    published: usize,
    readers: Vec<Reader>,
}

struct Reader {
    after: Vec<usize>,
    read: usize,
    released: usize,
    pending: VecDeque<usize>,
}

impl Oracle {
    pub fn new(first_seq: u64, after: &[Vec<usize>]) -> Self {
        let reader =
            |after: &Vec<usize>| Reader { after: after.clone(), read: 0, released: 0, pending: VecDeque::new() };
        Oracle { first_seq, frames: Vec::new(), published: 0, readers: after.iter().map(reader).collect() }
    }

    pub fn next_seq(&self) -> u64 {
        self.first_seq + self.frames.len() as u64
    }

    pub fn push(&mut self, frame: &[u8]) {
        self.frames.push(frame.to_vec());
    }

    pub fn publish(&mut self) {
        self.published = self.frames.len();
    }

    pub fn published(&self) -> usize {
        self.published
    }

    /// The frame with this seq, if it is published.
    pub fn frame(&self, seq: u64) -> Option<&[u8]> {
        let index = seq.checked_sub(self.first_seq)? as usize;
        (index < self.published).then(|| &self.frames[index][..])
    }

    fn visible_to(&self, reader: usize) -> usize {
        let before = self.readers[reader].after.iter().map(|&other| self.readers[other].released);
        before.min().unwrap_or(usize::MAX).min(self.published)
    }

    /// What the reader must see next.
    pub fn peek(&self, reader: usize) -> Option<&[u8]> {
        let at = self.readers[reader].read;
        (at < self.visible_to(reader)).then(|| &self.frames[at][..])
    }

    pub fn advance(&mut self, reader: usize) {
        self.readers[reader].read += 1;
    }

    pub fn release(&mut self, reader: usize) {
        self.readers[reader].released = self.readers[reader].read;
    }

    /// Padded bytes of the open batch.
    pub fn open_bytes(&self) -> usize {
        self.frames[self.published..].iter().map(|frame| padded(frame.len())).sum()
    }

    /// Padded bytes of what some reader has not released, open batch included.
    pub fn held_bytes(&self) -> usize {
        let released = self.readers.iter().map(|reader| reader.released).min().unwrap_or(self.frames.len());
        self.frames[released..].iter().map(|frame| padded(frame.len())).sum()
    }

    /// Padded bytes of what this reader has not released, open batch included.
    pub fn held_bytes_of(&self, reader: usize) -> usize {
        self.frames[self.readers[reader].released..].iter().map(|frame| padded(frame.len())).sum()
    }
}
