//! The XDP backend over veth pairs: what the ports promise, and what operators are told.

#[path = "xdp/ends.rs"]
mod ends;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use ends::{Either, PORT, address, can_run, config, flush_all, now, open, open_in, receive, send};
use ticktape_nic::lab::{A, B, End, Lab, LabConfig};
use ticktape_nic::packet::MacAddr;
use ticktape_nic::xdp::bpf::{AttachMode, AttachPreference};
use ticktape_nic::xdp::{BusyPoll, NextHops, XdpConfig, XdpNic, ZeroCopy};
use ticktape_nic::{Nic, Rx, Tx, UdpConfig, UdpNic, conformance};

const GENERIC: AttachPreference = AttachPreference::Only(AttachMode::Generic);
const NATIVE: AttachPreference = AttachPreference::Only(AttachMode::Native);

#[test]
fn both_modes_keep_the_ports_promises() {
    if !can_run() {
        return;
    }
    for attach in [NATIVE, GENERIC] {
        let lab = Lab::new("conform").expect("a lab");
        let one = |end| open_in(&lab, end, &XdpConfig { attach, ..config(&lab, end) });
        conformance::run(|| (one(A), one(B)), now);
        conformance::run_threads(|| (one(A), one(B)), now);
    }
}

#[test]
fn xdp_and_kernel_udp_understand_each_other() {
    if !can_run() {
        return;
    }
    for attach in [NATIVE, GENERIC] {
        let lab = Lab::new("mixed").expect("a lab");
        let xdp = |end| Either::Xdp(open_in(&lab, end, &XdpConfig { attach, ..config(&lab, end) }));
        let udp = |end| {
            let config = UdpConfig::new(address(&lab, end));
            Either::Udp(lab.run(end, || UdpNic::open(&config)).unwrap_or_else(|error| panic!("{error}")))
        };
        conformance::run(|| (xdp(A), udp(B)), now);
        conformance::run(|| (udp(A), xdp(B)), now);
        conformance::run_threads(|| (xdp(A), udp(B)), now);
    }
}

#[test]
fn the_first_datagram_after_the_open_arrives_and_the_next_ones_bypass_the_kernel() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("first").expect("a lab");
    let (a, b) = (open(&lab, A), open(&lab, B));
    let ((_rx, mut tx), (mut rx, _tx)) = (a.split(), b.split());
    let mut id = 0u64;
    // Until the neighbour is known the kernel sends; then it no longer does.
    loop {
        let before = tx.statistics().through_kernel;
        send(&mut tx, &id.to_le_bytes(), address(&lab, B));
        flush_all(&mut tx);
        assert_eq!(receive(&mut rx, 1), [id.to_le_bytes()]);
        id += 1;
        if tx.statistics().through_kernel == before {
            break;
        }
        assert!(id < 1_000_000, "the next hop is never known");
        std::thread::yield_now();
    }
    assert!(tx.statistics().through_kernel > 0);
    assert_eq!(tx.counters().datagrams, id);
    assert_eq!((tx.statistics().frames_lost, rx.statistics().frames_lost), (0, 0));
}

#[test]
fn hundreds_of_thousands_of_datagrams_lose_nothing() {
    if !can_run() {
        return;
    }
    let count = std::env::var("TICKTAPE_XDP_PACKETS").ok().map_or(300_000, |text| text.parse().expect("a number"));
    let lab = Lab::new("many").expect("a lab");
    let fixed = |end: End| NextHops::Fixed(lab.side(end.other()).mac);
    let one = |end| open_in(&lab, end, &XdpConfig { next_hops: fixed(end), ..config(&lab, end) });
    let ((_rx, mut tx), (mut rx, _tx)) = (one(A).split(), one(B).split());
    let (mut sent, mut received) = (0u64, 0u64);
    while received < count {
        for _ in 0..32.min(count - sent) {
            send(&mut tx, &sent.to_le_bytes(), address(&lab, B));
            sent += 1;
        }
        flush_all(&mut tx);
        while received < sent {
            rx.poll(now(), 64, |datagram| {
                assert_eq!(datagram.payload, received.to_le_bytes());
                received += 1;
            });
        }
    }
    assert_eq!(tx.statistics().through_kernel, 0);
    assert_eq!((tx.statistics().frames_lost, rx.statistics().frames_lost), (0, 0));
    assert_eq!((tx.statistics().strays, rx.statistics().strays), (0, 0));
    assert_eq!((tx.counters().datagrams, rx.counters().datagrams), (count, count));
    assert_eq!(rx.counters().dropped_before_poll, 0);
}

