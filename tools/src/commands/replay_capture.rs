//! `ticktape replay --pcap`: which inputs, reports and frames a capture holds, and which it lacks; then `replay_stages` replays them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufReader, Read};
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::replay_stages::{self, Replayed};
use crate::Failure;
use crate::args::{Place, ReplayArgs};
use crate::capture::{Datagrams, ReadError, Reason};
use crate::demo::{COLUMNS, Latency, row};
use crate::hdr::write_pair;
use crate::links::{Counts, Feed, Figures, Handed, Links, Stream};
use crate::load::empty_dir;
use crate::out::{printed_then, say};
use crate::service::AnyService;

/// Ranges that a line shows; JSON has them all.
const RANGES_SHOWN: usize = 50;

/// What of a stream is there.
#[derive(Debug, Serialize)]
struct Row {
    /// The first number that the capture could have had.
    first: Option<u64>,
    /// The last that is there, or known to be missing.
    last: Option<u64>,
    messages: u64,
    repeated: u64,
    late: u64,
    filled: u64,
    taken_back: u64,
    missing: u64,
    /// Each from its first number to its last.
    missing_ranges: Vec<[u64; 2]>,
    /// Numbers of further ranges.
    missing_beyond: u64,
}

impl Row {
    fn new(stream: &Stream) -> Row {
        let Figures { first, next, messages, repeated, late, filled, taken_back, missing } = stream.figures();
        Row {
            first: *first,
            last: next.and_then(|next| next.checked_sub(1)).filter(|last| Some(*last) >= *first),
            messages: *messages,
            repeated: *repeated,
            late: *late,
            filled: *filled,
            taken_back: *taken_back,
            missing: missing.count(),
            missing_ranges: missing.ranges().map(|range| [range.start, range.end - 1]).collect(),
            missing_beyond: missing.beyond(),
        }
    }

    /// Numbers, what is missing, and what is there more than once.
    fn describe(&self) -> String {
        let mut text = self.messages.to_string();
        if let (Some(first), Some(last)) = (self.first, self.last) {
            let _ = write!(text, ", numbers {first} to {last}");
        }
        let _ = write!(text, ", {} missing, {} more than once", self.missing, self.repeated);
        for (count, what) in [
            (self.late, "after they were given up"),
            (self.filled, "announced never to come"),
            (self.taken_back, "lost by the appliance and numbered anew"),
        ] {
            if count > 0 {
                let _ = write!(text, ", {count} {what}");
            }
        }
        text
    }

    /// The missing numbers.
    fn ranges(&self) -> String {
        let range =
            |&[first, last]: &[u64; 2]| if first == last { first.to_string() } else { format!("{first} to {last}") };
        let mut text = self.missing_ranges.iter().take(RANGES_SHOWN).map(range).collect::<Vec<_>>().join(", ");
        let more = self.missing_ranges.len().saturating_sub(RANGES_SHOWN);
        if more > 0 || self.missing_beyond > 0 {
            let _ = write!(text, " and {more} more ranges (--json has them)");
        }
        text
    }
}

#[derive(Debug, Serialize)]
struct Inputs {
    session: u64,
    client_epoch: u32,
    #[serde(flatten)]
    row: Row,
}

#[derive(Debug, Serialize)]
struct Events {
    session: u64,
    #[serde(flatten)]
    row: Row,
}

#[derive(Debug, Serialize)]
struct FeedRow {
    name: String,
    /// Messages that are frames of the log.
    log_frames: u64,
    #[serde(flatten)]
    row: Row,
}

#[derive(Debug, Serialize)]
struct LinkCounts {
    up: u64,
    down: u64,
    undecodable: u64,
    before_handshake: u64,
    other_appliances: u64,
    refused: u64,
    beyond_streams: u64,
}

/// What a capture holds.
#[derive(Debug, Serialize)]
struct Pulled {
    file: String,
    datagrams: u64,
    first_time_ns: Option<u64>,
    last_time_ns: Option<u64>,
    appliance: Option<SocketAddrV4>,
    link: LinkCounts,
    /// Inputs that were handed on, each once.
    inputs: u64,
    missing_inputs: u64,
    sessions: Vec<Inputs>,
    events: Vec<Events>,
    feeds: Vec<FeedRow>,
    /// Datagrams that are neither.
    other: u64,
    /// Packets that are no datagrams, and what is wrong with the file, by reason.
    flaws: BTreeMap<&'static str, u64>,
    /// From each packet with inputs to the first with a result of one of them.
    wire_to_wire: Latency,
    /// Packets with inputs of which no result is there.
    unpaired: u64,
    /// What came of it in the stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    replay: Option<Replayed>,
    ok: bool,
}

