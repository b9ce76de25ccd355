use crate::mem::{MemConfig, MemRx, MemTx, pair_with};
use crate::port::Nic;

use super::*;

const DATAGRAMS: u32 = 20_000;

fn link() -> (MemTx, MemRx, SocketAddrV4) {
    let (a, b) = pair_with(MemConfig { inbox: 512, ..MemConfig::default() });
    let to = b.local_addr();
    (a.split().1, b.split().0, to)
}

fn send(tx: &mut impl Tx, number: u32, to: SocketAddrV4) {
    while tx.reserve().is_none() {
        tx.flush();
    }
    tx.reserve().unwrap()[..4].copy_from_slice(&number.to_le_bytes());
    tx.commit(4, to);
}

/// Numbers 0 to before [`DATAGRAMS`] through a lossy receive half: what comes out.
fn received(config: &LossyConfig) -> (Vec<u32>, LossyCounters) {
    let (mut tx, rx, to) = link();
    let mut rx = LossyRx::new(rx, config);
    let mut got = Vec::new();
    for number in 0..DATAGRAMS {
        send(&mut tx, number, to);
        if number % 32 == 31 {
            tx.flush();
            rx.poll(u64::from(number), 64, |datagram| {
                assert!(datagram.received <= u64::from(number));
                got.push(u32::from_le_bytes(datagram.payload.try_into().unwrap()));
            });
        }
    }
    (got, rx.lossy())
}

fn missing(got: &[u32]) -> Vec<u32> {
    let mut seen = vec![false; DATAGRAMS as usize];
    got.iter().for_each(|&number| seen[number as usize] = true);
    (0..DATAGRAMS).filter(|&number| !seen[number as usize]).collect()
}

fn near(count: usize, share: Millionths) -> bool {
    let expected = f64::from(DATAGRAMS) * f64::from(share) / 1e6;
    (count as f64 - expected).abs() < 5.0 * expected.sqrt()
}

#[test]
fn nothing_goes_wrong_unless_it_is_asked_for() {
    let (got, counters) = received(&LossyConfig::default());
    assert_eq!(got, (0..DATAGRAMS).collect::<Vec<_>>());
    assert_eq!(counters, LossyCounters { seen: DATAGRAMS.into(), ..LossyCounters::default() });
}

#[test]
fn sides_lose_for_themselves_and_in_common_and_the_same_in_each_run() {
    let side = |seed| LossyConfig { seed, loss: 10_000, common_seed: 9, common_loss: 5_000, ..LossyConfig::default() };
    let (a, a_counters) = received(&side(1));
    let (b, b_counters) = received(&side(2));
    assert_eq!(received(&side(1)), (a.clone(), a_counters));
    let (a, b) = (missing(&a), missing(&b));
    let both = a.iter().filter(|number| b.contains(number)).count();
    // In common, and by chance.
    assert!(near(both, 5_000 + 100), "{both} lost on both");
    assert!(near(a.len(), 15_000) && near(b.len(), 15_000), "{} and {} lost", a.len(), b.len());
    assert_eq!(a_counters.lost + a_counters.lost_in_common, a.len() as u64);
    assert_eq!(a_counters.lost_in_common, b_counters.lost_in_common);
}

#[test]
fn what_is_repeated_and_reordered_still_comes() {
    let config =
        LossyConfig { seed: 3, duplicate: 20_000, reorder: 50_000, reorder_distance_max: 8, ..LossyConfig::default() };
    let (got, counters) = received(&config);
    let lacking = missing(&got);
    assert!(lacking.iter().all(|&number| number > DATAGRAMS - 64), "only what waits for later ones: {lacking:?}");
    assert_eq!(got.len() as u64 + lacking.len() as u64, u64::from(DATAGRAMS) + counters.duplicated);
    assert!(near(counters.duplicated as usize, 20_000) && near(counters.reordered as usize, 50_000), "{counters:?}");
    let furthest = got.iter().enumerate().map(|(at, &number)| (at as i64 - i64::from(number)).abs()).max();
    assert!(furthest < Some(i64::from(DATAGRAMS) / 20), "nothing is kept back for long");
    let jumps = got.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(jumps as u64 > counters.reordered / 2, "{jumps} steps back");
}

#[test]
fn damage_is_one_bit() {
    let (tx, mut rx, to) = link();
    let mut tx = LossyTx::new(tx, &LossyConfig { seed: 4, corrupt: 500_000, loss: 100_000, ..LossyConfig::default() });
    let mut flipped = [0u32; 2];
    for _ in 0..1_000 {
        send(&mut tx, 0, to);
        tx.flush();
        rx.poll(0, 8, |datagram| {
            let bits = u32::from_le_bytes(datagram.payload.try_into().unwrap()).count_ones();
            flipped[bits as usize] += 1;
        });
    }
    let counters = tx.lossy();
    assert_eq!(u64::from(flipped[1]), counters.corrupted);
    assert_eq!(u64::from(flipped[0] + flipped[1]) + counters.lost, 1_000);
    assert!(counters.corrupted > 300 && counters.lost > 50, "{counters:?}");
}

#[test]
fn a_full_queue_takes_no_reservation() {
    let (tx, _rx, to) = link();
    let mut tx = LossyTx::new(tx, &LossyConfig { duplicate: 1_000_000, ..LossyConfig::default() });
    let mut committed = 0;
    while tx.reserve().is_some() {
        tx.commit(0, to);
        committed += 1;
    }
    assert!(tx.queued() > committed && tx.queued() <= 2 * committed);
}
