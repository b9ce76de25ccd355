//! The reader's side: nothing in the file is believed before it is checked.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::layout::{
    CREATED_NS, ENTRIES, ENTRIES_MAX, ENTRY_BYTES, ENTRY_KIND, ENTRY_NAME, ENTRY_NAME_BYTES, ENTRY_OFFSET, EPOCH,
    FILE_BYTES, HEARTBEAT_NS, HISTOGRAM_BITS, HISTOGRAM_COUNTS, HISTOGRAM_FIRST, HISTOGRAM_MAX, KIND_COUNTER,
    KIND_HISTOGRAM, KIND_LEVEL, LABEL, LABEL_BYTES, MAGIC, MAGIC_VALUE, TABLE, VERSION, VERSION_VALUE, WRITER_PID,
    counts, value_at,
};
use super::{Kind, MetricsError, Misfit};
use crate::config::{RingError, name_is_valid};
use crate::place::{Files, Origin, Standing, open_read_only};
use crate::region::Region;
use crate::sync::Ordering;
use crate::words::Words;

/// The largest file that is mapped, in bytes: many times what is ever made.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A read-only map of a metrics file.
pub struct MetricsReader {
    words: Words,
    bytes: usize,
    path: PathBuf,
    origin: Origin,
}

/// All that a file said at about one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// What is measured, such as the service's name.
    pub label: String,
    /// The writer's epoch.
    pub epoch: u64,
    /// The writer's process.
    pub pid: u64,
    /// When it began, in nanoseconds since the Unix epoch.
    pub created_ns: u64,
    /// Moves as long as the writer does.
    pub heartbeat_ns: u64,
    /// Counters and levels, in the order of the file.
    pub words: Vec<(String, Kind, u64)>,
    /// Histograms, in the order of the file.
    pub histograms: Vec<HistogramRead>,
}

impl Reading {
    /// A counter or a level, by its name.
    pub fn word(&self, name: &str) -> Option<u64> {
        self.words.iter().find(|(known, ..)| known == name).map(|&(.., value)| value)
    }
}

/// A histogram of nanoseconds as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramRead {
    /// Its name.
    pub name: String,
    /// The largest value there was.
    pub max: u64,
    bits: u32,
    counts: Vec<u64>,
}

impl HistogramRead {
    /// The least value of each count that is not zero, ascending, with the count.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let met = self.counts.iter().enumerate().filter(|&(_, &count)| count > 0);
        met.map(|(index, &count)| (value_at(index, self.bits), count))
    }

    /// What came since `earlier`, a reading of the same histogram. Its largest value is known as finely as it is counted.
    pub fn since(&self, earlier: &HistogramRead) -> HistogramRead {
        let before = earlier.counts.iter().chain(std::iter::repeat(&0));
        let counts: Vec<u64> =
            self.counts.iter().zip(before).map(|(now, before)| now.saturating_sub(*before)).collect();
        let last = counts.iter().rposition(|&count| count > 0);
        let max = last.map_or(0, |index| (value_at(index + 1, self.bits) - 1).min(self.max));
        HistogramRead { name: self.name.clone(), max, bits: self.bits, counts }
    }
}

/// The names of metrics files in a directory, sorted, each with whether it has a writer as far as can be told.
///
/// # Errors
/// The system's, at listing it.
pub fn list(dir: &Path) -> Result<Vec<(String, bool)>, MetricsError> {
    let failed = |source| MetricsError::Io { doing: "list", path: dir.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".metrics"));
        if let Some(name) = name.filter(|name| name_is_valid(name))
            && let Ok(metadata) = fs::symlink_metadata(&path)
        {
            let standing = Origin::named(Files::Metrics, dir, name, &metadata).standing();
            // Not being allowed to open the lock tells nothing; that there is none does.
            let has_lock = fs::symlink_metadata(Files::Metrics.lock(dir, name)).is_ok();
            names.push((name.to_owned(), has_lock && matches!(standing, Standing::Live)));
        }
    }
    names.sort();
    Ok(names)
}

impl MetricsReader {
    /// Maps `{name}.metrics` in `dir`.
    ///
    /// # Errors
    /// [`MetricsError`]: there is none, or it is none.
    pub fn open(dir: &Path, name: &str) -> Result<Self, MetricsError> {
        if !name_is_valid(name) {
            return Err(RingError::Name(name.to_owned()).into());
        }
        let path = Files::Metrics.path(dir, name);
        let io_error = |doing| {
            let path = path.clone();
            move |source: io::Error| match source.kind() {
                io::ErrorKind::NotFound => MetricsError::NotFound { path },
                _ => MetricsError::Io { doing, path, source },
            }
        };
        let misfit = |why| MetricsError::Misfit { path: path.clone(), why };
        let file = open_read_only(&path).map_err(io_error("open"))?;
        let metadata = file.metadata().map_err(io_error("ask for its size"))?;
        let bytes = metadata.len();
        if !metadata.is_file() || bytes < TABLE as u64 || bytes > FILE_BYTES_MAX {
            return Err(misfit(Misfit::Size { bytes }));
        }
        let region = Region::read_only(&file, bytes as usize, false).map_err(io_error("map"))?;
        let (words, bytes) = (Words::new(Arc::new(region)), bytes as usize);
        let at = |offset| words.at(offset).load(Ordering::Relaxed);
        if at(MAGIC) != MAGIC_VALUE {
            return Err(misfit(Misfit::Magic));
        }
        if at(VERSION) != VERSION_VALUE {
            return Err(misfit(Misfit::Version { version: at(VERSION) }));
        }
        if at(FILE_BYTES) > bytes as u64 {
            return Err(misfit(Misfit::FileBytes { said: at(FILE_BYTES) }));
        }
        let origin = Origin::named(Files::Metrics, dir, name, &metadata);
        let reader = MetricsReader { words, bytes, path: path.clone(), origin };
        reader.try_read().map_err(misfit)?;
        Ok(reader)
    }

