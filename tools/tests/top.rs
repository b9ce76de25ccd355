//! `ticktape top`: an appliance looked at from another process.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

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
        Self::start_with(dir, name, &[])
    }

    fn start_with(dir: &tempfile::TempDir, name: &str, more: &[&str]) -> Self {
        let dir = dir.path().join("journal");
        let name = format!("{name}-{}", std::process::id());
        let args = ["run", "--service", "counter", "--dir", dir.to_str().unwrap(), "--listen", "127.0.0.1:0"];
        let mut child = Command::new(env!("CARGO_BIN_EXE_ticktape"))
            .args(args)
            .args(["--metrics", &name])
            .args(more)
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
        end(&mut self.child, signal);
    }
}

fn end(child: &mut Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    child.wait().unwrap();
}

/// Something that follows, killed when dropped.
struct Following(Child);

impl Following {
    fn start(args: &[&str]) -> Self {
        let program = env!("CARGO_BIN_EXE_ticktape");
        Following(Command::new(program).arg("follow").args(args).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
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

/// Looks until what is seen is `wanted`.
fn look_until(name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let output = ticktape(&["top", name, "--once", "--json"]);
        // Who has just begun may have no name yet.
        if let Some(seen) = serde_json::from_slice(&output.stdout).ok().filter(&wanted) {
            return seen;
        }
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(begun.elapsed() < PATIENCE, "{said}");
    }
}

fn add(address: SocketAddrV4, session: u64, times: u64) {
    let options = Options { session, schema: counter::Counter::SCHEMA_VERSION, ..Options::default() };
    let mut client = BlockingClient::connect(address, &options, PATIENCE).unwrap();
    for _ in 0..times {
        client.submit(&counter::Command::Add(2), PATIENCE).unwrap();
    }
    client.flush(PATIENCE).unwrap();
}

#[test]
fn followers_of_the_ring_are_seen_while_they_live_and_one_that_was_killed_needs_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let (ring_dir, ring) = (dir.path().to_str().unwrap(), format!("top-ring-{}", std::process::id()));
    let ring_args = ["--ring", &ring, "--ring-dir", ring_dir];
    let mut running = Running::start_with(&dir, "top-followed", &ring_args);
    let journal = dir.path().join("journal");
    let with_state = [&ring_args[..], &["--journal", journal.to_str().unwrap(), "--service", "counter"]].concat();
    let level = |look: &Value, name: &str| {
        let followers = look["followers"].as_array().unwrap();
        let mut named = followers.iter().filter(|follower| follower["name"] == name);
        named.any(|follower| follower["seq"] == look["progress"]["sequenced"] && follower["behind"] == 0)
    };
    let (first, second) = (format!("{ring}-follower-1"), format!("{ring}-follower-2"));
    let mut killed = Following::start(&ring_args);
    look_until(&running.name, |look| level(look, &first));
    let mut other = Following::start(&with_state);
    add(running.address, 2, 100);
    let seen = look_until(&running.name, |look| {
        level(look, &first) && level(look, &second) && look["counters"]["sequencer.commands"] == 100
    });
    assert_eq!((&seen["followers"][0]["overruns"], &seen["followers"][0]["frames_lost"]), (&0.into(), &0.into()));

    end(&mut killed.0, "-KILL");
    let seen = look_until(&running.name, |look| look["followers"].as_array().unwrap().len() == 1);
    assert_eq!(seen["followers"][0]["name"], second[..]);
    let mut next = Following::start(&ring_args);
    look_until(&running.name, |look| level(look, &first) && level(look, &second));
    end(&mut next.0, "-TERM");
    end(&mut other.0, "-TERM");
    let seen = look(&running.name);
    assert_eq!(seen["followers"], Value::Array(vec![]), "{seen}");
    assert!(!Path::new("/dev/shm").join(format!("{first}.metrics")).exists(), "nothing is left");
    running.signal("-TERM");
}

#[test]
fn a_replica_is_seen_as_an_appliance_is() {
    let dir = tempfile::tempdir().unwrap();
    let free = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().to_string();
    let (feed, repair, serve) = (free(), free(), free());
    let mut running = Running::start_with(&dir, "top-leader", &["--feed", &feed, "--repair", &repair]);
    add(running.address, 1, 50);
    let (own, name) = (dir.path().join("replica"), format!("top-replica-{}", std::process::id()));
    let (ring, ring_dir) = (format!("{name}-ring"), dir.path().to_str().unwrap());
    let args = ["--service", "counter", "--feed", &feed, "--repair", &repair, "--serve", &serve];
    let more = ["--dir", own.to_str().unwrap(), "--metrics", &name, "--ring", &ring, "--ring-dir", ring_dir];
    let mut replica = Following::start(&[&args[..], &more].concat());
    look_until(&name, |look| look["state"] == "live" && look["progress"]["applied"].as_u64() > Some(50));
    let mut follower = Following::start(&["--ring", &ring, "--ring-dir", ring_dir]);
    look_until(&name, |look| !look["followers"].as_array().unwrap().is_empty());
    add(running.address, 2, 100);
    let seen = look_until(&name, |look| {
        let progress = |of: &str| look["progress"][of].as_u64();
        let head = progress("leader's commit");
        let all = ["received", "durable", "committed", "applied"];
        let is_level = head > Some(150) && all.into_iter().all(|of| progress(of) == head);
        is_level && look["followers"][0]["seq"].as_u64() == head && look["counters"]["replica.feed_frames"].is_u64()
    });
    assert_eq!((&seen["service"], &seen["epoch"]), (&"counter".into(), &1.into()), "{seen}");
    assert_eq!((&seen["levels"]["replica.commit_lag"], &seen["levels"]["replica.ring_frames"]), (&0.into(), &0.into()));
    assert!(seen["counters"]["replica.bulk_frames"].as_u64() >= Some(50), "{seen}");
    assert!(seen["counters"]["intake.commits_heard"].as_u64() > Some(0), "{seen}");
    let leader = look_until(&running.name, |look| look["replicas"] == 1);
    assert_eq!(leader["state"], Value::Null);
    [&mut follower, &mut replica].into_iter().for_each(|of| end(&mut of.0, "-TERM"));
    let gone = ticktape(&["top", &name, "--once"]);
    assert_eq!(gone.status.code(), Some(2), "it leaves nothing behind");
    running.signal("-TERM");
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
    let left = look(&running.name);
    assert_eq!((&left["epoch"], &left["live"]), (&1.into(), &false.into()));
    let left = String::from_utf8(ticktape(&["top", &running.name, "--once"]).stdout).unwrap();
    assert!(left.contains("does not run any more"), "{left}");
    let ended = ticktape(&["top", &running.name]);
    assert!(String::from_utf8(ended.stdout).unwrap().contains("has stopped"));
    let mut again = Running::start(&dir, "top-killed");
    let there = look(&again.name);
    assert_eq!((&there["epoch"], &there["live"]), (&2.into(), &true.into()));
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
