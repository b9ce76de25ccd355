//! The whole state at one point of the log, as bytes: what a replica, a restart or a replay can begin from.
//!
//! Sections: *engine* (timers, sessions, counters, epochs), *service* (its own snapshot), *tails* (the sessions' latest
//! events, where each epoch's public events begin, and the reign of each). The state digest covers the first two: they follow from the log alone, the third from
//! a bound of this box, too, and from the build that began the log.
//!
//! Invariant: a restored machine answers every frame as the one that the snapshot was taken of.

use std::fmt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use ticktape_core::{Reader, Seq, Service, TimerId, Timestamp};
use ticktape_journal::snapshot::{self, SectionBytes, Snapshot, SnapshotMeta};
use ticktape_journal::{Disk, FileDisk, JournalError, SnapshotError, names};

use crate::machine::{Machine, StepLimits, hex};
use crate::session::Sessions;
use crate::tails::Tails;
use crate::timer::Timers;
use crate::{Decode, Encode};

/// Room for what is digested of a small state: to grow to it from nothing takes a dozen allocations.
const DIGESTED_BYTES: usize = 4 << 10;

/// The engine section: all that the log decides beside the service's own state. The rest stands in the snapshot's header.
#[derive(Decode)]
struct EngineState {
    feed_event_seq: u64,
    malformed: u64,
    /// Each epoch with its first frame.
    epochs: Vec<(u64, Seq)>,
    timers: Vec<(TimerId, Timestamp, u64)>,
    armings: u64,
    sessions: Sessions,
}

/// Why a state can't be rebuilt from a sound snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// Taken of another service.
    OtherService {
        /// The service in the snapshot.
        snapshot: String,
        /// This service.
        service: &'static str,
    },
    /// Taken of another version of the service.
    SchemaMismatch {
        /// The version in the snapshot.
        snapshot: u32,
        /// This build's.
        service: u32,
    },
    /// A section is no encoding of what it should be.
    Section(&'static str),
    /// The sections are not what the digest was taken of.
    Digest,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreError::OtherService { snapshot, service } => {
                write!(
                    f,
                    "it is of service {snapshot:?}, this is service {service:?}: take the matching service or directory"
                )
            }
            RestoreError::SchemaMismatch { snapshot, service } => {
                write!(
                    f,
                    "it is of schema version {snapshot}, this service is of version {service}: start the matching build"
                )
            }
            RestoreError::Section(name) => {
                write!(f, "its {name} section does not decode: this build can't have written it")
            }
            RestoreError::Digest => write!(f, "its sections do not have the digest in its header"),
        }
    }
}

impl std::error::Error for RestoreError {}

impl<S: Service> Machine<S> {
    /// The state after the last frame, with the sessions' latest events. Takes the time and memory of two copies of the state.
    ///
    /// # Panics
    /// Before the first frame: there is nothing to go on from.
    pub fn to_snapshot(&self, tails: &Tails) -> Snapshot {
        self.to_snapshot_in(tails, Vec::with_capacity(DIGESTED_BYTES))
    }

    /// As [`Machine::to_snapshot`], in an allocation that was used before: pages that are there already cost nothing.
    ///
    /// # Panics
    /// As [`Machine::to_snapshot`].
    pub fn to_snapshot_in(&self, tails: &Tails, mut body: Vec<u8>) -> Snapshot {
        let engine_bytes = self.digested(&mut body);
        let digested_bytes = body.len();
        let meta = SnapshotMeta {
            seq: self.applied,
            timestamp: self.now,
            epoch: self.epoch(),
            state_digest: Sha256::digest(&body).into(),
            output_hash: self.output_hash,
            schema_version: S::SCHEMA_VERSION,
            service_name: S::NAME.to_string(),
            log_id: self.log_id,
        };
        tails.encode(&mut body);
        self.feed_reigns.encode(&mut body);
        self.reigns.encode(&mut body);
        let sections = SectionBytes {
            engine: engine_bytes as u64,
            service: (digested_bytes - engine_bytes) as u64,
            tails: (body.len() - digested_bytes) as u64,
        };
        Snapshot::new(meta, body, sections)
    }

