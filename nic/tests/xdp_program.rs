//! The XDP program over frames of every kind, in the kernel, without an interface.

mod xdp_frames;

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::process::Command;

use socket2::{Domain, Socket, Type};
use ticktape_nic::xdp::bpf::{
    BpfError, Filter, FilterCounters, QUEUES_MAX, Rule, UnservedQueue, Verdict, XdpProgram, supported,
};
use xdp_frames::{ETHERTYPE_SERVICE_VLAN, ETHERTYPE_VLAN, Frame};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 0x1234;
const OTHER_PORT: u16 = 0x3412;

/// Whether programs can be loaded here; says so if not.
fn may_load() -> bool {
    match supported() {
        Ok(()) => true,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "skipped: {error}");
            assert!(error.is_permission(), "with every privilege, {error}");
            false
        }
    }
}

/// A loaded program with a socket on queue 0.
struct Loaded {
    program: XdpProgram,
    socket: Socket,
    seen: FilterCounters,
}

impl Loaded {
    fn new(filter: &Filter) -> Loaded {
        let program = XdpProgram::load(filter, 2).unwrap_or_else(|error| panic!("{error}"));
        let socket = Socket::new(Domain::from(libc::AF_XDP), Type::RAW, None).unwrap();
        program.set_socket(0, socket.as_fd()).unwrap();
        Loaded { program, socket, seen: FilterCounters::default() }
    }

    /// The verdict on a frame, and the one counter that it moved.
    fn run(&mut self, frame: &[u8]) -> (Verdict, &'static str) {
        let verdict = self.program.test_run(frame, 1).unwrap().verdict;
        let now = self.program.counters().unwrap();
        let before = std::mem::replace(&mut self.seen, now);
        let moved: Vec<_> = before.rows().zip(now.rows()).filter(|(before, now)| before.1 != now.1).collect();
        let [((name, before), (_, now))] = moved[..] else { panic!("one frame moved {moved:?}") };
        assert_eq!(now, before + 1, "{name}");
        (verdict, name)
    }
}

fn rules(rules: &[(Option<Ipv4Addr>, u16)]) -> Filter {
    Filter { rules: rules.iter().map(|&(address, port)| Rule { address, port }).collect(), allow_vlan: false }
}

fn udp() -> Frame {
    Frame::udp(HOST, PORT, b"twelve bytes")
}

const REDIRECTED: (Verdict, &str) = (Verdict::Redirect, "redirected");

fn passed(reason: &'static str) -> (Verdict, &'static str) {
    (Verdict::Pass, reason)
}

#[test]
fn only_configured_destinations_are_redirected() {
    if !may_load() {
        return;
    }
    let mut loaded = Loaded::new(&rules(&[(Some(HOST), PORT), (Some(GROUP), PORT), (None, 9)]));
    for (address, port, expected) in [
        (HOST, PORT, REDIRECTED),
        (GROUP, PORT, REDIRECTED),
        (ELSEWHERE, PORT, passed("other_address")),
        (HOST, OTHER_PORT, passed("other_port")),
        (ELSEWHERE, OTHER_PORT, passed("other_port")),
        (ELSEWHERE, 9, REDIRECTED),
        (Ipv4Addr::BROADCAST, 9, REDIRECTED),
        (HOST, 0x0900, passed("other_port")),
    ] {
        for payload in [&b""[..], b"x", &[7; 1472]] {
            assert_eq!(loaded.run(&Frame::udp(address, port, payload).bytes()), expected, "{address}:{port}");
        }
    }
}

#[test]
fn every_rule_of_the_largest_filter_works() {
    if !may_load() {
        return;
    }
    let address = |i: u8| Ipv4Addr::new(239, 0, i, 255 - i);
    let all: Vec<_> = (0..16u8).map(|i| (Some(address(i)), 50_000 + u16::from(i / 3))).collect();
    let mut loaded = Loaded::new(&rules(&all));
    for (to, port) in &all {
        for (i, (from, other)) in all.iter().enumerate() {
            let expected = if port == other && to != from && !all.contains(&(*from, *port)) {
                passed("other_address")
            } else if all.contains(&(*from, *port)) {
                REDIRECTED
            } else {
                passed("other_address")
            };
            assert_eq!(loaded.run(&Frame::udp(from.unwrap(), *port, b"x").bytes()), expected, "rule {i}");
        }
    }
    assert_eq!(loaded.run(&Frame::udp(address(0), 50_006, b"x").bytes()), passed("other_port"));
}

