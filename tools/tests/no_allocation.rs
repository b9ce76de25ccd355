//! After start-up, sequencer, journaler, executor (the order book), publisher and egress allocate nothing; nor do a
//! capture's taps and its recorder.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::{Duration, Instant};

use orderbook::{BookConfig, OrderBook};
use ticktape::client::Client;
use ticktape::config::{ApplianceConfig, CaptureConfig, FeedConfig};
use ticktape::link::{ClientConfig, Event, SendError};
use ticktape::pipeline::{Appliance, IdleStrategy, Idler};
use ticktape::{Encode, Service};
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, UdpConfig, UdpNic};
use ticktape_tuning::clock;

#[global_allocator]
static HEAP: ticktape_alloc::CountingAllocator = ticktape_alloc::CountingAllocator;

/// Reached only where something does not happen that must.
const PATIENCE: Duration = Duration::from_secs(60);

struct Driver {
    client: Client<UdpRx, UdpTx>,
    orders: Vec<orderbook::Command>,
    sent: usize,
    answered: usize,
}

impl Driver {
    fn drive_until(&mut self, answered: usize) {
        let begun = Instant::now();
        let mut idler = Idler::new(IdleStrategy::Backoff);
        let mut encoded = Vec::new();
        while self.answered < answered {
            assert!(begun.elapsed() < PATIENCE, "stuck after {} answers", self.answered);
            let burst_end = (self.sent + 64).min(answered);
            while self.sent < burst_end {
                encoded.clear();
                self.orders[self.sent].encode(&mut encoded);
                match self.client.send(&encoded) {
                    Ok(_) => self.sent += 1,
                    Err(SendError::Full) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let answered = &mut self.answered;
            let work = self.client.poll(clock::monotonic_ns(), |event| {
                if let Event::Output { message, .. } = event {
                    *answered = message.client_seq as usize;
                }
            });
            idler.after_round(work);
        }
    }
}

#[test]
fn no_stage_allocates_once_it_runs() {
    ticktape_alloc::exempt_this_thread();
    let dir = tempfile::tempdir().unwrap();
    allocates_nothing(&dir.path().join("plain"), None);
    let capture = CaptureConfig::new(dir.path().join("link.pcapng"));
    allocates_nothing(&dir.path().join("captured"), Some(capture));
}

fn allocates_nothing(journal: &Path, capture: Option<CaptureConfig>) {
    let mut config = ApplianceConfig::new(journal, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    let captures = capture.is_some();
    config.capture = capture;
    config.feed = Some(FeedConfig::on_loopback("239.255.84.85:19531".parse().unwrap()));
    let appliance = Appliance::start::<OrderBook>(&config, &BookConfig::default()).unwrap();
    let (rx, tx) = UdpNic::open(&UdpConfig::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))).unwrap().split();
    let link = ClientConfig { schema: OrderBook::SCHEMA_VERSION, ..ClientConfig::default() };
    let mut driver = Driver {
        client: Client::new(rx, tx, appliance.local_addr(), &link),
        orders: orderbook::flow::generate(7, 120_000),
        sent: 0,
        answered: 0,
    };
    // The session is open and the threads have run all their branches once.
    driver.drive_until(20_000);
    let before = ticktape_alloc::other_allocations();
    assert!(before > 0, "the allocator does not count");
    driver.drive_until(120_000);
    let after = ticktape_alloc::other_allocations();
    let report = appliance.stop();
    assert_eq!(report.fault, None);
    assert_eq!(after - before, 0, "allocations over 100 000 orders, captured: {captures}");
    let packets = report.capture.map_or(0, |capture| capture.packets);
    assert_eq!(packets > 1_000, captures, "{packets} packets captured");
}
