//! A journal's directory, as the offline commands see it.

use std::path::{Path, PathBuf};

use ticktape::payload::EpochChange;
use ticktape::snapshot::Found;
use ticktape::{Frame, Kind, Seq};
use ticktape_journal::{JournalError, JournalReader, is_live, snapshot};

use crate::Failure;
use crate::service::{AnyService, find};
use crate::snapshots::{self, Depth};

/// Frames at the beginning among which the first `EpochChange` is looked for: an appliance's log has it first.
const LOOK_FRAMES: usize = 64;

/// How often a log is begun again that its appliance compacts meanwhile. Each time a snapshot was taken since the last.
const BEGIN_TRIES: usize = 8;

/// Whether an appliance writes the journal in `dir`; `None` where its lock may not be looked at, so that nobody can tell.
///
/// # Errors
/// There is no such directory, or the disk failed.
pub fn liveness(dir: &Path) -> Result<Option<bool>, JournalError> {
    match is_live(dir) {
        Err(JournalError::Disk { error, .. }) if error.is_refused() => Ok(None),
        live => live.map(Some),
    }
}

/// What `work` makes of the log in `dir`, begun again where a live appliance compacts it meanwhile.
pub fn on_log<T>(dir: &Path, mut work: impl FnMut(&Log) -> Result<T, Failure>) -> Result<T, Failure> {
    let mut tries = 0;
    loop {
        match Log::open(dir).and_then(|log| work(&log)) {
            Err(Failure::Compacted(_)) if tries < BEGIN_TRIES => tries += 1,
            done => return done,
        }
    }
}

/// `--until` names a frame that the log in `dir` does not have: it takes those from `first` to `last`.
pub fn no_end(dir: &Path, until: u64, first: Seq, last: Seq) -> Failure {
    Failure::usage(format!(
        "{}: there is no frame {until} to end with: --until takes {first} to {last} here",
        dir.display()
    ))
}

/// A log that is there.
#[derive(Debug)]
pub struct Log {
    dir: PathBuf,
    /// None where there is no segment.
    first_seq: Option<Seq>,
}

impl Log {
    /// Looks where the log in `dir` begins.
    ///
    /// # Errors
    /// Usage: no such directory, or no journal in it. Otherwise it is damaged.
    pub fn open(dir: &Path) -> Result<Log, Failure> {
        let first_seq = match JournalReader::open(dir, Seq::FIRST) {
            Ok(reader) => reader.first_seq(),
            Err(JournalError::TooOld { first, .. }) => Some(first),
            Err(error @ (JournalError::Empty { .. } | JournalError::Disk { .. })) => return Err(Failure::usage(error)),
            Err(error) => return Err(Failure::failed(error)),
        };
        Ok(Log { dir: dir.to_owned(), first_seq })
    }

    /// Its first seq; 1 where there is none yet.
    pub fn first_seq(&self) -> Seq {
        self.first_seq.unwrap_or(Seq::FIRST)
    }

    /// Whether there is no segment: then it goes on from the newest sound snapshot.
    pub fn is_without_segments(&self) -> bool {
        self.first_seq.is_none()
    }

    /// The first state that it can be replayed from: before the first frame, or in the oldest sound snapshot that it goes on from.
    ///
    /// # Errors
    /// There is none.
    pub fn oldest(&self) -> Result<Found, Failure> {
        let Some(first_seq) = self.first_seq else { return self.newest(Seq::MAX) };
        let found = Found::oldest(&self.dir, first_seq).map_err(Failure::failed)?;
        if first_seq > Seq::FIRST && found.covered() == Seq::ZERO {
            return Err(self.no_beginning(&found));
        }
        Ok(found)
    }

    /// Refuses what opening it would refuse: a log that ends before its own newest sound snapshot. Beside a live writer the snapshot
    /// is looked for first, so that the log has to have it.
    ///
    /// # Errors
    /// It is so, or the log is damaged.
    pub fn check_end(&self) -> Result<(), Failure> {
        let listed = snapshot::list(&self.dir).map_err(Failure::failed)?;
        let log_id = ticktape_journal::log_id(&self.dir).map_err(Failure::failed)?;
        let is_sound =
            |path| snapshot::verify(path).and_then(|header| snapshot::check_log(path, &header.meta, log_id)).is_ok();
        let newest = listed.iter().rev().find(|(_, path)| is_sound(path));
        newest.map_or(Ok(()), |&(seq, _)| self.check_reaches(seq))
    }

