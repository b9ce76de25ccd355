//! The writers of a metrics file: one that makes it, and one for each word.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::layout::{
    BITS_COARSE, BITS_FINE, CREATED_NS, ENTRIES, ENTRIES_MAX, ENTRY_BYTES, ENTRY_KIND, ENTRY_NAME, ENTRY_NAME_BYTES,
    ENTRY_OFFSET, EPOCH, FILE_BYTES, HEARTBEAT_NS, HISTOGRAM_BITS, HISTOGRAM_COUNTS, HISTOGRAM_FIRST, HISTOGRAM_MAX,
    KIND_COUNTER, KIND_HISTOGRAM, KIND_LEVEL, LABEL, LABEL_BYTES, LINE, MAGIC, MAGIC_VALUE, TABLE, VALUE_MAX, VERSION,
    VERSION_VALUE, WRITER_PID, counts, histogram_bytes, index_of,
};
use super::reader::MetricsReader;
use super::{Kind, MetricsError};
use crate::RingError;
use crate::place::{Files, NamedFile, Pending};
use crate::region::Region;
use crate::sync::Ordering;
use crate::words::Words;

/// Fine histograms that have room: each stage's, in two parts of a run.
const HISTOGRAMS_MAX: usize = 16;
/// Where the words of entries begin.
const VALUES: usize = TABLE + ENTRIES_MAX * ENTRY_BYTES;
/// The size of a file: figures, each group on its own lines, then so many histograms.
const fn file_bytes(histograms: usize) -> usize {
    (VALUES + 2 * 8 * ENTRIES_MAX + histograms * histogram_bytes(BITS_FINE)).next_multiple_of(4096)
}

/// The maker of a metrics file. Where it has a name, that goes with it.
pub struct Metrics {
    pub(super) words: Words,
    entries: usize,
    /// The first byte that no entry has.
    free: usize,
    /// The size of the file.
    bytes: usize,
    /// Each group of figures: its name, where it is, and how many there are.
    groups: Vec<(String, usize, usize)>,
    pending: Option<Pending>,
    named: Option<NamedFile>,
}

impl Metrics {
    /// Memory of this process, `label` and `epoch` for whoever reads.
    ///
    /// # Errors
    /// The system has no such memory.
    pub fn heap(label: &str, epoch: u64) -> Result<Self, MetricsError> {
        Self::on_heap(HISTOGRAMS_MAX, label, epoch)
    }

    /// As [`Metrics::heap`], without room for histograms: a fiftieth of the memory.
    ///
    /// # Errors
    /// The system has no such memory.
    pub fn heap_of_figures(label: &str, epoch: u64) -> Result<Self, MetricsError> {
        Self::on_heap(0, label, epoch)
    }

    fn on_heap(histograms: usize, label: &str, epoch: u64) -> Result<Self, MetricsError> {
        let bytes = file_bytes(histograms);
        let region =
            Region::anonymous(bytes).map_err(|source| RingError::Io { doing: "map", place: "heap".into(), source })?;
        Ok(Self::begin(region, bytes, None, label, epoch))
    }

    /// A file that gets its name with [`Metrics::publish`]: `{name}.metrics` in `dir`, usually [`DEFAULT_DIR`](crate::DEFAULT_DIR).
    ///
    /// # Errors
    /// [`MetricsError::Place`]: another writer has the name, the name is none, or the system said no.
    pub fn named(dir: &Path, name: &str, label: &str, epoch: u64) -> Result<Self, MetricsError> {
        Self::in_file(HISTOGRAMS_MAX, dir, name, label, epoch)
    }

    /// As [`Metrics::named`], without room for histograms: some 80 KiB.
    ///
    /// # Errors
    /// As [`Metrics::named`].
    pub fn named_of_figures(dir: &Path, name: &str, label: &str, epoch: u64) -> Result<Self, MetricsError> {
        Self::in_file(0, dir, name, label, epoch)
    }

