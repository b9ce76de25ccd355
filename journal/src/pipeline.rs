//! The writer's duty cycle: submitting what has gathered, and moving the watermark over what is durable.
//!
//! A commit goes out at once when nothing is being written; while something is, the next one gathers, and goes out when the
//! write completes or the commit is full. So batches are as large as the disk is slow.

use ticktape_core::{Nanos, Seq};

use crate::disk::{BufferId, Completion, Disk, DiskError, FileId, Op, Outcome};
use crate::error::JournalError;
use crate::format::commit::{self, CommitHeader};
use crate::format::segment::{SegmentHeader, Version};
use crate::gather::{Gather, LEAD_BYTES};
use crate::journal::Journal;
use crate::limits::UNSYNCED_COMMITS_MAX;
use crate::recover::at;
use crate::strategy::Strategy;

/// What a completion's token says in its upper half.
pub(crate) const CLASS_SHIFT: u32 = 56;
pub(crate) const CLASS_WRITE: u64 = 1;
pub(crate) const CLASS_SYNC: u64 = 2;
pub(crate) const CLASS_CHORE: u64 = 3;

/// How far a submitted commit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Being written.
    Writing,
    /// Written; a sync that begins from now on covers it.
    Written,
    /// Written before the sync that is under way began.
    Syncing,
    /// Durable, but something before it may not be.
    Durable,
}

/// A submitted commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) file: FileId,
    pub(crate) buffer: BufferId,
    /// What of the buffer is still to be written, and where to.
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) offset: u64,
    /// The last seq in it; of a seal, the one before.
    pub(crate) last_seq: Seq,
    pub(crate) state: State,
    /// Whether it is durable when it completes, and when it was submitted.
    pub(crate) durable: bool,
    pub(crate) submitted_at: Nanos,
}

impl<D: Disk> Journal<D> {
    /// One duty cycle; returns how much was done. In this order: completions are reaped and the watermark moved, commits
    /// submitted, a sync begun if one is due, and when all is quiet a seal. Never blocks on the io_uring backend.
    pub fn poll(&mut self, now: Nanos) -> usize {
        let mut work = self.reap(now);
        if self.failed.is_some() {
            return work;
        }
        work += self.submit_due(now);
        work += usize::from(self.sync_due());
        // A synchronous disk has completed what was just submitted.
        work += self.reap(now);
        work += usize::from(self.sync_due());
        work += usize::from(self.seal_due(now));
        if self.segments.wanted {
            work += self.housekeeping(now);
        }
        work
    }

    fn reap(&mut self, now: Nanos) -> usize {
        let mut reaped = 0;
        while let Some(Completion { token, result }) = self.disk.poll() {
            reaped += 1;
            let number = token & ((1 << CLASS_SHIFT) - 1);
            match token >> CLASS_SHIFT {
                CLASS_WRITE => self.write_completed(number, result, now),
                CLASS_SYNC => self.sync_completed(result),
                CLASS_CHORE => self.chore_completed(result),
                _ => unreachable!("every token has a class"),
            }
        }
        if reaped > 0 && self.failed.is_none() {
            self.advance(now);
        }
        reaped
    }

    fn write_completed(&mut self, number: u64, result: Result<Outcome, DiskError>, now: Nanos) {
        let index = (number - self.front) as usize;
        self.in_flight -= 1;
        let done = match result {
            Ok(Outcome::Transferred(done)) => done,
            Ok(_) => unreachable!("a write transfers"),
            Err(error) => return self.fail_disk(self.writes[index].file, error),
        };
        let write = &mut self.writes[index];
        assert_eq!(write.state, State::Writing);
        if done < write.len {
            // Whole blocks are taken as written; the rest is written again, and synced with the whole.
            let whole = done & !(self.alignment - 1);
            if whole == 0 {
                let offset = write.offset;
                let segment = self.segments.path_of(write.file);
                return self.fail(JournalError::WriteZero { segment, offset });
            }
            write.start += whole;
            write.len -= whole;
            write.offset += whole as u64;
            self.stats.short_writes += 1;
            return self.submit_write(number);
        }
        write.state = if write.durable { State::Durable } else { State::Written };
        let (buffer, durable, took_ns) = (write.buffer, write.durable, now.saturating_sub(write.submitted_at));
        self.free.push(buffer);
        if durable && self.watch.note(took_ns) {
            self.demote();
        }
    }

