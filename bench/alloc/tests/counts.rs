//! What is counted, with the counting allocator in place.

use std::hint::black_box;
use std::thread;

use ticktape_alloc::{CountingAllocator, Counts, count_thread, is_counting, thread_counts};

#[global_allocator]
static HEAP: CountingAllocator = CountingAllocator;

#[test]
fn work_on_the_stack_counts_nothing() {
    assert!(is_counting());
    let (counts, sum) = count_thread(|| (0..black_box(100_u64)).sum::<u64>());
    assert_eq!((counts, sum), (Counts::default(), 4_950));
}

#[test]
fn each_request_counts_with_its_size() {
    let one = |counts: Counts| (counts.allocations, counts.bytes);
    let (counts, _box) = count_thread(|| black_box(Box::new([0_u8; 40])));
    assert_eq!(one(counts), (1, 40));
    let (counts, mut vector) = count_thread(|| black_box(vec![0_u8; 1_000])); // zeroed
    assert_eq!(one(counts), (1, 1_000));
    let (counts, ()) = count_thread(|| vector.reserve_exact(500)); // reallocated
    assert_eq!(one(counts), (1, 1_500));
    let (counts, ()) = count_thread(|| drop(vector));
    assert_eq!(counts, Counts::default());
}

#[test]
fn other_threads_do_not_count() {
    let (ready_tx, ready_rx) = std::sync::mpsc::sync_channel::<()>(1);
    let other = thread::spawn(move || {
        ready_rx.recv().unwrap();
        count_thread(|| black_box(vec![1_u8; 100])).0
    });
    let before = thread_counts();
    ready_tx.send(()).unwrap();
    let sent = thread_counts();
    while !other.is_finished() {
        std::hint::spin_loop();
    }
    assert_eq!(thread_counts(), sent);
    assert!(sent.allocations >= before.allocations);
    assert_eq!(other.join().unwrap(), Counts { allocations: 1, bytes: 100 });
}
