//! kill -9 of a running appliance at tier `local`: nothing acknowledged is lost, nothing is applied twice.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use orderbook::{OrderBook, Report, ReportStream};
use ticktape::client::Client;
use ticktape::link::{ClientConfig, Event, SendError, SenderConfig};
use ticktape::pipeline::{IdleStrategy, Idler};
use ticktape::{Decode, Encode, Service};
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, UdpConfig, UdpNic};
use ticktape_tuning::clock;

/// Reached only where something does not happen that must.
const PATIENCE: Duration = Duration::from_secs(60);

const EXPECTED: &str = "4008343c211f7e3330f9c7b7e72de5ebf5ee73fdf09ce47a2cb01e1e34b6c393";

fn fixture() -> PathBuf {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/examples/orderbook");
    book.join("tests/fixtures/normal_first20000.bin.gz")
}

/// An appliance in a process of its own, killed when dropped.
struct Appliance {
    child: Child,
    address: SocketAddrV4,
    /// Kept open: it goes on talking.
    _output: BufReader<ChildStdout>,
}

impl Appliance {
    /// Starts it and waits until it takes clients. The same command, whatever a predecessor left behind.
    fn start(dir: &Path, listen: SocketAddrV4, extra: &str) -> Self {
        let config = dir.join("appliance.toml");
        let journal = dir.join("journal");
        // Measuring the disk at each of many starts would be most of the test.
        let text = format!("dir = {journal:?}\nlisten = \"{listen}\"\n[journal]\nstrategy = \"group\"\n{extra}");
        std::fs::write(&config, text).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_ticktape"))
            .args(["run", "--config"])
            .arg(config)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let address = line.strip_prefix("orderbook on ").and_then(|rest| rest.split(',').next());
        let address = address.unwrap_or_else(|| panic!("it said {line:?}")).parse().unwrap();
        Appliance { child, address, _output: output }
    }
}

impl Drop for Appliance {
    /// SIGKILL, as the test wants it.
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

struct Trader {
    client: Client<UdpRx, UdpTx>,
    orders: Vec<orderbook::Command>,
    sent: usize,
    events: u64,
    reports: ReportStream,
    answered: usize,
    acked_next: u64,
    trouble: Option<String>,
}

impl Trader {
    fn new(server: SocketAddrV4) -> Self {
        let udp = UdpConfig::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
        let (rx, tx) = UdpNic::open(&udp).unwrap().split();
        let config = ClientConfig {
            schema: OrderBook::SCHEMA_VERSION,
            // A small window, so that a kill finds orders in every state: unsent, sent, sequenced, durable, answered.
            sender: SenderConfig { in_flight_messages_max: 512, ..SenderConfig::default() },
            ..ClientConfig::default()
        };
        Trader {
            client: Client::new(rx, tx, server, &config),
            orders: orderbook::flow::load(fixture()).unwrap(),
            sent: 0,
            events: 0,
            reports: ReportStream::new(),
            answered: 0,
            acked_next: 1,
            trouble: None,
        }
    }

    /// Trades until so many orders are answered.
    fn trade_until(&mut self, answered: usize) {
        let begun = Instant::now();
        let mut idler = Idler::new(IdleStrategy::Backoff);
        while self.answered < answered {
            let (done, all) = (self.answered, self.orders.len());
            assert!(begun.elapsed() < PATIENCE, "stuck after {done} of {all} answers: {:?}", self.trouble);
            let work = self.send() + self.poll();
            idler.after_round(work);
        }
    }

    fn send(&mut self) -> usize {
        let mut sent = 0;
        while let Some(order) = self.orders.get(self.sent).filter(|_| sent < 64) {
            match self.client.send(&order.to_bytes()) {
                Ok(_) => (self.sent, sent) = (self.sent + 1, sent + 1),
                Err(SendError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
        sent
    }

    fn poll(&mut self) -> usize {
        let Trader { client, orders, events, reports, answered, acked_next, trouble, .. } = self;
        client.poll(clock::monotonic_ns(), |event| match event {
            Event::Output { event_seq, message } => {
                *events += 1;
                assert_eq!(event_seq, *events, "each event once, in order, over every restart");
                let report = Report::from_bytes(message.output).unwrap();
                let client_seq = message.client_seq as usize;
                assert!(client_seq == *answered || client_seq == *answered + 1, "no order is skipped or repeated");
                assert_eq!(report.seq(), orders[client_seq - 1].seq());
                *answered = client_seq;
                reports.push(report);
            }
            Event::Opened { committed_next, .. } => {
                assert!(committed_next >= *acked_next, "acknowledged up to {acked_next}, now {committed_next}");
            }
            Event::Acked { next } => *acked_next = next,
            Event::Closed(reason) => *trouble = Some(reason.to_string()),
            Event::Resync { from, next, .. } => panic!("events {from} to {next} are lost"),
            Event::Disconnected => {}
        })
    }
}

/// Where to kill: `count` points over the run, by a seed.
fn kill_points(seed: u64, count: usize, orders: usize) -> Vec<usize> {
    let mut state = seed;
    let mut points: Vec<usize> = (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            1 + (state >> 33) as usize % (orders - 1)
        })
        .collect();
    points.sort_unstable();
    points
}

/// Trades all orders over four kills, then kills once more.
fn trade_over_kills(seed: u64, dir: &Path, extra: &str) {
    let mut appliance = Appliance::start(dir, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), extra);
    let listen = appliance.address;
    let mut trader = Trader::new(listen);
    let orders = trader.orders.len();
    for point in kill_points(seed, 4, orders) {
        trader.trade_until(point);
        drop(appliance);
        appliance = Appliance::start(dir, listen, extra);
    }
    trader.trade_until(orders);
    drop(appliance);
    assert_eq!(trader.reports.finish().sha256, EXPECTED, "seed {seed}");
}

#[test]
fn kill_9_at_any_moment_loses_nothing_acknowledged_and_repeats_nothing() {
    for seed in 1..=3 {
        let dir = tempfile::tempdir().unwrap();
        trade_over_kills(seed, dir.path(), "");
        assert_replay_agrees(dir.path(), 20_000);
    }
}

#[test]
fn nor_does_it_where_snapshots_are_taken_and_the_log_before_them_is_given_up() {
    let extra = "segment_bytes = 524288\n[snapshots]\nevery_frames = 500\nbytes_per_ms = 1048576\ncompact = true\n";
    let mut given_up = 0;
    for seed in 1..=3 {
        let dir = tempfile::tempdir().unwrap();
        trade_over_kills(seed, dir.path(), extra);
        let journal = dir.path().join("journal");
        given_up += usize::from(!journal.join("00000000000000000001.seg").exists());
        let verified = Command::new(env!("CARGO_BIN_EXE_ticktape")).arg("verify").arg(&journal).output().unwrap();
        assert!(verified.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&verified.stderr));
        let kinds = std::fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().path());
        let damaged = kinds.filter(|path| path.extension().is_some_and(|kind| kind == "damaged")).count();
        assert_eq!(damaged, 0, "seed {seed}");
    }
    assert!(given_up > 0, "in one of them at least the beginning of the log went");
}

/// What is durable, after the last kill: every order once, and the same reports.
fn assert_replay_agrees(dir: &Path, orders: usize) {
    let json = dir.join("replay.json");
    let status = Command::new(env!("CARGO_BIN_EXE_ticktape"))
        .args(["replay", "--journal"])
        .arg(dir.join("journal"))
        .arg("--json")
        .arg(&json)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let replay: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(replay["commands"], orders);
    assert_eq!(replay["report_sha256"], EXPECTED);
}
