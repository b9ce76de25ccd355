//! Everything from a seq on, then live: history from the journal, then the log ring, and back to the journal on an overrun.
//!
//! Invariant: every frame once, in order, without a gap; never beyond the chosen horizon.

use std::fmt;
use std::path::{Path, PathBuf};

use ticktape_core::{Frame, Seq};
use ticktape_journal::{Disk, FileDisk, JournalError, JournalReader};
use ticktape_shm::layout::Header;
use ticktape_shm::{AttachError, FollowError, Follower, Horizon};

/// Why a tail can't go on.
#[derive(Debug)]
pub enum TailError {
    /// The ring can't be attached to.
    Attach(AttachError),
    /// The ring came to an end that the journal can't bridge: it was truncated, or damaged.
    Ring(FollowError),
    /// A frame in the ring's memory does not fit its checksums. A tail opened anew reads the journal's copy.
    Damaged {
        /// A frame at or before the damaged one.
        near: Seq,
    },
    /// The journal.
    Journal(JournalError),
    /// Everything was read, and nobody writes any more.
    Ended,
}

impl fmt::Display for TailError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TailError::Attach(error) => error.fmt(f),
            TailError::Ring(error) => error.fmt(f),
            TailError::Damaged { near } => write!(f, "ring memory is damaged near seq {near}: attach again"),
            TailError::Journal(error) => error.fmt(f),
            TailError::Ended => f.write_str("the log has ended: its writer is gone and everything was read"),
        }
    }
}

impl std::error::Error for TailError {}

impl From<JournalError> for TailError {
    fn from(error: JournalError) -> Self {
        TailError::Journal(error)
    }
}

/// How a tail comes by a disk, each time that it has to read the journal.
pub type OpenDisk<D> = Box<dyn Fn() -> D + Send>;

/// A reader of the whole log of a running appliance on this box.
pub struct Tail<D: Disk = FileDisk> {
    journal_dir: PathBuf,
    open_disk: OpenDisk<D>,
    /// The ring's directory and name, to attach again after its writer was replaced; a ring of this process has none.
    ring_file: Option<(PathBuf, String)>,
    horizon: Horizon,
    ring: Follower,
    /// While history is read; the ring's follower then only tells the watermarks.
    history: Option<JournalReader<D>>,
    next_seq: Seq,
    writer_gone: bool,
    overruns: u64,
}

impl Tail {
    /// Opens the log at `from`: attaches to the ring `ring_name` in `ring_dir`, and reads from the journal in
    /// `journal_dir` what the ring no longer holds.
    ///
    /// # Errors
    /// [`TailError`]: no such ring, one of another layout, or a journal that can't be read.
    pub fn open(
        journal_dir: &Path,
        ring_dir: &Path,
        ring_name: &str,
        from: Seq,
        horizon: Horizon,
    ) -> Result<Self, TailError> {
        Tail::open_on(journal_dir, Box::new(FileDisk::new), (ring_dir, ring_name), from, horizon)
    }

    /// As [`Tail::open`], beside a ring of this process: `ring` follows it, from wherever, with the horizon `horizon`.
    ///
    /// # Errors
    /// As [`Tail::open`].
    pub fn beside(journal_dir: &Path, ring: Follower, from: Seq, horizon: Horizon) -> Result<Self, TailError> {
        Tail::beside_on(journal_dir, Box::new(FileDisk::new), ring, from, horizon)
    }
}

impl<D: Disk> Tail<D> {
    /// As [`Tail::open`], where the journal is on any disk; the ring by its directory and name.
    ///
    /// # Errors
    /// As [`Tail::open`].
    pub fn open_on(
        journal_dir: &Path,
        open_disk: OpenDisk<D>,
        (ring_dir, ring_name): (&Path, &str),
        from: Seq,
        horizon: Horizon,
    ) -> Result<Self, TailError> {
        let ring = Follower::attach_live(ring_dir, ring_name, horizon).map_err(TailError::Attach)?;
        let ring_file = Some((ring_dir.to_owned(), ring_name.to_owned()));
        Tail::new(journal_dir, open_disk, ring_file, ring, from, horizon)
    }

    /// As [`Tail::beside`], where the journal is on any disk.
    ///
    /// # Errors
    /// As [`Tail::open`].
    pub fn beside_on(
        journal_dir: &Path,
        open_disk: OpenDisk<D>,
        ring: Follower,
        from: Seq,
        horizon: Horizon,
    ) -> Result<Self, TailError> {
        Tail::new(journal_dir, open_disk, None, ring, from, horizon)
    }

