//! The journal's writer: what its owner calls.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ticktape_core::{Nanos, Seq};

use crate::calibration::Calibration;
use crate::config::JournalConfig;
use crate::disk::{BufferId, Disk, FileId, Op, OpenMode, Outcome, Stat};
use crate::error::JournalError;
use crate::format::commit;
use crate::format::seal::Sealed;
use crate::gather::{Gather, LEAD_BYTES};
use crate::limits::{ALIGNMENT_BYTES_MAX, FILL_CHUNK_BYTES, UNSYNCED_COMMITS_MAX};
use crate::names;
use crate::pipeline::Write;
use crate::recover::{self, Opening, Recovered, at, run};
use crate::sealed;
use crate::segments::{Current, Segments};
use crate::strategy::{Strategy, StrategyChoice, Watch};

/// Counters of one journal since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Bytes of commits written, with headers and padding.
    pub bytes: u64,
    /// Commits written, seals included.
    pub commits: u64,
    /// Seals among them.
    pub seals: u64,
    /// Frames written.
    pub frames: u64,
    /// Syncs completed.
    pub syncs: u64,
    /// Writes that the disk completed only in part, and that were gone on with.
    pub short_writes: u64,
    /// Segments begun, the first included.
    pub segments: u64,
    /// Segments that were released and became spares.
    pub recycled: u64,
    /// Segments that were released and deleted.
    pub deleted: u64,
    /// Bytes zero-filled ahead.
    pub filled_bytes: u64,
    /// Polls that could not submit because no segment was ready.
    pub stalls: u64,
    /// Times that a strategy was given up because it had become slow.
    pub demotions: u64,
}

/// A journal open for appending. One owner; nothing but [`Journal::housekeeping`] allocates after `open`.
///
/// Invariant: `durable` moves only over a contiguous prefix of commits whose writes, and the syncs that cover them, completed
/// without error; after the first error it never moves again.
#[derive(Debug)]
pub struct Journal<D: Disk> {
    pub(crate) disk: D,
    pub(crate) dir: PathBuf,
    pub(crate) config: JournalConfig,
    pub(crate) alignment: usize,
    /// Which log this is, never 0.
    pub(crate) log_id: u64,
    pub(crate) epoch: u64,
    pub(crate) appended: Seq,
    pub(crate) durable: Seq,
    /// The `durable` that the last submitted commit carries.
    pub(crate) recorded: Seq,
    pub(crate) durable_moved_at: Nanos,
    /// When the current segment was last looked for under its name.
    pub(crate) looked_at: Nanos,
    /// The commit that appends go to.
    pub(crate) gather: Option<Gather>,
    /// Commits that are full and wait for their turn.
    pub(crate) ready: VecDeque<Gather>,
    /// Bytes, at most, that `ready` takes on the disk.
    pub(crate) ready_bytes: usize,
    pub(crate) free: Vec<BufferId>,
    /// Submitted commits that are not durable yet, in order.
    pub(crate) writes: VecDeque<Write>,
    /// The number of the first of `writes`.
    pub(crate) front: u64,
    /// How many of `writes` are under way.
    pub(crate) in_flight: usize,
    /// The file whose sync is under way.
    pub(crate) syncing: Option<FileId>,
    pub(crate) segments: Segments,
    pub(crate) failed: Option<JournalError>,
    /// How commits become durable now.
    pub(crate) strategy: Strategy,
    pub(crate) watch: Watch,
    /// What was measured at start-up, or why that failed.
    pub(crate) calibration: Option<Result<Calibration, JournalError>>,
    /// The frame that was asked room for and is larger than any commit.
    too_large: Option<JournalError>,
    pub(crate) stats: JournalStats,
}

impl<D: Disk> Journal<D> {
    /// Opens the journal in `dir`, which is created if it is missing, locks it and recovers what it holds. Blocks.
    ///
    /// # Errors
    /// [`JournalError`]: a bad configuration, a lock that is held, a disk that fails, damage in acknowledged data.
    pub fn open(disk: D, dir: &Path, config: JournalConfig) -> Result<(Journal<D>, Recovered), JournalError> {
        Journal::open_covered(disk, dir, config, Seq::ZERO)
    }

