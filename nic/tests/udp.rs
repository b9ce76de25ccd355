//! The kernel-UDP backend on loopback.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use nix::time::{ClockId, clock_gettime};
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, NicError, Rx, TimeOrigin, Tx, UdpConfig, UdpNic, conformance, mem};

const ANY_PORT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
const POLLS_MAX: usize = 20_000_000;

fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

fn open(config: &UdpConfig) -> UdpNic {
    UdpNic::open(config).unwrap_or_else(|error| panic!("{error}"))
}

fn loopback() -> UdpNic {
    open(&UdpConfig::new(ANY_PORT))
}

fn send(tx: &mut UdpTx, payload: &[u8], to: SocketAddrV4) {
    tx.reserve().unwrap()[..payload.len()].copy_from_slice(payload);
    tx.commit(payload.len(), to);
}

/// Polls until `done` says so, and fails after a bounded number of polls.
fn poll_until(
    rx: &mut UdpRx,
    mut done: impl FnMut(&UdpRx) -> bool,
    mut each: impl FnMut(&[u8], SocketAddrV4, TimeOrigin),
) {
    for _ in 0..POLLS_MAX {
        if done(rx) {
            return;
        }
        if rx.poll(now(), 64, |datagram| each(datagram.payload, datagram.destination, datagram.origin)) == 0 {
            std::thread::yield_now();
        }
    }
    panic!("what was due did not come: {:?}", rx.counters());
}

#[test]
fn kernel_udp_keeps_the_ports_promises() {
    conformance::run(|| (loopback(), loopback()), now);
}

#[test]
fn kernel_udp_halves_work_on_threads_of_their_own() {
    conformance::run_threads(|| (loopback(), loopback()), now);
}

#[test]
fn the_in_process_link_keeps_the_ports_promises() {
    conformance::run(mem::pair, now);
    conformance::run_threads(mem::pair, now);
}

#[test]
fn receive_times_are_the_kernels() {
    let (a, b) = (loopback(), loopback());
    let to = b.local_addr();
    let ((_, mut tx), (mut rx, _)) = (a.split(), b.split());
    send(&mut tx, b"when", to);
    assert_eq!(tx.flush(), 1);
    let mut origins = Vec::new();
    poll_until(&mut rx, |rx| rx.counters().datagrams == 1, |_, _, origin| origins.push(origin));
    assert_eq!(origins, [TimeOrigin::Kernel]);
    assert_eq!(rx.counters().stamps_unusable, 0);
}

#[test]
fn a_now_of_another_clock_falls_back_to_the_polls_own_time() {
    let (a, b) = (loopback(), loopback());
    let to = b.local_addr();
    let ((_, mut tx), (mut rx, _)) = (a.split(), b.split());
    send(&mut tx, b"when", to);
    tx.flush();
    let far_ahead = now() + 1_000_000_000_000;
    let mut times = Vec::new();
    for _ in 0..POLLS_MAX {
        if rx.poll(far_ahead, 1, |datagram| times.push((datagram.received, datagram.origin))) > 0 {
            break;
        }
    }
    assert_eq!(times, [(far_ahead, TimeOrigin::Poll)]);
    assert_eq!(rx.counters().stamps_unusable, 1);
}

#[test]
fn an_oversized_datagram_is_dropped_and_counted() {
    let mut small = UdpConfig::new(ANY_PORT);
    small.datagram_bytes_max = 100;
    let (a, b) = (loopback(), open(&small));
    let to = b.local_addr();
    let ((_, mut tx), (mut rx, _)) = (a.split(), b.split());
    for len in [100, 101, 1472, 99] {
        send(&mut tx, &vec![9; len], to);
    }
    tx.flush();
    let mut lengths = Vec::new();
    poll_until(&mut rx, |rx| rx.counters().datagrams == 2, |payload, _, _| lengths.push(payload.len()));
    assert_eq!(lengths, [100, 99]);
    assert_eq!((rx.counters().dropped_truncated, rx.counters().bytes), (2, 199));
}

