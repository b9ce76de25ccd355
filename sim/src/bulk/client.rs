//! The fetching end: the machine, a connection, and the file that a snapshot goes to.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use ticktape::catchup::{Fetch, FetchConfig, Fetched, Step, UpTo};
use ticktape::payload::Reign;
use ticktape::replica::{Admission, Bulk, BulkEnd, BulkProgress, Identity, ReplicaConfig, SnapshotAt};
use ticktape::{Nanos, Seq};
use ticktape_journal::Disk;
use ticktape_journal::disk::{DiskError, Op, OpenMode, Outcome};
use ticktape_journal::snapshot::{SnapshotHeader, verify_on};

use super::wire::{Dialling, Stream, Wires};
use crate::disk::Medium;

/// Steps of one poll.
const STEPS_PER_POLL_MAX: usize = 4;

/// So much may have been committed while a catch-up ran, and be left to the feed, as live.
const LEFT_TO_FEED_MAX: u64 = 1024;

/// A snapshot while it comes.
const SPOOL: &str = "catchup.spool";

/// What a write of it takes at once: whole blocks of any disk.
const BLOCK_BYTES: usize = 4096;

enum Link {
    Down,
    Dialling(Dialling),
    Up(Stream),
}

/// What one step of a connection came to.
enum Stepped {
    Idle,
    Working(usize),
    UpTo(UpTo),
    Snapshot(SnapshotAt),
}

/// A client of catch-up servers, one after another.
struct Client {
    wires: Wires,
    me: Ipv4Addr,
    medium: Medium,
    dir: PathBuf,
    fetch: Fetch,
    link: Link,
    server: SocketAddrV4,
    out: Vec<u8>,
    /// What has come of a snapshot. A kill loses it: nobody has synced it.
    spool: Vec<u8>,
}

impl Client {
    fn new(
        wires: &Wires,
        me: Ipv4Addr,
        medium: &Medium,
        config: &ReplicaConfig,
        service: Identity,
        log_id: u64,
    ) -> Self {
        let fetch = FetchConfig::new(config.stream(), service.name, service.schema_version, Seq::FIRST);
        let message_bytes_max = (16 << 10).max(config.frame_bytes_max() + 64);
        let fetch = FetchConfig { log_id, replay_max: config.snapshot_gap_frames, message_bytes_max, ..fetch };
        Client {
            wires: wires.clone(),
            me,
            medium: medium.clone(),
            dir: config.dir.clone(),
            fetch: Fetch::new(fetch),
            link: Link::Down,
            server: config.repair[0],
            out: Vec::new(),
            spool: Vec::new(),
        }
    }

    fn connect(&mut self, server: SocketAddrV4, wanted: Seq, reign: Reign) {
        self.fetch.want(wanted, reign);
        self.server = server;
        self.link = Link::Dialling(self.wires.dial(self.me, server));
    }

    fn hang_up(&mut self) {
        self.link = Link::Down;
    }

    fn step(&mut self, now: Nanos, take: &mut dyn FnMut(Seq, &[u8]) -> bool) -> Result<Stepped, BulkEnd> {
        let stepped = self.try_step(now, take);
        if stepped.is_err() {
            self.hang_up();
        }
        stepped
    }

