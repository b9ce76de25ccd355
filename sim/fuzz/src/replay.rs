//! Captures of real flows, damaged and shuffled, through the stages of a replay: it ends, asks for no more memory than they are worth, names
//! what is missing, and finds no difference where nothing but packets was lost.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::OnceLock;

use ticktape::feed::{FeedSession, Packer};
use ticktape::link::{Ack, EventMessage, Hello, Identity, Packet, Sender, SenderConfig, Tier, Welcome};
use ticktape::machine::{Machine, Progress, StepLimits};
use ticktape::payload::{EpochChange, Origin, encode_session_open};
use ticktape::{Ctx, Encode, Frame, Kind, Seq, Service, SessionId, Target, TimerId, Timestamp};
use ticktape_tools::capture::{Datagram, Interface, Resolution};
use ticktape_tools::links::{Figures, Handed, Links};
use ticktape_tools::replay::{OnDatagram, Summary, replay};

use super::Seeds;
use super::input::{Input, Script};

const MS: u64 = 1_000_000;

/// How far a packet is moved by what a recorder with several taps may do.
const NEAR: usize = 8;

/// Packets that a script may make of a flow's.
const PACKETS_MAX: usize = 256;

/// Tells everybody the sum and each caller its own number; after a multiple of ten also when 5 ms have passed.
struct Tally(i64);

impl Service for Tally {
    type Input = i64;
    type Output = i64;
    type Snapshot = i64;
    type Config = ();

    const NAME: &'static str = "tally";

    fn genesis((): &()) -> Self {
        Tally(0)
    }

    fn apply(&mut self, _: Seq, input: &i64, ctx: &mut Ctx<'_, i64>) {
        self.0 = self.0.wrapping_mul(31).wrapping_add(*input);
        ctx.emit(self.0);
        ctx.reply(*input);
        if input % 10 == 0 {
            ctx.set_timer(TimerId(1), Timestamp(ctx.now().0.saturating_add(5 * MS)));
        }
    }

    fn on_timer(&mut self, _: TimerId, ctx: &mut Ctx<'_, i64>) {
        ctx.emit(-1);
    }

    fn snapshot(&self) -> i64 {
        self.0
    }

    fn restore(value: i64, (): &()) -> Self {
        Tally(value)
    }
}

/// A packet of a flow.
#[derive(Clone)]
struct Captured {
    time_ns: u64,
    source: SocketAddrV4,
    destination: SocketAddrV4,
    payload: Vec<u8>,
    /// Inputs that it carries, while its bytes are its own.
    inputs: Option<(u64, u64)>,
}

impl Captured {
    /// Links have checksums: damage is noticed.
    fn is_link(&self) -> bool {
        self.source == appliance() || self.destination == appliance()
    }
}

fn at(host: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), port)
}

fn appliance() -> SocketAddrV4 {
    at(1, 7001)
}

/// A flow in the making: the log as it was, and what a capture beside the appliance has of it.
struct Flow {
    machine: Machine<Tally>,
    epoch: u32,
    session: u64,
    time_ns: u64,
    packets: Vec<Captured>,
}

impl Flow {
    fn new() -> Self {
        let machine = Machine::genesis(&(), StepLimits::default());
        Flow { machine, epoch: 0, session: 1, time_ns: 1_000 * MS, packets: Vec::new() }
    }

    fn packet(&mut self, source: SocketAddrV4, destination: SocketAddrV4, payload: Vec<u8>) {
        let time_ns = self.time_ns;
        self.packets.push(Captured { time_ns, source, destination, payload, inputs: None });
    }

    fn up(&mut self, payload: Vec<u8>) {
        self.packet(at(2, 5000), appliance(), payload);
    }

    fn down(&mut self, payload: Vec<u8>) {
        self.packet(appliance(), at(2, 5000), payload);
    }

    fn identity(&self) -> Identity {
        Identity { session: self.session, client_epoch: 1, appliance_epoch: self.epoch }
    }

    fn encoded(&self, packet: &Packet<'_>) -> Vec<u8> {
        let mut bytes = vec![0; packet.bytes()];
        packet.encode(&self.identity(), &mut bytes).expect("as many bytes as it has");
        bytes
    }

