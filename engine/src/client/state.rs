//! The state that lost events led to: for a client that was away for so long that its events are no longer kept.
//!
//! ```text
//!   events      1 ……………… 900 │ 901 … 950 │ 951 …
//!               no longer kept │  kept     │ to come
//!   state                 reflects all up to 950
//!                            └─ left out ─┘ └─► the stream goes on here
//! ```
//!
//! It comes over the catch-up port of the appliance or of a replica: the newest snapshot there, where there is one, then the frames
//! after it, up to what is committed. The service itself computes the rest, so the state is the appliance's, and it is known at
//! which seq, and with how many events of each session.
//!
//! Most want [`BlockingClient::resync`](super::blocking::BlockingClient::resync), or [`snapshot`] before they connect;
//! [`StateFetch`] is for duty cycles.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddrV4;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ticktape_core::{Frame, Nanos, Seq, Service, SessionId};
use ticktape_journal::{SnapshotError, snapshot as file};
use ticktape_tuning::clock;

use crate::catchup::{Fault, FetchConfig, is_passing};
use crate::machine::{Machine, Progress, StepError, StepLimits};
use crate::pipeline::{CatchupClient, CatchupClientConfig, CatchupError, CatchupItem, CatchupStep};
use crate::snapshot::RestoreError;

/// Before a server that did not serve is asked again. A server that is full frees a place after 200 ms.
const RETRY_NS: u64 = 100_000_000;

/// Directories for a snapshot on its way that may be left over from processes of the same number.
const DIR_TRIES: u64 = 1000;

/// Tells fetches of one process apart.
static FETCHES: AtomicU64 = AtomicU64::new(0);

/// Where a state comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSource {
    /// The `repair` address of the appliance's `[feed]`, or what a replica serves at (`--serve`): its TCP port is meant.
    pub server: SocketAddrV4,
    /// The feed's stream, as the appliance's file names it.
    pub stream: String,
    /// So many frames are replayed rather than a snapshot taken. Less makes a big state come for few frames; more makes a long log be
    /// computed anew.
    pub replay_max: u64,
    /// Where a snapshot goes while it comes: in a directory of its own, which is gone in the end.
    pub dir: PathBuf,
    /// How long the server may take to accept a connection.
    pub connect_timeout: Duration,
}

impl StateSource {
    /// From `server`, of stream `TAPE`, by way of the system's directory for temporary files.
    pub fn new(server: SocketAddrV4) -> Self {
        StateSource {
            server,
            stream: "TAPE".to_string(),
            replay_max: 100_000,
            dir: std::env::temp_dir(),
            connect_timeout: Duration::from_secs(5),
        }
    }
}

