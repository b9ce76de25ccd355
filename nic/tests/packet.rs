//! Frames as others see them: the kernel's UDP at the other end of a veth pair, and an independent dissector; and what the
//! kernel tells about interfaces and neighbours.

mod support;

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::process::Command;

use support::{NeighbourNews, PATIENCE, RawSocket, can_run, has};
use ticktape_nic::lab::{A, B, Lab, LabConfig, Offloads};
use ticktape_nic::packet::neighbour::{NeighbourError, Neighbours, NextHop};
use ticktape_nic::packet::{
    Checksum, Headers, InterfaceInfo, MacAddr, PacketError, Template, UdpPacket, Verify, XdpAttached, parse,
};

fn frame(headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let template = Template::new(headers);
    let mut frame = vec![0; template.headers_bytes() + payload.len()];
    frame[template.headers_bytes()..].copy_from_slice(payload);
    let len = template.write(&mut frame, payload.len(), 0);
    assert_eq!(len, frame.len());
    frame
}

/// From A to B.
fn headers(lab: &Lab, source_port: u16, to: SocketAddrV4) -> Headers {
    let (a, b) = (lab.side(A), lab.side(B));
    let mac = if to.ip().is_multicast() { MacAddr::multicast(*to.ip()) } else { b.mac };
    Headers::new(a.mac, SocketAddrV4::new(a.ip, source_port), mac, to)
}

fn bound(lab: &Lab, end: ticktape_nic::lab::End, address: Ipv4Addr) -> (UdpSocket, u16) {
    let socket = lab.run(end, || UdpSocket::bind((address, 0))).expect("the address is usable");
    socket.set_read_timeout(Some(PATIENCE)).expect("a valid timeout");
    let port = socket.local_addr().expect("bound").port();
    (socket, port)
}

fn received(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 2_000];
    let (len, from) = socket.recv_from(&mut buffer).expect("it arrives");
    (buffer[..len].to_vec(), from)
}

#[test]
fn a_kernel_receiver_takes_built_frames_and_no_damaged_ones() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("frames").expect("a lab");
    let raw = lab.run(A, || RawSocket::open(&lab.side(A).interface));
    let (socket, port) = bound(&lab, B, lab.side(B).ip);
    let headers = headers(&lab, 4_000, SocketAddrV4::new(lab.side(B).ip, port));
    for len in [0, 1, 2, 17, 18, 19, 63, 1_471, 1_472] {
        let payload: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
        let good = frame(&headers, &payload);
        // The damaged ones would come first.
        for damaged in [24, 26, 40, good.len() - 1] {
            let mut bad = good.clone();
            bad[damaged] ^= 0x10;
            raw.send(&bad);
        }
        raw.send(&good);
        assert_eq!(received(&socket), (payload, headers.source.into()), "{len} bytes");
    }
}

#[test]
fn a_checksum_sent_as_ones_is_taken() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("ones").expect("a lab");
    let raw = lab.run(A, || RawSocket::open(&lab.side(A).interface));
    let (socket, port) = bound(&lab, B, lab.side(B).ip);
    let headers = headers(&lab, 4_000, SocketAddrV4::new(lab.side(B).ip, port));
    let missing = frame(&headers, &[0, 0])[40..42].to_vec();
    let ones = frame(&headers, &missing);
    assert_eq!(ones[40..42], [0xff, 0xff]);
    raw.send(&ones);
    assert_eq!(received(&socket).0, missing);
}

#[test]
fn a_group_is_reached_by_its_address() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("group").expect("a lab");
    let raw = lab.run(A, || RawSocket::open(&lab.side(A).interface));
    let (socket, port) = bound(&lab, B, Ipv4Addr::UNSPECIFIED);
    // The top bit of the group's second byte is not in its Ethernet address.
    let group = Ipv4Addr::new(239, 129, 2, 3);
    socket.join_multicast_v4(&group, &lab.side(B).ip).expect("it can be joined");
    let headers = headers(&lab, 4_000, SocketAddrV4::new(group, port));
    raw.send(&frame(&headers, b"to the group"));
    assert_eq!(received(&socket), (b"to the group".to_vec(), headers.source.into()));
}

/// What a packet socket at B sees of a kernel sender's datagram: how it was taken by a receiver who wants full checksums,
/// and by one who does not.
fn of_a_kernel_sender(offloads: Offloads) -> (Result<Checksum, PacketError>, Result<Checksum, PacketError>) {
    let lab = Lab::with("sender", &LabConfig { offloads, ..LabConfig::default() }).expect("a lab");
    let mut raw = lab.run(B, || RawSocket::open(&lab.side(B).interface));
    let (socket, port) = bound(&lab, A, lab.side(A).ip);
    let to = SocketAddrV4::new(lab.side(B).ip, 9_999);
    socket.send_to(b"from a kernel", to).expect("it can be sent");
    raw.receive(|frame| {
        let is_it = |packet: &UdpPacket<'_>| packet.destination == to && packet.payload == b"from a kernel";
        let packet = parse(frame, Verify::Report).ok().filter(is_it)?;
        assert_eq!(packet.source, SocketAddrV4::new(lab.side(A).ip, port));
        assert_eq!((packet.source_mac, packet.destination_mac), (lab.side(A).mac, lab.side(B).mac));
        let worth = |verify| parse(frame, verify).map(|packet| packet.checksum);
        Some((worth(Verify::Full), worth(Verify::FullOrPartial)))
    })
}

