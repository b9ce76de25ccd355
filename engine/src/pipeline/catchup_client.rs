//! The catch-up client: a connection, a file for a snapshot that comes, and whoever takes the frames.
//!
//! It never waits unless it is told for how long; only a complete snapshot is synced and checked in the call that completes it.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use ticktape_core::Seq;
use ticktape_journal::format::snapshot::{BLOCK_BYTES, HEADER_CRC, SEQ, SnapshotDamage, SnapshotHeader};
use ticktape_journal::{SnapshotError, names, snapshot};
use ticktape_tuning::clock;

use crate::catchup::{Fault, Fetch, FetchConfig, Fetched, Part, RefuseReason, Step, UpTo};
use crate::payload::Reign;

/// How a client catches up.
#[derive(Clone, Debug)]
pub struct CatchupClientConfig {
    /// What it wants, and takes.
    pub fetch: FetchConfig,
    /// Where a snapshot goes until it is complete: on the file system of the directory that it is for. What is there of one is gone
    /// on with, after a restart, too.
    pub spool: PathBuf,
    /// How long a server may take to accept the connection.
    pub connect_timeout: Duration,
}

/// What is handed on.
#[derive(Clone, Copy, Debug)]
pub enum CatchupItem<'a> {
    /// The next frame, checked, as it stands in a log, without padding.
    Frame {
        /// Its seq.
        seq: Seq,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// A whole snapshot, checked and synced, of this service; frames go on behind it. [`install_snapshot`] puts it where a restart
    /// looks.
    Snapshot {
        /// Its file.
        path: &'a Path,
        /// What it is of.
        header: &'a SnapshotHeader,
    },
}

/// Where a client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatchupStep {
    /// Nothing came, or what came is not whole yet.
    Idle,
    /// So many bytes came, or frames were handed on.
    Working(usize),
    /// What was offered was not taken. It is offered again.
    Full,
    /// Everything that the server had is here. [`CatchupClient::ask_again`] goes on.
    UpTo(UpTo),
}

/// Why a connection is of no more use. What was handed on stands; [`CatchupClient::connect`] goes on from there.
#[derive(Debug)]
pub enum CatchupError {
    /// There was no connection, or it broke.
    Connection {
        /// The server.
        server: SocketAddr,
        /// The system's reason.
        error: io::Error,
    },
    /// The server hung up before its end.
    HungUp {
        /// The server.
        server: SocketAddr,
    },
    /// The server did something wrong, or refused.
    Fault {
        /// The server.
        server: SocketAddr,
        /// What.
        fault: Fault,
        /// The service here, as no refusal names the server's; empty where it has no name.
        service: String,
    },
    /// The snapshot's file can't be written.
    Spool {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// The snapshot that came is not sound. It is not asked for again.
    Snapshot {
        /// The server.
        server: SocketAddr,
        /// What is wrong.
        error: SnapshotError,
    },
    /// The snapshot that came is of another service, version, log or seq. It is not asked for again.
    OtherSnapshot {
        /// The server.
        server: SocketAddr,
        /// What is other.
        what: &'static str,
    },
}

impl CatchupError {
    /// What the server did wrong, where that is why.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            CatchupError::Fault { fault, .. } => Some(fault),
            _ => None,
        }
    }
}

impl fmt::Display for CatchupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CatchupError::Connection { server, error } => write!(f, "catch-up from {server}: {error}"),
            CatchupError::HungUp { server } => write!(f, "catch-up from {server}: it hung up before its end"),
            CatchupError::Fault { server, fault, service } => {
                write!(f, "catch-up from {server}: {fault}")?;
                if matches!(fault, Fault::Refused(refuse) if refuse.reason == RefuseReason::OtherService) {
                    write!(f, ", this one is {service}: start the one that it serves, or name another server")?;
                }
                Ok(())
            }
            CatchupError::Spool { path, error } => {
                write!(f, "catch-up: {}: {error}; a snapshot that comes is written there first", path.display())
            }
            CatchupError::Snapshot { server, error } => {
                write!(f, "catch-up from {server}: what came is unsound: {error}")
            }
            CatchupError::OtherSnapshot { server, what } => {
                write!(f, "catch-up from {server}: the snapshot that came is of another {what}")
            }
        }
    }
}