pub fn run(args: &ReplayArgs, path: &Path, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    if let Some(json) = &args.json {
        crate::json::check(json)?;
    }
    let name = path.display().to_string();
    let is_behind = match (args.from, args.to) {
        (Some(Place::Seq(from)), Some(Place::Seq(to))) | (Some(Place::After(from)), Some(Place::After(to))) => {
            from > to
        }
        _ => false,
    };
    if is_behind {
        return Err(Failure::usage("--from is behind --to: nothing lies between them"));
    }
    args.out.as_deref().map(empty_dir).transpose()?;
    let (links, mut pulled, ended) = pull(&name, open(path)?, args.listen);
    let has_feed = links.log_feeds().next().is_some();
    let verdict = match (ended, pulled.appliance) {
        (Err(error), _) => Err(Failure::failed(format!("{name}: {error}"))),
        (Ok(()), None) if !has_feed => Err(Failure::usage(format!(
            "{name}: no handshake in it tells the appliance: name its address, as --listen 10.0.0.1:7001"
        ))),
        (Ok(()), Some(listen)) if pulled.link.up == 0 => {
            Err(Failure::failed(format!("{name}: no link packet in it is for {listen}")))
        }
        (Ok(()), _) if pulled.missing_inputs > 0 => {
            Err(Failure::failed(format!("{name}: {} inputs are missing", pulled.missing_inputs)))
        }
        (Ok(()), _) => Ok(()),
    };
    let has_order = has_feed || pulled.inputs > 0;
    let replayed = if has_order && !args.no_stages {
        if !path.is_file() {
            return Err(Failure::usage(format!(
                "{name}: is no regular file, and a replay reads it twice: --no-stages only says what it holds"
            )));
        }
        let replayed = replay_stages::replay(args, path, &links, pulled.times(), services)?;
        Some(replayed)
    } else {
        None
    };
    let compared = replayed.as_ref().map_or(Ok(()), |replayed| replayed.verdict(&name));
    let verdict = verdict.and(compared);
    (pulled.ok, pulled.replay) = (verdict.is_ok(), replayed);
    let printed = pulled.print();
    if let Some(dir) = &args.out {
        pulled.write_latencies(dir, links.wire_to_wire().latencies())?;
    }
    if let Some(json) = &args.json {
        crate::json::write(json, &pulled)?;
    }
    printed_then(printed, verdict)
}

/// Opens a capture.
pub fn open(path: &Path) -> Result<Datagrams<BufReader<File>>, Failure> {
    let name = path.display();
    Datagrams::open(path).map_err(|error| match &error.reason {
        Reason::Io(io) => Failure::usage(format!("{name}: {io}")),
        _ => Failure::usage(format!("{name}: {error}")),
    })
}

