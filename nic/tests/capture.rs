//! Captures: what went through a tap is in the file, as a reader of the format and Wireshark's tools see it.

mod support;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::Command;

use support::has;
use ticktape_nic::capture::pcapng::{self, Interface};
use ticktape_nic::capture::{
    CaptureError, Direction, Recorder, RecorderConfig, Summary, Tapped, Timeline, channel, monotonic_now,
};
use ticktape_nic::packet::{Checksum, HEADERS_BYTES, MacAddr, Verify, parse};
use ticktape_nic::{Nic, Rx, Tx, conformance, mem};

const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);
/// Where a capture with times of its own begins: 2020.
const BEGIN_NS: u64 = 1_577_836_800_000_000_000;

fn interface(name: &str) -> Interface {
    let description = "a test's".to_owned();
    Interface { name: name.to_owned(), description, mac: OWN, address: Some((Ipv4Addr::new(10, 0, 0, 1), 24)) }
}

fn config(path: &Path) -> RecorderConfig {
    RecorderConfig { timeline: Timeline::Since(BEGIN_NS), ..RecorderConfig::new(path, interface("test0")) }
}

fn address(host: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 7_000 + u16::from(host))
}

/// One packet as a reader finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    interface: u32,
    time_ns: u64,
    original: u32,
    frame: Vec<u8>,
    flags: u32,
    lost: u64,
}

#[derive(Debug, Default)]
struct Reading {
    names: Vec<String>,
    packets: Vec<Found>,
    /// Received and dropped, by interface.
    totals: Vec<(u64, u64)>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Options up to their end, which must be there and must end the body.
fn options(mut rest: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut found = Vec::new();
    loop {
        let [code, len] = [0, 2].map(|at| u16::from_le_bytes([rest[at], rest[at + 1]]));
        let len = usize::from(len);
        assert!(rest[4 + len..4 + len.next_multiple_of(4)].iter().all(|&byte| byte == 0), "padding is zero");
        if code == 0 {
            assert_eq!((len, rest.len()), (0, 4), "the end");
            return found;
        }
        found.push((code, rest[4..4 + len].to_vec()));
        rest = &rest[4 + len.next_multiple_of(4)..];
    }
}

/// A reader that insists on every rule of the format for the blocks that are written here.
fn read(bytes: &[u8]) -> Reading {
    let mut reading = Reading::default();
    let mut at = 0;
    while at < bytes.len() {
        let (kind, len) = (u32_at(bytes, at), u32_at(bytes, at + 4) as usize);
        assert!(len.is_multiple_of(4) && len >= 12, "block of {len} bytes at {at}");
        assert_eq!(u32_at(bytes, at + len - 4) as usize, len, "both lengths agree at {at}");
        assert_eq!(at == 0, kind == pcapng::SECTION, "one section, at the beginning");
        read_block(&mut reading, kind, &bytes[at + 8..at + len - 4]);
        at += len;
    }
    assert_eq!(at, bytes.len());
    reading
}

fn read_block(reading: &mut Reading, kind: u32, body: &[u8]) {
    match kind {
        pcapng::SECTION => {
            assert_eq!((u32_at(body, 0), u32_at(body, 4)), (pcapng::BYTE_ORDER, 1), "version 1.0");
            options(&body[16..]);
        }
        pcapng::INTERFACE => {
            let options = options(&body[8..]);
            let value = |code| options.iter().find(|option| option.0 == code).map(|option| option.1.clone());
            assert_eq!((u32_at(body, 0), value(9)), (1, Some(vec![9])), "Ethernet, nanoseconds");
            reading.names.push(String::from_utf8(value(2).expect("a name")).expect("text"));
        }
        pcapng::PACKET => {
            let captured = u32_at(body, 12) as usize;
            let options = options(&body[20 + captured.next_multiple_of(4)..]);
            let value = |code| options.iter().find(|option| option.0 == code).map(|option| &option.1[..]);
            assert!((u32_at(body, 0) as usize) < reading.names.len());
            reading.packets.push(Found {
                interface: u32_at(body, 0),
                time_ns: u64::from(u32_at(body, 4)) << 32 | u64::from(u32_at(body, 8)),
                original: u32_at(body, 16),
                frame: body[20..20 + captured].to_vec(),
                flags: u32_at(value(2).expect("flags"), 0),
                lost: value(4).map_or(0, |lost| u64::from_le_bytes(lost.try_into().expect("eight bytes"))),
            });
        }
        pcapng::STATISTICS => {
            let options = options(&body[12..]);
            let value = |code| {
                let option = options.iter().find(|option| option.0 == code).expect("a total");
                u64::from_le_bytes(option.1[..].try_into().expect("eight bytes"))
            };
            assert_eq!(u32_at(body, 0) as usize, reading.totals.len());
            reading.totals.push((value(4), value(5)));
        }
        other => panic!("block {other:#x}"),
    }
}

fn read_file(path: &Path) -> Reading {
    read(&std::fs::read(path).expect("it can be read"))
}

/// Ends a capture that must not have failed, or lost anything unnoticed.
fn finished(recorder: Recorder) -> Summary {
    let summary = recorder.finish();
    assert!(summary.error.is_none(), "{:?}", summary.error);
    assert_eq!(std::fs::metadata(&summary.path).expect("it is there").len(), summary.bytes);
    summary
}

#[test]
fn datagrams_get_their_headers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("datagrams.pcapng");
    let (mut tap, end) = channel(64, 2_000);
    let recorder = Recorder::create(config(&path), vec![(0, end)]).expect("it can be created");
    let group = SocketAddrV4::new(Ipv4Addr::new(239, 1, 2, 3), 30_001);
    assert!(tap.datagram(5, Direction::Inbound, address(2), address(1), b"in"));
    assert!(tap.datagram(6, Direction::Outbound, address(1), group, b""));
    let summary = finished(recorder);
    assert_eq!((summary.packets, summary.lost), (2, 0));