    /// As [`Journal::open`], where a durable and verified snapshot has everything up to `covered`, which is [`Seq::ZERO`] where
    /// there is none. A journal without segments then begins right after it, at an epoch that its owner has to
    /// [set](Journal::set_epoch), and is the same log if it is told [which](JournalConfig::log_id).
    ///
    /// # Errors
    /// As [`Journal::open`]; also where the log ends before `covered`, or begins after the seq that comes next.
    pub fn open_covered(
        mut disk: D,
        dir: &Path,
        config: JournalConfig,
        covered: Seq,
    ) -> Result<(Journal<D>, Recovered), JournalError> {
        config.validate()?;
        run(&mut disk, dir, Op::CreateDir { path: dir })?;
        let lock = dir.join(names::LOCK);
        disk.run(Op::Lock { path: &lock }).map_err(|error| {
            if error.is_held() { JournalError::InUse { dir: dir.to_owned() } } else { at(&lock, error) }
        })?;
        let Opening { mut recovered, link, durable: kept, closed } = recover::recover(&mut disk, dir, covered)?;
        let mut salts = config.salts.from(recovered.next_seq);
        let (current, stat) = first_segment(&mut disk, dir, &config, recovered.next_seq)?;
        let salt = salts.next();
        let given = [recovered.log_id, config.log_id].into_iter().find(|&log_id| log_id != 0);
        recovered.log_id = given.unwrap_or_else(|| salts.next());
        // Should the first write of that segment be lost, this is all that tells whose commits the others are.
        sealed::write_seal(&mut disk, dir, Sealed { durable: kept, next_salt: salt })?;
        let segments = Segments::new(&mut disk, dir, salts, Current { salt, ..current }, link, closed, stat.direct)?;
        let buffers = 2 * config.writes_in_flight + 1;
        let mut free = Vec::with_capacity(buffers);
        for _ in 0..buffers {
            free.push(disk.allocate(LEAD_BYTES + config.commit_bytes_max).map_err(|error| at(dir, error))?);
        }
        let durable = Seq(recovered.next_seq.0 - 1);
        let journal = Journal {
            disk,
            dir: dir.to_owned(),
            alignment: stat.alignment,
            log_id: recovered.log_id,
            epoch: recovered.last_epoch,
            appended: durable,
            durable,
            recorded: durable,
            durable_moved_at: 0,
            looked_at: 0,
            gather: None,
            ready: VecDeque::with_capacity(buffers),
            ready_bytes: 0,
            free,
            writes: VecDeque::with_capacity(UNSYNCED_COMMITS_MAX),
            front: 0,
            in_flight: 0,
            syncing: None,
            too_large: None,
            segments,
            failed: None,
            strategy: config.strategy.unmeasured(),
            watch: Watch::default(),
            calibration: None,
            stats: JournalStats { segments: 1, ..JournalStats::default() },
            config,
        };
        Ok((journal, recovered))
    }

    /// From the next append on, frames are of this epoch.
    ///
    /// # Panics
    /// When it is an earlier one: epochs never fall.
    pub fn set_epoch(&mut self, epoch: u64) {
        assert!(epoch >= self.epoch, "epoch {epoch} after {}", self.epoch);
        if epoch != self.epoch {
            self.epoch = epoch;
            self.close_gather();
        }
    }

    /// Whether a frame of `padded_bytes` can be appended now: true until the next append or poll.
    ///
    /// False for ever once the journal has [`failed`](Journal::failed); false for now while the disk is behind, or while
    /// there is no space for another segment: see [`starved`](Journal::starved).
    pub fn room(&mut self, padded_bytes: usize) -> bool {
        if self.failed.is_some() {
            return false;
        }
        self.too_large = None;
        let max = self.config.commit_bytes_max;
        let gathered = match &self.gather {
            Some(gather) if gather.fits(padded_bytes, max) => gather.length,
            _ if padded_bytes > self.config.frame_bytes_max() => {
                let max = self.config.frame_bytes_max();
                self.too_large = Some(JournalError::FrameTooLarge { bytes: padded_bytes, max });
                return false;
            }
            _ if self.free.is_empty() => return false,
            Some(gather) => gather.length + 2 * self.alignment + commit::HEADER_BYTES,
            None => 0,
        };
        let open = commit::total_bytes(gathered + padded_bytes, self.alignment);
        self.segments.has_space((self.ready_bytes + open) as u64, self.alignment as u64)
    }

    /// Takes a frame, padded to 8 bytes as in the ring, into the commit that is being gathered. It is copied.
    ///
    /// # Panics
    /// When `seq` is not the next, or there is no [`room`](Journal::room): both are checked by the caller. After a failure
    /// nothing is checked and nothing kept.
    #[inline]
    pub fn append(&mut self, seq: Seq, padded_frame: &[u8]) {
        self.append_run(seq, 1, padded_frame);
    }

