//! `ticktape top`: an appliance looked at from another process.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use ticktape::Service;
use ticktape::client::blocking::{BlockingClient, Options};

/// Reached only where what is waited for does not happen.
const PATIENCE: Duration = Duration::from_secs(20);

fn ticktape(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ticktape")).args(args).output().unwrap()
}

/// An appliance of its own name, killed when dropped.
struct Running {
    child: Child,
    address: SocketAddrV4,
    name: String,
}

impl Running {
    fn start(dir: &tempfile::TempDir, name: &str) -> Self {
        let dir = dir.path().join("journal");
        let name = format!("{name}-{}", std::process::id());
        let args = ["run", "--service", "counter", "--dir", dir.to_str().unwrap(), "--listen", "127.0.0.1:0"];
        let mut child = Command::new(env!("CARGO_BIN_EXE_ticktape"))
            .args(args)
            .args(["--metrics", &name])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let port = lines
            .find_map(|line| line.strip_prefix("counter on ")?.split_once(',')?.0.rsplit(':').next()?.parse().ok());
        let shown = lines.find_map(|line| line.strip_prefix("metrics").map(str::trim).map(str::to_owned)).unwrap();
        assert_eq!(shown, format!("/dev/shm/{name}.metrics"));
        lines.find(|line| line.starts_with("serving")).unwrap();
        // What else it says nobody reads: it ends with the test.
        std::thread::spawn(move || lines.for_each(drop));
        Running { child, address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port.unwrap()), name }
    }

    fn signal(&mut self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn look(name: &str) -> Value {
    let output = ticktape(&["top", name, "--once", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn whoever_looks_sees_each_stage_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(&dir, "top-test");
    let options = Options { schema: counter::Counter::SCHEMA_VERSION, ..Options::default() };
    let mut client = BlockingClient::connect(running.address, &options, PATIENCE).unwrap();
    for _ in 0..100 {
        client.submit(&counter::Command::Add(2), PATIENCE).unwrap();
    }
    client.flush(PATIENCE).unwrap();
    let count = |look: &Value, point: &str| {
        let of = look["latencies"].as_array().unwrap().iter().find(|latency| latency["point"] == point);
        of.unwrap_or_else(|| panic!("{point}: {look}"))["count"].as_u64().unwrap()
    };
    // Counters are shown within ten milliseconds, latencies with the next poll.
    let seen = std::iter::repeat_with(|| look(&running.name)).take(200);
    let seen = seen.into_iter().find(|look| {
        let counted = ["wire_in", "sequenced", "durable", "applied", "released", "wire_out"];
        counted.iter().all(|point| count(look, point) >= 100) && look["counters"]["sequencer.commands"] == 100
    });
    let seen = seen.expect("all of it is seen in the end");
    assert_eq!((&seen["service"], &seen["epoch"]), (&"counter".into(), &1.into()));
    assert_eq!(seen["progress"]["sequenced"], seen["progress"]["applied"], "{seen}");
    let text = ticktape(&["top", &running.name, "--interval", "0.1", "--count", "2"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert_eq!(text.matches("µs from wire").count(), 2, "{text}");

    running.signal("-TERM");
    let gone = ticktape(&["top", &running.name, "--once"]);
    let said = String::from_utf8(gone.stderr).unwrap();
    assert_eq!((gone.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("there are no such metrics"), "{said}");
}

#[test]
fn what_a_killed_appliance_leaves_can_be_read_and_its_name_taken() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(&dir, "top-killed");
    running.signal("-KILL");
    assert_eq!(look(&running.name)["epoch"], 1);
    let ended = ticktape(&["top", &running.name]);
    assert!(String::from_utf8(ended.stdout).unwrap().contains("has stopped"));
    let mut again = Running::start(&dir, "top-killed");
    assert_eq!(look(&again.name)["epoch"], 2);
    again.signal("-TERM");
}

#[test]
fn what_is_asked_wrongly_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_str().unwrap();
    let said = |args: &[&str]| {
        let output = ticktape(&[&["top", "--dir", dir], args].concat());
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&[]).contains("no appliance shows metrics in"));
    assert!(said(&["--interval", "0"]).contains("0.1 to 3600 seconds"));
    assert!(said(&["../x"]).contains("../x"));
    std::fs::write(format!("{dir}/foreign.metrics"), [7; 4096]).unwrap();
    assert!(said(&["foreign"]).contains("does not begin with TKMETRC1"));
    assert!(said(&[]).contains("no appliance shows metrics in"), "nobody holds its lock");
}