impl std::error::Error for CatchupError {}

enum Link {
    Down,
    /// A thread of its own waits for the connection.
    Connecting(Receiver<io::Result<TcpStream>>),
    Up(TcpStream),
}

/// A client of catch-up servers, one after another.
pub struct CatchupClient {
    fetch: Fetch,
    spool: PathBuf,
    file: Option<File>,
    /// The snapshot that is complete and was not taken yet.
    complete: Option<SnapshotHeader>,
    connect_timeout: Duration,
    server: SocketAddr,
    link: Link,
    /// For how long the socket waits: `None` before that was set.
    waits: Option<Duration>,
    /// What is still to be sent.
    out: Vec<u8>,
}

impl CatchupClient {
    /// A client that is not connected: [`CatchupClient::connect`] begins. Looks whether a part of a snapshot is there from before.
    ///
    /// # Panics
    /// For a largest message that no server would heed: below 4 KiB, or above the format's.
    pub fn new(config: CatchupClientConfig) -> Self {
        let CatchupClientConfig { fetch, spool, connect_timeout } = config;
        let mut fetch = Fetch::new(fetch);
        if let Some((part, file_bytes)) = part_of(&spool) {
            fetch.resume_snapshot(part, file_bytes);
        }
        CatchupClient {
            fetch,
            spool,
            file: None,
            complete: None,
            connect_timeout,
            server: SocketAddr::from(([0, 0, 0, 0], 0)),
            link: Link::Down,
            waits: None,
            out: Vec::new(),
        }
    }

    /// Begins to connect, here or elsewhere, and goes on where the last connection stopped.
    pub fn connect(&mut self, server: impl Into<SocketAddr>) {
        let (server, timeout) = (server.into(), self.connect_timeout);
        let (tx, rx) = mpsc::sync_channel(1);
        (self.server, self.waits, self.file, self.complete) = (server, None, None, None);
        self.link = Link::Connecting(rx);
        let connect = move || {
            // Nobody listens any more where another connection was begun meanwhile.
            let _ = tx.send(TcpStream::connect_timeout(&server, timeout));
        };
        if let Err(error) = thread::Builder::new().name("tt-catchup-dial".to_string()).spawn(connect) {
            let (tx, rx) = mpsc::sync_channel(1);
            let _ = tx.send(Err(error));
            self.link = Link::Connecting(rx);
        }
    }

    /// Asks the same server for what came after the end that it named.
    ///
    /// # Panics
    /// Where the last step was not [`CatchupStep::UpTo`].
    pub fn ask_again(&mut self) {
        self.fetch.ask_again(clock::monotonic_ns(), &mut self.out);
    }

    /// Hangs up. What was handed on stands.
    pub fn hang_up(&mut self) {
        (self.link, self.file, self.complete) = (Link::Down, None, None);
    }