#[test]
fn a_link_that_goes_down_in_flight_neither_hangs_nor_leaks() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("down").expect("a lab");
    let fixed = |end: End| NextHops::Fixed(lab.side(end.other()).mac);
    let one = |end| open_in(&lab, end, &XdpConfig { next_hops: fixed(end), ..config(&lab, end) });
    let (a, b) = (one(A), one(B));
    let ((_rx, mut tx), (mut rx, _tx)) = (a.split(), b.split());
    let to = address(&lab, B);
    for round in 0..3u8 {
        // One's own interface: what is queued waits. The other end's: there is no carrier, and frames are lost as on a wire.
        for end in [A, B] {
            send(&mut tx, &[round], to);
            flush_all(&mut tx);
            assert_eq!(receive(&mut rx, 1), [[round]]);
            for i in 0..100 {
                send(&mut tx, &[i], to);
            }
            lab.set_link(end, false).expect("down");
            for _ in 0..100 {
                tx.flush();
            }
            if end == A {
                assert_eq!(tx.queued(), 100, "kept while the interface is down");
                assert!(tx.statistics().kicks_down > 0);
            }
            lab.set_link(end, true).expect("up");
            flush_all(&mut tx);
            if end == A {
                assert_eq!(receive(&mut rx, 100).len(), 100);
            } else {
                // Whatever came through is no matter; it must not be there in the next round.
                while rx.poll(now(), 64, |_| {}) > 0 {}
            }
        }
    }
    send(&mut tx, b"still here", to);
    flush_all(&mut tx);
    receive(&mut rx, 1);
    assert_eq!((tx.queued(), tx.statistics().frames_lost, rx.statistics().frames_lost), (0, 0, 0));
    assert_eq!(tx.in_flight(), 0);
}

#[test]
fn a_second_socket_on_a_queue_is_refused_by_name() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("busy").expect("a lab");
    let first = open(&lab, A);
    let second =
        lab.run(A, || XdpNic::open(&XdpConfig { address: SocketAddrV4::new(lab.side(A).ip, 9), ..config(&lab, A) }));
    let text = second.expect_err("a program is there").to_string();
    assert!(text.starts_with("veth-a has an XDP program attached already: id "), "{text}");
    let impatient = XdpConfig { rebind_patience: Duration::ZERO, ..config(&lab, A) };
    let second = lab.run(A, || XdpNic::open(&impatient));
    let text = second.expect_err("the port is taken").to_string();
    assert!(text.starts_with(&format!("cannot bind UDP {}", address(&lab, A))), "{text}");
    drop(first);
    open(&lab, A);
}

#[test]
fn a_port_that_a_forked_child_still_holds_is_waited_for() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("forked").expect("a lab");
    let holder = lab.run(A, || std::net::UdpSocket::bind(address(&lab, A))).expect("a free port");
    let (tried, first_try) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| {
            let impatient = XdpConfig { rebind_patience: Duration::ZERO, ..config(&lab, A) };
            lab.run(A, || XdpNic::open(&impatient)).map(drop).expect_err("the port is taken");
            tried.send(()).expect("somebody waits");
            open(&lab, A);
        });
        first_try.recv().expect("it was tried");
        drop(holder);
        opening.join().expect("the port was free in time");
    });
}

#[test]
fn packets_to_another_queue_are_counted_with_it() {
    if !can_run() {
        return;
    }
    let lab = Lab::with("queues", &LabConfig { queues: 2, ..LabConfig::default() }).expect("a lab");
    let served = open_in(&lab, B, &XdpConfig { queues: vec![1], ..config(&lab, B) });
    let monitor = served.monitor();
    // A sender's queue decides where a veth peer receives: XDP sends on its own queue 0.
    let fixed = NextHops::Fixed(lab.side(B).mac);
    let (_rx, mut tx) = open_in(&lab, A, &XdpConfig { next_hops: fixed, ..config(&lab, A) }).split();
    for _ in 0..5 {
        send(&mut tx, b"elsewhere", address(&lab, B));
    }
    flush_all(&mut tx);
    ends::eventually("they are counted", || monitor.filter().expect("counters").no_socket == 5);
    let unserved = monitor.unserved_queues().expect("counters");
    assert_eq!(unserved.iter().map(|at| (at.queue, at.frames)).collect::<Vec<_>>(), [(Some(0), 5)]);
}

#[test]
fn several_queues_share_one_umem() {
    if !can_run() {
        return;
    }
    let lab = Lab::with("shared", &LabConfig { queues: 2, ..LabConfig::default() }).expect("a lab");
    let (mut rx, _tx) = open_in(&lab, B, &XdpConfig { queues: vec![0, 1], ..config(&lab, B) }).split();
    let fixed = NextHops::Fixed(lab.side(B).mac);
    for queue in [0, 1] {
        let sender = XdpConfig { queues: vec![queue], next_hops: fixed, ..config(&lab, A) };
        let (_rx, mut tx) = open_in(&lab, A, &sender).split();
        for i in 0..100u8 {
            send(&mut tx, &[queue as u8, i], address(&lab, B));
        }
        flush_all(&mut tx);
        let got = receive(&mut rx, 100);
        assert!(got.iter().enumerate().all(|(i, payload)| *payload == [queue as u8, i as u8]), "queue {queue}");
    }
    assert_eq!(rx.statistics().frames_lost, 0);
}

