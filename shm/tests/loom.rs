//! Every interleaving of small rings. Run by
//! `RUSTFLAGS="--cfg loom" cargo test -p ticktape-shm --release --test loom --target-dir target/loom`.
#![cfg(loom)]

mod model;

use loom::thread;
use model::{Oracle, padded_frame, sealed};
use ticktape_core::Seq;
use ticktape_shm::{Consumer, FollowError, Horizon, Producer, RingBuilder, RingConfig};

/// The smallest ring there is: two frames to a batch, and room for five with the word after them.
fn smallest() -> RingConfig {
    RingConfig { capacity_bytes: 256, frame_bytes_max: 32, batch_bytes_max: 32, epoch: 3, commit_is_sequenced: true }
}

/// How often a reader of a model looks where waiting would have too many ways to go.
const LOOKS: usize = 3;

/// All interleavings with at most two preemptions, and every value that a relaxed load may return: what a mistaken ordering
/// would show. A third preemption multiplies the time by twenty and has found nothing.
fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(body);
}

fn push(producer: &mut Producer, seq: u64, payload_bytes: usize) {
    while producer.push(&sealed(seq, payload_bytes)).is_err() {
        producer.publish();
        thread::yield_now();
    }
}

/// Reads up to and without `end`, comparing each frame with the oracle.
fn read_all(consumer: &mut Consumer, oracle: &mut Oracle, reader: usize, end: u64) {
    while consumer.next_seq().0 < end {
        match consumer.peek() {
            Some(frame) => {
                assert_eq!(Some(frame), oracle.peek(reader).map(padded_frame).as_deref());
                consumer.advance();
                consumer.release();
                oracle.advance(reader);
                oracle.release(reader);
            }
            None => thread::yield_now(),
        }
    }
}

fn oracle_of(frames: u64, payload_bytes: usize, after: &[Vec<usize>]) -> Oracle {
    let mut oracle = Oracle::new(1, after);
    for seq in 1..=frames {
        oracle.push(&sealed(seq, payload_bytes));
    }
    oracle.publish();
    oracle
}

#[test]
fn publish_shows_whole_batches() {
    model(|| {
        let mut config = smallest();
        config.capacity_bytes = 512;
        config.batch_bytes_max = 96;
        let mut builder = RingBuilder::new(config);
        let reader = builder.consumer("reader");
        let mut ring = builder.build(Seq::FIRST).unwrap();
        let mut consumer = ring.consumers.remove(reader.index());
        let writer = thread::spawn(move || {
            push(&mut ring.producer, 1, 0);
            push(&mut ring.producer, 2, 0);
            ring.producer.publish();
            push(&mut ring.producer, 3, 0);
            ring.producer.publish();
        });
        let mut seen_first = false;
        let mut oracle = oracle_of(3, 0, &[vec![]]);
        while consumer.next_seq().0 <= 3 {
            let seq = consumer.next_seq().0;
            match consumer.peek() {
                Some(frame) => {
                    assert_eq!(Some(frame), oracle.peek(0).map(padded_frame).as_deref());
                    consumer.advance();
                    oracle.advance(0);
                    seen_first = true;
                }
                None => {
                    assert!(!(seen_first && seq == 2), "half a batch");
                    thread::yield_now();
                }
            }
        }
        writer.join().unwrap();
    });
}

#[test]
fn the_gate_keeps_what_is_not_released_over_the_wrap() {
    model(|| {
        let mut builder = RingBuilder::new(smallest());
        let reader = builder.consumer("reader");
        let mut ring = builder.build(Seq::FIRST).unwrap();
        let mut consumer = ring.consumers.remove(reader.index());
        // Seven frames of 32 bytes and a word fill the lap; the eighth is behind a skip and waits for the reader.
        let frames = 8;
        let mut oracle = oracle_of(frames, 0, &[vec![]]);
        for seq in 1..=6 {
            push(&mut ring.producer, seq, 0);
        }
        ring.producer.publish();
        let writer = thread::spawn(move || {
            for seq in 7..=frames {
                push(&mut ring.producer, seq, 0);
                ring.producer.publish();
                ring.producer.idle();
            }
        });
        read_all(&mut consumer, &mut oracle, 0, frames + 1);
        writer.join().unwrap();
    });
}

