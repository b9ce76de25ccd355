use std::net::{Ipv4Addr, SocketAddrV4};

use ticktape_nic::{Nic, Rx, Tx};

use super::*;
use crate::clock::WorldTime;
use crate::rng::Seed;

const A: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 1000);
const B: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 2000);
const C: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 3), 3000);
const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 0, 0, 1), 9000);

struct Net {
    time: WorldTime,
    network: Network,
}

impl Net {
    fn new(seed: u64) -> Net {
        let time = WorldTime::new();
        Net { network: Network::new(Seed(seed), &time), time }
    }

    fn open(&self, address: SocketAddrV4) -> (SimRx, SimTx) {
        self.network.open(address, QueueConfig::default()).split()
    }

    /// What has arrived at a port after all the time in the world.
    fn drain(&self, rx: &mut SimRx) -> Vec<(SocketAddrV4, Vec<u8>)> {
        self.time.advance(1_000_000_000);
        let mut all = Vec::new();
        while rx.poll(self.time.now(), 32, |datagram| all.push((datagram.destination, datagram.payload.to_vec()))) > 0 {
        }
        all
    }
}

fn send(tx: &mut SimTx, to: SocketAddrV4, bytes: &[u8]) {
    tx.reserve().expect("a slot")[..bytes.len()].copy_from_slice(bytes);
    tx.commit(bytes.len(), to);
    tx.flush();
}

fn numbers(of: &[(SocketAddrV4, Vec<u8>)]) -> Vec<u32> {
    of.iter().map(|(_, bytes)| u32::from_le_bytes(bytes[..4].try_into().unwrap())).collect()
}

fn send_numbers(tx: &mut SimTx, to: SocketAddrV4, count: u32) {
    (0..count).for_each(|number| send(tx, to, &number.to_le_bytes()));
}

#[test]
fn a_good_link_delivers_everything_once_in_order_and_after_its_delay() {
    let net = Net::new(1);
    let (mut rx, _) = net.open(B);
    let (_, mut tx) = net.open(A);
    send_numbers(&mut tx, B, 100);
    assert_eq!(rx.poll(0, 32, |_| panic!("it takes a while")), 0);
    assert!(net.network.next_arrival().is_some_and(|at| at >= LinkFaults::NONE.delay_ns));
    assert_eq!(numbers(&net.drain(&mut rx)), (0..100).collect::<Vec<_>>());
    assert_eq!(net.network.under_way(), 0);
}

#[test]
fn each_fault_shows_and_is_counted() {
    let net = Net::new(2);
    let (mut rx, _) = net.open(B);
    let (_, mut tx) = net.open(A);
    let each = |faults: LinkFaults, rx: &mut SimRx, tx: &mut SimTx| {
        net.network.set_faults(*A.ip(), *B.ip(), faults);
        send_numbers(tx, B, 100);
        net.drain(rx)
    };
    let half = Ppm::percent(50);
    let lost = each(LinkFaults { loss: half, ..LinkFaults::NONE }, &mut rx, &mut tx);
    assert!((20..80).contains(&lost.len()), "{}", lost.len());
    let twice = each(LinkFaults { duplicate: half, ..LinkFaults::NONE }, &mut rx, &mut tx);
    assert!(twice.len() > 120, "{}", twice.len());
    let mut sorted = numbers(&each(LinkFaults { reorder: half, ..LinkFaults::NONE }, &mut rx, &mut tx));
    assert!(!sorted.is_sorted());
    sorted.sort_unstable();
    assert_eq!(sorted, (0..100).collect::<Vec<_>>(), "overtaken is not lost");
    let damaged = each(LinkFaults { corrupt: half, ..LinkFaults::NONE }, &mut rx, &mut tx);
    let flipped: u32 =
        numbers(&damaged).iter().zip(0..).map(|(got, sent): (&u32, u32)| (got ^ sent).count_ones()).sum();
    let counters = net.network.counters();
    assert_eq!((damaged.len(), u64::from(flipped)), (100, counters.corrupted), "one bit each");
    assert!(flipped > 20);
    assert_eq!(counters.lost, 100 - lost.len() as u64);
    assert_eq!(counters.duplicated, twice.len() as u64 - 100);
    assert!(counters.reordered > 20);
    net.network.heal();
    assert_eq!(each(LinkFaults::NONE, &mut rx, &mut tx).len(), 100);
}