    fn data(&self, number: u64, message: &[u8]) -> Vec<u8> {
        let mut sender = Sender::new(self.identity(), number, &SenderConfig::default());
        sender.set_window(16);
        sender.push(message).expect("the first message");
        let mut bytes = vec![0; 1472];
        let len = sender.poll_transmit(0, &mut bytes).expect("it is due");
        bytes.truncate(len);
        bytes
    }

    /// A frame on the feed, and all that comes of it.
    fn frame(&mut self, kind: Kind, payload: &[u8]) {
        self.time_ns += MS;
        let seq = self.machine.applied().next();
        let frame = Frame { seq, timestamp: Timestamp(self.time_ns), stream_id: 2, kind, payload };
        let mut bytes = Vec::new();
        frame.append_to(&mut bytes);
        self.packet(at(1, 9), at(101, 7100), mold(1, self.epoch, seq.0, &bytes));
        loop {
            let progress = self.machine.step(&frame).expect("a sound log");
            let made = self.machine.outputs(seq);
            let made: Vec<_> = made
                .map(|output| (output.target, output.event_seq, output.client_seq, output.bytes.to_vec()))
                .collect();
            for (target, number, client_seq, bytes) in made {
                if target == Target::Feed {
                    self.packet(at(1, 9), at(102, 7200), mold(2, self.epoch, number, &bytes));
                } else {
                    let message = [&EventMessage::head(seq.0, client_seq)[..], &bytes].concat();
                    let data = self.data(number, &message);
                    self.down(data);
                }
            }
            if progress == Progress::Applied {
                break;
            }
        }
    }

    fn reign(&mut self, epoch: u32) {
        self.epoch = epoch;
        let change = EpochChange {
            epoch: epoch.into(),
            schema_version: Tally::SCHEMA_VERSION,
            service_name: Tally::NAME,
            ..EpochChange::default()
        };
        self.frame(Kind::EpochChange, &change.encode());
    }

    /// A client comes, or comes back; the appliance has its inputs and events before these.
    fn hello(&mut self, received_next: u64, next_event: u64) {
        let hello = Hello {
            nonce: 1,
            resume_next: next_event,
            first_seq: received_next,
            window: 100,
            datagram_bytes_max: 1472,
            schema: Tally::SCHEMA_VERSION,
            is_resumed: false,
        };
        let welcome = Welcome {
            nonce: 1,
            committed_next: received_next,
            received_next,
            first_event: next_event,
            next_event,
            window: 100,
            datagram_bytes_max: 1472,
            schema: Tally::SCHEMA_VERSION,
            tier: Tier::Memory,
        };
        let [hello, welcome] = [Packet::Hello(hello), Packet::Welcome(welcome)].map(|packet| self.encoded(&packet));
        self.up(hello);
        self.down(welcome);
        if received_next == 1 {
            self.frame(Kind::SessionOpen, &encode_session_open(SessionId(self.session), 1, 1));
        }
    }

    fn sends(&mut self, client_seq: u64, number: i64) {
        let data = self.data(client_seq, &number.to_bytes());
        self.up(data);
        self.packets.last_mut().expect("as pushed").inputs = Some((self.session, client_seq));
    }

    fn input(&mut self, client_seq: u64, number: i64) {
        self.sends(client_seq, number);
        let origin = Origin { session: SessionId(self.session), client_epoch: 1, client_seq };
        self.frame(Kind::SessionInput, &[&origin.encode()[..], &number.to_bytes()].concat());
    }

    /// The appliance has all inputs before this one.
    fn ack(&mut self, next: u32) {
        let ack = self.encoded(&Packet::Ack(Ack { acked_next: next, received_next: next, window: 100 }));
        self.down(ack);
    }

    fn only(mut self, wanted: impl Fn(&Captured) -> bool) -> Vec<Captured> {
        self.packets.retain(wanted);
        self.packets
    }
}

fn mold(stream: u32, epoch: u32, number: u64, message: &[u8]) -> Vec<u8> {
    let mut packer = Packer::new(FeedSession::new(stream, epoch).expect("a name").encode(), number, 1472);
    assert!(packer.push(message));
    packer.packet().to_vec()
}

fn is_log(packet: &Captured) -> bool {
    packet.destination == at(101, 7100)
}

