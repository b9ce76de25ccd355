//! Throughput in bursts, one to one and one to three.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use ticktape_core::Seq;
use ticktape_shm::{RingBuilder, RingConfig};

use super::super::Outcome;
use super::{SUITE, pin, sealed};
use crate::args::Options;
use crate::hop::{Cores, HopTag};
use crate::rounds::{Contestant, Rounds, interleave_with};
use crate::row::{Budget, Row};

/// Messages of a run: few, so that most runs end before the machine interferes. Where three readers share a core and take
/// turns, runs are longer than a time slice anyway.
const MESSAGES: usize = 200_000;
/// Runs of a round; the round's value is the upper quartile, for every contestant alike.
const RUNS: usize = 8;

/// What is sent how.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) cores: Cores,
    pub(super) ring_bytes: usize,
    pub(super) burst: usize,
    pub(super) readers: usize,
    /// Whether a lone reader that finds nothing pauses its core for a moment. What suits a ring best differs.
    pub(super) pauses: bool,
}

impl Load {
    /// In words, with messages of so many bytes.
    pub(super) fn name(self, bytes: usize) -> String {
        let consumers = if self.readers == 1 { "one consumer" } else { "three consumers" };
        format!("throughput {} KiB, bursts of {}, {bytes} B, {consumers}", self.ring_bytes / KIB, self.burst)
    }

    pub(super) fn messages(self) -> usize {
        MESSAGES / self.burst * self.burst
    }

    /// A reader has nothing to do. Several share a core, and let each other run.
    #[inline(always)]
    pub(super) fn idle(self) {
        if self.readers > 1 {
            thread::yield_now();
        } else if self.pauses {
            std::hint::spin_loop();
        }
    }

    /// Millions a second of `write`, until all of `reads` have returned.
    pub(super) fn measure<R: FnOnce() + Send>(self, reads: Vec<R>, write: impl FnOnce()) -> f64 {
        let mut seconds = 0.0;
        let (ready, expected) = (AtomicUsize::new(0), reads.len());
        thread::scope(|scope| {
            let ready = &ready;
            let readers: Vec<_> = (reads.into_iter())
                .map(|read| {
                    scope.spawn(move || {
                        pin(self.cores.there);
                        ready.fetch_add(1, Ordering::Release); // pairs with the Acquire load below
                        read();
                    })
                })
                .collect();
            pin(self.cores.here);
            while ready.load(Ordering::Acquire) < expected {
                thread::yield_now();
            }
            let start = Instant::now();
            write();
            readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
            seconds = start.elapsed().as_secs_f64();
        });
        self.messages() as f64 / seconds / 1e6
    }
}

/// The upper quartile of several runs.
pub(super) fn round(mut run: impl FnMut() -> f64) -> f64 {
    let mut rates: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    rates.sort_by(f64::total_cmp);
    rates[RUNS * 3 / 4]
}

pub(super) fn ours<const BYTES: usize>(load: Load) -> f64 {
    let config = RingConfig {
        capacity_bytes: load.ring_bytes,
        frame_bytes_max: BYTES,
        batch_bytes_max: (load.burst * BYTES).max(4096).min(load.ring_bytes / 8),
        ..RingConfig::default()
    };
    let mut builder = RingBuilder::new(config);
    (0..load.readers).for_each(|_| {
        builder.consumer("reader");
    });
    let mut ring = builder.build(Seq::FIRST).expect("memory");
    let read = |mut consumer: ticktape_shm::Consumer| {
        move || {
            let (mut seen, mut sum) = (0, 0_u64);
            while seen < load.messages() {
                let polled = consumer.poll(usize::MAX, |frame| {
                    sum = sum.wrapping_add(u64::from_le_bytes(*frame.first_chunk().expect("eight bytes")));
                });
                seen += polled;
                if polled == 0 {
                    load.idle();
                }
            }
            std::hint::black_box(sum);
        }
    };
    let reads = ring.consumers.drain(..).map(read).collect();
    let producer = &mut ring.producer;
    load.measure(reads, || {
        let (mut frame, mut seq) = (sealed::<BYTES>(1), 0_u64);
        for _ in 0..load.messages() / load.burst {
            for _ in 0..load.burst {
                seq += 1;
                frame[..8].copy_from_slice(&seq.to_le_bytes());
                while producer.push(&frame).is_err() {
                    producer.publish();
                    std::hint::spin_loop();
                }
            }
            producer.publish();
        }
    })
}

#[cfg(feature = "peers")]
mod peer {
    use disruptor::{EventPoller, Producer, SingleProducerBarrier};

    use super::Load;

    fn read<const WORDS: usize>(
        load: Load,
        mut poller: EventPoller<[u64; WORDS], SingleProducerBarrier>,
    ) -> impl FnOnce() + Send {
        move || {
            let (mut seen, mut sum) = (0, 0_u64);
            while seen < load.messages() {
                match poller.poll() {
                    Ok(mut events) => {
                        for event in &mut events {
                            sum = sum.wrapping_add(event[0]);
                            seen += 1;
                        }
                    }
                    Err(_) => load.idle(),
                }
            }
            std::hint::black_box(sum);
        }
    }

