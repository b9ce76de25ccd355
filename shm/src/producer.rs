//! The one writer.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use ticktape_core::Seq;
use ticktape_core::frame::{OVERHEAD_BYTES, padded, payload_len};

use crate::anchor::{Anchor, AnchorWriter};
use crate::config::RingConfig;
use crate::layout::{CLAIM, HEARTBEAT_NS, SEQUENCED_HINT, SKIP, TAIL_BYTES, chunk_bytes};
use crate::ring::{Cursors, Ownership};
use crate::sync::{Ordering, fence};
use crate::words::Data;

/// The most that an idle producer keeps zeroed ahead of its position, in bytes. It prepares as much as it wrote since it was
/// idle last, and the word after it, in whole lines. Measured on one-to-one hops of one line (raw slot: 54 ns): nothing
/// zeroed 103 ns, the frame's line alone 110, the word after it as well 62, twice that 67, eight lines 76: lines that are
/// prepared too early are taken away again by the reader's prefetcher.
pub const ZERO_AHEAD_BYTES_MAX: u64 = 512;

/// What a busy producer zeroes at a time, in bytes, so that it asks for the next lines together and not one with each frame.
/// Measured with bursts of one frame, beside the `disruptor` crate: 1.3 times its rate with the word alone, 3 times with four
/// lines, where a line takes 240 ns from core to core.
const ZERO_BUSY_BYTES: u64 = 200;

/// The unit of [`ZERO_AHEAD_BYTES_MAX`], in bytes.
const LINE_BYTES: u64 = 64;

/// The ring has no room: some consumer has to release first. Publish what is pushed, let them work, try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the ring is full until a consumer releases")
    }
}

impl std::error::Error for Full {}

/// A consumer that the writer waits for.
pub(crate) struct Gate {
    pub(crate) cursor: usize,
    pub(crate) hold_bytes_max: u64,
}

/// Writes frames. There is one to a ring.
///
/// Invariant: `batch_position <= position`, and `position + 8 <= min(gate_limit, claim)`.
/// Invariant: the word at `batch_position` is zero in memory until `publish` stores `held` there.
pub struct Producer {
    data: Data,
    /// Where the next frame goes.
    position: u64,
    /// A frame and the word after it must end at or before this: the least of gates, claim, lap's end and batch.
    limit: u64,
    /// Where the open batch starts.
    batch_position: u64,
    /// The first word of the open batch, 0 while there is none.
    held: u64,
    next_seq: u64,
    /// Every word from `position + 8` up to here is zero.
    zeroed_to: u64,
    /// Where `position` was when the producer was idle last.
    idle_position: u64,
    /// How far ahead `idle` wants the words zeroed.
    ahead_bytes: u64,
    frame_bytes_max: usize,
    batch_bytes_max: u64,
    /// The next frame of the open batch's start, were there one.
    batch_seq: u64,
    gate_limit: u64,
    claim: u64,
    chunk_bytes: u64,
    anchors: AnchorWriter,
    gates: Box<[Gate]>,
    cursors: Arc<Cursors>,
    owner: Arc<Ownership>,
}

impl Producer {
    pub(crate) fn new(
        config: &RingConfig,
        first_seq: Seq,
        data: Data,
        gates: Box<[Gate]>,
        cursors: Arc<Cursors>,
        owner: Arc<Ownership>,
    ) -> Self {
        let chunk_bytes = chunk_bytes(config.capacity_bytes) as u64;
        owner.words.at(CLAIM).store(chunk_bytes, Ordering::Relaxed);
        owner.words.at(SEQUENCED_HINT).store(first_seq.0 - 1, Ordering::Relaxed);
        let mut anchors = AnchorWriter::new(owner.words.clone(), config.epoch);
        anchors.write(Anchor { seq: first_seq, position: 0 });
        Producer {
            position: 0,
            limit: 0,
            batch_position: 0,
            held: 0,
            next_seq: first_seq.0,
            // Fresh memory is zero throughout.
            zeroed_to: data.capacity(),
            idle_position: 0,
            ahead_bytes: LINE_BYTES + TAIL_BYTES,
            frame_bytes_max: config.frame_bytes_max,
            batch_bytes_max: config.batch_bytes_max as u64,
            batch_seq: first_seq.0,
            gate_limit: 0,
            claim: chunk_bytes,
            chunk_bytes,
            anchors,
            gates,
            cursors,
            owner,
            data,
        }
    }

