//! What is kept on the disk, looked at from outside: snapshots that are no lie, and a log that begins early enough for them.
//!
//! All of it looks at copies of the disk, as the power would leave it if it went now and took whatever it may take.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use ticktape::config::ApplianceConfig;
use ticktape::machine::Machine;
use ticktape::pipeline::recovery::start_on;
use ticktape::pipeline::rings::egress_config;
use ticktape::{Seq, Service};
use ticktape_journal::disk::Op;
use ticktape_journal::{Disk, JournalError, JournalReader, Salts, Snapshot, names, snapshot};

use super::{Host, Oracle};
use crate::disk::{Loss, Medium, SimDisk};
use crate::ledger::{Frames, Wrong};
use crate::rng::{Ppm, Rng};

/// Nothing survives that was not synced.
pub(crate) const NOTHING: Loss = Loss { survives: Ppm::NEVER, torn: Ppm::NEVER, names_in_order: true };

/// The name of the check that every snapshot is what the log comes to.
const NO_LIE: &str = "snapshots never lie";
const NEEDED: &str = "compaction keeps what recovery needs";
const READABLE: &str = "the log can be read";
const BOUNDED: &str = "disk stays bounded";

/// Segments at rest beside those that hold what is not covered: the newest that is covered stays, as the journal's own witness,
/// and one may be half on its way.
const SEGMENTS_COVERED_MAX: usize = 2;

/// Spares at rest: those that wait, and one that is being made.
const SPARES_MAX: usize = 3;

/// Of so many times that segments are given up, the first is followed by a whole recovery. What all of them leave is read through: what becomes
/// of each frame is looked at every time, and how a box starts on it is looked at by everything that starts one.
const RECOVERIES_EACH: u64 = 4;

/// Snapshots that are remembered so: more than any box retains.
const FOUND_TRUE_MAX: usize = 8;

/// What was looked at so far.
pub(crate) struct Retention<S: Service> {
    pub(crate) oracle: Oracle<S>,
    /// How many of this reign's snapshots, and of its segments that went.
    snapshots: u64,
    segments_gone: u64,
    /// How often this reign was seen to give segments up.
    given_up: u64,
    /// The latest that were found to be what the log comes to, and to come back as they are: each start meets most of them again, and what is
    /// the same still does.
    found_true: VecDeque<Snapshot>,
}

impl<S: Service> Retention<S> {
    pub(crate) fn new(config: &ApplianceConfig, service: &S::Config) -> Self {
        let oracle = Oracle::new(config, service);
        Retention { oracle, snapshots: 0, segments_gone: 0, given_up: 0, found_true: VecDeque::new() }
    }

    /// Frames after `seq` may be others from now on: what was found of states after them is forgotten.
    pub(crate) fn forget_after(&mut self, seq: Seq, service: &S::Config) {
        self.oracle.forget_after(seq, service);
        self.found_true.retain(|snapshot| snapshot.meta().seq <= seq);
    }

    /// Whether anything has become of the disk that was not looked at.
    pub(crate) fn has_news(&self, host: &Host<S>) -> bool {
        host.beside().is_some_and(|beside| {
            beside.counters().snapshots > self.snapshots || host.segments_gone() > self.segments_gone
        })
    }

    /// A stage was polled: looks at what has become of the disk, if that is anything new.
    pub(crate) fn look(
        &mut self,
        host: &Host<S>,
        world: &Surroundings<'_, S::Config>,
        frames: &Frames,
    ) -> Result<(), Wrong> {
        let Some(beside) = host.beside() else { return Ok(()) };
        let counters = beside.counters();
        if counters.snapshots > self.snapshots {
            self.snapshots = counters.snapshots;
            self.check_written(world, frames, Seq(counters.last_snapshot))?;
        }
        let gone = host.segments_gone();
        if gone > self.segments_gone {
            self.segments_gone = gone;
            let (covered, durable) = (beside.covered(), host.progress().durable);
            check_goes_on(world, frames, covered, durable)?;
            if self.given_up.is_multiple_of(RECOVERIES_EACH) {
                self.check_recoverable(world, frames, covered, durable)?;
            }
            self.given_up += 1;
        }
        Ok(())
    }

    /// One that counts as written is durable, and is the state that the log comes to there.
    fn check_written(&mut self, world: &Surroundings<'_, S::Config>, frames: &Frames, seq: Seq) -> Result<(), Wrong> {
        let left = world.medium.after_power_loss(NOTHING);
        let path = names::snapshot(&world.config.dir, seq);
        let read = snapshot::read_on(&mut left.open(), &path);
        if read.is_err() && world.unsound > 0 {
            // It rotted since it was read back.
            return Ok(());
        }
        let read = read.map_err(|error| (NO_LIE, format!("it counts as written, and would not survive: {error}")))?;
        self.check_true(world, frames, &read)
    }