    fn write<const WORDS: usize>(load: Load, producer: &mut impl Producer<[u64; WORDS]>) {
        let (mut message, mut seq) = ([7; WORDS], 0_u64);
        for _ in 0..load.messages() / load.burst {
            if load.burst == 1 {
                seq += 1;
                message[0] = seq;
                producer.publish(|event| *event = std::hint::black_box(message));
            } else {
                producer.batch_publish(load.burst, |events| {
                    for event in events {
                        seq += 1;
                        message[0] = seq;
                        *event = std::hint::black_box(message);
                    }
                });
            }
        }
    }

    pub(super) fn disruptor<const WORDS: usize>(load: Load) -> f64 {
        let events = load.ring_bytes / (8 * WORDS);
        let builder = disruptor::build_single_producer(events, || [0; WORDS], disruptor::BusySpin);
        let (first, builder) = builder.new_event_poller();
        if load.readers == 1 {
            let mut producer = builder.build();
            return load.measure(vec![read(load, first)], || write(load, &mut producer));
        }
        let (second, builder) = builder.new_event_poller();
        let (third, builder) = builder.new_event_poller();
        let mut producer = builder.build();
        let reads = [first, second, third].map(|poller| read(load, poller));
        load.measure(reads.into(), || write(load, &mut producer))
    }
}

const KIB: usize = 1 << 10;

/// The row of one load, with messages of `BYTES` bytes, which are `WORDS` words.
fn compare<const BYTES: usize, const WORDS: usize>(options: &Options, load: Load) -> Row {
    const { assert!(BYTES == 8 * WORDS) };
    let mut contestants: Vec<Contestant<'_, f64>> = vec![
        Box::new(|| round(|| ours::<BYTES>(load))),
        #[cfg(feature = "peers")]
        Box::new(|| round(|| peer::disruptor::<WORDS>(load))),
        #[cfg(feature = "peers")]
        Box::new(|| round(|| peer::disruptor::<WORDS>(Load { pauses: true, ..load }))),
    ];
    let mut tag = HopTag::default();
    let results = interleave_with(options.rounds, &mut contestants, || tag.probe(load.cores));
    let all = |at: usize| results.get(at).map(|rounds| rounds.iter().copied().collect::<Rounds>());
    // The peer is run both ways, and the better one counts.
    let peer = [all(1), all(2)].into_iter().flatten().max_by(|a, b| a.median().total_cmp(&b.median()));
    let spends = "cache lines on their way between the two cores, of the messages and of how far each side is, as with the peer; what a line takes changes \
                  between two rounds, and with it who is ahead: perf c2c record target/release/ticktape-bench ring --rounds 1";
    Row::higher(SUITE, load.name(BYTES), "M/s", all(0).expect("ours ran"))
        .peer("disruptor", peer)
        .hop(&tag)
        .spends(spends)
}

pub fn run(options: &Options, cores: Cores) -> Outcome {
    let load = |ring_bytes: usize, burst, readers| Load { cores, ring_bytes, burst, readers, pauses: false };
    let budget = Budget::OfPeer;
    // The smallest frame, which has no payload, and a cache line.
    let rows = vec![
        compare::<32, 4>(options, load(1024 * KIB, 1, 1)).budget(budget(1.2)),
        compare::<32, 4>(options, load(1024 * KIB, 10, 1)).budget(budget(1.5)),
        compare::<32, 4>(options, load(1024 * KIB, 100, 1)).budget(budget(1.3)),
        compare::<64, 8>(options, load(1024 * KIB, 1, 1)).budget(budget(1.2)),
        compare::<64, 8>(options, load(1024 * KIB, 10, 1)).budget(budget(1.5)),
        compare::<64, 8>(options, load(1024 * KIB, 100, 1)).budget(budget(1.3)),
        compare::<32, 4>(options, load(64 * KIB, 10, 1)),
        compare::<32, 4>(options, load(4096 * KIB, 10, 1)),
        compare::<32, 4>(options, load(1024 * KIB, 10, 3)).budget(budget(1.0)),
    ];
    #[cfg(feature = "peers")]
    let rows = {
        let queues = [1, 10, 100].map(|burst| super::queues::rows::<64, 8>(options, load(1024 * KIB, burst, 1)));
        rows.into_iter().chain(queues.into_iter().flatten()).collect()
    };
    let notes = vec![
        format!("throughput: runs of {MESSAGES} messages, {RUNS} a round, of which the upper quartile counts"),
        "peers' readers are measured with and without a pause when they find nothing; the better counts".to_owned(),
        "three consumers share the far core and yield when idle, on both sides".to_owned(),
    ];
    Outcome { rows, percentiles: Vec::new(), notes }
}