#[test]
fn a_kernel_senders_partial_checksums_are_known() {
    if !can_run() {
        return;
    }
    let (full, tolerant) = of_a_kernel_sender(Offloads::Keep);
    assert_eq!((full, tolerant), (Err(PacketError::UdpChecksumPartial), Ok(Checksum::Partial)));
    if has("ethtool") {
        let (full, tolerant) = of_a_kernel_sender(Offloads::Off);
        assert_eq!((full, tolerant), (Ok(Checksum::Full), Ok(Checksum::Full)));
    }
}

/// A capture in the old format (pcap), which every dissector reads.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65_535 + 100, 1] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    for frame in frames {
        let len = frame.len() as u32;
        for word in [1, 0, len, len] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(frame);
    }
    bytes
}

#[test]
fn an_independent_dissector_agrees() {
    if !has("tshark") {
        return;
    }
    let to = SocketAddrV4::new(Ipv4Addr::new(239, 1, 2, 3), 30_001);
    let from = SocketAddrV4::new(Ipv4Addr::new(10, 9, 8, 7), 65_535);
    let plain = Headers::new(MacAddr([2, 3, 4, 5, 6, 7]), from, MacAddr::multicast(*to.ip()), to);
    let tagged = Headers { vlan: Some(0xa064), ttl: 3, tos: 0xb8, ..plain };
    let payloads: Vec<Vec<u8>> = [1, 2, 3, 64, 1_471, 1_472, 65_507].map(|len| vec![len as u8; len]).into();
    let frames: Vec<_> =
        payloads.iter().flat_map(|payload| [frame(&plain, payload), frame(&tagged, payload)]).collect();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.as_file().write_all(&pcap(&frames)).expect("it can be written");
    let fields = [
        "eth.dst",
        "eth.src",
        "vlan.id",
        "ip.src",
        "ip.dst",
        "ip.ttl",
        "ip.dsfield",
        "ip.checksum.status",
        "udp.srcport",
        "udp.dstport",
        "udp.length",
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
        .arg(file.path())
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .output()
        .expect("tshark runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), frames.len(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for (lines, payload) in lines.chunks(2).zip(&payloads) {
        let len = payload.len() + 8;
        let ends = ("01:00:5e:01:02:03,02:03:04:05:06:07", "10.9.8.7,239.1.2.3");
        assert_eq!(lines[0], format!("{},,{},64,0x00,1,65535,30001,{len},1,", ends.0, ends.1));
        assert_eq!(lines[1], format!("{},100,{},3,0xb8,1,65535,30001,{len},1,", ends.0, ends.1));
    }
}

#[test]
fn an_interface_is_described() {
    if !can_run() {
        return;
    }
    let lab = Lab::with("describe", &LabConfig { mtu: 1_400, queues: 3, ..LabConfig::default() }).expect("a lab");
    let side = lab.side(B);
    let read = || lab.run(B, || InterfaceInfo::read(&side.interface)).expect("it is there");
    let info = read();
    assert_eq!((info.index, info.mac, info.mtu), (side.index, side.mac, 1_400));
    assert_eq!((info.rx_queues, info.tx_queues), (3, 3));
    assert_eq!((info.ip(), info.addresses[0].prefix), (Some(side.ip), 24));
    assert_eq!(info.driver.as_deref(), Some("veth"));
    assert!(info.up && info.carrier && info.is_ethernet && !info.is_loopback);
    assert_eq!(info.xdp, None::<XdpAttached>);
    lab.set_link(A, false).expect("down");
    let info = read();
    assert!(info.up && !info.carrier);
    lab.set_link(B, false).expect("down");
    assert!(!read().up);
}

/// An interface's neighbours, and what the kernel tells of them.
struct Asked {
    neighbours: Neighbours,
    news: NeighbourNews,
}

impl Asked {
    fn open(interface: &str, fixed: Option<MacAddr>) -> Asked {
        let news = NeighbourNews::open();
        let info = InterfaceInfo::read(interface).expect("it is there");
        Asked { neighbours: Neighbours::open(&info, fixed).expect("they can be asked"), news }
    }

    fn known(&mut self, ip: Ipv4Addr) -> MacAddr {
        self.news.until("a neighbour", || match self.neighbours.resolve(ip).expect("it is there") {
            NextHop::Known(mac) => Some(mac),
            NextHop::Pending => None,
        })
    }
}

fn asked(lab: &Lab, fixed: Option<MacAddr>) -> Asked {
    lab.run(A, || Asked::open(&lab.side(A).interface, fixed))
}

#[test]
fn neighbours_are_found() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("neighbours").expect("a lab");
    let (a, b) = (lab.side(A), lab.side(B));
    let mut asked = asked(&lab, None);
    assert_eq!(asked.neighbours.resolve(b.ip).expect("no error"), NextHop::Pending, "nobody has asked yet");
    assert_eq!(asked.known(b.ip), b.mac);
    assert!(matches!(asked.neighbours.resolve(a.ip), Err(NeighbourError::Own(ip)) if ip == a.ip));
    let group = Ipv4Addr::new(239, 1, 1, 1);
    assert_eq!(asked.known(group), MacAddr::multicast(group));
    let [x, y, z, _] = a.ip.octets();
    assert_eq!(asked.known(Ipv4Addr::new(x, y, z, 255)), MacAddr::BROADCAST);
    assert_eq!(asked.known(Ipv4Addr::BROADCAST), MacAddr::BROADCAST);
    let far = Ipv4Addr::new(192, 0, 2, 9);
    lab.command(A, "ip", ["route", "add", "192.0.2.0/24", "via", &b.ip.to_string()]).expect("ip runs");
    assert_eq!(asked.known(far), b.mac, "by the gateway");
    lab.command(A, "ip", ["route", "add", "unreachable", "198.51.100.0/24"]).expect("ip runs");
    for no_way in [Ipv4Addr::new(198, 51, 100, 1), Ipv4Addr::new(203, 0, 113, 1)] {
        let answer = asked.neighbours.resolve(no_way);
        assert!(matches!(answer, Err(NeighbourError::Unreachable(ip)) if ip == no_way), "{answer:?}");
    }
    lab.set_link(A, false).expect("down");
    assert!(matches!(asked.neighbours.resolve(b.ip), Err(NeighbourError::Unreachable(_))));
    lab.set_link(A, true).expect("up");
    assert_eq!(asked.known(b.ip), b.mac);
}