    /// Refuses a log that ends before the snapshot after `seq`, which is a sound one of its directory.
    ///
    /// # Errors
    /// It is so, or the log is damaged.
    pub fn check_reaches(&self, seq: Seq) -> Result<(), Failure> {
        let is_covered = self.first_seq.is_none_or(|first| seq < first);
        if is_covered || self.holds(seq)? {
            return Ok(());
        }
        let (dir, durable) = (self.dir.clone(), self.last_seq()?);
        Err(Failure::failed(JournalError::JournalBehindSnapshot { dir, durable, snapshot: seq }))
    }

    /// The newest state at or below `at_most` that the log goes on from.
    ///
    /// # Errors
    /// There is none.
    pub fn newest(&self, at_most: Seq) -> Result<Found, Failure> {
        let found = Found::newest(&self.dir, at_most).map_err(Failure::failed)?;
        if found.covered().next() < self.first_seq() {
            return Err(self.no_beginning(&found));
        }
        Ok(found)
    }

    fn no_beginning(&self, found: &Found) -> Failure {
        let (dir, first, rejected) = (self.dir.clone(), self.first_seq(), found.rejected().to_vec());
        let error = JournalError::NoBeginning { dir, first, rejected };
        // Between a look at the log and one at the snapshots, a live appliance may have taken a newer one and retired this.
        if liveness(&self.dir).is_ok_and(|live| live != Some(false)) {
            return Failure::Compacted(error.to_string());
        }
        Failure::failed(error)
    }

    /// Reads it from `seq` on.
    ///
    /// # Errors
    /// It is damaged, or no longer begins there.
    pub fn from(&self, seq: Seq) -> Result<JournalReader, Failure> {
        JournalReader::open(&self.dir, seq).map_err(Failure::reading)
    }

    /// Whether frame `seq` is there, at the cost of one look.
    ///
    /// # Errors
    /// It is damaged.
    pub fn holds(&self, seq: Seq) -> Result<bool, Failure> {
        Ok(self.from(seq)?.next().map_err(Failure::reading)?.is_some())
    }

    /// The seq of the last frame that is there, found without applying anything; without segments what the snapshot covers.
    ///
    /// # Errors
    /// It is damaged.
    pub fn last_seq(&self) -> Result<Seq, Failure> {
        let Some(first_seq) = self.first_seq else { return Ok(self.newest(Seq::MAX)?.covered()) };
        let mut reader = self.from(first_seq)?;
        while reader.next_run().map_err(Failure::reading)?.is_some() {}
        Ok(Seq(reader.next_seq().0 - 1))
    }

    /// The service that the log is of, if a snapshot or its first `EpochChange` names one.
    ///
    /// # Errors
    /// It is damaged.
    pub fn service_name(&self) -> Result<Option<String>, Failure> {
        let headers = snapshots::look(&self.dir, Depth::Header)?.into_iter().rev().filter_map(|file| file.header.ok());
        let mut names = headers.map(|header| header.meta.service_name);
        if let Some(name) = names.find(|name| !name.is_empty()) {
            return Ok(Some(name));
        }
        let mut reader = self.from(self.first_seq())?;
        for _ in 0..LOOK_FRAMES {
            let Some(bytes) = reader.next().map_err(Failure::reading)? else { break };
            let frame = Frame::view(bytes).expect("the reader has checked it");
            if frame.kind == Kind::EpochChange {
                let named = EpochChange::decode(frame.payload).map(|change| change.service_name.to_string());
                return Ok(named.filter(|name| !name.is_empty()));
            }
        }
        Ok(None)
    }

    /// The service that was asked for; else the one that the log names; else the only one there is.
    ///
    /// # Errors
    /// Usage: the one asked for is unknown. The inner error says why there is none to choose.
    pub fn service<'a>(
        &self,
        services: &'a [Box<dyn AnyService>],
        asked_for: Option<&str>,
    ) -> Result<Result<&'a dyn AnyService, String>, Failure> {
        if asked_for.is_some() {
            return find(services, asked_for).map(Ok);
        }
        if let Some(named) = self.service_name()? {
            let known = services.iter().find(|service| service.log_name() == named);
            return Ok(known
                .map(|service| &**service)
                .ok_or_else(|| format!("the log is of service {named:?}, which this command does not know")));
        }
        match services {
            [only] => Ok(Ok(&**only)),
            _ => {
                let names: Vec<_> = services.iter().map(|service| service.name()).collect();
                Ok(Err(format!("the log names no service: give --service, one of {}", names.join(", "))))
            }
        }
    }
}
