//! Results as JSON: files, and the one object of a command with `--json`.

use std::io;
use std::path::Path;

use serde::Serialize;

use crate::{Failure, out_file};

/// Fails at once where [`write`] would fail after all the work.
pub fn check(path: &Path) -> Result<(), Failure> {
    out_file::check(path).map_err(|error| Failure::usage(cannot(path, &error)))
}

/// Writes `value` to `path`: to a regular file whole or not at all.
pub fn write(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value).map_err(Failure::failed)?;
    text.push('\n');
    out_file::write(path, text).map_err(|error| Failure::failed(cannot(path, &error)))
}

fn cannot(path: &Path, error: &io::Error) -> String {
    format!("{}: results can't be written: {error}", path.display())
}

/// `value` as one line.
pub fn line(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(Failure::failed)
}
