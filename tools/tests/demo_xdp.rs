//! The demo over XDP, between two namespaces of its own: the published hash, and nothing left whoever is killed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use ticktape_nic::lab;

/// Reached only where something does not happen that must.
const PATIENCE: Duration = Duration::from_secs(60);

fn can_run() -> bool {
    match lab::available() {
        Ok(()) => true,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "skipped: {why}");
            false
        }
    }
}

/// The namespaces of a process that there are.
fn namespaces_of(pid: u32) -> Vec<String> {
    let entries = fs::read_dir("/run/netns").into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&format!("ticktape-lab-{pid}-"))).collect()
}

#[test]
fn the_published_flow_comes_out_to_the_published_hash() {
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("demo.json");
    let orders = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../engine/examples/orderbook/tests/fixtures/normal_first20000.bin.gz");
    let child = Command::new(env!("CARGO_BIN_EXE_ticktape"))
        .args(["demo", "--nic", "xdp", "--rate", "max", "--orders", orders.to_str().unwrap()])
        .args(["--json", json.to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("wire to released p50") && text.contains("over kernel UDP"), "{text}");
    let json: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(json["report_sha256"], "4008343c211f7e3330f9c7b7e72de5ebf5ee73fdf09ce47a2cb01e1e34b6c393");
    assert_eq!(json["leader_digest"], json["follower_digest"]);
    assert!(json["nic"].as_str().unwrap().starts_with("AF_XDP"), "{}", json["nic"]);
    assert_eq!(namespaces_of(pid), [""; 0]);
}

/// A demo that has got as far as sending orders over XDP.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
    _dir: tempfile::TempDir,
}

impl Running {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("rings")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_ticktape"))
            .args(["demo", "--nic", "xdp", "--messages", "3000", "--rate", "1000"])
            .args(["--dir", dir.path().join("work").to_str().unwrap()])
            .args(["--ring-dir", dir.path().join("rings").to_str().unwrap()])
            // What a killed demo leaves of the run over kernel UDP goes with this test.
            .env("TMPDIR", dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("client AF_XDP") {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "it ended before it began");
        }
        assert_eq!(namespaces_of(child.id()).len(), 2);
        Running { child, output, _dir: dir }
    }

    /// The demo's children: the appliance first.
    fn children(&self) -> Vec<u32> {
        let pid = self.child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        children.split_whitespace().map(|id| id.parse().unwrap()).collect()
    }
}

fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
}

/// A process that need not be a child.
struct Process(OwnedFd);

impl Process {
    fn of(pid: u32) -> Self {
        let pid = Pid::from_raw(pid as i32).unwrap();
        Process(pidfd_open(pid, PidfdFlags::empty()).unwrap())
    }

    fn await_end(&self) {
        let deadline = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let ended = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&deadline)).unwrap();
        assert_eq!(ended, 1, "a child goes on without its demo");
    }
}

#[test]
fn a_killed_demo_leaves_nothing_to_the_next() {
    if !can_run() {
        return;
    }
    let mut running = Running::start();
    let (pid, children) = (running.child.id(), running.children());
    assert_eq!(children.len(), 2, "an appliance and a follower");
    let children: Vec<Process> = children.into_iter().map(Process::of).collect();
    kill(pid);
    running.child.wait().unwrap();
    // They notice by themselves that nobody speaks to them any more.
    children.iter().for_each(Process::await_end);
    let mut errors = String::new();
    running.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors, "", "and make no noise about it");
    // Every lab sweeps before it begins; it may be another test's that does it first.
    lab::sweep().unwrap();
    assert_eq!(namespaces_of(pid), [""; 0]);
}

#[test]
fn a_killed_appliance_is_named_and_its_network_removed() {
    if !can_run() {
        return;
    }
    let mut running = Running::start();
    let pid = running.child.id();
    kill(running.children()[0]);
    let mut errors = String::new();
    running.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    let status = running.child.wait().unwrap();
    drop(running.output);
    assert_eq!(status.code(), Some(1), "{errors}");
    assert!(errors.contains("the appliance has ended"), "{errors}");
    assert_eq!(namespaces_of(pid), [""; 0]);
}

/// Interrupts a demo and its children, as a terminal does, once it has printed a line that begins like this; what it says.
fn interrupted_after(line: &str, nic: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_ticktape"))
        .args(["demo", "--nic", nic, "--messages", "200000", "--rate", "1000"])
        .env("TMPDIR", dir.path())
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !line.is_empty() && !text.lines().any(|said| said.starts_with(line)) {
        assert_ne!(output.read_line(&mut text).unwrap(), 0, "it ended before it began: {text}");
    }
    if line.is_empty() {
        await_handler(child.id());
    }
    let group = format!("-{}", child.id());
    assert!(Command::new("kill").args(["-INT", "--", &group]).status().unwrap().success());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    drop(output);
    assert_eq!(child.wait().unwrap().code(), Some(1), "{errors}");
    assert_eq!(namespaces_of(child.id()), [""; 0]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing of it is left");
    errors
}

/// Looks until a process handles SIGINT: the earliest that it can tidy up.
fn await_handler(pid: u32) {
    let begun = std::time::Instant::now();
    loop {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        // Signal 2 is bit 1.
        if u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0 {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "it never handles SIGINT");
        std::thread::yield_now();
    }
}

#[test]
fn an_interrupted_demo_says_just_that_at_whatever_point() {
    let mut nics = vec!["udp"];
    nics.extend(can_run().then_some("xdp"));
    for nic in nics {
        for line in ["", "200000 orders", "client"] {
            let errors = interrupted_after(line, nic);
            let said: Vec<&str> = errors.lines().filter(|line| !line.is_empty()).collect();
            assert_eq!(said, ["ticktape: interrupted; everything of this run is removed"], "{nic}, after {line:?}");
        }
    }
}
