//! What every backend must pass: the ports' promises as one suite, for the backends' own tests.

use std::net::SocketAddrV4;

use ticktape_core::Nanos;

use crate::port::{Datagram, Nic, Rx, TimeOrigin, Tx};

/// Polls without a datagram after which one that is due counts as lost. Reached only by a failing test.
const IDLE_POLLS_MAX: u64 = 20_000_000;

/// Datagrams per burst in the tests; the backend's transmit queue must hold as many.
const BURST: usize = 64;

/// How far a conversion between clocks may be off, as the tests see it.
const CLOCK_ERROR_NS_MAX: u64 = 1_000_000;

/// Runs the whole suite. `open` gives two fresh ends that reach each other's `local_addr` and nobody else; `now` reads the
/// clock that the backend's receive times are on.
///
/// # Panics
/// When a promise is not kept, saying which.
pub fn run<N: Nic>(mut open: impl FnMut() -> (N, N), now: impl Fn() -> Nanos) {
    let mut link = || Link::new(open(), &now);
    idle_costs_nothing(link());
    sizes_arrive_whole(link());
    addresses_are_true(link());
    a_burst_arrives_in_order(link());
    a_full_queue_is_told_and_drains(link());
    an_uncommitted_slot_is_not_sent(link());
    a_poll_takes_no_more_than_asked(link());
    times_are_in_order_and_not_ahead(link());
    counters_tell_what_happened(link());
}

/// Runs the part that needs two cores' worth of threads: each half on its own.
///
/// # Panics
/// When a promise is not kept.
pub fn run_threads<N: Nic>(open: impl FnOnce() -> (N, N), now: impl Fn() -> Nanos + Sync)
where
    N::Rx: 'static,
    N::Tx: 'static,
{
    const ROUNDS: u64 = 10_000;
    let Link { a, b, now } = Link::new(open(), &now);
    std::thread::scope(|scope| {
        let End { address: b_address, rx: mut b_rx, tx: mut b_tx } = b;
        let End { address: a_address, rx: mut a_rx, tx: mut a_tx } = a;
        // Three threads: one sends, one echoes, one receives; at most a burst is on its way.
        let (credit_tx, credit_rx) = std::sync::mpsc::sync_channel(BURST);
        scope.spawn(move || {
            for round in 0..ROUNDS {
                if credit_tx.send(()).is_err() {
                    return;
                }
                send(&mut a_tx, &round.to_le_bytes(), b_address);
                flush_all(&mut a_tx);
            }
        });
        scope.spawn(move || {
            let mut echoed = 0;
            let mut patience = Patience::default();
            while echoed < ROUNDS {
                let before = echoed;
                b_rx.poll(now(), BURST, |datagram| {
                    send(&mut b_tx, datagram.payload, a_address);
                    echoed += 1;
                });
                flush_all(&mut b_tx);
                patience.after(echoed > before, || format!("the echo got {echoed} of {ROUNDS}"));
            }
        });
        let mut next = 0u64;
        let mut patience = Patience::default();
        while next < ROUNDS {
            let before = next;
            a_rx.poll(now(), BURST, |datagram| {
                assert_eq!(datagram.payload, next.to_le_bytes(), "in order, each once");
                next += 1;
                credit_rx.recv().expect("a credit for each datagram on its way");
            });
            patience.after(next > before, || format!("{next} of {ROUNDS} came back"));
        }
    });
}

/// Counts fruitless polls, lets other threads run in between, and fails after too many.
#[derive(Default)]
struct Patience(u64);

impl Patience {
    fn after(&mut self, progress: bool, what: impl FnOnce() -> String) {
        if progress {
            self.0 = 0;
            return;
        }
        self.0 += 1;
        assert!(self.0 < IDLE_POLLS_MAX, "{}", what());
        std::thread::yield_now();
    }
}

struct End<N: Nic> {
    address: SocketAddrV4,
    rx: N::Rx,
    tx: N::Tx,
}