    fn check_true(
        &mut self,
        world: &Surroundings<'_, S::Config>,
        frames: &Frames,
        found: &Snapshot,
    ) -> Result<(), Wrong> {
        let seq = found.meta().seq;
        if seq.0 as usize > frames.len() {
            return Err((NO_LIE, format!("there is one after seq {seq}, and the log ends at {}", frames.len())));
        }
        if self.found_true.contains(found) {
            return Ok(());
        }
        self.oracle.go_to(frames, seq, world.service)?;
        let due = self.oracle.snapshot(found.meta().log_id);
        if *found != due {
            let differs = difference(found, &due);
            return Err((NO_LIE, format!("the one after seq {seq} is not what the log comes to: {differs}")));
        }
        let tail_bytes = world.config.snapshots.map_or(0, |snapshots| snapshots.tail_bytes);
        let restored = Machine::<S>::restore(found, world.service, world.config.limits, tail_bytes);
        let (machine, tails) = restored.map_err(|error| (NO_LIE, format!("after seq {seq}: {error}")))?;
        let again = machine.to_snapshot(&tails);
        if again.body() != found.body() {
            let differs = difference(&again, found);
            return Err((NO_LIE, format!("restored from the one after seq {seq} the state is another: {differs}")));
        }
        if self.found_true.len() == FOUND_TRUE_MAX {
            self.found_true.pop_front();
        }
        self.found_true.push_back(due);
        Ok(())
    }

    /// The power goes now, and of the snapshots only the one is left that the log was given up for: that has to be enough.
    fn check_recoverable(
        &mut self,
        world: &Surroundings<'_, S::Config>,
        frames: &Frames,
        covered: Seq,
        durable: u64,
    ) -> Result<(), Wrong> {
        let left = world.medium.after_power_loss(NOTHING);
        let (mut disk, dir) = (left.open(), &world.config.dir);
        let all = snapshot::list_on(&mut disk, dir).map_err(|error| (NEEDED, error.to_string()))?;
        for (_, path) in all.iter().filter(|(seq, _)| *seq != covered) {
            disk.run(Op::Delete { path }).expect("it was just listed");
        }
        if snapshot::read_on(&mut disk, &names::snapshot(dir, covered)).is_err() {
            // It rotted since. Others have to do then, and are looked at when they are needed.
            return Ok(());
        }
        let mut config = world.config.clone();
        config.journal.salts = Salts::Seeded(1);
        let egress = egress_config(&config, 0, S::SCHEMA_VERSION);
        drop(disk);
        let open = || left.open();
        let started = start_on::<S, _, _>(&config, world.service, egress, open, open);
        let started = started.map_err(|error| (NEEDED, format!("from the snapshot after seq {covered}: {error}")))?;
        let reached = started.machine.applied();
        if reached.0 < durable {
            return Err((NEEDED, format!("seq {reached} is reached, and {durable} is durable")));
        }
        self.oracle.go_to(frames, reached, world.service)?;
        if started.machine.state_digest() != self.oracle.machine().state_digest() {
            return Err((NEEDED, format!("recovered to seq {reached}, the state is another than the log's")));
        }
        Ok(())
    }

    /// The box is up: everything that a later start may begin from is true, and the log goes on from one of them.
    pub(crate) fn check_start(
        &mut self,
        world: &Surroundings<'_, S::Config>,
        frames: &Frames,
        first: Seq,
    ) -> Result<(), Wrong> {
        (self.snapshots, self.segments_gone, self.given_up) = (0, 0, 0);
        let sound = sound_snapshots(&world.medium.copy(), &world.config.dir)?;
        for (_, snapshot) in &sound {
            self.check_true(world, frames, snapshot)?;
        }
        if first > Seq::FIRST && !sound.iter().any(|(_, snapshot)| snapshot.meta().seq.next() >= first) {
            return Err((NEEDED, format!("the log begins at seq {first}, and no sound snapshot reaches there")));
        }
        Ok(())
    }

    /// Nothing is under way any more: what is covered is gone, and so are snapshots beyond those that are retained.
    pub(crate) fn check_bounded(&self, host: &Host<S>, world: &Surroundings<'_, S::Config>) -> Result<(), Wrong> {
        let Some((settings, beside)) = world.config.snapshots.zip(host.beside()) else { return Ok(()) };
        let files = world.medium.files();
        let with = |end: &str| files.iter().filter(|path| path.to_string_lossy().ends_with(end)).collect::<Vec<_>>();
        let (snapshots, aside, spares) = (with(".snap").len(), with(".snap.tmp").len(), with(".spare").len());
        // What is unsound and newer than the oldest that is verified is kept to be looked at.
        if snapshots > settings.retained + world.unsound || aside > 1 + world.unsound || spares > SPARES_MAX {
            let what =
                format!("{snapshots} snapshots of {} wanted, {aside} half-made, {spares} spares", settings.retained);
            return Err((BOUNDED, what));
        }
        let ends = with(".seg").into_iter().skip(1).filter_map(|path| first_of(path));
        let covered = ends.filter(|next| *next <= beside.covered().next()).count();
        if settings.compact && covered > SEGMENTS_COVERED_MAX {
            return Err((BOUNDED, format!("{covered} segments hold only what is covered up to {}", beside.covered())));
        }
        Ok(())
    }
}

