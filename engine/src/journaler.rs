//! The journaler: takes frames from the ring to the disk, and says how far they are durable.
//!
//! Order of a poll: append what the ring has, let the disk work, move the durable watermark, give ring space back.
//! Invariant: ring space is given back only for frames that are durable, so what is not yet durable is still in memory.

use std::collections::VecDeque;
use std::time::Duration;

use ticktape_core::{Nanos, Seq};
use ticktape_journal::{Disk, Journal, JournalError};
use ticktape_shm::{Consumer, DurableMark};

use crate::metrics::StageLatency;

/// Frames taken in one poll. Enough for a full commit of small frames; more would only delay the first one's write.
const FRAMES_PER_POLL_MAX: usize = 1024;

/// Ring bytes taken at once: a good part of a commit. A run never spans two commits, so larger ones would leave them less full.
const RUN_BYTES_MAX: usize = 32 << 10;

/// Batches whose ring space is held apart. The disk has far fewer writes in flight; beyond it batches are held as one.
const HELD_BATCHES_MAX: usize = 4096;

/// At tier `memory` the journal follows this far behind: nobody waits for it, and a write for each input would cost the
/// thread it shares a doorbell each (20 to 40 µs in a virtual machine). What it adds to a crash's loss is within what the tier says.
const UNHURRIED_NS: u64 = 1_000_000;

/// Ring bytes that are written at once, however short the time since the last write: more would not make it cheaper, and keep the ring full.
const UNHURRIED_BYTES: u64 = 64 << 10;

/// The stage between the log ring and the journal.
pub struct Journaler<D: Disk> {
    frames: Consumer,
    journal: Journal<D>,
    mark: DurableMark,
    held: VecDeque<(Seq, u64)>,
    run_bytes_max: usize,
    /// How long the disk is left alone between two polls of it, and for how many ring bytes.
    patience_ns: u64,
    patience_bytes: u64,
    polled_at: Nanos,
    /// Where the reader stood at the last of them.
    polled_position: u64,
    durable: Seq,
    latency: StageLatency,
}

impl<D: Disk> Journaler<D> {
    /// Journals what `frames` delivers and moves `mark`.
    pub fn new(frames: Consumer, journal: Journal<D>, mark: DurableMark, latency: StageLatency) -> Self {
        let durable = journal.durable();
        assert_eq!(frames.next_seq(), journal.appended().next(), "the ring starts where the journal ends");
        let run_bytes_max = RUN_BYTES_MAX.min(journal.config().frame_bytes_max());
        let held = VecDeque::with_capacity(HELD_BATCHES_MAX);
        let polled_position = frames.position();
        Journaler {
            frames,
            journal,
            mark,
            held,
            run_bytes_max,
            patience_ns: 0,
            patience_bytes: 0,
            polled_at: 0,
            polled_position,
            durable,
            latency,
        }
    }

    /// Nobody waits for durability: turns to the disk only now and then, or when a good write's worth has gathered, so that many small
    /// inputs share a write, and its system call, which would hold up the other stages of the thread.
    pub fn be_unhurried(&mut self, ring_bytes: usize) {
        // A small ring has to be given back sooner.
        self.patience_bytes = UNHURRIED_BYTES.min(ring_bytes as u64 / 8);
        self.patience_ns = UNHURRIED_NS;
    }

    /// One duty cycle; returns the frames taken plus the disk's work.
    #[inline]
    pub fn poll(&mut self, now: Nanos) -> usize {
        self.latency.settle(now);
        let taken = self.take();
        let position = self.frames.position();
        let is_patient = now.saturating_sub(self.polled_at) < self.patience_ns;
        if is_patient && position - self.polled_position < self.patience_bytes {
            return taken;
        }
        (self.polled_at, self.polled_position) = (now, position);
        let work = self.journal.poll(now);
        let durable = self.journal.durable();
        if durable > self.durable {
            self.advance(durable);
        }
        taken + work
    }

    /// Whether the journal can take a frame of so many padded bytes now.
    #[inline]
    pub fn room(&mut self, padded_bytes: usize) -> bool {
        self.journal.room(padded_bytes)
    }

    /// Appends what the ring has, a bounded batch, to the commit that is being gathered; returns the frames taken.
    #[inline]
    pub fn take(&mut self) -> usize {
        let mut taken = 0;
        let mut last = Seq::ZERO;
        while taken < FRAMES_PER_POLL_MAX {
            let Some(run) = self.frames.run(self.run_bytes_max) else { break };
            if !self.journal.room(run.bytes.len()) {
                break;
            }
            self.journal.append_run(run.first_seq, run.frames as u32, run.bytes);
            last = Seq(run.first_seq.0 + run.frames as u64 - 1);
            taken += run.frames;
            self.frames.advance();
        }
        if taken > 0 {
            self.hold(last);
        }
        taken
    }

    /// Keeps the ring space up to here until `last` is durable; with very many batches held, the last two share one entry.
    fn hold(&mut self, last: Seq) {
        if self.held.len() == HELD_BATCHES_MAX {
            self.held.pop_back();
        }
        self.held.push_back((last, self.frames.position()));
    }

    fn advance(&mut self, durable: Seq) {
        self.mark.set(durable);
        self.latency.pass(durable);
        self.durable = durable;
        let mut released = None;
        while let Some(&(last, position)) = self.held.front() {
            if last > durable {
                break;
            }
            released = Some(position);
            self.held.pop_front();
        }
        if let Some(position) = released {
            self.frames.release_to(position);
        }
    }

    /// Blocks until everything that was taken is durable.
    ///
    /// # Errors
    /// As [`Journal::sync_blocking`].
    pub fn sync_blocking(&mut self, now: impl FnMut() -> Nanos) -> Result<(), JournalError> {
        let result = self.journal.sync_blocking(now);
        let durable = self.journal.durable();
        if durable > self.durable {
            self.advance(durable);
        }
        result
    }

    /// Work off the hot path: preparing segments. Call it when a poll found nothing, and now and then under load.
    pub fn housekeeping(&mut self, now: Nanos) -> usize {
        self.journal.housekeeping(now)
    }

    /// Everything before `seq` is covered by a snapshot: its segments may be used again.
    pub fn release_before(&mut self, seq: Seq) {
        self.journal.release_before(seq);
    }

    /// Waits in the kernel, for `timeout` at most, while something is under way on the disk. False, at once, where nothing is.
    pub fn wait_at_most(&mut self, timeout: Duration) -> bool {
        self.journal.wait_at_most(timeout)
    }

    /// The last durable frame.
    pub fn durable(&self) -> Seq {
        self.durable
    }

    /// Why the journal has stopped for good, if it has.
    pub fn failed(&self) -> Option<&JournalError> {
        self.journal.failed()
    }

    /// Why frames that wait can't be taken although the disk is not behind: no space for them.
    pub fn starved(&mut self) -> Option<&JournalError> {
        if self.journal.busy() || self.frames.peek().is_none() {
            return None;
        }
        self.journal.starved()
    }

    /// The journal.
    pub fn journal(&self) -> &Journal<D> {
        &self.journal
    }

    /// Drains, syncs and seals the journal, and hands over the latencies.
    ///
    /// # Errors
    /// As [`Journal::close`].
    pub fn close(self) -> Result<StageLatency, JournalError> {
        self.journal.close()?;
        Ok(self.latency)
    }
}

#[cfg(test)]
#[path = "journaler_tests.rs"]
mod tests;
