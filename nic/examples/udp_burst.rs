//! What a burst saves on loopback: nanoseconds a datagram, sent and received on one core, at several burst sizes; through
//! the ports, beside one call a datagram on bare sockets.
//!
//! `cargo run --release -p ticktape-nic --example udp_burst [-- ROUNDS]`

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, Rx, Tx, UdpConfig, UdpNic};
use ticktape_tuning::clock::monotonic_ns;
use ticktape_tuning::{host, pin};

const PAYLOAD_BYTES: usize = 64;
const ANY_PORT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

fn ports() -> (UdpTx, UdpRx, SocketAddrV4) {
    let open = || UdpNic::open(&UdpConfig::new(ANY_PORT)).unwrap_or_else(|error| panic!("{error}"));
    let receiver = open();
    let to = receiver.local_addr();
    let (_, tx) = open().split();
    let (rx, _) = receiver.split();
    (tx, rx, to)
}

fn through_ports(tx: &mut UdpTx, rx: &mut UdpRx, to: SocketAddrV4, burst: usize) -> u64 {
    let start = monotonic_ns();
    for _ in 0..burst {
        tx.reserve().expect("an empty queue")[..PAYLOAD_BYTES].fill(1);
        tx.commit(PAYLOAD_BYTES, to);
    }
    while tx.queued() > 0 {
        tx.flush();
    }
    let mut received = 0;
    while received < burst {
        rx.poll(monotonic_ns(), burst, |datagram| received += usize::from(datagram.payload == [1; PAYLOAD_BYTES]));
    }
    monotonic_ns() - start
}

fn through_bare(tx: &UdpSocket, rx: &UdpSocket, to: SocketAddr, burst: usize) -> u64 {
    let start = monotonic_ns();
    for _ in 0..burst {
        tx.send_to(&[1; PAYLOAD_BYTES], to).expect("loopback takes a datagram");
    }
    let mut payload = [0; PAYLOAD_BYTES];
    let mut received = 0;
    while received < burst {
        received += usize::from(rx.recv(&mut payload).is_ok_and(|len| payload[..len] == [1; PAYLOAD_BYTES]));
    }
    monotonic_ns() - start
}

fn median(mut samples: Vec<u64>) -> u64 {
    samples.sort_unstable();
    samples[samples.len() / 2]
}

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(2_000, |arg| arg.parse().expect("ROUNDS is a number"));
    println!("{}", host::describe());
    pin::pin_current_thread(pin::usable_cores()[0]).unwrap_or_else(|error| panic!("{error}"));
    let (mut tx, mut rx, to) = ports();
    let bare = || UdpSocket::bind(ANY_PORT).expect("loopback");
    let (bare_tx, bare_rx) = (bare(), bare());
    let bare_to = bare_rx.local_addr().expect("bound");
    bare_rx.set_nonblocking(true).expect("non-blocking");
    println!("{:>6} {:>16} {:>16} {:>8}", "burst", "ports ns/dgram", "bare ns/dgram", "ratio");
    for burst in [1, 8, 32, 64] {
        let (mut ports_ns, mut bare_ns) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ports_ns.push(through_ports(&mut tx, &mut rx, to, burst));
            bare_ns.push(through_bare(&bare_tx, &bare_rx, bare_to, burst));
        }
        let (ports, bare) = (median(ports_ns) as f64 / burst as f64, median(bare_ns) as f64 / burst as f64);
        println!("{burst:>6} {ports:>16.0} {bare:>16.0} {:>8.3}", ports / bare);
    }
}