/// Two sessions, timers, and a restart that lost nothing.
fn two_reigns() -> Flow {
    let mut flow = Flow::new();
    flow.reign(1);
    flow.hello(1, 1);
    flow.session = 2;
    flow.hello(1, 1);
    for number in 1..6 {
        (flow.session, flow.time_ns) = (1 + number % 2, flow.time_ns + 3 * MS);
        flow.input(number.div_ceil(2), 7 * number as i64);
    }
    flow.session = 1;
    flow.input(3, 20);
    flow.time_ns += 10 * MS;
    flow.frame(Kind::Tick, &[]);
    flow.reign(3);
    flow.hello(4, 4);
    flow.input(4, 9);
    flow.ack(5);
    flow
}

/// One session, whose packets are all that tells the order.
fn one_session() -> Flow {
    let mut flow = Flow::new();
    flow.reign(1);
    flow.hello(1, 1);
    for number in 1..12 {
        flow.input(number, number as i64 % 9 + 1);
        if number % 4 == 0 {
            flow.ack(number as u32 + 1);
        }
    }
    flow
}

/// The last input and its answer are lost in a restart, and the input is sent again.
fn lost_in_a_restart() -> Flow {
    let mut flow = one_session();
    flow.sends(12, 6);
    let lost = flow.machine.applied().0 + 1;
    let answer = flow.data(12, &[&EventMessage::head(lost, 12)[..], &6_i64.to_bytes()].concat());
    flow.down(answer);
    flow.reign(2);
    flow.hello(12, 12);
    flow.input(12, 6);
    flow.input(13, 4);
    flow
}

fn flows() -> &'static [Vec<Captured>; 4] {
    static FLOWS: OnceLock<[Vec<Captured>; 4]> = OnceLock::new();
    FLOWS.get_or_init(|| {
        [
            two_reigns().packets,
            one_session().only(|packet| !is_log(packet)),
            two_reigns().only(is_log),
            lost_in_a_restart().only(|packet| !is_log(packet)),
        ]
    })
}

/// What a script made of a flow.
struct Damaged {
    flow: usize,
    packets: Vec<Captured>,
    /// Nothing but losses, copies, packets that changed places with near ones, and damage that checksums show.
    is_honest: bool,
}

fn damage(data: &[u8]) -> Damaged {
    let mut input = Input::new(data);
    let flow = usize::from(input.u8()) % flows().len();
    let (mut packets, mut is_honest) = (flows()[flow].clone(), true);
    while !input.is_empty() && !packets.is_empty() {
        let (what, place, by) = (input.u8() % 8, input.index(packets.len()), usize::from(input.u8()));
        let to = (place + by % NEAR).min(packets.len() - 1);
        match what {
            0 => drop(packets.remove(place)),
            1 if packets.len() < PACKETS_MAX => packets.insert(to, packets[place].clone()),
            2 => {
                let moved = packets.remove(place);
                packets.insert(to, moved);
            }
            3 => {
                is_honest &= packets[place].is_link();
                let payload = &mut packets[place].payload;
                let bit = by % (8 * payload.len().max(1));
                payload.get_mut(bit / 8).into_iter().for_each(|byte| *byte ^= 1 << (bit % 8));
                packets[place].inputs = None;
            }
            4 => {
                is_honest &= packets[place].is_link();
                let len = packets[place].payload.len();
                packets[place].payload.truncate(len.saturating_sub(1 + by));
                packets[place].inputs = None;
            }
            5 => {
                // Anywhere, at any time.
                is_honest = false;
                let mut moved = packets.remove(place);
                moved.time_ns = input.wide();
                let to = input.index(packets.len() + 1);
                packets.insert(to, moved);
            }
            6 => {
                is_honest = false;
                packets[place].payload = input.short_bytes().to_vec();
                packets[place].inputs = None;
            }
            _ => drop(packets.drain(place..packets.len().min(place + by % NEAR))),
        }
    }
    Damaged { flow, packets, is_honest }
}

