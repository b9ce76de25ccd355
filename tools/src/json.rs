//! Results as JSON files.

use std::path::Path;

use serde::Serialize;

use crate::Failure;

/// Writes `value` to `path`, whole or not at all.
pub fn write(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value).map_err(Failure::failed)?;
    text.push('\n');
    let aside = path.with_extension("json.partial");
    std::fs::write(&aside, text)
        .and_then(|()| std::fs::rename(&aside, path))
        .map_err(|error| Failure::failed(format!("{}: results can't be written: {error}", path.display())))
}