    let Reading { names, packets, totals } = read_file(&path);
    assert_eq!((names, totals), (vec!["test0".to_owned()], vec![(2, 0)]));
    let inbound = parse(&packets[0].frame, Verify::Full).expect("a whole frame");
    assert_eq!((inbound.source, inbound.destination, inbound.payload), (address(2), address(1), &b"in"[..]));
    assert_eq!((inbound.destination_mac, inbound.checksum), (OWN, Checksum::Full));
    assert_eq!((packets[0].time_ns, packets[0].flags), (BEGIN_NS + 5, 1 | 1 << 2));
    let outbound = parse(&packets[1].frame, Verify::Full).expect("a whole frame");
    assert_eq!((outbound.source_mac, outbound.destination_mac), (OWN, MacAddr::multicast(*group.ip())));
    assert_eq!((outbound.destination, outbound.payload), (group, &b""[..]));
    assert_eq!((packets[1].time_ns, packets[1].flags), (BEGIN_NS + 6, 2 | 2 << 2));
}

#[test]
fn taps_are_merged_by_time_and_cut_packets_keep_their_length() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("merged.pcapng");
    let mut config = config(&path);
    config.interfaces.push(interface("test1"));
    let ((mut whole, whole_end), (mut cut, cut_end)) = (channel(64, 1_500), channel(64, 10));
    let recorder = Recorder::create(config, vec![(1, whole_end), (0, cut_end)]).expect("it can be created");
    for time in 0..10 {
        let tap = if time % 2 == 0 { &mut whole } else { &mut cut };
        assert!(tap.datagram(time, Direction::Inbound, address(2), address(1), &[time as u8; 100]));
    }
    assert!(whole.frame(10, Direction::Outbound, &[0xff; 60]));
    finished(recorder);
    let reading = read_file(&path);
    assert_eq!(reading.names, ["test0", "test1"]);
    assert_eq!(reading.totals, [(5, 0), (6, 0)]);
    let times: Vec<u64> = reading.packets.iter().map(|packet| packet.time_ns - BEGIN_NS).collect();
    assert_eq!(times, Vec::from_iter(0..=10));
    for packet in &reading.packets[..10] {
        let is_whole = packet.interface == 1;
        assert_eq!(packet.original as usize, HEADERS_BYTES + 100);
        assert_eq!(packet.frame.len(), HEADERS_BYTES + if is_whole { 100 } else { 10 });
        // What is left of a cut one says how long it was.
        assert_eq!(packet.frame[16..18], (20 + 8 + 100_u16).to_be_bytes());
        assert_eq!(packet.frame[40..42] == [0, 0], !is_whole, "no checksum over what is not there");
    }
    assert_eq!((reading.packets[10].frame.clone(), reading.packets[10].flags), (vec![0xff; 60], 2 | 3 << 2));
}

