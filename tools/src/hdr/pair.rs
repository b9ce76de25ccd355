//! One histogram in both forms.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::{LogWriter, write_percentiles};

/// Writes `stem.hgrm`, and `stem.hlog` with one interval: it began at `start`, since the Unix epoch, and was so long. `comment` is one line.
///
/// # Errors
/// The disk's.
pub fn write_pair(
    stem: &Path,
    comment: &str,
    start: Duration,
    length: Duration,
    histogram: &Histogram<u64>,
) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(stem.with_extension("hgrm"))?);
    write_percentiles(histogram, &mut file)?;
    file.flush()?;
    let file = BufWriter::new(File::create(stem.with_extension("hlog"))?);
    let mut log = LogWriter::new(file, &format!("ticktape {}: {comment}", env!("CARGO_PKG_VERSION")), start)?;
    log.interval(Duration::ZERO, length, histogram)
}