    /// The seq that the next frame must carry.
    #[inline]
    pub fn next_seq(&self) -> Seq {
        Seq(self.next_seq)
    }

    /// Bytes written so far, skips included; in the unit of [`Consumer::position`](crate::Consumer::position).
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether frames of `bytes` padded bytes together are certain to be taken by [`push`](Self::push) now. Reads the
    /// consumers' cursors only when what is known does not do.
    #[inline]
    pub fn room(&mut self, bytes: usize) -> bool {
        let end = self.position + bytes as u64 + TAIL_BYTES;
        end <= self.limit || self.room_beyond_limit(bytes as u64)
    }

    #[inline(never)]
    fn room_beyond_limit(&mut self, bytes: u64) -> bool {
        let to_lap_end = self.data.lap_end(self.position) - self.position;
        let end = bytes + TAIL_BYTES;
        // A skip wastes less than the largest frame and its tail, wherever among the frames it falls.
        let waste =
            if end <= to_lap_end { 0 } else { to_lap_end.min(padded(self.frame_bytes_max) as u64 + TAIL_BYTES) };
        self.gates_allow(self.position + waste + end)
    }

    /// Takes a sealed frame, unpadded, into the open batch. Nobody sees it before [`publish`](Self::publish), which happens by
    /// itself only where the batch would grow beyond `batch_bytes_max`.
    ///
    /// # Errors
    /// [`Full`]; nothing has changed then.
    ///
    /// # Panics
    /// When it is no frame, is larger than `frame_bytes_max`, or its seq is not [`next_seq`](Self::next_seq).
    #[inline(always)]
    pub fn push(&mut self, frame: &[u8]) -> Result<(), Full> {
        assert!(frame.len() >= OVERHEAD_BYTES && frame.len() <= self.frame_bytes_max, "frame size");
        assert!(frame.len() == OVERHEAD_BYTES + payload_len(frame), "frame length field");
        let seq = u64::from_le_bytes(*frame.first_chunk().expect("checked above"));
        assert!(seq == self.next_seq, "frame out of order");
        let bytes = padded(frame.len()) as u64;
        if self.position + bytes + TAIL_BYTES > self.limit {
            self.make_room(bytes)?;
        }
        if self.held == 0 {
            self.held = seq;
            self.data.write_frame(self.position, frame, 1);
        } else {
            self.data.write_frame(self.position, frame, 0);
        }
        self.position += bytes;
        self.next_seq += 1;
        Ok(())
    }

    /// Makes the open batch visible; nothing where there is none.
    #[inline(always)]
    pub fn publish(&mut self) {
        if self.held == 0 {
            return;
        }
        if self.position + TAIL_BYTES > self.zeroed_to {
            self.zero_tail();
        }
        // Pairs with the Acquire load in `Consumer::find` and the Acquire fences in `Follower`: who sees it sees the batch and
        // the zero after it.
        self.data.at(self.batch_position).store(self.held, Ordering::Release);
        self.batch_position = self.position;
        self.batch_seq = self.next_seq;
        self.held = 0;
    }

    /// To be called when there was nothing to do: prepares the next lines, so that the next frame does not pay for them.
    #[inline(always)]
    pub fn idle(&mut self) {
        if self.zeroed_to < self.position + self.ahead_bytes && self.held == 0 {
            self.zero_ahead();
        }
    }

    /// Shows followers that this writer lives. `now_ns` is any clock that moves between calls.
    #[inline]
    pub fn heartbeat(&mut self, now_ns: u64) {
        // Hints: nothing is read on their strength, so no ordering.
        self.owner.words.at(SEQUENCED_HINT).store(self.batch_seq - 1, Ordering::Relaxed);
        self.owner.words.at(HEARTBEAT_NS).store(now_ns, Ordering::Relaxed);
    }

