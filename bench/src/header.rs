//! What numbers depend on: the head of every run.

use std::fmt;
use std::process::{Command, Stdio};

use hdrhistogram::Histogram;
use ticktape_tuning::hop::{Hop, probe};
use ticktape_tuning::host::{self, Host};
use ticktape_tuning::{jitter, pin};

use crate::hop::Cores;
use crate::latency::QUANTILES;

/// Spinning for the jitter baseline, on one core.
const JITTER_MS: u64 = 300;

/// The machine, the commit, and how quiet it is.
pub struct Header {
    host: Host,
    commit: String,
    jitter: Histogram<u64>,
    hop: Option<Hop>,
}

impl Header {
    /// Looks at the machine; takes about half a second. Pins the calling thread to the core that suites measure on.
    pub fn take() -> Self {
        let host = host::describe();
        let cores = Cores::pair();
        let here = cores.map_or(host.usable_cores[0], |cores| cores.here);
        // Unpinned, the baseline is only noisier.
        let _ = pin::pin_current_thread(here);
        let hop = cores.and_then(|cores| probe(cores.here, cores.there).ok());
        Header { host, commit: commit(), jitter: jitter::baseline(JITTER_MS), hop }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.host)?;
        writeln!(f, "commit {}, {} build", self.commit, if cfg!(debug_assertions) { "debug" } else { "release" })?;
        write!(f, "jitter of a spinning core over {JITTER_MS} ms:")?;
        for (name, fraction) in QUANTILES {
            write!(f, " {name} {} ns", self.jitter.value_at_quantile(fraction))?;
        }
        writeln!(f, ", max {} ns", self.jitter.max())?;
        match &self.hop {
            Some(hop) => writeln!(f, "{hop}"),
            None => writeln!(f, "one usable core: rows that need two are skipped"),
        }
    }
}

/// The commit that is checked out where this was built, wherever it runs, with a plus where files differ from it.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let here = ["-C", env!("CARGO_MANIFEST_DIR")];
        let output = Command::new("git").args(here).args(arguments).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(head) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|changes| !changes.is_empty());
    if changed { format!("{head}+") } else { head }
}
