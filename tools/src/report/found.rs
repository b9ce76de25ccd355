//! What is in a directory.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::hdr::LogSummary;
use crate::load::summary::{FORMAT, Summary};
use crate::load::{LATENCY_HLOG, SUMMARY_JSON};

/// Runs that one page holds.
const RUNS_MAX: usize = 64;
/// Entries of a directory that are looked at.
const ENTRIES_MAX: usize = 1000;
/// Bytes of a summary.
const SUMMARY_BYTES_MAX: u64 = 1 << 20;

/// One run, or one log of some other origin.
pub struct Run {
    pub name: String,
    /// `None` of a log alone.
    pub summary: Option<Summary>,
    pub log: LogSummary,
}

/// Everything that the page shows.
#[derive(Default)]
pub struct Found {
    pub runs: Vec<Run>,
    /// What can't be read, each in a line that names it.
    pub damaged: Vec<String>,
    /// What is none of a run's.
    pub foreign: Vec<String>,
}

impl Found {
    /// Looks at `path`: a run's directory, one of several, or a log.
    ///
    /// # Errors
    /// There is nothing to show: usage, in a line that names what there is.
    pub fn look(path: &Path) -> Result<Found, Failure> {
        let mut found = Found::default();
        if path.is_dir() {
            found.look_into(path)?;
        } else {
            found.add_log(path);
        }
        if !found.runs.is_empty() {
            return Ok(found);
        }
        let what = match found.damaged.is_empty() {
            true => format!("{}: holds no run of load --out and no .hlog", path.display()),
            false => found.damaged.join("; "),
        };
        Err(Failure::usage(what))
    }

    fn look_into(&mut self, dir: &Path) -> Result<(), Failure> {
        if dir.join(SUMMARY_JSON).exists() {
            self.add_run(dir);
            return Ok(());
        }
        let mut paths = Vec::new();
        let refused = |error: std::io::Error| Failure::usage(format!("{}: {error}", dir.display()));
        for entry in fs::read_dir(dir).map_err(refused)?.take(ENTRIES_MAX) {
            paths.push(entry.map_err(refused)?.path());
        }
        paths.sort();
        for path in paths {
            if path.join(SUMMARY_JSON).exists() {
                self.add_run(&path);
            } else if path.extension().is_some_and(|extension| extension == "hlog") {
                self.add_log(&path);
            } else if path.extension().is_none_or(|extension| extension != "html") {
                self.foreign.push(path.display().to_string());
            }
        }
        Ok(())
    }

    fn add_run(&mut self, dir: &Path) {
        let run = read_summary(&dir.join(SUMMARY_JSON)).and_then(|summary| {
            let log = read_log(&dir.join(LATENCY_HLOG))?;
            Ok(Run { name: name_of(dir), summary: Some(summary), log })
        });
        self.add(run);
    }

    fn add_log(&mut self, path: &Path) {
        self.add(read_log(path).map(|log| Run { name: name_of(path), summary: None, log }));
    }

    fn add(&mut self, run: Result<Run, String>) {
        match run {
            Ok(run) if self.runs.len() < RUNS_MAX => self.runs.push(run),
            Ok(run) => self.damaged.push(format!("{}: one run more than the {RUNS_MAX} that a page holds", run.name)),
            Err(why) => self.damaged.push(why),
        }
    }
}

fn name_of(path: &Path) -> String {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    name(path).or_else(|| name(&path.canonicalize().unwrap_or_else(|_| PathBuf::from(path)))).unwrap_or_default()
}

fn read_log(path: &Path) -> Result<LogSummary, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| named(&error))?;
    let log = LogSummary::read(BufReader::new(file)).map_err(|error| named(&error))?;
    if log.rows.is_empty() { Err(named(&"holds no interval")) } else { Ok(log) }
}

fn read_summary(path: &Path) -> Result<Summary, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| named(&error))?;
    file.take(SUMMARY_BYTES_MAX + 1).read_to_end(&mut text).map_err(|error| named(&error))?;
    if text.len() as u64 > SUMMARY_BYTES_MAX {
        return Err(named(&format!("is larger than {SUMMARY_BYTES_MAX} bytes: no summary of a run")));
    }
    let summary: Summary =
        serde_json::from_slice(&text).map_err(|error| named(&format!("no summary of a run: {error}")))?;
    if summary.format != FORMAT {
        return Err(named(&format!("is of format {:?}: {FORMAT:?} is read", summary.format)));
    }
    Ok(summary)
}