    /// One step: takes what has come, waiting for it for `wait` at most (zero: not at all), and hands it to `take`, which says
    /// whether it took it.
    ///
    /// # Errors
    /// [`CatchupError`]: it has hung up, and is to be connected again.
    pub fn next(
        &mut self,
        wait: Duration,
        mut take: impl FnMut(CatchupItem<'_>) -> bool,
    ) -> Result<CatchupStep, CatchupError> {
        let step = self.step(wait, &mut take);
        if step.is_err() {
            self.hang_up();
        }
        step
    }

    fn step(
        &mut self,
        wait: Duration,
        take: &mut impl FnMut(CatchupItem<'_>) -> bool,
    ) -> Result<CatchupStep, CatchupError> {
        if !self.is_up(wait)? {
            return Ok(CatchupStep::Idle);
        }
        self.send()?;
        let before = self.fetch.frames();
        match self.hand_on(take)? {
            Step::NeedsBytes => {}
            step => return Ok(self.told(step, before, 0)),
        }
        let bytes = self.receive(wait)?;
        let step = self.hand_on(take)?;
        Ok(self.told(step, before, bytes))
    }

    fn told(&self, step: Step, frames_before: u64, bytes: usize) -> CatchupStep {
        let work = bytes.max((self.fetch.frames() - frames_before) as usize);
        match step {
            Step::UpTo(up_to) => CatchupStep::UpTo(up_to),
            Step::Full | Step::SnapshotComplete(_) if work == 0 => CatchupStep::Full,
            _ if work == 0 => CatchupStep::Idle,
            _ => CatchupStep::Working(work),
        }
    }

    /// Whether there is a connection; says Hello as soon as there is.
    fn is_up(&mut self, wait: Duration) -> Result<bool, CatchupError> {
        let connection = |error| CatchupError::Connection { server: self.server, error };
        let dialled = match &self.link {
            Link::Up(_) => return Ok(true),
            Link::Down => return Err(connection(ErrorKind::NotConnected.into())),
            Link::Connecting(dialling) if wait.is_zero() => match dialling.try_recv() {
                Ok(dialled) => dialled,
                Err(TryRecvError::Empty) => return Ok(false),
                Err(TryRecvError::Disconnected) => Err(ErrorKind::ConnectionAborted.into()),
            },
            Link::Connecting(dialling) => match dialling.recv_timeout(wait) {
                Ok(dialled) => dialled,
                Err(mpsc::RecvTimeoutError::Timeout) => return Ok(false),
                Err(mpsc::RecvTimeoutError::Disconnected) => Err(ErrorKind::ConnectionAborted.into()),
            },
        };
        let stream = dialled.map_err(connection)?;
        // Without it a question may come a moment later.
        let _ = stream.set_nodelay(true);
        self.link = Link::Up(stream);
        self.out.clear();
        self.fetch.reconnect(clock::monotonic_ns(), &mut self.out);
        Ok(true)
    }

    fn send(&mut self) -> Result<(), CatchupError> {
        let Link::Up(stream) = &mut self.link else { return Ok(()) };
        while !self.out.is_empty() {
            match stream.write(&self.out) {
                Ok(bytes) => drop(self.out.drain(..bytes)),
                Err(error) if is_patient(&error) => break,
                Err(error) => return Err(CatchupError::Connection { server: self.server, error }),
            }
        }
        Ok(())
    }

    fn receive(&mut self, wait: Duration) -> Result<usize, CatchupError> {
        let server = self.server;
        let Link::Up(stream) = &mut self.link else { return Ok(0) };
        let connection = |error| CatchupError::Connection { server, error };
        if self.waits != Some(wait) {
            stream.set_nonblocking(wait.is_zero()).map_err(connection)?;
            if !wait.is_zero() {
                stream.set_read_timeout(Some(wait)).map_err(connection)?;
            }
            self.waits = Some(wait);
        }
        match stream.read(self.fetch.space()) {
            Ok(0) => Err(CatchupError::HungUp { server }),
            Ok(bytes) => {
                self.fetch.filled(bytes);
                Ok(bytes)
            }
            Err(error) if is_patient(&error) => Ok(0),
            Err(error) => Err(connection(error)),
        }
    }

    fn hand_on(&mut self, take: &mut impl FnMut(CatchupItem<'_>) -> bool) -> Result<Step, CatchupError> {
        loop {
            let mut failed = None;
            let (file, spool) = (&mut self.file, &self.spool);
            let step = self.fetch.poll(clock::monotonic_ns(), |fetched| match fetched {
                Fetched::Frame { frame, bytes } => take(CatchupItem::Frame { seq: frame.seq, bytes }),
                Fetched::SnapshotBegin(begin) => {
                    failed = open_spool(spool, begin.offset).map(|opened| *file = Some(opened)).err();
                    true
                }
                Fetched::SnapshotChunk { offset, chunk } => {
                    if let (Some(file), None) = (file.as_ref(), &failed) {
                        failed = file.write_all_at(chunk, offset).err();
                    }
                    true
                }
            });
            if let Some(error) = failed {
                // What is there of it is not believed.
                let _ = fs::remove_file(&self.spool);
                self.fetch.want(self.fetch.next_seq(), self.fetch.reign());
                return Err(CatchupError::Spool { path: self.spool.clone(), error });
            }
            let step = step.map_err(|fault| {
                let service = self.fetch.config().service_name.clone();
                CatchupError::Fault { server: self.server, fault, service }
            })?;
            let Step::SnapshotComplete(seq) = step else { return Ok(step) };
            if self.complete.is_none() {
                match self.judge(seq) {
                    Ok(header) => self.complete = Some(header),
                    Err(error) => {
                        self.fetch.reject_snapshot();
                        let _ = fs::remove_file(&self.spool);
                        return Err(error);
                    }
                }
            }
            let header = self.complete.as_ref().expect("it was judged");
            if !take(CatchupItem::Snapshot { path: &self.spool, header }) {
                return Ok(step);
            }
            // Its header says nothing of the reign: the next one to begin does.
            self.fetch.accept_snapshot(Reign::unnamed(header.meta.epoch));
            self.complete = None;
        }
    }

    /// Syncs and checks all of the snapshot's file.
    fn judge(&mut self, seq: Seq) -> Result<SnapshotHeader, CatchupError> {
        let server = self.server;
        let spooled = |error| CatchupError::Spool { path: self.spool.clone(), error };
        let file = self.file.take().map_or_else(|| File::open(&self.spool), Ok).map_err(spooled)?;
        file.sync_all().map_err(spooled)?;
        let header = snapshot::verify(&self.spool).map_err(|error| CatchupError::Snapshot { server, error })?;
        let (meta, wanted) = (&header.meta, self.fetch.config());
        let names = [meta.service_name.as_str(), wanted.service_name.as_str()];
        let other = if meta.seq != seq {
            "seq"
        } else if !names.contains(&"") && names[0] != names[1] {
            "service"
        } else if meta.schema_version != wanted.schema_version {
            "schema version"
        } else if meta.log_id != 0 && self.fetch.log_id() != 0 && meta.log_id != self.fetch.log_id() {
            "log"
        } else {
            return Ok(header);
        };
        Err(CatchupError::OtherSnapshot { server, what: other })
    }

    /// The machine: what comes next, what was welcomed, how much came.
    pub fn fetch(&self) -> &Fetch {
        &self.fetch
    }

    /// Begins anew elsewhere in the log, after what was there before was given up. Hangs up.
    pub fn want(&mut self, wanted: Seq, reign: Reign) {
        self.hang_up();
        self.fetch.want(wanted, reign);
    }
}

/// Puts a snapshot that a client has handed on where a restart looks: renamed into `dir`, the directory synced. Returns its path.
///
/// # Errors
/// The system's: the spool is not on the same file system, say.
pub fn install_snapshot(spool: &Path, dir: &Path, seq: Seq) -> io::Result<PathBuf> {
    let path = names::snapshot(dir, seq);
    fs::rename(spool, &path)?;
    File::open(dir)?.sync_all()?;
    Ok(path)
}

fn open_spool(spool: &Path, offset: u64) -> io::Result<File> {
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(spool)?;
    file.set_len(offset)?;
    Ok(file)
}

/// What is there of a snapshot, and the size that the whole has.
fn part_of(spool: &Path) -> Option<(Part, u64)> {
    let file = File::open(spool).ok()?;
    let bytes = file.metadata().ok()?.len();
    let mut block = [0; BLOCK_BYTES];
    file.read_exact_at(&mut block, 0).ok()?;
    let file_bytes = match SnapshotHeader::decode(&block, bytes) {
        Ok(header) => header.file_bytes(),
        Err(SnapshotDamage::Size { expected, actual }) if actual < expected => expected,
        Err(_) => return None,
    };
    let seq = u64::from_le_bytes(block[SEQ..SEQ + 8].try_into().expect("eight bytes"));
    let header_crc = u32::from_le_bytes(block[HEADER_CRC..HEADER_CRC + 4].try_into().expect("four bytes"));
    Some((Part { seq: Seq(seq), header_crc, bytes }, file_bytes))
}

fn is_patient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