#[test]
fn tags_are_allowed_once_or_not_at_all() {
    if !may_load() {
        return;
    }
    let filter = rules(&[(None, PORT)]);
    let mut without = Loaded::new(&filter);
    let mut with = Loaded::new(&Filter { allow_vlan: true, ..filter });
    let tagged = udp().tag(ETHERTYPE_VLAN, 0x6001).bytes();
    let twice = udp().tag(ETHERTYPE_VLAN, 5).tag(ETHERTYPE_VLAN, 7).bytes();
    let service = udp().tag(ETHERTYPE_VLAN, 5).tag(ETHERTYPE_SERVICE_VLAN, 7).bytes();
    let tagged_arp = Frame::arp().tag(ETHERTYPE_VLAN, 5).bytes();
    for frame in [&tagged, &twice, &service, &tagged_arp] {
        assert_eq!(without.run(frame), passed("vlan"));
    }
    assert_eq!(with.run(&udp().bytes()), REDIRECTED);
    assert_eq!(with.run(&tagged), REDIRECTED);
    assert_eq!(with.run(&twice), passed("vlan"));
    assert_eq!(with.run(&service), passed("vlan"));
    assert_eq!(with.run(&tagged_arp), passed("not_ipv4"));
    assert_eq!(with.run(&Frame::udp(HOST, OTHER_PORT, b"x").tag(ETHERTYPE_VLAN, 5).bytes()), passed("other_port"));
}

#[test]
fn fragments_and_options_pass() {
    if !may_load() {
        return;
    }
    let mut loaded = Loaded::new(&rules(&[(Some(HOST), PORT)]));
    const MORE: u16 = 0x2000;
    const DO_NOT: u16 = 0x4000;
    for (bits, expected) in [
        (DO_NOT, REDIRECTED),
        (MORE, passed("fragment")),
        (MORE | 185, passed("fragment")),
        (185, passed("fragment")),
        (1, passed("fragment")),
        (0x1fff, passed("fragment")),
        (0x1000, passed("fragment")),
    ] {
        assert_eq!(loaded.run(&udp().fragment(bits).bytes()), expected, "{bits:#06x}");
    }
    for words in 1..=10 {
        assert_eq!(loaded.run(&udp().options(words).bytes()), passed("ip_options"), "{words} words of options");
    }
}

#[test]
fn other_protocols_pass() {
    if !may_load() {
        return;
    }
    let mut loaded = Loaded::new(&Filter { allow_vlan: true, ..rules(&[(None, PORT)]) });
    for (protocol, name) in [(6, "TCP"), (1, "ICMP"), (2, "IGMP"), (0, "0"), (255, "255")] {
        assert_eq!(loaded.run(&udp().protocol(protocol).bytes()), passed("not_udp"), "{name}");
        assert_eq!(loaded.run(&udp().options(1).protocol(protocol).bytes()), passed("not_udp"), "{name} with options");
    }
    assert_eq!(loaded.run(&Frame::arp().bytes()), passed("not_ipv4"));
    // IPv6, LLDP, the length field of 802.3, and IPv4 in the wrong order of bytes.
    for ethertype in [0x86dd, 0x88cc, 0x0026, 0x0008] {
        assert_eq!(loaded.run(&udp().ethertype(ethertype).bytes()), passed("not_ipv4"), "{ethertype:#06x}");
    }
}

