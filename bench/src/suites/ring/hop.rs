//! One-to-one hops between two threads: there and back, halved.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crossbeam_utils::CachePadded;
use ticktape_core::Seq;
use ticktape_shm::{Consumer, Producer, Ring, RingBuilder, RingConfig};

use super::super::Outcome;
use super::{CHANNEL, MESSAGE_BYTES, Message, RTRB, SUITE, all_sealed, pin};
use crate::args::Options;
use crate::hop::{Cores, HopTag};
use crate::latency::{Latency, Percentiles, Stopwatch};
use crate::rounds::{Contestant, Rounds, interleave_with};
use crate::row::{Budget, Row};

/// Round trips of a round.
const HOPS: usize = 200_000;
/// Frames between two releases of the consumer, as its own `poll` does.
const RELEASE_EVERY: u64 = 64;

/// One end of something that carries a message each way.
pub(in crate::suites) trait Link {
    /// Sends message `seq`; its bytes carry the number already.
    fn send(&mut self, seq: u64, message: &Message);
    /// Waits for message `seq`, and returns its last word.
    fn receive(&mut self, seq: u64) -> u64;
}

/// The word at `at` of a message.
#[inline]
pub(in crate::suites) fn word(message: &Message, at: usize) -> u64 {
    u64::from_le_bytes(message[8 * at..8 * at + 8].try_into().expect("eight bytes"))
}

/// One line each way: what the hardware allows.
struct Slot {
    there: Arc<CachePadded<[AtomicU64; MESSAGE_BYTES / 8]>>,
    back: Arc<CachePadded<[AtomicU64; MESSAGE_BYTES / 8]>>,
}

fn slots() -> (Slot, Slot) {
    let line = || Arc::new(CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0))));
    let (a, b) = (line(), line());
    (Slot { there: Arc::clone(&a), back: Arc::clone(&b) }, Slot { there: b, back: a })
}

impl Link for Slot {
    #[inline]
    fn send(&mut self, seq: u64, message: &Message) {
        for at in (1..MESSAGE_BYTES / 8).rev() {
            self.there[at].store(word(message, at), Ordering::Relaxed);
        }
        self.there[0].store(seq, Ordering::Release); // pairs with the Acquire load in `receive`
    }

    #[inline]
    fn receive(&mut self, seq: u64) -> u64 {
        while self.back[0].load(Ordering::Acquire) != seq {}
        self.back[MESSAGE_BYTES / 8 - 1].load(Ordering::Relaxed)
    }
}

/// Two log rings, one each way.
pub(in crate::suites) struct Rings {
    producer: Producer,
    consumer: Consumer,
}

/// A pair of ends over the two rings that `build` makes.
pub(in crate::suites) fn rings(mut build: impl FnMut(RingBuilder) -> Ring) -> (Rings, Rings) {
    let mut one = || {
        let mut builder = RingBuilder::new(RingConfig::default());
        builder.consumer("peer");
        let mut ring = build(builder);
        (ring.producer, ring.consumers.remove(0))
    };
    let ((there, back_there), (back, here)) = (one(), one());
    (Rings { producer: there, consumer: here }, Rings { producer: back, consumer: back_there })
}

impl Link for Rings {
    #[inline]
    fn send(&mut self, _seq: u64, message: &Message) {
        self.producer.push(message).expect("one message at a time fits");
        self.producer.publish();
    }

    #[inline]
    fn receive(&mut self, _seq: u64) -> u64 {
        loop {
            if let Some(frame) = self.consumer.peek() {
                let last = u64::from_le_bytes(*frame.last_chunk().expect("eight bytes"));
                self.consumer.advance();
                if self.consumer.next_seq().0.is_multiple_of(RELEASE_EVERY) {
                    self.consumer.release();
                }
                return last;
            }
            self.producer.idle();
        }
    }
}

#[cfg(feature = "peers")]
mod peer {
    use crossbeam_channel::{Receiver, Sender};

    use super::{Link, MESSAGE_BYTES, Message, word};

    type Event = [u64; MESSAGE_BYTES / 8];
    /// As many events as a ring of 1 MiB holds.
    const EVENTS: usize = (1 << 20) / MESSAGE_BYTES;

    fn event(message: &Message) -> Event {
        std::array::from_fn(|at| word(message, at))
    }

    /// `rtrb`'s ring each way.
    struct Rtrbs(rtrb::Producer<Event>, rtrb::Consumer<Event>);

    pub(super) fn rtrbs() -> (impl Link + Send, impl Link + Send) {
        let ((there, back_there), (back, here)) = (rtrb::RingBuffer::new(EVENTS), rtrb::RingBuffer::new(EVENTS));
        (Rtrbs(there, here), Rtrbs(back, back_there))
    }

    impl Link for Rtrbs {
        #[inline]
        fn send(&mut self, _seq: u64, message: &Message) {
            self.0.push(event(message)).expect("one message at a time fits");
        }

        #[inline]
        fn receive(&mut self, _seq: u64) -> u64 {
            loop {
                if let Ok(event) = self.1.pop() {
                    return std::hint::black_box(event)[MESSAGE_BYTES / 8 - 1];
                }
            }
        }
    }

    /// crossbeam's bounded channel each way.
    struct Channels(Sender<Event>, Receiver<Event>);

    pub(super) fn channels() -> (impl Link + Send, impl Link + Send) {
        let one = || crossbeam_channel::bounded(EVENTS);
        let ((there, back_there), (back, here)) = (one(), one());
        (Channels(there, here), Channels(back, back_there))
    }

    impl Link for Channels {
        #[inline]
        fn send(&mut self, _seq: u64, message: &Message) {
            self.0.try_send(event(message)).expect("one message at a time fits");
        }

