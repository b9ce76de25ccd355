use std::collections::VecDeque;

use proptest::prelude::*;

use super::heap::ring;
use super::*;

/// Wraps within the first few entries.
const NEAR_WRAP: u32 = u32::MAX - 2;

#[test]
fn entries_come_out_in_order_across_the_wrap_of_the_indices() {
    let (mut producer, mut consumer, forge) = ring(8, NEAR_WRAP, 0u64);
    for round in 0..100u64 {
        for i in 0..5 {
            assert!(producer.push(round * 5 + i));
        }
        assert_eq!(consumer.pop(), None, "not published yet");
        producer.publish();
        assert_eq!((producer.outstanding(), producer.pending()), (5, 5));
        for i in 0..5 {
            assert_eq!(consumer.pop(), Some(round * 5 + i));
        }
        assert_eq!(producer.outstanding(), 5, "not released yet");
        consumer.release();
        assert_eq!(producer.outstanding(), 0);
    }
    assert_eq!(forge.producer(), NEAR_WRAP.wrapping_add(500));
    assert!(!producer.is_broken() && !consumer.is_broken());
}

#[test]
fn a_full_ring_takes_no_more_until_room_is_released() {
    let (mut producer, mut consumer, _) = ring(4, NEAR_WRAP, 0u64);
    assert_eq!((0..9).filter(|&i| producer.push(i)).count(), 4);
    producer.publish();
    assert_eq!(consumer.pop(), Some(0));
    assert!(!producer.push(9), "taken, but not released");
    consumer.release();
    assert!(producer.push(9) && !producer.push(10));
}

#[test]
fn a_wakeup_is_asked_for_by_flag() {
    let (producer, _, forge) = ring(4, 0, 0u64);
    assert!(!producer.needs_wakeup());
    forge.set_flags(XDP_RING_NEED_WAKEUP);
    assert!(producer.needs_wakeup());
}

#[test]
fn a_producer_that_claims_more_than_the_ring_holds_breaks_it_for_good() {
    for claim in [5, 0x8000_0000, u32::MAX] {
        let (_, mut consumer, forge) = ring(4, NEAR_WRAP, 7u64);
        forge.set_producer(NEAR_WRAP.wrapping_add(claim));
        assert_eq!(consumer.pop(), None, "claim of {claim}");
        assert!(consumer.is_broken());
        forge.set_producer(NEAR_WRAP.wrapping_add(1));
        assert_eq!(consumer.pop(), None, "what lied once is not believed again");
    }
}

#[test]
fn a_producer_that_goes_back_breaks_the_ring() {
    let (mut producer, mut consumer, forge) = ring(4, NEAR_WRAP, 0u64);
    (0..3).for_each(|i| assert!(producer.push(i)));
    producer.publish();
    (0..3).for_each(|i| assert_eq!(consumer.pop(), Some(i)));
    forge.set_producer(NEAR_WRAP.wrapping_add(2));
    assert_eq!((consumer.pop(), consumer.is_broken()), (None, true));
}

#[test]
fn a_consumer_that_took_what_was_not_there_breaks_the_ring() {
    // One published: it may take that one, no more; and it may not give it back.
    for claim in [2, 5, u32::MAX] {
        let (mut producer, _, forge) = ring(4, NEAR_WRAP, 0u64);
        assert!(producer.push(1) && producer.push(2));
        producer.next = producer.next.wrapping_sub(1);
        producer.publish();
        forge.set_consumer(NEAR_WRAP.wrapping_add(claim));
        assert_eq!((producer.outstanding(), producer.is_broken()), (0, true), "claim of {claim}");
        assert!(!producer.push(3));
    }
}

#[test]
fn two_threads_pass_entries_across_the_wrap() {
    const COUNT: u64 = 200_000;
    let (mut producer, mut consumer, _) = ring(64, u32::MAX - 1_000, 0u64);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for i in 0..COUNT {
                while !producer.push(i) {
                    producer.publish();
                    std::thread::yield_now();
                }
                if i % 7 == 0 {
                    producer.publish();
                }
            }
            producer.publish();
        });
        for i in 0..COUNT {
            loop {
                if let Some(entry) = consumer.pop() {
                    assert_eq!(entry, i);
                    break;
                }
                consumer.release();
                std::thread::yield_now();
            }
        }
    });
}

proptest! {
    /// Against a plain queue, from any index on.
    #[test]
    fn a_ring_is_a_bounded_queue(
        start in prop_oneof![Just(0), Just(u32::MAX), (u32::MAX - 40)..u32::MAX, any::<u32>()],
        steps in prop::collection::vec((0u8..4, 1usize..9), 1..200),
    ) {
        const SIZE: u32 = 8;
        let (mut producer, mut consumer, _) = ring(SIZE, start, 0u64);
        let (mut written, mut visible, mut unreleased) = (VecDeque::new(), VecDeque::new(), 0);
        let mut id = 0;
        for (what, count) in steps {
            match what {
                0 => for _ in 0..count {
                    let room = written.len() + visible.len() + unreleased < SIZE as usize;
                    prop_assert_eq!(producer.push(id), room);
                    if room {
                        written.push_back(id);
                        id += 1;
                    }
                },
                1 => {
                    producer.publish();
                    visible.append(&mut written);
                }
                2 => for _ in 0..count {
                    let expected = visible.pop_front();
                    unreleased += usize::from(expected.is_some());
                    prop_assert_eq!(consumer.pop(), expected);
                },
                _ => {
                    consumer.release();
                    unreleased = 0;
                }
            }
            prop_assert_eq!(producer.outstanding() as usize, visible.len() + unreleased);
        }
        prop_assert!(!producer.is_broken() && !consumer.is_broken());
    }

    /// Whatever indices the other side shows: at most a ring's worth is taken at once, and nothing panics.
    #[test]
    fn no_index_of_the_other_side_does_harm(start in any::<u32>(), forged in prop::collection::vec(any::<u32>(), 1..20)) {
        const SIZE: u32 = 4;
        let (mut producer, _, forge) = ring(SIZE, start, 0u64);
        let (_, mut consumer, forge_consumer) = ring(SIZE, start, 0u64);
        for index in forged {
            forge.set_consumer(index);
            forge_consumer.set_producer(index);
            let pushed = (0..2 * SIZE).filter(|_| producer.push(1)).count();
            let popped = (0..2 * SIZE).filter(|_| consumer.pop().is_some()).count();
            prop_assert!(pushed <= SIZE as usize && popped <= SIZE as usize);
            producer.publish();
            consumer.release();
        }
    }
}
