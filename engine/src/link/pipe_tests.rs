//! Both ends of a link over a network that loses, repeats, reorders, delays and damages, while either end restarts.
//!
//! Checked at every step: inputs are committed once and in order, events are delivered once and in order, and nothing is
//! acknowledged that is not committed. Once the faults stop, everything gets through.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const MS: u64 = 1_000_000;
const SESSION: u64 = 77;
/// Runs, where `TICKTAPE_SEEDS` does not say how many.
const SEEDS: u64 = 200;

/// A small generator (SplitMix64, public domain), so that a seed is a whole run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// What happened, summed over all seeds: a run that never met the rare branches proves nothing.
#[derive(Debug, Default)]
struct Met {
    lost: u64,
    repeated: u64,
    damaged: u64,
    appliance_restarts: u64,
    inputs_dropped_by_restart: u64,
    client_restarts: u64,
    connects: u64,
    resent: u64,
    nacks_by_client: u64,
    nacks_by_appliance: u64,
    held: u64,
    withdrawn: u64,
    gap_fills: u64,
    resyncs: u64,
    backpressure: u64,
    no_room: u64,
    drops: BTreeMap<&'static str, u64>,
}

/// One direction of the network.
#[derive(Default)]
struct Wire {
    /// By arrival time; the counter keeps what arrives together in order of sending.
    in_flight: BTreeMap<(u64, u64), Vec<u8>>,
    sent: u64,
}

