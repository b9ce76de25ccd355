//! Labs: two namespaces and a veth pair, and nothing left of them.

mod support;

use std::io::Write as _;
use std::net::UdpSocket;
use std::os::unix::process::ExitStatusExt as _;
use std::panic::AssertUnwindSafe;
use std::process::{Command, Stdio};

use support::{PATIENCE, can_run, has};
use ticktape_nic::lab::{self, A, B, Lab, LabConfig, LabError, Offloads};

/// The namespaces whose name contains a hint.
fn spaces(hint: &str) -> Vec<String> {
    let output = Command::new("ip").args(["netns", "list"]).output().expect("ip runs");
    let text = String::from_utf8(output.stdout).expect("names are ASCII");
    text.lines()
        .filter(|line| line.contains(hint))
        .map(|line| line.split(' ').next().unwrap_or(line).to_owned())
        .collect()
}

/// One datagram each way through kernel sockets; what a fresh lab must do at once.
fn ping_pong(lab: &Lab) {
    let socket = |end| lab.run(end, || UdpSocket::bind((lab.side(end).ip, 0))).expect("the address is usable");
    let (a, b) = (socket(A), socket(B));
    for socket in [&a, &b] {
        socket.set_read_timeout(Some(PATIENCE)).expect("a valid timeout");
    }
    let mut buffer = [0; 16];
    a.send_to(b"there", b.local_addr().expect("bound")).expect("b is reachable");
    let (len, from) = b.recv_from(&mut buffer).expect("it arrives");
    assert_eq!((&buffer[..len], from), (&b"there"[..], a.local_addr().expect("bound")));
    b.send_to(b"back", from).expect("a is reachable");
    let (len, _) = a.recv_from(&mut buffer).expect("it arrives");
    assert_eq!(&buffer[..len], b"back");
}

#[test]
fn a_fresh_lab_carries_datagrams_at_once() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("fresh").expect("a lab");
    ping_pong(&lab);
    assert_ne!(lab.side(A).mac, lab.side(B).mac);
    assert_eq!(lab.side(A).ip.octets()[3], 1);
    assert_eq!(lab.side(B).ip.octets()[3], 2);
    assert!(lab.link(A).expect("a link").running);
}

#[test]
fn the_shape_is_what_was_asked_for() {
    if !can_run() {
        return;
    }
    let config = LabConfig { mtu: 3_000, queues: 4, ..LabConfig::default() };
    let lab = Lab::with("shape", &config).expect("a lab");
    assert_eq!(lab.link(B).expect("a link").mtu, 3_000);
    let shown = lab.command(A, "ip", ["-d", "link", "show", &lab.side(A).interface]).expect("ip runs");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("numtxqueues 4 numrxqueues 4"), "{shown}");
    ping_pong(&lab);
}

#[test]
fn settings_out_of_bounds_are_named() {
    for (config, text) in [
        (LabConfig { mtu: 67, ..LabConfig::default() }, "mtu = 67 is outside 68 to 65535"),
        (LabConfig { queues: 0, ..LabConfig::default() }, "queues = 0 is outside 1 to 64"),
        (LabConfig { vlan: Some(4_095), ..LabConfig::default() }, "vlan = 4095 is outside 1 to 4094"),
    ] {
        assert_eq!(Lab::with("bounds", &config).expect_err("out of bounds").to_string(), text);
    }
}

#[test]
fn complete_checksums_can_be_had() {
    if !can_run() || !has("ethtool") {
        return;
    }
    let lab = Lab::with("offloads", &LabConfig { offloads: Offloads::Off, ..LabConfig::default() }).expect("a lab");
    ping_pong(&lab);
    let shown = lab.command(B, "ethtool", ["-k", &lab.side(B).interface]).expect("ethtool runs");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for feature in ["tx-checksumming: off", "generic-receive-offload: off"] {
        assert!(shown.contains(feature), "{feature} is missing in {shown}");
    }
}

#[test]
fn a_vlan_can_be_had_where_the_kernel_has_them() {
    if !can_run() || !has("ethtool") {
        return;
    }
    match Lab::with("vlan", &LabConfig { vlan: Some(42), ..LabConfig::default() }) {
        Ok(lab) => ping_pong(&lab),
        Err(error @ LabError::NoVlan) => _ = writeln!(std::io::stderr(), "skipped: {error}"),
        Err(error) => panic!("{error}"),
    }
    assert_eq!(spaces("vlan"), Vec::<String>::new());
}

#[test]
fn a_link_goes_down_and_comes_back() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("updown").expect("a lab");
    lab.set_link(B, false).expect("down");
    assert!(!lab.link(A).expect("a link").running, "no carrier without the other end");
    assert!(!lab.link(B).expect("a link").up);
    lab.set_link(B, true).expect("up");
    ping_pong(&lab);
}

#[test]
fn work_and_programs_run_inside() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("inside").expect("a lab");
    let host = std::fs::read_link("/proc/self/ns/net").expect("a namespace");
    let here = || std::fs::read_link("/proc/thread-self/ns/net").expect("a namespace");
    let inside = lab.run(A, here);
    assert_ne!(inside, host);
    assert_ne!(inside, lab.run(B, here));
    assert_eq!(inside, lab.spawn(A, here).join().expect("no panic"));
    assert_eq!(here(), host, "the caller stays where it was");
    let output = lab.command(A, "readlink", ["/proc/self/ns/net"]).expect("readlink runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), inside.to_string_lossy());
    let missing = lab.command(A, "no-such-program", [""]).expect_err("not installed");
    assert!(matches!(missing, LabError::Program { .. }), "{missing}");
}

#[test]
fn nothing_is_left_after_a_drop_or_a_panic() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("leftovers").expect("a lab");
    assert_eq!(spaces("leftovers").len(), 2);
    // A socket that outlives the lab holds its namespace, but neither the name nor the interfaces.
    let socket = lab.run(A, || UdpSocket::bind("0.0.0.0:0")).expect("a socket");
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(move || {
        lab.run(B, || assert_eq!(lab.side(A).mac, lab.side(B).mac));
    }));
    assert!(panicked.is_err());
    assert_eq!(spaces("leftovers"), Vec::<String>::new());
    drop(socket);
}

/// Run as a child process by the test below, and killed there; does nothing otherwise.
#[test]
fn holds_a_lab_until_killed() {
    let Ok(hint) = std::env::var("TICKTAPE_LAB_HOLD") else { return };
    let _lab = Lab::new(&hint).expect("a lab");
    println!("ready");
    std::io::stdout().flush().expect("somebody listens");
    // Ends with the parent.
    _ = std::io::stdin().read_line(&mut String::new());
    std::process::abort();
}

#[test]
fn what_a_killed_process_left_is_swept() {
    if !can_run() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "holds_a_lab_until_killed", "--nocapture"])
        .env("TICKTAPE_LAB_HOLD", "killed")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test runs again");
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("piped")));
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("ready")));
    let lab = Lab::new("survivor").expect("a lab");
    assert_eq!(spaces("killed").len(), 2, "a live process keeps its own");
    child.kill().expect("it can be killed");
    assert_eq!(child.wait().expect("it ended").signal(), Some(9));
    // Another test may have swept just before.
    lab::sweep().expect("a sweep");
    assert_eq!(spaces("killed"), Vec::<String>::new());
    ping_pong(&lab);
}
