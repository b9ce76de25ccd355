//! A publisher and its subscribers, each in a process of its own: joining late, killed, stopped, and with repairs from others.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Reached only where what is waited for does not happen.
const PATIENCE: Duration = Duration::from_secs(120);

/// Frames that a late subscriber has missed.
const MISSED: u64 = if cfg!(debug_assertions) { 40_000 } else { 1_000_000 };

/// More than an arbiter holds, so that it takes a catch-up.
const BEYOND_REPAIR: u64 = 40_000;

fn free_address() -> SocketAddrV4 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, socket.local_addr().unwrap().port())
}

/// A process and what it says, killed when dropped.
struct Process {
    child: Child,
    lines: Receiver<String>,
    /// The last line.
    said: String,
}

impl Process {
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_feed")).args(args).stdout(Stdio::piped()).spawn().unwrap();
        let (tell, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        Process { child, lines, said: String::new() }
    }

    /// The next line for which `wanted` holds.
    fn until(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            match self.lines.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => {
                    assert!(!line.contains("not balanced") || line.starts_with("pub"), "{line}");
                    self.said = line;
                    if wanted(&self.said) {
                        return self.said.clone();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => panic!("{what}: it ended, having said {:?}", self.said),
            }
            assert!(begun.elapsed() < PATIENCE, "{what} did not happen; it said {:?}", self.said);
        }
    }

    fn until_seq(&mut self, seq: u64) -> u64 {
        let line = self.until(&format!("seq {seq}"), |line| number(line, "seq").is_some_and(|at| at >= seq));
        number(&line, "seq").unwrap()
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Asks it to stop; its last line.
    fn stop(mut self) -> String {
        self.signal("TERM");
        self.last()
    }

    /// Its last line, once it has ended by itself.
    fn last(&mut self) -> String {
        let line = self.until("the end", |line| line.contains(" stopped at seq "));
        assert!(self.child.wait().unwrap().success());
        line
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number after the word `name`.
fn number(line: &str, name: &str) -> Option<u64> {
    let mut words = line.split_whitespace().skip_while(|word| *word != name);
    words.nth(1)?.trim_end_matches(':').parse().ok()
}

/// What it comes to in the end: seq and digest.
fn end(line: &str) -> &str {
    line.split_once(" stopped at ").unwrap().1
}

struct Publisher {
    process: Process,
    to: SocketAddrV4,
    retx: String,
}

fn publish(dir: &Path, to: SocketAddrV4, extra: &[&str]) -> Publisher {
    let (to_text, dir) = (to.to_string(), dir.join("pub"));
    let fixed = ["pub", "--to", &to_text, "--retx-port", "0", "--dir", dir.to_str().unwrap()];
    let mut process = Process::start(&[&fixed[..], extra].concat());
    let first = process.until("the start", |line| line.starts_with("pub to "));
    let retx = first.split_once("retx ").unwrap().1.split(',').next().unwrap().to_string();
    Publisher { process, to, retx }
}

fn subscribe(dir: &Path, name: &str, bind: SocketAddrV4, retx: &str, extra: &[&str]) -> Process {
    let (bind, dir) = (bind.to_string(), dir.join(name));
    let fixed = ["sub", "--bind", &bind, "--retx", retx, "--dir", dir.to_str().unwrap()];
    Process::start(&[&fixed[..], extra].concat())
}

/// Both stop; the subscriber has come to all that the publisher has.
fn compare(publisher: Publisher, mut subscriber: Process) {
    subscriber.until("being live", |line| line.contains("; live "));
    let last = end(&publisher.process.stop()).to_string();
    subscriber.until_seq(number(&format!("x {last}"), "seq").unwrap());
    assert_eq!(end(&subscriber.stop()), last);
}

#[test]
fn a_subscriber_joins_late_from_nothing_and_stays_live() {
    let dir = tempfile::tempdir().unwrap();
    let count = MISSED.to_string();
    let mut publisher = publish(dir.path(), free_address(), &["--count", &count, "--rate", "0"]);
    let done = publisher.process.until("all transfers", |line| line.starts_with("pub done"));
    let seq = number(&done, "seq").unwrap();
    assert!(seq > MISSED);
    let mut subscriber = subscribe(dir.path(), "sub", publisher.to, &publisher.retx, &[]);
    subscriber.until_seq(seq);
    let live = subscriber.until("being live", |line| line.contains("; live "));
    let balances = |line: &str| line.split_once('[').unwrap().1.split(']').next().unwrap().to_string();
    assert_eq!(balances(&live), balances(&done));
    compare(publisher, subscriber);
}

#[test]
fn a_publisher_says_what_its_doors_counted_and_a_subscriber_speaks_json() {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = publish(dir.path(), free_address(), &["--count", "100", "--rate", "0"]);
    let seq = number(&publisher.process.until("all transfers", |line| line.starts_with("pub done")), "seq").unwrap();
    let mut subscriber = subscribe(dir.path(), "sub", publisher.to, &publisher.retx, &["--json"]);
    let line = subscriber.until("all of it", |line| line.contains(&format!("\"seq\":{seq}")));
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["balanced"], line["balances"].as_array().unwrap().len()), (&true.into(), 8));
    subscriber.signal("INT");
    let last = subscriber.until("its end", |line| line.contains("stopped"));
    let last: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!((&last["state"], &last["seq"]), (&"stopped".into(), &seq.into()));
    publisher.process.signal("INT");
    let caught_up = publisher.process.until("its catch-ups", |line| line.contains(" catch_ups "));
    assert!(caught_up.starts_with("pub ") && number(&caught_up, "catch_ups").unwrap() >= 1, "{caught_up}");
    publisher.process.until("its end", |line| line.starts_with("pub stopped at seq "));
}

#[test]
fn a_subscriber_is_killed_and_goes_on_from_its_own_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = publish(dir.path(), free_address(), &["--rate", "20000"]);
    let mut subscriber = subscribe(dir.path(), "sub", publisher.to, &publisher.retx, &[]);
    for _ in 0..3 {
        let seq = publisher.process.until_seq(number(&publisher.process.said, "seq").unwrap_or(0) + 5_000);
        subscriber.until_seq(seq);
        // SIGKILL, as it is dropped.
        drop(subscriber);
        publisher.process.until_seq(seq + 5_000);
        subscriber = subscribe(dir.path(), "sub", publisher.to, &publisher.retx, &[]);
        subscriber.until("what it had before", |line| number(line, "received").is_some_and(|received| received >= seq));
    }
    compare(publisher, subscriber);
}

