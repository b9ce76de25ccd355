//! `ticktape capture check`: whether a capture is whole, and its packets are what they should be.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;

use serde::Serialize;
use ticktape::config::{CAPTURE_EVENTS, CAPTURE_FEED, CAPTURE_LINK};
use ticktape::feed::MoldPacket;
use ticktape::link::Packet as LinkPacket;
use ticktape_nic::capture::Direction;
use ticktape_nic::packet::Checksum;

use crate::Failure;
use crate::args::{CaptureArgs, CaptureCheckArgs, CaptureCommand};
use crate::capture::{Flaw, Found, Interface, Item, Packet, ReadError, Reader, Reason, find};
use crate::out::{printed_then, say};

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
    time_ns: Option<u64>,
    reason: String,
}

/// The first packet that the file itself makes impossible.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Flawed {
    /// Bytes of the file before its block.
    at: u64,
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
    /// What is wrong with the file's own blocks, by reason.
    flaws: BTreeMap<&'static str, u64>,
    first_flaw: Option<Flawed>,
    /// Whether the totals that a capture ends with are there. They are missing where its process was killed.
    complete: bool,
    ok: bool,
}

fn check(args: &CaptureCheckArgs) -> Result<(), Failure> {
    let name = args.file.display().to_string();
    let reader = Reader::open(&args.file).map_err(|error| usage(&name, &error))?;
    let mut checked = Checked {
        file: name.clone(),
        packets: 0,
        lost: 0,
        first_time_ns: None,
        last_time_ns: None,
        interfaces: Vec::new(),
        undecodable: 0,
        first_undecodable: None,
        flaws: BTreeMap::new(),
        first_flaw: None,
        complete: false,
        ok: false,
    };
    let broken = checked.read(reader).err().map(|error| Failure::failed(format!("{name}: {error}")));
    checked.ok = broken.is_none() && checked.undecodable == 0 && checked.flaws.is_empty();
    let printed = if args.json { say!("{}", crate::json::line(&checked)?) } else { checked.print() };
    let verdict = match (broken, &checked.first_flaw, &checked.first_undecodable) {
        (Some(failure), ..) => Err(failure),
        (None, Some(first), _) => Err(Failure::failed(format!("{name}: {}", first.describe()))),
        (None, None, Some(first)) => Err(Failure::failed(format!("{name}: {}", first.describe()))),
        (None, None, None) if !checked.flaws.is_empty() => {
            Err(Failure::failed(format!("{name}: {}", flaws_text(&checked.flaws))))
        }
        (None, None, None) => Ok(()),
    };
    printed_then(printed, verdict)
}

/// What can't be opened, or was never a capture, is a mistake in what was asked.
fn usage(name: &str, error: &ReadError) -> Failure {
    match &error.reason {
        Reason::Io(io) => Failure::usage(format!("{name}: {io}")),
        _ if error.is_no_capture() => Failure::usage(format!("{name}: {error}")),
        _ => Failure::failed(format!("{name}: {error}")),
    }
}

fn flaws_text(flaws: &BTreeMap<&'static str, u64>) -> String {
    let rows: Vec<String> = flaws.iter().map(|(name, count)| format!("{name} {count}")).collect();
    format!("flaws of the file itself: {}", rows.join(", "))
}