    /// Snapshots from now on are of the log of this identity; 0 where it has none yet. It is no part of the state.
    pub fn set_log_id(&mut self, log_id: u64) {
        self.log_id = log_id;
    }

    /// The state digest that a snapshot of this moment carries; also before the first frame.
    pub fn state_digest(&self) -> [u8; 32] {
        let mut digested = Vec::with_capacity(DIGESTED_BYTES);
        self.digested(&mut digested);
        Sha256::digest(digested).into()
    }

    /// The engine's section and the service's, back to back; returns where the first ends.
    fn digested(&self, body: &mut Vec<u8>) -> usize {
        let (timers, armings) = self.timers.to_parts();
        body.clear();
        // As `EngineState` is encoded, without a copy of the sessions.
        self.feed_event_seq.encode(body);
        self.malformed.encode(body);
        self.epochs.encode(body);
        timers.encode(body);
        armings.encode(body);
        self.sessions.encode(body);
        let engine_bytes = body.len();
        self.service.snapshot().encode(body);
        engine_bytes
    }

    /// The machine that a snapshot was taken of, and its sessions' latest events.
    ///
    /// # Errors
    /// [`RestoreError`]: it is of another service or build, or does not hold what it says.
    pub fn restore(
        snapshot: &Snapshot,
        config: &S::Config,
        limits: StepLimits,
        tail_bytes_max: usize,
    ) -> Result<(Self, Tails), RestoreError> {
        let meta = snapshot.meta();
        if !meta.service_name.is_empty() && !S::NAME.is_empty() && meta.service_name != S::NAME {
            return Err(RestoreError::OtherService { snapshot: meta.service_name.clone(), service: S::NAME });
        }
        if meta.schema_version != S::SCHEMA_VERSION {
            return Err(RestoreError::SchemaMismatch { snapshot: meta.schema_version, service: S::SCHEMA_VERSION });
        }
        if Sha256::digest(snapshot.digested()).as_slice() != meta.state_digest {
            return Err(RestoreError::Digest);
        }
        let engine = EngineState::from_bytes(snapshot.engine()).map_err(|_| RestoreError::Section("engine"))?;
        let timers = Timers::from_parts(&engine.timers, engine.armings).ok_or(RestoreError::Section("engine"))?;
        let service = S::Snapshot::from_bytes(snapshot.service()).map_err(|_| RestoreError::Section("service"))?;
        let (tails, [feed_reigns, reigns]) =
            decode_tails(snapshot.tails(), tail_bytes_max).ok_or(RestoreError::Section("tails"))?;
        let mut machine = Machine::begin(S::restore(service, config), limits);
        machine.timers = timers;
        machine.sessions = engine.sessions;
        machine.epochs = engine.epochs;
        machine.feed_event_seq = engine.feed_event_seq;
        machine.feed_events_applied = engine.feed_event_seq;
        machine.feed_reigns = feed_reigns;
        machine.reigns = reigns;
        machine.writer = machine.reign().stream_id();
        machine.malformed = engine.malformed;
        machine.applied = meta.seq;
        machine.now = meta.timestamp;
        machine.output_hash = meta.output_hash;
        machine.log_id = meta.log_id;
        machine.remember_point(meta.state_digest);
        Ok((machine, tails))
    }
}

/// A number of each epoch, in order: that of its first public event, or its reign.
type OfEpochs = Vec<(u64, u64)>;

/// The tails section: earlier builds ended it with the sessions' events, or with where each epoch's public events begin.
fn decode_tails(bytes: &[u8], tail_bytes_max: usize) -> Option<(Tails, [OfEpochs; 2])> {
    let mut reader = Reader::new(bytes);
    let tails = Tails::decode(&mut reader, tail_bytes_max)?;
    let mut of_epochs = [Vec::new(), Vec::new()];
    for part in &mut of_epochs {
        if reader.finish().is_err() {
            *part = Vec::decode(&mut reader).ok()?;
        }
    }
    reader.finish().ok()?;
    Some((tails, of_epochs))
}