impl Wire {
    fn send(&mut self, now: u64, bytes: &[u8], random: &mut Random, has_faults: bool, met: &mut Met) {
        let copies = match has_faults {
            true if random.chance(80) => {
                met.lost += 1;
                0
            }
            true if random.chance(50) => {
                met.repeated += 1;
                2
            }
            _ => 1,
        };
        for _ in 0..copies {
            let mut bytes = bytes.to_vec();
            if has_faults && random.chance(20) {
                met.damaged += 1;
                let bit = random.below(bytes.len() as u64 * 8) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            // Mostly in order, at times overtaken, at times later than a whole reconnect.
            let delay = match random.below(1000) {
                _ if !has_faults => MS / 10,
                0..5 => 700 * MS,
                5..100 => 1 + random.below(3 * MS),
                _ => MS / 10,
            };
            self.sent += 1;
            self.in_flight.insert((now + delay, self.sent), bytes);
        }
    }

    fn arrived(&mut self, now: u64) -> Option<Vec<u8>> {
        let first = self.in_flight.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Input {
    client_epoch: u32,
    client_seq: u64,
    bytes: Vec<u8>,
}

/// The appliance's side of one session, as its sequencer and egress would hold it.
struct Appliance {
    epoch: u32,
    first_event: u64,
    /// Events before it are no longer kept.
    kept_from: u64,
    /// Durable: survives a restart. Each input makes one event.
    log: Vec<Input>,
    /// Received, not committed.
    pending: Vec<Input>,
    open: Option<Open>,
    counters: LinkCounters,
    nacks: u64,
    gap_fills: u64,
}

struct Open {
    identity: Identity,
    opened_by: (u64, u64),
    receiver: Receiver,
    sender: Sender,
    /// The next event to hand to the sender.
    pushed_next: u64,
    heartbeat_at: u64,
}

const TERMS: Terms = Terms { schema: 1, tier: Tier::Local, window: 24, datagram_bytes_max: 600 };

/// Little room, so that it runs out.
fn receiver_config(window: u32) -> ReceiverConfig {
    ReceiverConfig { window, reorder_messages: 64, reorder_bytes: 1024, ..ReceiverConfig::default() }
}

fn sender_config() -> SenderConfig {
    SenderConfig {
        ring_bytes: 1500,
        messages_max: 32,
        in_flight_messages_max: 32,
        datagram_bytes_max: 600,
        ..SenderConfig::default()
    }
}

impl Appliance {
    fn standing(&self) -> Option<Standing> {
        let client_epoch = self.open.as_ref().map(|open| open.identity.client_epoch);
        let client_epoch = client_epoch.max(self.log.last().map(|input| input.client_epoch))?;
        let open = self.open.as_ref().filter(|open| open.identity.client_epoch == client_epoch);
        let committed_next =
            self.log.iter().rev().find(|input| input.client_epoch == client_epoch).map(|input| input.client_seq + 1);
        let (committed_next, received_next) = match open {
            Some(open) => (open.receiver.committed_next(), open.receiver.received_next()),
            None => (committed_next?, committed_next?),
        };
        Some(Standing {
            client_epoch,
            opened_by: open.map(|open| open.opened_by),
            committed_next,
            received_next,
            first_event: self.kept_from,
            next_event: self.first_event + self.log.len() as u64,
        })
    }

    fn on_datagram(&mut self, now: u64, bytes: &[u8], random: &mut Random, out: &mut Vec<Vec<u8>>) {
        match Packet::decode(bytes) {
            Ok((identity, Packet::Hello(hello))) => self.on_hello(now, &identity, &hello, out),
            Ok((identity, packet)) => self.on_packet(now, &identity, &packet, random, out),
            Err(error) => self.counters.count(DropReason::Malformed(error)),
        }
    }

    fn on_hello(&mut self, now: u64, identity: &Identity, hello: &Hello, out: &mut Vec<Vec<u8>>) {
        let identity = Identity { appliance_epoch: self.epoch, ..*identity };
        let standing = self.standing();
        let mut answer = answer_hello(&TERMS, standing.as_ref(), &identity, hello);
        if standing.is_none()
            && let Answer::Open { welcome, send_from } = &mut answer
        {
            // This model numbers a session's events from anywhere.
            (welcome.first_event, welcome.next_event, *send_from) =
                (self.first_event, self.first_event, self.first_event);
        }
        let packet = match answer {
            Answer::Open { welcome, send_from } => {
                let (receiver, mut sender, pushed_next) = match self.open.take() {
                    Some(Open { identity: same, receiver, mut sender, pushed_next, .. }) if same == identity => {
                        match sender.resume(send_from, send_from) {
                            Ok(()) => (receiver, sender, pushed_next),
                            // The client has events of an earlier reign for which the sender had no room yet.
                            Err(_) => (receiver, Sender::new(identity, send_from, &sender_config()), send_from),
                        }
                    }
                    _ => {
                        self.pending.clear();
                        let config = receiver_config(TERMS.window);
                        let receiver = Receiver::new(identity.client_epoch, welcome.committed_next, &config);
                        (receiver, Sender::new(identity, send_from, &sender_config()), send_from)
                    }
                };
                sender.set_window(hello.window);
                sender.limit_datagram(hello.datagram_bytes_max as usize);
                let opened_by = (hello.nonce, hello.resume_next);
                let heartbeat_at = now + 100 * MS;
                self.open = Some(Open { identity, opened_by, receiver, sender, pushed_next, heartbeat_at });
                Packet::Welcome(welcome)
            }
            Answer::Repeat(welcome) => Packet::Welcome(welcome),
            Answer::Refuse(refuse) => Packet::Refuse(refuse),
        };
        out.push(encoded(&packet, &identity));
    }

    fn on_packet(
        &mut self,
        now: u64,
        identity: &Identity,
        packet: &Packet<'_>,
        random: &mut Random,
        out: &mut Vec<Vec<u8>>,
    ) {
        let Some(open) = self.open.as_mut().filter(|open| open.identity == *identity) else {
            self.counters.count(DropReason::ForeignSession);
            let reason = ResyncReason::UnknownSession;
            let identity = Identity { appliance_epoch: self.epoch, ..*identity };
            out.push(encoded(&Packet::Resync(reason), &identity));
            return;
        };
        match packet {
            Packet::Data(data) => {
                let pending = &mut self.pending;
                let outcome = open.receiver.on_data(now, identity.client_epoch, data, |client_seq, bytes| {
                    take(pending, identity, client_seq, bytes, random)
                });
                if let Some(reason) = outcome.drop_reason() {
                    self.counters.count(reason);
                }
            }
            Packet::GapFill { from, count } => {
                self.gap_fills += 1;
                let pending = &mut self.pending;
                open.receiver.on_gap_fill(now, *from, *count, |client_seq, bytes| {
                    take(pending, identity, client_seq, bytes, random)
                });
            }
            Packet::Ack(ack) => {
                assert_ne!(open.sender.on_ack(now, ack), AckOutcome::Bad, "an honest client's ack");
            }
            Packet::SelectiveAck(ack, held) => {
                let outcome = open.sender.on_selective_ack(now, ack, held.iter());
                assert_ne!(outcome, AckOutcome::Bad, "an honest client's ack");
            }
            Packet::Nack(missing) => {
                assert_ne!(open.sender.on_nack(now, missing.iter()), AckOutcome::Bad, "an honest client's question");
            }
            Packet::Heartbeat { next_seq } => {
                open.receiver.request_ack();
                open.receiver.on_heartbeat(now, *next_seq);
            }
            Packet::Bye(_) => self.open = None,
            other => panic!("a client does not send {other:?}"),
        }
    }

    fn commit(&mut self, count: usize) {
        let count = count.min(self.pending.len());
        self.log.extend(self.pending.drain(..count));
        if let (Some(open), Some(last)) = (&mut self.open, self.log.last())
            && last.client_epoch == open.identity.client_epoch
        {
            open.receiver.set_committed_next(last.client_seq + 1);
        }
    }

    fn transmit(&mut self, now: u64, random: &mut Random, out: &mut Vec<Vec<u8>>) {
        let Some(open) = &mut self.open else { return };
        let (pending, identity) = (&mut self.pending, open.identity);
        open.receiver.poll_deliver(now, |client_seq, bytes| take(pending, &identity, client_seq, bytes, random));
        assert!(open.receiver.held() <= 64);
        while let Some(input) = self.log.get((open.pushed_next - self.first_event) as usize) {
            let client_seq = if input.client_epoch == open.identity.client_epoch { input.client_seq } else { 0 };
            let head = EventMessage::head(open.pushed_next, client_seq);
            let Ok(seq) = open.sender.push_parts(&head, &input.bytes) else { break };
            assert_eq!(seq, open.pushed_next);
            open.pushed_next += 1;
        }
        let (mut ranges, mut bytes) = ([Range { from: 0, count: 0 }; 4], [0; 32]);
        if let Some(ack) = open.receiver.poll_ack(now) {
            let held = open.receiver.held_ranges(&mut ranges);
            let held = Ranges::write(&ranges[..held], &mut bytes);
            out.push(encoded(&held.map_or(Packet::Ack(ack), |held| Packet::SelectiveAck(ack, held)), &identity));
        }
        loop {
            let missing = open.receiver.poll_nack(now, &mut ranges);
            let Ok(missing) = Ranges::write(&ranges[..missing], &mut bytes) else { break };
            self.nacks += 1;
            out.push(encoded(&Packet::Nack(missing), &identity));
        }
        let mut room = [0; 600];
        while let Some(bytes) = open.sender.poll_transmit(now, &mut room) {
            out.push(room[..bytes].to_vec());
        }
        if now >= open.heartbeat_at {
            open.heartbeat_at = now + 100 * MS;
            let next_seq = serial::truncate(open.sender.end_next());
            out.push(encoded(&Packet::Heartbeat { next_seq }, &open.identity));
        }
    }
}

/// At times there is no room.
fn take(pending: &mut Vec<Input>, identity: &Identity, client_seq: u64, bytes: &[u8], random: &mut Random) -> bool {
    let fits = !random.chance(30);
    if fits {
        pending.push(Input { client_epoch: identity.client_epoch, client_seq, bytes: bytes.to_vec() });
    }
    fits
}

fn encoded(packet: &Packet<'_>, identity: &Identity) -> Vec<u8> {
    let mut out = vec![0; packet.bytes()];
    packet.encode(identity, &mut out).expect("it fits");
    out
}

struct World {
    random: Random,
    now: u64,
    client: ClientLink,
    client_epoch: u32,
    first_seq: u64,
    appliance: Appliance,
    up: Wire,
    down: Wire,
    has_faults: bool,
    /// What the client's owner has seen, kept over its restarts.
    event_next: u64,
    made: u64,
    /// Inputs that were given up before they were sent, by epoch and seq.
    given_up: BTreeSet<(u32, u64)>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let starts = [1, (1 << 32) - 9, (1 << 40) + (1 << 32) - 30, (1 << 62) + 5];
        let first_seq = starts[random.below(4) as usize];
        let first_event = starts[random.below(4) as usize];
        let appliance = Appliance {
            epoch: 1,
            first_event,
            kept_from: first_event,
            log: Vec::new(),
            pending: Vec::new(),
            open: None,
            counters: LinkCounters::default(),
            nacks: 0,
            gap_fills: 0,
        };
        let client = new_client(1, first_seq, first_event);
        World {
            random,
            now: 0,
            client,
            client_epoch: 1,
            first_seq,
            appliance,
            up: Wire::default(),
            down: Wire::default(),
            has_faults: true,
            event_next: first_event,
            made: 0,
            given_up: BTreeSet::new(),
        }
    }

    fn restart_appliance(&mut self, met: &mut Met) {
        met.appliance_restarts += 1;
        met.inputs_dropped_by_restart += self.appliance.pending.len() as u64;
        self.appliance.pending.clear();
        self.appliance.open = None;
        self.appliance.epoch += 1;
        if self.random.chance(100) {
            let end = end_of(&self.appliance);
            self.appliance.kept_from = self.appliance.kept_from.max(end - self.random.below(3).min(end - 1));
        }
    }

    fn restart_client(&mut self, met: &mut Met) {
        met.client_restarts += 1;
        self.note_client(met);
        self.client_epoch += 1;
        self.client = new_client(self.client_epoch, self.first_seq, self.event_next);
    }

    fn note_client(&self, met: &mut Met) {
        met.connects += self.client.connects();
        met.resent += self.client.resent_messages();
        met.nacks_by_client += self.client.nacks_sent();
        for (reason, times) in self.client.counters().met() {
            *met.drops.entry(reason.name()).or_default() += times;
        }
    }

    fn step(&mut self, met: &mut Met) {
        self.now += MS / 10 + self.random.below(MS);
        for _ in 0..self.random.below(6) {
            if self.made < 600 {
                let mut bytes = self.made.to_le_bytes().to_vec();
                bytes.resize(8 + self.random.below(60) as usize, self.made as u8);
                match self.client.send(&bytes) {
                    Ok(_) => self.made += 1,
                    Err(error) => {
                        assert_eq!(error, SendError::Full);
                        met.backpressure += 1;
                    }
                }
            }
        }
        if self.random.chance(20) {
            self.give_up(met);
        }
        let mut room = [0; 600];
        while let Some(bytes) = self.client.poll_transmit(self.now, &mut room) {
            self.up.send(self.now, &room[..bytes], &mut self.random, self.has_faults, met);
        }
        let mut out = Vec::new();
        while let Some(bytes) = self.up.arrived(self.now) {
            self.appliance.on_datagram(self.now, &bytes, &mut self.random, &mut out);
        }
        let count = self.random.below(12) as usize;
        self.appliance.commit(count);
        self.appliance.transmit(self.now, &mut self.random, &mut out);
        for bytes in out {
            self.down.send(self.now, &bytes, &mut self.random, self.has_faults, met);
        }
        while let Some(bytes) = self.down.arrived(self.now) {
            self.deliver(&bytes, met);
        }
        met.held += self.client.events_held();
        assert!(self.client.events_held() <= 64);
        assert!(self.client.end_next() - self.client.acked_next() <= 32);
    }

    /// Gives an input up, where it was not sent yet; or all of them.
    fn give_up(&mut self, met: &mut Met) {
        let kept = self.client.end_next() - self.client.acked_next();
        let seq = self.client.end_next().saturating_sub(1 + self.random.below(4).min(kept));
        if self.random.chance(500) {
            met.withdrawn += self.client.withdraw_unsent();
        } else if self.client.withdraw(seq) {
            met.withdrawn += 1;
            self.given_up.insert((self.client_epoch, seq));
        }
        // A number that was used again is not given up.
        let (epoch, end) = (self.client_epoch, self.client.end_next());
        self.given_up.retain(|&(of, seq)| of != epoch || seq < end);
    }

    fn deliver(&mut self, bytes: &[u8], met: &mut Met) {
        let (log, first_event, epoch) = (&self.appliance.log, self.appliance.first_event, self.client_epoch);
        let kept_from = self.appliance.kept_from;
        let event_next = &mut self.event_next;
        self.client.on_datagram(self.now, bytes, |event| match event {
            Event::Output { event_seq, message } => {
                assert_eq!(event_seq, *event_next, "once, in order, without a gap");
                let input = log.get((event_seq - first_event) as usize).expect("only what is committed is sent");
                assert_eq!((message.log_seq, message.output), (event_seq, input.bytes.as_slice()));
                let own = if input.client_epoch == epoch { input.client_seq } else { 0 };
                assert!(message.client_seq == own);
                *event_next += 1;
            }
            Event::Acked { next } => {
                let committed =
                    log.iter().rev().find(|input| input.client_epoch == epoch).map(|input| input.client_seq);
                assert!(committed.is_some_and(|committed| next <= committed + 1), "acknowledged, not committed");
            }
            Event::Opened { .. } | Event::Disconnected => {}
            Event::Resync { gap, from, next } => {
                assert_eq!((gap, from), (HistoryGap::TooOld, *event_next), "only what is no longer kept is left out");
                assert!(next > from && next <= kept_from);
                *event_next = next;
                met.resyncs += 1;
            }
            Event::Closed(_) => panic!("nothing that was acknowledged is lost here: {event:?}"),
        });
    }

    fn check_log(&self) {
        let mut next = BTreeMap::new();
        let mut made = None;
        for input in &self.appliance.log {
            let due = next.entry(input.client_epoch).or_insert(self.first_seq);
            while self.given_up.contains(&(input.client_epoch, *due)) {
                *due += 1;
            }
            assert_eq!(input.client_seq, *due, "each input once, in order, without a gap");
            *due += 1;
            let number = u64::from_le_bytes(input.bytes[..8].try_into().unwrap());
            assert!(made < Some(number), "in the order in which they were made");
            made = Some(number);
        }
    }
}

fn new_client(client_epoch: u32, first_seq: u64, resume_next: u64) -> ClientLink {
    ClientLink::new(&ClientConfig {
        session: SESSION,
        client_epoch,
        first_seq,
        resume_next,
        sender: sender_config(),
        receiver: ReceiverConfig { ack_on_commit: false, ..receiver_config(24) },
        ..ClientConfig::default()
    })
}

fn run(seed: u64, met: &mut Met) {
    let mut world = World::new(seed);
    for _ in 0..1000 {
        if world.random.chance(6) {
            world.restart_appliance(met);
        }
        if world.random.chance(3) {
            world.restart_client(met);
        }
        world.step(met);
    }
    world.has_faults = false;
    let mut steps = 0;
    while !(world.made == 600 && world.client.is_drained() && world.event_next == end_of(&world.appliance)) {
        world.step(met);
        steps += 1;
        assert!(steps < 20_000, "seed {seed}: no progress without faults: {:?}", world.client);
    }
    world.check_log();
    world.note_client(met);
    for (reason, times) in world.appliance.counters.met() {
        *met.drops.entry(reason.name()).or_default() += times;
    }
    met.nacks_by_appliance += world.appliance.nacks;
    met.gap_fills += world.appliance.gap_fills;
    met.no_room += world.appliance.counters.get(DropReason::NoRoom);
}

fn end_of(appliance: &Appliance) -> u64 {
    appliance.first_event + appliance.log.len() as u64
}

#[test]
fn every_message_arrives_once_and_in_order_whatever_the_network_does() {
    let seeds = std::env::var("TICKTAPE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let mut met = Met::default();
    for seed in 0..seeds {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed, &mut met)));
        assert!(result.is_ok(), "seed {seed} failed");
    }
    println!("{seeds} seeds: {met:?}");
    let counts = [
        met.lost,
        met.repeated,
        met.damaged,
        met.appliance_restarts,
        met.inputs_dropped_by_restart,
        met.client_restarts,
        met.connects,
        met.resent,
        met.nacks_by_client,
        met.nacks_by_appliance,
        met.held,
        met.withdrawn,
        met.gap_fills,
        met.resyncs,
        met.backpressure,
        met.no_room,
    ];
    assert!(counts.iter().all(|&count| count > 0), "a branch was never reached: {met:?}");
    for reason in
        ["bad_crc", "bad_magic", "duplicate", "gap", "stale_epoch", "stale_handshake", "foreign_session", "unexpected"]
    {
        assert!(met.drops.contains_key(reason), "never met {reason}: {met:?}");
    }
}
