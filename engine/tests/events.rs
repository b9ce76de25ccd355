//! The feed of public events, as those meet it who only listen.

mod support;

use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use support::{Answer, Command, Mailbox, TestClient, config};
use ticktape::config::{ApplianceConfig, CaptureConfig, EventsConfig, FeedConfig, SnapshotConfig};
use ticktape::feed::{FeedSession, LogTold, MoldPacket, MoldRequest, ask_log_identity, told_log_identity};
use ticktape::link::Tier;
use ticktape::pipeline::{Appliance, Report, StageName};
use ticktape::{Encode, Seq};

/// Reached only where something does not come that must.
const PATIENCE: Duration = Duration::from_secs(20);

fn start(config: &ApplianceConfig) -> Appliance {
    Appliance::start::<Mailbox>(config, &()).unwrap_or_else(|error| panic!("{error}"))
}

fn stop(appliance: Appliance) -> Report {
    let report = appliance.stop();
    assert_eq!((&report.fault, &report.errors[..]), (&None, &[][..]));
    report
}

fn address(socket: &UdpSocket) -> SocketAddrV4 {
    match socket.local_addr().unwrap() {
        std::net::SocketAddr::V4(address) => address,
        std::net::SocketAddr::V6(address) => panic!("{address}"),
    }
}

/// A receiver of one side.
struct Listener {
    socket: UdpSocket,
    /// Session, number and bytes of every event, in order of arrival.
    events: Vec<(String, u64, Vec<u8>)>,
    /// Session and next number of each heartbeat and end.
    heartbeats: Vec<(String, u64)>,
    ends: Vec<(String, u64)>,
}

impl Listener {
    fn new() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Listener { socket, events: Vec::new(), heartbeats: Vec::new(), ends: Vec::new() }
    }

    fn address(&self) -> SocketAddrV4 {
        address(&self.socket)
    }

    fn take(&mut self) {
        let mut bytes = [0; 65_535];
        let len = loop {
            match self.socket.recv(&mut bytes) {
                // A wait with a deadline that was stopped and continued ends so.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                received => break received.expect("a packet comes"),
            }
        };
        let name = |session: &[u8; 10]| String::from_utf8(session.to_vec()).unwrap();
        match MoldPacket::parse(&bytes[..len]).unwrap() {
            MoldPacket::Messages { session, sequence, messages, .. } => {
                self.events.extend((sequence..).zip(messages).map(|(seq, event)| (name(session), seq, event.to_vec())));
            }
            MoldPacket::Heartbeat { session, sequence } => self.heartbeats.push((name(session), sequence)),
            MoldPacket::EndOfSession { session, sequence } => self.ends.push((name(session), sequence)),
        }
    }

    fn until_events(&mut self, count: usize) {
        while self.events.len() < count {
            self.take();
        }
    }

    fn until_end(&mut self) {
        while self.ends.is_empty() {
            self.take();
        }
    }
}

/// The encoding that an announced event has.
fn filler(total: u8, bytes: usize) -> Vec<u8> {
    Answer::Filler(vec![total; bytes]).to_bytes()
}

fn with_events(dir: &Path, a: &Listener, b: Option<&Listener>) -> ApplianceConfig {
    let mut config = config(dir);
    let repair = Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    config.events =
        Some(EventsConfig { b: b.map(Listener::address), repair, ..EventsConfig::on_loopback(a.address()) });
    config
}

fn session(epoch: u32) -> String {
    FeedSession::new(u32::from_str_radix("EVNT", 36).unwrap(), epoch).unwrap().to_string()
}