#[test]
fn a_datagram_larger_than_any_route_is_dropped_and_the_next_goes() {
    let mut large = UdpConfig::new(ANY_PORT);
    large.datagram_bytes_max = ticktape_nic::limits::DATAGRAM_BYTES_MAX;
    let (a, b) = (open(&large), open(&large));
    let to = b.local_addr();
    let ((_, mut tx), (mut rx, _)) = (a.split(), b.split());
    send(&mut tx, &vec![1; ticktape_nic::limits::DATAGRAM_BYTES_MAX], to);
    // Port 0 is nobody's: the kernel refuses that one datagram.
    send(&mut tx, b"lost", SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    send(&mut tx, b"next", to);
    assert_eq!(tx.flush(), 2);
    assert_eq!((tx.queued(), tx.counters().dropped_other), (0, 1));
    let mut lengths = Vec::new();
    poll_until(&mut rx, |rx| rx.counters().datagrams == 2, |payload, _, _| lengths.push(payload.len()));
    assert_eq!(lengths, [ticktape_nic::limits::DATAGRAM_BYTES_MAX, 4]);
}

#[test]
fn a_port_where_nobody_listens_disturbs_nothing() {
    let gone = UdpSocket::bind(ANY_PORT).unwrap();
    let std::net::SocketAddr::V4(nobody) = gone.local_addr().unwrap() else { panic!("bound to IPv4") };
    drop(gone);
    let (a, b) = (loopback(), loopback());
    let to = b.local_addr();
    let ((mut a_rx, mut tx), (mut rx, _)) = (a.split(), b.split());
    for _ in 0..8 {
        send(&mut tx, b"anyone?", nobody);
        tx.flush();
        assert_eq!(a_rx.poll(now(), 8, |_| panic!("nobody answers")), 0);
    }
    send(&mut tx, b"you", to);
    tx.flush();
    assert_eq!(tx.queued(), 0);
    poll_until(&mut rx, |rx| rx.counters().datagrams == 1, |payload, _, _| assert_eq!(payload, b"you"));
}

#[test]
fn what_the_kernel_dropped_is_counted() {
    let mut tiny = UdpConfig::new(ANY_PORT);
    tiny.rx_buffer_bytes = 4096;
    let (a, b) = (loopback(), open(&tiny));
    let to = b.local_addr();
    let ((_, mut tx), (mut rx, _)) = (a.split(), b.split());
    const SENT: u64 = 512;
    for _ in 0..SENT {
        send(&mut tx, &[7; 1000], to);
        assert_eq!(tx.flush(), 1);
    }
    // Empty the queue; the next arrival then carries the count of what did not fit.
    while rx.poll(now(), 64, |_| {}) > 0 {}
    let before = rx.counters().datagrams;
    assert!(before < SENT, "a buffer of 4 KiB held 512 KB");
    send(&mut tx, b"last", to);
    tx.flush();
    poll_until(&mut rx, |rx| rx.counters().datagrams == before + 1, |_, _, _| {});
    let counters = rx.counters();
    assert_eq!(counters.datagrams + counters.dropped_before_poll, SENT + 1, "{counters:?}");
}

/// A receiver of `group` on loopback, or `None` with a message where that can't be had.
fn group_receiver(group: Ipv4Addr, port: u16) -> Option<UdpNic> {
    let mut config = UdpConfig::new(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
    config.interface = Some(Ipv4Addr::LOCALHOST);
    config.join = vec![group];
    config.reuse_address = true;
    UdpNic::open(&config)
        .inspect_err(|error| {
            let _ = writeln!(std::io::stderr(), "skipped: {error}");
        })
        .ok()
}

#[test]
fn multicast_reaches_every_member_and_nobody_else() {
    let (group, other) = (Ipv4Addr::new(239, 77, 1, 1), Ipv4Addr::new(239, 77, 1, 2));
    let Some(first) = group_receiver(group, 0) else { return };
    let port = first.local_addr().port();
    let Some(second) = group_receiver(group, port) else { return };
    let Some(stranger) = group_receiver(other, port) else { return };
    let mut config = UdpConfig::new(ANY_PORT);
    config.interface = Some(Ipv4Addr::LOCALHOST);
    let (_, mut tx) = open(&config).split();
    let to = SocketAddrV4::new(group, port);
    for i in 0..64 {
        send(&mut tx, &[i], to);
    }
    if tx.flush() == 0 {
        let _ = writeln!(std::io::stderr(), "skipped: multicast can't be sent on loopback: {:?}", tx.counters());
        return;
    }
    for nic in [first, second] {
        assert!(nic.describe().contains("joined 239.77.1.1"), "{}", nic.describe());
        let (mut rx, _) = nic.split();
        let mut got = Vec::new();
        poll_until(
            &mut rx,
            |rx| rx.counters().datagrams == 64,
            |payload, destination, _| {
                assert_eq!(destination, to);
                got.push(payload[0]);
            },
        );
        assert!(got.iter().copied().eq(0..64));
    }
    send(&mut tx, b"hello", SocketAddrV4::new(other, port));
    tx.flush();
    let (mut rx, _) = stranger.split();
    poll_until(&mut rx, |rx| rx.counters().datagrams == 1, |payload, _, _| assert_eq!(payload, b"hello"));
}

#[test]
fn a_socket_bound_to_all_addresses_tells_which_one_was_meant() {
    let b = open(&UdpConfig::new(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)));
    let port = b.local_addr().port();
    let ((_, mut tx), (mut rx, _)) = (loopback().split(), b.split());
    let wanted = [1, 2, 3].map(|host| SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, host), port));
    for to in wanted {
        send(&mut tx, b"you", to);
    }
    assert_eq!(tx.flush(), 3);
    let mut found = Vec::new();
    poll_until(&mut rx, |rx| rx.counters().datagrams == 3, |_, destination, _| found.push(destination));
    assert_eq!(found, wanted);
}

