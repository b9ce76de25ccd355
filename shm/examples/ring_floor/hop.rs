//! One-to-one hops: there and back between two cores, halved.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use ticktape_core::Seq;
use ticktape_shm::{Consumer, Producer, RingBuilder, RingConfig};

use crate::stats::{Row, ns_per_tick, percentile, pin, sealed, ticks};

/// Few, so that a run ends before the machine interferes; many runs are made, and the quiet ones count.
const HOPS: usize = 50_000;
/// More than a lap of the ring, so that what counts is memory that both cores have had before.
const WARM_HOPS: usize = 20_000;
const RUNS_PER_ROUND: usize = 4;
const FRAME_BYTES: usize = 64;

/// Something that can carry a 64-byte message to another core.
pub trait Link: Send {
    /// Sends message `seq`; `body` carries it already.
    fn send(&mut self, seq: u64, body: &[u8]);
    /// Waits for message `seq`, and returns a word of it.
    fn receive(&mut self, seq: u64) -> u64;
}

/// One slot on one line, both ways: what the hardware allows.
pub struct Slot {
    there: Arc<Line>,
    back: Arc<Line>,
}

#[repr(align(128))]
#[derive(Default)]
struct Line([AtomicU64; 8]);

pub fn slots() -> (Slot, Slot) {
    let (a, b) = (Arc::new(Line::default()), Arc::new(Line::default()));
    (Slot { there: a.clone(), back: b.clone() }, Slot { there: b, back: a })
}

impl Link for Slot {
    fn send(&mut self, seq: u64, body: &[u8]) {
        for at in (1..8).rev() {
            let word = u64::from_le_bytes(body[8 * at..8 * at + 8].try_into().expect("8 bytes"));
            self.there.0[at].store(word, Ordering::Relaxed);
        }
        self.there.0[0].store(seq, Ordering::Release);
    }

    fn receive(&mut self, seq: u64) -> u64 {
        while self.back.0[0].load(Ordering::Acquire) != seq {}
        self.back.0[7].load(Ordering::Relaxed)
    }
}

/// Two log rings.
pub struct Rings {
    producer: Producer,
    consumer: Consumer,
}

pub fn rings() -> (Rings, Rings) {
    let one = || {
        let mut builder = RingBuilder::new(RingConfig::default());
        builder.consumer("peer");
        let mut ring = builder.build(Seq::FIRST).expect("memory");
        let consumer = ring.consumers.remove(0);
        (ring.producer, consumer)
    };
    let ((p1, c1), (p2, c2)) = (one(), one());
    (Rings { producer: p1, consumer: c2 }, Rings { producer: p2, consumer: c1 })
}

impl Link for Rings {
    fn send(&mut self, _seq: u64, body: &[u8]) {
        self.producer.push(body).expect("one message at a time");
        self.producer.publish();
    }

    fn receive(&mut self, _seq: u64) -> u64 {
        loop {
            if let Some(frame) = self.consumer.peek() {
                let word = u64::from_le_bytes(*frame.last_chunk().expect("8 bytes"));
                self.consumer.advance();
                if self.consumer.next_seq().0.is_multiple_of(64) {
                    self.consumer.release();
                }
                return word;
            }
            self.producer.idle();
        }
    }
}

/// The `disruptor` crate's, polled.
pub struct Peer<P> {
    producer: P,
    poller: disruptor::EventPoller<[u64; 8], disruptor::SingleProducerBarrier>,
}

pub fn peers() -> (impl Link, impl Link) {
    let one = || {
        let builder = disruptor::build_single_producer(16 << 10, || [0u64; 8], disruptor::BusySpin);
        let (poller, builder) = builder.new_event_poller();
        (builder.build(), poller)
    };
    let ((p1, c1), (p2, c2)) = (one(), one());
    (Peer { producer: p1, poller: c2 }, Peer { producer: p2, poller: c1 })
}

impl<P: disruptor::Producer<[u64; 8]> + Send> Link for Peer<P> {
    fn send(&mut self, _seq: u64, body: &[u8]) {
        self.producer.publish(|event| {
            for (word, bytes) in event.iter_mut().zip(body.chunks_exact(8)) {
                *word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            }
        });
    }

    fn receive(&mut self, _seq: u64) -> u64 {
        loop {
            if let Ok(mut events) = self.poller.poll() {
                return (&mut events).map(|event| event[7]).last().expect("an event");
            }
        }
    }
}

/// Round trips over a link: (mean, p50, p99) of a hop, in ns.
pub fn round_trips(near: impl Link, far: impl Link, ns_per_tick: f64) -> (f64, f64, f64) {
    let frames: Vec<[u8; FRAME_BYTES]> =
        (1..=HOPS as u64).map(|seq| sealed(seq, FRAME_BYTES).try_into().expect("64 bytes")).collect();
    let ready = AtomicBool::new(false);
    let (mut near, mut far) = (near, far);
    let mut samples = vec![0; HOPS];
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            ready.store(true, Ordering::Release);
            for (index, frame) in frames.iter().enumerate() {
                std::hint::black_box(far.receive(index as u64 + 1));
                far.send(index as u64 + 1, frame);
            }
        });
        pin(0);
        while !ready.load(Ordering::Acquire) {
            thread::yield_now();
        }
        for (index, frame) in frames.iter().enumerate() {
            let start = ticks();
            near.send(index as u64 + 1, frame);
            std::hint::black_box(near.receive(index as u64 + 1));
            samples[index] = ticks() - start;
        }
    });
    let hops: Vec<f64> = samples[WARM_HOPS..].iter().map(|&sample| sample as f64 * ns_per_tick / 2.0).collect();
    let mean = hops.iter().sum::<f64>() / hops.len() as f64;
    (mean, percentile(hops.clone(), 0.5), percentile(hops, 0.99))
}

pub fn rows(rounds: usize) -> Vec<Row> {
    let tick = ns_per_tick();
    let mut results: [Vec<(f64, f64, f64)>; 3] = Default::default();
    for _ in 0..rounds * RUNS_PER_ROUND {
        let (near, far) = slots();
        results[0].push(round_trips(near, far, tick));
        let (near, far) = rings();
        results[1].push(round_trips(near, far, tick));
        let (near, far) = peers();
        results[2].push(round_trips(near, far, tick));
    }
    let pick =
        |which: usize, of: fn(&(f64, f64, f64)) -> f64| percentile(results[which].iter().map(of).collect(), 0.25);
    let row = |name: &str, other, other_name, budget, of: fn(&(f64, f64, f64)) -> f64| Row {
        name: name.to_owned(),
        unit: "ns",
        ours: pick(1, of),
        other: pick(other, of),
        other_name,
        budget,
        is_rate: false,
    };
    vec![
        row("ring hop 64 B, mean", 0, "raw slot", 1.2, |r| r.0),
        row("ring hop 64 B, p50", 0, "raw slot", 1.2, |r| r.1),
        row("ring hop 64 B, p99", 0, "raw slot", 1.5, |r| r.2),
        row("ring hop 64 B, mean", 2, "disruptor", 1.0, |r| r.0),
    ]
}