#[test]
fn a_cut_has_a_direction() {
    let net = Net::new(3);
    let (mut rx_a, mut tx_a) = net.open(A);
    let (mut rx_b, mut tx_b) = net.open(B);
    net.network.cut(*A.ip(), *B.ip());
    send(&mut tx_a, B, b"never");
    send(&mut tx_b, A, b"back!");
    assert!(net.drain(&mut rx_b).is_empty());
    assert_eq!(net.drain(&mut rx_a), [(A, b"back!".to_vec())]);
    net.network.heal();
    send(&mut tx_a, B, b"again");
    assert_eq!(net.drain(&mut rx_b), [(B, b"again".to_vec())]);
    assert_eq!(net.network.counters().cut, 1);
}

#[test]
fn multicast_reaches_who_joined() {
    let net = Net::new(4);
    let (mut rx_a, mut tx_a) = net.open(A);
    let (mut rx_b, _b) = net.open(B);
    let (mut rx_c, _c) = net.open(C);
    net.network.join(B, GROUP);
    net.network.join(C, GROUP);
    net.network.cut(*A.ip(), *C.ip());
    send(&mut tx_a, GROUP, b"all");
    assert_eq!(net.drain(&mut rx_b), [(GROUP, b"all".to_vec())]);
    assert!(net.drain(&mut rx_c).is_empty() && net.drain(&mut rx_a).is_empty());
    net.network.close(B);
    send(&mut tx_a, GROUP, b"all");
    assert!(net.drain(&mut rx_b).is_empty());
}

#[test]
fn a_full_ring_drops_what_comes_and_says_so() {
    let net = Net::new(5);
    let (mut rx, _) = net.network.open(B, QueueConfig { rx_slots: 8, ..QueueConfig::default() }).split();
    let (_, mut tx) = net.open(A);
    send_numbers(&mut tx, B, 20);
    assert_eq!(numbers(&net.drain(&mut rx)), (0..8).collect::<Vec<_>>());
    assert_eq!((rx.counters().dropped_before_poll, net.network.counters().overflowed), (12, 12));
}

#[test]
fn a_blocked_queue_keeps_what_is_not_taken_in_order() {
    let net = Net::new(6);
    let (mut rx, _) = net.open(B);
    let config = QueueConfig { tx_slots: 4, block: Ppm::percent(60), ..QueueConfig::default() };
    let (_, mut tx) = net.network.open(A, config).split();
    let mut refused = 0;
    for number in 0..200u32 {
        while tx.reserve().is_none() {
            refused += 1;
            tx.flush();
        }
        tx.reserve().unwrap()[..4].copy_from_slice(&number.to_le_bytes());
        tx.commit(4, B);
        tx.flush();
    }
    while tx.queued() > 0 {
        tx.flush();
    }
    assert!(refused > 0 && tx.counters().blocked > 0);
    assert_eq!(numbers(&net.drain(&mut rx)), (0..200).collect::<Vec<_>>());
}

#[test]
fn the_halves_of_an_earlier_opening_reach_nothing() {
    let net = Net::new(7);
    let (mut old_rx, mut old_tx) = net.open(A);
    let (mut rx, mut tx) = net.open(A);
    let (mut rx_b, _b) = net.open(B);
    send(&mut old_tx, B, b"ghost");
    send(&mut tx, A, b"self");
    assert!(net.drain(&mut rx_b).is_empty() && net.drain(&mut old_rx).is_empty());
    assert_eq!(net.drain(&mut rx), [(A, b"self".to_vec())]);
}

#[test]
fn the_same_seed_is_the_same_network() {
    let all = |seed| {
        let net = Net::new(seed);
        let (mut rx, _) = net.open(B);
        let (_, mut tx) = net.open(A);
        let some = Ppm::percent(20);
        let faults = LinkFaults {
            loss: some,
            duplicate: some,
            reorder: some,
            corrupt: some,
            straggle: some,
            ..LinkFaults::NONE
        };
        net.network.set_default_faults(faults);
        send_numbers(&mut tx, B, 100);
        (net.network.next_arrival(), net.drain(&mut rx))
    };
    assert_eq!(all(8), all(8));
    assert_ne!(all(8), all(9));
}