#[test]
fn a_socket_bound_to_its_group_hears_nothing_else() {
    let group = Ipv4Addr::new(239, 77, 1, 4);
    let mut config = UdpConfig::new(SocketAddrV4::new(group, 0));
    config.interface = Some(Ipv4Addr::LOCALHOST);
    config.join = vec![group];
    let Some(member) = UdpNic::open(&config)
        .inspect_err(|error| {
            let _ = writeln!(std::io::stderr(), "skipped: {error}");
        })
        .ok()
    else {
        return;
    };
    let to = member.local_addr();
    let mut sender = UdpConfig::new(ANY_PORT);
    sender.interface = Some(Ipv4Addr::LOCALHOST);
    let ((_, mut tx), (mut rx, _)) = (open(&sender).split(), member.split());
    send(&mut tx, b"unicast", SocketAddrV4::new(Ipv4Addr::LOCALHOST, to.port()));
    send(&mut tx, b"group", to);
    if tx.flush() < 2 {
        let _ = writeln!(std::io::stderr(), "skipped: multicast can't be sent on loopback: {:?}", tx.counters());
        return;
    }
    poll_until(
        &mut rx,
        |rx| rx.counters().datagrams == 1,
        |payload, destination, _| {
            assert_eq!((payload, destination), (&b"group"[..], to));
        },
    );
}

#[test]
fn an_address_in_use_is_named() {
    let taken = loopback();
    let error = UdpNic::open(&UdpConfig::new(taken.local_addr())).unwrap_err();
    assert!(matches!(error, NicError::Bind { .. }));
    let text = error.to_string();
    assert!(text.contains(&taken.local_addr().to_string()) && text.contains("another port"), "{text}");
}

#[test]
fn a_foreign_address_is_named() {
    let foreign = Ipv4Addr::new(192, 0, 2, 77);
    let text = UdpNic::open(&UdpConfig::new(SocketAddrV4::new(foreign, 0))).unwrap_err().to_string();
    assert!(text.contains("192.0.2.77") && text.contains("address of this host"), "{text}");
    let mut config = UdpConfig::new(ANY_PORT);
    config.interface = Some(foreign);
    let error = UdpNic::open(&config).unwrap_err();
    assert!(matches!(error, NicError::Interface { interface, .. } if interface == foreign), "{error}");
}

#[test]
fn a_group_that_cannot_be_joined_is_named() {
    let mut config = UdpConfig::new(ANY_PORT);
    config.join = vec![Ipv4Addr::new(10, 1, 2, 3)];
    let error = UdpNic::open(&config).unwrap_err();
    assert!(matches!(error, NicError::NotMulticast(_)));
    assert!(error.to_string().contains("10.1.2.3"), "{error}");

    let group = Ipv4Addr::new(239, 77, 1, 3);
    config.join = vec![group, group];
    config.interface = Some(Ipv4Addr::LOCALHOST);
    let text = UdpNic::open(&config).unwrap_err().to_string();
    assert!(text.contains("239.77.1.3") && text.contains("127.0.0.1"), "{text}");
}

#[test]
fn sizes_out_of_bounds_are_named() {
    let sized = |spoil: fn(&mut UdpConfig)| {
        let mut config = UdpConfig::new(ANY_PORT);
        spoil(&mut config);
        config
    };
    let sizes = [
        ("burst", sized(|config| config.burst = 0)),
        ("burst", sized(|config| config.burst = 1025)),
        ("datagram_bytes_max", sized(|config| config.datagram_bytes_max = 65_508)),
        ("multicast_ttl", sized(|config| config.multicast_ttl = 256)),
    ];
    for (name, config) in sizes {
        let text = UdpNic::open(&config).unwrap_err().to_string();
        assert!(text.starts_with(name), "{text}");
    }
}

#[test]
fn what_was_granted_and_what_was_refused_is_told() {
    let mut config = UdpConfig::new(ANY_PORT);
    config.busy_poll_us = Some(50);
    config.rx_buffer_bytes = 64 << 10;
    let text = open(&config).describe();
    assert!(text.contains("busy poll 50 µs") && text.contains("receive buffer"), "{text}");
    assert!(!text.contains('\n'), "{text}");
}
