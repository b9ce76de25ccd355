//! Captures made up packet by packet: reigns, public events, timers.

use std::net::SocketAddrV4;

use ticktape::feed::{FeedSession, Packer};
use ticktape::link::{EventMessage, Hello, Identity, Packet, Sender, SenderConfig, Tier, Welcome};
use ticktape::machine::{Machine, Progress, StepLimits};
use ticktape::payload::{EpochChange, Origin, encode_session_open};
use ticktape::{Ctx, Encode, Frame, Kind, Seq, Service, SessionId, Target, TimerId, Timestamp};

use super::driver::{Driver, Halt, Summary};
use super::egress::Stream;
use super::rig::RigError;
use crate::capture::{Datagram, Interface, Resolution};
use crate::links::{Handed, Links};
use crate::service::{AnyService, ServiceEntry, ServiceOptions};

const SESSION: u64 = 7;
const MS: u64 = 1_000_000;

/// Answers each number, and tells everybody the sum so far; after a hundred also when 5 ms have passed.
struct Sum(i64);

impl Service for Sum {
    type Input = i64;
    type Output = i64;
    type Snapshot = i64;
    type Config = ();

    const NAME: &'static str = "sum";

    fn genesis((): &()) -> Self {
        Sum(0)
    }

    fn apply(&mut self, _: Seq, input: &i64, ctx: &mut Ctx<'_, i64>) {
        self.0 += input;
        ctx.emit(self.0);
        ctx.reply(*input);
        if *input == 100 {
            ctx.set_timer(TimerId(1), Timestamp(ctx.now().0 + 5 * MS));
        }
    }

    fn on_timer(&mut self, _: TimerId, ctx: &mut Ctx<'_, i64>) {
        ctx.emit(-1);
    }

    fn snapshot(&self) -> i64 {
        self.0
    }

    fn restore(value: i64, (): &()) -> Self {
        Sum(value)
    }
}

/// A capture in the making: the log as it was, and the packets that tell of it.
struct Capture {
    machine: Machine<Sum>,
    epoch: u32,
    session: u64,
    time_ns: u64,
    packets: Vec<(u64, &'static str, &'static str, Vec<u8>)>,
}

impl Capture {
    fn new() -> Self {
        let machine = Machine::genesis(&(), StepLimits::default());
        Capture { machine, epoch: 0, session: SESSION, time_ns: 1_000 * MS, packets: Vec::new() }
    }

    fn packet(&mut self, from: &'static str, to: &'static str, payload: Vec<u8>) {
        self.packets.push((self.time_ns, from, to, payload));
    }

    /// A frame, on the feed, and what it makes, on the link and among the public events.
    fn frame(&mut self, kind: Kind, payload: &[u8]) {
        self.time_ns += MS;
        let seq = self.machine.applied().next();
        let frame = Frame { seq, timestamp: Timestamp(self.time_ns), stream_id: 2, kind, payload };
        let mut bytes = Vec::new();
        frame.append_to(&mut bytes);
        let feed = mold(1, self.epoch, seq.0, &bytes);
        self.packet("10.0.0.1:9", "239.1.1.1:7100", feed);
        loop {
            let progress = self.machine.step(&frame).unwrap();
            let made: Vec<_> = self
                .machine
                .outputs(seq)
                .map(|output| (output.target, output.event_seq, output.client_seq, output.bytes.to_vec()))
                .collect();
            for (target, number, client_seq, bytes) in made {
                if target == Target::Feed {
                    let event = mold(2, self.epoch, number, &bytes);
                    self.packet("10.0.0.1:9", "239.1.1.2:7200", event);
                } else {
                    let message = [&EventMessage::head(seq.0, client_seq)[..], &bytes].concat();
                    let data = self.data(number, &message);
                    self.packet("10.0.0.1:7001", "10.0.0.2:5000", data);
                }
            }
            if progress == Progress::Applied {
                break;
            }
        }
    }

    fn identity(&self) -> Identity {
        Identity { session: self.session, client_epoch: 1, appliance_epoch: self.epoch }
    }