#[test]
fn groups_are_joined_and_heard() {
    if !can_run() {
        return;
    }
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let lab = Lab::new("groups").expect("a lab");
    let (mut rx, _tx) = open_in(&lab, B, &XdpConfig { join: vec![group], ..config(&lab, B) }).split();
    let (_rx, mut tx) = open(&lab, A).split();
    send(&mut tx, b"all of you", SocketAddrV4::new(group, PORT));
    assert_eq!(tx.flush(), 1, "a group needs no neighbour");
    let mut destination = None;
    ends::eventually("it arrives", || rx.poll(now(), 1, |datagram| destination = Some(datagram.destination)) == 1);
    assert_eq!(destination, Some(SocketAddrV4::new(group, PORT)));
    assert_eq!(tx.statistics().through_kernel, 0);
    let shown = lab.command(B, "ip", ["maddr", "show", "dev", &lab.side(B).interface]).expect("ip runs");
    assert!(String::from_utf8_lossy(&shown.stdout).contains("239.1.2.3"), "the companion joined");
}

#[test]
fn what_cannot_be_sent_is_dropped_by_reason() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("nowhere").expect("a lab");
    let (_rx, mut tx) = open(&lab, A).split();
    for (ip, port) in [(Ipv4Addr::new(192, 0, 2, 1), 9), (Ipv4Addr::BROADCAST, 9)] {
        send(&mut tx, b"?", SocketAddrV4::new(ip, port));
    }
    let [a, b, c, _] = lab.side(A).ip.octets();
    send(&mut tx, b"?", SocketAddrV4::new(Ipv4Addr::new(a, b, c, 255), 9));
    tx.flush();
    let counters = tx.counters();
    assert_eq!((counters.dropped_unreachable, counters.dropped_forbidden, tx.queued()), (1, 2, 0), "{counters:?}");
    assert_eq!(tx.statistics().frames_lost, 0);
}

#[test]
fn a_description_tells_what_was_granted_and_why_not() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("describe").expect("a lab");
    let busy_poll = Some(BusyPoll::default());
    let text = open_in(&lab, A, &XdpConfig { busy_poll, tx_budget: Some(64), ..config(&lab, A) }).describe();
    for part in [
        &format!(
            "AF_XDP on {}: veth-a (driver veth), queue 0 of 1, native, copies (zero-copy refused: ",
            address(&lab, A)
        ),
        "2048+512 frames of 2048 bytes on ",
        "busy poll 20 µs",
        "64 ",
        &format!("redirects {}", address(&lab, A)),
    ] {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
    let wide = Lab::with("wide", &LabConfig { mtu: 9_000, ..LabConfig::default() }).expect("a lab");
    let text = open(&wide, A).describe();
    assert!(text.contains("generic (native refused: "), "{text}");
    let only = wide.run(A, || XdpNic::open(&XdpConfig { attach: NATIVE, ..config(&wide, A) }));
    let text = only.expect_err("the MTU is too large").to_string();
    assert!(text.starts_with("cannot attach in native XDP mode to veth-a: "), "{text}");
}

#[test]
fn an_interface_without_a_carrier_opens_and_is_named() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("carrier").expect("a lab");
    let text = open(&lab, A).describe();
    assert!(!text.contains("CARRIER"), "{text}");
    lab.set_link(B, false).expect("down");
    let text = open(&lab, A).describe();
    assert!(text.contains("NO CARRIER: nothing leaves or comes until veth-a's cable or other end"), "{text}");
    assert!(!text.contains('\n'), "{text}");
}

#[test]
fn what_can_not_be_had_is_named_with_the_remedy() {
    if !can_run() {
        return;
    }
    let lab = Lab::new("errors").expect("a lab");
    type Change = fn(&mut XdpConfig);
    let cases: [(Change, &str); 5] = [
        (|c| c.interface = "eth9".into(), "there is no interface eth9 here: use one of "),
        (|c| c.queues = vec![3], "interface veth-a has no receive queue 3: it has queue 0 alone (ethtool -L veth-a)"),
        (|c| c.address.set_ip(Ipv4Addr::new(10, 1, 1, 1)), "10.1.1.1 is no address of veth-a: use 10.77."),
        (|c| c.zero_copy = ZeroCopy::Require, "the driver of veth-a does no zero-copy: "),
        (|c| c.join = vec![Ipv4Addr::new(239, 0, 0, 1); 2], "cannot join group 239.0.0.1 on interface "),
    ];
    for (change, expected) in cases {
        let mut config = config(&lab, A);
        change(&mut config);
        let text = lab.run(A, || XdpNic::open(&config)).expect_err(expected).to_string();
        assert!(text.starts_with(expected) && !text.contains('\n'), "{text}");
    }
    let group = NextHops::Fixed(MacAddr([1, 0, 0x5e, 0, 0, 1]));
    let refused = lab.run(A, || XdpNic::open(&XdpConfig { next_hops: group, ..config(&lab, A) }));
    let text = refused.expect_err("no single station").to_string();
    assert!(text.starts_with("next hop 01:00:5e:00:00:01 is a group's address: give "), "{text}");
    lab.set_link(A, false).expect("down");
    let text = lab.run(A, || XdpNic::open(&config(&lab, A))).expect_err("it is down").to_string();
    assert_eq!(text, "interface veth-a is down: set it up (ip link set veth-a up)");
    lab.set_link(A, true).expect("up");
    open(&lab, A);
}
