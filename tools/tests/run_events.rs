//! `ticktape run --events`: what it publishes as an operator starts it, and how its capture looks.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use ticktape::feed::MoldPacket;

/// Reached only where something does not come that must.
const PATIENCE: Duration = Duration::from_secs(30);

fn ticktape(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktape"));
    command.args(args).stdin(Stdio::null());
    command
}

fn listener() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Receives until a packet answers `wanted`.
fn hear<T>(socket: &UdpSocket, wanted: impl Fn(MoldPacket<'_>) -> Option<T>) -> T {
    let mut bytes = [0; 2_048];
    loop {
        match socket.recv(&mut bytes) {
            Ok(len) => {
                if let Some(found) = wanted(MoldPacket::parse(&bytes[..len]).unwrap()) {
                    return found;
                }
            }
            // A wait with a deadline that was stopped and continued ends so.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}"),
        }
    }
}

#[test]
fn a_run_says_where_its_events_are_and_ends_their_session() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (listener(), listener());
    let events = format!("{},{}", a.local_addr().unwrap(), b.local_addr().unwrap());
    let (journal, capture) = (dir.path().join("journal"), dir.path().join("events.pcapng"));
    let mut child = ticktape(&["run", "--service", "counter", "--listen", "127.0.0.1:0", "--nic", "udp"])
        .args(["--events", &events, "--events-repair", "127.0.0.1:0"])
        .args(["--dir", journal.to_str().unwrap(), "--capture", capture.to_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("events ") {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "it ended before it told");
    }
    let [first, second] = [&a, &b].map(|socket| socket.local_addr().unwrap());
    assert!(
        line.contains(&format!("MoldUDP64 on {first} and {second}, stream EVNT from event 1, repairs on UDP")),
        "{line}"
    );
    let heartbeat = |packet: MoldPacket<'_>| match packet {
        MoldPacket::Heartbeat { session, sequence } => Some((*session, sequence)),
        _ => None,
    };
    assert_eq!([&a, &b].map(|side| hear(side, heartbeat)), [(*b"EVNT000001", 1); 2]);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let end = |packet: MoldPacket<'_>| match packet {
        MoldPacket::EndOfSession { session, sequence } => Some((*session, sequence)),
        _ => None,
    };
    assert_eq!([&a, &b].map(|side| hear(side, end)), [(*b"EVNT000001", 1); 2]);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success() && rest.contains("events_heartbeats"), "{rest}");

    let checked = ticktape(&["capture", "check", capture.to_str().unwrap(), "--json"]).output().unwrap();
    let checked: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    let interface = &checked["interfaces"][1];
    assert_eq!(
        (&checked["ok"], &interface["content"], &interface["undecodable"]),
        (&true.into(), &"events".into(), &0.into())
    );
    assert!(interface["outbound"].as_u64().unwrap() >= 4, "{checked}");
}

/// The one line of complaint about what was asked for.
fn complaint(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    errors
}

#[test]
fn what_can_not_be_published_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let common = ["run", "--listen", "127.0.0.1:0", "--dir", journal.to_str().unwrap()];
    let refused = |args: &[&str]| complaint(&ticktape(&[&common[..], args].concat()).output().unwrap());
    let text = refused(&["--events-repair", "127.0.0.1:0"]);
    assert!(text.contains("give --events, or [events] in the file") && text.lines().count() == 1, "{text}");
    assert!(refused(&["--events", "nowhere"]).contains("no address and port"));
    let three = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
    assert!(refused(&["--events", three]).contains("two sides at most"));
    let file = dir.path().join("box.toml");
    let feeds = "[feed]\na = \"127.0.0.1:1\"\nstream = \"SAME\"\n[events]\na = \"127.0.0.1:2\"\nstream = \"SAME\"\n";
    std::fs::write(&file, format!("dir = {journal:?}\nlisten = \"127.0.0.1:0\"\n{feeds}")).unwrap();
    let text = complaint(&ticktape(&["run", "--config", file.to_str().unwrap()]).output().unwrap());
    assert!(text.contains("events.stream: \"SAME\" is that of [feed], too"), "{text}");
    assert!(!journal.exists(), "nothing is touched");
}