/// What a check needs to know of the world.
pub(crate) struct Surroundings<'a, C> {
    pub(crate) config: &'a ApplianceConfig,
    pub(crate) service: &'a C,
    pub(crate) medium: &'a Medium,
    /// Files that may be unsound, or could not be read or deleted: those that were made to rot, and the disk's errors.
    pub(crate) unsound: usize,
}

/// The power goes now: the log that is left begins where the snapshot ends that it was given up for, or before, and holds every durable frame
/// from there on as it was sequenced.
fn check_goes_on<C>(world: &Surroundings<'_, C>, frames: &Frames, covered: Seq, durable: u64) -> Result<(), Wrong> {
    let (left, dir) = (world.medium.after_power_loss(NOTHING), &world.config.dir);
    let mut disk = left.open();
    if snapshot::read_on(&mut disk, &names::snapshot(dir, covered)).is_err() {
        // It rotted since. Others have to do then, and are looked at when they are needed.
        return Ok(());
    }
    let wrong = |error: JournalError| (NEEDED, format!("after the snapshot after seq {covered}: {error}"));
    let mut reader = JournalReader::open_on(disk, dir, covered.next()).map_err(wrong)?;
    reader.set_durable(Seq(durable));
    let mut reached = covered.0;
    while let Some(frame) = reader.next().map_err(wrong)? {
        if frames.get(reached as usize) != Some(frame) {
            return Err((NEEDED, format!("after seq {reached} stands another frame than was sequenced")));
        }
        reached += 1;
    }
    if reached < durable {
        return Err((NEEDED, format!("seq {reached} is reached, and {durable} is durable")));
    }
    Ok(())
}

fn first_of(segment: &Path) -> Option<Seq> {
    segment.file_stem()?.to_str()?.parse().ok().map(Seq)
}

fn difference(left: &Snapshot, right: &Snapshot) -> &'static str {
    if left.engine() != right.engine() {
        "the engine's part differs"
    } else if left.service() != right.service() {
        "the service's part differs"
    } else if left.tails() != right.tails() {
        "the sessions' latest events differ"
    } else {
        "only what is said of it differs"
    }
}

/// The sound snapshots on a disk, oldest first. What is not sound is nobody's business here.
fn sound_snapshots(medium: &Medium, dir: &Path) -> Result<Vec<(PathBuf, Snapshot)>, Wrong> {
    let mut disk = medium.open();
    let all = snapshot::list_on(&mut disk, dir).map_err(|error| ("the directory can be read", error.to_string()))?;
    Ok(all.into_iter().filter_map(|(_, path)| snapshot::read_on(&mut disk, &path).ok().map(|it| (path, it))).collect())
}

/// A snapshot that may rot, if there is any: where the log is given up, another sound and durable one has to be among those that stay.
pub(crate) fn may_rot(medium: &Medium, config: &ApplianceConfig, rng: &mut Rng) -> Option<PathBuf> {
    let settings = config.snapshots?;
    let mut sound = sound_snapshots(&medium.after_power_loss(NOTHING), &config.dir).ok()?;
    let mut disk = medium.copy().open();
    let mut all: Vec<PathBuf> =
        snapshot::list_on(&mut disk, &config.dir).ok()?.into_iter().map(|(_, path)| path).collect();
    if all.is_empty() {
        return None;
    }
    let victim = rng.pick(&all).clone();
    if settings.compact {
        let newest = all.split_off(all.len().saturating_sub(settings.retained));
        sound.retain(|(path, _)| newest.contains(path) && *path != victim);
        if sound.is_empty() {
            return None;
        }
    }
    Some(victim)
}

/// Every frame on the disk, and the seq of the first.
pub(crate) fn read_log(medium: &Medium, dir: &Path) -> Result<(Seq, Frames), Wrong> {
    let copy = medium.copy();
    let first = JournalReader::open_on(copy.open(), dir, Seq::MAX).map_err(unreadable)?.first_seq();
    let first = first.unwrap_or(Seq::FIRST);
    let reader = JournalReader::open_on(copy.open(), dir, first).map_err(unreadable)?;
    let mut found = Frames::default();
    read_to_end(reader, |frame| found.push(frame))?;
    Ok((first, found))
}

/// Puts the frames on the disk of a box that has just started, and says that they are those from `first` to `last`, in place of those that
/// were `found` there before.
pub(crate) fn read_log_from(
    medium: &Medium,
    dir: &Path,
    first: Seq,
    last: Seq,
    found: &mut Frames,
) -> Result<(), Wrong> {
    let mut reader = JournalReader::open_on(medium.copy().open(), dir, first).map_err(unreadable)?;
    reader.set_durable(last);
    if reader.first_seq() != Some(first) {
        let what = format!("it begins at {:?}, recovery says at seq {first}", reader.first_seq());
        return Err((READABLE, what));
    }
    found.truncate(0);
    read_to_end(reader, |frame| found.push(frame))
}

fn read_to_end(mut reader: JournalReader<SimDisk>, mut on_frame: impl FnMut(&[u8])) -> Result<(), Wrong> {
    while let Some(frame) = reader.next().map_err(unreadable)? {
        on_frame(frame);
    }
    Ok(())
}

fn unreadable(error: JournalError) -> Wrong {
    (READABLE, error.to_string())
}
