//! The log as a history: the ring, and the journal for what has left it.

use std::path::{Path, PathBuf};

use ticktape_core::{Frame, Nanos, Seq};
use ticktape_journal::{Disk, FileDisk, JournalError, JournalReader};
use ticktape_shm::{AttachError, FollowError, Follower, Horizon};

use super::history::{History, HistoryRead};

/// Journal readers that are kept where they stand: as many receivers may be served from different places by turns. Each holds
/// an open segment and a buffer of up to a megabyte.
const READERS_MAX: usize = 4;
/// Frames that a reader passes over rather than a new one is opened.
const PASSED_MAX: u64 = 4_096;
/// A reader is opened this often at most, in ns: it looks at the head of every segment.
const OPEN_INTERVAL_NS: u64 = 5_000_000;

/// What a history did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogHistoryCounters {
    /// Reads that the ring could serve.
    pub from_ring: u64,
    /// Reads that the journal served.
    pub from_journal: u64,
    /// Journal readers opened.
    pub opened: u64,
    /// Reads put off because a reader had just been opened.
    pub put_off: u64,
    /// Reads that failed: a ring that is gone, memory or a file that is damaged.
    pub failed: u64,
}

/// Reads frames of the log up to a horizon. See the module.
///
/// A read costs at most a walk over a 64th of the ring or over some thousand frames of the journal, and now and then the
/// opening of a journal reader.
pub struct LogHistory<D: Disk = FileDisk> {
    /// None where only the ring is read.
    journal: Option<OnDisk<D>>,
    /// The ring's directory and name, to attach again after its writer was replaced; a ring of this process has none.
    ring_file: Option<(PathBuf, String)>,
    ring: Follower,
    horizon: Horizon,
    readers: Vec<Placed<D>>,
    opened_at: Option<Nanos>,
    counters: LogHistoryCounters,
}

/// Where the journal is, and what opens a disk for a reader of it.
struct OnDisk<D> {
    dir: PathBuf,
    open: Box<dyn Fn() -> D + Send>,
}

/// A journal reader, and when it was last of use.
struct Placed<D: Disk> {
    reader: JournalReader<D>,
    durable: Seq,
    used_at: Nanos,
}

impl LogHistory {
    /// The history of the log of this box: attaches to the ring `ring_name` in `ring_dir`, and reads from the journal in
    /// `journal_dir` what the ring no longer holds.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn open(
        journal_dir: Option<&Path>,
        ring_dir: &Path,
        ring_name: &str,
        horizon: Horizon,
    ) -> Result<Self, AttachError> {
        let ring = Follower::attach_live(ring_dir, ring_name, horizon)?;
        let ring_file = Some((ring_dir.to_owned(), ring_name.to_owned()));
        Ok(LogHistory { ring_file, ..LogHistory::beside(journal_dir, ring, horizon) })
    }

    /// As [`LogHistory::open`], beside a ring of this process: `ring` follows it, from wherever, with the horizon `horizon`.
    pub fn beside(journal_dir: Option<&Path>, ring: Follower, horizon: Horizon) -> Self {
        let mut history = LogHistory::beside_on(Path::new(""), FileDisk::new, ring, horizon);
        match journal_dir {
            Some(dir) => history.journal.as_mut().expect("it was given").dir = dir.to_owned(),
            None => history.journal = None,
        }
        history
    }
}

impl<D: Disk> LogHistory<D> {
    /// As [`LogHistory::beside`], with the journal on disks that `open` opens: one a reader.
    pub fn beside_on(
        journal_dir: &Path,
        open: impl Fn() -> D + Send + 'static,
        ring: Follower,
        horizon: Horizon,
    ) -> Self {
        LogHistory {
            journal: Some(OnDisk { dir: journal_dir.to_owned(), open: Box::new(open) }),
            ring_file: None,
            ring,
            horizon,
            readers: Vec::with_capacity(READERS_MAX),
            opened_at: None,
            counters: LogHistoryCounters::default(),
        }
    }

    /// What was read.
    pub const fn counters(&self) -> LogHistoryCounters {
        self.counters
    }

    /// The highest frame that may be seen.
    fn limit(&self) -> Seq {
        match self.horizon {
            Horizon::Sequenced => Seq::MAX,
            Horizon::Durable => self.ring.durable(),
            Horizon::Committed => self.ring.commit(),
        }
    }

    /// From the ring. `None` where it does not hold the frame.
    fn read_ring(&mut self, from: Seq, wanted: &mut Wanted<'_>) -> Option<HistoryRead> {
        if self.ring.next_seq() != from {
            match self.ring.seek(from) {
                Ok(()) => {}
                Err(AttachError::NotYet { next }) => return Some(HistoryRead::NotYet { next: next.0 }),
                Err(_) => return None,
            }
        }
        while wanted.wants_more() {
            match self.ring.poll() {
                Ok(Some(bytes)) => match Frame::decode(bytes) {
                    Ok(frame) if frame.seq == wanted.next => wanted.take(bytes),
                    _ => break,
                },
                Ok(None) if wanted.read == 0 => return Some(HistoryRead::NotYet { next: from.0 }),
                Ok(None) => break,
                Err(FollowError::Replaced { .. }) => {
                    self.attach_again();
                    break;
                }
                Err(_) => break,
            }
        }
        (wanted.read > 0).then_some(HistoryRead::Read(wanted.read))
    }

