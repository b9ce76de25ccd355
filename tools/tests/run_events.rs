//! `ticktape run --events`: what it publishes as an operator starts it, how its capture looks, and what `follow --events` prints.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use feed::{Answer, Bank};
use ticktape::Service;
use ticktape::client::blocking::{BlockingClient, Options};
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

/// A process whose lines are read.
struct Reading {
    child: Child,
    output: BufReader<ChildStdout>,
    errors: BufReader<ChildStderr>,
}

impl Reading {
    fn start(args: &[&str]) -> Self {
        let mut child = ticktape(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let errors = BufReader::new(child.stderr.take().unwrap());
        Reading { child, output, errors }
    }

    /// One that listens to a feed, once it does.
    fn listening(args: &[&str]) -> Self {
        let mut reading = Self::start(args);
        let mut line = String::new();
        reading.errors.read_line(&mut line).unwrap();
        assert!(line.starts_with("ticktape: listening on 127.0.0.1:"), "{line}");
        reading
    }

    fn interrupt(&self) {
        assert!(Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap().success());
    }

    /// All lines that are left, and whether it ended well.
    fn rest(&mut self) -> (String, bool) {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (rest, self.child.wait().unwrap().success())
    }

    /// The next line that begins so.
    fn line(&mut self, begins: &str) -> String {
        let mut line = String::new();
        while !line.starts_with(begins) {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it ended before {begins:?}");
        }
        line
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What follows `name` in a line, up to a blank or a comma.
fn word<'a>(line: &'a str, name: &str) -> &'a str {
    let (_, rest) = line.split_once(name).unwrap_or_else(|| panic!("no {name:?} in {line}"));
    rest.split([' ', ',', '\n']).next().unwrap()
}

#[test]
fn a_receiver_prints_each_event_once_and_in_order_those_of_before_it_came_too() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let (a, b) = (listener(), listener());
    let events = format!("{},{}", a.local_addr().unwrap(), b.local_addr().unwrap());
    let mut run = Reading::start(&[
        "run",
        "--service",
        "bank",
        "--listen",
        "127.0.0.1:0",
        "--nic",
        "udp",
        "--dir",
        journal.to_str().unwrap(),
        "--events",
        &events,
        "--events-repair",
        "127.0.0.1:0",
    ]);
    let server: SocketAddrV4 = word(&run.line("bank on "), "bank on ").parse().unwrap();
    let repair = word(&run.line("events "), "repairs on UDP ").to_string();
    let options = Options { schema: Bank::SCHEMA_VERSION, ..Options::default() };
    let mut client = BlockingClient::connect(server, &options, PATIENCE).unwrap();
    let mut pay = |from: u8, to: u8| {
        let transfer = feed::Command::Transfer { from, to, amount: 1 };
        let answer: Answer = client.submit_and_wait(&transfer, PATIENCE).unwrap();
        assert!(matches!(answer, Answer::Moved { .. }));
    };
    (0..20).for_each(|_| pay(1, 2));
    // The addresses are the receiver's from here on; what was sent to them is lost to it.
    drop((a, b));
    let mut follow = Reading::start(&[
        "follow",
        "--service",
        "bank",
        "--events",
        &events,
        "--events-repair",
        &repair,
        "--from",
        "1",
        "--count",
        "40",
    ]);
    follow.line("events of bank on ");
    (0..20).for_each(|_| pay(2, 1));
    for number in 1..=40 {
        let (from, to) = if number <= 20 { (1, 2) } else { (2, 1) };
        let expected = format!("event {number}  Paid {{ from: {from}, to: {to}, amount: 1 }}\n");
        assert_eq!(follow.line("event "), expected);
    }
    let last = follow.line("40 events: ");
    assert!(last.ends_with("; 0 lost\n") && follow.child.wait().unwrap().success(), "{last}");
    // One that asks nobody prints what it hears, as JSON.
    let (c, json) = (listener(), ["--count", "1", "--json"]);
    let alone = c.local_addr().unwrap().to_string();
    drop(c);
    let mut follow = Reading::listening(&[&["follow", "--service", "bank", "--events", &alone][..], &json].concat());
    let sender = listener();
    let paid = |from| ticktape::Encode::to_bytes(&Answer::Paid { from, to: 4, amount: 9 });
    // One packet alone is not believed, nor one of another epoch beside it.
    for packet in [mold_packet(9, 1_000, &paid(5)), mold_packet(1, 7, &paid(3)), mold_packet(1, 8, &paid(3))] {
        sender.send_to(&packet, &alone).unwrap();
    }
    let line: serde_json::Value = serde_json::from_str(&follow.line("{")).unwrap();
    assert!(follow.child.wait().unwrap().success());
    assert_eq!((&line["event"], &line["text"]), (&7.into(), &"Paid { from: 3, to: 4, amount: 9 }".into()));
}