    fn in_file(histograms: usize, dir: &Path, name: &str, label: &str, epoch: u64) -> Result<Self, MetricsError> {
        let bytes = file_bytes(histograms);
        let pending = NamedFile::create(Files::Metrics, dir, name, bytes)?;
        Ok(Self::begin(pending.map()?, bytes, Some(pending), label, epoch))
    }

    fn begin(region: Region, bytes: usize, pending: Option<Pending>, label: &str, epoch: u64) -> Self {
        let words = Words::new(Arc::new(region));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        for (at, value) in [
            (MAGIC, MAGIC_VALUE),
            (VERSION, VERSION_VALUE),
            (FILE_BYTES, bytes as u64),
            (WRITER_PID, u64::from(std::process::id())),
            (CREATED_NS, now),
            (EPOCH, epoch),
        ] {
            words.at(at).store(value, Ordering::Relaxed);
        }
        let fits = (0..=label.len().min(LABEL_BYTES)).rev().find(|&end| label.is_char_boundary(end)).unwrap_or(0);
        put_text(&words, LABEL, LABEL_BYTES, &label[..fits]);
        Metrics { words, entries: 0, free: VALUES, bytes, groups: Vec::new(), pending, named: None }
    }

    /// Gives the file its name; on the heap there is none to give. What is added later is seen as it comes.
    ///
    /// # Errors
    /// The system's, at renaming it.
    pub fn publish(&mut self) -> Result<(), MetricsError> {
        if let Some(pending) = self.pending.take() {
            self.named = Some(pending.publish()?);
        }
        Ok(())
    }

    /// A histogram of nanoseconds with three significant digits, all its memory in place.
    ///
    /// # Errors
    /// [`MetricsError::NoRoom`].
    pub fn histogram(&mut self, name: &str) -> Result<LatencyRecorder, MetricsError> {
        let at = self.add(name, [(None, KIND_HISTOGRAM)], histogram_bytes(BITS_FINE))?;
        Ok(LatencyRecorder::new(self.words.clone(), at, BITS_FINE))
    }

    /// Words of one writer, named `{group}.{figure}`, in this order. A group that is there already is handed out again: to whoever goes on
    /// where its writer has ended.
    ///
    /// # Errors
    /// [`MetricsError::NoRoom`]; also for a group that is there with another number of figures.
    pub fn figures<'a>(
        &mut self,
        group: &str,
        figures: impl IntoIterator<Item = (&'a str, Kind)>,
    ) -> Result<Figures, MetricsError> {
        let kind = |kind| if kind == Kind::Counter { KIND_COUNTER } else { KIND_LEVEL };
        let figures: Vec<_> = figures.into_iter().map(|(name, of)| (Some(name), kind(of))).collect();
        let (count, bytes) = (figures.len(), (8 * figures.len()).next_multiple_of(LINE));
        let at = match self.groups.iter().find(|(known, ..)| known == group) {
            Some(&(_, at, known)) if known == count => at,
            Some(_) => return Err(MetricsError::NoRoom { name: group.to_owned() }),
            None => self.add(group, figures, bytes)?,
        };
        if self.groups.iter().all(|(known, ..)| known != group) {
            self.groups.push((group.to_owned(), at, count));
        }
        Ok(Figures { words: self.words.clone(), at, count })
    }

    /// Adds entries whose words stand back to back; returns where.
    fn add<'a>(
        &mut self,
        group: &str,
        figures: impl IntoIterator<Item = (Option<&'a str>, u64)>,
        bytes: usize,
    ) -> Result<usize, MetricsError> {
        let (at, mut entries) = (self.free, self.entries);
        let no_room = |name: &str| MetricsError::NoRoom { name: name.to_owned() };
        if at + bytes > self.bytes {
            return Err(no_room(group));
        }
        for (index, (figure, kind)) in figures.into_iter().enumerate() {
            let name = figure.map_or_else(|| group.to_owned(), |figure| format!("{group}.{figure}"));
            if entries == ENTRIES_MAX || name.len() > ENTRY_NAME_BYTES {
                return Err(no_room(&name));
            }
            let entry = TABLE + entries * ENTRY_BYTES;
            put_text(&self.words, entry + ENTRY_NAME, ENTRY_NAME_BYTES, &name);
            self.words.at(entry + ENTRY_KIND).store(kind, Ordering::Relaxed);
            self.words.at(entry + ENTRY_OFFSET).store((at + 8 * index) as u64, Ordering::Relaxed);
            entries += 1;
        }
        (self.free, self.entries) = (at + bytes, entries);
        // Pairs with the Acquire of a reader: who sees so many entries sees what stands in them.
        self.words.at(ENTRIES).store(entries as u64, Ordering::Release);
        Ok(at)
    }

