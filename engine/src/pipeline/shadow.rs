//! The shadow's thread: off the plan, on whichever cores the stages leave alone, and never in anybody's way.

use std::time::Duration;

use ticktape_core::Service;
use ticktape_journal::{Binding, Disk, NativeDisk};
use ticktape_shm::Follower;
use ticktape_tuning::{clock, pin};

use super::plan::StageName;
use super::stage::{Lifecycle, StageReport};
use crate::config::{ApplianceConfig, SnapshotConfig};
use crate::mark::Mark;
use crate::shadow::{Covered, Log, Shadow, ShadowCounters, ShadowError};
use crate::snapshot::{Found, RestoreFailure};

/// Between two polls that find nothing. A snapshot is late by milliseconds at most, and a core in a deep sleep is not kept awake.
const REST: Duration = Duration::from_micros(500);

/// So many points behind what is durable, it stays behind the stages no longer, but takes its share of their cores.
const BEHIND_POINTS_MAX: u64 = 2;

/// What a shadow's thread begins with.
pub(super) struct Seed {
    pub(super) config: ApplianceConfig,
    pub(super) snapshots: SnapshotConfig,
    /// At the frame from which the ring goes on, or anywhere behind.
    pub(super) ring: Follower,
    pub(super) digests: rtrb::Producer<Mark>,
    pub(super) covered: Covered,
    pub(super) lifecycle: Lifecycle,
    /// Which log it is.
    pub(super) log_id: u64,
    /// The cores that no stage is pinned to; all where there are none such.
    pub(super) cores: Vec<usize>,
}

/// Runs a shadow until the appliance stops or fails; a shadow that can't go on fails it.
pub(super) fn run<S: Service>(seed: Seed, service: &S::Config) -> (StageName, Result<StageReport, String>) {
    // Without them it is only less considerate.
    let _ = pin::keep_to(&seed.cores);
    let _ = pin::stay_behind();
    let lifecycle = seed.lifecycle.clone();
    let report = shadow::<S>(seed, service).unwrap_or_else(|error| {
        lifecycle.fail(format!("shadow replica: {error}"));
        StageReport::default()
    });
    (StageName::Shadow, Ok(report))
}

/// The shadow of an appliance, with its own state rebuilt from the newest sound snapshot beside the log. On its way it reads on
/// disks of the log's, and it writes on `disk`, for the log of this identity. Runs to its end: off the stages' threads.
///
/// # Errors
/// [`ShadowError`]: what can't be read or restored.
pub fn open_on<S: Service, D: Disk, R: Disk>(
    config: &ApplianceConfig,
    service: &S::Config,
    log: Log<R>,
    disk: D,
    log_id: u64,
    digests: rtrb::Producer<Mark>,
    covered: Covered,
) -> Result<Shadow<S, D, R>, ShadowError> {
    let snapshots = config.snapshots.unwrap_or_default();
    let mut reader = (log.open_disk)();
    let found = Found::newest_on(&mut reader, &log.dir, log.ring.durable()).map_err(RestoreFailure::from)?;
    let restored = found.restore_on::<S, R>(&mut reader, &log.dir, service, config.limits, snapshots.tail_bytes);
    let mut restored = restored?;
    restored.machine.set_log_id(log_id);
    Shadow::open(log, disk, restored, snapshots.pace(), digests, covered)
}

fn shadow<S: Service>(seed: Seed, service: &S::Config) -> Result<StageReport, String> {
    let Seed { config, snapshots, ring, digests, covered, lifecycle, log_id, .. } = seed;
    let disk = NativeDisk::new(&config.dir, Binding::OneThread);
    let log = Log::in_files(&config.dir, ring);
    let opened = open_on::<S, _, _>(&config, service, log, disk, log_id, digests, covered);
    let mut shadow = opened.map_err(|error| error.to_string())?;
    let behind_max = snapshots.every_frames.saturating_mul(BEHIND_POINTS_MAX);
    let (mut is_level, mut urgent) = (false, 0);
    while !lifecycle.failed() && lifecycle.final_seq().is_none() {
        if shadow.poll(clock::monotonic_ns()).map_err(|error| error.to_string())? == 0 {
            std::thread::sleep(REST);
        }
        // The log that no snapshot covers grows meanwhile: then it is work that somebody waits for.
        let is_late = shadow.frames_behind() > behind_max;
        if is_late != is_level {
            is_level = is_late;
            urgent += u64::from(is_late);
            let _ = if is_late { pin::stand_level() } else { pin::stay_behind() };
        }
    }
    let ShadowCounters { applied, snapshots, last_snapshot, failed_snapshots, overruns } = shadow.counters();
    let mut report = StageReport::default();
    report.counters.push(("shadow_applied", applied));
    report.counters.push(("snapshots", snapshots));
    report.counters.push(("last_snapshot", last_snapshot));
    report.counters.push(("failed_snapshots", failed_snapshots));
    report.counters.push(("shadow_overruns", overruns));
    report.counters.push(("shadow_urgent", urgent));
    if let Some(error) = shadow.snapshot_error() {
        report.facts.push(("snapshot_error", error.to_string()));
    }
    Ok(report)
}
