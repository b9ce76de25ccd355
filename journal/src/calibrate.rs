//! Measuring, at start-up, which strategy suits the disk: real appends by real journals in a directory beside the segments.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ticktape_core::{Frame, Kind, Nanos, Timestamp, frame};

use crate::calibration::{Calibration, Latency, Measured};
use crate::config::JournalConfig;
use crate::disk::{Binding, Disk, DiskError, NativeDisk};
use crate::error::JournalError;
use crate::journal::Journal;
use crate::names;
use crate::recover::at;
use crate::strategy::Strategy;

/// Frames of one append: 8 KiB, as a busy sequencer gathers while a disk writes.
const BATCH_FRAMES: usize = 64;
const FRAME_BYTES: usize = 128;
const PAYLOAD_BYTES: usize = FRAME_BYTES - frame::OVERHEAD_BYTES;

/// Batches of one burst: enough to fill the writes in flight several times.
const BURST_BATCHES: usize = 128;

/// Room for the appends and bursts of all rounds, without a roll. Zero-filled beforehand, as segments in use are.
const SEGMENT_BYTES: usize = 16 << 20;

/// Appends of each strategy in each phase, at most: then the percentiles say no more.
const APPENDS_MAX: usize = 600;

/// Appends of one strategy in a row. The first after another's is not counted: it meets what that one left in the disk's queue.
const TURN_APPENDS: usize = 12;

/// How to calibrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalibrationPlan {
    /// How long it may take. Where preparing takes as long as this already, nothing is measured; removing what was measured
    /// on takes a few milliseconds more.
    pub budget: Duration,
    /// How many cores beside the caller's will be spinning; 0 if stages will sleep.
    pub busy_cores: usize,
    /// Whether the caller will spin on completions itself, or wait in the kernel.
    pub spin: bool,
}

impl Default for CalibrationPlan {
    fn default() -> Self {
        CalibrationPlan { budget: Duration::from_millis(800), busy_cores: 0, spin: false }
    }
}

/// Measures every strategy on the file system of `dir`, a journal's directory, which is created if it is missing. Blocks for
/// the plan's budget and a little more, less than a second with the default. Leaves nothing behind; what a crash left is
/// removed.
///
/// # Errors
/// As [`Journal::open`], about a directory within `dir`.
pub fn calibrate(dir: &Path, config: &JournalConfig, plan: CalibrationPlan) -> Result<Calibration, JournalError> {
    let began = Instant::now();
    let dir = dir.join(names::CALIBRATION);
    remove(&dir)?;
    let result = measure(&dir, config, plan, began);
    remove(&dir)?;
    result
}

impl Journal<NativeDisk> {
    /// Measures the disk beside the open journal and adopts what suits it. Where that fails the strategy stays as it is, and
    /// [`Journal::describe`] says why. Blocks as [`calibrate`] does; before anything is appended.
    pub fn calibrate(&mut self, plan: CalibrationPlan) {
        match calibrate(&self.dir, &self.config, plan) {
            Ok(calibration) => self.adopt(calibration),
            Err(error) => self.calibration = Some(Err(error)),
        }
    }
}

fn remove(dir: &Path) -> Result<(), JournalError> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(at(dir, DiskError::from_io("remove directory", &error)))
        }
        _ => Ok(()),
    }
}

fn measure(
    dir: &Path,
    config: &JournalConfig,
    plan: CalibrationPlan,
    began: Instant,
) -> Result<Calibration, JournalError> {
    let mut subjects = Vec::with_capacity(Strategy::ALL.len());
    for strategy in Strategy::ALL {
        subjects.push(Subject::open(dir, config, strategy, plan.spin)?);
        if began.elapsed() >= plan.budget {
            let measured = Strategy::ALL.map(Measured::nothing);
            return Ok(Calibration::decide(measured, began.elapsed().as_nanos() as Nanos));
        }
    }
    let budget = plan.budget.saturating_sub(began.elapsed());
    // A third each for appends alone, appends beside spinning cores, and bursts.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let busy_cores = plan.busy_cores.min(cores.saturating_sub(1));
    let phase = if busy_cores > 0 { budget / 3 } else { budget / 2 };
    let quiet = appends(&mut subjects, phase)?;
    let busy = if busy_cores > 0 { Some(beside_spinning(busy_cores, || appends(&mut subjects, phase))?) } else { None };
    let rates = bursts(&mut subjects, phase)?;
    let measured = std::array::from_fn(|index| Measured {
        strategy: Strategy::ALL[index],
        quiet: quiet[index],
        busy: busy.map(|busy| busy[index]),
        bytes_per_s: rates[index],
    });
    Ok(Calibration::decide(measured, began.elapsed().as_nanos() as Nanos))
}

/// A journal of one strategy.
struct Subject {
    journal: Journal<NativeDisk>,
    batch: Vec<u8>,
    spin: bool,
    began: Instant,
}