    /// Takes `count` frames that stand back to back, each padded to 8 bytes, the first with seq `base`. As one frame:
    /// [`room`](Journal::room) has to have been true for all their bytes, and they share one commit.
    ///
    /// # Panics
    /// As [`Journal::append`].
    #[inline]
    pub fn append_run(&mut self, base: Seq, count: u32, padded_frames: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        assert_eq!(base, self.appended.next(), "appends are gapless");
        assert!(padded_frames.len().is_multiple_of(8) && count > 0, "frames come padded");
        debug_assert_eq!(padded_frames[..8], base.0.to_le_bytes(), "the frame has this seq");
        let fits =
            self.gather.as_ref().is_some_and(|gather| gather.fits(padded_frames.len(), self.config.commit_bytes_max));
        if !fits {
            self.close_gather();
            let buffer = self.free.pop().expect("room was true");
            self.gather = Some(Gather::new(buffer, self.epoch, base));
        }
        let gather = self.gather.as_mut().expect("just made sure");
        let at = gather.end();
        self.disk.bytes_mut(gather.buffer)[at..at + padded_frames.len()].copy_from_slice(padded_frames);
        gather.length += padded_frames.len();
        gather.count += count;
        self.appended = Seq(base.0 + u64::from(count) - 1);
    }

    /// Which log this is: random, never 0, the same in all its segments and snapshots for ever.
    pub fn log_id(&self) -> u64 {
        self.log_id
    }

    /// A random number, never 0, from where the salts come: for what its owner has to tell apart.
    pub fn mint(&mut self) -> u64 {
        self.segments.mint()
    }

    /// The highest seq up to which everything is durable.
    pub fn durable(&self) -> Seq {
        self.durable
    }

    /// The highest seq that was appended.
    pub fn appended(&self) -> Seq {
        self.appended
    }

    /// Whether anything is under way on the disk: an idle owner that yields meanwhile gives the completion a processor.
    pub fn busy(&self) -> bool {
        self.in_flight > 0 || self.syncing.is_some()
    }

    /// Whether a chore of [`housekeeping`](Journal::housekeeping) is under way.
    pub fn has_chores(&self) -> bool {
        !self.segments.is_idle()
    }

    /// Gives the processor away, for `timeout` at most, while something is under way on the disk. False, at once, where nothing is.
    pub fn wait_at_most(&mut self, timeout: Duration) -> bool {
        let busy = self.busy();
        if busy {
            self.disk.wait_at_most(timeout);
        }
        busy
    }

    /// The first error of a write or sync, for good.
    pub fn failed(&self) -> Option<&JournalError> {
        self.failed.as_ref()
    }

    /// Why there is no [`room`](Journal::room) although the disk is not behind: no space for another segment, or a frame too
    /// large. It clears when the cause does.
    pub fn starved(&self) -> Option<&JournalError> {
        self.too_large.as_ref().or(self.segments.starved.as_ref())
    }

    /// Polls until everything appended is durable. `now` is called once a poll.
    ///
    /// # Errors
    /// What the journal failed with, or is starved of.
    pub fn sync_blocking(&mut self, mut now: impl FnMut() -> Nanos) -> Result<(), JournalError> {
        loop {
            self.poll(now());
            if let Some(error) = &self.failed {
                return Err(error.clone());
            }
            if self.durable == self.appended {
                return Ok(());
            }
            if !self.busy()
                && let Some(error) = &self.segments.starved
            {
                return Err(error.clone());
            }
            self.disk.wait();
        }
    }

    /// Makes everything durable, seals, and frees what the last segment reserved and did not use.
    ///
    /// # Errors
    /// What the journal failed with.
    pub fn close(mut self) -> Result<(), JournalError> {
        self.sync_blocking(|| 0)?;
        if self.recorded < self.durable && self.can_seal() {
            self.submit_seal(0);
        }
        self.drain()?;
        self.finish_segments()?;
        if self.durable == Seq::ZERO {
            sealed::remove_seal(&mut self.disk, &self.dir)?;
        } else {
            // Nothing is begun after this but by another opening, which announces its own.
            sealed::write_seal(&mut self.disk, &self.dir, Sealed { durable: self.durable, next_salt: 0 })?;
        }
        Ok(())
    }

    /// What has been written since it was opened.
    pub fn stats(&self) -> JournalStats {
        self.stats
    }

    /// Its configuration.
    pub fn config(&self) -> &JournalConfig {
        &self.config
    }

    /// Goes over to what a calibration chose. [`Journal::describe`] tells its figures.
    pub fn adopt(&mut self, calibration: Calibration) {
        self.strategy = calibration.choice;
        self.watch = Watch::slower_than(calibration.slow_ns());
        self.calibration = Some(Ok(calibration));
    }