    /// Durable writes have become slow: from the next commit on, they are written and synced apart. For good: what made them
    /// slow is how the box is used.
    fn demote(&mut self) {
        if self.strategy == Strategy::Dsync {
            self.strategy = Strategy::Group;
            self.stats.demotions += 1;
        }
    }

    fn sync_completed(&mut self, result: Result<Outcome, DiskError>) {
        let file = self.syncing.take().expect("a sync was under way");
        if let Err(error) = result {
            return self.fail_disk(file, error);
        }
        self.stats.syncs += 1;
        for write in self.writes.iter_mut().filter(|write| write.state == State::Syncing) {
            write.state = State::Durable;
        }
    }

    /// Moves the watermark over the durable prefix.
    fn advance(&mut self, now: Nanos) {
        let before = self.durable;
        while self.writes.front().is_some_and(|write| write.state == State::Durable) {
            let write = self.writes.pop_front().expect("there is a front");
            self.front += 1;
            assert!(write.last_seq >= self.durable, "the watermark never moves back");
            self.durable = write.last_seq;
        }
        if self.durable > before {
            self.durable_moved_at = now;
        }
    }

    fn submit_due(&mut self, now: Nanos) -> usize {
        let mut submitted = 0;
        let writable = self.strategy.may_write(self.syncing.is_some());
        while writable && self.in_flight < self.config.writes_in_flight && self.writes.len() < UNSYNCED_COMMITS_MAX {
            // Full commits go out as fast as the disk takes them, one that still gathers only when nothing is being written.
            if self.ready.is_empty() && self.in_flight == 0 {
                self.close_gather();
            }
            let Some(&gather) = self.ready.front() else { break };
            if !self.make_fit(commit::total_bytes(gather.length, self.alignment)) {
                self.stats.stalls += 1;
                break;
            }
            self.ready.pop_front();
            self.ready_bytes -= commit::total_bytes(gather.length, self.alignment);
            self.submit_commit(gather, now);
            submitted += 1;
        }
        submitted
    }

    /// Sees to it that the current segment can take a commit of `total` bytes, by rolling if need be.
    fn make_fit(&mut self, total: usize) -> bool {
        // One block stays for the seal that may follow.
        let reserve = self.alignment as u64;
        if !self.segments.current_fits(total as u64 + reserve, reserve) {
            if !self.segments.roll() {
                return false;
            }
            self.stats.segments += 1;
        }
        self.segments.current.fill_is_clear_of(total as u64 + reserve)
    }