    fn data(&self, number: u64, message: &[u8]) -> Vec<u8> {
        let mut sender = Sender::new(self.identity(), number, &SenderConfig::default());
        sender.set_window(16);
        sender.push(message).unwrap();
        let mut bytes = vec![0; 1472];
        let len = sender.poll_transmit(0, &mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    }

    fn reign(&mut self, epoch: u32) {
        self.epoch = epoch;
        let change = EpochChange {
            epoch: epoch.into(),
            schema_version: Sum::SCHEMA_VERSION,
            service_name: Sum::NAME,
            ..EpochChange::default()
        };
        self.frame(Kind::EpochChange, &change.encode());
    }

    fn hello(&mut self) {
        self.says_hello();
        self.frame(Kind::SessionOpen, &encode_session_open(SessionId(self.session), 1, 1));
    }

    /// The packet alone, as after a restart of the appliance.
    fn says_hello(&mut self) {
        let hello = Hello {
            nonce: 1,
            resume_next: 1,
            first_seq: 1,
            window: 100,
            datagram_bytes_max: 1472,
            schema: Sum::SCHEMA_VERSION,
            is_resumed: false,
        };
        let mut bytes = vec![0; 1472];
        let len = Packet::Hello(hello).encode(&self.identity(), &mut bytes).unwrap();
        bytes.truncate(len);
        self.packet("10.0.0.2:5000", "10.0.0.1:7001", bytes);
    }

    /// The appliance has the session's inputs before `received_next`, and its events before `next_event`.
    fn welcome(&mut self, received_next: u64, next_event: u64) {
        let welcome = Welcome {
            nonce: 1,
            committed_next: received_next,
            received_next,
            first_event: next_event,
            next_event,
            window: 100,
            datagram_bytes_max: 1472,
            schema: Sum::SCHEMA_VERSION,
            tier: Tier::Local,
        };
        let mut bytes = vec![0; 1472];
        let len = Packet::Welcome(welcome).encode(&self.identity(), &mut bytes).unwrap();
        bytes.truncate(len);
        self.packet("10.0.0.1:7001", "10.0.0.2:5000", bytes);
    }

    fn input(&mut self, client_seq: u64, number: i64) {
        self.sends(client_seq, number);
        self.sequences(client_seq, number);
    }

    fn sends(&mut self, client_seq: u64, number: i64) {
        let data = self.data(client_seq, &number.to_bytes());
        self.packet("10.0.0.2:5000", "10.0.0.1:7001", data);
    }

    fn sequences(&mut self, client_seq: u64, number: i64) {
        let origin = Origin { session: SessionId(self.session), client_epoch: 1, client_seq };
        self.frame(Kind::SessionInput, &[&origin.encode()[..], &number.to_bytes()].concat());
    }

    /// Without the feed of the log.
    fn links_alone(mut self) -> Self {
        self.packets.retain(|packet| packet.2 != "239.1.1.1:7100");
        self
    }

    /// Without the packet of this input.
    fn without_input(mut self, client_seq: u64, number: i64) -> Self {
        let (data, all) = (self.data(client_seq, &number.to_bytes()), self.packets.len());
        self.packets.retain(|packet| packet.3 != data);
        assert_eq!(self.packets.len(), all - 1);
        self
    }

    /// Two looks at it, as the command takes them.
    fn replay(&self, until: Option<u64>) -> Summary {
        let service = ServiceEntry::<Sum>::new("sum", (), ServiceOptions::default());
        let mut known = Links::new(None);
        self.each(&mut known, &mut |_, _| {});
        let mut driver = Driver::new(&known, &service, service.rig());
        driver.set_last(until.map_or(Seq::MAX, Seq));
        self.each(&mut Links::again(&known), &mut |time_ns, handed| {
            driver.on_time(time_ns);
            driver.on_handed(&handed);
        });
        driver.finish()
    }

    fn each(&self, links: &mut Links, on_handed: &mut dyn FnMut(Option<u64>, Handed<'_>)) {
        let interface = Interface {
            link_type: 1,
            snap_bytes: 0,
            name: String::new(),
            description: String::new(),
            resolution: Resolution::NANOSECONDS,
            offset_s: 0,
        };
        let address = |text: &str| text.parse::<SocketAddrV4>().unwrap();
        for (index, (time_ns, from, to, payload)) in (1..).zip(&self.packets) {
            let (source, destination, time_ns) = (address(from), address(to), Some(*time_ns));
            let (interface, direction) = (&interface, None);
            let datagram =
                Datagram { index, at: 0, number: 0, interface, direction, time_ns, source, destination, payload };
            links.on_datagram(&datagram, |handed| on_handed(time_ns, handed));
        }
        links.finish(self.packets.len() as u64, |handed| on_handed(None, handed));
    }
}

fn mold(stream: u32, epoch: u32, number: u64, message: &[u8]) -> Vec<u8> {
    let mut packer = Packer::new(FeedSession::new(stream, epoch).unwrap().encode(), number, 1472);
    assert!(packer.push(message));
    packer.packet().to_vec()
}

/// Two reigns, a timer, and a tick for it.
fn two_reigns() -> Capture {
    let mut capture = Capture::new();
    capture.reign(1);
    capture.hello();
    capture.input(1, 5);
    capture.input(2, 100);
    capture.time_ns += 10 * MS;
    capture.frame(Kind::Tick, &[]);
    capture.reign(3);
    capture.input(3, 6);
    capture
}

#[test]
fn reigns_ticks_and_public_events_are_replayed_and_compared() {
    let capture = two_reigns();
    let Summary { halt, seq, digest, egress, commands, commands_from_feed, .. } = capture.replay(None);
    assert_eq!((halt, seq, digest), (None, capture.machine.applied(), Some(capture.machine.digest())));
    // Three answers, three sums, and the timer's word.
    assert_eq!((egress.compared, egress.different, egress.not_captured, egress.outside), (7, 0, 0, 0));
    assert_eq!((commands, commands_from_feed), (3, 0));
}

#[test]
fn a_public_event_that_differs_is_named_and_one_too_many_too() {
    let mut capture = two_reigns();
    capture.packets.push((capture.time_ns, "10.0.0.1:9", "239.1.1.2:7200", mold(2, 3, 5, &9_i64.to_bytes())));
    let summary = capture.replay(None);
    let first = summary.first_difference.unwrap();
    assert_eq!((first.stream, first.number, first.ours), (Stream::Public, 5, None));
    assert_eq!((summary.egress.compared, summary.egress.different), (7, 1));

    let mut capture = two_reigns();
    let second = mold(2, 1, 2, &105_i64.to_bytes());
    let packet = capture.packets.iter_mut().find(|packet| packet.3 == second).unwrap();
    packet.3 = mold(2, 1, 2, &106_i64.to_bytes());
    let first = capture.replay(None).first_difference.unwrap();
    assert_eq!((first.stream, first.number), (Stream::Public, 2));
    assert_eq!((first.ours, first.theirs), (Some(105_i64.to_bytes()), 106_i64.to_bytes()));
}

#[test]
fn a_replay_that_ends_early_calls_nothing_beyond_a_difference() {
    let summary = two_reigns().replay(Some(3));
    let egress = summary.egress;
    assert_eq!((summary.halt, summary.seq, summary.first_difference), (None, Seq(3), None));
    assert_eq!((egress.compared, egress.outside, egress.not_captured), (2, 5, 0));
}

#[test]
fn what_a_later_reign_took_back_ends_the_replay_by_name() {
    let mut capture = two_reigns();
    let feed: Vec<_> = capture.packets.iter().map(|packet| packet.3.clone()).collect();
    let mut other = Capture::new();
    other.reign(1);
    other.hello();
    other.input(1, 5);
    other.reign(9);
    let reign = other.packets.pop().unwrap();
    assert!(!feed.contains(&reign.3));
    capture.packets.push((capture.time_ns, reign.1, reign.2, reign.3));
    let summary = capture.replay(None);
    assert_eq!(summary.halt, Some(Halt::TakenBack { seq: Seq(4), epoch: 9 }));
    assert_eq!((summary.seq, summary.egress.different), (capture.machine.applied(), 0));
}

#[test]
fn a_reign_that_is_not_its_feeds_or_comes_twice_ends_the_replay() {
    for epoch in [1, 2] {
        let mut capture = Capture::new();
        capture.reign(1);
        let change = EpochChange {
            epoch,
            schema_version: Sum::SCHEMA_VERSION,
            service_name: Sum::NAME,
            ..EpochChange::default()
        };
        capture.frame(Kind::EpochChange, &change.encode());
        let summary = capture.replay(None);
        assert_eq!((summary.halt, summary.seq), (Some(Halt::Rig(RigError::NoReign(Seq(2)))), Seq(1)));
    }
}

/// The sequencer stamps by the packets' times, and ticks when a timer is due.
#[test]
fn without_a_feed_the_packets_are_the_order_and_timers_fire_by_their_times() {
    let mut capture = Capture::new();
    capture.reign(1);
    capture.hello();
    capture.welcome(1, 1);
    capture.input(1, 100);
    capture.time_ns += 10 * MS;
    capture.input(2, 5);
    let capture = capture.links_alone();
    let summary = capture.replay(None);
    assert_eq!((summary.has_feed, summary.halt, summary.first_difference), (false, None, None));
    assert_eq!((summary.egress.compared, summary.egress.not_captured), (5, 0));
    assert_eq!((summary.commands, summary.digest), (2, Some(capture.machine.digest())));
}

/// Both clients' answers were let out at tier `memory`, then the appliance lost the second input of one: it is sent again, after the other's.
#[test]
fn without_a_feed_what_a_restart_lost_is_replayed_as_it_was_taken_in_the_end() {
    let mut capture = Capture::new();
    capture.reign(1);
    capture.hello();
    capture.welcome(1, 1);
    capture.session = SESSION + 1;
    capture.hello();
    capture.welcome(1, 1);
    capture.input(1, 40);
    capture.session = SESSION;
    capture.input(1, 5);
    let lost = capture.machine.applied().0 + 1;
    capture.sends(2, 6);
    let answer = [&EventMessage::head(lost, 2)[..], &6_i64.to_bytes()].concat();
    let answer = capture.data(2, &answer);
    capture.packet("10.0.0.1:7001", "10.0.0.2:5000", answer);
    capture.packet("10.0.0.1:9", "239.1.1.2:7200", mold(2, 1, 3, &51_i64.to_bytes()));
    capture.reign(2);
    capture.session = SESSION + 1;
    capture.says_hello();
    capture.welcome(2, 2);
    capture.input(2, 70);
    capture.session = SESSION;
    capture.says_hello();
    capture.welcome(2, 2);
    capture.input(2, 6);
    let capture = capture.links_alone();
    let summary = capture.replay(None);
    assert_eq!((summary.halt, summary.first_difference), (None, None));
    assert_eq!((summary.commands, summary.lost, summary.digest), (4, 1, Some(capture.machine.digest())));
    // Four answers and four sums; the answer and the sum that were lost are compared with nothing.
    let egress = summary.egress;
    assert_eq!((egress.compared, egress.outside, egress.not_captured, egress.out_of_order), (8, 2, 0, 0));
}

#[test]
fn without_a_feed_a_replay_goes_as_far_as_no_input_is_missing() {
    let three = || {
        let mut capture = Capture::new();
        capture.reign(1);
        capture.hello();
        capture.welcome(1, 1);
        (1..4).for_each(|number| capture.input(number, 2 * number as i64));
        capture.links_alone()
    };
    let summary = three().without_input(2, 4).replay(None);
    let missing = Halt::MissingInput { session: SESSION, client_epoch: 1, client_seq: 2 };
    assert_eq!((summary.halt, summary.first_difference, summary.commands), (Some(missing), None, 1));
    assert_eq!((summary.egress.compared, summary.egress.outside), (2, 4));
    let first = three().without_input(1, 2).replay(None);
    assert_eq!((first.commands, first.egress.compared, first.egress.different), (0, 0, 0));
    assert!(first.halt.unwrap().to_string().starts_with("input 1 of session 7, client epoch 1, is missing"));
    // Nothing but its result tells of the last.
    let last = three().without_input(3, 6).replay(None);
    assert_eq!((last.halt, last.first_difference, last.commands), (None, None, 2));
    assert_eq!((last.egress.compared, last.egress.outside), (4, 2));
}

#[test]
fn without_a_feed_another_order_than_the_packets_is_noticed() {
    let mut capture = Capture::new();
    capture.reign(1);
    capture.hello();
    capture.welcome(1, 1);
    capture.session = SESSION + 1;
    capture.hello();
    capture.welcome(1, 1);
    capture.sends(1, 6);
    capture.session = SESSION;
    capture.input(1, 5);
    capture.session = SESSION + 1;
    capture.sequences(1, 6);
    let summary = capture.links_alone().replay(None);
    assert_eq!((summary.egress.out_of_order, summary.egress.different), (1, 1));
    assert_eq!(summary.first_difference.unwrap().stream, Stream::Public);
}