#[test]
fn everybody_hears_what_is_emitted_on_both_sides_and_numbers_go_on_after_a_restart() {
    for tier in [Tier::Local, Tier::Memory] {
        let dir = tempfile::tempdir().unwrap();
        let (mut a, mut b) = (Listener::new(), Listener::new());
        let mut config = with_events(dir.path(), &a, Some(&b));
        config.tier = tier;
        let appliance = start(&config);
        let about = appliance.choices().events.clone().unwrap();
        assert!(about.contains("stream EVNT from event 1") && about.contains("repairs on UDP 127.0.0.1:"), "{about}");
        let mut client = TestClient::new(appliance.local_addr(), 1);
        client.ask(&Command::Add(5));
        client.ask(&Command::Announce { times: 300, bytes: 20 });
        client.until_acked();
        a.until_events(300);
        let report = stop(appliance);
        assert_eq!(report.counter(StageName::Egress, "events_messages"), 300);
        a.until_end();
        assert_eq!(a.ends[0], (session(1), 301), "a clean stop says so");

        let appliance = start(&config);
        client.redirect(appliance.local_addr());
        client.ask(&Command::Add(1));
        client.ask(&Command::Announce { times: 2, bytes: 0 });
        a.until_events(302);
        stop(appliance);
        b.until_events(302);
        let numbered = (1..=300).map(|seq| (session(1), seq, filler(5, 20)));
        let all: Vec<_> = numbered.chain((301..=302).map(|seq| (session(2), seq, filler(6, 0)))).collect();
        assert_eq!(a.events, all, "{tier:?}");
        assert_eq!(b.events, all, "{tier:?}: the same bytes on the other side");
    }
}

#[test]
fn an_idle_feed_says_where_it_stands_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut a = Listener::new();
    let appliance = start(&with_events(dir.path(), &a, None));
    while a.heartbeats.is_empty() {
        a.take();
    }
    assert_eq!(a.heartbeats[0], (session(1), 1));
    stop(appliance);
}

/// Asks for events and returns what comes, until `count` have.
fn repaired(at: SocketAddrV4, epoch: u32, from: u64, count: u16) -> Vec<(u64, Vec<u8>)> {
    let mut asker = Listener::new();
    let session = FeedSession::new(u32::from_str_radix("EVNT", 36).unwrap(), epoch).unwrap().encode();
    let request = MoldRequest { session, sequence: from, count };
    asker.socket.send_to(&request.encode(), at).unwrap();
    asker.until_events(count.into());
    asker.events.into_iter().map(|(_, seq, event)| (seq, event)).collect()
}

#[test]
fn who_missed_events_is_given_them_and_those_before_a_restart_too() {
    let dir = tempfile::tempdir().unwrap();
    let a = Listener::new();
    let config = with_events(dir.path(), &a, None);
    let appliance = start(&config);
    let mut client = TestClient::new(appliance.local_addr(), 1);
    for total in 1..=20u8 {
        client.ask(&Command::Add(1));
        client.ask(&Command::Announce { times: 1, bytes: total.into() });
    }
    client.until_acked();
    let event = |seq: u64| (seq, filler(seq as u8, seq as usize));
    let at = appliance.events_repair_addr().unwrap();
    assert_eq!(repaired(at, 1, 7, 3), [event(7), event(8), event(9)]);
    // Not a word to the client, nor to those who only listen: as after a crash.
    stop(appliance);

    let appliance = start(&config);
    let at = appliance.events_repair_addr().unwrap();
    assert_eq!(repaired(at, 2, 15, 6), (15..=20).map(event).collect::<Vec<_>>(), "rebuilt from the log");
    let report = stop(appliance);
    assert_eq!(report.counter(StageName::Egress, "events_repaired"), 6);
}

/// Which log the repair port says that it serves, and which reign of it an epoch is.
fn log_served(at: SocketAddrV4, epoch: u32) -> LogTold {
    let asker = Listener::new();
    let stream = u32::from_str_radix("EVNT", 36).unwrap();
    asker.socket.send_to(&ask_log_identity(stream, epoch).encode(), at).unwrap();
    let mut answer = [0; 100];
    loop {
        match asker.socket.recv(&mut answer) {
            // A wait with a deadline that was stopped and continued ends so.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => return told_log_identity(stream, &answer[..received.unwrap()]).expect("an identity"),
        }
    }
}

