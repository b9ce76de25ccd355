//! Results as JSON: files, and the one object of a command with `--json`.

use std::path::Path;

use serde::Serialize;

use crate::Failure;

/// Fails at once where [`write`] would fail after all the work.
pub fn check(path: &Path) -> Result<(), Failure> {
    let aside = path.with_extension("json.partial");
    std::fs::write(&aside, "")
        .and_then(|()| std::fs::remove_file(&aside))
        .map_err(|error| Failure::usage(format!("{}: results can't be written: {error}", path.display())))
}

/// Writes `value` to `path`, whole or not at all.
pub fn write(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value).map_err(Failure::failed)?;
    text.push('\n');
    let aside = path.with_extension("json.partial");
    std::fs::write(&aside, text)
        .and_then(|()| std::fs::rename(&aside, path))
        .map_err(|error| Failure::failed(format!("{}: results can't be written: {error}", path.display())))
}

/// `value` as one line.
pub fn line(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(Failure::failed)
}