#[test]
fn losses_stand_in_place_and_in_sum() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("losses.pcapng");
    let (mut tap, end) = channel(2, 100);
    let mut recorder = Recorder::create(config(&path), vec![(0, end)]).expect("it can be created");
    let mut send = |time| tap.frame(time, Direction::Inbound, &[time as u8; 100]);
    assert_eq!([0, 1, 2, 3, 4].map(&mut send), [true, true, false, false, false]);
    assert_eq!(recorder.poll(), 2);
    assert!(send(5) && send(6) && !send(7));
    let summary = finished(recorder);
    assert_eq!((summary.packets, summary.lost), (4, 4));
    let reading = read_file(&path);
    assert_eq!(reading.packets.iter().map(|packet| packet.lost).collect::<Vec<_>>(), [0, 0, 3, 0]);
    assert_eq!(reading.totals, [(8, 4)]);
}

#[test]
fn a_capture_ends_at_its_limit_and_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limit.pcapng");
    let (mut tap, end) = channel(100, 100);
    let config = RecorderConfig { bytes_max: 2_000, ..config(&path) };
    let mut recorder = Recorder::create(config, vec![(0, end)]).expect("it can be created");
    assert!((0..50).all(|time| tap.frame(time, Direction::Inbound, &[0; 100])));
    while recorder.poll() > 0 {}
    let summary = recorder.finish();
    let text = format!("capture {} ended at its limit of 2000 bytes", path.display());
    assert_eq!(summary.error.expect("it ended early").to_string(), text);
    let reading = read_file(&path);
    assert!(summary.bytes <= 2_000 && summary.packets > 5, "{} bytes", summary.bytes);
    assert_eq!(reading.packets.len() as u64, summary.packets);
    assert_eq!(summary.packets + summary.lost, 50);
    assert_eq!(reading.totals, [(50, summary.lost)]);
}

/// Run as a child, on a small file system of its own, by the test below; does nothing otherwise.
#[test]
fn fills_a_disk() {
    let Some(folder) = std::env::var_os("TICKTAPE_FULL_DISK") else { return };
    let path = Path::new(&folder).join("full.pcapng");
    let (mut tap, end) = channel(1_000, 1_000);
    let mut recorder = Recorder::create(config(&path), vec![(0, end)]).expect("it can be created");
    // Once the disk is full nothing is taken any more, and the tap overflows.
    let mut sent = 0;
    while tap.lost() == 0 {
        assert!(sent < 20_000, "the disk is too large");
        sent += u64::from(tap.frame(sent, Direction::Inbound, &[7; 1_000]));
        if sent.is_multiple_of(500) {
            while recorder.poll() > 0 {}
        }
    }
    let lost = tap.lost();
    let summary = recorder.finish();
    let error = summary.error.expect("the disk is full");
    assert!(matches!(error, CaptureError::Write { .. }), "{error}");
    assert!(error.to_string().ends_with("free some space, or capture to another disk"), "{error}");
    let reading = read_file(&path);
    assert_eq!(reading.packets.len() as u64, summary.packets);
    assert!(summary.packets > 100 && lost > 0);
    assert_eq!(summary.packets + summary.lost, sent + lost);
    println!("ended by name");
}

#[test]
fn a_full_disk_ends_the_capture_by_name_and_leaves_whole_blocks() {
    if !support::can_run() || !has("unshare") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", "mount -t tmpfs -o size=1m none \"$1\" && shift && exec \"$@\"", "sh"])
        .arg(folder.path())
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", "fills_a_disk", "--nocapture"])
        .env("TICKTAPE_FULL_DISK", folder.path())
        .output()
        .expect("unshare runs");
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(text.contains("ended by name"), "{text}");
}

#[test]
fn what_cannot_be_created_is_named() {
    let config = config(Path::new("/no/such/folder/x.pcapng"));
    let error = Recorder::create(config.clone(), Vec::new()).expect_err("no such folder");
    assert!(error.to_string().starts_with("cannot create capture /no/such/folder/x.pcapng: "), "{error}");
    let (_, end) = channel(1, 1);
    let error = Recorder::create(config, vec![(1, end)]).expect_err("no such interface");
    assert_eq!(error.to_string(), "a tap of interface 1 in a capture of 1");
}

/// An end that is tapped into the void: its recorder is gone.
fn tapped(nic: mem::MemNic) -> Tapped<mem::MemNic> {
    let (rx, tx) = (channel(16, 100).0, channel(16, 100).0);
    Tapped::new(nic, rx, tx, Ipv4Addr::new(10, 0, 0, 1), monotonic_now)
}

#[test]
fn a_tapped_backend_keeps_the_ports_promises() {
    let pair = || {
        let (a, b) = mem::pair();
        (tapped(a), tapped(b))
    };
    conformance::run(pair, monotonic_now);
    conformance::run_threads(pair, monotonic_now);
}