impl Checked {
    fn read(&mut self, mut reader: Reader<impl Read>) -> Result<(), ReadError> {
        // By interface: what its packets say was lost before them, and what its totals say.
        self.declare(reader.interfaces());
        let mut lost: Vec<(u64, Option<u64>)> = vec![(0, None); self.interfaces.len()];
        let ended = loop {
            match reader.next() {
                Err(error) => break Err(error),
                Ok(None) => break Ok(()),
                Ok(Some(Item::Packet(packet))) => {
                    let shown = &mut lost[packet.number].0;
                    *shown = shown.saturating_add(packet.lost);
                    self.packets += 1;
                    self.first_time_ns = self.first_time_ns.into_iter().chain(packet.time_ns).min();
                    self.last_time_ns = self.last_time_ns.max(packet.time_ns);
                    self.count(packet.number, inspect(&packet));
                }
                Ok(Some(Item::Totals { interface, dropped: Some(dropped), .. })) => {
                    lost[interface].1 = lost[interface].1.max(Some(dropped));
                }
                Ok(Some(Item::Skipped(flaw))) => {
                    let (at, reason) = (reader.at(), flaw.to_string());
                    self.first_flaw.get_or_insert(Flawed { at, reason });
                }
                Ok(Some(_)) => {}
            }
            self.declare(reader.interfaces());
            lost.resize(self.interfaces.len(), (0, None));
        };
        self.flaws = reader.flaws().rows().filter(|row| row.1 > 0).map(|(flaw, count)| (flaw.name(), count)).collect();
        self.complete = !lost.is_empty() && lost.iter().all(|(_, totals)| totals.is_some());
        for (traffic, (shown, totals)) in self.interfaces.iter_mut().zip(lost) {
            // The totals know of those, too, that were lost after the last packet.
            traffic.lost = totals.unwrap_or(0).max(shown);
        }
        self.lost = self.interfaces.iter().fold(0, |sum, traffic| sum.saturating_add(traffic.lost));
        ended
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
            let (packet, interface, time_ns) = (found.index, traffic.interface.clone(), found.time_ns);
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
                if traffic.interface.is_empty() { "an interface without a name" } else { &traffic.interface }
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
        if !self.flaws.is_empty() {
            say!("{}", flaws_text(&self.flaws))?;
        }
        // Only this project's own captures end with totals for sure.
        let is_own = self.interfaces.iter().any(|traffic| traffic.content != Content::Other);
        if is_own && !self.complete {
            say!("no totals at its end: the capture was killed, or goes on")?;
        }
        self.first_flaw.as_ref().map_or(Ok(()), |first| say!("first flaw     {}", first.describe()))?;
        self.first_undecodable.as_ref().map_or(Ok(()), |first| say!("first          {}", first.describe()))
    }
}

impl Undecodable {
    fn describe(&self) -> String {
        let time = self.time_ns.map_or(String::new(), |time_ns| format!(", at {time_ns} ns"));
        format!("packet {} on {}{time}: {}", self.packet, self.interface, self.reason)
    }
}

impl Flawed {
    fn describe(&self) -> String {
        format!("block at byte {}: {}", self.at, self.reason)
    }
}

/// A packet, looked into.
struct Inspected {
    index: u64,
    time_ns: Option<u64>,
    direction: Option<Direction>,
    original_bytes: u32,
    /// Only its beginning is there.
    is_cut: bool,
    /// Why it is not what it should be.
    wrong: Option<String>,
}

fn inspect(packet: &Packet<'_>) -> Inspected {
    let found = find(packet);
    let is_cut = packet.original_bytes as usize > packet.bytes.len();
    let content = if is_cut { Content::Other } else { Content::of(packet.interface) };
    Inspected {
        index: packet.index,
        time_ns: packet.time_ns,
        direction: found.as_ref().map_or(packet.direction, |found| found.direction),
        original_bytes: packet.original_bytes,
        is_cut,
        wrong: decode(packet, found, content).err(),
    }
}

fn decode(packet: &Packet<'_>, found: Result<Found, Flaw>, content: Content) -> Result<(), String> {
    if content == Content::Other {
        return Ok(());
    }
    let found = found.map_err(|flaw| format!("no UDP datagram: {flaw}"))?;
    if !found.is_header_sound {
        return Err("no UDP datagram: the IPv4 header's checksum is wrong".to_string());
    }
    if !matches!(found.checksum, Checksum::Absent | Checksum::Full) {
        return Err("no UDP datagram: its checksum is wrong".to_string());
    }
    let payload = &packet.bytes[found.payload];
    match content {
        Content::Feed | Content::Events => MoldPacket::parse(payload).map(drop).map_err(|error| error.to_string()),
        _ => LinkPacket::decode(payload).map(drop).map_err(|error| error.to_string()),
    }
}
