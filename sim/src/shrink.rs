//! From a run that failed to a smaller one that fails by the same check.
//!
//! In this order: fewer steps, fewer kinds of fault, fewer replicas, fewer clients, then steps again. Each step of a run has streams of chance
//! of its own, and a kind of fault that is off leaves its strokes' places empty, so what is taken away leaves the rest mostly as it was.

use crate::simulate::{Failure, Faults, Report, SimConfig};

/// Runs that shrinking one failure may take.
pub const RUNS_MAX: u32 = 200;

/// Shrinks what failed, by means of `run`; returns the smallest run that was found to fail by the same check, and how many runs that took.
/// The failure keeps what it was [found with](Failure::found).
pub fn shrink(failure: Failure, run: impl FnMut(&SimConfig) -> Result<Report, Failure>) -> (Failure, u32) {
    let mut search = Search { found: *failure.found, best: failure, runs: 0, run };
    search.keep_to_the_step();
    search.cut_steps();
    search.drop_faults();
    search.drop_replicas();
    search.drop_clients();
    search.cut_steps();
    (search.best, search.runs)
}

struct Search<R> {
    found: SimConfig,
    best: Failure,
    runs: u32,
    run: R,
}

impl<R: FnMut(&SimConfig) -> Result<Report, Failure>> Search<R> {
    /// Runs this instead; true where it fails in the same way, and then it is the best.
    fn try_smaller(&mut self, config: SimConfig) -> bool {
        if self.runs == RUNS_MAX {
            return false;
        }
        self.runs += 1;
        match (self.run)(&config) {
            Err(failure) if failure.check == self.best.check => {
                self.best = Failure { found: Box::new(self.found), ..failure };
                true
            }
            _ => false,
        }
    }

    /// The steps after the one in which it showed are of no use.
    fn keep_to_the_step(&mut self) {
        let Failure { config, step, .. } = self.best;
        if step < config.steps {
            self.try_smaller(SimConfig { steps: step, ..config });
        }
    }

    /// Takes away as many steps from the end as it can: half of them, and less where that is too much.
    fn cut_steps(&mut self) {
        let mut cut = self.best.config.steps / 2;
        while cut > 0 {
            let config = self.best.config;
            let is_shorter = config.steps > cut && self.try_smaller(SimConfig { steps: config.steps - cut, ..config });
            if !is_shorter {
                cut /= 2;
            }
            // It may show still earlier than it has to.
            if is_shorter && self.best.step < self.best.config.steps {
                self.keep_to_the_step();
            }
            cut = cut.min(self.best.config.steps.saturating_sub(1));
        }
    }

    /// Takes kinds of fault away, until each of those left is needed.
    fn drop_faults(&mut self) {
        if self.best.config.faults != Faults::NONE
            && self.try_smaller(SimConfig { faults: Faults::NONE, ..self.best.config })
        {
            return;
        }
        loop {
            let before = self.best.config.faults;
            for name in before.names() {
                let config = self.best.config;
                self.try_smaller(SimConfig { faults: config.faults.without(name), ..config });
            }
            if self.best.config.faults == before {
                return;
            }
        }
    }

    fn drop_replicas(&mut self) {
        for replicas in 0..self.best.config.replicas {
            if self.try_smaller(SimConfig { replicas, ..self.best.config }) {
                return;
            }
        }
    }

    fn drop_clients(&mut self) {
        for clients in 1..self.best.config.clients {
            if self.try_smaller(SimConfig { clients, ..self.best.config }) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(config: &SimConfig, step: u32, check: &'static str) -> Failure {
        Failure {
            config: *config,
            found: Box::new(*config),
            step,
            check,
            detail: String::new(),
            last_events: Vec::new(),
        }
    }

    /// Fails where there are at least 77 steps, kills and full disks, two clients and a replica, as step 60 shows.
    fn world(config: &SimConfig) -> Result<Report, Failure> {
        let is_wrong = config.steps >= 77 && config.faults.kill && config.faults.full;
        let is_wrong = is_wrong && config.clients >= 2 && config.replicas >= 1;
        if is_wrong { Err(failure(config, config.steps, "this")) } else { Err(failure(config, 1, "that")) }
    }

    #[test]
    fn what_is_not_needed_goes() {
        let found = SimConfig { replicas: 2, ..SimConfig::new(5) };
        let (shrunk, runs) = shrink(world(&found).unwrap_err(), world);
        let kinds = Faults { kill: true, full: true, ..Faults::NONE };
        let config = SimConfig { steps: 77, clients: 2, replicas: 1, faults: kinds, ..SimConfig::new(5) };
        assert_eq!((shrunk.config, shrunk.found, shrunk.check), (config, Box::new(found), "this"));
        assert!(runs <= RUNS_MAX);
    }

    #[test]
    fn what_never_fails_again_stays_as_it_is_at_bounded_cost() {
        let mut runs = 0;
        let first = failure(&SimConfig::new(5), 300, "once");
        let (shrunk, told) = shrink(first.clone(), |config| {
            runs += 1;
            world(config)
        });
        assert_eq!((shrunk, told), (first, runs));
        assert!((1..=RUNS_MAX).contains(&runs));
    }
}
