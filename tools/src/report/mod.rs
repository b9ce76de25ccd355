//! `ticktape report`: runs of `load --out` and histogram logs as one page that needs nothing else.
//!
//! What the page shows is drawn from the logs and summaries anew; nothing of a directory is taken over as it stands.

mod figures;
mod found;
mod html;
mod page;

use std::path::PathBuf;

use crate::args::ReportArgs;
use crate::out::say;
use crate::{Failure, out_file};
use found::Found;

/// Reads what there is, and writes the page; what is damaged is named, and is a failure behind it.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    let found = Found::look(&args.path)?;
    let out = args.out.clone().unwrap_or_else(|| default_out(&args.path));
    let page = page::page(&found);
    out_file::write(&out, page).map_err(|error| Failure::failed(format!("{}: {error}", out.display())))?;
    for name in &found.foreign {
        say!("passed over    {name}: is no run's")?;
    }
    say!("{}: {} run(s)", out.display(), found.runs.len())?;
    if found.damaged.is_empty() { Ok(()) } else { Err(Failure::failed(found.damaged.join("; "))) }
}

fn default_out(path: &std::path::Path) -> PathBuf {
    if path.is_dir() { path.join("report.html") } else { path.with_extension("html") }
}
