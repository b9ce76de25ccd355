//! `ticktape follow --events`: prints what a service emits to everybody, each once and in order, until a signal.
//!
//! The first copy of A and B counts. What both lost is asked for, where there is somebody to ask; what nobody has any more, or nobody
//! can be asked for, is named and passed over.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use ticktape::config::{EventsConfig, FeedConfig};
use ticktape::feed::{ArbiterCounters, MoldRequest, Side};
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, NicError, Rx, Tx, UdpConfig, UdpNic};
use ticktape_tuning::clock;

use super::follow_events_sessions::Sessions;
use super::follow_events_stream::{Cursor, DATAGRAM_BYTES_MAX, Out, Stream};
use crate::args::{FeedPair, FollowArgs};
use crate::out::say;
use crate::service::{AnyService, find};
use crate::{Failure, json};

/// Datagrams taken from a socket before the others are looked at.
const BURST_MAX: usize = 64;
/// The wait when there is nothing new: a terminal's reader is in no hurry.
const PAUSE: Duration = Duration::from_micros(200);

/// A line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    event: u64,
    bytes: &'a str,
    text: Option<String>,
}

/// A word about the feed.
#[derive(Default, Serialize)]
struct Notice<'a> {
    notice: &'a str,
    /// What became of events that were received: `rewound`, or `unproven`.
    #[serde(skip_serializing_if = "Option::is_none")]
    resync: Option<&'static str>,
    /// In which they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u32>,
    /// The event that was due, and the one that comes next.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

impl<'a> Notice<'a> {
    fn resync(notice: &'a str, resync: &'static str, epoch: u32, from: u64, next: u64) -> Self {
        Notice { notice, resync: Some(resync), epoch: Some(epoch), from: Some(from), next: Some(next) }
    }
}

/// The last line of `--json`.
#[derive(Serialize)]
struct Last {
    state: &'static str,
    next: u64,
    epoch: u32,
    events: u64,
    missing: u64,
    taken_back: u64,
    unproven: u64,
    requests: u64,
    first_from_a: u64,
    first_from_b: u64,
    repaired: u64,
}

/// The sockets, and what is known so far.
struct Receiver<'a> {
    args: &'a FollowArgs,
    service: &'a dyn AnyService,
    sides: Vec<(Side, UdpRx)>,
    repairs: (UdpRx, UdpTx),
    probes: (UdpRx, UdpTx),
    /// What is heard before a session of the stream is believed.
    joining: Sessions,
    /// From then on.
    events: Option<Stream>,
    printed: u64,
}

pub fn run(
    args: &FollowArgs,
    feed: FeedPair,
    stop: &AtomicBool,
    services: &[Box<dyn AnyService>],
) -> Result<(), Failure> {
    let mut receiver = Receiver::open(args, feed, find(services, args.service.as_deref())?)?;
    let sides = feed.b.map_or_else(|| feed.a.to_string(), |b| format!("{} and {b}", feed.a));
    // For whoever started it, whatever is done with what it prints: what is sent from here on is heard.
    eprintln!("ticktape: listening on {sides}");
    if !args.json {
        let repair = args.events_repair.map_or_else(|| "no repairs".to_string(), |at| format!("repairs from {at}"));
        say!("events of {} on {sides}, {repair}", receiver.service.name())?;
    }
    let count = args.count.unwrap_or(u64::MAX);
    while !stop.load(Ordering::Relaxed) && receiver.printed < count {
        let work = receiver.receive();
        receiver.ask();
        receiver.print(count)?;
        if work == 0 {
            std::thread::sleep(PAUSE);
        }
    }
    receiver.finish()
}

impl<'a> Receiver<'a> {
    fn open(args: &'a FollowArgs, feed: FeedPair, service: &'a dyn AnyService) -> Result<Self, Failure> {
        let mut config = EventsConfig::on_loopback(feed.a);
        config.stream = args.stream.clone().unwrap_or(config.stream);
        FeedConfig::check_stream(&config.stream).map_err(|error| Failure::usage(format!("--stream: {error}")))?;
        let open = |side: SocketAddrV4| {
            let is_group = side.ip().is_multicast();
            let udp = UdpConfig {
                join: if is_group { vec![*side.ip()] } else { Vec::new() },
                interface: is_group.then_some(args.interface.unwrap_or(Ipv4Addr::LOCALHOST)),
                reuse_address: is_group,
                datagram_bytes_max: DATAGRAM_BYTES_MAX,
                ..UdpConfig::new(side)
            };
            UdpNic::open(&udp).map_err(|error: NicError| Failure::usage(format!("--events {side}: {error}")))
        };
        let mut sides = vec![(Side::A, open(feed.a)?.split().0)];
        if let Some(b) = feed.b {
            sides.push((Side::B, open(b)?.split().0));
        }
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let (repairs, probes) = (open(any)?.split(), open(any)?.split());
        let joining = Sessions::new(config.stream(), args.events_repair.is_some());
        Ok(Receiver { args, service, sides, repairs, probes, joining, events: None, printed: 0 })
    }

