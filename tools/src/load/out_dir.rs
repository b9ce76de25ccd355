//! A run's directory: what `--out` writes.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::summary::Summary;
use crate::Failure;
use crate::hdr::{LogWriter, write_percentiles};

/// All values that count, by percentile.
pub const LATENCY_HGRM: &str = "latency.hgrm";
/// The same by second.
pub const LATENCY_HLOG: &str = "latency.hlog";
/// What a spinning core lost before the run.
pub const JITTER_HGRM: &str = "jitter.hgrm";
/// Options, host and figures.
pub const SUMMARY_JSON: &str = "summary.json";

/// A directory that a run writes to.
pub struct OutDir {
    dir: PathBuf,
    log: Option<LogWriter<BufWriter<File>>>,
}

impl OutDir {
    /// Makes `dir`, or takes it where it is empty.
    ///
    /// # Errors
    /// Usage: it holds something, or can't be made.
    pub fn new(dir: &Path) -> Result<Self, Failure> {
        empty_dir(dir)?;
        Ok(OutDir { dir: dir.to_owned(), log: None })
    }

    /// Begins the log of intervals, which count from `start`, since the Unix epoch; a second call does nothing.
    ///
    /// # Errors
    /// The disk's.
    pub fn begin(&mut self, start: Duration) -> Result<(), Failure> {
        if self.log.is_none() {
            let path = self.dir.join(LATENCY_HLOG);
            let comment = format!("ticktape load {}: nanoseconds", env!("CARGO_PKG_VERSION"));
            let log = File::create(&path).and_then(|file| LogWriter::new(BufWriter::new(file), &comment, start));
            self.log = Some(log.map_err(|error| failed(&path, &error))?);
        }
        Ok(())
    }

    /// A second, or what there was of it; times since the log's start.
    ///
    /// # Errors
    /// The disk's.
    pub fn interval(&mut self, from_ns: u64, to_ns: u64, latency: &Histogram<u64>) -> Result<(), Failure> {
        let (from, length) = (Duration::from_nanos(from_ns), Duration::from_nanos(to_ns.saturating_sub(from_ns)));
        let Some(log) = &mut self.log else { return Ok(()) };
        log.interval(from, length, latency).map_err(|error| failed(&self.dir.join(LATENCY_HLOG), &error))
    }

    /// Writes what is known at the end.
    ///
    /// # Errors
    /// The disk's.
    pub fn finish(
        self,
        summary: &Summary,
        latency: &Histogram<u64>,
        jitter: &Histogram<u64>,
    ) -> Result<PathBuf, Failure> {
        let dir = self.dir;
        for (name, histogram) in [(LATENCY_HGRM, latency), (JITTER_HGRM, jitter)] {
            let path = dir.join(name);
            let mut file = File::create(&path).map(BufWriter::new).map_err(|error| failed(&path, &error))?;
            write_percentiles(histogram, &mut file)
                .and_then(|()| file.flush())
                .map_err(|error| failed(&path, &error))?;
        }
        crate::json::write(&dir.join(SUMMARY_JSON), summary)?;
        #[cfg(feature = "plots")]
        super::plots::write(&dir, summary, latency, jitter)?;
        Ok(dir)
    }
}

/// Makes `dir`, or takes it where it is empty.
///
/// # Errors
/// Usage: it holds something, or can't be made.
pub(crate) fn empty_dir(dir: &Path) -> Result<(), Failure> {
    let refused = |error: std::io::Error| Failure::usage(format!("{}: {error}", dir.display()));
    fs::create_dir_all(dir).map_err(refused)?;
    if fs::read_dir(dir).map_err(refused)?.next().is_some() {
        return Err(Failure::usage(format!("{}: is not empty; --out takes a new or empty directory", dir.display())));
    }
    Ok(())
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", path.display()))
}