fn pull(
    name: &str,
    mut datagrams: Datagrams<impl Read>,
    listen: Option<SocketAddrV4>,
) -> (Links, Pulled, Result<(), ReadError>) {
    let mut links = Links::new(listen);
    let (mut inputs, mut count, mut index) = (0, 0, 0);
    let (mut first_time_ns, mut last_time_ns) = (None, None);
    let ended = loop {
        match datagrams.next() {
            Ok(Some(datagram)) => {
                (count, index) = (count + 1, datagram.index);
                first_time_ns = first_time_ns.into_iter().chain(datagram.time_ns).min();
                last_time_ns = last_time_ns.max(datagram.time_ns);
                links.on_datagram(&datagram, |handed| inputs += u64::from(matches!(handed, Handed::Input(_))));
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    links.finish(index, |handed| inputs += u64::from(matches!(handed, Handed::Input(_))));
    let flaws = datagrams.flaws().rows().filter(|row| row.1 > 0).map(|(flaw, count)| (flaw.name(), count)).collect();
    let Counts { up, down, undecodable, before_handshake, other_appliances, refused, beyond_streams, other, .. } =
        links.counts();
    let row = |(&(session, client_epoch), stream): (&(u64, u32), &Stream)| {
        let row = Row::new(stream);
        Inputs { session, client_epoch, row }
    };
    let sessions: Vec<Inputs> = links.inputs().iter().map(row).collect();
    let feed = |(name, feed): (&[u8; 10], &Feed)| FeedRow {
        name: String::from_utf8_lossy(name).into_owned(),
        log_frames: feed.frames,
        row: Row::new(&feed.stream),
    };
    let pulled = Pulled {
        file: name.to_string(),
        datagrams: count,
        first_time_ns,
        last_time_ns,
        appliance: links.listen(),
        link: LinkCounts { up, down, undecodable, before_handshake, other_appliances, refused, beyond_streams },
        inputs,
        missing_inputs: sessions.iter().map(|session| session.row.missing).fold(0, u64::saturating_add),
        sessions,
        events: links.events().iter().map(|(&session, stream)| Events { session, row: Row::new(stream) }).collect(),
        feeds: links.feeds().iter().map(feed).collect(),
        other,
        flaws,
        wire_to_wire: Latency::of(links.wire_to_wire().latencies()),
        unpaired: links.wire_to_wire().unpaired(),
        replay: None,
        ok: false,
    };
    (links, pulled, ended)
}

impl Pulled {
    /// Of the first packet and of the last, in nanoseconds since 1970; 0 where none has a time.
    fn times(&self) -> (u64, u64) {
        (self.first_time_ns.unwrap_or(0), self.last_time_ns.unwrap_or(0))
    }

    /// For other programs, and for `ticktape report`.
    fn write_latencies(&self, dir: &Path, latencies: &Histogram<u64>) -> Result<(), Failure> {
        let stem = dir.join("wire-to-wire");
        let ((first, last), comment) = (self.times(), "wire to wire, nanoseconds");
        let (start, length) = (Duration::from_nanos(first), Duration::from_nanos(last - first));
        let failed = |error| Failure::failed(format!("{}: {error}", stem.display()));
        write_pair(&stem, comment, start, length, latencies).map_err(failed)
    }

    fn print(&self) -> Result<(), Failure> {
        let span_ns = self.last_time_ns.unwrap_or(0) - self.first_time_ns.unwrap_or(0);
        say!("{}: {} datagrams over {:.6} s", self.file, self.datagrams, span_ns as f64 / 1e9)?;
        if let Some(appliance) = self.appliance {
            say!("appliance      {appliance}: {} link packets to it, {} from it", self.link.up, self.link.down)?;
        }
        for Inputs { session, client_epoch, row } in &self.sessions {
            say!("session {session}, client epoch {client_epoch}")?;
            print_row("inputs", row)?;
        }
        for Events { session, row } in &self.events {
            say!("session {session}, from the appliance")?;
            print_row("events", row)?;
        }
        for FeedRow { name, log_frames, row } in &self.feeds {
            say!("feed {name}, {log_frames} of its messages are frames of the log")?;
            print_row("messages", row)?;
        }
        let LinkCounts { undecodable, before_handshake, other_appliances, refused, beyond_streams, .. } = self.link;
        for (count, what) in [
            (undecodable, "to or from the appliance that are no sound link packets"),
            (before_handshake, "link packets before the first handshake (--listen ADDR:PORT takes them in)"),
            (other_appliances, "handshakes with another appliance (--listen ADDR:PORT chooses)"),
            (refused, "refusals by the appliance"),
            (beyond_streams, "of more streams than are told apart"),
            (self.other, "of something else"),
        ] {
            if count > 0 {
                say!("datagrams      {count} {what}")?;
            }
        }
        for (name, count) in &self.flaws {
            say!("no datagrams   {count} {name}")?;
        }
        if self.wire_to_wire.count + self.unpaired > 0 {
            say!("µs          {COLUMNS}")?;
            say!("{}", row("wire-wire", &self.wire_to_wire))?;
            say!("unpaired       {} packets with inputs, without a result", self.unpaired)?;
        }
        self.replay.as_ref().map_or(Ok(()), Replayed::print)
    }
}

fn print_row(what: &str, row: &Row) -> Result<(), Failure> {
    say!("  {what:12} {}", row.describe())?;
    if row.missing > 0 { say!("  missing      {}", row.ranges()) } else { Ok(()) }
}