#[test]
fn the_last_events_of_a_clean_stop_are_repaired_though_all_of_them_were_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, ring_dir) = (dir.path().join("journal"), dir.path().join("rings"));
    std::fs::create_dir(&ring_dir).unwrap();
    // What is sent passes through here, or does not.
    let (relay, own) = (listener(), listener());
    let (events, own_addr) = (relay.local_addr().unwrap().to_string(), own.local_addr().unwrap());
    let mut run = Reading::start(
        &[
            &["run", "--service", "bank", "--listen", "127.0.0.1:0", "--nic", "udp", "--events", &events][..],
            &["--events-repair", "127.0.0.1:0", "--dir", journal.to_str().unwrap(), "--status", "1"],
            &["--ring", "paid", "--ring-dir", ring_dir.to_str().unwrap(), "--tier", "memory"],
        ]
        .concat(),
    );
    let serving = run.line("serving  ");
    assert!(
        serving.contains(", tier memory, strategy ") && serving.contains(", log at seq 1; events on "),
        "{serving}"
    );
    let server: SocketAddrV4 = word(&serving, "clients on ").parse().unwrap();
    let repair = word(&serving, "repairs on ").to_string();
    drop(own);
    let to = own_addr.to_string();
    let mut follow = Reading::listening(
        &[&["follow", "--service", "bank", "--events", &to, "--events-repair", &repair, "--from", "1"][..]].concat(),
    );
    let options = Options { schema: Bank::SCHEMA_VERSION, ..Options::default() };
    let mut client = BlockingClient::connect(server, &options, PATIENCE).unwrap();
    let mut pay = |times| {
        for _ in 0..times {
            let transfer = feed::Command::Transfer { from: 1, to: 2, amount: 1 };
            client.submit_and_wait::<Answer>(&transfer, PATIENCE).unwrap();
        }
    };
    pay(5);
    pass(&relay, own_addr, |packet| {
        matches!(packet, MoldPacket::Messages { sequence, count, .. }
        if sequence + u64::from(*count) == 6)
    });
    (1..=5).for_each(|number| assert!(follow.line("event ").starts_with(&format!("event {number} "))));
    pay(20);
    // Commands and what makes a session and a reign: each with its second.
    let committed = |status: &str| word(status, "committed ").parse::<u64>().unwrap();
    let status = (0..100).map(|_| run.line("status   ")).find(|status| committed(status) > 25).unwrap();
    assert!(status.contains("/s  durable ") && word(&status, "seq ") == committed(&status).to_string(), "{status}");
    run.interrupt();
    // Of all that is said from here on only the end comes through.
    loop {
        let mut bytes = [0; 2_048];
        let len = relay.recv(&mut bytes).unwrap();
        if let Ok(MoldPacket::EndOfSession { sequence: 26, .. }) = MoldPacket::parse(&bytes[..len]) {
            relay.send_to(&bytes[..len], own_addr).unwrap();
            break;
        }
    }
    (6..=25).for_each(|number| assert!(follow.line("event ").starts_with(&format!("event {number} "))));
    assert_eq!(follow.line("the appliance"), "the appliance has stopped; event 26 would be next\n");
    follow.interrupt();
    let (last, is_good) = follow.rest();
    assert!(is_good && last.starts_with("25 events: ") && last.ends_with("; 0 lost\n"), "{last}");
    let (rest, is_good) = run.rest();
    assert!(is_good && rest.contains("events_repaired"), "{rest}");
    assert_eq!(std::fs::read_dir(&ring_dir).unwrap().count(), 0, "neither ring nor lock is left behind");
}

