//! The feed's machines allocate nothing once they are built: in order, out of order, and in repair.

use std::net::SocketAddrV4;

use ticktape::feed::{
    Arbiter, ArbiterConfig, Arrival, FeedSession, MoldRequest, Packer, Recent, Rewinder, RewinderConfig, Side,
};
use ticktape_alloc::{CountingAllocator, count_thread, is_counting};
use ticktape_nic::mem::{self, MemRx, MemTx};
use ticktape_nic::{Nic, Rx, Tx};

#[global_allocator]
static HEAP: CountingAllocator = CountingAllocator;

const MESSAGE: [u8; 64] = [7; 64];
const MESSAGES_PER_PACKET: u64 = 20;

struct Feed {
    packer: Packer,
    arbiter: Arbiter,
    rewinder: Rewinder,
    history: Recent,
    answers: (MemTx, MemRx),
    requester: SocketAddrV4,
    delivered: u64,
}

impl Feed {
    fn new() -> Self {
        let session = FeedSession::new(0, 0).unwrap();
        let (near, far) = mem::pair();
        let requester = far.local_addr();
        Feed {
            packer: Packer::new(session.encode(), 1, 1_472),
            arbiter: Arbiter::new(&ArbiterConfig { rewinders: 2, wait_ns: 10, ..ArbiterConfig::default() }),
            rewinder: Rewinder::new(&RewinderConfig::new(session)),
            history: Recent::new(1 << 12, 1 << 20, 1),
            answers: (near.split().1, far.split().0),
            requester,
            delivered: 0,
        }
    }

    /// The next packet, to whichever sides it reaches.
    fn publish(&mut self, now: u64, sides: &[Side]) {
        for _ in 0..MESSAGES_PER_PACKET {
            assert!(self.packer.push(&MESSAGE));
            self.history.push(&MESSAGE);
        }
        for &side in sides {
            let delivered = &mut self.delivered;
            self.arbiter.on_packet(now, side, self.packer.packet(), |_, _| {
                *delivered += 1;
                true
            });
        }
        self.packer.advance();
    }

    fn repair(&mut self, now: u64) {
        let (tx, rx) = &mut self.answers;
        while let Some((_, request)) = self.arbiter.poll_request(now) {
            self.rewinder.on_request(now, self.requester, &request.encode(), &mut self.history, tx);
        }
        tx.flush();
        let (arbiter, delivered) = (&mut self.arbiter, &mut self.delivered);
        rx.poll(now, 64, |datagram| {
            let arrival = arbiter.on_packet(now, Side::Repair, datagram.payload, |_, _| {
                *delivered += 1;
                true
            });
            assert!(matches!(arrival, Arrival::News { .. }), "{arrival:?}");
        });
        assert_eq!(self.arbiter.poll_event(now), None);
    }
}

#[test]
fn nothing_is_allocated_once_it_is_built() {
    assert!(is_counting());
    let mut feed = Feed::new();
    let (heap, ()) = count_thread(|| {
        for now in (0..200_000).step_by(100) {
            match now / 100 % 50 {
                7 => feed.publish(now, &[Side::A]),
                13 => feed.publish(now, &[Side::B]),
                21 | 33 => feed.publish(now, &[]),
                _ => feed.publish(now, &[Side::A, Side::B]),
            }
            feed.repair(now + 50);
        }
        let far = MoldRequest { session: *feed.packer.session(), sequence: 1 << 50, count: 9 }.encode();
        for _ in 0..10_000 {
            feed.rewinder.on_request(200_000, feed.requester, &far, &mut feed.history, &mut feed.answers.0);
        }
    });
    assert_eq!(heap.allocations, 0, "{heap:?}");
    assert_eq!(feed.delivered, 2_000 * MESSAGES_PER_PACKET);
    let counters = feed.arbiter.counters();
    assert!(counters.held > 0 && counters.repair.answered >= 80, "{counters:?}");
    assert!(feed.rewinder.counters().limited + feed.rewinder.counters().blocked > 0);
}