    fn submit_commit(&mut self, gather: Gather, now: Nanos) {
        let alignment = self.alignment;
        let total = commit::total_bytes(gather.length, alignment);
        let current = &mut self.segments.current;
        let begins = current.offset == 0;
        let bytes = self.disk.bytes_mut(gather.buffer);
        if begins {
            current.first_seq = gather.base_seq;
            let version = Version::Two {
                salt: current.salt,
                previous_salt: self.segments.link.salt,
                previous_checksum: self.segments.link.checksum,
                alignment: alignment as u32,
                recycled: current.recycled,
                log_id: self.log_id,
            };
            let header = SegmentHeader { first_seq: gather.base_seq, epoch: gather.epoch, version };
            current.chain = header.encode(&mut bytes[LEAD_BYTES - alignment..LEAD_BYTES]);
        }
        bytes[gather.end()..LEAD_BYTES + total].fill(0);
        let header = CommitHeader {
            salt: current.salt,
            epoch: gather.epoch,
            base_seq: gather.base_seq,
            durable: self.durable,
            count: gather.count,
            length: gather.length as u32,
            previous: current.chain,
            next_salt: current.next_salt,
        };
        current.next_seq = header.next_seq();
        current.chain = header.seal(&mut bytes[LEAD_BYTES..LEAD_BYTES + total]);
        self.recorded = self.durable;
        let lead = if begins { alignment } else { 0 };
        let write = Write {
            file: current.file,
            buffer: gather.buffer,
            start: LEAD_BYTES - lead,
            len: lead + total,
            offset: current.offset,
            last_seq: Seq(header.next_seq().0 - 1),
            state: State::Writing,
            durable: self.strategy.writes_durably(),
            submitted_at: now,
        };
        current.offset += (lead + total) as u64;
        let number = self.front + self.writes.len() as u64;
        self.writes.push_back(write);
        self.stats.commits += 1;
        self.stats.frames += u64::from(gather.count);
        self.stats.seals += u64::from(gather.count == 0);
        self.stats.bytes += total as u64;
        self.submit_write(number);
    }

    fn submit_write(&mut self, number: u64) {
        let write = self.writes[(number - self.front) as usize];
        let Write { file, buffer, start, len, offset, durable, .. } = write;
        self.in_flight += 1;
        self.disk.submit(CLASS_WRITE << CLASS_SHIFT | number, Op::Write { file, buffer, start, len, offset, durable });
    }

    /// Begins a sync when the front of the order has been written and waits for one: only that moves the watermark.
    fn sync_due(&mut self) -> bool {
        if self.syncing.is_some() || self.failed.is_some() || !self.strategy.may_sync(self.in_flight) {
            return false;
        }
        let Some(front) = self.writes.iter().find(|write| write.state != State::Durable) else { return false };
        if front.state != State::Written {
            return false;
        }
        let file = front.file;
        for write in self.writes.iter_mut().filter(|write| write.file == file && write.state == State::Written) {
            write.state = State::Syncing;
        }
        self.syncing = Some(file);
        self.disk.submit(CLASS_SYNC << CLASS_SHIFT, Op::Sync { file });
        true
    }

    fn seal_due(&mut self, now: Nanos) -> bool {
        let quiet = self.recorded < self.durable && self.durable == self.appended && self.writes.is_empty();
        let due = quiet && now.saturating_sub(self.durable_moved_at) >= self.config.seal_delay_ns && self.can_seal();
        if due {
            self.submit_seal(now);
        }
        due
    }

    /// Whether the current segment holds something, and has a block for a seal.
    pub(crate) fn can_seal(&self) -> bool {
        let block = self.alignment as u64;
        let current = &self.segments.current;
        self.failed.is_none()
            && current.offset > 0
            && self.segments.current_fits(block, block)
            && current.fill_is_clear_of(block)
            && !self.free.is_empty()
    }

    /// Submits an empty commit that records what is durable.
    pub(crate) fn submit_seal(&mut self, now: Nanos) {
        let buffer = self.free.pop().expect("checked by can_seal");
        self.submit_commit(Gather::new(buffer, self.epoch, self.appended.next()), now);
    }

    /// Waits until nothing is under way.
    pub(crate) fn drain(&mut self) -> Result<(), JournalError> {
        loop {
            self.reap(0);
            if let Some(error) = &self.failed {
                return Err(error.clone());
            }
            let synced = self.sync_due();
            if !synced && !self.busy() && self.writes.is_empty() && self.segments.is_idle() {
                return Ok(());
            }
            self.disk.wait();
        }
    }

    /// Latches the first failure.
    pub(crate) fn fail(&mut self, error: JournalError) {
        self.failed.get_or_insert(error);
    }

    fn fail_disk(&mut self, file: FileId, error: DiskError) {
        let path = self.segments.path_of(file);
        self.fail(at(&path, error));
    }
}