    /// Takes what has come.
    fn receive(&mut self) -> usize {
        let now = clock::monotonic_ns();
        let Receiver { args, service, sides, repairs, probes, joining, events, .. } = self;
        let cursor = Cursor { from: args.from, epoch: args.from_epoch };
        let begin = |found| Stream::begin(now, &found, cursor, args.events_repair.is_some());
        let parses = |event: &[u8]| service.describe_output(event).is_some();
        let mut work = 0;
        for (side, rx) in sides {
            work += rx.poll(now, BURST_MAX, |datagram| {
                let packet = datagram.payload;
                match events {
                    Some(events) => events.on_packet(now, *side, packet, parses),
                    // There is none to be heard beside it.
                    None => *events = joining.on_packet(now, (*side, packet), None, parses).map(begin),
                }
            });
        }
        // Only who was asked answers.
        let rewinder = args.events_repair;
        if events.is_none() {
            work += probes.0.poll(now, BURST_MAX, |datagram| {
                if events.is_none() && Some(datagram.source) == rewinder {
                    joining.hear_port(now);
                    *events = joining.on_answer(datagram.payload).map(begin);
                }
            });
            if events.is_none() {
                *events = joining.poll_unanswered(now, None).map(begin);
            }
            return work;
        }
        let Some(events) = events else { return work };
        work += repairs.0.poll(now, BURST_MAX, |datagram| {
            if Some(datagram.source) == rewinder {
                events.on_repair(now, datagram.payload);
            }
        });
        work += probes.0.poll(now, BURST_MAX, |datagram| {
            if Some(datagram.source) == rewinder {
                events.on_probed(now, datagram.payload);
            }
        });
        events.poll_events(now);
        work
    }

    /// Asks for what is missing, and whether there is anything.
    fn ask(&mut self) {
        let now = clock::monotonic_ns();
        let Some(rewinder) = self.args.events_repair else { return };
        let Some(events) = &mut self.events else {
            send(&mut self.probes.1, rewinder, || self.joining.poll_probe(now));
            return;
        };
        send(&mut self.repairs.1, rewinder, || events.poll_request(now));
        send(&mut self.probes.1, rewinder, || events.poll_probe(now));
    }

    /// Prints what has come, up to the `count`th.
    fn print(&mut self, count: u64) -> Result<(), Failure> {
        let Some(events) = &mut self.events else { return Ok(()) };
        for out in events.take() {
            if self.printed >= count {
                break;
            }
            let (number, bytes) = match out {
                Out::Event(number, bytes) => (number, bytes),
                Out::Refused(why) => return Err(Failure::failed(why)),
                other => {
                    print_word(&other, self.args.json)?;
                    continue;
                }
            };
            self.printed += 1;
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let text = self.service.describe_output(&bytes);
            match self.args.json {
                true => say!("{}", json::line(&Line { event: number, bytes: &hex, text })?)?,
                false => say!("event {number}  {}", text.unwrap_or(hex))?,
            }
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), Failure> {
        let counters = self.events.as_ref().map(Stream::counters).unwrap_or_default();
        let ArbiterCounters { sides: [a, b, repaired], repair, .. } = counters;
        let (taken_back, unproven) = self.events.as_ref().map(Stream::taken_back).unwrap_or_default();
        let last = Last {
            state: "stopped",
            next: self.events.as_ref().map_or(0, Stream::next_seq),
            epoch: self.events.as_ref().map_or(0, Stream::epoch),
            taken_back,
            unproven,
            events: self.printed,
            missing: self.events.as_ref().map_or(0, Stream::missing),
            requests: repair.requests,
            first_from_a: a.first,
            first_from_b: b.first,
            repaired: repaired.first,
        };
        if self.args.json {
            return say!("{}", json::line(&last)?);
        }
        let Last { next, epoch, events, missing, requests, first_from_a, first_from_b, repaired, .. } = last;
        let counts = match (taken_back, unproven) {
            (0, 0) => String::new(),
            _ => format!("{taken_back} taken back, unproven {unproven} times; "),
        };
        let cursor = if self.events.is_some() { format!("next is {next} of epoch {epoch}; ") } else { String::new() };
        say!(
            "{events} events: {cursor}{counts}{first_from_a} first from A, {first_from_b} from B, {repaired} repaired in {requests} requests; {missing} lost"
        )
    }
}

/// Prints a word about the feed.
fn print_word(word: &Out, json: bool) -> Result<(), Failure> {
    let (text, resync) = match word {
        Out::Notice(text) => (text.clone(), None),
        &Out::TakenBack { epoch, from, next } => (
            format!(
                "events {next} to {} were taken back: they were lost with epoch {epoch}, and others have their numbers",
                from - 1
            ),
            Some(("rewound", epoch, from, next)),
        ),
        &Out::Unproven { epoch, next } => (
            format!(
                "unproven: whether the events before {next}, of epoch {epoch}, still count nobody who was asked can tell"
            ),
            Some(("unproven", epoch, next, next)),
        ),
        Out::Event(..) | Out::Refused(_) => return Ok(()),
    };
    if !json {
        return say!("{text}");
    }
    let notice = resync.map_or(Notice { notice: &text, ..Notice::default() }, |(what, epoch, from, next)| {
        Notice::resync(&text, what, epoch, from, next)
    });
    say!("{}", json::line(&notice)?)
}

/// Sends requests as long as there is room. One that finds none has a deadline, and comes again.
fn send(tx: &mut UdpTx, to: SocketAddrV4, mut next: impl FnMut() -> Option<MoldRequest>) {
    while let Some(request) = next() {
        let bytes = request.encode();
        let Some(out) = tx.reserve() else { break };
        out[..bytes.len()].copy_from_slice(&bytes);
        tx.commit(bytes.len(), to);
    }
    tx.flush();
}
