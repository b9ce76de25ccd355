//! The XDP program on interfaces: attached, refused, killed, and what it leaves to the kernel.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use ticktape_nic::lab::{self, A, B, End, Lab, LabConfig, LabError};
use ticktape_nic::xdp::bpf::{
    self, AttachMode, AttachPreference, BpfError, Filter, FilterCounters, UnservedQueue, XdpLink, XdpProgram,
};

const PORT: u16 = 7_000;
const OTHER_PORT: u16 = 7_001;
/// The index of the loopback interface in every network namespace.
const LOOPBACK: u32 = 1;
/// A receive gives up after this; nothing waits that long unless the test fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// A lab, or a word why there is none.
fn lab_with(config: &LabConfig) -> Option<Lab> {
    if let Err(reason) = lab::available() {
        let _ = writeln!(std::io::stderr(), "skipped: {reason}");
        return None;
    }
    match Lab::with("program", config) {
        Ok(lab) => Some(lab),
        Err(error @ LabError::NoVlan) => {
            let _ = writeln!(std::io::stderr(), "skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn load(filter: &Filter, queues: u32) -> XdpProgram {
    XdpProgram::load(filter, queues).unwrap_or_else(|error| panic!("{error}"))
}

fn any(port: u16) -> Filter {
    Filter::one(None, port)
}

fn attach(lab: &Lab, end: End, program: &XdpProgram, preference: AttachPreference) -> Result<XdpLink, BpfError> {
    let index = lab.side(end).index;
    lab.run(end, || program.attach(index, preference))
}

fn attached(lab: &Lab, end: End) -> Option<u32> {
    let index = lab.side(end).index;
    lab.run(end, || bpf::attached_program(index)).unwrap()
}

fn bind(lab: &Lab, end: End, port: u16) -> UdpSocket {
    let socket = lab.run(end, || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn at(lab: &Lab, end: End, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(lab.side(end).ip, port)
}

/// Sends a payload and takes it from the kernel's socket at the other end.
#[track_caller]
fn deliver(from: &UdpSocket, to: SocketAddrV4, at: &UdpSocket, payload: &[u8]) {
    from.send_to(payload, to).unwrap();
    let mut buffer = vec![0; payload.len() + 1];
    let (len, _) = at.recv_from(&mut buffer).expect("the datagram passes to the kernel");
    assert_eq!(&buffer[..len], payload);
}

#[test]
fn a_veth_pair_takes_the_program_in_native_mode_until_the_link_is_dropped() {
    let Some(lab) = lab_with(&LabConfig::default()) else { return };
    let program = load(&any(PORT), 1);
    let id = program.info().unwrap().id;
    for mode in [AttachMode::Native, AttachMode::Generic] {
        for preference in [AttachPreference::Only(mode), AttachPreference::NativeElseGeneric] {
            let link = attach(&lab, A, &program, preference).unwrap();
            let expected = if preference == AttachPreference::Only(mode) { mode } else { AttachMode::Native };
            assert_eq!(link.mode(), expected);
            assert_eq!(link.describe(), format!("{expected} XDP on veth-a"));
            assert!(link.native_refused().is_none());
            assert_eq!(attached(&lab, A), Some(id));
            drop(link);
            assert_eq!(attached(&lab, A), None);
        }
    }
    // An attached program outlives its owner, not its link.
    let link = attach(&lab, A, &program, AttachPreference::default()).unwrap();
    drop(program);
    assert_eq!(attached(&lab, A), Some(id));
    drop(link);
    assert_eq!(attached(&lab, A), None);
}

#[test]
fn an_interface_that_is_down_takes_the_program_and_keeps_it() {
    let Some(lab) = lab_with(&LabConfig::default()) else { return };
    lab.set_link(A, false).unwrap();
    let program = load(&any(PORT), 1);
    let link = attach(&lab, A, &program, AttachPreference::Only(AttachMode::Native)).unwrap();
    lab.set_link(A, true).unwrap();
    let (from, to) = (bind(&lab, B, 0), bind(&lab, A, PORT));
    deliver(&from, at(&lab, A, PORT), &to, b"x");
    assert_eq!(program.counters().unwrap().no_socket, 1);
    drop(link);
}

#[test]
fn loopback_takes_generic_mode_and_says_why() {
    let Some(lab) = lab_with(&LabConfig::default()) else { return };
    let program = load(&any(PORT), 1);
    let link = lab.run(A, || program.attach(LOOPBACK, AttachPreference::NativeElseGeneric)).unwrap();
    assert_eq!(link.mode(), AttachMode::Generic);
    let reason = link.native_refused().unwrap().reason.as_deref().unwrap();
    assert!(reason.contains("native mode"), "{reason}");
    let text = link.describe();
    assert!(text.starts_with("generic XDP on lo; native mode refused: Operation not supported"), "{text}");
    assert!(text.ends_with(reason), "{text}");

    let socket = lab.run(A, || UdpSocket::bind((Ipv4Addr::LOCALHOST, PORT))).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    deliver(&socket, SocketAddrV4::new(Ipv4Addr::LOCALHOST, PORT), &socket, b"round");
    assert_eq!(program.counters().unwrap().no_socket, 1);
    drop(link);

    let error = lab.run(A, || program.attach(LOOPBACK, AttachPreference::Only(AttachMode::Native))).unwrap_err();
    assert!(error.to_string().starts_with("cannot attach in native XDP mode to lo: "), "{error}");
}

#[test]
fn a_peer_with_too_large_an_mtu_is_named_by_the_driver() {
    let Some(lab) = lab_with(&LabConfig { mtu: 9_000, ..LabConfig::default() }) else { return };
    let program = load(&any(PORT), 1);
    let error = attach(&lab, A, &program, AttachPreference::Only(AttachMode::Native)).unwrap_err();
    assert!(error.to_string().contains("MTU"), "{error}");
    assert_eq!(attached(&lab, A), None);
    let link = attach(&lab, A, &program, AttachPreference::NativeElseGeneric).unwrap();
    assert_eq!(link.mode(), AttachMode::Generic);
    assert!(link.describe().contains("MTU"), "{}", link.describe());
}

#[test]
fn a_program_that_is_there_is_named_and_left_alone() {
    let Some(lab) = lab_with(&LabConfig::default()) else { return };
    let (first, second) = (load(&any(PORT), 1), load(&any(OTHER_PORT), 1));
    let id = first.info().unwrap().id;
    let modes = [AttachMode::Native, AttachMode::Generic];
    for there in modes {
        let link = attach(&lab, A, &first, AttachPreference::Only(there)).unwrap();
        let preferences = [AttachPreference::NativeElseGeneric].into_iter().chain(modes.map(AttachPreference::Only));
        for preference in preferences {
            let error = attach(&lab, A, &second, preference).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, BpfError::Occupied { program, .. } if program == id), "{text}");
            let expected = format!("veth-a has an XDP program attached already: id {id} (ticktape_rx); stop its owner");
            assert!(text.starts_with(&expected), "{text}");
            assert_eq!(attached(&lab, A), Some(id));
        }
        drop(link);
    }
    attach(&lab, A, &second, AttachPreference::default()).unwrap();
}

#[test]
fn an_interface_that_does_not_exist_is_refused_by_name() {
    let Some(lab) = lab_with(&LabConfig::default()) else { return };
    let program = load(&any(PORT), 1);
    for ifindex in [0, 4_242, u32::MAX] {
        let error = lab.run(A, || program.attach(ifindex, AttachPreference::default())).unwrap_err();
        let expected = format!("no interface with index {ifindex} in this network namespace: ");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}

/// One ICMP echo and its reply.
fn ping(lab: &Lab, from: End, to: Ipv4Addr) {
    let mut socket = lab.run(from, || Socket::new(Domain::IPV4, Type::RAW, Some(socket2::Protocol::ICMPV4))).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // Type, code, checksum, identifier 0x1234, sequence 1: the words add up to 0xffff.
    let echo = [8, 0, 0xe5, 0xca, 0x12, 0x34, 0, 1];
    socket.send_to(&echo, &SocketAddrV4::new(to, 0).into()).unwrap();
    let mut packet = [0; 128];
    loop {
        let len = socket.read(&mut packet).expect("a reply to the ping");
        let reply = &packet[20..len];
        if reply[0] == 0 && reply[4..] == echo[4..] {
            return;
        }
    }
}

#[test]
fn the_rest_of_the_traffic_is_the_kernels() {
    let Some(lab) = lab_with(&LabConfig::default()) else { return };
    let program = load(&any(PORT), 1);
    // A socket without rings: what is redirected to it is lost.
    let sink = Socket::new(Domain::from(libc::AF_XDP), Type::RAW, None).unwrap();
    program.set_socket(0, sink.as_fd()).unwrap();
    let link = attach(&lab, A, &program, AttachPreference::Only(AttachMode::Native)).unwrap();
    let seen = || program.counters().unwrap();

    // Nobody has talked yet: the ping has to ask for the address first.
    ping(&lab, B, lab.side(A).ip);
    let after_ping = seen();
    assert!(after_ping.not_ipv4 >= 1 && after_ping.not_udp >= 1, "{after_ping:?}");

    let listener = lab.run(A, || TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))).unwrap();
    let mut client = lab.run(B, || TcpStream::connect(at(&lab, A, PORT))).unwrap();
    let mut server = listener.accept().unwrap().0;
    client.write_all(&[7; 5_000]).unwrap();
    let mut buffer = [0; 5_000];
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    server.read_exact(&mut buffer).unwrap();
    assert_eq!(buffer, [7; 5_000]);
    assert!(seen().not_udp > after_ping.not_udp);

    let from = bind(&lab, B, 0);
    let (mine, foreign) = (bind(&lab, A, PORT), bind(&lab, A, OTHER_PORT));
    deliver(&from, at(&lab, A, OTHER_PORT), &foreign, b"foreign");
    assert_eq!(seen().other_port, 1);
    // Larger than the MTU: it comes in fragments, and those are the kernel's.
    deliver(&from, at(&lab, A, PORT), &mine, &[3; 4_000]);
    assert_eq!((seen().fragment, seen().redirected), (3, 0));

    // What matches goes to the socket, and to nobody else.
    from.send_to(b"mine", at(&lab, A, PORT)).unwrap();
    deliver(&from, at(&lab, A, OTHER_PORT), &foreign, b"after it");
    assert_eq!(seen().redirected, 1);
    mine.set_nonblocking(true).unwrap();
    assert_eq!(mine.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    // Without the socket it is the kernel's again.
    mine.set_nonblocking(false).unwrap();
    program.clear_socket(0).unwrap();
    deliver(&from, at(&lab, A, PORT), &mine, b"mine again");
    assert_eq!((seen().redirected, seen().no_socket, seen().short), (1, 1, 0));
    drop(link);
}

#[test]
fn frames_on_a_queue_without_a_socket_are_reported_with_the_queue() {
    let Some(lab) = lab_with(&LabConfig { queues: 4, ..LabConfig::default() }) else { return };
    // Fewer queues than the interface has, and a socket on none.
    let program = load(&any(PORT), 1);
    let link = attach(&lab, A, &program, AttachPreference::Only(AttachMode::Native)).unwrap();
    let to = bind(&lab, A, PORT);
    const FLOWS: u64 = 64;
    for _ in 0..FLOWS {
        // Each flow takes the transmit queue that its ports hash to, and arrives on the queue of the same number.
        deliver(&bind(&lab, B, 0), at(&lab, A, PORT), &to, b"x");
    }
    assert_eq!(program.counters().unwrap().no_socket, FLOWS);
    let unserved = program.unserved_queues().unwrap();
    assert_eq!(unserved.iter().map(|unserved| unserved.frames).sum::<u64>(), FLOWS);
    let beyond = unserved.iter().find(|unserved| unserved.queue.is_none());
    assert!(beyond.is_some_and(|UnservedQueue { frames, .. }| *frames > 0), "{unserved:?}");
    drop(link);
}

#[test]
fn tagged_datagrams_match_on_the_wire() {
    let config = LabConfig { vlan: Some(5), ..LabConfig::default() };
    if !Command::new("ethtool").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        let _ = writeln!(std::io::stderr(), "skipped: a VLAN on veth needs ethtool");
        return;
    }
    let Some(lab) = lab_with(&config) else { return };
    let (from, to) = (bind(&lab, B, 0), bind(&lab, A, PORT));
    for allow_vlan in [true, false] {
        let program = load(&Filter { allow_vlan, ..any(PORT) }, 1);
        let link = attach(&lab, A, &program, AttachPreference::Only(AttachMode::Native)).unwrap();
        deliver(&from, at(&lab, A, PORT), &to, b"tagged");
        let FilterCounters { no_socket, vlan, .. } = program.counters().unwrap();
        assert_eq!(no_socket, u64::from(allow_vlan));
        assert!(allow_vlan || vlan >= 1);
        drop(link);
    }
}

/// Set for a copy of this test program that is to attach and then to be killed.
const ROLE: &str = "TICKTAPE_XDP_TEST_ROLE";

#[test]
fn a_killed_process_leaves_nothing_attached() {
    let Some(lab) = lab_with(&LabConfig::default()) else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "role_attach_and_wait", "--nocapture", "--include-ignored"]);
    command.env(ROLE, lab.side(A).index.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = lab.spawn_command(A, &mut command).unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let announced =
        output.lines().map_while(Result::ok).find_map(|line| Some(line.split_once("attached ")?.1.to_owned()));
    let id: Option<u32> = announced.and_then(|id| id.parse().ok());
    let before = attached(&lab, A);
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    assert!(id.is_some() && before == id, "attached {before:?}, announced {id:?}");
    assert_eq!(attached(&lab, A), None);
    attach(&lab, A, &load(&any(PORT), 1), AttachPreference::default()).unwrap();
}

/// The other half of the test above; by itself it does nothing.
#[test]
#[ignore = "run by a_killed_process_leaves_nothing_attached"]
fn role_attach_and_wait() {
    let Ok(ifindex) = std::env::var(ROLE) else { return };
    let program = load(&any(PORT), 1);
    let link = program.attach(ifindex.parse().unwrap(), AttachPreference::default()).unwrap();
    println!("attached {}", program.info().unwrap().id);
    // Until it is killed, or the test has ended.
    let _ = std::io::stdin().read(&mut [0]);
    drop(link);
}
