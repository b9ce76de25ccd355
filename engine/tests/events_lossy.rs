//! A receiver of public events over two lossy feeds: it hears each once, in order, also over a restart.

mod support;

use std::net::{Ipv4Addr, SocketAddrV4};

use support::{Answer, Command, Mailbox, TestClient, config};
use ticktape::Encode;
use ticktape::config::EventsConfig;
use ticktape::feed::{Arbiter, ArbiterConfig, FeedEvent, Side};
use ticktape::pipeline::{Appliance, StageName};
use ticktape_nic::lossy::{LossyConfig, LossyRx};
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, Rx, Tx, UdpConfig, UdpNic};
use ticktape_tuning::clock;

/// Announcements of each run, and events of each.
const COMMANDS: u64 = 400;
const EVENTS: u64 = 3;

fn socket() -> UdpNic {
    UdpNic::open(&UdpConfig::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))).unwrap()
}

/// One who only listens, and asks for what it missed.
struct Receiver {
    sides: [(Side, LossyRx<UdpRx>); 2],
    repairs: (UdpRx, UdpTx),
    rewinder: SocketAddrV4,
    arbiter: Arbiter,
    got: Vec<(u64, Vec<u8>)>,
    sessions: u32,
}

impl Receiver {
    fn new(a: UdpNic, b: UdpNic) -> Self {
        // Three in ten are lost on either side, one in twenty on both; some come late, some twice.
        let lossy = |seed, nic: UdpNic| {
            let config = LossyConfig {
                seed,
                loss: 300_000,
                common_seed: 3,
                common_loss: 50_000,
                duplicate: 20_000,
                reorder: 20_000,
                reorder_distance_max: 4,
                ..LossyConfig::default()
            };
            LossyRx::new(nic.split().0, &config)
        };
        let stream = u32::from_str_radix("EVNT", 36).unwrap();
        Receiver {
            sides: [(Side::A, lossy(1, a)), (Side::B, lossy(2, b))],
            repairs: socket().split(),
            rewinder: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0),
            arbiter: Arbiter::new(&ArbiterConfig { stream, epoch_min: 1, rewinders: 1, ..ArbiterConfig::default() }),
            got: Vec::new(),
            sessions: 1,
        }
    }

    /// One duty cycle.
    fn poll(&mut self) {
        let now = clock::monotonic_ns();
        let (arbiter, got) = (&mut self.arbiter, &mut self.got);
        let mut deliver = |seq: u64, event: &[u8]| {
            got.push((seq, event.to_vec()));
            true
        };
        for (side, rx) in &mut self.sides {
            rx.poll(now, 64, |datagram| {
                arbiter.on_packet(now, *side, datagram.payload, &mut deliver);
            });
        }
        let (rx, tx) = &mut self.repairs;
        rx.poll(now, 64, |datagram| {
            arbiter.on_packet(now, Side::Repair, datagram.payload, &mut deliver);
        });
        arbiter.poll_deliver(now, &mut deliver);
        while let Some((_, request)) = arbiter.poll_request(now) {
            let bytes = request.encode();
            tx.reserve().unwrap()[..bytes.len()].copy_from_slice(&bytes);
            tx.commit(bytes.len(), self.rewinder);
            tx.flush();
        }
        while let Some(event) = arbiter.poll_event(now) {
            match event {
                FeedEvent::NewSession { epoch, .. } => {
                    arbiter.adopt_session(epoch);
                    self.sessions += 1;
                }
                FeedEvent::EndOfSession { .. } | FeedEvent::Silent { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn each_event_is_heard_once_and_in_order_over_lossy_feeds_and_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (socket(), socket());
    let mut config = config(dir.path());
    let repair = Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    config.events = Some(EventsConfig { b: Some(b.local_addr()), repair, ..EventsConfig::on_loopback(a.local_addr()) });
    let mut receiver = Receiver::new(a, b);
    let mut client: Option<TestClient> = None;
    let (mut expected, mut repaired) = (Vec::new(), 0);
    for run in 1..=2u64 {
        let appliance = Appliance::start::<Mailbox>(&config, &()).unwrap();
        receiver.rewinder = appliance.events_repair_addr().unwrap();
        let client = client.get_or_insert_with(|| TestClient::new(appliance.local_addr(), 1));
        client.redirect(appliance.local_addr());
        client.connect();
        for at in 1..=COMMANDS {
            // Other bytes for every command, so that none can stand for another.
            let total = ((run - 1) * COMMANDS + at) as u8;
            let bytes = (at % 40) as u32;
            client.send(&Command::Add(1));
            client.send(&Command::Announce { times: EVENTS as u32, bytes });
            for _ in 0..EVENTS {
                let event = Answer::Filler(vec![total; bytes as usize]).to_bytes();
                expected.push((expected.len() as u64 + 1, event));
            }
            client.poll();
            receiver.poll();
            // So that there are packets to lose, not a few full ones.
            if at % 8 == 0 {
                client.until_acked();
            }
        }
        // Until all of it is acknowledged and heard; what was lost at the very end shows with the next heartbeat.
        let all = expected.len();
        client.until_with("every event", |_| {
            receiver.poll();
            receiver.got.len() >= all
        });
        client.until_acked();
        let report = appliance.stop();
        assert_eq!((&report.fault, report.counter(StageName::Egress, "events_messages")), (&None, COMMANDS * EVENTS));
        repaired += report.counter(StageName::Egress, "events_repaired");
    }
    assert!(repaired > 0, "nothing was lost on both sides");
    assert_eq!(receiver.got, expected);
    assert_eq!(receiver.sessions, 2);
}