        #[inline]
        fn receive(&mut self, _seq: u64) -> u64 {
            loop {
                if let Ok(event) = self.1.try_recv() {
                    return std::hint::black_box(event)[MESSAGE_BYTES / 8 - 1];
                }
            }
        }
    }

    /// The `disruptor` crate's ring each way, polled.
    struct Disruptors<P> {
        producer: P,
        poller: disruptor::EventPoller<Event, disruptor::SingleProducerBarrier>,
    }

    pub(super) fn disruptors() -> (impl Link + Send, impl Link + Send) {
        let one = || {
            let builder = disruptor::build_single_producer(EVENTS, || [0; MESSAGE_BYTES / 8], disruptor::BusySpin);
            let (poller, builder) = builder.new_event_poller();
            (builder.build(), poller)
        };
        let ((there, back_there), (back, here)) = (one(), one());
        (Disruptors { producer: there, poller: here }, Disruptors { producer: back, poller: back_there })
    }

    impl<P: disruptor::Producer<Event> + Send> Link for Disruptors<P> {
        #[inline]
        fn send(&mut self, _seq: u64, message: &Message) {
            self.producer.publish(|event| {
                event.iter_mut().enumerate().for_each(|(at, out)| *out = word(message, at));
            });
        }

        #[inline]
        fn receive(&mut self, _seq: u64) -> u64 {
            loop {
                if let Ok(mut events) = self.poller.poll() {
                    return (&mut events).map(|event| event[MESSAGE_BYTES / 8 - 1]).last().expect("an event");
                }
            }
        }
    }
}

/// Round trips between two threads, halved.
pub(in crate::suites) fn round_trips(
    cores: Cores,
    messages: &[Message],
    (mut near, mut far): (impl Link + Send, impl Link + Send),
) -> Latency {
    let ready = AtomicBool::new(false);
    let mut watch = Stopwatch::new(messages.len());
    thread::scope(|scope| {
        let ready = &ready;
        scope.spawn(move || {
            pin(cores.there);
            ready.store(true, Ordering::Release); // pairs with the Acquire load of the near side
            for (seq, message) in (1..).zip(messages) {
                std::hint::black_box(far.receive(seq));
                far.send(seq, message);
            }
        });
        pin(cores.here);
        while !ready.load(Ordering::Acquire) {
            thread::yield_now();
        }
        for (seq, message) in (1..).zip(messages) {
            watch.time(|| {
                near.send(seq, message);
                std::hint::black_box(near.receive(seq));
            });
        }
    });
    watch.finish(2.0)
}

pub fn run(options: &Options, cores: Cores) -> Outcome {
    let messages = all_sealed(HOPS);
    let messages = messages.as_slice();
    let mut contestants: Vec<Contestant<'_, Latency>> = vec![
        Box::new(|| round_trips(cores, messages, rings(|builder| builder.build(Seq::FIRST).expect("memory")))),
        Box::new(|| round_trips(cores, messages, slots())),
        // Nothing between the two readings of the clock: half of it is in every hop.
        Box::new(|| {
            let mut watch = Stopwatch::new(HOPS);
            (0..HOPS).for_each(|at| {
                watch.time(|| std::hint::black_box(at));
            });
            watch.finish(2.0)
        }),
        #[cfg(feature = "peers")]
        Box::new(|| round_trips(cores, messages, peer::disruptors())),
        #[cfg(feature = "peers")]
        Box::new(|| round_trips(cores, messages, peer::rtrbs())),
        #[cfg(feature = "peers")]
        Box::new(|| round_trips(cores, messages, peer::channels())),
    ];
    let mut tag = HopTag::default();
    let results = interleave_with(options.rounds, &mut contestants, || tag.probe(cores));
    let of = |at: usize, value: fn(&Latency) -> f64| -> Rounds { results[at].iter().map(value).collect() };
    let at = |at: usize, value: fn(&Latency) -> f64| -> Option<Rounds> {
        results.get(at).map(|rounds| rounds.iter().map(value).collect())
    };
    let row = |what: &str, value: fn(&Latency) -> f64| {
        Row::lower(SUITE, format!("hop one to one, 64 B: {what}"), "ns", of(0, value))
            .floor(of(1, value))
            .peer("disruptor", at(3, value))
            .hop(&tag)
            .spends("cache lines on their way between the two cores: perf c2c record target/release/ticktape-bench ring --rounds 1")
    };
    let mean: fn(&Latency) -> f64 = |latency| latency.mean;
    // Queues: what was taken is gone.
    let queue = |(name, peer): (&'static str, usize)| {
        let what = format!("hop one to one, 64 B: mean, against {name}");
        Some(Row::lower(SUITE, what, "ns", of(0, mean)).peer(name, Some(at(peer, mean)?)).hop(&tag))
    };
    let rows = vec![
        Row::lower(SUITE, "harness: clock readings in a hop, mean", "ns", of(2, mean)),
        row("mean", mean).budget(Budget::OfFloor(1.2)),
        row("mean, against the peer", mean).budget(Budget::OfPeer(1.0)),
        row("p50", Latency::p50),
        row("p99", |latency| latency.quantile(0.99)).budget(Budget::OfFloor(1.5)),
    ];
    let rows = rows.into_iter().chain([(RTRB, 4), (CHANNEL, 5)].into_iter().filter_map(queue)).collect();
    let whose = ["ours", "floor", "harness", "disruptor", RTRB, CHANNEL];
    let percentiles = whose
        .iter()
        .zip(&results)
        .map(|(whose, rounds)| Percentiles::of("hop one to one, 64 B", *whose, rounds))
        .collect();
    let notes = vec![format!(
        "hops: {HOPS} round trips a round, halved; the floor is one line each way; means leave out what lies beyond p99.99"
    )];
    Outcome { rows, percentiles, notes }
}