#[test]
fn the_repair_port_tells_which_log_it_serves_over_all_reigns_and_a_new_journal_is_another() {
    let dir = tempfile::tempdir().unwrap();
    let a = Listener::new();
    let journal = dir.path().join("journal");
    let config = with_events(&journal, &a, None);
    let mut told = Vec::new();
    for reign in 0..3 {
        if reign == 2 {
            std::fs::remove_dir_all(&journal).unwrap();
        }
        let appliance = start(&config);
        let at = appliance.events_repair_addr().unwrap();
        told.push([1, 2].map(|epoch| log_served(at, epoch)));
        assert_eq!(appliance.epoch(), [1, 2, 1][reign]);
        let report = stop(appliance);
        assert_eq!(report.counter(StageName::Egress, "events_identities_told"), 2);
        assert_eq!(report.counter(StageName::Egress, "events_repairs_refused"), 0);
    }
    let told: [[LogTold; 2]; 3] = told.try_into().unwrap();
    let logs = told.each_ref().map(|[told, _]| told.log_id);
    assert!(logs[0] == logs[1] && logs[1] != logs[2], "{told:x?}");
    let reigns = told.map(|of| of.map(|told| told.reign.unwrap().id));
    assert_eq!(reigns[0][0], reigns[1][0], "the first epoch's, told by the second, too");
    let known = [reigns[0][0], reigns[1][1], reigns[2][0]];
    assert!(known.iter().all(|&id| id != 0) && known[0] != known[1] && known[0] != known[2], "{reigns:x?}");
    assert_eq!((reigns[0][1], reigns[2][1]), (0, 0), "what is yet to come");
}

#[test]
fn numbers_go_on_behind_a_snapshot_and_what_is_before_it_is_said_to_be_too_old() {
    let dir = tempfile::tempdir().unwrap();
    let a = Listener::new();
    let mut config = with_events(dir.path(), &a, None);
    config.snapshots = Some(SnapshotConfig { every_frames: 40, ..SnapshotConfig::default() });
    let appliance = start(&config);
    let mut client = TestClient::new(appliance.local_addr(), 1);
    client.ask(&Command::Announce { times: 30, bytes: 1 });
    client.until_with("a snapshot", |client| {
        client.ask(&Command::Add(1));
        appliance.covered() > Seq(40)
    });
    client.until_acked();
    stop(appliance);

    let appliance = start(&config);
    let about = appliance.choices();
    assert!(about.recovery.starts_with("the snapshot after seq "), "{}", about.recovery);
    assert!(about.events.as_ref().unwrap().contains("from event 31"), "{:?}", about.events);
    let mut asker = Listener::new();
    let session = FeedSession::new(u32::from_str_radix("EVNT", 36).unwrap(), 2).unwrap().encode();
    let request = MoldRequest { session, sequence: 5, count: 3 };
    asker.socket.send_to(&request.encode(), appliance.events_repair_addr().unwrap()).unwrap();
    asker.take();
    assert_eq!(asker.heartbeats.last().map(|heartbeat| heartbeat.1), Some(31), "the oldest number that there is");
    stop(appliance);
}

#[test]
fn an_event_that_fits_no_datagram_stops_the_service_with_the_limit_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut a = Listener::new();
    let config = with_events(dir.path(), &a, None);
    let appliance = start(&config);
    let mut client = TestClient::new(appliance.local_addr(), 1);
    client.ask(&Command::Announce { times: 1, bytes: 1_400 });
    client.send(&Command::Announce { times: 1, bytes: 1_500 });
    client.until("the fault", |_| appliance.fault().is_some());
    let fault = appliance.stop().fault.unwrap();
    assert!(fault.contains("each at most 14") && fault.contains("step limits"), "{fault}");
    a.until_events(1);
    assert_eq!(a.events, [(session(1), 1, filler(0, 1_400))], "nothing of that step was released");
}

