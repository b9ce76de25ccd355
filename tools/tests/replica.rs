//! A whole order flow through an appliance with a replica in another process, over a feed whose sides both lose packets.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orderbook::{OrderBook, Report, ReportStream};
use serde_json::Value;
use ticktape::client::Client;
use ticktape::link::{ClientConfig, Event, SendError};
use ticktape::pipeline::{IdleStrategy, Idler};
use ticktape::{Decode, Encode, Service};
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, UdpConfig, UdpNic};
use ticktape_tuning::clock;

/// Reached only where what is waited for does not happen.
const PATIENCE: Duration = Duration::from_secs(240);

/// The reports of the flow's first 20 000 messages, and of all of it.
const EXPECTED: &str = "4008343c211f7e3330f9c7b7e72de5ebf5ee73fdf09ce47a2cb01e1e34b6c393";
const EXPECTED_WHOLE: &str = "e9b2e3926854410b01a035aeb25dd05f1e597c233be8263de9eb49b6713d367e";

fn loopback(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

fn socket() -> (UdpSocket, SocketAddrV4) {
    let socket = UdpSocket::bind(loopback(0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, loopback(port))
}

fn free_address() -> SocketAddrV4 {
    socket().1
}

/// The flow, all of it where the published cases are at hand, else its first 20 000 messages; and its reports.
fn flow() -> (PathBuf, &'static str) {
    let whole = std::env::var_os("TICKTAPE_CASES")
        .map(|cases| Path::new(&cases).join("orders/normal_seed23_count1000000.bin.gz"));
    match whole.filter(|path| path.exists()) {
        Some(path) => (path, EXPECTED_WHOLE),
        None => {
            let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/examples/orderbook");
            (book.join("tests/fixtures/normal_first20000.bin.gz"), EXPECTED)
        }
    }
}

/// A process and what it says, killed when dropped.
struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    fn start(args: &[&str]) -> Self {
        let program = env!("CARGO_BIN_EXE_ticktape");
        let mut child = Command::new(program).args(args).stdout(Stdio::piped()).spawn().unwrap();
        let (tell, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Process { child, lines }
    }

    /// The first line from now on of which `wanted` makes something.
    fn until<T>(&mut self, what: &str, wanted: impl Fn(&str) -> Option<T>) -> T {
        let (begun, mut said) = (Instant::now(), String::new());
        loop {
            match self.lines.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => said = line,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => panic!("{what}: it ended, having said {said:?}"),
            }
            if let Some(found) = wanted(&said) {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "{what} did not happen; it said {said:?}");
        }
    }

    /// Its exit code, when it has come to its end by itself.
    fn ended(&mut self) -> Option<i32> {
        let begun = Instant::now();
        while !matches!(self.lines.recv_timeout(Duration::from_millis(50)), Err(RecvTimeoutError::Disconnected)) {
            assert!(begun.elapsed() < PATIENCE, "it did not end");
        }
        self.child.wait().unwrap().code()
    }

    fn stop(&self) {
        self.signal("-TERM");
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a side of the feed loses on its way: each a hundredth of its own, and a thousandth that both lose.
struct Lossy {
    stop: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Lossy {
    /// Carries what comes to `from` to `to`, by side.
    fn start(sides: [(UdpSocket, SocketAddrV4); 2]) -> Self {
        let (stop, lost) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = sides.into_iter().enumerate().map(|(side, (socket, to))| {
            let (stop, lost) = (Arc::clone(&stop), Arc::clone(&lost));
            std::thread::spawn(move || carry(side as u64, &socket, to, &stop, &lost))
        });
        Lossy { threads: threads.collect(), stop, lost }
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

fn carry(side: u64, socket: &UdpSocket, to: SocketAddrV4, stop: &AtomicBool, lost: &AtomicU64) {
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut packet = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        let Ok(bytes) = socket.recv(&mut packet) else { continue };
        // The session and the first message's number, so that what both lose is the same on both.
        let word =
            packet[..18].iter().fold(7u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let roll = |salt: u64| (word ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        if roll(99).is_multiple_of(1000) || roll(side).is_multiple_of(100) {
            lost.fetch_add(1, Ordering::Relaxed);
        } else {
            // Nobody may listen yet.
            let _ = socket.send_to(&packet[..bytes], to);
        }
    }
}

/// Sends the whole flow; what its reports come to.
fn trade(server: SocketAddrV4, path: &Path) -> (u64, String) {
    let udp = UdpConfig::new(loopback(0));
    let (rx, tx) = UdpNic::open(&udp).unwrap().split();
    let config = ClientConfig { schema: OrderBook::SCHEMA_VERSION, ..ClientConfig::default() };
    let mut client: Client<UdpRx, UdpTx> = Client::new(rx, tx, server, &config);
    let orders = orderbook::flow::load(path).unwrap();
    let (reports, answered, trouble) = (Mutex::new(ReportStream::new()), AtomicU64::new(0), Mutex::new(None));
    let (mut sent, begun) = (0, Instant::now());
    let mut idler = Idler::new(IdleStrategy::Backoff);
    while answered.load(Ordering::Relaxed) < orders.len() as u64 {
        assert!(begun.elapsed() < PATIENCE, "stuck after {sent} orders: {:?}", trouble.lock().unwrap());
        let mut work = 0;
        while let Some(order) = orders.get(sent).filter(|_| work < 64) {
            match client.send(&order.to_bytes()) {
                Ok(_) => (sent, work) = (sent + 1, work + 1),
                Err(SendError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
        work += client.poll(clock::monotonic_ns(), |event| match event {
            Event::Output { message, .. } => {
                answered.store(message.client_seq, Ordering::Relaxed);
                reports.lock().unwrap().push(Report::from_bytes(message.output).unwrap());
            }
            Event::Closed(reason) => *trouble.lock().unwrap() = Some(reason.to_string()),
            _ => {}
        });
        idler.after_round(work);
    }
    while !client.link().is_drained() {
        assert!(begun.elapsed() < PATIENCE, "the last acknowledgement");
        let work = client.poll(clock::monotonic_ns(), |event| {
            if let Event::Output { message, .. } = event {
                reports.lock().unwrap().push(Report::from_bytes(message.output).unwrap());
            }
        });
        idler.after_round(work);
    }
    let digest = reports.into_inner().unwrap().finish();
    (orders.len() as u64, digest.sha256)
}

fn replayed(dir: &Path, journal: &Path) -> Value {
    let json = dir.join("replay.json");
    let replay = Command::new(env!("CARGO_BIN_EXE_ticktape"))
        .args(["replay", "--journal", journal.to_str().unwrap(), "--json", json.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
    serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap()
}

fn seq_and_digest(line: &str, head: &str, between: &str) -> Option<(u64, String)> {
    let (seq, digest) = line.strip_prefix(head)?.split_once(between)?;
    Some((seq.parse().ok()?, digest.to_string()))
}

#[test]
fn a_replica_behind_a_lossy_feed_comes_to_the_same_digests_and_reports() {
    let dir = tempfile::tempdir().unwrap();
    let (orders, known) = flow();
    let ((a, a_in), (b, b_in)) = (socket(), socket());
    let (a_out, b_out, repair) = (free_address(), free_address(), free_address());
    let lossy = Lossy::start([(a, a_out), (b, b_out)]);
    let (journal, own) = (dir.path().join("journal"), dir.path().join("replica"));
    let config = dir.path().join("appliance.toml");
    let text = format!(
        "dir = {journal:?}\nlisten = \"127.0.0.1:0\"\n[journal]\nstrategy = \"group\"\n[snapshots]\nevery_frames = 5000\n[feed]\n\
         a = \"{a_in}\"\nb = \"{b_in}\"\nrepair = \"{repair}\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut leader = Process::start(&["run", "--config", config.to_str().unwrap()]);
    let address = leader.until("the appliance's start", |line| {
        line.strip_prefix("orderbook on ")?.split(',').next()?.parse::<SocketAddrV4>().ok()
    });
    leader.until("the repair port", |line| line.starts_with("repair ").then_some(()));
    let (feed, repair) = (format!("{a_out},{b_out}"), repair.to_string());
    let args = [
        "follow",
        "--feed",
        &feed,
        "--repair",
        &repair,
        "--dir",
        own.to_str().unwrap(),
        "--snapshots",
        "--json",
        "--no-metrics",
    ];
    let mut replica = Process::start(&args);
    let state = |line: &str| serde_json::from_str::<Value>(line).ok().map(|line| line["state"].clone());
    replica.until("being live", |line| (state(line)? == "live").then_some(()));
    let (count, reports) = trade(address, &orders);
    assert_eq!(reports, known);
    leader.stop();
    let (seq, digest) = leader.until("the appliance's end", |line| seq_and_digest(line, "stopped at seq ", ", state "));
    replica.until("the last frame", |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["applied"].as_u64()? >= seq).then_some(())
    });
    replica.stop();
    let last: Value = replica.until("the replica's end", |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["state"] == "stopped" && line["digest"].is_string()).then_some(line)
    });
    assert_eq!((last["seq"].as_u64(), last["digest"].as_str()), (Some(seq), Some(&digest[..])));
    assert!(lossy.lost.load(Ordering::Relaxed) > 0, "something was lost on the way");
    let counters = &last["counters"];
    assert!(counters["intake.feed_frames"].as_u64().unwrap() > count / 2, "{counters}");
    // In a second the leader's own replica may not have come round to say a digest.
    let is_long = count > 1_000_000;
    assert!(!is_long || counters["replica.marks_compared"].as_u64().is_some(), "{counters}");
    let (ours, theirs) = (replayed(dir.path(), &own), replayed(dir.path(), &journal));
    assert_eq!(ours, theirs, "the logs come to the same");
    assert_eq!((&ours["commands"], &ours["report_sha256"]), (&count.into(), &Value::from(reports)));
}

/// Sends additions for as long as `wanted` says, given how many there were, and waits until all are acknowledged.
fn add(client: &mut Client<UdpRx, UdpTx>, wanted: impl Fn(u64) -> bool) -> u64 {
    let (mut sent, begun, add) = (0, Instant::now(), counter::Command::Add(1).to_bytes());
    let mut idler = Idler::new(IdleStrategy::Backoff);
    while wanted(sent) || !client.link().is_drained() {
        assert!(begun.elapsed() < PATIENCE, "no acknowledgement after {sent}");
        let accepted = wanted(sent) && client.send(&add).is_ok();
        sent += u64::from(accepted);
        idler.after_round(usize::from(accepted) + client.poll(clock::monotonic_ns(), |_| {}));
    }
    sent
}

/// An appliance that counts, and a client of it in an epoch of its own.
fn counting(journal: &Path, feed: &str, repair: &str, client_epoch: u32) -> (Process, Client<UdpRx, UdpTx>) {
    let args = ["run", "--service", "counter", "--dir", journal.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let mut leader = Process::start(&[&args[..], &["--feed", feed, "--repair", repair]].concat());
    let address = leader.until("the appliance's start", |line| {
        line.strip_prefix("counter on ")?.split(',').next()?.parse::<SocketAddrV4>().ok()
    });
    leader.until("the repair port", |line| line.starts_with("repair ").then_some(()));
    let (rx, tx) = UdpNic::open(&UdpConfig::new(loopback(0))).unwrap().split();
    let config = ClientConfig { schema: counter::Counter::SCHEMA_VERSION, client_epoch, ..ClientConfig::default() };
    (leader, Client::new(rx, tx, address, &config))
}

fn figure(line: &str, name: &str) -> Option<u64> {
    serde_json::from_str::<Value>(line).ok()?[name].as_u64()
}

fn is_live(line: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|line| line["state"] == "live")
}

/// `TICKTAPE_STOPPED_S` says for how many seconds.
#[test]
fn a_replica_that_was_stopped_for_a_while_recovers_by_itself() {
    let seconds = std::env::var("TICKTAPE_STOPPED_S").map_or(1, |seconds| seconds.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let (a, repair) = (free_address().to_string(), free_address().to_string());
    let (journal, own) = (dir.path().join("journal"), dir.path().join("replica"));
    let (mut leader, mut client) = counting(&journal, &a, &repair, 1);
    let own = own.to_str().unwrap();
    let args =
        ["follow", "--service", "counter", "--feed", &a, "--repair", &repair, "--dir", own, "--json", "--no-metrics"];
    let mut replica = Process::start(&args);
    replica.until("being live", |line| is_live(line).then_some(()));
    let mut total = add(&mut client, |sent| sent < 1_000);
    replica.signal("-STOP");
    let stopped = Instant::now();
    total += add(&mut client, |sent| sent < 50_000 || stopped.elapsed() < Duration::from_secs(seconds));
    replica.signal("-CONT");
    total += add(&mut client, |sent| sent < 1_000);
    replica.until("being level, and live", |line| {
        (figure(line, "applied")? > total && figure(line, "restarts")? == 0 && is_live(line)).then_some(())
    });
    leader.stop();
    let (seq, digest) = leader.until("the appliance's end", |line| seq_and_digest(line, "stopped at seq ", ", state "));
    replica.until("the last frame", |line| (figure(line, "applied")? >= seq).then_some(()));
    replica.stop();
    let last = replica.until("the replica's end", |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["state"] == "stopped" && line["digest"].is_string()).then_some(line)
    });
    assert_eq!((last["seq"].as_u64(), last["digest"].as_str()), (Some(seq), Some(&digest[..])));
}

/// The old journal was moved away, the new leader's epoch, stream and ports are those of the old one.
#[test]
fn a_leader_killed_and_begun_anew_on_an_empty_directory_mixes_nothing_into_a_running_replicas_log() {
    let dir = tempfile::tempdir().unwrap();
    let (a, repair) = (free_address().to_string(), free_address().to_string());
    let (journal, away, own) = (dir.path().join("journal"), dir.path().join("away"), dir.path().join("replica"));
    let own = own.to_str().unwrap();
    let args =
        ["follow", "--service", "counter", "--feed", &a, "--repair", &repair, "--dir", own, "--json", "--no-metrics"];
    let (leader, mut client) = counting(&journal, &a, &repair, 1);
    let mut replica = Process::start(&args);
    let total = add(&mut client, |sent| sent < 10);
    replica.until("being level", |line| (figure(line, "applied")? > total && is_live(line)).then_some(()));
    drop(leader);
    std::fs::rename(&journal, &away).unwrap();

    let (leader, mut client) = counting(&journal, &a, &repair, 1);
    add(&mut client, |sent| sent < 2_000);
    assert_eq!(replica.ended(), Some(1));
    drop(leader);

    // What it has is of the old log alone: it goes on with that one's leader.
    std::fs::remove_dir_all(&journal).unwrap();
    std::fs::rename(&away, &journal).unwrap();
    let (mut leader, mut client) = counting(&journal, &a, &repair, 2);
    let mut replica = Process::start(&args);
    let total = total + add(&mut client, |sent| sent < 10);
    replica.until("being level", |line| (figure(line, "applied")? > total && is_live(line)).then_some(()));
    leader.stop();
    let (seq, digest) = leader.until("the appliance's end", |line| seq_and_digest(line, "stopped at seq ", ", state "));
    replica.until("the last frame", |line| (figure(line, "applied")? >= seq).then_some(()));
    replica.stop();
    let last = replica.until("the replica's end", |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["state"] == "stopped" && line["digest"].is_string()).then_some(line)
    });
    assert_eq!((last["seq"].as_u64(), last["digest"].as_str()), (Some(seq), Some(&digest[..])));
}

#[test]
fn a_log_of_another_service_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (a, repair) = (free_address().to_string(), free_address().to_string());
    let journal = dir.path().join("journal");
    let args = ["run", "--service", "kv", "--dir", journal.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let mut leader = Process::start(&[&args[..], &["--feed", &a, "--repair", &repair]].concat());
    leader.until("the repair port", |line| line.starts_with("repair ").then_some(()));
    let own = dir.path().join("replica");
    let args = ["follow", "--service", "counter", "--feed", &a, "--repair", &repair, "--dir", own.to_str().unwrap()];
    let output = Command::new(env!("CARGO_BIN_EXE_ticktape")).args(args).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("it serves another service, this one is counter: "), "{said}");
}

#[test]
fn what_is_missing_on_the_command_line_is_named() {
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_ticktape")).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(run(&["follow", "--feed", "127.0.0.1:7101"]).contains("--repair"));
    assert!(run(&["follow"]).contains("--ring"));
    assert!(
        run(&["follow", "--feed", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "--repair", "127.0.0.1:4"])
            .contains("two sides")
    );
    let same = run(&["follow", "--feed", "127.0.0.1:1,127.0.0.1:1", "--repair", "127.0.0.1:4", "--dir", "/nowhere"]);
    assert!(same.contains("127.0.0.1:1 twice"), "{same}");
    let there = ["follow", "--feed", "127.0.0.1:1", "--repair", "127.0.0.1:4", "--dir", "/nowhere"];
    let nowhere = run(&[&there[..], &["--cores", "intake@4095"]].concat());
    assert!(nowhere.contains("core 4095 can't be used by this process"), "{nowhere}");
    let not_one = run(&[&there[..], &["--cores", "sequencer@0"]].concat());
    assert!(not_one.contains("one of intake, journaler, executor, feed-server"), "{not_one}");
    let odd = ["--repair", "127.0.0.1:4", "--dir", "/nowhere", "--segment-bytes", "1000"];
    let odd = run(&[&["follow", "--feed", "127.0.0.1:1"][..], &odd].concat());
    assert!(odd.contains("segment_bytes = 1000: take a multiple of 4096 from ") && odd.lines().count() == 1, "{odd}");
    let dir = tempfile::tempdir().unwrap();
    let args = ["run", "--dir", dir.path().to_str().unwrap(), "--listen", "127.0.0.1:0", "--repair", "127.0.0.1:4"];
    assert!(run(&args).contains("--feed"));
}
