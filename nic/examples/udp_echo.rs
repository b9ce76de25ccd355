//! The echo floor on loopback: a busy-polled round trip through the ports, beside the same on bare sockets.
//!
//! `cargo run --release -p ticktape-nic --example udp_echo [-- BLOCKS]`
//!
//! Both take turns, block by block, on the same two cores. With one usable core both sides share it and yield.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, Rx, Tx, UdpConfig, UdpNic};
use ticktape_tuning::clock::monotonic_ns;
use ticktape_tuning::{host, pin};

const ROUNDS_PER_BLOCK: usize = 1_000;
const PAYLOAD_BYTES: usize = 64;
const ANY_PORT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

/// One side of an echo, over whatever it sends and receives with.
trait Side {
    /// Sends a payload to the peer it knows.
    fn send(&mut self, payload: &[u8]);
    /// Takes a payload, if one is there, and learns the peer from it.
    fn receive(&mut self, payload: &mut [u8; PAYLOAD_BYTES]) -> bool;
}

struct Ports {
    rx: UdpRx,
    tx: UdpTx,
    peer: SocketAddrV4,
}

impl Side for Ports {
    fn send(&mut self, payload: &[u8]) {
        self.tx.reserve().expect("one datagram at a time")[..payload.len()].copy_from_slice(payload);
        self.tx.commit(payload.len(), self.peer);
        while self.tx.queued() > 0 {
            self.tx.flush();
        }
    }

    fn receive(&mut self, payload: &mut [u8; PAYLOAD_BYTES]) -> bool {
        let peer = &mut self.peer;
        self.rx.poll(monotonic_ns(), 64, |datagram| {
            payload.copy_from_slice(datagram.payload);
            *peer = datagram.source;
        }) > 0
    }
}

struct Bare {
    socket: UdpSocket,
    peer: SocketAddr,
}

impl Side for Bare {
    fn send(&mut self, payload: &[u8]) {
        self.socket.send_to(payload, self.peer).expect("loopback takes a datagram");
    }

    fn receive(&mut self, payload: &mut [u8; PAYLOAD_BYTES]) -> bool {
        match self.socket.recv_from(payload) {
            Ok((_, peer)) => {
                self.peer = peer;
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("receive: {error}"),
        }
    }
}

fn ports() -> (Ports, Ports) {
    let open = || UdpNic::open(&UdpConfig::new(ANY_PORT)).unwrap_or_else(|error| panic!("{error}"));
    let (a, b) = (open(), open());
    println!("{}", a.describe());
    let (a_address, b_address) = (a.local_addr(), b.local_addr());
    let side = |nic: UdpNic, peer| {
        let (rx, tx) = nic.split();
        Ports { rx, tx, peer }
    };
    (side(a, b_address), side(b, a_address))
}

fn bare() -> (Bare, Bare) {
    let open = || {
        let socket = UdpSocket::bind(ANY_PORT).expect("loopback");
        socket.set_nonblocking(true).expect("non-blocking");
        let address = socket.local_addr().expect("bound");
        (socket, address)
    };
    let ((a, a_address), (b, b_address)) = (open(), open());
    (Bare { socket: a, peer: b_address }, Bare { socket: b, peer: a_address })
}

/// Waits for one payload. Yields only where both sides have to share a core.
fn take(side: &mut impl Side, shared: bool) -> [u8; PAYLOAD_BYTES] {
    let mut payload = [0; PAYLOAD_BYTES];
    while !side.receive(&mut payload) {
        if shared {
            thread::yield_now();
        }
    }
    payload
}

fn call_block(side: &mut impl Side, shared: bool, round_trips: &mut Vec<u64>) {
    for round in 0..ROUNDS_PER_BLOCK {
        let mut payload = [0; PAYLOAD_BYTES];
        payload[..8].copy_from_slice(&round.to_le_bytes());
        let start = monotonic_ns();
        side.send(&payload);
        let back = take(side, shared);
        round_trips.push(monotonic_ns() - start);
        assert_eq!(back, payload);
    }
}

fn echo_block(side: &mut impl Side, shared: bool) {
    for _ in 0..ROUNDS_PER_BLOCK {
        let payload = take(side, shared);
        side.send(&payload);
    }
}

fn percentile(sorted: &[u64], per_mille: usize) -> u64 {
    sorted[(sorted.len() - 1) * per_mille / 1000]
}

fn main() {
    let blocks: u64 = std::env::args().nth(1).map_or(100, |arg| arg.parse().expect("BLOCKS is a number"));
    println!("{}", host::describe());
    let cores = pin::usable_cores();
    let (here, there) = (cores[0], cores[cores.len() - 1]);
    let shared = here == there;
    let ((mut ports_a, mut ports_b), (mut bare_a, mut bare_b)) = (ports(), bare());
    let block_now = AtomicU64::new(0);
    let (mut through_ports, mut through_bare) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        let block_now = &block_now;
        scope.spawn(move || {
            pin::pin_current_thread(there).unwrap_or_else(|error| panic!("{error}"));
            for block in 1..=2 * blocks {
                // pairs with the Release store of the caller
                while block_now.load(Ordering::Acquire) < block {
                    thread::yield_now();
                }
                if block % 2 == 0 { echo_block(&mut ports_b, shared) } else { echo_block(&mut bare_b, shared) }
            }
        });
        pin::pin_current_thread(here).unwrap_or_else(|error| panic!("{error}"));
        for block in 1..=2 * blocks {
            block_now.store(block, Ordering::Release); // pairs with the Acquire load of the echo
            if block % 2 == 0 {
                call_block(&mut ports_a, shared, &mut through_ports);
            } else {
                call_block(&mut bare_a, shared, &mut through_bare);
            }
        }
    });
    through_ports.sort_unstable();
    through_bare.sort_unstable();
    println!("round trip, {PAYLOAD_BYTES} bytes, cores {here} and {there}, {} rounds each", through_ports.len());
    println!("{:>8} {:>10} {:>10} {:>8}", "", "ports ns", "bare ns", "ratio");
    for (name, per_mille) in [("p50", 500), ("p90", 900), ("p99", 990), ("p99.9", 999), ("max", 1000)] {
        let (ports, bare) = (percentile(&through_ports, per_mille), percentile(&through_bare, per_mille));
        println!("{name:>8} {ports:>10} {bare:>10} {:>8.3}", ports as f64 / bare as f64);
    }
}