struct Link<'a, N: Nic, C> {
    a: End<N>,
    b: End<N>,
    now: &'a C,
}

/// What a poll delivered, kept.
struct Kept {
    source: SocketAddrV4,
    destination: SocketAddrV4,
    payload: Vec<u8>,
    received: Nanos,
    origin: TimeOrigin,
}

impl Kept {
    fn of(datagram: Datagram<'_>) -> Kept {
        let Datagram { source, destination, payload, received, origin } = datagram;
        Kept { source, destination, payload: payload.to_vec(), received, origin }
    }
}

impl<'a, N: Nic, C: Fn() -> Nanos> Link<'a, N, C> {
    fn new((a, b): (N, N), now: &'a C) -> Self {
        assert_ne!(a.describe(), "", "a backend says what it is");
        let end = |nic: N| {
            let address = nic.local_addr();
            let (rx, tx) = nic.split();
            End { address, rx, tx }
        };
        Link { a: end(a), b: end(b), now }
    }

    /// Polls `b` until `count` datagrams have come.
    fn receive(&mut self, count: usize) -> Vec<Kept> {
        let mut kept = Vec::new();
        let mut patience = Patience::default();
        while kept.len() < count {
            let taken = self.b.rx.poll((self.now)(), BURST, |datagram| kept.push(Kept::of(datagram)));
            patience.after(taken > 0, || format!("{} of {count} datagrams came", kept.len()));
        }
        assert_eq!(kept.len(), count, "more came than were sent");
        kept
    }

    fn send(&mut self, payload: &[u8]) {
        send(&mut self.a.tx, payload, self.b.address);
    }
}

fn send(tx: &mut impl Tx, payload: &[u8], to: SocketAddrV4) {
    tx.reserve().expect("room for a datagram")[..payload.len()].copy_from_slice(payload);
    tx.commit(payload.len(), to);
}

fn flush_all(tx: &mut impl Tx) {
    let mut patience = Patience::default();
    while tx.queued() > 0 {
        patience.after(tx.flush() > 0, || format!("{} datagrams stay queued", tx.queued()));
    }
}

fn idle_costs_nothing<N: Nic, C: Fn() -> Nanos>(mut link: Link<'_, N, C>) {
    assert_eq!(link.b.rx.poll((link.now)(), BURST, |_| panic!("nothing was sent")), 0);
    assert_eq!((link.a.tx.flush(), link.a.tx.queued()), (0, 0));
    assert!(link.a.tx.counters().rows().all(|(_, count)| count == 0), "{:?}", link.a.tx.counters());
    assert!(link.b.rx.counters().rows().all(|(_, count)| count == 0), "{:?}", link.b.rx.counters());
}

fn sizes_arrive_whole<N: Nic, C: Fn() -> Nanos>(mut link: Link<'_, N, C>) {
    let max = link.a.tx.datagram_bytes_max();
    for len in [0, 1, 17, 63, 64, 65, max - 1, max] {
        let payload: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
        link.send(&payload);
        flush_all(&mut link.a.tx);
        assert!(link.receive(1)[0].payload == payload, "{len} bytes came out different");
    }
}

fn addresses_are_true<N: Nic, C: Fn() -> Nanos>(mut link: Link<'_, N, C>) {
    link.send(b"whence");
    flush_all(&mut link.a.tx);
    let (a, b) = (link.a.address, link.b.address);
    let there = link.receive(1).remove(0);
    assert_eq!((there.source, there.destination), (a, b));
    // And back to where it came from.
    send(&mut link.b.tx, b"thence", there.source);
    flush_all(&mut link.b.tx);
    std::mem::swap(&mut link.a, &mut link.b);
    let back = link.receive(1).remove(0);
    assert_eq!((back.source, back.destination, &back.payload[..]), (b, a, &b"thence"[..]));
}