fn each(packets: &[Captured], on_datagram: OnDatagram<'_>) {
    let interface = Interface {
        link_type: 1,
        snap_bytes: 0,
        name: String::new(),
        description: String::new(),
        resolution: Resolution::NANOSECONDS,
        offset_s: 0,
    };
    for (index, packet) in (1..).zip(packets) {
        on_datagram(&Datagram {
            index,
            at: 0,
            number: 0,
            interface: &interface,
            direction: None,
            time_ns: Some(packet.time_ns),
            source: packet.source,
            destination: packet.destination,
            payload: &packet.payload,
        });
    }
}

pub fn run(data: &[u8]) -> bool {
    let damaged = damage(data);
    let handed = check_inputs(&damaged);
    let mut tell = |on_datagram: OnDatagram<'_>| each(&damaged.packets, on_datagram);
    let (known, summary) = replay::<Tally>((), Some(appliance()), &mut tell);
    assert!(summary.commands <= damaged.packets.len() as u64 && summary.egress.compared <= 2 * PACKETS_MAX as u64);
    if let Some(halt) = &summary.halt {
        assert_eq!(halt.to_string().lines().count(), 1, "one line: {halt}");
    }
    if damaged.is_honest && is_told(&damaged, &known, &summary, &handed) {
        assert_eq!(summary.first_difference, None);
        assert!(summary.halt.as_ref().is_none_or(|halt| !halt.is_difference()), "{:?}", summary.halt);
    }
    summary.commands > 0 && summary.egress.compared + summary.egress.not_captured > 0
}

/// Whether all that a replay needs is there, or is known not to be. With the log's feed it always is: without it, what came last or first can
/// be gone without a trace, and two sessions' packets may have changed places.
fn is_told(damaged: &Damaged, known: &Links, summary: &Summary, handed: &BTreeSet<(u64, u64)>) -> bool {
    let is_named = |number: u64| {
        let missing =
            |(_, stream): (&(u64, u32), &ticktape_tools::links::Stream)| stream.figures().missing.contains(number);
        handed.contains(&(1, number)) || known.inputs().iter().any(missing)
    };
    summary.has_feed || damaged.flow == 1 && ((1..12).all(is_named) || known.first_unheard().is_some())
}

/// Each input is handed on, or named as missing; those that were handed on.
fn check_inputs(damaged: &Damaged) -> BTreeSet<(u64, u64)> {
    let (mut links, mut handed) = (Links::new(Some(appliance())), BTreeSet::new());
    let mut take = |message: Handed<'_>| {
        if let Handed::Input(input) = message {
            handed.insert((input.session, input.client_seq));
        }
    };
    each(&damaged.packets, &mut |datagram| links.on_datagram(datagram, &mut take));
    links.finish(damaged.packets.len() as u64, &mut take);
    for (&(session, _), stream) in links.inputs() {
        let Figures { first, next, messages, filled, taken_back, missing, .. } = stream.figures();
        let (Some(first), Some(next)) = (*first, *next) else { continue };
        if *taken_back > 0 {
            continue;
        }
        assert_eq!(messages + filled + missing.count(), next - first, "a number is there, or missing");
        let carried = damaged.packets.iter().filter_map(|packet| packet.inputs);
        for (_, client_seq) in
            carried.filter(|&(of, client_seq)| damaged.is_honest && of == session && client_seq >= first)
        {
            assert!(handed.contains(&(session, client_seq)), "input {client_seq} is there, and was not handed on");
        }
    }
    handed
}

pub fn seeds() -> Seeds {
    let script = |flow: u8, steps: &[[u8; 4]]| {
        steps.iter().fold(Script::default().bytes(&[flow]), |script, step| script.bytes(step)).0
    };
    vec![
        ("two_reigns", script(0, &[])),
        ("two_reigns_lossy", script(0, &[[0, 9, 0, 0], [1, 20, 0, 3], [2, 30, 0, 2], [3, 12, 0, 77], [4, 16, 0, 1]])),
        ("one_session", script(1, &[])),
        ("one_session_lossy", script(1, &[[0, 17, 0, 0], [2, 3, 0, 4], [3, 9, 0, 99]])),
        ("the_end_is_gone", script(1, &[[7, 34, 0, 7]])),
        ("feed_alone", script(2, &[])),
        ("lost_in_a_restart", script(3, &[[2, 5, 0, 1]])),
        ("no_longer_honest", script(0, &[[5, 4, 0, 0]])),
    ]
}