#[test]
fn a_silent_neighbour_is_named() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("silent").expect("a lab");
    let hurry = |name: &str, value: &str| {
        let path = format!("/proc/sys/net/ipv4/neigh/{}/{name}", lab.side(A).interface);
        std::fs::write(path, value).expect("a setting of this namespace");
    };
    lab.run(A, || {
        hurry("mcast_solicit", "1");
        hurry("retrans_time_ms", "10");
    });
    let [x, y, z, _] = lab.side(A).ip.octets();
    let nobody = Ipv4Addr::new(x, y, z, 77);
    let mut asked = asked(&lab, None);
    let error = asked.news.until("an answer", || asked.neighbours.resolve(nobody).err());
    assert!(error.to_string().starts_with(&format!("nobody answers for {nobody} (ARP)")), "{error}");
    // The one who comes up later is found all the same.
    lab.command(B, "ip", ["addr", "add", &format!("{nobody}/24"), "dev", &lab.side(B).interface]).expect("ip runs");
    let mac = asked.news.until("a neighbour", || match asked.neighbours.resolve(nobody) {
        Ok(NextHop::Known(mac)) => Some(mac),
        _ => None,
    });
    assert_eq!(mac, lab.side(B).mac);
}

#[test]
fn a_fixed_address_needs_nobody() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("fixed").expect("a lab");
    let mac = MacAddr([2, 0, 0, 0, 0, 99]);
    let mut asked = asked(&lab, Some(mac));
    assert_eq!(asked.known(Ipv4Addr::new(203, 0, 113, 1)), mac);
    let group = Ipv4Addr::new(239, 1, 1, 1);
    assert_eq!(asked.known(group), MacAddr::multicast(group));
}

/// Run as a child without the privilege to change neighbours, by the test below; does nothing otherwise.
#[test]
fn resolves_without_privileges() {
    let Ok(what) = std::env::var("TICKTAPE_RESOLVE") else { return };
    let (interface, ip) = what.split_once(' ').expect("two words");
    let mut asked = Asked::open(interface, None);
    println!("found {}", asked.known(ip.parse().expect("an address")));
}

#[test]
fn without_privileges_a_datagram_makes_the_kernel_look() {
    if !can_run() || !has("setpriv") {
        return;
    }
    let lab = Lab::new("nudge").expect("a lab");
    let test = std::env::current_exe().expect("this test");
    let mut child = Command::new("setpriv");
    child
        .args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin"])
        .arg(test)
        .args(["--exact", "resolves_without_privileges", "--nocapture"])
        .env("TICKTAPE_RESOLVE", format!("{} {}", lab.side(A).interface, lab.side(B).ip));
    let output = lab.run(A, || child.output()).expect("setpriv runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(&format!("found {}", lab.side(B).mac)), "{text}{}", String::from_utf8_lossy(&output.stderr));
}
