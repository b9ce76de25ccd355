//! `ticktape follow --events`: prints what a service emits to everybody, each once and in order, until a signal.
//!
//! The first copy of A and B counts. What both lost is asked for, where there is somebody to ask; what nobody has any more, or nobody
//! can be asked for, is named and passed over.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use ticktape::config::{EventsConfig, FeedConfig};
use ticktape::feed::{Arbiter, ArbiterConfig, ArbiterCounters, FeedEvent, FeedSession, MoldPacket, Side};
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, NicError, Rx, Tx, UdpConfig, UdpNic};
use ticktape_tuning::clock;

use crate::args::{FeedPair, FollowArgs};
use crate::out::say;
use crate::service::{AnyService, find};
use crate::{Failure, json};

/// Datagrams taken from a socket before the others are looked at.
const BURST_MAX: usize = 64;
/// The wait when there is nothing new: a terminal's reader is in no hurry.
const PAUSE: Duration = Duration::from_micros(200);
/// The largest datagram that carries events: a jumbo frame.
const DATAGRAM_BYTES_MAX: usize = 8_972;
/// Events that may wait for those before them, and be repaired at a time. Memory for as many of the largest is asked for, and little
/// of it touched.
const WINDOW_EVENTS: usize = 1 << 15;

/// A line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    event: u64,
    bytes: &'a str,
    text: Option<String>,
}

/// A word about the feed.
#[derive(Serialize)]
struct Notice<'a> {
    notice: &'a str,
}

/// The last line of `--json`.
#[derive(Serialize)]
struct Last {
    state: &'static str,
    next: u64,
    events: u64,
    missing: u64,
    requests: u64,
    first_from_a: u64,
    first_from_b: u64,
    repaired: u64,
}

/// The sockets, and what is known so far.
struct Receiver<'a> {
    args: &'a FollowArgs,
    service: &'a dyn AnyService,
    stream: u32,
    sides: Vec<(Side, UdpRx)>,
    repairs: (UdpRx, UdpTx),
    /// From the first packet of the stream on.
    arbiter: Option<Arbiter>,
    /// In order, to be printed.
    events: Vec<(u64, Vec<u8>)>,
    printed: u64,
    missing: u64,
}

