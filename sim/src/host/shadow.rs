//! The shadow beside the stages: as live, it rebuilds its own state from the disk once the box is up, and stays behind from then on.

use ticktape::Service;
use ticktape::config::ApplianceConfig;
use ticktape::machine::Machine;
use ticktape::mark::Mark;
use ticktape::pipeline::shadow::open_on;
use ticktape::shadow::{Covered, Log, Shadow, ShadowCounters, ShadowError};
use ticktape::snapshot::RestoreFailure;
use ticktape::tail::TailError;
use ticktape::{Nanos, Seq};
use ticktape_journal::{JournalError, SnapshotError};
use ticktape_shm::Follower;

use crate::disk::{Medium, SimDisk};

/// What a shadow begins with.
pub(super) struct Seed {
    pub(super) config: ApplianceConfig,
    pub(super) medium: Medium,
    pub(super) ring: Follower,
    pub(super) log_id: u64,
    pub(super) digests: rtrb::Producer<Mark>,
    pub(super) covered: Covered,
}

enum Life<S: Service> {
    Seed(Box<Seed>),
    Runs(Box<Shadow<S, SimDisk, SimDisk>>),
    Failed(ShadowError),
    /// Between two of them.
    Gone,
}

/// A box's shadow.
pub(crate) struct Beside<S: Service> {
    life: Life<S>,
    covered: Covered,
    medium: Medium,
    /// What the disk had failed in before.
    errors: u64,
}

impl<S: Service> Beside<S> {
    pub(super) fn new(seed: Seed) -> Self {
        let (covered, medium) = (seed.covered.clone(), seed.medium.clone());
        let errors = medium.counters().errors;
        Beside { life: Life::Seed(Box::new(seed)), covered, medium, errors }
    }

    /// One poll, the first of which rebuilds its state; returns the work done.
    pub(super) fn poll(&mut self, now: Nanos, service: &S::Config) -> usize {
        if let Life::Runs(shadow) = &mut self.life {
            return shadow.poll(now).unwrap_or_else(|error| {
                self.life = Life::Failed(error);
                1
            });
        }
        match std::mem::replace(&mut self.life, Life::Gone) {
            Life::Seed(seed) => {
                self.life = match begin(*seed, service) {
                    Ok(shadow) => Life::Runs(Box::new(shadow)),
                    Err(error) => Life::Failed(error),
                };
                1
            }
            life => {
                self.life = life;
                0
            }
        }
    }

    /// Why it can go no further, if it can't.
    pub(crate) fn failed(&self) -> Option<&ShadowError> {
        match &self.life {
            Life::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// Its state, once it has one.
    pub(crate) fn machine(&self) -> Option<&Machine<S>> {
        match &self.life {
            Life::Runs(shadow) => Some(shadow.machine()),
            _ => None,
        }
    }

    /// What it did.
    pub(crate) fn counters(&self) -> ShadowCounters {
        match &self.life {
            Life::Runs(shadow) => shadow.counters(),
            _ => ShadowCounters::default(),
        }
    }

    /// Whether no snapshot is being written, looked at or taken away.
    pub(super) fn is_idle(&self) -> bool {
        matches!(&self.life, Life::Runs(shadow) if shadow.is_idle())
    }

    /// The last frame that the oldest snapshot covers which is relied on; 0 before there is one.
    pub(crate) fn covered(&self) -> Seq {
        self.covered.get()
    }
}

fn begin<S: Service>(seed: Seed, service: &S::Config) -> Result<Shadow<S, SimDisk, SimDisk>, ShadowError> {
    let Seed { config, medium, ring, log_id, digests, covered } = seed;
    let disk = medium.open();
    let log = Log { dir: config.dir.clone(), ring, open_disk: Box::new(move || medium.open()) };
    open_on::<S, _, _>(&config, service, log, disk, log_id, digests, covered)
}

impl<S: Service> Beside<S> {
    /// Whether it is the disk that failed it, and not what is on it: with snapshots that can't be read it may lack a beginning, too.
    pub(crate) fn is_failed_by_disk(&self) -> bool {
        let met_errors = self.medium.counters().errors > self.errors;
        let journal = |error: &JournalError| match error {
            JournalError::Disk { .. } => true,
            JournalError::TooOld { .. } | JournalError::NoBeginning { .. } => met_errors,
            _ => false,
        };
        match self.failed() {
            Some(ShadowError::Tail(TailError::Journal(error)))
            | Some(ShadowError::Restore(RestoreFailure::Journal(error))) => journal(error),
            Some(ShadowError::Snapshots(error)) => matches!(error, SnapshotError::Disk { .. }),
            _ => false,
        }
    }
}