    /// What the strategy was chosen by, if a calibration was.
    pub fn calibration(&self) -> Option<&Calibration> {
        self.calibration.as_ref()?.as_ref().ok()
    }

    /// How commits become durable now: as configured or calibrated, unless that has become slow.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// The backend and the strategy, and why them.
    pub fn describe(&self) -> String {
        let measured = match &self.calibration {
            None if self.config.strategy == StrategyChoice::Auto => "not calibrated".to_string(),
            None => "as configured".to_string(),
            Some(Ok(calibration)) => calibration.to_string(),
            Some(Err(error)) => format!("calibration failed: {error}"),
        };
        let why = if self.stats.demotions > 0 { format!("dsync had become slow; {measured}") } else { measured };
        format!(
            "{}; {} strategy ({why}), {} writes in flight, commits up to {} KiB, segments of {} KiB",
            self.disk.describe(),
            self.strategy,
            self.config.writes_in_flight,
            self.config.commit_bytes_max >> 10,
            self.config.segment_bytes >> 10
        )
    }

    /// Whether the current segment takes `bytes` of frames without a roll.
    pub(crate) fn has_current_room(&self, bytes: usize) -> bool {
        let block = self.alignment as u64;
        self.segments.current_fits(commit::total_bytes(bytes, self.alignment) as u64 + block, block)
    }

    /// Ends the commit that is being gathered: it will be submitted as it is.
    pub(crate) fn close_gather(&mut self) {
        if let Some(gather) = self.gather.take() {
            self.ready_bytes += commit::total_bytes(gather.length, self.alignment);
            self.ready.push_back(gather);
        }
    }
}

/// Begins the segment that the first appends go to, under its final name.
fn first_segment<D: Disk>(
    disk: &mut D,
    dir: &Path,
    config: &JournalConfig,
    first_seq: Seq,
) -> Result<(Current, Stat), JournalError> {
    let path = names::segment(dir, first_seq);
    let file = recover::open(disk, &path, OpenMode::Create)?;
    let bytes = config.segment_bytes as u64;
    let prepared = disk
        .run(Op::Preallocate { file, bytes })
        .map_err(|error| at(&path, error))
        .and_then(|_| prefill(disk, &path, file, config.prefill_bytes as u64));
    let filled = prepared.map_err(|error| {
        // What was begun goes again, best as it can: a blank segment that stays is removed at the next start. Only then is
        // its part of the space free again, and counted.
        let _ = disk.run(Op::Delete { path: &path });
        let _ = disk.run(Op::Close { file });
        match error {
            JournalError::Disk { error, .. } if error.is_full() => no_space(disk, dir, bytes),
            other => other,
        }
    })?;
    let Outcome::Stat(stat) = run(disk, &path, Op::Stat { file })? else { unreachable!("stat stats") };
    run(disk, dir, Op::SyncDir { path: dir })?;
    let current = Current {
        file,
        path,
        first_seq,
        salt: 0,
        next_salt: 0,
        offset: 0,
        bytes,
        filled,
        filling_to: filled,
        chain: 0,
        next_seq: Seq::ZERO,
        recycled: false,
        renamed: true,
    };
    Ok((current, stat))
}

/// Zero-fills and syncs the first `bytes` of a segment; returns how many that came to.
fn prefill<D: Disk>(disk: &mut D, path: &Path, file: FileId, bytes: u64) -> Result<u64, JournalError> {
    let bytes = bytes & !(ALIGNMENT_BYTES_MAX as u64 - 1);
    if bytes == 0 {
        return Ok(0);
    }
    let buffer = disk.allocate(FILL_CHUNK_BYTES).map_err(|error| at(path, error))?;
    let mut offset = 0;
    while offset < bytes {
        let len = (bytes - offset).min(FILL_CHUNK_BYTES as u64) as usize;
        recover::write_all(disk, path, file, buffer, len, offset)?;
        offset += len as u64;
    }
    disk.release(buffer);
    run(disk, path, Op::Sync { file })?;
    Ok(bytes)
}

/// A full disk is named as such, with what is needed and what is there.
fn no_space<D: Disk>(disk: &mut D, dir: &Path, needed: u64) -> JournalError {
    let free = match disk.run(Op::FreeSpace { path: dir }) {
        Ok(Outcome::Free(bytes)) => bytes,
        _ => 0,
    };
    JournalError::NoSpace { dir: dir.to_owned(), needed, free }
}