    /// Zeroes the word after the batch, and the lines after it, as far as the limit lets it.
    #[inline]
    fn zero_tail(&mut self) {
        let target = (self.position + ZERO_BUSY_BYTES).next_multiple_of(LINE_BYTES);
        self.zeroed_to = if target <= self.limit { target } else { self.position + TAIL_BYTES };
        let mut at = self.position;
        while at < self.zeroed_to {
            self.data.at(at).store(0, Ordering::Relaxed);
            at += 8;
        }
    }

    #[inline(never)]
    fn zero_ahead(&mut self) {
        let written = self.position - self.idle_position;
        if written != 0 {
            self.idle_position = self.position;
            self.ahead_bytes = (written + TAIL_BYTES).min(ZERO_AHEAD_BYTES_MAX).min(self.data.capacity() / 4);
        }
        let target = (self.position + self.ahead_bytes).next_multiple_of(LINE_BYTES);
        if target <= self.zeroed_to || !self.gates_allow(target) {
            return;
        }
        self.claim_to(target);
        self.refresh_limit();
        let mut at = self.zeroed_to.max(self.position + TAIL_BYTES);
        while at < target {
            self.data.at(at).store(0, Ordering::Relaxed);
            at += 8;
        }
        self.zeroed_to = target;
    }

    /// The rare path of `push`: whatever the limit stood for.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, bytes: u64) -> Result<(), Full> {
        let lap_end = self.data.lap_end(self.position);
        let skips = self.position + bytes + TAIL_BYTES > lap_end;
        let start = if skips { lap_end } else { self.position };
        if !self.gates_allow(start + bytes + TAIL_BYTES) {
            return Err(Full);
        }
        if start + bytes - self.batch_position > self.batch_bytes_max {
            self.publish();
        }
        self.claim_to(start + bytes + TAIL_BYTES);
        if skips {
            // The frame at the lap's start follows in this same batch, so the skip never leads to a stale word.
            let skip = SKIP | self.next_seq;
            if self.held == 0 {
                self.held = skip;
            } else {
                self.data.at(self.position).store(skip, Ordering::Relaxed);
            }
            self.position = lap_end;
        }
        self.refresh_limit();
        Ok(())
    }

    /// Whether the consumers have released enough for the writer to write up to `end`.
    fn gates_allow(&mut self, end: u64) -> bool {
        if end <= self.gate_limit {
            return true;
        }
        self.gate_limit = u64::MAX;
        for gate in &self.gates {
            let cursor: &CachePadded<_> = &self.cursors[gate.cursor];
            // Pairs with the Release store in `Consumer::release_to`: their reads are over before we write.
            let released = cursor.load(Ordering::Acquire);
            self.gate_limit = self.gate_limit.min(released + gate.hold_bytes_max);
        }
        end <= self.gate_limit
    }

    /// Announces that everything below `end` may be written from now on, a chunk at a time.
    fn claim_to(&mut self, end: u64) {
        if end <= self.claim {
            return;
        }
        self.claim = end.next_multiple_of(self.chunk_bytes);
        self.owner.words.at(CLAIM).store(self.claim, Ordering::Relaxed);
        // Pairs with the Acquire fence before a follower reads the claim again: who has seen a word that is written after
        // this sees the claim.
        fence(Ordering::Release);
        self.anchors.write(Anchor { seq: Seq(self.batch_seq), position: self.batch_position });
        self.owner.words.at(SEQUENCED_HINT).store(self.batch_seq - 1, Ordering::Relaxed);
    }

    fn refresh_limit(&mut self) {
        let batch_limit = self.batch_position + self.batch_bytes_max + TAIL_BYTES;
        self.limit = self.gate_limit.min(self.claim).min(self.data.lap_end(self.position)).min(batch_limit);
    }
}