    fn new(
        journal_dir: &Path,
        open_disk: OpenDisk<D>,
        ring_file: Option<(PathBuf, String)>,
        ring: Follower,
        from: Seq,
        horizon: Horizon,
    ) -> Result<Self, TailError> {
        let mut tail = Tail {
            journal_dir: journal_dir.to_owned(),
            open_disk,
            ring_file,
            horizon,
            ring,
            history: None,
            next_seq: from,
            writer_gone: false,
            overruns: 0,
        };
        tail.step_over_or_back()?;
        Ok(tail)
    }

    /// Hands the next frames, at most `frames_max`, to `f`; returns how many there were, 0 where there is nothing new.
    ///
    /// # Errors
    /// [`TailError`]; [`TailError::Ended`] after a writer that is gone.
    pub fn drain(&mut self, frames_max: usize, f: impl FnMut(&Frame<'_>)) -> Result<usize, TailError> {
        if self.history.is_some() { self.drain_history(frames_max, f) } else { self.drain_ring(frames_max, f) }
    }

    fn drain_ring(&mut self, frames_max: usize, mut f: impl FnMut(&Frame<'_>)) -> Result<usize, TailError> {
        let (mut damaged, mut next_seq) = (false, self.next_seq);
        let drained = self.ring.drain(frames_max, |bytes| match Frame::decode(bytes) {
            Ok(frame) if frame.seq == next_seq && !damaged => {
                f(&frame);
                next_seq = next_seq.next();
            }
            Ok(_) | Err(_) => damaged = true,
        });
        self.next_seq = next_seq;
        match drained {
            Ok(frames) if !damaged => Ok(frames),
            Ok(_) => Err(TailError::Damaged { near: self.next_seq }),
            Err(FollowError::Overrun { from, .. }) => {
                debug_assert_eq!(from, self.next_seq);
                self.overruns += 1;
                self.read_history()?;
                Ok(0)
            }
            Err(error @ FollowError::Replaced { .. }) => {
                let Some((dir, name)) = &self.ring_file else { return Err(TailError::Ring(error)) };
                self.ring = Follower::attach_live(dir, name, self.horizon).map_err(TailError::Attach)?;
                self.step_over_or_back()?;
                Ok(0)
            }
            Err(FollowError::WriterGone) if self.writer_gone => Err(TailError::Ended),
            Err(FollowError::WriterGone) => {
                // The last frames may be durable though the ring no longer said so.
                self.writer_gone = true;
                self.read_history()?;
                Ok(0)
            }
            Err(error) => Err(TailError::Ring(error)),
        }
    }

    fn drain_history(&mut self, frames_max: usize, mut f: impl FnMut(&Frame<'_>)) -> Result<usize, TailError> {
        let Some(reader) = &mut self.history else { return Ok(0) };
        if !self.writer_gone {
            reader.set_durable(self.ring.durable());
        }
        let mut frames = 0;
        while frames < frames_max {
            let Some(bytes) = reader.next()? else { break };
            f(&Frame::view(bytes).expect("the reader has checked it"));
            frames += 1;
        }
        self.next_seq = reader.next_seq();
        if frames == 0 {
            if self.writer_gone {
                return Err(TailError::Ended);
            }
            self.step_over_or_back()?;
        }
        Ok(frames)
    }

    /// Stands on the ring at the next seq where the ring holds it, else on the journal.
    fn step_over_or_back(&mut self) -> Result<(), TailError> {
        match self.ring.seek(self.next_seq) {
            Ok(()) => self.history = None,
            Err(AttachError::TooOld { .. } | AttachError::NotYet { .. }) => self.read_history()?,
            Err(error) => return Err(TailError::Attach(error)),
        }
        Ok(())
    }

    fn read_history(&mut self) -> Result<(), TailError> {
        if self.history.is_none() {
            self.history = Some(JournalReader::open_on((self.open_disk)(), &self.journal_dir, self.next_seq)?);
        }
        Ok(())
    }

    /// Asks whether the writer lives; call it now and then while there is nothing new.
    pub fn check_writer(&mut self) {
        // What it finds is met by the next drain that has nothing to hand on.
        let _ = self.ring.check_writer();
    }

    /// The frame that comes next.
    pub fn next_seq(&self) -> Seq {
        self.next_seq
    }

    /// The fixed words of the ring that it is attached to at the moment.
    pub fn ring_header(&self) -> &Header {
        self.ring.header()
    }

    /// What the ring's writer says is durable.
    pub fn durable(&self) -> Seq {
        self.ring.durable()
    }

    /// How often the ring lapped this reader.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// Whether it reads history from the journal at the moment.
    pub fn is_behind(&self) -> bool {
        self.history.is_some()
    }
}