    fn try_step(&mut self, now: Nanos, take: &mut dyn FnMut(Seq, &[u8]) -> bool) -> Result<Stepped, BulkEnd> {
        if let Link::Dialling(dialling) = &self.link {
            let Some(dialled) = dialling.poll() else { return Ok(Stepped::Idle) };
            self.link = Link::Up(dialled.map_err(|error| self.failed(&error))?);
            self.out.clear();
            self.fetch.reconnect(now, &mut self.out);
        }
        self.send()?;
        let before = self.fetch.frames();
        let mut step = self.hand_on(now, take)?;
        let mut bytes = 0;
        if matches!(step, Step::NeedsBytes) {
            bytes = self.receive()?;
            step = self.hand_on(now, take)?;
        }
        let work = bytes.max((self.fetch.frames() - before) as usize);
        match step {
            Step::UpTo(up_to) => Ok(Stepped::UpTo(up_to)),
            Step::SnapshotComplete(seq) => self.judge(seq).map(Stepped::Snapshot),
            _ if work == 0 => Ok(Stepped::Idle),
            _ => Ok(Stepped::Working(work)),
        }
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> BulkEnd {
        BulkEnd::Failed(format!("catch-up from {}: {error}", self.server))
    }

    fn send(&mut self) -> Result<(), BulkEnd> {
        while let Link::Up(stream) = &mut self.link
            && !self.out.is_empty()
        {
            match stream.write(&self.out) {
                Ok(bytes) => drop(self.out.drain(..bytes)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<usize, BulkEnd> {
        let Link::Up(stream) = &mut self.link else { return Err(self.failed(&"not connected")) };
        match stream.read(self.fetch.space()) {
            Ok(0) => Err(self.failed(&"it hung up before its end")),
            Ok(bytes) => {
                self.fetch.filled(bytes);
                Ok(bytes)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn hand_on(&mut self, now: Nanos, take: &mut dyn FnMut(Seq, &[u8]) -> bool) -> Result<Step, BulkEnd> {
        let spool = &mut self.spool;
        let step = self.fetch.poll(now, |fetched| match fetched {
            Fetched::Frame { frame, bytes } => take(frame.seq, bytes),
            Fetched::SnapshotBegin(begin) => {
                spool.truncate(begin.offset as usize);
                true
            }
            Fetched::SnapshotChunk { offset, chunk } => {
                assert_eq!(offset, spool.len() as u64, "a snapshot's bytes come once, in order");
                spool.extend_from_slice(chunk);
                true
            }
        });
        step.map_err(|fault| BulkEnd::of_fault(&fault, format!("catch-up from {}: {fault}", self.server)))
    }

    /// A whole snapshot has come: it is written, synced and checked.
    fn judge(&mut self, seq: Seq) -> Result<SnapshotAt, BulkEnd> {
        let path = self.dir.join(SPOOL);
        let mut disk = self.medium.open();
        let written = write(&mut disk, &path, &self.spool).map_err(|error| self.failed(&error));
        let judged = written.and_then(|()| verify_on(&mut disk, &path).map_err(|error| self.failed(&error)));
        self.spool.clear();
        match judged {
            Ok(SnapshotHeader { meta, .. }) if meta.seq == seq => Ok(SnapshotAt { path, seq, log_id: meta.log_id }),
            Ok(_) => Err(self.failed(&"the snapshot that came is of another seq")),
            Err(end) => {
                self.fetch.want(self.fetch.next_seq(), self.fetch.reign());
                Err(end)
            }
        }
    }
}

fn write<D: Disk>(disk: &mut D, path: &std::path::Path, bytes: &[u8]) -> Result<(), DiskError> {
    match disk.run(Op::Delete { path }) {
        Err(error) if !error.is_missing() => return Err(error),
        _ => {}
    }
    let Outcome::Opened(file) = disk.run(Op::Open { path, mode: OpenMode::Create })? else {
        unreachable!("open opens")
    };
    let buffer = disk.allocate(bytes.len().next_multiple_of(BLOCK_BYTES))?;
    disk.bytes_mut(buffer)[..bytes.len()].copy_from_slice(bytes);
    let all = bytes.len().next_multiple_of(BLOCK_BYTES);
    let mut start = 0;
    while start < all {
        let (len, offset) = (all - start, start as u64);
        let Outcome::Transferred(done) = disk.run(Op::Write { file, buffer, start, len, offset, durable: false })?
        else {
            unreachable!("writes transfer")
        };
        start += done;
    }
    disk.run(Op::Truncate { file, bytes: bytes.len() as u64 })?;
    disk.run(Op::Sync { file })?;
    disk.release(buffer);
    disk.run(Op::Close { file }).map(|_| ())
}

/// Brings frames from one of several servers.
pub(crate) struct SimBulk {
    client: Client,
    peers: Vec<SocketAddrV4>,
    turn: usize,
}

impl SimBulk {
    pub(crate) fn new(
        wires: &Wires,
        me: Ipv4Addr,
        medium: &Medium,
        config: &ReplicaConfig,
        service: Identity,
        log_id: u64,
    ) -> Self {
        SimBulk {
            client: Client::new(wires, me, medium, config, service, log_id),
            peers: config.repair.clone(),
            turn: 0,
        }
    }
}

impl Bulk for SimBulk {
    fn begin(&mut self, _now: Nanos, from: Seq, reign: Reign) {
        self.client.connect(self.peers[self.turn], from, reign);
        self.turn = (self.turn + 1) % self.peers.len();
    }

    fn poll(&mut self, now: Nanos, admit: &mut dyn FnMut(u64, &[u8]) -> Admission) -> BulkProgress {
        let (mut work, mut refused) = (0, None);
        for _ in 0..STEPS_PER_POLL_MAX {
            let stepped = self.client.step(now, &mut |seq, bytes| match admit(seq.0, bytes) {
                Admission::Taken | Admission::Known => true,
                Admission::Full => false,
                admission => {
                    refused.get_or_insert((seq, admission));
                    false
                }
            });
            if let Some((seq, admission)) = refused {
                self.client.hang_up();
                return BulkProgress::Ended(BulkEnd::of_frame(self.client.server, seq, admission));
            }
            match stepped {
                Ok(Stepped::Working(done)) => work += done,
                Ok(Stepped::Idle) => break,
                Ok(Stepped::UpTo(UpTo { next, commit, .. })) if commit.0 >= next.0 + LEFT_TO_FEED_MAX => {
                    self.client.fetch.ask_again(now, &mut self.client.out);
                }
                Ok(Stepped::UpTo(UpTo { commit, reign, .. })) => {
                    self.client.hang_up();
                    return BulkProgress::Ended(BulkEnd::Complete { reign, commit });
                }
                Ok(Stepped::Snapshot(snapshot)) => {
                    self.client.hang_up();
                    return BulkProgress::Ended(BulkEnd::Snapshot(snapshot));
                }
                Err(end) => return BulkProgress::Ended(end),
            }
        }
        BulkProgress::Working(work)
    }

    fn peers(&self) -> usize {
        self.peers.len()
    }
}

/// What a replica without a log can begin with.
pub(crate) enum Begun {
    /// A snapshot has come.
    Snapshot(SnapshotAt),
    /// Frames are to be had; the log is this one.
    Frames { log_id: u64 },
}

/// Finds a server for a replica that has no log, and takes its snapshot where it has one for that: each is asked in turn.
pub(crate) struct Joiner {
    client: Client,
    peers: Vec<SocketAddrV4>,
    turn: usize,
    wanted: (Seq, u64),
    not_before: Nanos,
}

/// After one could not help, until another is asked.
const PAUSE_NS: u64 = 500_000_000;

impl Joiner {
    pub(crate) fn new(
        wires: &Wires,
        me: Ipv4Addr,
        medium: &Medium,
        config: &ReplicaConfig,
        service: Identity,
        wanted: (Seq, u64),
    ) -> Self {
        let client = Client::new(wires, me, medium, config, service, 0);
        Joiner { client, peers: config.repair.clone(), turn: 0, wanted, not_before: 0 }
    }

    /// One duty cycle: what it can begin with, once that is known.
    ///
    /// # Errors
    /// Why one of them is of no use, where that decides.
    pub(crate) fn poll(&mut self, now: Nanos) -> Result<Option<Begun>, BulkEnd> {
        if matches!(self.client.link, Link::Down) {
            if now < self.not_before {
                return Ok(None);
            }
            let (wanted, epoch) = self.wanted;
            self.client.connect(self.peers[self.turn], wanted, Reign::unnamed(epoch));
            self.turn = (self.turn + 1) % self.peers.len();
        }
        let mut has_frames = false;
        let stepped = self.client.step(now, &mut |_, _| {
            has_frames = true;
            false
        });
        match stepped {
            Ok(Stepped::Snapshot(snapshot)) => Ok(Some(Begun::Snapshot(snapshot))),
            Ok(Stepped::UpTo(_)) => Ok(Some(Begun::Frames { log_id: self.client.fetch.log_id() })),
            Ok(_) if has_frames => Ok(Some(Begun::Frames { log_id: self.client.fetch.log_id() })),
            Ok(_) => Ok(None),
            Err(BulkEnd::Failed(_)) => {
                self.not_before = now + PAUSE_NS;
                Ok(None)
            }
            Err(end) => Err(end),
        }
    }
}
