//! The kernel's workers behind a ring: how many there may be, and on which cores. They run what can't be begun at once, every
//! sync above all, and a worker that is scheduled on a spinning core waits for the tick.

use std::fmt;

use io_uring::Submitter;

use super::sys;
use crate::limits::WORKERS_MAX;

/// What is asked for, and what became of it.
#[derive(Debug, Default)]
pub(super) struct Workers {
    /// The cores they may use; `None` leaves it to the kernel.
    cores: Option<Vec<usize>>,
    /// Why they are where the kernel likes, although something else was asked for.
    refused: Option<String>,
}

impl Workers {
    /// Asks for the usable cores, but these.
    pub(super) fn keep_off(&mut self, spinning: &[usize], usable: &[usize]) {
        (self.cores, self.refused) = others(usable, spinning);
    }

    /// Tells a ring, on the thread that uses it: workers belong to a thread.
    pub(super) fn apply(&mut self, ring: &Submitter<'_>) {
        // A bound that is refused leaves the kernel's own, which is merely larger.
        let _ = ring.register_iowq_max_workers(&mut [WORKERS_MAX, 1]);
        if let Some(cores) = &self.cores {
            self.refused = ring.register_iowq_aff(&sys::core_set(cores)).err().map(|error| error.to_string());
        }
    }
}

/// The usable cores that are not spinning, or that there are none.
fn others(usable: &[usize], spinning: &[usize]) -> (Option<Vec<usize>>, Option<String>) {
    let rest: Vec<usize> = usable.iter().copied().filter(|core| !spinning.contains(core)).collect();
    if rest.is_empty() { (None, Some("no core to spare".to_string())) } else { (Some(rest), None) }
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.refused, &self.cores) {
            (Some(reason), _) => write!(f, ", kernel workers on any core ({reason})"),
            (None, Some(cores)) => write!(f, ", kernel workers on cores {cores:?}"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_get_what_is_left() {
        assert_eq!(others(&[0, 1, 2, 5], &[1, 2]), (Some(vec![0, 5]), None));
        assert_eq!(others(&[0, 1], &[7]), (Some(vec![0, 1]), None));
        let (cores, refused) = others(&[0, 1], &[1, 0]);
        assert!(cores.is_none() && refused.is_some_and(|reason| reason.contains("no core")));
    }
}