    pub(super) fn here(words: Words) -> Self {
        let bytes = words.at(FILE_BYTES).load(Ordering::Relaxed) as usize;
        MetricsReader { words, bytes, path: PathBuf::from("this process"), origin: Origin::Here }
    }

    /// Whether what is mapped has a writer, as far as can be told.
    pub fn is_live(&self) -> bool {
        matches!(self.origin.standing(), Standing::Live)
    }

    /// Which file it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All that it says now. What has come to make no sense since it was opened is left out.
    pub fn read(&self) -> Reading {
        let entries = (0..self.entries().unwrap_or(0)).filter_map(|index| self.entry(index));
        self.collect(entries)
    }

    fn try_read(&self) -> Result<Reading, Misfit> {
        let mut entries = Vec::new();
        for index in 0..self.entries()? {
            entries.push(self.entry(index).ok_or(Misfit::Entry { index })?);
        }
        Ok(self.collect(entries.into_iter()))
    }

    fn entries(&self) -> Result<usize, Misfit> {
        // Pairs with the writer's Release: what stands in the entries was there before.
        let said = self.words.at(ENTRIES).load(Ordering::Acquire);
        let fits = said <= ENTRIES_MAX as u64 && TABLE + said as usize * ENTRY_BYTES <= self.bytes;
        if fits { Ok(said as usize) } else { Err(Misfit::Entries { said }) }
    }

    fn load(&self, offset: usize) -> u64 {
        self.words.at(offset).load(Ordering::Relaxed)
    }

    /// Name, kind and place of an entry, where they make sense.
    fn entry(&self, index: usize) -> Option<Entry> {
        let entry = TABLE + index * ENTRY_BYTES;
        let name = self.text(entry + ENTRY_NAME, ENTRY_NAME_BYTES)?;
        let at = usize::try_from(self.load(entry + ENTRY_OFFSET)).ok().filter(|at| at.is_multiple_of(8))?;
        let has_room = |bytes: usize| at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let kind = match self.load(entry + ENTRY_KIND) {
            KIND_COUNTER if has_room(8) => EntryKind::Word(Kind::Counter),
            KIND_LEVEL if has_room(8) => EntryKind::Word(Kind::Level),
            KIND_HISTOGRAM if has_room(HISTOGRAM_FIRST) => {
                let bits = u32::try_from(self.load(at + HISTOGRAM_BITS)).ok().filter(|bits| (2..=16).contains(bits))?;
                let fits = self.load(at + HISTOGRAM_COUNTS) == counts(bits) as u64;
                (fits && has_room(HISTOGRAM_FIRST + 8 * counts(bits))).then_some(EntryKind::Histogram { bits })?
            }
            _ => return None,
        };
        Some(Entry { name, kind, at })
    }

    fn collect(&self, entries: impl Iterator<Item = Entry>) -> Reading {
        let mut reading = Reading {
            label: self.text(LABEL, LABEL_BYTES).unwrap_or_default(),
            epoch: self.load(EPOCH),
            pid: self.load(WRITER_PID),
            created_ns: self.load(CREATED_NS),
            heartbeat_ns: self.load(HEARTBEAT_NS),
            words: Vec::new(),
            histograms: Vec::new(),
        };
        for Entry { name, kind, at } in entries {
            match kind {
                EntryKind::Word(kind) => reading.words.push((name, kind, self.load(at))),
                EntryKind::Histogram { bits } => {
                    reading.histograms.push(read_histogram(&self.words, name, at, bits));
                }
            }
        }
        reading
    }

    fn text(&self, at: usize, bytes: usize) -> Option<String> {
        let mut text: Vec<u8> = (at..at + bytes).step_by(8).flat_map(|at| self.load(at).to_le_bytes()).collect();
        text.truncate(text.iter().position(|&byte| byte == 0).unwrap_or(bytes));
        String::from_utf8(text).ok().filter(|text| !text.chars().any(char::is_control))
    }
}

enum EntryKind {
    Word(Kind),
    Histogram { bits: u32 },
}

struct Entry {
    name: String,
    kind: EntryKind,
    at: usize,
}

/// Its counts; the caller has checked that they are within the words.
pub(super) fn read_histogram(words: &Words, name: String, at: usize, bits: u32) -> HistogramRead {
    let load = |offset| words.at(at + offset).load(Ordering::Relaxed);
    let counts = (0..counts(bits)).map(|index| load(HISTOGRAM_FIRST + 8 * index)).collect();
    HistogramRead { name, max: load(HISTOGRAM_MAX), bits, counts }
}
