//! A gated reader of the same process: the writer waits for it.

use std::sync::Arc;

use ticktape_core::Seq;
use ticktape_core::frame::{OVERHEAD_BYTES, padded};

use crate::layout::{SKIP, TAIL_BYTES};
use crate::ring::Cursors;
use crate::sync::Ordering;
use crate::words::Data;

/// How many frames [`Consumer::poll`] hands out before it releases them. Seldom enough that the cursor's line stays
/// with its owner, often enough that the writer sees room in time.
pub const RELEASE_CADENCE_FRAMES: usize = 64;

/// Frames that stand back to back in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<'a> {
    /// The frames, each padded to 8 bytes.
    pub bytes: &'a [u8],
    /// How many there are, at least one.
    pub frames: usize,
    /// The first one's seq.
    pub first_seq: Seq,
}

/// Reads every frame, in order, in place. What it has not released stays.
///
/// Invariant: `released <= position`; the writer writes nothing in `[released, released + capacity)` that is published.
pub struct Consumer {
    data: Data,
    position: u64,
    next_seq: u64,
    /// May read below this: the least that the consumers before this one have released.
    limit: u64,
    peeked_bytes: u64,
    peeked_frames: u64,
    released: u64,
    after: Box<[usize]>,
    cursor: usize,
    cursors: Arc<Cursors>,
    name: &'static str,
    #[cfg(loom)]
    scratch: Vec<u64>,
}

impl Consumer {
    pub(crate) fn new(
        name: &'static str,
        cursor: usize,
        after: Box<[usize]>,
        first_seq: Seq,
        data: Data,
        cursors: Arc<Cursors>,
    ) -> Self {
        Consumer {
            data,
            position: 0,
            next_seq: first_seq.0,
            limit: if after.is_empty() { u64::MAX } else { 0 },
            peeked_bytes: 0,
            peeked_frames: 0,
            released: 0,
            after,
            cursor,
            cursors,
            name,
            #[cfg(loom)]
            scratch: Vec::new(),
        }
    }

    /// The name it was given when the ring was built.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The seq of the frame that [`peek`](Self::peek) looks for.
    #[inline]
    pub fn next_seq(&self) -> Seq {
        Seq(self.next_seq)
    }

    /// Bytes gone past so far, skips included. Only grows; for [`release_to`](Self::release_to).
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next frame, padded to 8 bytes, as it stands in the ring. `None`: not there yet, or not yet released by those before.
    #[inline(always)]
    pub fn peek(&mut self) -> Option<&[u8]> {
        let bytes = self.find()?;
        self.peeked_bytes = bytes;
        self.peeked_frames = 1;
        Some(self.lend(self.position, bytes as usize))
    }