#[test]
fn a_barrier_shows_only_what_was_released_before() {
    model(|| {
        let mut builder = RingBuilder::new(smallest());
        let first = builder.consumer("first");
        builder.consumer_after("second", &[first]);
        let mut ring = builder.build(Seq::FIRST).unwrap();
        let mut second = ring.consumers.pop().unwrap();
        let mut first = ring.consumers.pop().unwrap();
        let done = loom::sync::Arc::new(loom::sync::atomic::AtomicU64::new(0));
        let done_by_first = done.clone();
        push(&mut ring.producer, 1, 0);
        ring.producer.publish();
        let writer = thread::spawn(move || {
            push(&mut ring.producer, 2, 0);
            ring.producer.publish();
        });
        let earlier = thread::spawn(move || {
            for _ in 0..LOOKS {
                let seq = first.next_seq().0;
                if first.peek().is_some() {
                    done_by_first.store(seq, loom::sync::atomic::Ordering::Relaxed);
                    first.advance();
                    first.release();
                }
            }
        });
        let mut oracle = oracle_of(2, 0, &[vec![]]);
        for _ in 0..LOOKS {
            let seq = second.next_seq().0;
            if let Some(frame) = second.peek() {
                assert_eq!(Some(frame), oracle.peek(0).map(padded_frame).as_deref());
                assert!(done.load(loom::sync::atomic::Ordering::Relaxed) >= seq, "the barrier was passed");
                second.advance();
                oracle.advance(0);
            }
        }
        writer.join().unwrap();
        earlier.join().unwrap();
    });
}

#[test]
fn a_follower_sees_right_frames_or_an_overrun() {
    model(|| {
        let mut ring = RingBuilder::new(smallest()).build(Seq::FIRST).unwrap();
        let mut follower = ring.tap.follow(Seq::FIRST, Horizon::Sequenced).unwrap();
        // The eighth frame is behind a skip, over the first one, which the follower is about to read.
        let frames = 8;
        let oracle = oracle_of(frames, 0, &[]);
        for seq in 1..=7 {
            push(&mut ring.producer, seq, 0);
            ring.producer.publish();
        }
        let writer = thread::spawn(move || {
            push(&mut ring.producer, frames, 0);
            ring.producer.publish();
            ring
        });
        for _ in 0..LOOKS {
            let expected = follower.next_seq().0;
            match follower.poll() {
                Ok(Some(frame)) => assert_eq!(Some(frame), oracle.frame(expected)),
                Ok(None) => {}
                Err(FollowError::Overrun { from, to }) => assert!(from.0 == expected && to > from),
                Err(other) => panic!("{other}"),
            }
        }
        let _ring = writer.join().unwrap();
    });
}

#[test]
fn attaching_beside_the_writer_finds_the_place_or_says_why_not() {
    model(|| {
        let mut ring = RingBuilder::new(smallest()).build(Seq::FIRST).unwrap();
        let oracle = oracle_of(8, 0, &[]);
        for seq in 1..=7 {
            push(&mut ring.producer, seq, 0);
            ring.producer.publish();
        }
        let tap = ring.tap.clone();
        let writer = thread::spawn(move || {
            push(&mut ring.producer, 8, 0);
            ring.producer.publish();
            ring.producer.idle();
            ring
        });
        match tap.follow(Seq(7), Horizon::Sequenced) {
            Ok(mut follower) => match follower.poll() {
                Ok(Some(frame)) => assert_eq!(Some(frame), oracle.frame(7)),
                Err(FollowError::Overrun { .. }) => {}
                other => panic!("{other:?}"),
            },
            Err(ticktape_shm::AttachError::TooOld { first }) => assert!(first > Seq(7)),
            Err(other) => panic!("{other}"),
        }
        let _ring = writer.join().unwrap();
    });
}