#[test]
fn a_subscriber_that_was_stopped_recovers_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = publish(dir.path(), free_address(), &["--rate", "50000"]);
    let mut subscriber = subscribe(dir.path(), "sub", publisher.to, &publisher.retx, &[]);
    subscriber.until("being live", |line| line.contains("; live "));
    subscriber.signal("STOP");
    let stopped_at = publisher.process.until_seq(1);
    let seq = publisher.process.until_seq(stopped_at + BEYOND_REPAIR);
    subscriber.signal("CONT");
    subscriber.until_seq(seq);
    subscriber.until("being live again", |line| line.contains("; live "));
    compare(publisher, subscriber);
}

#[test]
fn a_publisher_is_killed_and_its_next_reign_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (to, retx) = (free_address(), free_address().port().to_string());
    let extra = ["--retx-port", &retx, "--rate", "20000"];
    let start = || {
        let (to_text, dir) = (to.to_string(), dir.path().join("pub"));
        let fixed = ["pub", "--to", &to_text, "--dir", dir.to_str().unwrap()];
        let mut process = Process::start(&[&fixed[..], &extra].concat());
        process.until("the start", |line| line.starts_with("pub to "));
        Publisher { process, to, retx: format!("127.0.0.1:{retx}") }
    };
    let mut publisher = start();
    let mut subscriber = subscribe(dir.path(), "sub", to, &publisher.retx, &[]);
    for epoch in 2..4 {
        subscriber.until_seq(publisher.process.until_seq(number(&publisher.process.said, "seq").unwrap_or(0) + 3_000));
        drop(publisher);
        publisher = start();
        subscriber.until("the next reign", |line| number(line, "epoch") == Some(epoch));
    }
    compare(publisher, subscriber);
}

#[test]
fn a_late_subscriber_begins_from_a_snapshot_where_the_log_has_lost_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let extra = ["--rate", "20000", "--snapshot-frames", "2000"];
    let mut publisher = publish(dir.path(), free_address(), &extra);
    let seq = publisher.process.until_seq(15_000);
    let mut subscriber = subscribe(dir.path(), "sub", publisher.to, &publisher.retx, &["--snapshot-gap", "5000"]);
    subscriber.until_seq(seq);
    let first = std::fs::read_dir(dir.path().join("sub")).unwrap().filter_map(|entry| {
        let path = entry.unwrap().path();
        (path.extension()? == "seg").then(|| path.file_stem()?.to_str()?.parse::<u64>().ok())?
    });
    assert!(first.min().unwrap() > 2_000, "the subscriber's log begins behind a snapshot");
    compare(publisher, subscriber);
}