pub fn run(
    args: &FollowArgs,
    feed: FeedPair,
    stop: &AtomicBool,
    services: &[Box<dyn AnyService>],
) -> Result<(), Failure> {
    let mut receiver = Receiver::open(args, feed, find(services, args.service.as_deref())?)?;
    if !args.json {
        let sides = feed.b.map_or_else(|| feed.a.to_string(), |b| format!("{} and {b}", feed.a));
        let repair = args.events_repair.map_or_else(|| "no repairs".to_string(), |at| format!("repairs from {at}"));
        say!("events of {} on {sides}, {repair}", receiver.service.name())?;
    }
    let count = args.count.unwrap_or(u64::MAX);
    while !stop.load(Ordering::Relaxed) && receiver.printed < count {
        let work = receiver.receive();
        receiver.ask();
        receiver.notices()?;
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
        let repairs = open(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?.split();
        let (stream, events) = (config.stream(), Vec::new());
        Ok(Receiver { args, service, stream, sides, repairs, arbiter: None, events, printed: 0, missing: 0 })
    }

    /// Takes what has come.
    fn receive(&mut self) -> usize {
        let now = clock::monotonic_ns();
        let Receiver { args, stream, sides, repairs, arbiter, events, .. } = self;
        let mut deliver = |number: u64, event: &[u8]| {
            events.push((number, event.to_vec()));
            true
        };
        let mut work = 0;
        for (side, rx) in sides {
            work += rx.poll(now, BURST_MAX, |datagram| {
                if arbiter.is_none() {
                    *arbiter = begin(args, *stream, datagram.payload);
                }
                if let Some(arbiter) = arbiter {
                    arbiter.on_packet(now, *side, datagram.payload, &mut deliver);
                }
            });
        }
        let Some(arbiter) = arbiter else { return work };
        // Only who was asked answers.
        let rewinder = args.events_repair;
        work += repairs.0.poll(now, BURST_MAX, |datagram| {
            if Some(datagram.source) == rewinder {
                arbiter.on_packet(now, Side::Repair, datagram.payload, &mut deliver);
            }
        });
        arbiter.poll_deliver(now, &mut deliver);
        work
    }

    /// Asks for what is missing.
    fn ask(&mut self) {
        let now = clock::monotonic_ns();
        let (Some(arbiter), Some(rewinder)) = (&mut self.arbiter, self.args.events_repair) else { return };
        let tx = &mut self.repairs.1;
        while let Some((_, request)) = arbiter.poll_request(now) {
            let bytes = request.encode();
            // One that finds no room has a deadline, and comes again.
            let Some(out) = tx.reserve() else { break };
            out[..bytes.len()].copy_from_slice(&bytes);
            tx.commit(bytes.len(), rewinder);
        }
        tx.flush();
    }

    /// Says what is up with the feed, and passes over what nobody has.
    fn notices(&mut self) -> Result<(), Failure> {
        let now = clock::monotonic_ns();
        if self.args.events_repair.is_none()
            && let Some(arbiter) = &mut self.arbiter
        {
            // Gaps become due; nobody can be asked, so they are given up at once.
            while arbiter.poll_request(now).is_some() {}
        }
        while let Some(event) = self.arbiter.as_mut().and_then(|arbiter| arbiter.poll_event(now)) {
            // What came in order before is printed before.
            self.print(u64::MAX)?;
            let Some(arbiter) = &mut self.arbiter else { break };
            let notice = match event {
                FeedEvent::Unrepairable { from, count } => {
                    let next = from.saturating_add(count);
                    arbiter.skip_to(next);
                    self.missing += count;
                    format!("events {from} to {} are lost: nobody who was asked has them", next - 1)
                }
                FeedEvent::NewSession { epoch, from } => {
                    arbiter.adopt_session(epoch);
                    format!("epoch {epoch} begins with event {from}")
                }
                FeedEvent::EndOfSession { next } => format!("the appliance has stopped; event {next} would be next"),
                FeedEvent::Silent { for_ns } => format!("nothing was heard for {} s", for_ns / 1_000_000_000),
            };
            match self.args.json {
                true => say!("{}", json::line(&Notice { notice: &notice })?)?,
                false => say!("{notice}")?,
            }
        }
        Ok(())
    }

    /// Prints what has come, up to the `count`th.
    fn print(&mut self, count: u64) -> Result<(), Failure> {
        let count = count.min(self.args.count.unwrap_or(u64::MAX));
        for (number, bytes) in self.events.drain(..) {
            if self.printed >= count {
                break;
            }
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
        let counters = self.arbiter.as_ref().map(Arbiter::counters).unwrap_or_default();
        let ArbiterCounters { sides: [a, b, repaired], repair, .. } = counters;
        let last = Last {
            state: "stopped",
            next: self.arbiter.as_ref().map_or(0, Arbiter::next_seq),
            events: self.printed,
            missing: self.missing,
            requests: repair.requests,
            first_from_a: a.first,
            first_from_b: b.first,
            repaired: repaired.first,
        };
        if self.args.json {
            return say!("{}", json::line(&last)?);
        }
        let Last { events, missing, requests, first_from_a, first_from_b, repaired, .. } = last;
        say!(
            "{events} events: {first_from_a} first from A, {first_from_b} from B, {repaired} repaired in {requests} requests; {missing} lost"
        )
    }
}

/// The arbiter, once a packet of the stream has told where that is.
fn begin(args: &FollowArgs, stream: u32, packet: &[u8]) -> Option<Arbiter> {
    let (session, sequence) = match MoldPacket::parse(packet).ok()? {
        MoldPacket::Messages { session, sequence, .. }
        | MoldPacket::Heartbeat { session, sequence }
        | MoldPacket::EndOfSession { session, sequence } => (FeedSession::parse(session).ok()?, sequence),
    };
    (session.stream() == stream).then(|| {
        Arbiter::new(&ArbiterConfig {
            stream,
            epoch_min: session.epoch(),
            next_seq: args.from.unwrap_or(sequence),
            window_messages: WINDOW_EVENTS,
            message_bytes_max: DATAGRAM_BYTES_MAX,
            rewinders: usize::from(args.events_repair.is_some()),
            ..ArbiterConfig::default()
        })
    })
}