/// What an independent dissector reads: frame by frame, one line of fields each, joined by `|`.
fn tshark(file: &Path, ports: &[u16], filter: &str, fields: &[&str]) -> Option<Vec<String>> {
    let mut command = Process::new("tshark");
    command.arg("-r").arg(file).args(["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]);
    ports.iter().for_each(|port| {
        command.args(["-d", &format!("udp.port=={port},moldudp64")]);
    });
    command.args(["-Y", filter, "-T", "fields", "-E", "separator=|", "-E", "aggregator=,"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = match command.stdin(Stdio::null()).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        output => output.unwrap(),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

#[test]
fn wireshark_reads_a_capture_of_both_feeds() {
    let dir = tempfile::tempdir().unwrap();
    let (mut events_a, events_b) = (Listener::new(), Listener::new());
    let (frames_a, frames_b) = (Listener::new(), Listener::new());
    let file = dir.path().join("feeds.pcapng");
    let mut config = with_events(&dir.path().join("journal"), &events_a, Some(&events_b));
    config.feed = Some(FeedConfig { b: Some(frames_b.address()), ..FeedConfig::on_loopback(frames_a.address()) });
    config.capture = Some(CaptureConfig::new(&file));
    let appliance = start(&config);
    let mut client = TestClient::new(appliance.local_addr(), 1);
    for _ in 0..40 {
        client.ask(&Command::Add(1));
        client.ask(&Command::Announce { times: 7, bytes: 30 });
    }
    client.until_acked();
    events_a.until_events(280);
    let report = stop(appliance);
    let captured = report.capture.as_ref().unwrap();
    assert!(captured.lost == 0 && captured.error.is_none(), "{captured:?}");

    let ports = [&events_a, &events_b, &frames_a, &frames_b].map(|one| one.address().port());
    let malformed = "_ws.malformed || udp.checksum.status == 0 || ip.checksum.status == 0";
    let Some(wrong) = tshark(&file, &ports, malformed, &["frame.number"]) else {
        let _ = writeln!(std::io::stderr(), "skipped: tshark is not installed");
        return;
    };
    assert_eq!(wrong, [""; 0]);
    let last_seq = report.counter(StageName::Executor, "applied_seq");
    let streams = [(ports[0], ports[1], session(1), 280), (ports[2], ports[3], "TAPE000001".to_string(), last_seq)];
    for (a, b, session, messages) in streams {
        let [on_a, on_b] = [a, b].map(|port| {
            let filter = format!("udp.dstport == {port}");
            let mold = ["moldudp64.session", "moldudp64.sequence", "moldudp64.count", "moldudp64.msglen", "udp.length"];
            tshark(&file, &ports, &filter, &mold).unwrap()
        });
        assert_eq!(on_a, on_b, "every packet goes to both sides");
        dissected_well(&on_a, &session, messages);
    }
}

/// Every packet is of this session, its lengths add up, and its numbers follow those before, from 1 to the last.
fn dissected_well(packets: &[String], session: &str, messages: u64) {
    let (mut next, mut ends) = (1, 0);
    for packet in packets {
        let fields: Vec<&str> = packet.split('|').collect();
        let [name, sequence, count, lengths, udp_length] = fields[..] else { panic!("{packet}") };
        let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{packet}"));
        assert_eq!((name, number(sequence)), (session, next), "{packet}");
        let lengths: Vec<u64> = lengths.split(',').filter(|length| !length.is_empty()).map(number).collect();
        // UDP's header, the feed's header, and each message with its length.
        assert_eq!(number(udp_length), 8 + 20 + lengths.iter().map(|length| 2 + length).sum::<u64>(), "{packet}");
        match number(count) {
            0xffff => ends += 1,
            count => {
                assert!(ends == 0 && count == lengths.len() as u64, "{packet}");
                next += count;
            }
        }
    }
    assert!(ends > 0 && next == messages + 1, "{ends} ends, {next} is next of {messages}");
}