/// Why no state could be had.
#[derive(Debug)]
pub enum StateError {
    /// The stream's name is none.
    Stream(String),
    /// The snapshot's directory can't be made.
    Dir {
        /// Where.
        dir: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// It did not come in time, and nobody said why.
    Timeout {
        /// The server.
        server: SocketAddrV4,
    },
    /// The server does not serve it.
    Catchup(CatchupError),
    /// The snapshot that came can't be read.
    Snapshot(SnapshotError),
    /// The snapshot that came is of another service or build.
    Restore(RestoreError),
    /// This build's service can't apply what is on the log.
    Step(StepError),
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateError::Stream(stream) => write!(f, "stream {stream:?} is not four characters of 0-9 and A-Z"),
            StateError::Dir { dir, error } => {
                write!(f, "{}: {error}; a snapshot that comes is written there first", dir.display())
            }
            StateError::Timeout { server } => {
                write!(f, "state from {server} did not come in time: its log is long, or it is slow; wait longer")
            }
            StateError::Catchup(error) => error.fmt(f),
            StateError::Snapshot(error) => write!(f, "snapshot that came: {error}"),
            StateError::Restore(error) => write!(f, "snapshot that came: {error}"),
            StateError::Step(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StateError {}

/// A service's state at one seq.
pub struct State<S: Service> {
    machine: Machine<S>,
}

impl<S: Service> State<S> {
    /// The service, as it was after the frame [`State::seq`].
    pub fn service(&self) -> &S {
        self.machine.service()
    }

    /// The last frame that it reflects; 0 where the log was empty.
    pub fn seq(&self) -> Seq {
        self.machine.applied()
    }

    /// A session's first event that it does not reflect: its event stream goes on from there, which is what
    /// [`Options::resume_next`](super::blocking::Options::resume_next) wants.
    pub fn resume_next(&self, session: u64) -> u64 {
        self.machine.sessions().get(SessionId(session)).map_or(1, |state| state.event_seq + 1)
    }

    /// The reign that the state is of, and its cursors with it.
    pub fn resume_reign(&self) -> u32 {
        u32::try_from(self.machine.epoch()).unwrap_or(u32::MAX)
    }

    /// SHA-256 of the service's state, as the other commands print it: lowercase hex.
    pub fn digest(&self) -> String {
        self.machine.digest()
    }
}

/// Fetches a state: everything that is committed when the server is asked last.
pub struct StateFetch<S: Service> {
    client: CatchupClient,
    source: StateSource,
    config: S::Config,
    machine: Machine<S>,
    spool: OwnDir,
    /// When to connect again, while there is no connection.
    retry_at: Option<Nanos>,
    last_error: Option<CatchupError>,
}

impl<S: Service> StateFetch<S> {
    /// Begins to connect.
    ///
    /// # Errors
    /// [`StateError::Stream`], [`StateError::Dir`].
    pub fn new(source: &StateSource, config: S::Config) -> Result<Self, StateError> {
        crate::config::FeedConfig::check_stream(&source.stream)
            .map_err(|_| StateError::Stream(source.stream.clone()))?;
        let stream = u32::from_str_radix(&source.stream, 36).map_err(|_| StateError::Stream(source.stream.clone()))?;
        let spool = OwnDir::new(&source.dir).map_err(|error| StateError::Dir { dir: source.dir.clone(), error })?;
        let fetch = FetchConfig {
            replay_max: source.replay_max,
            ..FetchConfig::new(stream, S::NAME, S::SCHEMA_VERSION, Seq::FIRST)
        };
        let (path, connect_timeout) = (spool.path.join("state.snap"), source.connect_timeout);
        let mut client = CatchupClient::new(CatchupClientConfig { fetch, spool: path, connect_timeout });
        client.connect(source.server);
        let machine = Machine::genesis(&config, StepLimits::default());
        Ok(StateFetch { client, source: source.clone(), config, machine, spool, retry_at: None, last_error: None })
    }

    /// One step, of `wait` at most: true once everything is there that was committed when the server was asked. Asks anew where a
    /// connection broke.
    ///
    /// # Errors
    /// [`StateError`]: asking again would not help.
    pub fn poll(&mut self, wait: Duration) -> Result<bool, StateError> {
        let now = clock::monotonic_ns();
        match self.retry_at {
            Some(at) if now < at => {
                std::thread::sleep(wait.min(Duration::from_nanos(at - now)));
                return Ok(false);
            }
            Some(_) => {
                self.retry_at = None;
                self.client.connect(self.source.server);
            }
            None => {}
        }
        let (machine, config, mut failed) = (&mut self.machine, &self.config, None);
        let step = self.client.next(wait, |item| {
            if failed.is_none() {
                failed = take(machine, config, item).err();
            }
            true
        });
        match (failed, step) {
            (Some(error), _) => Err(error),
            (None, Ok(step)) => Ok(matches!(step, CatchupStep::UpTo(_))),
            (None, Err(error)) if may_pass(&error) => {
                self.retry_at = Some(now + RETRY_NS);
                self.last_error = Some(error);
                Ok(false)
            }
            (None, Err(error)) => Err(StateError::Catchup(error)),
        }
    }

    /// Asks for what was committed since. After [`StateFetch::poll`] has said true.
    ///
    /// # Panics
    /// Before.
    pub fn ask_again(&mut self) {
        self.client.ask_again();
    }

    /// A session's first event that what is there so far does not reflect.
    pub fn resume_next(&self, session: u64) -> u64 {
        self.machine.sessions().get(SessionId(session)).map_or(1, |state| state.event_seq + 1)
    }

    /// Why it has not come yet: what a server that did not serve said last, or that it takes long.
    pub fn timed_out(&mut self) -> StateError {
        let server = self.source.server;
        self.last_error.take().map_or(StateError::Timeout { server }, StateError::Catchup)
    }

    /// The state so far.
    pub fn finish(self) -> State<S> {
        let StateFetch { machine, spool, .. } = self;
        drop(spool);
        State { machine }
    }
}

/// The state of service `S` as `source` has it, within `timeout`; and [`State::resume_next`], from which a client's events go on.
///
/// # Errors
/// [`StateError`].
pub fn snapshot<S: Service>(
    source: &StateSource,
    config: S::Config,
    timeout: Duration,
) -> Result<State<S>, StateError> {
    let mut fetch = StateFetch::new(source, config)?;
    let deadline = clock::monotonic_ns().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
    while !fetch.poll(Duration::from_millis(5))? {
        if clock::monotonic_ns() >= deadline {
            return Err(fetch.timed_out());
        }
    }
    Ok(fetch.finish())
}

fn take<S: Service>(machine: &mut Machine<S>, config: &S::Config, item: CatchupItem<'_>) -> Result<(), StateError> {
    match item {
        CatchupItem::Frame { bytes, .. } => {
            let frame = Frame::view(bytes).expect("the fetch has checked it");
            while machine.step(&frame).map_err(StateError::Step)? != Progress::Applied {}
        }
        CatchupItem::Snapshot { path, .. } => {
            let snapshot = file::read(path).map_err(StateError::Snapshot)?;
            let restored = Machine::restore(&snapshot, config, StepLimits::default(), 0);
            (*machine, _) = restored.map_err(StateError::Restore)?;
        }
    }
    Ok(())
}

/// Whether the same server may serve in a while.
fn may_pass(error: &CatchupError) -> bool {
    match error {
        CatchupError::Connection { .. } | CatchupError::HungUp { .. } | CatchupError::Snapshot { .. } => true,
        CatchupError::Fault { fault: Fault::Refused(refuse), .. } => is_passing(refuse),
        CatchupError::Fault { fault, .. } => matches!(fault, Fault::Silent),
        CatchupError::Spool { .. } | CatchupError::OtherSnapshot { .. } => false,
    }
}

/// A directory of this process alone, gone when it is dropped.
struct OwnDir {
    path: PathBuf,
}

impl OwnDir {
    fn new(parent: &Path) -> io::Result<OwnDir> {
        let mut tries = 0;
        loop {
            let number = FETCHES.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("ticktape-state-{}-{number}", std::process::id()));
            // One that is there already may be anybody's.
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(OwnDir { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < DIR_TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for OwnDir {
    fn drop(&mut self) {
        // What can't be removed is a file in a directory for temporary ones.
        let _ = fs::remove_dir_all(&self.path);
    }
}
