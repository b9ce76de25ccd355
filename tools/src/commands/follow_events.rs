//! `ticktape follow --events`: prints what a service emits to everybody, each once and in order, until a signal.
//!
//! The first copy of A and B counts. What both lost is asked for, where there is somebody to ask; what nobody has any more, or nobody
//! can be asked for, is named and passed over.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use ticktape::Nanos;
use ticktape::config::{EventsConfig, FeedConfig};
use ticktape::feed::{ArbiterCounters, MoldRequest, Side, ask_log_identity, told_log_identity};
use ticktape::payload::Reign;
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, NicError, Rx, TimeOrigin, Tx, UdpConfig, UdpNic};
use ticktape_tuning::clock;

use super::follow_events_log::Came;
use super::follow_events_reign as reign;
use super::follow_events_sessions::Sessions;
use super::follow_events_stream::{Cursor, DATAGRAM_BYTES_MAX, SILENCE_NS, Stream};
use super::follow_events_words::{Out, hex, reign_hex};
use crate::args::{FeedPair, FollowArgs};
use crate::out::say;
use crate::service::{AnyService, find};
use crate::{Failure, json};

/// Datagrams taken from a socket before the others are looked at.
const BURST_MAX: usize = 64;
/// The wait when there is nothing new: a terminal's reader is in no hurry.
const PAUSE: Duration = Duration::from_micros(200);
/// How long it is looked for what a refused reign is of, in ns: many round trips.
const LOOK_NS: u64 = 300_000_000;

/// A line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    event: u64,
    bytes: &'a str,
    text: Option<String>,
}

/// The last line of `--json`.
#[derive(Serialize)]
struct Last {
    state: &'static str,
    next: u64,
    epoch: u32,
    /// Where the repair port told it.
    log: Option<String>,
    /// Of that epoch, where it told that.
    reign: Option<String>,
    events: u64,
    missing: u64,
    taken_back: u64,
    unproven: u64,
    requests: u64,
    first_from_a: u64,
    first_from_b: u64,
    repaired: u64,
}

/// A socket, and how far back what is read from it may have come.
struct Socket {
    rx: UdpRx,
    /// When there was nothing in it last.
    empty_at: Nanos,
}

impl Socket {
    fn new(rx: UdpRx) -> Self {
        Socket { rx, empty_at: clock::monotonic_ns() }
    }

    /// Takes what has come: when, from whom, and what.
    fn poll(&mut self, now: Nanos, mut take: impl FnMut(Came, SocketAddrV4, &[u8])) -> usize {
        let empty_at = self.empty_at;
        let work = self.rx.poll(now, BURST_MAX, |datagram| {
            let came = match datagram.origin {
                TimeOrigin::Poll => Came { after: empty_at.min(now), before: now },
                _ => Came::at(datagram.received),
            };
            take(came, datagram.source, datagram.payload);
        });
        if work == 0 {
            self.empty_at = now;
        }
        work
    }
}

/// The sockets, and what is known so far.
struct Receiver<'a> {
    args: &'a FollowArgs,
    service: &'a dyn AnyService,
    stream: u32,
    sides: Vec<(Side, Socket)>,
    repairs: (Socket, UdpTx),
    probes: (Socket, UdpTx),
    logs: (Socket, UdpTx),
    /// What is heard before a session of the stream is believed.
    joining: Sessions,
    /// Since then; nothing where it was said.
    joining_since: Option<Nanos>,
    /// From then on.
    events: Option<Stream>,
    printed: u64,
    /// The one that was printed last, where as many were as are wanted: more may have come.
    last: Option<u64>,
}

pub fn run(
    args: &FollowArgs,
    feed: FeedPair,
    stop: &AtomicBool,
    services: &[Box<dyn AnyService>],
) -> Result<(), Failure> {
    let mut receiver = Receiver::open(args, feed, find(services, args.service.as_deref())?)?;
    let sides = sides_name(feed);
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
        receiver.tell_waiting(&sides)?;
        receiver.print(count)?;
        if work == 0 {
            std::thread::sleep(PAUSE);
        }
    }
    receiver.finish()
}