impl Subject {
    fn open(dir: &Path, config: &JournalConfig, strategy: Strategy, spin: bool) -> Result<Subject, JournalError> {
        let dir = dir.join(strategy.to_string());
        let commit_bytes_max = config.commit_bytes_max.max(JournalConfig::commit_bytes_for(BATCH_FRAMES * FRAME_BYTES));
        let segment_bytes = SEGMENT_BYTES.max(4 * commit_bytes_max);
        // Seals would come between; no one waits that long for one.
        let seal_delay_ns = Nanos::MAX;
        let strategy = strategy.into();
        let config = JournalConfig {
            segment_bytes,
            commit_bytes_max,
            prefill_bytes: segment_bytes,
            strategy,
            seal_delay_ns,
            ..config.clone()
        };
        let (journal, _) = Journal::open(NativeDisk::new(&dir, Binding::OneThread), &dir, config)?;
        Ok(Subject { journal, batch: Vec::new(), spin, began: Instant::now() })
    }

    /// Appends a batch, as far as there is room at once; false if there is none.
    fn append(&mut self) -> bool {
        let first = self.journal.appended().next();
        self.batch.clear();
        for index in 0..BATCH_FRAMES as u64 {
            let seq = ticktape_core::Seq(first.0 + index);
            Frame { seq, timestamp: Timestamp(0), stream_id: 0, kind: Kind::Input, payload: &[0x5a; PAYLOAD_BYTES] }
                .append_to(&mut self.batch);
        }
        let room = self.journal.room(self.batch.len());
        if room {
            self.journal.append_run(first, BATCH_FRAMES as u32, &self.batch);
        }
        room
    }

    fn poll(&mut self) -> Result<(), JournalError> {
        // The time stands still for the journal: what is measured here is not to be judged yet.
        self.journal.poll(0);
        match self.journal.failed().or_else(|| self.journal.starved()) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    fn until_durable(&mut self) -> Result<(), JournalError> {
        loop {
            self.poll()?;
            if self.journal.durable() == self.journal.appended() {
                return Ok(());
            }
            if !self.spin {
                self.journal.disk.wait();
            }
        }
    }

    /// One append until it is durable, in nanoseconds; `None` when the segment is used up.
    fn one(&mut self) -> Result<Option<Nanos>, JournalError> {
        let began = self.began.elapsed();
        if !self.journal.has_current_room(BATCH_FRAMES * FRAME_BYTES) || !self.append() {
            return Ok(None);
        }
        self.until_durable()?;
        Ok(Some((self.began.elapsed() - began).as_nanos() as Nanos))
    }

    /// Many appends, as fast as they are taken: bytes and nanoseconds.
    fn burst(&mut self) -> Result<Option<(u64, Nanos)>, JournalError> {
        let began = self.began.elapsed();
        if !self.journal.has_current_room(2 * BURST_BATCHES * BATCH_FRAMES * FRAME_BYTES) {
            return Ok(None);
        }
        let mut left = BURST_BATCHES;
        while left > 0 {
            if self.append() {
                left -= 1;
            }
            self.poll()?;
        }
        self.until_durable()?;
        let bytes = BURST_BATCHES * BATCH_FRAMES * FRAME_BYTES;
        Ok(Some((bytes as u64, (self.began.elapsed() - began).as_nanos() as Nanos)))
    }
}

/// A few appends by each in turn, so that what else the box does meets all of them.
fn appends(subjects: &mut [Subject], budget: Duration) -> Result<[Latency; 3], JournalError> {
    let began = Instant::now();
    let mut samples: [Vec<Nanos>; 3] = Default::default();
    while samples[0].len() < APPENDS_MAX {
        for (subject, samples) in subjects.iter_mut().zip(&mut samples) {
            if subject.one()?.is_none() {
                continue;
            }
            for _ in 1..TURN_APPENDS {
                samples.extend(subject.one()?);
            }
        }
        if began.elapsed() >= budget {
            break;
        }
    }
    Ok(samples.each_mut().map(|samples| Latency::of(samples)))
}

fn bursts(subjects: &mut [Subject], budget: Duration) -> Result<[u64; 3], JournalError> {
    let began = Instant::now();
    let mut totals = [(0u64, 0u64); 3];
    while began.elapsed() < budget {
        let mut any = false;
        for (subject, total) in subjects.iter_mut().zip(&mut totals) {
            if let Some((bytes, took_ns)) = subject.burst()? {
                *total = (total.0 + bytes, total.1 + took_ns);
                any = true;
            }
        }
        if !any {
            break;
        }
    }
    Ok(totals.map(|(bytes, took_ns)| (u128::from(bytes) * 1_000_000_000 / u128::from(took_ns.max(1))) as u64))
}

/// Sets its flag when dropped, so that a panic ends the threads, too.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` while so many threads spin.
fn beside_spinning<T>(threads: usize, work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            // One that can't be had is not spun on. Relaxed: nothing but the flag itself is shared.
            let thread = std::thread::Builder::new().name("tt-calibrate".to_owned());
            let _ = thread.spawn_scoped(scope, || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let _stop = Stop(&stop);
        work()
    })
}