/// Passes on what comes, up to a packet that is `last`.
fn pass(relay: &UdpSocket, to: SocketAddr, last: impl Fn(&MoldPacket<'_>) -> bool) {
    let mut bytes = [0; 2_048];
    loop {
        let len = relay.recv(&mut bytes).unwrap();
        relay.send_to(&bytes[..len], to).unwrap();
        if last(&MoldPacket::parse(&bytes[..len]).unwrap()) {
            break;
        }
    }
}

/// One message of stream EVNT.
fn mold_packet(epoch: u8, number: u64, message: &[u8]) -> Vec<u8> {
    let mut packet = format!("EVNT{epoch:06}").into_bytes();
    packet.extend(number.to_be_bytes());
    packet.extend(1u16.to_be_bytes());
    packet.extend((message.len() as u16).to_be_bytes());
    packet.extend(message);
    packet
}

#[test]
fn flags_that_do_not_belong_together_are_refused_in_one_line() {
    let (feed, other) = ("127.0.0.1:7100", "127.0.0.1:7200");
    let refused = |args: &[&str], names: &[&str]| {
        let text = complaint(&ticktape(&[&["follow"], args].concat()).output().unwrap());
        assert!(text.lines().count() == 1 && names.iter().all(|name| text.contains(name)), "{args:?}: {text}");
    };
    refused(&[], &["--ring", "--feed", "--events"]);
    refused(&["--ring", "book", "--events", feed], &["--ring", "--events"]);
    refused(&["--feed", feed, "--events", other], &["--feed", "--events"]);
    refused(&["--feed", feed], &["--repair", "--dir"]);
    refused(&["--feed", feed, "--repair", other, "--dir", "x", "--journal", "y"], &["--journal", "--feed"]);
    refused(&["--events", feed, "--journal", "y"], &["--journal", "--events"]);
    refused(&["--events", feed, "--until", "5"], &["--until", "cannot be used with", "--events"]);
    refused(&["--events", feed, "--dir", "x"], &["--dir", "cannot be used with", "--events"]);
    refused(&["--events", feed, "--repair", other], &["--repair", "cannot be used with", "--events"]);
    refused(&["--events", feed, "--events-repair", "127.0.0.1:0"], &["--events-repair", "port 0"]);
    refused(&["--feed", feed, "--repair", "127.0.0.1:0", "--dir", "x"], &["--repair", "port 0"]);
    let from = |more: &[&str], names: &[&str]| {
        refused(&[&["--events", feed, "--events-repair", other, "--from"], more].concat(), names);
    };
    from(&["9223372036854775808", "--from-epoch", "1"], &["--from", "9223372036854775807"]);
    from(&["0"], &["--from"]);
    from(&["1", "--from-log", "0"], &["--from-log", "no log's identity"]);
    from(&["1", "--from-log", "+1"], &["--from-log", "no log's identity"]);
    from(&["1", "--from-log", "1", "--from-reign", "2"], &["--from-epoch"]);
    refused(&["--events", feed, "--from-log", "1"], &["--from"]);
    refused(&["--events", feed, "--from", "5"], &["--events-repair"]);
    refused(&["--ring", "book", "--json"], &["--feed", "--events"]);
    refused(&["--ring", "book", "--events-repair", other], &["--events"]);
    let help = ticktape(&["follow", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for heading in ["A ring on this box: ", "A feed, as a replica: ", "Public events, to print: "] {
        assert!(help.contains(heading), "{help}");
    }
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
    assert!(refused(&["--events", "127.0.0.1:1,127.0.0.1:1"]).contains("127.0.0.1:1 twice"));
    assert!(refused(&["--feed", "127.0.0.1:0"]).contains("port 0"));
    let same = refused(&["--feed", "127.0.0.1:7100", "--events", "127.0.0.1:7100"]);
    assert!(same.contains("events.a: 127.0.0.1:7100 is feed.a, too") && same.lines().count() == 1, "{same}");
    let own = ["run", "--listen", "127.0.0.1:7100", "--dir", journal.to_str().unwrap(), "--events", "127.0.0.1:7100"];
    let own = complaint(&ticktape(&own).output().unwrap());
    assert!(own.contains("events.a: 127.0.0.1:7100 is where this appliance itself is bound (listen"), "{own}");
    let three = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
    assert!(refused(&["--events", three]).contains("two sides at most"));
    let file = dir.path().join("box.toml");
    let feeds = "[feed]\na = \"127.0.0.1:1\"\nstream = \"SAME\"\n[events]\na = \"127.0.0.1:2\"\nstream = \"SAME\"\n";
    std::fs::write(&file, format!("dir = {journal:?}\nlisten = \"127.0.0.1:0\"\n{feeds}")).unwrap();
    let text = complaint(&ticktape(&["run", "--config", file.to_str().unwrap()]).output().unwrap());
    assert!(text.contains("events.stream: \"SAME\" is that of [feed], too"), "{text}");
    assert!(!journal.exists(), "nothing is touched");
}
