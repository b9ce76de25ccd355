//! `ticktape capture check`: whether a capture is whole, and its packets are what they should be.

mod reader;

use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;

use serde::Serialize;
use ticktape::config::{CAPTURE_EVENTS, CAPTURE_FEED, CAPTURE_LINK};
use ticktape::feed::MoldPacket;
use ticktape::link::Packet as LinkPacket;
use ticktape_nic::capture::Direction;
use ticktape_nic::packet::{Verify, parse};

use crate::Failure;
use crate::args::{CaptureArgs, CaptureCheckArgs, CaptureCommand};
use crate::out::{printed_then, say};
use reader::{Interface, Item, Packet, ReadError, Reader};

/// Bytes read from the file at once.
const READ_BYTES: usize = 256 << 10;

pub fn run(args: &CaptureArgs) -> Result<(), Failure> {
    match &args.command {
        CaptureCommand::Check(args) => check(args),
    }
}

/// What an interface's packets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Content {
    /// Link packets, between clients and appliance.
    Link,
    /// The sequenced stream as MoldUDP64.
    Feed,
    /// Public events as MoldUDP64.
    Events,
    /// Something that is not known here, and not looked into.
    Other,
}

impl Content {
    fn of(interface: &Interface) -> Content {
        let begins = |with: &str| interface.description.strip_prefix(with).is_some_and(|rest| rest.starts_with(':'));
        match () {
            () if begins(CAPTURE_LINK) => Content::Link,
            () if begins(CAPTURE_FEED) => Content::Feed,
            () if begins(CAPTURE_EVENTS) => Content::Events,
            () => Content::Other,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Content::Link => "client link",
            Content::Feed => "feed",
            Content::Events => "events",
            Content::Other => "unknown content",
        }
    }
}

/// Counts of one interface.
#[derive(Debug, Serialize)]
struct Traffic {
    interface: String,
    description: String,
    content: Content,
    inbound: u64,
    outbound: u64,
    /// Packets whose direction the file does not tell.
    undirected: u64,
    inbound_bytes: u64,
    outbound_bytes: u64,
    /// Packets of which only the beginning was kept: they are not decoded.
    cut: u64,
    /// Packets that came by and are not in the file.
    lost: u64,
    /// Packets that are not what they should be.
    undecodable: u64,
}

/// The first packet that is not what it should be.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Undecodable {
    /// Its number in the file, from 1 as Wireshark counts.
    packet: u64,
    interface: String,
    time_ns: u64,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Checked {
    file: String,
    packets: u64,
    lost: u64,
    first_time_ns: Option<u64>,
    last_time_ns: Option<u64>,
    interfaces: Vec<Traffic>,
    undecodable: u64,
    first_undecodable: Option<Undecodable>,
    /// Whether the totals that a capture ends with are there. They are missing where its process was killed.
    complete: bool,
    ok: bool,
}

fn check(args: &CaptureCheckArgs) -> Result<(), Failure> {
    let name = args.file.display().to_string();
    let usage = |error: ReadError| Failure::usage(format!("{name}: {error}"));
    let file = File::open(&args.file).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let reader = Reader::new(BufReader::with_capacity(READ_BYTES, file)).map_err(usage)?;
    let mut checked = Checked {
        file: name.clone(),
        packets: 0,
        lost: 0,
        first_time_ns: None,
        last_time_ns: None,
        interfaces: Vec::new(),
        undecodable: 0,
        first_undecodable: None,
        complete: false,
        ok: false,
    };
    let broken = checked.read(reader).err().map(|error| Failure::failed(format!("{name}: {error}")));
    checked.ok = broken.is_none() && checked.undecodable == 0;
    let printed = if args.json { say!("{}", crate::json::line(&checked)?) } else { checked.print() };
    let verdict = match (broken, &checked.first_undecodable) {
        (Some(failure), _) => Err(failure),
        (None, Some(first)) => Err(Failure::failed(format!("{name}: {}", describe(first)))),
        (None, None) => Ok(()),
    };
    printed_then(printed, verdict)
}