fn a_burst_arrives_in_order<N: Nic, C: Fn() -> Nanos>(mut link: Link<'_, N, C>) {
    for round in 0..8 {
        for i in 0..BURST {
            link.send(&[round, i as u8]);
        }
        assert_eq!(link.a.tx.queued(), BURST);
        flush_all(&mut link.a.tx);
        let burst = link.receive(BURST);
        assert!(burst.iter().enumerate().all(|(i, kept)| kept.payload == [round, i as u8]), "burst {round}");
    }
}

fn a_full_queue_is_told_and_drains<N: Nic, C: Fn() -> Nanos>(mut link: Link<'_, N, C>) {
    let mut sent = 0u32;
    while link.a.tx.reserve().is_some() {
        link.a.tx.commit(0, link.b.address);
        sent += 1;
        assert!(sent <= 1 << 20, "a queue without an end");
    }
    assert_eq!(link.a.tx.queued(), sent as usize);
    assert!(link.a.tx.counters().queue_full > 0);
    let mut received = 0;
    let mut patience = Patience::default();
    while received < sent {
        link.a.tx.flush();
        let before = received;
        link.b.rx.poll((link.now)(), BURST, |_| received += 1);
        patience.after(received > before, || format!("{received} of {sent} came"));
    }
    assert_eq!(link.a.tx.queued(), 0);
    assert!(link.a.tx.reserve().is_some());
}

fn an_uncommitted_slot_is_not_sent<N: Nic, C: Fn() -> Nanos>(mut link: Link<'_, N, C>) {
    link.a.tx.reserve().expect("room")[0] = 1;
    assert_eq!((link.a.tx.flush(), link.a.tx.queued()), (0, 0));
    link.send(&[2]);
    flush_all(&mut link.a.tx);
    assert_eq!(link.receive(1)[0].payload, [2]);
}

fn a_poll_takes_no_more_than_asked<N: Nic, C: Fn() -> Nanos>(mut link: Link<'_, N, C>) {
    for i in 0..10 {
        link.send(&[i]);
    }
    flush_all(&mut link.a.tx);
    let mut payloads = Vec::new();
    let mut patience = Patience::default();
    while payloads.len() < 10 {
        assert_eq!(link.b.rx.poll((link.now)(), 0, |_| panic!("none were asked for")), 0);
        let mut delivered = 0;
        let taken = link.b.rx.poll((link.now)(), 3, |datagram| {
            payloads.push(datagram.payload[0]);
            delivered += 1;
        });
        assert!(taken <= 3 && delivered == taken);
        patience.after(taken > 0, || format!("{} of 10 came", payloads.len()));
    }
    assert_eq!(payloads, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

fn times_are_in_order_and_not_ahead<N: Nic, C: Fn() -> Nanos>(mut link: Link<'_, N, C>) {
    let mut last = 0;
    for i in 0..200 {
        let before = (link.now)();
        link.send(&[i]);
        flush_all(&mut link.a.tx);
        let kept = link.receive(1).remove(0);
        let after = (link.now)();
        assert!(kept.received <= after, "received {} ns after now", kept.received - after);
        assert!(kept.received + CLOCK_ERROR_NS_MAX >= before, "received {} ns before sent", before - kept.received);
        assert!(kept.received + CLOCK_ERROR_NS_MAX >= last, "time ran backwards ({:?})", kept.origin);
        last = kept.received;
    }
}

fn counters_tell_what_happened<N: Nic, C: Fn() -> Nanos>(mut link: Link<'_, N, C>) {
    for len in 1..=10 {
        link.send(&vec![0; len]);
    }
    flush_all(&mut link.a.tx);
    link.receive(10);
    let (sent, received) = (link.a.tx.counters(), link.b.rx.counters());
    assert_eq!((sent.datagrams, sent.bytes), (10, 55));
    assert_eq!((received.datagrams, received.bytes), (10, 55));
    assert!(sent.flushes >= 1);
    let dropped = received.dropped_before_poll + received.dropped_truncated + received.dropped_malformed;
    assert_eq!(dropped, 0, "{received:?}");
}