    /// As many of the next frames as stand back to back and fit `bytes_max`; the first one even where it doesn't. One
    /// [`advance`](Self::advance) goes past all of them.
    #[inline]
    pub fn run(&mut self, bytes_max: usize) -> Option<Run<'_>> {
        let mut bytes = self.find()?;
        let (first_seq, mut frames) = (self.next_seq, 1);
        let lap_end = self.data.lap_end(self.position);
        while self.position + bytes + TAIL_BYTES <= lap_end && self.position + bytes < self.limit {
            // Pairs with the Release store in `Producer::publish`.
            let word = self.data.at(self.position + bytes).load(Ordering::Acquire);
            if word != first_seq + frames {
                break;
            }
            let next = self.frame_bytes(self.position + bytes);
            if bytes + next > bytes_max as u64 {
                break;
            }
            bytes += next;
            frames += 1;
        }
        self.peeked_bytes = bytes;
        self.peeked_frames = frames;
        let bytes = self.lend(self.position, bytes as usize);
        Some(Run { bytes, frames: frames as usize, first_seq: Seq(first_seq) })
    }

    /// Goes past what was peeked. The writer does not get it back before [`release`](Self::release).
    ///
    /// # Panics
    /// Where nothing was peeked.
    #[inline(always)]
    pub fn advance(&mut self) {
        assert!(self.peeked_bytes != 0, "advance without peek");
        self.position += self.peeked_bytes;
        self.next_seq += self.peeked_frames;
        self.peeked_bytes = 0;
    }

    /// Gives back everything gone past.
    #[inline(always)]
    pub fn release(&mut self) {
        if self.released != self.position {
            self.released = self.position;
            self.store_cursor();
        }
    }

    /// Gives back everything before `position`, an earlier value of [`position`](Self::position).
    ///
    /// # Panics
    /// Where it lies ahead of this consumer, or before what it has released already.
    #[inline]
    pub fn release_to(&mut self, position: u64) {
        assert!(self.released <= position && position <= self.position, "release outside what was read");
        if self.released != position {
            self.released = position;
            self.store_cursor();
        }
    }

    /// Hands the next frames, at most `frames_max`, to `f`, and releases them, each [`RELEASE_CADENCE_FRAMES`] and at the end.
    /// Returns how many there were. A frame in which `f` panics counts as not read.
    #[inline(always)]
    pub fn poll(&mut self, frames_max: usize, mut f: impl FnMut(&[u8])) -> usize {
        let mut done = 0;
        self.peeked_bytes = 0;
        while done < frames_max {
            let until = frames_max.min(done + RELEASE_CADENCE_FRAMES);
            while done < until {
                let Some(bytes) = self.find() else { break };
                f(self.lend(self.position, bytes as usize));
                self.position += bytes;
                self.next_seq += 1;
                done += 1;
            }
            self.release();
            if done < until {
                break;
            }
        }
        done
    }

    /// Steps over a skip, and says how long the frame at `position` is, if there is one that may be read.
    #[inline(always)]
    fn find(&mut self) -> Option<u64> {
        loop {
            if self.position >= self.limit && !self.raise_limit() {
                return None;
            }
            // Pairs with the Release store in `Producer::publish`.
            let word = self.data.at(self.position).load(Ordering::Acquire);
            if word == self.next_seq {
                return Some(self.frame_bytes(self.position));
            }
            if word == 0 {
                return None;
            }
            self.skip(word);
        }
    }

    /// The padded size of the published frame at `position`.
    #[inline(always)]
    fn frame_bytes(&self, position: u64) -> u64 {
        let payload_bytes = self.data.at(position + 16).load(Ordering::Relaxed) >> 32;
        let bytes = padded(OVERHEAD_BYTES + payload_bytes as usize) as u64;
        assert!(self.data.offset(position) + bytes + TAIL_BYTES <= self.data.capacity(), "ring memory was damaged");
        bytes
    }

    #[cold]
    #[inline(never)]
    fn skip(&mut self, word: u64) {
        assert!(word == SKIP | self.next_seq && self.data.offset(self.position) != 0, "ring memory was damaged");
        self.position = self.data.lap_end(self.position);
    }

    #[inline(never)]
    fn raise_limit(&mut self) -> bool {
        // Pairs with the Release store in `store_cursor` of those before: what they did with a frame, and the writer's bytes,
        // are visible here.
        let released = |&index: &usize| self.cursors[index].load(Ordering::Acquire);
        self.limit = self.after.iter().map(released).min().unwrap_or(u64::MAX);
        self.position < self.limit
    }

    #[inline(always)]
    fn store_cursor(&self) {
        // Pairs with the Acquire loads in `Producer::gates_allow` and in `raise_limit` of those after.
        self.cursors[self.cursor].store(self.released, Ordering::Release);
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn lend(&self, position: u64, bytes: usize) -> &[u8] {
        // SAFETY: the bytes are published and lie in [released, position of the writer), which the writer's gate on our
        // cursor protects until we release; releasing takes `&mut self`, so it ends the loan.
        unsafe { self.data.lend(position, bytes) }
    }

    #[cfg(loom)]
    fn lend(&mut self, position: u64, bytes: usize) -> &[u8] {
        self.scratch.resize(bytes / 8, 0);
        self.data.read(position, &mut self.scratch);
        crate::words::as_bytes(&self.scratch, bytes)
    }
}