impl Checked {
    fn read(&mut self, mut reader: Reader<impl std::io::Read>) -> Result<(), ReadError> {
        let mut totals = Vec::new();
        let mut lost_shown = Vec::new();
        while let Some(item) = reader.next()? {
            match item {
                Item::Packet(packet) => {
                    let (at, lost) = (packet.number, packet.lost);
                    self.packets += 1;
                    self.first_time_ns = Some(self.first_time_ns.map_or(packet.time_ns, |at| at.min(packet.time_ns)));
                    self.last_time_ns = self.last_time_ns.max(Some(packet.time_ns));
                    let found = inspect(&packet);
                    self.declare(reader.interfaces());
                    lost_shown.resize(self.interfaces.len(), 0u64);
                    lost_shown[at] = lost_shown[at].saturating_add(lost);
                    self.count(at, found);
                }
                Item::Lost { interface, packets } => totals.push((interface, packets)),
            }
        }
        self.declare(reader.interfaces());
        self.complete = !self.interfaces.is_empty() && totals.len() >= self.interfaces.len();
        for (traffic, lost) in self.interfaces.iter_mut().zip(lost_shown) {
            traffic.lost = lost;
        }
        // The totals know of those, too, that were lost after the last packet.
        for (interface, lost) in totals {
            if let Some(traffic) = self.interfaces.get_mut(interface) {
                traffic.lost = traffic.lost.max(lost);
            }
        }
        self.lost = self.interfaces.iter().fold(0, |sum, traffic| sum.saturating_add(traffic.lost));
        Ok(())
    }

    fn declare(&mut self, interfaces: &[Interface]) {
        for interface in &interfaces[self.interfaces.len()..] {
            self.interfaces.push(Traffic {
                interface: interface.name.clone(),
                description: interface.description.clone(),
                content: Content::of(interface),
                inbound: 0,
                outbound: 0,
                undirected: 0,
                inbound_bytes: 0,
                outbound_bytes: 0,
                cut: 0,
                lost: 0,
                undecodable: 0,
            });
        }
    }

    fn count(&mut self, interface: usize, found: Inspected) {
        let traffic = &mut self.interfaces[interface];
        let bytes = u64::from(found.original_bytes);
        match found.direction {
            Some(Direction::Inbound) => {
                traffic.inbound += 1;
                traffic.inbound_bytes += bytes;
            }
            Some(Direction::Outbound) => {
                traffic.outbound += 1;
                traffic.outbound_bytes += bytes;
            }
            None => traffic.undirected += 1,
        }
        traffic.cut += u64::from(found.is_cut);
        if let Some(reason) = found.wrong {
            traffic.undecodable += 1;
            self.undecodable += 1;
            let (packet, interface, time_ns) = (self.packets, traffic.interface.clone(), found.time_ns);
            self.first_undecodable.get_or_insert(Undecodable { packet, interface, time_ns, reason });
        }
    }

    fn print(&self) -> Result<(), Failure> {
        let span_ns = self.last_time_ns.unwrap_or(0) - self.first_time_ns.unwrap_or(0);
        say!("{}: {} packets over {:.6} s, {} lost", self.file, self.packets, span_ns as f64 / 1e9, self.lost)?;
        for traffic in &self.interfaces {
            let Traffic { inbound, outbound, inbound_bytes, outbound_bytes, .. } = traffic;
            let mut line = format!(
                "{:11}    {} in ({inbound_bytes} bytes), {} out ({outbound_bytes} bytes), {} lost, on {}",
                traffic.content.name(),
                inbound,
                outbound,
                traffic.lost,
                traffic.interface
            );
            for (count, what) in [
                (traffic.undirected, "of unknown direction"),
                (traffic.cut, "cut and not decoded"),
                (traffic.undecodable, "not what they should be"),
            ] {
                if count > 0 {
                    let _ = write!(line, ", {count} {what}");
                }
            }
            say!("{line}")?;
        }
        if !self.complete {
            say!("no totals at its end: the capture was killed, or goes on")?;
        }
        self.first_undecodable.as_ref().map_or(Ok(()), |first| say!("first          {}", describe(first)))
    }
}

fn describe(first: &Undecodable) -> String {
    format!("packet {} on {}, at {} ns: {}", first.packet, first.interface, first.time_ns, first.reason)
}

/// A packet, looked into.
struct Inspected {
    time_ns: u64,
    direction: Option<Direction>,
    original_bytes: u32,
    /// Only its beginning is there.
    is_cut: bool,
    /// Why it is not what it should be.
    wrong: Option<String>,
}

fn inspect(packet: &Packet<'_>) -> Inspected {
    let is_cut = packet.original_bytes as usize > packet.frame.len();
    let content = if is_cut { Content::Other } else { Content::of(packet.interface) };
    Inspected {
        time_ns: packet.time_ns,
        direction: packet.direction,
        original_bytes: packet.original_bytes,
        is_cut,
        wrong: decode(packet.frame, content).err(),
    }
}

fn decode(frame: &[u8], content: Content) -> Result<(), String> {
    if content == Content::Other {
        return Ok(());
    }
    let payload = parse(frame, Verify::Full).map_err(|error| format!("no UDP datagram: {error}"))?.payload;
    match content {
        Content::Feed | Content::Events => MoldPacket::parse(payload).map(drop).map_err(|error| error.to_string()),
        _ => LinkPacket::decode(payload).map(drop).map_err(|error| error.to_string()),
    }
}