/// A state to go on from.
pub struct Restored<S: Service> {
    /// After the snapshot's frame, or before the first frame.
    pub machine: Machine<S>,
    /// Its sessions' latest events.
    pub tails: Tails,
    /// What it was restored from.
    pub snapshot: Option<SnapshotMeta>,
    /// Snapshots that were passed over, each with the reason in a line.
    pub rejected: Vec<String>,
}

/// Why no state could be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreFailure {
    /// The directory.
    Journal(JournalError),
    /// A sound snapshot that this service can't take, and that a full replay would contradict, too.
    Snapshot {
        /// Its file.
        path: PathBuf,
        /// Why not.
        error: RestoreError,
    },
}

impl<S: Service> Restored<S> {
    /// Refuses a state that the log in `dir`, which begins at `first`, does not go on from.
    ///
    /// # Errors
    /// [`JournalError::NoBeginning`] with the snapshots that were passed over.
    pub fn check_goes_on(&self, dir: &Path, first: Seq) -> Result<(), JournalError> {
        if self.machine.applied().next() >= first {
            return Ok(());
        }
        Err(JournalError::NoBeginning { dir: dir.to_owned(), first, rejected: self.rejected.clone() })
    }
}

impl fmt::Display for RestoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreFailure::Journal(error) => error.fmt(f),
            RestoreFailure::Snapshot { path, error } => write!(f, "snapshot {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for RestoreFailure {}

impl From<JournalError> for RestoreFailure {
    fn from(error: JournalError) -> Self {
        RestoreFailure::Journal(error)
    }
}

/// The newest sound snapshot of a directory, still in bytes.
#[derive(Debug, Default)]
pub struct Found {
    snapshot: Option<Snapshot>,
    rejected: Vec<String>,
    /// Which log the segments are of; `None` where none says.
    log_id: Option<u64>,
}

impl Found {
    /// The newest sound snapshot in `dir` at or below `at_most`; none where there is no such directory. What is torn, rotten or of
    /// another log than the segments there is passed over and named.
    ///
    /// # Errors
    /// [`JournalError`]: the directory can't be read.
    pub fn newest(dir: &Path, at_most: Seq) -> Result<Found, JournalError> {
        Found::newest_on(&mut FileDisk::new(), dir, at_most)
    }

    /// As [`Found::newest`], on a disk.
    ///
    /// # Errors
    /// As [`Found::newest`].
    pub fn newest_on<D: Disk>(disk: &mut D, dir: &Path, at_most: Seq) -> Result<Found, JournalError> {
        let newest = match snapshot::newest_on(disk, dir, at_most) {
            Err(JournalError::Disk { error, .. }) if error.is_missing() => return Ok(Found::default()),
            newest => newest?,
        };
        let rejected = newest.rejected.iter().map(|(_, error)| error.to_string()).collect();
        Ok(Found { snapshot: newest.snapshot, rejected, log_id: newest.log_id })
    }

    /// The first state from which the log in `dir` can be replayed: the one before seq 1 if the log begins there, else the
    /// oldest sound snapshot that it goes on from.
    ///
    /// # Errors
    /// [`JournalError`]: the directory can't be read.
    pub fn oldest(dir: &Path, first_seq: Seq) -> Result<Found, JournalError> {
        let mut found = Found { log_id: ticktape_journal::log_id(dir)?, ..Found::default() };
        if first_seq <= Seq::FIRST {
            return Ok(found);
        }
        for (seq, path) in snapshot::list(dir)? {
            if seq.next() < first_seq {
                continue;
            }
            let read = snapshot::read(&path)
                .and_then(|snapshot| snapshot::check_log(&path, snapshot.meta(), found.log_id).map(|()| snapshot));
            match read {
                Ok(snapshot) => {
                    found.snapshot = Some(snapshot);
                    break;
                }
                // A live writer beside this reader has just retired it.
                Err(SnapshotError::Disk { error, .. }) if error.is_missing() => {}
                Err(error) => found.rejected.push(error.to_string()),
            }
        }
        Ok(found)
    }

    /// Snapshots that are not sound and were passed over, each with the reason in a line.
    pub fn rejected(&self) -> &[String] {
        &self.rejected
    }

    /// The last seq that it covers; 0 where there is none.
    pub fn covered(&self) -> Seq {
        self.snapshot.as_ref().map_or(Seq::ZERO, |snapshot| snapshot.meta().seq)
    }

    /// The epoch at that seq; 0 where there is none.
    pub fn epoch(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.meta().epoch)
    }

    /// Which log it is of: that of the segments, or where there are none, or none of them says, of the snapshot. 0 where that says
    /// nothing either.
    pub fn log_id(&self) -> u64 {
        self.log_id.or(self.snapshot.as_ref().map(|snapshot| snapshot.meta().log_id)).unwrap_or(0)
    }

    /// The state that it holds, or the state before the first frame where there is none. Where it does not decode, the next older
    /// one in `dir` is taken.
    ///
    /// # Errors
    /// [`RestoreFailure`]: it is of another service or version, or the directory can't be read.
    pub fn restore<S: Service>(
        self,
        dir: &Path,
        config: &S::Config,
        limits: StepLimits,
        tail_bytes_max: usize,
    ) -> Result<Restored<S>, RestoreFailure> {
        self.restore_on(&mut FileDisk::new(), dir, config, limits, tail_bytes_max)
    }

    /// As [`Found::restore`], on a disk.
    ///
    /// # Errors
    /// As [`Found::restore`].
    pub fn restore_on<S: Service, D: Disk>(
        self,
        disk: &mut D,
        dir: &Path,
        config: &S::Config,
        limits: StepLimits,
        tail_bytes_max: usize,
    ) -> Result<Restored<S>, RestoreFailure> {
        let mut found = self;
        loop {
            let Some(snapshot) = found.snapshot.take() else {
                let (mut machine, tails) = (Machine::genesis(config, limits), Tails::new(tail_bytes_max));
                machine.set_log_id(found.log_id());
                return Ok(Restored { machine, tails, snapshot: None, rejected: found.rejected });
            };
            let path = names::snapshot(dir, snapshot.meta().seq);
            match Machine::restore(&snapshot, config, limits, tail_bytes_max) {
                Ok((mut machine, tails)) => {
                    machine.set_log_id(found.log_id.unwrap_or(snapshot.meta().log_id));
                    let meta = Some(snapshot.meta().clone());
                    return Ok(Restored { machine, tails, snapshot: meta, rejected: found.rejected });
                }
                Err(error @ (RestoreError::OtherService { .. } | RestoreError::SchemaMismatch { .. })) => {
                    return Err(RestoreFailure::Snapshot { path, error });
                }
                Err(error) => {
                    let older = Found::newest_on(disk, dir, Seq(snapshot.meta().seq.0 - 1))?;
                    found.rejected.push(format!("snapshot {}: {error}", path.display()));
                    found.rejected.extend(older.rejected);
                    found.snapshot = older.snapshot;
                }
            }
        }
    }
}