#[test]
fn every_first_byte_of_an_ip_header_has_its_reason() {
    if !may_load() {
        return;
    }
    let mut loaded = Loaded::new(&rules(&[(None, PORT)]));
    for byte in 0..=255u8 {
        let mut frame = udp().bytes();
        frame[14] = byte;
        let expected = match byte {
            0x45 => REDIRECTED,
            0x40..=0x44 => passed("short"),
            0x46..=0x4f => passed("ip_options"),
            _ => passed("not_ipv4"),
        };
        assert_eq!(loaded.run(&frame), expected, "{byte:#04x}");
    }
}

#[test]
fn every_cut_of_a_matching_frame_passes() {
    if !may_load() {
        return;
    }
    let filter = Filter { allow_vlan: true, ..rules(&[(Some(HOST), PORT)]) };
    let mut loaded = Loaded::new(&filter);
    for frame in [udp().bytes(), udp().tag(ETHERTYPE_VLAN, 5).bytes()] {
        assert_eq!(loaded.run(&frame), REDIRECTED);
        // The kernel tests with whole Ethernet headers only, as it receives.
        for len in 14..frame.len() {
            assert_eq!(loaded.run(&frame[..len]), passed("short"), "{len} of {} bytes", frame.len());
        }
        assert!(loaded.program.test_run(&frame[..13], 1).is_err());
    }
}

#[test]
fn lengths_that_contradict_the_frame_pass() {
    if !may_load() {
        return;
    }
    let mut loaded = Loaded::new(&rules(&[(Some(HOST), PORT)]));
    let frame = udp().bytes();
    let ip_bytes = u16::try_from(frame.len() - 14).unwrap();
    for length in (0..=ip_bytes + 4).chain([0x8000, 0xfffe, 0xffff]) {
        let mut frame = frame.clone();
        frame[16..18].copy_from_slice(&length.to_be_bytes());
        let expected = if (28..=ip_bytes).contains(&length) { REDIRECTED } else { passed("short") };
        assert_eq!(loaded.run(&frame), expected, "IP length {length} of {ip_bytes}");
    }
    // Ethernet pads to 60 bytes.
    let mut padded = Frame::udp(HOST, PORT, b"x").bytes();
    padded.resize(60, 0);
    assert_eq!(loaded.run(&padded), REDIRECTED);
}

#[test]
fn without_a_socket_a_matching_frame_passes_and_its_queue_is_named() {
    if !may_load() {
        return;
    }
    let mut loaded = Loaded::new(&rules(&[(Some(HOST), PORT)]));
    let frame = udp().bytes();
    assert_eq!(loaded.run(&frame), REDIRECTED);
    loaded.program.clear_socket(0).unwrap();
    loaded.program.clear_socket(0).unwrap();
    assert_eq!(loaded.run(&frame), passed("no_socket"));
    assert_eq!(loaded.program.unserved_queues().unwrap(), [UnservedQueue { queue: Some(0), frames: 1 }]);
    loaded.program.set_socket(0, loaded.socket.as_fd()).unwrap();
    assert_eq!(loaded.run(&frame), REDIRECTED);
    // A closed socket leaves its slot.
    loaded.socket = Socket::new(Domain::from(libc::AF_XDP), Type::RAW, None).unwrap();
    assert_eq!(loaded.run(&frame), passed("no_socket"));
    assert_eq!(loaded.run(&Frame::arp().bytes()), passed("not_ipv4"));
    assert_eq!(loaded.seen.frames(), 5);
}

#[test]
fn wrong_queues_and_sockets_are_refused_by_name() {
    if !may_load() {
        return;
    }
    let filter = rules(&[(Some(HOST), PORT)]);
    for queues in [0, QUEUES_MAX + 1, u32::MAX] {
        let error = XdpProgram::load(&filter, queues).unwrap_err();
        assert!(matches!(error, BpfError::QueueCount { .. }), "{error}");
    }
    assert_eq!(XdpProgram::load(&filter, QUEUES_MAX).unwrap().counters().unwrap(), FilterCounters::default());
    let Loaded { program, socket, .. } = Loaded::new(&filter);
    let error = program.set_socket(2, socket.as_fd()).unwrap_err().to_string();
    assert_eq!(error, "receive queue 2: the XDP program was loaded for queues 0 to 1");
    assert!(matches!(program.clear_socket(u32::MAX), Err(BpfError::Queue { .. })));
    let foreign = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = program.set_socket(1, foreign.as_fd()).unwrap_err();
    assert!(matches!(error, BpfError::Socket { queue: 1, .. }), "{error}");
}

