//! Throughput at bursts, one to one and one to three, against the `disruptor` crate with events of the same size.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use disruptor::Producer as _;
use ticktape_core::Seq;
use ticktape_shm::{RingBuilder, RingConfig};

use crate::stats::{Row, percentile, pin, sealed};

/// Few, so that a run ends before the machine interferes; many runs are made, and their fastest quarter counts.
const EVENTS: usize = 200_000;
const RUNS_PER_ROUND: usize = 10;
/// The smallest frame, a line, and a body.
const EVENT_BYTES: [usize; 3] = [32, 64, 1024];

/// Events per second through a log ring of `ring_bytes`.
pub fn ours<const EVENT_BYTES: usize>(ring_bytes: usize, burst: usize, readers: usize) -> f64 {
    let config = RingConfig {
        capacity_bytes: ring_bytes,
        frame_bytes_max: EVENT_BYTES,
        batch_bytes_max: (burst * EVENT_BYTES).max(4096).min(ring_bytes / 8),
        ..RingConfig::default()
    };
    let mut builder = RingBuilder::new(config);
    for _ in 0..readers {
        builder.consumer("reader");
    }
    let mut ring = builder.build(Seq::FIRST).expect("memory");
    let mut frame: [u8; EVENT_BYTES] = sealed(1, EVENT_BYTES).try_into().expect("the size asked for");
    let mut elapsed = 0.0;
    let ready = AtomicUsize::new(0);
    thread::scope(|scope| {
        let threads: Vec<_> = (ring.consumers.drain(..))
            .map(|mut consumer| {
                let ready = &ready;
                scope.spawn(move || {
                    pin(1);
                    ready.fetch_add(1, Ordering::AcqRel);
                    let (mut seen, mut sum) = (0, 0u64);
                    while seen < EVENTS {
                        let polled = consumer.poll(usize::MAX, |frame| {
                            sum = sum.wrapping_add(u64::from_le_bytes(*frame.first_chunk().expect("8 bytes")));
                        });
                        seen += polled;
                        if polled == 0 && readers > 1 {
                            thread::yield_now();
                        }
                    }
                    std::hint::black_box(sum);
                })
            })
            .collect();
        pin(0);
        while ready.load(Ordering::Acquire) < readers {
            thread::yield_now();
        }
        let start = Instant::now();
        let mut seq = 0u64;
        for _ in 0..EVENTS / burst {
            for _ in 0..burst {
                seq += 1;
                frame[..8].copy_from_slice(&seq.to_le_bytes());
                while ring.producer.push(&frame).is_err() {
                    ring.producer.publish();
                    std::hint::spin_loop();
                }
            }
            ring.producer.publish();
        }
        for thread in threads {
            thread.join().expect("the reader");
        }
        elapsed = start.elapsed().as_secs_f64();
    });
    EVENTS as f64 / elapsed / 1e6
}

/// Events per second through the `disruptor` crate, polled as ours is.
pub fn peer<const WORDS: usize>(ring_bytes: usize, burst: usize) -> f64 {
    let builder = disruptor::build_single_producer(ring_bytes / (8 * WORDS), || [0u64; WORDS], disruptor::BusySpin);
    let (mut poller, builder) = builder.new_event_poller();
    let mut producer = builder.build();
    let mut elapsed = 0.0;
    let ready = AtomicUsize::new(0);
    thread::scope(|scope| {
        let ready = &ready;
        let reader = scope.spawn(move || {
            pin(1);
            ready.store(1, Ordering::Release);
            let (mut seen, mut sum) = (0, 0u64);
            while seen < EVENTS {
                if let Ok(mut events) = poller.poll() {
                    for event in &mut events {
                        sum = sum.wrapping_add(event[0]);
                        seen += 1;
                    }
                }
            }
            std::hint::black_box(sum);
        });
        pin(0);
        let mut frame = [7u64; WORDS];
        while ready.load(Ordering::Acquire) < 1 {
            thread::yield_now();
        }
        let start = Instant::now();
        let mut seq = 0u64;
        for _ in 0..EVENTS / burst {
            if burst == 1 {
                seq += 1;
                frame[0] = seq;
                producer.publish(|event| *event = std::hint::black_box(frame));
            } else {
                producer.batch_publish(burst, |events| {
                    for event in events {
                        seq += 1;
                        frame[0] = seq;
                        *event = std::hint::black_box(frame);
                    }
                });
            }
        }
        reader.join().expect("the reader");
        elapsed = start.elapsed().as_secs_f64();
    });
    EVENTS as f64 / elapsed / 1e6
}

pub fn rows(rounds: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for (ring_bytes, burst, budget) in
        [(1 << 20, 1, 1.2), (1 << 20, 10, 1.5), (1 << 20, 100, 1.3), (64 << 10, 10, 0.0), (4 << 20, 10, 0.0)]
    {
        for event_bytes in EVENT_BYTES {
            let run = |_| match event_bytes {
                32 => (ours::<32>(ring_bytes, burst, 1), peer::<4>(ring_bytes, burst)),
                64 => (ours::<64>(ring_bytes, burst, 1), peer::<8>(ring_bytes, burst)),
                _ => (ours::<1024>(ring_bytes, burst, 1), peer::<128>(ring_bytes, burst)),
            };
            let pairs: Vec<(f64, f64)> = (0..rounds * RUNS_PER_ROUND).map(run).collect();
            let fast = |of: fn(&(f64, f64)) -> f64| percentile(pairs.iter().map(of).collect(), 0.75);
            rows.push(Row {
                name: format!("ring throughput {} KiB, {event_bytes} B, burst {burst}", ring_bytes >> 10),
                unit: "M/s",
                ours: fast(|pair| pair.0),
                other: fast(|pair| pair.1),
                other_name: "disruptor",
                // The budgets are for small events; of 1 KiB the memory sets the pace.
                budget: if event_bytes < 1024 { budget } else { 0.0 },
                is_rate: true,
            });
        }
    }
    rows
}