    /// The ring has another writer: stand on the new one, where there is one of this name.
    fn attach_again(&mut self) {
        if let Some((dir, name)) = &self.ring_file
            && let Ok(ring) = Follower::attach_live(dir, name, self.horizon)
        {
            self.ring = ring;
        }
    }

    fn read_journal(&mut self, now: Nanos, from: Seq, wanted: &mut Wanted<'_>) -> HistoryRead {
        let (durable, limit) = (self.ring.durable(), self.limit());
        if from > durable.min(limit) {
            return HistoryRead::NotYet { next: durable.min(limit).next().0 };
        }
        let at = match self.reader_near(now, from) {
            Ok(at) => at,
            Err(answer) => return answer,
        };
        let placed = &mut self.readers[at];
        (placed.used_at, placed.durable) = (now, placed.durable.max(durable));
        placed.reader.set_durable(placed.durable);
        let mut next = placed.reader.next_seq();
        while wanted.wants_more() && next <= limit {
            match placed.reader.next() {
                Ok(Some(bytes)) if next == wanted.next => wanted.take(bytes),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    self.readers.swap_remove(at);
                    return if wanted.read > 0 { HistoryRead::Read(wanted.read) } else { failed(&error) };
                }
            }
            next = next.next();
        }
        if wanted.read > 0 { HistoryRead::Read(wanted.read) } else { HistoryRead::NotYet { next: from.0 } }
    }

    /// A reader that stands at `from` or not far before it.
    fn reader_near(&mut self, now: Nanos, from: Seq) -> Result<usize, HistoryRead> {
        let is_near =
            |placed: &Placed<D>| from.0.checked_sub(placed.reader.next_seq().0).is_some_and(|far| far <= PASSED_MAX);
        if let Some(at) = self.readers.iter().position(is_near) {
            return Ok(at);
        }
        let Some(OnDisk { dir, open }) = &self.journal else {
            // The ring alone: what it does not hold is too old.
            let first = self.ring.next_seq().0.max(from.0 + 1);
            return Err(HistoryRead::TooOld { first });
        };
        if self.opened_at.is_some_and(|at| now.saturating_sub(at) < OPEN_INTERVAL_NS) {
            self.counters.put_off += 1;
            return Err(HistoryRead::Busy);
        }
        self.opened_at = Some(now);
        self.counters.opened += 1;
        let reader = JournalReader::open_on(open(), dir, from).map_err(|error| failed(&error))?;
        if self.readers.len() == READERS_MAX {
            let oldest = (0..READERS_MAX).min_by_key(|&at| self.readers[at].used_at).expect("there are some");
            self.readers.swap_remove(oldest);
        }
        self.readers.push(Placed { reader, durable: Seq::ZERO, used_at: now });
        Ok(self.readers.len() - 1)
    }
}

fn failed(error: &JournalError) -> HistoryRead {
    match error {
        JournalError::TooOld { first, .. } => HistoryRead::TooOld { first: first.0 },
        _ => HistoryRead::Failed,
    }
}

/// What a read still wants.
struct Wanted<'a> {
    next: Seq,
    read: usize,
    count_max: usize,
    bytes_left: usize,
    f: &'a mut dyn FnMut(u64, &[u8]),
}

impl Wanted<'_> {
    fn wants_more(&self) -> bool {
        self.read < self.count_max && self.bytes_left > 0
    }

    fn take(&mut self, bytes: &[u8]) {
        (self.f)(self.next.0, bytes);
        self.next = self.next.next();
        self.read += 1;
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len());
    }
}

impl<D: Disk> History for LogHistory<D> {
    fn read(
        &mut self,
        now: Nanos,
        from: u64,
        count_max: usize,
        bytes_max: usize,
        f: &mut dyn FnMut(u64, &[u8]),
    ) -> HistoryRead {
        let mut wanted = Wanted { next: Seq(from), read: 0, count_max, bytes_left: bytes_max, f };
        if from > Seq::MAX.0 {
            return HistoryRead::NotYet { next: self.ring.sequenced_hint().next().0 };
        }
        let read = match self.read_ring(Seq(from), &mut wanted) {
            Some(read) => {
                self.counters.from_ring += u64::from(matches!(read, HistoryRead::Read(_)));
                read
            }
            None => {
                let read = self.read_journal(now, Seq(from), &mut wanted);
                self.counters.from_journal += u64::from(matches!(read, HistoryRead::Read(_)));
                read
            }
        };
        self.counters.failed += u64::from(read == HistoryRead::Failed);
        read
    }
}

#[cfg(test)]
#[path = "history_log_tests.rs"]
mod tests;