#[test]
fn the_program_describes_itself() {
    if !may_load() {
        return;
    }
    let program = XdpProgram::load(&rules(&[(Some(GROUP), PORT), (None, 9)]), 4).unwrap();
    let (text, count) = (program.describe(), program.instruction_count());
    assert_eq!(text, format!("ticktape_rx redirects 239.1.2.3:4660, *:9 of 4 queues in {count} instructions"));
    assert!(program.listing().trim_end().ends_with(&format!("{}: exit", count - 1)), "{}", program.listing());
    let info = program.info().unwrap();
    assert_eq!((info.name.as_str(), info.map_ids.len()), ("ticktape_rx", 2));
    fn is_send<T: Send>(_: &T) {}
    is_send(&program);
}

#[test]
fn random_frames_are_counted_once_and_never_dropped() {
    if !may_load() {
        return;
    }
    let mut loaded = Loaded::new(&Filter { allow_vlan: true, ..rules(&[(Some(HOST), PORT)]) });
    let whole = udp().tag(ETHERTYPE_VLAN, 5).bytes();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    let mut redirected = 0;
    for _ in 0..2000 {
        let mut frame = whole[..14 + random() % (whole.len() - 13)].to_vec();
        for _ in 0..random() % 3 {
            let at = random() % frame.len();
            frame[at] = random() as u8;
        }
        let (verdict, name) = loaded.run(&frame);
        assert_eq!(verdict, if name == "redirected" { Verdict::Redirect } else { Verdict::Pass });
        redirected += u32::from(name == "redirected");
    }
    assert!(redirected > 0 && redirected < 2000, "{redirected} of 2000");
}

/// Set for a copy of this test program that has fewer privileges.
const ROLE: &str = "TICKTAPE_XDP_TEST_ROLE";

/// What a process with only these capabilities learns about programs; `None` where setpriv (util-linux) is missing.
fn supported_with(capabilities: &str) -> Option<String> {
    let output = Command::new("setpriv")
        .arg(format!("--bounding-set=-all{capabilities}"))
        .arg("--inh-caps=-all")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "role_say_what_is_supported", "--nocapture", "--include-ignored"])
        .env(ROLE, "supported")
        .output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        output => output.unwrap(),
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let answer = text.lines().find_map(|line| Some(line.split_once("supported: ")?.1.to_owned()));
    Some(answer.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr))))
}

#[test]
fn a_process_without_privilege_learns_which_it_needs() {
    if !may_load() {
        return;
    }
    for (capabilities, action) in [
        ("", "cannot create a BPF map: "),
        (",+bpf", "cannot create a BPF map: "),
        (",+net_admin,+perfmon", "cannot create a BPF map: "),
        (",+bpf,+net_admin", "cannot load an XDP program: "),
        (",+bpf,+net_admin,+perfmon", "yes"),
        (",+sys_admin,+net_admin", "yes"),
    ] {
        let Some(answer) = supported_with(capabilities) else {
            let _ = writeln!(std::io::stderr(), "skipped: setpriv (util-linux) is not installed");
            return;
        };
        assert!(answer.starts_with(action), "with {capabilities:?}: {answer}");
        assert!(action == "yes" || answer.contains("CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON"), "{answer}");
    }
}

/// The other half of the test above; by itself it does nothing.
#[test]
#[ignore = "run by a_process_without_privilege_learns_which_it_needs"]
fn role_say_what_is_supported() {
    if std::env::var_os(ROLE).is_some() {
        match supported() {
            Ok(()) => println!("supported: yes"),
            Err(error) => println!("supported: {error}"),
        }
    }
}