/// A state digest as people read it: lowercase hex.
pub fn digest_text(digest: &[u8; 32]) -> String {
    hex(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_earlier_builds_wrote_of_the_tails_is_read_and_nothing_else() {
        let mut earlier = Vec::new();
        Tails::new(1 << 10).encode(&mut earlier);
        let reads = |bytes: &[u8]| decode_tails(bytes, 1 << 10);
        let tails = || Tails::new(1 << 10);
        assert_eq!(reads(&earlier), Some((tails(), [Vec::new(), Vec::new()])));
        let (first_events, reigns) = (vec![(1, 1), (3, 9)], vec![(3, 77)]);
        let without_reigns = [&earlier[..], &first_events.to_bytes()].concat();
        assert_eq!(reads(&without_reigns), Some((tails(), [first_events.clone(), Vec::new()])));
        let all = [&without_reigns[..], &reigns.to_bytes()].concat();
        assert_eq!(reads(&all), Some((tails(), [first_events, reigns])));
        for len in (0..all.len()).filter(|len| ![earlier.len(), without_reigns.len()].contains(len)) {
            assert_eq!(reads(&all[..len]), None, "the first {len} bytes");
        }
        for whole in [&earlier, &without_reigns, &all] {
            assert_eq!(reads(&[&whole[..], &[0]].concat()), None);
        }
    }
}