    /// Says that the writer lives.
    pub fn heartbeat(&self) -> Figures {
        Figures { words: self.words.clone(), at: HEARTBEAT_NS, count: 1 }
    }

    /// A look at them from within the process.
    pub fn reader(&self) -> MetricsReader {
        MetricsReader::here(self.words.clone())
    }

    /// Where they can be read, for people.
    pub fn describe(&self) -> String {
        match (&self.pending, &self.named) {
            (None, None) => "in memory of its own".to_owned(),
            (Some(pending), _) => pending.path().display().to_string(),
            (_, Some(named)) => named.path().display().to_string(),
        }
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        if let Some(named) = self.named.take() {
            named.remove();
        }
    }
}

fn put_text(words: &Words, at: usize, bytes: usize, text: &str) {
    for (index, part) in text.as_bytes().chunks(8).take(bytes / 8).enumerate() {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        words.at(at + 8 * index).store(u64::from_le_bytes(word), Ordering::Relaxed);
    }
}

/// The words of one writer.
pub struct Figures {
    words: Words,
    at: usize,
    count: usize,
}

impl Figures {
    /// Sets the `index`th of them.
    ///
    /// # Panics
    /// Where there is no such figure.
    #[inline]
    pub fn set(&mut self, index: usize, value: u64) {
        assert!(index < self.count, "figure {index} of {}", self.count);
        // Relaxed, as all words here: each stands for itself.
        self.words.at(self.at + 8 * index).store(value, Ordering::Relaxed);
    }
}

/// The one writer of a histogram of nanoseconds.
pub struct LatencyRecorder {
    words: Words,
    at: usize,
    bits: u32,
    max: u64,
}

impl std::fmt::Debug for LatencyRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LatencyRecorder").field("max", &self.max).finish_non_exhaustive()
    }
}

impl LatencyRecorder {
    fn new(words: Words, at: usize, bits: u32) -> Self {
        words.at(at + HISTOGRAM_BITS).store(bits.into(), Ordering::Relaxed);
        words.at(at + HISTOGRAM_COUNTS).store(counts(bits) as u64, Ordering::Relaxed);
        LatencyRecorder { words, at, bits, max: 0 }
    }

    /// One that nobody else reads, with three significant digits.
    pub fn private() -> Self {
        Self::alone(BITS_FINE)
    }

    /// One that nobody else reads, with one significant digit, for which some KiB do.
    pub fn coarse() -> Self {
        Self::alone(BITS_COARSE)
    }

    fn alone(bits: u32) -> Self {
        let region = Region::anonymous(histogram_bytes(bits)).expect("memory for a histogram");
        Self::new(Words::new(Arc::new(region)), 0, bits)
    }

    /// Counts a latency; one above a minute counts as that.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let ns = ns.min(VALUE_MAX);
        // Nobody else writes them, so that no locked instruction is needed.
        let count = self.words.at(self.at + HISTOGRAM_FIRST + 8 * index_of(ns, self.bits));
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if ns > self.max {
            self.max = ns;
            self.words.at(self.at + HISTOGRAM_MAX).store(ns, Ordering::Relaxed);
        }
    }

    /// What was counted so far.
    pub fn read(&self) -> super::HistogramRead {
        super::reader::read_histogram(&self.words, String::new(), self.at, self.bits)
    }
}
