//! The serving end: the machine of each connection, and what it reads from.

use std::io::ErrorKind;
use std::net::SocketAddrV4;
use std::path::PathBuf;

use ticktape::catchup::{Ended, EpochTable, RefuseReason, Serve, ServeConfig, Served};
use ticktape::pipeline::{LogSource, ServedRing};
use ticktape::replica::{Committed, Identity};
use ticktape::{Nanos, Seq};
use ticktape_shm::{Tap, Watermarks};

use super::wire::{Stream, Wires};
use crate::disk::{Medium, SimDisk};

/// Connections at one time; more are refused by name.
const CLIENTS_MAX: usize = 4;

/// Messages sent to one client before it is another's turn.
const MESSAGES_PER_TURN: usize = 8;

/// Up to where a log is committed.
#[derive(Clone)]
enum Commit {
    Ring(Watermarks),
    Heard(Committed),
}

type Source = LogSource<Box<dyn Fn() -> Seq>, SimDisk>;

struct Client {
    stream: Stream,
    serve: Serve,
    source: Source,
}

/// Serves one log to whoever connects.
pub(crate) struct BulkServer {
    wires: Wires,
    address: SocketAddrV4,
    serve: ServeConfig,
    dir: PathBuf,
    medium: Medium,
    tap: Tap,
    commit: Commit,
    log_id: u64,
    epochs: EpochTable,
    clients: Vec<Client>,
    gone: Served,
}

/// What is served.
pub(crate) struct ServedLog {
    pub(crate) dir: PathBuf,
    pub(crate) medium: Medium,
    pub(crate) tap: Tap,
    pub(crate) watermarks: Watermarks,
    /// Where the ring does not say it.
    pub(crate) committed: Option<Committed>,
    pub(crate) log_id: u64,
    pub(crate) epochs: EpochTable,
}

impl BulkServer {
    pub(crate) fn new(wires: &Wires, address: SocketAddrV4, stream: u32, service: Identity, log: ServedLog) -> Self {
        let ServedLog { dir, medium, tap, watermarks, committed, log_id, epochs } = log;
        wires.listen(address);
        BulkServer {
            wires: wires.clone(),
            address,
            serve: ServeConfig::new(stream, service.name, service.schema_version),
            dir,
            medium,
            tap,
            commit: committed.map_or(Commit::Ring(watermarks), Commit::Heard),
            log_id,
            epochs,
            clients: Vec::new(),
            gone: Served::default(),
        }
    }

    /// One duty cycle; returns the work done.
    pub(crate) fn poll(&mut self, now: Nanos) -> usize {
        let mut work = self.accept(now);
        let mut at = 0;
        while at < self.clients.len() {
            match self.clients[at].poll(now) {
                Ok(done) => {
                    work += done;
                    at += 1;
                }
                Err(_) => {
                    let client = self.clients.swap_remove(at);
                    add(&mut self.gone, client.serve.served());
                    work += 1;
                }
            }
        }
        work
    }

    fn accept(&mut self, now: Nanos) -> usize {
        let mut accepted = 0;
        while let Some(stream) = self.wires.accept(self.address) {
            accepted += 1;
            let commit: Box<dyn Fn() -> Seq> = match self.commit.clone() {
                Commit::Ring(marks) => Box::new(move || marks.commit()),
                Commit::Heard(committed) => Box::new(move || committed.get()),
            };
            let medium = self.medium.clone();
            let ring = ServedRing::Here(self.tap.clone());
            let source = LogSource::new_on(&self.dir, ring, self.log_id, commit, move || medium.open());
            let mut serve = Serve::new(&self.serve, self.epochs.clone(), now);
            if self.clients.len() >= CLIENTS_MAX {
                serve.refuse(RefuseReason::TooManyClients, CLIENTS_MAX as u64);
            }
            self.clients.push(Client { stream, serve, source });
        }
        accepted
    }

    /// What was sent to everybody.
    pub(crate) fn served(&self) -> Served {
        let mut all = self.gone;
        self.clients.iter().for_each(|client| add(&mut all, client.serve.served()));
        all
    }
}

impl Drop for BulkServer {
    fn drop(&mut self) {
        self.wires.close(self.address);
    }
}

fn add(all: &mut Served, one: Served) {
    all.questions += one.questions;
    all.frames += one.frames;
    all.snapshots += one.snapshots;
    all.bytes += one.bytes;
}

impl Client {
    fn poll(&mut self, now: Nanos) -> Result<usize, Ended> {
        let mut work = 0;
        if self.serve.listens() {
            match self.stream.read(self.serve.space()) {
                Ok(0) => return Err(Ended::HungUp),
                Ok(bytes) => {
                    self.serve.filled(bytes);
                    work += 1;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Err(Ended::HungUp),
            }
        }
        for _ in 0..MESSAGES_PER_TURN {
            match self.serve.poll(now, &mut self.source) {
                Ok(true) => {}
                Ok(false) => break,
                Err(ended) => {
                    self.stream.finish();
                    return Err(ended);
                }
            }
            match self.stream.write(self.serve.pending()) {
                Ok(bytes) => {
                    work += 1;
                    self.serve.took(now, bytes);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Err(Ended::HungUp),
            }
        }
        Ok(work)
    }
}