fn sides_name(feed: FeedPair) -> String {
    feed.b.map_or_else(|| feed.a.to_string(), |b| format!("{} and {b}", feed.a))
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
            let nic = UdpNic::open(&udp).map_err(|error: NicError| Failure::usage(format!("--events {side}: {error}")));
            nic.map(|nic| {
                let (rx, tx) = nic.split();
                (Socket::new(rx), tx)
            })
        };
        let mut sides = vec![(Side::A, open(feed.a)?.0)];
        if let Some(b) = feed.b {
            sides.push((Side::B, open(b)?.0));
        }
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let (repairs, probes, logs) = (open(any)?, open(any)?, open(any)?);
        let stream = config.stream();
        let joining = Sessions::new(stream, args.events_repair.is_some());
        let joining_since = Some(clock::monotonic_ns());
        Ok(Receiver {
            args,
            service,
            stream,
            sides,
            repairs,
            probes,
            logs,
            joining,
            joining_since,
            events: None,
            last: None,
            printed: 0,
        })
    }

    /// Takes what has come.
    fn receive(&mut self) -> usize {
        let now = clock::monotonic_ns();
        let Receiver { args, service, sides, probes, joining, events, .. } = self;
        let FollowArgs { from, from_epoch: epoch, from_log: log_id, from_reign: reign, .. } = **args;
        let cursor = Cursor { from, epoch, log_id, reign };
        let begin = |found| Stream::begin(now, &found, cursor, args.events_repair.is_some());
        let parses = |event: &[u8]| service.describe_output(event).is_some();
        let mut work = 0;
        for (side, socket) in sides {
            work += socket.poll(now, |came, _, packet| match events {
                Some(events) => events.on_packet(now, came, *side, packet, parses),
                // There is none to be heard beside it.
                None => *events = joining.on_packet(now, (*side, packet), None, parses).map(begin),
            });
        }
        // Only who was asked answers.
        let rewinder = args.events_repair;
        if events.is_none() {
            work += probes.0.poll(now, |_, source, answer| {
                if events.is_none() && Some(source) == rewinder {
                    joining.hear_port(now);
                    *events = joining.on_answer(answer).map(begin);
                }
            });
            if events.is_none() {
                *events = joining.poll_unanswered(now, None).map(begin);
            }
            return work;
        }
        work + self.receive_answers(now)
    }

    /// Takes what has come from the repair port.
    fn receive_answers(&mut self, now: Nanos) -> usize {
        let Receiver { args, repairs, probes, logs, events, .. } = self;
        let Some(events) = events else { return 0 };
        let is_port = |source| Some(source) == args.events_repair;
        let mut work = logs.0.poll(now, |_, source, answer| {
            if is_port(source) {
                events.on_log(now, answer);
            }
        });
        work += repairs.0.poll(now, |came, source, answer| {
            if is_port(source) {
                events.on_repair(now, came, answer);
            }
        });
        work += probes.0.poll(now, |came, source, answer| {
            if is_port(source) {
                events.on_probed(now, came, answer);
            }
        });
        events.poll_events(now);
        work
    }

    /// Asks for what is missing, whether there is anything, and of which log it is.
    fn ask(&mut self) {
        let now = clock::monotonic_ns();
        let Some(rewinder) = self.args.events_repair else { return };
        let Some(events) = &mut self.events else {
            send(&mut self.probes.1, rewinder, || self.joining.poll_probe(now));
            return;
        };
        send(&mut self.logs.1, rewinder, || events.poll_log(now));
        send(&mut self.repairs.1, rewinder, || events.poll_request(now));
        send(&mut self.probes.1, rewinder, || events.poll_probe(now));
    }

    /// Says once what is waited for, where that takes long.
    fn tell_waiting(&mut self, sides: &str) -> Result<(), Failure> {
        let now = clock::monotonic_ns();
        let is_long = |since: &mut Nanos| now.saturating_sub(*since) >= SILENCE_NS;
        if self.events.is_some() || self.joining_since.take_if(is_long).is_none() {
            return Ok(());
        }
        Out::Notice(self.joining.waits_for(sides, self.args.events_repair)).say(self.args.json)
    }

    /// Prints what has come, up to the `count`th.
    fn print(&mut self, count: u64) -> Result<(), Failure> {
        let Some(events) = &mut self.events else { return Ok(()) };
        let outs: Vec<Out> = events.take().collect();
        for out in outs {
            if self.printed >= count {
                break;
            }
            let (number, bytes) = match out {
                Out::Event(number, bytes) => (number, bytes),
                Out::Refused(why) => return Err(Failure::failed(why)),
                other @ (Out::OtherLog { .. } | Out::OtherHistory { .. }) => return self.leave_log(&other),
                Out::Beyond { .. } => {
                    eprintln!("ticktape: {}", out.text());
                    if self.args.json {
                        out.say(true)?;
                    }
                    continue;
                }
                other => {
                    other.say(self.args.json)?;
                    continue;
                }
            };
            self.printed += 1;
            self.last = (self.printed == count).then_some(number);
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let text = self.service.describe_output(&bytes);
            match self.args.json {
                true => say!("{}", json::line(&Line { event: number, bytes: &hex, text })?)?,
                false => say!("event {number}  {}", text.unwrap_or(hex))?,
            }
        }
        Ok(())
    }

    /// The repair port serves another log, or another history of it: what was printed ends here; where nothing was, it is begun with that one.
    fn leave_log(&mut self, word: &Out) -> Result<(), Failure> {
        if let (Out::OtherHistory { ours, theirs, next }, 0, Some(_)) = (word, self.printed, self.args.from_reign) {
            let present = self.events.as_ref().map_or(0, Stream::present_epoch);
            let found = self.epoch_of(ours.id, present);
            return Err(Failure::failed(reign::refusal(*next, *ours, *theirs, found, present)));
        }
        if let (Out::OtherLog { theirs, next, .. }, 0, Some(log_id)) = (word, self.printed, self.args.from_log) {
            let theirs = hex(*theirs);
            return Err(Failure::failed(format!(
                "--from {next} of log {}: CursorUnproven, as the repair port serves log {theirs}: the events before it are none of that one; \
                 begin from its state as it is, without --from-log and --from-epoch",
                hex(log_id)
            )));
        }
        if self.printed > 0 {
            if self.args.json {
                word.say(true)?;
            }
            self.finish()?;
            return Err(Failure::failed(word.text()));
        }
        let now = match word {
            Out::OtherLog { theirs, .. } => hex(*theirs),
            Out::OtherHistory { theirs, .. } => format!("reign {} of epoch {}", reign_hex(*theirs), theirs.epoch),
            _ => return Ok(()),
        };
        Out::Notice(format!("the log is another now, {now}; nothing was printed of the one before"))
            .say(self.args.json)?;
        self.joining = Sessions::new(self.stream, self.args.events_repair.is_some());
        (self.joining_since, self.events) = (Some(clock::monotonic_ns()), None);
        Ok(())
    }

    /// The epoch whose reign this is in the log that the repair port serves, as far as it tells.
    fn epoch_of(&mut self, id: u64, present: u32) -> Option<u64> {
        let Receiver { args, stream, logs: (socket, tx), .. } = self;
        let rewinder = args.events_repair?;
        let mut asked = reign::asked(present);
        let until = clock::monotonic_ns().saturating_add(LOOK_NS);
        send(tx, rewinder, || asked.next().map(|epoch| ask_log_identity(*stream, epoch)));
        let (mut found, mut now) = (None, clock::monotonic_ns());
        while found.is_none() && now < until {
            let work = socket.poll(now, |_, source, answer| {
                let told = told_log_identity(*stream, answer).filter(|_| source == rewinder);
                let is_it = |reign: &Reign| reign.id == id;
                found = found.or_else(|| told?.reign.filter(is_it).map(|reign| reign.epoch));
            });
            if work == 0 {
                std::thread::sleep(PAUSE);
            }
            now = clock::monotonic_ns();
        }
        found
    }

    fn finish(&self) -> Result<(), Failure> {
        let counters = self.events.as_ref().map(Stream::counters).unwrap_or_default();
        let ArbiterCounters { sides: [a, b, repaired], repair, .. } = counters;
        let (taken_back, unproven) = self.events.as_ref().map(Stream::taken_back).unwrap_or_default();
        let last = Last {
            state: "stopped",
            next: self.last.map_or_else(|| self.events.as_ref().map_or(0, Stream::next_seq), |last| last + 1),
            epoch: self.events.as_ref().map_or(0, Stream::epoch),
            log: self.events.as_ref().and_then(Stream::log_id).map(hex),
            reign: self.events.as_ref().and_then(Stream::reign).map(hex),
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
        let Last { next, epoch, log, reign, events, missing, requests, first_from_a, first_from_b, repaired, .. } =
            last;
        let counts = match (taken_back, unproven) {
            (0, 0) => String::new(),
            _ => format!("{taken_back} taken back, unproven {unproven} times; "),
        };
        let log = log.map_or_else(String::new, |log| format!(" of log {log}"));
        let reign = reign.map_or_else(String::new, |reign| format!(" and reign {reign}"));
        let cursor = if self.events.is_some() {
            format!("next is {next} of epoch {epoch}{log}{reign}; ")
        } else {
            String::new()
        };
        say!(
            "{events} events: {cursor}{counts}{first_from_a} first from A, {first_from_b} from B, {repaired} repaired in {requests} requests; {missing} lost"
        )
    }
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