#[test]
fn both_halves_are_recorded_with_real_times() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tapped.pcapng");
    let (a, b) = mem::pair();
    let (a_address, b_address) = (a.local_addr(), b.local_addr());
    let ((rx_tap, rx_end), (tx_tap, tx_end)) = (channel(64, 1_500), channel(64, 1_500));
    let config = RecorderConfig { timeline: Timeline::Monotonic, ..config(&path) };
    let recorder = Recorder::create(config, vec![(0, rx_end), (0, tx_end)]).expect("it can be created");
    let recorder = recorder.spawn().expect("a thread");
    let a = Tapped::new(a, rx_tap, tx_tap, *a_address.ip(), monotonic_now);
    assert!(a.describe().ends_with("; captured"));
    let ((mut a_rx, mut a_tx), (mut b_rx, mut b_tx)) = (a.split(), b.split());
    let before = std::time::SystemTime::now();
    for round in 0..10_u8 {
        a_tx.reserve().expect("room")[0] = round;
        a_tx.commit(1, b_address);
        a_tx.flush();
        b_rx.poll(monotonic_now(), 1, |datagram| {
            b_tx.reserve().expect("room")[..2].copy_from_slice(&[datagram.payload[0], 1]);
            b_tx.commit(2, a_address);
        });
        b_tx.flush();
        assert_eq!(a_rx.poll(monotonic_now(), 1, |datagram| assert_eq!(datagram.payload, [round, 1])), 1);
    }
    let after = std::time::SystemTime::now();
    let summary = recorder.stop();
    assert_eq!((summary.packets, summary.lost, summary.error.is_none()), (20, 0, true));
    let packets = read_file(&path).packets;
    let sent = packets.iter().filter(|packet| packet.flags & 3 == 2);
    let payloads: Vec<u8> = sent.map(|packet| packet.frame[HEADERS_BYTES]).collect();
    assert_eq!(payloads, Vec::from_iter(0..10));
    // Clocks are converted to within what the two readings of them are apart.
    let nanos = |time: std::time::SystemTime| {
        time.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos() as i128
    };
    let (from, to) = (nanos(before) - 50_000_000, nanos(after) + 50_000_000);
    assert!(packets.iter().all(|packet| (from..=to).contains(&i128::from(packet.time_ns))));
}

#[test]
fn wireshark_reads_it() {
    if !has("tshark") || !has("capinfos") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("wireshark.pcapng");
    let (mut tap, end) = channel(3, 1_500);
    let mut recorder = Recorder::create(config(&path), vec![(0, end)]).expect("it can be created");
    for time in 0..40 {
        tap.datagram(time, Direction::Inbound, address(2), address(1), &[time as u8; 1_400]);
    }
    recorder.poll();
    let group = SocketAddrV4::new(Ipv4Addr::new(239, 1, 2, 3), 30_001);
    assert!(tap.datagram(123_456_789, Direction::Outbound, address(1), group, b"ticktape"));
    let summary = finished(recorder);
    assert!(summary.packets == 4 && summary.lost == 37, "{summary:?}");

    let fields = [
        "frame.time_epoch",
        "frame.interface_name",
        "frame.packet_flags_direction",
        "frame.packet_flags_reception_type",
        "ip.src",
        "ip.dst",
        "udp.dstport",
        "udp.length",
        "ip.checksum.status",
        "udp.checksum.status",
        "_ws.malformed",
    ];
    let output = Command::new("tshark")
        .args([
            "-o",
            "ip.check_checksum:TRUE",
            "-o",
            "udp.check_checksum:TRUE",
            "-T",
            "fields",
            "-E",
            "separator=,",
            "-r",
        ])
        .arg(&path)
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .output()
        .expect("tshark runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(lines.len(), 4, "{text}{said}");
    let inbound = "test0,0x00000001,1,10.0.0.2,10.0.0.1,7001,1408,1,1,";
    assert_eq!(lines[2], format!("1577836800.000000002,{inbound}"));
    let outbound = "test0,0x00000002,2,10.0.0.1,239.1.2.3,30001,16,1,1,";
    assert_eq!(lines[3], format!("1577836800.123456789,{outbound}"));

    let output = Command::new("capinfos").arg(&path).output().expect("capinfos runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in ["pcapng", "nanoseconds (9)", "Number of packets:   4", "Capture application: ticktape", "Name = test0"]
    {
        assert!(text.contains(line), "{line:?} is missing in {text}{}", String::from_utf8_lossy(&output.stderr));
    }
}
