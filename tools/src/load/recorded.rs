//! A flow out of a file: orders, an appliance's journal, or a capture of its links.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use orderbook::flow::{FlowReader, MAGIC};
use ticktape::payload::Origin;
use ticktape::{Encode, Frame, Kind};

use crate::Failure;
use crate::capture::Datagrams;
use crate::links::{Handed, Links};
use crate::log::on_log;

/// Messages that are taken: all are held in memory.
pub const MESSAGES_MAX: usize = 20_000_000;
/// Bytes of all of them.
pub const BYTES_MAX: usize = 2 << 30;

/// Messages, and when and by whom they were sent.
#[derive(Debug, Default)]
pub struct Recorded {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Since the first one, each; empty where the file has no times.
    times_ns: Vec<u64>,
    /// Whose, each, by turns of their first appearance; empty where the file does not say.
    sessions: Vec<u32>,
    known: BTreeMap<u64, u32>,
}

impl Recorded {
    /// Reads a file, whatever of the three it is.
    ///
    /// # Errors
    /// Usage, with the file's name: it is none of them, damaged, empty, or too large.
    pub fn load(path: &Path) -> Result<Recorded, Failure> {
        let mut flow = Recorded::default();
        let name = path.display();
        if path.is_dir() {
            flow.read_journal(path)?;
        } else if is_orders(path).map_err(|error| Failure::usage(format!("{name}: {error}")))? {
            flow.read_orders(path)?;
        } else {
            flow.read_capture(path)?;
        }
        if flow.ends.is_empty() {
            return Err(Failure::usage(format!("{name}: there is no input of a client in it")));
        }
        let first = flow.times_ns.first().copied().unwrap_or(0);
        let mut last = 0;
        for time in &mut flow.times_ns {
            // A recorder with several taps may swap neighbours.
            last = time.saturating_sub(first).max(last);
            *time = last;
        }
        Ok(flow)
    }

    /// Messages in it.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it says when each was sent.
    pub fn has_times(&self) -> bool {
        !self.times_ns.is_empty()
    }

    /// When, after the first.
    pub fn time_ns(&self, at: usize) -> u64 {
        self.times_ns[at]
    }

    /// One message's encoding.
    pub fn message(&self, at: usize) -> &[u8] {
        let from = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[from..self.ends[at]]
    }

    /// The places of each client's messages: a session's stay with one client, others are dealt out by turns.
    pub fn deal(&self, clients: usize) -> Vec<Vec<u32>> {
        let mut dealt = vec![Vec::new(); clients];
        for at in 0..self.len() {
            let turn = self.sessions.get(at).map_or(at, |&session| session as usize);
            dealt[turn % clients].push(at as u32);
        }
        dealt
    }

    fn push(&mut self, path: &Path, message: &[u8]) -> Result<(), Failure> {
        if self.ends.len() >= MESSAGES_MAX || self.bytes.len() + message.len() > BYTES_MAX {
            let name = path.display();
            return Err(Failure::usage(format!(
                "{name}: holds more than the {MESSAGES_MAX} messages or {BYTES_MAX} bytes that are taken"
            )));
        }
        self.bytes.extend_from_slice(message);
        self.ends.push(self.bytes.len());
        Ok(())
    }

    fn push_timed(&mut self, path: &Path, time_ns: u64, session: u64, message: &[u8]) -> Result<(), Failure> {
        self.push(path, message)?;
        self.times_ns.push(time_ns);
        let turn = self.known.len() as u32;
        self.sessions.push(*self.known.entry(session).or_insert(turn));
        Ok(())
    }

    fn read_orders(&mut self, path: &Path) -> Result<(), Failure> {
        let mut encoded = Vec::new();
        for command in FlowReader::open(path).map_err(Failure::usage)? {
            encoded.clear();
            command.map_err(Failure::usage)?.encode(&mut encoded);
            self.push(path, &encoded)?;
        }
        Ok(())
    }

    fn read_journal(&mut self, dir: &Path) -> Result<(), Failure> {
        on_log(dir, |log| {
            *self = Recorded::default();
            let mut reader = log.from(log.first_seq())?;
            while let Some(bytes) = reader.next().map_err(Failure::reading)? {
                let frame = Frame::view(bytes).expect("the reader has checked it");
                let (session, command) = match frame.kind {
                    Kind::Input => (0, frame.payload),
                    Kind::SessionInput => match Origin::split(frame.payload) {
                        Some((origin, command)) => (origin.session.0, command),
                        None => continue,
                    },
                    _ => continue,
                };
                self.push_timed(dir, frame.timestamp.0, session, command)?;
            }
            Ok(())
        })
    }

    fn read_capture(&mut self, path: &Path) -> Result<(), Failure> {
        let refused = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
        let mut datagrams = Datagrams::open(path).map_err(|error| refused(&error))?;
        let (mut links, mut time_ns, mut index) = (Links::new(None), 0, 0);
        let mut taken = Ok(());
        loop {
            match datagrams.next() {
                Ok(Some(datagram)) => {
                    time_ns = datagram.time_ns.unwrap_or(time_ns);
                    index = datagram.index;
                    links.on_datagram(&datagram, |handed| self.take(path, time_ns, &handed, &mut taken));
                }
                Ok(None) => break,
                Err(error) => return Err(refused(&error)),
            }
        }
        links.finish(index, |handed| self.take(path, time_ns, &handed, &mut taken));
        taken
    }

    fn take(&mut self, path: &Path, time_ns: u64, handed: &Handed<'_>, taken: &mut Result<(), Failure>) {
        if let (Handed::Input(input), Ok(())) = (handed, &taken) {
            *taken = self.push_timed(path, time_ns, input.session, input.command);
        }
    }
}

/// Whether a file begins as orders do, plain or as gzip.
fn is_orders(path: &Path) -> std::io::Result<bool> {
    let mut begin = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut begin)?;
    Ok(begin == MAGIC || begin.starts_with(&[0x1f, 0x8b]))
}
