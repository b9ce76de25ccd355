//! The ring against a plain queue, under arbitrary sizes and orders of calls.
#![cfg(not(loom))]

mod model;

use model::{Oracle, padded_frame, sealed};
use proptest::prelude::*;
use ticktape_core::frame::padded;
use ticktape_core::{Frame, Seq};
use ticktape_shm::{FollowError, Horizon, RingBuilder, RingConfig};

/// Both ways of copying: word by word, and by lines.
const FRAME_BYTES_MAX: usize = 500;
const BATCH_BYTES_MAX: usize = 1500;
const HOLD_BYTES: u64 = 4096;

#[derive(Clone, Debug)]
enum Call {
    Push(usize),
    Publish,
    Idle,
    Read(usize, usize),
    Release(usize),
    Run(usize, usize),
    Poll(usize, usize),
    Follow(usize),
    Room(usize),
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        6 => (0..=FRAME_BYTES_MAX - 32).prop_map(Call::Push),
        3 => Just(Call::Publish),
        1 => Just(Call::Idle),
        2 => (0..3usize, 1..8usize).prop_map(|(reader, frames)| Call::Read(reader, frames)),
        2 => (0..3usize).prop_map(Call::Release),
        1 => (0..3usize, 1..600usize).prop_map(|(reader, bytes)| Call::Run(reader, bytes)),
        2 => (0..3usize, 1..100usize).prop_map(|(reader, frames)| Call::Poll(reader, frames)),
        2 => (1..12usize).prop_map(Call::Follow),
        1 => (32..400usize).prop_map(Call::Room),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_a_queue(first_seq in 1u64..1 << 40, hold in any::<bool>(), calls in prop::collection::vec(call(), 1..400)) {
        let config = RingConfig {
            capacity_bytes: 8192,
            frame_bytes_max: FRAME_BYTES_MAX,
            batch_bytes_max: BATCH_BYTES_MAX,
            epoch: 9,
            commit_is_sequenced: true,
        };
        let mut builder = RingBuilder::new(config);
        let first = builder.consumer("first");
        let second = builder.consumer("second");
        builder.consumer_after("third", &[first, second]);
        if hold {
            builder.hold_bytes_max(second, HOLD_BYTES);
        }
        let mut ring = builder.build(Seq(first_seq)).unwrap();
        let mut follower = ring.tap.follow(Seq(first_seq), Horizon::Committed).unwrap();
        let mut oracle = Oracle::new(first_seq, &[vec![], vec![], vec![0, 1]]);
        for call in calls {
            match call {
                Call::Push(payload_bytes) => {
                    let seq = oracle.next_seq();
                    prop_assert_eq!(ring.producer.next_seq(), Seq(seq));
                    let frame = sealed(seq, payload_bytes);
                    // With a skip the batch might be too large and be published by itself, which the queue would not know.
                    if oracle.open_bytes() + padded(frame.len()) + FRAME_BYTES_MAX + 8 > BATCH_BYTES_MAX {
                        ring.producer.publish();
                        oracle.publish();
                    }
                    let fits = ring.producer.room(padded(frame.len()));
                    let pushed = ring.producer.push(&frame);
                    prop_assert!(!fits || pushed.is_ok(), "room promised what push refused");
                    if pushed.is_ok() {
                        oracle.push(&frame);
                        prop_assert!(oracle.held_bytes() <= config.capacity_bytes);
                        prop_assert!(!hold || oracle.held_bytes_of(1) <= HOLD_BYTES as usize);
                    } else {
                        prop_assert!(oracle.held_bytes() > 0, "full, and nobody holds anything");
                    }
                }
                Call::Publish => {
                    ring.producer.publish();
                    oracle.publish();
                }
                Call::Idle => ring.producer.idle(),
                Call::Read(reader, frames) => {
                    for _ in 0..frames {
                        let expected = oracle.peek(reader).map(padded_frame);
                        prop_assert_eq!(ring.consumers[reader].peek(), expected.as_deref());
                        if expected.is_some() {
                            ring.consumers[reader].advance();
                            oracle.advance(reader);
                        }
                    }
                }
                Call::Release(reader) => {
                    ring.consumers[reader].release();
                    oracle.release(reader);
                }
                Call::Run(reader, bytes_max) => {
                    let expected = oracle.peek(reader).is_some();
                    let run = ring.consumers[reader].run(bytes_max).map(|run| (run.bytes.to_vec(), run.frames));
                    prop_assert_eq!(run.is_some(), expected);
                    if let Some((bytes, frames)) = run {
                        let mut joined = Vec::new();
                        for _ in 0..frames {
                            joined.extend(padded_frame(oracle.peek(reader).expect("a frame nobody published")));
                            oracle.advance(reader);
                        }
                        prop_assert!(frames == 1 || bytes.len() <= bytes_max);
                        prop_assert_eq!(bytes, joined);
                        ring.consumers[reader].advance();
                    }
                }
                Call::Poll(reader, frames_max) => {
                    let mut frames = Vec::new();
                    ring.consumers[reader].poll(frames_max, |frame| frames.push(frame.to_vec()));
                    for frame in &frames {
                        let expected = oracle.peek(reader).map(padded_frame);
                        prop_assert_eq!(Some(frame), expected.as_ref());
                        oracle.advance(reader);
                    }
                    prop_assert!(frames.len() == frames_max || oracle.peek(reader).is_none());
                    oracle.release(reader);
                }
                Call::Follow(frames) => {
                    for _ in 0..frames {
                        let seq = follower.next_seq();
                        match follower.poll() {
                            Ok(None) => prop_assert_eq!(oracle.frame(seq.0), None),
                            Ok(Some(frame)) => {
                                prop_assert_eq!(Some(frame), oracle.frame(seq.0));
                                prop_assert!(Frame::decode(frame).is_ok());
                            }
                            Err(FollowError::Overrun { from, to }) => {
                                prop_assert!(from == seq && to > from && to == follower.next_seq());
                            }
                            Err(other) => return Err(TestCaseError::fail(other.to_string())),
                        }
                    }
                }
                Call::Room(bytes) => {
                    // Asking changes nothing that can be seen; the next calls check that.
                    let _ = ring.producer.room(bytes);
                }
            }
        }
    }

    #[test]
    fn batches_are_seen_whole_or_not_at_all(sizes in prop::collection::vec(0usize..=100, 1..9)) {
        let config = RingConfig { capacity_bytes: 8192, frame_bytes_max: 132, batch_bytes_max: 1400, ..RingConfig::default() };
        let mut builder = RingBuilder::new(config);
        builder.consumer("reader");
        let mut ring = builder.build(Seq::FIRST).unwrap();
        let mut seq = 1;
        for _ in 0..20 {
            for &size in &sizes {
                ring.producer.push(&sealed(seq, size)).unwrap();
                prop_assert!(ring.consumers[0].peek().is_none(), "visible before publish");
                seq += 1;
            }
            ring.producer.publish();
            prop_assert_eq!(ring.consumers[0].poll(usize::MAX, |_| ()), sizes.len());
        }
    }
}
