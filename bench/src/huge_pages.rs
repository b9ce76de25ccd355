//! Huge pages for as long as something is measured that a box in service has them for: rings and packet memory. What was set before is set
//! again at the end.

use std::fs;
use std::io;

/// The kernel's pool of pages of 2 MiB.
const POOL: &str = "/proc/sys/vm/nr_hugepages";

/// A pool that is larger than it was, until dropped.
pub struct HugePages {
    before: Option<u64>,
    wanted: u64,
    outcome: String,
}

impl HugePages {
    /// At least so many pages, where that may be asked for; a pool that is large enough is left as it is.
    pub fn at_least(wanted: u64) -> Self {
        match raise(wanted) {
            Ok((before, got)) => HugePages {
                before: (before < got).then_some(before),
                wanted,
                outcome: format!("{got} huge pages of 2 MiB"),
            },
            Err(error) => {
                let outcome = format!("no more huge pages than there were: {POOL}: {error}");
                HugePages { before: None, wanted, outcome }
            }
        }
    }

    /// What came of it, for the notes.
    pub fn describe(&self) -> String {
        format!("rings and packet memory: {} ({} asked for)", self.outcome, self.wanted)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // Nobody is left to tell.
            let _ = fs::write(POOL, before.to_string());
        }
    }
}

/// The pool's size before and after.
fn raise(wanted: u64) -> io::Result<(u64, u64)> {
    let before = pool()?;
    if before < wanted {
        fs::write(POOL, wanted.to_string())?;
    }
    Ok((before, pool()?))
}

fn pool() -> io::Result<u64> {
    fs::read_to_string(POOL)?.trim().parse().map_err(io::Error::other)
}