/// Carries the feed to `to`, but for each 20th packet.
fn lossy_way_to(to: SocketAddrV4) -> SocketAddrV4 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let from = SocketAddrV4::new(Ipv4Addr::LOCALHOST, socket.local_addr().unwrap().port());
    // Ends with the test's process.
    std::thread::spawn(move || {
        let mut packet = [0; 2048];
        for number in 0u64.. {
            let Ok(bytes) = socket.recv(&mut packet) else { break };
            if !number.is_multiple_of(20) {
                let _ = socket.send_to(&packet[..bytes], to);
            }
        }
    });
    from
}

#[test]
fn a_rewinder_that_is_killed_while_it_repairs_is_replaced_by_another() {
    let dir = tempfile::tempdir().unwrap();
    let (a, first_a) = (free_address(), free_address());
    let mut publisher = publish(dir.path(), lossy_way_to(a), &["--rate", "20000", "--to-b", &first_a.to_string()]);
    // The first has all of feed B, and repairs; the second has what is left of A.
    let mut first = subscribe(dir.path(), "first", first_a, &publisher.retx, &["--serve", "127.0.0.1:0"]);
    let said = first.until("the start", |line| line.starts_with("sub on "));
    first.until("being live", |line| line.contains("; live "));
    let both = format!("{},{}", said.split_once("retx ").unwrap().1, publisher.retx);
    let mut second = subscribe(dir.path(), "second", a, &both, &[]);
    second.until("being live", |line| line.contains("; live "));
    second.until_seq(publisher.process.until_seq(1) + 5_000);
    drop(first);
    second.until_seq(publisher.process.until_seq(1) + 10_000);
    let last = end(&publisher.process.stop()).to_string();
    second.until_seq(number(&format!("x {last}"), "seq").unwrap());
    second.signal("TERM");
    let timeouts = second.until("what it counted", |line| line.starts_with("sub intake repair_timeouts "));
    assert!(number(&timeouts, "repair_timeouts").unwrap() > 0, "the one that is gone was asked");
    assert_eq!(end(&second.last()), last);
}

#[test]
fn a_server_that_is_killed_is_replaced_by_another() {
    let dir = tempfile::tempdir().unwrap();
    let a = free_address();
    let mut publisher = publish(dir.path(), a, &["--rate", "20000"]);
    // The first hears of everything by catch-up alone: its feed is somewhere else.
    let serve = ["--serve", "127.0.0.1:0"];
    let mut first = subscribe(dir.path(), "first", free_address(), &publisher.retx, &serve);
    let said = first.until("the start", |line| line.starts_with("sub on "));
    let retx = said.split_once("retx ").unwrap().1.to_string();
    let both = format!("{retx},{}", publisher.retx);
    first.until_seq(1_000);
    let mut second = subscribe(dir.path(), "second", a, &both, &[]);
    second.until("being live", |line| line.contains("; live "));
    drop(first);
    // What is missed meanwhile is asked of the one that is gone, then of the other.
    second.signal("STOP");
    let stopped_at = publisher.process.until_seq(1);
    let seq = publisher.process.until_seq(stopped_at + BEYOND_REPAIR);
    second.signal("CONT");
    second.until_seq(seq);
    second.until("being live again", |line| line.contains("; live "));
    compare(publisher, second);
}

#[test]
fn what_is_wrong_is_said_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("sub");
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_feed")).args(args).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let said = run(&["pub", "--to", "127.0.0.1:0", "--retx-port", "0", "--dir", dir.to_str().unwrap()]);
    assert!(
        said.contains("'127.0.0.1:0'") && said.contains("--to") && said.contains("port 0 can't be sent to"),
        "{said}"
    );
    let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let said = run(&["sub", "--bind", &taken, "--retx", "127.0.0.1:9", "--dir", dir.to_str().unwrap()]);
    assert!(said.starts_with("feed sub: ") && said.contains(&taken) && said.lines().count() == 1, "{said}");
    let said = run(&["sub", "--bind", "127.0.0.1:0", "--retx", "127.0.0.1:9", "--dir", dir.to_str().unwrap()]);
    assert!(said.contains("has no port") && said.lines().count() == 1, "{said}");
}
