//! A journal under its duty cycle, as the journaler's core runs it.

use std::path::Path;
use std::time::{Duration, Instant};

use ticktape_core::frame::padded;
use ticktape_core::{Frame, Kind, Nanos, Seq, Timestamp, frame};
use ticktape_journal::{Binding, Journal, JournalConfig, NativeDisk, Strategy};
use ticktape_tuning::pin;

/// Frames of one append.
pub const BATCH: usize = 64;
/// Bytes of a frame, header and checksum included.
pub const FRAME_BYTES: usize = 128;
/// Between two rounds of housekeeping, as on an appliance's cores.
const HOUSEKEEPING_NS: Nanos = 1_000_000;
/// The longest wait in the kernel of a thread that has no core to itself.
const WAIT_MAX: Duration = Duration::from_micros(50);

const _: () = assert!(padded(FRAME_BYTES) == FRAME_BYTES);

/// One journal.
pub struct Subject {
    journal: Journal<NativeDisk>,
    batch: Vec<u8>,
    began: Instant,
    housekeeping_at: Nanos,
    spins: bool,
}

impl Subject {
    /// A journal in `dir`, its first segment zero-filled. `spins`: polls without pause, or waits in the kernel as a stage does
    /// that has no core to spare.
    pub fn open(dir: &Path, strategy: Strategy, segment_bytes: usize, spins: bool) -> Result<Self, String> {
        let config = JournalConfig {
            segment_bytes,
            prefill_bytes: segment_bytes,
            strategy: strategy.into(),
            commit_bytes_max: JournalConfig::default().commit_bytes_max.min(segment_bytes / 4),
            ..JournalConfig::default()
        };
        let disk = NativeDisk::new(dir, Binding::OneThread);
        let (journal, _) = Journal::open(disk, dir, config).map_err(|error| error.to_string())?;
        Ok(Subject { journal, batch: Vec::new(), began: Instant::now(), housekeeping_at: 0, spins })
    }

    /// Keeps the kernel's workers off a core that somebody else keeps busy, as an appliance does by its plan.
    pub fn keep_workers_off(&mut self, core: usize) {
        self.journal.keep_workers_off(&[core], &pin::usable_cores());
    }

    /// Makes the next batch and waits until nothing of the last one, its seal included, is under way.
    pub fn prepare(&mut self) -> Result<(), String> {
        let first = self.journal.appended().next().0;
        self.batch.clear();
        for seq in first..first + BATCH as u64 {
            let payload = &[seq as u8; FRAME_BYTES - frame::OVERHEAD_BYTES];
            Frame { seq: Seq(seq), timestamp: Timestamp(seq), stream_id: 0, kind: Kind::Input, payload }
                .append_to(&mut self.batch);
        }
        while self.journal.busy() {
            self.cycle()?;
        }
        Ok(())
    }

    /// Appends what was prepared and returns when it is durable.
    pub fn append(&mut self) -> Result<(), String> {
        while !self.journal.room(self.batch.len()) {
            self.cycle()?;
        }
        self.journal.append_run(self.journal.appended().next(), BATCH as u32, &self.batch);
        while self.journal.durable() < self.journal.appended() {
            self.cycle()?;
        }
        Ok(())
    }

    /// One round of the core. Housekeeping is part of it, as it is there.
    fn cycle(&mut self) -> Result<(), String> {
        let now = self.began.elapsed().as_nanos() as Nanos;
        let work = self.journal.poll(now);
        if now >= self.housekeeping_at {
            self.journal.housekeeping(now);
            self.housekeeping_at = now + HOUSEKEEPING_NS;
        }
        if let Some(error) = self.journal.failed().or_else(|| self.journal.starved()) {
            return Err(error.to_string());
        }
        if work == 0 && !self.spins {
            self.journal.wait_at_most(WAIT_MAX);
        }
        Ok(())
    }

    /// Segments begun so far.
    pub fn segments(&self) -> u64 {
        self.journal.stats().segments
    }

    /// The backend and the strategy.
    pub fn describe(&self) -> String {
        self.journal.describe()
    }
}
